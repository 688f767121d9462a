//! The rule that the command never outlives the lease.
//!
//! The rule is a state machine without I/O or a clock, so that it can be tested in virtual time.
//! Its inputs are `now` and `remaining` (the validity left); its output is an [`Action`].
//!
//! | what happened                      | SIGTERM                          | SIGKILL                |
//! |------------------------------------|----------------------------------|------------------------|
//! | known lost (taken, or deleted)     | at once                          | `kill_after` later     |
//! | no extension succeeds              | when `remaining` ≤ `kill_after`  | when `remaining` is 0  |
//! | expired while suspended            | none                             | at once                |
//! | the command is stopped (Ctrl-Z)    | when `remaining` ≤ `kill_after`  | when `remaining` is 0  |
//! | the outer process was killed       | at once                          | `kill_after` later, or |
//! |                                    |                                  | when `remaining` is 0  |

use std::fmt;
use std::time::Duration;

/// The times chosen with the request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) ttl: Duration,
    pub(super) kill_after: Duration,
    pub(super) extend: bool,
}

/// A step to take now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Extend the lease by another TTL.
    Extend,
    /// Ask the command to stop (SIGTERM).
    Terminate,
    /// Kill the command (SIGKILL).
    Kill,
}

/// The reason for stopping the command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// The nodes reported the loss, with this reason.
    Known(String),
    /// No extension succeeded in time. The reason is that of the last failure, if one was reported.
    NotExtended(Option<String>),
    /// The TTL has ended, and `--no-extend` was given.
    UsedUp,
    /// The lease ended before redbolt could act: it was suspended, or a clock jumped.
    Overslept,
    /// The outer process was killed.
    Abandoned,
    /// The command was stopped, for example by Ctrl-Z, so the lease was not extended.
    Suspended,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Known(reason) => return write!(f, "the lock is lost: {reason}"),
            Self::NotExtended(Some(reason)) => {
                return write!(f, "the lock cannot be extended: {reason}");
            }
            Self::NotExtended(None) => "the lock was not extended in time",
            Self::UsedUp => "the TTL is used up (--no-extend)",
            Self::Overslept => "the lock ran out while redbolt did not run",
            Self::Abandoned => "redbolt's outer process was killed",
            Self::Suspended => "the lock ran out while the command was stopped",
        })
    }
}

/// Decides when to extend the lease and when the command must stop.
#[derive(Debug)]
pub(super) struct Watchdog {
    terms: Terms,
    state: State,
    refusal: Option<String>,
    is_suspended: bool,
}

#[derive(Debug)]
enum State {
    Extending { extend_at: Duration, asked_at: Option<Duration> },
    Terminated { loss: Loss, kill_at: Duration },
    Killed { loss: Loss },
}

impl Watchdog {
    /// Creates a watchdog for a lease with `remaining` left at `now`. This is less than requested
    /// if the grant was slow.
    pub(super) fn new(terms: Terms, now: Duration, remaining: Duration) -> Self {
        let used = terms.ttl.saturating_sub(remaining);
        let extend_at = now + (terms.ttl / EXTEND_PART).saturating_sub(used);
        let state = State::Extending { extend_at, asked_at: None };
        Self { terms, state, refusal: None, is_suspended: false }
    }

    /// Records a successful extension.
    pub(super) fn extended(&mut self) {
        self.refusal = None;
        self.answered(EXTEND_PART);
    }

    /// Records a failed extension.
    pub(super) fn not_extended(&mut self, reason: String) {
        self.refusal = Some(reason);
        self.answered(RETRY_PART);
    }

    /// Records whether the command is stopped, for example by Ctrl-Z. The lease is not extended for
    /// a command that may never continue.
    pub(super) fn suspend(&mut self, is_suspended: bool) {
        self.is_suspended = is_suspended;
    }

    /// Schedules an extension at once after the lease got shorter, unless one is in flight.
    pub(super) fn shortened(&mut self) {
        if let State::Extending { extend_at, .. } = &mut self.state {
            *extend_at = Duration::ZERO;
        }
    }

    /// Records that the lock is lost.
    #[must_use = "the command must be told to stop"]
    pub(super) fn lost(&mut self, reason: String, now: Duration) -> Option<Action> {
        let State::Extending { .. } = self.state else { return None };
        Some(self.terminate(Loss::Known(reason), now + self.terms.kill_after))
    }

