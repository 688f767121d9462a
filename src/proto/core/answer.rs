//! From bytes to the requests that they answer.

use super::Core;
use crate::proto::core::claims::Claim;
use crate::proto::core::links::{Due, Mistyped, Pending, Step};
use crate::proto::core::restart_guard::{Proof, Unproven};
use crate::proto::line::Told;
use crate::proto::lock_kind::{Answer, Command, Count, count};
use crate::proto::names::{ClaimId, LinkId, NodeId, ViewId};
use crate::proto::time::{ClockReading, Timestamp};
use crate::proto::vote::{Cause, Vote};
use crate::resp::Token;

impl Core {
    /// The socket filled the first `bytes` of [`space`](Self::space). Read the clock after the read.
    pub fn received(&mut self, link: LinkId, bytes: usize, now: ClockReading) {
        let (now, id) = (self.clamp(now), link.node());
        if link.is_push() {
            return self.push_received(id, bytes, now);
        }
        if self.node(id).link.is_closed() {
            return;
        }
        // Out of the node, so that tokens can borrow it while the answers change everything else.
        let node = self.node_mut(id);
        node.record_bytes(now.boot);
        let mut inbox = node.take_inbox();
        inbox.filled(bytes);
        loop {
            match self.nodes[id.index()].decode(inbox.unread()) {
                Ok(None) => break,
                Ok(Some((token, len))) => {
                    if self.answered(id, token, now).is_err() {
                        self.close(id, Cause::UnexpectedReply, now);
                    }
                    inbox.consume(len);
                }
                Err(_) if self.node(id).is_tls_alert(inbox.unread()) => {
                    self.close(id, Cause::TlsPort, now);
                }
                Err(violation) => {
                    self.node_mut(id).explain(Cause::Violation, violation.to_string());
                    self.close(id, Cause::Violation, now);
                }
            }
            if self.node(id).link.is_closed() {
                inbox.clear();
                break;
            }
        }
        self.node_mut(id).give_back(inbox);
    }

    /// An answer belongs to the oldest request that has none. One that comes unasked, or is of a
    /// type that the request cannot have, means that order is lost: there is nothing to match by.
    fn answered(
        &mut self,
        id: NodeId,
        token: Token<'_>,
        now: ClockReading,
    ) -> Result<(), Mistyped> {
        let Some(next) = self.node(id).pipeline.oldest() else { return Err(Mistyped) };
        let pending = next.pending;
        if let (Token::Error(text), false) = (token, matches!(pending, Pending::Handshake(_))) {
            self.node_mut(id).note(text);
        }
        if let Pending::Ask { claim, checked: true, .. } = pending {
            return self.half_answered(id, claim, token);
        }
        let Some(due) = self.node_mut(id).pipeline.answered() else { return Err(Mistyped) };
        let answered = self.understood(id, &due, token, now);
        match answered {
            Ok(()) => {
                self.count_answer(id, &due, now);
                if self.is_suspected(id) {
                    self.answers_again(id);
                    self.send_held_back(id, now);
                }
                self.leave_if_idle(id, now);
            }
            // It is over with the link, like all that are behind it.
            Err(Mistyped) => self.node_mut(id).pipeline.unanswered(due),
        }
        answered
    }

    /// How long a node took to answer. The steps of a handshake wait for one another.
    fn count_answer(&mut self, id: NodeId, due: &Due<Pending>, now: ClockReading) {
        if !matches!(due.pending, Pending::Handshake(_)) {
            self.node_mut(id).pace.answered(due.since, now.boot);
            self.metrics.answered(id, due.since, now.boot);
        }
    }

