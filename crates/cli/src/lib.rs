//! The parts of the program `redbolt` that read what users type and write, for its fuzz target.
//!
//! This is not a library to build on: without the feature `fuzz` it is empty, and it can change in
//! any version.

#![cfg(feature = "fuzz")]
#![deny(unsafe_code)]
#![allow(dead_code, reason = "the program uses the rest of these modules")]

mod addresses;
mod args;
mod duration;
mod environment;
mod exit;
mod given;
mod help;
mod name;
mod nodes;
#[doc(hidden)]
pub mod read_any;
mod say;
#[cfg(target_os = "linux")]
mod speak;
mod token_file;
mod variables;
mod verbose;
