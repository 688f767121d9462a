//! The queue of one core's locks for a resource, in the order of their arrival.
//!
//! One lock of a queue requests the resource at a time, so the locks of a core neither wake nor
//! deny one another. A lock that is granted stays in front until it is released. A lock on several
//! resources joins all of their queues at one position, so two such locks cannot wait for each
//! other.
//!
//! A queue also remembers for a second that another process wants the resource, so that this core
//! leaves it a turn. The queue of processes, kept by the nodes, is in `proto::fair_queue`.

use std::collections::VecDeque;
use std::collections::btree_map::{BTreeMap, Entry};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use crate::proto::names::{LockId, NodeSet, TicketName};
use crate::proto::steps::step;
use crate::proto::time::Timestamp;

/// The queues of all resources that locks of this core wait for.
///
/// Queues are found by a hash of the resource. Two resources with the same hash share a queue,
/// which costs them time and nothing else. The hash is seeded, so that callers cannot choose such
/// names.
#[derive(Default)]
pub(crate) struct WaitQueues {
    queues: BTreeMap<QueueKey, WaitQueue>,
    seed: [u8; 16],
    positions: u64,
    /// The memory of emptied queues.
    spare: Vec<VecDeque<QueuedLock>>,
    /// The time of the next search for empty queues that can be forgotten.
    purge_at: Timestamp,
    /// Locks that may be first in their queues now.
    scheduled: VecDeque<LockId>,
    /// Whether the scheduled locks are being run, one after another.
    runs_scheduled: bool,
    /// The lock that listens to each ticket on the nodes.
    listeners: BTreeMap<TicketName, LockId>,
}

/// The key of a queue: a seeded hash of the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueKey(u64);

/// The position of a lock in each of its queues. Later locks have larger ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueuePosition(u64);

impl QueuePosition {
    pub(crate) const NONE: Self = Self(0);
}

#[derive(Debug)]
struct QueuedLock {
    position: QueuePosition,
    /// The lock, or `None` for a gap left by a lock that left from the middle.
    id: Option<LockId>,
}

#[derive(Debug, Default)]
struct WaitQueue {
    /// The locks in order of position. The front is never a gap.
    waiting: VecDeque<QueuedLock>,
    gaps: usize,
    /// The time at which another process was last seen to have or want the resource.
    contended_at: Option<Timestamp>,
    /// The time of the last release by a lock of this core.
    released_at: Option<Timestamp>,
    /// The time since which this core has taken the resource without seeing another process or
    /// leaving a turn.
    alone_since: Timestamp,
    /// The time for which the last granted lock of this core had waited.
    waited: Duration,
    /// The nodes whose notifications were last waited for.
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
            // A lock on two resources with one hash joined this queue once and leaves it twice.
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
        // Closing gaps only when half of the queue is gaps costs a constant per lock. Closing each
        // at once would move all locks behind it.
        if self.gaps > self.waiting.len() / 2 {
            self.waiting.retain(|waiter| {
                step();
                waiter.id.is_some()
            });
            self.gaps = 0;
        }
    }

    /// Returns until when the queue is remembered once it is empty.
    fn remembered_until(&self) -> Timestamp {
        let last = self.contended_at.max(self.released_at);
        last.map_or_else(Timestamp::default, |last| last + REMEMBERED)
    }
}

impl WaitQueues {
    pub(crate) fn new(seed: [u8; 16]) -> Self {
        Self { seed, purge_at: Timestamp::NEVER, ..Self::default() }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    pub(crate) fn key(&self, resource: &[u8]) -> QueueKey {
        let mut hasher = DefaultHasher::new();
        (self.seed, resource).hash(&mut hasher);
        QueueKey(hasher.finish())
    }

    /// Returns the position for a lock that arrives now, for any number of queues.
    pub(super) fn next_position(&mut self) -> QueuePosition {
        self.positions += 1;
        QueuePosition(self.positions)
    }

    /// Adds a lock to the end of a queue. `position` must be the newest one.
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
        // A lock on two resources with one hash joins this queue once.
        if queue.waiting.back().is_none_or(|last| last.position != position) {
            queue.waiting.push_back(QueuedLock { position, id: Some(id) });
        }
    }

