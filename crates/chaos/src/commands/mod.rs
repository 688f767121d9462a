//! `redbolt lock` over and over, while its processes, the command and the command's children are
//! killed, stopped and terminated.
//!
//! As long as one of the two redbolt processes runs, no section may overlap with another command or
//! any process that it has started. In the control both are stopped and killed at once, and the
//! same check has to find overlaps. The kernel detects overlaps ([`section.sh`](self)), not a
//! clock.

mod lanes;
mod processes;
mod signals;
mod stalls;
mod strike;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use fastrand::Rng;
use redbolt_test_servers::{Server, servers};
use tempfile::TempDir;

use self::lanes::{SHOWN, end_of};
pub use self::signals::{SignalStorm, SignalStormResult};
use self::stalls::Watch;
use self::strike::Strikes;
use crate::stage::{Failure, RESOURCE, Stage};

/// Runs commands under a lock.
#[derive(Clone, Debug)]
pub struct Commands {
    /// The program `redbolt`.
    pub redbolt: PathBuf,
    /// The duration.
    pub lasts: Duration,
    /// The number of callers that compete for the lock.
    pub lanes: usize,
    /// True: stops and kills both processes of redbolt at once, and the run has to find commands
    /// that continue.
    pub both: bool,
}

/// The results of a run.
#[derive(Clone, Debug, Default)]
pub struct CommandsResult {
    /// Calls of `redbolt lock`.
    pub calls: usize,
    /// The number of times that a command held the lock.
    pub sections: usize,
    /// The number of times that each fault was injected.
    pub strikes: BTreeMap<&'static str, usize>,
    /// The ends of `redbolt`, as exit status or minus the signal, and how often each occurred.
    pub ends: BTreeMap<i32, usize>,
    /// Overlapping sections.
    pub overlaps: Vec<String>,
    /// Overlaps right after a stall: the redbolt processes that had to act may not have run
    /// in time.
    pub excused: Vec<String>,
    /// The longest time for which a thread that was ready to run on a certain processor did not
    /// run.
    pub longest_stall: Duration,
    /// The number of processes that were left at the end.
    pub left_behind: usize,
    /// The duration of the run.
    pub took: Duration,
    both: bool,
}

impl CommandsResult {
    /// Returns true if no sections overlapped; in the control, if the check found that some did.
    #[must_use]
    pub fn holds(&self) -> bool {
        let alone = self.overlaps.is_empty() && self.left_behind == 0;
        let lively = self.sections > 0 && !self.strikes.is_empty();
        let found = !self.overlaps.is_empty() || !self.excused.is_empty();
        lively && if self.both { found } else { alone }
    }

    fn add(&mut self, other: Self) {
        self.calls += other.calls;
        for (what, times) in other.strikes {
            *self.strikes.entry(what).or_default() += times;
        }
        for (end, times) in other.ends {
            *self.ends.entry(end).or_default() += times;
        }
    }
}

impl fmt::Display for CommandsResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let both = if self.both { ", both processes at once" } else { "" };
        write!(
            f,
            "commands{both}: {} calls of redbolt lock, {} sections; ",
            self.calls, self.sections
        )?;
        for (what, times) in &self.strikes {
            write!(f, "{what} {times} times, ")?;
        }
        f.write_str("ended with ")?;
        for (end, times) in &self.ends {
            write!(f, "{end} ({times}), ")?;
        }
        write!(f, "{} overlaps, {} left behind, ", self.overlaps.len(), self.left_behind)?;
        write!(f, "{} more right after a stall of the machine (", self.excused.len())?;
        write!(f, "the longest was {:.0?}), ", self.longest_stall)?;
        write!(f, "{:.1} s", self.took.as_secs_f64())?;
        let all = self.overlaps.iter().chain(&self.excused);
        all.take(SHOWN).try_for_each(|overlap| write!(f, "\n  {overlap}"))
    }
}

