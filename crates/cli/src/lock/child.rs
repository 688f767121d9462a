//! The started child of a process of `redbolt lock`, reaped together with orphans.
//!
//! Each process of `redbolt lock` starts one child and, as a subreaper, inherits any number of
//! orphans.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{self, ExitStatus};

use nix::errno::Errno;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;
use rustix::process::kill_process;

use crate::exit;
use crate::signals::{Signal, die_of};

/// The child that was started.
#[derive(Debug)]
pub(super) struct Child {
    process: process::Child,
    pid: Pid,
    end: Option<End>,
}

/// The end of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The child exited with this status.
    Exited(u8),
    /// The signal with this number killed the child.
    Killed(i32),
    /// The kernel did not report an end.
    Unknown,
}

impl End {
    /// Returns the exit status that expresses this end.
    pub(super) fn status(self) -> u8 {
        match self {
            Self::Exited(status) => status,
            Self::Killed(signal) => exit::killed_by(signal),
            Self::Unknown => exit::SYSTEM,
        }
    }

    /// Ends this process in the same way. Returns the exit status that expresses this end, if the
    /// process is still running.
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
    /// Wraps a process that was just started.
    pub(super) fn of(process: process::Child) -> io::Result<Self> {
        let pid = Pid::from_raw(i32::try_from(process.id()).map_err(io::Error::other)?);
        Ok(Self { process, pid, end: None })
    }

    /// Returns the process id.
    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// Returns the process id until the child is reaped: no other process can have it before that.
    pub(super) fn unreaped(&self) -> Option<Pid> {
        self.end.is_none().then_some(self.pid)
    }

    /// Sends a signal to the child, unless it has ended.
    pub(super) fn signal(&self, signal: Signal) {
        if let Some(pid) =
            self.unreaped().and_then(|pid| rustix::process::Pid::from_raw(pid.as_raw()))
        {
            // It fails if the process runs as another user. Nothing can be done then.
            let _ = kill_process(pid, signal);
        }
    }

    /// Returns whether the child is stopped, for example by Ctrl-Z.
    pub(super) fn is_stopped(&self) -> bool {
        let look = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        let is_stopped = |pid| matches!(waitid(Id::Pid(pid), look), Ok(WaitStatus::Stopped(..)));
        self.unreaped().is_some_and(is_stopped)
    }

    /// Returns how the child ended, or `None` while it runs.
    pub(super) fn end(&self) -> Option<End> {
        self.end
    }

    /// Reaps every child that has ended: this one, and orphans left to this process. Returns
    /// whether any child is left.
    pub(super) fn reap(&mut self) -> bool {
        if self.end.is_none() {
            // `try_wait` supports signals without a name, unlike `waitpid` below.
            self.end = match self.process.try_wait() {
                Ok(status) => status.map(End::from),
                Err(_) => Some(End::Unknown),
            };
        }
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) => return true,
                // The child has ended since `try_wait`.
                Ok(WaitStatus::Exited(pid, code)) if pid == self.pid => {
                    self.end = Some(End::Exited(code.to_le_bytes()[0]));
                }
                Ok(WaitStatus::Signaled(pid, signal, _)) if pid == self.pid => {
                    self.end = Some(End::Killed(signal as i32));
                }
                // EINVAL: a child was reaped that died of a signal without a name.
                Ok(_) | Err(Errno::EINTR | Errno::EINVAL) => {}
                // The only other error means that no children are left.
                Err(_) => return false,
            }
        }
    }
}
