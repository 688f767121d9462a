//! The state machine: its collections and its public methods.
//!
//! Invariant: a failure of one node is a vote with a cause, never an error of the caller, so there
//! is no `?` across nodes.
//!
//! Each folder is a subject with its data and its transitions, see `ARCHITECTURE.md`. Input comes
//! through `commands`, `answer` and `timeouts`. A transition returns its decision about its own
//! lock and queues effects on other objects; `routes` follows and applies them.
//!
//! A file that defines types imports only files below it, and never this one. The files of
//! transitions import this one, because they take a [`Core`], an `Env` or a `LockAtWork`, and no
//! file imports them: there is no cycle of imports.

/// The environment of a transition, borrowed apart from the other parts of a core.
macro_rules! env {
    ($core:expr, $now:expr) => {
        $crate::proto::core::Env { config: &$core.config, now: $now, common: &mut $core.common }
    };
}

mod acquiring;
mod answer;
mod check;
mod claims;
mod commands;
mod effects;
mod env;
mod fencing;
#[cfg(test)]
mod growth;
mod holding;
mod inspecting;
mod links;
mod locks;
mod mode_change;
mod observing;
mod permits;
mod push;
mod records;
mod restart_guard;
mod routes;
mod send;
mod timeouts;
mod transition;
mod waiting;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use self::claims::{Claim, Claims};
use self::effects::Effects;
use self::inspecting::{Holdings, Views};
use self::links::{Node, Nodes};
use self::locks::{Active, Lock, Locks, Phase};
use self::observing::Observers;
use self::send::encoded_command::EncodedCommand;
use self::waiting::WaitQueues;
use super::config::Config;
use super::entropy::Entropy;
use super::event::{Event, LinkOp, LockState, NodeState};
use super::lease::Lease;
use super::lock_mode::LockMode;
use super::metrics::Metrics;
use super::names::{ClaimId, LinkId, LockId, NodeId, NodeSet};
use super::printable::printable;
use super::time::{ClockReading, Timestamp};
use super::vote::{Cause, Votes};

pub use self::inspecting::{
    DataKind, FairQueue, Fate, Foreign, Holder, Kept, KeyState, NodeView, Permits, Sharers,
    UnlockScope, View, Waiter,
};
pub(crate) use self::links::{HANGS, Silence};
pub use self::links::{Replicas, Step as HandshakeStep};
pub use self::observing::{Leader, LeaderVerdict, LeaderView, NodeSight};
pub use self::push::PushState;
pub use self::records::detached::{DetachedLock, DetachedLockError};
pub use self::restart_guard::RestartGuardState;

/// The most locks that one core can have requested, held or not undone at once.
pub const MAX_LOCKS: usize = 1 << 20;

/// The most unanswered requests on one link before it takes no more lock requests and extensions.
/// Undos are always taken: their number is limited by the requests before.
pub const MAX_PIPELINE: usize = 1 << 14;

/// The lock protocol on all nodes. See the [module](super) for how to drive it.
pub struct Core {
    config: Arc<Config>,
    /// The latest boot time that was passed in.
    boot: Timestamp,
    /// The lead of the wall clock over `boot`, when it last grew by `timeouts::JUMP` or shrank.
    wall_ahead: u64,
    nodes: Nodes,
    locks: Locks,
    claims: Claims,
    views: Views,
    holdings: Holdings,
    observers: Observers,
    queues: WaitQueues,
    /// Whether the caller may not be there to send a script after a server's own command.
    caller_leaves: bool,
    common: Common,
}

/// The parts of a core that transitions of all objects use.
struct Common {
    entropy: Entropy,
    metrics: Metrics,
    /// The nodes whose state has changed since it was reported.
    changed: NodeSet,
    /// The nodes that seem to hang.
    suspected: NodeSet,
    effects: Effects,
    events: VecDeque<Event>,
    ops: VecDeque<LinkOp>,
    /// Whether the restart guards of a set that was new, or is to be changed, have been written.
    has_set_up: bool,
    /// Nothing is due before this. It may be too early, never too late.
    next_timeout: Timestamp,
    /// The command that was sent last.
    encoded: EncodedCommand,
    /// The average time of a round of requests.
    round_trip: Duration,
    /// The µs by which a quorum's clocks were ahead of our clock when it rejected a fencing token.
    ahead_us: i64,
    /// The earliest time at which an automatic extension is due.
    auto_extend_at: Timestamp,
    is_auto_extending: bool,
}

/// The parts of a core that a node's transition uses in addition to the node.
struct Env<'a> {
    config: &'a Config,
    now: ClockReading,
    common: &'a mut Common,
}

/// A lock at work, looked up once for a transition, with what that uses.
struct LockAtWork<'a> {
    id: LockId,
    lock: &'a mut Lock,
    active: &'a mut Active,
    claim: &'a mut Claim,
    nodes: &'a mut Nodes,
    env: Env<'a>,
    /// When something is due for the lock.
    due: Timestamp,
    /// The nodes that were sent a command.
    sent: NodeSet,
}

