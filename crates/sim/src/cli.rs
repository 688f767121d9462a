//! The program: runs many schedules on several threads, and shrinks the first that fails.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Parser;
use redbolt_testkit::mix;
use rustix::time::{ClockId, clock_gettime};

use crate::record::{self, Run};
use crate::waiting::{Crowd, HEAD};
use crate::{
    Class, Coverage, Cut, Lab, Outcome, Plan, Totals, Violation, cut_off, hung, hunt,
    library_channel, mutants, shrink,
};

/// Deterministic simulation of many clients and nodes on the shipping core.
#[derive(Parser)]
#[command(name = "cargo xtask sim", bin_name = "cargo xtask sim")]
struct Arguments {
    /// How many schedules to run
    #[arg(long, default_value_t = 20_000)]
    schedules: u64,
    /// The seed of the first schedule; the others follow
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Begin with a random seed, and print it
    #[arg(long, conflicts_with_all = ["seed", "replay"])]
    fresh: bool,
    /// safe, clock-step, memory-loss-unguarded, waiting, shared, permits or profiles; all of them
    /// if not given
    #[arg(long)]
    class: Option<Class>,
    /// Run the schedule of this seed, and print it
    #[arg(long)]
    replay: Option<u64>,
    /// Elements to leave out of the replayed schedule, such as c1,j2,f0,n3,calm
    #[arg(long, default_value = "")]
    drop: Cut,
    /// Print every event of the replayed schedule
    #[arg(long)]
    story: bool,
    /// Leave out all faults with these numbers, such as 15,18
    #[arg(long, value_delimiter = ',')]
    skip: Vec<u32>,
    /// The number of threads
    #[arg(long)]
    jobs: Option<usize>,
    /// Stop after this many seconds
    #[arg(long)]
    seconds: Option<u64>,
    /// Append a line per class to crates/sim/RECORD.md
    #[arg(long)]
    record: bool,
    /// Print the sums of the recorded runs
    #[arg(long)]
    sum: bool,
    /// Run this many seeds twice, and compare the traces
    #[arg(long)]
    determinism: Option<u64>,
    /// Print every cell of the coverage
    #[arg(long)]
    coverage: bool,
    /// Compare the wake strategies, with many waiters and no faults
    #[arg(long)]
    waiting: bool,
    /// Measure the crowds with hanging nodes and with a library's notifications, with this seed
    #[arg(long)]
    crowd: Option<u64>,
    /// Run this many schedules of each kind of failover behind sentinels, with a client that is cut
    /// off
    #[arg(long)]
    cut_off: Option<u64>,
    /// Plant bugs in the core, one at a time, and check that each is found
    #[arg(long)]
    mutants: bool,
    /// How many schedules a planted bug may survive
    #[arg(long, default_value_t = 100_000)]
    limit: u64,
    /// Plant this bug, and show what finds it; with --replay, run that schedule with it
    #[arg(long)]
    mutant: Option<String>,
}

/// Runs the command line.
#[must_use]
pub fn main() -> ExitCode {
    let mut arguments = Arguments::parse();
    if arguments.fresh {
        arguments.seed = fresh();
        println!("random seeds, to repeat with --seed {}", arguments.seed);
    }
    if arguments.replay.is_none() && arguments.cut_off.is_none() {
        // A panic is a violation, and is reported as one.
        std::panic::set_hook(Box::new(|_| {}));
    }
    if let Some(name) = &arguments.mutant
        && let Err(error) = mutants::plant(name)
    {
        println!("FAILED: {error}");
        return ExitCode::FAILURE;
    }
    let is_well = if arguments.sum {
        print_sum()
    } else if arguments.mutants {
        gate(&arguments)
    } else if arguments.waiting {
        compare(arguments.seed)
    } else if let Some(seed) = arguments.crowd {
        crowds_are_well(seed)
    } else if let Some(seeds) = arguments.cut_off {
        cut_off::is_well(arguments.seed, seeds)
    } else if let Some(seed) = arguments.replay {
        let class = arguments.class.unwrap_or(Class::Safe);
        replay(class, seed, &arguments.drop, arguments.story)
    } else if let Some(seeds) = arguments.determinism {
        determinism(arguments.seed, seeds)
    } else if let Some(name) = &arguments.mutant {
        hunt_one(name, &arguments)
    } else {
        search(&arguments)
    };
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns a random seed, far from all earlier ones with high probability.
fn fresh() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let nanos = since.map_or(0, |since| since.as_nanos() as u64);
    // Short enough to copy, with room for many runs.
    mix(nanos ^ mix(std::process::id().into())) >> 20
}

/// Runs the mutation gate and returns true if every bug was found.
fn gate(arguments: &Arguments) -> bool {
    let Arguments { limit, seed: first, .. } = *arguments;
    let commit = record::commit();
    let report = mutants::Gate::run(mutants::Extent { limit, first, jobs: jobs(arguments) });
    if !arguments.record || report.planted == 0 {
        return report.is_well;
    }
    let remark = format!("{} of {} found", report.found, report.planted);
    let (totals, remark) = (&Totals::default(), &remark[..]);
    let is_recorded =
        Run { class: "planted bugs", first_seed: first, totals, remark }.append(&commit);
    report.is_well && is_recorded
}

