//! Waiting: which lock of this core asks first, the pauses between two attempts, and what ends them early.
//!
//! Every pause ends by a timer, at the latest when the keys in the way have run out of TTL. A notification (`push`)
//! is a hint that ends a pause early. It says that a key has *changed*, not that it is *free*: nodes also report an
//! extension by the holder, and the grant of another waiter. So a notification leads to one ask, to the node that
//! sent it, and the other nodes are asked once that one has granted. After asks that win nothing, a lock ignores
//! notifications for a growing interval; otherwise two waiters could wake each other for as long as a third holds the
//! lock.
//!
//! The locks of one core need no notification of one another: they stand in a queue, see `wait_queue`. The transitions of one
//! lock that waits are in `waiter`, and in `waiter::ticket` those of a lock with a ticket in the queue on the nodes.

mod pause;
mod wait_queue;
mod waiter;

use std::time::Duration;

use self::pause::Pause;
use self::wait_queue::QueuePosition;
use crate::proto::{names::NodeSet, request::Wait, time::Timestamp};

pub(super) use self::wait_queue::{QueueKey, WaitQueues};
pub(super) use self::waiter::ticket::{Ticket, TicketRead, Tickets};

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
