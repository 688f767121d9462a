//! What nodes may hold for our attempts, and its undo, owed until confirmed.
//!
//! Undo goes to every node that may have seen the ask, behind it on the same connection, also where the node denied or
//! did not answer in time. It is owed until the node has confirmed it: error answers and lost connections do not count,
//! and only the end of the TTL makes it pointless.
//!
//! Apart from `acquiring` and `holding`, because a claim outlives the lock that it was made for. What one claim knows is
//! in `claim`, what one node owes in `debt`.

mod claim;
mod debt;
mod set;

use super::Core;
use super::effects::ClaimEffect;
use crate::proto::classify::classify;
use crate::proto::core::links::{Ability, Mistyped, Pending};
use crate::proto::lock_kind::{Command, Count, PLAIN};
use crate::proto::mutants::mutant;
use crate::proto::names::{ClaimId, NodeId, NodeSet};
use crate::proto::profile::Profile;
use crate::proto::time::ClockReading;
use crate::proto::vote::{Cause, Vote};
use crate::resp::Token;

pub(super) use self::claim::{Claim, hex};
pub(super) use self::debt::Debt;
pub(super) use self::set::Claims;

impl Core {
    /// Ends a claim's attempt: nobody waits for it any longer, and its keys have to go.
    pub(super) fn abandon(&mut self, id: ClaimId, now: ClockReading) {
        self.undo(id, now);
        self.part_from_lock(id, now);
    }

    /// The claim no longer belongs to a lock. It stays for as long as something is owed.
    pub(super) fn part_from_lock(&mut self, id: ClaimId, now: ClockReading) {
        let Some(claim) = self.claims.find_mut(id) else { return };
        claim.part_from_lock();
        let (forget_at, settled) = (claim.forget_at(), claim.is_settled());
        let due = claim.due().max(now.boot);
        if settled {
            self.claims.free(id);
        } else if now.boot >= forget_at {
            self.free_claim(id);
        } else {
            self.arm_claim(id, due);
        }
    }

    /// Undoes a claim on every node that may have seen it.
    pub(super) fn undo(&mut self, id: ClaimId, now: ClockReading) {
        let Some(claim) = self.claims.find_mut(id) else { return };
        claim.unqueue_all();
        let (mut seen, counted) = (claim.seen(), claim.counted());
        if mutant!(UndoOfGrantsOnly) {
            seen = counted;
        }
        // Where no quorum has granted, most nodes hold nothing, which a server's own command does not say for certain.
        let has_quorum = counted.len() >= self.config.quorum();
        let natively = claim.is_one_token() && has_quorum && !self.caller_leaves;
        // Before the undos are sent: the next waiter asks anyway and need not read the key behind them.
        self.hand_on(id, now);
        for node in seen.iter() {
            // A node that has granted has had the ask.
            if !counted.contains(node) && self.withdraw(node, id) {
                continue;
            }
            self.owe(node, id);
            if !self.node(node).server.is_wrong() {
                self.push_undo_by(node, id, natively, now);
            }
        }
        let mut env = env!(self, now);
        self.observers.claim_changed(id, &self.claims, &mut self.nodes, &mut env);
    }

    /// Takes back an ask of which no byte reached the socket. If it was to bring a script, the next
    /// one has to.
    pub(super) fn withdraw(&mut self, node_id: NodeId, id: ClaimId) -> bool {
        let node = &mut self.nodes[node_id.index()];
        let asks =
            |pending: &Pending| matches!(pending, Pending::Ask { claim, .. } if *claim == id);
        let Some(taken) = node.pipeline.withdraw(asks) else { return false };
        let Some(claim) = self.claims.find_mut(id) else { return true };
        claim.never_ran(node_id);
        if let Pending::Ask { ask: Command::Run(script), by_digest: false, .. } = taken {
            node.forget_script(script);
        }
        true
    }

    pub(super) fn send_undo(&mut self, node_id: NodeId, id: ClaimId, now: ClockReading) {
        if !self.node(node_id).server.is_wrong() {
            self.push_undo(node_id, id, now);
        }
    }

    /// Sends the undo on this connection, whatever that is.
    pub(super) fn push_undo(&mut self, node_id: NodeId, id: ClaimId, now: ClockReading) {
        self.push_undo_by(node_id, id, false, now);
    }

