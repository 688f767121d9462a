//! Automatic extension of locks until they are released.
//!
//! The timer of one lock is in `auto_extension`. What makes it safe is in the lock: one that is being released is not
//! extended, and an extension that is under way then finds its undo behind it. Extensions that are due at nearly the
//! same time are sent together, so that many locks cost each node one write.
//!
//! A loss is reported before the validity is over, so that the holder has a moment to stop.

use std::time::Duration;

use super::auto_extension::Failed;
use crate::proto::core::Core;
use crate::proto::core::effects::LockEffect;
use crate::proto::core::locks::Phase;
use crate::proto::event::{Event, Refusal};
use crate::proto::names::LockId;
use crate::proto::time::{ClockReading, Timestamp};

impl Core {
    /// Sets the time of the next extension, from the beginning of the round that was granted.
    pub(in crate::proto::core) fn auto_extend_from_now(&mut self, id: LockId, now: ClockReading) {
        let Some((lock, active)) = self.locks.at_work_mut(id) else { return };
        let Some(every) = active.hold.auto_extension.every(lock.ttl()) else { return };
        let early = self.entropy.below(every / AUTO_EXTEND_JITTER);
        let at = (active.round.since() + (every - early)).max(now.boot);
        active.hold.auto_extension.is_due_at(at);
        self.arm_auto_extend(id, at);
    }

    /// The extension that came by itself failed: it is tried again, several times before the lock is lost.
    fn auto_extend_again(&mut self, id: LockId, now: ClockReading) {
        let Some((lock, active)) = self.locks.at_work_mut(id) else { return };
        let Some(every) = active.hold.auto_extension.every(lock.ttl()) else { return };
        let left = lock.lease.remaining(now).saturating_sub(active.hold.notice(lock));
        let pause = (every.min(left) / 4).max(SOONEST);
        let at = now.boot + pause / 2 + self.entropy.below(pause / 2);
        active.hold.auto_extension.is_due_at(at);
        self.arm_auto_extend(id, at);
    }

    /// A lock whose validity got shorter may end before its next extension is due.
    pub(super) fn auto_extend_soon(&mut self, id: LockId, now: ClockReading) {
        let Some((lock, active)) = self.locks.at_work(id) else { return };
        if lock.phase == Phase::Held && active.hold.auto_extension.at() != Timestamp::NEVER {
            self.auto_extend_again(id, now);
        }
    }

    fn arm_auto_extend(&mut self, id: LockId, at: Timestamp) {
        self.auto_extend_at = self.auto_extend_at.min(at);
        self.arm_lock(id, at);
    }

    /// Whether locks have to be extended now; then those that would be due soon are extended as well.
    pub(in crate::proto::core) fn begin_auto_extend(&mut self, now: ClockReading) {
        self.is_auto_extending = now.boot >= self.auto_extend_at;
        if self.is_auto_extending {
            self.auto_extend_at = Timestamp::NEVER;
        }
    }

    /// Extends a lock whose time has come.
    pub(in crate::proto::core) fn auto_extend_due(&mut self, id: LockId, now: ClockReading) {
        let Some((lock, active)) = self.locks.at_work_mut(id) else { return };
        let Some(every) = active.hold.auto_extension.every(lock.ttl()) else { return };
        let at = active.hold.auto_extension.at();
        if lock.phase != Phase::Held || at == Timestamp::NEVER {
            return;
        }
        let slack = if self.is_auto_extending { every / AUTO_EXTEND_SLACK } else { Duration::ZERO };
        if now.boot + slack < at {
            return self.arm_auto_extend(id, at);
        }
        if active.mode_change.is_downgrading() {
            // The claim that is asked for lasts for as long as this one does now.
            return self.auto_extend_again(id, now);
        }
        active.hold.auto_extension.is_taken_up();
        let (ttl, held) = (lock.ttl(), now.boot.since(lock.held_since()) + lock.ttl());
        let longest = self.longest_hold(id);
        if longest.is_some_and(|longest| held > longest) {
            return;
        }
        self.begin_extension(id, ttl, now);
        if let Some(active) = self.locks.active_mut(id) {
            active.hold.auto_extension.extension_begins(true);
        }
        self.settle_extension(id, now);
    }

    /// How long a lock may be held: by its ask, and by the configuration.
    pub(in crate::proto::core) fn longest_hold(&self, id: LockId) -> Option<Duration> {
        let own = self.locks.active(id).and_then(|active| active.hold.auto_extension.max_hold());
        own.into_iter().chain(self.config.settings.max_hold).min()
    }

    /// An extension succeeded: which event reports it.
    pub(super) fn extended(&mut self, id: LockId, now: ClockReading) {
        let Some(active) = self.locks.active_mut(id) else { return };
        let auto_extended = active.hold.auto_extension.succeeded();
        let mode_change = active.mode_change;
        if !active.mode_change.is_companion() {
            self.metrics.extended += 1;
            self.metrics.auto_extended += u64::from(auto_extended);
            self.events.push_back(if auto_extended {
                Event::AutoExtended(id)
            } else {
                Event::Extended(id)
            });
        }
        self.auto_extend_from_now(id, now);
        if mode_change.is_delayed() {
            self.effects.of_lock(id, LockEffect::Extended);
        }
    }

    /// An extension failed: which event reports it. Of automatic ones only the first in a row is reported.
    pub(super) fn not_extended(&mut self, id: LockId, refusal: Refusal, now: ClockReading) {
        let Some(active) = self.locks.active_mut(id) else { return };
        let failed = active.hold.auto_extension.failed();
        if !active.mode_change.is_companion() {
            self.metrics.not_extended += 1;
            self.metrics.auto_extend_failed += u64::from(failed != Failed::Asked);
            match failed {
                Failed::Asked => self.events.push_back(Event::NotExtended(id, refusal)),
                Failed::First => self.events.push_back(Event::AutoExtendFailed(id, refusal)),
                Failed::Again => {}
            }
        }
        self.auto_extend_again(id, now);
    }
}

/// An extension comes earlier at random by up to this part of its interval.
const AUTO_EXTEND_JITTER: u32 = 8;

/// And by up to this part to go with others: more than the first, so that locks which went together stay
/// together.
const AUTO_EXTEND_SLACK: u32 = 4;

/// A failed extension is not repeated sooner.
const SOONEST: Duration = Duration::from_millis(1);
