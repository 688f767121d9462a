//! Sends an attempt's request to each node, now or once its link is ready.
//!
//! Invariant: a request that is lost with its connection is never sent again. Its vote fails, and
//! the next attempt has another token.

use std::time::Duration;

use crate::proto::core::claims::Claim;
use crate::proto::core::effects::{ClaimEffect, Decision};
use crate::proto::core::links::{Ability, Pending};
use crate::proto::core::{Core, MAX_PIPELINE};
use crate::proto::fair_queue::TICKET_TTL;
use crate::proto::lock_kind::Command;
use crate::proto::mutants::mutant;
use crate::proto::names::{ClaimId, LockId, NodeId, NodeSet};
use crate::proto::time::ClockReading;
use crate::proto::vote::{Cause, Vote};

impl Core {
    /// Sends the request to these nodes and limits the time for their answers.
    pub(in crate::proto::core) fn offer_to(
        &mut self,
        id: LockId,
        nodes: NodeSet,
        now: ClockReading,
    ) -> Decision {
        let Some((lock, active)) = self.locks.at_work(id) else { return Decision::Continue };
        let (claim, open, lead) = (lock.claim(), active.attempt.open, active.attempt.lead);
        let lead_until = lead.map(|lead| now.boot + self.nodes.allowance(lead));
        let mut patience = self.config.settings.response_timeout;
        for node in nodes.iter() {
            patience = patience.max(self.offer_node(node, claim, open, now));
        }
        let decided = self.transition(id, now, |lock| {
            lock.ask_for(patience, lead_until);
            lock.decide()
        });
        decided.unwrap_or_default()
    }

