//! Reports of outcomes and node states in words.
//!
//! Refusals of the core name nodes by number and causes by kind, inline and without allocating. The
//! reports add addresses and details for people.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use super::lock_lost::LockName;
use crate::net::Address;
use crate::proto::restart_guard::Found;
use crate::proto::{
    Cause, Config, Core, HANGS, NodeId, NodeState, PushState, Refusal, RefusalReason, Replicas,
    RestartGuardState, Settings, Silence, Vote,
};

/// A reason why a lock was not granted or not extended, with the vote of each node.
///
/// The text is `lock invoices: no quorum: 2 of 5 granted, 3 needed; node 3 10.0.0.3:6379:
/// connection refused; …`. The report of a [`Driver`](crate::Driver) does not name the lock, which
/// its caller knows by its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusalReport {
    /// The refusal, boxed to keep errors small.
    refusal: Box<Refusal>,
    nodes: Vec<NodeVote>,
    /// Set if too few nodes vote and all look new.
    is_new: bool,
    lock: Option<LockName>,
}

/// The part of one node in a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeVote {
    /// The number of the node, from one.
    pub number: usize,
    /// The address of the node.
    pub address: Address,
    /// The vote of the node; `None` if the attempt was decided or ended before it voted.
    pub vote: Option<Vote>,
    words: String,
}

impl RefusalReport {
    pub(super) fn new(addresses: &[Address], core: &Core, refusal: Refusal) -> Self {
        let config = core.config();
        let is_quarantined = |id| refusal.votes.of(id) == Some(Vote::Fail(Cause::Quarantined));
        // The verdict does not wait for the last node, so a node that has not answered may be new.
        let may_be_new = |node| {
            looks_new(core.restart_guard_state(node))
                || core.node_state(node) == NodeState::Connecting
        };
        let is_new = config.node_ids().any(is_quarantined) && config.node_ids().all(may_be_new);
        let report =
            Self::described(addresses, config, refusal, |node, cause| core.detail(node, cause));
        Self { is_new, ..report }
    }

    pub(super) fn described(
        addresses: &[Address],
        config: &Config,
        refusal: Refusal,
        detail: impl Fn(NodeId, Cause) -> Option<String>,
    ) -> Self {
        let nodes = config.node_ids().map(|node| {
            let vote = refusal.votes.of(node);
            let words = match vote {
                None if refusal.votes.suspected().contains(node) => HANGS.to_owned(),
                None => "not asked, or not waited for".to_owned(),
                Some(Vote::Grant) => "granted".to_owned(),
                Some(Vote::Deny) => "held by another".to_owned(),
                Some(Vote::Fail(cause)) => {
                    in_words(config.settings(), cause, detail(node, cause).as_deref())
                }
            };
            let address = addresses[node.index()].clone();
            NodeVote { number: node.index() + 1, address, vote, words }
        });
        Self { refusal: Box::new(refusal), nodes: nodes.collect(), is_new: false, lock: None }
    }

    /// Adds the names of the resources of the lock.
    pub(super) fn of_lock<'r>(self, resources: impl Iterator<Item = &'r [u8]>) -> Self {
        Self { lock: Some(LockName::new(resources)), ..self }
    }

    /// Returns the reason without details.
    #[must_use]
    pub fn reason(&self) -> RefusalReason {
        self.refusal.reason
    }

    /// Returns whether a quorum of the nodes voted and another client holds the resource. If not,
    /// too few nodes vote. The two are also told apart when the time ran out.
    #[must_use]
    pub fn is_contended(&self) -> bool {
        self.refusal.votes.is_contended() || self.was_queued()
    }

    /// Returns whether no node was asked, because other requests in this process were first in
    /// line.
    fn was_queued(&self) -> bool {
        let votes = &self.refusal.votes;
        let answers = votes.grants().len() + votes.denies().len() + votes.fails().len();
        self.refusal.reason == RefusalReason::OutOfTime && answers == 0
    }

    /// Returns whether the request was refused because all nodes look new and have not been
    /// declared so. See [`init`](crate::init).
    #[must_use]
    pub fn are_nodes_new(&self) -> bool {
        self.is_new
    }

    /// Returns how long the conflicting keys live on if no holder extends them, as far as known.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.refusal.remaining
    }

    /// Returns the votes of all nodes, in order.
    #[must_use]
    pub fn node_votes(&self) -> &[NodeVote] {
        &self.nodes
    }
}

