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
    #[cfg(any(test, feature = "fuzz"))]
    if let Some(variables) = chosen::variables() {
        return variables.get(name).cloned().filter(|value| !value.is_empty());
    }
    env::var_os(name).filter(|value| !value.is_empty())
}

/// Parses the words of a command line, with the variables of the options that it does not have.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let mut command = without_empty_variables(Cli::command());
    #[cfg(any(test, feature = "fuzz"))]
    let words = chosen::complete(&command, words.into_iter().collect());
    let mut matches = command.try_get_matches_from_mut(words)?;
    Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// clap would take an empty value from them.
fn without_empty_variables(command: Command) -> Command {
    let set = |arg: Arg| {
        let is_empty = arg
            .get_env()
            .is_some_and(|name| env::var_os(name).is_some_and(|value| value.is_empty()));
        #[cfg(any(test, feature = "fuzz"))]
        let is_empty = is_empty || chosen::variables().is_some();
        if is_empty { arg.env(Resettable::Reset) } else { arg }
    };
    command.mut_args(set).mut_subcommands(without_empty_variables)
}

/// Variables that a test chooses, instead of those of the process, which no test may change while others run.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod chosen {
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStrExt;
    use std::rc::Rc;

    use clap::Command;

    use crate::args::VARIABLES;

    pub(crate) type Variables = BTreeMap<&'static str, OsString>;

    thread_local! {
        static CHOSEN: RefCell<Option<Rc<Variables>>> = const { RefCell::new(None) };
    }

    /// Returns the variables that were chosen for this thread.
    pub(crate) fn variables() -> Option<Rc<Variables>> {
        CHOSEN.with_borrow(Clone::clone)
    }

    /// Runs `body` on this thread as if these were all variables.
    #[cfg_attr(not(test), allow(dead_code, reason = "the program has only those of its process"))]
    pub(crate) fn with<T>(variables: Variables, body: impl FnOnce() -> T) -> T {
        let before = CHOSEN.replace(Some(Rc::new(variables)));
        let outcome = body();
        CHOSEN.set(before);
        outcome
    }

    /// Adds the options that the chosen variables stand for, because clap reads only those of the process.
    pub(crate) fn complete(command: &Command, mut words: Vec<OsString>) -> Vec<OsString> {
        let Some(variables) = variables() else { return words };
        let subcommand = words.get(1).and_then(|name| command.find_subcommand(name));
        let Some(subcommand) = subcommand else { return words };
        let is_option = |word: &&OsString| *word != "--";
        for (option, variable) in VARIABLES {
            let is_typed = |word: &OsString| {
                let rest = word.as_bytes().strip_prefix(option.as_bytes());
                rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'=')
            };
            let is_known = subcommand.get_arguments().any(|arg| arg.get_long() == option.get(2..));
            let value = variables.get(variable).filter(|value| !value.is_empty());
            let Some(value) = value.filter(|_| is_known) else { continue };
            if !words.iter().take_while(is_option).any(is_typed) {
                let mut word = OsString::from(format!("{option}="));
                word.push(value);
                words.insert(2, word);
            }
        }
        words
    }
}