impl Commands {
    /// Runs the commands.
    ///
    /// # Errors
    ///
    /// Fails if a server, a process or a file failed, or an expected event did not happen in time.
    pub fn run(&self, stage: &Stage) -> Result<CommandsResult, Failure> {
        let start = Instant::now();
        let scene = Scene::new(self)?;
        let mut result = CommandsResult { both: self.both, ..CommandsResult::default() };
        let watch = Watch::begin()?;
        let until = start + self.lasts;
        for lane in lanes::run(self.lanes, stage.seed, |_, rng| scene.lane(rng, until))? {
            result.add(lane);
        }
        // The last calls end later than the run time.
        let stalls = watch.end()?;
        let home = scene.home.path();
        result.left_behind = lanes::left_behind(home);
        let overlaps = fs::read_to_string(home.join("overlaps")).unwrap_or_default();
        let overlaps = overlaps.lines().map(|line| scene.told(line));
        result.longest_stall = stalls.longest();
        (result.excused, result.overlaps) = overlaps.partition(|line| stalls.excuse(line));
        result.sections = lanes::sections(home)?;
        result.took = start.elapsed();
        Ok(result)
    }
}

struct Scene<'a> {
    of: &'a Commands,
    servers: Vec<Server>,
    home: TempDir,
    numbers: AtomicUsize,
    /// The faults of each call.
    stories: Mutex<BTreeMap<usize, String>>,
}

impl<'a> Scene<'a> {
    fn new(of: &'a Commands) -> Result<Self, Failure> {
        let servers = servers(3);
        let home = lanes::home_for(&servers, MAX_TTL)?;
        Ok(Self { of, servers, home, numbers: AtomicUsize::new(0), stories: Mutex::default() })
    }

    /// Makes one call after another, until the time has passed.
    fn lane(&self, mut rng: Rng, until: Instant) -> Result<CommandsResult, Failure> {
        let mut result = CommandsResult::default();
        while Instant::now() < until {
            let number = self.numbers.fetch_add(1, Ordering::Relaxed);
            let mut command = self.command(number, &mut rng);
            let words = format!("{:?}", command.get_args().collect::<Vec<_>>());
            let call = command.spawn()?;
            let ready = self.home.path().join(format!("ready-{number}"));
            let mut strikes =
                Strikes::plan(&mut rng, i32::try_from(call.id())?, ready, self.of.both);
            let status = lanes::end(call, &format!("call {number} of redbolt lock"), || {
                strikes.strike(&mut result.strikes);
            })?;
            let story = format!("{words}: {}, {}", strikes.end(), end_of(status));
            self.stories.lock().unwrap_or_else(PoisonError::into_inner).insert(number, story);
            result.calls += 1;
            *result.ends.entry(end_of(status)).or_default() += 1;
        }
        Ok(result)
    }

    fn command(&self, number: usize, rng: &mut Rng) -> Command {
        let mut command =
            lanes::command(&self.of.redbolt, &self.servers, MAX_TTL, self.home.path());
        let ttl = format!("{}ms", rng.u64(2000..4000));
        command.args(["lock", "--ttl", &ttl]);
        match rng.u8(0..4) {
            0 => drop(command.arg("--no-extend")),
            1 => drop(command.args(["--kill-after", "100ms"])),
            _ => {}
        }
        let longest = if self.of.both || rng.u8(0..8) == 0 { 4.0 } else { 0.6 };
        let stay = format!("{:.3}", rng.f64() * longest);
        let manner = if rng.bool() { "polite" } else { "stubborn" };
        let number = number.to_string();
        command.args([RESOURCE, "--", "sh", "section.sh", &number, &stay, manner]);
        command
    }

    /// Returns the report of a section that overlapped, with the faults of both calls.
    fn told(&self, line: &str) -> String {
        let stories = self.stories.lock().unwrap_or_else(PoisonError::into_inner);
        let numbers = line.split(' ').skip(1).filter_map(|word| word.parse().ok());
        let both = numbers
            .filter_map(|number: usize| Some(format!("{number}: {}", stories.get(&number)?)));
        format!("{line} ({})", both.collect::<Vec<_>>().join("; "))
    }
}

const MAX_TTL: Duration = Duration::from_secs(5);
