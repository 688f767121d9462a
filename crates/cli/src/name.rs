//! Formats the name of a lock, for people and for JSON.
//!
//! A name can be any bytes. Some would move the cursor of a terminal or begin a new line, and some
//! cannot be written in JSON. The library decides which names are allowed.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::str;

use crate::say::printable;

/// Returns a name on one line: text as it is, everything else escaped as in Rust (`\n`, `\u{1b}`,
/// `\xff`). Different names never look the same.
pub(crate) fn show(name: &OsStr) -> String {
    let mut shown = String::with_capacity(name.len());
    for chunk in name.as_bytes().utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                '\'' | '"' => shown.push(char),
                _ => shown.extend(char.escape_debug()),
            }
        }
        shown.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    shown
}

/// Quotes text as one word of a shell, for a command that is to be copied.
pub(crate) fn quote(text: &str) -> String {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "_@%+=:,./-".contains(char);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

/// Quotes any bytes as one word of a shell. A byte that a terminal would not show needs `$'...'`,
/// which bash, zsh, busybox and POSIX of 2024 support.
pub(crate) fn word(name: &OsStr) -> String {
    if let Some(text) = text(name).filter(|text| printable(text) == *text) {
        return quote(text);
    }
    let escaped = |&byte: &u8| match byte {
        b'\'' | b'\\' => format!("\\{}", char::from(byte)),
        b' '..=b'~' => char::from(byte).to_string(),
        _ => format!("\\{byte:03o}"),
    };
    format!("$'{}'", name.as_bytes().iter().map(escaped).collect::<String>())
}

/// Returns the name of a lock as the last word of a command that is to be copied.
pub(crate) fn last_word(name: &OsStr) -> String {
    let is_like_option = name.as_bytes().starts_with(b"-");
    format!("{}{}", if is_like_option { "-- " } else { "" }, word(name))
}

/// Returns a name as text, if it is text.
pub(crate) fn text(name: &OsStr) -> Option<&str> {
    str::from_utf8(name.as_bytes()).ok()
}

/// Returns the bytes of a name, with two hexadecimal digits each.
pub(crate) fn hex(name: &OsStr) -> String {
    name.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_is_shown_can_be_copied_to_a_shell() {
        for (text, quoted) in [
            ("redis://10.0.0.1:6379/3", "redis://10.0.0.1:6379/3"),
            ("[::1]:6379", "'[::1]:6379'"),
            ("my nodes", "'my nodes'"),
            ("it's $HOME", "'it'\\''s $HOME'"),
            ("", "''"),
        ] {
            assert_eq!(quote(text), quoted);
        }
    }

    #[test]
    fn any_name_can_be_copied_to_a_shell() {
        let word = |bytes: &[u8]| word(OsStr::from_bytes(bytes));
        assert_eq!(word("nightly \u{fc}ber".as_bytes()), "'nightly \u{fc}ber'");
        assert_eq!(word(b"it's\n\\1\xff"), r"$'it\'s\012\\1\377'");
        assert_eq!(word("\u{202e}x".as_bytes()), r"$'\342\200\256x'");
        assert_eq!(last_word(OsStr::new("job")), "job");
        assert_eq!(last_word(OsStr::new("-f x")), "-- '-f x'");
    }

    #[test]
    fn a_name_stays_on_its_line_and_says_all_its_bytes() {
        let shown = |bytes: &[u8]| show(OsStr::from_bytes(bytes));
        assert_eq!(shown("job 7: \u{fc}ber \"it's\"".as_bytes()), "job 7: \u{fc}ber \"it's\"");
        assert_eq!(shown(b"a\nb\r\x1b[2J\xff\xc3"), "a\\nb\\r\\u{1b}[2J\\xff\\xc3");
        assert_eq!(shown(b"a\\nb"), "a\\\\nb");
        assert_eq!(shown("\u{202e}x".as_bytes()), "\\u{202e}x", "it would turn the line around");
    }
}