    /// Removes a lock from a queue, wherever it stands, and schedules the lock that is first now.
    pub(super) fn leave(&mut self, key: QueueKey, position: QueuePosition, now: Timestamp) {
        self.remove(key, position, now);
        // A lock that is first in several of these queues is scheduled once.
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

    /// Returns the lock that stands next behind this position.
    pub(crate) fn behind(&self, (key, position): (QueueKey, QueuePosition)) -> Option<LockId> {
        let waiting = &self.queues.get(&key)?.waiting;
        let from = waiting.partition_point(|waiter| waiter.position <= position);
        waiting.range(from..).find_map(|waiter| waiter.id)
    }

    /// Returns the first lock of every queue.
    pub(crate) fn fronts(&self) -> impl Iterator<Item = LockId> {
        self.queues.values().filter_map(WaitQueue::front)
    }

    pub(super) fn schedule(&mut self, id: LockId) {
        self.scheduled.push_back(id);
    }

    #[inline]
    pub(super) fn has_scheduled(&self) -> bool {
        !self.scheduled.is_empty()
    }

    /// Begins to run the scheduled locks. Returns `false` if they are being run already.
    pub(crate) fn begin_scheduled(&mut self) -> bool {
        !std::mem::replace(&mut self.runs_scheduled, true)
    }

    /// Takes the next scheduled lock. `None` ends the run.
    pub(crate) fn next_scheduled(&mut self) -> Option<LockId> {
        let next = self.scheduled.pop_front();
        self.runs_scheduled = next.is_some();
        next
    }

    /// Routes notifications about this ticket to a lock from now on.
    pub(super) fn listen(&mut self, ticket: TicketName, id: LockId) {
        self.listeners.insert(ticket, id);
    }

    pub(super) fn stop_listening(&mut self, tickets: [Option<TicketName>; 2]) {
        for ticket in tickets.into_iter().flatten() {
            self.listeners.remove(&ticket);
        }
    }

    pub(crate) fn listener(&self, ticket: TicketName) -> Option<LockId> {
        self.listeners.get(&ticket).copied()
    }

    pub(crate) fn listener_count(&self) -> usize {
        self.listeners.len()
    }

    /// Records that another process has the resource, and that `leads` will report a change.
    pub(super) fn contended(&mut self, key: QueueKey, leads: NodeSet, now: Timestamp) {
        if let Some(queue) = self.queues.get_mut(&key) {
            queue.contended_at = Some(now);
            queue.alone_since = now;
            queue.leads = leads;
        }
    }

    pub(super) fn released_at(&self, key: QueueKey) -> Option<Timestamp> {
        self.queues.get(&key)?.released_at
    }

    /// Returns whether another process was seen with the resource in the last second.
    pub(super) fn is_contended(&self, key: QueueKey, now: Timestamp) -> bool {
        let contended_at = self.queues.get(&key).and_then(|queue| queue.contended_at);
        contended_at.is_some_and(|at| now < at + REMEMBERED)
    }

    pub(super) fn released(&mut self, key: QueueKey, now: Timestamp) {
        if let Some(queue) = self.queues.get_mut(&key) {
            queue.released_at = Some(now);
        }
    }

    /// Returns when this core released the resource, if it should now leave other processes a turn.
    /// That is so if another process was seen in the last second, and once a second in any case.
    pub(super) fn yields_from(&mut self, key: QueueKey, now: Timestamp) -> Option<Timestamp> {
        let is_contended = self.is_contended(key, now);
        let queue = self.queues.get_mut(&key)?;
        // A core that requests at once is always faster than waiters in other processes, and so it
        // never sees them.
        if !is_contended {
            if now < queue.alone_since + REMEMBERED {
                return None;
            }
            queue.alone_since = now;
        }
        queue.released_at
    }

    /// Returns the leads of the last wait, and how long the last granted lock of this core had
    /// waited.
    pub(super) fn last_wait(&self, key: QueueKey) -> (NodeSet, Duration) {
        self.queues.get(&key).map(|queue| (queue.leads, queue.waited)).unwrap_or_default()
    }

    pub(super) fn granted(&mut self, key: QueueKey, waited: Duration) {
        if let Some(queue) = self.queues.get_mut(&key) {
            queue.waited = waited;
        }
    }

    pub(crate) fn purge_at(&self) -> Timestamp {
        self.purge_at
    }

    /// Forgets the empty queues whose memory of other processes and of releases has expired.
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

/// The time for which a queue remembers other processes and releases.
const REMEMBERED: Duration = Duration::from_secs(1);

/// The number of queues beyond which an empty one is kept only if another process wants its
/// resource.
const REMEMBERED_QUEUES: usize = 1024;

/// The largest number of emptied queues kept for their memory.
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
    fn locks_stand_in_the_order_of_their_arrival() {
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

    /// A core that requests again at once never sees the waiters of other processes.
    #[test]
    fn a_core_that_is_alone_leaves_a_turn_once_a_second() {
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

    /// The bound holds however long one lock stays in front while others come and go.
    #[test]
    fn gaps_take_no_more_room_than_the_waiting_locks() {
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
