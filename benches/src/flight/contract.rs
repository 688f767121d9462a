//! The interface of a contender: its call, and the task that it is started with.

use std::time::Duration;

use anyhow::Result;

use crate::contender::Node;

/// A client with many locks in flight.
pub trait Flight {
    /// Acquires and releases `locks` locks. Returns when all are released.
    ///
    /// # Errors
    ///
    /// A lock was not granted. No other client competes for it, so the measurement is void.
    fn fly(&mut self, locks: usize) -> Result<()>;
}

/// A contender's configuration.
#[derive(Clone, Debug)]
pub struct Task {
    /// The nodes' addresses.
    pub nodes: Vec<Node>,
    /// The resources, one for each lock in flight. Each contender has its own, all of the same
    /// length.
    pub resources: Vec<String>,
    /// The locks' TTL.
    pub ttl: Duration,
}
