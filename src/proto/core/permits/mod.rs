//! One of a semaphore's permits: from slots that nodes have given to the one that a quorum keeps.
//!
//! Each node gives whichever slot is free there, so that a quorum of grants is no permit yet. Where their slots differ, the
//! client *settles*, once per attempt: it moves its entries to one slot, see `settling`. Once it holds, it *heals*: nodes
//! that gave another slot, or none, are asked for its slot, see `healing`. Without that, permits on a bare quorum
//! leave holes on the others, into which newcomers fall and make more.
//!
//! A move is an ask: it is guarded, counted, and undone by its token, and what a node has answered before counts no longer
//! once one is sent to it. Not here: which slot is the best, see `proto::permits`.

mod healing;
mod settling;

use std::time::Duration;

use crate::proto::names::{NodeId, NodeSet};
use crate::proto::{lease::Lease, lock_mode::LockMode, permits::Offer, time::Timestamp};

/// What the nodes have given one lock, and what is being healed. Empty for a lock that is no permit.
#[derive(Debug)]
pub(super) struct Permit {
    is_wanted: bool,
    /// What the nodes gave the present attempt before it settled.
    offers: Vec<(NodeId, Offer)>,
    healing: Healing,
}

/// The nodes that one lock heals.
#[derive(Debug)]
struct Healing {
    nodes: Vec<Healed>,
    /// How long the attempt took, roughly a round trip.
    round_trip: Duration,
}

#[derive(Debug)]
struct Healed {
    node: NodeId,
    /// How often it was asked.
    tries: usize,
    /// When it is asked again; never while it is being asked.
    again_at: Timestamp,
    /// For how long it keeps the permit if it grants.
    lease: Lease,
}

/// What the slots of a quorum amount to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Agreed {
    /// All grants that count are for one slot, or for a lock that is no permit.
    Yes,
    /// Nodes that have not answered, or are to be moved to it, can still make it one: the latter.
    NotYet(NodeSet),
    /// No slot is free on a quorum.
    Never,
}

impl Permit {
    pub(super) const fn new() -> Self {
        Self { is_wanted: false, offers: Vec::new(), healing: Healing::new() }
    }

    /// Of another lock.
    pub(super) fn begin(&mut self, mode: LockMode) {
        self.is_wanted = matches!(mode, LockMode::Permit { .. });
        self.attempt_begins();
    }

    /// Whether the lock is a permit.
    pub(super) fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    pub(super) fn attempt_begins(&mut self) {
        self.offers.clear();
        self.healing.begin();
    }

    /// When a node is to be healed.
    pub(super) fn due(&self) -> Timestamp {
        self.healing.due()
    }

    /// The slot that most nodes have given, and how many.
    fn most_given(&self) -> Option<(u16, usize)> {
        let slots = || self.offers.iter().map(|(_, offer)| offer.slot());
        let counted = slots().map(|slot| (slot, slots().filter(|&other| other == slot).count()));
        counted.max_by_key(|&(_, count)| count)
    }

    /// The nodes that have given another slot than this one.
    fn with_other_slots(&self, slot: u16) -> NodeSet {
        let mut nodes = NodeSet::default();
        let others = self.offers.iter().filter(|(_, offer)| offer.slot() != slot);
        others.for_each(|&(node, _)| nodes.insert(node));
        nodes
    }

    fn given(&mut self, node: NodeId, offer: Offer) {
        self.offers.retain(|&(of, _)| of != node);
        self.offers.push((node, offer));
    }
}
