//! `cargo xtask test --stress N`: repeats the tests while real-time processes stall the cores and
//! random processes of the tests are frozen, and lists every test that failed at least once.
//!
//! A finished round is a line of a file, so that a later call continues with the next round.

use std::{
    collections::BTreeMap,
    env,
    fs::{self, OpenOptions},
    hash::{DefaultHasher, Hash, Hasher},
    io::Write,
    os::unix::process::parent_id,
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::{freeze::Freezer, queue::Outcome, report::Report};
use crate::{
    package::{of_file, target},
    step::{Failure, root},
};

/// The tests that are repeated, and how often.
pub(crate) struct Stress {
    pub(crate) rounds: u32,
    pub(crate) only: Vec<String>,
}

impl Stress {
    /// Runs the rounds that are not on record yet. `round` runs all tests once.
    pub(crate) fn run(
        &self,
        cores: usize,
        mut round: impl FnMut(Freezer) -> Result<Report, Failure>,
    ) -> Result<(), Failure> {
        let record = Record::of(&commit()?, &self.only)?;
        let mut failed = record.failed()?;
        for number in record.finished()?..self.rounds {
            let seed = u64::from(number) + 1;
            println!("\nxtask: stressed round {} of {}, seed {seed}", number + 1, self.rounds);
            let spinners = Spinners::start(cores, seed);
            let report = round(Freezer { seed })?;
            drop(spinners);
            record.add(seed, &report)?;
            for (name, _) in report.failures() {
                failed.entry(name.to_owned()).or_default().push(seed);
            }
        }
        println!("\nxtask: {} stressed rounds on record, {}", self.rounds, record.file.display());
        if failed.is_empty() {
            return Ok(());
        }
        let shown =
            failed.iter().map(|(name, seeds)| format!("{name}: failed with seeds {seeds:?}"));
        let lines = shown.collect::<Vec<_>>().join("\n  ");
        Err(Failure(format!("{lines}\n  their output is in {}", record.folder.display())))
    }
}

/// The finished rounds of one commit and one selection of tests.
struct Record {
    folder: PathBuf,
    file: PathBuf,
}

impl Record {
    fn of(commit: &str, only: &[String]) -> Result<Self, Failure> {
        let scope = if only.is_empty() { "all".to_owned() } else { only.join("+") };
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '+' { c } else { '-' };
        let scope: String = scope.chars().map(plain).collect();
        let folder = target().join("stress").join(commit).join(scope);
        fs::create_dir_all(&folder).map_err(|error| of_file(&folder, &error))?;
        let file = folder.join("rounds.tsv");
        Ok(Self { folder, file })
    }

    fn text(&self) -> Result<String, Failure> {
        if !self.file.exists() {
            return Ok(String::new());
        }
        fs::read_to_string(&self.file).map_err(|error| of_file(&self.file, &error))
    }

    /// Returns the number of finished rounds.
    fn finished(&self) -> Result<u32, Failure> {
        let text = self.text()?;
        let rounds = text.lines().filter(|line| line.starts_with("round\t")).count();
        u32::try_from(rounds).map_err(|error| Failure(error.to_string()))
    }

    /// Returns the tests that failed in earlier rounds, with the seeds of these rounds.
    fn failed(&self) -> Result<BTreeMap<String, Vec<u64>>, Failure> {
        let mut failed: BTreeMap<_, Vec<u64>> = BTreeMap::new();
        for line in self.text()?.lines() {
            let mut fields = line.split('\t');
            if let (Some("failed"), Some(seed), Some(name)) =
                (fields.next(), fields.next(), fields.next())
                && let Ok(seed) = seed.parse()
            {
                failed.entry(name.to_owned()).or_default().push(seed);
            }
        }
        Ok(failed)
    }

    /// Adds a finished round, and keeps the output of its failures.
    fn add(&self, seed: u64, report: &Report) -> Result<(), Failure> {
        let mut lines = String::new();
        for (name, outcome) in report.failures() {
            lines.push_str(&format!("failed\t{seed}\t{name}\n"));
            self.keep(seed, name, outcome)?;
        }
        lines.push_str(&format!("round\t{seed}\t{}\n", report.totals()));
        let mut options = OpenOptions::new();
        let file = options.create(true).append(true).open(&self.file);
        file.and_then(|mut file| file.write_all(lines.as_bytes()))
            .map_err(|error| of_file(&self.file, &error))
    }

    fn keep(&self, seed: u64, name: &str, outcome: &Outcome) -> Result<(), Failure> {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let name: String = name.chars().map(plain).collect();
        let file = self.folder.join(format!("{seed}-{name}.log"));
        let Some((why, output)) = &outcome.failure else { return Ok(()) };
        fs::write(&file, format!("{why}\n{output}")).map_err(|error| of_file(&file, &error))
    }
}

/// Returns the tested commit, with a mark if there are uncommitted changes.
fn commit() -> Result<String, Failure> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").current_dir(root()).args(arguments).output();
        output.map_err(|error| Failure::not_run("git", &error)).map(|output| output.stdout)
    };
    let head = String::from_utf8_lossy(&git(&["rev-parse", "--short=12", "HEAD"])?).into_owned();
    let change = git(&["diff", "HEAD"])?;
    let head = head.trim();
    if change.is_empty() {
        return Ok(head.to_owned());
    }
    let mut hasher = DefaultHasher::new();
    change.hash(&mut hasher);
    Ok(format!("{head}+{:08x}", hasher.finish() as u32))
}

/// The processes, one for each core, that stall it repeatedly. They end with this value, or with
/// this process.
struct Spinners(Vec<Child>);

impl Spinners {
    fn start(cores: usize, seed: u64) -> Self {
        let Ok(program) = env::current_exe() else { return Self(Vec::new()) };
        let spin = |priority: &[&str], core: usize| {
            let mut command = Command::new("taskset");
            command.args(["-c", &core.to_string()]).args(priority).arg(&program);
            command.args(["spin", "--seed", &(seed * 1_000 + core as u64).to_string()]);
            command.stdin(Stdio::null()).stderr(Stdio::null()).spawn()
        };
        let can_stall = Command::new("chrt").args(["--fifo", "1", "true"]).status();
        let is_real_time = can_stall.is_ok_and(|status| status.success());
        let priority: &[&str] = if is_real_time { &["chrt", "--fifo", "1"] } else { &[] };
        if !is_real_time {
            println!("xtask: no right to use real-time priorities: the spinners only compete");
        }
        Self((0..cores).flat_map(|core| spin(priority, core)).collect())
    }
}

impl Drop for Spinners {
    fn drop(&mut self) {
        for spinner in &mut self.0 {
            // A spinner that has ended cannot be killed.
            let _ = spinner.kill();
            let _ = spinner.wait();
        }
    }
}

/// Uses a core for more than half of the time, in stretches of up to 400 ms, until the parent ends.
pub(crate) fn spin(seed: u64) {
    let parent = parent_id();
    let mut random = fastrand::Rng::with_seed(seed);
    while parent_id() == parent {
        let stretch = Duration::from_millis(random.u64(SPIN_MS));
        let until = Instant::now() + stretch;
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        thread::sleep(stretch.mul_f64(REST));
    }
}

const SPIN_MS: std::ops::RangeInclusive<u64> = 1..=400;
/// The ratio of rest to work, with which a spinner takes 57 % of a core.
const REST: f64 = 0.75;