    /// Sends the request to one node, now or once its link is ready; returns how long the link may
    /// take. At a suspected node a lock has one request open: the next is held back until the node
    /// answers.
    fn offer_node(
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
        } else if takes_asks && node.pipeline.len() < MAX_PIPELINE {
            self.send_ask(node_id, claim, now);
            return Duration::ZERO;
        } else if takes_asks {
            Cause::Backlog
        } else {
            let (node, mut env) = self.node_in_env(node_id, now);
            if node.reopen(&mut env) {
                // A first contact gets the time that it needs; a node that failed before gets no
                // extra time.
                let is_first = node.link.has_not_failed();
                self.claims.find_mut(claim).into_iter().for_each(|claim| claim.queue(node_id));
                return match is_first {
                    true => self.config.settings.connect_timeout,
                    false => Duration::ZERO,
                };
            }
            node.link.cause()
        };
        self.common.metrics.of(node_id).voted(Vote::Fail(cause));
        self.transition(claim, now, |lock| lock.count(node_id, Vote::Fail(cause)));
        Duration::ZERO
    }

    fn hold_back(&mut self, node: NodeId, claim: ClaimId) {
        let alive = self.claims.len();
        let Some(it) = self.claims.find_mut(claim) else { return };
        it.queue(node);
        let claims = &self.claims;
        let waits = |it: &ClaimId| claims.find(*it).is_some_and(|it| it.is_queued(node));
        self.nodes[node.index()].held_back().add(claim, alive, waits);
    }

    pub(super) fn send_ask(&mut self, node_id: NodeId, id: ClaimId, now: ClockReading) {
        debug_assert!(self.node(node_id).link.takes_asks(), "only a voter is asked");
        let Some(claim) = self.claims.find_mut(id) else { return };
        claim.sent(node_id, now.boot.after_ms(claim.ttl_ms()));
        self.common.metrics.of(node_id).asks += 1;
        let node = &mut self.nodes[node_id.index()];
        // A lock with a ticket tracks by its own reads, which cover fewer keys than its request.
        if claim.is_read_by_its_ask() && claim.ticket().is_none() {
            node.track_next(now.boot);
        }
        let can_undo = node.capabilities.can_undo();
        let (ttl_ms, counter) = (claim.ttl_ms(), claim.counter());
        let ask = match claim.ticket() {
            None => claim.kind().ask,
            Some(ticket) => self.ask_with_ticket(node_id, id, ticket, now),
        };
        let ask = if can_undo { ask } else { ask.as_script() };
        let checked = ask.is_checked_behind() && self.config.restart_guard_key().is_some();
        self.send_with_proof(node_id, id, ask, (ttl_ms, counter), now, |by_digest| Pending::Ask {
            claim: id,
            ask,
            by_digest,
            checked,
        });
    }

    /// Returns the request with the ticket, if the node has a queue and the ticket is still in use.
    fn ask_with_ticket(
        &mut self,
        node: NodeId,
        id: ClaimId,
        ticket: ClaimId,
        now: ClockReading,
    ) -> Command {
        let can = !matches!(self.node(node).capabilities.queue(), Ability::Refused(_));
        if let Some(ticket) = self.claims.find_mut(ticket).filter(|ticket| ticket.is_in_use())
            && can
        {
            ticket.sent(node, now.boot + TICKET_TTL);
            return ticket.kind().ask;
        }
        self.claims.find(id).map_or(Command::SetIfAbsent, |claim| claim.kind().ask)
    }

    pub(in crate::proto::core) fn send_queued(&mut self, node: NodeId, now: ClockReading) {
        for id in self.claims.that(|claim| claim.is_queued(node)).collect::<Vec<_>>() {
            self.send_ask(node, id, now);
        }
    }

    pub(in crate::proto::core) fn fail_queued_asks(&mut self, node: NodeId) {
        for claim in self.claims.that(|claim| claim.is_queued(node)) {
            self.common.effects.of_claim(node, claim, ClaimEffect::FailQueuedAsk);
        }
    }

    pub(in crate::proto::core) fn ask_unanswered(
        &mut self,
        node: NodeId,
        id: ClaimId,
        untouched: bool,
        now: ClockReading,
    ) {
        if let Some(ticket) = self.claims.ticket_of(id).filter(|_| !untouched) {
            // The request may still run and re-create a ticket that was removed.
            ticket.connection_lost(node, false);
        }
        self.at_claim(id, now, |claim| claim.lose_ask(node, untouched));
        if mutant!(AskSentAgain) {
            let claim = self.claims.find_mut(id).filter(|claim| claim.lock().is_some());
            if let Some(claim) = claim {
                return claim.queue(node);
            }
        }
        // Never sent twice: the vote fails, and the next attempt has another token
        // (docs/how-it-works/protocol.md#links).
        self.vote_failed(node, id, now);
    }

    pub(in crate::proto::core) fn vote_failed(
        &mut self,
        node: NodeId,
        claim: ClaimId,
        now: ClockReading,
    ) {
        let cause = self.node(node).link.cause();
        let decided = self.transition(claim, now, |lock| {
            lock.env.metrics.of(node).voted(Vote::Fail(cause));
            lock.count(node, Vote::Fail(cause));
            (lock.id, lock.decide())
        });
        if let Some((lock, decision)) = decided {
            self.common.effects.decided(lock, decision);
        }
    }

    /// Returns the suspected nodes with an open request or undo of an earlier attempt of this lock.
    pub(super) fn open_asks(&self, id: LockId) -> NodeSet {
        if mutant!(SuspectAskedAgain) {
            return NodeSet::default();
        }
        if self.common.suspected.is_empty() {
            return NodeSet::default();
        }
        let Some((lock, active)) = self.locks.at_work(id) else { return NodeSet::default() };
        let last = self.claims.find(lock.claim());
        let last = last.map_or_else(NodeSet::default, Claim::undoing);
        active.attempt.open.or(last).and(self.common.suspected)
    }

    /// Sends the requests that were held back until this node answered.
    #[cold]
    pub(in crate::proto::core) fn send_held_back(&mut self, id: NodeId, now: ClockReading) {
        let held_back = self.node_mut(id).held_back().take();
        if !self.node(id).link.takes_asks() {
            return;
        }
        for &claim in &held_back {
            if self.claims.find(claim).is_some_and(|claim| claim.is_queued(id)) {
                self.send_ask(id, claim, now);
            }
        }
        self.node_mut(id).held_back().give_back(held_back);
    }
}
