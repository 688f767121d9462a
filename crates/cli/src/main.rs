//! The command `redbolt`: look at locks, and try them out.
//!
//! Each subcommand is a module of its own; this file only tells them apart. What every exit
//! status means is in [`exit`]. Not here, nor anywhere in this crate: how a lock is taken, which is
//! the library's.

#![forbid(unsafe_code)]

mod args;
mod demo;
mod duration;
mod exit;
mod node;
mod nodes;
mod say;
mod status;

use std::io;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::args::{Cli, Command};
use crate::exit::Failure;
use crate::say::say;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(refusal) => return refuse(&refusal),
    };
    ExitCode::from(run(&cli.command).unwrap_or_else(|failure| {
        say(&failure);
        failure.status()
    }))
}

fn run(command: &Command) -> Result<u8, Failure> {
    match command {
        Command::Status(args) => status::run(args),
        Command::Node(args) => node::run(args),
        Command::Demo => demo::run(),
        Command::Completions { shell } => {
            clap_complete::generate(*shell, &mut Cli::command(), "redbolt", &mut io::stdout());
            Ok(exit::SUCCESS)
        }
    }
}

/// Help and version are answers; everything else that stops the parser is a usage error.
fn refuse(refusal: &clap::Error) -> ExitCode {
    // Where it cannot be printed, the status still says it.
    let _ = refusal.print();
    ExitCode::from(if refusal.use_stderr() { exit::USAGE } else { exit::SUCCESS })
}
