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

use super::Core;
use super::claims::Claim;
use crate::proto::answer::Answer;
use crate::proto::core::links::{Mistyped, Pending};
use crate::proto::core::locks::Phase;
use crate::proto::lease::Lease;
use crate::proto::lock_kind::Command;
use crate::proto::lock_mode::LockMode;
use crate::proto::names::{ClaimId, LockId, NodeId, NodeSet};
use crate::proto::permits::Offer;
use crate::proto::time::{ClockReading, Timestamp};
use crate::proto::vote::Vote;
use crate::resp::Token;

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

impl Core {
    /// The number of the permit of a lock that is held; `None` if it is none.
    #[must_use]
    pub fn slot(&self, id: LockId) -> Option<u16> {
        let lock = self.locks.find(id).filter(|lock| lock.phase.is_held())?;
        self.claims.find(lock.claim())?.slot()
    }

    /// A node has given a slot. Once there is one on which the nodes agree, or are to agree, another one is a denial.
    pub(super) fn slot_given(&mut self, node: NodeId, claim: ClaimId, offer: Offer) -> Vote {
        let Some(claim) = self.claims.find(claim) else { return Vote::Deny };
        // A quorum of grants is a permit only if all are for one slot: two slots on bare quorums
        // would be two permits.
        let is_other = claim.slot().is_some_and(|slot| slot != offer.slot());
        if is_other || offer.slot() >= claim.slots().permits() {
            return Vote::Deny;
        }
        if let Some((lock, active)) = claim.lock().and_then(|lock| self.locks.at_work_mut(lock))
            && lock.phase == Phase::Asking
        {
            active.permit.given(node, offer);
        }
        Vote::Grant
    }

    /// Asks nodes for the slot of a permit.
    pub(super) fn move_at(&mut self, id: LockId, nodes: NodeSet, now: ClockReading) {
        let lock = self.locks.find(id).map(|lock| (lock.phase, lock.claim()));
        let Some((phase, claim)) = lock else { return };
        // One that is held confirms no fencing token, and so it raises no counter.
        let asking = self.claims.find(claim).filter(|_| phase == Phase::Asking);
        let counter = asking.map_or(0, Claim::counter);
        nodes.iter().for_each(|node| self.send_move(node, claim, counter, now));
    }

    /// Asks a node for the slot of this claim, and for no other. What it has given before counts no longer.
    fn send_move(&mut self, node: NodeId, id: ClaimId, counter: u64, now: ClockReading) {
        let Some(claim) = self.claims.find_mut(id) else { return };
        // The move may give the node a key it has not had, which has to be undone like that of an
        // ask.
        claim.sent(node, now.boot.after_ms(claim.ttl_ms()));
        let ttl_ms = claim.ttl_ms();
        self.common.metrics.of(node).asks += 1;
        let pending = |by_digest| Pending::Move { claim: id, counter, by_digest };
        self.send_with_proof(node, id, Command::Move, (ttl_ms, counter), now, pending);
    }

    /// What the answer to a move says, unless the move was sent again.
    pub(super) fn move_answered(
        &mut self,
        node: NodeId,
        id: ClaimId,
        (counter, by_digest): (u64, bool),
        token: Token<'_>,
        now: ClockReading,
    ) -> Result<Option<Answer>, Mistyped> {
        let answer = Command::Move.vote(token).ok_or(Mistyped)?;
        let Some(lock) = self.claims.find(id).map(|claim| claim.lock()) else { return Ok(None) };
        let phase = lock.and_then(|lock| self.locks.find(lock)).map(|lock| lock.phase);
        let is_wanted = phase.is_some_and(|it| it == Phase::Asking || it.is_held());
        match answer {
            Answer::NoScript => {
                self.node_mut(node).forget_scripts();
                if by_digest && is_wanted && self.node(node).link.takes_asks() {
                    self.send_move(node, id, counter, now);
                    return Ok(None);
                }
            }
            // No script was given the restart guard's key.
            Answer::Guarded(_) if self.config.restart_guard_key().is_none() => {
                return Err(Mistyped);
            }
            _ => {}
        }
        Ok(Some(answer))
    }
}
