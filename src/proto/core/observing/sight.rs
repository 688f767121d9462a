//! What nodes have said about a leader, and what that adds up to. Pure: it decides nothing about when to look.
//!
//! A leader is a token on a quorum of nodes, and its term is the fencing counter that a quorum of these nodes has. So
//! what it adds up to was true at some moment for each node, and need not have been true on all of them at one.

use std::fmt;

use crate::proto::fence::{Agreement, FencingToken, agreement, is_exclusive};
use crate::proto::key_state::{Holder, KeyState};
use crate::proto::vote::Cause;

/// Who leads, as one who observes sees it. It is a hint: it may be over when it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaderView {
    /// What the nodes add up to, as it was last announced.
    pub verdict: LeaderVerdict,
    /// What each node last said, in the order of the configuration; `None` if it has said nothing yet.
    pub nodes: Vec<Option<Result<NodeSight, Cause>>>,
}

/// What the nodes add up to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaderVerdict {
    /// One holder has a quorum.
    Leader(Leader),
    /// Nobody can have a quorum.
    Nobody,
    /// So few nodes tell that somebody may lead or not.
    Unknown,
}

/// A leader, as far as may be told.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// Its label, which is its address as a rule; printable. `None` if it has none.
    pub label: Option<String>,
    /// What tells leaders with the same label apart: see
    /// [`Holder::fingerprint`](crate::proto::Holder::fingerprint).
    pub fingerprint: u32,
    /// Its term, which is its fencing token. `None` if no quorum agrees on one yet, as when it was elected only now, or if
    /// it holds the lock without a fencing token.
    pub term: Option<FencingToken>,
}

/// What one node says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeSight {
    /// What is under the key: without a remaining time, which is not asked for.
    pub state: KeyState,
    /// The fencing counter, if it was the same before and behind the key.
    pub counter: Option<u64>,
}

/// Adds up what the nodes have last said.
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

/// Those who lead hold the resource alone, so that their numbers are even.
fn term(counters: &[u64], quorum: usize) -> Option<FencingToken> {
    match agreement(counters, quorum) {
        Agreement::Reached(term) if is_exclusive(term) => Some(FencingToken::new(term)),
        Agreement::Reached(_) | Agreement::Behind(_) => None,
    }
}

impl LeaderVerdict {
    /// Whether it names a leader with its term, so that it is worth telling while some nodes are still being asked. What
    /// else is seen in the middle of a change may be neither what was nor what will be.
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

    /// The leader's fingerprint and term.
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
        // The counter of a node that does not have the leader belongs to somebody else.
        let mixed = [Some(held(a, 8)), Some(held(a, 6)), Some(free(8))];
        assert_eq!(seen(&mixed), Ok((a, None)));
        assert_eq!(seen(&[Some(held(a, 7)), Some(held(a, 7)), None]), Ok((a, None)), "odd");
    }

    #[test]
    fn nobody_leads_where_nobody_can_have_a_quorum() {
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