    fn understood(
        &mut self,
        id: NodeId,
        due: &Due<Pending>,
        token: Token<'_>,
        now: ClockReading,
    ) -> Result<(), Mistyped> {
        match due.pending {
            Pending::Ask { claim, ask, by_digest, .. } => {
                self.asked(id, claim, (ask, by_digest, due.since), token, now)
            }
            Pending::Check { claim, vote } => self.checked(id, claim, vote, due.since, token, now),
            Pending::Delete { claim, followed } => self.deleted(id, claim, followed, token, now),
            Pending::DropOthers | Pending::Enrol => {
                self.restart_guard_written(id, due.pending, token, now)
            }
            Pending::Extend { .. } | Pending::Undo { .. } | Pending::WriteBack { .. } => {
                self.counted(id, due.pending, token, now)
            }
            Pending::Handshake(step) => self.step_answered(id, step, token, now),
            Pending::History => self.history_answered(id, token, now),
            Pending::Observe(observer, read) => self.observer_read(observer, id, read, token, now),
            Pending::Move { claim, counter, by_digest } => {
                self.moved(id, claim, (counter, by_digest, due.since), token, now)
            }
            Pending::Kill => number(token, |_| self.lay_ghosts(id)),
            Pending::Caching
            | Pending::Look { .. }
            | Pending::Remaining { .. }
            | Pending::Track { .. } => self.way_told(id, due.pending, token, now),
            Pending::ForceUnlock(view)
            | Pending::ViewDigest(view)
            | Pending::ViewLine(view)
            | Pending::ViewPermits(view)
            | Pending::ViewShared(view)
            | Pending::ViewTtl(view)
            | Pending::ViewType(view)
            | Pending::ViewValue(view) => self.viewed(id, due, view, token, now),
        }
    }

    /// The answer is for a lock that waits: of what is in its way, or of notifications.
    fn way_told(
        &mut self,
        id: NodeId,
        pending: Pending,
        token: Token<'_>,
        now: ClockReading,
    ) -> Result<(), Mistyped> {
        match pending {
            Pending::Caching | Pending::Track { .. } => {
                self.tracking_answered(id, pending, token, now)
            }
            Pending::Look { lock, round, what } => {
                self.looked_in_line(id, (lock, round, what), token, now)
            }
            Pending::Remaining { lock, round } => {
                number(token, |ms| self.way_blocked(id, lock, round, ms, now))
            }
            _ => Err(Mistyped),
        }
    }

    /// An ask was answered. One in line tells also where the ticket stands.
    fn asked(
        &mut self,
        id: NodeId,
        claim: ClaimId,
        (ask, by_digest, since): (Command, bool, Timestamp),
        token: Token<'_>,
        now: ClockReading,
    ) -> Result<(), Mistyped> {
        let in_line = ask.asks_in_line();
        let of_permit = ask.is_for_permit();
        let told = in_line.then(|| Told::read(token, of_permit)).flatten();
        if let Some(told) = told.filter(|told| self.can_be_told(claim, told)) {
            self.place_told(id, claim, told, now);
            self.in_line_answered(id, claim, told, since, now);
        } else if in_line && told.is_none() && is_of_line(token) {
            // Data that no lock has made is in this line, such as a stamp without end. That is not an error of the protocol:
            // the node fails to vote on this lock, and the other locks on the connection go on.
            let fails = Answer::Vote(Vote::Fail(Cause::WrongType));
            self.script_answered(id, Unproven::of_ask(claim, fails), since, now);
        } else if !in_line || !self.refuses_line(id, claim, token, now) {
            return self.ask_answered(id, claim, (ask, by_digest, since), token, now);
        }
        Ok(())
    }

    /// Whether a node can have told that: a counter to a lock that is fenced, and one that its mode can have. How a claim was
    /// asked for that has changed its mode since is not known.
    fn can_be_told(&self, claim: ClaimId, told: &Told) -> bool {
        let is_as_asked = |claim: &&Claim| !claim.is_downgraded() && !claim.is_upgraded();
        match (told, self.claims.find(claim).filter(is_as_asked)) {
            (Told::Granted { grant, .. }, Some(claim)) => claim.kind().ask.is_answered_by(*grant),
            _ => true,
        }
    }

    /// The restart guard's TTL says whether a vote counts.
    fn checked(
        &mut self,
        id: NodeId,
        claim: ClaimId,
        vote: Vote,
        since: Timestamp,
        token: Token<'_>,
        now: ClockReading,
    ) -> Result<(), Mistyped> {
        let vote = self.check_answered(id, claim, vote, token, since, now)?;
        let grant = Unproven::of_ask(claim, Answer::Vote(vote));
        if vote != Vote::Grant || !self.awaits_proof(id, grant, since, now) {
            self.count_vote(id, claim, vote, now);
        }
        Ok(())
    }