impl LockAtWork<'_> {
    #[inline]
    fn arm(&mut self, at: Timestamp) {
        self.due = self.due.min(at);
    }
}

impl Core {
    /// Creates a core that opens a link to every node at its first [`timeout`](Self::timeout),
    /// which is due at once.
    ///
    /// `entropy` fills a buffer with unpredictable bytes, about 1 KiB at a time. Tokens are made of
    /// them: a client that can guess a token can release the lock.
    pub fn new(config: Arc<Config>, entropy: impl FnMut(&mut [u8]) + Send + 'static) -> Self {
        let nodes = Nodes::new(&config);
        let mut entropy = Entropy::new(entropy);
        let queues = WaitQueues::new(entropy.bytes());
        let common = Common {
            entropy,
            metrics: Metrics::new(config.node_count(), config.settings.response_timeout),
            changed: NodeSet::default(),
            suspected: NodeSet::default(),
            effects: Effects::new(),
            events: VecDeque::new(),
            ops: VecDeque::new(),
            has_set_up: false,
            next_timeout: Timestamp::default(),
            encoded: EncodedCommand::default(),
            round_trip: Duration::ZERO,
            ahead_us: 0,
            auto_extend_at: Timestamp::NEVER,
            is_auto_extending: false,
        };
        Self {
            caller_leaves: false,
            config,
            queues,
            boot: Timestamp::default(),
            wall_ahead: 0,
            nodes,
            locks: Locks::new(),
            claims: Claims::new(),
            views: Views::new(),
            holdings: Holdings::default(),
            observers: Observers::new(),
            common,
        }
    }

