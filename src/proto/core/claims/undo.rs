//! The undo of a claim, and the end of the claim.

use super::Claim;
use crate::proto::core::effects::{ClaimEffect, NodeEffect};
use crate::proto::core::links::{Ability, Nodes, Pending};
use crate::proto::core::{Core, Env};
use crate::proto::lock_kind::{Command, PLAIN};
use crate::proto::names::{ClaimId, LockId, NodeId, NodeSet};
use crate::proto::time::{ClockReading, Timestamp};
use crate::proto::vote::{Cause, Vote};
use crate::proto::{answer::Count, mutants::mutant, profile::Profile};

/// A claim, looked up once for a transition, with the nodes that may hold keys for it.
pub(crate) struct ClaimAtWork<'a> {
    id: ClaimId,
    claim: &'a mut Claim,
    nodes: &'a mut Nodes,
    env: Env<'a>,
    /// The time at which something is due for the claim.
    due: Timestamp,
    /// The nodes that were sent a command.
    sent: NodeSet,
}

/// The vote of an undo that has ended, and the lock that it concerns; without a lock, the claim is
/// settled.
pub(crate) type Settled = Option<(Vote, Option<LockId>)>;

impl ClaimAtWork<'_> {
    /// Undoes the claim on every node that may have seen it. Returns the nodes that owe a
    /// confirmation. A caller that leaves could not send the script after a server's own command
    /// has found nothing, so the script is sent at once.
    fn undo(&mut self, caller_leaves: bool) -> NodeSet {
        // A request that is sent behind the undo would bring back what was undone.
        self.claim.unqueue_all();
        let (mut seen, counted) = (self.claim.seen(), self.claim.counted());
        if mutant!(UndoOfGrantsOnly) {
            seen = counted;
        }
        // Without a quorum most nodes hold nothing, which a server's own command cannot confirm.
        let has_quorum = counted.len() >= self.env.config.quorum();
        let natively = self.claim.is_one_token() && has_quorum && !caller_leaves;
        for node in seen.iter() {
            // A node that has granted has received the request.
            if !counted.contains(node) && self.withdraw(node) {
                continue;
            }
            // Owed also if it cannot be sent now: it follows as soon as there is a connection.
            self.owe(node);
            if !self.nodes[node.index()].server.is_wrong() {
                self.push_undo(node, natively);
            }
        }
        self.claim.owed()
    }

    /// Withdraws a request of which no byte reached the socket, and returns whether there was one.
    /// If it carried the text of a script, the next one has to.
    pub(crate) fn withdraw(&mut self, node_id: NodeId) -> bool {
        let (node, id) = (&mut self.nodes[node_id.index()], self.id);
        let asks =
            |pending: &Pending| matches!(*pending, Pending::Ask { claim, .. } if claim == id);
        let Some(taken) = node.pipeline.withdraw(asks) else { return false };
        if let Pending::Ask { ask: Command::Run(script), by_digest: false, .. } = taken {
            node.forget_script(script);
        }
        self.claim.never_ran(node_id);
        true
    }

    /// Undoes a request in flight to a node rejected as a voter, on this connection: even if that
    /// leads to the wrong database or another node's server, the request went there too.
    pub(crate) fn disown(&mut self, node: NodeId) {
        if !self.withdraw(node) {
            self.owe(node);
            self.push_undo(node, false);
        }
    }

    pub(crate) fn send_undo(&mut self, node: NodeId) {
        if !self.nodes[node.index()].server.is_wrong() {
            self.push_undo(node, false);
        }
    }

    /// Sends the undo on this connection, wherever that leads. `natively` prefers the server's own
    /// command, because the token is most likely as it was set.
    fn push_undo(&mut self, node_id: NodeId, natively: bool) {
        let (claim, node) = (&mut *self.claim, &mut self.nodes[node_id.index()]);
        // Behind the first undo in the pipeline, a second one would find nothing and prove nothing.
        if !node.link.takes_undos() || claim.undoing().contains(node_id) {
            return;
        }
        let (id, now) = (self.id, self.env.now);
        self.env.metrics.of(node_id).undo_sent(claim.undo_sent(node_id));
        // It makes the server track the keys for a waiter. The request may have been sent before
        // the node tracked.
        if claim.is_read_by_its_ask() && claim.ticket().is_none() {
            node.track_next(now.boot);
        }
        let mut script = claim.kind().undo;
        if mutant!(ForeignUndoneAsPlain) && claim.kind().profile() != Profile::PLAIN {
            script = PLAIN.undo;
        }
        let native = node.capabilities.compare_and_delete().filter(|_| natively);
        let undo = (native.map_or(script, Command::Delete), (0, 0));
        let pending = |by_digest| match native {
            Some(_) => Pending::Delete { claim: id, followed: false },
            None => Pending::Undo { claim: id, by_digest },
        };
        let claim = (id, || Some(&*claim));
        self.env.common.encoded.send(node, claim, undo, self.env.config, now, pending);
        self.sent.insert(node_id);
    }

    pub(crate) fn undo_answered(&mut self, node: NodeId, count: Count) -> Settled {
        if mutant!(NoScriptIsFinal) && count == Count::NoScript {
            return self.undo_confirmed(node, 0);
        }
        if mutant!(UndoErrorIsDone) && matches!(count, Count::Fail(_)) {
            return self.undo_confirmed(node, 0);
        }
        match count {
            Count::Of(found) => self.undo_confirmed(node, found),
            _ if !self.claim.undo_over(node) => None,
            Count::Fail(cause) => {
                self.undo_refused(node, cause);
                self.settle(Vote::Fail(cause))
            }
            Count::NoScript => {
                self.push_undo(node, false);
                None
            }
        }
    }

    /// Handles the answer to a server's own delete command. Only a deletion confirms. Otherwise the
    /// script follows: the token may have a mark behind it (`script::fair_queue`), or the command
    /// may be forbidden.
    pub(crate) fn deleted(
        &mut self,
        node: NodeId,
        followed: bool,
        deleted: Result<bool, Cause>,
    ) -> Settled {
        if deleted.is_err_and(Cause::is_forbidden) {
            self.nodes[node.index()].capabilities.set_compare_and_delete(None);
        }
        if mutant!(UnequalIsUndone) && deleted == Ok(false) && !followed {
            return self.undo_confirmed(node, 0);
        }
        if deleted == Ok(true) {
            // Zero keys found, because this does not show what the script may do.
            return self.undo_confirmed(node, 0);
        }
        if !followed && self.claim.undo_over(node) {
            self.push_undo(node, false);
            self.follow_deletes();
        }
        None
    }

    /// Sends the script to nodes that have not answered. The token has changed on one node, so most
    /// likely on these too, and the caller may have ended when the last one answers.
    fn follow_deletes(&mut self) {
        let id = self.id;
        let follow = |pending: &mut Pending| match pending {
            Pending::Delete { claim, followed } if *claim == id && !*followed => {
                *followed = true;
                true
            }
            _ => false,
        };
        for node in self.claim.undoing().iter() {
            if self.nodes[node.index()].pipeline.change(follow) {
                self.claim.undo_over(node);
                self.push_undo(node, false);
            }
        }
    }

    /// Records that a node has undone the claim and found `found` of its keys.
    #[inline]
    fn undo_confirmed(&mut self, node_id: NodeId, found: i64) -> Settled {
        let (claim, node) = (&mut *self.claim, &mut self.nodes[node_id.index()]);
        // This answers an undo given up since, and proves nothing about a request sent behind that.
        if !claim.undo_over(node_id) {
            return None;
        }
        self.env.metrics.of(node_id).undos_confirmed += 1;
        match claim.confirmed(node_id, self.env.now.boot) {
            Some(again_at) => self.due = again_at,
            // With a ghost it stays owed: the request may still run after this undo.
            None if claim.owe_no_more(node_id) => node.debt.shrinks(),
            None => {}
        }
        // An undo that found nothing has not shown that it may delete.
        if found > 0 && !claim.is_ticket() {
            node.capabilities.set_undo(Ability::Given);
        }
        if node.debt.confirmed() {
            self.env.effects.of_node(node_id, NodeEffect::SendOwed);
        }
        self.settle(Vote::Grant)
    }

    #[inline]
    fn settle(&self, vote: Vote) -> Settled {
        let lock = self.claim.lock();
        (lock.is_some() || self.claim.is_settled()).then_some((vote, lock))
    }

    /// Handles an error: the undo stays owed and is sent again after a pause. A node that forbids
    /// it would keep every lock for its TTL, so it does not vote until it confirms one.
    fn undo_refused(&mut self, node_id: NodeId, cause: Cause) {
        if self.claim.is_refused(node_id) {
            // The request failed with an error that proves it did not run: nothing is to be undone.
            self.claim.never_ran(node_id);
            return self.owe_no_more(node_id);
        }
        if cause.is_forbidden() && self.claim.is_ticket() {
            // A ticket only denies, and expires by itself.
            return self.owe_no_more(node_id);
        }
        let node = &mut self.nodes[node_id.index()];
        self.env.arm(node.debt.refused(self.env.now.boot));
        if cause.is_forbidden() {
            node.capabilities.set_undo(Ability::Refused(cause));
            if node.link.is_ready() {
                node.retire(cause, &mut self.env);
            }
        }
    }

    pub(crate) fn owe(&mut self, node: NodeId) {
        if self.claim.owe(node) {
            self.nodes[node.index()].debt.grows();
        }
    }

    fn owe_no_more(&mut self, node: NodeId) {
        if self.claim.owe_no_more(node) {
            self.nodes[node.index()].debt.shrinks();
        }
    }

    pub(crate) fn lose_undo(&mut self, node: NodeId, cause: Cause) -> Settled {
        self.claim.undo_over(node);
        self.settle(Vote::Fail(cause))
    }

    pub(crate) fn lose_ask(&mut self, node: NodeId, untouched: bool) {
        if untouched {
            // No byte was sent, so the node has nothing to undo.
            self.owe_no_more(node);
        }
        self.claim.connection_lost(node, untouched);
    }
}

