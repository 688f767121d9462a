//! Parses the command line, with missing options taken from environment variables.

use std::env;
use std::ffi::OsString;

use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, Command, CommandFactory, FromArgMatches};

use crate::args::{Cli, INNER, InnerArgs};
use crate::variables;
#[cfg(any(test, feature = "fuzz"))]
use crate::variables::chosen;

/// Parses the words of a command line, with the variables of the options that it does not have.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let mut command = without_empty_variables(Cli::command());
    #[cfg(any(test, feature = "fuzz"))]
    let words = chosen::complete(&command, words.into_iter().collect());
    let mut matches = command.try_get_matches_from_mut(words)?;
    Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// Parses the user's command line in the inner process of `redbolt lock`.
pub(crate) fn parse_typed(inner: &InnerArgs) -> Result<Cli, clap::Error> {
    parse([OsString::from("redbolt")].into_iter().chain(inner.words.iter().cloned()))
}

/// Removes empty variables, because clap would accept their empty values.
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

/// If a refused value came from the environment, names the variable instead of the option.
pub(crate) fn blame_environment(mut refusal: clap::Error, words: &[OsString]) -> clap::Error {
    let (Some(ContextValue::String(option)), Some(ContextValue::String(value))) =
        (refusal.get(ContextKind::InvalidArg), refusal.get(ContextKind::InvalidValue))
    else {
        return refusal;
    };
    let option = option.split([' ', '=']).next().unwrap_or_default();
    let is_typed = |word: &OsString| {
        let rest = word.as_encoded_bytes().strip_prefix(option.as_bytes());
        rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'=')
    };
    let variable = variables::of_option(option);
    let said = variable.and_then(variables::value).and_then(|said| said.into_string().ok());
    let said = said.unwrap_or_default();
    if let Some(variable) = variable
        && !typed(words).iter().take_while(|&word| word != "--").any(is_typed)
        && (said == *value || said.split(',').any(|part| part == value))
    {
        let blamed = ContextValue::String(format!("{variable} in the environment"));
        refusal.insert(ContextKind::InvalidArg, blamed);
    }
    refusal
}

/// Returns the user's words after `redbolt`. In the inner process, words for that process come
/// first.
fn typed(words: &[OsString]) -> &[OsString] {
    let own = match words.get(1) {
        Some(word) if word == INNER => words.iter().position(|word| word == "--"),
        _ => Some(0),
    };
    own.map_or(&[], |own| &words[own + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_user_has_typed_is_behind_the_words_of_the_inner_process() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert_eq!(typed(&words("redbolt status --max-ttl x")), words("status --max-ttl x"));
        let inner = words("redbolt __inner --outer 7 -- lock --max-ttl x job -- a");
        assert_eq!(typed(&inner), words("lock --max-ttl x job -- a"));
    }
}
