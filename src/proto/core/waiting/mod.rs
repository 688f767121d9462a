//! Waiting: which lock of this core asks first, the pauses between two attempts, and what ends them early.
//!
//! Every pause ends by a timer, at the latest when the keys in the way have run out of TTL. A notification (`push`)
//! is a hint that ends a pause early. It says that a key has *changed*, not that it is *free*: nodes also report an
//! extension by the holder, and the grant of another waiter. So a notification leads to one ask, to the node that
//! sent it, and the other nodes are asked once that one has granted. After asks that win nothing, a lock ignores
//! notifications for a growing interval; otherwise two waiters could wake each other for as long as a third holds the
//! lock.
//!
//! The locks of one core need no notification of one another: they stand in a queue, see `wait_queue`. [`WaitingLock`] is one lock
//! that waits, with its transitions: those of a pause in `waiter`, and in `turn` those of a lock with a ticket in the queue on
//! the nodes.

mod pause;
mod ticket;
mod wait_queue;
mod waiter;

use std::time::Duration;

use self::pause::Pause;
use self::wait_queue::QueuePosition;
use super::acquiring::Attempt;
use super::claims::Claims;
use super::effects::Effect;
use super::links::{Ability, Nodes};
use super::locks::{Active, Lock, Phase, Round};
use super::mode_change::ModeChange;
use super::{Core, Env};
use crate::proto::keys::Keys;
use crate::proto::lock_kind::LockKind;
use crate::proto::names::{ClaimId, LockId, NodeId, NodeSet};
use crate::proto::request::Wait;
use crate::proto::time::{ClockReading, Timestamp};
use crate::proto::vote::{Cause, Votes};

pub(super) use self::ticket::{Ticket, TicketRead, Tickets};
pub(super) use self::wait_queue::{QueueKey, WaitQueues};

/// How one lock waits: for how long, in which queues, and its present pause.
#[derive(Debug)]
pub(super) struct Waiting {
    /// When the caller asked for it.
    asked_at: Timestamp,
    wait: Wait,
    deadline: Timestamp,
    pause: Pause,
    /// The queues that it stands in, and since when.
    queues: Vec<QueueKey>,
    position: QueuePosition,
    /// The nodes on which it is subscribed to the channels of its library. None is left when its wait ends.
    subscribed: NodeSet,
    /// Those of them that have confirmed it, if every release is published there.
    confirmed: NodeSet,
}

impl Waiting {
    pub(super) fn new() -> Self {
        Self {
            asked_at: Timestamp(0),
            wait: Wait::No,
            deadline: Timestamp::NEVER,
            pause: Pause::default(),
            queues: Vec::new(),
            position: QueuePosition::NONE,
            subscribed: NodeSet::EMPTY,
            confirmed: NodeSet::EMPTY,
        }
    }

    /// A lock is asked for now.
    pub(super) fn begin(&mut self, wait: Wait, now: Timestamp) {
        self.pause.begin();
        self.queues.clear();
        self.asked_at = now;
        (self.wait, self.deadline) = match wait {
            Wait::UpTo(Duration::ZERO) | Wait::No => (Wait::No, Timestamp::NEVER),
            Wait::UpTo(span) => (wait, now + span),
            Wait::Forever => (wait, Timestamp::NEVER),
        };
    }

    /// Whether it waits if its first attempt is refused.
    pub(super) fn is_wanted(&self) -> bool {
        self.wait != Wait::No
    }

    pub(super) fn asked_at(&self) -> Timestamp {
        self.asked_at
    }

    pub(super) fn deadline(&self) -> Timestamp {
        self.deadline
    }

    pub(super) fn is_queued(&self) -> bool {
        !self.queues.is_empty()
    }

    /// When its pause is over.
    pub(super) fn until(&self) -> Timestamp {
        self.pause.until()
    }

    /// The nodes whose notifications it waits for.
    pub(super) fn leads(&self) -> NodeSet {
        self.pause.leads()
    }

    /// Whether it is subscribed to its library's channels anywhere.
    pub(super) fn is_subscribed(&self) -> bool {
        !self.subscribed.is_empty()
    }

    /// Subscribes it on these nodes as well. Returns whether that is new.
    pub(super) fn subscribe_at(&mut self, nodes: NodeSet) -> bool {
        let both = self.subscribed.or(nodes);
        std::mem::replace(&mut self.subscribed, both) != both
    }

    /// Unsubscribes it from all nodes. Returns those, and which of them had confirmed.
    pub(super) fn unsubscribe(&mut self) -> (NodeSet, NodeSet) {
        (std::mem::take(&mut self.subscribed), std::mem::take(&mut self.confirmed))
    }

    /// Every release is published to it on these nodes from now on.
    pub(super) fn confirm_at(&mut self, nodes: NodeSet) {
        self.confirmed = self.confirmed.or(nodes);
    }

    /// Whether it reads the key before it asks, so that it needs no notification.
    pub(super) fn will_read(&self) -> bool {
        self.pause.is_late()
    }

    /// Where it stands in the queue of its only resource.
    pub(super) fn place(&self) -> Option<(QueueKey, QueuePosition)> {
        Some((*self.queues.first()?, self.position))
    }

