//! The timer of one lock that is auto-extended: when the next extension is due, whether the one under way came of it, and
//! which failures are reported.
//!
//! Apart from `auto_extend`, which sends the extension, so that one lock's timer can be read by itself.

use std::time::Duration;

use crate::proto::request::AutoExtend;
use crate::proto::time::Timestamp;

/// One lock's timer; of a lock that is not auto-extended it is off.
#[derive(Debug)]
pub(crate) struct AutoExtension {
    options: Option<AutoExtend>,
    /// When the next extension is due; never, if the lock has been held for long enough.
    at: Timestamp,
    /// The extension that is under way came of it.
    is_extending: bool,
    /// The last extension failed, which was reported.
    has_failed: bool,
}

/// Whose an extension was that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
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

    pub(super) fn options(&self) -> Option<AutoExtend> {
        self.options
    }

    pub(super) fn is_on(&self) -> bool {
        self.options.is_some()
    }

    /// How often a lock with this TTL is extended.
    pub(super) fn every(&self, ttl: Duration) -> Option<Duration> {
        Some(self.options?.every.unwrap_or(ttl / 3))
    }

    /// How long the lock may be held, by its request.
    pub(super) fn max_hold(&self) -> Option<Duration> {
        self.options?.max_hold
    }

    /// How long before the end of its validity the loss of a lock with this TTL is reported.
    pub(super) fn notice(&self, ttl: Duration) -> Duration {
        match self.options {
            Some(_) => (ttl / 20).min(LONGEST_NOTICE),
            None => Duration::ZERO,
        }
    }

    /// When the next extension is due.
    pub(super) fn at(&self) -> Timestamp {
        self.at
    }

    pub(super) fn schedule_at(&mut self, at: Timestamp) {
        self.at = at;
    }

    /// Its time has come: the next one is due when this one is over, if it begins.
    pub(super) fn take_up(&mut self) {
        self.at = Timestamp::NEVER;
    }

    /// Whether it waits for no moment: an extension is under way, or the lock has been held for long enough.
    pub(super) fn has_stopped(&self) -> bool {
        self.options.is_some() && self.at == Timestamp::NEVER
    }

    /// An extension begins that somebody asked for, or one that came of it.
    pub(super) fn extension_begins(&mut self, by_itself: bool) {
        self.is_extending = by_itself;
    }

    /// Whether the extension under way came of it.
    pub(super) fn is_extending(&self) -> bool {
        self.is_extending
    }

    /// The extension under way succeeded. Whether it came of this.
    pub(super) fn succeeded(&mut self) -> bool {
        self.has_failed = false;
        std::mem::take(&mut self.is_extending)
    }

    /// Whether it has failed since it last succeeded.
    pub(super) fn is_failing(&self) -> bool {
        self.has_failed
    }

    pub(super) fn failed(&mut self) -> Failed {
        if !std::mem::take(&mut self.is_extending) {
            Failed::Asked
        } else if std::mem::replace(&mut self.has_failed, true) {
            Failed::Again
        } else {
            Failed::First
        }
    }
}

/// A loss is not reported earlier than this before the validity is over.
const LONGEST_NOTICE: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_failures_in_a_row_the_first_is_told() {
        let mut timer = AutoExtension::new(Some(AutoExtend::until_released()));
        let mut fail = |by_itself| {
            timer.extension_begins(by_itself);
            timer.failed()
        };
        assert_eq!((fail(true), fail(true)), (Failed::First, Failed::Again));
        assert_eq!((fail(false), fail(true)), (Failed::Asked, Failed::Again));
        timer.extension_begins(true);
        assert!(timer.succeeded() && !timer.succeeded());
        timer.extension_begins(true);
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