    /// Returns the configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the metrics.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.common.metrics
    }

    /// Returns the mode of a lock; `None` once it was refused or released.
    #[must_use]
    pub fn mode(&self, id: LockId) -> Option<LockMode> {
        self.locks.find(id).map(|lock| lock.mode())
    }

    /// Returns the resources of a lock, as long as it has a claim.
    pub(crate) fn resources(&self, id: LockId) -> impl Iterator<Item = &[u8]> {
        let claim = self.locks.find(id).and_then(|lock| self.claims.find(lock.claim()));
        claim.into_iter().flat_map(|claim| claim.keys().iter())
    }

    /// Returns the lease of a lock while it is held.
    #[must_use]
    pub fn lease(&self, id: LockId) -> Option<&Lease> {
        let lock = self.locks.find(id)?;
        lock.phase.is_held().then_some(&lock.lease)
    }

    /// Returns the replicas of a node, if it reported them when its connection was opened.
    #[must_use]
    pub fn replicas(&self, node: NodeId) -> Option<Replicas> {
        self.nodes[node.index()].server.replicas()
    }

    /// Returns whether a node can vote now, and why not.
    #[must_use]
    pub fn node_state(&self, node: NodeId) -> NodeState {
        self.node(node).state(self.common.suspected.contains(node))
    }

    /// Returns why the last link to a node that is being connected to ended, if one did since it
    /// was ready.
    pub(crate) fn failed_before(&self, node: NodeId) -> Option<Cause> {
        let link = &self.nodes[node.index()].link;
        (!link.has_not_failed()).then(|| link.cause())
    }

    /// Returns the state of a lock.
    #[must_use]
    pub fn state(&self, id: LockId) -> LockState {
        match self.locks.find(id).map(|lock| lock.phase) {
            None => LockState::Unknown,
            Some(Phase::Asking) => LockState::Asked,
            Some(Phase::Extending) => LockState::Extending,
            Some(Phase::Fencing) => LockState::Fencing,
            Some(Phase::Held) => LockState::Held,
            Some(Phase::Pausing) => LockState::Pausing,
            Some(Phase::Queued) => LockState::Queued,
            Some(Phase::Lost(cause)) => LockState::Lost(cause),
            Some(Phase::Releasing) => LockState::Releasing,
        }
    }

    /// Returns the votes of a lock's present attempt, extension or release; none once it has ended.
    #[must_use]
    pub fn votes(&self, id: LockId) -> Votes {
        match (self.locks.find(id), self.locks.active(id)) {
            (Some(_), Some(active)) => active.votes,
            // An idle lock.
            (Some(_), None) => self.ballot().granted(),
            (None, _) => self.ballot(),
        }
    }

    /// Returns the votes of the last failed attempt of a lock that waits.
    #[must_use]
    pub fn decided_votes(&self, id: LockId) -> Option<Votes> {
        self.locks.active(id)?.attempt.decided()
    }

    /// Returns whether a node that can be reached still has to confirm a release or an undo.
    #[must_use]
    pub fn has_pending_releases(&self) -> bool {
        let is_reached = |node: &Node| node.link.takes_undos() || node.link.may_return();
        self.nodes.iter().any(|node| node.debt.claims() > 0 && is_reached(node))
    }

    /// Opens the links of all nodes that are down, ahead of their backoff.
    pub fn open_all(&mut self, now: ClockReading) {
        let now = self.clamp(now);
        self.nodes.iter_mut().for_each(|node| node.open_if_down(&mut env!(self, now)));
    }

    /// Opens a command link that is down, ahead of its backoff, because it leads elsewhere now.
    pub fn open_now(&mut self, link: LinkId, now: ClockReading) {
        let now = self.clamp(now);
        if !link.is_push() {
            self.nodes[link.node().index()].open_if_down(&mut env!(self, now));
        }
    }

    /// Keeps the driver's words about a cause. Characters that a terminal acts on are escaped,
    /// because the words may quote the system, a certificate or a sentinel.
    pub fn explain(&mut self, link: LinkId, cause: Cause, words: String) {
        if !link.is_push() {
            self.node_mut(link.node()).explain(cause, printable(&words));
        }
    }

    /// Returns whether an answer is due on this link, so that a read may bring it although no
    /// readiness was reported.
    #[must_use]
    #[inline]
    pub fn is_awaited(&self, link: LinkId) -> bool {
        !link.is_push() && self.node(link.node()).pipeline.oldest().is_some()
    }

    /// Returns the bytes that wait to be written to a link.
    #[must_use]
    #[inline]
    pub fn transmit(&self, link: LinkId) -> &[u8] {
        let node = &self.nodes[link.node().index()];
        if link.is_push() { node.push.unsent() } else { node.pipeline.unsent() }
    }

    /// Removes the first `bytes` of [`transmit`](Self::transmit), which the socket took.
    #[inline]
    pub fn transmitted(&mut self, link: LinkId, bytes: usize) {
        let node = &mut self.nodes[link.node().index()];
        if link.is_push() { node.push.sent(bytes) } else { node.pipeline.sent(bytes) }
    }

    /// Returns the space for the next bytes of a link: at least 8 KiB.
    #[inline]
    pub fn space(&mut self, link: LinkId) -> &mut [u8] {
        let node = &mut self.nodes[link.node().index()];
        if link.is_push() { node.push.space() } else { node.space() }
    }

    /// Returns the next operation on a link, in order.
    pub fn poll_link(&mut self) -> Option<LinkOp> {
        self.common.ops.pop_front()
    }

    /// Returns the next outcome.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        let next = match self.common.events.pop_front() {
            Some(Event::Observed(id)) => self.observers.skip_stale(id, &mut self.common.events),
            next => next,
        };
        if next.is_some() {
            return next;
        }
        let node = self.common.changed.iter().next()?;
        self.common.changed.remove(node);
        Some(Event::Node(node, self.node_state(node)))
    }

    /// Returns the latest boot time that the core was given: enough to see whether a timeout is due
    /// right after a read.
    #[must_use]
    #[inline]
    pub fn latest(&self) -> Timestamp {
        self.boot
    }

    /// Returns when [`timeout`](Self::timeout) is due, on the boot clock. It can be earlier than
    /// anything happens, and in the past if something is due.
    #[must_use]
    #[inline]
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        (self.common.next_timeout != Timestamp::NEVER).then_some(self.common.next_timeout)
    }

    /// Keeps `boot` from stepping back; `wall` is taken as it is.
    fn clamp(&mut self, now: ClockReading) -> ClockReading {
        // A reading that steps back would make every lease longer.
        self.boot = self.boot.max(now.boot);
        ClockReading { boot: self.boot, wall: now.wall }
    }

    #[inline]
    fn arm(&mut self, at: Timestamp) {
        self.common.next_timeout = self.common.next_timeout.min(at);
    }

    #[inline]
    fn arm_lock(&mut self, id: LockId, at: Timestamp) {
        self.locks.arm(id, at);
        self.arm(at);
    }

    #[inline]
    fn arm_claim(&mut self, id: ClaimId, at: Timestamp) {
        self.claims.arm(id, at);
        self.arm(at);
    }

    fn ballot(&self) -> Votes {
        // At most MAX_NODES.
        Votes::new(self.nodes.len() as u8, self.config.quorum)
    }

    fn node(&self, node: NodeId) -> &Node {
        &self.nodes[node.index()]
    }

    fn node_mut(&mut self, node: NodeId) -> &mut Node {
        &mut self.nodes[node.index()]
    }

    #[inline]
    fn node_in_env(&mut self, node: NodeId, now: ClockReading) -> (&mut Node, Env<'_>) {
        (&mut self.nodes[node.index()], env!(self, now))
    }
}

impl fmt::Debug for Core {
    /// Shows counts only, because the core contains tokens and passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("nodes", &self.nodes.len())
            .field("locks", &self.locks.len())
            .field("claims", &self.claims.len())
            .field("listeners", &self.queues.listener_count())
            .finish_non_exhaustive()
    }
}
