//! `cargo xtask test`: everything that must hold before a change is done, the cheapest first. It
//! goes on after a failure, and ends with a list of all of them.

use std::{
    io::{self, PipeReader, Read},
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
    let mut steps = Steps::new();
    let mut results = Results::default();
    steps.take("programs", programs::provide);
    steps.take("format", || step::run("format", &mut format()));
    steps.take("clippy", || step::run("clippy", &mut clippy()));
    steps.take("docs", || step::run("docs", &mut docs()));
    // What is in them; that they build alone is `cargo xtask package`.
    steps.take("packages", || package::pack().map(drop));
    // Most of the time tests wait for leases to end: the simulator takes what they leave of the processor.
    let searches = thread::spawn(|| SEARCHES.map(Search::run));
    steps.take("tests", || run_tests(tests(), &mut results));
    let searches = searches.join().expect("what a search meets is its outcome");
    searches.into_iter().for_each(|search| steps.add(search));
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

/// Shows what the tests print as it comes, and keeps their results.
fn run_tests(command: Command, results: &mut Results) -> Result<(), Failure> {
    listen("tests", command, |output| results.read(output, &mut io::stdout()))
}

/// Runs a command whose output goes to a reader, to its end. One pipe for both streams: on one cargo says
/// which program it runs, on the other the program says how it went.
fn listen(
    step: &str,
    mut command: Command,
    read: impl FnOnce(PipeReader) -> io::Result<()>,
) -> Result<(), Failure> {
    let shown = step::shown(&command);
    let failure = |error| Failure::not_run(&shown, &error);
    let (output, writer) = io::pipe().map_err(failure)?;
    command.stdout(writer.try_clone().map_err(failure)?).stderr(writer);
    let mut child = command.spawn().map_err(failure)?;
    // It holds the pipe's other end, and so the output would never end.
    drop(command);
    read(output).map_err(failure)?;
    let status = child.wait().map_err(failure)?;
    if status.success() { Ok(()) } else { Err(Failure::of(step, &shown, status)) }
}

/// A run of the simulator beside the tests. What it says is shown when they are over.
struct Search {
    name: &'static str,
    said: Vec<u8>,
    outcome: Result<(), Failure>,
    took: Duration,
}

impl Search {
    fn run((name, arguments): (&'static str, &[&str])) -> Self {
        let start = Instant::now();
        let mut said = Vec::new();
        let command = step::in_the_background(&crate::simulator(arguments));
        let outcome = listen("sim", command, |mut output| output.read_to_end(&mut said).map(drop));
        Self { name, said, outcome, took: start.elapsed() }
    }
}

/// Steps that were taken, how long each took, and what failed.
struct Steps {
    start: Instant,
    taken: Vec<(&'static str, Duration)>,
    failures: Vec<String>,
}

impl Steps {
    fn new() -> Self {
        Self { start: Instant::now(), taken: Vec::new(), failures: Vec::new() }
    }

    fn take(&mut self, name: &'static str, step: impl FnOnce() -> Result<(), Failure>) {
        println!("\nxtask: {name}");
        let start = Instant::now();
        let outcome = step();
        self.taken(name, start.elapsed(), outcome);
    }

    /// A step that ran beside the one before.
    fn add(&mut self, Search { name, said, outcome, took }: Search) {
        println!("\nxtask: {name}\n{}", String::from_utf8_lossy(&said).trim_end());
        self.taken(name, took, outcome);
    }

    fn taken(&mut self, name: &'static str, took: Duration, outcome: Result<(), Failure>) {
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
        for (name, took) in &self.taken {
            writeln!(f, "xtask: {name:<9} {:>7.1} s", took.as_secs_f64())?;
        }
        write!(f, "xtask: {:<9} {:>7.1} s", "total", self.start.elapsed().as_secs_f64())
    }
}

/// What the simulator is asked for. The first is the same in every run, and enough that an empty cell of the
/// coverage fails. The second is another one in every run, so that whoever runs the tests searches on: a
/// violation there is one of the core or of the checker, also where the change under test has no part in it.
const SEARCHES: [(&str, &[&str]); 3] = [
    ("simulator", &["--schedules", "300000"]),
    ("fresh", &["--fresh", "--schedules", "700000"]),
    ("mutants", &["--mutants"]),
];

/// A test takes a tenth of a core, as a rule: it waits for leases to end.
const TESTS_FOR_EACH_CORE: usize = 2;

/// One test may start five servers: a machine with many cores must not start hundreds at once.
const MAX_TEST_THREADS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_behind_a_failure_is_run_and_every_failure_is_told() {
        let mut steps = Steps::new();
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
        assert!(Steps::new().end().is_ok());
    }
}
