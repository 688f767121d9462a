//! The fencing state of one lock: the counters of the nodes, and which nodes have its token.

use crate::proto::fence::{Agreement, FencingToken, agreement};
use crate::proto::names::{MAX_NODES, NodeId, NodeSet};

/// The fencing token of a lock, and the way to it.
#[derive(Debug)]
pub(crate) struct Fencing {
    is_wanted: bool,
    token: Option<FencingToken>,
    /// How far the clock of the present attempt's proposal is ahead of our wall clock, in µs.
    ahead_us: i64,
    /// The counters of the nodes that granted the present attempt.
    counters: Vec<(NodeId, u64)>,
    /// The value that is written back.
    target: u64,
    /// The nodes that have this value and keep the lock for us.
    confirmed: NodeSet,
    /// Whether an attempt that failed only because of our clock was repeated.
    was_set_right: bool,
}

impl Fencing {
    pub(crate) const fn new() -> Self {
        Self {
            is_wanted: false,
            token: None,
            ahead_us: 0,
            counters: Vec::new(),
            target: 0,
            confirmed: NodeSet::EMPTY,
            was_set_right: false,
        }
    }

    pub(crate) fn begin(&mut self, is_wanted: bool) {
        self.is_wanted = is_wanted;
        self.token = None;
        self.counters.clear();
        self.was_set_right = false;
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    pub(crate) fn token(&self) -> Option<FencingToken> {
        self.token
    }

    pub(crate) fn attached(&mut self, token: Option<FencingToken>) {
        self.token = token;
    }

    /// Begins an attempt with a proposal from a clock that is `ahead_us` µs ahead of our wall
    /// clock. Returns whether it repeats one that failed only because of our clock.
    pub(crate) fn attempt_begins(&mut self, ahead_us: i64) -> bool {
        self.counters.clear();
        self.ahead_us = ahead_us;
        self.was_set_right
    }

    pub(super) fn ahead_us(&self) -> i64 {
        self.ahead_us
    }

    /// Returns whether an attempt that failed only because of our clock is to be repeated: once for
    /// each lock.
    pub(crate) fn take_repeat(&mut self) -> bool {
        !std::mem::replace(&mut self.was_set_right, true)
    }

    /// Records the counter with which a node granted.
    pub(super) fn counted(&mut self, node: NodeId, counter: u64) {
        self.counters.retain(|&(of, _)| of != node);
        self.counters.push((node, counter));
    }

    pub(super) fn agreement(&mut self, granted: NodeSet, quorum: usize) -> Agreement {
        self.counters.retain(|&(node, _)| granted.contains(node));
        let mut counters = [0; MAX_NODES];
        for (slot, (_, counter)) in counters.iter_mut().zip(&self.counters) {
            *slot = *counter;
        }
        agreement(&counters[..self.counters.len()], quorum)
    }

    pub(super) fn reached(&mut self, token: u64) {
        self.token = Some(FencingToken::new(token));
    }

    pub(super) fn write_back_begins(&mut self, target: u64) {
        self.target = target;
        self.confirmed = NodeSet::default();
    }

    pub(super) fn target(&self) -> u64 {
        self.target
    }

    /// Returns a node's counter; zero if it is not known.
    pub(super) fn counter_of(&self, node: NodeId) -> u64 {
        self.counters.iter().find(|(of, _)| *of == node).map_or(0, |&(_, counter)| counter)
    }

    /// Records that the node has the value and keeps the lock for us.
    pub(super) fn confirmed(&mut self, node: NodeId) {
        self.confirmed.insert(node);
    }

    pub(crate) fn confirmed_by(&self, nodes: NodeSet) -> NodeSet {
        self.confirmed.and(nodes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Node 2 was behind and has been raised; node 1 is ahead of the value that is written back.
    #[test]
    fn only_counters_of_nodes_that_granted_count() {
        let mut fencing = Fencing::new();
        fencing.begin(true);
        fencing.attempt_begins(0);
        for (node, counter) in [(0, 4), (1, 9), (2, 2), (1, 8)] {
            fencing.counted(NodeId(node), counter);
        }
        let all = NodeSet::first(3);
        assert_eq!(fencing.agreement(all, 2), Agreement::Behind(8));
        let granted = all.without(NodeId(1).into());
        assert_eq!(fencing.agreement(granted, 2), Agreement::Behind(4));
        fencing.write_back_begins(4);
        fencing.counted(NodeId(1), 8);
        assert_eq!([0, 1, 2].map(|node| fencing.counter_of(NodeId(node))), [4, 8, 2]);
        fencing.confirmed(NodeId(0));
        fencing.confirmed(NodeId(2));
        assert_eq!(fencing.confirmed_by(NodeSet::first(2)), NodeId(0).into());
        fencing.reached(fencing.target());
        assert_eq!(fencing.token().map(FencingToken::get), Some(4));
    }

    #[test]
    fn an_attempt_is_repeated_once_with_a_corrected_clock() {
        let mut fencing = Fencing::new();
        fencing.begin(true);
        assert!(fencing.take_repeat() && !fencing.take_repeat());
        fencing.begin(true);
        assert!(fencing.take_repeat(), "and once for another lock");
    }
}
