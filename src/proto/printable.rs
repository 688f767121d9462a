//! Text that a terminal or a log can show safely.
//!
//! Invariant: text from a node, a sentinel, another client or a path contains no character that
//! clears a screen, begins a line or reverses one. Strings of a fixed alphabet, such as labels, are
//! validated instead.

/// Returns `true` if a terminal prints this character and does nothing else.
pub(crate) fn is_printable(char: char) -> bool {
    matches!(char, '"' | '\'' | '\\') || char.escape_debug().len() == 1
}

/// Escapes each character that is not printable, as Rust does: `\n`, `\u{1b}`.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for char in text.chars() {
        match is_printable(char) {
            true => shown.push(char),
            false => shown.extend(char.escape_debug()),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_characters_that_a_terminal_acts_on_are_escaped() {
        let plain = "node 1 \"a\": it's C:\\x, \u{fc}ber";
        assert_eq!(printable(plain), plain);
        assert_eq!(printable("\x1b[2J\r\n\t\0\x7f"), r"\u{1b}[2J\r\n\t\0\u{7f}");
        assert_eq!(
            printable("\u{9b}1m\u{202e}\u{2028}\u{200b}"),
            r"\u{9b}1m\u{202e}\u{2028}\u{200b}"
        );
    }
}
