//! Transitions of a lock at work: each looks the lock up once, and then arms its timers.

use super::claims::{Claim, Claims};
use super::locks::{Active, Lock, Locks};
use super::{Core, LockAtWork};
use crate::proto::names::{ClaimId, LockId, NodeSet};
use crate::proto::time::{ClockReading, Timestamp};

/// A lock at work and its claim, each with its id.
type LockParts<'a> = (LockId, &'a mut Lock, &'a mut Active, ClaimId, &'a mut Claim);

/// An id that leads to a lock at work: its own id, or that of its claim.
pub(super) trait FindLock {
    fn find<'a>(self, locks: &'a mut Locks, claims: &'a mut Claims) -> Option<LockParts<'a>>;
}

impl FindLock for LockId {
    #[inline(always)]
    fn find<'a>(self, locks: &'a mut Locks, claims: &'a mut Claims) -> Option<LockParts<'a>> {
        let (lock, active) = locks.at_work_mut(self)?;
        let claim = lock.claim();
        Some((self, lock, active, claim, claims.find_mut(claim)?))
    }
}

impl FindLock for ClaimId {
    #[inline(always)]
    fn find<'a>(self, locks: &'a mut Locks, claims: &'a mut Claims) -> Option<LockParts<'a>> {
        let claim = claims.find_mut(self)?;
        let id = claim.lock()?;
        let (lock, active) = locks.at_work_mut(id)?;
        // A vote counted for another claim than its own would be a vote for another token.
        debug_assert_eq!(lock.claim(), self, "a claim's lock uses this claim");
        Some((id, lock, active, self, claim))
    }
}

impl Core {
    /// Applies a transition to a lock at work. Returns `None` if the lock is idle, has not asked
    /// yet, or has ended, or if the claim does not belong to a lock.
    #[inline(always)]
    pub(super) fn transition<R>(
        &mut self,
        id: impl FindLock,
        now: ClockReading,
        apply: impl FnOnce(&mut LockAtWork<'_>) -> R,
    ) -> Option<R> {
        let (id, lock, active, claim_id, claim) = id.find(&mut self.locks, &mut self.claims)?;
        let mut lock = LockAtWork {
            claim,
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
}
