//! Inspection of a resource: its holders on each node, their remaining time, and the waiters.
//!
//! Invariant: an inspection writes nothing. A force-unlock continues after it, see `force_unlock`.

mod contents;
mod force_unlock;
mod holdings;
mod viewing;
mod views;
mod waiters;

use std::time::Duration;

use crate::proto::names::{NodeSet, ViewId};
use crate::proto::{format::Format, profile::Profile, slab::Slab, time::Timestamp, vote::Cause};

pub(super) use self::holdings::Holdings;
pub use self::waiters::{FairQueue, Kept, Waiter};
pub use crate::proto::key_state::{DataKind, Foreign, Holder, KeyState, Permits, Sharers};

pub(super) struct Views(Slab<ViewId, Viewing>);

/// The state of a resource on each node.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct View {
    /// The nodes, in the order of the configuration.
    pub nodes: Vec<NodeView>,
    /// The resource that was inspected.
    pub resource: Vec<u8>,
}

/// The state of a resource on one node.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeView {
    /// The state of the key, or why the node did not report it.
    pub state: Result<KeyState, Cause>,
    /// The waiters in the queue, or why the node did not report them.
    pub queue: Result<FairQueue, Cause>,
    /// The time from the question for the TTL to its answer.
    pub round_trip: Option<Duration>,
    /// The fate of the data, if it was to be deleted.
    pub fate: Option<Fate>,
}

#[derive(Default)]
struct Viewing {
    view: View,
    until: Timestamp,
    /// The data to delete if it is seen; `None` for an inspection.
    force: Option<UnlockScope>,
    /// The answers of the nodes, in their order.
    seen: Vec<Seen>,
    /// The nodes whose link is not ready yet.
    queued: NodeSet,
    /// The nodes that have not answered everything.
    open: NodeSet,
    complete: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    /// The digest of everything at the key, for an operator who deletes data of other programs.
    Digest,
    /// The order to delete what was seen at the key.
    ForceUnlock,
    /// The waiters. A node that cannot answer this may still answer the rest.
    Queue,
    /// The holders of permits in a hash.
    Permits,
    /// The holders in a sorted set.
    Sharers,
    /// The TTL of the key, which also shows whether there is a key.
    Ttl,
    Type,
    Value,
}

/// A node's answers about a key, unchanged: to be compared, not shown.
#[derive(Clone)]
struct Seen {
    /// The name of the type, or why the node did not report it.
    kind: Result<Vec<u8>, Cause>,
    /// The beginning of a string, without the mark for waiters.
    value: Vec<u8>,
    is_whole: bool,
    is_marked: bool,
    /// The members or fields of the holders, if several can hold the key.
    holders: Vec<Vec<u8>>,
    /// The format that recognised the data, unless that is redbolt's own.
    format: Option<&'static Format>,
    /// The digest of everything at the key, taken before the rest, or why there is none.
    digest: Result<Vec<u8>, Cause>,
}

/// The data that a [force-unlock](crate::proto::Core::force_unlock) may delete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "whoever deletes shall know all that can be deleted")]
pub enum UnlockScope {
    /// Locks of redbolt.
    #[default]
    Locks,
    /// Locks of redbolt and those of this format, as far as [their
    /// form](crate::proto::Foreign::is_of) shows it. The format need not be
    /// [configured](crate::ConfigBuilder::formats). Its waiting members are notified as their
    /// library does.
    LocksOf(Profile),
    /// Any data, such as a lock of another library or what an application keeps at that key. Data
    /// without holders is deleted only if all of it is unchanged, by a digest that the node makes
    /// with `DUMP`. Inspect the key first.
    Anything,
}

/// The outcome of a force-unlock on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fate {
    /// The data was deleted; of several holders, those that were seen were removed.
    Deleted,
    /// The data no longer existed when the node was to delete it. There may be other data now.
    Gone,
    /// The data is not a lock of redbolt, and was left alone.
    Kept,
}

impl NodeView {
    fn unknown(cause: Cause) -> Self {
        Self { state: Err(cause), queue: Err(cause), round_trip: None, fate: None }
    }
}
