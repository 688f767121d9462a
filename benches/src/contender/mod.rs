//! Who is measured: one file for each, all with the same two calls.
//!
//! A contender takes one lock and lets it go, on the same nodes, with the same TTL, a resource of the
//! same length and an owner value of the same length as all others. To add one: a file beside these,
//! and a line in [`ALL`]. Not here: when it is called and what is measured of it, see `rounds`.

mod raw_epoll;
mod redbolt_client;
mod redbolt_driver;
mod timings;

use std::time::{Duration, Instant};

use anyhow::Result;
use redis::IntoConnectionInfo;
use redis::io::tcp::TcpSettings;

pub(crate) use redbolt_client::config as redbolt_config;
pub use timings::{Timings, Usage};

/// A way to take a lock and to let it go.
pub trait Contender {
    /// Takes the lock, and returns as soon as a majority has granted it.
    ///
    /// # Errors
    ///
    /// It was not granted: nobody competes for it, so the measurement is void.
    fn acquire(&mut self) -> Result<()>;

    /// Lets the lock go, and returns as soon as a majority has confirmed that.
    ///
    /// # Errors
    ///
    /// It was not held, so the measurement is void.
    fn release(&mut self) -> Result<()>;

    /// Does so many pairs, one after another, and begins none after `until`. Adds their times to `out`.
    ///
    /// # Errors
    ///
    /// A pair failed, so the measurement is void.
    fn block(&mut self, pairs: usize, until: Duration, out: &mut Timings) -> Result<()> {
        let (begin, mut end) = (Instant::now(), Duration::ZERO);
        for _ in 0..pairs {
            if end >= until {
                break;
            }
            let start = begin.elapsed();
            self.acquire()?;
            let held = begin.elapsed();
            self.release()?;
            end = begin.elapsed();
            out.push(held - start, end - held);
        }
        Ok(())
    }
}

/// What a contender is told.
#[derive(Clone, Debug)]
pub struct Task {
    /// Where the nodes listen.
    pub nodes: Vec<Node>,
    /// The name of the lock. Each contender has its own, all of the same length.
    pub resource: String,
    /// The lock's TTL.
    pub ttl: Duration,
}

/// Where a node listens.
#[derive(Clone, Debug)]
pub enum Node {
    /// `host:port`
    Tcp(String),
    /// The path of a Unix socket.
    Unix(String),
}

/// Clients of the redis crate, with the option that all contenders have: it has Nagle's algorithm on
/// otherwise.
pub(crate) fn redis_clients(nodes: &[Node]) -> Result<Vec<redis::Client>> {
    let client = |node: &Node| {
        let address = match node {
            Node::Tcp(address) => format!("redis://{address}"),
            Node::Unix(path) => format!("unix://{path}"),
        };
        let info = address.into_connection_info()?;
        let settings = TcpSettings::default().set_nodelay(true);
        Ok(redis::Client::open(info.set_tcp_settings(settings))?)
    };
    nodes.iter().map(client).collect()
}

/// A contender, before it has connected.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Its name in tables and on the command line.
    pub name: &'static str,
    /// What it does otherwise than the floor, in a line.
    pub about: &'static str,
    /// Connects it.
    pub start: fn(&Task) -> Result<Box<dyn Contender>>,
}

/// All contenders, the floor first: the others are compared with it.
pub const ALL: [Entry; 4] = [
    Entry {
        name: "raw epoll",
        about: "bytes encoded beforehand, one token for ever, no clock, no timeout; \
                the guard's TTL behind each ask, as all guarded ones",
        start: raw_epoll::start_guarded,
    },
    Entry {
        name: "raw, unguarded",
        about: "as the floor, without the guard",
        start: raw_epoll::start_unguarded,
    },
    Entry { name: "redbolt client", about: "the blocking front", start: redbolt_client::start },
    Entry {
        name: "redbolt driver",
        about: "the embedded front in a host's mio loop",
        start: redbolt_driver::start,
    },
];

#[cfg(test)]
mod tests {
    use redbolt_proving::{Reply, Server, servers};

    use super::*;

    #[test]
    fn all_take_the_lock_on_a_majority_and_let_go_of_it() {
        let servers = servers(3);
        let tcp = |server: &Server| Node::Tcp(server.address());
        let unix = |server: &Server| Node::Unix(server.socket().display().to_string());
        for nodes in [servers.iter().map(tcp).collect(), servers.iter().map(unix).collect()] {
            for entry in ALL {
                let (nodes, resource) = (Vec::clone(&nodes), entry.name.to_owned());
                let task = Task { nodes, resource, ttl: Duration::from_secs(10) };
                let mut contender = (entry.start)(&task).unwrap();
                for _ in 0..20 {
                    contender.acquire().unwrap();
                    assert!(holding(&servers, entry.name) >= 2, "{}", entry.name);
                    contender.release().unwrap();
                    assert!(holding(&servers, entry.name) <= 1, "{}", entry.name);
                }
            }
        }
    }

    fn holding(servers: &[Server], key: &str) -> usize {
        let holds = |server: &&Server| match server.run(&[b"GET", key.as_bytes()]) {
            Reply::Bulk(token) => token.len() == 34,
            _ => false,
        };
        servers.iter().filter(holds).count()
    }
}
