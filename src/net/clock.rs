//! The one file that reads clocks, and the one file with unsafe code.
//!
//! `boot` is the clock that runs on while the machine sleeps: `CLOCK_BOOTTIME` on Linux;
//! `CLOCK_MONOTONIC` on macOS, which counts sleep there as it does not on Linux. `std`'s `Instant`
//! is none of these. Neither read is a system call where the kernel offers them through the vDSO.
//! Not here: what follows from the time.

#![allow(unsafe_code)]

use crate::proto::{Nanos, Now};

/// Reads both clocks.
#[must_use]
#[inline]
pub fn now() -> Now {
    Now { boot: read(BOOT), wall: read(libc::CLOCK_REALTIME) }
}

/// Reads the boot clock alone: enough for timers, never for a lease.
#[inline]
pub(crate) fn boot() -> Nanos {
    read(BOOT)
}

#[inline]
fn read(clock: libc::clockid_t) -> Nanos {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec that lives through the call, which writes to nothing else.
    let outcome = unsafe { libc::clock_gettime(clock, &raw mut time) };
    assert_eq!(outcome, 0, "the kernel has the clocks that redbolt needs (Linux 2.6.39 or later)");
    let (seconds, nanos) = (time.tv_sec as u64, time.tv_nsec as u64);
    Nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

#[cfg(any(target_os = "linux", target_os = "android"))]
const BOOT: libc::clockid_t = libc::CLOCK_BOOTTIME;

#[cfg(not(any(target_os = "linux", target_os = "android")))]
const BOOT: libc::clockid_t = libc::CLOCK_MONOTONIC;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_runs_and_wall_is_the_time_of_day() {
        let first = now();
        let second = now();
        assert!(second.boot >= first.boot);
        let since_epoch =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        assert!(first.wall.0.abs_diff(since_epoch.as_nanos() as u64) < 60_000_000_000);
    }
}
