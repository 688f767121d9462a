//! Whether a node's clock was set forward, as the TTL of its restart guard tells.
//!
//! The restart guard's TTL, which is read behind every plain ask, goes down by the node's clock: where it
//! went down by more than the time that has passed here, that clock was set. What follows, and what goes
//! unseen, is in docs/restart-guard.md. Nothing is written: what one client thinks of a clock must not take a
//! node from all others.

use crate::proto::core::Env;
use crate::proto::core::links::{Node, Nodes};
use crate::proto::names::NodeId;
use crate::proto::time::Timestamp;

impl Nodes {
    /// A restart guard that is ours was asked for its TTL at `asked_at`, and has so many ms.
    #[inline]
    pub(super) fn record_ttl(
        &mut self,
        id: NodeId,
        asked_at: Timestamp,
        pttl: i64,
        env: &mut Env<'_>,
    ) {
        let (now, watch) = (env.now().boot, &mut self[id.index()].restart_guard);
        if !watch.record_ttl(asked_at, pttl, env.config().drift, now) {
            return;
        }
        watch.doubt_until(now + env.settings().max_ttl);
        // A quorum of clocks is not set forward at once: ours has stood still, and the next looks compare with nothing that
        // was seen before.
        let is_doubted = |node: &&Node| node.restart_guard.is_doubted(now);
        if self.iter().filter(is_doubted).count() >= env.config().quorum() {
            env.config().node_ids().for_each(|id| self.candidate(id, env).believe_clock());
        }
    }
}
