//! The conformance of redbolt's RESP2 codec, one file per way of proving it.
//!
//! Every test prints what it went over, past the harness's capture, because a count that
//! silently fell to zero would be a test that asserts nothing.

// A test reports by panicking.
#![allow(clippy::unwrap_used)]

mod allocation;
mod differential;
mod dump;
mod echo;
mod hostile;
mod linear;
mod properties;
mod recorded;
mod vectors;

use std::io::Write as _;

/// Prints a line that the harness does not swallow.
fn report(line: &str) {
    writeln!(std::io::stderr().lock(), "resp-tests: {line}").expect("standard error takes a line");
}
