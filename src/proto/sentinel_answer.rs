//! For how long the word of sentinels counts that name a master: what a master says counts only while the word of most of them
//! is young. See [the manual](crate::manual::failover) for the rule, and why it holds.
//!
//! Pure functions, and public, so that the model that searches them for holes and the simulator decide with the same code. Not
//! here: how sentinels are asked and heard, see `net/sentinel`.

use std::time::Duration;

use super::lease::Drift;
use super::time::{ClockReading, Timestamp};

/// How old the question may be that a sentinel's word for a master answers. A lock that such a master grants is over before the
/// quarantine of its successor is, if its TTL is shorter than `max_ttl` by this (`crates/models/src/sentinel_answer.rs`).
pub const ANSWER_LASTS: Duration = Duration::from_secs(5);

/// When more than half of so many sentinels had all been asked that have named a master, of which each was asked at one of these
/// times; `None` if fewer have.
#[must_use]
pub fn vouched_at(
    sentinels: usize,
    asked_at: impl Iterator<Item = ClockReading> + Clone,
) -> Option<ClockReading> {
    let on = |clock: fn(ClockReading) -> Timestamp| {
        let times = asked_at.clone().map(clock);
        let since = |at: Timestamp| times.clone().filter(|&other| other >= at).count();
        times.clone().filter(|&at| 2 * since(at) > sentinels).max()
    };
    Some(ClockReading { boot: on(|at| at.boot)?, wall: on(|at| at.wall)? })
}

/// Whether what a master says counts that most sentinels have named at this time.
#[must_use]
pub fn counts(vouched_at: Option<ClockReading>, now: ClockReading) -> bool {
    vouched_at.is_some_and(|at| age(at, now) <= ANSWER_LASTS)
}

/// As with a lease, the clock counts that shows more: the boot clock of a virtual machine may stand still while it is
/// stopped.
fn age(vouched_at: ClockReading, now: ClockReading) -> Duration {
    now.boot.since(vouched_at.boot).max(now.wall.since(vouched_at.wall))
}

/// Whether a key is kept for longer than any word for its master counts, if it is kept for this long after most sentinels
/// have named another master.
pub(super) fn is_outlived(kept: Duration, drift: Drift) -> bool {
    kept > ANSWER_LASTS + drift.of(ANSWER_LASTS)
}

/// Whether sentinels are asked again: half of that time is over.
#[must_use]
pub fn is_due(vouched_at: Option<ClockReading>, now: ClockReading) -> bool {
    vouched_at.is_none_or(|at| age(at, now) > ANSWER_LASTS / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(boot_ms: u64, wall_ms: u64) -> ClockReading {
        let [boot, wall] = [boot_ms, wall_ms].map(|ms| Timestamp(ms * 1_000_000));
        ClockReading { boot, wall }
    }

    /// The boot clock of a virtual machine that was stopped, and a time of day that was set back.
    #[test]
    fn an_answer_is_as_old_as_either_clock_shows() {
        let asked_at =
            vouched_at(3, [(5, 900), (7, 300), (3, 500)].map(|(b, w)| reading(b, w)).into_iter());
        assert_eq!(asked_at, Some(reading(5, 500)));
        for (now, is_believed) in [
            (reading(5_005, 5_500), true),
            (reading(5_006, 5_500), false),
            (reading(5_005, 5_501), false),
            (reading(10, 60_000), false),
            (reading(60_000, 10), false),
        ] {
            assert_eq!(counts(asked_at, now), is_believed, "{now:?}");
        }
    }

    #[test]
    fn a_word_counts_for_5_s_and_is_asked_for_again_after_half() {
        let at = |ms| reading(ms, ms);
        for (ms, is_asked_for, is_believed) in
            [(2_500, false, true), (2_501, true, true), (5_000, true, true), (5_001, true, false)]
        {
            let word = Some(at(7));
            let now = at(7 + ms);
            assert_eq!((is_due(word, now), counts(word, now)), (is_asked_for, is_believed));
        }
        assert!(is_due(None, at(7)) && !counts(None, at(7)));
    }

    /// The clock of the client that counts a word may be slower than ours.
    #[test]
    fn an_answer_is_outlived_after_its_time_and_the_drift_of_clocks() {
        let drift = Drift { parts_per_million: 10_000 };
        let least = ANSWER_LASTS + Duration::from_millis(50 + 2);
        assert!(!is_outlived(least, drift));
        assert!(is_outlived(least + Duration::from_nanos(1), drift));
    }

    #[test]
    fn half_of_the_sentinels_are_too_few() {
        let of = |times: &[u64], all| vouched_at(all, times.iter().map(|&at| reading(at, at)));
        assert_eq!(of(&[5], 2), None);
        assert_eq!(of(&[5, 3], 2), Some(reading(3, 3)));
        assert_eq!(of(&[5, 3, 9], 3), Some(reading(5, 5)));
        assert_eq!(of(&[5, 3, 9], 4), Some(reading(3, 3)));
        assert_eq!(of(&[], 0), None);
    }
}
