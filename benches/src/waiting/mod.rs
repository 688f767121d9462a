//! Waiters for a lock that another client holds: the raw floor and the clients.
//!
//! A contender of this registry waits in `acquire`, for at most [`PATIENCE`]. To add one: a file in
//! this folder, and a line in [`ALL`]. `hand_off` and `crowd` measure them.

mod contract;
pub mod hand_off;
pub mod holder;
mod pollers;
mod pub_sub;
mod redbolt_client;
mod ring;

use anyhow::Result;
use redbolt::config::WakeStrategy;

use crate::contender::{Contender, Task};

pub use contract::{PATIENCE, Seat};

/// A waiting contender that has not connected yet.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Its name in tables and on the command line.
    pub name: &'static str,
    /// The difference from the others, in a line.
    pub about: &'static str,
    /// The event that ends its wait.
    pub woken_by: WokenBy,
    /// The kind of the contender.
    pub kind: Kind,
}

/// The kind of a waiting contender.
#[derive(Clone, Copy)]
pub enum Kind {
    /// The contender is redbolt's blocking client with this strategy.
    Strategy(WakeStrategy),
    /// The contender needs only its task.
    Other(fn(&Task) -> Result<Box<dyn Contender>>),
    /// The contender knows the order of the processes.
    Ring,
}

impl Entry {
    /// Connects it. It stays on the thread that started it.
    ///
    /// # Errors
    ///
    /// It could not connect.
    pub fn start(&self, task: &Task) -> Result<Box<dyn Contender>> {
        self.start_at(Seat { at: 0, of: 1 }, task)
    }

    /// Connects it as one of many.
    ///
    /// # Errors
    ///
    /// It could not connect.
    pub fn start_at(&self, seat: Seat, task: &Task) -> Result<Box<dyn Contender>> {
        match self.kind {
            Kind::Strategy(wake) => redbolt_client::start(task, wake),
            Kind::Other(start) => start(task),
            Kind::Ring => ring::start(seat, task),
        }
    }

    /// Returns `true` if its processes can compete for one lock without knowing one another.
    #[must_use]
    pub fn competes(&self) -> bool {
        matches!(self.woken_by, WokenBy::Push | WokenBy::Timer)
    }
}

/// The event that ends a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WokenBy {
    /// A message that only its own kind sends on release: it cannot wait for other programs.
    OwnMessage,
    /// A notification of the nodes, after a release by any program.
    Push,
    /// A timer.
    Timer,
    /// A message of the process that had the turn before: the order is fixed, and no other process
    /// takes part.
    Turn,
}

/// All waiters. The first is the floor, with which the others are compared.
pub const ALL: &[Entry] = &[
    Entry {
        name: "raw, quorum",
        about: "the floor: bytes encoded beforehand over epoll; the release is a script and a PUBLISH \
                to every node, the waiter asks all when a quorum has notified it; a fixed token, no \
                guard, practically no timer",
        woken_by: WokenBy::OwnMessage,
        kind: Kind::Other(pub_sub::start_at_quorum),
    },
    Entry {
        name: "raw, first",
        about: "the same, but the waiter asks all at the first message, and again at each further one",
        woken_by: WokenBy::OwnMessage,
        kind: Kind::Other(pub_sub::start_at_first),
    },
    strategy(
        "redbolt, lead",
        WakeStrategy::Lead,
        "the blocking client: after a notification it asks the node that \
                sent it, and the others once that one has granted",
    ),
    strategy(
        "redbolt, queue",
        WakeStrategy::Queue,
        "it waits in the queue on the nodes, and asks all when it is the first",
    ),
    strategy(
        "redbolt, timer",
        WakeStrategy::Timer,
        "no notifications: pauses, and the keys' remaining TTL",
    ),
    Entry {
        name: "redbolt engine",
        about: "the engine with default settings, called by a blocking thread",
        woken_by: WokenBy::Push,
        kind: Kind::Other(redbolt_client::start_engine),
    },
    Entry {
        name: "redbolt futures",
        about: "the engine, awaited by a task on tokio's current_thread",
        woken_by: WokenBy::Push,
        kind: Kind::Other(redbolt_client::start_futures),
    },
    Entry {
        name: "rslock",
        about: "rslock 0.10 with default settings, on a current_thread runtime: a random pause of up to 200 ms \
                between attempts; no restart guard",
        woken_by: WokenBy::Timer,
        kind: Kind::Other(pollers::start_rslock),
    },
    Entry {
        name: "redlock",
        about: "redlock 2.0 with default settings: node after node, a connection for each command, a random \
                pause of up to 200 ms after each attempt; no restart guard",
        woken_by: WokenBy::Timer,
        kind: Kind::Other(pollers::start_redlock),
    },
    RING,
];

/// Returns redbolt's blocking client with a strategy. Each strategy of the library has one entry.
const fn strategy(name: &'static str, wake: WakeStrategy, about: &'static str) -> Entry {
    let woken_by = match wake {
        WakeStrategy::Timer => WokenBy::Timer,
        _ => WokenBy::Push,
    };
    Entry { name, about, woken_by, kind: Kind::Strategy(wake) }
}

/// The floor for many processes that take turns.
pub const RING: Entry = Entry {
    name: "raw, ring",
    about: "the floor of many processes: as *raw, quorum*, but everybody knows who comes next, and the \
            release is published to that one alone; nobody asks in vain, and no votes are split",
    woken_by: WokenBy::Turn,
    kind: Kind::Ring,
};

/// Returns the client with default settings.
///
/// # Panics
///
/// If the library's default strategy has no entry.
#[must_use]
pub fn default_settings() -> Entry {
    let is_default = |entry: &Entry| match entry.kind {
        Kind::Strategy(wake) => wake == WakeStrategy::default(),
        Kind::Other(_) | Kind::Ring => false,
    };
    *ALL.iter().find(|entry| is_default(entry)).expect("the default strategy has an entry")
}

/// Returns the entries whose name contains one of `parts`, and the floor; all if there are no
/// parts. The ring is not a contender of a pair, and left out.
#[must_use]
pub fn chosen(parts: &[String]) -> Vec<Entry> {
    let named = |entry: &&Entry| {
        let wanted =
            parts.is_empty() || parts.iter().any(|part| entry.name.contains(part.as_str()));
        wanted && entry.woken_by != WokenBy::Turn
    };
    let (floor, others) = ALL.split_at(1);
    floor.iter().chain(others.iter().filter(named)).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_settings_and_the_ring_are_among_all() {
        assert!(default_settings().name.starts_with("redbolt, "));
        assert!(!RING.competes() && default_settings().competes());
    }
}
