//! Sleeping until something happens: a signal, a node's reply, or a point in time.
//!
//! The timer is a timerfd on the clock that runs on through suspend. The timeout of `poll` would
//! stand still with the machine, and a command could run on for seconds after it woke, under a
//! lease that is long over.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::time::clock_gettime;

use super::requests::Requests;

/// The requests and the timers that every wait includes.
#[derive(Debug)]
pub(super) struct Poller {
    pub(super) requests: Requests,
    timer: TimerFd,
}

impl Poller {
    /// A poller over `requests`.
    pub(super) fn new(requests: Requests) -> io::Result<Self> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        Ok(Self { requests, timer: TimerFd::new(ClockId::CLOCK_BOOTTIME, flags)? })
    }

    /// Sleeps until a request has arrived, one of `fds` is readable, or `within` has passed.
    pub(super) fn wait(&self, fds: &[BorrowedFd<'_>], within: Option<Duration>) -> io::Result<()> {
        let fds: Vec<_> = fds.iter().copied().chain(self.requests.fds()).collect();
        self.wait_deaf(&fds, within)
    }

    /// As [`wait`](Self::wait), but requests do not end it.
    pub(super) fn wait_deaf(
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
        set.push(readable(self.timer.as_fd()));
        match poll(&mut set, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Time since boot, suspend included.
pub(super) fn now() -> io::Result<Duration> {
    Ok(clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME)?.into())
}
