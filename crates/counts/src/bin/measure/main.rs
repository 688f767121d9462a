//! Counts the instructions of every scenario and prints them by source function.
//!
//! `measure [PART-OF-A-NAME…]`. The output has for each scenario a line with its name and the
//! instructions of one repetition, followed by a line for each function: its own instructions,
//! those including its callees, and its path. This program runs the other programs of this crate,
//! from its own folder, in valgrind.
//!
//! This crate's own functions play the caller and do not count in the total.

mod callgrind;
mod names;
mod stacks;

use std::collections::HashMap;
use std::env;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::Command;

use redbolt_counts::REPETITIONS;

use crate::stacks::Stacks;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let wanted: Vec<String> = env::args().skip(1).collect();
    println!("counter {}", output(Command::new("valgrind").arg("--version"))?.trim());
    for name in PROGRAMS {
        let program = env::current_exe()?.with_file_name(name);
        let bytes = fs::read(&program)?;
        let stacks = &mut Stacks::of(&bytes)?;
        for scenario in output(&mut Command::new(&program))?.lines() {
            if wanted.is_empty() || wanted.iter().any(|part| scenario.contains(part)) {
                eprintln!("counting {scenario}");
                print(scenario, costs(&program, scenario, stacks)?);
            }
        }
    }
    Ok(())
}

/// The instructions of all repetitions.
#[derive(Clone, Copy, Default)]
struct Cost {
    own: u64,
    /// The instructions including those of its callees.
    all: u64,
}

/// The costs by the function's path.
type Costs = HashMap<String, Cost>;

fn costs(program: &Path, scenario: &str, stacks: &mut Stacks<'_>) -> Outcome<Costs> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("counted");
    output(&mut callgrind::count(program, scenario, &file))?;
    let mut costs = Costs::new();
    for entry in callgrind::entries(&fs::read_to_string(file)?, program) {
        let stack = stacks.at(&entry);
        let innermost = stack.first().ok_or("a stack without a function")?;
        if !entry.is_call {
            costs.entry(innermost.clone()).or_default().own += entry.instructions;
        }
        for (at, function) in stack.iter().enumerate() {
            if !stack[..at].contains(function) {
                costs.entry(function.clone()).or_default().all += entry.instructions;
            }
        }
    }
    costs.retain(|name, _| !CALLERS.iter().any(|caller| name.starts_with(caller)));
    Ok(costs)
}

fn print(scenario: &str, costs: Costs) {
    println!("{scenario} {}", per_repetition(costs.values().map(|cost| cost.own).sum()));
    for (name, cost) in costs {
        println!("  {} {} {name}", per_repetition(cost.own), per_repetition(cost.all));
    }
}

/// Returns the instructions of one repetition, rounded: rare work contributes a fraction.
fn per_repetition(instructions: u64) -> u64 {
    let times = REPETITIONS as u64;
    (instructions + times / 2) / times
}

/// Returns the output of a program that must succeed.
fn output(command: &mut Command) -> Outcome<String> {
    let name = Path::new(command.get_program()).display().to_string();
    let output = command.output().map_err(|error| format!("{name} could not be run: {error}"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{name} ended with {}:\n{errors}", output.status).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// The programs, from the lowest layer to the highest.
const PROGRAMS: [&str; 3] = ["count-codec", "count-core", "count-api"];

/// The prefixes of this crate's functions, and of those that drive the core and answer it.
const CALLERS: [&str; 4] = ["count_", "redbolt_counts::", "redbolt_testkit::", "redbolt_node::"];
