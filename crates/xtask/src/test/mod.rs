//! `cargo xtask check`, `test` and `test --all`: the checks that a change must pass, the cheapest
//! first. A run continues after a failure and ends with a list of all failures.

mod finished;
mod freeze;
mod plan;
mod program;
mod queue;
mod report;
mod search;
pub(crate) mod stress;

use std::{
    cmp::Reverse,
    collections::HashMap,
    fs,
    io::{self, Write},
    num::NonZero,
    path::PathBuf,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use self::{
    finished::Finished,
    freeze::Freezer,
    plan::Weight,
    program::{Programs, Test},
    queue::{Outcome, Queue},
    report::Report,
    search::{Search, Searches},
    stress::Stress,
};
use crate::{
    capi, package,
    package::{of_file, target},
    programs,
    step::{self, Failure, cargo},
    tasks,
};

/// The options of `cargo xtask test`.
#[derive(Default)]
pub(crate) struct Extent {
    /// `true` to run the long searches too.
    pub(crate) all: bool,
    /// The only programs to run, as the summary names them; all if there are none.
    pub(crate) only: Vec<String>,
    /// The number of times that the tests are repeated under stress.
    pub(crate) stress: Option<u32>,
    /// The number of cores that the machine is assumed to have.
    pub(crate) cores: Option<usize>,
}

/// Runs `cargo xtask check`: the checks that a change must pass before it is worth running
/// everything.
pub(crate) fn check() -> Result<(), Failure> {
    let mut steps = Steps::new();
    steps.take("programs", programs::provide);
    steps.take("format", || step::run("format", &mut format()));
    let report = run_selected(&mut steps, &Extent::default(), &CHECKED, |_| true);
    println!("\n{steps}\n\n{report}");
    steps.end()
}

/// Runs `cargo xtask test`: everything that a change must pass.
pub(crate) fn test(extent: &Extent) -> Result<(), Failure> {
    if let Some(rounds) = extent.stress {
        return stressed(extent, rounds);
    }
    let mut steps = Steps::new();
    if !extent.only.is_empty() {
        let report = run_selected(&mut steps, extent, &WORKSPACE, |name| extent.includes(name));
        println!("\n{steps}\n\n{report}");
        return steps.end();
    }
    steps.take("programs", programs::provide);
    steps.take("format", || step::run("format", &mut format()));
    // The command line and the C library enable the feature `tls`: the workspace is never built
    // without it.
    steps.take("plain", || step::run("plain", &mut plain()));
    steps.take("docs", || step::run("docs", &mut docs(extent.all)));
    // This checks the contents of the packages; `cargo xtask package` checks that they build alone.
    steps.take("packages", || package::pack().map(drop));
    let searches = Searches::start(if extent.all { &LONG_SEARCHES } else { &SEARCHES });
    let (built, report) = run_everything(&mut steps, extent, &searches);
    searches.join().into_iter().for_each(|search| steps.add(search));
    if cfg!(target_os = "linux") {
        steps.take("capi", capi::try_install);
    }
    // The TTLs of other libraries' locks are short, so nothing else runs during this step.
    steps.take("interop", || interop(&built, if extent.all { &INSTALLED } else { &INTEROP }));
    if extent.all {
        steps.take("models", || tasks::models(true));
        steps.take("chaos", || tasks::chaos(&[]));
    }
    println!("\n{steps}\n\n{report}");
    steps.end()
}

/// Builds and runs all tests, with the documentation's examples alongside.
fn run_everything(steps: &mut Steps, extent: &Extent, searches: &Searches) -> (Programs, Report) {
    let built = steps.build(&WORKSPACE);
    let mut report = Report::default();
    if built.all.is_empty() {
        return (built, report);
    }
    let mut doctests = None;
    steps.take("tests", || {
        let runner = Runner::new(&built, extent.cores())?;
        let tests = runner.order(built.tests()?, &mut report);
        let (alone, together) = tests.into_iter().partition(|test| test.weight == Weight::Alone);
        thread::scope(|scope| {
            let documentation = scope.spawn(|| Finished::of("doctests", &mut doctest(), |_| {}));
            report.add(&built, runner.queue(None).run(together));
            doctests = documentation.join().ok();
        });
        searches.stop();
        report.add(&built, runner.queue(None).run_alone(&alone));
        searches.resume();
        runner.end(&report)
    });
    doctests.into_iter().for_each(|doctests| steps.add(doctests));
    (built, report)
}

/// Builds and runs the tests of some programs.
fn run_selected(
    steps: &mut Steps,
    extent: &Extent,
    selections: &[&[&str]],
    includes: impl Fn(&str) -> bool,
) -> Report {
    let mut built = steps.build(selections);
    built.all.retain(|program| includes(&program.name));
    let mut report = Report::default();
    steps.take("tests", || {
        report = run_round(&built, extent, None)?;
        outcome_of(&report)
    });
    report
}

/// Runs the tests of these programs once.
fn run_round(
    built: &Programs,
    extent: &Extent,
    freezer: Option<Freezer>,
) -> Result<Report, Failure> {
    let mut report = Report::default();
    let runner = Runner::new(built, extent.cores())?;
    let tests = runner.order(built.tests()?, &mut report);
    let (alone, together) = tests.into_iter().partition(|test| test.weight == Weight::Alone);
    report.add(built, runner.queue(freezer).run(together));
    report.add(built, runner.queue(freezer).run_alone(&alone));
    if freezer.is_none() {
        runner.remember(&report)?;
    }
    Ok(report)
}

/// Repeats the tests under stress.
fn stressed(extent: &Extent, rounds: u32) -> Result<(), Failure> {
    let (mut built, _) = program::build(&WORKSPACE)?;
    built.all.retain(|program| extent.includes(&program.name));
    let stress = Stress { rounds, only: extent.only.clone() };
    stress.run(extent.cores(), |freezer| {
        let report = run_round(&built, extent, Some(freezer))?;
        println!("\n{report}");
        Ok(report)
    })
}

/// A runner of the tests of programs.
struct Runner<'a> {
    programs: &'a Programs,
    cores: usize,
    folder: PathBuf,
    logs: PathBuf,
}

