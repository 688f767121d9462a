//! What the kernel says without a system call: the time, and whether this process was forked; and what it is asked to
//! say at a time. One of two files with unsafe code.
//!
//! `boot` is a clock that also counts while the machine sleeps: `CLOCK_BOOTTIME` on Linux, `CLOCK_MONOTONIC` on
//! macOS. `std`'s `Instant` does not count it. Reading a clock is no system call where the kernel
//! offers it through the vDSO.
//!
//! The kernel wipes a page in a forked child (`MADV_WIPEONFORK`, Linux 4.14). To look at it is a load, whereas
//! `getpid` is a system call. The page shows every kind of fork, also those that run no `pthread_atfork` handler.
//! Where there is no such page, `getpid` is used.
//!
//! An alarm is a timer that stays in the kernel while others sleep and wake up (`timerfd_create` on this clock, Linux 3.15).
//!
//! Alarms are slept on in `api::own_poll`.

#![allow(unsafe_code)]

use std::fmt;
#[cfg(target_os = "linux")]
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::time::Duration;

#[cfg(target_os = "linux")]
use std::io;

use crate::proto::{ClockReading, Timestamp};

/// The clocks of a client: the machine's, or what a test makes of their readings. So a test runs the code that
/// ships while the machine seems to sleep or its time of day is set.
#[derive(Clone, Default)]
pub(crate) struct Clock(Option<Arc<Bend>>);

type Bend = dyn Fn(ClockReading) -> ClockReading + Send + Sync;

impl Clock {
    /// A clock whose readings are what `bend` makes of the machine's.
    pub(crate) fn bent(
        bend: impl Fn(ClockReading) -> ClockReading + Send + Sync + 'static,
    ) -> Self {
        Self(Some(Arc::new(bend)))
    }

    /// Returns how long to sleep until something is due. A test that bends the readings can let
    /// time jump, and no timer of the kernel ends a sleep then: such a sleep is short.
    pub(crate) fn sleep(&self, due: Option<Duration>) -> Option<Duration> {
        match &self.0 {
            None => due,
            Some(_) => Some(due.map_or(GLANCE, |due| due.min(GLANCE))),
        }
    }

    /// Reads both clocks.
    #[inline]
    pub(crate) fn now(&self) -> ClockReading {
        match &self.0 {
            None => now(),
            Some(bend) => bend(now()),
        }
    }

    /// What the machine's boot clock shows when this one shows `boot`.
    #[cfg(target_os = "linux")]
    pub(crate) fn of_machine(&self, boot: Timestamp) -> Timestamp {
        match &self.0 {
            None => boot,
            Some(bend) => {
                let now = now();
                now.boot + boot.since(bend(now).boot)
            }
        }
    }

    /// Reads only the boot clock: enough for timers, never for a lease.
    #[inline]
    pub(crate) fn boot(&self) -> Timestamp {
        match &self.0 {
            None => read(BOOT),
            Some(bend) => bend(now()).boot,
        }
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Clock(bent)" } else { "Clock" })
    }
}

/// Reads both clocks of the machine.
#[must_use]
#[inline]
pub fn now() -> ClockReading {
    ClockReading { boot: read(BOOT), wall: read(libc::CLOCK_REALTIME) }
}

