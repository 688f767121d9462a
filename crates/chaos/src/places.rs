//! The waiters that lose their place in the queue on a node, as reported by the node itself.
//!
//! A process that does not take its turn within its grace is passed, and on a busy machine that may
//! be any process. So the judge of the order has to know which waiters a node has passed: the
//! node's `MONITOR` shows each command of a script. Whether that was right is checked by the
//! scripts' own tests.

use std::collections::BTreeSet;

use redbolt_test_servers::{Connection, Reply, Server};

use crate::stage::{Failure, RESOURCE};

/// A node's report of one round.
pub(crate) struct Watch {
    told: Connection,
}

impl Watch {
    pub(crate) fn begin(server: &Server) -> Result<Self, Failure> {
        let mut told = server.connect();
        match told.cmd("MONITOR") {
            Reply::Status(_) => Ok(Self { told }),
            other => Err(format!("MONITOR: {other:?}").into()),
        }
    }

    /// Returns the tickets that a script has removed although their owners did not leave.
    pub(crate) fn end(mut self, server: &Server) -> Result<BTreeSet<String>, Failure> {
        server.cmd(&format!("ECHO {LAST}"));
        let (mut command, mut lost) = (String::new(), BTreeSet::new());
        loop {
            let Reply::Status(line) = self.told.try_reply()? else {
                return Err("MONITOR tells nonsense".into());
            };
            if line.contains(LAST) {
                return Ok(lost);
            }
            if !line.contains(" lua] ") {
                command = line;
            } else if let Some(ticket) = taken_away(&line).filter(|it| !command.contains(it)) {
                lost.insert(name(ticket).to_owned());
            }
        }
    }
}

/// Returns the tickets on a node by the names of their owners, each with its stamp.
pub(crate) fn tickets(server: &Server) -> Vec<(String, String)> {
    let Reply::Array(all) = server.cmd(&format!("ZRANGE {STAMPS}{RESOURCE} 0 -1 WITHSCORES"))
    else {
        return Vec::new();
    };
    let text = |reply: &Reply| match reply {
        Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => format!("{other:?}"),
    };
    all.chunks(2).map(|pair| (name(&text(&pair[0])).to_owned(), text(&pair[1]))).collect()
}

/// Returns true if nothing is left of a queue and its resource.
pub(crate) fn is_clear(server: &Server) -> bool {
    let left = server.cmd("KEYS redbolt:line*");
    left == Reply::Array(Vec::new()) && server.cmd(&format!("EXISTS {RESOURCE}")) == Reply::Int(0)
}

/// Returns the ticket in a line like `… [0 lua] "ZREM" "redbolt:line:job" "x…"`.
fn taken_away(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once(&format!("\"ZREM\" \"{STAMPS}{RESOURCE}\" \""))?;
    rest.split('"').next()
}

/// Returns the part of a ticket's name that is the same on all nodes.
fn name(ticket: &str) -> &str {
    ticket.get(..NAME).unwrap_or(ticket)
}

const STAMPS: &str = "redbolt:line:";
const NAME: usize = 33;
const LAST: &str = "the-round-is-over";
