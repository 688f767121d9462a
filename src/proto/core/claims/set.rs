//! All claims of a core, under names that are never used twice.
//!
//! Apart from the folder's `mod.rs`, so that who asks whether a node may still hold something of ours needs no more
//! than this. Not here: what follows from it.

use super::claim::Claim;
use crate::proto::names::{ClaimId, NodeId};
use crate::proto::slab::Slab;
use crate::proto::time::Timestamp;

pub(crate) struct Claims(Slab<Claim>);

impl Claims {
    pub(crate) fn new() -> Self {
        Self(Slab::new())
    }

    /// Makes room for a claim, which is to begin.
    #[inline]
    pub(crate) fn occupy(&mut self) -> (ClaimId, &mut Claim) {
        let (key, claim) = self.0.occupy(Claim::new);
        (ClaimId(key), claim)
    }

    #[inline]
    pub(crate) fn find(&self, id: ClaimId) -> Option<&Claim> {
        self.0.find(id.0)
    }

    #[inline]
    pub(crate) fn find_mut(&mut self, id: ClaimId) -> Option<&mut Claim> {
        self.0.find_mut(id.0)
    }

    /// The ticket with which the asks of a claim wait in the queue.
    pub(crate) fn ticket_of(&mut self, id: ClaimId) -> Option<&mut Claim> {
        self.find_mut(self.find(id)?.ticket()?)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = ClaimId> {
        (0..self.0.capacity()).filter_map(|at| self.0.at(at)).map(ClaimId)
    }

    /// The claims of which this is true.
    pub(crate) fn that(&self, is: impl Fn(&Claim) -> bool) -> impl Iterator<Item = ClaimId> {
        self.ids().filter(move |id| self.find(*id).is_some_and(&is))
    }

    pub(crate) fn free(&mut self, id: ClaimId) {
        self.0.free(id.0);
    }

    /// Something is due for this claim at `at`.
    #[inline]
    pub(crate) fn arm(&mut self, id: ClaimId, at: Timestamp) {
        self.0.arm(id.0, at);
    }

    /// When something is due for any of them.
    pub(crate) fn due(&self) -> Timestamp {
        self.0.due()
    }

    /// When something is due for this one, at the latest.
    pub(crate) fn due_of(&self, id: ClaimId) -> Timestamp {
        self.0.due_of(id.0)
    }

    /// Walks through those for which something may be due at `by`, see [`Slab::next_due`].
    pub(crate) fn next_due(&mut self, at: &mut usize, by: Timestamp) -> Option<ClaimId> {
        self.0.next_due(at, by).map(ClaimId)
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
        for at in 0..self.0.capacity() {
            if let Some(claim) = self.0.at(at).and_then(|key| self.0.find_mut(key)) {
                claim.lay_ghost(node);
            }
        }
    }

    fn all(&self) -> impl Iterator<Item = &Claim> {
        (0..self.0.capacity()).filter_map(|at| self.0.find(self.0.at(at)?))
    }
}