    /// When so many of the keys in its way have run out of TTL, if it is known.
    pub(super) fn free_at(&mut self, needed: usize) -> Option<Timestamp> {
        self.pause.free_at(needed)
    }
}

/// A lock that waits, with what its transitions use in addition.
pub(super) struct WaitingLock<'w> {
    id: LockId,
    lock: &'w mut Lock,
    keys: &'w Keys,
    votes: &'w mut Votes,
    attempt: &'w mut Attempt,
    round: &'w Round,
    waiting: &'w mut Waiting,
    ticket: &'w mut Option<Box<Ticket>>,
    mode_change: ModeChange,
    foreign: Option<&'static LockKind>,
    wants_permit: bool,
    nodes: &'w mut Nodes,
    queues: &'w mut WaitQueues,
    /// When something is due for the lock.
    due: Timestamp,
    env: Env<'w>,
}

impl Core {
    /// Applies a transition to a lock that waits. An idle lock, and one that has ended, waits for nothing.
    pub(super) fn with_waiter<R: Default>(
        &mut self,
        id: LockId,
        now: ClockReading,
        transition: impl FnOnce(&mut WaitingLock<'_>) -> R,
    ) -> R {
        self.with_waiter_and_claims(id, now, |waiter, _| transition(waiter))
    }

    /// Applies a transition that may take a ticket, which is a claim.
    pub(super) fn with_waiter_and_claims<R: Default>(
        &mut self,
        id: LockId,
        now: ClockReading,
        transition: impl FnOnce(&mut WaitingLock<'_>, &mut Claims) -> R,
    ) -> R {
        let (nodes, queues, env) = (&mut self.nodes, &mut self.queues, env!(self, now));
        let Some((lock, active)) = self.locks.at_work_mut(id) else { return R::default() };
        let (foreign, wants_permit) = (active.foreign(), active.permit.is_wanted());
        let Active { keys, votes, attempt, round, waiting, ticket, mode_change, .. } = active;
        let mode_change = *mode_change;
        let mut waiter = WaitingLock {
            id,
            lock,
            keys,
            votes,
            attempt,
            round,
            waiting,
            ticket,
            mode_change,
            foreign,
            wants_permit,
            nodes,
            queues,
            due: Timestamp::NEVER,
            env,
        };
        let result = transition(&mut waiter, &mut self.claims);
        let due = waiter.due;
        self.locks.arm(id, due);
        result
    }

    /// The locks that are scheduled ask, once this transition is over.
    #[inline]
    pub(super) fn run_scheduled(&mut self) {
        if self.queues.has_scheduled() {
            self.common.effects.push(Effect::RunScheduled);
        }
    }

    /// What this core has just released is free for the first lock that waits here, which is scheduled: no node notifies
    /// a connection of what that connection changed itself.
    pub(super) fn hand_on(&mut self, claim: ClaimId, now: ClockReading) {
        if self.queues.is_empty() {
            return;
        }
        let Some(claim) = self.claims.find(claim).filter(|claim| !claim.counted().is_empty())
        else {
            return;
        };
        for key in claim.keys().iter() {
            let Some(next) = self.queues.front(self.queues.key(key)) else { continue };
            let Some((lock, active)) = self.locks.at_work_mut(next) else { continue };
            if claim.lock() != Some(next) && lock.phase == Phase::Pausing {
                active.waiting.pause.handed_on(now.boot);
                self.queues.schedule(next);
            }
        }
    }

    /// A command about a claim was sent to a node. The node does not report to this connection what the command changes, and
    /// forgets that a waiter wanted to know of the key: the first waiter reads the key again.
    #[inline(never)]
    pub(super) fn read_behind(&mut self, claim: ClaimId, node: NodeId, now: ClockReading) {
        let Some(claim) = self.claims.find(claim) else { return };
        // Of several keys each has one holder: what we have changed is handed on when we release it.
        if claim.keys().len() > 1 {
            return;
        }
        let first = self.queues.front(self.queues.key(claim.keys().first()));
        if let Some(waiter) = first.filter(|_| claim.lock() != first) {
            self.with_waiter(waiter, now, |it| it.read_behind(node));
        }
    }

    /// Whether no later waiter gets the lock before this one, which has a ticket: a quorum of nodes has recorded its place.
    #[must_use]
    pub fn has_place(&self, id: LockId) -> bool {
        let ticket = self.locks.active(id).and_then(|active| active.ticket.as_ref());
        ticket.is_some_and(|ticket| ticket.has_place())
    }

    /// Why waiters cannot queue on a node, if an ask has found that out. Their asks carry no ticket there, and are in no
    /// order.
    #[must_use]
    pub fn no_queue(&self, node: NodeId) -> Option<Cause> {
        match self.nodes[node.index()].capabilities.queue() {
            Ability::Refused(cause) => Some(cause),
            Ability::Given | Ability::Unknown => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_has_waited_leaves_nothing_to_the_next() {
        let mut waiting = Waiting::new();
        waiting.begin(Wait::UpTo(Duration::from_secs(1)), Timestamp(5));
        waiting.pause.refused(true, 1);
        assert!(waiting.is_wanted());
        waiting.begin(Wait::No, Timestamp(9));
        assert!(!waiting.is_wanted() && !waiting.pause.follows_split());
        assert_eq!(waiting.deadline, Timestamp::NEVER);
    }
}