    /// Records that the outer process has ended. If this one failed too, no process would end the
    /// command.
    #[must_use = "the command must be told to stop"]
    pub(super) fn abandoned(&mut self, now: Duration) -> Option<Action> {
        let State::Extending { .. } = self.state else { return None };
        Some(self.terminate(Loss::Abandoned, now + self.terms.kill_after))
    }

    /// Returns the step to take at `now`, with `remaining` of the lease left.
    pub(super) fn act(&mut self, now: Duration, remaining: Duration) -> Option<Action> {
        match &mut self.state {
            State::Extending { .. } if remaining.is_zero() => {
                let is_late = !self.terms.kill_after.is_zero() && !self.is_suspended;
                let loss = if is_late { Loss::Overslept } else { self.shortage() };
                Some(self.kill(loss))
            }
            State::Extending { .. } if remaining <= self.terms.kill_after => {
                let loss = self.shortage();
                Some(self.terminate(loss, now + remaining))
            }
            State::Extending { extend_at, asked_at } => {
                let may_extend = self.terms.extend && !self.is_suspended;
                let due = may_extend && asked_at.is_none() && now >= *extend_at;
                due.then(|| {
                    *asked_at = Some(now);
                    Action::Extend
                })
            }
            State::Terminated { loss, kill_at } => {
                let over = remaining.is_zero() && !matches!(loss, Loss::Known(_));
                let loss = (over || now >= *kill_at).then(|| loss.clone());
                loss.map(|loss| self.kill(loss))
            }
            State::Killed { .. } => None,
        }
    }

    /// Returns how long nothing needs to be done unless an event arrives.
    pub(super) fn idle(&self, now: Duration, remaining: Duration) -> Option<Duration> {
        match &self.state {
            State::Extending { extend_at, asked_at } => {
                let stop = remaining.saturating_sub(self.terms.kill_after);
                let may_extend = self.terms.extend && !self.is_suspended;
                let extend =
                    (may_extend && asked_at.is_none()).then(|| extend_at.saturating_sub(now));
                Some(extend.map_or(stop, |extend| extend.min(stop)))
            }
            State::Terminated { loss: Loss::Known(_), kill_at } => {
                Some(kill_at.saturating_sub(now))
            }
            State::Terminated { kill_at, .. } => Some(kill_at.saturating_sub(now).min(remaining)),
            State::Killed { .. } => None,
        }
    }

    /// Returns why the command had to be stopped, or `None` before that.
    pub(super) fn loss(&self) -> Option<&Loss> {
        match &self.state {
            State::Extending { .. } => None,
            State::Terminated { loss, .. } | State::Killed { loss } => Some(loss),
        }
    }

    fn answered(&mut self, part: u32) {
        if let State::Extending { extend_at, asked_at } = &mut self.state
            && let Some(asked) = asked_at.take()
        {
            *extend_at = asked + self.terms.ttl / part;
        }
    }

    fn shortage(&mut self) -> Loss {
        match self.terms.extend {
            true if self.is_suspended => Loss::Suspended,
            true => Loss::NotExtended(self.refusal.take()),
            false => Loss::UsedUp,
        }
    }

    fn terminate(&mut self, loss: Loss, kill_at: Duration) -> Action {
        self.state = State::Terminated { loss, kill_at };
        Action::Terminate
    }

    fn kill(&mut self, loss: Loss) -> Action {
        self.state = State::Killed { loss };
        Action::Kill
    }
}

/// The part of its TTL after which a lease is extended: two tries are left before the end.
const EXTEND_PART: u32 = 3;

