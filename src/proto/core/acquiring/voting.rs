//! Reads the answer to a request and counts the vote in it.
//!
//! Invariant: a vote counts only for the attempt whose claim it answers.

use crate::proto::answer::{Answer, vote_of_set};
use crate::proto::classify::{ServerError, classify};
use crate::proto::core::claims::Claim;
use crate::proto::core::effects::Decision;
use crate::proto::core::links::{Ability, Mistyped, Pending};
use crate::proto::core::locks::Phase;
use crate::proto::core::restart_guard::Unproven;
use crate::proto::core::{Core, LockAtWork};
use crate::proto::fair_queue::QueueReply;
use crate::proto::lock_kind::Command;
use crate::proto::names::{ClaimId, LockId, NodeId};
use crate::proto::time::ClockReading;
use crate::proto::vote::{Cause, Vote};
use crate::resp::Token;

impl Core {
    pub(in crate::proto::core) fn half_answered(
        &mut self,
        id: NodeId,
        claim: ClaimId,
        token: Token<'_>,
    ) -> Result<(), Mistyped> {
        let vote = match vote_of_set(token).ok_or(Mistyped)? {
            Answer::Vote(vote) => vote,
            _ => Vote::Fail(Cause::ServerError),
        };
        // The read of the restart guard behind the request decides whether this vote counts.
        self.note_refused(id, claim, vote);
        self.node_mut(id).pipeline.becomes(Pending::Check { claim, vote });
        Ok(())
    }

    /// Reads the answer to a request. Returns the grant or refusal that counts if the node votes;
    /// `None` if the request was sent again or the claim has ended.
    pub(in crate::proto::core) fn ask_answered(
        &mut self,
        id: NodeId,
        claim: ClaimId,
        (ask, by_digest): (Command, bool),
        token: Token<'_>,
        now: ClockReading,
    ) -> Result<Option<Unproven>, Mistyped> {
        let in_queue = ask.asks_in_queue();
        let of_permit = ask.is_for_permit();
        let reply = in_queue.then(|| QueueReply::read(token, of_permit)).flatten();
        if let Some(reply) = reply.filter(|reply| self.can_be_answered(claim, reply)) {
            let answer = self.take(id, claim, reply, now);
            // The script has read the restart guard itself, granted or not.
            Ok(Some(Unproven::of_ask(claim, answer)))
        } else if in_queue && reply.is_none() && is_of_queue(token) {
            // The queue has data that no lock has written, such as an infinite stamp. That is not a
            // protocol error: only this lock loses the node's vote, other locks on the connection
            // go on.
            let fails = Answer::Vote(Vote::Fail(Cause::WrongType));
            Ok(Some(Unproven::of_ask(claim, fails)))
        } else if in_queue && self.refuses_queue(id, claim, token, now) {
            Ok(None)
        } else {
            self.answer_to_ask(id, claim, (ask, by_digest), token, now)
        }
    }

    fn take(&mut self, id: NodeId, claim: ClaimId, reply: QueueReply, now: ClockReading) -> Answer {
        self.node_mut(id).capabilities.set_queue(Ability::Given);
        if let Some((lock, round)) = self.claims.find(claim).and_then(Claim::listener) {
            let next = self.with_waiter(lock, now, |it| it.record_place(id, round, reply));
            next.into_iter().for_each(|next| self.common.effects.decided(lock, next));
        }
        match reply {
            QueueReply::Granted { grant, .. } => {
                self.node_mut(id).capabilities.set_undo(Ability::Given);
                grant
            }
            QueueReply::Waits(place) => {
                self.claims.find_mut(claim).into_iter().for_each(|it| it.mark_waiting(id));
                match place.left_ms {
                    0 => Answer::Vote(Vote::Deny),
                    left_ms => Answer::DenyFor(left_ms),
                }
            }
        }
    }

    /// Returns whether a node can have given this answer, by the lock's mode and fencing. Any grant
    /// passes for a claim that has changed its mode, because how it was requested is not known.
    fn can_be_answered(&self, claim: ClaimId, reply: &QueueReply) -> bool {
        let is_as_asked = |claim: &&Claim| !claim.is_downgraded() && !claim.is_upgraded();
        let QueueReply::Granted { grant, .. } = reply else { return true };
        let claim = self.claims.find(claim).filter(is_as_asked);
        claim.is_none_or(|claim| claim.kind().ask.is_answered_by(*grant))
    }

    fn answer_to_ask(
        &mut self,
        id: NodeId,
        claim_id: ClaimId,
        (ask, by_digest): (Command, bool),
        token: Token<'_>,
        now: ClockReading,
    ) -> Result<Option<Unproven>, Mistyped> {
        let answer = ask.vote(token).ok_or(Mistyped)?;
        if self.claims.find(claim_id).is_none() {
            return Ok(None);
        }
        match answer {
            Answer::NoScript => {
                self.node_mut(id).forget_scripts();
                // Sent as text, a script cannot be unknown: it is sent again once, and nothing can
                // loop.
                if by_digest && self.is_asking(claim_id) && self.node(id).link.takes_asks() {
                    self.send_ask(id, claim_id, now);
                    return Ok(None);
                }
            }
            // Scripts get the guard's key only if one is configured.
            Answer::Guarded(_) if self.config.restart_guard_key().is_none() => {
                return Err(Mistyped);
            }
            _ => {}
        }
        if answer.is_grant() && ask != Command::SetIfAbsent {
            // The script has tried the commands of the undo before it wrote.
            self.node_mut(id).capabilities.set_undo(Ability::Given);
        }
        Ok(Some(Unproven::of_ask(claim_id, answer)))
    }

