//! Observing who leads: whoever wants to know is told of each change.
//!
//! Nothing is written. A look reads three things of a node, one behind the other: the fencing counter, the key, and the
//! counter again. Each holder raises the counter, so that between two equal readings there was one holder, and it is known
//! whose term it is. All nodes are looked at in rounds. A timer begins one every other second, and it alone is relied
//! on; a quorum of nodes is asked to report changes, and a report begins a round at once. Any change of leader meets that
//! quorum in a node. Of what we change ourselves no node reports, so that our own grants and releases begin rounds too.
//!
//! Not here: what nodes say adds up to, see `sight`; how a node comes to report, see `push`; taking the lead, which is
//! acquiring a lock.

mod rounds;
mod sight;

use std::collections::{BTreeMap, BTreeSet};

use crate::proto::slab::{Key, Slab};
use crate::proto::{
    fence::COUNTER_PREFIX, key_state::KeyState, names::ObserverId, time::Timestamp, vote::Cause,
};

pub use self::sight::{Leader, LeaderVerdict, LeaderView, NodeSight};

/// All who observe.
pub(super) struct Observers {
    slots: Slab<ObserverId, Observation>,
    by_resource: BTreeMap<Vec<u8>, BTreeSet<Key>>,
}

/// One who observes who leads.
#[derive(Default)]
struct Observation {
    resource: Vec<u8>,
    /// By node.
    sights: Vec<Sight>,
    /// The verdict that was announced last.
    announced: Option<LeaderVerdict>,
    /// The verdict at the last poll of its event.
    polled: Option<LeaderVerdict>,
    /// When the last round began.
    read_at: Timestamp,
    /// When the next one begins.
    next_at: Timestamp,
}

/// What is known of one node.
#[derive(Clone, Default)]
struct Sight {
    /// A look that is under way.
    pending: Option<PendingRead>,
    /// It may have changed since that look began.
    is_stale: bool,
    /// What it said last, or why it does not say.
    last: Option<Result<NodeSight, Cause>>,
}

/// What a look has brought so far.
#[derive(Clone)]
struct PendingRead {
    since: Timestamp,
    counter: Option<u64>,
    key: Result<KeyState, Cause>,
}

/// One of the reads of a look, in their order.
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

    /// Returns whether the verdict has changed since the last poll for it, and notes this poll.
    ///
    /// A verdict that changed and changed back between two polls has left two events in the queue, and
    /// [`unobserve`](Core::unobserve) does not remove those of its observer.
    #[cold]
    pub(super) fn polled(&mut self, id: ObserverId) -> bool {
        let Some(observer) = self.slots.find_mut(id) else { return false };
        let is_news = observer.polled != observer.announced;
        if is_news {
            observer.polled.clone_from(&observer.announced);
        }
        is_news
    }

    /// Those who observe the resource with this key or this fencing counter.
    pub(super) fn of(&self, key: &[u8]) -> impl Iterator<Item = ObserverId> {
        let resource = key.strip_prefix(COUNTER_PREFIX).unwrap_or(key);
        let keys = self.by_resource.get(resource).into_iter().flatten();
        keys.map(|&key| key.into())
    }

    /// When something is due for any of them.
    pub(super) fn due(&self) -> Timestamp {
        self.slots.due()
    }

    fn ids(&self) -> impl Iterator<Item = ObserverId> {
        self.slots.ids()
    }
}
