//! The computation of the validity that is left of a TTL.
//!
//! A node keeps the key for `ttl` by its own clock. A holder may rely on it for
//! `ttl - elapsed - drift` by the holder's clock, the formula of the [Redlock page]
//! (`MIN_VALIDITY`). Only this file computes it, and nothing in it wraps: an expired lease has a
//! validity of zero.
//!
//! `elapsed` is the larger of the readings of two clocks, so that a suspend, a paused virtual
//! machine and a forward step of the wall clock end a lease early, and a backward step changes
//! nothing.
//!
//! A lease begins before the first byte of its attempt exists, and `now` is read after the deciding
//! reply was parsed, so that the validity is too short rather than too long.
//!
//! [Redlock page]: https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/

use std::time::Duration;

use super::time::{ClockReading, Timestamp, saturating_nanos};

/// The time for which a holder may rely on a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    since: ClockReading,
    /// The TTL minus the drift.
    span_ns: u64,
}

impl Lease {
    pub(super) const NONE: Self =
        Self { since: ClockReading { boot: Timestamp(0), wall: Timestamp(0) }, span_ns: 0 };

    pub(super) fn new(since: ClockReading, ttl: Duration, drift: Drift) -> Self {
        // `since` is before the first byte of the attempt, when no node had begun the TTL.
        Self { since, span_ns: saturating_nanos(ttl.saturating_sub(drift.of(ttl))) }
    }

    /// Returns the validity that is left at `now`, which is zero once the lease has expired.
    ///
    /// Read the clock for each call, because an old reading makes the validity look too long.
    #[must_use]
    pub fn remaining(&self, now: ClockReading) -> Duration {
        // It saturates: a wrapped subtraction would be a validity of centuries.
        Duration::from_nanos(self.span_ns.saturating_sub(self.elapsed_ns(now)))
    }

    /// Returns whether `now` can be of the same boot. A boot clock behind the lease has restarted.
    pub(super) fn is_of_boot(&self, now: ClockReading) -> bool {
        // The boot clock starts again with the machine, and leases of another boot mean nothing.
        self.since.boot <= now.boot
    }

    /// Returns the start of the lease and its length in nanoseconds.
    pub(super) fn parts(&self) -> (ClockReading, u64) {
        (self.since, self.span_ns)
    }

    pub(super) fn from_parts(since: ClockReading, span_ns: u64) -> Self {
        Self { since, span_ns }
    }

    /// Returns which of two leases on the same lock lasts longer at `now`.
    pub(super) fn longer(self, other: Self, now: ClockReading) -> Self {
        if other.remaining(now) > self.remaining(now) { other } else { self }
    }

    /// Returns a lease that ends with the first of the two, on each clock.
    pub(super) fn and(self, other: Self) -> Self {
        let (own, others) = (self.ends_on_both(), other.ends_on_both());
        // The shorter lease has already begun, so this one has as well.
        let span_ns = self.span_ns.min(other.span_ns);
        let since = |end: Timestamp| Timestamp(end.0.saturating_sub(span_ns));
        let boot = since(own.boot.min(others.boot));
        Self { since: ClockReading { boot, wall: since(own.wall.min(others.wall)) }, span_ns }
    }

    /// Returns whether this lease never ends before the other one, however the clocks move.
    pub(super) fn outlasts(&self, other: &Self) -> bool {
        let (own, others) = (self.ends_on_both(), other.ends_on_both());
        // Either clock can end a lease, so it must not end earlier on any of them.
        own.boot >= others.boot && own.wall >= others.wall
    }

    fn ends_on_both(&self) -> ClockReading {
        let end = |since: Timestamp| Timestamp(since.0.saturating_add(self.span_ns));
        ClockReading { boot: end(self.since.boot), wall: end(self.since.wall) }
    }

    /// Returns when the lease ends on the boot clock. A step of the wall clock may end it earlier.
    pub(super) fn ends(&self) -> Timestamp {
        self.since.boot + Duration::from_nanos(self.span_ns)
    }

    /// Returns the nanoseconds since the start, by the clock on which more time has passed.
    fn elapsed_ns(&self, now: ClockReading) -> u64 {
        // The wall clock counts only if it shows more: it may end a lease early, never prolong it.
        let on_wall = now.wall.0.saturating_sub(self.since.wall.0);
        now.boot.0.saturating_sub(self.since.boot.0).max(on_wall)
    }
}

/// The part of a TTL that is subtracted because clocks are imprecise: a rate, and 2 ms for their
/// resolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Drift {
    pub(super) parts_per_million: u32,
}

impl Drift {
    pub(super) fn of(self, ttl: Duration) -> Duration {
        let (nanos, rate) = (saturating_nanos(ttl), u64::from(self.parts_per_million));
        // Dividing first avoids a slow division of 128 bits; the remainder is scaled separately, so
        // that nothing is lost.
        let whole = (nanos / MILLION).saturating_mul(rate);
        let share = whole.saturating_add(nanos % MILLION * rate / MILLION);
        Duration::from_nanos(share).saturating_add(RESOLUTION)
    }
}

const MILLION: u64 = 1_000_000;

