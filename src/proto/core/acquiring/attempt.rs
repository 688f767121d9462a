//! An attempt from its first request to its verdict.
//!
//! Invariant: a suspected node is not waited for once a quorum has voted, but suspicion is neither
//! a failure nor a vote. The allowance of a node is computed in `links::suspect`.

use std::time::Duration;

use crate::proto::core::locks::{Active, Phase};
use crate::proto::core::{
    Core, LockAtWork, claims::Claim, effects::Decision, links::Link, permits::Agreed,
};
use crate::proto::event::{Refusal, RefusalReason};
use crate::proto::names::{LockId, NodeId, NodeSet};
use crate::proto::time::{ClockReading, Timestamp};
use crate::proto::vote::{Cause, Verdict, Vote};
use crate::proto::{lease::Lease, lock_mode::LockMode, mutants::mutant};

impl Core {
    /// Begins an attempt under a new token, on all nodes or on `lead` first. Returns whether the
    /// lock waits.
    pub(in crate::proto::core) fn begin_attempt(
        &mut self,
        id: LockId,
        lead: Option<NodeId>,
        now: ClockReading,
    ) -> bool {
        self.common.metrics.attempts += 1;
        self.common.metrics.lead_asks += u64::from(lead.is_some());
        let votes = self.ballot();
        // A new token for each attempt, so that the undo of one cannot delete the key of the next.
        let mut random = self.common.entropy.bytes::<16>();
        // It begins with a letter: some libraries read a string of digits as a time in the past.
        random[0] |= 0xa0;
        let open = self.open_asks(id);
        let Some(active) = self.locks.active(id) else { return false };
        let (waits, fenced, holder) =
            (active.waits(), active.fencing.is_wanted(), active.mode_change.holder());
        let proposal = fenced.then(|| self.proposal(now));
        let holder = holder.and_then(|holder| self.locks.find(holder));
        let first = holder.and_then(|holder| self.claims.find(holder.claim())).map(Claim::random);
        let (claim_id, claim) = self.claims.occupy(Claim::new);
        let (lock, active) =
            self.locks.at_work_mut(id).expect("only a living lock makes an attempt");
        claim.begin(id, &active.keys, lock.mode(), proposal, lock.ttl_ms(), random);
        active.foreign().into_iter().for_each(|kind| claim.set_kind(kind));
        first.into_iter().for_each(|first| claim.set_other_claim(first));
        lock.begin_round(active, Phase::Asking, now, votes);
        let is_repeated = active.fencing.attempt_begins(self.common.ahead_us);
        active.permit.attempt_begins();
        lock.asks_for(claim_id);
        active.attempt.lead = lead;
        active.attempt.open = open;
        // Validity counts from before the first request is sent (Redlock, step 1): no node can have
        // set its key earlier. A repeated upgrade keeps the start of its first attempt, so that a
        // wrong clock does not lengthen the hold.
        if first.is_none() || !is_repeated {
            lock.lease = Lease::new(now, lock.ttl(), self.config.drift);
        }
        waits
    }
}

