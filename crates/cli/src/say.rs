//! What redbolt itself has to say, on standard error.
//!
//! Apart because `eprintln!` panics when standard error is closed, and a supervisor must not die
//! of a message. Not here: output that was asked for (`status`, `demo`), which goes to standard
//! output.

use std::io::{self, Write};

/// Writes one message, each of its lines behind `redbolt: `.
pub(crate) fn say(message: impl std::fmt::Display) {
    let text: String =
        message.to_string().trim_end().lines().map(|line| format!("redbolt: {line}\n")).collect();
    raw(&text);
}

/// Writes `text` as it is and at once, for a line that is rewritten in place.
pub(crate) fn raw(text: &str) {
    let mut stderr = io::stderr().lock();
    // Nobody is left to tell when standard error is gone.
    let _ = stderr.write_all(text.as_bytes());
    let _ = stderr.flush();
}
