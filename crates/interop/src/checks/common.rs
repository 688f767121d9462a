//! Types that all checks share: their extent, their results, and spans of time.

use std::time::Duration;

use redbolt::{LockLost, Released};

use crate::failure::Failure;

/// The extent of the checks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) turns: u32,
    pub(crate) hand_offs: usize,
}

impl Extent {
    /// Returns how many attempts of each side must meet a lock of the other one: 200 of 450 turns.
    pub(super) fn contended(self) -> u32 {
        self.turns * 4 / 9
    }
}

/// The entry of a library without a feature, in the table of all libraries.
pub(crate) const NONE: &str = "–";

/// The result of a check.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// The text for the table of all libraries.
    pub(crate) brief: String,
    pub(crate) words: String,
}

impl Found {
    pub(super) fn new(brief: impl Into<String>, words: impl Into<String>) -> Self {
        Self { brief: brief.into(), words: words.into() }
    }

    /// Returns the result for a library without this feature.
    pub(super) fn none() -> Self {
        Self::new(NONE, "it has none")
    }
}

pub(super) fn release(outcome: Result<Released, LockLost>) -> Result<(), Failure> {
    match outcome {
        Ok(_) => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}

/// Returns the median, and the largest of a hundred.
pub(super) fn percentiles(mut spans: Vec<Duration>) -> String {
    spans.sort_unstable();
    format!("{}/{}", ms(at(&spans, 50)), ms(at(&spans, 99)))
}

/// Returns the percentile `part` of sorted spans.
pub(crate) fn at(spans: &[Duration], part: usize) -> Duration {
    let place = (spans.len() * part / 100).min(spans.len().saturating_sub(1));
    spans.get(place).copied().unwrap_or_default()
}

pub(crate) fn ms(span: Duration) -> String {
    match span.as_secs_f64() * 1_000.0 {
        ms if ms < 1.0 => format!("{ms:.2} ms"),
        ms if ms < 10.0 => format!("{ms:.1} ms"),
        ms => format!("{ms:.0} ms"),
    }
}

pub(super) fn held(reply: &str) -> Result<(), Failure> {
    if reply == "held" { Ok(()) } else { Err(reply.into()) }
}

/// The time within which a waiter has gone to sleep.
pub(crate) const SETTLED: Duration = Duration::from_millis(250);

/// A limit longer than any check takes.
pub(super) const LONG: Duration = Duration::from_secs(20);
