//! The times of a block of pairs.

use std::time::Duration;

/// The times of a block, in nanoseconds. The two lists have the same length.
#[derive(Clone, Debug, Default)]
pub struct Timings {
    /// From the start of each acquire to its end.
    pub acquire: Vec<u64>,
    /// From there to the end of the release.
    pub release: Vec<u64>,
    /// The usage of another process, if the block ran there. This process then only waited.
    pub outside: Option<Usage>,
}

/// The resource usage of a process during a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// CPU time of all threads, including system time.
    pub cpu: Duration,
    /// How often it slept.
    pub voluntary_switches: u64,
    /// How often it was preempted.
    pub involuntary_switches: u64,
    /// The number of allocations, if it can count them.
    pub allocations: Option<u64>,
    /// The bytes of these allocations.
    pub bytes: Option<u64>,
}

impl Usage {
    pub(super) fn plus(self, more: Self) -> Self {
        let sum = |own: Option<u64>, more| own.zip(more).map(|(own, more)| own + more);
        Self {
            cpu: self.cpu + more.cpu,
            voluntary_switches: self.voluntary_switches + more.voluntary_switches,
            involuntary_switches: self.involuntary_switches + more.involuntary_switches,
            allocations: sum(self.allocations, more.allocations),
            bytes: sum(self.bytes, more.bytes),
        }
    }
}

impl Timings {
    /// With room for this many pairs.
    #[must_use]
    pub fn with_room(pairs: usize) -> Self {
        let room = || Vec::with_capacity(pairs);
        Self { acquire: room(), release: room(), outside: None }
    }

    pub(super) fn push(&mut self, acquire: Duration, release: Duration) {
        self.acquire.push(acquire.as_nanos() as u64);
        self.release.push(release.as_nanos() as u64);
    }
}
