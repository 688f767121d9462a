//! `servers`: redbolt on every server program of this machine, as a table.

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use redbolt_servers::{Row, in_folder, page};
use redbolt_test_servers::programs;
use redbolt_testkit::publish;

/// Checks redbolt on the system's server, and on those in the folder that REDBOLT_SERVERS names.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask servers")]
struct Arguments {
    /// Write the table to this file
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut all = programs();
    if let Some(folder) = env::var_os("REDBOLT_SERVERS") {
        match in_folder(Path::new(&folder)) {
            Ok(found) => all.extend(found),
            Err(error) => {
                eprintln!("servers: {}: {error}", folder.display());
                return ExitCode::FAILURE;
            }
        }
    }
    let rows: Vec<Row> = all.iter().map(|program| Row::of(program)).collect();
    let has_failed = rows.iter().any(Row::has_failed);
    publish("servers", &page(rows), arguments.write.as_deref(), has_failed)
}
