//! Matches received bytes with the requests that they answer.
//!
//! Invariant: order is all that matches replies. A reply without a request, or of a type that its
//! request cannot have, closes the link.

use super::Core;
use crate::proto::answer::{Answer, Count, count};
use crate::proto::classify::classify;
use crate::proto::core::links::{Due, Mistyped, Pending};
use crate::proto::core::restart_guard::Unproven;
use crate::proto::names::{ClaimId, LinkId, NodeId};
use crate::proto::time::{ClockReading, Timestamp};
use crate::proto::vote::{Cause, Vote};
use crate::resp::{Token, Violation};

impl Core {
    /// Reads the first `bytes` of [`space`](Self::space), which the socket filled. Read the clock
    /// after the socket.
    pub fn received(&mut self, link: LinkId, bytes: usize, now: ClockReading) {
        let (now, id) = (self.clamp(now), link.node());
        if link.is_push() {
            return self.push_received(id, bytes, now);
        }
        // The requests of a closed connection were counted as unanswered.
        if self.node(id).link.is_closed() {
            return;
        }
        // Taken out, so that tokens can borrow it while the answers change everything else.
        let node = self.node_mut(id);
        node.record_bytes(now.boot);
        let mut inbox = node.take_inbox();
        inbox.filled(bytes);
        loop {
            match self.nodes[id.index()].decode(inbox.unread()) {
                Ok(None) => break,
                // One answer, one transition: its decision is carried out before the next is read.
                Ok(Some((token, len))) => {
                    if self.answered(id, token, now).is_err() {
                        self.reject_bytes(id, None, now);
                    }
                    inbox.consume(len);
                }
                Err(violation) => self.reject_bytes(id, Some((&violation, inbox.unread())), now),
            }
            self.run(now);
            if self.node(id).link.is_closed() {
                inbox.clear();
                break;
            }
        }
        self.node_mut(id).give_back(inbox);
    }

    /// Closes the link of a node whose bytes are not replies to its requests.
    #[cold]
    fn reject_bytes(&mut self, id: NodeId, fault: Option<(&Violation, &[u8])>, now: ClockReading) {
        let (node, mut env) = self.node_in_env(id, now);
        match fault {
            Some((violation, unread)) => node.close_after(violation, unread, &mut env),
            None => node.close(Cause::UnexpectedReply, &mut env),
        }
    }

    /// Reads notifications from a push link. A notification for one waiter wakes it at once.
    fn push_received(&mut self, id: NodeId, bytes: usize, now: ClockReading) {
        if !self.node(id).push.is_open() {
            return;
        }
        let mut inbox = self.node_mut(id).push.take_inbox();
        inbox.filled(bytes);
        while self.node(id).push.is_open() {
            match self.nodes[id.index()].push.decode(inbox.unread()) {
                Ok(None) => break,
                Ok(Some((token, len))) => {
                    if self.push_notified(id, token, now).is_err() {
                        self.close_push(id, Cause::UnexpectedReply, now);
                    }
                    inbox.consume(len);
                }
                Err(_) => self.close_push(id, Cause::Violation, now),
            }
            self.run(now);
        }
        if !self.node(id).push.is_open() {
            inbox.clear();
        }
        self.node_mut(id).push.give_back(inbox);
        self.wake_all_if_notified(id);
        self.run(now);
        self.notify_published(id);
        self.run(now);
    }

