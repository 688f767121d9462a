//! `chaos`: runs the programs, and prints their results.

use std::env;
use std::fmt::Display;
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, Parser, Subcommand, ValueEnum};
use redbolt_chaos::{
    AutoExtension, Commands, Failure, FairQueue, Fencing, Ghosts, Leaders, Part, Pauses, Prize,
    Restarts, Role, SignalStorm, Stage, Storm, serve,
};

/// Checks redbolt's promises on real servers. Without a program: all of them, at full size, and
/// their controls.
#[derive(Parser)]
#[command(bin_name = "cargo xtask chaos")]
struct Arguments {
    #[command(subcommand)]
    program: Option<Program>,
    /// The seed of all random choices
    #[arg(long, global = true)]
    seed: Option<u64>,
}

#[derive(Subcommand)]
enum Program {
    /// Kill nodes of held locks and restart them without their memory
    Restarts {
        /// Cycles that have to count, for each number of nodes
        #[arg(long, default_value_t = 500)]
        cycles: usize,
        /// The restart guard. With it off, the run has to find double holders
        #[arg(long, default_value = "on")]
        restart_guard: Switch,
        /// Numbers of nodes
        #[arg(long, value_delimiter = ',', default_value = "3,5")]
        nodes: Vec<usize>,
        /// Sets of servers in parallel, for each number of nodes
        #[arg(long, default_value_t = 2)]
        lanes: usize,
        #[arg(long, default_value_t = 400)]
        max_ttl_ms: u64,
        /// Let nodes come back with an old snapshot
        #[arg(long)]
        stale: bool,
    },
    /// Let four processes acquire fenced locks while counters diverge and a node is wiped
    Fencing {
        #[arg(long, default_value_t = 10_000)]
        grants: usize,
        /// Lose all counters behind the restart guard's back: the run has to find tokens that do
        /// not grow
        #[arg(long)]
        forget: bool,
    },
    /// Let requests from lost connections run after their undo
    Ghosts {
        /// Repetitions in which the client may kill its old connection
        #[arg(long, default_value_t = 1000)]
        reps: usize,
        /// Repetitions in which it may not, and ghosts have to appear
        #[arg(long, default_value_t = 50)]
        controls: usize,
        /// Repetitions with a restarted server that has other clients
        #[arg(long, default_value_t = 100)]
        restarts: usize,
    },
    /// Stop a holder for longer than its lease
    Pauses {
        #[arg(long, default_value_t = 500)]
        reps: usize,
    },
    /// Stop a process that auto-extends a lock, for longer than the TTL
    AutoExtension {
        /// Pauses that have to count, for each number of nodes
        #[arg(long, default_value_t = 100)]
        reps: usize,
        /// Numbers of nodes
        #[arg(long, value_delimiter = ',', default_value = "1,3,5")]
        nodes: Vec<usize>,
        /// Add an extender that ignores tokens: the run has to find what it breaks
        #[arg(long)]
        careless: bool,
    },
    /// All faults at once, at random
    Storm {
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// The restart guard. With it off, the run has to find double holders
        #[arg(long, default_value = "on")]
        restart_guard: Switch,
        /// Number of nodes
        #[arg(long, default_value_t = 5)]
        nodes: usize,
        /// Compete for this many permits instead of one lock
        #[arg(long)]
        permits: Option<NonZeroU16>,
        /// Let readers and writers compete, which become writers and readers
        #[arg(long, conflicts_with = "permits")]
        shared: bool,
    },
    /// Let processes wait in the queue while waiters and nodes are stopped and killed
    FairQueue {
        #[arg(long, default_value_t = 300)]
        rounds: usize,
        /// Wait only by a timer: the run has to find a waiter that is passed
        #[arg(long)]
        timer: bool,
    },
    /// Elect leaders while leaders and nodes are stopped and killed
    Leaders {
        /// How many leaders have to be elected and observed
        #[arg(long, default_value_t = 300)]
        rounds: usize,
        /// Delete the leader's key behind its back: the run has to find two leaders
        #[arg(long)]
        forget: bool,
    },
    /// Kill and stop the processes of `redbolt lock`, its command and the command's children
    Commands(Calls),
    /// Send every signal to `redbolt lock`, `lead` and `acquire`, to their groups and to their
    /// commands
    Signals(Calls),
    /// Run as a worker process
    #[command(hide = true)]
    Worker {
        #[arg(long)]
        role: Role,
        #[arg(long)]
        director: u32,
        #[arg(long, value_delimiter = ',')]
        nodes: Vec<String>,
        #[arg(long)]
        max_ttl_ms: u64,
        #[arg(long)]
        restart_guard: Switch,
        #[arg(long)]
        label: String,
    },
}

/// The calls of `redbolt`.
#[derive(Args)]
struct Calls {
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// How many callers compete for the lock
    #[arg(long, default_value_t = 4)]
    lanes: usize,
    /// Kill both processes of redbolt at once: the run has to find commands that continue
    #[arg(long)]
    both: bool,
    /// The program `redbolt` [default: the one in the folder of this program]
    #[arg(long)]
    redbolt: Option<PathBuf>,
}

