//! From a request to a grant or a refusal: attempts, and their verdicts.
//!
//! Apart from `waiting`, which decides when a lock may ask: here is one attempt at a time. Not here: what counts as a
//! grant or a denial, see `proto::vote`; what a node may hold for an attempt that failed, see `claims`.

use std::time::Duration;

use super::Core;
use crate::proto::core::links::{FEW, Link, Pending};
use crate::proto::core::locks::Phase;
use crate::proto::event::{Event, Refusal, RefusalReason};
use crate::proto::lease::Lease;
use crate::proto::mutants::mutant;
use crate::proto::names::{ClaimId, LockId, NodeId, NodeSet};
use crate::proto::request::{LockRequest, RequestError};
use crate::proto::time::ClockReading;
use crate::proto::vote::{Cause, Verdict, Vote};

impl Core {
    /// Asks all nodes for a lock. The outcome is [`Event::Granted`] or [`Event::Refused`].
    ///
    /// # Errors
    ///
    /// The ask is refused at the door, and nothing is sent.
    pub fn acquire(
        &mut self,
        request: &LockRequest<'_>,
        now: ClockReading,
    ) -> Result<LockId, RequestError> {
        request.check(&self.config)?;
        if self.locks.len().max(self.claims.len()) >= super::MAX_LOCKS {
            return Err(RequestError::TooManyLocks);
        }
        let now = self.clamp(now);
        let votes = self.ballot();
        let (id, _, active) = self.locks.begin(request, now, votes);
        self.metrics.acquisitions += 1;
        if active.waits() {
            self.join_queues(id, now);
        } else {
            self.attempt(id, None, now);
        }
        Ok(id)
    }

    /// One round of asks, under a token of its own: to all nodes, or to one of them first.
    pub(super) fn attempt(&mut self, id: LockId, lead: Option<NodeId>, now: ClockReading) {
        let (claim_id, _) = self.claims.occupy();
        self.metrics.attempts += 1;
        self.metrics.lead_asks += u64::from(lead.is_some());
        let votes = self.ballot();
        let random = self.entropy.bytes();
        let fenced = self.locks.active(id).is_some_and(|active| active.fencing.is_wanted());
        let open = self.open_asks(id);
        let proposal = fenced.then(|| self.proposal(now));
        let (lock, active) =
            self.locks.at_work_mut(id).expect("only a living lock makes an attempt");
        let claim = self.claims.find_mut(claim_id).expect("it was made here");
        claim.begin(id, &active.keys, proposal, lock.ttl_ms, random);
        lock.begin_round(active, Phase::Asking, now, votes);
        active.fencing.attempt_begins(self.ahead_us);
        lock.claim = claim_id;
        active.lead = lead;
        active.open = open;
        lock.lease = Lease::new(now, lock.ttl(), self.config.drift);
        if active.waits() {
            self.end_pause(id);
        }
        match lead {
            Some(lead) => self.offer_to(id, lead.into(), now),
            None => self.offer_to(id, self.all_nodes(), now),
        }
    }

    /// Asks these nodes, and gives them their time.
    fn offer_to(&mut self, id: LockId, nodes: NodeSet, now: ClockReading) {
        let Some((lock, active)) = self.locks.at_work(id) else { return };
        let (claim, open, lead) = (lock.claim, active.open, active.lead);
        let lead_until = lead.map(|lead| now.boot + self.allowance(lead));
        let mut patience = self.config.settings.response_timeout;
        for node in nodes.iter() {
            patience = patience.max(self.offer(node, claim, open, now));
        }
        if let Some((lock, active)) = self.locks.at_work_mut(id) {
            let until = (now.boot + patience).min(lock.lease.ends()).min(active.deadline);
            active.round.asks(lead_until);
            active.round.lasts_until(until);
            let until = active.round.due();
            self.arm_lock(id, until);
        }
        self.decide(id, now);
    }

