//! `redbolt lock` over and over, while its processes, the command and the command's children are
//! killed, stopped and terminated.
//!
//! As long as one of redbolt's two processes runs, no section may overlap with another command or
//! anything that it has started. In the control both are stopped and killed at once, and the same
//! check has to find overlaps. The kernel detects overlaps ([`section.sh`](self)), not a clock.

mod processes;
mod signals;
mod stalls;
mod strike;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use redbolt_test_servers::{Server, servers};
use rustix::process::Signal;
use tempfile::TempDir;

use self::processes::{in_folder, send};
pub use self::signals::{SignalStorm, SignalStormResult};
use self::stalls::Watch;
use self::strike::Strikes;
use crate::nodes::{self, LIMIT};
use crate::{Failure, RESOURCE, Stage};

/// Runs commands under a lock.
#[derive(Clone, Debug)]
pub struct Commands {
    /// The program `redbolt`.
    pub redbolt: PathBuf,
    /// The duration.
    pub lasts: Duration,
    /// How many callers compete for the lock.
    pub lanes: usize,
    /// Stop and kill both processes of redbolt at once: the run has to find commands that go on.
    pub both: bool,
}

/// The results of a run.
#[derive(Clone, Debug, Default)]
pub struct CommandsResult {
    /// Calls of `redbolt lock`.
    pub calls: usize,
    /// How often a command held the lock.
    pub sections: usize,
    /// How often each fault was injected.
    pub strikes: BTreeMap<&'static str, usize>,
    /// How `redbolt` ended: its exit status, or minus the signal; and how often.
    pub ends: BTreeMap<i32, usize>,
    /// Overlapping sections.
    pub overlaps: Vec<String>,
    /// Overlaps right after a stall: those of redbolt's processes that had to act may not have run in time.
    pub excused: Vec<String>,
    /// The longest time for which a thread that was ready to run on a certain processor did not.
    pub longest_stall: Duration,
    /// Processes that were left at the end.
    pub left_behind: usize,
    /// The duration of the run.
    pub took: Duration,
    both: bool,
}

impl CommandsResult {
    /// Whether no sections overlapped; in the control, whether the check found that some did.
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
    /// A server, a process or a file failed, or something did not happen in time.
    pub fn run(&self, stage: &Stage) -> Result<CommandsResult, Failure> {
        let start = Instant::now();
        let scene = Scene::new(self)?;
        let mut result = CommandsResult { both: self.both, ..CommandsResult::default() };
        let watch = Watch::begin()?;
        thread::scope(|scope| {
            let lane = |lane: usize| {
                let rng = Rng::with_seed(stage.seed.wrapping_add(lane as u64));
                let scene = &scene;
                scope.spawn(move || scene.lane(rng, start + self.lasts))
            };
            let lanes: Vec<_> = (0..self.lanes).map(lane).collect();
            for lane in lanes {
                result.add(lane.join().map_err(|_| "a lane has panicked")??);
            }
            Ok::<_, Failure>(())
        })?;
        // The last calls end later than the time is over.
        let stalls = watch.end()?;
        result.left_behind = scene.left_behind();
        let read = |file| fs::read_to_string(scene.home.path().join(file)).unwrap_or_default();
        result.longest_stall = stalls.longest();
        (result.excused, result.overlaps) = read("overlaps")
            .lines()
            .map(|line| scene.told(line))
            .partition(|line| stalls.excuse(line));
        result.sections = fs::read_dir(scene.home.path())?
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("ready-"))
            .count();
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
        let addresses = servers.iter().map(Server::address).collect();
        nodes::init(&nodes::part(addresses, MAX_TTL, true, "operator"))?;
        let home = TempDir::new()?;
        fs::write(home.path().join("section.sh"), SECTION)?;
        Ok(Self { of, servers, home, numbers: AtomicUsize::new(0), stories: Mutex::default() })
    }

    /// Runs one call after another, until the time is over.
    fn lane(&self, mut rng: Rng, until: Instant) -> Result<CommandsResult, Failure> {
        let mut result = CommandsResult::default();
        while Instant::now() < until {
            let number = self.numbers.fetch_add(1, Ordering::Relaxed);
            let mut command = self.command(number, &mut rng);
            let words = format!("{:?}", command.get_args().collect::<Vec<_>>());
            let mut call = command.spawn()?;
            let ready = self.home.path().join(format!("ready-{number}"));
            let mut strikes =
                Strikes::plan(&mut rng, i32::try_from(call.id())?, ready, self.of.both);
            let give_up = Instant::now() + LONGEST_CALL;
            let status = loop {
                if let Some(status) = call.try_wait()? {
                    break status;
                }
                strikes.strike(&mut result.strikes);
                if Instant::now() > give_up {
                    return Err(format!("call {number} of redbolt lock does not finish").into());
                }
                thread::sleep(TICK);
            };
            let story = format!("{words}: {}, {}", strikes.end(), end_of(status));
            self.stories.lock().unwrap_or_else(PoisonError::into_inner).insert(number, story);
            result.calls += 1;
            *result.ends.entry(end_of(status)).or_default() += 1;
        }
        Ok(result)
    }

    fn command(&self, number: usize, rng: &mut Rng) -> Command {
        let addresses: Vec<String> = self.servers.iter().map(Server::address).collect();
        let mut command = Command::new(&self.of.redbolt);
        command
            .env("REDBOLT_NODES", addresses.join(","))
            .env("REDBOLT_MAX_TTL", format!("{}ms", MAX_TTL.as_millis()))
            .current_dir(self.home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
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

    /// The report of a section that overlapped, with the faults of both calls.
    fn told(&self, line: &str) -> String {
        let stories = self.stories.lock().unwrap_or_else(PoisonError::into_inner);
        let numbers = line.split(' ').skip(1).filter_map(|word| word.parse().ok());
        let both = numbers
            .filter_map(|number: usize| Some(format!("{number}: {}", stories.get(&number)?)));
        format!("{line} ({})", both.collect::<Vec<_>>().join("; "))
    }

    /// How many processes are left. They are killed.
    fn left_behind(&self) -> usize {
        let Ok(folder) = self.home.path().canonicalize() else { return 0 };
        let until = Instant::now() + LIMIT;
        while !in_folder(&folder).is_empty() && Instant::now() < until {
            thread::sleep(Duration::from_millis(20));
        }
        let left = in_folder(&folder);
        left.iter().for_each(|&pid| send(pid, Signal::KILL));
        left.len()
    }
}

fn end_of(status: std::process::ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().or_else(|| status.signal().map(|signal| -signal)).unwrap_or(i32::MIN)
}

const TICK: Duration = Duration::from_millis(2);

const SECTION: &str = include_str!("section.sh");

const MAX_TTL: Duration = Duration::from_secs(5);

/// The most overlaps that a report shows.
const SHOWN: usize = 10;

/// Others may hold the lock before, each for some seconds.
const LONGEST_CALL: Duration = Duration::from_secs(120);
