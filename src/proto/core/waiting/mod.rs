//! Waiting: the order in which the locks of this core request a resource, and the pauses between
//! attempts.
//!
//! Every pause ends by a timer, no later than the keys in the way expire. A notification (`push`)
//! only ends a pause earlier, and only says that a key *changed*: nodes also report an extension by
//! the holder, and the grant of another waiter. So a notification causes one request, to the node
//! that sent it; the other nodes are asked after that node has granted. After requests that win
//! nothing, a lock ignores notifications for a growing interval. Otherwise two waiters could wake
//! each other for as long as a third client holds the lock.
//!
//! The rules are in docs/how-it-works/waiters.md.

mod pause;
mod wait_queue;
mod waiter;

use std::time::Duration;

use self::pause::Pause;
use self::wait_queue::QueuePosition;
use crate::proto::{names::NodeSet, request::Wait, time::Timestamp};

pub(super) use self::wait_queue::{QueueKey, WaitQueues};
pub(super) use self::waiter::ticket::{Ticket, TicketRead, Tickets};

/// The wait of one lock: its deadline, its queues and its current pause.
#[derive(Debug)]
pub(super) struct Waiting {
    asked_at: Timestamp,
    wait: Wait,
    deadline: Timestamp,
    pause: Pause,
    /// The queues that the lock stands in, all at `position`.
    queues: Vec<QueueKey>,
    position: QueuePosition,
    /// The nodes on which the lock is subscribed to its library's channels. Empty once the wait has
    /// ended.
    subscribed: NodeSet,
    /// The subscribed nodes that have confirmed, if the library publishes every release.
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

    /// Starts the wait of a new acquisition.
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

    /// Returns whether the lock waits if its first attempt is refused.
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

    pub(super) fn until(&self) -> Timestamp {
        self.pause.until()
    }

    pub(super) fn leads(&self) -> NodeSet {
        self.pause.leads()
    }

    pub(super) fn is_subscribed(&self) -> bool {
        !self.subscribed.is_empty()
    }

    /// Adds nodes to the subscribed ones. Returns whether any of them is new.
    pub(super) fn subscribe_at(&mut self, nodes: NodeSet) -> bool {
        let both = self.subscribed.or(nodes);
        std::mem::replace(&mut self.subscribed, both) != both
    }

    /// Removes all subscriptions. Returns the subscribed nodes, and the confirmed ones.
    pub(super) fn unsubscribe(&mut self) -> (NodeSet, NodeSet) {
        (std::mem::take(&mut self.subscribed), std::mem::take(&mut self.confirmed))
    }

    /// Records nodes that publish every release to this lock from now on.
    pub(super) fn confirm_at(&mut self, nodes: NodeSet) {
        self.confirmed = self.confirmed.or(nodes);
    }

    /// Returns whether the lock reads the key before its next request, so that it needs no
    /// notification.
    pub(super) fn will_read(&self) -> bool {
        self.pause.is_late()
    }

    /// Returns the first of its queues, and its position there. Meant for a lock on one resource.
    pub(super) fn place(&self) -> Option<(QueueKey, QueuePosition)> {
        Some((*self.queues.first()?, self.position))
    }

    /// Returns when `needed` of the keys in the way will have expired, if that is known.
    pub(super) fn free_at(&mut self, needed: usize) -> Option<Timestamp> {
        self.pause.free_at(needed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_wait_keeps_nothing_of_the_last_one() {
        let mut waiting = Waiting::new();
        waiting.begin(Wait::UpTo(Duration::from_secs(1)), Timestamp(5));
        waiting.pause.refused(true, 1);
        assert!(waiting.is_wanted());
        waiting.begin(Wait::No, Timestamp(9));
        assert!(!waiting.is_wanted() && !waiting.pause.follows_split());
        assert_eq!(waiting.deadline, Timestamp::NEVER);
    }
}
