//! Follows decisions and applies effects.
//!
//! Invariant: subjects call each other only downwards. The decision of a transition comes here as a
//! return value, and what concerns other objects as a queued effect.

use super::Core;
use super::claims::undo::Settled;
use super::effects::{ClaimEffect, Decision, Effect, LockEffect, NodeEffect};
use super::links::Pending;
use super::locks::Phase;
use super::waiting::{QueueKey, Tickets};
use crate::proto::event::{Event, RefusalReason};
use crate::proto::names::{ClaimId, LinkId, LockId, NodeId, NodeSet};
use crate::proto::vote::{Cause, Vote};
use crate::proto::{lock_mode::LockMode, mutants::mutant, time::ClockReading};

impl Core {
    #[inline(always)]
    pub(super) fn carry_out(&mut self, id: LockId, decision: Decision, now: ClockReading) {
        self.follow(id, decision, now);
        self.run(now);
    }

    /// Follows a decision. Its effects stay queued.
    #[inline(always)]
    pub(super) fn follow(&mut self, id: LockId, decision: Decision, now: ClockReading) {
        // Most answers decide nothing.
        if !matches!(decision, Decision::Continue) {
            self.act_on(id, decision, now);
        }
    }

    #[inline(always)]
    pub(super) fn run(&mut self, now: ClockReading) {
        // The transitions of an uncontended lock queue none.
        if !self.common.effects.is_empty() {
            self.apply_all(now);
        }
    }

    #[inline(never)]
    fn apply_all(&mut self, now: ClockReading) {
        while let Some(effect) = self.common.effects.next() {
            self.apply(effect, now);
        }
    }

    fn apply(&mut self, effect: Effect, now: ClockReading) {
        match effect {
            Effect::Decided(lock, decision) => self.follow(lock, decision, now),
            Effect::OfLock(lock, effect) => self.apply_to_lock(lock, effect, now),
            Effect::OfClaim(node, claim, effect) => self.apply_to_claim(node, claim, effect, now),
            Effect::OfNode(node, effect) => self.apply_to_node(node, effect, now),
            // Scheduled locks ask one after the other; they may be doing so already.
            Effect::RunScheduled => {
                if self.queues.begin_scheduled() {
                    self.common.effects.push(Effect::RunNextScheduled);
                }
            }
            Effect::RunNextScheduled => self.next_scheduled(now),
            Effect::WakeObserver(observer) => {
                self.observers.wake(observer, &mut self.nodes, &mut env!(self, now));
            }
            Effect::SetUp => self.nodes.set_up(&mut env!(self, now)),
        }
    }

    fn apply_to_lock(&mut self, id: LockId, effect: LockEffect, now: ClockReading) {
        let decision = match effect {
            LockEffect::ChannelLostAt(node) => {
                return self.with_waiter(id, now, |it| it.lose_channels_at(node));
            }
            LockEffect::WakeBy(node) => self.with_waiter(id, now, |it| it.wake_by(node)),
            LockEffect::CompanionGranted => return self.companion_granted(id, now),
            LockEffect::CompanionExpired => {
                // The claim kept by an upgraded lock has expired. The lock does not need it.
                let holder = self.locks.mode_change(id).holder();
                return holder.into_iter().for_each(|holder| self.drop_companion(holder, now));
            }
            LockEffect::Recount => {
                self.transition(id, now, |lock| lock.decide()).unwrap_or_default()
            }
            LockEffect::Downgraded(was_extending) => {
                self.transition(id, now, |lock| lock.downgraded(was_extending));
                return;
            }
            LockEffect::Extended => {
                self.ask_to_share(id, now);
                return;
            }
            LockEffect::ExtensionVote(node, vote) => {
                self.transition(id, now, |it| it.extension_vote(node, it.lock.round(), vote));
                return;
            }
            LockEffect::LeaveQueues => return self.leave_lost(id, now),
            LockEffect::AdmitNext => return self.let_next_ask(id, now),
            LockEffect::ReadKeyAt(node) => self.with_waiter(id, now, |it| it.read_again(node)),
            LockEffect::Lost(cause) => {
                self.lost_with_companion(id, cause, now);
                return self.common.effects.of_lock(id, LockEffect::LeaveQueues);
            }
        };
        self.follow(id, decision, now);
    }