impl fmt::Display for RefusalReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(lock) = &self.lock {
            write!(f, "{lock}: ")?;
        }
        if self.was_queued() {
            return f.write_str("out of time, behind another lock of this process");
        }
        let votes = &self.refusal.votes;
        f.write_str(match self.refusal.reason {
            RefusalReason::Cancelled => "cancelled",
            RefusalReason::Contended => "held by another",
            RefusalReason::Expired => "no validity was left before a quorum had granted",
            RefusalReason::NoQuorum => "no quorum",
            RefusalReason::OutOfTime if self.is_contended() => "out of time, held by another",
            RefusalReason::OutOfTime => "out of time, no quorum",
        })?;
        let (granted, nodes) = (votes.grants().len(), votes.node_count());
        write!(f, ": {granted} of {nodes} granted, {} needed", votes.quorum())?;
        for node in self.nodes.iter().filter(|node| node.vote != Some(Vote::Grant)) {
            write!(f, "; {node}")?;
        }
        if self.is_new { f.write_str(NEW) } else { Ok(()) }
    }
}

const NEW: &str = "; if these nodes are new and never held a lock, say so once: redbolt::init or the \
    command `redbolt init`, in a test ConfigBuilder::new_nodes; otherwise they vote when their \
    quarantine is over";

impl Error for RefusalReport {}

impl fmt::Display for NodeVote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} {}: {}", self.number, self.address, self.words)
    }
}

/// The states of all nodes, which show whether a lock can be acquired.
#[derive(Clone, Debug)]
pub struct NodeReport {
    /// All nodes, in order.
    pub nodes: Vec<NodeStatus>,
    quorum: usize,
}

/// The state of one node, which shows whether it can vote.
#[derive(Clone, Debug)]
pub struct NodeStatus {
    /// The number of the node, from one.
    pub number: usize,
    /// The address of the node.
    pub address: Address,
    /// The state of the node.
    pub state: NodeState,
    /// The state of its restart guard.
    pub restart_guard: RestartGuardState,
    /// The state of its push notifications to waiters.
    pub push: PushState,
    /// The reason why waiters cannot queue there; `None` if none was found.
    pub no_queue: Option<Cause>,
    /// The reason why waiters for a lock of another library do not receive that library's release
    /// channel there; `None` if none was found.
    pub no_channel: Option<Cause>,
    /// The replicas of the node when its connection was opened, if it reported them.
    pub replicas: Option<Replicas>,
    is_silent: bool,
    words: String,
}

impl NodeStatus {
    pub(super) fn new(addresses: &[Address], core: &Core, node: NodeId) -> Self {
        let (state, silence) = (core.node_state(node), core.silence(node));
        let why = |cause| explain(core, node, cause);
        let words = match state {
            NodeState::Connecting => match (silence, core.failed_before(node)) {
                (Some(Silence::Unanswered), _) => HANGS.to_owned(),
                (_, Some(cause)) => format!("connecting again after: {}", why(cause)),
                (Some(Silence::Unreached), None) => UNREACHED.to_owned(),
                (None, None) => "still connecting".to_owned(),
            },
            NodeState::Down(cause) => why(cause),
            NodeState::Ready => "ready".to_owned(),
            NodeState::Suspected => HANGS.to_owned(),
        };
        Self {
            number: node.index() + 1,
            address: addresses[node.index()].clone(),
            state,
            restart_guard: core.restart_guard_state(node),
            push: core.push_state(node),
            no_queue: core.no_queue(node),
            no_channel: core.no_channel(node),
            replicas: core.replicas(node),
            is_silent: state == NodeState::Suspected || silence.is_some(),
            words,
        }
    }

    /// Returns whether the node is overdue but may still answer: it is
    /// [suspected](NodeState::Suspected), or the first connection to it, or its handshake, takes
    /// longer than a round trip to any place on Earth.
    #[must_use]
    pub fn seems_to_hang(&self) -> bool {
        self.is_silent
    }
}

impl NodeReport {
    pub(super) fn new(addresses: &[Address], core: &Core) -> Self {
        let config = core.config();
        let nodes = config.node_ids().map(|node| NodeStatus::new(addresses, core, node));
        Self { nodes: nodes.collect(), quorum: config.quorum() }
    }

    /// Returns whether enough nodes are ready for a lock.
    #[must_use]
    pub fn has_quorum(&self) -> bool {
        self.ready() >= self.quorum
    }

