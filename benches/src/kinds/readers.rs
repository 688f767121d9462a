//! Many locks at once that share one key, compared with as many on separate keys.
//!
//! One driver has them all: all are requested in one write to each node, all are held, all are
//! released.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use redbolt::{Config, Event, LockId, LockRequest, Wait};

use crate::contender::Asked;
use crate::scale::host::{Host, PATIENCE, key};
use crate::stats::cpu_time;

/// The keys of the locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// One key, which all share.
    Shared,
    /// A separate key for each, which it holds exclusively.
    Own,
}

/// The cost of all locks of a call together, each acquired and released once.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// The elapsed time, in nanoseconds.
    pub wall: u64,
    /// The CPU time of this process, in nanoseconds.
    pub cpu: u64,
    /// The number of requests and undos that were sent to nodes.
    pub commands: u64,
}

/// A driver that takes many locks at once.
pub struct Readers {
    host: Host,
}

impl Readers {
    /// Connects to new nodes.
    ///
    /// # Errors
    ///
    /// They are not ready.
    pub fn connect(nodes: &[String]) -> Result<Self> {
        let patient = Config::builder().response_timeout(PATIENCE).dead_peer_timeout(2 * PATIENCE);
        Ok(Self { host: Host::connect(patient, nodes)? })
    }

    /// Takes this many locks and releases them.
    ///
    /// # Errors
    ///
    /// A lock was not granted. No other client competes for it, so the measurement is void.
    pub fn take(&mut self, locks: usize, keys: Keys) -> Result<Cost> {
        let (start, cpu, commands) = (Instant::now(), cpu_time(), self.commands());
        let held = self.hold(locks, keys)?;
        self.host.release(&held)?;
        let (wall, cpu) = (start.elapsed(), cpu_time() - cpu);
        self.settle()?;
        let commands = self.commands() - commands;
        Ok(Cost { wall: wall.as_nanos() as u64, cpu: cpu.as_nanos() as u64, commands })
    }

    /// Lets one more reader join and leave this many times while this many share the key, and
    /// returns the times of its pairs.
    ///
    /// # Errors
    ///
    /// A lock was not granted.
    pub fn beside(&mut self, readers: usize, pairs: usize) -> Result<Vec<u64>> {
        let held = self.hold(readers, Keys::Shared)?;
        let mut times = Vec::with_capacity(pairs);
        for _ in 0..pairs {
            let start = Instant::now();
            let one = self.hold(1, Keys::Shared)?;
            self.host.release(&one)?;
            times.push(start.elapsed().as_nanos() as u64);
        }
        self.host.release(&held)?;
        self.settle()?;
        Ok(times)
    }

    fn hold(&mut self, locks: usize, keys: Keys) -> Result<Vec<LockId>> {
        self.host.driver.batch(|driver| {
            (0..locks).try_for_each(|number| {
                let name = key(if keys == Keys::Shared { 0 } else { 1 + number });
                let request = LockRequest::new(&name).ttl(TTL).wait(Wait::No);
                let shared = keys == Keys::Shared;
                driver.acquire(if shared { request.shared() } else { request }).map(drop)
            })
        })?;
        let mut held = Vec::with_capacity(locks);
        while held.len() < locks {
            match self.host.event()? {
                Event::Granted(id) => held.push(id),
                event => self.host.void(event)?,
            }
        }
        Ok(held)
    }

    fn commands(&self) -> u64 {
        let asked = Asked::from(&self.host.driver.metrics().metrics);
        asked.to_nodes + asked.undos
    }

    fn settle(&mut self) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        while self.host.driver.has_pending_releases() {
            ensure!(Instant::now() < until, "a node does not confirm releases");
            self.host.process(Duration::from_millis(10))?;
        }
        Ok(())
    }
}

const TTL: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use redbolt_test_servers::{Reply, Server, servers};

    use super::*;

    #[test]
    fn all_share_one_key_and_none_is_left() {
        let servers = servers(3);
        let nodes: Vec<_> = servers.iter().map(Server::address).collect();
        let mut readers = Readers::connect(&nodes).unwrap();
        let held = readers.hold(20, Keys::Shared).unwrap();
        let shared = |server: &&Server| server.run(&[b"EXISTS", &key(0)]) == Reply::Int(1);
        assert!(servers.iter().filter(shared).count() >= 2);
        readers.host.release(&held).unwrap();
        readers.settle().unwrap();
        let cost = readers.take(20, Keys::Shared).unwrap();
        assert_eq!((cost.commands, readers.beside(5, 4).unwrap().len()), (120, 4));
        readers.take(20, Keys::Own).unwrap();
        for server in &servers {
            assert_eq!(server.run(&[b"KEYS", b"redbolt-*"]), Reply::Array(Vec::new()));
        }
    }
}
