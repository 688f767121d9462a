//! A permit of a semaphore: from the slots that nodes give to the one that a quorum keeps.
//!
//! Each node gives any slot that is free there, so a quorum of grants is not yet a permit. If the
//! slots differ, the client *settles* once per attempt: it moves its entries to one slot
//! (`settling`). While it holds the permit, it *heals*: nodes that gave another slot, or none, are
//! asked for its slot (`healing`). Without that, permits on a bare quorum leave holes on the other
//! nodes, which newcomers fill and so make more.
//!
//! A move is a request: it is guarded, counted, and undone by its token. The earlier answer of a
//! node no longer counts once a move is sent to it. The choice of a slot is in `proto::permits`.

mod healing;
mod settling;

use std::time::Duration;

use crate::proto::names::{NodeId, NodeSet};
use crate::proto::{lease::Lease, lock_mode::LockMode, permits::Offer, time::Timestamp};

/// The slots that nodes have given to one lock, and its healing. Empty for other locks.
#[derive(Debug)]
pub(super) struct Permit {
    is_wanted: bool,
    /// The slots given to the current attempt before it settled.
    offers: Vec<(NodeId, Offer)>,
    healing: Healing,
}

/// The healing of one lock.
#[derive(Debug)]
struct Healing {
    nodes: Vec<Healed>,
    /// The duration of the attempt, roughly a round trip.
    round_trip: Duration,
}

#[derive(Debug)]
struct Healed {
    node: NodeId,
    /// The number of repeated requests.
    tries: usize,
    /// The time at which it is asked again. Never while a request is pending.
    again_at: Timestamp,
    /// The time for which it keeps the permit if it grants.
    lease: Lease,
}

/// The agreement of the slots of a quorum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Agreed {
    /// The grants that count are all for one slot, or the lock is not a permit.
    Yes,
    /// The answers that are pending can still make one slot agree. These nodes must be moved to it.
    NotYet(NodeSet),
    /// The quorum is impossible: no slot is free on enough nodes.
    Never,
}

impl Permit {
    pub(super) const fn new() -> Self {
        Self { is_wanted: false, offers: Vec::new(), healing: Healing::new() }
    }

    /// Starts the permit of a new lock.
    pub(super) fn begin(&mut self, mode: LockMode) {
        self.is_wanted = matches!(mode, LockMode::Permit { .. });
        self.attempt_begins();
    }

    /// Returns whether the lock is a permit.
    pub(super) fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    pub(super) fn attempt_begins(&mut self) {
        self.offers.clear();
        self.healing.begin();
    }

    pub(super) fn due(&self) -> Timestamp {
        self.healing.due()
    }

    /// Returns the slot that most nodes have given, and their number.
    fn most_given(&self) -> Option<(u16, usize)> {
        let slots = || self.offers.iter().map(|(_, offer)| offer.slot());
        let counted = slots().map(|slot| (slot, slots().filter(|&other| other == slot).count()));
        counted.max_by_key(|&(_, count)| count)
    }

    /// Returns the nodes that have given another slot.
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
