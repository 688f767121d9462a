//! The measurement: contenders take turns in rounds, so that disturbances of the machine affect all
//! of them.
//!
//! A round runs the contenders in order and then in reverse order (ABBA), each for a block of
//! pairs. Ratios are computed within a round, so a slow second affects one round, not one
//! contender. A contender that fails is out, and the others continue.

use std::time::Duration;

use anyhow::{Context, Error, Result};
use hdrhistogram::Histogram;

use crate::contender::{Contender, Timings};
use crate::stats::{histogram, usage, usage_since};

/// The extent of the measurement.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The number of rounds, each of two blocks for each contender.
    pub rounds: usize,
    /// The number of pairs of acquire and release in a block.
    pub block: usize,
    /// The time limit of a block: a slow contender has fewer pairs in it.
    pub block_time: Duration,
    /// The number of blocks before the measurement.
    pub warm_up: usize,
}

/// The figures of a contender. All times are in nanoseconds.
#[derive(Clone, Debug)]
pub struct Figures {
    /// The time from the start of the acquire to the end of the release.
    pub pair: Histogram<u64>,
    /// The acquire alone.
    pub acquire: Histogram<u64>,
    /// The release alone.
    pub release: Histogram<u64>,
    /// The median pair of each round.
    pub p50s: Vec<u64>,
    /// The 99th percentile of the pair in each round.
    pub p99s: Vec<u64>,
    /// The mean CPU time of a pair in each round, of the client's process.
    pub cpu: Vec<u64>,
    /// The number of times that the client's process was switched out, in all.
    pub switches: u64,
    /// The time of all pairs.
    pub total: Duration,
}

/// A contender's name, and its figures or its error.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Its name.
    pub name: &'static str,
    /// The figures, or the error.
    pub figures: Result<Figures, String>,
}

