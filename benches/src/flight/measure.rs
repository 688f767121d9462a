//! Locks per second, and what each costs the client's processor. Contenders take turns in rounds, forward
//! and back, as in `rounds`.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::Flight;
use crate::stats::cpu_time;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Rounds, each of two blocks for each contender.
    pub rounds: usize,
    /// Locks in a block.
    pub block: usize,
    /// Locks before anything is measured.
    pub warm_up: usize,
}

/// What was measured of one contender: nanoseconds for each lock, in each round.
#[derive(Default)]
pub struct Figures {
    /// Of the clock on the wall.
    pub wall: Vec<u64>,
    /// Of the processor, all threads of this process.
    pub cpu: Vec<u64>,
    round: (Duration, Duration),
}

/// Runs the plan. The figures come in the order of the contenders.
///
/// # Errors
///
/// A contender failed, which voids the measurement.
pub fn run(flights: &mut [(&str, Box<dyn Flight>)], plan: Plan) -> Result<Vec<Figures>> {
    let mut figures: Vec<_> = flights.iter().map(|_| Figures::default()).collect();
    for (name, flight) in &mut *flights {
        flight.fly(plan.warm_up).with_context(|| format!("{name}, warming up"))?;
    }
    for _ in 0..plan.rounds {
        let there = 0..flights.len();
        for at in there.clone().chain(there.rev()) {
            let (name, flight) = &mut flights[at];
            figures[at].block(&mut **flight, plan.block).with_context(|| (*name).to_owned())?;
        }
        figures.iter_mut().for_each(|figures| figures.end_round(2 * plan.block));
    }
    Ok(figures)
}

impl Figures {
    fn block(&mut self, flight: &mut dyn Flight, locks: usize) -> Result<()> {
        let (start, cpu) = (Instant::now(), cpu_time());
        flight.fly(locks)?;
        self.round.0 += start.elapsed();
        self.round.1 += cpu_time() - cpu;
        Ok(())
    }

    fn end_round(&mut self, locks: usize) {
        let (wall, cpu) = std::mem::take(&mut self.round);
        self.wall.push(wall.as_nanos() as u64 / locks as u64);
        self.cpu.push(cpu.as_nanos() as u64 / locks as u64);
    }
}
