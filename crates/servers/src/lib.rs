//! Runs redbolt on every server program of the machine, and reports which of its features work and
//! what each server lacks.
//!
//! The programs are the system's and those in a folder, so this is not a test of the library;
//! `cargo test` runs it on the system's. The tests of each feature in detail are in `tests/it` of
//! the library.

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
