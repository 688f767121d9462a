//! Tries for the permits of a semaphore, by several clients, at a rate that keeps it full to a
//! given degree.
//!
//! Tries come at random, independently of one another, and one that is refused is lost. A permit is
//! held for a time and released. The clients are drivers on separate threads and connections, so
//! that nodes receive their requests in different orders.

use std::collections::VecDeque;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use redbolt::{Config, Event, LockId, LockRequest, Wait};

use crate::contender::Asked;
use crate::scale::host::{Host, PATIENCE};

/// The load, and its duration.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The number of permits.
    pub permits: u16,
    /// The average number that would be in use if there were enough of them.
    pub offered: f64,
    /// The time for which each is held.
    pub held: Duration,
    /// The time for which tries count, once the semaphore has filled.
    pub lasts: Duration,
}

/// The outcomes of the tries that count.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// The number of tries that were granted.
    pub granted: u64,
    /// The number of tries that were refused.
    pub refused: u64,
    /// The number of attempts that needed a second round trip, because nodes gave different slots.
    pub settled: u64,
    /// The number of requests to nodes that did not keep a held permit.
    pub healed: u64,
    /// The number of requests and undos that were sent to nodes.
    pub commands: u64,
}

impl Outcome {
    fn plus(self, other: Self) -> Self {
        Self {
            granted: self.granted + other.granted,
            refused: self.refused + other.refused,
            settled: self.settled + other.settled,
            healed: self.healed + other.healed,
            commands: self.commands + other.commands,
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            granted: self.granted - before.granted,
            refused: self.refused - before.refused,
            settled: self.settled - before.settled,
            healed: self.healed - before.healed,
            commands: self.commands - before.commands,
        }
    }

    /// Returns the share of the permits in use, on average.
    #[must_use]
    pub fn fill(&self, load: Load) -> f64 {
        let held = self.granted as f64 * load.held.as_secs_f64();
        held / load.lasts.as_secs_f64() / f64::from(load.permits)
    }

    /// Returns the round trips per permit.
    #[must_use]
    pub fn rounds(&self) -> f64 {
        1.0 + self.per_permit(self.settled)
    }

    /// Returns a count per permit.
    #[must_use]
    pub fn per_permit(&self, count: u64) -> f64 {
        count as f64 / self.granted.max(1) as f64
    }
}

/// Puts the load on new nodes.
///
/// # Errors
///
/// The nodes are not ready, or fail.
pub fn run(nodes: &[String], load: Load) -> Result<Outcome> {
    let clients = (0..CLIENTS).map(|at| Client::connect(nodes, load, at));
    let clients = clients.collect::<Result<Vec<_>>>()?;
    let start = Instant::now();
    let one = |mut client: Client| thread::Builder::new().spawn(move || client.run(start));
    let threads = clients.into_iter().map(one).collect::<Result<Vec<_>, _>>()?;
    threads.into_iter().try_fold(Outcome::default(), |sum, thread| {
        let own = thread.join().map_err(|_| anyhow!("a client panicked"))??;
        Ok(sum.plus(own))
    })
}

struct Client {
    host: Host,
    load: Load,
    random: Random,
    next: Duration,
    /// The permits that it holds, and until when, in that order.
    held: VecDeque<(Duration, LockId)>,
}

impl Client {
    fn connect(nodes: &[String], load: Load, at: usize) -> Result<Self> {
        let patient = Config::builder().response_timeout(PATIENCE).dead_peer_timeout(2 * PATIENCE);
        let host = Host::connect(patient, nodes)?;
        let mut random = Random(0x9E37_79B9_7F4A_7C15 ^ (at as u64 + 1));
        let next = random.pause(load);
        Ok(Self { host, load, random, next, held: VecDeque::new() })
    }

    fn run(&mut self, start: Instant) -> Result<Outcome> {
        let warm = WARM * self.load.held;
        let (end, mut before) = (warm + self.load.lasts, None);
        loop {
            let now = start.elapsed();
            if before.is_none() && now >= warm {
                before = Some(self.so_far());
            }
            if now >= end {
                break;
            }
            self.step(now)?;
            self.receive(start)?;
        }
        let outcome = self.so_far().since(before.context("the time was up at once")?);
        self.end()?;
        Ok(outcome)
    }

