//! Fencing tokens: numbers that increase from one holder of a resource to the next.
//!
//! [The manual](crate::manual::protocol#fencing-tokens) has the rules, and why they need neither a
//! clock nor a TTL. The functions are pure and public, so that the model runs the same code.
//! Counters are requested and written back in `core/fencing/`.

use std::cmp::Reverse;
use std::fmt;
use std::time::Duration;

/// The maximum distance of a proposal from the node's own clock. The script rejects more.
pub const MAX_SKEW: Duration = Duration::from_secs(5);

/// The minimum `max_ttl` for fencing: more than twice [`MAX_SKEW`], so that the clocks overtake a
/// counter that was lost with a node's data before the node votes again.
pub const MIN_MAX_TTL: Duration = Duration::from_secs(11);

/// The largest token: 2^53 - 1, up to which the numbers of Lua and of JSON are exact. Tokens come
/// from clocks in µs, which reach it in the year 2255.
pub const MAX_TOKEN: u64 = (1 << 53) - 1;

/// Returns whether this can be the token of an exclusive holder, which is even.
#[must_use]
pub fn is_exclusive(token: u64) -> bool {
    (1..=MAX_TOKEN).contains(&token) && token.is_multiple_of(2)
}

/// Returns whether this can be the token of readers, which is odd.
#[must_use]
pub fn is_shared(token: u64) -> bool {
    (1..=MAX_TOKEN).contains(&token) && !token.is_multiple_of(2)
}

/// Returns the smallest counter that a reader keeps as it is. `proposal` is the client's wall clock
/// in µs.
///
/// A node that came back with old data may have an odd counter from before an exclusive holder. It
/// has not voted for `max_ttl` since, so this counter is behind every proposal by at least
/// `max_ttl` less twice [`MAX_SKEW`], once for the proposal then and once for this one. Such a
/// counter is never kept.
#[must_use]
pub fn least_kept(proposal: u64, max_ttl: Duration) -> u64 {
    // Once for the proposal that the old counter came from, and once for this one.
    let span = max_ttl.saturating_sub(2 * MAX_SKEW).as_micros();
    proposal.saturating_sub(u64::try_from(span).unwrap_or(u64::MAX)).max(1)
}

/// The prefix of the key that has the counter of a resource on a node.
pub const COUNTER_PREFIX: &[u8] = b"redbolt:fence:";

/// A number that is larger for each later holder of a resource.
///
/// Pass it to the storage that the lock protects, which must reject a token smaller than the
/// largest that it has seen. See [How to do distributed locking][kleppmann] for the reason.
///
/// Tokens increase as long as no voting node loses its counters. If one does, they still increase
/// if the clocks of the servers agree within `max_ttl` less 10 s. Tokens are not consecutive (those
/// of exclusive locks and permits of redbolt are even), and tokens of different resources are not
/// comparable.
///
/// [kleppmann]: https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html
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

    /// Returns the number, from 1 to 2^53 - 1.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }
}

/// Returns the number, for clients of storage whose parameters are numbers.
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

/// The result of the counters of a quorum of grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the models decide by each of them")]
pub enum Agreement {
    /// A quorum has this value, which is the token.
    Reached(u64),
    /// No value has a quorum. The largest one must be written back to the granting nodes that are
    /// behind it.
    Behind(u64),
}

/// Returns the result for the counters of the grants of one attempt. There is at least one.
#[must_use]
pub fn agreement(counters: &[u64], quorum: usize) -> Agreement {
    let equal = |value: u64| counters.iter().filter(|&&other| other == value).count();
    // Two quorums have a node in common, so a later holder gets a larger value.
    let agreed = counters.iter().copied().find(|&value| equal(value) >= quorum);
    let largest = counters.iter().copied().max().unwrap_or_default();
    // Without agreement the largest wins: no counter is ever lowered.
    agreed.map_or(Agreement::Behind(largest), Agreement::Reached)
}

/// Returns how far ahead the proposing clock should be: the middle of the largest group of node
/// clocks, at least a quorum, that are at most twice [`MAX_SKEW`] apart, so that all of them
/// accept it. `ahead` is how far each node's clock is ahead, in µs and in any order. `None` if
/// no group has a quorum: a minority decides nothing, however wrong its clocks are.
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
    // A minority must not choose: its nodes may have wrong clocks, and a counter stays.
    // Half of a distance fits.
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
    fn a_clock_needs_a_quorum() {
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
    fn tokens_of_exclusive_holders_are_even() {
        assert!([2, 4, MAX_TOKEN - 1].into_iter().all(is_exclusive));
        assert!(![0, 1, 3, MAX_TOKEN, MAX_TOKEN + 1].into_iter().any(is_exclusive));
    }
}