impl<'a> Runner<'a> {
    fn new(programs: &'a Programs, cores: usize) -> Result<Self, Failure> {
        let folder = target().join("xtask");
        let logs = folder.join("logs");
        fs::create_dir_all(&logs).map_err(|error| of_file(&logs, &error))?;
        Ok(Self { programs, cores, folder, logs })
    }

    fn queue(&self, freezer: Option<Freezer>) -> Queue<'_> {
        let limit = if freezer.is_some() { STRESSED_LIMIT } else { LIMIT };
        let programs = self.programs;
        Queue { programs, cores: self.cores, logs: &self.logs, limit, freezer, report: &print }
    }

    /// Returns the wanted tests, the longest first, so that none of them is left for the end.
    fn order(&self, tests: Vec<Test>, report: &mut Report) -> Vec<Test> {
        let known = self.known_durations();
        // An ignored test is a part of another one, or takes minutes and is run by a separate step.
        let (mut wanted, skipped): (Vec<_>, Vec<_>) =
            tests.into_iter().partition(|test| !test.ignored);
        skipped.iter().for_each(|test| report.skip(&self.programs.all[test.program].name));
        let duration = |test: &Test| {
            let name = self.programs.name_of(test);
            known.get(&name).copied().unwrap_or_else(|| plan::guess(&name))
        };
        wanted.sort_by_cached_key(|test| Reverse(duration(test)));
        wanted
    }

    /// Returns how long each test took in an earlier run.
    fn known_durations(&self) -> HashMap<String, Duration> {
        let text = fs::read_to_string(self.folder.join(DURATIONS)).unwrap_or_default();
        let known = text.lines().filter_map(|line| {
            let (millis, name) = line.split_once('\t')?;
            Some((name.to_owned(), Duration::from_millis(millis.parse().ok()?)))
        });
        known.collect()
    }

    fn remember(&self, report: &Report) -> Result<(), Failure> {
        let mut known = self.known_durations();
        known.extend(report.durations().map(|(name, took)| (name.to_owned(), took)));
        let line = |(name, took): (&String, &Duration)| format!("{}\t{name}\n", took.as_millis());
        let text: String = known.iter().map(line).collect();
        package::write(&self.folder.join(DURATIONS), &text)
    }

    fn end(&self, report: &Report) -> Result<(), Failure> {
        self.remember(report)?;
        outcome_of(report)
    }
}

fn print(name: &str, outcome: &Outcome) {
    // A closed output does not end the tests.
    let _ = writeln!(io::stdout().lock(), "{}", report::shown(name, outcome));
}

/// Fails if a test failed, or none ran.
fn outcome_of(report: &Report) -> Result<(), Failure> {
    let failed = report.failures().count();
    match (failed, report.durations().next()) {
        (0, Some(_)) => Ok(()),
        (0, None) => Err(Failure("tests: none ran".into())),
        _ => Err(Failure(format!("tests: {failed} failed"))),
    }
}

impl Extent {
    fn includes(&self, program: &str) -> bool {
        let is_named = |name: &String| {
            program == name || program.rsplit_once("::").is_some_and(|(_, target)| target == name)
        };
        self.only.is_empty() || self.only.iter().any(is_named)
    }

    fn cores(&self) -> usize {
        let here = || thread::available_parallelism().map_or(1, NonZero::get);
        self.cores.unwrap_or_else(here).min(MOST_CORES)
    }
}

fn format() -> Command {
    let mut command = cargo("fmt");
    command.args(["--all", "--check"]);
    command
}

/// Returns the build of the library without its features.
fn plain() -> Command {
    let mut command = cargo("clippy");
    command.args(["--package", "redbolt", "--lib", "--", "-D", "warnings"]);
    command
}