/// Prints the sums of the record and returns true if it can be read.
fn print_sum() -> bool {
    let sum = record::sum();
    match &sum {
        Ok(sum) => print!("{sum}"),
        Err(error) => println!("FAILED: crates/sim/RECORD.md: {error}"),
    }
    sum.is_ok()
}

/// Prints a table of the wake strategies, and one of hanging nodes. Returns true if hanging nodes
/// cost next to nothing.
fn compare(seed: u64) -> bool {
    println!("{HEAD}");
    for crowd in Crowd::all() {
        println!("{}", crowd.measure(seed));
    }
    println!("\n{}", hung::HEAD);
    let mut is_well = true;
    for crowd in hung::Pair::all() {
        is_well &= costs_little(crowd, seed);
    }
    is_well
}

/// Prints the quick crowds, with hanging nodes and with a library's notifications. Returns true if
/// both pass.
fn crowds_are_well(seed: u64) -> bool {
    println!("{}", hung::HEAD);
    let is_cheap = costs_little(hung::Pair::QUICK, seed);
    let measured = library_channel::measure(seed);
    println!("\n{HEAD}\n{measured}");
    let violation = library_channel::violation(&measured);
    if let Some(violation) = &violation {
        println!("\nVIOLATION {violation}\n");
    }
    is_cheap && violation.is_none()
}

/// Prints a row of the second table. Returns true if these hanging nodes cost next to nothing.
fn costs_little(crowd: hung::Pair, seed: u64) -> bool {
    let compared = crowd.measure(seed);
    println!("{compared}");
    let violation = compared.violation();
    if let Some(violation) = &violation {
        println!("\nVIOLATION {violation}\n");
    }
    violation.is_none()
}

fn jobs(arguments: &Arguments) -> usize {
    let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    arguments.jobs.unwrap_or(cores).clamp(1, 256)
}

/// Runs schedules, and then the crowd, until one finds the bug planted on this thread. Returns true
/// if one does.
fn hunt_one(name: &str, arguments: &Arguments) -> bool {
    let class = arguments.class.unwrap_or(Class::Safe);
    let found = hunt(class, arguments.seed, arguments.limit);
    match &found {
        Some((schedules, violation)) => {
            println!("{name}: found by schedule {schedules}: {violation}");
            let seed = arguments.seed.wrapping_add(schedules - 1);
            show_smallest(class, seed, &format!(" --mutant {name}"));
        }
        None => println!("{name} survives {} schedules", arguments.limit),
    }
    found.is_some() || drags(name, arguments.seed)
}

/// Runs the crowds and failovers, for bugs that no single schedule can show. Returns true if they
/// show it.
fn drags(name: &str, seed: u64) -> bool {
    println!();
    let is_found = !crowds_are_well(seed) || !cut_off::is_well(seed, FAILOVERS);
    if !is_found {
        println!("FAILED: {name} survives the crowd and {FAILOVERS} failovers as well");
    }
    is_found
}

/// The number of schedules of each kind of failover that have to show such a bug.
const FAILOVERS: u64 = 500;

/// Runs one schedule and prints its elements.
fn replay(class: Class, seed: u64, cut: &Cut, story: bool) -> bool {
    let plan = Plan::draw(class, seed).without(cut);
    println!("{plan}\n");
    let mut lab = Lab::new();
    if story {
        lab.report();
    }
    let outcome = lab.run_plan(&plan);
    println!(
        "{} events in {:.3} s of virtual time, {} grants, {} refusals, {} losses, hash {:016x}",
        outcome.events,
        outcome.nanos as f64 / 1e9,
        outcome.grants,
        outcome.refusals,
        outcome.losses,
        outcome.hash
    );
    if outcome.expected > 0 {
        println!("{} breaches of exclusion, which this class expects", outcome.expected);
    }
    match &outcome.violation {
        Some(violation) => println!("VIOLATION {violation}"),
        None => println!("no violation"),
    }
    outcome.violation.is_none()
}

/// Checks I11: the same seed gives the same run, even in a world that has run other schedules.
fn determinism(first: u64, seeds: u64) -> bool {
    let (mut one, mut other) = (Lab::new(), Lab::new());
    for seed in first..first + seeds {
        let class = Class::ALL[seed as usize % Class::ALL.len()];
        // The other world has already run another schedule.
        let _ = other.run(Class::Safe, seed.wrapping_mul(31));
        let (here, there) = (one.run(class, seed), other.run(class, seed));
        if here != there {
            println!("VIOLATION {}: seed {seed}, class {class}", Violation::NotDeterministic);
            println!("{here:?}\n{there:?}");
            return false;
        }
    }
    println!("{seeds} seeds, each run twice: the same traces");
    true
}

