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

use self::holdings::FEW;
use super::Core;
use crate::proto::core::claims::{Claim, Claims};
use crate::proto::core::locks::Locks;
use crate::proto::format::Format;
use crate::proto::key_state;
use crate::proto::names::{LockId, NodeSet, ViewId};
use crate::proto::profile::Profile;
use crate::proto::request::{RequestError, check_resource};
use crate::proto::time::{ClockReading, Timestamp};
use crate::proto::vote::Cause;

pub(super) use self::holdings::Holdings;
pub(super) use self::viewing::Question;
pub(super) use self::views::Views;
pub use self::waiters::{FairQueue, Kept, Waiter};
pub use crate::proto::key_state::{DataKind, Foreign, Holder, KeyState, Permits, Sharers};

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
    force: Option<Force>,
    /// What the nodes have answered, in their order.
    seen: Vec<Seen>,
    /// Nodes whose link is not there yet.
    queued: NodeSet,
    /// Nodes that have not answered.
    open: NodeSet,
    complete: bool,
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

/// What an operator wants gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Force {
    /// Locks of redbolt.
    Locks,
    /// Locks of redbolt, and of the members of this profile.
    LocksOf(Profile),
    /// Whatever is there.
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

impl Core {
    /// Asks all nodes who holds `resource`. The outcome is [`Event::Viewed`](crate::proto::Event::Viewed).
    ///
    /// # Errors
    ///
    /// The name of the resource is empty or too long.
    pub fn inspect(&mut self, resource: &[u8], now: ClockReading) -> Result<ViewId, RequestError> {
        check_resource(resource)?;
        Ok(self.begin_view(resource, None, now))
    }

    fn begin_view(&mut self, resource: &[u8], force: Option<Force>, now: ClockReading) -> ViewId {
        let now = self.clamp(now);
        self.views.begin(resource, force, &mut self.nodes, &mut env!(self, now))
    }

    /// The result of a complete inspection, once.
    pub fn take_view(&mut self, id: ViewId) -> Option<View> {
        self.views.take(id)
    }

    /// The [fingerprint](crate::proto::Holder::fingerprint) of the lock on `resource` that this core holds now, as a
    /// view shows it. `None` if it holds none.
    #[must_use]
    pub fn held_on(&mut self, resource: &[u8], now: ClockReading) -> Option<u32> {
        let now = ClockReading { boot: self.boot.max(now.boot), ..now };
        let (locks, claims) = (&self.locks, &self.claims);
        let is_on = |claim: &&Claim| claim.keys().iter().any(|key| key == resource);
        let held = |lock| held_claim(lock, locks, claims, now).filter(is_on);
        let claim = if locks.capacity() <= FEW {
            locks.ids().find_map(held)
        } else {
            self.holdings.learn(locks, claims, &self.queues);
            self.holdings.at(self.queues.key(resource)).find_map(|lock| held(LockId(lock)))
        }?;
        let mut token = Vec::new();
        claim.write_token(&mut token, &self.config);
        let holder = key_state::holder_of(&token[claim.kind().mark.len()..])?;
        Some(holder.fingerprint)
    }
}

/// The claim of a lock that is held.
fn held_claim<'c>(
    id: LockId,
    locks: &Locks,
    claims: &'c Claims,
    now: ClockReading,
) -> Option<&'c Claim> {
    if locks.mode_change(id).is_companion() {
        return None;
    }
    let lock = locks.find(id)?;
    let is_held = lock.phase.is_held() && !lock.lease.remaining(now).is_zero();
    claims.find(lock.claim()).filter(|_| is_held)
}
