//! Runs each test as a separate process, several at a time.
//!
//! Invariants: a test that counts or measures runs while no other test runs, and every test ends
//! within its limit.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use super::{
    freeze::Freezer,
    plan::{self, Weight},
    program::{Programs, Test},
};

/// The end of a test.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) test: Test,
    pub(crate) took: Duration,
    /// The processor time of the test and of the processes that it waited for.
    pub(crate) used: Duration,
    /// The reason why the test failed, and its output.
    pub(crate) failure: Option<(String, String)>,
    /// The attempts that were repeated because the machine stalled.
    pub(crate) repeats: Vec<String>,
}

/// A queue of tests, with the settings under which they run.
pub(crate) struct Queue<'a> {
    pub(crate) programs: &'a Programs,
    pub(crate) cores: usize,
    /// The directory of the tests' outputs.
    pub(crate) logs: &'a Path,
    pub(crate) limit: Duration,
    /// The freezer of tests, under stress.
    pub(crate) freezer: Option<Freezer>,
    /// A function that is called with the full name of each test that has ended.
    pub(crate) report: &'a (dyn Fn(&str, &Outcome) + Sync),
}

/// The tests that have not started, and the room for them.
struct State {
    /// The tests that have not started, the next one last.
    waits: Vec<Test>,
    computes: Vec<Test>,
    /// The units that waiting tests still may take, and the computing tests that still may start.
    units: usize,
    slots: usize,
}