    /// The lead of a wait takes longer than usual: the others are asked without its word, under the same
    /// token, and with the validity counted from the lead's ask.
    pub(super) fn ask_the_others(&mut self, id: LockId, now: ClockReading) {
        let Some(active) = self.locks.active_mut(id) else { return };
        if let Some(lead) = active.lead.take() {
            self.offer_to(id, self.all_nodes().without(lead.into()), now);
        }
    }

    /// The lead of a wait has voted: the others are asked if it granted, under the same token, and with the
    /// validity counted from the lead's ask. So they are if it minds our clock: that says nothing of the lock.
    fn led(&mut self, id: LockId, lead: NodeId, now: ClockReading) {
        let Some(active) = self.locks.active_mut(id) else { return };
        let reason = match active.votes.of(lead) {
            None => return,
            Some(vote @ (Vote::Grant | Vote::Fail(Cause::ClockSkew))) => {
                active.lead = None;
                self.metrics.lead_grants += u64::from(vote == Vote::Grant);
                let others = self.all_nodes().without(lead.into());
                return self.offer_to(id, others, now);
            }
            Some(Vote::Deny) => RefusalReason::Contended,
            Some(Vote::Fail(_)) => RefusalReason::NoQuorum,
        };
        self.attempt_failed(id, reason, now);
    }

    /// Asks one node, now or as soon as its link is there; returns how long that may take. At a suspected
    /// node one ask of a lock is open at a time: where an earlier one is, it waits until that has an answer.
    fn offer(
        &mut self,
        node_id: NodeId,
        claim: ClaimId,
        open: NodeSet,
        now: ClockReading,
    ) -> Duration {
        let node = self.node(node_id);
        let takes_asks = node.link.takes_asks();
        let is_due = || node.pipeline.oldest().is_some();
        let cause = if takes_asks && open.contains(node_id) && is_due() {
            self.hold_back(node_id, claim);
            return Duration::ZERO;
        } else if takes_asks && node.pipeline.len() < super::MAX_PIPELINE {
            self.send_ask(node_id, claim, now);
            return Duration::ZERO;
        } else if takes_asks {
            Cause::Backlog
        } else if self.reopen(node_id, now) {
            return self.queue(node_id, claim);
        } else {
            self.node(node_id).link.cause()
        };
        self.metrics.of(node_id).voted(Vote::Fail(cause));
        self.cast(node_id, claim, Vote::Fail(cause));
        Duration::ZERO
    }

    fn hold_back(&mut self, node: NodeId, claim: ClaimId) {
        let alive = self.claims.len();
        let Some(it) = self.claims.find_mut(claim) else { return };
        it.queue(node);
        let held_back = &mut self.nodes[node.index()].held_back;
        held_back.push(claim);
        // Attempts end, and a node may hang for long.
        if held_back.len() > 2 * alive.max(FEW) {
            let claims = &self.claims;
            let waits = |it: &ClaimId| claims.find(*it).is_some_and(|it| it.is_queued(node));
            held_back.retain(waits);
        }
    }

    /// A first contact is given the time that it needs; a node that was lost before is not waited
    /// for longer than one that answers.
    fn queue(&mut self, node: NodeId, claim: ClaimId) -> Duration {
        if let Some(claim) = self.claims.find_mut(claim) {
            claim.queue(node);
        }
        match self.node(node).link.has_not_failed() {
            true => self.config.settings.connect_timeout,
            false => Duration::ZERO,
        }
    }

    pub(super) fn send_ask(&mut self, node_id: NodeId, id: ClaimId, now: ClockReading) {
        debug_assert!(self.node(node_id).link.takes_asks(), "only a voter is asked");
        let Some(claim) = self.claims.find_mut(id) else { return };
        claim.sent(node_id, now.boot + Duration::from_millis(claim.ttl_ms()));
        self.metrics.of(node_id).asks += 1;
        let can_undo = self.nodes[node_id.index()].capabilities.can_undo();
        let ask = claim.kind().ask;
        let ask = if can_undo { ask } else { ask.as_script() };
        let checked = ask.is_checked_behind() && self.config.restart_guard_key().is_some();
        let (ttl_ms, counter) = (claim.ttl_ms(), claim.counter());
        self.send(node_id, id, ask, (ttl_ms, counter), now, |by_digest| Pending::Ask {
            claim: id,
            ask,
            by_digest,
            checked,
        });
    }

