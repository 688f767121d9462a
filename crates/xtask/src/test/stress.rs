//! `cargo xtask test --stress N`: repeats the tests while real-time processes stall the cores and
//! random processes of the tests are frozen, and lists every test that failed at least once.
//!
//! A finished round is a line of a file, so that a later call goes on with the next round.

use std::{
    collections::BTreeMap,
    env,
    fs::{self, OpenOptions},
    hash::{DefaultHasher, Hash, Hasher},
    io::Write,
    os::unix::process::parent_id,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use super::{queue::Outcome, report::Report};
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

    /// The number of finished rounds.
    fn finished(&self) -> Result<u32, Failure> {
        let text = self.text()?;
        let rounds = text.lines().filter(|line| line.starts_with("round\t")).count();
        u32::try_from(rounds).map_err(|error| Failure(error.to_string()))
    }

    /// The tests that failed in earlier rounds, with the seeds of these rounds.
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

/// The tested commit, with a mark of what is not committed.
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

/// Freezes processes of tests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Freezer {
    seed: u64,
}

impl Freezer {
    /// The freezes of one test: the same ones in each round with this seed.
    pub(crate) fn of(&self, test: &Path) -> Freezes {
        let mut hasher = DefaultHasher::new();
        (self.seed, test.file_name()).hash(&mut hasher);
        let mut random = fastrand::Rng::with_seed(hasher.finish());
        let next = Instant::now() + Duration::from_millis(random.u64(FIRST_FREEZE_MS));
        Freezes { random, next }
    }
}

/// When processes of one test are frozen next, and which.
#[derive(Debug)]
pub(crate) struct Freezes {
    random: fastrand::Rng,
    next: Instant,
}

impl Freezes {
    /// Freezes the whole test, as if the machine had paused, or one of its processes except
    /// servers.
    pub(crate) fn freeze_if_due(&mut self, test: u32) {
        if Instant::now() < self.next {
            return;
        }
        let mut frozen = with_descendants(test);
        if self.random.u8(0..3) != 0 {
            frozen.retain(|&pid| !is_server(pid));
            self.random.shuffle(&mut frozen);
            frozen.truncate(1);
        }
        signal(&frozen, Signal::STOP);
        thread::sleep(Duration::from_millis(self.random.u64(FREEZE_MS)));
        signal(&frozen, Signal::CONT);
        self.next = Instant::now() + Duration::from_millis(self.random.u64(BETWEEN_FREEZES_MS));
    }
}

/// The process and all that descend from it.
fn with_descendants(test: u32) -> Vec<u32> {
    let mut parents = BTreeMap::<u32, Vec<u32>>::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if let Some(parent) = parent_of(pid) {
            parents.entry(parent).or_default().push(pid);
        }
    }
    let mut all = vec![test];
    let mut at = 0;
    while let Some(pid) = all.get(at) {
        all.extend(parents.get(pid).into_iter().flatten());
        at += 1;
    }
    all
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn is_server(pid: u32) -> bool {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    SERVERS.contains(&name.trim())
}

/// A process that has ended meanwhile is skipped.
pub(crate) fn signal(pids: &[u32], signal: Signal) {
    let known = pids.iter().filter_map(|&pid| Pid::from_raw(pid.try_into().ok()?));
    for pid in known {
        let _ = kill_process(pid, signal);
    }
}

/// One process for each core that stalls it again and again. They end with this value, or with
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
            // A spinner that has ended has nothing to be killed.
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

const SERVERS: [&str; 3] = ["redis-server", "valkey-server", "redis-sentinel"];
const FIRST_FREEZE_MS: std::ops::Range<u64> = 20..6_000;
const FREEZE_MS: std::ops::RangeInclusive<u64> = 1_000..=3_000;
const BETWEEN_FREEZES_MS: std::ops::Range<u64> = 4_000..20_000;
const SPIN_MS: std::ops::RangeInclusive<u64> = 1..=400;
/// A spinner takes 57 % of a core.
const REST: f64 = 0.75;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_frozen_at_the_same_times_in_each_round_with_one_seed() {
        let freezer = Freezer { seed: 7 };
        let drawn = || freezer.of(Path::new("a.log")).random.u64(..);
        assert_eq!(drawn(), drawn());
        assert_ne!(drawn(), freezer.of(Path::new("b.log")).random.u64(..));
    }

    #[test]
    fn a_frozen_test_goes_on() {
        let mut child = Command::new("sh").args(["-c", "sleep 30 & wait"]).spawn().unwrap();
        let mut freezes = Freezer { seed: 1 }.of(Path::new("a.log"));
        freezes.next = Instant::now();
        freezes.freeze_if_due(child.id());
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        assert!(!stat.contains(") T "), "{stat}");
        assert!(freezes.next > Instant::now());
        signal(&with_descendants(child.id()), Signal::KILL);
        child.wait().unwrap();
    }
}
