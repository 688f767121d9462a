//! The outer process's rule for ending the command when the inner process fails to.
//!
//! A state machine without I/O or a clock, as [`watchdog`](super::watchdog) is for the inner
//! process. A running inner process acts first, because it stops the command slightly earlier
//! ([`supervise`](super::supervise)).
//!
//! | what happened                            | SIGTERM | SIGKILL                                        |
//! |------------------------------------------|---------|------------------------------------------------|
//! | the inner process died                   | at once | after the grace, or when the lease ends        |
//! | the lease ends, and it has done nothing  | none    | at once, to the inner process as well          |

use std::time::Duration;

use redbolt::proto::{ClockReading, Timestamp};

use super::child::End;
use super::pair::{Held, Notice};

/// A step to take now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Ask the command to stop (SIGTERM).
    Terminate,
    /// Kill the command, and the inner process if it exists (SIGKILL).
    Kill,
}

/// Keeps the last report of the inner process, and decides when to act in its place.
#[derive(Debug)]
pub(super) enum Backstop {
    /// No command has run yet.
    Idle,
    /// A command runs under a lease.
    Watching(Held),
    /// The command has ended: how redbolt will end, and whether the lock was lost.
    Done { end: End, lost: bool },
    /// The command was asked to stop.
    Stopping { held: Held, kill_at: Timestamp },
    /// The command was killed.
    Killed,
}

impl Backstop {
    /// Records a notice of the inner process.
    pub(super) fn told(&mut self, notice: Notice) {
        match (&self, notice) {
            (Self::Stopping { .. } | Self::Killed, _) => {}
            (_, Notice::Held(held)) => *self = Self::Watching(held),
            (_, Notice::Done { end, lost }) => *self = Self::Done { end, lost },
        }
    }

    /// Records that the inner process is dead and all its notices have been read. Returns the step
    /// to take.
    pub(super) fn bereft(&mut self, now: ClockReading) -> Option<Action> {
        let &mut Self::Watching(held) = self else { return None };
        *self = Self::Stopping { held, kill_at: now.boot + held.grace };
        Some(Action::Terminate)
    }

    /// Returns the step to take at `now`.
    pub(super) fn act(&mut self, now: ClockReading) -> Option<Action> {
        let is_due = self.due_in(now).is_some_and(|left| left.is_zero());
        is_due.then(|| {
            *self = Self::Killed;
            Action::Kill
        })
    }

    /// Returns how long nothing needs to be done unless a notice arrives.
    pub(super) fn due_in(&self, now: ClockReading) -> Option<Duration> {
        match self {
            Self::Watching(held) => Some(held.remaining(now)),
            Self::Stopping { held, kill_at } => {
                Some(held.remaining(now).min(kill_at.since(now.boot)))
            }
            Self::Idle | Self::Done { .. } | Self::Killed => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(boot: u64, wall: u64) -> ClockReading {
        ClockReading { boot: s(boot), wall: s(wall) }
    }

    fn s(seconds: u64) -> Timestamp {
        Timestamp(seconds * 1_000_000_000)
    }

    fn held(boot: u64, wall: u64) -> Notice {
        Notice::Held(Held { until: at(boot, wall), grace: Duration::from_secs(3) })
    }

    #[test]
    fn a_lease_that_is_extended_is_left_alone() {
        let mut backstop = Backstop::Idle;
        assert_eq!(backstop.due_in(at(0, 1000)), None);
        for since in [0, 6, 12] {
            backstop.told(held(since + 9, 1009 + since));
            assert_eq!(backstop.due_in(at(since, 1000 + since)), Some(Duration::from_secs(9)));
            assert_eq!(backstop.act(at(since + 8, 1008 + since)), None);
        }
        backstop.told(Notice::Done { end: End::Exited(3), lost: false });
        assert_eq!(backstop.act(at(100, 2000)), None);
        assert_eq!(backstop.due_in(at(100, 2000)), None);
        assert_eq!(backstop.bereft(at(100, 2000)), None);
    }

    #[test]
    fn one_that_is_not_extended_ends_the_command_with_it() {
        let mut backstop = Backstop::Idle;
        backstop.told(held(9, 1009));
        assert_eq!(backstop.act(at(9, 1009)), Some(Action::Kill));
        assert_eq!(backstop.act(at(10, 1010)), None, "once");
        backstop.told(held(18, 1018));
        assert_eq!(backstop.due_in(at(10, 1010)), None, "what comes too late changes nothing");
    }

    #[test]
    fn a_step_of_the_wall_clock_ends_it_too() {
        let mut backstop = Backstop::Idle;
        backstop.told(held(9, 1009));
        assert_eq!(backstop.act(at(1, 1001)), None);
        assert_eq!(backstop.act(at(1, 5000)), Some(Action::Kill));
    }

    #[test]
    fn without_the_inner_process_the_command_gets_its_grace_and_no_more() {
        let mut backstop = Backstop::Idle;
        backstop.told(held(9, 1009));
        assert_eq!(backstop.bereft(at(2, 1002)), Some(Action::Terminate));
        assert_eq!(backstop.bereft(at(2, 1002)), None, "once");
        assert_eq!(backstop.due_in(at(2, 1002)), Some(Duration::from_secs(3)));
        assert_eq!(backstop.act(at(4, 1004)), None);
        assert_eq!(backstop.act(at(5, 1005)), Some(Action::Kill));
    }

    #[test]
    fn the_grace_does_not_outlast_the_lease() {
        let mut backstop = Backstop::Idle;
        backstop.told(held(9, 1009));
        assert_eq!(backstop.bereft(at(8, 1008)), Some(Action::Terminate));
        assert_eq!(backstop.act(at(9, 1009)), Some(Action::Kill));
    }
}
