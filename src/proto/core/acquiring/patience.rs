//! For how long an attempt waits for the rest of the nodes once a quorum has voted.
//!
//! A node that takes longer than usual is suspected, and not waited for. Suspicion is no failure and no vote. Not here:
//! how long a node usually takes, see `links::suspect`.

use crate::proto::core::Core;
use crate::proto::core::effects::Decision;
use crate::proto::names::{LockId, NodeId, NodeSet};
use crate::proto::time::{ClockReading, Timestamp};

impl Core {
    /// A vote has decided nothing. If a quorum has voted, the others are given their allowance.
    pub(super) fn limit_wait(&mut self, id: LockId, now: ClockReading) -> Decision {
        match self.locks.active(id).is_some_and(|active| active.votes.has_quorum()) {
            true => self.wait_for_the_rest(id, now),
            false => Decision::Continue,
        }
    }

    /// A quorum has voted, and decided nothing: the others are given their allowance.
    #[cold]
    pub(super) fn wait_for_the_rest(&mut self, id: LockId, now: ClockReading) -> Decision {
        let Some(active) = self.locks.active_mut(id) else { return Decision::Continue };
        let since = active.round.quorum_answered(now.boot);
        let awaited = active.votes.awaited().without(self.suspected);
        let until = awaited.iter().map(|node| since + self.nodes.allowance(node)).min();
        let until = until.unwrap_or(Timestamp::NEVER);
        if let Some(active) = self.locks.active_mut(id) {
            active.round.waits_for_rest(until);
            self.arm_lock(id, until);
        }
        Decision::Continue
    }

    /// A round goes on. Those who have not answered within their allowance are suspected, and a lead that
    /// takes longer than usual is not the only one to be asked.
    pub(super) fn round_drags(&mut self, id: LockId, now: ClockReading) -> Decision {
        let Some(active) = self.locks.active_mut(id) else { return Decision::Continue };
        let until = active.round.rest_until();
        if now.boot < until {
            self.arm_lock(id, until);
            return Decision::Continue;
        }
        if let Some(lead) = active.attempt.lead.take() {
            // The others are asked before it has voted, under the same token, and with the validity counted from its ask.
            return Decision::AskMore(self.nodes.all().without(lead.into()));
        }
        let (since, awaited) = (active.round.quorum_at(), active.votes.awaited());
        // Those who have more time are waited for anew, unless only a write-back is.
        active.round.waits_for_rest(Timestamp::NEVER);
        let mut late = NodeSet::default();
        let is_late = |node: &NodeId| now.boot >= since + self.nodes.allowance(*node);
        awaited.iter().filter(is_late).for_each(|node| late.insert(node));
        Decision::Suspect(late)
    }
}
