//! The queue of one core's locks for a resource, in the order in which they came.
//!
//! This queue is local. The queue of processes, which each node keeps, is in `proto::fair_queue`.
//!
//! Of the locks of one core that wait for a resource, one asks at a time; the others stand in a queue behind it, so
//! that they neither wake nor deny one another. A lock on several resources stands in all of their queues, in the
//! position that its arrival gave it, and so two of them cannot wait for each other. A lock that is granted stays in
//! front until it is released.
//!
//! A queue also remembers for a moment that other processes want the resource, so that this process lets them have
//! it in between. Not here: asking, and waking.

use std::collections::VecDeque;
use std::collections::btree_map::{BTreeMap, Entry};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use crate::proto::names::{LockId, NodeSet, TicketName};
use crate::proto::steps::step;
use crate::proto::time::Timestamp;

/// The queues of all resources that a lock of this core waits for.
///
/// A queue is found by a hash of the resource's name. Two names with the same hash would share a queue, which costs them
/// time and nothing else; the seed keeps anybody from choosing such names.
#[derive(Default)]
pub(crate) struct WaitQueues {
    queues: BTreeMap<QueueKey, WaitQueue>,
    seed: [u8; 16],
    /// How many have come so far.
    positions: u64,
    /// Emptied queues, to be used again.
    spare: Vec<VecDeque<QueuedLock>>,
    /// When empty queues are looked through for what can be forgotten.
    purge_at: Timestamp,
    /// Locks that may be the first in their queues now.
    scheduled: VecDeque<LockId>,
    /// The scheduled locks are asking, one after the other.
    runs_scheduled: bool,
    /// The lock that listens to each ticket on the nodes.
    listeners: BTreeMap<TicketName, LockId>,
}

/// The place of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueKey(u64);

/// When a lock came: one that came later stands behind in every queue that both stand in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueuePosition(u64);

impl QueuePosition {
    pub(crate) const NONE: Self = Self(0);
}

#[derive(Debug)]
struct QueuedLock {
    position: QueuePosition,
    /// `None` is a gap: it has left from the middle.
    id: Option<LockId>,
}

#[derive(Debug, Default)]
struct WaitQueue {
    /// In the order of their arrivals, by which they are found; in front is no gap.
    waiting: VecDeque<QueuedLock>,
    /// Gaps are closed together once they are half of it, or each would cost as much as there are behind it.
    gaps: usize,
    /// When somebody elsewhere was last seen with it.
    contended_at: Option<Timestamp>,
    /// When a lock of this core last released it.
    released_at: Option<Timestamp>,
    /// Since when this core has had it again and again, and asked at once each time.
    alone_since: Timestamp,
    /// How long a lock of this core waited for it last.
    waited: Duration,
    /// The nodes whose notifications were waited for last.
    leads: NodeSet,
}

impl WaitQueue {
    fn front(&self) -> Option<LockId> {
        self.waiting.front()?.id
    }

    fn leave(&mut self, position: QueuePosition) {
        let by_position = |waiter: &QueuedLock| {
            step();
            waiter.position.cmp(&position)
        };
        match self.waiting.binary_search_by(by_position) {
            // Two names with one hash: it has left.
            Err(_) => {}
            Ok(0) => drop(self.waiting.pop_front()),
            Ok(at) => {
                self.waiting[at].id = None;
                self.gaps += 1;
            }
        }
        while self.waiting.front().is_some_and(|waiter| waiter.id.is_none()) {
            self.waiting.pop_front();
            self.gaps -= 1;
        }
        if self.gaps > self.waiting.len() / 2 {
            self.waiting.retain(|waiter| {
                step();
                waiter.id.is_some()
            });
            self.gaps = 0;
        }
    }

    /// When it can be forgotten, once nobody stands in it.
    fn remembered_until(&self) -> Timestamp {
        let last = self.contended_at.max(self.released_at);
        last.map_or_else(Timestamp::default, |last| last + REMEMBERED)
    }
}

impl WaitQueues {
    pub(crate) fn new(seed: [u8; 16]) -> Self {
        Self { seed, purge_at: Timestamp::NEVER, ..Self::default() }
    }

