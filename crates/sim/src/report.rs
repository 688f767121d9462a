//! The sums over many schedules.

use std::fmt;
use std::time::Duration;

use redbolt_testkit::mix;

use crate::lab::Outcome;

/// Sums over schedules, independent of the order in which they ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// The number of schedules.
    pub schedules: u64,
    /// The number of events.
    pub events: u64,
    /// The virtual time, in nanoseconds.
    pub nanos: u128,
    /// The number of locks granted.
    pub grants: u64,
    /// The number of granted locks with a fencing token.
    pub fenced: u64,
    /// The number of requests refused.
    pub refusals: u64,
    /// The number of locks lost.
    pub losses: u64,
    /// The number of stale writes that an unfenced register took.
    pub stale_writes: u64,
    /// The number of writes that a fenced register refused.
    pub writes_refused: u64,
    /// The number of violations that the class expects.
    pub expected: u64,
    /// The number of schedules with a violation.
    pub violations: u64,
    /// A hash of all traces.
    pub hash: u64,
}

impl Totals {
    /// Adds a schedule.
    pub fn count(&mut self, seed: u64, outcome: &Outcome) {
        self.schedules += 1;
        self.events += u64::from(outcome.events);
        self.nanos += u128::from(outcome.nanos);
        self.grants += outcome.grants;
        self.fenced += outcome.fenced;
        self.refusals += outcome.refusals;
        self.losses += outcome.losses;
        self.stale_writes += outcome.stale_writes;
        self.writes_refused += outcome.writes_refused;
        self.expected += outcome.expected;
        self.violations += u64::from(outcome.violation.is_some());
        self.hash = self.hash.wrapping_add(mix(outcome.hash ^ mix(seed)));
    }

    /// Adds the sums of another thread.
    pub fn add(&mut self, other: &Self) {
        self.schedules += other.schedules;
        self.events += other.events;
        self.nanos += other.nanos;
        self.grants += other.grants;
        self.fenced += other.fenced;
        self.refusals += other.refusals;
        self.losses += other.losses;
        self.stale_writes += other.stale_writes;
        self.writes_refused += other.writes_refused;
        self.expected += other.expected;
        self.violations += other.violations;
        self.hash = self.hash.wrapping_add(other.hash);
    }

    /// Returns the hours of virtual time.
    #[must_use]
    pub fn hours(&self) -> f64 {
        self.nanos as f64 / 3.6e12
    }

    /// Returns the summary of a run on `jobs` threads that took this long, and this much processor
    /// time.
    #[must_use]
    pub fn summary(&self, took: Duration, spent: Duration, jobs: usize) -> Summary {
        Summary { totals: *self, took, spent, jobs }
    }
}

/// [`Totals`] and their cost, for people.
#[derive(Clone, Copy, Debug)]
pub struct Summary {
    totals: Totals,
    took: Duration,
    spent: Duration,
    jobs: usize,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { totals: t, took, spent, jobs } = self;
        let seconds = took.as_secs_f64().max(1e-9);
        let rate = t.schedules as f64 / seconds;
        let events = t.events as f64 / (t.schedules.max(1)) as f64;
        let speed = t.events as f64 / 100.0 / spent.as_secs_f64().max(1e-9);
        writeln!(f, "schedules         {:>14}", t.schedules)?;
        writeln!(f, "virtual hours     {:>14.1}", t.hours())?;
        writeln!(
            f,
            "schedules/s       {rate:>14.0}  ({:.0} on each of {jobs} threads, {events:.0} events each)",
            rate / *jobs as f64
        )?;
        writeln!(
            f,
            "speed             {speed:>14.0}  schedules of 100 events in a second of a core"
        )?;
        writeln!(f, "grants            {:>14}  ({} fenced)", t.grants, t.fenced)?;
        writeln!(f, "refusals          {:>14}", t.refusals)?;
        writeln!(f, "losses            {:>14}", t.losses)?;
        writeln!(
            f,
            "stale writes      {:>14}  taken without fencing; {} refused by it",
            t.stale_writes, t.writes_refused
        )?;
        writeln!(f, "expected breaches {:>14}", t.expected)?;
        writeln!(f, "violations        {:>14}", t.violations)?;
        write!(f, "trace hash        {:016x}", t.hash)
    }
}
