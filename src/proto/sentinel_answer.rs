//! How long the answers of sentinels count.
//!
//! Invariant: a master's votes count only while the answers of a majority of its sentinels are
//! recent. [The manual](crate::manual::failover) has the rule and its reasons.
//!
//! The functions are pure and public, so that the model and the simulator run the same code.
//! Sentinels are asked in `net/sentinel`.

use std::time::Duration;

use super::lease::Drift;
use super::time::{ClockReading, Timestamp};

/// The maximum age of the query whose answer counts. If the TTL of a lock is shorter than `max_ttl`
/// by at least this, a lock granted by the old master expires before the quarantine of the new one
/// ends (`crates/models/src/sentinel_answer.rs`).
pub const ANSWER_LASTS: Duration = Duration::from_secs(5);

/// Returns the time since which a majority of `sentinels` has confirmed a master: the latest time
/// at or after which more than half of them were asked. `asked_at` has the time of the query to
/// each sentinel that named the master. `None` without a majority.
#[must_use]
pub fn vouched_at(
    sentinels: usize,
    asked_at: impl Iterator<Item = ClockReading> + Clone,
) -> Option<ClockReading> {
    let on = |clock: fn(ClockReading) -> Timestamp| {
        let times = asked_at.clone().map(clock);
        let since = |at: Timestamp| times.clone().filter(|&other| other >= at).count();
        // Not half of them: the other half could confirm another master.
        times.clone().filter(|&at| 2 * since(at) > sentinels).max()
    };
    Some(ClockReading { boot: on(|at| at.boot)?, wall: on(|at| at.wall)? })
}

/// Returns whether the votes of a master count that was confirmed at this time.
#[must_use]
pub fn counts(vouched_at: Option<ClockReading>, now: ClockReading) -> bool {
    // An old master that is cut off may still grant, while the new one votes for others
    // (docs/how-it-works/failover.md).
    vouched_at.is_some_and(|at| age(at, now) <= ANSWER_LASTS)
}

/// Returns the age of the confirmation by the clock that shows more, as for a lease: the boot clock
/// of a virtual machine may stand still while the machine is stopped.
fn age(vouched_at: ClockReading, now: ClockReading) -> Duration {
    now.boot.since(vouched_at.boot).max(now.wall.since(vouched_at.wall))
}

/// Returns whether a key that is kept for this long after sentinels named another master outlives
/// every answer for the old master.
pub(super) fn is_outlived(kept: Duration, drift: Drift) -> bool {
    // The drift is for another client's clock, by which an answer may count for longer.
    kept > ANSWER_LASTS + drift.of(ANSWER_LASTS)
}

/// Returns whether the sentinels must be asked again, because half of the time has passed.
#[must_use]
pub fn is_due(vouched_at: Option<ClockReading>, now: ClockReading) -> bool {
    // Early enough for the answer to arrive before the old one stops counting.
    vouched_at.is_none_or(|at| age(at, now) > ANSWER_LASTS / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(boot_ms: u64, wall_ms: u64) -> ClockReading {
        let [boot, wall] = [boot_ms, wall_ms].map(|ms| Timestamp(ms * 1_000_000));
        ClockReading { boot, wall }
    }

    /// A virtual machine that was stopped stops its boot clock, and a wall clock can be set
    /// back.
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
    fn an_answer_counts_for_5_s_and_is_asked_for_again_after_half_of_that() {
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

    /// The clock of the client that counts an answer may be slower than this one.
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
