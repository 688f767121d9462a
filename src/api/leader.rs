//! Leaders: what one who observes sees.
//!
//! A leader is the holder of an exclusive lock with a fencing token that is extended until it resigns. Here is the
//! request for such a lock, and what nodes say about a leader, with their addresses. Not here: waiting for either, which
//! each API does in its way; the rules, see the core.

use std::fmt;

use super::config::Config;
use super::report::explain;
use crate::net::Address;
use crate::proto::{Cause, Core, KeyState, Leader, LeaderVerdict, LeaderView, NodeSight};

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
