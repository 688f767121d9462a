//! All claims of a core, under ids that are never reused.

use super::claim::Claim;
use crate::proto::names::{ClaimId, NodeId};
use crate::proto::slab::Slab;

pub(crate) type Claims = Slab<ClaimId, Claim>;

impl Claims {
    pub(crate) fn ticket_of(&mut self, id: ClaimId) -> Option<&mut Claim> {
        self.find_mut(self.find(id)?.ticket()?)
    }

    pub(crate) fn that(&self, is: impl Fn(&Claim) -> bool) -> impl Iterator<Item = ClaimId> {
        self.ids().filter(move |id| self.find(*id).is_some_and(&is))
    }

    /// Returns whether this claim is to be undone on this node. A held lock can owe that too, if
    /// the node was rejected as a voter during the request.
    pub(crate) fn is_owed(&self, id: ClaimId, node: NodeId) -> bool {
        self.find(id).is_some_and(|claim| claim.is_owed(node))
    }

    /// Returns whether this node may keep a key that must be undone before new requests.
    pub(crate) fn is_burdened(&self, node: NodeId) -> bool {
        self.all().any(|claim| claim.is_owed(node) || claim.has_ghost(node))
    }

    pub(crate) fn ghosts(&self, node: NodeId) -> usize {
        self.all().filter(|claim| claim.has_ghost(node)).count()
    }

    /// Records that a node has closed the dead connection: what it had not read will never run.
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
