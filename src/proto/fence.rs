//! Fencing tokens: numbers that grow from one holder of a resource to the next. See
//! [the manual](crate::manual::protocol#fencing-tokens) for the rules, and why they hold without a clock and a TTL.
//!
//! Pure functions, and public, so that the model that searches them for holes decides with the same
//! code. Not here: when what is sent, see `core/fencing/`.

use std::cmp::Reverse;
use std::fmt;
use std::time::Duration;

/// How far the proposed value may be from a node's own clock. The script refuses what is further.
pub const MAX_SKEW: Duration = Duration::from_secs(5);

/// The shortest `max_ttl` with which locks can be fenced: more than twice [`MAX_SKEW`], so that a
/// counter that was lost with a node's memory is overtaken by the clocks before the node votes again.
pub const MIN_MAX_TTL: Duration = Duration::from_secs(11);

/// The largest token: 2^53 - 1, where the numbers of Lua and of JSON end. The clocks that tokens
/// are made of reach it in the year 2255.
pub const MAX_TOKEN: u64 = (1 << 53) - 1;

/// Whether this can be the token of somebody who holds a resource alone.
#[must_use]
pub fn is_exclusive(token: u64) -> bool {
    (1..=MAX_TOKEN).contains(&token) && token.is_multiple_of(2)
}

/// Whether this can be the token of those who share a resource.
#[must_use]
pub fn is_shared(token: u64) -> bool {
    (1..=MAX_TOKEN).contains(&token) && !token.is_multiple_of(2)
}

/// The least counter that stays as it is when a lock is shared, where `proposal` is the client's wall clock in µs.
///
/// A node that has come back with an earlier memory may have a counter that was odd before an exclusive holder was
/// there. It has not voted for `max_ttl` since, so that this counter is behind each proposal by that, less
/// [`MAX_SKEW`] for its own proposal and for the present one. Such a counter is never kept.
#[must_use]
pub fn least_kept(proposal: u64, max_ttl: Duration) -> u64 {
    let span = max_ttl.saturating_sub(2 * MAX_SKEW).as_micros();
    proposal.saturating_sub(u64::try_from(span).unwrap_or(u64::MAX)).max(1)
}

/// A resource's counter on a node is the key of this and its name.
pub const COUNTER_PREFIX: &[u8] = b"redbolt:fence:";

/// A number that is larger for each later holder of a resource.
///
/// Hand it to whatever the lock protects, and let that refuse a smaller one than the largest it has
/// seen. It grows as long as no node that votes loses its counters. If one does, it still grows if
/// the servers' clocks agree within `max_ttl` less 10 s. Tokens are not consecutive (those of locks are
/// even), and mean nothing across resources.
///
/// ```
/// use redbolt::FencingToken;
///
/// # fn write(seen: &mut u64, token: FencingToken) -> bool {
/// let fresh = token.get() >= *seen;
/// if fresh {
///     *seen = token.get();
/// }
/// # fresh }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(u64);

impl FencingToken {
    pub(super) fn new(value: u64) -> Self {
        Self(value)
    }

    /// The number, from 1 to 2^53 - 1.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }
}

/// For a store's client, whose parameters are numbers.
impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> Self {
        token.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What the counters of a quorum of grants amount to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the models decide by each of them")]
pub enum Agreement {
    /// A quorum has this value, whatever the others have: it is the token.
    Reached(u64),
    /// The largest value, to be written back to the granted nodes that are behind it.
    Behind(u64),
}

/// Reads the counters of the grants of one attempt, at least one.
#[must_use]
pub fn agreement(counters: &[u64], quorum: usize) -> Agreement {
    let equal = |value: u64| counters.iter().filter(|&&other| other == value).count();
    let agreed = counters.iter().copied().find(|&value| equal(value) >= quorum);
    let largest = counters.iter().copied().max().unwrap_or_default();
    agreed.map_or(Agreement::Behind(largest), Agreement::Reached)
}

/// How far a clock is ahead whose proposals the most nodes take, at least a quorum, from how far each of
/// theirs is, in µs and in any order: the middle of those that are no further apart than two [`MAX_SKEW`].
/// A minority decides nothing, however wild its clocks are.
#[must_use]
pub fn clock_of_most(ahead: &mut [i64], quorum: usize) -> Option<i64> {
    ahead.sort_unstable();
    let width = 2 * MAX_SKEW.as_micros();
    let group = |from: usize| {
        let last =
            ahead[from..].partition_point(|to| u128::from(to.abs_diff(ahead[from])) <= width);
        (last, ahead[from], ahead[from + last - 1])
    };
    let closest = |&(many, first, last): &(usize, i64, i64)| (many, Reverse(last.abs_diff(first)));
    let most = (0..ahead.len()).map(group).max_by_key(closest)?;
    let (many, first, last) = most;
    // Half a distance fits.
    (many >= quorum).then(|| first + (last.abs_diff(first) / 2) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_its_number() {
        let token = FencingToken::new(42);
        assert_eq!((token.get(), u64::from(token), token.to_string()), (42, 42, "42".to_owned()));
    }

    #[test]
    fn a_quorum_of_equals_is_the_token() {
        assert_eq!(agreement(&[7, 7], 2), Agreement::Reached(7));
        assert_eq!(agreement(&[7, 9, 7], 2), Agreement::Reached(7), "whatever the others say");
        assert_eq!(agreement(&[7, 9], 2), Agreement::Behind(9));
        assert_eq!(agreement(&[7, 9, 8], 2), Agreement::Behind(9));
        assert_eq!(agreement(&[5], 1), Agreement::Reached(5));
    }

    #[test]
    fn a_clock_is_believed_by_a_quorum_only() {
        const S: i64 = 1_000_000;
        const YEAR: i64 = 365 * 24 * 60 * 60 * S;
        let of = |mut ahead: Vec<i64>, quorum| clock_of_most(&mut ahead, quorum);
        assert_eq!(of(vec![], 2), None);
        assert_eq!(of(vec![YEAR], 2), None);
        assert_eq!(of(vec![YEAR, 0], 2), None, "which of them is wild?");
        for wild in [YEAR, -YEAR, 12 * S, i64::MAX, i64::MIN] {
            for clocks in [vec![wild, S, S], vec![S, wild, S], vec![S, S, wild]] {
                assert_eq!(of(clocks, 2), Some(S), "{wild}");
            }
            assert_eq!(of(vec![wild, 0, wild, 0, 0], 3), Some(0), "{wild}");
        }
        assert_eq!(of(vec![0, 9 * S], 2), Some(4_500_000), "both take what is between them");
        assert_eq!(of(vec![0, 10 * S + 1], 2), None, "nothing is near enough to both");
        assert_eq!(of(vec![0, 9 * S, 17 * S], 2), Some(13 * S), "the closer ones");
        assert_eq!(of(vec![i64::MIN, i64::MAX], 1), Some(i64::MAX), "of two the one ahead");
    }

    #[test]
    fn the_tokens_of_those_who_hold_alone_are_even() {
        assert!([2, 4, MAX_TOKEN - 1].into_iter().all(is_exclusive));
        assert!(![0, 1, 3, MAX_TOKEN, MAX_TOKEN + 1].into_iter().any(is_exclusive));
    }
}
