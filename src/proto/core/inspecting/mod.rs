//! Looking at a resource without taking part: who holds it on which node, for how long, and who waits.
//!
//! Nothing is written. Who waits in the queue is asked first, by a script. The value is read by `GETRANGE`, because a key of that name may be anything, and large. An operator
//! who breaks the lock that was seen goes on from here, see `force_unlock`. Not here: what type and value mean, see
//! `contents`; what the nodes' answers add up to for a user, see the API's inspection.

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

/// The views of a core.
pub(super) struct Views(Slab<ViewId, Viewing>);

/// What each node says about a resource.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct View {
    /// In the order of the configuration.
    pub nodes: Vec<NodeView>,
    /// What was looked at.
    pub resource: Vec<u8>,
}

/// What one node says about a resource.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeView {
    /// The key's state there, or why the node did not tell.
    pub state: Result<KeyState, Cause>,
    /// Who waits in the queue for it there, or why the node did not tell.
    pub queue: Result<FairQueue, Cause>,
    /// From when the last question was sent to when it was answered.
    pub round_trip: Option<Duration>,
    /// What became of what was there, if it was to be broken.
    pub fate: Option<Fate>,
}

/// One view.
#[derive(Default)]
struct Viewing {
    view: View,
    until: Timestamp,
    /// What is to be broken of what is seen.
    force: Option<UnlockScope>,
    /// What the nodes have answered, in their order.
    seen: Vec<Seen>,
    /// Nodes whose link is not there yet.
    queued: NodeSet,
    /// Nodes that have not answered.
    open: NodeSet,
    complete: bool,
}

/// A question of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    /// The digest of all that is there, for an operator who deletes other data.
    Digest,
    /// An operator's: what was seen under the key is to go.
    ForceUnlock,
    /// Who waits. A node that does not tell that may tell the rest.
    Queue,
    /// Who has which permit of a hash.
    Permits,
    /// Who shares a sorted set.
    Sharers,
    /// For how long the key lives, and by that whether there is one at all.
    Ttl,
    Type,
    /// What is under the key, if anything.
    Value,
}

/// What a node has answered about a key, as it came: to compare with, not to show.
#[derive(Clone)]
struct Seen {
    /// The type's name, or why the node does not tell it.
    kind: Result<Vec<u8>, Cause>,
    /// The beginning of a string, without the mark of those who wait in the queue.
    value: Vec<u8>,
    /// Whether that is all of it.
    is_whole: bool,
    /// Whether there was a mark.
    is_marked: bool,
    /// The members or fields of the holders, if several can hold it.
    holders: Vec<Vec<u8>>,
    /// The format that has recognised the data, unless that is redbolt's own.
    format: Option<&'static Format>,
    /// The digest of all that is there, or why there is none. Taken before the rest.
    digest: Result<Vec<u8>, Cause>,
}

/// What a [force-unlock](crate::proto::Core::force_unlock) may delete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "whoever deletes shall know all that can be deleted")]
pub enum UnlockScope {
    /// Locks of redbolt.
    #[default]
    Locks,
    /// Locks of redbolt, and those of this format, as far as that is known by [their form](crate::proto::Foreign::is_of). The format
    /// need not be [configured](crate::ConfigBuilder::formats). Its members who wait are told, in the way that their library has.
    LocksOf(Profile),
    /// Whatever is there: a lock of another library too, or what an application keeps under that key. Data without holders is deleted
    /// only if all of it is as it was seen, by a digest that the node makes with `DUMP`. Look first, with an inspection.
    Anything,
}

/// What became of what was under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fate {
    /// It was deleted. Of a lock that several can hold, holders that were seen were removed.
    Deleted,
    /// It was not there any more when the node was told to delete it. Something else may be.
    Gone,
    /// It is no lock of redbolt, and was left alone.
    Kept,
}

impl NodeView {
    fn unknown(cause: Cause) -> Self {
        Self { state: Err(cause), queue: Err(cause), round_trip: None, fate: None }
    }
}