impl Calls {
    fn program(&self, stage: &Stage) -> PathBuf {
        let beside = || stage.program.with_file_name("redbolt");
        self.redbolt.clone().unwrap_or_else(beside)
    }

    fn lasts(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("chaos: {error}");
            ExitCode::from(2)
        }
    }
}

/// Runs a program. Returns true if every promise was kept, and every control found violations.
fn run(arguments: Arguments) -> Result<bool, Failure> {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let seed = arguments.seed.unwrap_or(since_epoch.as_nanos() as u64);
    let stage = Stage { program: env::current_exe()?, seed };
    match arguments.program {
        None => everything(&stage),
        Some(Program::Worker { role, director, nodes, max_ttl_ms, restart_guard, label }) => {
            let (max_ttl, guarded) =
                (Duration::from_millis(max_ttl_ms), restart_guard == Switch::On);
            serve(&Part { director, nodes, max_ttl, guarded, label }, role)?;
            Ok(true)
        }
        Some(program) => one(program, &stage),
    }
}

fn one(program: Program, stage: &Stage) -> Result<bool, Failure> {
    match program {
        Program::Restarts { cycles, restart_guard, nodes, lanes, max_ttl_ms, stale } => {
            let (max_ttl, guarded) =
                (Duration::from_millis(max_ttl_ms), restart_guard == Switch::On);
            let results = Restarts { cycles, nodes, lanes, max_ttl, guarded, stale }.run(stage)?;
            for result in &results {
                tell(result, result.holds(), stage);
            }
            Ok(results.iter().all(redbolt_chaos::RestartsResult::holds))
        }
        Program::Fencing { grants, forget } => {
            let result = Fencing { grants, forget }.run(stage)?;
            Ok(tell(&result, result.holds(), stage))
        }
        Program::Ghosts { reps, controls, restarts } => {
            let result = Ghosts { reps, controls, restarts }.run()?;
            Ok(tell(&result, result.holds(), stage))
        }
        Program::Pauses { reps } => {
            let result = Pauses { reps }.run(stage)?;
            Ok(tell(&result, result.holds(), stage))
        }
        Program::AutoExtension { reps, nodes, careless } => {
            let results = AutoExtension { reps, nodes, careless }.run(stage)?;
            for result in &results {
                tell(result, result.holds(), stage);
            }
            Ok(results.iter().all(redbolt_chaos::AutoExtensionResult::holds))
        }
        Program::Storm { seconds, restart_guard, nodes, permits, shared } => {
            let (lasts, guarded) = (Duration::from_secs(seconds), restart_guard == Switch::On);
            let prize = match permits {
                Some(permits) => Prize::Permits(permits),
                None if shared => Prize::ReadWrite,
                None => Prize::Lock,
            };
            let result = Storm { lasts, nodes, guarded, prize }.run(stage)?;
            Ok(tell(&result, result.holds(), stage))
        }
        Program::FairQueue { rounds, timer } => {
            let result = FairQueue { rounds, in_queue: !timer }.run(stage)?;
            Ok(tell(&result, result.holds(), stage))
        }
        Program::Leaders { rounds, forget } => {
            let result = Leaders { rounds, forget }.run(stage)?;
            Ok(tell(&result, result.holds(), stage))
        }
        Program::Commands(calls) => {
            let (redbolt, lasts) = (calls.program(stage), calls.lasts());
            let Calls { lanes, both, .. } = calls;
            let result = Commands { redbolt, lasts, lanes, both }.run(stage)?;
            Ok(tell(&result, result.holds(), stage))
        }
        Program::Signals(calls) => {
            let (redbolt, lasts) = (calls.program(stage), calls.lasts());
            let Calls { lanes, both, .. } = calls;
            let result = SignalStorm { redbolt, lasts, lanes, both }.run(stage)?;
            Ok(tell(&result, result.holds(), stage))
        }
        Program::Worker { .. } => Err("only a program starts a worker".into()),
    }
}

fn everything(stage: &Stage) -> Result<bool, Failure> {
    let lines = [
        "restarts",
        "restarts --stale --cycles 100",
        "restarts --restart-guard off --cycles 50",
        "restarts --restart-guard off --stale --cycles 50",
        "fencing",
        "fencing --forget --grants 1000",
        "ghosts",
        "pauses",
        "auto-extension",
        "auto-extension --careless --reps 20",
        "storm --nodes 3",
        "storm --nodes 5",
        "storm --restart-guard off",
        "storm --permits 3",
        "storm --permits 3 --restart-guard off",
        "storm --shared",
        "storm --shared --restart-guard off",
        "fair-queue",
        "fair-queue --timer",
        "leaders",
        "leaders --forget",
        "commands --seconds 120",
        "commands --both --seconds 20",
        "signals",
        "signals --both --seconds 20",
    ];
    let mut all = true;
    for line in lines {
        println!("chaos {line}");
        let words = ["chaos"].into_iter().chain(line.split(' '));
        if let Some(program) = Arguments::try_parse_from(words)?.program {
            all &= one(program, stage)?;
        }
    }
    Ok(all)
}

fn tell(result: &impl Display, holds: bool, stage: &Stage) -> bool {
    let verdict = if holds { "ok" } else { "FAILED" };
    println!("{result} (seed {}): {verdict}", stage.seed);
    holds
}
