//! Counts the instructions of every scenario and prints them by the functions of the source.
//!
//! `measure [PART-OF-A-NAME…]`. For each scenario a line with its name and the instructions of one
//! repetition, and below it one for each function: its own instructions, those with everything that it
//! calls, and its path. It runs the other programs of this crate, which lie beside it, in valgrind.
//!
//! The functions of this crate play the caller and are not part of a total. Not here: what the figures are
//! compared with.

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

/// Instructions of all repetitions.
#[derive(Clone, Copy, Default)]
struct Cost {
    own: u64,
    /// With everything that it calls.
    all: u64,
}

/// By the path of the function.
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

/// Rounded: what happens now and then has its share.
fn per_repetition(instructions: u64) -> u64 {
    let times = REPETITIONS as u64;
    (instructions + times / 2) / times
}

/// What a program prints, if it ends well.
fn output(command: &mut Command) -> Outcome<String> {
    let name = Path::new(command.get_program()).display().to_string();
    let output = command.output().map_err(|error| format!("{name} could not be run: {error}"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{name} ended with {}:\n{errors}", output.status).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// From the bottom up.
const PROGRAMS: [&str; 3] = ["count-codec", "count-core", "count-api"];

/// How the functions of this crate begin, and those of what drives the core for it and answers it.
const CALLERS: [&str; 4] = ["count_", "redbolt_counts::", "redbolt_testkit::", "redbolt_node::"];
