//! A process that a lock is bound to. Its end is noticed, and it can be stopped with its
//! descendants.
//!
//! Processes are identified by descriptors, so a process that reuses the number of an ended one is
//! never signalled.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::getpid;
use rustix::io::Errno;
use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};

use super::family::descendants_of;
use crate::exit::Failure;
use crate::signals::Signal;

/// The process, and its descendants found when it had to be stopped.
#[derive(Debug)]
pub(super) struct Bound {
    process: Known,
    others: Vec<Known>,
}

#[derive(Debug)]
struct Known {
    pid: i32,
    process: OwnedFd,
}

impl Known {
    fn of(pid: i32) -> rustix::io::Result<Self> {
        let named = rustix::process::Pid::from_raw(pid).ok_or(Errno::SRCH)?;
        Ok(Self { pid, process: pidfd_open(named, PidfdFlags::empty())? })
    }

    /// Returns whether the process has ended, from which time on its descriptor is readable.
    fn has_ended(&self) -> bool {
        let mut set = [PollFd::new(self.process.as_fd(), PollFlags::POLLIN)];
        matches!(poll(&mut set, PollTimeout::ZERO), Ok(1..))
    }
}

impl Bound {
    /// Opens the process of this number.
    pub(super) fn to(pid: i32) -> Result<Self, Failure> {
        let process = Known::of(pid).map_err(|error| match error {
            Errno::SRCH | Errno::INVAL => {
                Failure::usage(format_args!("--pid {pid}: there is no such process"))
            }
            other => Failure::system(format_args!("process {pid}: {}", io::Error::from(other))),
        })?;
        Ok(Self { process, others: Vec::new() })
    }

    pub(super) fn pid(&self) -> i32 {
        self.process.pid
    }

    pub(super) fn has_ended(&self) -> bool {
        self.process.has_ended()
    }

    /// Returns whether the process and the descendants that were found have ended.
    pub(super) fn have_all_ended(&self) -> bool {
        self.all().all(Known::has_ended)
    }

    /// Asks the process and its descendants to end.
    pub(super) fn terminate(&mut self) {
        self.find();
        self.signal(Signal::TERM);
    }

    /// Kills the process and its descendants. Returns whether all have ended.
    pub(super) fn kill(&mut self) -> bool {
        for _ in 0..KILL_ROUNDS {
            // A process that forks meanwhile is found in the next round.
            self.find();
            if self.have_all_ended() {
                return true;
            }
            if !self.signal(Signal::KILL) {
                return false;
            }
            thread::sleep(KILL_PAUSE);
        }
        false
    }

    /// Sends the signal to all that have not ended. Returns whether any of them could be reached.
    fn signal(&self, signal: Signal) -> bool {
        let alive = self.all().filter(|known| !known.has_ended());
        let reached = alive.filter(|known| {
            // A process that has ended since needs no signal.
            pidfd_send_signal(&known.process, signal) != Err(Errno::PERM)
        });
        reached.count() > 0
    }

    /// Finds further descendants, including those of known processes whose parent has ended.
    fn find(&mut self) {
        let roots: Vec<i32> = self.all().map(|known| known.pid).collect();
        for pid in descendants_of(&roots) {
            if pid != getpid().as_raw() && !roots.contains(&pid) {
                // The process may have ended meanwhile.
                self.others.extend(Known::of(pid).ok());
            }
        }
    }

    fn all(&self) -> impl Iterator<Item = &Known> {
        [&self.process].into_iter().chain(&self.others)
    }
}

impl AsFd for Bound {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.process.process.as_fd()
    }
}

/// The number of rounds. Together they take far longer than the kernel needs, unless a process
/// hangs in a device.
const KILL_ROUNDS: usize = 2500;
const KILL_PAUSE: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};
    use std::time::Instant;

    use super::*;

    fn start(line: &str) -> (Child, Bound) {
        let child = Command::new("/bin/sh").args(["-c", line]).spawn().unwrap();
        let bound = Bound::to(i32::try_from(child.id()).unwrap()).unwrap();
        (child, bound)
    }

    #[test]
    fn the_end_of_a_process_is_noticed() {
        let (mut child, bound) = start("exec sleep 600");
        assert!(!bound.has_ended());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(bound.has_ended());
        let pid = i32::try_from(child.id()).unwrap();
        assert!(Bound::to(pid).is_err());
        assert!(Bound::to(0).is_err());
    }

    #[test]
    fn a_process_is_killed_with_its_descendants() {
        let (mut child, mut bound) = start("trap '' TERM; sleep 600 & sleep 600 & wait");
        let until = Instant::now() + Duration::from_secs(60);
        while bound.others.len() < 2 {
            assert!(Instant::now() < until, "its children are not found: {bound:?}");
            bound.find();
        }
        bound.terminate();
        assert!(!bound.has_ended());
        assert!(bound.kill() && bound.have_all_ended());
        child.wait().unwrap();
    }
}
