//! The loss of a lock: its lease has ended, or too few nodes keep the key.
//!
//! Invariant: no answer revives a lost lock.

use std::time::Duration;

use super::Hold;
use crate::proto::core::locks::{Lock, Locks, Phase};
use crate::proto::core::{Core, Env, LockAtWork, claims::Claim, effects::LockEffect};
use crate::proto::event::{Event, LossCause};
use crate::proto::names::{ClaimId, LockId, NodeId};
use crate::proto::time::{ClockReading, Timestamp};

impl Hold {
    pub(super) fn notice(&self, lock: &Lock) -> Duration {
        self.auto_extension.notice(lock.ttl())
    }

    /// Returns when the loss is reported if nothing is done; counted from now, because the wall
    /// clock may have used up more of the lease than boot has.
    pub(crate) fn loss_due(&self, lock: &Lock, now: ClockReading) -> Timestamp {
        now.boot + lock.lease.remaining(now).saturating_sub(self.notice(lock))
    }

    fn lost_with(&self, lock: &Lock, remaining: Duration) -> Option<LossCause> {
        if remaining > self.notice(lock) {
            None
        } else if lock.phase == Phase::Held && self.auto_extension.has_stopped() {
            Some(LossCause::HeldTooLong)
        } else if remaining.is_zero() {
            Some(self.cause_of_end())
        } else {
            Some(LossCause::Unextended)
        }
    }

    /// Returns the loss cause reported when the validity ends.
    pub(super) fn cause_of_end(&self) -> LossCause {
        if self.auto_extension.has_failed { LossCause::Unextended } else { LossCause::Expired }
    }
}

impl LockAtWork<'_> {
    /// Reduces the lease to what the other nodes support, or loses the lock.
    fn lose_key(&mut self, node: NodeId) {
        let (quorum, now) = (self.env.config.quorum(), self.env.now);
        let (lock, backing) = (&mut *self.lock, &mut self.active.hold.backing);
        // The node must not extend again: its key is missing, or is another holder's.
        self.claim.gone(node);
        backing.begin(self.claim.counted(), lock.lease, self.nodes.len());
        backing.gone(node);
        let before = lock.lease.remaining(now);
        // A quorum of the other nodes may keep the key for at least a part of the lease.
        lock.lease = lock.lease.and(backing.lease(quorum, now).unwrap_or_default());
        let left = lock.lease.remaining(now);
        if left.is_zero() {
            return self.lose(LossCause::Gone);
        }
        self.arm(self.active.hold.loss_due(self.lock, now));
        if left < before {
            let is_known = !self.active.mode_change.is_companion();
            self.env.events.extend(is_known.then_some(Event::Shortened(self.id)));
            self.auto_extend_soon();
        }
    }

    /// Loses a lock whose validity ends, or ends a round whose time is up. Returns whether the lock
    /// becomes idle.
    fn lease_due(&mut self) -> bool {
        if !self.lock.phase.is_held() {
            return false;
        }
        let remaining = self.lock.lease.remaining(self.env.now);
        if let Some(cause) = self.active.hold.lost_with(self.lock, remaining) {
            self.lose(cause);
            return false;
        }
        self.arm(self.active.hold.loss_due(self.lock, self.env.now));
        let is_over = self.active.round.is_over(self.env.now.boot);
        match self.lock.phase {
            Phase::Extending if is_over => self.extension_due(),
            _ if !is_over => self.arm(self.active.round.until()),
            _ => return self.round_over(),
        }
        false
    }

    /// Ends a round. Requests that wait for a link are withdrawn, so that none is sent long after.
    /// Returns whether nothing is left to learn about the lock, so that it can be idle.
    fn round_over(&mut self) -> bool {
        self.claim.unqueue_all();
        let counted = self.claim.counted();
        let backed = self.active.hold.backing.of(counted, &self.lock.lease);
        self.lock.phase == Phase::Held && self.active.is_done() && backed == counted
    }

    /// Marks the lock as lost. Nothing is sent: the remaining keys protect what the holder is
    /// doing.
    pub(crate) fn lose(&mut self, cause: LossCause) {
        if self.active.mode_change.is_companion() {
            return self.env.effects.of_lock(self.id, LockEffect::CompanionExpired);
        }
        // From now on no answer brings the lock back: this phase counts no votes.
        self.lock.phase = Phase::Lost(cause);
        self.env.common.metrics.lost(cause, self.lock.granted_at(), self.env.now.boot);
        self.env.metrics.auto_extend_losses += u64::from(self.active.hold.is_auto_extended());
        self.claim.unqueue_all();
        self.env.report(Event::Lost(self.id, cause));
        self.env.effects.of_lock(self.id, LockEffect::Lost(cause));
    }
}

impl Core {
    pub(in crate::proto::core) fn key_gone(
        &mut self,
        node: NodeId,
        claim: ClaimId,
        now: ClockReading,
    ) {
        let Some(claim) = self.claims.find_mut(claim) else { return };
        let Some((id, lock)) = claim.lock().and_then(|id| Some((id, self.locks.find(id)?))) else {
            return;
        };
        let is_relied_on = lock.phase.is_held() && claim.counted().contains(node);
        if lock.phase == Phase::Fencing {
            // The lock is not granted yet, and its lease will not rest on this node.
            claim.gone(node);
        } else if is_relied_on && !lock.lease.remaining(now).is_zero() {
            self.locks.activate(id, self.ballot().granted());
            self.transition(id, now, |lock| lock.lose_key(node));
        }
    }

    pub(in crate::proto::core) fn lease_due(&mut self, id: LockId, now: ClockReading) {
        match self.transition(id, now, |lock| lock.lease_due()) {
            Some(true) => self.locks.put_away(id),
            Some(false) => {}
            None => self.locks.idle_lease_due(id, &mut env!(self, now)),
        }
    }

    /// Frees a lost lock that its holder does not release, once its keys have expired.
    pub(in crate::proto::core) fn lost_due(&mut self, id: LockId, now: ClockReading) {
        let Some(lock) = self.locks.find(id) else { return };
        let claim = lock.claim();
        let forget_at = self.claims.find(claim).map_or(now.boot, Claim::forget_at);
        // Until then some node may still have the key, and a release by the holder can free it
        // early.
        if now.boot < forget_at {
            return self.arm_lock(id, forget_at);
        }
        self.free_claim(claim);
        self.locks.free(id);
    }
}

impl Locks {
    fn idle_lease_due(&mut self, id: LockId, env: &mut Env<'_>) {
        let (now, cause) = (env.now, LossCause::Expired);
        if let Some(lock) = self.find_mut(id).filter(|lock| lock.phase.is_held()) {
            let remaining = lock.lease.remaining(now);
            if !remaining.is_zero() {
                self.arm(id, now.boot + remaining);
                return env.arm(now.boot + remaining);
            }
            lock.phase = Phase::Lost(cause);
            env.metrics.lost(cause, lock.granted_at(), now.boot);
            env.report(Event::Lost(id, cause));
            env.effects.of_lock(id, LockEffect::Lost(cause));
        }
    }
}
