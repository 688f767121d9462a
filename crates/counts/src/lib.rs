//! Scenarios whose instructions are counted, one at a time, by callgrind.
//!
//! A scenario is prepared and run a few times uncounted, so that reused memory is allocated. Then
//! it is counted often enough that rare work (a refill of random bytes, a timer) has its share. The
//! counter finds two functions here by their names: it counts inside of one, and pauses inside of
//! the other ([`aside`]).
//!
//! A crate of its own, with one program for each layer, because a function's machine code depends
//! on its other callers: a driver or a runtime beside it, even another benchmark, would change the
//! counts. `src/bin/measure` runs the counter. Not here: the comparison with `baseline.txt`, which
//! `cargo xtask bench --counts` makes.

#![deny(unsafe_code)]

use std::env;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

/// A repeatable piece of work.
pub struct Scenario {
    /// Its name in the baseline.
    pub name: &'static str,
    /// Prepares the scenario, and returns one repetition of it.
    pub prepare: fn() -> Box<dyn FnMut()>,
}

/// Lists the scenarios, or runs the one that the command line names.
#[must_use]
pub fn run(scenarios: &[Scenario]) -> ExitCode {
    let Some(wanted) = env::args().nth(1) else {
        scenarios.iter().for_each(|scenario| println!("{}", scenario.name));
        return ExitCode::SUCCESS;
    };
    let Some(scenario) = scenarios.iter().find(|scenario| scenario.name == wanted) else {
        eprintln!("no scenario has the name {wanted}");
        return ExitCode::FAILURE;
    };
    let mut repetition = (scenario.prepare)();
    (0..WARM).for_each(|_| repetition());
    IS_COUNTED.store(true, Ordering::Relaxed);
    counted(&mut repetition, REPETITIONS);
    ExitCode::SUCCESS
}

/// Runs uncounted work inside of counted work, such as the other side of a conversation.
pub fn aside(mut work: impl FnMut()) {
    if IS_COUNTED.load(Ordering::Relaxed) { uncounted(&mut work) } else { work() }
}

/// Counting begins and ends here; the counter finds this function by its name.
#[inline(never)]
fn counted(repetition: &mut dyn FnMut(), times: usize) {
    for _ in 0..times {
        repetition();
    }
}

/// Counting pauses here; the counter finds this function by its name. Outside of `counted` it would
/// start counting.
#[inline(never)]
fn uncounted(work: &mut dyn FnMut()) {
    work();
}

static IS_COUNTED: AtomicBool = AtomicBool::new(false);

/// How often a scenario is counted. The counter's result is divided by it.
pub const REPETITIONS: usize = 2_048;

/// Enough repetitions for all rings and buffers to reach their largest size.
const WARM: usize = 256;
