//! What the core tells its driver: outcomes, and wishes about links.

use std::fmt;
use std::time::Duration;

use super::names::{LinkId, LockId, NodeId, ViewId};
use super::vote::{Cause, Votes};

/// An outcome.
///
/// Each lock ends in exactly one of [`Refused`](Self::Refused), [`Released`](Self::Released) and
/// [`Lost`](Self::Lost).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// An extension succeeded: read the new validity from the lease.
    Extended(LockId),
    /// The lock is held. Read the clock and its lease before acting on it.
    Granted(LockId),
    /// The lease is over although nobody released it. Nothing was sent to the nodes; keys that
    /// are still there are undone when the holder calls release.
    Lost(LockId, LossCause),
    /// A node became a voter, or stopped being one. Changes between two polls are one event.
    Node(NodeId, NodeState),
    /// An extension found no quorum. The lock is held until its validity ends.
    NotExtended(LockId, Refusal),
    /// The acquisition ended without a lock, and nothing stays behind.
    Refused(LockId, Refusal),
    /// The holder let go.
    Released(LockId, Confirmed),
    /// An inspection, or the breaking of a lock, is complete: take it with [`Core::take_view`](super::Core::take_view).
    Viewed(ViewId),
}

/// Why an acquisition or an extension was refused, with every node's vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason in one word.
    pub why: Why,
    /// The votes of the last attempt, or of the extension.
    pub votes: Votes,
    /// How long the keys that stand in the way live on if nobody extends them. Known only to those
    /// who waited, or asked for several resources.
    pub remaining: Option<Duration>,
}

/// The reason of a [`Refusal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// The caller released it before it was granted.
    Cancelled,
    /// A quorum of the nodes voted, and somebody holds the resource.
    Contended,
    /// No validity was left before a quorum had granted: the TTL is too short for these nodes.
    Expired,
    /// Too many nodes are no voters; the votes say why.
    NoQuorum,
    /// The time that the caller gave is over; the votes say what stood in the way.
    OutOfTime,
}

/// How a lock was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossCause {
    /// Its validity ended.
    Expired,
    /// So many nodes no longer had its key that no quorum was left.
    Gone,
}

impl fmt::Display for LossCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its validity ended",
            Self::Gone => "its key is gone on too many nodes",
        })
    }
}

/// How far a release got. The rest is owed: sent again until confirmed or until the TTL is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirmed {
    /// Nodes that confirmed that the key is gone. At least a quorum, or all that answered in time.
    pub nodes: u32,
    /// Nodes of the configuration.
    pub of: u32,
}

impl fmt::Display for Confirmed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} confirmed", self.nodes, self.of)
    }
}

/// Where a lock is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LockState {
    /// It is being asked for.
    Asked,
    /// It is held, and an extension is under way.
    Extending,
    /// A quorum has granted, and its fencing token is being written back.
    Fencing,
    /// It was granted. Read its lease: it may be over although nobody has noticed yet.
    Held,
    /// It was lost, and its holder has not let go.
    Lost(LossCause),
    /// It was refused, and waits for its next attempt.
    Pausing,
    /// Its holder let go, and the confirmations are awaited.
    Releasing,
    /// It was refused or released, or it was lost so long ago that no node can keep it.
    Unknown,
}

/// Whether a node can vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeState {
    /// Its link is being opened, or its greeting is under way.
    Connecting,
    /// It is no voter.
    Down(Cause),
    /// It votes.
    Ready,
}

/// What the driver shall do about a link. In order; a link that is closed is forgotten at once, so
/// [`Core::disconnected`](super::Core::disconnected) is not called for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkOp {
    /// Close the socket.
    Close(LinkId),
    /// Begin to connect; answer with [`Core::connected`](super::Core::connected) or
    /// [`Core::disconnected`](super::Core::disconnected).
    Open(LinkId),
}
