//! Names: of nodes, links, locks, claims, inspections and observers, and sets of nodes.
//!
//! Apart from what they name, so that an event or a request can carry them without knowing it.

use std::fmt;

use super::slab::Key;

/// The most nodes that a lock can be taken on.
pub const MAX_NODES: usize = 32;

/// One node of the configuration, by its place in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(super) u8);

impl NodeId {
    /// The place of the node in the configuration, from zero. People are shown this plus one.
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

/// One connection's place. Each node has a command link, under the same index, and a push link, on
/// which it tells waiters of changes; those come behind the command links of all nodes.
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
        // At most twice MAX_NODES.
        Self { at: node.0 + nodes as u8, node }
    }

    /// The place of the link, from zero: below twice the number of nodes.
    #[must_use]
    pub fn index(self) -> usize {
        self.at.into()
    }

    /// The node at the other end.
    #[must_use]
    pub fn node(self) -> NodeId {
        self.node
    }

    /// Whether it is a node's push link. It is opened to the same address, when somebody waits.
    #[must_use]
    pub fn is_push(self) -> bool {
        self.at != self.node.0
    }
}

/// Names of the tenants of a slab.
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
    /// The name of a lock from its acquire to its end. Never used twice.
    pub struct LockId;
    /// The name of an inspection.
    pub struct ViewId;
    /// The name of one who observes who leads.
    pub struct ObserverId;
    /// The name of what the nodes may hold for one attempt.
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

    /// The first nodes of the configuration.
    pub(super) fn first(nodes: usize) -> Self {
        Self(u32::MAX.checked_shr((MAX_NODES - nodes) as u32).unwrap_or_default())
    }

    /// How many nodes are in it.
    #[must_use]
    pub fn len(self) -> usize {
        match self.0 {
            // The x86-64 that we are compiled for cannot count bits in one instruction, and each vote counts sets.
            few @ 0..16 => (BITS_OF_FOUR >> (4 * few) & 0xf) as usize,
            many => many.count_ones() as usize,
        }
    }

    /// Whether no node is in it.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether this node is in it.
    #[must_use]
    pub fn contains(self, node: NodeId) -> bool {
        self.0 & bit(node) != 0
    }

    /// The nodes in it, in the order of the configuration.
    pub fn iter(self) -> impl Iterator<Item = NodeId> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            // Below MAX_NODES, or 32 where nothing is left.
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

    /// Removes a node, and returns whether it was there.
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

/// How many bits are set in each number of four bits, that of 0 in the lowest digit.
const BITS_OF_FOUR: u64 = 0x4332_3221_3221_2110;

impl fmt::Debug for NodeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

fn bit(node: NodeId) -> u32 {
    1 << node.0
}

/// A ticket's name up to the node's digits: the mode, and 32 that are random.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TicketName(pub(super) [u8; Self::LEN]);

impl TicketName {
    pub(super) const LEN: usize = 33;

    /// Returns the name of the ticket that is called so on a node, where the name is longer.
    pub(super) fn of(ticket: &[u8]) -> Self {
        let mut name = [0; Self::LEN];
        let len = ticket.len().min(Self::LEN);
        name[..len].copy_from_slice(&ticket[..len]);
        Self(name)
    }

    /// Whether its owner wants a permit.
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
    fn the_first_and_the_last_node_are_walked() {
        let mut set = NodeSet::default();
        assert_eq!(set.iter().next(), None);
        for node in [31, 0, 7] {
            set.insert(NodeId(node));
        }
        assert_eq!(set.iter().map(NodeId::index).collect::<Vec<_>>(), [0, 7, 31]);
        assert_eq!(set.iter().count(), set.len());
    }
}
