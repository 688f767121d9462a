//! `redbolt lock`, `lead` and `acquire` over and over, while every signal is sent to their
//! processes, to their group and to all processes that they have started.
//!
//! SIGKILL and SIGSTOP go to only one of the two redbolt processes. Then no section may overlap
//! with another one, and no failed `acquire` may leave a lock behind. In the control both processes
//! are killed, and the same check has to find overlaps.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use redbolt_test_servers::{Reply, Server, servers, until};
use rustix::process::{Pid, Signal, kill_process_group};
use rustix_libc_wrappers::process::SignalExt;
use tempfile::TempDir;

use super::lanes::{self, SHOWN, end_of};
use super::processes::{in_folder, inner_of, send};
use super::stalls::Watch;
use crate::stage::{Failure, RESOURCE, Stage};

/// Runs commands under locks, and sends signals.
#[derive(Clone, Debug)]
pub struct SignalStorm {
    /// The program `redbolt`.
    pub redbolt: PathBuf,
    /// The duration.
    pub lasts: Duration,
    /// The number of callers that compete for the lock.
    pub lanes: usize,
    /// True: kills both processes of redbolt at once, and the run has to find commands that
    /// continue.
    pub both: bool,
}

/// The results of a run.
#[derive(Clone, Debug, Default)]
pub struct SignalStormResult {
    /// The number of calls of each subcommand.
    pub calls: BTreeMap<&'static str, usize>,
    /// The number of times that a command held the lock.
    pub sections: usize,
    /// The number of times that each signal was sent, by its number.
    pub sent: BTreeMap<i32, usize>,
    /// The ends of `redbolt`, as exit status or minus the signal, and how often each occurred.
    pub ends: BTreeMap<i32, usize>,
    /// Overlapping sections.
    pub overlaps: Vec<String>,
    /// Overlaps right after a stall of the machine.
    pub excused: Vec<String>,
    /// Locks that were taken after a failed `acquire`, or after a successful release.
    pub locks_left: Vec<String>,
    /// The number of processes that were left at the end.
    pub left_behind: usize,
    /// The duration of the run.
    pub took: Duration,
    both: bool,
}

impl SignalStormResult {
    /// Returns true if no sections overlapped and no lock was left behind; in the control, if the
    /// check found overlaps.
    #[must_use]
    pub fn holds(&self) -> bool {
        let is_lively = self.sections > 0 && !self.sent.is_empty();
        let found = self.overlaps.len() + self.excused.len();
        let is_clean =
            self.overlaps.is_empty() && self.locks_left.is_empty() && self.left_behind == 0;
        is_lively && if self.both { found > 0 } else { is_clean }
    }

    fn add(&mut self, other: Self) {
        for (what, times) in other.calls {
            *self.calls.entry(what).or_default() += times;
        }
        for (signal, times) in other.sent {
            *self.sent.entry(signal).or_default() += times;
        }
        for (end, times) in other.ends {
            *self.ends.entry(end).or_default() += times;
        }
        self.locks_left.extend(other.locks_left);
    }
}

impl fmt::Display for SignalStormResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.both { "signals, both processes killed: " } else { "signals: " })?;
        for (what, times) in &self.calls {
            write!(f, "{times} calls of {what}, ")?;
        }
        let sent: usize = self.sent.values().sum();
        write!(f, "{} sections, {sent} signals of {} kinds, ", self.sections, self.sent.len())?;
        f.write_str("ended with ")?;
        for (end, times) in &self.ends {
            write!(f, "{end} ({times}), ")?;
        }
        write!(f, "{} overlaps, {} locks and ", self.overlaps.len(), self.locks_left.len())?;
        write!(f, "{} processes left behind, ", self.left_behind)?;
        write!(f, "{} overlaps right after a stall, ", self.excused.len())?;
        write!(f, "{:.1} s", self.took.as_secs_f64())?;
        let all = self.overlaps.iter().chain(&self.excused).chain(&self.locks_left);
        all.take(SHOWN).try_for_each(|line| write!(f, "\n  {line}"))
    }
}

impl SignalStorm {
    /// Runs the commands.
    ///
    /// # Errors
    ///
    /// Fails if a server, a process or a file failed, or an expected event did not happen in time.
    pub fn run(&self, stage: &Stage) -> Result<SignalStormResult, Failure> {
        let start = Instant::now();
        let scene = Scene::new(self)?;
        let mut result = SignalStormResult { both: self.both, ..SignalStormResult::default() };
        let watch = Watch::begin()?;
        let until = start + self.lasts;
        for lane in lanes::run(self.lanes, stage.seed, |lane, rng| scene.lane(lane, rng, until))? {
            result.add(lane);
        }
        let stalls = watch.end()?;
        let home = scene.home.path();
        result.left_behind = lanes::left_behind(home);
        let overlaps = fs::read_to_string(home.join("overlaps")).unwrap_or_default();
        let overlaps = overlaps.lines().map(str::to_owned);
        (result.excused, result.overlaps) = overlaps.partition(|line| stalls.excuse(line));
        result.sections = lanes::sections(home)?;
        result.took = start.elapsed();
        Ok(result)
    }
}

