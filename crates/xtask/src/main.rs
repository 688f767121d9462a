//! The project's own commands: `cargo xtask test`, `cargo xtask demo`, `cargo xtask fuzz`,
//! `cargo xtask prove`.
//!
//! Apart from the other crates because it needs none of them: a machine with Rust and a shell must be
//! able to build it and be told what else is missing. Not here: what the tests test.

mod programs;
mod results;
mod step;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::step::{Failure, cargo};

/// The project's own commands.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Show locks being taken, refused and released on embedded nodes
    Demo,
    /// Run the fuzz targets for real; `cargo xtask fuzz --help` shows the options
    #[command(disable_help_flag = true)]
    Fuzz {
        /// What the fuzz program takes; --help shows it
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Prove promises on real servers; `cargo xtask prove --help` shows the programs
    #[command(disable_help_flag = true)]
    Prove {
        /// What the prove program takes; --help shows it
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Run every check and every test, and install the programs that they need
    Test,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().task {
        Task::Demo => demo(),
        Task::Fuzz { arguments } => fuzz(&arguments),
        Task::Prove { arguments } => prove(&arguments),
        Task::Test => test::everything(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("\nxtask: FAILED: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// The demo of the command line, as fast as it really is. Building is quiet unless it fails.
fn demo() -> Result<(), Failure> {
    eprintln!("xtask: building redbolt; the first time takes a minute");
    let mut demo = cargo("run");
    demo.args(["--quiet", "--package", "redbolt-cli", "--release", "--bin", "redbolt"]);
    step::run("demo", demo.args(["--", "demo"]))
}

/// The targets over and over, with inputs that a fuzzer makes up. It needs a C++ compiler.
fn fuzz(arguments: &[String]) -> Result<(), Failure> {
    let mut fuzz = cargo("run");
    fuzz.args(["--quiet", "--package", "redbolt-fuzz", "--bin", "fuzz", "--"]);
    step::run("fuzz", fuzz.args(arguments))
}

/// Real servers, processes and faults, at full size.
fn prove(arguments: &[String]) -> Result<(), Failure> {
    let mut prove = cargo("run");
    prove.args(["--quiet", "--package", "redbolt-prove", "--release", "--bin", "prove", "--"]);
    step::run("prove", prove.args(arguments))
}
