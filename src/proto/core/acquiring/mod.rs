//! From a request to a grant or a refusal: attempts, and their verdicts.
//!
//! Apart from `waiting`, which decides when a lock may ask: here is one attempt at a time. Not here: what counts as a
//! grant or a denial, see `proto::vote`; what a node may hold for an attempt that failed, see `claims`.

mod asking;
mod patience;
mod voting;

use std::time::Duration;

use super::Core;
use super::claims::Claim;
use super::effects::Decision;
use crate::proto::core::links::Link;
use crate::proto::core::locks::Phase;
use crate::proto::core::permits::Agreed;
use crate::proto::event::{Refusal, RefusalReason};
use crate::proto::lease::Lease;
use crate::proto::mutants::mutant;
use crate::proto::names::{LockId, NodeId, NodeSet};
use crate::proto::request::LockMode;
use crate::proto::time::ClockReading;
use crate::proto::vote::{Cause, Verdict, Vote, Votes};

/// One lock's present attempt, and what the last one came to.
#[derive(Debug)]
pub(super) struct Attempt {
    /// The votes of the last attempt that came to a verdict.
    decided: Option<Votes>,
    /// The node that is asked before all others; once it has granted there is none.
    lead: Option<NodeId>,
    /// The nodes at which an earlier attempt left an ask open, of those that were suspected then.
    open: NodeSet,
}

impl Attempt {
    /// Of a lock that was not asked for yet.
    pub(super) const fn new() -> Self {
        Self { decided: None, lead: None, open: NodeSet::EMPTY }
    }

    /// The votes of the last attempt that came to a verdict.
    pub(super) fn decided(&self) -> Option<Votes> {
        self.decided
    }

    /// Whether one node is asked before all others.
    pub(super) fn is_led(&self) -> bool {
        self.lead.is_some()
    }

    /// It is over. Whether one node was asked before all others.
    pub(super) fn was_led(&mut self) -> bool {
        self.lead.take().is_some()
    }
}

impl Core {
    /// Begins a round of asks under a new token, to all nodes or to one of them first. Returns whether the lock waits.
    pub(super) fn begin_attempt(
        &mut self,
        id: LockId,
        lead: Option<NodeId>,
        now: ClockReading,
    ) -> bool {
        self.metrics.attempts += 1;
        self.metrics.lead_asks += u64::from(lead.is_some());
        let votes = self.ballot();
        let mut random = self.entropy.bytes::<16>();
        // A token begins with a letter: some libraries take a string of digits for a time that is over.
        random[0] |= 0xa0;
        let open = self.open_asks(id);
        let Some(active) = self.locks.active(id) else { return false };
        let (waits, fenced, holder) =
            (active.waits(), active.fencing.is_wanted(), active.mode_change.holder());
        let proposal = fenced.then(|| self.proposal(now));
        let holder = holder.and_then(|holder| self.locks.find(holder));
        let first = holder.and_then(|holder| self.claims.find(holder.claim())).map(Claim::random);
        let (claim_id, claim) = self.claims.occupy();
        let (lock, active) =
            self.locks.at_work_mut(id).expect("only a living lock makes an attempt");
        claim.begin(id, &active.keys, lock.mode(), proposal, lock.ttl_ms(), random);
        active.foreign().into_iter().for_each(|kind| claim.is_of(kind));
        first.into_iter().for_each(|first| claim.is_second(first));
        lock.begin_round(active, Phase::Asking, now, votes);
        active.fencing.attempt_begins(self.ahead_us);
        active.permit.attempt_begins();
        lock.asks_for(claim_id);
        active.attempt.lead = lead;
        active.attempt.open = open;
        lock.lease = Lease::new(now, lock.ttl(), self.config.drift);
        waits
    }

