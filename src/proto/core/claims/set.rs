//! All claims of a core, under names that are never used twice.
//!
//! Apart from the folder's `mod.rs`, so that who asks whether a node may still hold something of ours needs no more
//! than this. Not here: what follows from it.

use super::claim::Claim;
use crate::proto::names::{ClaimId, NodeId};
use crate::proto::slab::Slab;

pub(crate) type Claims = Slab<ClaimId, Claim>;

impl Claims {
    /// The ticket with which the asks of a claim wait in the queue.
    pub(crate) fn ticket_of(&mut self, id: ClaimId) -> Option<&mut Claim> {
        self.find_mut(self.find(id)?.ticket()?)
    }

    /// The claims of which this is true.
    pub(crate) fn that(&self, is: impl Fn(&Claim) -> bool) -> impl Iterator<Item = ClaimId> {
        self.ids().filter(move |id| self.find(*id).is_some_and(&is))
    }

    /// Whether this claim is to be undone on this node, also while its lock is held: the node was refused as a
    /// voter while it was asked.
    pub(crate) fn is_owed(&self, id: ClaimId, node: NodeId) -> bool {
        self.find(id).is_some_and(|claim| claim.is_owed(node))
    }

    /// Whether this node may keep a key that an undo has to follow before new asks do.
    pub(crate) fn is_burdened(&self, node: NodeId) -> bool {
        self.all().any(|claim| claim.is_owed(node) || claim.has_ghost(node))
    }

    /// How many asks may still run out of connections to this node that have died.
    pub(crate) fn ghosts(&self, node: NodeId) -> usize {
        self.all().filter(|claim| claim.has_ghost(node)).count()
    }

    /// A node has closed the dead connection: what it had not read will never run.
    pub(crate) fn lay_ghosts(&mut self, node: NodeId) {
        for at in 0..self.capacity() {
            if let Some(claim) = self.at(at).and_then(|id| self.find_mut(id)) {
                claim.lay_ghost(node);
            }
        }
    }

    fn all(&self) -> impl Iterator<Item = &Claim> {
        self.ids().filter_map(|id| self.find(id))
    }
}
