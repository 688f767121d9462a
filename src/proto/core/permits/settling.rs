//! Settling: a quorum has granted, and its slots differ.
//!
//! Once per attempt the nodes that gave another slot than the chosen one are asked for that, while the validity of the
//! attempt goes on counting. Apart from `healing`, which gives a permit that is held more nodes and decides nothing.

use super::Agreed;
use crate::proto::core::LockAtWork;
use crate::proto::core::effects::LockEffect;
use crate::proto::mutants::mutant;
use crate::proto::names::NodeSet;
use crate::proto::permits::{Offer, best_slot};
use crate::proto::vote::{Cause, Vote};

impl LockAtWork<'_> {
    /// A quorum has granted. Whether it has granted one slot; if not, and no answer to come can change that, the others
    /// are moved to one.
    pub(in crate::proto::core) fn agree_on_slot(&mut self) -> Agreed {
        let (permit, votes) = (&mut self.active.permit, &mut self.active.votes);
        let grants = votes.grants();
        permit.offers.retain(|(node, _)| grants.contains(*node));
        // Of what it was asked for since it settled, nothing else is a grant.
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

    /// Nodes that gave another slot did not grant this one.
    fn deny_other_slots(&mut self, slot: u16) {
        for node in self.active.permit.with_other_slots(slot).iter() {
            self.active.votes.cast(node, Vote::Deny);
            self.claim.gone(node);
        }
    }

    /// Returns the nodes that gave another slot, which are to be moved to this one. Their answers decide as those to an ask.
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
            // Nothing is sent, so that no answer to come would say that the chosen slot has no quorum.
            self.env.effects.of_lock(self.id, LockEffect::Recount);
        }
        moved
    }
}
