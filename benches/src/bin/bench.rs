//! The main program: runs the selected parts, prints their tables, and writes the report.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use clap::builder::{PossibleValue, PossibleValuesParser, RangedU64ValueParser};
use clap::{Parser, Subcommand};
use redbolt_benches::choice::Choice;
use redbolt_benches::crowd::worker::Order;
use redbolt_benches::machine::Machine;
use redbolt_benches::part::{PARTS, Part};
use redbolt_benches::placement::{Placement, usable_cores};
use redbolt_benches::progress::Progress;
use redbolt_benches::report::{Report, plain, prepare};
use redbolt_benches::section::Section;
use redbolt_benches::{contender, flight, stalled, waiting, weight};
use serde_json::json;

/// Compares redbolt with other clients, on real nodes that it starts itself.
#[derive(Parser)]
#[command(bin_name = "cargo xtask bench", args_conflicts_with_subcommands = true)]
struct Options {
    #[command(subcommand)]
    role: Option<Role>,
    /// The parts to measure; everything if omitted
    #[arg(value_parser = PossibleValuesParser::new(PARTS.iter().map(possible)))]
    part: Vec<String>,
    /// Fewer and shorter rounds: about two minutes in all
    #[arg(long)]
    quick: bool,
    /// The number of nodes; may be repeated
    #[arg(long, value_parser = RangedU64ValueParser::<usize>::new().range(1..=MOST_NODES))]
    nodes: Vec<usize>,
    /// Where client and nodes run: one-core, split or unpinned; may be repeated
    #[arg(long)]
    placement: Vec<Placement>,
    /// Only the floor, and contenders whose name contains this; may be repeated
    #[arg(long)]
    contender: Vec<String>,
    /// How many processes wait for one lock, in `waiting`; may be repeated
    #[arg(long, value_parser = RangedU64ValueParser::<usize>::new().range(2..=MOST_WAITERS))]
    waiters: Vec<usize>,
    /// How many milliseconds each of them holds it; may be repeated
    #[arg(long, value_name = "MS", value_parser = millis)]
    section: Vec<Duration>,
    /// The folder for RESULTS.md, results/full-run.html and results.json
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
}

#[derive(Subcommand)]
enum Role {
    /// One process of a crowd; the program starts these itself
    #[command(hide = true)]
    Worker(Order),
}

fn main() -> Result<ExitCode> {
    let options = Options::parse();
    if let Some(Role::Worker(order)) = options.role {
        order.carry_out()?;
        return Ok(ExitCode::SUCCESS);
    }
    let cores = usable_cores()?;
    options.check(&cores)?;
    prepare(&options.out)?;
    let machine = Machine::now(cores.len());
    println!("{}", machine.list());
    let parts = options.parts();
    let (out, choice) = (options.out.clone(), options.choice(cores));
    let (sections, failed) = run(&parts, &choice);
    Report { machine, command: command(), sections }.write(&out)?;
    println!("written to {}", out.join("RESULTS.md").display());
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Options {
    /// Checks for errors that would otherwise show after minutes, or never.
    fn check(&self, cores: &[usize]) -> Result<()> {
        let names = names();
        for part in &self.contender {
            let known = names.iter().any(|name| name.contains(part.as_str()));
            ensure!(
                known,
                "no contender has {part:?} in its name. There are: {}",
                names.join("; ")
            );
        }
        let split = self.placement.contains(&Placement::Split);
        ensure!(!split || cores.len() > 1, "--placement split needs two cores, and there is one");
        Ok(())
    }

    fn parts(&self) -> Vec<&'static Part> {
        let chosen =
            |part: &&Part| self.part.is_empty() || self.part.iter().any(|name| name == part.name);
        PARTS.iter().filter(chosen).collect()
    }

    fn choice(self, cores: Vec<usize>) -> Choice {
        Choice {
            quick: self.quick,
            nodes: self.nodes,
            placements: self.placement,
            contenders: self.contender,
            waiters: self.waiters,
            sections: self.section,
            cores,
        }
    }
}

/// Runs all parts. Returns their sections, and how many failed. A failure voids only its own part.
fn run(parts: &[&'static Part], choice: &Choice) -> (Vec<(&'static str, Section)>, usize) {
    let (progress, mut sections, mut failed) = (Progress::new(), Vec::new(), 0);
    for (at, part) in parts.iter().enumerate() {
        progress.part(at + 1, parts.len());
        let section = run_one(part, choice, &progress).unwrap_or_else(|error| {
            failed += 1;
            Section {
                title: part.name.to_owned(),
                text: format!("This part failed: {error:#}\n"),
                json: json!({ "error": format!("{error:#}") }),
                ..Section::default()
            }
        });
        progress.print(&plain(&section));
        sections.push((part.name, section));
    }
    progress.end();
    (sections, failed)
}

fn run_one(part: &Part, choice: &Choice, progress: &Progress) -> Result<Section> {
    // The previous part may have set an affinity.
    Placement::Unpinned.apply(&choice.cores, &[])?;
    match catch_unwind(AssertUnwindSafe(|| (part.run)(choice, progress))) {
        Ok(outcome) => outcome.context(part.name),
        Err(panic) => Err(words(&*panic).context(part.name)),
    }
}

fn words(panic: &(dyn Any + Send)) -> anyhow::Error {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    anyhow!("{}", text.unwrap_or("it panicked"))
}

/// Returns the command as the user typed it.
fn command() -> String {
    let arguments = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    std::iter::once("cargo xtask bench".to_owned()).chain(arguments).collect::<Vec<_>>().join(" ")
}

/// Returns the names of all contenders of all parts.
fn names() -> Vec<&'static str> {
    let pair = contender::ALL.iter().map(|entry| entry.name);
    let waiting = waiting::ALL.iter().map(|entry| entry.name);
    let flying = flight::ALL.iter().map(|entry| entry.name);
    let stalled = stalled::ALL.iter().map(|entry| entry.name);
    let built = weight::ALL.iter().map(|program| program.name);
    let mut names: Vec<_> = pair.chain(waiting).chain(flying).chain(stalled).chain(built).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn possible(part: &Part) -> PossibleValue {
    PossibleValue::new(part.name).help(part.about)
}

fn millis(text: &str) -> Result<Duration, std::num::ParseIntError> {
    text.parse().map(Duration::from_millis)
}

const MOST_NODES: u64 = 15;
const MOST_WAITERS: u64 = 256;
