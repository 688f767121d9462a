//! Locks that are held and left alone: what they weigh, and what the others pay for them.
//!
//! The driver lives in a host's mio loop, as in `flight`, with the default settings: with a longer patience its
//! timers would be set off so seldom that what they cost would not show. Not here: who counts the heap's bytes,
//! for that takes the place of the whole program's allocator; see `bin/held.rs`.

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use redbolt::{Ask, Config, Driver, Event, LockId};
use serde::{Deserialize, Serialize};

use crate::stats::{cpu_time, histogram, record};

/// What is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// `host:port` of each node.
    pub nodes: Vec<String>,
    /// How many locks are held, from few to many.
    pub held: Vec<usize>,
    /// Pairs of acquire and release while they are.
    pub pairs: usize,
    /// For how long nothing is done.
    pub idle: Duration,
}

/// What so many held locks cost.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figures {
    /// How many are held.
    pub held: usize,
    /// Bytes of heap, in all, more than with none held.
    pub heap: i64,
    /// Resident bytes of the process, more than with none held.
    pub resident: i64,
    /// Nanoseconds of the processor for a pair of acquire and release of another lock.
    pub pair_cpu: u64,
    /// Nanoseconds that a pair takes, at the median.
    pub pair_p50: u64,
    /// Nanoseconds that a pair takes, at most.
    pub pair_max: u64,
    /// Nanoseconds of the processor in a second without work.
    pub idle_cpu: u64,
    /// How often the loop woke up in that second.
    pub idle_wakes: u64,
}

/// Holds more and more locks. `heap` tells how many bytes of it are in use.
///
/// # Errors
///
/// A lock was refused, or a node is not ready.
pub fn climb(plan: &Plan, heap: impl Fn() -> i64) -> Result<Vec<Figures>> {
    let mut host = Host::connect(&plan.nodes)?;
    let most = plan.held.iter().copied().max().unwrap_or(0);
    let mut held = Vec::with_capacity(most);
    host.pairs(plan.pairs / 10 + 1)?;
    let (empty, resident) = (heap(), resident()?);
    let mut all = Vec::new();
    for &count in &plan.held {
        host.hold(count, &mut held)?;
        let (more, resident) = (heap() - empty, self::resident()? - resident);
        host.pairs(plan.pairs / 10 + 1)?;
        let (cpu, times) = host.pairs(plan.pairs)?;
        let (idle_cpu, wakes) = host.idle(plan.idle)?;
        let seconds = plan.idle.as_secs_f64();
        all.push(Figures {
            held: count,
            heap: more,
            resident,
            pair_cpu: cpu.as_nanos() as u64 / plan.pairs as u64,
            pair_p50: times.value_at_quantile(0.5),
            pair_max: times.max(),
            idle_cpu: (idle_cpu.as_nanos() as f64 / seconds) as u64,
            idle_wakes: (wakes as f64 / seconds) as u64,
        });
    }
    Ok(all)
}

struct Host {
    poll: mio::Poll,
    events: mio::Events,
    driver: Driver,
}

impl Host {
    fn connect(nodes: &[String]) -> Result<Self> {
        let builder = Config::builder().max_ttl(HELD_TTL).new_nodes();
        let builder = nodes.iter().try_fold(builder, |builder, node| builder.node(node))?;
        let config = builder.build()?;
        let poll = mio::Poll::new()?;
        let tokens = 0..Driver::tokens_needed(&config);
        let events = mio::Events::with_capacity(tokens.len());
        let driver = Driver::in_registry(config, poll.registry(), tokens)?;
        let mut host = Self { poll, events, driver };
        let until = Instant::now() + PATIENCE;
        while host.driver.nodes().ready() < nodes.len() {
            ensure!(Instant::now() < until, "{:?}", host.driver.nodes());
            host.turn(PATIENCE)?;
        }
        Ok(host)
    }

    /// Takes locks until `count` are held. In portions: a link takes no more than so many requests that are
    /// not answered yet, and a node has its time to answer each. On a busy machine one is refused now and then,
    /// and another is asked for.
    fn hold(&mut self, count: usize, held: &mut Vec<LockId>) -> Result<()> {
        let mut asked = held.len();
        let most = 2 * count + 20 * PORTION;
        while held.len() < count {
            ensure!(asked <= most, "too many locks were refused");
            let first = held.len();
            let portion = asked..asked + PORTION.min(count - held.len());
            asked = portion.end;
            let mut open = portion.len();
            self.driver.together(|driver| {
                portion.clone().try_for_each(|at| {
                    driver.acquire(&Ask::new(&key(at)).ttl(HELD_TTL)).map(drop)
                })
            })?;
            while open > 0 {
                match self.event()? {
                    Event::Granted(id) => held.push(id),
                    Event::Refused(..) => {}
                    Event::Node(..) => continue,
                    other => bail!("{other:?}"),
                }
                open -= 1;
            }
            // The nodes that no quorum needed may be behind.
            while held[first..].iter().any(|&id| self.driver.awaits_answers(id)) {
                self.turn(PATIENCE)?;
            }
        }
        Ok(())
    }

    /// Takes and releases another lock, again and again.
    fn pairs(&mut self, times: usize) -> Result<(Duration, hdrhistogram::Histogram<u64>)> {
        let mut spans = histogram()?;
        let (before, mut refused) = (cpu_time(), 0);
        while spans.len() < times as u64 {
            let start = Instant::now();
            let id = self.driver.acquire(&Ask::new(FREE).ttl(PAIR_TTL))?;
            loop {
                match self.event()? {
                    Event::Granted(of) if of == id => self.driver.release(id),
                    Event::Released(of, _) if of == id => {
                        record(&mut spans, start.elapsed());
                        break;
                    }
                    Event::Refused(of, refusal) if of == id => {
                        refused += 1;
                        ensure!(refused < times + 10, "{}", self.driver.report(&refusal));
                        break;
                    }
                    _ => {}
                }
            }
        }
        Ok((cpu_time() - before, spans))
    }

    /// A loop that has nothing to do. Returns what it cost, and how often it woke up.
    fn idle(&mut self, span: Duration) -> Result<(Duration, u64)> {
        let (before, until) = (cpu_time(), Instant::now() + span);
        let mut wakes = 0;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok((cpu_time() - before, wakes));
            }
            self.turn(left)?;
            wakes += 1;
        }
    }

    fn event(&mut self) -> Result<Event> {
        loop {
            match self.driver.poll_event() {
                Some(event) => return Ok(event),
                None => self.turn(PATIENCE)?,
            }
        }
    }

    fn turn(&mut self, longest: Duration) -> Result<()> {
        let wait = self.driver.deadline().map_or(longest, |due| due.min(longest));
        self.poll.poll(&mut self.events, Some(wait))?;
        for event in &self.events {
            self.driver.on_event(event);
        }
        self.driver.turn();
        Ok(())
    }
}

/// The name of the lock with this number: 16 bytes.
fn key(at: usize) -> [u8; 16] {
    let mut key = *b"redbolt-0000000:";
    // Its end is right behind the number, so it has room for it.
    let _ = write!(&mut key[8..15], "{at:07}");
    key
}

/// Bytes of this process that are in memory.
fn resident() -> Result<i64> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages: i64 = text.split(' ').nth(1).unwrap_or_default().parse()?;
    Ok(pages * rustix::param::page_size() as i64)
}

/// The name of the lock that is free.
const FREE: &[u8; 16] = b"redbolt-pair-of:";

const HELD_TTL: Duration = Duration::from_secs(600);
const PAIR_TTL: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(10);
const PORTION: usize = 250;
