//! Assertions of what holds for a core at any time, in debug builds and in the simulator. Rules
//! that involve two clients or a node's memory are checked by the simulator.

use super::{Core, LockAtWork};
use crate::proto::core::claims::Claim;
use crate::proto::core::locks::{Active, Lock, Phase};
use crate::proto::lock_mode::LockMode;
use crate::proto::names::{MAX_NODES, NodeSet};
use crate::proto::restart_guard::RestartGuard;
use crate::proto::time::Timestamp;

impl Core {
    pub(super) fn check(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        #[cfg(test)]
        if crate::proto::steps::is_counting() {
            return;
        }
        assert!(
            self.common.effects.is_empty(),
            "what a transition leaves is done: {:?}",
            self.common.effects
        );
        let guarded = self.config.settings.restart_guard == RestartGuard::On;
        for node in self.nodes.iter() {
            let votes = node.link.is_ready() && guarded;
            assert!(
                !votes || node.restart_guard.is_ours(),
                "a node votes behind our restart guard only"
            );
            let quiet = node.link.is_closed();
            assert!(!quiet || node.pipeline.len() == 0, "nothing is due without a connection");
        }
        self.check_locks();
        self.check_claims();
    }

    fn check_locks(&self) {
        for id in self.locks.ids() {
            let Some(lock) = self.locks.find(id) else { continue };
            let active = self.locks.active(id);
            let claim = self.claims.find(lock.claim());
            if let Some(claim) = claim.filter(|_| lock.phase.is_held()) {
                let both = claim.counted().and(claim.owed());
                assert!(both.is_empty(), "what a holder relies on is not being undone");
                assert!(claim.counted().len() >= self.config.quorum(), "a quorum has granted");
            }
            let due = lock.due(active, claim);
            assert!(self.locks.due_of(id) <= due, "what is due is armed: {lock:?}, {active:?}");
            let is_over = matches!(lock.phase, Phase::Held | Phase::Lost(_));
            assert!(
                active.is_some() || is_over,
                "a lock that is asked about is not idle: {lock:?}"
            );
            let subscribed = active.is_some_and(|active| active.waiting.is_subscribed());
            assert!(!subscribed || !lock.phase.is_held(), "only waiters subscribe: {lock:?}");
        }
    }

    fn check_claims(&self) {
        let mut owes = [0; MAX_NODES];
        for id in self.claims.ids() {
            let Some(claim) = self.claims.find(id) else { continue };
            claim.check();
            let user = claim.lock().and_then(|lock| self.locks.find(lock));
            assert!(user.is_none_or(|lock| lock.claim() == id), "a claim's lock uses this claim");
            claim.owed().iter().for_each(|node| owes[node.index()] += 1);
            // A claim that became due while a lock used it is due at once when the lock has ended.
            let due = claim.due().max(self.boot);
            assert!(claim.is_in_use() || self.claims.due_of(id) <= due, "what is due is armed");
        }
        let mut counted = self.nodes.iter().map(|node| node.debt.claims()).zip(owes);
        assert!(counted.all(|(told, found)| told == found), "what is owed is counted");
    }
}

impl Lock {
    /// Returns when the lock is due, by its phase.
    fn due(&self, active: Option<&Active>, claim: Option<&Claim>) -> Timestamp {
        match (self.phase, active) {
            (Phase::Lost(_), _) => claim.map_or(Timestamp::NEVER, Claim::forget_at),
            (_, None) => self.lease.ends(),
            (Phase::Asking | Phase::Fencing, Some(it)) => it.round.due(),
            (Phase::Releasing, Some(it)) => it.round.until(),
            (Phase::Extending, Some(it)) => {
                it.round.until().min(self.lease.ends()).min(it.permit.due())
            }
            (Phase::Held, Some(it)) => self.lease.ends().min(it.hold.due()).min(it.permit.due()),
            (Phase::Pausing, Some(it)) => it.waiting.until(),
            (Phase::Queued, Some(it)) => it.waiting.deadline(),
        }
    }
}

impl LockAtWork<'_> {
    /// Asserts what holds for every grant.
    pub(super) fn check_grant(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        let (lock, active) = (&self.lock, &self.active);
        assert!(!lock.lease.remaining(self.env.now).is_zero(), "something of its validity is left");
        let ttl_over = active.round.since() + lock.ttl();
        assert!(lock.lease.ends() <= ttl_over, "a lease ends with its TTL");
        let grants = active.votes.grants();
        let uncounted: NodeSet = grants.without(self.claim.counted());
        assert!(uncounted.is_empty(), "every grant was checked by its restart guard");
        assert!(grants.len() >= self.env.config.quorum(), "a quorum has granted");
        assert!(
            !matches!(lock.mode(), LockMode::Permit { .. }) || self.claim.slot().is_some(),
            "it has its slot"
        );
        assert!(
            !active.fencing.is_wanted() || active.fencing.token().is_some(),
            "it has its token"
        );
    }
}