impl Core {
    /// Applies a transition to a claim. Returns `None` if it has ended.
    #[inline]
    pub(in crate::proto::core) fn at_claim<R>(
        &mut self,
        id: ClaimId,
        now: ClockReading,
        apply: impl FnOnce(&mut ClaimAtWork<'_>) -> R,
    ) -> Option<R> {
        let mut claim = ClaimAtWork {
            id,
            claim: self.claims.find_mut(id)?,
            nodes: &mut self.nodes,
            env: env!(self, now),
            due: Timestamp::NEVER,
            sent: NodeSet::EMPTY,
        };
        let result = apply(&mut claim);
        let (due, sent) = (claim.due, claim.sent);
        self.arm_claim(id, due);
        if !sent.is_empty() {
            self.sent(id, sent.iter(), now);
        }
        Some(result)
    }

    pub(in crate::proto::core) fn abandon(&mut self, id: ClaimId, now: ClockReading) {
        self.undo(id, now);
        self.part_from_lock(id, now);
    }

    /// Separates a claim from its lock. It stays as long as an undo is owed.
    pub(in crate::proto::core) fn part_from_lock(&mut self, id: ClaimId, now: ClockReading) {
        let Some(claim) = self.claims.find_mut(id) else { return };
        claim.part_from_lock();
        let (forget_at, settled) = (claim.forget_at(), claim.is_settled());
        let due = claim.due().max(now.boot);
        // Otherwise it stays until its undos are confirmed.
        if settled {
            self.claims.free(id);
        } else if now.boot >= forget_at {
            self.free_claim(id);
        } else {
            self.arm_claim(id, due);
        }
    }

    /// Undoes a claim. Returns the nodes that owe a confirmation.
    pub(in crate::proto::core) fn undo(&mut self, id: ClaimId, now: ClockReading) -> NodeSet {
        // Before the undos are sent: the next waiter asks anyway, and need not read the key behind
        // them.
        self.hand_on(id, now);
        let caller_leaves = self.caller_leaves;
        let owed = self.at_claim(id, now, |claim| claim.undo(caller_leaves));
        if !self.observers.is_empty() {
            let mut env = env!(self, now);
            self.observers.claim_changed(id, &self.claims, &mut self.nodes, &mut env);
        }
        owed.unwrap_or_default()
    }

    pub(in crate::proto::core) fn send_owed(&mut self, node: NodeId, now: ClockReading) {
        for id in self.claims.that(|claim| claim.is_owed(node)).collect::<Vec<_>>() {
            self.at_claim(id, now, |claim| claim.send_undo(node));
        }
    }

    /// Gives up the undos sent behind a handshake that led to the wrong server: their answers
    /// confirm nothing. A request that went there too is disowned next.
    pub(in crate::proto::core) fn disbelieve_undos(&mut self, node: NodeId, due: &[Pending]) {
        let cause = self.node(node).link.cause();
        for pending in due {
            if let Pending::Delete { claim, .. } | Pending::Undo { claim, .. } = *pending {
                self.common.effects.of_claim(node, claim, ClaimEffect::UndoLost(cause));
            }
        }
    }

    /// Frees a claim whose keys have expired or that no lock needs, with the undos owed for it.
    pub(in crate::proto::core) fn free_claim(&mut self, id: ClaimId) {
        let owed = self.claims.find(id).map_or_else(NodeSet::default, Claim::owed);
        owed.iter().for_each(|node| self.nodes[node.index()].debt.shrinks());
        self.claims.free(id);
    }

    pub(in crate::proto::core) fn claim_due(&mut self, id: ClaimId, now: ClockReading) {
        let Some(claim) = self.claims.find_mut(id) else { return };
        if claim.is_in_use() {
            return;
        }
        let forget_at = claim.forget_at();
        if now.boot >= forget_at {
            return self.free_claim(id);
        }
        let mut to_undo = NodeSet::EMPTY;
        if now.boot >= claim.again_at() {
            claim.undoes_again();
            to_undo = claim.to_undo();
        }
        let due = claim.due();
        self.arm_claim(id, due);
        self.at_claim(id, now, |claim| to_undo.iter().for_each(|node| claim.send_undo(node)));
    }

    pub(in crate::proto::core) fn owed_due(&mut self, node_id: NodeId, now: ClockReading) {
        let node = self.node_mut(node_id);
        let again_at = node.debt.again_at();
        if now.boot < again_at {
            return self.arm(again_at);
        }
        node.debt.end_pause();
        if node.link.takes_extensions() {
            // One undo tests whether the node accepts them again; when it is confirmed, the others
            // follow.
            let first = self.claims.that(|claim| claim.to_undo().contains(node_id)).next();
            first.and_then(|id| self.at_claim(id, now, |claim| claim.send_undo(node_id)));
        }
    }
}
