//! From a request to a grant or a refusal: attempts, and their verdicts.
//!
//! Apart from `waiting`, which decides when a lock may ask: here is one attempt at a time. Not here: what counts as a
//! grant or a denial, see `proto::vote`; what a node may hold for an attempt that failed, see `claims`.

mod asking;
mod patience;
mod voting;

use super::claims::Claim;
use super::effects::Decision;
use super::{Core, LockAtWork};
use crate::proto::core::links::Link;
use crate::proto::core::locks::{Active, Phase};
use crate::proto::core::permits::Agreed;
use crate::proto::event::{Refusal, RefusalReason};
use crate::proto::lease::Lease;
use crate::proto::lock_mode::LockMode;
use crate::proto::mutants::mutant;
use crate::proto::names::{LockId, NodeId, NodeSet};
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
        self.common.metrics.attempts += 1;
        self.common.metrics.lead_asks += u64::from(lead.is_some());
        let votes = self.ballot();
        // A new token for each attempt: the undo of one cannot delete the key of the next.
        let mut random = self.common.entropy.bytes::<16>();
        // A token begins with a letter: some libraries take a string of digits for a time that is over.
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
        active.fencing.attempt_begins(self.common.ahead_us);
        active.permit.attempt_begins();
        lock.asks_for(claim_id);
        active.attempt.lead = lead;
        active.attempt.open = open;
        // Validity counts from before the first ask leaves (Redlock, step 1): no node can have set
        // its key earlier.
        lock.lease = Lease::new(now, lock.ttl(), self.config.drift);
        waits
    }
}

impl LockAtWork<'_> {
    /// The lead has voted: the others are asked if it granted, under the same token, and with the validity counted from the
    /// lead's ask. They are also asked if it refused our clock, since that says nothing of the lock.
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

    /// What the votes of an attempt have come to.
    pub(super) fn decide(&mut self) -> Decision {
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
            // A quorum that took as long as the TTL proves nothing: its first keys may have ended.
            Verdict::Granted if self.lock.lease.remaining(self.env.now).is_zero() => {
                self.attempt_failed(RefusalReason::Expired)
            }
            Verdict::Granted => self.quorum_granted(),
            Verdict::Contended => self.attempt_failed(RefusalReason::Contended),
            Verdict::NoQuorum if self.awaits_clocks() => Decision::Continue,
            Verdict::NoQuorum => self.attempt_failed(RefusalReason::NoQuorum),
        }
    }

    /// Records how long a round of asks took. The average forgets an eighth each time.
    fn record_round_trip(&mut self) {
        let (before, took) = (self.env.round_trip, self.active.round.took(self.env.now.boot));
        self.env.round_trip = if before.is_zero() { took } else { (before * 7 + took) / 8 };
    }

    /// A quorum has granted, in time: so is the lock, once it has its slot and its token.
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
        // A token must be larger than those of all holders before, so a quorum has to have the
        // largest before it is handed out.
        if self.active.fencing.is_wanted() && !self.agree() {
            self.decide_write_back()
        } else {
            self.grant()
        }
    }

    /// What has come of the write-back, while the lock is on its way to its token.
    fn decide_write_back(&mut self) -> Decision {
        // The write-back takes a round trip more, out of the same lease.
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

    /// The one place where a lock is granted.
    fn grant(&mut self) -> Decision {
        self.check_grant();
        self.lock.granted(self.active.round.since(), self.env.now.boot);
        self.arm(self.active.hold.loss_due(self.lock, self.env.now).min(self.active.round.until()));
        Decision::Granted
    }

    /// The time of an attempt is over, unless it goes on.
    pub(super) fn attempt_due(&mut self) -> Decision {
        if !self.active.round.is_over(self.env.now.boot) {
            self.arm(self.active.round.until());
            return self.round_drags();
        }
        self.fail_the_silent();
        if self.env.now.boot >= self.active.waiting.deadline()
            && let Some(decided) = self.active.attempt.decided
        {
            // An attempt that was cut short says less about the reason than the one before.
            self.active.votes = decided;
            return Decision::Refused(RefusalReason::OutOfTime);
        }
        if self.lock.lease.remaining(self.env.now).is_zero() {
            self.attempt_failed(RefusalReason::Expired)
        } else {
            self.decide()
        }
    }

    /// A node that has not voted, or not confirmed the token, is no voter.
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
            // Its answer may still come. It counts no longer then, and if it is a grant the undo
            // that is owed deletes the key.
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
        // The nodes have answered how wrong our clock is: that is no verdict about the lock.
        // Once for each attempt: a node whose clock runs away could ask for repeats without end.
        if is_set_right && !out_of_time && active.fencing.take_repeat() {
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
}

impl Active {
    /// Returns the report of a refused lock.
    pub(super) fn refusal(&mut self, reason: RefusalReason, now: ClockReading) -> Refusal {
        let needed = self.votes.quorum().saturating_sub(self.votes.grants().len());
        let remaining = self.waiting.free_at(needed).map(|at| at.since(now.boot));
        Refusal { reason, votes: self.votes, remaining }
    }
}
