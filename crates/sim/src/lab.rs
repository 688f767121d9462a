//! Runs schedules, one after another.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::coverage::Coverage;
use crate::invariant::Violation;
use crate::plan::{Class, Plan};
use crate::world::World;

/// The result of a schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// A hash of the whole trace: the same for the same seed.
    pub hash: u64,
    /// The number of events.
    pub events: u32,
    /// Virtual time that passed, in nanoseconds.
    pub nanos: u64,
    /// The number of locks granted.
    pub grants: u64,
    /// The number of granted locks with a fencing token.
    pub fenced: u64,
    /// The number of requests refused.
    pub refusals: u64,
    /// The number of locks lost.
    pub losses: u64,
    /// The number of stale writes that an unfenced register took.
    pub stale_writes: u64,
    /// The number of writes that a fenced register refused.
    pub writes_refused: u64,
    /// The number of violations that the class expects.
    pub expected: u64,
    /// The violation that ended the schedule, if any.
    pub violation: Option<Violation>,
}

/// The memory for running schedules, one after another.
pub struct Lab {
    world: World,
    /// The faults to leave out, as a bit set of their numbers.
    skipped: u32,
}

impl Default for Lab {
    fn default() -> Self {
        Self::new()
    }
}

impl Lab {
    /// Allocates the memory for one schedule at a time.
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

    /// Leaves out all faults with these numbers, to search behind a known failure.
    pub fn skip(&mut self, numbers: &[u32]) {
        self.skipped =
            numbers.iter().filter(|number| **number < 32).fold(0, |mask, n| mask | 1 << n);
    }

    /// Runs a plan that was drawn before, and perhaps cut.
    pub fn run_plan(&mut self, plan: &Plan) -> Outcome {
        self.world.plan.clone_from(plan);
        self.play()
    }

    /// Prints the story of the following schedules.
    pub fn report(&mut self) {
        self.world.is_notified = true;
    }

    /// Returns the coverage of the schedules so far.
    #[must_use]
    pub fn coverage(&self) -> &Coverage {
        &self.world.coverage
    }

    fn play(&mut self) -> Outcome {
        let world = &mut self.world;
        // A panic is a violation like any other. The world is rebuilt, because its state is
        // inconsistent.
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

/// Runs the schedule of a seed in a separate world. For many, use a [`Lab`].
#[must_use]
pub fn run(class: Class, seed: u64) -> Outcome {
    Lab::new().run(class, seed)
}

/// Runs the schedules of up to `limit` seeds from `first` on, until one fails. Returns the number
/// of schedules run, and the violation.
#[must_use]
pub fn hunt(class: Class, first: u64, limit: u64) -> Option<(u64, Violation)> {
    let mut lab = Lab::new();
    (0..limit).find_map(|at| {
        let violation = lab.run(class, first.wrapping_add(at)).violation?;
        Some((at + 1, violation))
    })
}
