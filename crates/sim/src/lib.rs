//! Deterministic simulation of redbolt: many clients and nodes in virtual time, over the shipping core.
//!
//! A schedule is drawn from a seed: who wants which lock, on how many nodes, through which network,
//! and what goes wrong. It is played as fast as the machine can, and everything that a caller
//! may rely on is checked at the moment at which the caller is told. What the faults are and what must
//! hold is in README.md.
//!
//! Apart from the library because it is a user of it: it sees `redbolt::proto` and the model of a node,
//! and nothing behind them. Not here: sockets, threads and clocks of the machine, but for the program
//! that runs many schedules and measures how long that takes.

#![deny(unsafe_code)]

mod actor;
pub mod cli;
mod coverage;
mod credit;
#[cfg(test)]
mod doctored;
mod fault;
mod history;
mod hung;
mod invariant;
pub mod mutants;
mod patience;
mod plan;
mod register;
mod report;
mod shrink;
mod waiting;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

pub use coverage::Coverage;
pub use invariant::Violation;
pub use plan::{Class, Cut, Plan};
pub use report::Totals;
pub use shrink::shrink;

use world::World;

/// What came of a schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The trace of everything that happened, as a number: the same for the same seed.
    pub hash: u64,
    /// Things that happened.
    pub events: u32,
    /// Virtual time that passed, in nanoseconds.
    pub nanos: u64,
    /// Locks that were granted.
    pub grants: u64,
    /// Of these, those with a fencing token.
    pub fenced: u64,
    /// Asks that were refused.
    pub refusals: u64,
    /// Locks that were lost.
    pub losses: u64,
    /// Stale writes that an unfenced register took.
    pub stale_writes: u64,
    /// Writes that a fenced register refused.
    pub writes_refused: u64,
    /// Violations that the class expects.
    pub expected: u64,
    /// What broke.
    pub violation: Option<Violation>,
}

/// The memory for running schedules, one after the other.
pub struct Lab {
    world: World,
    /// Faults that do not happen, by their numbers.
    skipped: u32,
}

impl Default for Lab {
    fn default() -> Self {
        Self::new()
    }
}

impl Lab {
    /// Room for one schedule at a time.
    #[must_use]
    pub fn new() -> Self {
        Self { world: World::new(), skipped: 0 }
    }

    /// Runs the schedule of a seed.
    pub fn run(&mut self, class: Class, seed: u64) -> Outcome {
        self.world.plan.redraw(class, seed);
        let skipped = self.skipped;
        self.world.plan.faults.retain(|fault| skipped >> fault.what.number() & 1 == 0);
        self.play()
    }

    /// Leaves out all faults with these numbers, to see what is found behind one that is known.
    pub fn skip(&mut self, numbers: &[u32]) {
        self.skipped =
            numbers.iter().filter(|number| **number < 32).fold(0, |mask, n| mask | 1 << n);
    }

    /// Runs a schedule that was drawn before, and perhaps cut.
    pub fn run_plan(&mut self, plan: &Plan) -> Outcome {
        self.world.plan.clone_from(plan);
        self.play()
    }

    /// Prints the story of the schedules to come.
    pub fn tell(&mut self) {
        self.world.is_told = true;
    }

    /// What the schedules so far have met.
    #[must_use]
    pub fn coverage(&self) -> &Coverage {
        &self.world.coverage
    }

    fn play(&mut self) -> Outcome {
        let world = &mut self.world;
        // A panic is a finding like any other. The world is made anew, for this one is half way.
        let played = catch_unwind(AssertUnwindSafe(|| world.run()));
        if let Err(panic) = played {
            let message = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
                .unwrap_or_else(|| "a panic without a text".to_owned());
            let coverage = world.coverage.clone();
            let (hash, events, now) = (world.hash(), world.events(), world.now);
            *world = World::new();
            world.coverage = coverage;
            let violation = Some(Violation::Panicked { message });
            return Outcome { hash, events, nanos: now, violation, ..Outcome::default() };
        }
        let tally = world.tally;
        Outcome {
            hash: world.hash(),
            events: world.events(),
            nanos: world.now,
            grants: tally.grants,
            fenced: tally.fenced,
            refusals: tally.refusals,
            losses: tally.losses,
            stale_writes: tally.stale_writes,
            writes_refused: tally.writes_refused,
            expected: tally.expected,
            violation: world.violation.take(),
        }
    }
}

/// Runs the schedule of a seed in a world of its own. For many, use a [`Lab`].
#[must_use]
pub fn run(class: Class, seed: u64) -> Outcome {
    Lab::new().run(class, seed)
}

/// Runs the schedules of up to `limit` seeds from the first one on, until one breaks something. How
/// many that took, and what broke.
#[must_use]
pub fn hunt(class: Class, first: u64, limit: u64) -> Option<(u64, Violation)> {
    let mut lab = Lab::new();
    (0..limit).find_map(|at| {
        let violation = lab.run(class, first.wrapping_add(at)).violation?;
        Some((at + 1, violation))
    })
}
