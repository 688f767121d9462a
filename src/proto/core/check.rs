//! What must hold of a core at every moment, as far as it can see that itself.
//!
//! Asserted in debug builds and in the simulator, which turns debug assertions on. Not here: what takes
//! two clients or a node's memory to see; that is the simulator's.

use super::Core;
use crate::proto::claim::Claim;
use crate::proto::lock::{Lock, Phase};
use crate::proto::names::{MAX_NODES, NodeSet};
use crate::proto::node::Link;
use crate::proto::restart_guard::RestartGuard;
use crate::proto::time::{ClockReading, Timestamp};

impl Core {
    /// Asserts it of all nodes, locks and claims.
    pub(super) fn check(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        #[cfg(test)]
        if crate::proto::steps::is_counting() {
            return;
        }
        let guarded = self.config.settings.restart_guard == RestartGuard::On;
        for node in &self.nodes {
            let votes = node.link == Link::Ready && guarded;
            assert!(
                !votes || node.restart_guard.is_ours,
                "a node votes behind our restart guard only"
            );
            let quiet = matches!(node.link, Link::Down { .. } | Link::Opening { .. });
            assert!(!quiet || node.pipeline.len() == 0, "nothing is due without a connection");
        }
        for key in (0..self.locks.capacity()).filter_map(|at| self.locks.at(at)) {
            let Some(lock) = self.locks.find(key) else { continue };
            self.check_lock(lock);
            assert!(self.locks.due_of(key) <= self.due_at(lock), "what is due is armed: {lock:?}");
        }
        let mut owes = [0; MAX_NODES];
        for key in (0..self.claims.capacity()).filter_map(|at| self.claims.at(at)) {
            let Some(claim) = self.claims.find(key) else { continue };
            claim.check();
            claim.owed().iter().for_each(|node| owes[node.index()] += 1);
            // What became due while a lock had the claim is due at once when it is over.
            let due = claim.due().max(self.boot);
            assert!(
                claim.lock().is_some() || self.claims.due_of(key) <= due,
                "what is due is armed"
            );
        }
        let mut counted = self.nodes.iter().map(|node| node.owes).zip(owes);
        assert!(counted.all(|(told, found)| told == found), "what is owed is counted");
    }

    fn check_lock(&self, lock: &Lock) {
        let Some(claim) = self.claims.find(lock.claim.0) else { return };
        let both = claim.counted().and(claim.owed());
        let held = lock.phase.is_held();
        assert!(!held || both.is_empty(), "what a holder relies on is not being undone");
        assert!(!held || claim.counted().len() >= self.config.quorum(), "a quorum has granted");
    }

    /// When a lock is due, by what it waits for.
    fn due_at(&self, lock: &Lock) -> Timestamp {
        match lock.phase {
            Phase::Asking | Phase::Fencing => lock.active.round_until.min(lock.active.rest.until),
            Phase::Releasing => lock.active.round_until,
            Phase::Extending => lock.active.round_until.min(lock.lease.ends()),
            Phase::Held => lock.lease.ends().min(lock.active.auto_extension.at),
            Phase::Lost(_) => {
                self.claims.find(lock.claim.0).map_or(Timestamp::NEVER, Claim::forget_at)
            }
            Phase::Pausing => lock.active.pause.until(),
            Phase::Queued => lock.active.deadline,
        }
    }

    /// Asserts what makes a grant one.
    pub(super) fn check_grant(&self, lock: &Lock, now: ClockReading) {
        let Some(claim) = self.claims.find(lock.claim.0) else { return };
        debug_assert!(!lock.lease.remaining(now).is_zero(), "something of its validity is left");
        debug_assert!(
            lock.lease.ends() <= lock.active.since.boot + lock.ttl(),
            "a lease ends with its TTL"
        );
        let uncounted: NodeSet = lock.active.votes.grants().without(claim.counted());
        debug_assert!(uncounted.is_empty(), "every grant was checked by its restart guard");
        debug_assert!(
            lock.active.votes.grants().len() >= self.config.quorum(),
            "a quorum has granted"
        );
        debug_assert!(
            !lock.active.fence.is_wanted || lock.active.fence.token.is_some(),
            "it has its token"
        );
    }
}
