//! Moments as the core knows them: numbers that somebody else read from a clock.
//!
//! Not `std::time::Instant`, which stands still while a machine sleeps (Linux) and cannot be made
//! up by a simulation. Not here: reading a clock, which `net` does, and TTL arithmetic, which is in
//! [`lease`](super::Lease).

use std::ops::Add;
use std::time::Duration;

/// A moment, in nanoseconds since an origin that the clock chose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_structs, reason = "nanoseconds, whoever counts them")]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Later than every moment.
    pub const NEVER: Self = Self(u64::MAX);

    /// The time from `earlier` to here; zero if it is not earlier.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// So many milliseconds later, at the latest [`NEVER`](Self::NEVER).
    pub(super) fn after_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms.saturating_mul(1_000_000)))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    /// Saturates at [`NEVER`](Self::NEVER).
    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(saturating_nanos(span)))
    }
}

/// The two clocks, read together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "validity rests on these two clocks")]
pub struct ClockReading {
    /// Runs on through suspend and is never set. Every timer is on this clock; the core takes the
    /// largest value it was ever given, so a step back is ignored.
    pub boot: Timestamp,
    /// The time of day, which others may set. It is used for one thing: if it moved further than
    /// `boot` since a lease began, the lease has lost that much of its validity.
    pub wall: Timestamp,
}

/// A span in nanoseconds; 584 years and longer are all the same.
#[inline]
pub(super) fn saturating_nanos(span: Duration) -> u64 {
    span.as_secs().saturating_mul(1_000_000_000).saturating_add(span.subsec_nanos().into())
}

/// A TTL as the nodes take it: whole milliseconds.
pub(super) fn ttl_ms(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)
}
