//! The measurements of one run.
//!
//! [`Load`](super::load::Load) adds the difference of the library's own counters.

use std::collections::HashMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use redbolt::proto::NodeSet;
use redbolt::{LossCause, RefusalReason, metrics::MetricsReport};

use crate::signals::Signal;

/// The figures of one run.
pub(super) struct Figures {
    /// The time from the request to the grant.
    pub(super) acquire: Histogram<u64>,
    /// The time from the grant until a quorum confirms that the lock is free again.
    pub(super) release: Histogram<u64>,
    /// The sum of both.
    pub(super) pair: Histogram<u64>,
    pub(super) refusals: Vec<(RefusalReason, u64)>,
    pub(super) losses: Vec<(LossCause, u64)>,
    /// The number of releases that a quorum did not confirm in time.
    pub(super) unconfirmed: u64,
    /// The sets of nodes that granted a lock, as far as sets are remembered.
    pub(super) quorums: HashMap<NodeSet, u64>,
    /// The number of grants of each node that came in time to count.
    pub(super) grants: Vec<u64>,
    /// The time until the last pair.
    pub(super) elapsed: Duration,
    /// The processor time that this thread used until then.
    pub(super) cpu: Duration,
    /// The signal that ended the run early.
    pub(super) interrupted: Option<Signal>,
    /// The library's counters before the run and at its end.
    pub(super) counted: (MetricsReport, MetricsReport),
}

impl Figures {
    /// Creates empty figures; `before` are the library's counters so far.
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

    /// Records that these nodes granted a lock.
    pub(super) fn granted(&mut self, by: NodeSet, took: Duration) {
        record(&mut self.acquire, took);
        by.iter().for_each(|node| self.grants[node.index()] += 1);
        if self.quorums.len() < MOST_QUORUMS || self.quorums.contains_key(&by) {
            *self.quorums.entry(by).or_default() += 1;
        }
    }

    /// Records that the lock was released and is free again.
    pub(super) fn released(&mut self, took: Duration, pair: Duration, is_confirmed: bool) {
        record(&mut self.release, took);
        record(&mut self.pair, pair);
        self.unconfirmed += u64::from(!is_confirmed);
    }

    /// Returns the pairs per second.
    pub(super) fn rate(&self) -> f64 {
        per(self.pair.len() as f64, self.elapsed.as_secs_f64())
    }

    /// Returns the processor time for one pair, in microseconds.
    pub(super) fn cpu_us(&self) -> f64 {
        per(self.cpu.as_secs_f64() * 1e6, self.pair.len() as f64)
    }
}

/// Counts one more of this kind.
pub(super) fn count<K: PartialEq>(counts: &mut Vec<(K, u64)>, kind: K) {
    match counts.iter_mut().find(|(counted, _)| *counted == kind) {
        Some((_, count)) => *count += 1,
        None => counts.push((kind, 1)),
    }
}

fn record(histogram: &mut Histogram<u64>, took: Duration) {
    histogram.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
}

/// Returns a quotient, or zero if the divisor is zero.
fn per(what: f64, by: f64) -> f64 {
    if by > 0.0 { what / by } else { 0.0 }
}

/// One hour in nanoseconds, which is longer than a lock lives.
const LONGEST: u64 = 3_600_000_000_000;

/// The number of significant digits.
const DIGITS: u8 = 3;

/// The limit of remembered sets. It covers all sets of nine nodes; with more nodes, the first sets
/// are enough.
const MOST_QUORUMS: usize = 1 << 9;
