//! The cost of a dying minority: pairs before and after, by the same client on the same nodes.
//!
//! A session has new nodes and one client, which acquires and releases without a pause while the
//! nodes die. Contenders take turns in rounds of one session each.

use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use hdrhistogram::Histogram;
use redbolt_test_servers::Server;

use super::death::{Death, Victims};
use super::{Contender, Entry};
use crate::contender::{Node, Task};
use crate::stats::{histogram, record};

/// The extent of the measurement.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The number of sessions of each contender.
    pub rounds: usize,
    /// The time for which the nodes live in a session.
    pub healthy: Duration,
    /// The time for which a session lasts after their death; longer if fewer than [`FIRST`] pairs
    /// have ended.
    pub dead: Duration,
}

/// The figures of a contender. Times are in nanoseconds.
pub struct Figures {
    /// The pairs that ended before the nodes died.
    pub healthy: Histogram<u64>,
    /// The pairs that ended afterwards.
    pub dead: Histogram<u64>,
    /// The figures of each session.
    pub rounds: Vec<Round>,
    /// The number of pairs that failed after the nodes had died.
    pub failed: u64,
    /// The first of those failures, or the reason why there are no figures.
    pub failure: Option<String>,
}

/// A session. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// The 99th percentile of the pair before the nodes died.
    pub healthy_p99: u64,
    /// The 99th percentile of the pair afterwards.
    pub dead_p99: u64,
    /// The longest of the first [`FIRST`] pairs that ended after the nodes had died, including the
    /// one in progress.
    pub first: u64,
}

/// Runs the plan: of `n` nodes the largest minority dies. `place` sets the affinity of the nodes,
/// of this thread and of all that it starts. The figures are in the order of the entries. `turn` is
/// called after each session.
///
/// # Errors
///
/// There is no memory. A contender that cannot take part has the reason in its figures.
pub fn run(
    entries: &[Entry],
    death: Death,
    n: usize,
    plan: Plan,
    place: impl Fn(&[Server]) -> Result<()>,
    mut turn: impl FnMut(),
) -> Result<Vec<Figures>> {
    let mut figures = entries.iter().map(|_| Figures::new()).collect::<Result<Vec<_>>>()?;
    for _ in 0..plan.rounds {
        for (entry, figures) in entries.iter().zip(&mut figures) {
            if !figures.has_stalled() {
                let pairs = session(entry, death, n, plan, &place);
                match pairs {
                    Ok(pairs) => figures.count(&pairs)?,
                    Err(error) => figures.failure = Some(format!("{error:#}")),
                }
            }
            turn();
        }
    }
    Ok(figures)
}

impl Figures {
    fn new() -> Result<Self> {
        let (healthy, dead) = (histogram()?, histogram()?);
        Ok(Self { healthy, dead, rounds: Vec::new(), failed: 0, failure: None })
    }

    /// Returns `true` if further sessions would take too much time.
    fn has_stalled(&self) -> bool {
        self.dead.max() > STALLED.as_nanos() as u64 || (self.failure.is_some() && self.failed == 0)
    }

    fn count(&mut self, pairs: &Pairs) -> Result<()> {
        let (mut healthy, mut dead, mut first) = (histogram()?, histogram()?, Duration::ZERO);
        for pair in &pairs.all {
            if pair.end < pairs.died {
                record(&mut healthy, pair.end - pair.start);
                continue;
            }
            if dead.len() < FIRST {
                first = first.max(pair.end - pair.start);
            }
            record(&mut dead, pair.end - pair.start);
            self.failed += u64::from(!pair.well);
        }
        if self.failure.is_none() {
            self.failure.clone_from(&pairs.failure);
        }
        self.rounds.push(Round {
            healthy_p99: healthy.value_at_quantile(0.99),
            dead_p99: dead.value_at_quantile(0.99),
            first: first.as_nanos() as u64,
        });
        self.healthy.add(&healthy)?;
        self.dead.add(&dead)?;
        Ok(())
    }
}

/// The pairs of a session.
struct Pairs {
    all: Vec<Pair>,
    /// The moment before the first node died.
    died: Instant,
    failure: Option<String>,
}

struct Pair {
    start: Instant,
    end: Instant,
    well: bool,
}

