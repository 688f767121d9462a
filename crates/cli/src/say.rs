//! What redbolt itself has to say.
//!
//! Apart because `eprintln!` panics when standard error is closed, and a supervisor must not die
//! of a message. Beside it what was asked for (`status`, `init`), on standard output.

use std::io::{self, Write};

/// Writes one message to standard error, each of its lines behind `redbolt: `.
pub(crate) fn say(message: impl std::fmt::Display) {
    let text: String =
        message.to_string().trim_end().lines().map(|line| format!("redbolt: {line}\n")).collect();
    raw(&text);
}

/// Writes what was asked for to standard output. Whoever closes the pipe early has read enough.
pub(crate) fn print(text: &str) -> io::Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome,
    }
}

/// Writes `text` as it is and at once, for a line that is rewritten in place.
pub(crate) fn raw(text: &str) {
    let mut stderr = io::stderr().lock();
    // Nobody is left to tell when standard error is gone.
    let _ = stderr.write_all(text.as_bytes());
    let _ = stderr.flush();
}
