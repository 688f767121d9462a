//! Suspicion: locks do not wait for a node that hangs.
//!
//! It is neither a failure nor a vote: [`Votes::verdict`] takes it into account once a quorum has
//! voted. The rules are in docs/how-it-works/protocol.md.
//!
//! [`Votes::verdict`]: crate::proto::Votes::verdict

use std::time::Duration;

use super::command_link::Link;
use super::node::{Node, Nodes};
use super::{FIRST_CONTACT, Silence};
use crate::proto::core::{Core, Env, effects::NodeEffect};
use crate::proto::names::{NodeId, NodeSet};
use crate::proto::time::Timestamp;

impl Core {
    /// Ignores the round trips of requests that were sent before `now`. Call it before reading
    /// sockets that have not been read for a while: their answers do not show how long the nodes
    /// took.
    pub fn resume(&mut self, now: Timestamp) {
        self.nodes.iter_mut().for_each(|node| node.pace.ignore_before(now));
    }

    /// Returns the progress of a connection attempt to a node that has had the time for more.
    pub(crate) fn silence(&self, node: NodeId) -> Option<Silence> {
        let (silence, since) = self.node(node).silence()?;
        let allowance = self.nodes.allowance(node).max(FIRST_CONTACT / 2);
        (self.boot >= since + allowance).then_some(silence)
    }
}

impl Nodes {
    /// Stops waiting for nodes that seem to hang.
    pub(in crate::proto::core) fn suspect(&self, nodes: NodeSet, env: &mut Env<'_>) {
        for node in nodes.iter() {
            if env.set_suspected(node, true) {
                env.metrics.of(node).suspicions += 1;
                // Its notifications may not come either.
                if self[node.index()].push.is_wanted() {
                    env.effects.of_node(node, NodeEffect::ReportsLost);
                }
                env.effects.of_node(node, NodeEffect::SettleReleases);
            }
        }
    }

    /// Returns for how long a node may be silent after a quorum has answered.
    pub(in crate::proto::core) fn allowance(&self, node: NodeId) -> Duration {
        match self[node.index()].pace.round_trip() {
            Some(known) => (known * ROUND_TRIPS).max(LEAST),
            // Its round trip is unknown, so it has the time of a first contact.
            None => (self.farthest() * ROUND_TRIPS).max(FIRST_CONTACT),
        }
    }

    /// Returns until when a round waits for a node, if a quorum has answered at `since`.
    pub(in crate::proto::core) fn awaited_until(&self, id: NodeId, since: Timestamp) -> Timestamp {
        // From the start of the connection attempt: otherwise each round would wait again for a
        // node that cannot be reached, and meanwhile keep what it has won from others.
        let since = match self[id.index()].link.state() {
            Link::Opening { since: opened, .. } => since.min(opened),
            _ => since,
        };
        since + self.allowance(id)
    }

    fn farthest(&self) -> Duration {
        let known = self.iter().filter_map(|node| node.pace.round_trip());
        known.max().unwrap_or_default()
    }

    /// Returns whether a node has been silent for longer than the farthest node needs to answer and
    /// its own allowance, while a quorum has answered.
    pub(crate) fn is_overdue(&self, id: NodeId, quorum: usize, now: Timestamp) -> bool {
        let node = &self[id.index()];
        let Some(oldest) = node.pipeline.oldest() else { return false };
        let silent_since = oldest.since.max(node.received_at());
        if !node.link.takes_asks() || now < silent_since + self.farthest() + self.allowance(id) {
            return false;
        }
        // If no quorum has answered since, the silence is not this node's.
        self.iter().filter(|node| node.received_at() > silent_since).count() >= quorum
    }
}

impl Node {
    /// Returns the progress of a connection attempt, and the time of the last progress.
    fn silence(&self) -> Option<(Silence, Timestamp)> {
        match self.link.state() {
            Link::Opening { since, .. } => Some((Silence::Unreached, since)),
            Link::Handshake { .. } => Some((Silence::Unanswered, self.received_at())),
            _ => None,
        }
    }
}

/// The allowance of a node, in its round trips, and the shortest one.
const ROUND_TRIPS: u32 = 4;
const LEAST: Duration = Duration::from_millis(5);
