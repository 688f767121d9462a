//! The routes between subjects: the commands that concern several of them, and what follows for the others when something
//! has happened in one.
//!
//! A subject calls the others only downwards, for what it needs of them. What it has to announce it announces here, and
//! here is who hears of it, and in which order. Not here: what each of them does about it; and answers, which `answer`
//! routes.

use super::links::{Pending, Pipeline};
use super::locks::Phase;
use super::{Core, MAX_LOCKS};
use crate::proto::event::{Event, LossCause, Refusal};
use crate::proto::names::{ClaimId, LinkId, LockId, NodeId, NodeSet};
use crate::proto::request::{LockMode, LockRequest, RequestError};
use crate::proto::time::{ClockReading, Timestamp};
use crate::proto::vote::{Cause, Vote};

/// Commands.
impl Core {
    /// Asks all nodes for a lock. The outcome is [`Granted`] or [`Refused`].
    ///
    /// [`Granted`]: crate::proto::Event::Granted
    /// [`Refused`]: crate::proto::Event::Refused
    ///
    /// # Errors
    ///
    /// The request is not valid, or there are too many locks; nothing is sent.
    pub fn acquire(
        &mut self,
        request: &LockRequest<'_>,
        now: ClockReading,
    ) -> Result<LockId, RequestError> {
        request.check(&self.config)?;
        if self.locks.len().max(self.claims.len()) >= MAX_LOCKS {
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

    /// The same as [`release`](Self::release), for a caller that may not come back to read the answers: no node needs more
    /// than one command, so that whoever waits for the lock gets it.
    pub fn release_and_leave(&mut self, id: LockId, now: ClockReading) {
        self.caller_leaves = true;
        self.release(id, now);
        self.caller_leaves = false;
    }

    /// Releases a lock, or cancels its acquisition. An unknown id is ignored.
    ///
    /// The outcome is [`Released`]; [`Refused`] with [`Cancelled`] if it was not granted yet; [`Lost`] if its validity
    /// ended before; none if its end was reported already. In every case the undo reaches each node that may keep a key
    /// for it.
    ///
    /// [`Released`]: crate::proto::Event::Released
    /// [`Refused`]: crate::proto::Event::Refused
    /// [`Cancelled`]: crate::proto::RefusalReason::Cancelled
    /// [`Lost`]: crate::proto::Event::Lost
    pub fn release(&mut self, id: LockId, now: ClockReading) {
        let now = self.clamp(now);
        self.lease_due(id, now);
        let mode_change = self.locks.mode_change(id);
        if mode_change.is_companion() {
            return;
        }
        if mode_change.companion().is_some() {
            self.drop_companion(id, now);
        }
        let Some(lock) = self.locks.find_mut(id) else { return };
        let claim = lock.claim();
        match lock.phase {
            Phase::Asking | Phase::Fencing | Phase::Pausing | Phase::Queued => {
                self.cancel(id, now);
            }
            Phase::Extending | Phase::Held => self.begin_release(id, now),
            Phase::Lost(_) => {
                self.locks.free(id);
                self.abandon(claim, now);
                self.run_scheduled(now);
            }
            Phase::Releasing => {}
        }
    }
}

/// A lock's life.
impl Core {
    /// An attempt begins, of a lock that waits.
    pub(super) fn waiter_asks(&mut self, id: LockId, now: ClockReading) {
        self.end_pause(id);
        self.ask_in_line(id, now);
    }

    /// An attempt has failed because our clock was wrong, which is set right: it is repeated at once.
    pub(super) fn attempt_repeated(&mut self, id: LockId, claim: ClaimId, now: ClockReading) {
        self.abandon(claim, now);
        self.attempt(id, None, now);
        self.run_scheduled(now);
    }

    /// An attempt has failed, and the lock goes on waiting. `denied` are the nodes that denied.
    pub(super) fn attempt_over(
        &mut self,
        id: LockId,
        claim: ClaimId,
        denied: NodeSet,
        now: ClockReading,
    ) {
        self.pause(id, now);
        self.abandon(claim, now);
        self.hear_late_denials(id, claim);
        self.settle_in(id, denied, now);
        self.run_scheduled(now);
    }

    /// A pause begins, or its leads have changed: these nodes are to send notifications.
    pub(super) fn wants_notifications(&mut self, leads: NodeSet, now: ClockReading) {
        leads.iter().for_each(|node| self.want_push(node, now));
    }

    /// The same of a lock, which may hear of it from others of its library as well.
    pub(super) fn waiter_wants_notifications(
        &mut self,
        id: LockId,
        leads: NodeSet,
        now: ClockReading,
    ) {
        leads.iter().for_each(|node| self.listen(id, node, now));
        self.wants_notifications(leads, now);
    }

    pub(super) fn lock_granted(&mut self, id: LockId, now: ClockReading) {
        let Some((lock, active)) = self.locks.at_work(id) else { return };
        if let Some(holder) = active.mode_change.holder() {
            self.companion_granted(id, now);
            return self.let_next_ask(holder, now);
        }
        let (claim, mode) = (lock.claim(), lock.mode());
        let (waited, is_auto_extended) = (active.waits(), active.hold.is_auto_extended());
        let listens = active.waiting.listens();
        self.metrics.granted(active.waiting.asked_at(), now.boot);
        self.events.push_back(Event::Granted(id));
        self.note_holding(id);
        if waited {
            self.leave_line(id, now);
            self.note_wait(id, now);
            if listens {
                self.stop_listening(id, now);
            }
        }
        if is_auto_extended {
            self.auto_extend_from_now(id, now);
        }
        if !self.observers.is_empty() {
            self.claim_changed(claim, now);
        }
        match mode {
            LockMode::Exclusive => return,
            LockMode::Permit { .. } => self.heal(id, now),
            LockMode::Shared => {}
        }
        self.let_next_ask(id, now);
    }

    /// Whoever is next in its queues asks, unless a lock has its resource alone: it may be granted beside that one.
    fn let_next_ask(&mut self, id: LockId, now: ClockReading) {
        if self.locks.find(id).is_some_and(|lock| lock.mode() != LockMode::Exclusive) {
            self.leave_queues(id, now);
            self.run_scheduled(now);
        }
    }

    pub(super) fn lock_refused(&mut self, id: LockId, refusal: Refusal, now: ClockReading) {
        let Some(active) = self.locks.active(id) else { return };
        if active.mode_change.is_companion() {
            self.companion_refused(id, refusal);
            return self.run_scheduled(now);
        }
        self.metrics.refused(refusal.reason, active.waiting.asked_at(), now.boot);
        self.events.push_back(Event::Refused(id, refusal));
        self.leave_line(id, now);
        self.stop_listening(id, now);
        self.leave_queues(id, now);
        self.locks.free(id);
        self.run_scheduled(now);
    }

    pub(super) fn lock_extended(&mut self, id: LockId, now: ClockReading) {
        self.ask_to_share(id, now);
    }

    pub(super) fn lock_lost(&mut self, id: LockId, cause: LossCause, now: ClockReading) {
        self.lost_with_companion(id, cause, now);
    }

    /// The validity of a claim is over that an upgraded lock has kept.
    pub(super) fn companion_over(&mut self, id: LockId, now: ClockReading) {
        self.companion_lost(id, now);
    }

    /// A command about a claim has gone to a node that notifies us of what others change.
    pub(super) fn claim_written(&mut self, id: ClaimId, node: NodeId, now: ClockReading) {
        self.look_behind(id, node, now);
    }

    /// A claim is about to be undone: its resources are free for other locks of this core.
    pub(super) fn claim_given_up(&mut self, id: ClaimId, now: ClockReading) {
        self.hand_on(id, now);
    }

    /// The undos of a claim are on their way.
    pub(super) fn claim_undone(&mut self, id: ClaimId, now: ClockReading) {
        if !self.observers.is_empty() {
            self.claim_changed(id, now);
        }
    }

    /// We have changed what nodes hold for this claim. No node reports that to us.
    fn claim_changed(&mut self, id: ClaimId, now: ClockReading) {
        let keys = self.claims.find(id).into_iter().flat_map(|claim| claim.keys().iter());
        let observers: Vec<_> = keys.flat_map(|key| self.observers.of(key)).collect();
        observers.into_iter().for_each(|observer| self.observer_wakes(observer, now));
    }

    /// A node reports that it has changed this key.
    pub(super) fn key_changed(&mut self, key: &[u8], now: ClockReading) {
        let observers: Vec<_> = self.observers.of(key).collect();
        observers.into_iter().for_each(|observer| self.observer_wakes(observer, now));
    }

    /// A node may have changed any key since that was read: it begins to report changes, or has not reported all.
    pub(super) fn keys_changed(&mut self, id: NodeId, now: ClockReading) {
        self.observers_look_at(id, now);
    }

    /// An undo was confirmed, or this connection will not confirm it.
    pub(super) fn undo_settled(
        &mut self,
        node: NodeId,
        id: ClaimId,
        vote: Vote,
        now: ClockReading,
    ) {
        match self.claims.find(id).map(|claim| (claim.lock(), claim.is_settled())) {
            Some((Some(lock), _)) => self.release_vote(node, lock, vote, now),
            Some((None, true)) => self.claims.free(id),
            _ => {}
        }
    }
}

/// A node's life.
impl Core {
    /// The link's socket is connected.
    pub fn connected(&mut self, link: LinkId, now: ClockReading) {
        let (now, id) = (self.clamp(now), link.node());
        if link.is_push() {
            let (node, env) = self.node_in_env(id, now);
            return node.begin_push(&env);
        }
        let is_burdened = self.claims.is_burdened(id);
        let (node, mut env) = self.node_in_env(id, now);
        if node.begin_connection(is_burdened, &mut env) {
            self.send_queued(id, now);
        }
    }

    /// The link could not be opened, or its connection ended.
    pub fn disconnected(&mut self, link: LinkId, cause: Cause, now: ClockReading) {
        let now = self.clamp(now);
        match link.is_push() {
            true => self.push_severed(link.node(), cause, now),
            false => self.sever(link.node(), cause, now),
        }
        self.check();
    }

    /// The node votes from now on.
    pub(super) fn node_votes(&mut self, id: NodeId, now: ClockReading) {
        let (node, mut env) = self.node_in_env(id, now);
        node.mark_ready(&mut env);
        self.send_owed(id, now);
        self.send_queued(id, now);
        self.send_queued_extensions(id, now);
        self.send_queued_views(id, now);
        self.observers_look_at(id, now);
        self.track(id, now);
    }

    /// The node does not vote for now; what needs no vote goes on.
    pub(super) fn node_kept_out(&mut self, id: NodeId, now: ClockReading) {
        if !self.node(id).restart_guard.is_settling() {
            self.fail_queued_asks(id, now);
        }
        self.send_owed(id, now);
        self.send_queued_extensions(id, now);
        self.send_queued_views(id, now);
        self.observers_look_at(id, now);
    }

    /// The node is no voter any more. What it may have granted on this connection, where `due` was under way, is undone,
    /// and what it owes is sent once more.
    pub(super) fn node_retired(
        &mut self,
        id: NodeId,
        cause: Cause,
        due: &[Pending],
        now: ClockReading,
    ) {
        if self.node(id).server.is_wrong() {
            self.disbelieve_undos(id, due, now);
        }
        for pending in due {
            match *pending {
                Pending::Ask { claim, .. }
                | Pending::Check { claim, .. }
                | Pending::Move { claim, .. } => {
                    self.disown(id, claim, now);
                }
                Pending::WriteBack { claim, round, .. } => {
                    self.write_back_lost(id, claim, round, cause, now);
                }
                Pending::Extend { claim, round, .. } => {
                    self.extension_vote(id, claim, round, Vote::Fail(cause), now);
                }
                _ => {}
            }
        }
        let unproven: Vec<_> = self.node(id).restart_guard.unproven().into();
        unproven.into_iter().for_each(|grant| self.disown(id, grant.claim(), now));
        self.fail_queued(id, now);
        self.send_owed(id, now);
        self.set_up(now);
    }

    /// The node seems to hang, and is not waited for.
    pub(super) fn node_hangs(&mut self, id: NodeId, now: ClockReading) {
        // It may not tell those who wait for its notifications.
        if self.node(id).push.is_wanted() {
            self.reports_lost(id, now);
        }
        self.releases_go_on_without(id, now);
    }

    /// A connection is gone. What waited for it waited in vain; what was under way may wait for the next one.
    pub(super) fn connection_lost(
        &mut self,
        id: NodeId,
        pipeline: Pipeline<Pending>,
        now: ClockReading,
    ) {
        self.fail_queued(id, now);
        self.unanswered(id, pipeline, now);
    }

    /// A link is down, and all that was under way on it is over.
    pub(super) fn link_down(&mut self, id: NodeId, now: ClockReading) {
        self.settle_releases(now);
        self.set_up(now);
        self.reports_lost(id, now);
        self.observers_lose(id, now);
    }

    fn unanswered(&mut self, node: NodeId, pipeline: Pipeline<Pending>, now: ClockReading) {
        let cause = self.node(node).link.cause();
        for (pending, untouched) in pipeline.into_requests() {
            match pending {
                Pending::Ask { claim, .. } => self.ask_unanswered(node, claim, untouched, now),
                Pending::Extend { claim, round, .. } => {
                    self.extension_unanswered(node, claim, round, now);
                }
                Pending::Delete { claim, .. } => self.undo_unanswered(node, claim, cause, now),
                Pending::Undo { claim, .. } => self.undo_unanswered(node, claim, cause, now),
                // Its ask has run.
                Pending::Check { claim, .. } => self.vote_failed(node, claim, now),
                Pending::WriteBack { claim, round, .. } => {
                    self.write_back_lost(node, claim, round, cause, now);
                }
                Pending::Move { claim, .. } => self.move_lost(node, claim, untouched, now),
                Pending::ForceUnlock(view)
                | Pending::ViewDigest(view)
                | Pending::ViewLine(view)
                | Pending::ViewPermits(view)
                | Pending::ViewShared(view)
                | Pending::ViewTtl(view)
                | Pending::ViewType(view)
                | Pending::ViewValue(view) => self.view_failed(view, node, cause),
                Pending::Caching
                | Pending::DropOthers
                | Pending::Enrol
                | Pending::Handshake(_)
                | Pending::History
                | Pending::Kill
                | Pending::Look { .. }
                // The loss of the link is told to all who observe.
                | Pending::Observe(..)
                | Pending::Remaining { .. }
                | Pending::Track { .. } => {}
            }
        }
        let unproven = self.node_mut(node).restart_guard.take_unproven();
        unproven.into_iter().for_each(|grant| self.vote_failed(node, grant.claim(), now));
    }

    fn undo_unanswered(&mut self, node: NodeId, id: ClaimId, cause: Cause, now: ClockReading) {
        if let Some(claim) = self.claims.find_mut(id) {
            claim.undo_over(node);
        }
        self.undo_settled(node, id, Vote::Fail(cause), now);
    }

    fn write_back_lost(
        &mut self,
        node: NodeId,
        claim: ClaimId,
        round: u32,
        cause: Cause,
        now: ClockReading,
    ) {
        let lock = self.write_back_failed(node, claim, round, cause);
        lock.into_iter().for_each(|lock| self.decide(lock, now));
    }

    fn move_lost(&mut self, node: NodeId, claim: ClaimId, untouched: bool, now: ClockReading) {
        self.move_unanswered(node, claim, untouched);
        self.vote_failed(node, claim, now);
    }

    /// What waited for this link.
    fn fail_queued(&mut self, node: NodeId, now: ClockReading) {
        self.fail_queued_asks(node, now);
        self.fail_queued_extensions(node, now);
        self.fail_queued_views(node);
    }

    /// Something may be due for this node.
    pub(super) fn node_due(&mut self, id: NodeId, now: ClockReading) {
        if !self.link_due(id, now) {
            return;
        }
        self.quarantine_due(id, now);
        if self.silence_due(id, now) && self.node(id).debt.again_at() != Timestamp::NEVER {
            self.owed_due(id, now);
        }
    }
}
