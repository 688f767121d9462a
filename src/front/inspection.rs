//! What the nodes say about a resource, added up: who holds it, or whose lock an operator has broken.
//! Not here: asking them.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use super::config::Config;
use super::report::explain;
use crate::net::{Address, now};
use crate::proto::{Cause, Core, Holder, KeyState, View};

/// Who holds a resource, by every node.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// All nodes, in order.
    pub nodes: Vec<NodeInspection>,
    /// What they add up to.
    pub verdict: InspectionVerdict,
    /// The fingerprint of the lock that this client holds there.
    mine: Option<u32>,
}

/// Whose lock it is, to the client that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A lock of this client holds the resource now, by its own clock too. One that was handed out
    /// is no longer this client's.
    Mine,
    /// Somebody else holds it.
    Other,
    /// The nodes that answered do not say.
    Unknown,
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
        let mine = core.held_on(&view.resource, now());
        let nodes = nodes(config, core, view, |state| match state {
            KeyState::Free => "free".to_owned(),
            KeyState::Held(holder) => match holder.remaining {
                Some(remaining) => format!("held by {holder} for {remaining:?} more"),
                None => format!("held by {holder} without end"),
            },
        });
        Self { nodes, verdict, mine }
    }

    /// Whether somebody holds a quorum. `false` is no promise that nobody does: nodes that do not
    /// answer may keep keys, see the [verdict](Self::verdict).
    #[must_use]
    pub fn is_locked(&self) -> bool {
        matches!(self.verdict, InspectionVerdict::Held(_))
    }

    /// Whose lock it is; `None` if so many nodes are free that nobody holds it.
    #[must_use]
    pub fn owner(&self) -> Option<Owner> {
        match &self.verdict {
            InspectionVerdict::Free => None,
            InspectionVerdict::Held(holder) if self.mine == Some(holder.fingerprint) => {
                Some(Owner::Mine)
            }
            InspectionVerdict::Held(_) => Some(Owner::Other),
            InspectionVerdict::Undecided => Some(Owner::Unknown),
        }
    }

    /// For how long the lock keeps its quorum if nobody extends it, by the nodes' word when they
    /// answered. `None` if nobody has a quorum, or has it without end.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        match &self.verdict {
            InspectionVerdict::Held(holder) => holder.remaining,
            _ => None,
        }
    }
}

/// What became of a lock that was broken.
#[derive(Clone, Debug)]
pub struct BreakReport {
    /// All nodes, in order, each with what was there before. It is gone where a node answered.
    pub nodes: Vec<NodeInspection>,
    /// Whose lock it was, added up.
    pub was: InspectionVerdict,
    quorum: usize,
}

impl BreakReport {
    pub(super) fn new(config: &Config, core: &Core, view: View) -> Self {
        let was = verdict(config.quorum(), &view);
        let nodes = nodes(config, core, view, |state| match state {
            KeyState::Free => "nothing was there".to_owned(),
            KeyState::Held(holder) => format!("broke the lock of {}", in_full(holder)),
        });
        Self { nodes, was, quorum: config.quorum() }
    }

    /// Whether a quorum of the nodes has confirmed that the key is not there any more: that nobody
    /// has the lock by what was there before.
    #[must_use]
    pub fn is_confirmed(&self) -> bool {
        self.nodes.iter().filter(|node| node.state.is_ok()).count() >= self.quorum
    }

    /// On how many nodes a key was deleted.
    #[must_use]
    pub fn broken(&self) -> usize {
        self.nodes.iter().filter(|node| matches!(node.state, Ok(KeyState::Held(_)))).count()
    }
}

impl fmt::Display for BreakReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (gone, nodes) = (self.nodes.iter().filter(|node| node.state.is_ok()), self.nodes.len());
        write!(f, "gone on {} of {nodes} nodes, {} needed", gone.count(), self.quorum)?;
        self.nodes.iter().try_for_each(|node| write!(f, "; {node}"))
    }
}

/// A holder with its label and its hash: labels repeat, hashes are looked up.
fn in_full(holder: &Holder) -> String {
    match &holder.label {
        Some(label) => format!("{label} #{:08x}", holder.fingerprint),
        None => holder.to_string(),
    }
}

fn nodes(
    config: &Config,
    core: &Core,
    view: View,
    in_words: impl Fn(&KeyState) -> String,
) -> Vec<NodeInspection> {
    let nodes = config.node_ids().zip(view.nodes).map(|(node, view)| {
        let words = match &view.state {
            Ok(state) => in_words(state),
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
    nodes.collect()
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
        View { nodes: nodes.collect(), resource: Vec::new() }
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
