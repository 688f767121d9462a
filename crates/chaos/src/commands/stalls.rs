//! Moments at which the machine itself stood still. Then none of redbolt's processes runs, and nothing is promised.

use std::thread;
use std::time::{Duration, Instant};

use super::TICK;
use crate::clock::{Moment, now};

/// When the machine stood still, as a thread sees it that does nothing but sleep: from and to.
#[derive(Default)]
pub(super) struct Stalls(Vec<(Moment, Moment)>);

impl Stalls {
    /// Watches until then.
    pub(super) fn watch(until: Instant) -> Self {
        let mut stalls = Self::default();
        while Instant::now() < until {
            let from = now();
            thread::sleep(TICK);
            let to = now();
            if to.since(from) > UNUSED {
                stalls.0.push((from, to));
            }
        }
        stalls
    }

    pub(super) fn longest(&self) -> Duration {
        self.0.iter().map(|&(from, to)| to.since(from)).max().unwrap_or_default()
    }

    /// Whether what a section has noted, after the seconds since the start of the machine, came right behind one.
    pub(super) fn excuse(&self, line: &str) -> bool {
        let seconds = line.split(':').next().and_then(|seconds| seconds.parse().ok());
        let Some(at) = seconds.map(Duration::from_secs_f64) else { return false };
        let at = Moment(u64::try_from(at.as_nanos()).unwrap_or(u64::MAX));
        let is_behind = |&(from, to): &(Moment, Moment)| from <= at && at.since(to) < BEHIND;
        self.0.iter().any(is_behind)
    }
}

/// What redbolt leaves unused of these leases: who is later than that can be too late.
const UNUSED: Duration = Duration::from_millis(250);

/// What comes so soon behind a stall may come of it.
const BEHIND: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_comes_right_behind_a_stall_is_excused() {
        let moment = |ms: u64| Moment(ms * 1_000_000);
        let stalls = Stalls(vec![(moment(10_000), moment(13_000))]);
        let is_excused = |at: &str| stalls.excuse(&format!("{at}: 75 meets the command of 65"));
        assert!(is_excused("10.50") && is_excused("13.00") && is_excused("13.49"));
        assert!(!is_excused("9.99") && !is_excused("13.51") && !is_excused("nonsense"));
    }
}
