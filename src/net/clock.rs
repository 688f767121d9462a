//! The machine's clocks, timers and fork detection. It contains unsafe code.
//!
//! `boot` also counts while the machine sleeps: `CLOCK_BOOTTIME` on Linux, `CLOCK_MONOTONIC` on
//! macOS. `Instant` of `std` does not. With the vDSO, reading a clock needs no system call.
//!
//! A page that the kernel wipes in a child (`MADV_WIPEONFORK`, Linux 4.14) reveals every kind of
//! fork, even without `pthread_atfork` handlers. Checking it is a load, while `getpid`, used where
//! no such page is available, is a system call.
//!
//! An alarm (`timerfd_create` on the boot clock, Linux 3.15) is a kernel timer that stays set while
//! threads sleep and wake. `api::own_poll` waits for alarms.

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

/// The machine's clocks, possibly bent by a test: the shipped code then runs as if the machine
/// slept or its time of day changed.
#[derive(Clone, Default)]
pub(crate) struct Clock(Option<Arc<Bend>>);

type Bend = dyn Fn(ClockReading) -> ClockReading + Send + Sync;

impl Clock {
    /// Creates a clock that passes the machine's readings through `bend`.
    pub(crate) fn bent(
        bend: impl Fn(ClockReading) -> ClockReading + Send + Sync + 'static,
    ) -> Self {
        Self(Some(Arc::new(bend)))
    }

    /// Returns how long to sleep until `due`. With bent readings the sleep is short, because no
    /// kernel timer ends it when a test moves the clock.
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

    /// Converts a time of this clock to the machine's boot clock.
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

    /// Reads only the boot clock: enough for timers, but never for a lease.
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

/// The time within which a process notices that a test has moved its clock.
const GLANCE: Duration = Duration::from_millis(2);

#[cfg(any(target_os = "linux", target_os = "android"))]
const BOOT: libc::clockid_t = libc::CLOCK_BOOTTIME;

#[cfg(not(any(target_os = "linux", target_os = "android")))]
const BOOT: libc::clockid_t = libc::CLOCK_MONOTONIC;

/// A timer on the boot clock. Its descriptor is readable from expiry until the timer is set again.
#[cfg(target_os = "linux")]
#[derive(Debug)]
pub(crate) struct Alarm(OwnedFd);

#[cfg(target_os = "linux")]
impl Alarm {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: the call takes and returns plain integers.
        let fd = unsafe { libc::timerfd_create(BOOT, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, so it has no other owner.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Sets the timer to this time of the machine's boot clock, instead of any earlier time. It
    /// expires at once if that time has passed.
    pub(crate) fn set(&self, at: Timestamp) -> io::Result<()> {
        // A time of zero would disarm the timer. The limit of 68 years is out of reach.
        let (seconds, nanos) = (at.0 / 1_000_000_000, at.0 % 1_000_000_000);
        let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let seconds = seconds.min(i32::MAX as u64);
        let at = libc::timespec { tv_sec: seconds as _, tv_nsec: nanos.max(1) as _ };
        let times = libc::itimerspec { it_interval: zero, it_value: at };
        let how = libc::TFD_TIMER_ABSTIME;
        // SAFETY: the descriptor is open, `times` lives through the call, and a null pointer
        // declines the old times.
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

/// The process that created a value. A forked child inherits a copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin(u64);

impl Origin {
    pub(crate) fn here() -> Self {
        Self(generation())
    }

    /// Returns whether this process, and not a forked ancestor, created the value.
    #[inline]
    pub(crate) fn is_here(self) -> bool {
        self.0 == generation()
    }

    /// Returns an origin as seen by a forked child.
    #[cfg(test)]
    pub(crate) fn elsewhere() -> Self {
        Self(0)
    }
}

/// Returns a number that differs from that of every ancestor process.
#[inline]
fn generation() -> u64 {
    // SAFETY: the pointer is null, or points to a word that lives as long as the process.
    let cell = unsafe { CELL.load(Ordering::Acquire).as_ref() }.unwrap_or_else(|| cell());
    match cell.load(Ordering::Relaxed) {
        0 => next_generation(cell),
        generation => generation,
    }
}

/// Takes a number for this process and writes it to the word, which is new or was wiped by a fork.
/// Without a page that can be wiped, returns the process id.
#[cold]
fn next_generation(cell: &AtomicU64) -> u64 {
    if ptr::eq(cell, &UNWIPED) {
        return std::process::id().into();
    }
    // A child inherits its parent's count, so its number is larger.
    let next = GENERATIONS.fetch_add(1, Ordering::SeqCst) + 1;
    cell.compare_exchange(0, next, Ordering::SeqCst, Ordering::SeqCst)
        .map_or_else(|it| it, |_| next)
}

/// Returns the word shared by all threads of the process.
#[cold]
fn cell() -> &'static AtomicU64 {
    let ours = wiped_cell().unwrap_or(&UNWIPED);
    let (null, new) = (ptr::null_mut(), ptr::from_ref(ours).cast_mut());
    match CELL.compare_exchange(null, new, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => ours,
        // SAFETY: another thread stored this pointer first. It is not null and its word lives as
        // long as the process; the page allocated here is leaked.
        Err(theirs) => unsafe { &*theirs },
    }
}

/// Returns a word that is zero and is reset to zero in a forked child.
#[cfg(target_os = "linux")]
fn wiped_cell() -> Option<&'static AtomicU64> {
    const LENGTH: usize = size_of::<AtomicU64>();
    let (rights, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new anonymous page does not overlap any memory in use.
    let page = unsafe { libc::mmap(ptr::null_mut(), LENGTH, rights, kind, -1, 0) };
    if page == libc::MAP_FAILED {
        return None;
    }
    // Some emulators accept any advice, even one that does not exist, and follow none. A kernel
    // that accepts -1 is therefore not trusted.
    // SAFETY: the page belongs to this function, and neither advice changes its contents here.
    let advised = |advice| unsafe { libc::madvise(page, LENGTH, advice) == 0 };
    if advised(-1) || !advised(libc::MADV_WIPEONFORK) {
        return None;
    }
    // SAFETY: the page is aligned, zeroed, large enough, and never unmapped.
    Some(unsafe { &*page.cast::<AtomicU64>() })
}

#[cfg(not(target_os = "linux"))]
fn wiped_cell() -> Option<&'static AtomicU64> {
    None
}

/// The word of this process; null until its first use.
static CELL: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());

/// The word used if no page can be wiped. It stays zero.
static UNWIPED: AtomicU64 = AtomicU64::new(0);

/// The count of numbers taken by this process and its ancestors.
static GENERATIONS: AtomicU64 = AtomicU64::new(0);

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests with real forks are in `tests/it/fork.rs`.
    #[test]
    fn a_process_is_itself_and_none_that_it_was_forked_from() {
        let origin = Origin::here();
        assert!(origin.is_here() && !Origin::elsewhere().is_here());
        let others = (0..4).map(|_| std::thread::spawn(Origin::here));
        assert!(others.into_iter().all(|other| other.join().unwrap().is_here()));
        // A fork leaves the word zero.
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
