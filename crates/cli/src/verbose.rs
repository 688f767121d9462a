//! `--verbose`: the library's notes on standard error.
//!
//! A note is written at once or dropped, because the library extends no lock while it is called.

use redbolt::log::{Log, Note};

#[cfg(not(target_os = "linux"))]
use crate::say::say;
#[cfg(target_os = "linux")]
use crate::speak::say;

/// Writes each note as a line.
#[derive(Debug)]
pub(crate) struct Verbose;

impl Log for Verbose {
    fn note(&self, note: &Note<'_>) {
        say(note);
    }
}
