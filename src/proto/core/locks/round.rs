//! The time of one round of requests: an attempt and its write-back, an extension, or a release.
//!
//! A round knows when it began, how long it waits for all nodes, and how long for the others once a
//! quorum has answered.

use std::time::Duration;

use crate::proto::time::{ClockReading, Timestamp};

#[derive(Debug)]
pub(crate) struct Round {
    since: Timestamp,
    until: Timestamp,
    /// The time at which a quorum had answered.
    quorum_at: Timestamp,
    /// The time at which the first of the other nodes has taken too long, or the lead if it is
    /// asked first.
    rest_until: Timestamp,
}

impl Round {
    pub(super) const fn new() -> Self {
        let never = Timestamp::NEVER;
        Self { since: Timestamp(0), until: never, quorum_at: never, rest_until: never }
    }

    pub(super) fn begins(&mut self, now: ClockReading) {
        self.since = now.boot;
    }

    pub(crate) fn since(&self) -> Timestamp {
        self.since
    }

    /// Starts to wait for the answers of all nodes, or for that of a lead, which is due by
    /// `lead_until`.
    pub(crate) fn asks(&mut self, lead_until: Option<Timestamp>) {
        self.quorum_at = Timestamp::NEVER;
        self.rest_until = lead_until.unwrap_or(Timestamp::NEVER);
    }

    pub(crate) fn lasts_until(&mut self, until: Timestamp) {
        self.until = until;
    }

    pub(crate) fn until(&self) -> Timestamp {
        self.until
    }

    pub(crate) fn is_over(&self, now: Timestamp) -> bool {
        now >= self.until
    }

    /// Returns when the round needs a transition.
    pub(crate) fn due(&self) -> Timestamp {
        self.until.min(self.rest_until)
    }

    /// Records that a quorum has answered. Returns when it first had.
    pub(crate) fn quorum_answered(&mut self, now: Timestamp) -> Timestamp {
        self.quorum_at = self.quorum_at.min(now);
        self.quorum_at
    }

    pub(crate) fn quorum_at(&self) -> Timestamp {
        self.quorum_at
    }

    /// Returns until when the round waits for the other nodes, or for the lead.
    pub(crate) fn rest_until(&self) -> Timestamp {
        self.rest_until
    }

    pub(crate) fn wait_for_rest(&mut self, until: Timestamp) {
        self.rest_until = until;
    }

    /// Returns how long it took a quorum to answer, or how long it has taken so far.
    pub(crate) fn took(&self, now: Timestamp) -> Duration {
        // Without the time for which the other nodes are waited for.
        now.min(self.quorum_at).since(self.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_takes_as_long_as_a_quorum() {
        let now = ClockReading { boot: Timestamp(100), wall: Timestamp(0) };
        let mut round = Round::new();
        round.begins(now);
        round.asks(Some(Timestamp(120)));
        round.lasts_until(Timestamp(500));
        assert_eq!((round.due(), round.is_over(Timestamp(499))), (Timestamp(120), false));
        round.asks(None);
        assert_eq!(round.took(Timestamp(130)), Duration::from_nanos(30));
        assert_eq!(round.quorum_answered(Timestamp(140)), Timestamp(140));
        assert_eq!(round.quorum_answered(Timestamp(150)), Timestamp(140), "the first time");
        assert_eq!(round.quorum_at(), Timestamp(140));
        round.wait_for_rest(Timestamp(600));
        assert_eq!(round.took(Timestamp(450)), Duration::from_nanos(40));
        assert_eq!((round.due(), round.is_over(Timestamp(500))), (Timestamp(500), true));
    }
}
