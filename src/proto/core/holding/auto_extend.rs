//! Automatic extension of a lock until it is released.
//!
//! Invariant: a lock that is being released is not extended, and an extension sent before is
//! followed by its undo. A loss is reported before the validity ends, so that the holder has time
//! to stop. Locks that are due at nearly the same time are extended together: one write to each
//! node.

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
    /// Schedules the next extension, counted from the start of the round that was granted.
    pub(in crate::proto::core) fn auto_extend_from_now(&mut self) {
        if let Some(every) = self.active.hold.auto_extension.every(self.lock.ttl()) {
            let early = self.env.random_below(every / AUTO_EXTEND_JITTER);
            let at = self.active.round.since() + (every - early);
            self.auto_extend_at(at.max(self.env.now.boot));
        }
    }

    /// Schedules a retry, several of which fit before the lock is lost.
    fn auto_extend_again(&mut self) {
        let (hold, now) = (&self.active.hold, self.env.now);
        if let Some(every) = hold.auto_extension.every(self.lock.ttl()) {
            let left = self.lock.lease.remaining(now).saturating_sub(hold.notice(self.lock));
            let pause = (every.min(left) / 4).max(SOONEST);
            let at = now.boot + pause / 2 + self.env.random_below(pause / 2);
            self.auto_extend_at(at);
        }
    }

    /// Schedules an earlier extension of a lock whose validity got shorter.
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
            // The claim that is being requested lasts as long as this one does now.
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

    /// Reports a failure, unless it follows a failed automatic extension that was reported.
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

/// The origin of a failed extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failed {
    /// An extension by the caller.
    Asked,
    /// An automatic extension, the first in a row that failed.
    First,
    /// An automatic extension, after a failure that was reported.
    Again,
}

impl AutoExtension {
    pub(super) const fn new(options: Option<AutoExtend>) -> Self {
        Self { options, at: Timestamp::NEVER, is_extending: false, has_failed: false }
    }

    fn every(&self, ttl: Duration) -> Option<Duration> {
        Some(self.options?.every.unwrap_or(ttl / 3))
    }

    /// Returns how long before the end of its validity a loss is reported.
    pub(super) fn notice(&self, ttl: Duration) -> Duration {
        match self.options {
            Some(_) => (ttl / 20).min(LONGEST_NOTICE),
            None => Duration::ZERO,
        }
    }

    /// Returns whether no extension is scheduled: one is in flight, or the longest hold is reached.
    pub(super) fn has_stopped(&self) -> bool {
        self.options.is_some() && self.at == Timestamp::NEVER
    }

    /// Ends the extension in flight. Returns whether it was automatic.
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
    /// Starts a common extension if one is due; locks that are due soon are extended too.
    pub(in crate::proto::core) fn begin_auto_extend(&mut self, now: Timestamp) {
        self.is_auto_extending = now >= self.auto_extend_at;
        if self.is_auto_extending {
            self.auto_extend_at = Timestamp::NEVER;
        }
    }
}

/// An extension is early at random by up to the interval divided by this.
const AUTO_EXTEND_JITTER: u32 = 8;

/// An extension is early by up to the interval divided by this to be sent with others. That is more
/// than the random part, so that locks which were extended together stay together.
const AUTO_EXTEND_SLACK: u32 = 4;

/// The shortest pause before a failed extension is retried.
const SOONEST: Duration = Duration::from_millis(1);

/// The longest time before the end of the validity at which a loss is reported.
const LONGEST_NOTICE: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_failure_in_a_row_is_reported() {
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
