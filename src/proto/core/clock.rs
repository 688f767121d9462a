//! Whether a node's clock was set forward, as the TTL of its restart guard tells.
//!
//! The restart guard's TTL, which is read behind every plain ask, goes down by the node's clock: where it
//! went down by more than the time that has passed here, that clock was set. What follows, and what goes
//! unseen, is in docs/restart-guard.md. Nothing is written: what one client thinks of a clock must not take a
//! node from all others.

use super::Core;
use crate::proto::names::NodeId;
use crate::proto::node::Link;
use crate::proto::restart_guard::BIG_MS;
use crate::proto::time::{ClockReading, Timestamp};

/// When a restart guard ends at the earliest on our clock, and when it was asked for that; without one, long
/// ago.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::proto) struct Reading {
    asked_at: Timestamp,
    ends: Timestamp,
}

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
        // An operator may end a quarantine, and sets just the longest that is told apart here. Without a TTL
        // there is nothing to compare.
        let Ok(pttl) = u64::try_from(pttl) else { return };
        let span = pttl.min(BIG_MS) * MS;
        let ends = |at: Timestamp| Timestamp(at.0.wrapping_add(span));
        let watch = &mut self.nodes[id.index()].restart_guard;
        let last =
            std::mem::replace(&mut watch.reading, Reading { asked_at, ends: ends(asked_at) });
        // What whole milliseconds hide is no step, and needs no closer look.
        if ends(now.boot).0.wrapping_add(2 * MS) < last.ends.0 {
            let allowed = self.config.drift.of(now.boot.since(last.asked_at));
            if ends(now.boot) + allowed < last.ends {
                watch.doubted_until = now.boot + self.config.settings.max_ttl;
                self.doubt_our_own(now);
            }
        }
    }

    /// Whether its clock was set forward not long ago.
    #[inline]
    pub(super) fn is_doubted(&self, id: NodeId, now: ClockReading) -> bool {
        self.node(id).restart_guard.doubted_until > now.boot
    }

    /// A quorum of clocks is not set forward at once: ours has stood still, and the next looks compare with
    /// nothing that was seen before.
    fn doubt_our_own(&mut self, now: ClockReading) {
        let doubted = self.config.node_ids().filter(|&id| self.is_doubted(id, now)).count();
        if doubted < usize::from(self.config.quorum) {
            return;
        }
        for id in self.config.node_ids() {
            let was_doubted = self.is_doubted(id, now);
            let watch = &mut self.node_mut(id).restart_guard;
            (watch.reading, watch.doubted_until) = (Reading::default(), Timestamp::default());
            if let Link::Quarantined { until } = self.node(id).link
                && was_doubted
                && until != Timestamp::NEVER
            {
                self.look_again(id, now);
            }
        }
    }
}

/// A millisecond.
const MS: u64 = 1_000_000;
