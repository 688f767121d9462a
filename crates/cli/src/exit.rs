//! Every exit status of `redbolt`, with the names that the rest of the program uses.
//!
//! The numbers below 80 are those of `sysexits.h`, so that they do not clash with what commands
//! usually return.

use std::fmt;
use std::io;

/// All went well.
pub(crate) const SUCCESS: u8 = 0;
/// The user asked for something that cannot be: wrong options, no nodes, a TTL over the limit.
pub(crate) const USAGE: u8 = 64;
/// Too few nodes answered to decide anything.
pub(crate) const NO_QUORUM: u8 = 69;
/// The operating system refused something that redbolt needs.
pub(crate) const SYSTEM: u8 = 71;

/// Why `redbolt` itself could not do what it was asked for.
#[derive(Debug)]
pub(crate) struct Failure {
    status: u8,
    message: String,
}

impl Failure {
    /// The user's to mend.
    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self { status: USAGE, message: message.to_string() }
    }

    /// Refused by the operating system.
    pub(crate) fn system(message: impl fmt::Display) -> Self {
        Self { status: SYSTEM, message: message.to_string() }
    }

    /// The status to exit with.
    pub(crate) fn status(&self) -> u8 {
        self.status
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::system(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