/// The part of the TTL after which a failed extension is retried.
const RETRY_PART: u32 = 9;

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms =
        Terms { ttl: Duration::from_secs(9), kill_after: Duration::from_secs(2), extend: true };

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_lease_is_extended_at_each_third() {
        let mut watchdog = Watchdog::new(TERMS, s(100), s(9));
        assert_eq!(watchdog.act(s(102), s(7)), None);
        assert_eq!(watchdog.idle(s(102), s(7)), Some(s(1)));
        assert_eq!(watchdog.act(s(103), s(6)), Some(Action::Extend));
        assert_eq!(watchdog.act(s(104), s(5)), None, "one extension at a time");
        assert_eq!(watchdog.idle(s(104), s(5)), Some(s(3)), "until the command must stop");
        watchdog.extended();
        assert_eq!(watchdog.act(s(105), s(7)), None, "the next third counts from the question");
        assert_eq!(watchdog.act(s(106), s(6)), Some(Action::Extend));
        assert_eq!(watchdog.loss(), None);
    }

    #[test]
    fn a_lease_that_was_granted_late_is_extended_early() {
        let mut watchdog = Watchdog::new(TERMS, s(2), s(7));
        assert_eq!(watchdog.idle(s(2), s(7)), Some(s(1)));
        assert_eq!(watchdog.act(s(3), s(6)), Some(Action::Extend));

        let mut watchdog = Watchdog::new(TERMS, s(6), s(3));
        assert_eq!(watchdog.act(s(6), s(3)), Some(Action::Extend), "at once");
        watchdog.extended();
        assert_eq!(watchdog.act(s(7), s(8)), None);
        assert_eq!(watchdog.loss(), None);
    }

    #[test]
    fn a_refused_extension_is_tried_again_until_time_is_up() {
        let mut watchdog = Watchdog::new(TERMS, s(0), s(9));
        for at in 3..7 {
            assert_eq!(watchdog.act(s(at), s(9 - at)), Some(Action::Extend), "at {at}");
            watchdog.not_extended(format!("refused at {at}"));
        }
        assert_eq!(watchdog.act(s(7), s(2)), Some(Action::Terminate));
        assert_eq!(watchdog.loss(), Some(&Loss::NotExtended(Some("refused at 6".to_owned()))));
        assert_eq!(watchdog.act(s(8), s(1)), None);
        assert_eq!(watchdog.idle(s(8), s(1)), Some(s(1)));
        assert_eq!(watchdog.act(s(9), s(0)), Some(Action::Kill));
        assert_eq!(watchdog.act(s(10), s(0)), None, "once");
    }

    #[test]
    fn an_answer_that_never_comes_stops_the_command_as_well() {
        let mut watchdog = Watchdog::new(TERMS, s(0), s(9));
        assert_eq!(watchdog.act(s(3), s(6)), Some(Action::Extend));
        assert_eq!(watchdog.act(s(7), s(2)), Some(Action::Terminate));
        assert_eq!(watchdog.loss(), Some(&Loss::NotExtended(None)));
    }

    #[test]
    fn a_lease_that_got_shorter_is_extended_at_once() {
        let mut watchdog = Watchdog::new(TERMS, s(0), s(9));
        watchdog.shortened();
        assert_eq!(watchdog.idle(s(1), s(5)), Some(s(0)));
        assert_eq!(watchdog.act(s(1), s(5)), Some(Action::Extend));
        watchdog.shortened();
        assert_eq!(watchdog.act(s(1), s(5)), None, "one extension at a time");
        watchdog.not_extended("refused".to_owned());
        assert_eq!(watchdog.act(s(1), s(5)), None, "after the usual pause");
        assert_eq!(watchdog.act(s(2), s(4)), Some(Action::Extend));

        let mut watchdog = Watchdog::new(Terms { extend: false, ..TERMS }, s(0), s(9));
        watchdog.shortened();
        assert_eq!((watchdog.act(s(1), s(5)), watchdog.idle(s(1), s(5))), (None, Some(s(3))));
    }

    #[test]
    fn a_success_forgets_the_refusal_before_it() {
        let mut watchdog = Watchdog::new(TERMS, s(0), s(9));
        assert_eq!(watchdog.act(s(3), s(6)), Some(Action::Extend));
        watchdog.not_extended("refused".to_owned());
        assert_eq!(watchdog.act(s(4), s(5)), Some(Action::Extend));
        watchdog.extended();
        assert_eq!(watchdog.act(s(11), s(2)), Some(Action::Terminate));
        assert_eq!(watchdog.loss(), Some(&Loss::NotExtended(None)));
    }

    #[test]
    fn a_late_success_does_not_revive_a_command_that_was_told_to_stop() {
        let mut watchdog = Watchdog::new(TERMS, s(0), s(9));
        assert_eq!(watchdog.act(s(3), s(6)), Some(Action::Extend));
        assert_eq!(watchdog.act(s(7), s(2)), Some(Action::Terminate));
        watchdog.extended();
        assert_eq!(watchdog.act(s(8), s(7)), None);
        assert_eq!(watchdog.act(s(9), s(6)), Some(Action::Kill), "the promised grace, no more");
    }

    #[test]
    fn a_known_loss_terminates_at_once_and_kills_after_the_grace() {
        let mut watchdog = Watchdog::new(TERMS, s(0), s(9));
        assert_eq!(watchdog.lost("taken".to_owned(), s(4)), Some(Action::Terminate));
        assert_eq!(watchdog.lost("taken".to_owned(), s(4)), None);
        assert_eq!(watchdog.act(s(5), s(0)), None, "a lost lease has no time left to go by");
        assert_eq!(watchdog.idle(s(5), s(0)), Some(s(1)));
        assert_eq!(watchdog.act(s(6), s(0)), Some(Action::Kill));
        assert_eq!(watchdog.loss(), Some(&Loss::Known("taken".to_owned())));
    }

    #[test]
    fn without_the_outer_process_the_command_gets_its_grace_and_no_more_than_the_lease() {
        let mut watchdog = Watchdog::new(TERMS, s(0), s(9));
        assert_eq!(watchdog.abandoned(s(1)), Some(Action::Terminate));
        assert_eq!(watchdog.abandoned(s(1)), None);
        assert_eq!(watchdog.idle(s(1), s(8)), Some(s(2)));
        assert_eq!(watchdog.act(s(3), s(6)), Some(Action::Kill));
        assert_eq!(watchdog.loss(), Some(&Loss::Abandoned));

        let mut watchdog = Watchdog::new(TERMS, s(0), s(9));
        assert_eq!(watchdog.abandoned(s(6)), Some(Action::Terminate));
        assert_eq!(watchdog.act(s(7), s(0)), Some(Action::Kill), "a clock jumped");
    }

    #[test]
    fn a_sleeper_that_wakes_too_late_kills_at_once() {
        let mut watchdog = Watchdog::new(TERMS, s(0), s(9));
        assert_eq!(watchdog.act(s(3600), s(0)), Some(Action::Kill));
        assert_eq!(watchdog.loss(), Some(&Loss::Overslept));

        let mut watchdog = Watchdog::new(TERMS, s(0), s(9));
        assert_eq!(watchdog.act(s(7), s(2)), Some(Action::Terminate));
        assert_eq!(watchdog.act(s(8), s(0)), Some(Action::Kill), "a clock that jumped counts");
    }

    #[test]
    fn a_lease_is_not_extended_while_the_command_is_stopped() {
        let mut watchdog = Watchdog::new(TERMS, s(0), s(9));
        watchdog.suspend(true);
        assert_eq!((watchdog.act(s(4), s(5)), watchdog.idle(s(4), s(5))), (None, Some(s(3))));
        watchdog.suspend(false);
        assert_eq!(watchdog.act(s(5), s(4)), Some(Action::Extend), "at once when it goes on");
        watchdog.extended();
        watchdog.suspend(true);
        assert_eq!(watchdog.act(s(12), s(2)), Some(Action::Terminate));
        assert_eq!(watchdog.act(s(14), s(0)), Some(Action::Kill));
        assert_eq!(watchdog.loss(), Some(&Loss::Suspended));
    }

    #[test]
    fn without_extending_the_command_has_one_ttl() {
        let mut watchdog = Watchdog::new(Terms { extend: false, ..TERMS }, s(0), s(9));
        assert_eq!(watchdog.idle(s(0), s(9)), Some(s(7)));
        assert_eq!(watchdog.act(s(6), s(3)), None);
        assert_eq!(watchdog.act(s(7), s(2)), Some(Action::Terminate));
        assert_eq!(watchdog.loss(), Some(&Loss::UsedUp));
        assert_eq!(watchdog.act(s(9), s(0)), Some(Action::Kill));
    }

    #[test]
    fn no_grace_means_the_whole_lease_and_then_a_kill() {
        let mut watchdog = Watchdog::new(Terms { kill_after: Duration::ZERO, ..TERMS }, s(0), s(9));
        assert_eq!(watchdog.act(s(3), s(6)), Some(Action::Extend));
        assert_eq!(watchdog.act(s(8), s(1)), None);
        assert_eq!(watchdog.act(s(9), s(0)), Some(Action::Kill));
        assert_eq!(watchdog.loss(), Some(&Loss::NotExtended(None)));
    }
}
