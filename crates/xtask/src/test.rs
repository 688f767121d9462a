//! `cargo xtask test`: everything that must hold before a change is done, the cheapest first. It
//! goes on after a failure, and ends with a list of all of them.

use std::{
    io,
    num::NonZero,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use crate::{
    package, programs,
    results::Results,
    step::{self, Failure, cargo},
};

/// Runs it all and ends with a summary.
pub(crate) fn everything() -> Result<(), Failure> {
    let mut steps = Steps::default();
    let mut results = Results::default();
    steps.take("programs", programs::provide);
    steps.take("format", || step::run("format", &mut format()));
    steps.take("clippy", || step::run("clippy", &mut clippy()));
    steps.take("docs", || step::run("docs", &mut docs()));
    // What is in them; that they build alone is `cargo xtask package`.
    steps.take("packages", || package::pack().map(drop));
    steps.take("tests", || beside_builds(|| run_tests(tests(), &mut results)));
    steps.take("simulator", || sim(&["--schedules", SCHEDULES]));
    steps.take("fresh", || sim(&["--fresh", "--schedules", FRESH_SCHEDULES]));
    steps.take("mutants", || sim(&["--mutants"]));
    println!("\n{steps}\n\n{results}");
    steps.end()
}

fn format() -> Command {
    let mut command = cargo("fmt");
    command.args(["--all", "--check"]);
    command
}

fn clippy() -> Command {
    let mut command = cargo("clippy");
    command.args(["--workspace", "--all-targets", "--", "-D", "warnings"]);
    command
}

fn docs() -> Command {
    let mut command = cargo("doc");
    command.args(["--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings");
    command
}

/// Libraries, programs, and the examples in the documentation; the examples in files are built.
fn tests() -> Command {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let threads = (TESTS_FOR_EACH_CORE * cores).min(MAX_TEST_THREADS);
    let mut command = cargo("test");
    command.args(["--workspace", "--no-fail-fast", "--color", "never"]);
    command.env("RUST_TEST_THREADS", threads.to_string());
    command
}

fn sim(arguments: &[&str]) -> Result<(), Failure> {
    let arguments: Vec<_> = arguments.iter().map(ToString::to_string).collect();
    crate::sim(&arguments)
}

/// Builds the simulator meanwhile, which takes a minute of one core: most of the time tests wait for
/// leases to end. Whatever comes of it is told by the steps that run it.
fn beside_builds<T>(work: impl FnOnce() -> T) -> T {
    thread::scope(|scope| {
        scope.spawn(|| {
            for build in crate::simulator_builds() {
                let _ = step::in_the_background(&build).output();
            }
        });
        work()
    })
}

/// Shows what the tests print as it comes, and keeps their results.
fn run_tests(mut command: Command, results: &mut Results) -> Result<(), Failure> {
    let shown = step::shown(&command);
    let failure = |error| Failure::not_run(&shown, &error);
    // One pipe for both streams: on one cargo says which program it runs, on the other the program
    // says how it went.
    let (output, writer) = io::pipe().map_err(failure)?;
    command.stdout(writer.try_clone().map_err(failure)?).stderr(writer);
    let mut child = command.spawn().map_err(failure)?;
    // It holds the pipe's other end, and so the output would never end.
    drop(command);
    results.read(output, &mut io::stdout()).map_err(failure)?;
    let status = child.wait().map_err(failure)?;
    if status.success() { Ok(()) } else { Err(Failure::of("tests", &shown, status)) }
}

/// Steps that were taken, how long each took, and what failed.
#[derive(Default)]
struct Steps {
    taken: Vec<(&'static str, Duration)>,
    failures: Vec<String>,
}

impl Steps {
    fn take(&mut self, name: &'static str, step: impl FnOnce() -> Result<(), Failure>) {
        println!("\nxtask: {name}");
        let start = Instant::now();
        let outcome = step();
        let took = start.elapsed();
        let word = if outcome.is_ok() { "done" } else { "FAILED" };
        println!("xtask: {name} {word}, {:.1} s", took.as_secs_f64());
        self.taken.push((name, took));
        self.failures.extend(outcome.err().map(|failure| failure.to_string()));
    }

    /// All that failed is one failure, with a line for each.
    fn end(self) -> Result<(), Failure> {
        match self.failures[..] {
            [] => Ok(()),
            _ => Err(Failure(self.failures.join("\n  "))),
        }
    }
}

impl std::fmt::Display for Steps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut total = Duration::ZERO;
        for (name, took) in &self.taken {
            writeln!(f, "xtask: {name:<9} {:>7.1} s", took.as_secs_f64())?;
            total += *took;
        }
        write!(f, "xtask: {:<9} {:>7.1} s", "total", total.as_secs_f64())
    }
}

/// The same in every run; enough that an empty cell of the coverage fails. With those that nobody has run
/// half a minute or so.
const SCHEDULES: &str = "300000";

/// Others in every run, so that whoever runs the tests searches on. A violation there is one of the core
/// or of the checker, also where the change under test has no part in it.
const FRESH_SCHEDULES: &str = "700000";

/// A test takes a tenth of a core, as a rule: it waits for leases to end.
const TESTS_FOR_EACH_CORE: usize = 2;

/// One test may start five servers: a machine with many cores must not start hundreds at once.
const MAX_TEST_THREADS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_behind_a_failure_is_run_and_every_failure_is_told() {
        let mut steps = Steps::default();
        let mut ran = 0;
        for outcome in [Err("clippy: warned"), Ok(()), Err("tests: 1 failed")] {
            let outcome = outcome.map_err(|words: &str| Failure(words.to_owned()));
            steps.take("step", || {
                ran += 1;
                outcome
            });
        }
        assert_eq!(ran, 3);
        let failure = steps.end().unwrap_err().to_string();
        assert_eq!(failure, "clippy: warned\n  tests: 1 failed");
        assert!(Steps::default().end().is_ok());
    }
}
