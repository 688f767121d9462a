//! `interop`: checks redbolt together with real processes of other lock libraries, on the same real
//! nodes.
//!
//! Both sides exclude each other, wake each other, extend, die and leave nothing. Each check has a
//! control that makes it fail.

mod beside;
mod checks;
mod failure;
mod fleet;
mod libraries;
mod library;
mod own;
mod peer;
mod table;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use redbolt::Profile;
use redbolt_testkit::publish;

use self::beside::Effort;
use self::checks::{Check, Extent, Found};
use self::fleet::Fleet;
use self::libraries::ALL;
use self::library::Library;
use self::table::Section;

/// Checks redbolt together with other libraries. They are installed into ~/.cache/redbolt-interop,
/// or into REDBOLT_INTEROP_CACHE.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask interop")]
struct Arguments {
    /// Only this library; may be repeated
    #[arg(long = "peer", value_name = "NAME")]
    peers: Vec<String>,
    /// Only this check; may be repeated
    #[arg(long = "check", value_name = "NAME")]
    checks: Vec<String>,
    /// Only libraries that are installed already
    #[arg(long)]
    installed: bool,
    /// For libraries that lock as others do, run only the most important checks, on one node
    #[arg(long)]
    short: bool,
    /// How often each side takes the lock in the check of exclusion
    #[arg(long, default_value_t = 450)]
    turns: u32,
    /// How many hand-offs are measured; with --beside, in each round
    #[arg(long, default_value_t = 40)]
    hand_offs: usize,
    /// Instead of the checks, measure Redisson and redbolt in turn: uncontended locks, and
    /// hand-offs
    #[arg(long)]
    beside: bool,
    /// How many rounds are measured with --beside
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// How many locks are measured in each of these rounds
    #[arg(long, default_value_t = 500)]
    pairs: usize,
    /// Write the results to this file; results of other libraries in it stay
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Be a process of redbolt that executes commands
    #[arg(long, hide = true, num_args = 1.., value_name = "PROFILE> <NODE")]
    as_peer: Vec<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if !arguments.as_peer.is_empty() {
        return be_a_peer(&arguments.as_peer);
    }
    let wanted = |library: &&Library| {
        arguments.peers.is_empty() || arguments.peers.iter().any(|name| name == library.name)
    };
    let can = |library: &&Library| !arguments.beside || library.profile == Profile::REDISSON;
    let libraries: Vec<_> = ALL.iter().filter(wanted).filter(can).collect();
    if libraries.is_empty() {
        eprintln!("interop: no such library, there are {}", ALL.map(|it| it.name).join(", "));
        return ExitCode::FAILURE;
    }
    let sections: Vec<_> = libraries.iter().flat_map(|library| of(library, &arguments)).collect();
    let has_failed = sections.iter().any(|section| section.has_failed);
    let before = arguments.write.as_ref().map(fs::read_to_string).and_then(Result::ok);
    let page = table::page(sections, &before.unwrap_or_default());
    publish("interop", &page, arguments.write.as_deref(), has_failed)
}

fn be_a_peer(words: &[String]) -> ExitCode {
    match own::serve(words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("interop: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns a section for each number of nodes that a library can have.
fn of(library: &Library, arguments: &Arguments) -> Vec<Section> {
    let not_run = |reason: String| {
        println!("interop: {} {} was not run: {reason}", library.name, library.version);
        vec![Section::not_run(library, &reason)]
    };
    if let Some(program) = library.missing_runtime() {
        return not_run(format!("no {program}"));
    }
    if arguments.installed && !library.is_installed() {
        return not_run(format!("cargo xtask interop --peer {} installs it", library.name));
    }
    if let Err(error) = library.install() {
        return not_run(error.to_string());
    }
    let Arguments { turns, hand_offs, rounds, pairs, .. } = *arguments;
    if arguments.beside {
        return vec![beside::section(library, Effort { rounds, pairs, hand_offs })];
    }
    let is_short = arguments.short && library.is_one_of_many;
    let nodes: &[usize] = if library.takes_majorities && !is_short { &[1, 3] } else { &[1] };
    let extent = Extent { turns, hand_offs };
    let is_wanted = |name: &str| {
        let is_named = arguments.checks.is_empty() || arguments.checks.iter().any(|it| it == name);
        is_named && (!is_short || checks::SHORT.contains(&name))
    };
    nodes
        .iter()
        .map(|&nodes| Section::new(library, nodes, &run(library, nodes, extent, &is_wanted)))
        .collect()
}

/// Returns the result of each check.
fn run(
    library: &Library,
    nodes: usize,
    extent: Extent,
    is_wanted: &dyn Fn(&str) -> bool,
) -> Vec<(&'static str, Result<Found, String>)> {
    println!("interop: {} {}, nodes: {nodes}", library.name, library.version);
    let fleet = match Fleet::start(library, nodes) {
        Ok(fleet) => fleet,
        Err(error) => return vec![("start", Err(error.to_string()))],
    };
    let check = |&(name, check): &Check| {
        let outcome = check(&fleet, extent).map_err(|error| error.to_string());
        let words = outcome.as_ref().map_or_else(String::as_str, |found| &found.words);
        println!("  {name}: {words}");
        (name, outcome)
    };
    checks::ALL.iter().filter(|(name, _)| is_wanted(name)).map(check).collect()
}
