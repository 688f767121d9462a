//! Variables of the environment, and the command line that they complete.
//!
//! A variable that is empty is not set. docker compose (`X=${X}`), Helm and systemd make such variables.

use std::env;
use std::ffi::OsString;

use clap::builder::Resettable;
use clap::{Arg, Command, CommandFactory, FromArgMatches};

use crate::args::Cli;

/// Returns the value of a variable, unless it is empty.
pub(crate) fn value(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// Parses the words of a command line, with the variables of the options that it does not have.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let mut command = without_empty_variables(Cli::command());
    let mut matches = command.try_get_matches_from_mut(words)?;
    Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// clap would take an empty value from them.
fn without_empty_variables(command: Command) -> Command {
    let set = |arg: Arg| {
        let is_empty = arg
            .get_env()
            .is_some_and(|name| env::var_os(name).is_some_and(|value| value.is_empty()));
        if is_empty { arg.env(Resettable::Reset) } else { arg }
    };
    command.mut_args(set).mut_subcommands(without_empty_variables)
}
