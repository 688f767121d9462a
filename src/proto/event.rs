//! What the core tells its driver: outcomes, and wishes about links.

use std::fmt;
use std::time::Duration;

use super::names::{LinkId, LockId, NodeId, ObserverId, ViewId};
use super::vote::{Cause, Votes};
use crate::resp::messages;

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
    /// An automatic extension succeeded.
    AutoExtended(LockId),
    /// Others may share the resource of a lock that was exclusive. Its holder counts as one of them since its call.
    Downgraded(LockId),
    /// The nodes did not let others share the resource yet: they are kept out until the lock is released, or until its
    /// present TTL is over. After its next extension the nodes are asked again.
    DowngradeDelayed(LockId, Refusal),
    /// The lease is over although nobody released it. Nothing was sent to the nodes; keys that
    /// are still there are undone when the holder calls release.
    Lost(LockId, LossCause),
    /// A node became a voter, or stopped being one. Changes between two polls are one event.
    Node(NodeId, NodeState),
    /// An extension found no quorum. The lock is held until its validity ends.
    NotExtended(LockId, Refusal),
    /// A shared lock did not become exclusive. It is held as before.
    NotUpgraded(LockId, Refusal),
    /// An automatic extension failed. It is tried again, and a series of failures is reported once.
    AutoExtendFailed(LockId, Refusal),
    /// Who leads, or in which term, is seen for the first time or has changed: read it with
    /// [`Core::observation`](super::Core::observation).
    Observed(ObserverId),
    /// The acquisition ended without a lock, and nothing stays behind.
    Refused(LockId, Refusal),
    /// The holder let go.
    Released(LockId, Released),
    /// The lock is held, but its validity got shorter: a node that counted for it no longer has its key.
    /// Read what is left from the lease.
    Shortened(LockId),
    /// A shared lock is exclusive now: read its lease and its fencing token, which are new.
    Upgraded(LockId),
    /// An inspection, or a force-unlock, is complete: take it with [`Core::take_view`](super::Core::take_view).
    Viewed(ViewId),
}

/// Why an acquisition or an extension was refused, with every node's vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refusal {
    /// The reason in one word.
    pub reason: RefusalReason,
    /// The votes of the last attempt, or of the extension.
    pub votes: Votes,
    /// How long the keys that stand in the way live on if nobody extends them. Known only to those
    /// who waited, or asked for several resources.
    pub remaining: Option<Duration>,
}

impl Refusal {
    /// Of one who cannot say when the way is free.
    #[must_use]
    pub fn new(reason: RefusalReason, votes: Votes) -> Self {
        Self { reason, votes, remaining: None }
    }
}

/// The reason of a [`Refusal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusalReason {
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

messages! {
    /// How a lock was lost.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum LossCause {
        /// Its validity ended.
        Expired: "its validity ended",
        /// It is looked at in a forked child: it belongs to the parent. No core says so.
        Forked: "it belongs to the process that this one was forked from",
        /// So many nodes no longer had its key that no quorum was left.
        Gone: "its key is gone on too many nodes",
        /// It was auto-extended for as long as it may be held. Reported before its validity ends.
        HeldTooLong: "it was held for as long as it may be",
        /// The engine that extended it was shut down or has failed, and let go of it. No core says so.
        ShutDown: "its engine has ended and let go of it",
        /// No quorum extended a lock that is auto-extended. Reported before its validity ends, unless it is driven too late.
        Unextended: "no quorum extended it in time",
    }
}

/// How far a release got. The rest is owed: sent again until confirmed or until the TTL is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Released {
    /// Nodes that confirmed that the key is gone. At least a quorum, or all that answered in time.
    pub nodes: u32,
    /// Nodes of the configuration.
    pub of: u32,
}

impl fmt::Display for Released {
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
    /// It waits for other locks of the same core that came earlier.
    Queued,
    /// Its holder let go, and the confirmations are awaited.
    Releasing,
    /// It was refused or released, or it was lost so long ago that no node can keep it.
    Unknown,
}

/// Whether a node can vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeState {
    /// Its link is being opened, or its handshake is under way.
    Connecting,
    /// It is no voter.
    Down(Cause),
    /// It votes.
    Ready,
    /// It seems to hang: a quorum has answered, and it has not for several of its own round trips. It may
    /// be about to answer, which ends the suspicion. Until then no verdict waits for it, as long as a
    /// quorum of the others votes.
    Suspected,
}

/// What the driver shall do about a link. In order; a link that is closed is forgotten at once, so
/// [`Core::disconnected`](super::Core::disconnected) is not called for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a driver that does not know one cannot drive a core")]
pub enum LinkOp {
    /// Close the socket.
    Close(LinkId),
    /// Begin to connect; answer with [`Core::connected`](super::Core::connected) or
    /// [`Core::disconnected`](super::Core::disconnected).
    Open(LinkId),
}
