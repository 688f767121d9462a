//! Redbolt on every server program that is here: which of its features work, and what each server lacks, by name.
//!
//! Apart from the tests of the library because the programs are whatever a machine has: the system's, and those in a
//! folder. `cargo test` runs it on the system's. Not here: starting servers, see `redbolt-test-servers`; what each
//! feature has to do in detail, see `tests/it` of the library; getting the programs.

#![deny(missing_docs, unsafe_code)]

mod checks;
mod node;
mod programs;
mod table;

use std::error::Error;
use std::ffi::OsStr;

pub use programs::{in_folder, kind_of};
pub use table::{Row, page};

/// Why a check did not come to its end.
type Failure = Box<dyn Error>;

/// What came of one feature on one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    /// It works.
    Yes,
    /// It works in the way that the words say.
    By(String),
    /// redbolt refuses it or does without, and says why in these words.
    Named(String),
    /// It does not do what redbolt promises.
    Failed(String),
}

/// The features, in the order of [`run`]'s cells.
pub fn features() -> impl Iterator<Item = &'static str> {
    checks::ALL.iter().map(|(name, _)| *name)
}

/// Runs all checks on a program that is started with these arguments, each on servers of its own.
pub fn run(program: &OsStr, args: &[&str]) -> Vec<Cell> {
    checks::ALL.iter().map(|(_, check)| checks::outcome(*check, program, args)).collect()
}