    /// Sends the asks that waited for this node's link.
    pub(super) fn send_queued(&mut self, node: NodeId, now: ClockReading) {
        for id in self.claim_ids() {
            if self.claims.find(id).is_some_and(|claim| claim.is_queued(node)) {
                self.send_ask(node, id, now);
            }
        }
    }

    /// Counts a vote for the attempt that it belongs to. A grant that comes late to a lock that is
    /// held is kept; one that comes after the attempt has ended finds its undo behind it.
    pub(super) fn cast(&mut self, node: NodeId, claim: ClaimId, vote: Vote) -> Option<LockId> {
        let id = self.claims.find(claim)?.lock()?;
        self.count(node, id, vote).map(|_| id)
    }

    /// Counts a vote, and returns the phase of the lock that it is for. One that comes when the lock was
    /// extended is none of the extension's.
    #[inline]
    pub(super) fn count(&mut self, node: NodeId, id: LockId, vote: Vote) -> Option<Phase> {
        let Some((lock, active)) = self.locks.at_work_mut(id) else {
            // An idle lock has all votes.
            return self.locks.find(id).map(|lock| lock.phase);
        };
        let counts = match lock.phase {
            Phase::Asking | Phase::Fencing => true,
            Phase::Held => active.backing.is_as_granted(),
            _ => false,
        };
        if counts {
            active.votes.cast(node, vote);
        }
        Some(lock.phase)
    }

    /// What the votes of an attempt have come to.
    pub(super) fn decide(&mut self, id: LockId, now: ClockReading) {
        let Some((lock, active)) = self.locks.at_work_mut(id) else { return };
        match lock.phase {
            Phase::Asking => {}
            Phase::Fencing => return self.settle_write_back(id, now),
            _ => return,
        }
        if let Some(lead) = active.lead {
            return self.led(id, lead, now);
        }
        if mutant!(AllNodesAwaited) && !active.votes.missing().is_empty() {
            return;
        }
        if mutant!(LeaseFromAnswer) {
            lock.lease = Lease::new(now, lock.ttl(), self.config.drift);
        }
        active.votes.suspect(self.suspected);
        let verdict = active.votes.verdict();
        if active.waits() && matches!(verdict, Verdict::Granted | Verdict::Contended) {
            let took = active.round.took(now.boot);
            self.note_round_trip(took);
        }
        let Some(lock) = self.locks.find(id) else { return };
        match verdict {
            Verdict::Undecided => self.limit_wait(id, now),
            Verdict::Contended => self.attempt_failed(id, RefusalReason::Contended, now),
            Verdict::NoQuorum if self.awaits_clocks(id) => {}
            Verdict::NoQuorum => self.attempt_failed(id, RefusalReason::NoQuorum, now),
            Verdict::Granted if lock.lease.remaining(now).is_zero() => {
                self.attempt_failed(id, RefusalReason::Expired, now);
            }
            Verdict::Granted => self.quorum_granted(id, now),
        }
    }

    /// How long a round of asks takes, roughly.
    fn note_round_trip(&mut self, took: Duration) {
        self.round_trip = match self.round_trip {
            Duration::ZERO => took,
            before => (before * 7 + took) / 8,
        };
    }

    /// A quorum has granted, in time: so is the lock, once it has its token.
    fn quorum_granted(&mut self, id: LockId, now: ClockReading) {
        let Some(active) = self.locks.active(id) else { return };
        if active.fencing.is_wanted() && !self.agree(id, now) {
            self.settle_write_back(id, now);
        } else {
            self.grant(id, now);
        }
    }

