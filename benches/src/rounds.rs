//! The measurement: contenders take turns in rounds, so that what disturbs the machine disturbs all.
//!
//! A round runs the contenders in order and then in reverse order (ABBA), each for a block of pairs.
//! Ratios are made within a round and then summed up, so a slow second makes one round slow, not
//! one contender. Not here: printing.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hdrhistogram::Histogram;

use crate::contender::Contender;
use crate::stats::{cpu_time, histogram, record};

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Rounds, each of two blocks for each contender.
    pub rounds: usize,
    /// Pairs of acquire and release in a block.
    pub block: usize,
    /// Pairs before anything is measured.
    pub warm_up: usize,
}

/// What was measured of one contender. All times are in nanoseconds.
pub struct Figures {
    /// From the start of the acquire to the end of the release.
    pub pair: Histogram<u64>,
    /// The acquire alone.
    pub acquire: Histogram<u64>,
    /// The release alone.
    pub release: Histogram<u64>,
    /// The median pair of each round.
    pub medians: Vec<u64>,
    /// The mean CPU time of a pair, of this process, in each round.
    pub cpu: Vec<u64>,
    round: Round,
}

/// The pairs of a round that is under way.
struct Round {
    pair: Histogram<u64>,
    cpu: Duration,
}

/// Runs the plan. The figures come in the order of the contenders.
///
/// # Errors
///
/// A contender failed, which voids the measurement.
pub fn run(
    contenders: &mut [(&str, Box<dyn Contender>)],
    plan: Plan,
    mut progress: impl FnMut(usize),
) -> Result<Vec<Figures>> {
    let mut figures = contenders.iter().map(|_| Figures::new()).collect::<Result<Vec<_>>>()?;
    for (name, contender) in &mut *contenders {
        let mut unused = Figures::new()?;
        unused
            .block(&mut **contender, plan.warm_up)
            .with_context(|| format!("{name}, warming up"))?;
    }
    for round in 0..plan.rounds {
        let there = 0..contenders.len();
        for at in there.clone().chain(there.rev()) {
            let (name, contender) = &mut contenders[at];
            figures[at].block(&mut **contender, plan.block).with_context(|| (*name).to_owned())?;
        }
        figures.iter_mut().try_for_each(Figures::end_round)?;
        progress(round + 1);
    }
    Ok(figures)
}

impl Figures {
    fn new() -> Result<Self> {
        Ok(Self {
            pair: histogram()?,
            acquire: histogram()?,
            release: histogram()?,
            medians: Vec::new(),
            cpu: Vec::new(),
            round: Round { pair: histogram()?, cpu: Duration::ZERO },
        })
    }

    fn block(&mut self, contender: &mut dyn Contender, pairs: usize) -> Result<()> {
        let cpu = cpu_time();
        for _ in 0..pairs {
            let start = Instant::now();
            contender.acquire()?;
            let held = Instant::now();
            contender.release()?;
            let end = Instant::now();
            record(&mut self.acquire, held - start);
            record(&mut self.release, end - held);
            record(&mut self.round.pair, end - start);
        }
        self.round.cpu += cpu_time() - cpu;
        Ok(())
    }

    fn end_round(&mut self) -> Result<()> {
        let pairs = self.round.pair.len().max(1);
        self.medians.push(self.round.pair.value_at_quantile(0.5));
        self.cpu.push(self.round.cpu.as_nanos() as u64 / pairs);
        self.pair.add(&self.round.pair)?;
        self.round.pair.reset();
        self.round.cpu = Duration::ZERO;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    struct Fake(char, Rc<RefCell<String>>);

    impl Contender for Fake {
        fn acquire(&mut self) -> Result<()> {
            self.1.borrow_mut().push(self.0);
            Ok(())
        }

        fn release(&mut self) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn contenders_take_turns_forward_and_back() {
        let order = Rc::new(RefCell::new(String::new()));
        let fake = |name| Box::new(Fake(name, Rc::clone(&order))) as Box<dyn Contender>;
        let mut contenders = [("a", fake('a')), ("b", fake('b'))];
        let plan = Plan { rounds: 2, block: 2, warm_up: 1 };
        let figures = run(&mut contenders, plan, |_| {}).unwrap();
        assert_eq!(*order.borrow(), "ab aabbbbaa aabbbbaa".replace(' ', ""));
        for figures in figures {
            assert_eq!((figures.pair.len(), figures.acquire.len()), (8, 8));
            assert_eq!((figures.medians.len(), figures.cpu.len()), (2, 2));
        }
    }
}
