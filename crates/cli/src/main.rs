//! The command `redbolt`: run a command under a lock, look at locks, and measure nodes.
//!
//! Each subcommand has its own module, and this file dispatches to them. [`exit`] defines every
//! exit status. Locks are implemented by the library.

#![deny(unsafe_code)]
#![cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "`lock` is for Linux"))]

mod addresses;
#[cfg(test)]
mod any_input;
mod args;
#[cfg(target_os = "linux")]
mod bench;
#[cfg(target_os = "linux")]
mod birth;
mod colour;
mod contact;
mod demo;
mod doctor;
mod duration;
mod environment;
mod exit;
mod foreign;
mod given;
mod held;
mod help;
mod init;
mod link;
mod list;
#[cfg(target_os = "linux")]
mod lock;
mod man;
mod name;
mod node;
mod nodes;
mod observe;
#[cfg(test)]
mod read_any;
mod say;
mod scan;
#[cfg(target_os = "linux")]
mod signals;
#[cfg(target_os = "linux")]
mod speak;
mod status;
mod token_file;
mod unlock;
mod variables;
mod verbose;
mod waiters;

use std::env;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use clap_complete::Shell;

use crate::args::{Cli, Command};
#[cfg(target_os = "linux")]
use crate::args::{InnerArgs, LockArgs, ShimArgs};
use crate::exit::Failure;
use crate::say::{print, say};

fn main() -> ExitCode {
    let outcome = match env::args_os().nth(1) {
        #[cfg(target_os = "linux")]
        Some(word) if word == args::SHIM => shim(),
        #[cfg(target_os = "linux")]
        Some(word) if word == args::INNER => inner(),
        // The inner process parses the rest, and parsing it twice takes time.
        #[cfg(target_os = "linux")]
        Some(word) if word == "lock" => {
            let ended = lock::check_proc().and_then(|()| lock::outer::run());
            Ok(ended.map_err(|failure| failure.about(&lock::outer::name_of_lock())))
        }
        _ => environment::parse(env::args_os()).map(|cli| run_named(&cli.command.with_keys())),
    };
    match outcome {
        Ok(Ok(status)) => status.into(),
        Ok(Err(failure)) => {
            say(&failure);
            failed(failure.status())
        }
        Err(refusal) => {
            let words: Vec<_> = env::args_os().collect();
            refuse(&environment::blame_environment(refusal, &words))
        }
    }
}

#[cfg(target_os = "linux")]
fn shim() -> Result<Result<u8, Failure>, clap::Error> {
    let args = ShimArgs::try_parse_from(env::args_os().skip(1))?;
    Ok(Ok(lock::shim::exec(&args)))
}

#[cfg(target_os = "linux")]
fn inner() -> Result<Result<u8, Failure>, clap::Error> {
    let inner = InnerArgs::try_parse_from(env::args_os().skip(1))?;
    let cli = environment::parse_typed(&inner)?;
    Ok(match cli.command.with_keys() {
        Command::Lock(args) => run_inner(&args, &inner),
        Command::Lead(args) => run_inner(&args.into(), &inner),
        Command::Hold(args) => lock::keeper::run(&args, &inner)
            .map_err(|failure| failure.about(&name::show(&args.key))),
        command => run_named(&command),
    })
}

#[cfg(target_os = "linux")]
fn run_inner(args: &LockArgs, inner: &InnerArgs) -> Result<u8, Failure> {
    lock::run(args, inner).map_err(|failure| failure.about(&name::show(&args.key)))
}

/// Runs a command, and names the lock if the operating system refuses something.
fn run_named(command: &Command) -> Result<u8, Failure> {
    run(command).map_err(|failure| match command.lock_name() {
        Some(name) => failure.about(&name::show(name)),
        None => failure,
    })
}

fn run(command: &Command) -> Result<u8, Failure> {
    match command {
        #[cfg(target_os = "linux")]
        Command::Lock(_) => lock::check_proc().and_then(|()| lock::outer::run()),
        #[cfg(not(target_os = "linux"))]
        Command::Lock(_) => Err(Failure::usage(
            "redbolt lock needs Linux, for signalfd and the parent-death signal",
        )),
        #[cfg(target_os = "linux")]
        Command::Lead(args) => lock::check_proc().and_then(|()| lock::outer::lead(args.once)),
        #[cfg(not(target_os = "linux"))]
        Command::Lead(_) => Err(Failure::usage(
            "redbolt lead needs Linux, for signalfd and the parent-death signal",
        )),
        Command::Observe(args) => observe::run(args),
        #[cfg(target_os = "linux")]
        Command::Hold(args) => lock::hold::run(args),
        #[cfg(not(target_os = "linux"))]
        Command::Hold(_) => Err(Failure::usage("redbolt hold needs Linux, for signalfd and pidfd")),
        #[cfg(target_os = "linux")]
        Command::Acquire(args) => lock::acquire::run(args),
        #[cfg(not(target_os = "linux"))]
        Command::Acquire(_) => Err(Failure::usage("redbolt acquire needs Linux, for signalfd")),
        Command::Extend(args) => shield().and_then(|()| held::extend(args)),
        Command::Release(args) => shield().and_then(|()| held::release(args)),
        Command::Unlock(args) => shield().and_then(|()| unlock::run(args)),
        Command::Status(args) => status::run(args),
        Command::List(args) => list::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Init(args) => init::run(args),
        #[cfg(target_os = "linux")]
        Command::Bench(args) => bench::run(args),
        #[cfg(not(target_os = "linux"))]
        Command::Bench(_) => Err(Failure::usage("redbolt bench needs Linux, for signalfd")),
        Command::Node(args) => node::run(args),
        Command::Demo => demo::run(),
        Command::Man { directory } => man::run(directory),
        Command::Completions { shell } => completions(*shell),
    }
}

fn completions(shell: Shell) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "redbolt", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(exit::SUCCESS)
}

/// Blocks signals that must not end a short command half-way.
fn shield() -> Result<(), Failure> {
    #[cfg(target_os = "linux")]
    signals::shield()?;
    Ok(())
}

/// Returns the exit code of a failure. A shell that evaluates the output of `redbolt hold --sh`
/// also ends with it.
fn failed(status: u8) -> ExitCode {
    #[cfg(target_os = "linux")]
    if lock::hold::is_for_shell() {
        // If this cannot be printed, the status still reports the failure.
        let _ = print(&lock::hold::exit_line(status));
    }
    ExitCode::from(status)
}

/// Help and version are successes. Everything else that stops the parser is a usage error.
fn refuse(refusal: &clap::Error) -> ExitCode {
    // If this cannot be printed, the status still reports the result.
    let _ = refusal.print();
    if refusal.use_stderr() { failed(exit::USAGE) } else { ExitCode::from(exit::SUCCESS) }
}