    /// The same, by the server's own command where there is one and that is most likely to find the token as it was set.
    fn push_undo_by(&mut self, node_id: NodeId, id: ClaimId, natively: bool, now: ClockReading) {
        let Some(claim) = self.claims.find_mut(id) else { return };
        let node = &mut self.nodes[node_id.index()];
        if !node.link.takes_undos() || claim.undoing().contains(node_id) {
            return;
        }
        self.metrics.of(node_id).undo_sent(claim.undo_sent(node_id));
        // It reads what is in the way of a lock that waits, as its ask did, which may have been before the node tracked.
        if claim.is_told_by_its_ask() && claim.ticket().is_none() {
            node.track_next(now.boot);
        }
        let mut script = claim.kind().undo;
        if mutant!(ForeignUndoneAsPlain) && claim.kind().profile() != Profile::PLAIN {
            script = PLAIN.undo;
        }
        let native = node.capabilities.compare_and_delete().filter(|_| natively);
        let undo = match native {
            Some(command) => Command::Delete(command),
            None => script,
        };
        self.send(node_id, id, undo, (0, 0), now, |by_digest| match native {
            Some(_) => Pending::Delete { claim: id, followed: false },
            None => Pending::Undo { claim: id, by_digest },
        });
    }

    /// Sends everything that this node owes the confirmation of and that is not under way.
    pub(super) fn send_owed(&mut self, node: NodeId, now: ClockReading) {
        for id in self.claims.that(|claim| claim.is_owed(node)).collect::<Vec<_>>() {
            self.send_undo(node, id, now);
        }
    }

    /// A node has answered an undo. Returns how that settles it, if it does.
    pub(super) fn undo_answered(
        &mut self,
        node_id: NodeId,
        id: ClaimId,
        count: Count,
        now: ClockReading,
    ) -> Option<Vote> {
        if mutant!(NoScriptIsFinal) && count == Count::NoScript {
            return self.undo_confirmed(node_id, id, 0, now);
        }
        if mutant!(UndoErrorIsDone) && matches!(count, Count::Fail(_)) {
            return self.undo_confirmed(node_id, id, 0, now);
        }
        match count {
            Count::Of(found) => self.undo_confirmed(node_id, id, found, now),
            _ if !self.claims.find_mut(id)?.undo_over(node_id) => None,
            Count::Fail(cause) => Some(self.undo_refused(node_id, id, cause, now)),
            Count::NoScript => {
                self.push_undo(node_id, id, now);
                None
            }
        }
    }

    /// A server's own command was to delete the key. What it has deleted is undone. Anything else is for the script: the
    /// token may have got a mark behind it, see `script::line`, or the command is none that we may run.
    pub(super) fn deleted(
        &mut self,
        node_id: NodeId,
        id: ClaimId,
        followed: bool,
        answer: Token<'_>,
        now: ClockReading,
    ) -> Result<Option<Vote>, Mistyped> {
        let deleted = match answer {
            Token::Int(deleted @ 0..=1) => deleted == 1,
            Token::Error(text) => {
                if classify(text).cause().is_forbidden() {
                    self.node_mut(node_id).capabilities.set_compare_and_delete(None);
                }
                false
            }
            _ => return Err(Mistyped),
        };
        if mutant!(UnequalIsUndone) && answer == Token::Int(0) && !followed {
            return Ok(self.undo_confirmed(node_id, id, 0, now));
        }
        if deleted {
            // This says nothing of what the script may do.
            return Ok(self.undo_confirmed(node_id, id, 0, now));
        }
        if !followed && self.claims.find_mut(id).is_some_and(|it| it.undo_over(node_id)) {
            self.push_undo(node_id, id, now);
            self.follow_deletes(id, now);
        }
        Ok(None)
    }

    /// The token is not as it was set on one node, and most likely on the others: the script follows there before they have
    /// answered. Whoever called for the release may not be there any more when the last of them does.
    fn follow_deletes(&mut self, id: ClaimId, now: ClockReading) {
        let undoing = self.claims.find(id).map_or_else(NodeSet::default, Claim::undoing);
        let follow = |pending: &mut Pending| match pending {
            Pending::Delete { claim, followed } if *claim == id && !*followed => {
                *followed = true;
                true
            }
            _ => false,
        };
        for node in undoing.iter() {
            if self.nodes[node.index()].pipeline.change(follow)
                && let Some(claim) = self.claims.find_mut(id)
            {
                claim.undo_over(node);
                self.push_undo(node, id, now);
            }
        }
    }

