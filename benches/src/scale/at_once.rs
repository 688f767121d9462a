//! Many locks at once: all are requested, all are held, and all are released.
//!
//! A link accepts at most [`MAX_PIPELINE`] unanswered requests. A host that wants more sends them
//! in portions, as this one does.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use redbolt::proto::{MAX_PIPELINE, RefusalReason};
use redbolt::{Config, Event, Wait};

use super::host::{Host, Like, PATIENCE};
use crate::stats::cpu_time;

/// A driver that acquires many locks at once.
pub struct AtOnce {
    host: Host,
}

/// The cost in nanoseconds of all locks of a call, each acquired and released once.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// The CPU time of this process.
    pub cpu: u64,
    /// The elapsed time.
    pub wall: u64,
}

impl AtOnce {
    /// Connects to new nodes.
    ///
    /// # Errors
    ///
    /// They are not ready.
    pub fn connect(nodes: &[String]) -> Result<Self> {
        let patient = Config::builder().response_timeout(PATIENCE).dead_peer_timeout(2 * PATIENCE);
        Ok(Self { host: Host::connect(patient, nodes)? })
    }

    /// Acquires this many locks, and releases them.
    ///
    /// # Errors
    ///
    /// A lock was not granted. No other client competes for it, so the measurement is void.
    pub fn take(&mut self, locks: usize) -> Result<Cost> {
        let mut held = Vec::with_capacity(locks);
        let (start, cpu) = (Instant::now(), cpu_time());
        while held.len() < locks {
            let portion = held.len()..locks.min(held.len() + PORTION);
            self.host.request(portion.clone(), LIKE)?;
            for _ in portion {
                match self.host.event()? {
                    Event::Granted(id) => held.push(id),
                    event => self.host.void(event)?,
                }
            }
            self.catch_up(&held)?;
        }
        for portion in held.chunks(PORTION) {
            self.host.release(portion)?;
        }
        let cost = (cpu_time() - cpu, start.elapsed());
        self.settle()?;
        Ok(Cost { cpu: cost.0.as_nanos() as u64, wall: cost.1.as_nanos() as u64 })
    }

    /// Requests this many locks at once, even if that is more than a link accepts. Returns how many
    /// were granted, and how many were refused because the links had too many requests in flight.
    ///
    /// # Errors
    ///
    /// A lock was refused for another reason.
    pub fn take_too_many(&mut self, locks: usize) -> Result<(usize, usize)> {
        self.host.request(0..locks, LIKE)?;
        let (mut held, mut refused) = (Vec::new(), 0);
        for _ in 0..locks {
            match self.host.event()? {
                Event::Granted(id) => held.push(id),
                Event::Refused(_, refusal) => {
                    ensure!(
                        refusal.reason == RefusalReason::NoQuorum,
                        "{}",
                        self.host.driver.report(&refusal)
                    );
                    refused += 1;
                }
                event => self.host.void(event)?,
            }
        }
        self.settle()?;
        for portion in held.chunks(PORTION) {
            self.host.release(portion)?;
        }
        self.settle()?;
        Ok((held.len(), refused))
    }

    /// Waits until the links have nothing in flight, for the next portion.
    fn catch_up(&mut self, held: &[redbolt::LockId]) -> Result<()> {
        let last = held.last().copied();
        while last.is_some_and(|id| self.host.driver.awaits_answers(id)) {
            self.host.process(PATIENCE)?;
        }
        Ok(())
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

const LIKE: Like = Like { ttl: Duration::from_secs(30), wait: Wait::No };

/// The size of a portion, well below the limit of a link, because a node that no quorum needs may
/// be behind.
const PORTION: usize = MAX_PIPELINE * 3 / 4;

#[cfg(test)]
mod tests {
    use redbolt_test_servers::{Reply, servers};

    use super::*;

    #[test]
    fn all_are_taken_and_none_is_left() {
        let servers = servers(3);
        let nodes: Vec<_> = servers.iter().map(redbolt_test_servers::Server::address).collect();
        let mut at_once = AtOnce::connect(&nodes).unwrap();
        assert!(at_once.take(20).unwrap().cpu > 0);
        let (granted, refused) = at_once.take_too_many(MAX_PIPELINE + 100).unwrap();
        assert_eq!(granted + refused, MAX_PIPELINE + 100);
        assert!(refused > 0, "a link takes no more");
        for server in &servers {
            assert_eq!(server.run(&[b"KEYS", b"redbolt-*"]), Reply::Array(Vec::new()));
        }
    }
}
