//! Whether a node's clock was set forward, as the TTL of its restart guard tells.
//!
//! The restart guard's TTL, which is read behind every plain ask, goes down by the node's clock: where it
//! went down by more than the time that has passed here, that clock was set. What follows, and what goes
//! unseen, is in docs/restart-guard.md. Nothing is written: what one client thinks of a clock must not take a
//! node from all others.

use crate::proto::core::Core;
use crate::proto::core::links::Node;
use crate::proto::names::NodeId;
use crate::proto::time::{ClockReading, Timestamp};

impl Core {
    /// A restart guard that is ours was asked for its TTL at `asked_at`, and has so many ms.
    #[inline]
    pub(super) fn clock_seen(
        &mut self,
        id: NodeId,
        asked_at: Timestamp,
        pttl: i64,
        now: ClockReading,
    ) {
        let watch = &mut self.nodes[id.index()].restart_guard;
        if !watch.record_ttl(asked_at, pttl, self.config.drift, now.boot) {
            return;
        }
        watch.doubt_until(now.boot + self.config.settings.max_ttl);
        // A quorum of clocks is not set forward at once: ours has stood still, and the next looks compare with nothing that
        // was seen before.
        let is_doubted = |node: &&Node| node.restart_guard.is_doubted(now.boot);
        if self.nodes.iter().filter(is_doubted).count() >= self.config.quorum() {
            self.config.node_ids().for_each(|id| self.candidate(id, now).believe_clock());
        }
    }
}
