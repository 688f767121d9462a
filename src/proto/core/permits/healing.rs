//! Healing: a permit that is held is asked for on the nodes that do not keep it.
//!
//! Once for each node that denied or gave another slot, when the lock is granted or as soon as its late answer is there; and
//! if the slot is taken there, by somebody who is about to go, up to three times more. Never with an extension: that would
//! bring permits back that an operator or a loss has ended. So a node that once counted is not healed.

use std::time::Duration;

use crate::proto::core::Core;
use crate::proto::core::locks::Phase;
use crate::proto::lease::Lease;
use crate::proto::names::{ClaimId, LockId, NodeId};
use crate::proto::time::{ClockReading, Timestamp};
use crate::proto::vote::Vote;

/// The nodes that one lock heals.
#[derive(Debug)]
pub(super) struct Healing {
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

    /// It is not asked again, unless it is asked now.
    fn stops(&mut self, node: NodeId) {
        let healed = self.nodes.iter_mut().filter(|healed| healed.node == node);
        healed.for_each(|healed| healed.again_at = Timestamp::NEVER);
    }

    /// For how long the node keeps the permit that it has granted.
    fn lease_of(&self, node: NodeId) -> Option<Lease> {
        self.nodes.iter().find(|healed| healed.node == node).map(|healed| healed.lease)
    }

    fn next_due(&self, now: Timestamp) -> Option<NodeId> {
        self.nodes.iter().find(|healed| healed.again_at <= now).map(|healed| healed.node)
    }
}

/// After so many round trips a node is asked again where the slot was taken.
const PAUSES: [u32; 3] = [2, 4, 6];

impl Core {
    /// A permit was granted: asks for it on the nodes that denied, or gave another slot.
    pub(in crate::proto::core) fn heal(&mut self, id: LockId, now: ClockReading) {
        let Some(active) = self.locks.active_mut(id) else { return };
        active.permit.healing.round_trip = active.round.took(now.boot);
        for node in active.votes.denies().iter() {
            self.heal_node(node, id, now);
        }
    }

    /// A node has denied a claim after its permit was granted, or has given another slot.
    pub(in crate::proto::core) fn heal_late(
        &mut self,
        node: NodeId,
        claim: ClaimId,
        now: ClockReading,
    ) {
        let Some(claim) = self.claims.find(claim).filter(|claim| claim.slot().is_some()) else {
            return;
        };
        let Some(id) = claim.lock() else { return };
        let was_granted = self.locks.find(id).is_some_and(|lock| lock.phase.is_held());
        let is_known =
            |id| self.locks.active(id).is_some_and(|it| it.permit.healing.is_known(node));
        if was_granted && !is_known(id) {
            self.heal_node(node, id, now);
        }
    }

    fn heal_node(&mut self, node: NodeId, id: LockId, now: ClockReading) {
        let takes_asks = self.node(node).link.takes_asks();
        let Some((lock, active)) = self.locks.at_work_mut(id) else { return };
        let claim = lock.claim();
        let is_free = !self.claims.is_owed(claim, node) && !self.claims.is_counted(claim, node);
        if takes_asks && is_free {
            active.permit.healing.asks(node, Lease::new(now, lock.ttl(), self.config.drift));
            self.metrics.healed += 1;
            // It confirms no fencing token, and so it raises no counter.
            self.send_move(node, claim, 0, now);
        }
    }

    /// A node has answered a move of a permit that is held.
    pub(in crate::proto::core) fn healed(
        &mut self,
        node: NodeId,
        claim: ClaimId,
        vote: Vote,
        now: ClockReading,
    ) {
        let Some(claim) = self.claims.find(claim) else { return };
        let is_counted = claim.counted().contains(node);
        let Some(id) = claim.lock() else { return };
        let Some((lock, active)) = self.locks.at_work_mut(id) else { return };
        if !lock.phase.is_held() {
            return;
        }
        match vote {
            Vote::Deny => active.permit.healing.taken(node, now.boot),
            Vote::Grant if is_counted => {
                if let Some(lease) = active.permit.healing.lease_of(node) {
                    active.hold.is_healed(node, lease, now);
                }
            }
            _ => {}
        }
        let due = active.permit.due();
        self.arm_lock(id, due);
    }

    /// Nodes are asked again whose time has come, unless the lock is lost.
    pub(in crate::proto::core) fn heal_due(&mut self, id: LockId, now: ClockReading) {
        while let Some((lock, active)) = self.locks.at_work_mut(id)
            && matches!(lock.phase, Phase::Held | Phase::Extending)
        {
            let Some(node) = active.permit.healing.next_due(now.boot) else {
                let due = active.permit.due();
                return self.arm_lock(id, due);
            };
            active.permit.healing.stops(node);
            self.heal_node(node, id, now);
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
            assert_eq!(healing.next_due(due), Some(node));
            pauses.push(due.since(now).as_nanos());
            now = due;
            healing.asks(node, Lease::default());
            assert_eq!(healing.next_due(now), None, "it is being asked");
        }
        assert_eq!(pauses, [20, 40, 60]);
        healing.begin();
        assert!(!healing.is_known(node));
    }
}