    fn apply_to_claim(
        &mut self,
        node: NodeId,
        id: ClaimId,
        effect: ClaimEffect,
        now: ClockReading,
    ) {
        match effect {
            ClaimEffect::Disown => {
                self.at_claim(id, now, |claim| claim.disown(node));
                self.vote_failed(node, id, now);
            }
            ClaimEffect::FailExtension(round, cause) => {
                let vote = Vote::Fail(cause);
                self.transition(id, now, |lock| lock.extension_vote(node, round, vote));
            }
            ClaimEffect::FailQueuedAsk => {
                if self.claims.find_mut(id).is_some_and(|claim| claim.unqueue(node)) {
                    self.vote_failed(node, id, now);
                }
            }
            ClaimEffect::UndoLost(cause) => {
                let settled = self.at_claim(id, now, |claim| claim.lose_undo(node, cause));
                self.end_undo(node, id, settled.flatten(), now);
            }
            ClaimEffect::VoteFailed => self.vote_failed(node, id, now),
            ClaimEffect::WriteBackLost(round, cause) => {
                self.transition(id, now, |lock| lock.fail_write_back(node, round, cause));
            }
        }
    }

    fn apply_to_node(&mut self, id: NodeId, effect: NodeEffect, now: ClockReading) {
        let (nodes, mut env) = (&mut self.nodes, env!(self, now));
        let watchers = || self.locks.watchers(id);
        match effect {
            NodeEffect::Enrol(span) => nodes.candidate(id, &mut env).enrol_in_set(span),
            NodeEffect::FailQueued => {
                self.fail_queued_asks(id);
                self.fail_queued_extensions(id);
                self.common.effects.of_node(id, NodeEffect::FailQueuedViews);
            }
            NodeEffect::FailQueuedViews => self.views.fail_queued(id, nodes, &mut env),
            NodeEffect::FollowUp(next) => nodes.candidate(id, &mut env).follow_up(next),
            NodeEffect::ResumeNonVoter => {
                self.send_owed(id, now);
                self.go_on_without_vote(id, now);
            }
            NodeEffect::FailQueuedAsks => self.fail_queued_asks(id),
            NodeEffect::LeaveIfIdle => nodes[id.index()].leave_if_idle(&mut env),
            // The push link is opened again if a lock waits.
            NodeEffect::PushLost(retry_at) if watchers().next().is_some() => env.arm(retry_at),
            NodeEffect::PushLost(_) => {}
            NodeEffect::ReadKeys => env.effects.of_locks(watchers(), LockEffect::ReadKeyAt(id)),
            NodeEffect::ReportsLost => env.effects.of_locks(watchers(), LockEffect::WakeBy(id)),
            NodeEffect::RefreshObservers => self.observers.refresh(id, nodes, &mut env),
            NodeEffect::ForgetObserved => self.observers.lose(id, nodes, &mut env),
            NodeEffect::SettleReleases => self.releases_go_on_without(id, now),
            NodeEffect::Notified(queue) => self.notified(queue, id, now),
            NodeEffect::Retired(cause) => self.node_retired(id, cause, now),
            NodeEffect::SendOwed => self.send_owed(id, now),
            NodeEffect::Sever(cause) => {
                nodes[id.index()].sever(cause, self.claims.ghosts(id), &mut env)
            }
            NodeEffect::Severed(ghosts) => self.node_severed(id, ghosts, now),
            NodeEffect::Unanswered(pending, untouched) => {
                self.unanswered(id, pending, untouched, now);
            }
            NodeEffect::Admitted => self.node_votes(id, now),
        }
    }
}

