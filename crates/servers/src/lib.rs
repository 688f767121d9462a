//! Redbolt on every server program that is here: which of its features work, and what each server lacks, by name.
//!
//! Apart from the tests of the library because the programs are whatever a machine has: the system's, and those in a
//! folder. `cargo test` runs it on the system's. Not here: starting servers, see `redbolt-test-servers`; what each
//! feature has to do in detail, see `tests/it` of the library; getting the programs.

#![deny(missing_docs, unsafe_code)]

mod cell;
mod checks;
mod node;
mod programs;
mod table;

pub use cell::Cell;
pub use checks::{features, run};
pub use programs::{in_folder, kind_of};
pub use table::{Row, page};
