//! The slots that nodes give, and settling: the slots of a quorum of grants differ.
//!
//! Once per attempt, the nodes that gave another slot than the chosen one are asked for that one,
//! while the validity of the attempt is already running.

use super::Agreed;
use crate::proto::core::links::{Mistyped, Pending};
use crate::proto::core::{Core, LockAtWork, claims::Claim, effects::LockEffect, locks::Phase};
use crate::proto::names::{ClaimId, LockId, NodeId, NodeSet};
use crate::proto::permits::{Offer, best_slot};
use crate::proto::vote::{Cause, Vote};
use crate::proto::{answer::Answer, lock_kind::Command, mutants::mutant, time::ClockReading};
use crate::resp::Token;

impl Core {
    /// Returns the slot of a held permit. `None` for any other lock.
    #[must_use]
    pub fn slot(&self, id: LockId) -> Option<u16> {
        let lock = self.locks.find(id).filter(|lock| lock.phase.is_held())?;
        self.claims.find(lock.claim())?.slot()
    }

    /// Takes the slot that a node has given. Any slot but the agreed one is a denial, once there is
    /// one.
    pub(in crate::proto::core) fn slot_given(
        &mut self,
        node: NodeId,
        claim: ClaimId,
        offer: Offer,
    ) -> Vote {
        let Some(claim) = self.claims.find(claim) else { return Vote::Deny };
        // A quorum of grants is a permit only if all are for one slot: two slots on bare quorums
        // would be two permits.
        let is_other = claim.slot().is_some_and(|slot| slot != offer.slot());
        if is_other || offer.slot() >= claim.slots().permits() {
            return Vote::Deny;
        }
        if let Some((lock, active)) = claim.lock().and_then(|lock| self.locks.at_work_mut(lock))
            && lock.phase == Phase::Asking
        {
            active.permit.given(node, offer);
        }
        Vote::Grant
    }

    /// Requests the slot of a permit from nodes.
    pub(in crate::proto::core) fn move_at(
        &mut self,
        id: LockId,
        nodes: NodeSet,
        now: ClockReading,
    ) {
        let lock = self.locks.find(id).map(|lock| (lock.phase, lock.claim()));
        let Some((phase, claim)) = lock else { return };
        // A held permit confirms no fencing token, so it raises no counter.
        let asking = self.claims.find(claim).filter(|_| phase == Phase::Asking);
        let counter = asking.map_or(0, Claim::counter);
        nodes.iter().for_each(|node| self.send_move(node, claim, counter, now));
    }

    /// Requests the slot of this claim, and no other, from a node. Its earlier grant no longer
    /// counts.
    fn send_move(&mut self, node: NodeId, id: ClaimId, counter: u64, now: ClockReading) {
        let Some(claim) = self.claims.find_mut(id) else { return };
        // The move may give the node a key that it did not have, which must be undone as for any
        // request.
        claim.sent(node, now.boot.after_ms(claim.ttl_ms()));
        let ttl_ms = claim.ttl_ms();
        self.common.metrics.of(node).asks += 1;
        let pending = |by_digest| Pending::Move { claim: id, counter, by_digest };
        self.send_with_proof(node, id, Command::Move, (ttl_ms, counter), now, pending);
    }

    /// Returns the answer to a move, or `None` if the move was sent again.
    pub(in crate::proto::core) fn move_answered(
        &mut self,
        node: NodeId,
        id: ClaimId,
        (counter, by_digest): (u64, bool),
        token: Token<'_>,
        now: ClockReading,
    ) -> Result<Option<Answer>, Mistyped> {
        let answer = Command::Move.vote(token).ok_or(Mistyped)?;
        let Some(lock) = self.claims.find(id).map(|claim| claim.lock()) else { return Ok(None) };
        let phase = lock.and_then(|lock| self.locks.find(lock)).map(|lock| lock.phase);
        let is_wanted = phase.is_some_and(|it| it == Phase::Asking || it.is_held());
        match answer {
            Answer::NoScript => {
                self.node_mut(node).forget_scripts();
                if by_digest && is_wanted && self.node(node).link.takes_asks() {
                    self.send_move(node, id, counter, now);
                    return Ok(None);
                }
            }
            // This script was not given the restart guard's key.
            Answer::Guarded(_) if self.config.restart_guard_key().is_none() => {
                return Err(Mistyped);
            }
            _ => {}
        }
        Ok(Some(answer))
    }
}

impl LockAtWork<'_> {
    /// Decides whether the quorum that has granted agrees on a slot. If it does not, and no pending
    /// answer can change that, nodes are moved to one.
    pub(in crate::proto::core) fn agree_on_slot(&mut self) -> Agreed {
        let (permit, votes) = (&mut self.active.permit, &mut self.active.votes);
        let grants = votes.grants();
        permit.offers.retain(|(node, _)| grants.contains(*node));
        // After settling, only the chosen slot counts as a grant.
        if self.claim.slot().is_some() {
            return Agreed::Yes;
        }
        let Some((most, count)) = permit.most_given() else { return Agreed::Yes };
        let quorum = votes.quorum();
        if mutant!(PermitOfAnySlots) {
            self.claim.takes_slot(most);
            return Agreed::Yes;
        }
        if count >= quorum {
            self.claim.takes_slot(most);
            self.deny_other_slots(most);
            return Agreed::Yes;
        }
        votes.suspect(self.env.suspected);
        // To move a slot costs a round trip of the lease. Nodes that have not answered may still
        // give the right one.
        if count + votes.awaited().len() >= quorum {
            return Agreed::NotYet(NodeSet::EMPTY);
        }
        let found: Vec<Offer> = permit.offers.iter().map(|&(_, offer)| offer).collect();
        let Some(slot) = best_slot(self.claim.slots(), &found, quorum) else {
            self.deny_other_slots(most);
            return Agreed::Never;
        };
        self.claim.takes_slot(slot);
        Agreed::NotYet(self.settle(slot))
    }

    /// Counts nodes that gave another slot as denials.
    fn deny_other_slots(&mut self, slot: u16) {
        for node in self.active.permit.with_other_slots(slot).iter() {
            self.active.votes.cast(node, Vote::Deny);
            self.claim.gone(node);
        }
    }

    /// Returns the nodes to be moved to this slot. Their answers decide, as those to a request.
    fn settle(&mut self, slot: u16) -> NodeSet {
        self.env.metrics.settled += 1;
        self.ask_for(self.env.config.settings.response_timeout, None);
        let mut moved = self.active.permit.with_other_slots(slot);
        if mutant!(MovedAnswerCounts) {
            return moved;
        }
        for node in moved.iter() {
            let link = &self.nodes[node.index()].link;
            // Its grant was for a slot that it gives up now, and must not count until it has given
            // the other.
            self.claim.gone(node);
            self.active.votes.retract(node);
            if !link.takes_asks() {
                let cause = Some(link.cause()).filter(|&cause| cause != Cause::default());
                self.active.votes.cast(node, Vote::Fail(cause.unwrap_or(Cause::Backlog)));
                moved.remove(node);
            }
        }
        if moved.is_empty() {
            // Nothing is sent, so no answer will show that the chosen slot has no quorum.
            self.env.effects.of_lock(self.id, LockEffect::Recount);
        }
        moved
    }
}