#[inline]
fn read(clock: libc::clockid_t) -> Timestamp {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec that lives through the call, which writes to nothing else.
    let outcome = unsafe { libc::clock_gettime(clock, &raw mut time) };
    assert_eq!(outcome, 0, "the kernel has the clocks that redbolt needs (Linux 2.6.39 or later)");
    let (seconds, nanos) = (time.tv_sec as u64, time.tv_nsec as u64);
    Timestamp(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// How soon a process notices that a test has moved its clock.
const GLANCE: Duration = Duration::from_millis(2);

#[cfg(any(target_os = "linux", target_os = "android"))]
const BOOT: libc::clockid_t = libc::CLOCK_BOOTTIME;

#[cfg(not(any(target_os = "linux", target_os = "android")))]
const BOOT: libc::clockid_t = libc::CLOCK_MONOTONIC;

/// A timer on the boot clock, readable from when it ends until it is set again.
#[cfg(target_os = "linux")]
#[derive(Debug)]
pub(crate) struct Alarm(OwnedFd);

#[cfg(target_os = "linux")]
impl Alarm {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: it takes two numbers and gives one.
        let fd = unsafe { libc::timerfd_create(BOOT, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, so nobody else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Sets it to end at this time of the machine's clock, at once if that has passed. Whatever it was set to before is
    /// forgotten.
    pub(crate) fn set(&self, at: Timestamp) -> io::Result<()> {
        // No time at all would set none, and no machine runs for as long as the longest.
        let (seconds, nanos) = (at.0 / 1_000_000_000, at.0 % 1_000_000_000);
        let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let seconds = seconds.min(i32::MAX as u64);
        let at = libc::timespec { tv_sec: seconds as _, tv_nsec: nanos.max(1) as _ };
        let times = libc::itimerspec { it_interval: zero, it_value: at };
        let how = libc::TFD_TIMER_ABSTIME;
        // SAFETY: the descriptor is open, `times` lives through the call, and the old times are not asked for.
        let outcome = unsafe {
            libc::timerfd_settime(self.0.as_raw_fd(), how, &raw const times, ptr::null_mut())
        };
        if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

#[cfg(target_os = "linux")]
impl AsRawFd for Alarm {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.0.as_raw_fd()
    }
}

/// The process in which something was made. A forked child inherits a copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin(u64);

impl Origin {
    /// This process.
    pub(crate) fn here() -> Self {
        Self(generation())
    }

    /// Whether it is this process, not an ancestor that was forked.
    #[inline]
    pub(crate) fn is_here(self) -> bool {
        self.0 == generation()
    }

    /// What a forked child finds.
    #[cfg(test)]
    pub(crate) fn elsewhere() -> Self {
        Self(0)
    }
}

/// A number that differs from that of every ancestor.
#[inline]
fn generation() -> u64 {
    // SAFETY: it is null, or points to a word that is there for as long as the process.
    let cell = unsafe { CELL.load(Ordering::Acquire).as_ref() }.unwrap_or_else(|| cell());
    match cell.load(Ordering::Relaxed) {
        0 => next_generation(cell),
        generation => generation,
    }
}

/// The word was wiped by a fork, or was never written.
#[cold]
fn next_generation(cell: &AtomicU64) -> u64 {
    if ptr::eq(cell, &UNWIPED) {
        return std::process::id().into();
    }
    // A child inherits the count of its parent, so its number is larger.
    let next = GENERATIONS.fetch_add(1, Ordering::SeqCst) + 1;
    cell.compare_exchange(0, next, Ordering::SeqCst, Ordering::SeqCst)
        .map_or_else(|it| it, |_| next)
}

/// The word that all threads of the process look at.
#[cold]
fn cell() -> &'static AtomicU64 {
    let ours = wiped_cell().unwrap_or(&UNWIPED);
    let (null, new) = (ptr::null_mut(), ptr::from_ref(ours).cast_mut());
    match CELL.compare_exchange(null, new, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => ours,
        // Another thread was faster, and one page is lost.
        // SAFETY: what was written is not null, and is there for as long as the process.
        Err(theirs) => unsafe { &*theirs },
    }
}

/// A word that is zero, and becomes zero in a forked child.
#[cfg(target_os = "linux")]
fn wiped_cell() -> Option<&'static AtomicU64> {
    const LENGTH: usize = size_of::<AtomicU64>();
    let (rights, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new page, where the kernel has room for it, touches no memory that is there.
    let page = unsafe { libc::mmap(ptr::null_mut(), LENGTH, rights, kind, -1, 0) };
    if page == libc::MAP_FAILED {
        return None;
    }
    // Some emulators accept any advice and follow none. They accept also one that does not exist.
    // SAFETY: the page is ours, and neither advice changes what can be read of it here.
    let advised = |advice| unsafe { libc::madvise(page, LENGTH, advice) == 0 };
    if advised(-1) || !advised(libc::MADV_WIPEONFORK) {
        return None;
    }
    // SAFETY: it is aligned, zeroed, large enough, and never unmapped.
    Some(unsafe { &*page.cast::<AtomicU64>() })
}

#[cfg(not(target_os = "linux"))]
fn wiped_cell() -> Option<&'static AtomicU64> {
    None
}

/// The word of this process; null until somebody looks at it.
static CELL: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());

/// Used where no page can be wiped. It stays zero.
static UNWIPED: AtomicU64 = AtomicU64::new(0);

/// Numbers given out by this process and its ancestors.
static GENERATIONS: AtomicU64 = AtomicU64::new(0);

#[cfg(test)]
mod tests {
    use super::*;

    /// Real forks are in `tests/it/fork.rs`.
    #[test]
    fn a_process_is_itself_and_none_that_it_was_forked_from() {
        let origin = Origin::here();
        assert!(origin.is_here() && !Origin::elsewhere().is_here());
        let others = (0..4).map(|_| std::thread::spawn(Origin::here));
        assert!(others.into_iter().all(|other| other.join().unwrap().is_here()));
        // As a fork does.
        let cell = AtomicU64::new(0);
        let child = next_generation(&cell);
        assert!(child > origin.0 && next_generation(&cell) == child);
    }

    #[test]
    fn without_a_page_that_is_wiped_the_process_is_asked_for() {
        assert_eq!(next_generation(&UNWIPED), std::process::id().into());
        assert_eq!(UNWIPED.load(Ordering::Relaxed), 0);
    }

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
