//! Healing: a permit that is held is asked for on the nodes that do not keep it.
//!
//! Once for each node that denied or gave another slot, when the lock is granted or as soon as its late answer is there; and
//! if the slot is taken there, by somebody who is about to go, up to three times more. Never with an extension: that would
//! bring permits back that an operator or a loss has ended. So a node that once counted is not healed.

use std::time::Duration;

use super::{Healed, Healing};
use crate::proto::core::LockAtWork;
use crate::proto::core::effects::Decision;
use crate::proto::lease::Lease;
use crate::proto::names::{NodeId, NodeSet};
use crate::proto::time::Timestamp;
use crate::proto::vote::Vote;

impl Healing {
    pub(super) const fn new() -> Self {
        Self { nodes: Vec::new(), round_trip: Duration::ZERO }
    }

    pub(super) fn begin(&mut self) {
        self.nodes.clear();
    }

    /// When the next node is to be asked again.
    pub(super) fn due(&self) -> Timestamp {
        let all = self.nodes.iter().map(|healed| healed.again_at);
        all.min().unwrap_or(Timestamp::NEVER)
    }

    fn is_known(&self, node: NodeId) -> bool {
        self.nodes.iter().any(|healed| healed.node == node)
    }

    /// The node is asked now.
    fn asks(&mut self, node: NodeId, lease: Lease) {
        match self.nodes.iter_mut().find(|healed| healed.node == node) {
            Some(healed) => {
                healed.tries += 1;
                (healed.again_at, healed.lease) = (Timestamp::NEVER, lease);
            }
            None => {
                self.nodes.push(Healed { node, tries: 0, again_at: Timestamp::NEVER, lease });
            }
        }
    }

    /// The slot is taken there: the node is asked again after a while, unless that was the last time.
    fn taken(&mut self, node: NodeId, now: Timestamp) {
        let round_trip = self.round_trip;
        if let Some(healed) = self.nodes.iter_mut().find(|healed| healed.node == node)
            && let Some(&pause) = PAUSES.get(healed.tries)
        {
            healed.again_at = now + round_trip * pause;
        }
    }

    /// For how long the node keeps the permit that it has granted.
    fn lease_of(&self, node: NodeId) -> Option<Lease> {
        self.nodes.iter().find(|healed| healed.node == node).map(|healed| healed.lease)
    }

    /// The nodes that are to be asked again. It is for the last time, unless they are asked now.
    fn take_due(&mut self, now: Timestamp) -> NodeSet {
        let mut due = NodeSet::EMPTY;
        for healed in self.nodes.iter_mut().filter(|healed| healed.again_at <= now) {
            healed.again_at = Timestamp::NEVER;
            due.insert(healed.node);
        }
        due
    }
}

/// After so many round trips a node is asked again where the slot was taken.
const PAUSES: [u32; 3] = [2, 4, 6];

impl LockAtWork<'_> {
    /// A permit was granted: asks for it on the nodes that denied, or gave another slot.
    pub(in crate::proto::core) fn heal(&mut self) {
        self.active.permit.healing.round_trip = self.active.round.took(self.env.now.boot);
        self.heal_at(self.active.votes.denies());
    }

    /// A node has denied a claim after its permit was granted, or has given another slot.
    pub(in crate::proto::core) fn heal_late(&mut self, node: NodeId) {
        let was_granted = self.claim.slot().is_some() && self.lock.phase.is_held();
        if was_granted && !self.active.permit.healing.is_known(node) {
            self.heal_at(node.into());
        }
    }

    fn heal_at(&mut self, mut nodes: NodeSet) {
        // From before the move leaves, as for every lease.
        let lease = Lease::new(self.env.now, self.lock.ttl(), self.env.config.drift);
        let settled = self.claim.owed().or(self.claim.counted());
        nodes = nodes.without(settled);
        for node in nodes.iter() {
            if self.nodes[node.index()].link.takes_asks() {
                self.active.permit.healing.asks(node, lease);
                self.env.metrics.healed += 1;
            } else {
                nodes.remove(node);
            }
        }
        if !nodes.is_empty() {
            self.env.effects.decided(self.id, Decision::MoveAt(nodes));
        }
    }

    /// A node has answered a move of a permit that is held.
    pub(in crate::proto::core) fn take_healed(&mut self, node: NodeId, vote: Vote) {
        if !self.lock.phase.is_held() {
            return;
        }
        let (healing, now) = (&mut self.active.permit.healing, self.env.now);
        match vote {
            Vote::Deny => healing.taken(node, now.boot),
            Vote::Grant if self.claim.counted().contains(node) => {
                let lease = healing.lease_of(node).into_iter();
                lease.for_each(|lease| self.active.hold.heal(node, lease, now));
            }
            _ => {}
        }
        self.arm(self.active.permit.due());
    }

    /// Nodes are asked again whose time has come, unless the lock is lost.
    pub(in crate::proto::core) fn heal_due(&mut self) {
        if self.lock.phase.is_held() {
            let due = self.active.permit.healing.take_due(self.env.now.boot);
            self.heal_at(due);
            self.arm(self.active.permit.due());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_where_the_slot_is_taken_is_asked_after_2_4_and_6_round_trips_more() {
        let mut healing = Healing::new();
        healing.round_trip = Duration::from_nanos(10);
        let (node, mut now, mut pauses) = (NodeId(1), Timestamp(100), Vec::new());
        healing.asks(node, Lease::default());
        loop {
            healing.taken(node, now);
            let due = healing.due();
            if due == Timestamp::NEVER {
                break;
            }
            assert_eq!(healing.take_due(due), node.into());
            pauses.push(due.since(now).as_nanos());
            now = due;
            healing.asks(node, Lease::default());
            assert_eq!(healing.take_due(now), NodeSet::EMPTY, "it is being asked");
        }
        assert_eq!(pauses, [20, 40, 60]);
        healing.begin();
        assert!(!healing.is_known(node));
    }
}
