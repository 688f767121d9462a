//! Timestamps: numbers that the caller has read from a clock.
//!
//! `std::time::Instant` does not fit: on Linux it stands still while the machine sleeps, and a
//! simulation cannot create one.

use std::ops::Add;
use std::time::Duration;

/// A point in time, in nanoseconds since an origin that the clock chose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_structs, reason = "nanoseconds, whoever counts them")]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// A timestamp later than all others.
    pub const NEVER: Self = Self(u64::MAX);

    /// Returns the time from `earlier` until this; zero if that is not earlier.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        // A clock that was set back must not look like centuries.
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns the timestamp `ms` milliseconds later, saturated at [`NEVER`](Self::NEVER).
    pub(super) fn after_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms.saturating_mul(1_000_000)))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    /// Returns the later timestamp, saturated at [`NEVER`](Self::NEVER).
    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(saturating_nanos(span)))
    }
}

/// A reading of both clocks, taken together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "validity rests on these two clocks")]
pub struct ClockReading {
    /// The clock that continues during suspend and is never set. Every timer uses it. The core
    /// keeps the largest value that it was given, so a backward step has no effect.
    pub boot: Timestamp,
    /// The wall clock, which can be set. It only ends leases early: a lease loses what this clock
    /// advanced more than `boot` since the lease began.
    pub wall: Timestamp,
}

/// Returns a span in nanoseconds, saturated at 584 years.
#[inline]
pub(super) fn saturating_nanos(span: Duration) -> u64 {
    span.as_secs().saturating_mul(1_000_000_000).saturating_add(span.subsec_nanos().into())
}

/// Returns a TTL in whole milliseconds, rounded down, as it is sent to the nodes.
pub(super) fn ttl_ms(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)
}
