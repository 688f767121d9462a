//! Messages of redbolt itself on standard error, and reports on standard output.
//!
//! A module of its own because `eprintln!` panics if standard error is closed, and a message must not kill a
//! supervisor.

use std::fmt;
use std::io::{self, Write};

/// Writes one message to standard error.
pub(crate) fn say(message: impl fmt::Display) {
    // Nobody is left to tell when standard error is gone.
    let _ = io::stderr().write_all(lines(message).as_bytes());
}

/// A message with `redbolt: ` before each of its lines.
pub(crate) fn lines(message: impl fmt::Display) -> String {
    message.to_string().trim_end().lines().map(|line| format!("redbolt: {line}\n")).collect()
}

/// Writes a report to standard output. A reader that closes the pipe early has read enough.
pub(crate) fn print(text: &str) -> io::Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome,
    }
}
