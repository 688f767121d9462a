//! Shared statistics: histograms of nanoseconds, ratios computed within a round, CPU time.

use std::time::Duration;

use anyhow::Result;
use hdrhistogram::Histogram;
use nix::sys::resource::{UsageWho, getrusage};
use rustix::time::{ClockId, clock_gettime};

use crate::contender::Usage;

/// A figure divided by the floor's of the same round, over all rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// The median of the rounds.
    pub median: f64,
    /// The round at the tenth percentile.
    pub low: f64,
    /// The round at the ninetieth percentile.
    pub high: f64,
}

impl Ratio {
    /// Divides round by round.
    #[must_use]
    pub fn of(own: &[u64], floor: &[u64]) -> Self {
        let mut ratios: Vec<f64> =
            own.iter().zip(floor).map(|(&own, &floor)| own as f64 / floor.max(1) as f64).collect();
        ratios.sort_by(f64::total_cmp);
        let last = ratios.len().saturating_sub(1);
        let at = |index: usize| ratios.get(index).copied().unwrap_or(f64::NAN);
        // With few rounds the worse one counts, so that the worst cannot hide.
        Self {
            median: at((last * 5).div_ceil(10)),
            low: at(last / 10),
            high: at((last * 9).div_ceil(10)),
        }
    }

    /// Returns a cell of a table.
    #[must_use]
    pub fn cell(&self) -> String {
        match self.median.is_finite() {
            true => format!("{:.3} ({:.2}–{:.2})", self.median, self.low, self.high),
            false => "-".to_owned(),
        }
    }
}

/// Returns a histogram for times up to [`LONGEST`].
///
/// # Errors
///
/// There is no memory for it.
pub fn histogram() -> Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, LONGEST.as_nanos() as u64, 3)?)
}

/// Records a span in nanoseconds.
pub fn record(histogram: &mut Histogram<u64>, span: Duration) {
    histogram.saturating_record(span.as_nanos() as u64);
}

/// Returns the CPU time of all threads of this process.
#[must_use]
pub fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns the usage of all threads of this process since it was `before`.
///
/// # Errors
///
/// The system does not report it.
pub fn usage_since(before: &Usage) -> Result<Usage> {
    let now = usage()?;
    Ok(Usage {
        cpu: now.cpu - before.cpu,
        voluntary_switches: now.voluntary_switches - before.voluntary_switches,
        involuntary_switches: now.involuntary_switches - before.involuntary_switches,
        ..now
    })
}

/// Returns the usage of all threads of this process.
///
/// # Errors
///
/// The system does not report it.
pub fn usage() -> Result<Usage> {
    let counted = getrusage(UsageWho::RUSAGE_SELF)?;
    Ok(Usage {
        cpu: cpu_time(),
        voluntary_switches: counted.voluntary_context_switches() as u64,
        involuntary_switches: counted.involuntary_context_switches() as u64,
        allocations: None,
        bytes: None,
    })
}

/// Returns the median; zero for an empty list.
#[must_use]
pub fn median(values: &[u64]) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or(0)
}

/// Returns nanoseconds as microseconds, for a table.
#[must_use]
pub fn micros(nanos: u64) -> String {
    format!("{:.1}", nanos as f64 / 1e3)
}

/// The longest time that is recorded as it is; longer ones are recorded as this.
pub const LONGEST: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_made_within_a_round() {
        let ratio = Ratio::of(&[110, 2_200, 115], &[100, 2_000, 100]);
        assert_eq!(ratio, Ratio { median: 1.1, low: 1.1, high: 1.15 });
    }

    #[test]
    fn a_cell_says_how_far_the_rounds_were_apart() {
        let ratio = Ratio { median: 1.0996, low: 0.95, high: 1.2 };
        assert_eq!(ratio.cell(), "1.100 (0.95–1.20)");
        assert_eq!(Ratio::of(&[], &[]).cell(), "-");
    }

    #[test]
    fn of_two_rounds_the_worse_one_shows() {
        let ratio = Ratio::of(&[100, 300], &[100, 100]);
        assert_eq!(ratio, Ratio { median: 3.0, low: 1.0, high: 3.0 });
    }
}