    /// The one place where a lock is granted.
    pub(super) fn grant(&mut self, id: LockId, now: ClockReading) {
        self.check_grant(id, now);
        let Some((lock, active)) = self.locks.at_work_mut(id) else { return };
        lock.phase = Phase::Held;
        lock.held_since = active.round.since();
        lock.granted_at = now.boot;
        self.metrics.granted(active.asked_at, now.boot);
        let (due, until) = (active.loss_due(lock, now), active.round.until());
        self.arm_lock(id, due.min(until));
        self.events.push_back(Event::Granted(id));
        self.note_holding(id);
        self.auto_extend_from_now(id, now);
        self.note_wait(id, now);
    }

    /// The time of an attempt is over, unless it goes on.
    pub(super) fn attempt_due(&mut self, id: LockId, now: ClockReading) {
        let Some(active) = self.locks.active_mut(id) else { return };
        if !active.round.is_over(now.boot) {
            let until = active.round.until();
            self.arm_lock(id, until);
            return self.round_drags(id, now);
        }
        self.fail_the_silent(id);
        let Some((lock, active)) = self.locks.at_work_mut(id) else { return };
        if now.boot >= active.deadline
            && let Some(decided) = active.decided
        {
            // An attempt that was cut short says less about the reason than the one before.
            active.votes = decided;
            let claim = lock.claim;
            self.abandon(claim, now);
            return self.refuse(id, RefusalReason::OutOfTime, now);
        }
        if lock.lease.remaining(now).is_zero() {
            self.attempt_failed(id, RefusalReason::Expired, now);
        } else {
            self.decide(id, now);
        }
    }

    /// Whoever has not voted, or not confirmed the token, is no voter.
    fn fail_the_silent(&mut self, id: LockId) {
        let Some((lock, active)) = self.locks.at_work_mut(id) else { return };
        let unconfirmed = match lock.phase {
            Phase::Fencing => {
                let grants = active.votes.grants();
                grants.without(active.fencing.confirmed_by(grants))
            }
            _ => NodeSet::default(),
        };
        let missing = match active.lead {
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

    pub(super) fn attempt_failed(&mut self, id: LockId, reason: RefusalReason, now: ClockReading) {
        let is_set_right = reason == RefusalReason::NoQuorum && self.set_clock_right(id);
        let Some((lock, active)) = self.locks.at_work_mut(id) else { return };
        let claim = lock.claim;
        let out_of_time = now.boot >= active.deadline;
        // The nodes have told how wrong our clock is: that is no verdict about the lock.
        if is_set_right && !out_of_time && active.fencing.is_repeated() {
            self.abandon(claim, now);
            self.attempt(id, None, now);
            return self.run_scheduled(now);
        }
        let denied = active.votes.denies();
        if let Some(lead) = active.lead
            && let Some(vote) = active.votes.of(lead)
            && let Some(decided) = active.decided
        {
            // What the others said last still says more than nothing.
            active.votes = decided;
            active.votes.cast(lead, vote);
        }
        let retry = active.waits() && !out_of_time && !active.votes.is_misconfigured();
        if retry {
            active.decided = Some(active.votes);
            self.pause(id, now);
        }
        self.abandon(claim, now);
        if retry {
            self.hear_late_denials(id, claim);
            self.settle_in(id, denied, now);
            self.run_scheduled(now);
        } else {
            self.refuse(id, if out_of_time { RefusalReason::OutOfTime } else { reason }, now);
        }
    }

    pub(super) fn refuse(&mut self, id: LockId, reason: RefusalReason, now: ClockReading) {
        let Some(active) = self.locks.active_mut(id) else { return };
        let needed = active.votes.quorum() - active.votes.grants().len().min(active.votes.quorum());
        let remaining = active.pause.way_free_at(needed).map(|at| at.since(now.boot));
        let refusal = Refusal { reason, votes: active.votes, remaining };
        self.metrics.refused(reason, active.asked_at, now.boot);
        self.events.push_back(Event::Refused(id, refusal));
        self.leave_queues(id, now);
        self.locks.free(id);
        self.run_scheduled(now);
    }
}
