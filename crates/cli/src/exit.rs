//! The exit statuses of `redbolt`, with the names used in the program.
//!
//! Numbers from 64 to 78 are from `sysexits.h`, since commands rarely return them. 126, 127 and 128
//! + signal are the shell's. Only `doctor`, which runs no command, returns 1 and 2.

use std::fmt;
use std::io;

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit};
use redbolt::{RequestError, StartError};

/// The operation succeeded.
pub(crate) const SUCCESS: u8 = 0;
/// `doctor` found something that an operator should look at, but nothing that keeps nodes from
/// carrying locks.
pub(crate) const WARNINGS: u8 = 1;
/// `doctor` found a fault.
pub(crate) const FAILURES: u8 = 2;
/// The request is impossible: wrong options, no nodes, a TTL over the limit.
pub(crate) const USAGE: u8 = 64;
/// Too few nodes can vote: they do not answer, are quarantined, or are misconfigured.
pub(crate) const NO_QUORUM: u8 = 69;
/// The lease ended before the command did, and the command was stopped.
pub(crate) const LOST: u8 = 70;
/// The operating system refused something that redbolt needs.
pub(crate) const SYSTEM: u8 = 71;
/// `init` found nodes that are already set up as it was asked to set them up, and wrote nothing.
///
/// It is not 0, because otherwise `init` in a start script would declare nodes as new that have
/// lost their data. It is not [`USAGE`], because a script that repeats `init` after a failure must
/// tell this case from a mistake.
pub(crate) const ALREADY_SET_UP: u8 = 73;
/// Another client holds the lock (`--conflict-exit-code` changes this status).
pub(crate) const CONFLICT: u8 = 75;
/// The command was found but could not be executed.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The command was not found.
pub(crate) const NOT_FOUND: u8 = 127;

/// Returns the status for a process that was killed by signal number `signal`.
pub(crate) fn killed_by(signal: i32) -> u8 {
    SIGNAL_BASE.saturating_add(u8::try_from(signal).unwrap_or(u8::MAX))
}

/// The reason why `redbolt` itself failed.
#[derive(Debug)]
pub(crate) struct Failure {
    status: u8,
    message: String,
}

impl Failure {
    /// Creates an error of the user.
    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self { status: USAGE, message: message.to_string() }
    }

    /// Creates a failure for a lock request that the library refuses.
    pub(crate) fn request(lock: impl fmt::Display, error: RequestError) -> Self {
        Self::usage(format_args!("{lock}: {error}"))
    }

    /// Creates a failure for nodes that are already set up.
    pub(crate) fn already_set_up(message: impl fmt::Display) -> Self {
        Self { status: ALREADY_SET_UP, message: message.to_string() }
    }

    /// Creates a failure for too few nodes that can vote.
    pub(crate) fn no_quorum(message: impl fmt::Display) -> Self {
        Self { status: NO_QUORUM, message: message.to_string() }
    }

    /// Creates a failure for a refusal of the operating system.
    pub(crate) fn system(message: impl fmt::Display) -> Self {
        Self { status: SYSTEM, message: message.to_string() }
    }

    /// Adds a line of advice, if the user can do something.
    pub(crate) fn with_hint(mut self, hint: &str) -> Self {
        if self.status == USAGE {
            self.message = format!("{}\n{hint}", self.message);
        }
        self
    }

    /// Names the lock if the system refused something, because the system's message does not.
    pub(crate) fn about(mut self, name: &str) -> Self {
        if self.status == SYSTEM && !self.message.contains(name) {
            self.message = format!("{name}: {}", self.message);
        }
        self
    }

    /// Returns the status to exit with.
    pub(crate) fn status(&self) -> u8 {
        self.status
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let limit = (error.raw_os_error() == Some(Errno::EMFILE as i32))
            .then(|| getrlimit(Resource::RLIMIT_NOFILE).ok())
            .flatten();
        match limit {
            Some((most, _)) => Self::system(format_args!(
                "{error}\nthis process may have {most} files open: raise that with ulimit -n"
            )),
            None => Self::system(error),
        }
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        io::Error::from(error).into()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

const SIGNAL_BASE: u8 = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_count_from_128() {
        assert_eq!(killed_by(2), 130);
        assert_eq!(killed_by(9), 137);
        assert_eq!(killed_by(64), 192);
    }
}
