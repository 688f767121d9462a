//! Work whose instructions are counted, one scenario at a time, by a program around it (callgrind).
//!
//! A scenario is prepared and run a few times without being counted, so that memory which is used again is
//! there; then it is counted so often that what happens now and then (a refill of random bytes, a timer)
//! has its share. The counter watches for two functions here by their names: in one it counts, and in the
//! other, inside of it, it does not ([`aside`]).
//!
//! A crate of its own, with one program for each layer, because what the compiler makes of a function
//! depends on who else calls it: a driver or a runtime beside it, even another benchmark, would move the
//! counts. The counter's part is `src/bin/measure`; not here: the comparison with `baseline.txt`, which
//! is that of `cargo xtask bench --counts`.

#![deny(unsafe_code)]

use std::env;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

/// Something that is done again and again.
pub struct Scenario {
    /// Its name in the baseline.
    pub name: &'static str,
    /// Makes ready what it needs, and returns one repetition of it.
    pub prepare: fn() -> Box<dyn FnMut()>,
}

/// Names the scenarios, or runs the one that the command line names.
#[must_use]
pub fn run(scenarios: &[Scenario]) -> ExitCode {
    let Some(wanted) = env::args().nth(1) else {
        scenarios.iter().for_each(|scenario| println!("{}", scenario.name));
        return ExitCode::SUCCESS;
    };
    let Some(scenario) = scenarios.iter().find(|scenario| scenario.name == wanted) else {
        eprintln!("no scenario is called {wanted}");
        return ExitCode::FAILURE;
    };
    let mut repetition = (scenario.prepare)();
    (0..WARM).for_each(|_| repetition());
    IS_COUNTED.store(true, Ordering::Relaxed);
    counted(&mut repetition, REPETITIONS);
    ExitCode::SUCCESS
}

/// The other side of a conversation, or another thing that is not counted although it happens inside.
pub fn aside(mut work: impl FnMut()) {
    if IS_COUNTED.load(Ordering::Relaxed) { uncounted(&mut work) } else { work() }
}

/// The counter begins and ends here; it knows this by its name.
#[inline(never)]
fn counted(repetition: &mut dyn FnMut(), times: usize) {
    for _ in 0..times {
        repetition();
    }
}

/// The counter pauses here; it knows this by its name. Outside of `counted` it would begin.
#[inline(never)]
fn uncounted(work: &mut dyn FnMut()) {
    work();
}

static IS_COUNTED: AtomicBool = AtomicBool::new(false);

/// How often a scenario is counted. What the counter finds is divided by it.
pub const REPETITIONS: usize = 2_048;

/// All rings and buffers have had their largest size by then.
const WARM: usize = 256;
