//! What a client has counted of its own asks.

use std::ops::{Add, Sub};

use redbolt::metrics::Metrics;

/// Asks and notifications of a client since it connected, by its own count: a node cannot tell an
/// ask that is a script from any other script.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Rounds of asks, whether all nodes were asked or one.
    pub rounds: u64,
    /// Asks to single nodes.
    pub to_nodes: u64,
    /// Undos to single nodes, those of releases among them.
    pub undos: u64,
    /// Notifications of nodes.
    pub notified: u64,
}

impl From<&Metrics> for Asked {
    fn from(metrics: &Metrics) -> Self {
        let sum = |of: fn(&redbolt::proto::NodeMetrics) -> u64| metrics.nodes.iter().map(of).sum();
        Self {
            rounds: metrics.attempts,
            to_nodes: sum(|node| node.asks),
            undos: sum(|node| node.undos),
            notified: sum(|node| node.pushes),
        }
    }
}

impl Add for Asked {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        Self {
            rounds: self.rounds + more.rounds,
            to_nodes: self.to_nodes + more.to_nodes,
            undos: self.undos + more.undos,
            notified: self.notified + more.notified,
        }
    }
}

impl Sub for Asked {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            rounds: self.rounds - before.rounds,
            to_nodes: self.to_nodes - before.to_nodes,
            undos: self.undos - before.undos,
            notified: self.notified - before.notified,
        }
    }
}
