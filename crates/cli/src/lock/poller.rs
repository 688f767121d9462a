//! Sleeps until a signal, a reply of a node, a point in time, or a step of the wall clock.
//!
//! The timer is a timerfd on a clock that counts suspend. The timeout of `poll` does not count it,
//! so a command could run for seconds after the machine woke, under an expired lease.
//!
//! A forward step of the wall clock also ends a lease, and timers on other clocks do not notice it.
//! So a second timerfd is set on the wall clock, for a time that never comes. When that clock is
//! set, the kernel cancels the timer, which makes it readable.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::time::clock_gettime;

use super::requests::Requests;

/// The requests and timers that every wait includes.
#[derive(Debug)]
pub(super) struct Poller {
    pub(super) requests: Requests,
    timer: TimerFd,
    steps: TimerFd,
}

impl Poller {
    /// Creates a poller over `requests`.
    pub(super) fn new(requests: Requests) -> io::Result<Self> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let steps = TimerFd::new(ClockId::CLOCK_REALTIME, flags)?;
        steps.set(
            Expiration::OneShot(NEVER),
            TimerSetTimeFlags::TFD_TIMER_ABSTIME | TimerSetTimeFlags::TFD_TIMER_CANCEL_ON_SET,
        )?;
        Ok(Self { requests, timer: TimerFd::new(ClockId::CLOCK_BOOTTIME, flags)?, steps })
    }

    /// Sleeps until a request has arrived or is settled, one of `fds` is readable, `within` has
    /// passed, or the wall clock was set.
    pub(super) fn wait(&self, fds: &[BorrowedFd<'_>], within: Option<Duration>) -> io::Result<()> {
        let fds: Vec<_> = fds.iter().copied().chain(self.requests.fds()).collect();
        let within = within.into_iter().chain(self.requests.due_in()).min();
        self.wait_muted(&fds, within)
    }

    /// Returns whether a request is pending.
    pub(super) fn has_request(&self) -> io::Result<bool> {
        if self.requests.due_in().is_some() {
            return Ok(true);
        }
        let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
        match poll(&mut self.requests.fds().map(readable).collect::<Vec<_>>(), PollTimeout::ZERO) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::EINTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Sleeps like [`wait`](Self::wait), but requests do not end it.
    pub(super) fn wait_muted(
        &self,
        fds: &[BorrowedFd<'_>],
        within: Option<Duration>,
    ) -> io::Result<()> {
        match within {
            Some(Duration::ZERO) => return Ok(()),
            Some(within) => {
                let once = Expiration::OneShot(TimeSpec::from_duration(within));
                self.timer.set(once, TimerSetTimeFlags::empty())?;
            }
            None => self.timer.unset()?,
        }
        let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut set: Vec<_> = fds.iter().copied().map(readable).collect();
        set.extend([&self.timer, &self.steps].map(|timer| readable(timer.as_fd())));
        match poll(&mut set, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        // A cancelled timer stays readable until it is set again.
        if let Some(true) = set.last().and_then(PollFd::any) {
            self.steps.wait()?;
        }
        Ok(())
    }
}

/// The year 2200 on the wall clock.
const NEVER: TimeSpec = TimeSpec::new(7_258_118_400, 0);

/// Returns the time since boot, including suspend.
pub(super) fn now() -> io::Result<Duration> {
    Ok(clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME)?.into())
}
