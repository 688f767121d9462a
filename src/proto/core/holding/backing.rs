//! The support of a lease: how long each node is known to keep the key.
//!
//! Invariant: a lease is what a quorum of nodes supports. At first all nodes whose grant counted
//! keep the key for it, and nothing is stored. After an extension they differ: a silent node keeps
//! the key no longer than before, and a node that reports its key missing keeps nothing, no matter
//! what it reported earlier.

use std::cmp::Reverse;
use std::time::Duration;

use crate::proto::lease::Lease;
use crate::proto::names::{NodeId, NodeSet};
use crate::proto::time::ClockReading;

/// The nodes that keep the key, each for at least its own lease; of other nodes nothing is known.
/// If it is empty, all nodes that count keep the key for the lock's lease.
#[derive(Debug)]
pub(crate) struct Backing(Vec<(NodeId, Lease)>);

impl Backing {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns whether all nodes that count keep the key for the lock's lease.
    pub(super) fn is_as_granted(&self) -> bool {
        self.0.is_empty()
    }

    /// Begins to store leases of a configuration with `of` nodes; `nodes` keep the key for `lease`.
    pub(super) fn begin(&mut self, nodes: NodeSet, lease: Lease, of: usize) {
        if self.0.is_empty() {
            self.0.reserve(of);
            self.0.extend(nodes.iter().map(|node| (node, lease)));
        }
    }

    pub(super) fn keeps(&mut self, node: NodeId, lease: Lease, now: ClockReading) {
        match self.0.iter_mut().find(|(of, _)| *of == node) {
            Some((_, known)) => *known = known.longer(lease, now),
            None => self.0.push((node, lease)),
        }
    }

    pub(super) fn kept_after(&self, node: NodeId, moment: ClockReading) -> Duration {
        let known = self.0.iter().find(|(of, _)| *of == node);
        known.map_or(Duration::ZERO, |(_, lease)| lease.remaining(moment))
    }

    /// Forgets a node whose key is missing, for good.
    pub(super) fn gone(&mut self, node: NodeId) {
        self.0.retain(|&(of, _)| of != node);
    }

    /// Returns what the `quorum` nodes with the longest leases all support; `None` if there are
    /// fewer.
    pub(super) fn lease(&mut self, quorum: usize, now: ClockReading) -> Option<Lease> {
        self.0.sort_unstable_by_key(|(_, lease)| Reverse(lease.remaining(now)));
        let best = self.0.get(..quorum)?;
        best.iter().map(|&(_, lease)| lease).reduce(Lease::and)
    }

    /// Returns those of `nodes` that keep the key for at least `lease`, by both clocks.
    pub(super) fn of(&self, nodes: NodeSet, lease: &Lease) -> NodeSet {
        let mut backed = NodeSet::default();
        let lasting = self.0.iter().filter(|(_, known)| known.outlasts(lease));
        lasting.for_each(|&(node, _)| backed.insert(node));
        if self.0.is_empty() { nodes } else { nodes.and(backed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::Timestamp;
    use crate::proto::lease::Drift;

    fn at(boot: u64, wall: u64) -> ClockReading {
        ClockReading {
            boot: Timestamp(boot * 1_000_000_000),
            wall: Timestamp(wall * 1_000_000_000),
        }
    }

    fn lease(since: ClockReading, seconds: u64) -> Lease {
        let drift = Drift { parts_per_million: 0 };
        Lease::new(since, Duration::from_secs(seconds) + drift.of(Duration::ZERO), drift)
    }

    fn backing(leases: &[Lease]) -> Backing {
        let numbered = leases.iter().enumerate();
        Backing(numbered.map(|(node, &lease)| (NodeId(node as u8), lease)).collect())
    }

    fn left(backing: &mut Backing, quorum: usize, now: ClockReading) -> Option<u64> {
        backing.lease(quorum, now).map(|lease| lease.remaining(now).as_secs())
    }

    #[test]
    fn the_lease_is_what_a_quorum_supports() {
        let now = at(100, 100);
        let leases = [10, 30, 20, 5, 40].map(|seconds| lease(now, seconds));
        let mut backing = backing(&leases);
        assert_eq!(left(&mut backing, 3, now), Some(20));
        backing.gone(NodeId(4));
        assert_eq!(left(&mut backing, 3, now), Some(10));
        backing.keeps(NodeId(0), lease(now, 7), now);
        assert_eq!(left(&mut backing, 3, now), Some(10), "the longer lease stays");
        backing.keeps(NodeId(0), lease(now, 25), now);
        assert_eq!(left(&mut backing, 3, now), Some(20));
        backing.gone(NodeId(1));
        backing.gone(NodeId(2));
        assert_eq!(left(&mut backing, 3, now), None);
    }

    #[test]
    fn all_counted_nodes_keep_the_key_for_the_lease_until_an_extension() {
        let now = at(100, 100);
        let (one, both) = (lease(now, 10), NodeSet::first(2));
        let mut backing = Backing::new();
        assert_eq!(backing.of(both, &one), both);
        backing.begin(both, one, 3);
        assert_eq!((backing.of(both, &one), backing.lease(2, now)), (both, Some(one)));
        backing.keeps(NodeId(1), lease(now, 30), now);
        backing.begin(both, lease(now, 50), 3);
        assert_eq!(left(&mut backing, 1, now), Some(30), "a second call to begin changes nothing");
        assert_eq!(backing.of(both, &lease(now, 20)), NodeId(1).into());
        assert_eq!(backing.of(NodeId(0).into(), &one), NodeId(0).into());
    }

    /// A lease on two nodes ends with the first of them on either clock, also if the clock decides
    /// which of them is first.
    #[test]
    fn a_lease_never_exceeds_what_each_node_supports_by_either_clock() {
        let (early, late) = (lease(at(100, 150), 10), lease(at(105, 105), 20));
        for boot in 105..130 {
            for wall in [0, 105, 120, 150, 155, 160, 170] {
                let mut backing = backing(&[early, late]);
                let held = backing.lease(2, at(105, 105)).unwrap();
                let now = at(boot, wall);
                let least = early.remaining(now).min(late.remaining(now));
                assert!(held.remaining(now) <= least, "{boot} {wall}");
            }
        }
        let now = at(105, 105);
        assert_eq!(early.and(late).remaining(now), Duration::from_secs(5));
        assert_eq!(early.and(late), late.and(early));
        assert_eq!(early.and(early), early);
    }
}
