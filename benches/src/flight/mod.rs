//! Many locks in flight, each on a separate key, over one connection to each node.
//!
//! A contender keeps a number of locks in flight: each is acquired on a majority and released on a
//! majority, and then the next begins. To add one: a file in this folder, and a line in [`ALL`].

mod contract;
pub(crate) mod drivers;
pub mod measure;
mod raw;
mod redbolt_driver;
mod redbolt_engine;
mod rslock_manager;
mod tasks;

use anyhow::Result;

pub use contract::{Flight, Task};

/// A contender that has not connected yet.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Its name in tables and on the command line.
    pub name: &'static str,
    /// The difference from the floor, in a line.
    pub about: &'static str,
    /// The function that connects it.
    pub start: fn(&Task) -> Result<Box<dyn Flight>>,
}

/// All contenders. The first is the floor, with which the others are compared.
pub const ALL: [Entry; 10] = [
    Entry {
        name: "raw epoll",
        about: "one thread, bytes encoded beforehand, a fixed token, no clock, no timeout; the restart \
                guard's TTL read behind each request; one write per node and loop iteration",
        start: raw::start_floor,
    },
    Entry {
        name: "raw, fresh tokens",
        about: "the floor with a random token for each lock, which includes the node's number",
        start: raw::start_fresh,
    },
    Entry {
        name: "redbolt driver",
        about: "the embedded API in a host's mio loop, a fresh token for each lock and node; all \
                output of a loop iteration is written together",
        start: redbolt_driver::start,
    },
    Entry {
        name: "redbolt engine",
        about: "one thread that keeps all locks in flight and waits for the oldest, and the engine's own thread",
        start: redbolt_engine::start_blocking,
    },
    Entry {
        name: "redbolt futures",
        about: "the engine, with a task for each lock in flight on tokio's current_thread",
        start: redbolt_engine::start_futures,
    },
    Entry {
        name: "redis",
        about: "the driver alone: redis 1.8, multiplexed, a task for each lock in flight on tokio's \
                current_thread; a fixed token; SET and PTTL in a pipeline, EVALSHA, and each waits \
                for all nodes, because a dropped command may not have been sent",
        start: drivers::start_redis,
    },
    Entry {
        name: "redis, multi_thread",
        about: "the same on tokio's multi_thread runtime, a thread for each core of the client",
        start: drivers::start_redis_on_many_threads,
    },
    Entry {
        name: "fred",
        about: "the driver alone: fred 10.1, as redis on current_thread",
        start: drivers::start_fred,
    },
    Entry {
        name: "rustis",
        about: "the driver alone: rustis 0.27, as redis on current_thread",
        start: drivers::start_rustis,
    },
    Entry {
        name: "rslock",
        about: "rslock 0.10, tasks as above; its own tokens and script, no restart guard, waits for all nodes",
        start: rslock_manager::start,
    },
];

/// Returns the floor, and the entries whose name contains one of `parts`; all if there are no
/// parts.
#[must_use]
pub fn chosen(parts: &[String]) -> Vec<Entry> {
    let named = |entry: &&Entry| {
        parts.is_empty() || parts.iter().any(|part| entry.name.contains(part.as_str()))
    };
    let (floor, others) = ALL.split_at(1);
    floor.iter().chain(others.iter().filter(named)).copied().collect()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use redbolt_test_servers::{Reply, Server, servers};

    use super::*;
    use crate::contender::Node;

    #[test]
    fn every_contender_takes_all_its_locks_and_leaves_none() {
        let servers = servers(3);
        let nodes: Vec<_> = servers.iter().map(|server| Node::Tcp(server.address())).collect();
        for entry in ALL {
            let resources = (0..8).map(|at| format!("{}-{at}", entry.name)).collect();
            let task = Task { nodes: nodes.clone(), resources, ttl: Duration::from_secs(10) };
            let mut flight = (entry.start)(&task).unwrap();
            let before = crate::counts::Counts::of(&servers).sets().unwrap();
            for locks in [20, 3] {
                flight.fly(locks).unwrap();
            }
            drop(flight);
            // A node that was not needed for a majority may be behind.
            let until = Instant::now() + Duration::from_secs(10);
            let state = || {
                let after = crate::counts::Counts::of(&servers).sets().unwrap();
                let asked = after.iter().zip(&before).map(|(after, before)| after - before);
                let left = servers.iter().map(|server| keys(server, entry.name)).sum::<usize>();
                (asked.collect::<Vec<_>>(), left)
            };
            while state() != (vec![23; 3], 0) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(5));
            }
            assert_eq!(state(), (vec![23; 3], 0), "{}", entry.name);
        }
    }

    fn keys(server: &Server, name: &str) -> usize {
        match server.run(&[b"KEYS", format!("{name}-*").as_bytes()]) {
            Reply::Array(keys) => keys.len(),
            other => panic!("{other:?}"),
        }
    }
}
