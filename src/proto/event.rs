//! The outputs of the core: events for callers, and link operations for the driver.

use std::fmt;
use std::time::Duration;

use super::names::{LinkId, LockId, NodeId, ObserverId, ViewId};
use super::vote::{Cause, Votes};
use crate::resp::messages;

/// An outcome of a command, or a change that the core reports.
///
/// Each lock ends in exactly one of [`Refused`](Self::Refused), [`Released`](Self::Released) and
/// [`Lost`](Self::Lost), unless it is detached to another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// An extension succeeded. Read the new validity from the lease.
    Extended(LockId),
    /// The lock is held. Read the clock and the lease before acting on it.
    Granted(LockId),
    /// An automatic extension succeeded.
    AutoExtended(LockId),
    /// A quorum of the nodes now lets readers share the resource of a formerly exclusive lock. The
    /// holder has been a reader since it called for the downgrade.
    Downgraded(LockId),
    /// Too few nodes let readers share the resource yet. Readers are kept out until the lock is
    /// released or its present TTL has passed. The nodes are asked again after the next extension.
    DowngradeDelayed(LockId, Refusal),
    /// The lock is no longer held although the holder did not release it. Nothing was sent to the
    /// nodes; keys that still exist are undone when the holder calls release.
    Lost(LockId, LossCause),
    /// The state of a node changed. Changes between two polls are one event.
    Node(NodeId, NodeState),
    /// An extension reached no quorum. The lock is held until its present validity ends.
    NotExtended(LockId, Refusal),
    /// An upgrade failed. The shared lock is held as before.
    NotUpgraded(LockId, Refusal),
    /// An automatic extension failed. It is retried, and a series of failures is reported once.
    AutoExtendFailed(LockId, Refusal),
    /// The leader or its term was observed for the first time or has changed. Read it with
    /// [`Core::observation`](super::Core::observation).
    Observed(ObserverId),
    /// The acquisition ended without a lock. Keys that it left on nodes are undone.
    Refused(LockId, Refusal),
    /// The holder's release is complete.
    Released(LockId, Released),
    /// The lock is held, but its validity is shorter than before, because a node that counted for
    /// it no longer has its key. Read the remaining validity from the lease.
    Shortened(LockId),
    /// A shared lock became exclusive. Its lease and its fencing token are new.
    Upgraded(LockId),
    /// An inspection or a force-unlock is complete. Take the result with
    /// [`Core::take_view`](super::Core::take_view).
    Viewed(ViewId),
}

/// The reason why an acquisition or an extension was refused, with the vote of every node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refusal {
    /// The reason.
    pub reason: RefusalReason,
    /// The votes of the last attempt, or of the extension.
    pub votes: Votes,
    /// The time until enough of the keys in the way expire for a quorum, if their holders do not
    /// extend them. Known if the acquisition waited, or if its request is a script, which reports
    /// the time with a denial: for several resources, shared locks, permits, fencing tokens and
    /// most formats of other libraries.
    pub remaining: Option<Duration>,
}

impl Refusal {
    /// Returns a refusal without an estimate of the remaining wait.
    #[must_use]
    pub fn new(reason: RefusalReason, votes: Votes) -> Self {
        Self { reason, votes, remaining: None }
    }
}

/// The reason of a [`Refusal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusalReason {
    /// The caller released the lock before it was granted.
    Cancelled,
    /// A quorum of the nodes voted, and another client holds the resource.
    Contended,
    /// No validity was left when a quorum had granted: the TTL is too short for these nodes.
    Expired,
    /// Too many nodes failed to vote. The votes have the causes.
    NoQuorum,
    /// The time that the caller allowed has passed. The votes show what was in the way.
    OutOfTime,
}

messages! {
    /// The reason why a lock was lost.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum LossCause {
        /// Its validity ended.
        Expired: "its validity ended",
        /// The lock belongs to the parent of this forked process. Reported by the APIs, never by a
        /// core.
        Forked: "it belongs to the process that this one was forked from",
        /// Too many nodes no longer have its key for a quorum to remain.
        Gone: "its key is gone on too many nodes",
        /// It was auto-extended up to the maximum hold time. Reported a twentieth of the TTL, at
        /// most 500 ms, before its validity ends.
        HeldTooLong: "it was held for as long as it may be",
        /// The engine that extended it was shut down or has failed. Reported by the engine, never
        /// by a core.
        ShutDown: "its engine has ended and let go of it",
        /// No quorum extended a lock that is auto-extended. Reported as early as
        /// [`HeldTooLong`](Self::HeldTooLong), unless the driver runs too late.
        Unextended: "no quorum extended it in time",
    }
}

/// The progress of a release. Undos that are not confirmed are sent again until they are, or until
/// the TTL has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Released {
    /// The number of nodes that confirmed that the key does not exist: at least a quorum, or as
    /// many as answered in time.
    pub nodes: u32,
    /// The number of configured nodes.
    pub of: u32,
}

impl fmt::Display for Released {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} confirmed", self.nodes, self.of)
    }
}

/// The state of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LockState {
    /// An attempt is waiting for votes.
    Asked,
    /// The lock is held, and an extension is pending.
    Extending,
    /// A quorum has granted, and the fencing token is being written back.
    Fencing,
    /// The lock was granted. Its lease may have expired since the core last ran: read it.
    Held,
    /// The lock was lost, and its holder has not released it.
    Lost(LossCause),
    /// An attempt was refused, and the lock waits for its next attempt.
    Pausing,
    /// The lock waits for earlier locks of the same core.
    Queued,
    /// The lock was released, and the confirmations are pending.
    Releasing,
    /// The core has no such lock: it was refused or released, or lost so long ago that its keys
    /// have expired on all nodes.
    Unknown,
}

/// The voting state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeState {
    /// The node's link is being opened, or its handshake is pending.
    Connecting,
    /// The node does not vote.
    Down(Cause),
    /// The node votes.
    Ready,
    /// The node seems to hang: a quorum has answered, and this node has not for several of its
    /// usual round trips. Any answer ends the suspicion. Until then no verdict waits for the node,
    /// as long as a quorum of the others votes.
    Suspected,
}

/// An operation on a link that the driver must carry out, in the order of reports. A closed link is
/// forgotten at once: the driver does not call [`Core::disconnected`](super::Core::disconnected)
/// for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a driver that does not know one cannot drive a core")]
pub enum LinkOp {
    /// Close the socket.
    Close(LinkId),
    /// Begin to connect, and report the result with [`Core::connected`](super::Core::connected) or
    /// [`Core::disconnected`](super::Core::disconnected).
    Open(LinkId),
}
