//! One lock, taken and released again and again while a minority of the nodes dies.
//!
//! A contender takes the lock and lets it go in one call. What it does about a node that is dead is its own
//! affair: that is what is measured. To add one: a file beside these, and a line in [`ALL`]. Not here: printing.

mod clients;
pub mod death;
pub mod measure;
mod raw;
mod redbolt_apis;

use std::time::Duration;

use anyhow::Result;

use crate::contender::Task;

/// A client that takes one lock and lets it go.
pub trait Contender {
    /// Does it once.
    ///
    /// # Errors
    ///
    /// The lock was not granted or not released, which counts as a pair that failed.
    fn pair(&mut self) -> Result<()>;
}

/// A contender, before it has connected.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Its name in tables and on the command line.
    pub name: &'static str,
    /// What it does about dead nodes, in a line.
    pub about: &'static str,
    /// Connects it. All nodes are alive.
    pub start: fn(&Task) -> Result<Box<dyn Contender>>,
}

/// All contenders, the floor first.
pub const ALL: [Entry; 7] = [
    Entry {
        name: "raw epoll",
        about: "the floor: bytes encoded beforehand, returns at the majority, and has nothing more to do with \
                a node whose connection ended or takes no more bytes",
        start: raw::start,
    },
    Entry {
        name: "redbolt client",
        about: "the blocking API; a connection is given up after 250 ms of silence instead of 10 s, so that \
                connecting anew is in what is measured",
        start: redbolt_apis::start_client,
    },
    Entry {
        name: "redbolt driver",
        about: "the embedded API in a host's mio loop, in the same way",
        start: redbolt_apis::start_driver,
    },
    Entry {
        name: "redbolt engine",
        about: "the engine, called by a thread that blocks, in the same way",
        start: redbolt_apis::start_engine,
    },
    Entry {
        name: "rslock",
        about: "rslock 0.10 at its defaults: waits for all nodes, and connects anew on its way",
        start: clients::start_rslock,
    },
    Entry {
        name: "redis",
        about: "what is written first over redis 1.8 on tokio's current_thread: all nodes at once, wait for all, \
                count the grants; the driver's own timeouts",
        start: clients::start_redis,
    },
    Entry { name: "rustis", about: "the same over rustis 0.27", start: clients::start_rustis },
];

/// After how long a pair is broken off, where its client has no limit of its own.
pub const LIMIT: Duration = Duration::from_secs(2);