struct Scene<'a> {
    of: &'a SignalStorm,
    servers: Vec<Server>,
    home: TempDir,
    numbers: AtomicUsize,
}

impl<'a> Scene<'a> {
    fn new(of: &'a SignalStorm) -> Result<Self, Failure> {
        let servers = servers(3);
        let home = lanes::home_for(&servers, MAX_TTL)?;
        Ok(Self { of, servers, home, numbers: AtomicUsize::new(0) })
    }

    /// Makes one call after another, until the time has passed.
    fn lane(
        &self,
        lane: usize,
        mut rng: Rng,
        until: Instant,
    ) -> Result<SignalStormResult, Failure> {
        let mut result = SignalStormResult::default();
        while Instant::now() < until {
            match rng.u8(0..4) {
                0 if !self.of.both => self.take(lane, &mut rng, &mut result)?,
                1 => self.hold("lead", &mut rng, &mut result)?,
                _ => self.hold("lock", &mut rng, &mut result)?,
            }
        }
        Ok(result)
    }

    /// Runs a command under a lock for which all lanes compete.
    fn hold(
        &self,
        word: &'static str,
        rng: &mut Rng,
        result: &mut SignalStormResult,
    ) -> Result<(), Failure> {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed).to_string();
        let ttl = format!("{}ms", rng.u64(2000..4000));
        let longest = if self.of.both { 4.0 } else { 1.0 };
        let stay = format!("{:.3}", rng.f64() * longest);
        let manner = if rng.bool() { "polite" } else { "stubborn" };
        let section = ["sh", "section.sh", &number, &stay, manner];
        let words = [&[word, "--ttl", &ttl, RESOURCE, "--"], &section[..]].concat();
        let bolts = match self.of.both {
            true => Bolts::at_both(rng, self.home.path().join(format!("ready-{number}"))),
            false => Bolts::of_a_pair(rng),
        };
        self.call(word, &words, bolts, result).map(drop)
    }

    /// Takes and releases a lock of this lane only, and checks that none is left behind.
    fn take(
        &self,
        lane: usize,
        rng: &mut Rng,
        result: &mut SignalStormResult,
    ) -> Result<(), Failure> {
        let (key, file) = (format!("taken-{lane}"), format!("token-{lane}"));
        let words = ["acquire", "--ttl", "10s", "--token-file", &file, &key];
        let taken = self.call("acquire", &words, Bolts::of_one(rng), result)?;
        if taken.success() {
            let words = ["release", "--token-file", &file];
            if !self.call("release", &words, Bolts::of_one(rng), result)?.success() {
                self.call("release", &words, Bolts::default(), result)?;
            }
        }
        let is_held = || self.servers.iter().any(|node| self.has(node, &key));
        if until("the lock is free", SOON, || !is_held()).is_err() {
            result.locks_left.push(format!("{key}: acquire has ended with {}", end_of(taken)));
        }
        let _ = fs::remove_file(self.home.path().join(file));
        Ok(())
    }

    fn has(&self, node: &Server, key: &str) -> bool {
        node.cmd(&format!("EXISTS {key}")) != Reply::Int(0)
    }

    fn call(
        &self,
        what: &'static str,
        words: &[&str],
        mut bolts: Bolts,
        result: &mut SignalStormResult,
    ) -> Result<ExitStatus, Failure> {
        let home = self.home.path();
        let mut command = lanes::command(&self.of.redbolt, &self.servers, MAX_TTL, home);
        command.args(words).env("SIGNALS", handled()).process_group(0);
        let call = command.spawn()?;
        let outer = i32::try_from(call.id())?;
        let status = lanes::end(call, &format!("redbolt {words:?}"), || {
            bolts.strike(outer, home, &mut result.sent);
        })?;
        *result.calls.entry(what).or_default() += 1;
        *result.ends.entry(end_of(status)).or_default() += 1;
        Ok(status)
    }
}

/// The signals that hit one call.
#[derive(Debug, Default)]
struct Bolts {
    planned: Vec<(Instant, Target, Signal)>,
    /// The control: the file that shows that the command holds the lock, and the time after which
    /// both processes are killed.
    both: Option<(PathBuf, Duration)>,
}

#[derive(Clone, Copy, Debug)]
enum Target {
    Outer,
    Inner,
    /// Each of the two, separately.
    Pair,
    Group,
    /// All processes of all calls, with their commands.
    All,
}

