//! A step that runs while others do.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use crate::step::{self, Failure};

/// A step that ran alongside others. Its output is printed after theirs.
pub(super) struct Finished {
    pub(super) name: &'static str,
    pub(super) output: String,
    pub(super) outcome: Result<(), Failure>,
    pub(super) took: Duration,
}

impl Finished {
    /// Runs a command to its end.
    pub(super) fn of(
        name: &'static str,
        command: &mut Command,
        watch: impl Fn(Option<u32>),
    ) -> Self {
        let start = Instant::now();
        let (output, outcome) = step::capture(name, command, watch);
        Self { name, output, outcome, took: start.elapsed() }
    }
}
