//! `cargo xtask test`: all checks that a change must pass, the cheapest first. It continues after a
//! failure, and ends with a list of all failures.

use std::{
    io::{self, PipeReader, Read},
    num::NonZero,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use crate::{
    capi, package, programs,
    results::Results,
    step::{self, Failure, cargo},
};

/// Runs all steps and ends with a summary.
pub(crate) fn everything() -> Result<(), Failure> {
    let mut steps = Steps::new();
    let mut results = Results::default();
    steps.take("programs", programs::provide);
    steps.take("format", || step::run("format", &mut format()));
    steps.take("clippy", || step::run("clippy", &mut clippy()));
    // The command line and the C library bring the feature `tls` along: the workspace is never built without it.
    steps.take("plain", || plain().iter_mut().try_for_each(|command| step::run("plain", command)));
    steps.take("tls bench", || step::run("tls bench", &mut tls_bench()));
    steps.take("docs", || step::run("docs", &mut docs()));
    // Checks the contents of the packages; `cargo xtask package` checks that they build alone.
    steps.take("packages", || package::pack().map(drop));
    // Tests mostly wait for leases to end, so the simulator uses the processor time that they
    // leave.
    let searches = thread::spawn(|| SEARCHES.map(Search::run));
    steps.take("tests", || run_tests(tests(), &mut results));
    let searches = searches.join().expect("a search returns its failures");
    searches.into_iter().for_each(|search| steps.add(search));
    if cfg!(target_os = "linux") {
        steps.take("capi", capi::try_install);
    }
    // Of other libraries those that are installed; it says which are not. Their TTLs are short, so that nothing runs beside it.
    steps.take("interop", || crate::interop(&INTEROP));
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

/// The library without its features, and what it says there.
fn plain() -> [Command; 2] {
    let mut lint = cargo("clippy");
    lint.args(["--package", "redbolt", "--lib", "--", "-D", "warnings"]);
    let mut test = cargo("test");
    test.args(["--package", "redbolt", "--lib", "net::address::"]);
    [lint, test]
}

/// The part of the benchmarks that is apart from all others.
fn tls_bench() -> Command {
    let mut command = cargo("clippy");
    command.args([
        "--package",
        "redbolt-benches",
        "--features",
        "tls",
        "--bins",
        "--",
        "-D",
        "warnings",
    ]);
    command
}

fn docs() -> Command {
    let mut command = cargo("doc");
    command.args(["--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings");
    command
}

/// Libraries, programs, and the documentation's examples; the examples in files are built.
fn tests() -> Command {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let threads = (TESTS_FOR_EACH_CORE * cores).min(MAX_TEST_THREADS);
    let mut command = cargo("test");
    command.args(["--workspace", "--no-fail-fast", "--color", "never"]);
    command.env("RUST_TEST_THREADS", threads.to_string());
    command
}

/// Shows the tests' output as it comes, and keeps their results.
fn run_tests(command: Command, results: &mut Results) -> Result<(), Failure> {
    listen("tests", command, |output| results.read(output, &mut io::stdout()))
}

/// Runs a command to its end and passes its output to `read`. Both streams share one pipe: cargo
/// names the running program on one, and the program prints its result on the other.
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
    // The command holds the pipe's other end, which would keep the output open.
    drop(command);
    read(output).map_err(failure)?;
    let status = child.wait().map_err(failure)?;
    if status.success() { Ok(()) } else { Err(Failure::of(step, &shown, status)) }
}

/// A run of the simulator beside the tests. Its output is printed after theirs.
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

/// The steps so far, how long each took, and the failures.
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

    /// Adds a step that ran beside the one before.
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

    /// Joins all failures into one, with a line for each.
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

/// The simulator's runs: the same schedules in every run, enough that an empty cell of the coverage
/// is a failure; then new schedules, so that each run of the tests searches further; then planted
/// bugs. New schedules may find a bug of the core or the checker that the tested change did not
/// cause.
const SEARCHES: [(&str, &[&str]); 3] = [
    ("simulator", &["--schedules", "300000"]),
    ("fresh", &["--fresh", "--schedules", "200000"]),
    ("mutants", &["--mutants"]),
];

/// Enough to see that they exclude each other; `cargo xtask interop` does more.
const INTEROP: [&str; 6] = ["--installed", "--short", "--turns", "60", "--hand-offs", "5"];

/// A test mostly waits for leases to end, and uses about a tenth of a core.
const TESTS_FOR_EACH_CORE: usize = 2;

/// One test may start five servers: a machine with many cores must not start hundreds at once.
const MAX_TEST_THREADS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_steps_run_after_a_failure_and_all_failures_are_reported() {
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
