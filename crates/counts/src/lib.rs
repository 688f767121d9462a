//! Scenarios whose instructions are counted, one at a time, by callgrind.
//!
//! A scenario is prepared and run a few times uncounted, so that reused memory is allocated. Then
//! it is counted often enough that rare work (a refill of random bytes, a timer) has its share. The
//! counter finds two functions here by their names: it counts inside one, and pauses inside the
//! other ([`aside`]).
//!
//! This is a separate crate, with one program for each layer, because a function's machine code
//! depends on its other callers: a driver, a runtime or even another benchmark in the same program
//! would change the counts. `src/bin/measure` runs the counter, and `cargo xtask bench --counts`
//! compares the result with `baseline.txt`.

#![deny(unsafe_code)]

use std::env;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

/// A repeatable piece of work.
pub struct Scenario {
    /// The name in the baseline.
    pub name: &'static str,
    /// A function that prepares the scenario, and returns one repetition of it.
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

/// Runs uncounted work inside counted work, such as the other side of a conversation.
pub fn aside(mut work: impl FnMut()) {
    if IS_COUNTED.load(Ordering::Relaxed) { uncounted(&mut work) } else { work() }
}

/// Runs counted work. The counter finds this function by its name.
#[inline(never)]
fn counted(repetition: &mut dyn FnMut(), times: usize) {
    for _ in 0..times {
        repetition();
    }
}

/// Runs uncounted work. The counter finds this function by its name. Outside `counted` it would
/// start counting.
#[inline(never)]
fn uncounted(work: &mut dyn FnMut()) {
    work();
}

static IS_COUNTED: AtomicBool = AtomicBool::new(false);

/// The number of repetitions of a scenario that are counted. The counter's result is divided by it.
pub const REPETITIONS: usize = 2_048;

/// The number of uncounted repetitions, enough for all rings and buffers to reach their largest
/// size.
const WARM: usize = 256;
