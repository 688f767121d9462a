//! The outcomes of all tests, and the summary at the end of a run.

use std::{collections::BTreeMap, fmt, time::Duration};

use super::{program::Programs, queue::Outcome};

/// The outcomes of a run.
#[derive(Default)]
pub(crate) struct Report {
    entries: Vec<(String, Outcome)>,
    /// The number of tests of each program that were not selected.
    skipped: BTreeMap<String, usize>,
}

#[derive(Default)]
struct Total {
    passed: usize,
    failed: usize,
    skipped: usize,
    took: Duration,
    used: Duration,
}

impl Report {
    pub(crate) fn add(&mut self, programs: &Programs, outcomes: Vec<Outcome>) {
        self.entries
            .extend(outcomes.into_iter().map(|outcome| (programs.name_of(&outcome.test), outcome)));
    }

    pub(crate) fn skip(&mut self, program: &str) {
        *self.skipped.entry(program.to_owned()).or_default() += 1;
    }

    /// Returns the failed tests, with their full names.
    pub(crate) fn failures(&self) -> impl Iterator<Item = (&str, &Outcome)> {
        let failed = self.entries.iter().filter(|(_, outcome)| outcome.failure.is_some());
        failed.map(|(name, outcome)| (name.as_str(), outcome))
    }

    /// Returns how long each test took, for the order of the next run.
    pub(crate) fn durations(&self) -> impl Iterator<Item = (&str, Duration)> {
        self.entries.iter().map(|(name, outcome)| (name.as_str(), outcome.took))
    }

    fn programs(&self) -> BTreeMap<&str, Total> {
        let mut totals = BTreeMap::<&str, Total>::new();
        for (name, outcome) in &self.entries {
            let total = totals.entry(program(name)).or_default();
            match outcome.failure {
                None => total.passed += 1,
                Some(_) => total.failed += 1,
            }
            total.took += outcome.took;
            total.used += outcome.used;
        }
        for (name, skipped) in &self.skipped {
            totals.entry(name).or_default().skipped += skipped;
        }
        totals
    }

    /// Returns one line that counts all tests.
    pub(crate) fn totals(&self) -> String {
        let mut all = Total::default();
        for total in self.programs().into_values() {
            all.passed += total.passed;
            all.failed += total.failed;
            all.skipped += total.skipped;
        }
        format!("{} passed, {} failed, {} skipped", all.passed, all.failed, all.skipped)
    }
}

/// Returns the line that is printed when a test ends, and the output of one that failed.
pub(crate) fn shown(name: &str, outcome: &Outcome) -> String {
    let seconds = outcome.took.as_secs_f64();
    match &outcome.failure {
        None => format!("ok     {seconds:>6.2} s  {name}"),
        Some((why, output)) => {
            format!("FAILED {seconds:>6.2} s  {name}: {why}\n{}", output.trim_end())
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "xtask: results, by program:")?;
        for (name, total) in self.programs() {
            let Total { passed, failed, skipped, took, used } = total;
            let (took, used) = (took.as_secs_f64(), used.as_secs_f64());
            write!(f, "{name}: {passed} passed, {failed} failed, {skipped} skipped")?;
            writeln!(f, ", {took:.1} s, {used:.1} s of processor time")?;
        }
        let mut slowest: Vec<_> = self.entries.iter().collect();
        slowest.sort_by_key(|(_, outcome)| std::cmp::Reverse(outcome.took));
        writeln!(f, "\nxtask: the {SLOWEST} slowest tests:")?;
        for (name, outcome) in slowest.into_iter().take(SLOWEST) {
            let (took, used) = (outcome.took.as_secs_f64(), outcome.used.as_secs_f64());
            writeln!(f, "{took:>6.1} s, {used:>5.1} s of processor time  {name}")?;
        }
        let repeated = self.entries.iter().filter(|(_, outcome)| !outcome.repeats.is_empty());
        let repeats: usize = repeated.clone().map(|(_, outcome)| outcome.repeats.len()).sum();
        writeln!(f, "\nxtask: {repeats} attempts repeated because the machine stalled")?;
        for (name, outcome) in repeated {
            for line in &outcome.repeats {
                writeln!(f, "{name}: {line}")?;
            }
        }
        for (name, outcome) in self.failures() {
            let why = outcome.failure.as_ref().map_or("", |(why, _)| why);
            writeln!(f, "FAILED {name}: {why}")?;
        }
        write!(f, "\n{}", self.totals())
    }
}

fn program(name: &str) -> &str {
    name.split_once(' ').map_or(name, |(program, _)| program)
}

const SLOWEST: usize = 20;
