//! A node address as written, and its origin.

use std::fmt;
use std::path::PathBuf;

use redbolt::net::Address;

use crate::exit::Failure;
use crate::variables::NODES_VARIABLE;

/// An address as written, and its origin.
#[derive(Clone, Debug)]
pub(crate) struct Given {
    pub(crate) text: String,
    pub(crate) origin: Origin,
}

#[derive(Clone, Debug)]
pub(crate) enum Origin {
    Option,
    Variable,
    Line(PathBuf, usize),
}

impl Given {
    /// Returns a failure about this address that names its origin.
    pub(crate) fn wrong(&self, error: impl fmt::Display) -> Failure {
        let error = match self.before_comment() {
            Some(address) => format!("node address `{address}`: {COMMENT}"),
            None => error.to_string(),
        };
        Failure::usage(match &self.origin {
            Origin::Option => format!("--node: {error}"),
            Origin::Variable => format!("{NODES_VARIABLE}: {error}"),
            Origin::Line(path, line) => format!("{} line {line}: {error}", path.display()),
        })
    }

    /// Returns the address before a comment, if the line of the file has one.
    pub(crate) fn before_comment(&self) -> Option<Address> {
        let Origin::Line(..) = self.origin else { return None };
        let at = self.text.match_indices('#').map(|(at, _)| at);
        let mut blank = at.filter(|&at| self.text[..at].ends_with(char::is_whitespace));
        let address = self.text[..blank.next()?].trim_end();
        Some(Address::parse(address).ok()?.0)
    }
}

const COMMENT: &str =
    "a comment needs a line of its own, which begins with #; in a password, write a blank as %20";
