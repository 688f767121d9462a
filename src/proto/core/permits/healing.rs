//! Healing: a held permit is requested on the nodes that do not keep it.
//!
//! Each node that denied or gave another slot is asked once, when the lock is granted or when its
//! late answer arrives. If the slot is taken there, its holder may be about to leave, so the node
//! is asked up to three times more. Healing is never part of an extension, which would bring back
//! permits that an operator or a loss has ended. So a node that once counted is not healed.

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

    pub(super) fn due(&self) -> Timestamp {
        let all = self.nodes.iter().map(|healed| healed.again_at);
        all.min().unwrap_or(Timestamp::NEVER)
    }

    fn is_known(&self, node: NodeId) -> bool {
        self.nodes.iter().any(|healed| healed.node == node)
    }

    /// Records that a node is asked now.
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

    /// Records that the slot is taken on a node, which is asked again later unless this was the
    /// last time.
    fn taken(&mut self, node: NodeId, now: Timestamp) {
        let round_trip = self.round_trip;
        if let Some(healed) = self.nodes.iter_mut().find(|healed| healed.node == node)
            && let Some(&pause) = PAUSES.get(healed.tries)
        {
            healed.again_at = now + round_trip * pause;
        }
    }

    /// Returns the time for which a node keeps the permit if it has granted it.
    fn lease_of(&self, node: NodeId) -> Option<Lease> {
        self.nodes.iter().find(|healed| healed.node == node).map(|healed| healed.lease)
    }

    /// Takes the nodes that are due to be asked again. A node that is not asked now is not due
    /// again.
    fn take_due(&mut self, now: Timestamp) -> NodeSet {
        let mut due = NodeSet::EMPTY;
        for healed in self.nodes.iter_mut().filter(|healed| healed.again_at <= now) {
            healed.again_at = Timestamp::NEVER;
            due.insert(healed.node);
        }
        due
    }
}

/// The pauses, in round trips, before a node on which the slot was taken is asked again.
const PAUSES: [u32; 3] = [2, 4, 6];

impl LockAtWork<'_> {
    /// Requests a granted permit also on the nodes that denied, or gave another slot.
    pub(in crate::proto::core) fn heal(&mut self) {
        self.active.permit.healing.round_trip = self.active.round.took(self.env.now.boot);
        self.heal_at(self.active.votes.denies());
    }

    /// Heals a node that has denied after the permit was granted, or has given another slot.
    pub(in crate::proto::core) fn heal_late(&mut self, node: NodeId) {
        let was_granted = self.claim.slot().is_some() && self.lock.phase.is_held();
        if was_granted && !self.active.permit.healing.is_known(node) {
            self.heal_at(node.into());
        }
    }

    fn heal_at(&mut self, mut nodes: NodeSet) {
        // The lease counts from before the move is sent, as every lease does.
        let lease = Lease::new(self.env.now, self.lock.ttl(), self.env.config.drift);
        // A node that counts keeps the permit already, and one that owes an undo will delete this
        // token.
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

    /// Takes a node's answer to a move of a held permit.
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

    /// Asks the nodes that are due again, unless the lock is lost.
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
    fn a_node_with_a_taken_slot_is_asked_again_after_2_4_and_6_round_trips() {
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
