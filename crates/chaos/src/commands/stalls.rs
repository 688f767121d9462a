//! Moments at which the machine itself stalled: a process that was ready to run did not. If it is
//! one of redbolt's, or one that redbolt has killed, exclusion is not promised.
//!
//! Each processor has its own queue, and on a busy machine one of them can stall for seconds while
//! another does not. A thread that may move to the other does not notice this, but a process that
//! waits to die is stuck all the same; so each processor is watched.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::clock::{Moment, now};
use crate::stage::Failure;

/// The stalls of the machine, from and to, as sleeping threads notice them.
#[derive(Default)]
pub(super) struct Stalls(Vec<(Moment, Moment)>);

/// A watch of all processors, until it is dropped.
pub(super) struct Watch {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<Stalls, Errno>>>,
}

impl Watch {
    pub(super) fn begin() -> Result<Self, Failure> {
        let is_over = Arc::<AtomicBool>::default();
        let allowed = sched_getaffinity(None)?;
        let processors = (0..CpuSet::MAX_CPU).filter(|&processor| allowed.is_set(processor));
        let watch = |processor| {
            let is_over = Arc::clone(&is_over);
            thread::spawn(move || Stalls::of(processor, &is_over))
        };
        let threads = processors.map(watch).collect();
        Ok(Self { is_over, threads })
    }

    pub(super) fn end(mut self) -> Result<Stalls, Failure> {
        self.is_over.store(true, Ordering::Relaxed);
        let mut stalls = Stalls::default();
        for thread in self.threads.drain(..) {
            stalls.0.extend(thread.join().map_err(|_| "a watch has panicked")??.0);
        }
        Ok(stalls)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

impl Stalls {
    fn of(processor: usize, is_over: &AtomicBool) -> Result<Self, Errno> {
        let mut only = CpuSet::new();
        only.set(processor);
        sched_setaffinity(None, &only)?;
        let mut stalls = Self::default();
        while !is_over.load(Ordering::Relaxed) {
            let from = now();
            thread::sleep(TICK);
            let to = now();
            if to.since(from) > UNUSED / IN_A_ROW {
                stalls.0.push((from, to));
            }
        }
        Ok(stalls)
    }

    pub(super) fn longest(&self) -> Duration {
        self.0.iter().map(|&(from, to)| to.since(from)).max().unwrap_or_default()
    }

    /// Returns true if an overlap noted by a section, at its time since boot, came right after a
    /// stall.
    pub(super) fn excuse(&self, line: &str) -> bool {
        let seconds = line.split(':').next().and_then(|seconds| seconds.parse().ok());
        let Some(at) = seconds.map(Duration::from_secs_f64) else { return false };
        let at = Moment(u64::try_from(at.as_nanos()).unwrap_or(u64::MAX));
        let is_behind = |&(from, to): &(Moment, Moment)| from <= at && at.since(to) < BEHIND;
        self.0.iter().any(is_behind)
    }
}

/// The time for which the watch sleeps at a time.
const TICK: Duration = Duration::from_millis(2);

/// The part of these leases that redbolt leaves unused: a process that is later than this can be
/// too late.
const UNUSED: Duration = Duration::from_millis(250);

/// The number of processes that may each have delayed the next: redbolt, the process that it kills,
/// and the kernel's work for it.
const IN_A_ROW: u32 = 3;

/// The time after a stall within which an overlap may be its consequence.
const BEHIND: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_overlaps_right_after_a_stall_are_excused() {
        let moment = |ms: u64| Moment(ms * 1_000_000);
        let stalls = Stalls(vec![(moment(10_000), moment(13_000))]);
        let is_excused = |at: &str| stalls.excuse(&format!("{at}: 75 meets the command of 65"));
        assert!(is_excused("10.50") && is_excused("13.00") && is_excused("13.49"));
        assert!(!is_excused("9.99") && !is_excused("13.51") && !is_excused("nonsense"));
    }
}
