//! The figures of a contender in a cell, over all of its blocks.

use serde_json::{Value, json};

use crate::contender::Asked;
use crate::counts::NodeUsage;
use crate::crowd::Outcome;
use crate::crowd::turns::{Order, hand_offs, idle, order};
use crate::crowd::worker::Spent;
use crate::stats::Ratio;

/// The figures, with times in nanoseconds.
#[derive(Default)]
pub(super) struct Figures {
    waiters: usize,
    /// All hand-offs, sorted.
    pub(super) hand_offs: Vec<u64>,
    round: Vec<u64>,
    /// The quantiles of each round, in the order of [`QUANTILES`].
    pub(super) of_rounds: [Vec<u64>; 3],
    /// The share of each block in which the lock was free although a process waited.
    idle: Vec<f64>,
    /// The order of each block.
    order: Vec<Order>,
    /// The number of all turns, and their cost for the clients.
    turns: u64,
    spent: Spent,
    /// The number of grants during which the nodes were measured, and the nodes' usage.
    grants: u64,
    nodes: NodeUsage,
    /// The number of processes that met in a section.
    pub(super) intruders: u64,
    /// The error, if it failed.
    pub(super) failure: Option<String>,
}

impl Figures {
    pub(super) fn new(waiters: usize) -> Self {
        Self { waiters, ..Self::default() }
    }

    /// Adds a block. One that failed does not count.
    pub(super) fn block(&mut self, outcome: &Outcome) {
        self.intruders += outcome.intruders();
        self.failure = outcome.failures.first().cloned();
        if self.failure.is_some() {
            return;
        }
        let (turns, span) = (&outcome.turns, outcome.counts);
        self.round.extend(hand_offs(turns, span));
        self.idle.push(idle(turns, span));
        self.order.push(order(turns, span, self.waiters));
        self.grants += turns.iter().filter(|turn| span.contains(turn.granted)).count() as u64;
        self.nodes = self.nodes + outcome.nodes;
        self.spent = match self.turns {
            0 => outcome.spent,
            _ => self.spent.plus(outcome.spent),
        };
        self.turns += turns.len() as u64;
    }

    pub(super) fn end_round(&mut self) {
        self.round.sort_unstable();
        if self.failure.is_none() && !self.round.is_empty() {
            for (of_rounds, quantile) in self.of_rounds.iter_mut().zip(QUANTILES) {
                of_rounds.push(at(&self.round, quantile));
            }
        }
        self.hand_offs.append(&mut self.round);
        self.hand_offs.sort_unstable();
    }

    pub(super) fn is_measured(&self) -> bool {
        self.failure.is_none() && self.turns > 0
    }

    pub(super) fn hand_off(&self, quantile: f64) -> u64 {
        at(&self.hand_offs, quantile)
    }

    /// Returns the ratios to the floor, round by round, in the order of [`QUANTILES`].
    pub(super) fn ratios(&self, floor: &Self) -> [Ratio; 3] {
        let mut each = self.of_rounds.iter().zip(&floor.of_rounds);
        std::array::from_fn(|_| {
            each.next().map_or_else(|| Ratio::of(&[], &[]), |(own, floor)| Ratio::of(own, floor))
        })
    }

    /// Returns a figure of the clients' own count, per turn.
    pub(super) fn asked(&self, of: fn(Asked) -> u64) -> Option<f64> {
        self.spent.asked.map(|asked| of(asked) as f64 / self.turns.max(1) as f64)
    }

    /// Returns the rounds of requests per turn that were not granted.
    pub(super) fn in_vain(&self) -> Option<f64> {
        self.asked(|asked| asked.rounds).map(|rounds| rounds - 1.0)
    }

    /// Returns the nodes' reads and writes, per grant.
    pub(super) fn packets(&self) -> f64 {
        (self.nodes.reads + self.nodes.writes) as f64 / self.grants.max(1) as f64
    }

    /// Returns the CPU time of all nodes in nanoseconds per grant.
    pub(super) fn node_cpu(&self) -> u64 {
        self.nodes.cpu.as_nanos() as u64 / self.grants.max(1)
    }

    /// Returns the CPU time of all clients in nanoseconds per turn.
    pub(super) fn client_cpu(&self) -> u64 {
        self.spent.cpu / self.turns.max(1)
    }

    pub(super) fn idle(&self) -> f64 {
        mean(self.idle.iter().copied())
    }

    pub(super) fn passed(&self) -> f64 {
        mean(self.order.iter().map(|order| order.passed))
    }

