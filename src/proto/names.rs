//! The identifiers of nodes, links, locks, claims, inspections and observers, and sets of nodes.

use std::fmt;

use super::slab::Key;

/// The maximum number of nodes.
pub const MAX_NODES: usize = 32;

/// A node, identified by its index in the configuration.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(super) u8);

impl NodeId {
    /// Returns the index of the node in the configuration, from zero. Texts show this plus one.
    #[must_use]
    pub fn index(self) -> usize {
        self.0.into()
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0 + 1)
    }
}

/// A connection. Each node has a command link, with the node's index, and a push link, on which it
/// notifies waiters of changes. The indexes of push links follow those of all command links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId {
    at: u8,
    node: NodeId,
}

impl LinkId {
    pub(super) fn command(node: NodeId) -> Self {
        Self { at: node.0, node }
    }

    pub(super) fn push(node: NodeId, nodes: usize) -> Self {
        // It fits: the index is below twice MAX_NODES.
        Self { at: node.0 + nodes as u8, node }
    }

    /// Returns the index of the link, from zero, below twice the number of nodes.
    #[must_use]
    pub fn index(self) -> usize {
        self.at.into()
    }

    /// Returns the node at the other end.
    #[must_use]
    pub fn node(self) -> NodeId {
        self.node
    }

    /// Returns whether this is a push link. It leads to the same address as the command link, and
    /// is opened when a lock waits.
    #[must_use]
    pub fn is_push(self) -> bool {
        self.at != self.node.0
    }
}

/// Declares identifiers of the tenants of a slab.
macro_rules! slab_ids {
    ($($(#[$about:meta])+ $view:vis struct $id:ident;)+) => {$(
        $(#[$about])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        $view struct $id(pub(super) Key);

        impl From<Key> for $id {
            #[inline]
            fn from(key: Key) -> Self {
                Self(key)
            }
        }

        impl From<$id> for Key {
            #[inline]
            fn from(id: $id) -> Self {
                id.0
            }
        }
    )+};
}

slab_ids! {
    /// The identifier of a lock from acquire to its end. It is reused only after 2^31 further locks
    /// in its slot.
    pub struct LockId;
    /// The identifier of an inspection.
    pub struct ViewId;
    /// The identifier of an observer of an election.
    pub struct ObserverId;
    /// The identifier of a claim.
    pub(super) struct ClaimId;
}

/// A set of nodes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct NodeSet(u32);

impl From<NodeId> for NodeSet {
    fn from(node: NodeId) -> Self {
        Self(bit(node))
    }
}

impl NodeSet {
    pub(super) const EMPTY: Self = Self(0);

    pub(super) fn first(nodes: usize) -> Self {
        // A shift by all 32 bits, which `>>` rejects, leaves the empty set.
        Self(u32::MAX.checked_shr((MAX_NODES - nodes) as u32).unwrap_or_default())
    }

    /// Returns the number of nodes in the set.
    #[must_use]
    pub fn len(self) -> usize {
        match self.0 {
            // Votes count sets often, and baseline x86-64 has no instruction that counts bits.
            few @ 0..16 => (BITS_OF_FOUR >> (4 * few) & 0xf) as usize,
            many => many.count_ones() as usize,
        }
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns whether the set contains this node.
    #[must_use]
    pub fn contains(self, node: NodeId) -> bool {
        self.0 & bit(node) != 0
    }

    /// Returns the nodes in the set, in the order of the configuration.
    pub fn iter(self) -> impl Iterator<Item = NodeId> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            // It fits: the number is below MAX_NODES, or 32 if no node is left.
            let node = NodeId(rest.trailing_zeros() as u8);
            (rest != 0).then(|| {
                rest &= rest - 1;
                node
            })
        })
    }

    pub(super) fn insert(&mut self, node: NodeId) {
        self.0 |= bit(node);
    }

    pub(super) fn remove(&mut self, node: NodeId) {
        self.0 &= !bit(node);
    }

    /// Removes a node, and returns whether it was in the set.
    pub(super) fn take(&mut self, node: NodeId) -> bool {
        let was_there = self.contains(node);
        self.remove(node);
        was_there
    }

    pub(super) fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(super) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// The number of bits that are set in each number of four bits, with that of 0 in the lowest digit.
const BITS_OF_FOUR: u64 = 0x4332_3221_3221_2110;

impl fmt::Debug for NodeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

fn bit(node: NodeId) -> u32 {
    1 << node.0
}

/// The name of a ticket up to the node's digits: its mode and 32 random digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TicketName(pub(super) [u8; Self::LEN]);

impl TicketName {
    pub(super) const LEN: usize = 33;

    /// Returns the name of a ticket from its longer name on a node.
    pub(super) fn of(ticket: &[u8]) -> Self {
        let mut name = [0; Self::LEN];
        let len = ticket.len().min(Self::LEN);
        name[..len].copy_from_slice(&ticket[..len]);
        Self(name)
    }

    pub(super) fn is_for_permit(self) -> bool {
        self.0[0] == b'p'
    }
}

impl fmt::Debug for TicketName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", String::from_utf8_lossy(&self.0[..5]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iteration_includes_the_first_and_the_last_node() {
        let mut set = NodeSet::default();
        assert_eq!(set.iter().next(), None);
        for node in [31, 0, 7] {
            set.insert(NodeId(node));
        }
        assert_eq!(set.iter().map(NodeId::index).collect::<Vec<_>>(), [0, 7, 31]);
        assert_eq!(set.iter().count(), set.len());
    }
}
