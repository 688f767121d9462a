//! Waiters for a lock that another client holds: the raw floor and the clients.
//!
//! A contender of this registry waits in `acquire`, for at most [`PATIENCE`]. To add one: a file
//! beside these, and a line in [`ALL`]. Not here: the measurements, see `hand_off` and `crowd`.

pub mod hand_off;
pub mod holder;
mod pollers;
mod pub_sub;
mod redbolt_client;

use std::time::Duration;

use anyhow::Result;
use redbolt::config::WakeStrategy;

use crate::contender::{Contender, Task};

/// A waiting contender that has not connected yet.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Its name in tables and on the command line.
    pub name: &'static str,
    /// How it differs from the others, in a line.
    pub about: &'static str,
    /// What ends its wait.
    pub woken_by: WokenBy,
    /// Connects it. It stays on the thread that started it.
    pub start: fn(&Task) -> Result<Box<dyn Contender>>,
}

/// What ends a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WokenBy {
    /// A message that only its own kind sends on release: it cannot wait for other programs.
    OwnMessage,
    /// A notification of the nodes, whoever released the lock.
    Push,
    /// A timer.
    Timer,
}

/// All waiters. The first is the floor, with which the others are compared.
pub const ALL: [Entry; 10] = [
    Entry {
        name: "raw, quorum",
        about: "the floor: bytes encoded beforehand over epoll; the release is a script and a PUBLISH \
                to every node, the waiter asks all when a quorum has notified it; a fixed token, no \
                guard, practically no timer",
        woken_by: WokenBy::OwnMessage,
        start: pub_sub::start_at_quorum,
    },
    Entry {
        name: "raw, first",
        about: "the same, but the waiter asks all at the first message, and again at each further one",
        woken_by: WokenBy::OwnMessage,
        start: pub_sub::start_at_first,
    },
    Entry {
        name: "redbolt, lead",
        about: "the blocking client with default settings: after a notification it asks the node that \
                sent it, and the others once that one has granted",
        woken_by: WokenBy::Push,
        start: |task| redbolt_client::start(task, WakeStrategy::Lead),
    },
    Entry {
        name: "redbolt, all",
        about: "after a notification it asks all nodes",
        woken_by: WokenBy::Push,
        start: |task| redbolt_client::start(task, WakeStrategy::All),
    },
    Entry {
        name: "redbolt, quorum",
        about: "after notifications of a quorum it asks all nodes",
        woken_by: WokenBy::Push,
        start: |task| redbolt_client::start(task, WakeStrategy::Quorum),
    },
    Entry {
        name: "redbolt, timer",
        about: "no notifications: pauses, and the keys' remaining TTL",
        woken_by: WokenBy::Timer,
        start: |task| redbolt_client::start(task, WakeStrategy::Timer),
    },
    Entry {
        name: "redbolt engine",
        about: "the engine with default settings, called by a blocking thread",
        woken_by: WokenBy::Push,
        start: redbolt_client::start_engine,
    },
    Entry {
        name: "redbolt futures",
        about: "the engine, awaited by a task on tokio's current_thread",
        woken_by: WokenBy::Push,
        start: redbolt_client::start_futures,
    },
    Entry {
        name: "rslock",
        about: "rslock 0.10 with default settings, on a current_thread runtime: a random pause of up to 200 ms \
                between attempts; no restart guard",
        woken_by: WokenBy::Timer,
        start: pollers::start_rslock,
    },
    Entry {
        name: "redlock",
        about: "redlock 2.0 with default settings: node after node, a connection for each command, a random \
                pause of up to 200 ms after each attempt; no restart guard",
        woken_by: WokenBy::Timer,
        start: pollers::start_redlock,
    },
];

/// The entries whose name contains one of `parts`, and the floor; all if there are no parts.
#[must_use]
pub fn chosen(parts: &[String]) -> Vec<Entry> {
    let named = |entry: &&Entry| {
        parts.is_empty() || parts.iter().any(|part| entry.name.contains(part.as_str()))
    };
    let (floor, others) = ALL.split_at(1);
    floor.iter().chain(others.iter().filter(named)).copied().collect()
}

/// The longest wait; after it the measurement is void.
pub const PATIENCE: Duration = Duration::from_secs(30);
