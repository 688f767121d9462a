//! The contenders: one file for each, all with the same two calls.
//!
//! A contender acquires and releases one lock, on the same nodes, with the same TTL, and with a
//! resource and an owner value of the same length as all others. To add one: a file beside these,
//! and a line in [`ALL`]. Not here: the measurement, see `rounds`.

mod asked;
mod at_once;
pub(crate) mod contract;
mod fred_client;
mod hiredis;
#[cfg(feature = "tls")]
pub mod over_tls;
mod program;
mod raw;
mod raw_blocking;
mod raw_epoll;
mod raw_epoll_and_spin;
mod raw_spin;
mod redbolt_c;
mod redbolt_client;
mod redbolt_driver;
mod redbolt_engine;
mod redbolt_futures;
mod redbolt_uring;
mod redis_async;
mod redis_sync;
mod redlock_manager;
mod ring;
mod rslock_manager;
mod rustis_client;
mod timings;

use anyhow::Result;

pub use asked::Asked;
pub(crate) use contract::redis_clients;
pub use contract::{Contender, Node, NotInstalled, Task};
pub(crate) use redbolt_client::config as redbolt_config;
pub use timings::{Timings, Usage};

/// A contender that has not connected yet.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Its name in tables and on the command line.
    pub name: &'static str,
    /// How it differs from the floor, in a line.
    pub about: &'static str,
    /// Connects it. The error may be a [`NotInstalled`].
    pub start: fn(&Task) -> Result<Box<dyn Contender>>,
}

/// All contenders. The first is the floor, with which the others are compared.
pub const ALL: [Entry; 23] = [
    Entry {
        name: "raw epoll",
        about: "bytes encoded beforehand, a fixed token, no clock, no timeout; \
                with the restart guard's TTL read behind each request",
        start: raw_epoll::start_guarded,
    },
    Entry {
        name: "raw, unguarded",
        about: "as the floor, without the restart guard",
        start: raw_epoll::start_unguarded,
    },
    Entry {
        name: "raw blocking",
        about: "as the floor, on blocking sockets: reads node by node, so it waits for all",
        start: raw_blocking::start,
    },
    Entry {
        name: "raw, epoll and spin",
        about: "as the floor, but reads for up to 100 µs before it sleeps",
        start: raw_epoll_and_spin::start,
    },
    Entry {
        name: "raw spin",
        about: "as the floor, but never sleeps: useful where the nodes have other cores",
        start: raw_spin::start,
    },
    Entry { name: "redbolt client", about: "the blocking API", start: redbolt_client::start },
    Entry {
        name: "redbolt client, busy-poll",
        about: "the same, and reads for up to 100 µs before it sleeps",
        start: redbolt_client::start_busy,
    },
    Entry {
        name: "redbolt client, shared",
        about: "the same client, for a shared lock",
        start: redbolt_client::start_shared,
    },
    Entry {
        name: "redbolt client, permit",
        about: "the same client, for one of ten permits",
        start: redbolt_client::start_permit,
    },
    Entry {
        name: "redbolt driver",
        about: "the embedded API in a host's mio loop",
        start: redbolt_driver::start,
    },
    Entry {
        name: "redbolt driver, busy-poll",
        about: "the same, and its host reads for up to 100 µs before it sleeps",
        start: redbolt_driver::start_busy,
    },
    Entry {
        name: "redbolt, io_uring",
        about: "the core in a loop of submissions and completions, without mio",
        start: redbolt_uring::start,
    },
    Entry {
        name: "redbolt engine",
        about: "its own thread serves the nodes, the caller blocks",
        start: redbolt_engine::start,
    },
    Entry {
        name: "redbolt futures",
        about: "the engine, awaited on tokio's current_thread",
        start: redbolt_futures::start,
    },
    Entry {
        name: "rslock",
        about: "on tokio's current_thread; tokens of its own, of 20 bytes; no restart guard; waits for all; \
                does not say whether a release found the lock",
        start: rslock_manager::start,
    },
    Entry {
        name: "redlock",
        about: "a new connection for each command, node by node; tokens of its own, of 20 bytes; \
                no restart guard, TCP_NODELAY cannot be set; does not say whether a release found the lock",
        start: redlock_manager::start,
    },
    Entry {
        name: "redis",
        about: "the driver alone, a fixed token, blocking: writes to all before it reads, \
                node by node, so it waits for all",
        start: redis_sync::start,
    },
    Entry {
        name: "redis, current_thread",
        about: "the driver alone, a fixed token; all nodes at once, waits for a majority, and \
                keeps the futures of the others",
        start: redis_async::start_current_thread,
    },
    Entry {
        name: "redis, multi_thread",
        about: "the same, on tokio's multi_thread",
        start: redis_async::start_multi_thread,
    },
    Entry {
        name: "fred",
        about: "the driver alone on tokio's current_thread, as redis",
        start: fred_client::start,
    },
    Entry {
        name: "rustis",
        about: "the driver alone on tokio's current_thread, as redis; RESP3",
        start: rustis_client::start,
    },
    Entry {
        name: "redbolt in C",
        about: "the blocking API through the library for C, in a process of its own",
        start: redbolt_c::start,
    },
    Entry {
        name: "hiredis",
        about: "the library alone, in C, in a process of its own; a fixed token; pipelined to all \
                nodes at once, poll, waits for a majority",
        start: hiredis::start,
    },
];

