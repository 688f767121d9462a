//! The clock that all processes of a machine share, by which claims are compared. It is read
//! directly and not through redbolt, so that the judge does not depend on the library.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A time in nanoseconds since the machine was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub u64);

impl Moment {
    /// Returns the time since `earlier`; zero if that was later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

pub(crate) fn now() -> Moment {
    let time = clock_gettime(CLOCK);
    let (seconds, nanos) = (time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned());
    Moment(seconds * 1_000_000_000 + nanos)
}

#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::Boottime;

#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::Monotonic;
