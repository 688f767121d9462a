//! How long to wait for a lock, and what for.
//!
//! A waiter waits for a *holder*. Nodes that do not answer are another matter: somebody who mistyped
//! a port must see that at once, not stand in line for ever; but whoever has seen the holder
//! outlives the restart of a few nodes. So each verdict of an attempt is noted here, and it says
//! whether there is still somebody to wait for.
//!
//! Not here: asking, and a clock. `now` is an argument.

use std::time::Duration;

use redbolt::proto::Verdict;

/// Decides whether to go on waiting.
#[derive(Debug)]
pub(super) struct Patience {
    began: Duration,
    limit: Option<Duration>,
    seen_a_holder: bool,
    /// Since when too few nodes are voters.
    silent_since: Option<Duration>,
    told: bool,
}

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Advice {
    /// Wait.
    Wait,
    /// Wait, and tell the user that too few nodes are voters. Said once for each outage.
    Tell,
    /// Give up: somebody holds the lock.
    Contended,
    /// Give up: too few nodes are voters.
    NoQuorum,
}

impl Patience {
    /// The patience of a wait that begins at `now` and may last for `limit`.
    pub(super) fn new(limit: Option<Duration>, now: Duration) -> Self {
        let limit = limit.map(|limit| now.saturating_add(limit));
        Self { began: now, limit, seen_a_holder: false, silent_since: None, told: false }
    }

    /// Takes the verdict of an attempt that ended not long before `now`.
    pub(super) fn note(&mut self, verdict: Verdict, now: Duration) {
        match verdict {
            Verdict::Contended => {
                self.seen_a_holder = true;
                self.silent_since = None;
                self.told = false;
            }
            Verdict::NoQuorum => {
                self.silent_since.get_or_insert(now);
            }
            Verdict::Granted | Verdict::Undecided => {}
        }
    }

    /// Whether to go on.
    pub(super) fn advice(&mut self, now: Duration) -> Advice {
        if self.limit.is_some_and(|limit| now >= limit) {
            let held = self.seen_a_holder && self.silent_since.is_none();
            return if held { Advice::Contended } else { Advice::NoQuorum };
        }
        let Some(since) = self.silent_since else { return Advice::Wait };
        if now >= self.give_up_at(since) {
            return Advice::NoQuorum;
        }
        if self.seen_a_holder && !self.told && now >= since + BLINK {
            self.told = true;
            return Advice::Tell;
        }
        Advice::Wait
    }

    /// How long the advice holds if no verdict is noted.
    pub(super) fn due_in(&self, now: Duration) -> Option<Duration> {
        let silence = self.silent_since.map(|since| {
            let tell = self.seen_a_holder && !self.told;
            if tell { since + BLINK } else { self.give_up_at(since) }
        });
        let at = [self.limit, silence].into_iter().flatten().min()?;
        Some(at.saturating_sub(now))
    }

    fn give_up_at(&self, since: Duration) -> Duration {
        if self.seen_a_holder { since + OUTAGE } else { self.began + FIRST_CONTACT }
    }
}

/// How long nodes may take that have never answered: long enough for a slow connection, short
/// enough for somebody who watches.
const FIRST_CONTACT: Duration = Duration::from_secs(1);

/// How long a waiter that has seen a holder puts up with nodes that do not answer.
const OUTAGE: Duration = Duration::from_secs(10);

/// An outage shorter than this is not worth a word.
const BLINK: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_holder_is_waited_for_without_limit() {
        let mut patience = Patience::new(None, ms(0));
        assert_eq!(patience.due_in(ms(0)), None);
        for round in 0..1000 {
            patience.note(Verdict::Contended, ms(3_600_000 * round));
            assert_eq!(patience.advice(ms(3_600_000 * round)), Advice::Wait);
            assert_eq!(patience.due_in(ms(3_600_000 * round)), None);
        }
    }

    #[test]
    fn no_quorum_from_the_start_is_borne_for_a_second() {
        let mut patience = Patience::new(None, ms(500));
        patience.note(Verdict::NoQuorum, ms(510));
        assert_eq!(patience.advice(ms(1499)), Advice::Wait);
        assert_eq!(patience.due_in(ms(1499)), Some(ms(1)));
        assert_eq!(patience.advice(ms(1500)), Advice::NoQuorum);
    }

    #[test]
    fn an_outage_is_told_once_and_borne_for_a_while() {
        let mut patience = Patience::new(None, ms(0));
        for start in [10_000, 60_000] {
            patience.note(Verdict::Contended, ms(start - 100));
            patience.note(Verdict::NoQuorum, ms(start));
            patience.note(Verdict::NoQuorum, ms(start + 500));
            assert_eq!(patience.advice(ms(start + 999)), Advice::Wait);
            assert_eq!(patience.due_in(ms(start + 999)), Some(ms(1)));
            assert_eq!(patience.advice(ms(start + 1000)), Advice::Tell);
            assert_eq!(patience.advice(ms(start + 9999)), Advice::Wait);
            assert_eq!(patience.due_in(ms(start + 9999)), Some(ms(1)));
        }
        assert_eq!(patience.advice(ms(70_000)), Advice::NoQuorum);
    }

    #[test]
    fn an_attempt_without_a_verdict_changes_nothing() {
        let mut patience = Patience::new(None, ms(0));
        patience.note(Verdict::NoQuorum, ms(10));
        patience.note(Verdict::Undecided, ms(20));
        assert_eq!(patience.advice(ms(1000)), Advice::NoQuorum);
    }

    #[test]
    fn the_limit_bounds_everything() {
        let mut held = Patience::new(Some(ms(2500)), ms(0));
        held.note(Verdict::Contended, ms(10));
        assert_eq!(held.due_in(ms(500)), Some(ms(2000)));
        assert_eq!(held.advice(ms(2499)), Advice::Wait);
        assert_eq!(held.advice(ms(2500)), Advice::Contended);
        held.note(Verdict::NoQuorum, ms(2400));
        assert_eq!(held.advice(ms(2500)), Advice::NoQuorum, "the last word counts");

        let mut nobody = Patience::new(Some(ms(300)), ms(0));
        assert_eq!(nobody.advice(ms(300)), Advice::NoQuorum);
    }
}