impl Bolts {
    /// Plans signals for `redbolt lock`. A call with SIGKILL or SIGSTOP has no other signals that
    /// stop a process, so that one of the two runs.
    fn of_a_pair(rng: &mut Rng) -> Self {
        let mut bolts = Self::default();
        if rng.u8(0..3) == 0 {
            let victim = if rng.bool() { Target::Outer } else { Target::Inner };
            match rng.bool() {
                true => bolts.plan(rng, victim, Signal::KILL),
                false => bolts.stop(rng, victim, Signal::STOP),
            }
        } else if rng.bool() {
            let signal = STOPS[rng.usize(..STOPS.len())];
            let target = target(rng);
            bolts.stop(rng, target, signal);
        }
        for _ in 0..rng.usize(0..12) {
            let target = if rng.u8(0..16) == 0 { Target::All } else { target(rng) };
            let signal = any_signal(rng);
            bolts.plan(rng, target, signal);
        }
        bolts
    }

    /// Plans signals for a call of one process.
    fn of_one(rng: &mut Rng) -> Self {
        let mut bolts = Self::default();
        for _ in 0..rng.usize(0..6) {
            let signal = any_signal(rng);
            let at = Instant::now() + Duration::from_micros(rng.u64(0..30_000));
            bolts.planned.push((at, Target::Outer, signal));
        }
        bolts
    }

    fn at_both(rng: &mut Rng, ready: PathBuf) -> Self {
        let after = Duration::from_millis(rng.u64(0..600));
        Self { planned: Vec::new(), both: Some((ready, after)) }
    }

    fn plan(&mut self, rng: &mut Rng, target: Target, signal: Signal) {
        let at = Instant::now() + Duration::from_millis(rng.u64(0..1200));
        self.planned.push((at, target, signal));
    }

    /// Plans a stop, and its end: within the lease, or after it.
    fn stop(&mut self, rng: &mut Rng, target: Target, signal: Signal) {
        let at = Instant::now() + Duration::from_millis(rng.u64(0..1200));
        let end = at + Duration::from_millis(rng.u64(1..5000));
        self.planned.extend([(at, target, signal), (end, Target::Group, Signal::CONT)]);
    }

    /// Sends the signals that are due.
    fn strike(&mut self, outer: i32, folder: &Path, sent: &mut BTreeMap<i32, usize>) {
        let now = Instant::now();
        if let Some((_, after)) = self.both.take_if(|(ready, _)| ready.exists()) {
            self.planned.push((now + after, Target::Pair, Signal::STOP));
            self.planned.push((now + after, Target::Pair, Signal::KILL));
        }
        for (_, target, signal) in self.planned.extract_if(.., |(at, ..)| *at <= now) {
            hit(outer, folder, target, signal);
            *sent.entry(signal.as_raw()).or_default() += 1;
        }
    }
}

fn hit(outer: i32, folder: &Path, target: Target, signal: Signal) {
    let inner = || inner_of(outer);
    match target {
        Target::Outer => send(outer, signal),
        Target::Inner => inner().into_iter().for_each(|pid| send(pid, signal)),
        Target::Pair => {
            [Some(outer), inner()].into_iter().flatten().for_each(|pid| send(pid, signal));
        }
        Target::Group => {
            let _ = Pid::from_raw(outer).map(|group| kill_process_group(group, signal));
        }
        Target::All => in_folder(folder).into_iter().for_each(|pid| send(pid, signal)),
    }
}

fn target(rng: &mut Rng) -> Target {
    [Target::Outer, Target::Inner, Target::Pair, Target::Group][rng.usize(..4)]
}

/// Returns every signal that a program can block. 32 and 33 belong to the C library.
fn blockable() -> impl Iterator<Item = Signal> {
    let is_apart = |signal: &Signal| [Signal::KILL, Signal::STOP].contains(signal);
    (1..=64).filter_map(Signal::from_raw).filter(move |signal| !is_apart(signal))
}

fn any_signal(rng: &mut Rng) -> Signal {
    let signals: Vec<_> = blockable().filter(|signal| !STOPS.contains(signal)).collect();
    signals[rng.usize(..signals.len())]
}

/// Returns the numbers of the signals that a section handles or ignores: a shell that dies of one
/// leaves its children running.
fn handled() -> String {
    let is_apart = |signal: &Signal| [Signal::CHILD, Signal::CONT].contains(signal);
    let handled = blockable().filter(|signal| !is_apart(signal) && !STOPS.contains(signal));
    handled.map(|signal| signal.as_raw().to_string()).collect::<Vec<_>>().join(" ")
}

/// The signals that stop a program, unless it handles them.
const STOPS: [Signal; 3] = [Signal::TSTP, Signal::TTIN, Signal::TTOU];

/// The `max_ttl` that leaders need.
const MAX_TTL: Duration = Duration::from_secs(11);

/// A time far longer than a release takes on a busy machine, and far shorter than a lease.
const SOON: Duration = Duration::from_millis(1500);