impl Core {
    /// Passes a decision on to the subjects that carry it out.
    fn act_on(&mut self, id: LockId, decision: Decision, now: ClockReading) {
        let next = match decision {
            Decision::Continue => return,
            Decision::Ask(lead) => {
                if self.begin_attempt(id, lead, now) {
                    self.with_waiter_and_claims(id, now, |it, claims| it.begin_attempt(claims));
                }
                let first = lead.map_or_else(|| self.nodes.all(), NodeSet::from);
                self.offer_to(id, first, now)
            }
            Decision::AskMore(nodes) => self.offer_to(id, nodes, now),
            Decision::MoveAt(nodes) => return self.move_at(id, nodes, now),
            Decision::Listen(leads) => return self.with_waiter(id, now, |it| it.listen(leads)),
            Decision::Wake => self.with_waiter(id, now, |it| it.wake()),
            Decision::ReadLead => return self.with_waiter(id, now, |it| it.read_lead()),
            Decision::Suspect(nodes) => {
                self.nodes.suspect(nodes, &mut env!(self, now));
                return self.common.effects.of_lock(id, LockEffect::Recount);
            }
            Decision::Granted => return self.lock_granted(id, now),
            Decision::Repeat => {
                self.abandon_attempt(id, now);
                self.common.effects.decided(id, Decision::Ask(None));
                return self.run_scheduled();
            }
            Decision::Retry(denied) => return self.attempt_over(id, denied, now),
            Decision::Refused(reason) => return self.lock_refused(id, reason, now),
        };
        self.common.effects.decided(id, next);
    }

    fn abandon_attempt(&mut self, id: LockId, now: ClockReading) {
        let asks = |phase| matches!(phase, Phase::Asking | Phase::Fencing);
        let lock = self.locks.find(id).filter(|lock| asks(lock.phase));
        if let Some(claim) = lock.map(|lock| lock.claim()) {
            self.abandon(claim, now);
        }
    }

    /// Lets a lock go on waiting after an attempt that these nodes have denied.
    fn attempt_over(&mut self, id: LockId, denied: NodeSet, now: ClockReading) {
        let Some(lock) = self.locks.find(id) else { return };
        let (claim, round) = (lock.claim(), lock.round());
        let tickets = self.with_waiter_and_claims(id, now, |it, claims| it.pause(claims));
        self.abandon_tickets(tickets, now);
        // Before the next attempt: on each connection the undo of this one goes first.
        self.abandon(claim, now);
        // A verdict need not wait for all votes: a later denial can still change the lead.
        if let Some(claim) = self.claims.find_mut(claim) {
            claim.report_late_to(id, round);
        }
        for decision in self.with_waiter(id, now, |it| it.settle_in(denied)) {
            self.common.effects.decided(id, decision);
        }
        self.run_scheduled();
    }

    fn abandon_tickets(&mut self, tickets: Tickets, now: ClockReading) {
        tickets.into_iter().flatten().for_each(|ticket| self.abandon(ticket, now));
    }

    /// Leaves the queue on the nodes after a grant or a refusal.
    fn give_up_place(&mut self, id: LockId, now: ClockReading) {
        let tickets = self.with_waiter(id, now, |it| it.give_up_ticket());
        if mutant!(NeverLeavesQueue) {
            let [_, ticket] = tickets;
            return ticket.into_iter().for_each(|ticket| self.part_from_lock(ticket, now));
        }
        self.abandon_tickets(tickets, now);
    }

    fn lock_granted(&mut self, id: LockId, now: ClockReading) {
        let Some((lock, active)) = self.locks.at_work(id) else { return };
        if let Some(holder) = active.mode_change.holder() {
            // The loss is applied first: a companion must not prolong a lock whose lease has
            // expired.
            self.lease_due(holder, now);
            return self.common.effects.of_lock(id, LockEffect::CompanionGranted);
        }
        let (claim, mode) = (lock.claim(), lock.mode());
        let (waited, is_auto_extended) = (active.waits(), active.hold.is_auto_extended());
        self.common.metrics.granted(active.waiting.asked_at(), now.boot);
        self.common.events.push_back(Event::Granted(id));
        self.holdings.granted(id, active.keys.iter().map(|key| self.queues.key(key)));
        if waited {
            // At once: as long as the ticket is first, the nodes give no other waiter the turn.
            self.give_up_place(id, now);
            self.with_waiter(id, now, |it| it.record_wait());
            self.unsubscribe(id, now);
        }
        if is_auto_extended {
            self.transition(id, now, |lock| lock.auto_extend_from_now());
        }
        if !self.observers.is_empty() {
            let mut env = env!(self, now);
            self.observers.claim_changed(claim, &self.claims, &mut self.nodes, &mut env);
        }
        match mode {
            LockMode::Exclusive => return,
            LockMode::Permit { .. } => {
                self.transition(id, now, |lock| lock.heal());
            }
            LockMode::Shared => {}
        }
        self.let_next_ask(id, now);
    }