/// Runs the plan with the contenders that could be started. The outcomes are in the order of the
/// contenders.
///
/// # Errors
///
/// There is no memory for the figures.
pub fn run(
    contenders: Vec<(&'static str, Result<Box<dyn Contender>>)>,
    plan: Plan,
    mut progress: impl FnMut(),
) -> Result<Vec<Outcome>> {
    let mut unused = Measure::new()?;
    let mut all = Vec::new();
    for (name, started) in contenders {
        let mut competitor =
            Competitor { name, state: started.map_err(words), measure: Measure::new()? };
        competitor.turn(|contender, _| {
            let mut warm_up = || unused.block(contender, plan);
            (0..plan.warm_up).try_for_each(|_| warm_up()).context("warming up")
        });
        all.push(competitor);
    }
    for _ in 0..plan.rounds {
        let there = 0..all.len();
        for at in there.clone().chain(there.rev()) {
            all[at].turn(|contender, measure| measure.block(contender, plan));
        }
        all.iter_mut().for_each(|competitor| competitor.turn(|_, measure| measure.end_round()));
        progress();
    }
    Ok(all.into_iter().map(Competitor::outcome).collect())
}

/// A contender that takes part, or the error that ended it.
struct Competitor {
    name: &'static str,
    state: Result<Box<dyn Contender>, String>,
    measure: Measure,
}

impl Competitor {
    fn turn(&mut self, take: impl FnOnce(&mut dyn Contender, &mut Measure) -> Result<()>) {
        let Ok(contender) = &mut self.state else { return };
        if let Err(error) = take(&mut **contender, &mut self.measure) {
            self.state = Err(words(error));
        }
    }

    fn outcome(self) -> Outcome {
        Outcome { name: self.name, figures: self.state.map(|_| self.measure.figures) }
    }
}

/// The figures so far, and the present round.
struct Measure {
    figures: Figures,
    round: Histogram<u64>,
    cpu: Duration,
    timings: Timings,
}

impl Measure {
    fn new() -> Result<Self> {
        let figures = Figures {
            pair: histogram()?,
            acquire: histogram()?,
            release: histogram()?,
            p50s: Vec::new(),
            p99s: Vec::new(),
            cpu: Vec::new(),
            switches: 0,
            total: Duration::ZERO,
        };
        Ok(Self { figures, round: histogram()?, cpu: Duration::ZERO, timings: Timings::default() })
    }

    fn block(&mut self, contender: &mut dyn Contender, plan: Plan) -> Result<()> {
        let Self { figures, round, cpu, timings } = self;
        timings.acquire.clear();
        timings.release.clear();
        // The memory is allocated beforehand, because an allocation between two pairs would be
        // measured.
        timings.acquire.reserve(plan.block);
        timings.release.reserve(plan.block);
        timings.outside = None;
        let before = usage()?;
        contender.block(plan.block, plan.block_time, timings)?;
        let spent = match timings.outside {
            Some(outside) => outside,
            None => usage_since(&before)?,
        };
        *cpu += spent.cpu;
        figures.switches += spent.voluntary_switches + spent.involuntary_switches;
        for (&acquire, &release) in timings.acquire.iter().zip(&timings.release) {
            figures.acquire.saturating_record(acquire);
            figures.release.saturating_record(release);
            round.saturating_record(acquire + release);
            figures.total += Duration::from_nanos(acquire + release);
        }
        Ok(())
    }

    fn end_round(&mut self) -> Result<()> {
        let Self { figures, round, cpu, .. } = self;
        figures.p50s.push(round.value_at_quantile(0.5));
        figures.p99s.push(round.value_at_quantile(0.99));
        figures.cpu.push(cpu.as_nanos() as u64 / round.len().max(1));
        figures.pair.add(&*round)?;
        round.reset();
        *cpu = Duration::ZERO;
        Ok(())
    }
}

fn words(error: Error) -> String {
    format!("{error:#}")
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use anyhow::{anyhow, ensure};

    use super::*;

    struct Fake {
        name: char,
        calls: Rc<RefCell<String>>,
        /// The number of calls after which it fails.
        lasts: usize,
    }

    impl Contender for Fake {
        fn acquire(&mut self) -> Result<()> {
            ensure!(self.lasts > 0, "it is broken");
            self.lasts -= 1;
            self.calls.borrow_mut().push(self.name);
            Ok(())
        }

        fn release(&mut self) -> Result<()> {
            Ok(())
        }
    }

    const PLAN: Plan = Plan { rounds: 2, block: 2, block_time: Duration::from_secs(9), warm_up: 1 };

    fn run_two(lasts: [usize; 2], plan: Plan) -> (String, Vec<Outcome>) {
        let calls = Rc::new(RefCell::new(String::new()));
        let fake = |name, lasts| -> Result<Box<dyn Contender>> {
            Ok(Box::new(Fake { name, calls: Rc::clone(&calls), lasts }))
        };
        let contenders = vec![("a", fake('a', lasts[0])), ("b", fake('b', lasts[1]))];
        let outcomes = run(contenders, plan, || calls.borrow_mut().push('.')).unwrap();
        (calls.take(), outcomes)
    }

    #[test]
    fn contenders_take_turns_forward_and_back() {
        let (calls, outcomes) = run_two([100, 100], PLAN);
        assert_eq!(calls, "aabb aabbbbaa. aabbbbaa.".replace(' ', ""));
        for outcome in outcomes {
            let figures = outcome.figures.unwrap();
            assert_eq!((figures.pair.len(), figures.acquire.len()), (8, 8));
            assert_eq!((figures.p50s.len(), figures.p99s.len(), figures.cpu.len()), (2, 2, 2));
        }
    }

    #[test]
    fn a_contender_that_fails_is_out_and_the_others_continue() {
        let (calls, outcomes) = run_two([5, 100], PLAN);
        assert_eq!(calls, "aabb aabbbba. bbbb.".replace(' ', ""));
        assert_eq!(outcomes[0].figures.as_ref().unwrap_err(), "it is broken");
        assert_eq!(outcomes[1].figures.as_ref().unwrap().pair.len(), 8);
        let (_, outcomes) = run_two([1, 100], PLAN);
        assert_eq!(outcomes[0].figures.as_ref().unwrap_err(), "warming up: it is broken");
    }

    #[test]
    fn a_contender_that_cannot_start_has_no_figures() {
        let contenders = vec![("a", Err(anyhow!("refused").context("connecting")))];
        let outcomes = run(contenders, PLAN, || {}).unwrap();
        assert_eq!(outcomes[0].figures.as_ref().unwrap_err(), "connecting: refused");
    }

    #[test]
    fn a_block_ends_by_time_too() {
        let plan = Plan { block: usize::MAX >> 48, block_time: Duration::from_nanos(1), ..PLAN };
        let (calls, _) = run_two([100, 100], plan);
        assert_eq!(calls, "ab abba. abba.".replace(' ', ""));
    }
}
