//! Whether a node's clock was set forward, as the TTL of its restart guard tells.
//!
//! The restart guard's TTL, which is read behind every plain ask, goes down by the node's clock: where it
//! went down by more than the time that has passed here, that clock was set. What follows, and what goes
//! unseen, is in docs/restart-guard.md. Nothing is written: what one client thinks of a clock must not take a
//! node from all others.

use crate::proto::core::Env;
use crate::proto::core::links::{Node, Nodes};
use crate::proto::names::NodeId;

impl Nodes {
    /// Records that the clock of a node was set forward.
    #[cold]
    pub(in crate::proto::core) fn doubt_clock(&mut self, id: NodeId, env: &mut Env<'_>) {
        let now = env.now.boot;
        self[id.index()].restart_guard.doubt_until(now + env.settings().max_ttl);
        // A quorum of clocks is not set forward at once: ours has stood still, and the next looks compare with nothing that
        // was seen before.
        let is_doubted = |node: &&Node| node.restart_guard.is_doubted(now);
        if self.iter().filter(is_doubted).count() >= env.config.quorum() {
            env.config.node_ids().for_each(|id| self.candidate(id, env).believe_clock());
        }
    }
}