    /// Lets the next waiters for a shared lock ask, because they may share it.
    fn let_next_ask(&mut self, id: LockId, now: ClockReading) {
        if self.locks.find(id).is_some_and(|lock| lock.mode() != LockMode::Exclusive) {
            self.with_waiter(id, now, |it| it.leave_queues());
            self.run_scheduled();
        }
    }

    fn lock_refused(&mut self, id: LockId, reason: RefusalReason, now: ClockReading) {
        self.abandon_attempt(id, now);
        let Some(active) = self.locks.active_mut(id) else { return };
        let refusal = active.refusal(reason, now);
        if active.mode_change.is_companion() {
            self.companion_refused(id, refusal);
            return self.run_scheduled();
        }
        self.common.metrics.refused(refusal.reason, active.waiting.asked_at(), now.boot);
        self.common.events.push_back(Event::Refused(id, refusal));
        if active.waits() {
            self.give_up_place(id, now);
            self.unsubscribe(id, now);
            self.with_waiter(id, now, |it| it.leave_queues());
        }
        self.locks.free(id);
        self.run_scheduled();
    }

    fn leave_lost(&mut self, id: LockId, now: ClockReading) {
        self.with_waiter(id, now, |it| it.leave_queues());
        self.lost_due(id, now);
        self.run_scheduled();
    }

    /// Wakes the first waiter for a resource that has changed.
    fn notified(&mut self, queue: QueueKey, node: NodeId, now: ClockReading) {
        if let Some(id) = self.queues.front(queue) {
            let decision = self.with_waiter(id, now, |it| it.notified(node));
            self.follow(id, decision, now);
        }
    }

    fn next_scheduled(&mut self, now: ClockReading) {
        if let Some(id) = self.queues.next_scheduled() {
            let decision =
                self.with_waiter_and_claims(id, now, |it, claims| it.scheduled_due(claims));
            self.common.effects.decided(id, decision);
            self.common.effects.push(Effect::RunNextScheduled);
        }
    }

    /// Settles an undo that was confirmed, or that this connection will not confirm.
    pub(super) fn end_undo(&mut self, node: NodeId, id: ClaimId, end: Settled, now: ClockReading) {
        match end {
            Some((vote, Some(lock))) => {
                self.release_by(lock, now, |lock| lock.take_release_vote(node, vote));
            }
            Some((_, None)) => self.claims.free(id),
            None => {}
        }
    }
}

impl Core {
    /// Begins the handshake on a link whose socket is connected.
    pub fn connected(&mut self, link: LinkId, now: ClockReading) {
        let (now, id) = (self.clamp(now), link.node());
        if link.is_push() {
            return self.nodes[id.index()].begin_push(&env!(self, now));
        }
        // A new request must not run before an undo that is owed on this node.
        let is_burdened = self.claims.is_burdened(id);
        if self.nodes[id.index()].begin_connection(is_burdened, &mut env!(self, now)) {
            self.send_queued(id, now);
        }
    }

    /// Ends a link that could not be opened, or whose connection has ended.
    pub fn disconnected(&mut self, link: LinkId, cause: Cause, now: ClockReading) {
        let now = self.clamp(now);
        match link.is_push() {
            true => self.nodes[link.node().index()].sever_push(cause, &mut env!(self, now)),
            false => self.common.effects.of_node(link.node(), NodeEffect::Sever(cause)),
        }
        self.run(now);
        self.check();
    }

