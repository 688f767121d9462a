//! Marks, which show that there are waiters in the queue for a resource, see
//! `redbolt::proto::script`. A marked token is followed by a line feed and its holder's end in ms.
//! A marked set of readers has the member `line`. A closed key has no holder.

use crate::calls::{Calls, Stop};

/// Returns a marked token, and its holder's end.
pub(super) fn marked(value: &[u8]) -> Option<(&[u8], i64)> {
    let (token, ends) = value.split_at(token_before_mark(value)?.len());
    let digits = &ends[1..];
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let number = str::from_utf8(digits).ok().filter(|_| is_number)?;
    Some((token, number.parse().unwrap_or(i64::MAX)))
}

/// Returns the text before the first line feed, if no other control character precedes it.
pub(super) fn token_before_mark(value: &[u8]) -> Option<&[u8]> {
    let at = value.iter().position(u8::is_ascii_control)?;
    (at > 0 && value[at] == b'\n').then(|| &value[..at])
}

/// Returns a token with a mark.
pub(super) fn with_mark(token: &[u8], ends: i64) -> Vec<u8> {
    [token, format!("\n{ends}").as_bytes()].concat()
}

/// Writes a key that only the head of the queue can take.
pub(super) fn close(calls: &mut Calls<'_>, resource: &[u8]) -> Result<(), Stop> {
    Ok(calls.set_for(resource, CLOSED, OUTLIVES_MS)?)
}

/// The value of a closed key.
pub(super) const CLOSED: &[u8] = b"\nredbolt";
/// The member that marks a set of readers, as long as there are waiters.
pub(super) const QUEUE_MARK: &[u8] = b"line";
/// The score of the mark, which never ends.
pub(super) const NEVER: i64 = i64::MAX;
/// The time by which a marked key outlives its holders.
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
