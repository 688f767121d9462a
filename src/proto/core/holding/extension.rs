//! The extension of one lock that is under way, or was the last: its TTL, and the nodes that it still waits to be sent to.
//!
//! Not here: its outcome, which is votes and a [`Backing`](super::backing::Backing), and what began it, see
//! `auto_extension`.

use std::time::Duration;

use crate::proto::lease::Lease;
use crate::proto::names::{NodeId, NodeSet};

#[derive(Debug)]
pub(crate) struct Extension {
    ttl: Duration,
    /// For how long a node that extends keeps the key.
    lease: Lease,
    /// Nodes for whose link it waits.
    queued: NodeSet,
}

impl Extension {
    pub(super) const fn new() -> Self {
        Self { ttl: Duration::ZERO, lease: Lease::NONE, queued: NodeSet::EMPTY }
    }

    /// The nodes are asked to keep the key for this TTL, which is worth this lease.
    pub(super) fn begins(&mut self, ttl: Duration, lease: Lease) {
        self.ttl = ttl;
        self.lease = lease;
    }

    pub(super) fn ttl(&self) -> Duration {
        self.ttl
    }

    /// For how long a node that extends keeps the key.
    pub(super) fn lease(&self) -> Lease {
        self.lease
    }

    /// It waits for this node's link.
    pub(super) fn queue(&mut self, node: NodeId) {
        self.queued.insert(node);
    }

    /// The wait for this node's link is over. Whether there was one.
    pub(super) fn unqueue(&mut self, node: NodeId) -> bool {
        let waited = self.queued.contains(node);
        self.queued.remove(node);
        waited
    }

    /// Something else is asked of the nodes, or nothing any more.
    pub(super) fn unqueue_all(&mut self) {
        self.queued = NodeSet::EMPTY;
    }
}
