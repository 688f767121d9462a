//! One lock, acquired and released repeatedly while a minority of the nodes dies.
//!
//! A contender acquires and releases the lock in one call. Its handling of a dead node is its own
//! affair, and is what is measured. To add one: a file in this folder, and a line in [`ALL`].

mod clients;
mod contract;
pub mod death;
pub mod measure;
mod raw;
mod redbolt_apis;

use anyhow::Result;

use crate::contender::Task;

pub use contract::{Contender, LIMIT};

/// A contender that has not connected yet.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Its name in tables and on the command line.
    pub name: &'static str,
    /// Its handling of dead nodes, in a line.
    pub about: &'static str,
    /// The function that connects it while all nodes are alive.
    pub start: fn(&Task) -> Result<Box<dyn Contender>>,
}

/// All contenders, the floor first.
pub const ALL: [Entry; 7] = [
    Entry {
        name: "raw epoll",
        about: "the floor: bytes encoded beforehand, returns at the majority, and ignores a node \
                whose connection ended or is full",
        start: raw::start,
    },
    Entry {
        name: "redbolt client",
        about: "the blocking API; gives up a connection after 250 ms of silence instead of 10 s, so that \
                reconnecting is measured as well",
        start: redbolt_apis::start_client,
    },
    Entry {
        name: "redbolt driver",
        about: "the embedded API in a host's mio loop, in the same way",
        start: redbolt_apis::start_driver,
    },
    Entry {
        name: "redbolt engine",
        about: "the engine, called by a blocking thread, in the same way",
        start: redbolt_apis::start_engine,
    },
    Entry {
        name: "rslock",
        about: "rslock 0.10 with default settings: waits for all nodes, and reconnects meanwhile",
        start: clients::start_rslock,
    },
    Entry {
        name: "redis",
        about: "a simple lock on redis 1.8, on tokio's current_thread: all nodes at once, wait for all, \
                count the grants; the driver's own timeouts",
        start: clients::start_redis,
    },
    Entry { name: "rustis", about: "the same on rustis 0.27", start: clients::start_rustis },
];