    /// Sends the request without a ticket, now and later, to a node that forbids what the queue
    /// needs. Returns whether this was such an answer.
    fn refuses_queue(
        &mut self,
        id: NodeId,
        claim: ClaimId,
        token: Token<'_>,
        now: ClockReading,
    ) -> bool {
        let Token::Error(text) = token else { return false };
        let ServerError::Cause(cause) = classify(text) else { return false };
        if !cause.is_forbidden() {
            return false;
        }
        self.node_mut(id).capabilities.set_queue(Ability::Refused(cause));
        if self.is_asking(claim) && self.node(id).link.takes_asks() {
            self.send_ask(id, claim, now);
        }
        true
    }

    fn is_asking(&self, claim: ClaimId) -> bool {
        let lock = self.claims.find(claim).and_then(|claim| self.locks.find(claim.lock()?));
        lock.is_some_and(|lock| matches!(lock.phase, Phase::Asking | Phase::Fencing))
    }

    /// Returns the vote in an answer, and passes on the rest of it.
    pub(in crate::proto::core) fn vote_in(
        &mut self,
        answer: Answer,
        id: NodeId,
        claim: ClaimId,
        now: ClockReading,
    ) -> Vote {
        match answer {
            Answer::DenyFor(ms) => {
                if let Some(lock) = self.claims.find(claim).and_then(Claim::lock) {
                    let decision = self.with_waiter(lock, now, |it| it.record_life(id, ms));
                    self.common.effects.decided(lock, decision);
                }
                Vote::Deny
            }
            Answer::GrantWith(counter) => {
                // Before the vote counts: the vote may decide, and needs the quorum's largest
                // counter.
                self.transition(claim, now, |lock| lock.take_counter(id, counter));
                Vote::Grant
            }
            Answer::GrantSlot { offer, counter } => {
                let vote = self.slot_given(id, claim, offer);
                if counter > 0 && vote == Vote::Grant {
                    self.transition(claim, now, |lock| lock.take_counter(id, counter));
                }
                vote
            }
            Answer::Guarded(pttl) => self.guarded_vote(id, Vote::Deny, Ok(pttl), now),
            Answer::Skewed(server_us) => {
                let proposed = self.claims.find(claim).map(Claim::counter);
                self.node_mut(id).record_clock(server_us, proposed.unwrap_or_default(), now);
                Vote::Fail(Cause::ClockSkew)
            }
            Answer::Vote(vote) => vote,
            Answer::NoScript => Vote::Fail(Cause::ServerError),
        }
    }

    /// Counts a vote, unless the attempt was given up. Returns the lock and what the vote decides.
    pub(in crate::proto::core) fn count_vote(
        &mut self,
        node: NodeId,
        claim_id: ClaimId,
        vote: Vote,
        now: ClockReading,
    ) -> Option<(LockId, Decision)> {
        let counted = self.transition(claim_id, now, |it| (it.id, it.take_vote(node, vote)));
        if counted.is_some() {
            return counted;
        }
        // No attempt counts this vote. But a grant means that the key exists, and after a denial a
        // waiter may listen to this node instead.
        let claim = self.claims.find_mut(claim_id)?;
        if vote == Vote::Grant && !claim.is_owed(node) {
            claim.granted(node);
        }
        let (waiter, round) = claim.waiter().filter(|_| vote == Vote::Deny)?;
        if self.with_waiter(waiter, now, |it| it.denied_late(node, round)) {
            self.common.effects.decided(waiter, Decision::Listen(node.into()));
            self.common.effects.decided(waiter, Decision::Wake);
        }
        None
    }

    /// Records that a request did not run, if the error proves it. A script may have run in part,
    /// unless it may not write or not run; an unknown error may come from a proxy.
    pub(in crate::proto::core) fn note_refused(&mut self, id: NodeId, claim: ClaimId, vote: Vote) {
        let Vote::Fail(cause) = vote else { return };
        if cause.is_forbidden() {
            // The undo may need the same command.
            self.node_mut(id).capabilities.set_undo(Ability::Refused(cause));
        }
        if cause != Cause::ServerError
            && let Some(claim) = self.claims.find_mut(claim)
            && (claim.kind().ask == Command::SetIfAbsent || cause.is_forbidden())
        {
            claim.refused(id);
        }
    }
}

impl LockAtWork<'_> {
    #[inline]
    fn take_vote(&mut self, node: NodeId, vote: Vote) -> Decision {
        if vote == Vote::Grant {
            // A claim that is being undone must not count: its key may be deleted at any moment.
            if self.claim.is_owed(node) {
                return Decision::Continue;
            }
            self.claim.granted(node);
        }
        self.count(node, vote);
        match self.lock.phase {
            Phase::Fencing if vote == Vote::Grant => self.raise_counter(node),
            Phase::Asking | Phase::Fencing => {}
            _ => return Decision::Continue,
        }
        self.decide()
    }

    /// Counts a vote for its attempt. A late grant to a held lock counts while all nodes keep the
    /// key for the granted lease, so not for an extension. A grant after the attempt is followed by
    /// its undo.
    #[inline]
    pub(super) fn count(&mut self, node: NodeId, vote: Vote) {
        let counts = match self.lock.phase {
            Phase::Asking | Phase::Fencing => true,
            Phase::Held => self.active.hold.is_as_granted(),
            _ => false,
        };
        if counts {
            self.active.votes.cast(node, vote);
        }
    }
}

fn is_of_queue(answer: Token<'_>) -> bool {
    matches!(answer, Token::Simple(line) if line.starts_with(b"WAIT ") || line.starts_with(b"OK "))
}
