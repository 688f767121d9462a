//! What the nodes say about a resource, added up. Not here: asking them.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use super::config::Config;
use super::report::explain;
use crate::net::Address;
use crate::proto::{Cause, Core, Holder, KeyState, View};

/// Who holds a resource, by every node.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// All nodes, in order.
    pub nodes: Vec<NodeInspection>,
    /// What they add up to.
    pub verdict: InspectionVerdict,
}

/// What one node says about a resource.
#[derive(Clone, Debug)]
pub struct NodeInspection {
    /// The node's number, from one.
    pub number: usize,
    /// Where it listens.
    pub address: Address,
    /// The key's state there, or why the node did not tell.
    pub state: Result<KeyState, Cause>,
    /// From when the question was sent to when it was answered.
    pub round_trip: Option<Duration>,
    words: String,
}

/// What the nodes add up to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InspectionVerdict {
    /// So many nodes are free that a quorum could grant.
    Free,
    /// One holder has a quorum. Its remaining TTL is that of the node which ends the quorum.
    Held(Holder),
    /// Neither: nodes that do not answer, or holders without a quorum.
    Undecided,
}

impl Inspection {
    pub(super) fn new(config: &Config, core: &Core, view: View) -> Self {
        let verdict = verdict(config.quorum(), &view);
        let nodes = config.node_ids().zip(view.nodes).map(|(node, view)| {
            let words = match &view.state {
                Ok(KeyState::Free) => "free".to_owned(),
                Ok(KeyState::Held(holder)) => match holder.remaining {
                    Some(remaining) => format!("held by {holder} for {remaining:?} more"),
                    None => format!("held by {holder} without end"),
                },
                Err(cause) => explain(config, *cause, core.detail(node, *cause).as_deref()),
            };
            NodeInspection {
                number: node.index() + 1,
                address: config.address(node).clone(),
                state: view.state,
                round_trip: view.round_trip,
                words,
            }
        });
        Self { nodes: nodes.collect(), verdict }
    }
}

impl fmt::Display for NodeInspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} {}: {}", self.number, self.address, self.words)
    }
}

impl fmt::Display for InspectionVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Free => f.write_str("free"),
            Self::Held(holder) => write!(f, "held by {holder}"),
            Self::Undecided => f.write_str("undecided"),
        }
    }
}

fn verdict(quorum: usize, view: &View) -> InspectionVerdict {
    let states = || view.nodes.iter().filter_map(|node| node.state.as_ref().ok());
    if states().filter(|state| **state == KeyState::Free).count() >= quorum {
        return InspectionVerdict::Free;
    }
    let mut holders: HashMap<u32, Vec<&Holder>> = HashMap::new();
    for state in states() {
        if let KeyState::Held(holder) = state {
            holders.entry(holder.fingerprint).or_default().push(holder);
        }
    }
    let Some(mut keys) = holders.into_values().find(|keys| keys.len() >= quorum) else {
        return InspectionVerdict::Undecided;
    };
    // The quorum lasts until all but quorum - 1 of its keys are over.
    keys.sort_by_key(|holder| std::cmp::Reverse(holder.remaining.unwrap_or(Duration::MAX)));
    InspectionVerdict::Held(keys[quorum - 1].clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::NodeView;

    fn view(states: &[Result<KeyState, Cause>]) -> View {
        let nodes = states.iter().map(|state| NodeView { state: state.clone(), round_trip: None });
        View { nodes: nodes.collect() }
    }

    fn held(fingerprint: u32, seconds: u64) -> Result<KeyState, Cause> {
        let remaining = Some(Duration::from_secs(seconds));
        Ok(KeyState::Held(Holder { label: None, fingerprint, remaining }))
    }

    #[test]
    fn one_holder_needs_a_quorum() {
        let free = Ok(KeyState::Free);
        let dead = || Err(Cause::NoAnswer);
        let told = |states: &[Result<KeyState, Cause>]| verdict(2, &view(states));
        assert_eq!(told(&[free.clone(), free.clone(), dead()]), InspectionVerdict::Free);
        assert_eq!(told(&[free, held(1, 3), dead()]), InspectionVerdict::Undecided);
        assert_eq!(told(&[held(1, 3), held(2, 3), dead()]), InspectionVerdict::Undecided);
        match told(&[held(1, 9), held(1, 4), held(1, 2)]) {
            InspectionVerdict::Held(h) => assert_eq!(h.remaining, Some(Duration::from_secs(4))),
            other => panic!("{other:?}"),
        }
    }
}
