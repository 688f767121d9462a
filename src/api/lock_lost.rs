//! The name of a lock in errors and logs, and the error of a lost lock.

use std::error::Error;
use std::fmt;

use crate::proto::{LossCause, printable};

/// The names of a lock's resources in printable form. Empty if they are unknown.
///
/// The text is `lock invoices`, `lock invoices, orders`, or `the lock`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LockName(String);

impl LockName {
    pub(super) fn new<'r>(resources: impl Iterator<Item = &'r [u8]>) -> Self {
        let shown = resources.map(|resource| printable(&String::from_utf8_lossy(resource)));
        Self(shown.collect::<Vec<_>>().join(", "))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.as_str() {
            "" => f.write_str("the lock"),
            names => write!(f, "lock {names}"),
        }
    }
}

/// The error of a lock that was lost before its holder released it: another client may have held
/// it.
///
/// The text is `lock invoices is lost: its validity ended`. The name is missing if the lock was
/// lost longer than its TTL ago, and in a forked child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockLost {
    lock: LockName,
    cause: LossCause,
}

impl LockLost {
    pub(super) fn new(lock: LockName, cause: LossCause) -> Self {
        Self { lock, cause }
    }

    /// Returns how the lock was lost.
    #[must_use]
    pub fn cause(&self) -> LossCause {
        self.cause
    }
}

impl fmt::Display for LockLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is lost: {}", self.lock, self.cause)
    }
}

impl Error for LockLost {}
