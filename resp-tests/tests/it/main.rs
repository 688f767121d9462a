//! The conformance tests of the RESP2 codec, one file per method.
//!
//! Every test prints its counts past the harness's capture, because a test whose count silently
//! fell to zero would assert nothing.

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

/// Prints a line that the harness does not capture.
fn report(line: &str) {
    writeln!(std::io::stderr().lock(), "resp-tests: {line}").expect("standard error takes a line");
}