    /// Records that a node has undone the claim and found `found` of its keys. Returns `None` if no undo was in flight.
    #[inline]
    fn undo_confirmed(
        &mut self,
        node_id: NodeId,
        id: ClaimId,
        found: i64,
        now: ClockReading,
    ) -> Option<Vote> {
        let claim = self.claims.find_mut(id)?;
        if !claim.undo_over(node_id) {
            return None;
        }
        let is_ticket = claim.is_ticket();
        self.metrics.of(node_id).undos_confirmed += 1;
        match claim.confirmed(node_id, now.boot) {
            Some(again_at) => self.arm_claim(id, again_at),
            None if claim.owe_no_more(node_id) => self.nodes[node_id.index()].debt.shrinks(),
            None => {}
        }
        let node = self.node_mut(node_id);
        // One that found nothing has not shown that it may delete.
        if found > 0 && !is_ticket {
            node.capabilities.undo_is(Ability::Given);
        }
        if node.debt.confirmed() {
            self.send_owed(node_id, now);
        }
        Some(Vote::Grant)
    }

    /// Undos were sent behind a handshake that has led to the wrong server. Answers to them confirm nothing, unless the ask
    /// went the same way, and is about to be disowned.
    pub(super) fn disbelieve_undos(&mut self, node: NodeId, due: &[Pending]) {
        for pending in due {
            if let Pending::Delete { claim: id, .. } | Pending::Undo { claim: id, .. } = *pending
                && let Some(claim) = self.claims.find_mut(id)
            {
                claim.undo_over(node);
                let cause = self.node(node).link.cause();
                self.effects.of_claim(node, id, ClaimEffect::UndoSettled(Vote::Fail(cause)));
            }
        }
    }

    /// The node answered with an error: it still owes, and is asked again after a pause. One that
    /// forbids the undo altogether would keep every lock for its TTL: it is no voter until it
    /// confirms.
    fn undo_refused(
        &mut self,
        node_id: NodeId,
        id: ClaimId,
        cause: Cause,
        now: ClockReading,
    ) -> Vote {
        if let Some(claim) = self.claims.find_mut(id)
            && claim.is_refused(node_id)
        {
            // It answered the ask with an error as well: there is nothing to undo.
            claim.never_ran(node_id);
            self.owes_no_more(node_id, id);
            return Vote::Fail(cause);
        }
        if cause.is_forbidden() && self.claims.find(id).is_some_and(Claim::is_ticket) {
            // A ticket only denies, and ends by itself.
            self.owes_no_more(node_id, id);
            return Vote::Fail(cause);
        }
        let (node, mut env) = self.node_in_env(node_id, now);
        env.arm(node.debt.refused(now.boot));
        if cause.is_forbidden() {
            node.capabilities.undo_is(Ability::Refused(cause));
            if node.link.is_ready() {
                node.retire(cause, &mut env);
            }
        }
        Vote::Fail(cause)
    }

    /// The node has to confirm that it keeps no key for this claim.
    pub(super) fn owe(&mut self, node: NodeId, id: ClaimId) {
        if self.claims.find_mut(id).is_some_and(|claim| claim.owe(node)) {
            self.nodes[node.index()].debt.grows();
        }
    }

    pub(super) fn owes_no_more(&mut self, node: NodeId, id: ClaimId) {
        if self.claims.find_mut(id).is_some_and(|claim| claim.owe_no_more(node)) {
            self.nodes[node.index()].debt.shrinks();
        }
    }

    /// Nothing is left of a claim, or nobody waits for it any longer.
    pub(super) fn free_claim(&mut self, id: ClaimId) {
        let owed = self.claims.find(id).map_or_else(NodeSet::default, Claim::owed);
        owed.iter().for_each(|node| self.nodes[node.index()].debt.shrinks());
        self.claims.free(id);
    }

    pub(super) fn claim_due(&mut self, id: ClaimId, now: ClockReading) {
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
        to_undo.iter().for_each(|node| self.send_undo(node, id, now));
    }

    pub(super) fn owed_due(&mut self, node_id: NodeId, now: ClockReading) {
        let node = self.node_mut(node_id);
        let again_at = node.debt.again_at();
        if now.boot < again_at {
            return self.arm(again_at);
        }
        node.debt.asks_again();
        if node.link.takes_extensions() {
            // One undo asks whether the node takes them again; when it is confirmed, the others follow.
            let first = self.claims.that(|claim| claim.to_undo().contains(node_id)).next();
            first.into_iter().for_each(|id| self.send_undo(node_id, id, now));
        }
    }
}