    /// Matches an answer with the oldest request. If it comes unasked, or is of a type that the
    /// request cannot have, the order is lost, and the link is closed.
    fn answered(
        &mut self,
        id: NodeId,
        token: Token<'_>,
        now: ClockReading,
    ) -> Result<(), Mistyped> {
        let node = &mut self.nodes[id.index()];
        // RESP2 has no request ids. A surplus reply would be taken for the vote on the next
        // request.
        let Some(next) = node.pipeline.oldest() else { return Err(Mistyped) };
        let (is_handshake, checked) = match next.pending {
            Pending::Ask { claim, checked: true, .. } => (false, Some(claim)),
            pending => (matches!(pending, Pending::Handshake(_)), None),
        };
        if let (Token::Error(text), false) = (token, is_handshake) {
            node.note(text);
        }
        if let Some(claim) = checked {
            return self.half_answered(id, claim, token);
        }
        let Some(due) = node.pipeline.answered() else { return Err(Mistyped) };
        let answered = self.understood(id, &due, token, now);
        // Effects apply to the node as it was when it answered: before the link is closed below.
        self.run(now);
        if answered.is_err() {
            // The request fails with the link, like all behind it.
            self.node_mut(id).pipeline.unanswered(due);
            return answered;
        }
        self.nodes[id.index()].record_answer(&due, &mut env!(self, now));
        if env!(self, now).set_suspected(id, false) {
            self.send_held_back(id, now);
        }
        answered
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
                let unproven = self.ask_answered(id, claim, (ask, by_digest), token, now)?;
                self.script_answered(id, unproven, due.since, now)
            }
            Pending::Check { claim, vote } => self.checked(id, claim, vote, due.since, token, now),
            Pending::Delete { claim, followed } => {
                let deleted = deletion(token)?;
                let settled = self.at_claim(claim, now, |it| it.deleted(id, followed, deleted));
                self.end_undo(id, claim, settled.flatten(), now);
                Ok(())
            }
            Pending::Extend { by_digest, .. }
            | Pending::Undo { by_digest, .. }
            | Pending::WriteBack { by_digest, .. } => {
                let answer = count(token).ok_or(Mistyped)?.to_request(by_digest);
                self.counted(id, due.pending, answer, now);
                Ok(())
            }
            Pending::History => self.history_answered(id, token, now),
            Pending::Move { .. } => self.moved(id, due, token, now),
            Pending::Kill => number(token, |_| self.claims.lay_ghosts(id)),
            _ => self.other_answered(id, due, token, now),
        }
    }

    /// Handles an answer that is not for a claim, but for a view, an observer, a waiter, or the
    /// guard.
    fn other_answered(
        &mut self,
        id: NodeId,
        due: &Due<Pending>,
        token: Token<'_>,
        now: ClockReading,
    ) -> Result<(), Mistyped> {
        let (nodes, mut env) = (&mut self.nodes, env!(self, now));
        match due.pending {
            Pending::DropOthers | Pending::Enrol => {
                nodes.candidate(id, &mut env).written(due.pending, token)
            }
            Pending::Handshake(step) => nodes.answer(id, (step, token), &self.claims, &mut env),
            Pending::Observe(observer, read) => {
                self.observers.answered((observer, read), token, &mut nodes[id.index()], &mut env)
            }
            Pending::View(view, question) => {
                self.views.answered((view, question), due.since, (id, token), nodes, &mut env)
            }
            Pending::Caching | Pending::Track { .. } => {
                nodes[id.index()].take_tracking_answer(due.pending, token, &mut env)
            }
            Pending::TicketRead { lock, round, what } => {
                let answer = what.check(token)?;
                let decision =
                    self.with_waiter(lock, now, |it| it.record_read(id, round, what, answer));
                self.carry_out(lock, decision, now);
                Ok(())
            }
            Pending::Remaining { lock, round } => number(token, |ms| {
                let decision = self.with_waiter(lock, now, |it| it.record_remaining(id, round, ms));
                self.carry_out(lock, decision, now);
            }),
            _ => Err(Mistyped),
        }
    }

    /// Decides by the restart guard's TTL whether a vote counts.
    fn checked(
        &mut self,
        id: NodeId,
        claim: ClaimId,
        vote: Vote,
        since: Timestamp,
        token: Token<'_>,
        now: ClockReading,
    ) -> Result<(), Mistyped> {
        let pttl = match token {
            Token::Int(pttl) => Ok(pttl),
            Token::Error(text) => Err(classify(text).cause()),
            _ => return Err(Mistyped),
        };
        let watch = &mut self.nodes[id.index()].restart_guard;
        if let (Ok(pttl), true) = (pttl, watch.is_ours())
            && watch.record_ttl(since, pttl, self.config.drift, now.boot)
        {
            // The TTL fell faster than time has passed: the node's clock was set forward.
            self.nodes.doubt_clock(id, &mut env!(self, now));
        }
        // The key exists although the grant does not count, so it is undone.
        let counted = self.guarded_vote(id, vote, pttl, now);
        if vote == Vote::Grant && counted != Vote::Grant {
            self.undo_grants(id, [claim], now);
        }
        self.run(now);
        let grant = Unproven::of_ask(claim, Answer::Vote(counted));
        if counted != Vote::Grant || !self.awaits_proof(id, grant, since, now) {
            self.take_vote(id, claim, counted, now);
        }
        Ok(())
    }

    /// Handles the answer to whether the node was a replica in the meantime. Grants may wait for
    /// it.
    fn history_answered(
        &mut self,
        id: NodeId,
        token: Token<'_>,
        now: ClockReading,
    ) -> Result<(), Mistyped> {
        let (grants, cause) = self.nodes.candidate(id, &mut env!(self, now)).take_proof(token)?;
        if cause.is_some() {
            // The keys exist although the grants do not count.
            self.undo_grants(id, grants.iter().map(|grant| grant.claim()), now);
        }
        self.run(now);
        for &grant in &grants {
            match cause {
                None => self.grant_proven(id, grant, now),
                Some(cause) => self.take_vote(id, grant.claim(), Vote::Fail(cause), now),
            }
            self.run(now);
        }
        self.node_mut(id).restart_guard.give_back(grants);
        Ok(())
    }

    /// Handles the answer to a move: a vote like any other, or that of a node that is healed.
    fn moved(
        &mut self,
        id: NodeId,
        due: &Due<Pending>,
        token: Token<'_>,
        now: ClockReading,
    ) -> Result<(), Mistyped> {
        let Pending::Move { claim, counter, by_digest } = due.pending else { return Err(Mistyped) };
        let how = (counter, by_digest);
        let answer = self.move_answered(id, claim, how, token, now)?;
        let unproven = answer.map(|answer| Unproven::of_move(claim, answer));
        self.script_answered(id, unproven, due.since, now)
    }

    /// Handles a script's answer to a request sent at `since`. The script has read the restart
    /// guard.
    fn script_answered(
        &mut self,
        id: NodeId,
        unproven: Option<Unproven>,
        since: Timestamp,
        now: ClockReading,
    ) -> Result<(), Mistyped> {
        // The command was sent again, or its claim has ended.
        let Some(unproven) = unproven else { return Ok(()) };
        if !unproven.answer().is_grant() || !self.awaits_proof(id, unproven, since, now) {
            self.grant_proven(id, unproven, now);
        }
        Ok(())
    }

    fn grant_proven(&mut self, id: NodeId, unproven: Unproven, now: ClockReading) {
        let claim = unproven.claim();
        let vote = self.vote_in(unproven.answer(), id, claim, now);
        if !unproven.is_move() {
            self.note_refused(id, claim, vote);
        }
        let counted = match vote {
            // The script has read the restart guard's TTL itself.
            Vote::Grant if self.config.restart_guard_key().is_some() => {
                self.guarded_vote(id, vote, Ok(0), now)
            }
            _ => vote,
        };
        if vote == Vote::Grant && counted != Vote::Grant {
            // The key exists although the grant does not count.
            self.undo_grants(id, [claim], now);
        }
        // A node whose guard shows a fault is excluded before its vote is counted.
        self.run(now);
        self.take_vote(id, claim, counted, now);
        if unproven.is_move() {
            self.run(now);
            self.transition(claim, now, |lock| lock.take_healed(id, counted));
        }
    }

    /// Handles an answer that is a number of keys.
    fn counted(&mut self, id: NodeId, pending: Pending, answer: Count, now: ClockReading) {
        if answer == Count::NoScript {
            self.node_mut(id).forget_scripts();
        }
        match pending {
            Pending::Extend { claim, round, .. } => {
                // A missing key counts in any round, even if another node's server may have
                // answered.
                if answer == Count::Of(0) {
                    self.key_gone(id, claim, now);
                }
                // Extensions in flight when the node was excluded have failed already.
                if !self.node(id).link.is_leaving() {
                    self.transition(claim, now, |lock| lock.take_extension(id, round, answer));
                }
            }
            Pending::Undo { claim, .. } => {
                let settled = self.at_claim(claim, now, |it| it.undo_answered(id, answer));
                self.end_undo(id, claim, settled.flatten(), now);
            }
            Pending::WriteBack { claim, round, .. } => {
                if answer == Count::Of(0) {
                    self.key_gone(id, claim, now);
                    self.run(now);
                }
                self.transition(claim, now, |lock| {
                    let decision = lock.take_write_back(id, round, answer);
                    lock.env.effects.decided(lock.id, decision);
                });
            }
            _ => {}
        }
    }

    /// Counts a vote and follows its decision. A node that takes no writes stops voting.
    fn take_vote(&mut self, id: NodeId, claim: ClaimId, vote: Vote, now: ClockReading) {
        self.common.metrics.of(id).voted(vote);
        // A node that is excluded for the rest of its connection does not vote, even if it grants.
        if self.node(id).link.is_leaving() {
            return;
        }
        if let Some((lock, decision)) = self.count_vote(id, claim, vote, now) {
            self.follow(lock, decision, now);
        }
        if vote == Vote::Grant {
            return;
        }
        self.run(now);
        // After the grant that this denial may decide, which heals all nodes that denied before.
        if vote == Vote::Deny {
            self.transition(claim, now, |lock| lock.heal_late(id));
            self.run(now);
        }
        match vote {
            _ if !self.node(id).link.is_ready() => {}
            Vote::Fail(Cause::ReadOnly) => {
                // The server has become a replica.
                self.nodes[id.index()].retire(Cause::ReadOnly, &mut env!(self, now));
            }
            Vote::Fail(cause @ Cause::NoReplicas) => {
                // The node still takes extensions and undos.
                self.nodes.candidate(id, &mut env!(self, now)).suspend(cause);
            }
            _ => {}
        }
    }
}

/// Reads whether a server's own compare-and-delete command deleted the key. An answer of another
/// type closes the link, even if the claim is no longer known.
fn deletion(token: Token<'_>) -> Result<Result<bool, Cause>, Mistyped> {
    match token {
        Token::Int(deleted @ 0..=1) => Ok(Ok(deleted == 1)),
        Token::Error(text) => Ok(Err(classify(text).cause())),
        _ => Err(Mistyped),
    }
}

/// Passes on a number. An error carries no information.
fn number(token: Token<'_>, unproven: impl FnOnce(i64)) -> Result<(), Mistyped> {
    match token {
        Token::Int(number) => unproven(number),
        Token::Error(_) => {}
        _ => return Err(Mistyped),
    }
    Ok(())
}
