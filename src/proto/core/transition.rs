//! Transitions of a lock at work: the lock is looked up once, and what the transition has left to do follows.

use super::{Core, LockAtWork};
use crate::proto::names::{ClaimId, LockId, NodeSet};
use crate::proto::time::{ClockReading, Timestamp};

impl Core {
    /// Applies a transition to a lock at work. Returns `None` if the lock is idle, has not asked yet, or has ended.
    #[inline(always)]
    pub(super) fn transition<R>(
        &mut self,
        id: LockId,
        now: ClockReading,
        apply: impl FnOnce(&mut LockAtWork<'_>) -> R,
    ) -> Option<R> {
        let (lock, active) = self.locks.at_work_mut(id)?;
        let claim_id = lock.claim();
        let mut lock = LockAtWork {
            claim: self.claims.find_mut(claim_id)?,
            id,
            lock,
            active,
            nodes: &mut self.nodes,
            env: env!(self, now),
            due: Timestamp::NEVER,
            sent: NodeSet::EMPTY,
        };
        let result = apply(&mut lock);
        let (due, sent) = (lock.due, lock.sent);
        self.arm_lock(id, due);
        if !sent.is_empty() {
            self.sent(claim_id, sent.iter(), now);
        }
        Some(result)
    }

    /// Applies a transition to the lock at work that uses a claim.
    pub(super) fn transition_by<R>(
        &mut self,
        claim: ClaimId,
        now: ClockReading,
        apply: impl FnOnce(&mut LockAtWork<'_>) -> R,
    ) -> Option<R> {
        let lock = self.claims.find(claim)?.lock()?;
        self.transition(lock, now, apply)
    }
}
