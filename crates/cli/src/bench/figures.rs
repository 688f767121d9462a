//! What was measured, as numbers.
//!
//! Not here: what the library counts itself ([`Load`](super::load::Load) takes the difference), and how figures are
//! shown.

use std::collections::HashMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use redbolt::proto::NodeSet;
use redbolt::{LossCause, RefusalReason, metrics::MetricsReport};

use crate::signals::Signal;

/// The figures of one run.
pub(super) struct Figures {
    /// From the ask to the grant.
    pub(super) acquire: Histogram<u64>,
    /// From the grant to a quorum's confirmation that the lock is free again.
    pub(super) release: Histogram<u64>,
    /// Both.
    pub(super) pair: Histogram<u64>,
    pub(super) refusals: Vec<(RefusalReason, u64)>,
    pub(super) losses: Vec<(LossCause, u64)>,
    /// Releases that a quorum did not confirm in time.
    pub(super) unconfirmed: u64,
    /// Which nodes had granted when a lock was granted, as far as sets are remembered.
    pub(super) quorums: HashMap<NodeSet, u64>,
    /// For each node: grants that came in time to count.
    pub(super) grants: Vec<u64>,
    /// The time until the last pair.
    pub(super) elapsed: Duration,
    /// What this thread used of a processor in that time.
    pub(super) cpu: Duration,
    /// What ended it early.
    pub(super) interrupted: Option<Signal>,
    /// What the library had counted before, and at the end.
    pub(super) counted: (MetricsReport, MetricsReport),
}

impl Figures {
    /// No figures yet; `before` is what the library has counted so far.
    pub(super) fn new(before: MetricsReport) -> Self {
        let histogram =
            || Histogram::new_with_max(LONGEST, DIGITS).expect("constants that are in range");
        Self {
            acquire: histogram(),
            release: histogram(),
            pair: histogram(),
            refusals: Vec::new(),
            losses: Vec::new(),
            unconfirmed: 0,
            quorums: HashMap::new(),
            grants: vec![0; before.metrics.nodes.len()],
            elapsed: Duration::ZERO,
            cpu: Duration::ZERO,
            interrupted: None,
            counted: (before.clone(), before),
        }
    }

    /// A lock was granted by these nodes.
    pub(super) fn granted(&mut self, by: NodeSet, took: Duration) {
        record(&mut self.acquire, took);
        by.iter().for_each(|node| self.grants[node.index()] += 1);
        if self.quorums.len() < MOST_QUORUMS || self.quorums.contains_key(&by) {
            *self.quorums.entry(by).or_default() += 1;
        }
    }

    /// The lock was released, and is free again.
    pub(super) fn released(&mut self, took: Duration, pair: Duration, is_confirmed: bool) {
        record(&mut self.release, took);
        record(&mut self.pair, pair);
        self.unconfirmed += u64::from(!is_confirmed);
    }

    /// Pairs in a second.
    pub(super) fn rate(&self) -> f64 {
        per(self.pair.len() as f64, self.elapsed.as_secs_f64())
    }

    /// Processor time for one pair, in microseconds.
    pub(super) fn cpu_us(&self) -> f64 {
        per(self.cpu.as_secs_f64() * 1e6, self.pair.len() as f64)
    }
}

/// One more of this kind.
pub(super) fn count<K: PartialEq>(counts: &mut Vec<(K, u64)>, kind: K) {
    match counts.iter_mut().find(|(counted, _)| *counted == kind) {
        Some((_, count)) => *count += 1,
        None => counts.push((kind, 1)),
    }
}

fn record(histogram: &mut Histogram<u64>, took: Duration) {
    histogram.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
}

/// A quotient; zero if the divisor is zero.
fn per(what: f64, by: f64) -> f64 {
    if by > 0.0 { what / by } else { 0.0 }
}

/// An hour, in nanoseconds: longer than a lock lives.
const LONGEST: u64 = 3_600_000_000_000;

/// Figures are exact to a thousandth.
const DIGITS: u8 = 3;

/// Enough for all sets of nine nodes. With more nodes, the first sets show enough.
const MOST_QUORUMS: usize = 1 << 9;