    /// Does all work that is due, and sleeps until more is due, or a node answers.
    fn step(&mut self, now: Duration) -> Result<()> {
        while let Some(&(_, id)) = self.held.front().filter(|(until, _)| *until <= now) {
            self.held.pop_front();
            self.host.driver.release(id);
        }
        while self.next <= now {
            let request = LockRequest::new(RESOURCE).ttl(TTL).wait(Wait::No);
            self.host.driver.acquire(request.permits(self.load.permits))?;
            self.next += self.random.pause(self.load);
        }
        let ends = self.held.front().map_or(self.next, |(until, _)| *until);
        self.host.process(self.next.min(ends).saturating_sub(now).min(LONGEST))
    }

    fn receive(&mut self, start: Instant) -> Result<()> {
        while let Some(event) = self.host.driver.poll_event() {
            match event {
                Event::Granted(id) => self.held.push_back((start.elapsed() + self.load.held, id)),
                Event::Released(..) | Event::Refused(..) | Event::Node(..) => {}
                other => self.host.void(other)?,
            }
        }
        Ok(())
    }

    fn so_far(&self) -> Outcome {
        let metrics = self.host.driver.metrics().metrics;
        let asked = Asked::from(&metrics);
        Outcome {
            granted: metrics.grants,
            refused: metrics.refusals.total(),
            settled: metrics.settled,
            healed: metrics.healed,
            commands: asked.to_nodes + asked.undos,
        }
    }

    /// Releases everything, so that nothing is left on the nodes.
    fn end(&mut self) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        self.held.iter().for_each(|&(_, id)| self.host.driver.release(id));
        while self.host.driver.has_pending_releases() {
            ensure!(Instant::now() < until, "a node does not confirm releases");
            self.host.process(LONGEST)?;
            while let Some(event) = self.host.driver.poll_event() {
                // This try was in flight at the end.
                if let Event::Granted(id) = event {
                    self.host.driver.release(id);
                }
            }
        }
        Ok(())
    }
}

/// A generator of the times between tries, which needs no quality.
struct Random(u64);

impl Random {
    /// Returns the time to the next try of one client, exponentially distributed.
    fn pause(&mut self, load: Load) -> Duration {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        // The share is from above zero to one.
        let share = ((self.0 >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        load.held.mul_f64(CLIENTS as f64 * -share.ln() / load.offered)
    }
}

/// The number of clients, as in the simulation of the table.
const CLIENTS: usize = 8;

/// The multiple of the holding time after which the semaphore is as full as it will be.
const WARM: u32 = 2;

const RESOURCE: &[u8] = b"redbolt-permits-0";
const TTL: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use redbolt_test_servers::{Reply, Server, servers};

    use super::*;

    #[test]
    fn permits_are_given_and_none_is_left() {
        let servers = servers(3);
        let nodes: Vec<_> = servers.iter().map(Server::address).collect();
        let (held, lasts) = (Duration::from_millis(20), Duration::from_millis(400));
        let load = Load { permits: 2, offered: 3.0, held, lasts };
        let outcome = run(&nodes, load).unwrap();
        assert!(outcome.granted > 0 && outcome.refused > 0, "{outcome:?}");
        assert!(outcome.commands > 0, "{outcome:?}");
        for server in &servers {
            assert_eq!(server.run(&[b"EXISTS", RESOURCE]), Reply::Int(0));
        }
    }

    #[test]
    fn tries_come_as_often_as_is_offered() {
        let (held, lasts) = (Duration::from_millis(80), Duration::ZERO);
        let load = Load { permits: 10, offered: 9.0, held, lasts };
        let mut random = Random(7);
        let sum: Duration = (0..10_000).map(|_| random.pause(load)).sum();
        let mean = sum.as_secs_f64() / 10_000.0;
        assert!((mean * 9.0 / 8.0 / 0.08 - 1.0).abs() < 0.05, "{mean}");
    }
}