impl Queue<'_> {
    /// Runs all tests except those that must run alone, the longest first.
    pub(crate) fn run(&self, tests: Vec<Test>) -> Vec<Outcome> {
        let (mut computes, mut waits): (Vec<_>, Vec<_>) =
            tests.into_iter().partition(|test| test.weight == Weight::Computes);
        computes.reverse();
        waits.reverse();
        let units = plan::UNITS_OF_A_CORE * self.cores;
        let slots = if waits.is_empty() { self.cores } else { self.slots_beside_waits() };
        let state = Mutex::new(State { waits, computes, units, slots });
        let (changed, outcomes) = (Condvar::new(), Mutex::new(Vec::new()));
        thread::scope(|scope| {
            for _ in 0..units + self.cores {
                scope.spawn(|| {
                    while let Some(test) = self.next(&state, &changed) {
                        let outcome = self.run_one(&test);
                        let mut state = lock(&state);
                        state.give_back(&test);
                        changed.notify_all();
                        drop(state);
                        (self.report)(&self.programs.name_of(&outcome.test), &outcome);
                        lock(&outcomes).push(outcome);
                    }
                });
            }
        });
        outcomes.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs tests one after the other.
    pub(crate) fn run_alone(&self, tests: &[Test]) -> Vec<Outcome> {
        let run = |test| {
            let outcome = self.run_one(test);
            (self.report)(&self.programs.name_of(&outcome.test), &outcome);
            outcome
        };
        tests.iter().map(run).collect()
    }

    /// Returns the slots that waiting tests leave, which need some processor time too.
    fn slots_beside_waits(&self) -> usize {
        (self.cores / 2).max(1)
    }

    /// Returns the next test that there is room for; `None` when all have started.
    fn next(&self, state: &Mutex<State>, changed: &Condvar) -> Option<Test> {
        let mut state = lock(state);
        loop {
            if state.waits.is_empty() && state.computes.is_empty() {
                return None;
            }
            if let Some(test) = state.take(self.cores, self.slots_beside_waits()) {
                return Some(test);
            }
            state = changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn run_one(&self, test: &Test) -> Outcome {
        repeat_if_stalled(|| self.attempt(test))
    }

    /// Runs a test once. Also returns the longest time for which this process did not run
    /// meanwhile.
    fn attempt(&self, test: &Test) -> (Outcome, Duration) {
        let log = self.logs.join(file_name(&self.programs.name_of(test)));
        let start = Instant::now();
        let (ended, gap) = match self.end_of(self.programs.command_of(test), &log) {
            Ok((end, gap)) => (Ok(end), gap),
            Err(error) => (Err(error), Duration::ZERO),
        };
        let took = start.elapsed();
        let used = match ended {
            Ok(End::Exit(_, used)) => used,
            _ => Duration::ZERO,
        };
        let text = String::from_utf8_lossy(&fs::read(&log).unwrap_or_default()).into_owned();
        let repeats = text.lines().filter(|line| line.starts_with(INCONCLUSIVE));
        let repeats = repeats.map(str::to_owned).collect();
        let failure = match ended {
            Ok(End::Exit(status, _)) if status.success() => None,
            Ok(End::Exit(status, _)) => Some((status.to_string(), text)),
            Ok(End::Overdue) => Some((format!("not finished within {:?}", self.limit), text)),
            Err(error) => Some((error.to_string(), text)),
        };
        if failure.is_none() {
            // A file that stays is overwritten by the next run.
            let _ = fs::remove_file(&log);
        }
        (Outcome { test: test.clone(), took, used, failure, repeats }, gap)
    }

    fn end_of(&self, mut command: Command, log: &Path) -> io::Result<(End, Duration)> {
        let output = File::create(log)?;
        command.stdout(output.try_clone()?).stderr(output);
        let mut child = command.spawn()?;
        let mut freezes = self.freezer.as_ref().map(|freezer| freezer.of(log));
        let until = Instant::now() + self.limit;
        let mut pause = Duration::from_millis(1);
        let (mut seen, mut gap) = (Instant::now(), Duration::ZERO);
        while Instant::now() < until {
            gap = gap.max(seen.elapsed());
            seen = Instant::now();
            if has_ended(&child) {
                let used = processor_time(child.id());
                return Ok((End::Exit(child.wait()?, used), gap));
            }
            if let Some(freezes) = &mut freezes {
                freezes.freeze_if_due(child.id());
            }
            thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        kill(&mut child)?;
        Ok((End::Overdue, gap))
    }
}

/// Runs a test, and repeats it if it failed while the machine stalled for longer than tests allow
/// for.
///
/// Tests of TTLs repeat themselves after shorter stalls (`redbolt_test_servers::on_a_real_clock`).
/// This is for all others, whose waits are bounded too: a stall of a minute fails every wait that
/// is pending.
fn repeat_if_stalled(mut attempt: impl FnMut() -> (Outcome, Duration)) -> Outcome {
    let mut stalls = Vec::new();
    loop {
        let (mut outcome, gap) = attempt();
        let is_inconclusive = outcome.failure.is_some() && gap > LONGEST_STALL;
        if !is_inconclusive || stalls.len() + 1 == ATTEMPTS {
            outcome.repeats.append(&mut stalls);
            return outcome;
        }
        let number = stalls.len() + 1;
        stalls
            .push(format!("{INCONCLUSIVE}attempt {number} of {ATTEMPTS}, no test ran for {gap:?}"));
    }
}

const ATTEMPTS: usize = 5;

/// The longest stall that tests allow for: a third of the shortest time within which a test expects
/// a machine to answer.
const LONGEST_STALL: Duration = Duration::from_secs(5);

impl State {
    fn take(&mut self, cores: usize, beside_waits: usize) -> Option<Test> {
        if self.slots > 0
            && let Some(test) = self.computes.pop()
        {
            self.slots -= 1;
            return Some(test);
        }
        let fits = self.waits.last().is_some_and(|test| test.weight.units() <= self.units);
        let test = fits.then(|| self.waits.pop()).flatten()?;
        self.units -= test.weight.units();
        if self.waits.is_empty() {
            // All waiting tests have started: computing tests get all cores.
            self.slots += cores - beside_waits;
        }
        Some(test)
    }

    fn give_back(&mut self, test: &Test) {
        match test.weight {
            Weight::Computes => self.slots += 1,
            weight => self.units += weight.units(),
        }
    }
}

enum End {
    Exit(ExitStatus, Duration),
    Overdue,
}

/// Returns `true` if the child has ended, without reaping it, so that its processor time can still
/// be read.
fn has_ended(child: &Child) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::Pid(Pid::from_child(child)), options), Ok(None))
}