/// Returns the build of the documentation, without that of the benchmarks: rustdoc would compile
/// all their drivers again, which takes minutes.
fn docs(all: bool) -> Command {
    let mut command = cargo("doc");
    command.args(["--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings");
    if !all {
        command.args(["--exclude", "redbolt-benches"]);
    }
    command
}

/// Checks the installed libraries, with the programs that the tests have built.
fn interop(built: &Programs, arguments: &[&str]) -> Result<(), Failure> {
    let program = |name| {
        built.binaries.get(name).ok_or_else(|| Failure(format!("interop: {name} was not built")))
    };
    let mut interop = Command::new(program("interop")?);
    step::run("interop", interop.args(arguments).env("REDBOLT_CLI", program("redbolt")?))
}

fn doctest() -> Command {
    let mut command = cargo("test");
    command.args(["--quiet", "--workspace", "--doc", "--no-fail-fast", "--features", BENCHES]);
    // The libraries are those with which the tests have been built.
    program::lint(&mut command);
    command
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

    /// Builds and lints tests. After a failure there are none.
    fn build(&mut self, selections: &[&[&str]]) -> Programs {
        let (mut built, mut lints) = (Programs::default(), Ok(()));
        self.take("build", || {
            (built, lints) = program::build(selections)?;
            Ok(())
        });
        self.failures.extend(lints.err().map(|failure| failure.to_string()));
        built
    }

    fn take(&mut self, name: &'static str, step: impl FnOnce() -> Result<(), Failure>) {
        println!("\nxtask: {name}");
        let start = Instant::now();
        let outcome = step();
        self.taken(name, start.elapsed(), outcome);
    }

    /// Adds a step that ran alongside the one before.
    fn add(&mut self, Finished { name, output, outcome, took }: Finished) {
        println!("\nxtask: {name}\n{}", output.trim_end());
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
            writeln!(f, "xtask: {name:<15} {:>7.1} s", took.as_secs_f64())?;
        }
        write!(f, "xtask: {:<15} {:>7.1} s", "total", self.start.elapsed().as_secs_f64())
    }
}

/// All tests and examples, then the benchmarks, which are only linted.
const WORKSPACE: [&[&str]; 2] =
    [&["--workspace", "--features", BENCHES], &["--workspace", "--benches", "--features", BENCHES]];

/// The tests of `cargo xtask check`.
const CHECKED: [&[&str]; 1] = [&[
    "--workspace",
    "--lib",
    "--bins",
    "--test",
    "core",
    "--test",
    "house",
    "--features",
    BENCHES,
]];

/// The feature of the benchmarks that is not built by default.
const BENCHES: &str = "redbolt-benches/tls";

/// The simulator's runs: the same schedules in every run, enough that an empty cell of the coverage
/// is a failure; then new schedules, so that each run of the tests searches further; then planted
/// bugs. New schedules may find a bug of the core or the checker that the tested change did not
/// cause.
///
/// All use the build in which bugs can be planted, also those without one: a second simulator takes
/// as long to build as 150,000 schedules take. [`LONG_SEARCHES`] has both.
const SEARCHES: [Search; 3] = [
    Search { name: "simulator", arguments: &["--schedules", "300000"], planted: true },
    Search { name: "fresh", arguments: &["--fresh", "--schedules", "200000"], planted: true },
    Search { name: "mutants", arguments: &["--mutants"], planted: true },
];

/// The simulator's runs of `cargo xtask test --all`.
const LONG_SEARCHES: [Search; 3] = [
    Search { name: "simulator", arguments: &["--schedules", "300000"], planted: false },
    Search { name: "fresh", arguments: &["--fresh", "--schedules", "2000000"], planted: false },
    Search { name: "mutants", arguments: &["--mutants"], planted: true },
];

/// The arguments for every installed library at full length.
const INSTALLED: [&str; 1] = ["--installed"];

/// The arguments for a short run, which shows that the libraries exclude each other; `cargo xtask
/// interop` does more.
const INTEROP: [&str; 6] = ["--installed", "--short", "--turns", "60", "--hand-offs", "5"];

/// A limit longer than any test takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(600);
const STRESSED_LIMIT: Duration = Duration::from_secs(1_800);

/// The largest number of cores that is used: one test may start five servers, and a machine with
/// many cores must not start hundreds at once.
const MOST_CORES: usize = 16;

/// The file with the durations of the last run.
const DURATIONS: &str = "durations.tsv";

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

    #[test]
    fn a_program_is_selected_by_its_name_or_its_target() {
        let only = |name: &str| Extent { only: vec![name.to_owned()], ..Extent::default() };
        assert!(only("it").includes("redbolt::it") && only("redbolt").includes("redbolt"));
        assert!(!only("redbolt").includes("redbolt::it") && !only("it").includes("redbolt::core"));
        assert!(Extent::default().includes("redbolt::it"));
    }
}