    /// The lead has voted: the others are asked if it granted, under the same token, and with the validity counted from the
    /// lead's ask. They are also asked if it refused our clock, since that says nothing of the lock.
    fn led(&mut self, id: LockId, lead: NodeId, now: ClockReading) -> Decision {
        let Some(active) = self.locks.active_mut(id) else { return Decision::Continue };
        let reason = match active.votes.of(lead) {
            None => return Decision::Continue,
            Some(vote @ (Vote::Grant | Vote::Fail(Cause::ClockSkew))) => {
                active.attempt.lead = None;
                self.metrics.lead_grants += u64::from(vote == Vote::Grant);
                return Decision::AskMore(self.nodes.all().without(lead.into()));
            }
            Some(Vote::Deny) => RefusalReason::Contended,
            Some(Vote::Fail(_)) => RefusalReason::NoQuorum,
        };
        self.attempt_failed(id, reason, now)
    }

    /// What the votes of an attempt have come to.
    pub(super) fn decide(&mut self, id: LockId, now: ClockReading) -> Decision {
        let Some((lock, active)) = self.locks.at_work_mut(id) else { return Decision::Continue };
        match lock.phase {
            Phase::Asking => {}
            Phase::Fencing => return self.decide_write_back(id, now),
            _ => return Decision::Continue,
        }
        if let Some(lead) = active.attempt.lead {
            return self.led(id, lead, now);
        }
        if mutant!(AllNodesAwaited) && !active.votes.missing().is_empty() {
            return Decision::Continue;
        }
        if mutant!(LeaseFromAnswer) {
            lock.lease = Lease::new(now, lock.ttl(), self.config.drift);
        }
        if mutant!(ReadFromOne) {
            let is_read = lock.mode() == LockMode::Shared;
            if is_read && !active.votes.grants().is_empty() {
                return self.quorum_granted(id, now);
            }
        }
        active.votes.suspect(self.suspected);
        let verdict = active.votes.verdict();
        if active.waits() && matches!(verdict, Verdict::Granted | Verdict::Contended) {
            let took = active.round.took(now.boot);
            self.round_trip = round_trip(self.round_trip, took);
        }
        match verdict {
            Verdict::Undecided if active.votes.has_quorum() => self.wait_for_the_rest(id, now),
            Verdict::Undecided => Decision::Continue,
            Verdict::Granted if lock.lease.remaining(now).is_zero() => {
                self.attempt_failed(id, RefusalReason::Expired, now)
            }
            Verdict::Granted => self.quorum_granted(id, now),
            Verdict::Contended => self.attempt_failed(id, RefusalReason::Contended, now),
            Verdict::NoQuorum if self.awaits_clocks(id) => Decision::Continue,
            Verdict::NoQuorum => self.attempt_failed(id, RefusalReason::NoQuorum, now),
        }
    }

    /// A quorum has granted, in time: so is the lock, once it has its slot and its token.
    fn quorum_granted(&mut self, id: LockId, now: ClockReading) -> Decision {
        let Some(active) = self.locks.active(id) else { return Decision::Continue };
        let fenced = active.fencing.is_wanted();
        if active.permit.is_wanted() {
            match self.agree_on_slot(id, now) {
                Agreed::Yes => {}
                Agreed::NotYet => return self.limit_wait(id, now),
                Agreed::Never => return self.attempt_failed(id, RefusalReason::Contended, now),
            }
        }
        if fenced && !self.agree(id, now) {
            self.decide_write_back(id, now)
        } else {
            self.grant(id, now)
        }
    }

    /// What has come of the write-back, while the lock is on its way to its token.
    fn decide_write_back(&mut self, id: LockId, now: ClockReading) -> Decision {
        let verdict = match self.locks.find(id) {
            Some(lock) if lock.lease.remaining(now).is_zero() => {
                return self.attempt_failed(id, RefusalReason::Expired, now);
            }
            _ => self.write_back_verdict(id),
        };
        match verdict {
            None => Decision::Continue,
            Some(Verdict::Undecided) => self.limit_wait(id, now),
            Some(Verdict::Contended) => self.attempt_failed(id, RefusalReason::Contended, now),
            Some(Verdict::NoQuorum) => self.attempt_failed(id, RefusalReason::NoQuorum, now),
            Some(Verdict::Granted) => self.grant(id, now),
        }
    }

