//! What redbolt itself has to say.
//!
//! Apart because `eprintln!` panics when standard error is closed, and a supervisor must not die
//! of a message. Beside it what was asked for (`status`, `init`), on standard output.

use std::fmt;
use std::io::{self, Write};

/// Writes one message to standard error.
pub(crate) fn say(message: impl fmt::Display) {
    // Nobody is left to tell when standard error is gone.
    let _ = io::stderr().write_all(lines(message).as_bytes());
}

/// A message as it is said: each of its lines behind `redbolt: `.
pub(crate) fn lines(message: impl fmt::Display) -> String {
    message.to_string().trim_end().lines().map(|line| format!("redbolt: {line}\n")).collect()
}

/// Writes what was asked for to standard output. Whoever closes the pipe early has read enough.
pub(crate) fn print(text: &str) -> io::Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome,
    }
}
