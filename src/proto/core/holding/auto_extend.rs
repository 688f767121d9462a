//! Automatic extension of locks until they are released.
//!
//! What makes it safe is in the lock: one that is being released is not extended, and an extension that is under way then
//! finds its undo behind it. Extensions that are due at nearly the same time are sent together, so that many locks cost each
//! node one write.
//!
//! A loss is reported before the validity is over, so that the holder has a moment to stop.

use std::time::Duration;

use super::{AutoExtension, Hold};
use crate::proto::core::effects::LockEffect;
use crate::proto::core::locks::Phase;
use crate::proto::core::mode_change::ModeChange;
use crate::proto::core::{Common, LockAtWork};
use crate::proto::event::{Event, Refusal};
use crate::proto::request::AutoExtend;
use crate::proto::time::Timestamp;

impl LockAtWork<'_> {
    /// Sets the time of the next extension, from the beginning of the round that was granted.
    pub(in crate::proto::core) fn auto_extend_from_now(&mut self) {
        if let Some(every) = self.active.hold.auto_extension.every(self.lock.ttl()) {
            let early = self.env.random_below(every / AUTO_EXTEND_JITTER);
            let at = self.active.round.since() + (every - early);
            self.auto_extend_at(at.max(self.env.now.boot));
        }
    }

    /// The extension that came by itself failed: it is tried again, several times before the lock is lost.
    fn auto_extend_again(&mut self) {
        let (hold, now) = (&self.active.hold, self.env.now);
        if let Some(every) = hold.auto_extension.every(self.lock.ttl()) {
            let left = self.lock.lease.remaining(now).saturating_sub(hold.notice(self.lock));
            let pause = (every.min(left) / 4).max(SOONEST);
            let at = now.boot + pause / 2 + self.env.random_below(pause / 2);
            self.auto_extend_at(at);
        }
    }

    /// A lock whose validity got shorter may end before its next extension is due.
    pub(super) fn auto_extend_soon(&mut self) {
        let at = self.active.hold.auto_extension.at;
        if self.lock.phase == Phase::Held && at != Timestamp::NEVER {
            self.auto_extend_again();
        }
    }

    fn auto_extend_at(&mut self, at: Timestamp) {
        self.active.hold.auto_extension.at = at;
        self.arm_auto_extend(at);
    }

    fn arm_auto_extend(&mut self, at: Timestamp) {
        self.env.auto_extend_at = at.min(self.env.auto_extend_at);
        self.arm(at);
    }

    /// Extends a lock whose time has come.
    pub(in crate::proto::core) fn auto_extend_due(&mut self) {
        let (hold, ttl, now) = (&mut self.active.hold, self.lock.ttl(), self.env.now.boot);
        let Some(every) = hold.auto_extension.every(ttl) else { return };
        let at = hold.auto_extension.at;
        if self.lock.phase != Phase::Held || at == Timestamp::NEVER {
            return;
        }
        let slack =
            if self.env.is_auto_extending { every / AUTO_EXTEND_SLACK } else { Duration::ZERO };
        if now + slack < at {
            return self.arm_auto_extend(at);
        }
        if self.active.mode_change.is_downgrading() {
            // The claim that is asked for lasts for as long as this one does now.
            return self.auto_extend_again();
        }
        hold.auto_extension.at = Timestamp::NEVER;
        let held = now.since(self.lock.held_since()) + ttl;
        let longest = Hold::longest(Some(hold), self.env.config);
        if longest.is_some_and(|longest| held > longest) {
            return;
        }
        self.begin_extension(ttl, true);
    }

    /// An extension succeeded: which event reports it.
    pub(super) fn extended(&mut self) {
        let auto_extended = self.active.hold.auto_extension.succeeded();
        let mode_change = self.active.mode_change;
        if !mode_change.is_companion() {
            self.env.metrics.extended += 1;
            self.env.metrics.auto_extended += u64::from(auto_extended);
            self.env.report(match auto_extended {
                true => Event::AutoExtended(self.id),
                false => Event::Extended(self.id),
            });
        }
        self.auto_extend_from_now();
        if mode_change == ModeChange::Delayed {
            self.env.effects.of_lock(self.id, LockEffect::Extended);
        }
    }

    /// An extension failed: which event reports it. Of automatic ones only the first in a row is reported.
    pub(super) fn not_extended(&mut self, refusal: Refusal) {
        let failed = self.active.hold.auto_extension.failed();
        if !self.active.mode_change.is_companion() {
            self.env.metrics.not_extended += 1;
            self.env.metrics.auto_extend_failed += u64::from(failed != Failed::Asked);
            match failed {
                Failed::Asked => self.env.report(Event::NotExtended(self.id, refusal)),
                Failed::First => self.env.report(Event::AutoExtendFailed(self.id, refusal)),
                Failed::Again => {}
            }
        }
        self.auto_extend_again();
    }
}

