//! Decides how long to wait for a lock, and what to report meanwhile.
//!
//! The wait lasts until the holder releases the lock, nodes come back, or quarantines end. Only
//! `--wait` ends it early, or the library if only an operator can help. A user who mistyped a port
//! must learn that soon, so nodes that do not answer are reported after a second. [`Patience`]
//! takes the verdict of each attempt. It has no clock: `now` is an argument.

use std::time::Duration;

use redbolt::proto::Verdict;

/// Decides whether to continue waiting.
#[derive(Debug)]
pub(super) struct Patience {
    began: Duration,
    limit: Option<Duration>,
    seen_a_holder: bool,
    /// The remaining time of the quarantine that prevents a quorum.
    quarantined: Option<Duration>,
    /// The time since which too few nodes can vote.
    silent_since: Option<Duration>,
    told: bool,
    told_quarantine: bool,
}

/// What a wait should do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Advice {
    /// Continue.
    Wait,
    /// Continue, and report that too few nodes can vote. Returned once for each outage.
    Tell,
    /// Continue, and report the quarantine that prevents a quorum. Returned once for each
    /// quarantine.
    TellQuarantine {
        /// The time until a quorum can vote again.
        left: Duration,
    },
    /// Give up because another client holds the lock.
    Contended,
    /// Give up because too few nodes can vote.
    NoQuorum,
}

impl Patience {
    /// Creates the patience of a wait that begins at `now` and may last for `limit`.
    pub(super) fn new(limit: Option<Duration>, now: Duration) -> Self {
        let limit = limit.map(|limit| now.saturating_add(limit));
        Self {
            began: now,
            limit,
            seen_a_holder: false,
            quarantined: None,
            // No node has voted yet.
            silent_since: Some(now),
            told: false,
            told_quarantine: false,
        }
    }

    /// Creates the patience of a single attempt, which the library ends.
    pub(super) fn of_one_attempt(now: Duration) -> Self {
        Self { told: true, ..Self::new(None, now) }
    }

    /// Records the verdict of an attempt that ended shortly before `now`. `quarantine` is the
    /// remaining time of the quarantine that caused it.
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

    /// Records that no attempt has been decided. This is not an outage if enough nodes answer,
    /// because other clients may repeatedly be faster.
    pub(super) fn note_no_verdict(&mut self, has_quorum: bool) {
        self.silent_since = Some(self.began).filter(|_| !has_quorum);
    }

    fn answered(&mut self) {
        self.silent_since = None;
        self.told = false;
    }

    /// Returns what to do next.
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
        if self.to_tell().is_some_and(|at| now >= at) {
            self.told = true;
            return Advice::Tell;
        }
        Advice::Wait
    }

    /// Returns the end of the wait, if it has a limit.
    pub(super) fn limit(&self) -> Option<Duration> {
        self.limit
    }

    /// Returns when to look up the holder, so that the reply has arrived when the end of the wait
    /// is reported. Returns `None` if the report will not name a holder.
    pub(super) fn look_at(&self) -> Option<Duration> {
        let is_held = self.seen_a_holder && self.silent_since.is_none();
        let limit = self.limit.filter(|_| is_held)?;
        Some(limit - (limit.saturating_sub(self.began) / 4).min(LOOK_AHEAD))
    }

    /// Returns how long the advice holds if no verdict is recorded.
    pub(super) fn due_in(&self, now: Duration) -> Option<Duration> {
        let at = [self.limit, self.to_tell()].into_iter().flatten().min()?;
        Some(at.saturating_sub(now))
    }

    /// Returns when to report nodes that do not vote.
    fn to_tell(&self) -> Option<Duration> {
        self.silent_since.filter(|_| !self.told).map(|since| since + BLINK)
    }
}

/// How long before its limit a wait looks up the holder. A look takes less, unless the machine is
/// very busy.
const LOOK_AHEAD: Duration = Duration::from_secs(1);

/// The shortest outage that is reported.
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
        for round in 0..1000 {
            patience.note(Verdict::Contended, None, ms(3_600_000 * round));
            assert_eq!(patience.advice(ms(3_600_000 * round)), Advice::Wait);
            assert_eq!(patience.due_in(ms(3_600_000 * round)), None);
        }
    }

    #[test]
    fn no_quorum_from_the_start_is_told_after_a_second_and_borne() {
        let mut patience = Patience::new(None, ms(500));
        patience.note(Verdict::NoQuorum, None, ms(510));
        assert_eq!(patience.advice(ms(1_499)), Advice::Wait);
        assert_eq!(patience.due_in(ms(1_499)), Some(ms(1)));
        assert_eq!(patience.advice(ms(1_500)), Advice::Tell);
        for hours in 1..1_000 {
            patience.note(Verdict::NoQuorum, None, ms(hours * 3_600_000));
            assert_eq!(patience.advice(ms(hours * 3_600_000)), Advice::Wait);
            assert_eq!(patience.due_in(ms(hours * 3_600_000)), None);
        }
    }

    #[test]
    fn an_outage_is_told_once_and_waited_out() {
        let mut patience = Patience::new(None, ms(0));
        for start in [10_000, 600_000] {
            patience.note(Verdict::Contended, None, ms(start - 100));
            patience.note(Verdict::NoQuorum, None, ms(start));
            patience.note(Verdict::NoQuorum, None, ms(start + 500));
            assert_eq!(patience.advice(ms(start + 999)), Advice::Wait);
            assert_eq!(patience.due_in(ms(start + 999)), Some(ms(1)));
            assert_eq!(patience.advice(ms(start + 1_000)), Advice::Tell);
            assert_eq!(patience.advice(ms(start + 500_000)), Advice::Wait);
            assert_eq!(patience.due_in(ms(start + 500_000)), None);
        }
    }

    #[test]
    fn silence_from_the_start_is_told_without_a_verdict() {
        let mut patience = Patience::new(None, ms(0));
        patience.note_no_verdict(true);
        assert_eq!(patience.advice(ms(5_000)), Advice::Wait, "enough nodes are there");
        patience.note_no_verdict(false);
        assert_eq!(patience.advice(ms(999)), Advice::Wait);
        assert_eq!(patience.advice(ms(1_000)), Advice::Tell);
        patience.note(Verdict::Contended, None, ms(1_500));
        assert_eq!(patience.advice(ms(9_000)), Advice::Wait);
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
        // A node that dies meanwhile is an outage, and the wait continues like after any other.
        patience.note(Verdict::NoQuorum, None, ms(30_000));
        assert_eq!(patience.advice(ms(31_000)), Advice::Tell);
        assert_eq!(patience.advice(ms(400_000)), Advice::Wait);
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

        let mut once = Patience::of_one_attempt(ms(0));
        assert_eq!((once.advice(ms(5_000)), once.due_in(ms(5_000))), (Advice::Wait, None));

        let mut nobody = Patience::new(Some(ms(300)), ms(0));
        assert_eq!(nobody.advice(ms(300)), Advice::NoQuorum);
    }
}