/// Redis expires keys in whole milliseconds: one is subtracted for each side.
const RESOLUTION: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const DRIFT: Drift = Drift { parts_per_million: 10_000 };

    fn at(boot_ms: u64, wall_ms: u64) -> ClockReading {
        ClockReading { boot: Timestamp(boot_ms * MS), wall: Timestamp(wall_ms * MS) }
    }

    fn left_ms(lease: Lease, now: ClockReading) -> u64 {
        lease.remaining(now).as_millis() as u64
    }

    #[test]
    fn a_lease_outlasts_another_one_by_both_clocks_or_not_at_all() {
        let from =
            |boot_ms, wall_ms| Lease::new(at(boot_ms, wall_ms), Duration::from_secs(10), DRIFT);
        let (longer_on_boot, longer_on_wall) = (from(200, 100), from(100, 200));
        assert!(!longer_on_boot.outlasts(&longer_on_wall));
        assert!(!longer_on_wall.outlasts(&longer_on_boot));
        for shorter in [longer_on_boot, longer_on_wall] {
            assert!(from(200, 200).outlasts(&shorter) && !shorter.outlasts(&from(200, 200)));
            assert!(shorter.outlasts(&shorter));
        }
    }

    #[test]
    fn validity_is_ttl_minus_elapsed_minus_drift() {
        let lease = Lease::new(at(100, 5_000), Duration::from_millis(1_000), DRIFT);
        assert_eq!(left_ms(lease, at(100, 5_000)), 988);
        assert_eq!(left_ms(lease, at(600, 5_500)), 488);
        assert_eq!(left_ms(lease, at(1_087, 5_987)), 1);
        assert_eq!(left_ms(lease, at(1_088, 5_988)), 0);
        assert_eq!(left_ms(lease, at(90_000, 95_000)), 0);
        assert_eq!(lease.ends(), Timestamp(1_088 * MS));
    }

    #[test]
    fn the_last_nanosecond_counts() {
        let lease = Lease::new(at(0, 0), Duration::from_millis(1_000), DRIFT);
        let end = Timestamp(988 * MS);
        assert_eq!(
            lease
                .remaining(ClockReading { boot: Timestamp(end.0 - 1), wall: Timestamp(0) })
                .as_nanos(),
            1
        );
        assert!(lease.remaining(ClockReading { boot: end, wall: Timestamp(0) }).is_zero());
    }

    #[test]
    fn drift_longer_than_the_ttl_leaves_no_validity() {
        for ttl_us in [0, 1, 1_999, 2_000, 2_020] {
            let lease = Lease::new(at(9, 9), Duration::from_micros(ttl_us), DRIFT);
            assert!(lease.remaining(at(9, 9)).is_zero(), "{ttl_us} us");
        }
        let lease = Lease::new(at(9, 9), Duration::from_micros(2_021), DRIFT);
        assert!(!lease.remaining(at(9, 9)).is_zero());
    }

    #[test]
    fn the_wall_clock_can_only_shorten() {
        let lease = Lease::new(at(0, 7_200_000), Duration::from_secs(10), DRIFT);
        assert_eq!(left_ms(lease, at(1_000, 7_201_000)), 8_898);
        assert_eq!(left_ms(lease, at(1_000, 7_200_000 + 3_600_000)), 0, "one hour forward");
        assert_eq!(left_ms(lease, at(1_000, 3_600_000)), 8_898, "one hour back");
        assert_eq!(left_ms(lease, at(9_898, 3_600_000)), 0, "and still it ends by boot");
    }

    #[test]
    fn extremes_do_not_wrap() {
        let end = ClockReading { boot: Timestamp::NEVER, wall: Timestamp::NEVER };
        let longest =
            Lease::new(end, Duration::from_nanos(u64::MAX), Drift { parts_per_million: u32::MAX });
        assert!(longest.remaining(end).is_zero());
        assert_eq!(Lease::new(end, Duration::MAX, DRIFT).ends(), Timestamp::NEVER);
        assert!(!Lease::new(end, Duration::from_secs(1), DRIFT).remaining(at(0, 0)).is_zero());
    }

    #[test]
    fn drift_is_the_whole_share_of_any_ttl() {
        for nanos in [0, 1, 999_999, 1_000_000, 1_234_567_891, 86_400_000_000_001, u64::MAX / 3] {
            for rate in [0, 1, 7, 10_000, 499_999, u32::MAX] {
                let share = u128::from(nanos) * u128::from(rate) / 1_000_000;
                let share = Duration::from_nanos(u64::try_from(share).unwrap_or(u64::MAX));
                let drift = Drift { parts_per_million: rate };
                let expected = share.saturating_add(RESOLUTION);
                assert_eq!(drift.of(Duration::from_nanos(nanos)), expected, "{nanos} {rate}");
            }
        }
    }

    #[test]
    fn the_longer_of_two_wins() {
        let old = Lease::new(at(0, 0), Duration::from_secs(30), DRIFT);
        let new = Lease::new(at(1_000, 1_000), Duration::from_secs(1), DRIFT);
        assert_eq!(old.longer(new, at(1_000, 1_000)), old);
        assert_eq!(new.longer(old, at(1_000, 1_000)), old);
        assert_eq!(old.longer(new, at(29_900, 1_000)), old);
    }
}
