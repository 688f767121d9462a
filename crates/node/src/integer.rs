//! Integers as the server reads them: no blanks, no plus, no leading zero.

use std::str;

/// Returns the integer, if the text is one.
pub(crate) fn integer_of(arg: &[u8]) -> Option<i64> {
    let text = str::from_utf8(arg).ok().filter(|text| is_canonical(text));
    text.and_then(|text| text.parse().ok())
}

fn is_canonical(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    text == "0" || digits.starts_with(|first: char| first.is_ascii_digit() && first != '0')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_as_strictly_as_by_the_server() {
        for (text, value) in [("0", 0), ("-7", -7), ("9223372036854775807", i64::MAX)] {
            assert_eq!(integer_of(text.as_bytes()), Some(value));
        }
        for text in ["", "-", "-0", "007", "+1", " 1", "1 ", "1.0", "9223372036854775808", "x"] {
            assert_eq!(integer_of(text.as_bytes()), None, "{text:?}");
        }
    }
}