    /// Returns whether all nodes look as if they had never held a lock: none had a restart guard
    /// when it was first read. Nodes that have all lost their memory look the same. See
    /// [`init`](crate::init).
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.nodes.iter().all(|node| looks_new(node.restart_guard))
    }

    /// Returns whether each node is known to be ready or not.
    pub(super) fn is_connected(&self) -> bool {
        self.nodes.iter().all(|node| node.state != NodeState::Connecting)
    }

    /// Returns whether each node is known to send notifications or not.
    pub(super) fn is_push_settled(&self) -> bool {
        self.nodes.iter().all(|node| node.push != PushState::Opening)
    }

    /// Replaces the state of each node that is connecting by its state in `before`. After a refusal
    /// a link is reopened, and the reason for the refusal is more useful.
    pub(super) fn or_before(mut self, before: Self) -> Self {
        let nodes = self.nodes.iter_mut().zip(before.nodes);
        for (node, before) in nodes.filter(|(node, _)| node.state == NodeState::Connecting) {
            *node = before;
        }
        self
    }

    /// Returns how many nodes a lock needs.
    #[must_use]
    pub fn quorum(&self) -> usize {
        self.quorum
    }

    /// Returns how many nodes are ready.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.nodes.iter().filter(|node| node.state == NodeState::Ready).count()
    }
}

/// Returns whether the node had no restart guard when it was first read. A node that was set up
/// votes, or is quarantined for another reason.
fn looks_new(restart_guard: RestartGuardState) -> bool {
    match restart_guard {
        RestartGuardState::Quarantined { found, .. } | RestartGuardState::Found(found) => {
            found == Found::Missing
        }
        _ => false,
    }
}

impl fmt::Display for NodeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} ready, {} needed", self.ready(), self.nodes.len(), self.quorum)?;
        for node in &self.nodes {
            write!(f, "; {node}")?;
        }
        Ok(())
    }
}

impl fmt::Display for NodeStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} {}: {}", self.number, self.address, self.words)?;
        match self.push {
            PushState::Unavailable(cause) if self.state == NodeState::Ready => {
                write!(f, "; waiters are not told: {cause}")?;
            }
            _ => {}
        }
        let is_ready = self.state == NodeState::Ready;
        if let Some(cause) = self.no_queue.filter(|_| is_ready) {
            write!(f, "; waiters do not queue: {cause}")?;
        }
        if let Some(cause) = self.no_channel.filter(|_| is_ready) {
            write!(f, "; waiters do not hear their library's channel: {cause}")?;
        }
        Ok(())
    }
}

const UNREACHED: &str = "no connection so far: the host is down, or packets to it are dropped";

/// Explains why a node has not answered a question that was awaited for less than its full timeout.
pub(super) fn unanswered(addresses: &[Address], core: &Core, node: NodeId) -> String {
    match (core.node_state(node), core.silence(node)) {
        (NodeState::Ready, _) => "no answer".to_owned(),
        (NodeState::Connecting, None) => "no answer, still connecting".to_owned(),
        _ => NodeStatus::new(addresses, core, node).words,
    }
}

/// Describes a cause in words, with its numbers and details.
pub(super) fn explain(core: &Core, node: NodeId, cause: Cause) -> String {
    in_words(core.config().settings(), cause, core.detail(node, cause).as_deref())
}

fn in_words(settings: &Settings, cause: Cause, detail: Option<&str>) -> String {
    match (cause, detail) {
        (Cause::NoAnswer, None) => format!("no answer in {:?}", settings.response_timeout),
        (Cause::ConnectTimeout, Some(words)) => {
            format!("no connection in {:?} ({words})", settings.connect_timeout)
        }
        (Cause::ConnectTimeout, None) => format!("no connection in {:?}", settings.connect_timeout),
        (Cause::DeadPeer, _) => format!("silent for {:?}", settings.dead_peer_timeout),
        (Cause::SameServer, Some(words)) => format!("the same server as another node: {words}"),
        (Cause::Quarantined, Some(words)) => format!("{cause} {words}"),
        (Cause::Io | Cause::NameLookup | Cause::NoAnswer | Cause::OtherLimits, Some(words)) => {
            words.to_owned()
        }
        (cause, Some(words)) => format!("{cause} ({words})"),
        (cause, None) => cause.to_string(),
    }
}