impl LockAtWork<'_> {
    /// Decides by the lead's vote. After a grant the other nodes are asked under the same token,
    /// with validity counted from the lead's request; also if the lead rejected our clock, which is
    /// not a vote on the lock.
    fn led(&mut self, lead: NodeId) -> Decision {
        let reason = match self.active.votes.of(lead) {
            None => return Decision::Continue,
            Some(vote @ (Vote::Grant | Vote::Fail(Cause::ClockSkew))) => {
                self.active.attempt.lead = None;
                self.env.metrics.lead_grants += u64::from(vote == Vote::Grant);
                return Decision::AskMore(self.nodes.all().without(lead.into()));
            }
            Some(Vote::Deny) => RefusalReason::Contended,
            Some(Vote::Fail(_)) => RefusalReason::NoQuorum,
        };
        self.attempt_failed(reason)
    }

    pub(crate) fn decide(&mut self) -> Decision {
        match self.lock.phase {
            Phase::Asking => {}
            Phase::Fencing => return self.decide_write_back(),
            _ => return Decision::Continue,
        }
        if let Some(lead) = self.active.attempt.lead {
            return self.led(lead);
        }
        if mutant!(AllNodesAwaited) && !self.active.votes.missing().is_empty() {
            return Decision::Continue;
        }
        if mutant!(LeaseFromAnswer) {
            self.lock.lease = Lease::new(self.env.now, self.lock.ttl(), self.env.config.drift);
        }
        if mutant!(ReadFromOne) {
            let is_read = self.lock.mode() == LockMode::Shared;
            if is_read && !self.active.votes.grants().is_empty() {
                return self.quorum_granted();
            }
        }
        self.active.votes.suspect(self.env.suspected);
        let verdict = self.active.votes.verdict();
        if self.active.waits() && matches!(verdict, Verdict::Granted | Verdict::Contended) {
            self.record_round_trip();
        }
        match verdict {
            Verdict::Undecided => self.keep_waiting(),
            // A quorum that took as long as the TTL proves nothing: its first keys may have
            // expired.
            Verdict::Granted if self.lock.lease.remaining(self.env.now).is_zero() => {
                self.attempt_failed(RefusalReason::Expired)
            }
            Verdict::Granted => self.quorum_granted(),
            Verdict::Contended => self.attempt_failed(RefusalReason::Contended),
            Verdict::NoQuorum if self.awaits_clocks() => Decision::Continue,
            Verdict::NoQuorum => self.attempt_failed(RefusalReason::NoQuorum),
        }
    }

    /// Updates the average duration of a round; the last one weighs an eighth.
    fn record_round_trip(&mut self) {
        let (before, took) = (self.env.round_trip, self.active.round.took(self.env.now.boot));
        self.env.round_trip = if before.is_zero() { took } else { (before * 7 + took) / 8 };
    }

    /// Grants the lock once its slot and fencing token are agreed.
    fn quorum_granted(&mut self) -> Decision {
        if self.active.permit.is_wanted() {
            match self.agree_on_slot() {
                Agreed::Yes => {}
                Agreed::NotYet(moved) => {
                    self.limit_wait();
                    return Decision::MoveAt(moved);
                }
                Agreed::Never => return self.attempt_failed(RefusalReason::Contended),
            }
        }
        // A fencing token must exceed those of all earlier holders, so a quorum must have the
        // largest counter before the token is handed out.
        if self.active.fencing.is_wanted() && !self.agree() {
            self.decide_write_back()
        } else {
            self.grant()
        }
    }

    fn decide_write_back(&mut self) -> Decision {
        // The write-back takes another round trip out of the same lease.
        let verdict = match self.lock.lease.remaining(self.env.now) {
            left if left.is_zero() => return self.attempt_failed(RefusalReason::Expired),
            _ => self.write_back_verdict(),
        };
        match verdict {
            None => Decision::Continue,
            Some(Verdict::Undecided) => self.keep_waiting(),
            Some(Verdict::Contended) => self.attempt_failed(RefusalReason::Contended),
            Some(Verdict::NoQuorum) => self.attempt_failed(RefusalReason::NoQuorum),
            Some(Verdict::Granted) => self.grant(),
        }
    }

    /// Grants the lock. Every grant passes here.
    fn grant(&mut self) -> Decision {
        self.check_grant();
        self.lock.granted(self.active.round.since(), self.env.now.boot);
        self.arm(self.active.hold.loss_due(self.lock, self.env.now).min(self.active.round.until()));
        Decision::Granted
    }

    /// Ends an attempt whose time is up; before that, looks for nodes that exceed their allowance.
    pub(crate) fn attempt_due(&mut self) -> Decision {
        if !self.active.round.is_over(self.env.now.boot) {
            self.arm(self.active.round.until());
            return self.round_drags();
        }
        self.fail_the_silent();
        if self.env.now.boot >= self.active.waiting.deadline()
            && let Some(decided) = self.active.attempt.decided
        {
            // An attempt that was cut short is a worse reason than the one before it.
            self.active.votes = decided;
            return Decision::Refused(RefusalReason::OutOfTime);
        }
        if self.lock.lease.remaining(self.env.now).is_zero() {
            self.attempt_failed(RefusalReason::Expired)
        } else {
            self.decide()
        }
    }

    /// Fails the nodes that have not voted, or have not confirmed the token.
    fn fail_the_silent(&mut self) {
        let votes = &mut self.active.votes;
        let unconfirmed = match self.lock.phase {
            Phase::Fencing => {
                let grants = votes.grants();
                grants.without(self.active.fencing.confirmed_by(grants))
            }
            _ => NodeSet::default(),
        };
        let missing = match self.active.attempt.lead {
            Some(lead) => votes.missing().and(lead.into()),
            None => votes.missing(),
        };
        for node in missing.or(unconfirmed).iter() {
            let cause = match self.nodes[node.index()].link.state() {
                Link::Opening { .. } => Cause::ConnectTimeout,
                _ => Cause::NoAnswer,
            };
            // A late answer no longer counts; if it is a grant, the undo that is owed deletes the
            // key.
            votes.cast(node, Vote::Fail(cause));
            self.env.metrics.of(node).not_voted(cause);
            if mutant!(ReplyShifted) {
                let _ = self.nodes[node.index()].pipeline.answered();
            }
        }
    }

    fn attempt_failed(&mut self, reason: RefusalReason) -> Decision {
        let is_set_right = reason == RefusalReason::NoQuorum && self.set_clock_right();
        let active = &mut *self.active;
        let out_of_time = self.env.now.boot >= active.waiting.deadline();
        // The nodes have reported how wrong our clock is, which is not a verdict on the lock.
        // Repeated only once: a node whose clock runs away could ask for more without end.
        if is_set_right && !out_of_time && active.fencing.take_repeat() {
            return Decision::Repeat;
        }
        let denied = active.votes.denies();
        if let Some(lead) = active.attempt.lead
            && let Some(vote) = active.votes.of(lead)
            && let Some(decided) = active.attempt.decided
        {
            // The last votes of the other nodes are better than none.
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
}

impl Active {
    pub(crate) fn refusal(&mut self, reason: RefusalReason, now: ClockReading) -> Refusal {
        let needed = self.votes.quorum().saturating_sub(self.votes.grants().len());
        let remaining = self.waiting.free_at(needed).map(|at| at.since(now.boot));
        Refusal { reason, votes: self.votes, remaining }
    }
}

impl LockAtWork<'_> {
    /// Limits the wait to the other nodes' allowance if a quorum has voted without deciding.
    #[inline]
    pub(super) fn limit_wait(&mut self) {
        if self.active.votes.has_quorum() {
            self.wait_for_the_rest();
        }
    }

    #[inline]
    pub(super) fn keep_waiting(&mut self) -> Decision {
        self.limit_wait();
        Decision::Continue
    }

    #[cold]
    fn wait_for_the_rest(&mut self) {
        let since = self.active.round.quorum_answered(self.env.now.boot);
        let awaited = self.active.votes.awaited().without(self.env.suspected);
        let until = awaited.iter().map(|node| self.nodes.awaited_until(node, since)).min();
        let until = until.unwrap_or(Timestamp::NEVER);
        self.active.round.wait_for_rest(until);
        self.arm(until);
    }

    /// Limits a round of requests to `patience`, the lease and the deadline.
    pub(in crate::proto::core) fn ask_for(
        &mut self,
        patience: Duration,
        lead_until: Option<Timestamp>,
    ) {
        let (ends, deadline) = (self.lock.lease.ends(), self.active.waiting.deadline());
        self.active.round.asks(lead_until);
        self.active.round.lasts_until((self.env.now.boot + patience).min(ends).min(deadline));
        self.arm(self.active.round.due());
    }

    /// Suspects nodes that exceed their allowance. If the lead does, the other nodes are asked too.
    pub(super) fn round_drags(&mut self) -> Decision {
        let active = &mut *self.active;
        let until = active.round.rest_until();
        if self.env.now.boot < until {
            self.arm(until);
            return Decision::Continue;
        }
        if let Some(lead) = active.attempt.lead.take() {
            // Asked under the same token, with validity counted from the lead's request.
            return Decision::AskMore(self.nodes.all().without(lead.into()));
        }
        let (since, awaited) = (active.round.quorum_at(), active.votes.awaited());
        // The next decision arms this again for nodes with time left, but not for a write-back
        // alone.
        active.round.wait_for_rest(Timestamp::NEVER);
        let mut late = NodeSet::default();
        let is_late = |node: &NodeId| self.env.now.boot >= self.nodes.awaited_until(*node, since);
        awaited.iter().filter(is_late).for_each(|node| late.insert(node));
        Decision::Suspect(late)
    }
}
