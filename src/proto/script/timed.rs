//! The scripts of locks whose value is a time: the SETNX recipe, and redis-objects.

use super::lua::{Library, assemble, sections};
use super::{EXCLUSIVE, RESTART_GUARD};

const LIBRARY: Library<'_> = &[sections!("timed.lua"), EXCLUSIVE, RESTART_GUARD];

/// What the key begins with that lasts as long as a holder's lease.
pub(in crate::proto) const LEASE_PREFIX: &[u8] = b"redbolt:lease:";

/// Acquires a lock whose value is a time.
pub const ACQUIRE_TIMED: &str = assemble!(LIBRARY, "acquire_timed");

/// Extends the holder of a lock whose value is a time.
pub const EXTEND_TIMED: &str = assemble!(LIBRARY, "extend_timed");

/// Removes the holder of a lock whose value is a time.
pub const UNDO_TIMED: &str = assemble!(LIBRARY, "undo_timed");

/// The first digits of the token whose lock has this value, if it is one of ours.
#[must_use]
pub fn token_behind_time(value: &[u8]) -> Option<Vec<u8>> {
    let point = value.iter().position(|&byte| byte == b'.')?;
    let (time, digits) = (&value[..point], &value[point + 1..]);
    let is_number = |part: &[u8]| part.iter().all(u8::is_ascii_digit);
    if time.is_empty() || digits.len() != 2 * TOKEN_DIGITS || !is_number(time) {
        return None;
    }
    let hex = |pair: &[u8]| {
        let number = std::str::from_utf8(pair).ok()?.parse().ok()?;
        char::from_digit(number, 16).map(|digit| digit as u8)
    };
    digits.chunks(2).map(hex).collect()
}

/// So many digits of a token are in a value.
const TOKEN_DIGITS: usize = 34;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_tells_the_digits_of_its_token() {
        let of = |value: &str| token_behind_time(value.as_bytes());
        let digits = "10111213141500010203040506070809".repeat(2) + "0003";
        let token = [&b"abcdef0123456789"[..], b"abcdef0123456789", b"03"].concat();
        assert_eq!(of(&format!("1795327176.{digits}")), Some(token));
        for value in ["1795327176.77", "1795327176", "", "."] {
            assert_eq!(of(value), None, "{value}");
        }
        assert_eq!(of(&format!(".{digits}")), None);
        assert_eq!(of(&format!("1795327176.16{}", &digits[2..])), None, "no digit");
    }
}
