//! The readings of nodes, and the verdict about the leader that follows from them.
//!
//! A leader is a token on a quorum of nodes, and its term is the fencing counter that a quorum of
//! these nodes has. The verdict was true at some moment on each node, but perhaps at no moment on
//! all.

use std::fmt;

use crate::proto::fence::{Agreement, FencingToken, agreement, is_exclusive};
use crate::proto::key_state::{Holder, KeyState};
use crate::proto::vote::Cause;

/// The leader of an election, as an observer sees it. It is a hint, which may be outdated when it
/// is read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaderView {
    /// The verdict of all nodes, as it was last announced.
    pub verdict: LeaderVerdict,
    /// The last reading of each node, in the order of the configuration. `None` before the first.
    pub nodes: Vec<Option<Result<NodeSight, Cause>>>,
}

/// The verdict of all nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaderVerdict {
    /// A holder has a quorum.
    Leader(Leader),
    /// The nodes show that no holder can have a quorum.
    Nobody,
    /// The nodes that have answered are too few to decide whether a holder has a quorum.
    Unknown,
}

/// A leader, as far as it may be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// The label of the leader, usually its address, printable. `None` if it has none.
    pub label: Option<String>,
    /// A number that distinguishes leaders with the same label: see
    /// [`Holder::fingerprint`](crate::proto::Holder::fingerprint).
    pub fingerprint: u32,
    /// The term, which is the leader's fencing token. `None` if no quorum agrees on one yet, as
    /// directly after the election, or if it holds the lock without a fencing token.
    pub term: Option<FencingToken>,
}

/// The reading of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeSight {
    /// The state of the key, without the remaining time, which is not read.
    pub state: KeyState,
    /// The fencing counter, if it was the same before and after the key was read.
    pub counter: Option<u64>,
}

/// Returns the verdict of the last readings.
pub(super) fn verdict<'s>(
    sights: impl Iterator<Item = Option<&'s NodeSight>> + Clone,
    quorum: usize,
) -> LeaderVerdict {
    let seen = sights.clone().flatten();
    let held = seen.filter_map(|sight| match &sight.state {
        KeyState::Held(holder) => Some((holder, sight.counter)),
        _ => None,
    });
    let with = |holder: &Holder| {
        held.clone().filter(move |(other, _)| other.fingerprint == holder.fingerprint).count()
    };
    let most = held.clone().map(|(holder, _)| (with(holder), holder)).max_by_key(|(on, _)| *on);
    let silent = sights.filter(Option::is_none).count();
    match most {
        Some((on, holder)) if on >= quorum => {
            let its = held.filter(|(other, _)| other.fingerprint == holder.fingerprint);
            let counters: Vec<_> = its.filter_map(|(_, counter)| counter).collect();
            LeaderVerdict::Leader(Leader {
                label: holder.label.clone(),
                fingerprint: holder.fingerprint,
                term: term(&counters, quorum),
            })
        }
        most if most.map_or(0, |(on, _)| on) + silent >= quorum => LeaderVerdict::Unknown,
        _ => LeaderVerdict::Nobody,
    }
}

/// Returns the term that a quorum of counters agrees on.
fn term(counters: &[u64], quorum: usize) -> Option<FencingToken> {
    // A leader holds the resource exclusively, and the tokens of exclusive holders are even.
    match agreement(counters, quorum) {
        Agreement::Reached(term) if is_exclusive(term) => Some(FencingToken::new(term)),
        Agreement::Reached(_) | Agreement::Behind(_) => None,
    }
}

impl LeaderVerdict {
    /// Returns whether the verdict names a leader and its term, so that it is announced before all
    /// nodes have answered. Any other verdict during a change may be neither the old state nor the
    /// new one.
    pub(super) fn is_whole(&self) -> bool {
        matches!(self, Self::Leader(leader) if leader.term.is_some())
    }
}

impl fmt::Display for Leader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.label {
            Some(label) => f.write_str(label)?,
            None => write!(f, "unlabelled #{:08x}", self.fingerprint)?,
        }
        match self.term {
            Some(term) => write!(f, " leads in term {term}"),
            None => f.write_str(" leads in a term that is not known"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(fingerprint: u32, counter: u64) -> NodeSight {
        let state = KeyState::Held(Holder::new(None, fingerprint, None));
        NodeSight { state, counter: Some(counter) }
    }

    fn free(counter: u64) -> NodeSight {
        NodeSight { state: KeyState::Free, counter: Some(counter) }
    }

    /// Returns the leader's fingerprint and term.
    fn seen(sights: &[Option<NodeSight>]) -> Result<(u32, Option<u64>), LeaderVerdict> {
        match verdict(sights.iter().map(Option::as_ref), sights.len() / 2 + 1) {
            LeaderVerdict::Leader(Leader { fingerprint, term, .. }) => {
                Ok((fingerprint, term.map(FencingToken::get)))
            }
            other => Err(other),
        }
    }

    #[test]
    fn a_leader_is_on_a_quorum_with_its_term() {
        let [a, b] = [1, 2];
        assert_eq!(seen(&[Some(held(a, 8)), Some(held(a, 8)), None]), Ok((a, Some(8))));
        assert_eq!(seen(&[Some(held(a, 8)), Some(held(a, 6)), None]), Ok((a, None)));
        let others = [Some(held(a, 8)), Some(held(a, 8)), Some(held(b, 10))];
        assert_eq!(seen(&others), Ok((a, Some(8))), "it has the two others");
        // The counter of a node without the leader's token belongs to another holder.
        let mixed = [Some(held(a, 8)), Some(held(a, 6)), Some(free(8))];
        assert_eq!(seen(&mixed), Ok((a, None)));
        assert_eq!(seen(&[Some(held(a, 7)), Some(held(a, 7)), None]), Ok((a, None)), "odd");
    }

    #[test]
    fn no_client_leads_if_none_can_have_a_quorum() {
        let [a, b] = [1, 2];
        let nobody = Err(LeaderVerdict::Nobody);
        let unknown = Err(LeaderVerdict::Unknown);
        assert_eq!(seen(&[Some(free(0)), Some(free(0)), None]), nobody, "whatever the third says");
        assert_eq!(seen(&[Some(held(a, 8)), Some(held(b, 10)), Some(free(8))]), nobody);
        assert_eq!(seen(&[Some(held(a, 8)), Some(free(8)), None]), unknown);
        assert_eq!(seen(&[Some(free(8)), None, None]), unknown);
        let taken = NodeSight { state: crate::proto::key_state::of_type(b"zset"), counter: None };
        assert_eq!(seen(&[Some(taken.clone()), Some(taken), None]), nobody);
    }
}
