//! Locks per second, and the CPU time of each. Contenders take turns in rounds, forward and back,
//! as in `rounds`; one that fails is out, and the others continue.

use std::time::{Duration, Instant};

use anyhow::Error;

use super::{Entry, Flight, Task};
use crate::stats::cpu_time;

/// The extent of the measurement.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The largest number of rounds, each of two blocks for each contender.
    pub rounds: usize,
    /// The number of locks in a block.
    pub block: usize,
    /// The time after which no further round begins, once there are a few.
    pub within: Duration,
}

/// The figures of a contender: nanoseconds per lock, in each round.
#[derive(Default)]
pub struct Figures {
    /// The elapsed time.
    pub wall: Vec<u64>,
    /// The CPU time of all threads of this process.
    pub cpu: Vec<u64>,
    /// The error, if it failed.
    pub failure: Option<String>,
    round: (Duration, Duration),
}

/// Runs the plan. The figures are in the order of the entries. `turn` is called after each
/// contender's turn in a round.
pub fn run(
    entries: &[Entry],
    task: impl Fn(usize) -> Task,
    plan: Plan,
    mut turn: impl FnMut(),
) -> Vec<Figures> {
    let start = |(at, entry): (usize, &Entry)| Contender::start(entry, &task(at), plan.block);
    let mut contenders: Vec<_> = entries.iter().enumerate().map(start).collect();
    let begun = Instant::now();
    for round in 0..plan.rounds {
        if round >= FEWEST_ROUNDS && begun.elapsed() > plan.within {
            break;
        }
        let there = 0..contenders.len();
        for at in there.clone().chain(there.rev()) {
            contenders[at].block(plan.block);
            turn();
        }
        contenders.iter_mut().for_each(|contender| contender.end_round(2 * plan.block));
    }
    contenders.into_iter().map(|contender| contender.figures).collect()
}

/// A contender that takes part until it fails.
struct Contender {
    flight: Option<Box<dyn Flight>>,
    figures: Figures,
}

impl Contender {
    fn start(entry: &Entry, task: &Task, warm_up: usize) -> Self {
        let mut contender = Self { flight: None, figures: Figures::default() };
        match (entry.start)(task) {
            Ok(flight) => contender.flight = Some(flight),
            Err(error) => contender.fail(&error),
        }
        contender.fly(warm_up);
        contender
    }

    fn block(&mut self, locks: usize) {
        let (start, cpu) = (Instant::now(), cpu_time());
        self.fly(locks);
        self.figures.round.0 += start.elapsed();
        self.figures.round.1 += cpu_time() - cpu;
    }

    fn fly(&mut self, locks: usize) {
        let flown = self.flight.as_mut().map_or(Ok(()), |flight| flight.fly(locks));
        if let Err(error) = flown {
            self.fail(&error);
        }
    }

    fn fail(&mut self, error: &Error) {
        (self.flight, self.figures.failure) = (None, Some(format!("{error:#}")));
    }

    fn end_round(&mut self, locks: usize) {
        let (wall, cpu) = std::mem::take(&mut self.figures.round);
        if self.flight.is_some() {
            self.figures.wall.push(wall.as_nanos() as u64 / locks as u64);
            self.figures.cpu.push(cpu.as_nanos() as u64 / locks as u64);
        }
    }
}

/// The fewest rounds, however slow the machine is.
const FEWEST_ROUNDS: usize = 3;

#[cfg(test)]
mod tests {
    use anyhow::{Result, anyhow};

    use super::*;
    use crate::flight::ALL;

    /// Fails in its second round.
    struct Failing(usize);

    impl Flight for Failing {
        fn fly(&mut self, _: usize) -> Result<()> {
            self.0 += 1;
            if self.0 < 4 { Ok(()) } else { Err(anyhow!("out of fuel")) }
        }
    }

    struct Sound;

    impl Flight for Sound {
        fn fly(&mut self, _: usize) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_contender_that_fails_is_out_and_the_others_continue() {
        let mut entries = [ALL[0]; 3];
        entries[0].start = |_| Ok(Box::new(Failing(0)));
        entries[1].start = |_| Ok(Box::new(Sound));
        entries[2].start = |_| Err(anyhow!("no such host"));
        let task = |_| Task { nodes: Vec::new(), resources: Vec::new(), ttl: Duration::ZERO };
        let plan = Plan { rounds: 3, block: 1, within: Duration::MAX };
        let figures = run(&entries, task, plan, || ());
        let rounds: Vec<_> = figures.iter().map(|figures| figures.wall.len()).collect();
        assert_eq!(rounds, [1, 3, 0]);
        let failures: Vec<_> = figures.iter().map(|figures| figures.failure.as_deref()).collect();
        assert_eq!(failures, [Some("out of fuel"), None, Some("no such host")]);
    }

    #[test]
    fn time_ends_a_plan_after_a_few_rounds() {
        let mut entry = ALL[0];
        entry.start = |_| Ok(Box::new(Sound));
        let task = |_| Task { nodes: Vec::new(), resources: Vec::new(), ttl: Duration::ZERO };
        let plan = Plan { rounds: 100, block: 1, within: Duration::ZERO };
        assert_eq!(run(&[entry], task, plan, || ())[0].wall.len(), FEWEST_ROUNDS);
    }
}
