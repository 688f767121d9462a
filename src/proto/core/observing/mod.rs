//! Observers, which report each change of the leader of an election.
//!
//! Nothing is written. A reading of a node is three reads: the fencing counter, the key, and the
//! counter again. Each holder raises the counter, so between two equal counters there was one
//! holder, and the counter is its term. A round reads all nodes. A timer starts one every 2 s, and
//! only the timer is relied on. A report from a node starts one at once: a quorum of nodes is asked
//! to report changes, and every change of leader reaches a node of that quorum. No node reports our
//! own changes to us, so our own grants and releases start rounds too.
//!
//! See docs/how-it-works/protocol.md.

mod rounds;
mod sight;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::proto::slab::{Key, Slab};
use crate::proto::{
    event::Event, fence::COUNTER_PREFIX, key_state::KeyState, names::ObserverId, time::Timestamp,
    vote::Cause,
};

pub use self::sight::{Leader, LeaderVerdict, LeaderView, NodeSight};

/// The observers of a core.
pub(super) struct Observers {
    slots: Slab<ObserverId, Observation>,
    by_resource: BTreeMap<Vec<u8>, BTreeSet<Key>>,
}

/// An observer of one resource.
#[derive(Default)]
struct Observation {
    resource: Vec<u8>,
    /// The state of each node.
    sights: Vec<Sight>,
    /// The verdict that was announced last.
    announced: Option<LeaderVerdict>,
    /// The verdict at the last poll of its event.
    polled: Option<LeaderVerdict>,
    /// The start of the last round.
    read_at: Timestamp,
    /// The start of the next round.
    next_at: Timestamp,
}

/// The readings of one node.
#[derive(Clone, Default)]
struct Sight {
    /// The reading in progress.
    pending: Option<PendingRead>,
    /// Whether the node may have changed since that reading began.
    is_stale: bool,
    /// The result of the last reading.
    last: Option<Result<NodeSight, Cause>>,
}

/// The reads of a reading so far.
#[derive(Clone)]
struct PendingRead {
    since: Timestamp,
    counter: Option<u64>,
    key: Result<KeyState, Cause>,
}

/// A read of a reading, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    CounterBefore,
    Key,
    CounterBehind,
}

impl Observers {
    pub(super) fn new() -> Self {
        Self { slots: Slab::new(), by_resource: BTreeMap::new() }
    }

    /// Returns the next event to report: that of this observer, which was taken from the queue, or
    /// a later one if that is stale.
    ///
    /// A verdict that changed and changed back between two polls has left two events in the queue,
    /// and `Core::unobserve` does not remove the events of its observer.
    #[cold]
    pub(super) fn skip_stale(
        &mut self,
        id: ObserverId,
        events: &mut VecDeque<Event>,
    ) -> Option<Event> {
        let mut next = Event::Observed(id);
        while let Event::Observed(id) = next
            && !self.polled(id)
        {
            next = events.pop_front()?;
        }
        Some(next)
    }

    /// Returns whether the verdict has changed since the last poll, and records this one.
    fn polled(&mut self, id: ObserverId) -> bool {
        let Some(observer) = self.slots.find_mut(id) else { return false };
        let is_news = observer.polled != observer.announced;
        if is_news {
            observer.polled.clone_from(&observer.announced);
        }
        is_news
    }

    /// Returns the observers of the resource with this key or this fencing counter.
    pub(super) fn of(&self, key: &[u8]) -> impl Iterator<Item = ObserverId> {
        let resource = key.strip_prefix(COUNTER_PREFIX).unwrap_or(key);
        let keys = self.by_resource.get(resource).into_iter().flatten();
        keys.map(|&key| key.into())
    }

    pub(super) fn due(&self) -> Timestamp {
        self.slots.due()
    }

    fn ids(&self) -> impl Iterator<Item = ObserverId> {
        self.slots.ids()
    }
}