    /// Once all steps of a handshake are answered, the node may be let in.
    fn step_answered(
        &mut self,
        id: NodeId,
        step: Step,
        token: Token<'_>,
        now: ClockReading,
    ) -> Result<(), Mistyped> {
        let handshake = self.handshake_answered(id, step, token, now)?;
        handshake.into_iter().for_each(|handshake| self.let_in(id, handshake, now));
        Ok(())
    }

    /// The node has said whether it was a replica meanwhile, which grants may have waited for.
    fn history_answered(
        &mut self,
        id: NodeId,
        token: Token<'_>,
        now: ClockReading,
    ) -> Result<(), Mistyped> {
        let (grants, proof) = self.history_told(id, token, now)?;
        let cause = match proof {
            Proof::Same => None,
            Proof::Other => Some(self.node(id).link.cause()),
            Proof::Undecided(cause) => {
                Some(self.unread(id, grants.iter().map(|grant| grant.claim()), cause, now))
            }
        };
        for &grant in &grants {
            match cause {
                None => self.grant_proven(id, grant, now),
                Some(cause) => self.count_vote(id, grant.claim(), Vote::Fail(cause), now),
            }
        }
        self.node_mut(id).restart_guard.give_back(grants);
        Ok(())
    }

    /// The answer is to somebody who looks at a resource.
    fn viewed(
        &mut self,
        id: NodeId,
        due: &Due<Pending>,
        view: ViewId,
        token: Token<'_>,
        now: ClockReading,
    ) -> Result<(), Mistyped> {
        match due.pending {
            Pending::ForceUnlock(_) => self.force_unlock_answered(view, id, token),
            Pending::ViewDigest(_) => self.view_digest(view, id, token),
            Pending::ViewLine(_) => self.view_line(view, id, token),
            Pending::ViewPermits(_) => self.view_permits(view, id, token, now),
            Pending::ViewShared(_) => self.view_shared(view, id, token, now),
            Pending::ViewTtl(_) => self.view_ttl(view, id, token, due.since, now),
            Pending::ViewType(_) => self.view_type(view, id, token),
            _ => self.view_value(view, id, token),
        }
    }

    /// The answer to a move is a vote as any other, and may be that of a node that is healed.
    fn moved(
        &mut self,
        id: NodeId,
        claim: ClaimId,
        (counter, by_digest, since): (u64, bool, Timestamp),
        token: Token<'_>,
        now: ClockReading,
    ) -> Result<(), Mistyped> {
        let how = (counter, by_digest);
        if let Some(answer) = self.move_answered(id, claim, how, token, now)? {
            self.script_answered(id, Unproven::of_move(claim, answer), since, now);
        }
        Ok(())
    }

    /// A script was run for an ask that was sent at `since`. It has read the restart guard itself.
    pub(super) fn script_answered(
        &mut self,
        id: NodeId,
        told: Unproven,
        since: Timestamp,
        now: ClockReading,
    ) {
        if !told.answer().is_grant() || !self.awaits_proof(id, told, since, now) {
            self.grant_proven(id, told, now);
        }
    }

    /// What a script has answered stands, if the node votes.
    fn grant_proven(&mut self, id: NodeId, told: Unproven, now: ClockReading) {
        let claim = told.claim();
        let vote = self.vote_in(told.answer(), id, claim, now);
        if !told.is_move() {
            self.note_refused(id, claim, vote);
        }
        let vote = match vote {
            Vote::Grant => self.guarded_vote_of_script(id, claim, now),
            _ => vote,
        };
        self.count_vote(id, claim, vote, now);
        if told.is_move() {
            self.healed(id, claim, vote, now);
        }
    }

