//! Leaders: what a candidate asks for, and what one who observes sees.
//!
//! A leader is the holder of an exclusive lock with a fencing token that is extended until it resigns. Here is the
//! request for such a lock, and what nodes say about a leader, with their addresses. Not here: waiting for either, which
//! each API does in its way; the rules, see the core.

use std::fmt;
use std::time::Duration;

use super::config::Config;
use super::report::explain;
use crate::net::Address;
use crate::proto::{
    AutoExtend, Cause, Core, KeyState, Leader, LeaderVerdict, LeaderView, LockRequest, NodeSight,
    Wait,
};

/// A request to lead: for an exclusive lock with a fencing token that is extended until the leader resigns.
///
/// Until said otherwise the TTL is 10 s, and a candidate waits until it is elected. The leader's label is that of the
/// configuration ([`ConfigBuilder::label`](crate::ConfigBuilder::label)): let it be the address, at most 128 bytes, at
/// which the leader is reached.
///
/// ```
/// use std::time::Duration;
/// use redbolt::leader::Campaign;
///
/// // Another one leads 3 s after this process has died, at the latest.
/// let campaign = Campaign::new("leader:shop").ttl(Duration::from_secs(3));
/// ```
#[derive(Clone, Debug)]
#[must_use = "a Campaign does nothing until it is given to campaign"]
pub struct Campaign<'a> {
    request: LockRequest<'a>,
    auto_extend: AutoExtend,
}

impl<'a> Campaign<'a> {
    /// For the lead in `election`: a resource, which is used for nothing else.
    pub fn new(election: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        let request = LockRequest::new(election).fenced().wait(Wait::Forever);
        Self { request, auto_extend: AutoExtend::until_released() }
    }

    /// How long the lead lasts if this process dies, and the longest for which one that has lost its nodes goes on to
    /// lead: as [`LockRequest::ttl`].
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.request = self.request.ttl(ttl);
        self
    }

    /// How long to wait to be elected. A duration is the longest wait.
    pub fn wait(mut self, wait: impl Into<Wait>) -> Self {
        self.request = self.request.wait(wait);
        self
    }

    /// How the lead is extended, and the longest that it may last: as [`LockRequest::auto_extend`].
    pub fn auto_extend(mut self, auto_extend: AutoExtend) -> Self {
        self.auto_extend = auto_extend;
        self
    }

    /// The lock that it asks for.
    pub(super) fn request(self) -> LockRequest<'a> {
        self.request.auto_extend(self.auto_extend)
    }
}

/// Who leads, by every node. It is a hint: it may be over when it is read.
///
/// As text: `web-1:8080 leads in term 1784912345678900`, `nobody leads`, or `it is not known who leads` with what the nodes
/// said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// What the nodes add up to.
    pub verdict: LeaderVerdict,
    /// All nodes, in order. They may have gone on since.
    pub nodes: Vec<NodeObservation>,
    quorum: usize,
}

/// What one node says about a leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeObservation {
    /// The node's number, from one.
    pub number: usize,
    /// Where it listens.
    pub address: Address,
    /// What it said last, or why it does not say; `None` if it has said nothing yet.
    pub sight: Option<Result<NodeSight, Cause>>,
    words: String,
}

impl Observation {
    pub(super) fn new(config: &Config, core: &Core, view: LeaderView) -> Self {
        let nodes = config.node_ids().zip(view.nodes).map(|(node, sight)| {
            let words = match &sight {
                None => "no answer yet".to_owned(),
                Some(Ok(sight)) => match &sight.state {
                    KeyState::Free => "nobody".to_owned(),
                    KeyState::Held(holder) => holder.to_string(),
                    KeyState::Permits(_) | KeyState::Shared(_) | KeyState::Foreign(_) => {
                        "no leader's lock".to_owned()
                    }
                },
                Some(Err(cause)) => explain(core, node, *cause),
            };
            let (number, address) = (node.index() + 1, config.address(node).clone());
            NodeObservation { number, address, sight, words }
        });
        Self { verdict: view.verdict, nodes: nodes.collect(), quorum: config.quorum() }
    }

    /// As nodes that are not there would have it.
    #[cfg(test)]
    pub(super) fn of_nobody() -> Self {
        Self { verdict: LeaderVerdict::Nobody, nodes: Vec::new(), quorum: 1 }
    }

    /// Who leads, if that is known.
    #[must_use]
    pub fn leader(&self) -> Option<&Leader> {
        match &self.verdict {
            LeaderVerdict::Leader(leader) => Some(leader),
            LeaderVerdict::Nobody | LeaderVerdict::Unknown => None,
        }
    }

    /// Whether it stays unknown who leads until an operator does something: so many nodes refuse us, as by a wrong password,
    /// that the others are no quorum.
    #[must_use]
    pub fn needs_operator(&self) -> bool {
        let refuses = |node: &&NodeObservation| matches!(node.sight, Some(Err(cause)) if cause.is_configuration());
        let refusing = self.nodes.iter().filter(refuses).count();
        self.verdict == LeaderVerdict::Unknown && self.nodes.len() - refusing < self.quorum
    }
}

impl fmt::Display for Observation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.verdict {
            LeaderVerdict::Leader(leader) => leader.fmt(f),
            LeaderVerdict::Nobody => f.write_str("nobody leads"),
            LeaderVerdict::Unknown => {
                f.write_str("it is not known who leads")?;
                self.nodes.iter().try_for_each(|node| write!(f, "; {node}"))
            }
        }
    }
}

impl fmt::Display for NodeObservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} {}: {}", self.number, self.address, self.words)
    }
}
