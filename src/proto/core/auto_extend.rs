//! Automatic extension of locks until they are released.
//!
//! The keeper is no more than a timer that extends. What makes it safe is in the lock: one that is being
//! released is not extended, and an extension that is under way then finds its undo behind it. Extensions
//! that are due at nearly the same time are sent together, so that many locks cost each node one write.
//!
//! A loss is told before the validity is over, so that its holder has a moment to stop.

use std::time::Duration;

use super::Core;
use crate::proto::event::{Event, LossCause, Refusal};
use crate::proto::lock::{Lock, Phase};
use crate::proto::names::LockId;
use crate::proto::time::{ClockReading, Timestamp};

impl Core {
    /// Sets the time of the next extension, from the beginning of the round that was granted.
    pub(super) fn auto_extend_from_now(&mut self, id: LockId, now: ClockReading) {
        let Some(lock) = self.locks.find_mut(id.0) else { return };
        let Some(every) = lock.auto_extend_every() else { return };
        let early = self.entropy.below(every / AUTO_EXTEND_JITTER);
        lock.active.auto_extension.at = (lock.active.since.boot + (every - early)).max(now.boot);
        let at = lock.active.auto_extension.at;
        self.arm_auto_extend(id, at);
    }

    /// The keeper's extension failed: it is tried again, several times before the lock is lost.
    pub(super) fn auto_extend_again(&mut self, id: LockId, now: ClockReading) {
        let Some(lock) = self.locks.find_mut(id.0) else { return };
        let Some(every) = lock.auto_extend_every() else { return };
        let left = lock.lease.remaining(now).saturating_sub(lock.notice());
        let pause = (every.min(left) / 4).max(SOONEST);
        lock.active.auto_extension.at = now.boot + pause / 2 + self.entropy.below(pause / 2);
        let at = lock.active.auto_extension.at;
        self.arm_auto_extend(id, at);
    }

    /// A lock whose validity got shorter may end before its next extension is due.
    pub(super) fn auto_extend_soon(&mut self, id: LockId, now: ClockReading) {
        let is_due = |lock: &Lock| {
            lock.phase == Phase::Held && lock.active.auto_extension.at != Timestamp::NEVER
        };
        if self.locks.find(id.0).is_some_and(is_due) {
            self.auto_extend_again(id, now);
        }
    }

    fn arm_auto_extend(&mut self, id: LockId, at: Timestamp) {
        self.auto_extend_at = self.auto_extend_at.min(at);
        self.arm_lock(id, at);
    }

    /// Whether locks have to be extended now; then those that would be due soon are extended as well.
    pub(super) fn begin_auto_extend(&mut self, now: ClockReading) {
        self.is_auto_extending = now.boot >= self.auto_extend_at;
        if self.is_auto_extending {
            self.auto_extend_at = Timestamp::NEVER;
        }
    }

    /// Extends a lock whose time has come.
    pub(super) fn auto_extend_due(&mut self, id: LockId, now: ClockReading) {
        let Some(lock) = self.locks.find_mut(id.0) else { return };
        let Some(every) = lock.auto_extend_every() else { return };
        if lock.phase != Phase::Held || lock.active.auto_extension.at == Timestamp::NEVER {
            return;
        }
        let slack = if self.is_auto_extending { every / AUTO_EXTEND_SLACK } else { Duration::ZERO };
        if now.boot + slack < lock.active.auto_extension.at {
            let at = lock.active.auto_extension.at;
            return self.arm_auto_extend(id, at);
        }
        lock.active.auto_extension.at = Timestamp::NEVER;
        let (ttl, held) = (lock.ttl(), now.boot.since(lock.held_since) + lock.ttl());
        let longest = self.locks.find(id.0).and_then(|lock| self.longest_hold(lock));
        if longest.is_some_and(|longest| held > longest) {
            return;
        }
        self.begin_extension(id, ttl, now);
        if let Some(lock) = self.locks.find_mut(id.0) {
            lock.active.auto_extension.is_extending = true;
        }
        self.settle_extension(id, now);
    }

    /// How long a lock may be held: by its ask, and by the configuration.
    pub(super) fn longest_hold(&self, lock: &Lock) -> Option<Duration> {
        let own = lock.active.auto_extension.options.and_then(|keep| keep.max_hold);
        own.into_iter().chain(self.config.settings.max_hold).min()
    }

    /// What is told of an extension that succeeded.
    pub(super) fn extended(&mut self, id: LockId, now: ClockReading) {
        let Some(lock) = self.locks.find_mut(id.0) else { return };
        lock.active.auto_extension.has_failed = false;
        let auto_extended = std::mem::take(&mut lock.active.auto_extension.is_extending);
        self.metrics.auto_extended += u64::from(auto_extended);
        self.events.push_back(if auto_extended {
            Event::AutoExtended(id)
        } else {
            Event::Extended(id)
        });
        self.auto_extend_from_now(id, now);
    }

    /// What is told of an extension that failed: of the keeper's only the first in a row.
    pub(super) fn not_extended(&mut self, id: LockId, refusal: Refusal, now: ClockReading) {
        let Some(lock) = self.locks.find_mut(id.0) else { return };
        self.metrics.auto_extend_failed += u64::from(lock.active.auto_extension.is_extending);
        if !std::mem::take(&mut lock.active.auto_extension.is_extending) {
            self.events.push_back(Event::NotExtended(id, refusal));
        } else if !std::mem::replace(&mut lock.active.auto_extension.has_failed, true) {
            self.events.push_back(Event::AutoExtendFailed(id, refusal));
        }
        self.auto_extend_again(id, now);
    }
}

impl Lock {
    /// How often it is extended by itself.
    fn auto_extend_every(&self) -> Option<Duration> {
        Some(self.active.auto_extension.options?.every.unwrap_or_else(|| self.ttl() / 3))
    }

    /// How long before the end of its validity its loss is told.
    pub(super) fn notice(&self) -> Duration {
        match self.active.auto_extension.options {
            Some(_) => (self.ttl() / 20).min(LONGEST_NOTICE),
            _ => Duration::ZERO,
        }
    }

    /// When its loss is told if nothing is done. Counted from now, because the wall clock may have taken more of
    /// the lease than boot did.
    pub(super) fn loss_due(&self, now: ClockReading) -> Timestamp {
        now.boot + self.lease.remaining(now).saturating_sub(self.notice())
    }

    /// Why a lock with so much of its validity left is lost, if it is.
    pub(super) fn lost_with(&self, remaining: Duration) -> Option<LossCause> {
        let is_auto_extended = self.active.auto_extension.options.is_some();
        if remaining > self.notice() {
            None
        } else if is_auto_extended
            && self.phase == Phase::Held
            && self.active.auto_extension.at == Timestamp::NEVER
        {
            Some(LossCause::HeldTooLong)
        } else if remaining.is_zero() {
            Some(LossCause::Expired)
        } else {
            Some(LossCause::Unextended)
        }
    }
}

/// An extension comes earlier at random by up to this part of its interval.
const AUTO_EXTEND_JITTER: u32 = 8;

/// And by up to this part to go with others: more than the first, so that locks which went together stay
/// together.
const AUTO_EXTEND_SLACK: u32 = 4;

/// A failed extension is not repeated sooner.
const SOONEST: Duration = Duration::from_millis(1);

/// A loss is not told earlier than this before the validity is over.
const LONGEST_NOTICE: Duration = Duration::from_millis(500);