/// Returns the processor time of an ended process that is not reaped yet; zero on other systems
/// than Linux.
fn processor_time(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_ascii_whitespace();
    // These are utime, stime, cutime and cstime.
    let ticks: u64 = fields.skip(11).take(4).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 1_000 / TICKS_PER_SECOND)
}

/// The value of `USER_HZ`, which is the same on all machines that Rust runs on.
const TICKS_PER_SECOND: u64 = 100;

/// Kills a test, which takes its servers with it.
fn kill(child: &mut Child) -> io::Result<()> {
    child.kill()?;
    child.wait().map(drop)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn file_name(name: &str) -> PathBuf {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    PathBuf::from(name.chars().map(plain).collect::<String>()).with_extension("log")
}

/// The beginning of the line that a test prints when it repeats an attempt because the machine
/// stalled. `redbolt_test_servers::on_a_real_clock` prints it.
const INCONCLUSIVE: &str = "inconclusive: ";

/// The longest delay until the end of a test is noticed.
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn test(weight: Weight) -> Test {
        Test { program: 0, name: Some(format!("{weight:?}")), ignored: false, weight }
    }

    fn state(waits: &[Weight], computes: usize) -> State {
        State {
            waits: waits.iter().map(|weight| test(*weight)).collect(),
            computes: vec![test(Weight::Computes); computes],
            units: 4,
            slots: 1,
        }
    }

    fn outcome(failure: Option<&str>) -> Outcome {
        Outcome {
            test: test(Weight::Waits),
            took: Duration::ZERO,
            used: Duration::ZERO,
            failure: failure.map(|why| (why.to_owned(), String::new())),
            repeats: Vec::new(),
        }
    }

    #[test]
    fn a_test_that_fails_in_a_stall_is_repeated_and_the_repeat_is_reported() {
        let attempts = [(Some("not within 60s"), LONGEST_STALL * 2), (None, Duration::ZERO)];
        let mut attempts = attempts.into_iter().map(|(failure, gap)| (outcome(failure), gap));
        let ended = repeat_if_stalled(|| attempts.next().unwrap());
        assert!(ended.failure.is_none());
        assert_eq!(ended.repeats, ["inconclusive: attempt 1 of 5, no test ran for 10s"]);
    }

    #[test]
    fn a_test_that_fails_without_a_stall_has_failed() {
        let mut attempts = 0;
        let ended = repeat_if_stalled(|| {
            attempts += 1;
            (outcome(Some("wrong")), LONGEST_STALL)
        });
        assert!(ended.failure.is_some() && ended.repeats.is_empty());
        assert_eq!(attempts, 1);
    }

    #[test]
    fn five_attempts_in_stalls_are_a_failure() {
        let mut attempts = 0;
        let ended = repeat_if_stalled(|| {
            attempts += 1;
            (outcome(Some("not within 60s")), LONGEST_STALL * 2)
        });
        assert!(ended.failure.is_some());
        assert_eq!((attempts, ended.repeats.len()), (ATTEMPTS, ATTEMPTS - 1));
    }

    #[test]
    fn computing_tests_get_the_cores_that_waiting_tests_leave() {
        let mut state = state(&[Weight::Waits], 3);
        let first = [(); 3].map(|()| state.take(2, 1).map(|test| test.weight));
        assert_eq!(first, [Some(Weight::Computes), Some(Weight::Waits), Some(Weight::Computes)]);
        assert!(state.take(2, 1).is_none());
        state.give_back(&test(Weight::Computes));
        assert_eq!(state.take(2, 1).map(|test| test.weight), Some(Weight::Computes));
    }

    #[test]
    fn a_test_starts_only_when_its_share_is_free() {
        let mut state = state(&[Weight::Mixed, Weight::Waits], 0);
        assert_eq!(state.take(2, 1).map(|test| test.weight), Some(Weight::Waits));
        assert!(state.take(2, 1).is_none(), "3 of 4 units are left");
        state.give_back(&test(Weight::Waits));
        assert_eq!(state.take(2, 1).map(|test| test.weight), Some(Weight::Mixed));
    }
}
