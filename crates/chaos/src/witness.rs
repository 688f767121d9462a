//! Evidence from a node itself that a request reached it. `MONITOR` shows every command that a
//! server executes. The chaos programs count requests from this output, not from a client's account
//! of what it has sent.

use std::io::ErrorKind;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use redbolt::proto::script::ACQUIRE_MANY;
use redbolt_test_servers::{Reply, Server};

use crate::clock::{Moment, now};
use crate::stage::{Failure, RESOURCE};

/// Watches one node for commands of a kind, until [`dismiss`](Self::dismiss) or the node's end.
pub(crate) struct Witness {
    seen: Arc<Mutex<Seen>>,
    connection: i64,
    thread: JoinHandle<()>,
}

/// The commands that a witness has recorded.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) count: u64,
    /// A moment by which the first of them had been executed.
    pub(crate) first: Option<Moment>,
}

impl Witness {
    /// Watches for matching lines of `MONITOR`.
    pub(crate) fn of(
        server: &Server,
        matters: impl Fn(&str) -> bool + Send + 'static,
    ) -> Result<Self, Failure> {
        let mut monitor = server.connect();
        let Reply::Int(connection) = monitor.cmd("CLIENT ID") else {
            return Err("the server gave the connection no id".into());
        };
        monitor.cmd("MONITOR");
        let seen = Arc::new(Mutex::new(Seen::default()));
        let ours = Arc::clone(&seen);
        let thread = thread::spawn(move || {
            loop {
                match monitor.try_reply() {
                    Ok(Reply::Status(line)) if matters(&line) => {
                        let at = now();
                        let mut seen = ours.lock().unwrap_or_else(PoisonError::into_inner);
                        seen.count += 1;
                        seen.first.get_or_insert(at);
                    }
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(_) => return,
                }
            }
        });
        Ok(Self { seen, connection, thread })
    }

    /// Watches for lock requests, from a server's first moment on.
    pub(crate) fn of_asks(server: &Server) -> Result<Self, Failure> {
        Self::of(server, is_ask)
    }

    /// Ends the watch.
    pub(crate) fn dismiss(self, server: &Server) -> Result<Seen, Failure> {
        server.cmd(&format!("CLIENT KILL ID {}", self.connection));
        self.thread.join().map_err(|_| "the witness thread has panicked")?;
        Ok(*self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Returns true if a line of `MONITOR` is a client's request for the resource: a command, or on a
/// new connection a script. Commands inside a script have the source `lua` and do not count.
fn is_ask(line: &str) -> bool {
    let command = format!("\"SET\" \"{RESOURCE}\" ");
    let script = format!("\"EVAL\" \"{}\" ", ACQUIRE_MANY.text);
    let is_script = line.contains(&script) && line.contains(&format!(" \"{RESOURCE}\" "));
    let is_command = line.contains(&command) && line.contains("\"NX\"");
    !line.contains(" lua] ") && (is_command || is_script)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_distinguished_from_commands_of_scripts() {
        let ask = r#"1.2 [0 127.0.0.1:5] "SET" "job" "00:rival" "NX" "PX" "400""#;
        assert!(is_ask(ask));
        assert!(!is_ask(&ask.replace("127.0.0.1:5]", "lua]")));
        let script =
            format!(r#"1.2 [0 127.0.0.1:5] "EVAL" "{}" "1" "job" "00:rival""#, ACQUIRE_MANY.text);
        assert!(is_ask(&script));
        assert!(!is_ask(&script.replace("job", "redbolt:guard")));
        assert!(!is_ask(&ask.replace("job", "redbolt:guard")));
        assert!(!is_ask(r#"1.2 [0 127.0.0.1:5] "GET" "job""#));
    }
}