fn session(
    entry: &Entry,
    death: Death,
    n: usize,
    plan: Plan,
    place: impl Fn(&[Server]) -> Result<()>,
) -> Result<Pairs> {
    let mut servers = death.servers(n);
    place(&servers)?;
    let nodes = servers.iter().map(|server| Node::Tcp(server.address())).collect();
    let task = Task { nodes, resource: "redbolt-bench-dead".to_owned(), ttl: TTL };
    let mut contender = (entry.start)(&task)?;
    for _ in 0..WARM_UP {
        contender.pair().context("warming up")?;
    }
    let mut victims = Victims::new(death, servers.drain(..(n - 1) / 2).collect());
    let begun = Instant::now();
    let death_at = Arc::new(OnceLock::new());
    let (first_ended, has_begun) = mpsc::channel();
    let killer = thread::Builder::new().name("killer".to_owned()).spawn({
        let death_at = Arc::clone(&death_at);
        move || {
            thread::sleep(plan.healthy);
            // On a busy machine the first pair takes longer. A contender that is stuck never ends
            // it.
            let _ = has_begun.recv_timeout(STALLED);
            let died = *death_at.get_or_init(Instant::now);
            // The nodes stay dead while other contenders measure.
            victims.die().map(|()| (died, victims))
        }
    })?;
    let until = begun + plan.healthy + plan.dead;
    let (all, failure) = pairs(&mut *contender, until, &death_at, &first_ended);
    let (died, victims) = killer.join().map_err(|_| anyhow!("a node would not die"))??;
    // The nodes end last, so that a client finds them unchanged when it disconnects.
    drop(contender);
    drop(victims);
    let early = all.iter().find(|pair| !pair.well && pair.end < died);
    match (early, failure) {
        (Some(_), failure) => Err(anyhow!("while all were alive: {}", failure.unwrap_or_default())),
        (None, failure) => Ok(Pairs { all, died, failure }),
    }
}

/// Runs pairs until then and, for at most [`PATIENCE`], until more than [`FIRST`] have ended after
/// the death; or until one has taken longer than [`STALLED`], which means that the client is stuck.
/// Also returns the first failure.
fn pairs(
    contender: &mut dyn Contender,
    until: Instant,
    death_at: &OnceLock<Instant>,
    first_ended: &Sender<()>,
) -> (Vec<Pair>, Option<String>) {
    let (mut all, mut failure) = (Vec::with_capacity(ROOM), None);
    loop {
        let start = Instant::now();
        let outcome = contender.pair();
        let end = Instant::now();
        all.push(Pair { start, end, well: outcome.is_ok() });
        if all.len() == 1 {
            // The nodes may be dying already.
            let _ = first_ended.send(());
        }
        if let (Err(error), None) = (outcome, &failure) {
            failure = Some(format!("{error:#}"));
        }
        let is_over = end > until + PATIENCE || (end > until && has_enough(&all, death_at.get()));
        if is_over || end - start > STALLED {
            return (all, failure);
        }
    }
}

/// Returns `true` if more than [`FIRST`] pairs ended after the death.
fn has_enough(pairs: &[Pair], died: Option<&Instant>) -> bool {
    let Some(died) = died else { return false };
    let after = pairs.iter().rev().take_while(|pair| pair.end >= *died);
    after.count() as u64 > FIRST
}

/// The number of pairs after the death that are examined one by one.
pub const FIRST: u64 = 50;

const WARM_UP: usize = 100;

/// The number of pairs of a session for which memory is allocated before it begins.
const ROOM: usize = 1 << 17;

/// The time of a pair after which a contender has no further session.
const STALLED: Duration = Duration::from_secs(1);

/// The time by which a session is extended if few pairs have ended.
const PATIENCE: Duration = Duration::from_secs(10);

/// A TTL longer than any pair.
const TTL: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stalled::ALL;

    fn at(base: Instant, millis: u64) -> Instant {
        base + Duration::from_millis(millis)
    }

    #[test]
    fn the_pair_in_flight_counts_as_the_first_after_the_death() {
        let base = Instant::now();
        let pair = |start, end| Pair { start: at(base, start), end: at(base, end), well: true };
        let all = vec![pair(0, 1), pair(1, 2), pair(2, 9), pair(9, 10)];
        let mut figures = Figures::new().unwrap();
        figures.count(&Pairs { all, died: at(base, 3), failure: None }).unwrap();
        assert_eq!((figures.healthy.len(), figures.dead.len()), (2, 2));
        assert_eq!(figures.rounds[0].first, 7_000_000);
        assert_eq!(figures.failed, 0);
    }

    #[test]
    fn every_contender_takes_and_releases_the_lock() {
        let servers = redbolt_test_servers::servers(3);
        for entry in ALL {
            let nodes = servers.iter().map(|server| Node::Tcp(server.address())).collect();
            let task = Task { nodes, resource: entry.name.to_owned(), ttl: TTL };
            let mut contender = (entry.start)(&task).unwrap();
            // A key that was left behind would block the next pair.
            for _ in 0..10 {
                contender.pair().unwrap_or_else(|error| panic!("{}: {error:#}", entry.name));
            }
        }
    }

    /// No test asserts how long a pair takes.
    #[test]
    fn redbolt_and_the_floor_continue_without_a_minority() {
        let plan = Plan {
            rounds: 1,
            healthy: Duration::from_millis(50),
            dead: Duration::from_millis(400),
        };
        for death in Death::ALL {
            let figures = run(&ALL[..4], death, 3, plan, |_| Ok(()), || ()).unwrap();
            for (entry, figures) in ALL.iter().zip(&figures) {
                assert_eq!(figures.failure, None, "{}, {}", entry.name, death.name());
                assert!(
                    !figures.healthy.is_empty() && figures.dead.len() > FIRST,
                    "{}",
                    entry.name
                );
            }
        }
    }
}
