//! Messages of redbolt itself on standard error, and reports on standard output.
//!
//! `eprintln!` panics if standard error is closed, and a message must not kill a supervisor.
//!
//! A node, a sentinel or another client may have chosen a part of the text. So every character that
//! a terminal acts on is escaped, except for line ends.

use std::fmt;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::process;
use std::thread;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::Value;

use crate::exit;

/// Writes one message to standard error.
pub(crate) fn say(message: impl fmt::Display) {
    // If standard error is closed, the message has no reader.
    let _ = io::stderr().write_all(lines(message).as_bytes());
}

/// Returns a message with `redbolt: ` before each of its lines.
pub(crate) fn lines(message: impl fmt::Display) -> String {
    let message = message.to_string();
    let line = |line| format!("redbolt: {}\n", printable(line));
    message.trim_end().lines().map(line).collect()
}

/// Escapes each character that a terminal acts on, as in Rust (`\u{1b}`).
pub(crate) fn printable(text: &str) -> String {
    let escaped = |char: char| match is_printable(char) {
        true => char.to_string(),
        false => char.escape_debug().to_string(),
    };
    text.chars().map(escaped).collect()
}

/// Returns the value as JSON, on one line. Characters that a terminal acts on are escaped as in
/// JSON (`\u009b`).
pub(crate) fn json_line(value: &Value) -> String {
    let text = value.to_string();
    let mut shown = String::with_capacity(text.len() + 1);
    for char in text.chars() {
        match is_printable(char) {
            true => shown.push(char),
            // Only strings can contain such characters.
            false => {
                let units = char.encode_utf16(&mut [0; 2]).to_vec();
                shown.extend(units.iter().map(|unit| format!("\\u{unit:04x}")));
            }
        }
    }
    shown + "\n"
}

fn is_printable(char: char) -> bool {
    matches!(char, '"' | '\'' | '\\') || char.escape_debug().len() == 1
}

/// Writes a report to standard output, line by line.
pub(crate) fn report(text: &str) -> io::Result<()> {
    let lines = text.lines().map(|line| printable(line) + "\n");
    print(&lines.collect::<String>())
}

/// Writes to standard output as it is. A reader that closes the pipe early has read enough.
pub(crate) fn print(text: &str) -> io::Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome,
    }
}

/// Ends this process with 0 when standard output has no reader left. This is for commands that
/// print now and then, and have nothing to undo.
pub(crate) fn end_with_reader() -> io::Result<()> {
    let wait = || {
        let stdout = io::stdout();
        // The kernel reports errors and hang-ups even if no event is requested.
        let mut set = [PollFd::new(stdout.as_fd(), PollFlags::empty())];
        loop {
            match poll(&mut set, PollTimeout::NONE) {
                Ok(1..) => process::exit(exit::SUCCESS.into()),
                Ok(_) | Err(Errno::EINTR) => {}
                // The next line that is printed fails instead.
                Err(_) => return,
            }
        }
    };
    thread::Builder::new().name("redbolt-stdout".to_owned()).spawn(wait)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVIL: &str = "a\x1b[2J\r\t\u{9b}\u{202e}\u{e0001}\"\\\u{fc}";

    #[test]
    fn a_message_has_only_the_ends_of_its_own_lines() {
        let shown = r#"a\u{1b}[2J\r\t\u{9b}\u{202e}\u{e0001}"\"#;
        assert_eq!(lines(format!("{EVIL}\nb\n")), format!("redbolt: {shown}\u{fc}\nredbolt: b\n"));
    }

    #[test]
    fn json_is_escaped_as_json() {
        let text = json_line(&EVIL.into());
        let shown = r#""a\u001b[2J\r\t\u009b\u202e\udb40\udc01\"\\"#;
        assert_eq!(text, format!("{shown}\u{fc}\"\n"));
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), EVIL);
    }
}