/// Whose an extension was that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failed {
    /// The caller's.
    Asked,
    /// The first in a row that came by itself.
    First,
    /// Another one, after one that was reported.
    Again,
}

impl AutoExtension {
    pub(super) const fn new(options: Option<AutoExtend>) -> Self {
        Self { options, at: Timestamp::NEVER, is_extending: false, has_failed: false }
    }

    /// How often a lock with this TTL is extended.
    fn every(&self, ttl: Duration) -> Option<Duration> {
        Some(self.options?.every.unwrap_or(ttl / 3))
    }

    /// How long before the end of its validity the loss of a lock with this TTL is reported.
    pub(super) fn notice(&self, ttl: Duration) -> Duration {
        match self.options {
            Some(_) => (ttl / 20).min(LONGEST_NOTICE),
            None => Duration::ZERO,
        }
    }

    /// Whether it waits for no moment: an extension is under way, or the lock has been held for long enough.
    pub(super) fn has_stopped(&self) -> bool {
        self.options.is_some() && self.at == Timestamp::NEVER
    }

    /// The extension under way succeeded. Whether it came of this.
    fn succeeded(&mut self) -> bool {
        self.has_failed = false;
        std::mem::take(&mut self.is_extending)
    }

    fn failed(&mut self) -> Failed {
        if !std::mem::take(&mut self.is_extending) {
            Failed::Asked
        } else if std::mem::replace(&mut self.has_failed, true) {
            Failed::Again
        } else {
            Failed::First
        }
    }
}

impl Common {
    /// Whether locks have to be extended now; then those that would be due soon are extended as well.
    pub(in crate::proto::core) fn begin_auto_extend(&mut self, now: Timestamp) {
        self.is_auto_extending = now >= self.auto_extend_at;
        if self.is_auto_extending {
            self.auto_extend_at = Timestamp::NEVER;
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

/// A loss is not reported earlier than this before the validity is over.
const LONGEST_NOTICE: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_failures_in_a_row_the_first_is_reported() {
        let mut timer = AutoExtension::new(Some(AutoExtend::until_released()));
        let mut fail = |by_itself| {
            timer.is_extending = by_itself;
            timer.failed()
        };
        assert_eq!((fail(true), fail(true)), (Failed::First, Failed::Again));
        assert_eq!((fail(false), fail(true)), (Failed::Asked, Failed::Again));
        timer.is_extending = true;
        assert!(timer.succeeded() && !timer.succeeded());
        timer.is_extending = true;
        assert_eq!(timer.failed(), Failed::First);
    }

    #[test]
    fn a_lock_that_is_not_auto_extended_gives_no_notice() {
        let ttl = Duration::from_secs(3);
        let off = AutoExtension::new(None);
        assert_eq!(
            (off.notice(ttl), off.every(ttl), off.has_stopped()),
            (Duration::ZERO, None, false)
        );
        let on = AutoExtension::new(Some(AutoExtend::until_released()));
        assert_eq!(on.notice(ttl), Duration::from_millis(150));
        assert_eq!((on.every(ttl), on.has_stopped()), (Some(ttl / 3), true));
    }
}
