//! The child that matters, reaped together with orphans.
//!
//! Each process of `redbolt lock` has one child that it started, and, as a subreaper, any number of orphans.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{self, ExitStatus};

use nix::errno::Errno;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::exit;

/// The child that matters.
#[derive(Debug)]
pub(super) struct Child {
    process: process::Child,
    pid: Pid,
    end: Option<End>,
}

/// How a child has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// With this status.
    Exited(u8),
    /// By the signal of this number.
    Killed(i32),
    /// The kernel did not say.
    Unknown,
}

impl End {
    /// The exit status that says the same.
    pub(super) fn status(self) -> u8 {
        match self {
            Self::Exited(status) => status,
            Self::Killed(signal) => exit::killed_by(signal),
            Self::Unknown => exit::SYSTEM,
        }
    }
}

impl From<ExitStatus> for End {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Exited(code.to_le_bytes()[0]),
            (None, Some(signal)) => Self::Killed(signal),
            (None, None) => Self::Unknown,
        }
    }
}

impl Child {
    /// A process that was just started.
    pub(super) fn of(process: process::Child) -> io::Result<Self> {
        let pid = Pid::from_raw(i32::try_from(process.id()).map_err(io::Error::other)?);
        Ok(Self { process, pid, end: None })
    }

    /// Its process id.
    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// How it has ended; `None` while it runs.
    pub(super) fn end(&self) -> Option<End> {
        self.end
    }

    /// Reaps every child that has ended: this one, and orphans that were left to us. Returns whether any is left.
    pub(super) fn reap(&mut self) -> bool {
        if self.end.is_none() {
            // It knows signals that have no name, as `waitpid` below does not.
            self.end = match self.process.try_wait() {
                Ok(status) => status.map(End::from),
                Err(_) => Some(End::Unknown),
            };
        }
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) => return true,
                // It has ended since it was asked.
                Ok(WaitStatus::Exited(pid, code)) if pid == self.pid => {
                    self.end = Some(End::Exited(code.to_le_bytes()[0]));
                }
                Ok(WaitStatus::Signaled(pid, signal, _)) if pid == self.pid => {
                    self.end = Some(End::Killed(signal as i32));
                }
                // The latter: it was reaped, and has died of a signal without a name.
                Ok(_) | Err(Errno::EINTR | Errno::EINVAL) => {}
                // There is no other reason than that there are none.
                Err(_) => return false,
            }
        }
    }
}
