//! The release of a lock, from the undo to its result.

use crate::proto::core::{Core, LockAtWork, claims::Claim, links::Pending, locks::Phase};
use crate::proto::event::{Event, Released};
use crate::proto::names::{ClaimId, LockId, NodeId};
use crate::proto::{time::ClockReading, vote::Vote};

impl LockAtWork<'_> {
    #[inline]
    pub(crate) fn take_release_vote(
        &mut self,
        node: NodeId,
        vote: Vote,
    ) -> Option<(ClaimId, Released)> {
        if self.lock.phase == Phase::Releasing {
            self.active.votes.cast(node, vote);
        }
        self.release_result()
    }

    pub(crate) fn release_due(&mut self) -> Option<(ClaimId, Released)> {
        if self.active.round.is_over(self.env.now.boot) {
            return self.release_result();
        }
        self.arm(self.active.round.until());
        None
    }

    /// Completes a release when a quorum has confirmed it, when only nodes that seem to hang are
    /// left to answer, or when its time is up. The remaining undos stay owed.
    #[inline]
    fn release_result(&mut self) -> Option<(ClaimId, Released)> {
        let (claim, votes) = (&self.claim, &self.active.votes);
        let confirmed = votes.grants().len();
        let awaited = |node: NodeId| {
            claim.undoing().contains(node) || self.nodes[node.index()].link.may_return()
        };
        // Once a quorum has deleted its keys, others can get the lock. The rest is undone after the
        // result.
        let over = confirmed >= votes.quorum()
            || !claim.owed().without(self.env.suspected).iter().any(awaited)
            || self.active.round.is_over(self.env.now.boot);
        if !over || self.lock.phase != Phase::Releasing {
            return None;
        }
        self.env.metrics.unconfirmed += u64::from(confirmed < votes.quorum());
        // At most MAX_NODES.
        let confirmed = Released { nodes: confirmed as u32, of: votes.node_count() as u32 };
        Some((self.lock.claim(), confirmed))
    }
}

impl Core {
    pub(in crate::proto::core) fn begin_release(&mut self, id: LockId, now: ClockReading) {
        let votes = self.ballot();
        let until = now.boot + self.config.settings.response_timeout;
        let Some((lock, active)) = self.locks.activate(id, votes.granted()) else { return };
        lock.begin_round(active, Phase::Releasing, now, votes);
        self.common.metrics.released(lock.granted_at(), now.boot);
        active.round.lasts_until(until);
        let (claim, queued) = (lock.claim(), active.waiting.is_queued());
        self.arm_lock(id, until);
        for node in self.undo(claim, now).iter() {
            let (node, mut env) = self.node_in_env(node, now);
            if !node.link.takes_undos() {
                node.reopen(&mut env);
            }
        }
        if queued {
            self.with_waiter(id, now, |it| it.leave_queues_released());
        }
        self.release_by(id, now, |lock| lock.release_result());
        self.run_scheduled();
    }

    #[inline]
    pub(in crate::proto::core) fn release_by(
        &mut self,
        id: LockId,
        now: ClockReading,
        step: impl FnOnce(&mut LockAtWork<'_>) -> Option<(ClaimId, Released)>,
    ) {
        if let Some((claim, confirmed)) = self.transition(id, now, step).flatten() {
            self.locks.free(id);
            self.part_from_lock(claim, now);
            self.common.events.push_back(Event::Released(id, confirmed));
        }
    }

    pub(in crate::proto::core) fn settle_releases(&mut self, now: ClockReading) {
        for at in 0..self.locks.capacity() {
            if let Some(id) = self.locks.at(at) {
                self.release_by(id, now, |lock| lock.release_result());
            }
        }
    }

    /// Completes releases that wait for this node only: those with an undo in flight there, or any
    /// if its link is not open.
    pub(in crate::proto::core) fn releases_go_on_without(&mut self, id: NodeId, now: ClockReading) {
        if !self.node(id).link.takes_undos() {
            return self.settle_releases(now);
        }
        for at in 0..self.node(id).pipeline.len() {
            if let Some(&(Pending::Delete { claim, .. } | Pending::Undo { claim, .. })) =
                self.node(id).pipeline.at(at)
                && let Some(lock) = self.claims.find(claim).and_then(Claim::lock)
            {
                self.release_by(lock, now, |lock| lock.release_result());
            }
        }
    }
}
