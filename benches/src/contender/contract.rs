//! The interface of a contender: its two calls, and the task that it is started with.

use std::error::Error;
use std::fmt::{self, Display, Formatter};
use std::time::{Duration, Instant};

use anyhow::Result;
use redis::IntoConnectionInfo;
use redis::io::tcp::TcpSettings;

use super::asked::Asked;
use super::timings::Timings;

/// A client that acquires and releases a lock.
pub trait Contender {
    /// Acquires the lock, and returns as soon as a majority has granted it.
    ///
    /// # Errors
    ///
    /// The lock was not granted. No other client competes for it, so the measurement is void.
    fn acquire(&mut self) -> Result<()>;

    /// Releases the lock, and returns as soon as a majority has confirmed that.
    ///
    /// # Errors
    ///
    /// The lock was not held, so the measurement is void.
    fn release(&mut self) -> Result<()>;

    /// Its asks so far, if it counts them.
    fn asked(&self) -> Option<Asked> {
        None
    }

    /// Runs this many pairs, one after another, and begins none after `until`. Adds their times to
    /// `out`.
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

/// This machine lacks what a contender needs. The text says how to install it.
#[derive(Debug)]
pub struct NotInstalled(pub(super) String);

impl Display for NotInstalled {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for NotInstalled {}

/// A contender's configuration.
#[derive(Clone, Debug)]
pub struct Task {
    /// The nodes' addresses.
    pub nodes: Vec<Node>,
    /// The resource. Each contender has its own, all of the same length.
    pub resource: String,
    /// The lock's TTL.
    pub ttl: Duration,
}

/// The address of a node.
#[derive(Clone, Debug)]
pub enum Node {
    /// `host:port`
    Tcp(String),
    /// The path of a Unix socket.
    Unix(String),
}

/// Clients of the redis crate with TCP_NODELAY, which all contenders set; its default is Nagle's
/// algorithm.
pub(crate) fn redis_clients(nodes: &[Node]) -> Result<Vec<redis::Client>> {
    let client = |node: &Node| {
        let info = redis_address(node).into_connection_info()?;
        let settings = TcpSettings::default().set_nodelay(true);
        Ok(redis::Client::open(info.set_tcp_settings(settings))?)
    };
    nodes.iter().map(client).collect()
}

/// The address in the form that most clients expect.
pub(super) fn redis_address(node: &Node) -> String {
    match node {
        Node::Tcp(address) => format!("redis://{address}"),
        Node::Unix(path) => format!("unix://{path}"),
    }
}

/// The longest wait for a node's answer, on a machine with other work to do.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// How long the busy-polling contenders read before they sleep.
pub(super) const BUSY: Duration = Duration::from_micros(100);
