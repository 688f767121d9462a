//! Outcomes in words: each node's vote and state.
//!
//! The core's refusals name nodes by number and causes by kind, inline and without memory of their
//! own. Here they get addresses and details, for people.

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

/// Why a lock was not granted or not extended, with every node's vote.
///
/// As text: `lock invoices: no quorum: 2 of 5 granted, 3 needed; node 3 10.0.0.3:6379: connection refused; …`. A [`Driver`]'s
/// does not name the lock, which its caller knows by its id.
///
/// [`Driver`]: crate::Driver
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusalReport {
    /// Apart, so that an error is small.
    refusal: Box<Refusal>,
    nodes: Vec<NodeVote>,
    /// Too few nodes vote, and all look new.
    is_new: bool,
    lock: Option<LockName>,
}

/// One node's part in a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeVote {
    /// The node's number, from one.
    pub number: usize,
    /// Where it listens.
    pub address: Address,
    /// What it said; `None` if the attempt was decided or over before.
    pub vote: Option<Vote>,
    words: String,
}

impl RefusalReport {
    pub(super) fn new(addresses: &[Address], core: &Core, refusal: Refusal) -> Self {
        let config = core.config();
        let is_quarantined = |id| refusal.votes.of(id) == Some(Vote::Fail(Cause::Quarantined));
        // The verdict does not wait for the last node.
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

    /// The same, of a lock on these resources.
    pub(super) fn of_lock<'r>(self, resources: impl Iterator<Item = &'r [u8]>) -> Self {
        Self { lock: Some(LockName::new(resources)), ..self }
    }

    /// The reason in one word.
    #[must_use]
    pub fn reason(&self) -> RefusalReason {
        self.refusal.reason
    }

    /// Whether a quorum of the nodes voted and somebody holds the resource, as opposed to nodes
    /// that are no voters. It tells the two apart also when the time was over.
    #[must_use]
    pub fn is_contended(&self) -> bool {
        self.refusal.votes.is_contended() || self.was_queued()
    }

    /// Whether no node was asked, because others in this process wanted the resource before it.
    fn was_queued(&self) -> bool {
        let votes = &self.refusal.votes;
        let answers = votes.grants().len() + votes.denies().len() + votes.fails().len();
        self.refusal.reason == RefusalReason::OutOfTime && answers == 0
    }

    /// Whether it was refused because all nodes are new, as far as can be seen, and nobody has said so
    /// yet. See [`init`](crate::init).
    #[must_use]
    pub fn are_nodes_new(&self) -> bool {
        self.is_new
    }

    /// How long the keys in the way live on if nobody extends them, as far as it is known.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.refusal.remaining
    }

    /// All nodes, in order.
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

/// Shown if all nodes look new.
const NEW: &str = "; if these nodes are new and never held a lock, say so once: redbolt::init or the \
    command `redbolt init`, in a test ConfigBuilder::new_nodes; otherwise they vote when their \
    quarantine is over";

impl Error for RefusalReport {}

impl fmt::Display for NodeVote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} {}: {}", self.number, self.address, self.words)
    }
}

/// Which nodes can vote.
#[derive(Clone, Debug)]
pub struct NodeReport {
    /// All nodes, in order.
    pub nodes: Vec<NodeStatus>,
    quorum: usize,
}

/// Whether one node can vote.
#[derive(Clone, Debug)]
pub struct NodeStatus {
    /// The node's number, from one.
    pub number: usize,
    /// Where it listens.
    pub address: Address,
    /// Its state.
    pub state: NodeState,
    /// Its restart guard.
    pub restart_guard: RestartGuardState,
    /// Whether it tells of changes to those who wait.
    pub push: PushState,
    /// Why waiters cannot queue there, if that was found out.
    pub no_queue: Option<Cause>,
    /// Why those who wait for another library's lock do not hear the channel there on which that library tells of
    /// releases, if that was found out.
    pub no_channel: Option<Cause>,
    /// Its replicas when its connection was opened, if it told.
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

    /// Whether the node has not answered although it has had the time for it: it is [suspected](NodeState::Suspected), or the first
    /// connection to it, or its handshake, takes longer than to any place on Earth. It may answer yet.
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

    /// Whether enough nodes are ready for a lock.
    #[must_use]
    pub fn has_quorum(&self) -> bool {
        self.ready() >= self.quorum
    }

    /// Whether all nodes look as if they had never held a lock: they had no restart guard when they were first
    /// looked at. Nodes that have all lost their memory look the same. See [`init`](crate::init).
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.nodes.iter().all(|node| looks_new(node.restart_guard))
    }

    /// Whether each node is ready or known not to be.
    pub(super) fn is_connected(&self) -> bool {
        self.nodes.iter().all(|node| node.state != NodeState::Connecting)
    }

    /// Whether each node is known to send notifications, or not to.
    pub(super) fn is_push_settled(&self) -> bool {
        self.nodes.iter().all(|node| node.push != PushState::Opening)
    }

    /// A link that was refused is being opened again meanwhile: why it was refused says more.
    pub(super) fn or_before(mut self, before: Self) -> Self {
        let nodes = self.nodes.iter_mut().zip(before.nodes);
        for (node, before) in nodes.filter(|(node, _)| node.state == NodeState::Connecting) {
            *node = before;
        }
        self
    }

    /// How many nodes a lock needs.
    #[must_use]
    pub fn quorum(&self) -> usize {
        self.quorum
    }

    /// How many nodes are ready.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.nodes.iter().filter(|node| node.state == NodeState::Ready).count()
    }
}

/// One that was set up votes, or is quarantined for having been something else before.
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

/// Why a node has not answered a question that was not waited for as long as an answer may take.
pub(super) fn unanswered(addresses: &[Address], core: &Core, node: NodeId) -> String {
    match (core.node_state(node), core.silence(node)) {
        (NodeState::Ready, _) => "no answer".to_owned(),
        (NodeState::Connecting, None) => "no answer, still connecting".to_owned(),
        _ => NodeStatus::new(addresses, core, node).words,
    }
}

/// A cause in words, with the numbers and details that belong to it.
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
