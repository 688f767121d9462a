//! Observations of a leader: the answers of the nodes, with their addresses.
//!
//! A leader is the holder of an exclusive, fenced lock that is extended until it resigns.

use std::fmt;

use super::config::Config;
use super::report::explain;
use crate::net::Address;
use crate::proto::{Cause, Core, KeyState, Leader, LeaderVerdict, LeaderView, NodeSight};

/// The leader, as reported by each node. It is a hint: it may be outdated when it is read.
///
/// The text is `web-1:8080 leads in term 1784912345678900`, `nobody leads`, or `it is not known who
/// leads` followed by the answers of the nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// The combined verdict.
    pub verdict: LeaderVerdict,
    /// The answers of all nodes, in order. The nodes may have changed since.
    pub nodes: Vec<NodeObservation>,
    quorum: usize,
}

/// The answer of one node about a leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeObservation {
    /// The number of the node, from one.
    pub number: usize,
    /// The address of the node.
    pub address: Address,
    /// The last answer, or the reason why there is none; `None` if the node has not answered yet.
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

    /// Returns an observation as if no node existed and no leader.
    #[cfg(test)]
    pub(super) fn of_nobody() -> Self {
        Self { verdict: LeaderVerdict::Nobody, nodes: Vec::new(), quorum: 1 }
    }

    /// Returns the leader, if it is known.
    #[must_use]
    pub fn leader(&self) -> Option<&Leader> {
        match &self.verdict {
            LeaderVerdict::Leader(leader) => Some(leader),
            LeaderVerdict::Nobody | LeaderVerdict::Unknown => None,
        }
    }

    /// Returns whether the leader stays unknown until an operator acts: so few nodes accept this
    /// client, for example because of a wrong password, that they are not a quorum.
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