    /// Admits a node to the vote, and sends what has waited for it.
    fn node_votes(&mut self, id: NodeId, now: ClockReading) {
        // Undos first: our next request must not find the key of an attempt that we gave up.
        self.nodes[id.index()].mark_ready(&mut env!(self, now));
        self.send_owed(id, now);
        self.send_queued(id, now);
        self.go_on_without_vote(id, now);
        self.nodes[id.index()].track(&mut env!(self, now));
    }

    /// Sends what needs no vote.
    fn go_on_without_vote(&mut self, id: NodeId, now: ClockReading) {
        self.send_queued_extensions(id, now);
        self.views.send_queued(&mut self.nodes[id.index()], &mut env!(self, now));
        self.observers.refresh(id, &mut self.nodes, &mut env!(self, now));
    }

    /// Completes the loss of a connection to a node that had `ghosts` ghosts before.
    fn node_severed(&mut self, id: NodeId, ghosts: usize, now: ClockReading) {
        // Ghosts of several connections cannot be ended by killing one of these.
        if ghosts > 0 && self.claims.ghosts(id) > ghosts {
            self.node_mut(id).server.spread_ghosts();
        }
        // Releases may have waited for this node only.
        self.settle_releases(now);
        self.common.effects.push(Effect::SetUp);
        self.common.effects.of_node(id, NodeEffect::ReportsLost);
        self.common.effects.of_node(id, NodeEffect::ForgetObserved);
    }

    /// Excludes a node for the rest of its connection. Its possible grants are undone, and owed
    /// undos are sent again.
    fn node_retired(&mut self, node: NodeId, cause: Cause, now: ClockReading) {
        let due: Vec<_> = self.node(node).pipeline.pending().copied().collect();
        if self.node(node).server.is_wrong() {
            self.disbelieve_undos(node, &due);
        }
        for pending in due {
            let (claim, effect) = match pending {
                // The node may still run the request, so an undo has to follow it.
                Pending::Ask { claim, .. }
                | Pending::Check { claim, .. }
                | Pending::Move { claim, .. } => (claim, ClaimEffect::Disown),
                Pending::WriteBack { claim, round, .. } => {
                    (claim, ClaimEffect::WriteBackLost(round, cause))
                }
                Pending::Extend { claim, round, .. } => {
                    (claim, ClaimEffect::FailExtension(round, cause))
                }
                _ => continue,
            };
            self.common.effects.of_claim(node, claim, effect);
        }
        self.nodes[node.index()].disown_unproven(&mut env!(self, now));
        self.common.effects.of_node(node, NodeEffect::FailQueued);
        self.common.effects.of_node(node, NodeEffect::SendOwed);
        self.common.effects.push(Effect::SetUp);
    }

    /// Handles a request that was in flight on a lost connection.
    fn unanswered(&mut self, node: NodeId, pending: Pending, untouched: bool, now: ClockReading) {
        let cause = self.node(node).link.cause();
        match pending {
            Pending::Ask { claim, .. } => self.ask_unanswered(node, claim, untouched, now),
            Pending::Extend { claim, round, .. } => {
                self.transition(claim, now, |lock| lock.offer_extension_again(node, round));
            }
            Pending::Delete { claim, .. } | Pending::Undo { claim, .. } => {
                self.common.effects.of_claim(node, claim, ClaimEffect::UndoLost(cause));
            }
            // The request itself has run.
            Pending::Check { claim, .. } => self.vote_failed(node, claim, now),
            Pending::WriteBack { claim, round, .. } => {
                self.common.effects.of_claim(node, claim, ClaimEffect::WriteBackLost(round, cause));
            }
            Pending::Move { claim, .. } => {
                // The node may have the slot that it gave before, and also the one that was
                // requested.
                let lost = self.claims.find_mut(claim).filter(|_| !untouched);
                lost.into_iter().for_each(|claim| claim.connection_lost(node, false));
                self.vote_failed(node, claim, now);
            }
            // The rest belongs to the connection. Observers and waiters receive the loss of the
            // link.
            Pending::View(view, _) => {
                self.views.fail(view, node, cause, &self.nodes, &mut env!(self, now));
            }
            _ => {}
        }
    }
}
