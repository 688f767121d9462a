//! The interface of a contender: its call, and the time limit of a pair.

use std::time::Duration;

use anyhow::Result;

/// A client that acquires and releases one lock.
pub trait Contender {
    /// Runs a pair.
    ///
    /// # Errors
    ///
    /// The lock was not granted or not released, which counts as a failed pair.
    fn pair(&mut self) -> Result<()>;
}

/// The time after which a pair is aborted, if its client has no timeout.
pub const LIMIT: Duration = Duration::from_secs(2);
