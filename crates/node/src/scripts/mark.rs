//! Marks: what tells that somebody waits in the queue for a resource, see `redbolt::proto::script`.
//!
//! A marked token is followed by a line feed and the ms at which its holder ends. Among those who share is the member
//! `line`. A closed key is nobody's.

use crate::calls::{Calls, Stop};

/// A marked token, and when its holder ends.
pub(super) fn marked(value: &[u8]) -> Option<(&[u8], i64)> {
    let (token, ends) = value.split_at(token_before_mark(value)?.len());
    let digits = &ends[1..];
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let number = str::from_utf8(digits).ok().filter(|_| is_number)?;
    Some((token, number.parse().unwrap_or(i64::MAX)))
}

/// What stands before the first line feed, where no other control character does.
pub(super) fn token_before_mark(value: &[u8]) -> Option<&[u8]> {
    let at = value.iter().position(u8::is_ascii_control)?;
    (at > 0 && value[at] == b'\n').then(|| &value[..at])
}

/// A token with a mark.
pub(super) fn with_mark(token: &[u8], ends: i64) -> Vec<u8> {
    [token, format!("\n{ends}").as_bytes()].concat()
}

/// Leaves a key that nobody takes but the first in the queue.
pub(super) fn close(calls: &mut Calls<'_>, resource: &[u8]) -> Result<(), Stop> {
    Ok(calls.set_for(resource, CLOSED, OUTLIVES_MS)?)
}

/// What a closed key holds.
pub(super) const CLOSED: &[u8] = b"\nredbolt";
/// Among those who share, for as long as somebody waits.
pub(super) const QUEUE_MARK: &[u8] = b"line";
/// When the mark ends: never.
pub(super) const NEVER: i64 = i64::MAX;
/// So much longer than its holders lives what is marked.
pub(super) const OUTLIVES_MS: i64 = 8_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_a_line_feed_and_a_number_behind_a_token() {
        assert_eq!(marked(b"a:b\n17"), Some((&b"a:b"[..], 17)));
        assert_eq!(marked(&with_mark(b"a", 5)), Some((&b"a"[..], 5)));
        for other in [&b"a"[..], b"", b"\n17", b"a\n", b"a\n1x", b"a\n1\n2", b"a\t\n17", CLOSED] {
            assert_eq!(marked(other), None, "{}", other.escape_ascii());
        }
        assert_eq!(token_before_mark(b"a\nx"), Some(&b"a"[..]));
        assert_eq!(token_before_mark(b"a\rx\n1"), None);
    }
}
