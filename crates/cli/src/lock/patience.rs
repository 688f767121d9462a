//! How long to wait for a lock, and what for.
//!
//! A waiter waits for a *holder*. Nodes that do not answer are another matter: somebody who mistyped
//! a port must see that at once, not stand in line for ever; but whoever has seen the holder
//! outlives the restart of a few nodes. A quarantine has an end that is known, and is waited for like
//! a holder. So each verdict of an attempt is noted here, and it says
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
    /// How long the quarantine lasts that stands in the way.
    quarantined: Option<Duration>,
    /// Whether nodes have said that there will be an end: a holder's, or a quarantine's.
    in_line: bool,
    /// Since when too few nodes are voters.
    silent_since: Option<Duration>,
    told: bool,
    told_quarantine: bool,
}

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Advice {
    /// Wait.
    Wait,
    /// Wait, and tell the user that too few nodes are voters. Said once for each outage.
    Tell,
    /// Wait, and tell the user of the quarantine that stands in the way. Said once for each.
    TellQuarantine {
        /// When a quorum can vote again.
        left: Duration,
    },
    /// Give up: somebody holds the lock.
    Contended,
    /// Give up: too few nodes are voters.
    NoQuorum,
}

impl Patience {
    /// The patience of a wait that begins at `now` and may last for `limit`.
    pub(super) fn new(limit: Option<Duration>, now: Duration) -> Self {
        let limit = limit.map(|limit| now.saturating_add(limit));
        Self {
            began: now,
            limit,
            seen_a_holder: false,
            quarantined: None,
            in_line: false,
            silent_since: None,
            told: false,
            told_quarantine: false,
        }
    }

    /// Takes the verdict of an attempt that ended not long before `now`, and how long the quarantine
    /// lasts that it is due to, if it is.
    pub(super) fn note(&mut self, verdict: Verdict, quarantine: Option<Duration>, now: Duration) {
        match (verdict, quarantine) {
            (Verdict::Contended, _) => {
                self.seen_a_holder = true;
                self.quarantined = None;
                self.told_quarantine = false;
                self.answered();
            }
            (Verdict::NoQuorum, Some(left)) => {
                self.quarantined = Some(left);
                self.answered();
            }
            (Verdict::NoQuorum, None) => {
                self.quarantined = None;
                self.silent_since.get_or_insert(now);
            }
            (Verdict::Granted | Verdict::Undecided, _) => {}
        }
    }

    fn answered(&mut self) {
        self.in_line = true;
        self.silent_since = None;
        self.told = false;
    }

    /// Whether to go on.
    pub(super) fn advice(&mut self, now: Duration) -> Advice {
        if self.limit.is_some_and(|limit| now >= limit) {
            let can_vote = self.silent_since.is_none() && self.quarantined.is_none();
            let held = self.seen_a_holder && can_vote;
            return if held { Advice::Contended } else { Advice::NoQuorum };
        }
        if let Some(left) = self.quarantined
            && !std::mem::replace(&mut self.told_quarantine, true)
        {
            return Advice::TellQuarantine { left };
        }
        let Some(since) = self.silent_since else { return Advice::Wait };
        if now >= self.give_up_at(since) {
            return Advice::NoQuorum;
        }
        if self.in_line && !self.told && now >= since + BLINK {
            self.told = true;
            return Advice::Tell;
        }
        Advice::Wait
    }

    /// How long the advice holds if no verdict is noted.
    pub(super) fn due_in(&self, now: Duration) -> Option<Duration> {
        let silence = self.silent_since.map(|since| {
            let tell = self.in_line && !self.told;
            if tell { since + BLINK } else { self.give_up_at(since) }
        });
        let at = [self.limit, silence].into_iter().flatten().min()?;
        Some(at.saturating_sub(now))
    }

    fn give_up_at(&self, since: Duration) -> Duration {
        if self.in_line { since + OUTAGE } else { self.began + FIRST_CONTACT }
    }
}

/// How long nodes may take that have never answered: long enough for a slow connection, short
/// enough for somebody who watches.
const FIRST_CONTACT: Duration = Duration::from_secs(1);

/// How long a waiter that has seen a holder, or a quarantine, puts up with nodes that do not answer.
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
            patience.note(Verdict::Contended, None, ms(3_600_000 * round));
            assert_eq!(patience.advice(ms(3_600_000 * round)), Advice::Wait);
            assert_eq!(patience.due_in(ms(3_600_000 * round)), None);
        }
    }

    #[test]
    fn no_quorum_from_the_start_is_borne_for_a_second() {
        let mut patience = Patience::new(None, ms(500));
        patience.note(Verdict::NoQuorum, None, ms(510));
        assert_eq!(patience.advice(ms(1499)), Advice::Wait);
        assert_eq!(patience.due_in(ms(1499)), Some(ms(1)));
        assert_eq!(patience.advice(ms(1500)), Advice::NoQuorum);
    }

    #[test]
    fn an_outage_is_told_once_and_borne_for_a_while() {
        let mut patience = Patience::new(None, ms(0));
        for start in [10_000, 60_000] {
            patience.note(Verdict::Contended, None, ms(start - 100));
            patience.note(Verdict::NoQuorum, None, ms(start));
            patience.note(Verdict::NoQuorum, None, ms(start + 500));
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
        patience.note(Verdict::NoQuorum, None, ms(10));
        patience.note(Verdict::Undecided, None, ms(20));
        assert_eq!(patience.advice(ms(1000)), Advice::NoQuorum);
    }

    #[test]
    fn a_quarantine_is_told_once_and_waited_for() {
        let mut patience = Patience::new(None, ms(0));
        for at in (10..30_000).step_by(200) {
            let left = ms(30_000 - at);
            patience.note(Verdict::NoQuorum, Some(left), ms(at));
            let told = if at == 10 { Advice::TellQuarantine { left } } else { Advice::Wait };
            assert_eq!(patience.advice(ms(at)), told);
        }
        // A node that dies meanwhile is an outage, borne like any other.
        patience.note(Verdict::NoQuorum, None, ms(30_000));
        assert_eq!(patience.advice(ms(31_000)), Advice::Tell);
        assert_eq!(patience.advice(ms(40_000)), Advice::NoQuorum);
    }

    #[test]
    fn a_quarantine_that_outlasts_the_limit_is_no_holder() {
        let mut patience = Patience::new(Some(ms(500)), ms(0));
        patience.note(Verdict::Contended, None, ms(10));
        patience.note(Verdict::NoQuorum, Some(ms(9_000)), ms(100));
        assert_eq!(patience.advice(ms(100)), Advice::TellQuarantine { left: ms(9_000) });
        assert_eq!(patience.advice(ms(500)), Advice::NoQuorum);
    }

    #[test]
    fn the_limit_bounds_everything() {
        let mut held = Patience::new(Some(ms(2500)), ms(0));
        held.note(Verdict::Contended, None, ms(10));
        assert_eq!(held.due_in(ms(500)), Some(ms(2000)));
        assert_eq!(held.advice(ms(2499)), Advice::Wait);
        assert_eq!(held.advice(ms(2500)), Advice::Contended);
        held.note(Verdict::NoQuorum, None, ms(2400));
        assert_eq!(held.advice(ms(2500)), Advice::NoQuorum, "the last word counts");

        let mut nobody = Patience::new(Some(ms(300)), ms(0));
        assert_eq!(nobody.advice(ms(300)), Advice::NoQuorum);
    }
}
