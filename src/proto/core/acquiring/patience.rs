//! For how long an attempt waits for the rest of the nodes once a quorum has voted.
//!
//! A node that takes longer than usual is suspected, and not waited for. Suspicion is no failure and no vote. Not here:
//! how long a node usually takes, see `links::suspect`.

use crate::proto::core::Core;
use crate::proto::names::LockId;
use crate::proto::time::{ClockReading, Timestamp};

impl Core {
    /// A vote has decided nothing. If a quorum has voted, the others are given their allowance.
    pub(super) fn limit_wait(&mut self, id: LockId, now: ClockReading) {
        if self.locks.active(id).is_some_and(|active| active.votes.has_quorum()) {
            self.wait_for_the_rest(id, now);
        }
    }

    /// A quorum has voted, and decided nothing: the others are given their allowance.
    #[cold]
    pub(super) fn wait_for_the_rest(&mut self, id: LockId, now: ClockReading) {
        let Some(active) = self.locks.active_mut(id) else { return };
        let since = active.round.quorum_answered(now.boot);
        let awaited = active.votes.awaited().without(self.suspected);
        let until = awaited.iter().map(|node| since + self.nodes.allowance(node)).min();
        let until = until.unwrap_or(Timestamp::NEVER);
        if let Some(active) = self.locks.active_mut(id) {
            active.round.waits_for_rest(until);
            self.arm_lock(id, until);
        }
    }

    /// A round goes on. Those who have not answered within their allowance are suspected, and a lead that
    /// takes longer than usual is not the only one to be asked.
    pub(super) fn round_drags(&mut self, id: LockId, now: ClockReading) {
        let Some(active) = self.locks.active_mut(id) else { return };
        let until = active.round.rest_until();
        if now.boot < until {
            return self.arm_lock(id, until);
        }
        if active.attempt.lead.is_some() {
            return self.ask_the_others(id, now);
        }
        let (since, awaited) = (active.round.quorum_at(), active.votes.awaited());
        // Those who have more time are waited for anew, unless only a write-back is.
        active.round.waits_for_rest(Timestamp::NEVER);
        for node in awaited.iter() {
            if now.boot >= since + self.nodes.allowance(node) {
                self.suspect(node, now);
            }
        }
        self.decide(id, now);
    }
}
