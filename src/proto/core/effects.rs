//! Decisions and effects: what follows from a transition elsewhere in the core.
//!
//! Invariant: no subject calls its caller. A transition returns its decision about its own lock,
//! which its caller follows at once. An effect on another object is queued, and `routes` applies it
//! after the transition.

use std::time::Duration;

use super::links::Pending;
use super::restart_guard::FollowUp;
use super::waiting::QueueKey;
use crate::proto::event::{LossCause, RefusalReason};
use crate::proto::names::{ClaimId, LockId, NodeId, NodeSet, ObserverId};
use crate::proto::time::Timestamp;
use crate::proto::vote::{Cause, Vote};

/// The next step of a lock, decided by a transition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "the caller of a transition follows its decision"]
pub(super) enum Decision {
    /// Nothing follows.
    #[default]
    Continue,
    /// Begin an attempt, at this node before all others if there is one.
    Ask(Option<NodeId>),
    /// Ask these nodes as well in the present attempt.
    AskMore(NodeSet),
    /// Wait for notifications of these nodes.
    Listen(NodeSet),
    /// Ask these nodes for the slot on which the others are to agree.
    MoveAt(NodeSet),
    /// End the pause if a notification allows it.
    Wake,
    /// Read the resource at the lead.
    ReadLead,
    /// Suspect these nodes, which have exceeded their allowance, and count the votes again.
    Suspect(NodeSet),
    Granted,
    /// Repeat the attempt at once: it failed because of our clock, which has been corrected.
    Repeat,
    /// Go on waiting after a failed attempt, which these nodes denied.
    Retry(NodeSet),
    Refused(RefusalReason),
}

/// A consequence of a transition for another object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// A decision about a lock that could not be returned.
    Decided(LockId, Decision),
    OfLock(LockId, LockEffect),
    OfClaim(NodeId, ClaimId, ClaimEffect),
    OfNode(NodeId, NodeEffect),
    WakeObserver(ObserverId),
    /// Let the locks ask that are first in their queues now.
    RunScheduled,
    RunNextScheduled,
    /// Continue a set-up whose nodes may all have been read by now.
    SetUp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LockEffect {
    /// Let the next waiters in its queues ask: they may share the resource.
    AdmitNext,
    /// The subscriptions to channels of its library at this node have ended.
    ChannelLostAt(NodeId),
    CompanionExpired,
    CompanionGranted,
    /// The lock is shared now. The flag: its caller waits for an extension that this covers.
    Downgraded(bool),
    Extended,
    /// Count this vote of a node in the present extension.
    ExtensionVote(NodeId, Vote),
    /// This node has reported a change for the lock, or no longer reports changes.
    WakeBy(NodeId),
    /// Leave the queues after a loss.
    LeaveQueues,
    Lost(LossCause),
    /// Read its key again, which may have changed before this node reported changes.
    ReadKeyAt(NodeId),
    /// Count the votes again.
    Recount,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClaimEffect {
    /// Undo a request in flight to a node that no longer votes.
    Disown,
    /// Fail its extension of this round.
    FailExtension(u32, Cause),
    /// Fail the request that waits for the node's link.
    FailQueuedAsk,
    /// The connection will not confirm the undo.
    UndoLost(Cause),
    /// Fail the vote: the request will not be answered, or its answer does not count.
    VoteFailed,
    /// The write-back of this round will not be confirmed.
    WriteBackLost(u32, Cause),
}

/// An effect on a node, or on what depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeEffect {
    /// The node votes from now on.
    Admitted,
    /// Write its restart guard, with this quarantine.
    Enrol(Duration),
    /// Fail the requests and extensions that wait for its link.
    FailQueued,
    /// Fail the requests that wait for its link.
    FailQueuedAsks,
    FailQueuedViews,
    /// Continue after an exclusion.
    FollowUp(FollowUp),
    /// Let the observers forget its data, which they can no longer read.
    ForgetObserved,
    /// Close a link that no longer votes, if nothing is due on it.
    LeaveIfIdle,
    /// The push link is lost, and may be opened again at this time.
    PushLost(Timestamp),
    /// The node reports changes from now on: read what locks wait for there.
    ReadKeys,
    /// Let the observers read again: a change there may have been missed.
    RefreshObservers,
    /// The node has reported a change of this resource.
    Notified(QueueKey),
    /// The node no longer reports changes.
    ReportsLost,
    /// Send what needs no vote.
    ResumeNonVoter,
    /// The node is excluded as a voter until its next connection.
    Retired(Cause),
    SendOwed,
    /// Settle the releases that wait only for this node.
    SettleReleases,
    /// The connection has ended, or is closed by us.
    Sever(Cause),
    /// The loss of a connection is complete. The number: the ghosts that the node had before.
    Severed(usize),
    /// The connection has ended with this request in flight. The flag: no byte of it was sent.
    Unanswered(Pending, bool),
}

/// The queue of effects. Those of a transition are applied in order, before the earlier ones, as if
/// it had called them at its end.
#[derive(Debug)]
pub(super) struct Effects {
    /// A stack, except for the effects of the present transition.
    queued: Vec<Effect>,
    /// The number of effects queued before the present transition.
    before: usize,
}

impl Effects {
    pub(super) fn new() -> Self {
        Self { queued: Vec::with_capacity(16), before: 0 }
    }

    #[inline]
    pub(super) fn push(&mut self, effect: Effect) {
        self.queued.push(effect);
    }

    pub(super) fn of_lock(&mut self, lock: LockId, effect: LockEffect) {
        self.push(Effect::OfLock(lock, effect));
    }

    pub(super) fn of_locks(&mut self, locks: impl Iterator<Item = LockId>, effect: LockEffect) {
        self.queued.extend(locks.map(|lock| Effect::OfLock(lock, effect)));
    }

    pub(super) fn of_claim(&mut self, node: NodeId, claim: ClaimId, effect: ClaimEffect) {
        self.push(Effect::OfClaim(node, claim, effect));
    }

    pub(super) fn of_node(&mut self, node: NodeId, effect: NodeEffect) {
        self.push(Effect::OfNode(node, effect));
    }

    /// Queues a decision that cannot be returned.
    #[inline]
    pub(super) fn decided(&mut self, lock: LockId, decision: Decision) {
        if !matches!(decision, Decision::Continue) {
            self.push(Effect::Decided(lock, decision));
        }
    }

    /// Returns the next effect, after a transition.
    #[inline]
    pub(super) fn next(&mut self) -> Option<Effect> {
        // The effects of the last transition are reversed into stack order, above the earlier ones.
        if self.queued.len() > self.before + 1 {
            self.queued[self.before..].reverse();
        }
        let next = self.queued.pop();
        self.before = self.queued.len();
        next
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.queued.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_of_one_transition_come_in_order_and_before_earlier_ones() {
        let [a, b, c, d] =
            [0, 1, 2, 3].map(|node| Effect::OfNode(NodeId(node), NodeEffect::SendOwed));
        let mut effects = Effects::new();
        effects.push(a);
        effects.push(d);
        assert_eq!(effects.next(), Some(a));
        effects.push(b);
        effects.push(c);
        let rest: Vec<_> = std::iter::from_fn(|| effects.next()).collect();
        assert_eq!(rest, [b, c, d]);
        effects.push(a);
        assert_eq!((effects.next(), effects.next()), (Some(a), None));
    }
}