    pub(super) fn most_passes(&self) -> usize {
        self.order.iter().map(|order| order.most).max().unwrap_or(0)
    }

    pub(super) fn kept(&self) -> f64 {
        mean(self.order.iter().map(|order| order.kept))
    }

    /// Returns the worst of all blocks.
    pub(super) fn longest(&self) -> f64 {
        self.order.iter().map(|order| order.longest).fold(0.0, f64::max)
    }

    /// Returns the fewest and the most turns of one process in a block.
    pub(super) fn of_one(&self) -> (usize, usize) {
        let fewest = self.order.iter().map(|order| order.of_one.0).min();
        let most = self.order.iter().map(|order| order.of_one.1).max();
        fewest.zip(most).unwrap_or((0, 0))
    }

    pub(super) fn json(&self, name: &str) -> Value {
        json!({
            "name": name,
            "grants": self.grants,
            "hand_offs": self.hand_offs.len(),
            "p50": self.hand_off(0.5), "p90": self.hand_off(0.9), "p99": self.hand_off(0.99),
            "max": self.hand_off(1.0),
            "rounds": { "p50": self.of_rounds[0], "p90": self.of_rounds[1], "p99": self.of_rounds[2] },
            "asks_in_vain": self.in_vain(),
            "asks_to_nodes": self.asked(|asked| asked.to_nodes),
            "undos_to_nodes": self.asked(|asked| asked.undos),
            "notified": self.asked(|asked| asked.notified),
            "packets": self.packets(),
            "idle": self.idle(),
            "passed": self.passed(),
            "most_passes": self.most_passes(),
            "kept": self.kept(),
            "longest_to_mean": self.longest(),
            "turns_of_one": [self.of_one().0, self.of_one().1],
            "node_cpu": self.node_cpu(),
            "client_cpu": self.client_cpu(),
            "intruders": self.intruders,
            "failure": self.failure,
        })
    }
}

/// Returns the quantile of sorted nanoseconds; zero if there are none.
fn at(sorted: &[u64], quantile: f64) -> u64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * quantile).ceil() as usize).copied().unwrap_or(0)
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1) as f64;
    values.sum::<f64>() / count
}

/// The quantiles that are compared with the floor.
pub(super) const QUANTILES: [f64; 3] = [0.5, 0.9, 0.99];

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::crowd::span::Span;
    use crate::crowd::turns::Turn;

    /// Returns the outcome of two processes in turns, each of which waits a nanosecond longer than
    /// a section of 2.
    fn outcome(asked: Option<Asked>) -> Outcome {
        let turn = |number: u64| Turn {
            process: number as usize % 2,
            began: (number * 3).saturating_sub(3),
            granted: number * 3,
            released: number * 3 + 2,
        };
        let cpu = Duration::from_nanos(400);
        let failures = Vec::new();
        Outcome {
            turns: (0..100).map(turn).collect(),
            counts: Span { begin: 0, end: 300 },
            spent: Spent { cpu: 500, asked },
            nodes: NodeUsage { cpu, reads: 150, writes: 50 },
            failures,
            ..Outcome::failed(&anyhow::anyhow!("-"))
        }
    }

    #[test]
    fn costs_are_those_of_a_grant() {
        let mut figures = Figures::new(2);
        let asked = Asked { rounds: 300, to_nodes: 900, undos: 0, notified: 50 };
        for _ in 0..2 {
            figures.block(&outcome(Some(asked)));
        }
        figures.end_round();
        assert_eq!(
            (figures.in_vain(), figures.asked(|asked| asked.to_nodes)),
            (Some(2.0), Some(9.0))
        );
        assert_eq!((figures.packets(), figures.node_cpu(), figures.client_cpu()), (2.0, 4, 5));
        assert_eq!((figures.hand_off(0.5), figures.passed(), figures.kept()), (1, 0.0, 0.0));
        assert_eq!(figures.of_one(), (50, 50));
        assert!((figures.idle() - 1.0 / 3.0).abs() < 1e-9);
        assert_eq!(figures.ratios(&figures)[2].median, 1.0);
    }

    #[test]
    fn a_client_that_does_not_count_has_no_asks_and_one_that_fails_no_figures() {
        let mut figures = Figures::new(2);
        figures.block(&outcome(None));
        assert!(figures.in_vain().is_none() && figures.is_measured());
        figures.block(&Outcome::failed(&anyhow::anyhow!("late")));
        figures.end_round();
        assert!(!figures.is_measured() && figures.of_rounds[0].is_empty());
    }
}
