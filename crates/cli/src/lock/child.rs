//! The child that matters, reaped together with orphans.
//!
//! Each process of `redbolt lock` has one child that it started, and, as a subreaper, any number of orphans.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{self, ExitStatus};

use nix::errno::Errno;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;
use rustix::process::kill_process;

use crate::exit;
use crate::signals::{Signal, die_of};

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

    /// Ends this process in the same way. Returns the exit status that says the same, if it has not ended.
    pub(super) fn imitate(self) -> u8 {
        match self {
            Self::Killed(signal) => die_of(signal),
            Self::Exited(_) | Self::Unknown => self.status(),
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

    /// Its process id, which belongs to no other process until it is reaped; `None` after that.
    pub(super) fn unreaped(&self) -> Option<Pid> {
        self.end.is_none().then_some(self.pid)
    }

    /// Sends it a signal, unless it has ended.
    pub(super) fn signal(&self, signal: Signal) {
        if let Some(pid) =
            self.unreaped().and_then(|pid| rustix::process::Pid::from_raw(pid.as_raw()))
        {
            // It fails if the process runs as another user. Nothing is to be done then.
            let _ = kill_process(pid, signal);
        }
    }

    /// Whether it is stopped, as by Ctrl-Z.
    pub(super) fn is_stopped(&self) -> bool {
        let look = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        let is_stopped = |pid| matches!(waitid(Id::Pid(pid), look), Ok(WaitStatus::Stopped(..)));
        self.unreaped().is_some_and(is_stopped)
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
