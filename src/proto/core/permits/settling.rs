//! Settling: a quorum has granted, and its slots differ.
//!
//! Once per attempt the nodes that gave another slot than the chosen one are asked for that, while the validity of the
//! attempt goes on counting. Apart from `healing`, which gives a permit that is held more nodes and decides nothing.

use crate::proto::core::Core;
use crate::proto::mutants::mutant;
use crate::proto::names::{LockId, NodeId, NodeSet};
use crate::proto::permits::{Offer, best_slot};
use crate::proto::time::ClockReading;
use crate::proto::vote::{Cause, Vote};

/// What the slots of a quorum amount to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Agreed {
    /// All grants that count are for one slot, or for a lock that is no permit.
    Yes,
    /// Nodes that have not answered, or are being moved, can still make it one.
    NotYet,
    /// No slot is free on a quorum.
    Never,
}

impl Core {
    /// A quorum has granted. Whether it has granted one slot; if not, and no answer to come can change that, the others
    /// are moved to one.
    pub(in crate::proto::core) fn agree_on_slot(
        &mut self,
        id: LockId,
        now: ClockReading,
    ) -> Agreed {
        let Some((lock, active)) = self.locks.at_work_mut(id) else { return Agreed::Never };
        let Some(claim) = self.claims.find_mut(lock.claim()) else { return Agreed::Never };
        let grants = active.votes.grants();
        active.permit.offers.retain(|(node, _)| grants.contains(*node));
        let offers = &active.permit.offers;
        // Of what it was asked for since it settled, nothing else is a grant.
        if claim.slot().is_some() || offers.is_empty() {
            return Agreed::Yes;
        }
        let quorum = active.votes.quorum();
        let Some((most, count)) = active.permit.most_given() else { return Agreed::Never };
        if mutant!(PermitOfAnySlots) {
            claim.takes_slot(most);
            return Agreed::Yes;
        }
        if count >= quorum {
            claim.takes_slot(most);
            self.deny_other_slots(id, most);
            return Agreed::Yes;
        }
        active.votes.suspect(self.suspected);
        if count + active.votes.awaited().len() >= quorum {
            return Agreed::NotYet;
        }
        let found: Vec<Offer> = offers.iter().map(|&(_, offer)| offer).collect();
        let Some(slot) = best_slot(claim.slots(), &found, quorum) else {
            self.deny_other_slots(id, most);
            return Agreed::Never;
        };
        claim.takes_slot(slot);
        self.settle(id, slot, now);
        Agreed::NotYet
    }

    /// Nodes that gave another slot did not grant this one.
    fn deny_other_slots(&mut self, id: LockId, slot: u16) {
        for node in self.with_other_slots(id, slot).iter() {
            let Some((lock, active)) = self.locks.at_work_mut(id) else { return };
            active.votes.cast(node, Vote::Deny);
            if let Some(claim) = self.claims.find_mut(lock.claim()) {
                claim.gone(node);
            }
        }
    }

    fn with_other_slots(&self, id: LockId, slot: u16) -> NodeSet {
        let mut nodes = NodeSet::default();
        let offers = self.locks.active(id).into_iter().flat_map(|active| &active.permit.offers);
        let others = offers.filter(|(_, offer)| offer.slot() != slot);
        others.for_each(|&(node, _)| nodes.insert(node));
        nodes
    }

    /// Moves the nodes that gave another slot to this one. Their answers decide as those to an ask.
    fn settle(&mut self, id: LockId, slot: u16, now: ClockReading) {
        let patience = self.config.settings.response_timeout;
        self.metrics.settled += 1;
        let others = self.with_other_slots(id, slot);
        let Some((lock, active)) = self.locks.at_work_mut(id) else { return };
        let until = (now.boot + patience).min(lock.lease.ends()).min(active.waiting.deadline());
        active.round.asks(None);
        active.round.lasts_until(until);
        self.arm_lock(id, until);
        for node in others.iter() {
            self.move_to_slot(node, id, now);
        }
    }

    fn move_to_slot(&mut self, node_id: NodeId, id: LockId, now: ClockReading) {
        let node = &self.nodes[node_id.index()];
        let (takes_asks, cause) = (node.link.takes_asks(), node.link.cause());
        let Some((lock, active)) = self.locks.at_work_mut(id) else { return };
        let Some(claim) = self.claims.find_mut(lock.claim()) else { return };
        let (claim_id, counter) = (lock.claim(), claim.counter());
        if mutant!(MovedAnswerCounts) {
            return self.send_move(node_id, claim_id, counter, now);
        }
        claim.gone(node_id);
        active.votes.retract(node_id);
        if takes_asks {
            self.send_move(node_id, claim_id, counter, now);
        } else {
            let cause = if cause == Cause::default() { Cause::Backlog } else { cause };
            active.votes.cast(node_id, Vote::Fail(cause));
        }
    }
}
