//! Moments at which the machine itself stalled: a process that was ready to run did not. If it is one of redbolt's, or
//! one that redbolt has killed, exclusion is not promised.
//!
//! Each processor has a queue of its own, and on a busy machine one of them can stall for seconds beside another that
//! does not. A thread that may move to the other sees nothing of that, and a process that waits to die is stuck all the
//! same; so each processor is watched.

use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::TICK;
use crate::Failure;
use crate::clock::{Moment, now};

/// The stalls of the machine, from and to, as threads notice them that only sleep.
#[derive(Default)]
pub(super) struct Stalls(Vec<(Moment, Moment)>);

impl Stalls {
    /// Watches all processors until then.
    pub(super) fn watch(until: Instant) -> Result<Self, Failure> {
        let allowed = sched_getaffinity(None)?;
        let processors = (0..CpuSet::MAX_CPU).filter(|&processor| allowed.is_set(processor));
        let watch = |processor| thread::spawn(move || Self::watch_one(processor, until));
        let watches: Vec<_> = processors.map(watch).collect();
        let mut stalls = Self::default();
        for watch in watches {
            stalls.0.extend(watch.join().map_err(|_| "a watch has panicked")??.0);
        }
        Ok(stalls)
    }

    fn watch_one(processor: usize, until: Instant) -> Result<Self, Errno> {
        let mut only = CpuSet::new();
        only.set(processor);
        sched_setaffinity(None, &only)?;
        let mut stalls = Self::default();
        while Instant::now() < until {
            let from = now();
            thread::sleep(TICK);
            let to = now();
            if to.since(from) > UNUSED {
                stalls.0.push((from, to));
            }
        }
        Ok(stalls)
    }

    pub(super) fn longest(&self) -> Duration {
        self.0.iter().map(|&(from, to)| to.since(from)).max().unwrap_or_default()
    }

    /// Whether an overlap noted by a section, at its time since boot, came right after a stall.
    pub(super) fn excuse(&self, line: &str) -> bool {
        let seconds = line.split(':').next().and_then(|seconds| seconds.parse().ok());
        let Some(at) = seconds.map(Duration::from_secs_f64) else { return false };
        let at = Moment(u64::try_from(at.as_nanos()).unwrap_or(u64::MAX));
        let is_behind = |&(from, to): &(Moment, Moment)| from <= at && at.since(to) < BEHIND;
        self.0.iter().any(is_behind)
    }
}

/// The part of these leases that redbolt leaves unused: a process that is later than this can be
/// too late.
const UNUSED: Duration = Duration::from_millis(250);

/// An overlap this soon after a stall may be its consequence.
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