/// The name of the floor.
pub(crate) fn floor() -> &'static str {
    ALL[0].name
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use redbolt_test_servers::{Reply, Server, servers};

    use super::*;
    use crate::wire::TOKEN;

    #[test]
    fn every_contender_takes_the_lock_on_a_majority_and_releases_it() {
        let servers = servers(3);
        let tcp = |server: &Server| Node::Tcp(server.address());
        let unix = |server: &Server| Node::Unix(server.socket().display().to_string());
        let all_tcp = servers.iter().map(tcp).collect();
        let all_unix = servers.iter().map(unix).collect();
        for (over, nodes) in [("TCP", all_tcp), ("Unix", all_unix)] {
            for entry in ALL {
                // Some do not send their last release to the node that they need not wait for, if they end before that.
                let resource = format!("{} over {over}", entry.name);
                let (nodes, ttl) = (Vec::clone(&nodes), Duration::from_secs(10));
                let task = Task { nodes, resource: resource.clone(), ttl };
                let mut contender = match (entry.start)(&task) {
                    Err(error) if error.is::<NotInstalled>() => {
                        println!("{} is left out: {error}", entry.name);
                        continue;
                    }
                    started => started.unwrap(),
                };
                for _ in 0..20 {
                    contender.acquire().unwrap();
                    assert!(holding(&servers, entry.name, &resource) >= 2, "{resource}");
                    contender.release().unwrap();
                    assert!(holding(&servers, entry.name, &resource) <= 1, "{resource}");
                }
                assert_block(&mut *contender, entry.name);
            }
        }
    }

    fn assert_block(contender: &mut dyn Contender, name: &str) {
        let mut timings = Timings::with_room(5);
        contender.block(5, Duration::from_secs(10), &mut timings).unwrap();
        assert_eq!((timings.acquire.len(), timings.release.len()), (5, 5), "{name}");
        assert!(timings.acquire.iter().chain(&timings.release).all(|&time| time > 0), "{name}");
        let elsewhere = timings.outside.is_some_and(|usage| !usage.cpu.is_zero());
        assert_eq!(elsewhere, ["hiredis", "redbolt in C"].contains(&name), "{name}");
        contender.block(5, Duration::ZERO, &mut timings).unwrap();
        assert_eq!((timings.acquire.len(), timings.release.len()), (5, 5), "{name}");
    }

    fn holding(servers: &[Server], name: &str, resource: &str) -> usize {
        // These two choose the length of their tokens themselves.
        let len = if ["rslock", "redlock"].contains(&name) { 20 } else { TOKEN.len() };
        let (key, is_one_of_many) =
            (resource.as_bytes(), name.ends_with("shared") || name.ends_with("permit"));
        let holds = |server: &&Server| match is_one_of_many {
            true => server.run(&[b"EXISTS", key]) == Reply::Int(1),
            false => matches!(server.run(&[b"GET", key]), Reply::Bulk(token) if token.len() == len),
        };
        servers.iter().filter(holds).count()
    }
}