    /// The one place where a lock is granted.
    fn grant(&mut self, id: LockId, now: ClockReading) -> Decision {
        self.check_grant(id, now);
        let Some((lock, active)) = self.locks.at_work_mut(id) else { return Decision::Continue };
        lock.granted(active.round.since(), now.boot);
        let (due, until) = (active.hold.loss_due(lock, now), active.round.until());
        self.arm_lock(id, due.min(until));
        Decision::Granted
    }

    /// The time of an attempt is over, unless it goes on.
    pub(super) fn attempt_due(&mut self, id: LockId, now: ClockReading) -> Decision {
        let Some(active) = self.locks.active_mut(id) else { return Decision::Continue };
        if !active.round.is_over(now.boot) {
            let until = active.round.until();
            self.arm_lock(id, until);
            return self.round_drags(id, now);
        }
        self.fail_the_silent(id);
        let Some((lock, active)) = self.locks.at_work_mut(id) else { return Decision::Continue };
        if now.boot >= active.waiting.deadline()
            && let Some(decided) = active.attempt.decided
        {
            // An attempt that was cut short says less about the reason than the one before.
            active.votes = decided;
            return Decision::Refused(RefusalReason::OutOfTime);
        }
        if lock.lease.remaining(now).is_zero() {
            self.attempt_failed(id, RefusalReason::Expired, now)
        } else {
            self.decide(id, now)
        }
    }

    /// A node that has not voted, or not confirmed the token, is no voter.
    fn fail_the_silent(&mut self, id: LockId) {
        let Some((lock, active)) = self.locks.at_work_mut(id) else { return };
        let unconfirmed = match lock.phase {
            Phase::Fencing => {
                let grants = active.votes.grants();
                grants.without(active.fencing.confirmed_by(grants))
            }
            _ => NodeSet::default(),
        };
        let missing = match active.attempt.lead {
            Some(lead) => active.votes.missing().and(lead.into()),
            None => active.votes.missing(),
        };
        for node in missing.or(unconfirmed).iter() {
            let cause = match self.nodes[node.index()].link.state() {
                Link::Opening { .. } => Cause::ConnectTimeout,
                _ => Cause::NoAnswer,
            };
            active.votes.cast(node, Vote::Fail(cause));
            self.metrics.of(node).not_voted(cause);
            if mutant!(ReplyShifted) {
                let _ = self.nodes[node.index()].pipeline.answered();
            }
        }
    }

    fn attempt_failed(&mut self, id: LockId, reason: RefusalReason, now: ClockReading) -> Decision {
        let is_set_right = reason == RefusalReason::NoQuorum && self.set_clock_right(id);
        let Some(active) = self.locks.active_mut(id) else { return Decision::Continue };
        let out_of_time = now.boot >= active.waiting.deadline();
        // The nodes have answered how wrong our clock is: that is no verdict about the lock.
        if is_set_right && !out_of_time && active.fencing.is_repeated() {
            return Decision::Repeat;
        }
        let denied = active.votes.denies();
        if let Some(lead) = active.attempt.lead
            && let Some(vote) = active.votes.of(lead)
            && let Some(decided) = active.attempt.decided
        {
            // What the others said last still says more than nothing.
            active.votes = decided;
            active.votes.cast(lead, vote);
        }
        let retry = active.waits() && !out_of_time && !active.votes.is_misconfigured();
        if retry {
            active.attempt.decided = Some(active.votes);
            return Decision::Retry(denied);
        }
        Decision::Refused(if out_of_time { RefusalReason::OutOfTime } else { reason })
    }

    /// Returns the report of a refused lock.
    pub(super) fn refusal(
        &mut self,
        id: LockId,
        reason: RefusalReason,
        now: ClockReading,
    ) -> Option<Refusal> {
        let active = self.locks.active_mut(id)?;
        let needed = active.votes.quorum() - active.votes.grants().len().min(active.votes.quorum());
        let remaining = active.waiting.way_free_at(needed).map(|at| at.since(now.boot));
        Some(Refusal { reason, votes: active.votes, remaining })
    }
}

/// How long a round of asks takes, roughly, once one more has.
fn round_trip(before: Duration, took: Duration) -> Duration {
    match before {
        Duration::ZERO => took,
        before => (before * 7 + took) / 8,
    }
}