/// Runs many schedules of each class.
fn search(arguments: &Arguments) -> bool {
    let classes = arguments.class.map_or_else(|| Class::ALL.to_vec(), |class| vec![class]);
    // The classes that expect violations are controls: a twentieth of the schedules is enough.
    let share = |class: Class| match class {
        Class::Safe => arguments.schedules,
        _ if arguments.class.is_some() => arguments.schedules,
        Class::Permits | Class::Profiles | Class::Shared => (arguments.schedules / 4).max(1_000),
        _ => (arguments.schedules / 20).max(1_000),
    };
    let commit = record::commit();
    let mut is_well = true;
    for class in classes {
        let found = run_class(class, share(class), arguments);
        let summary = found.totals.summary(found.took, found.spent, found.jobs);
        println!(
            "class {class}, seeds from {}\n{summary}\ncoverage          {}",
            arguments.seed,
            found.coverage.summary()
        );
        if arguments.coverage {
            println!("\n{}", found.coverage);
        }
        is_well &= judged(class, &found, !arguments.skip.is_empty());
        if arguments.record {
            let name = class.to_string();
            let remark =
                found.failed.as_ref().map(|(seed, violation)| format!("{seed}: {violation}"));
            let remark = remark.unwrap_or_default();
            let (first_seed, totals) = (arguments.seed, &found.totals);
            is_well &= Run { class: &name, first_seed, totals, remark: &remark }.append(&commit);
        }
        println!();
    }
    is_well
}

struct Found {
    totals: Totals,
    coverage: Coverage,
    took: Duration,
    /// Processor time.
    spent: Duration,
    jobs: usize,
    failed: Option<(u64, Violation)>,
}

fn run_class(class: Class, schedules: u64, arguments: &Arguments) -> Found {
    let jobs = jobs(arguments);
    let (start, spent) = (Instant::now(), spent());
    let until = arguments.seconds.map(|seconds| start + Duration::from_secs(seconds));
    let schedules = if arguments.seconds.is_some() { u64::MAX } else { schedules };
    let next = AtomicU64::new(0);
    let failed = AtomicBool::new(false);
    let sum = Mutex::new((Totals::default(), Coverage::default(), None));
    let work = || {
        let mut lab = Lab::new();
        lab.skip(&arguments.skip);
        let mut totals = Totals::default();
        let mut first: Option<(u64, Violation)> = None;
        loop {
            let from = next.fetch_add(BATCH, Ordering::Relaxed);
            let over = until.is_some_and(|until| Instant::now() >= until);
            if from >= schedules || over || failed.load(Ordering::Relaxed) {
                break;
            }
            for at in from..schedules.min(from + BATCH) {
                let seed = arguments.seed.wrapping_add(at);
                let outcome: Outcome = lab.run(class, seed);
                totals.count(seed, &outcome);
                if let Some(violation) = outcome.violation {
                    failed.store(true, Ordering::Relaxed);
                    first.get_or_insert((seed, violation));
                }
            }
        }
        let mut sum = sum.lock().expect("no thread panics while it holds the lock");
        sum.0.add(&totals);
        sum.1.add(lab.coverage());
        let earliest = sum.2.take().into_iter().chain(first).min_by_key(|(seed, _)| *seed);
        sum.2 = earliest;
    };
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(work);
        }
    });
    let (totals, coverage, failed) =
        sum.into_inner().expect("no thread panics while it holds the lock");
    let spent = self::spent().saturating_sub(spent);
    Found { totals, coverage, took: start.elapsed(), spent, jobs, failed }
}

/// Returns the processor time of this process so far.
fn spent() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

/// Returns true if a class gave the expected result.
fn judged(class: Class, found: &Found, is_partial: bool) -> bool {
    if let Some((seed, violation)) = &found.failed {
        println!("\nVIOLATION {violation}");
        show_smallest(class, *seed, "");
        return false;
    }
    if class.breaks_exclusion() && found.totals.expected == 0 {
        println!(
            "\nFAILED: exclusion must break in class {class}, and nothing was found: the checker is blind"
        );
        return false;
    }
    let empty = found.coverage.empty();
    let is_full = class == Class::Safe && found.totals.schedules >= FULL && !is_partial;
    if is_full && !empty.is_empty() {
        println!("\nFAILED: never met: {}", empty.join(", "));
        return false;
    }
    true
}

/// Prints the smallest failing cut, and the command that replays it.
fn show_smallest(class: Class, seed: u64, options: &str) {
    let again = format!("cargo xtask sim{options} --class {class} --replay {seed}");
    match shrink(class, seed, TRIES) {
        Some((cut, violation)) => {
            let plan = Plan::draw(class, seed).without(&cut);
            let dropped = cut.to_string();
            let drop =
                if dropped.is_empty() { String::new() } else { format!(" --drop {dropped}") };
            println!("\nwhat is left of the schedule of seed {seed}:\n\n{plan}\n");
            println!("{violation}\n\nreplay: {again}{drop}");
        }
        None => println!("\nit does not fail again, which is a violation of I11\nreplay: {again}"),
    }
}

const BATCH: u64 = 256;

/// The number of schedules from which on no cell of the coverage may be empty.
const FULL: u64 = 20_000;

/// The maximum number of runs for shrinking a failure.
const TRIES: usize = 400;
