//! How an engine ended.

use std::fmt;

use crate::api::lock_lost::LockName;
use crate::proto::Released;

/// What a shutdown did, and what it could not do in its time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Acquisitions that were ended without a lock.
    pub cancelled: usize,
    /// Whether the thread has ended. It has not if a callback of yours is still running on it, if the
    /// shutdown was called from such a callback, or in a forked child. It ends as soon as it can.
    pub ended: bool,
    /// Whether the thread had ended before, by a panic of its own: a bug of redbolt.
    pub failed: bool,
    /// Whether a release or an undo is not confirmed by a node that can be reached. It was sent, or goes
    /// with the connection's last bytes; if it is lost, the key lives until its TTL is over.
    pub owed: bool,
    /// Panics in callbacks, wakers and a log that were caught, since the start of the engine.
    pub panics: u64,
    /// Locks whose release a quorum has confirmed.
    pub released: usize,
    /// Locks whose release a quorum has not confirmed. Their keys live on until the TTL is over where the
    /// release does not arrive.
    pub unreleased: Vec<Unreleased>,
}

/// A lock that a shutdown could not release on a quorum.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unreleased {
    /// Its resources.
    pub resources: Vec<Vec<u8>>,
    /// On how many nodes the release is confirmed.
    pub confirmed: Released,
}

impl ShutdownReport {
    /// Whether the thread has ended and nothing is left on any node that can be reached.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.ended && !self.failed && !self.owed && self.unreleased.is_empty()
    }
}

impl fmt::Display for ShutdownReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cancelled, released, .. } = self;
        write!(f, "{cancelled} acquisitions cancelled, {released} locks released")?;
        for lock in &self.unreleased {
            write!(f, "; not released: {lock}")?;
        }
        if self.owed {
            f.write_str("; not every node has confirmed")?;
        }
        if self.failed {
            f.write_str("; the engine's thread had failed")?;
        } else if !self.ended {
            f.write_str("; the engine's thread has not ended yet")?;
        }
        Ok(())
    }
}

impl fmt::Display for Unreleased {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = LockName::new(self.resources.iter().map(Vec::as_slice));
        write!(f, "{name} ({})", self.confirmed)
    }
}