    /// Whether nobody waits and nothing is remembered.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    pub(crate) fn key(&self, resource: &[u8]) -> QueueKey {
        let mut hasher = DefaultHasher::new();
        (self.seed, resource).hash(&mut hasher);
        QueueKey(hasher.finish())
    }

    /// A lock comes, to stand in any number of queues.
    pub(super) fn next_position(&mut self) -> QueuePosition {
        self.positions += 1;
        QueuePosition(self.positions)
    }

    /// Goes to the end of a queue; nobody has come since.
    pub(super) fn join(
        &mut self,
        key: QueueKey,
        position: QueuePosition,
        id: LockId,
        now: Timestamp,
    ) {
        let queue = match self.queues.entry(key) {
            Entry::Occupied(queue) => queue.into_mut(),
            Entry::Vacant(vacant) => {
                let waiting = self.spare.pop().unwrap_or_default();
                vacant.insert(WaitQueue { waiting, alone_since: now, ..WaitQueue::default() })
            }
        };
        // Two names with one hash.
        if queue.waiting.back().is_none_or(|last| last.position != position) {
            queue.waiting.push_back(QueuedLock { position, id: Some(id) });
        }
    }

    /// Leaves a queue, from wherever it stands. The first lock of the queue is scheduled to ask.
    pub(super) fn leave(&mut self, key: QueueKey, position: QueuePosition, now: Timestamp) {
        self.remove(key, position, now);
        // A lock that is next in several queues is scheduled once.
        let first = self.front(key).filter(|first| self.scheduled.back() != Some(first));
        self.scheduled.extend(first);
    }

    fn remove(&mut self, key: QueueKey, position: QueuePosition, now: Timestamp) {
        let many = self.queues.len() > REMEMBERED_QUEUES;
        let Some(queue) = self.queues.get_mut(&key) else { return };
        queue.leave(position);
        if !queue.waiting.is_empty() {
            return;
        }
        if now < queue.remembered_until() && (queue.contended_at.is_some() || !many) {
            self.purge_at = self.purge_at.min(now + REMEMBERED);
        } else {
            self.forget(key);
        }
    }

    pub(crate) fn front(&self, key: QueueKey) -> Option<LockId> {
        self.queues.get(&key)?.front()
    }

    /// Who stands next behind this place.
    pub(crate) fn behind(&self, (key, position): (QueueKey, QueuePosition)) -> Option<LockId> {
        let waiting = &self.queues.get(&key)?.waiting;
        let from = waiting.partition_point(|waiter| waiter.position <= position);
        waiting.range(from..).find_map(|waiter| waiter.id)
    }

    /// Those in front of any queue.
    pub(crate) fn fronts(&self) -> impl Iterator<Item = LockId> {
        self.queues.values().filter_map(WaitQueue::front)
    }

    /// Schedules a lock to ask.
    pub(super) fn schedule(&mut self, id: LockId) {
        self.scheduled.push_back(id);
    }

    #[inline]
    pub(super) fn has_scheduled(&self) -> bool {
        !self.scheduled.is_empty()
    }

    /// Begins to run the scheduled locks. Returns `false` if they run already.
    pub(crate) fn begin_scheduled(&mut self) -> bool {
        !std::mem::replace(&mut self.runs_scheduled, true)
    }

    /// Takes the next lock of the run, which ends with `None`.
    pub(crate) fn next_scheduled(&mut self) -> Option<LockId> {
        let next = self.scheduled.pop_front();
        self.runs_scheduled = next.is_some();
        next
    }

    /// Notifies a lock of changes of this ticket from now on.
    pub(super) fn listen(&mut self, ticket: TicketName, id: LockId) {
        self.listeners.insert(ticket, id);
    }

    pub(super) fn stop_listening(&mut self, tickets: [Option<TicketName>; 2]) {
        for ticket in tickets.into_iter().flatten() {
            self.listeners.remove(&ticket);
        }
    }

    /// The lock that listens to a ticket.
    pub(crate) fn listener(&self, ticket: TicketName) -> Option<LockId> {
        self.listeners.get(&ticket).copied()
    }

    pub(crate) fn listener_count(&self) -> usize {
        self.listeners.len()
    }

    /// Another process has it, and these nodes will report when that changes.
    pub(super) fn contended(&mut self, key: QueueKey, leads: NodeSet, now: Timestamp) {
        if let Some(queue) = self.queues.get_mut(&key) {
            queue.contended_at = Some(now);
            queue.alone_since = now;
            queue.leads = leads;
        }
    }

    /// When a lock of this core last released it, if that is remembered.
    pub(super) fn released_at(&self, key: QueueKey) -> Option<Timestamp> {
        self.queues.get(&key)?.released_at
    }

    /// Whether another process was seen with it a moment ago.
    pub(super) fn is_contended(&self, key: QueueKey, now: Timestamp) -> bool {
        let contended_at = self.queues.get(&key).and_then(|queue| queue.contended_at);
        contended_at.is_some_and(|at| now < at + REMEMBERED)
    }

    /// A lock of this core has released it.
    pub(super) fn released(&mut self, key: QueueKey, now: Timestamp) {
        if let Some(queue) = self.queues.get_mut(&key) {
            queue.released_at = Some(now);
        }
    }

    /// When this core released it, if other processes are to have it before this core asks again: where one was seen with
    /// it a moment ago; and once in a while in any case, for a core that asks again at once is always faster than those
    /// who wait elsewhere, and never sees them.
    pub(super) fn yields_from(&mut self, key: QueueKey, now: Timestamp) -> Option<Timestamp> {
        let is_contended = self.is_contended(key, now);
        let queue = self.queues.get_mut(&key)?;
        if !is_contended {
            if now < queue.alone_since + REMEMBERED {
                return None;
            }
            queue.alone_since = now;
        }
        queue.released_at
    }

    /// The nodes whose notifications were waited for last, and how long a lock of this core waited last, while other
    /// processes had it.
    pub(super) fn last_wait(&self, key: QueueKey) -> (NodeSet, Duration) {
        self.queues.get(&key).map(|queue| (queue.leads, queue.waited)).unwrap_or_default()
    }

    /// A lock of this core has got it.
    pub(super) fn granted(&mut self, key: QueueKey, waited: Duration) {
        if let Some(queue) = self.queues.get_mut(&key) {
            queue.waited = waited;
        }
    }

    /// When [`purge`](Self::purge) is due.
    pub(crate) fn purge_at(&self) -> Timestamp {
        self.purge_at
    }

    /// Forgets the empty queues of which nothing is to be remembered.
    pub(crate) fn purge(&mut self, now: Timestamp) {
        if now < self.purge_at {
            return;
        }
        self.queues.retain(|_, queue| !queue.waiting.is_empty() || now < queue.remembered_until());
        let is_left = self.queues.values().any(|queue| queue.waiting.is_empty());
        self.purge_at = if is_left { now + REMEMBERED } else { Timestamp::NEVER };
    }

    fn forget(&mut self, key: QueueKey) {
        if let Some(queue) = self.queues.remove(&key)
            && self.spare.len() < SPARE
        {
            self.spare.push(queue.waiting);
        }
    }
}

