//! Decides whether standard output gets colours.

use std::env;
use std::io::{self, IsTerminal};

/// Returns whether to write colours: to a terminal that can show them, unless `NO_COLOR` is set.
pub(crate) fn is_wanted() -> bool {
    let named = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    let is_dumb = named("TERM").is_none_or(|term| term == "dumb");
    io::stdout().is_terminal() && !is_dumb && named("NO_COLOR").is_none()
}
