//! `interop`: redbolt beside real processes of other lock libraries, on the same real nodes.
//!
//! Both exclude each other, wake each other, extend, die and leave nothing. Each check has a control that makes it fail.

mod checks;
mod fleet;
mod library;
mod peer;
mod table;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use redbolt_testkit::publish;

use self::checks::{Check, Extent};
use self::fleet::Fleet;
use self::library::{ALL, Library};
use self::table::Row;

type Failure = Box<dyn Error>;

/// Checks redbolt beside other libraries. They are installed into ~/.cache/redbolt-interop, or where REDBOLT_INTEROP_CACHE says.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask interop")]
struct Arguments {
    /// Only this library; may be repeated
    #[arg(long = "peer", value_name = "NAME")]
    peers: Vec<String>,
    /// Only what is installed already
    #[arg(long)]
    installed: bool,
    /// How often each side takes the lock in the check of exclusion
    #[arg(long, default_value_t = 450)]
    turns: u32,
    /// How many hand-offs are measured
    #[arg(long, default_value_t = 40)]
    hand_offs: usize,
    /// Write the table to this file
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let wanted = |library: &&Library| {
        arguments.peers.is_empty() || arguments.peers.iter().any(|name| name == library.name)
    };
    let libraries: Vec<_> = ALL.iter().filter(wanted).collect();
    if libraries.is_empty() {
        eprintln!("interop: no such library, there are {}", ALL.map(|it| it.name).join(", "));
        return ExitCode::FAILURE;
    }
    let rows: Vec<_> = libraries.iter().flat_map(|library| of(library, &arguments)).collect();
    let has_failed = rows.iter().any(Row::has_failed);
    publish("interop", &table::page(&rows), arguments.write.as_deref(), has_failed)
}

/// A row for each number of nodes that a library can have.
fn of(library: &Library, arguments: &Arguments) -> Vec<Row> {
    let not_run = |reason: String| {
        println!("interop: {} {} was not run: {reason}", library.name, library.version);
        vec![Row::not_run(library, &reason)]
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
    let nodes: &[usize] = if library.takes_majorities { &[1, 3] } else { &[1] };
    let extent = Extent { turns: arguments.turns, hand_offs: arguments.hand_offs };
    nodes.iter().map(|&nodes| Row::new(library, nodes, run(library, nodes, extent))).collect()
}

/// What each check has found out.
fn run(library: &Library, nodes: usize, extent: Extent) -> Vec<Result<String, String>> {
    println!("interop: {} {}, nodes: {nodes}", library.name, library.version);
    let fleet = match Fleet::start(library, nodes) {
        Ok(fleet) => fleet,
        Err(error) => return vec![Err(error.to_string())],
    };
    let check = |&(name, check): &Check| {
        let outcome = check(&fleet, extent).map_err(|error| error.to_string());
        println!("  {name}: {}", outcome.as_deref().unwrap_or_else(|error| error));
        outcome
    };
    checks::ALL.iter().map(check).collect()
}