/// What was seen of others is remembered for so long.
const REMEMBERED: Duration = Duration::from_secs(1);

/// Of more resources than these only those are remembered that others want.
const REMEMBERED_QUEUES: usize = 1024;

/// So many emptied queues are kept.
const SPARE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::slab::Slab;

    fn ids<const N: usize>() -> [LockId; N] {
        let mut slab = Slab::new();
        std::array::from_fn(|_| LockId(slab.occupy(|| ()).0))
    }

    #[test]
    fn they_stand_in_the_order_in_which_they_came() {
        let mut queues = WaitQueues::new([7; 16]);
        let key = queues.key(b"job");
        let [a, b, c] = ids();
        let [first, second, third] = [a, b, c].map(|id| {
            let position = queues.next_position();
            queues.join(key, position, id, Timestamp(0));
            position
        });
        assert_eq!(queues.front(key), Some(a));
        queues.leave(key, second, Timestamp(1));
        assert_eq!(queues.front(key), Some(a));
        queues.leave(key, first, Timestamp(2));
        assert_eq!(queues.front(key), Some(c));
        queues.leave(key, third, Timestamp(3));
        assert!(queues.is_empty());
    }

    #[test]
    fn contention_is_remembered_for_a_second() {
        let mut queues = WaitQueues::new([7; 16]);
        let key = queues.key(b"job");
        let [a] = ids();
        let position = queues.next_position();
        queues.join(key, position, a, Timestamp(0));
        queues.released(key, Timestamp(5));
        assert_eq!(queues.yields_from(key, Timestamp(6)), None, "nobody else wants it");
        queues.contended(key, NodeSet::first(1), Timestamp(5));
        queues.leave(key, position, Timestamp(5));
        assert_eq!(queues.yields_from(key, Timestamp(6)), Some(Timestamp(5)));
        assert_eq!(queues.last_wait(key).0, NodeSet::first(1));
        let over = Timestamp(5) + REMEMBERED;
        assert_eq!(queues.purge_at(), over);
        queues.purge(over);
        assert!(queues.is_empty());
        assert_eq!(queues.purge_at(), Timestamp::NEVER);
    }

    /// Whoever asks again at once never sees those who wait.
    #[test]
    fn a_turn_is_owed_once_in_a_while() {
        let mut queues = WaitQueues::new([7; 16]);
        let key = queues.key(b"job");
        let [a] = ids();
        let mut owed = Vec::new();
        for ms in 0..3_500 {
            let now = Timestamp(ms * 1_000_000);
            let position = queues.next_position();
            queues.join(key, position, a, now);
            owed.extend(queues.yields_from(key, now).map(|_| ms));
            queues.released(key, now);
            queues.leave(key, position, now);
        }
        assert_eq!(owed, [1_000, 2_000, 3_000]);
    }

    /// However long somebody stays in front while others come and go.
    #[test]
    fn gaps_take_no_more_room_than_those_who_wait() {
        let mut queues = WaitQueues::new([7; 16]);
        let key = queues.key(b"job");
        let [holder, lasting, passing] = ids();
        let stays = queues.next_position();
        queues.join(key, stays, holder, Timestamp(0));
        let mut last = queues.next_position();
        queues.join(key, last, lasting, Timestamp(0));
        for _ in 0..10_000 {
            let position = queues.next_position();
            queues.join(key, position, passing, Timestamp(0));
            queues.leave(key, last, Timestamp(0));
            last = position;
        }
        assert_eq!(queues.front(key), Some(holder));
        assert!(queues.queues[&key].waiting.len() <= 8);
        queues.leave(key, stays, Timestamp(0));
        assert_eq!(queues.front(key), Some(passing));
    }
}
