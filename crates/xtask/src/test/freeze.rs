//! Freezes processes of tests.

use std::{
    collections::BTreeMap,
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

/// A source of freezes for processes of tests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Freezer {
    pub(super) seed: u64,
}

impl Freezer {
    /// Returns the freezes of one test: the same ones in each round with this seed.
    pub(crate) fn of(&self, test: &Path) -> Freezes {
        let mut hasher = DefaultHasher::new();
        (self.seed, test.file_name()).hash(&mut hasher);
        let mut random = fastrand::Rng::with_seed(hasher.finish());
        let next = Instant::now() + Duration::from_millis(random.u64(FIRST_FREEZE_MS));
        Freezes { random, next }
    }
}

/// The next times at which processes of one test are frozen, and a choice of them.
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

/// Returns the process and all its descendants.
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

/// Sends a signal. A process that has ended meanwhile is skipped.
pub(crate) fn signal(pids: &[u32], signal: Signal) {
    let known = pids.iter().filter_map(|&pid| Pid::from_raw(pid.try_into().ok()?));
    for pid in known {
        let _ = kill_process(pid, signal);
    }
}

const SERVERS: [&str; 3] = ["redis-server", "valkey-server", "redis-sentinel"];
const FIRST_FREEZE_MS: std::ops::Range<u64> = 20..6_000;
const FREEZE_MS: std::ops::RangeInclusive<u64> = 1_000..=3_000;
const BETWEEN_FREEZES_MS: std::ops::Range<u64> = 4_000..20_000;

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_test_is_frozen_at_the_same_times_in_each_round_with_one_seed() {
        let freezer = Freezer { seed: 7 };
        let drawn = || freezer.of(Path::new("a.log")).random.u64(..);
        assert_eq!(drawn(), drawn());
        assert_ne!(drawn(), freezer.of(Path::new("b.log")).random.u64(..));
    }

    #[test]
    fn a_frozen_test_continues() {
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