    /// The answer says on how many keys something was done.
    fn counted(
        &mut self,
        id: NodeId,
        pending: Pending,
        token: Token<'_>,
        now: ClockReading,
    ) -> Result<(), Mistyped> {
        let told = count(token).ok_or(Mistyped)?;
        let (Pending::Extend { by_digest, .. }
        | Pending::Undo { by_digest, .. }
        | Pending::WriteBack { by_digest, .. }) = pending
        else {
            return Err(Mistyped);
        };
        let answer = told.to_request(by_digest);
        if answer == Count::NoScript {
            self.node_mut(id).forget_scripts();
        }
        match pending {
            Pending::Extend { claim, round, .. } => {
                self.extension_answered(id, claim, round, answer, now);
            }
            Pending::Undo { claim, .. } => self.undo_answered(id, claim, answer, now),
            Pending::WriteBack { claim, round, .. } => {
                if answer == Count::Of(0) {
                    self.key_gone(id, claim, now);
                }
                let lock = self.write_back_answered(id, claim, round, answer, now);
                lock.into_iter().for_each(|lock| self.decide(lock, now));
            }
            _ => {}
        }
        Ok(())
    }

    /// The vote in an answer to an ask. What else is in it is passed on.
    pub(super) fn vote_in(
        &mut self,
        answer: Answer,
        id: NodeId,
        claim: ClaimId,
        now: ClockReading,
    ) -> Vote {
        match answer {
            Answer::DenyFor(ms) => {
                if let Some(lock) = self.claims.find(claim).and_then(Claim::lock)
                    && let Some(round) = self.locks.find(lock).map(|lock| lock.round())
                {
                    self.way_blocked(id, lock, round, ms, now);
                }
                Vote::Deny
            }
            Answer::GrantWith(counter) => {
                self.counter_told(id, claim, counter);
                Vote::Grant
            }
            Answer::GrantSlot { offer, counter } => {
                let vote = self.slot_given(id, claim, offer);
                if counter > 0 && vote == Vote::Grant {
                    self.counter_told(id, claim, counter);
                }
                vote
            }
            Answer::Guarded(pttl) => self.guarded_vote(id, claim, Vote::Deny, pttl, now),
            Answer::Skewed(server_us) => {
                let proposed = self.claims.find(claim).map(Claim::counter);
                self.node_mut(id).record_clock(server_us, proposed.unwrap_or_default(), now);
                Vote::Fail(Cause::ClockSkew)
            }
            Answer::Vote(vote) => vote,
            Answer::NoScript => Vote::Fail(Cause::ServerError),
        }
    }

    /// Counts a vote that stands, unless the node or the claim has been given up.
    pub(super) fn count_vote(
        &mut self,
        id: NodeId,
        claim_id: ClaimId,
        vote: Vote,
        now: ClockReading,
    ) {
        self.metrics.of(id).voted(vote);
        // A node that is being left is no voter, whatever it says.
        if self.node(id).link.is_leaving() {
            return;
        }
        if let Some(claim) = self.claims.find_mut(claim_id) {
            match (vote, claim.lock()) {
                // What is being undone counts for nothing, and so does what has been refused.
                (Vote::Grant, _) if claim.is_owed(id) => {}
                (Vote::Deny, None) => self.denied_late(id, claim_id, now),
                (_, lock) => {
                    if vote == Vote::Grant {
                        claim.granted(id);
                    }
                    lock.into_iter().for_each(|lock| self.voted(id, lock, vote, now));
                    if vote == Vote::Deny {
                        self.heal_late(id, claim_id, now);
                    }
                }
            }
        }
        match vote {
            _ if !self.node(id).link.is_ready() => {}
            Vote::Fail(Cause::ReadOnly) => self.retire(id, Cause::ReadOnly, now),
            Vote::Fail(Cause::NoReplicas) => self.suspend(id, Cause::NoReplicas, now),
            _ => {}
        }
    }
}

/// Whether an answer begins as those of the line's scripts do.
fn is_of_line(answer: Token<'_>) -> bool {
    matches!(answer, Token::Simple(line) if line.starts_with(b"WAIT ") || line.starts_with(b"OK "))
}

/// Passes on a number; an error tells nothing.
fn number(token: Token<'_>, told: impl FnOnce(i64)) -> Result<(), Mistyped> {
    match token {
        Token::Int(number) => told(number),
        Token::Error(_) => {}
        _ => return Err(Mistyped),
    }
    Ok(())
}
