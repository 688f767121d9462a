//! Held locks without work: their memory, and their cost for other locks.
//!
//! The settings are the default ones, because with longer timeouts the driver's timers would be so
//! rare that their cost would not show. `bin/held.rs` counts the heap's bytes, which needs an
//! allocator for the whole program.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use redbolt::{Config, Event, LockId, LockRequest, Wait};
use serde_json::{Value, json};

use super::host::{Host, Like, PATIENCE};
use crate::stats::{cpu_time, histogram, median, record};

/// The extent of the measurement.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The address of each node as `host:port`.
    pub nodes: Vec<String>,
    /// The numbers of held locks, in ascending order.
    pub held: Vec<usize>,
    /// `true` if they are requested with a wait, and so queue.
    pub waits: bool,
    /// The number of pairs of acquire and release in addition to the held locks.
    pub pairs: usize,
    /// The length of the idle period.
    pub idle: Duration,
}

/// The cost of a number of held locks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// The number of held locks.
    pub held: u64,
    /// The bytes of heap, in all, above those without held locks.
    pub heap: u64,
    /// The resident bytes of the process, above those without held locks.
    pub resident: u64,
    /// The CPU time in nanoseconds of a pair of acquire and release of another lock.
    pub pair_cpu: u64,
    /// The median time of a pair, in nanoseconds.
    pub pair_p50: u64,
    /// The 99th percentile of a pair, in nanoseconds.
    pub pair_p99: u64,
    /// The CPU time in nanoseconds of a second without work.
    pub idle_cpu: u64,
}

impl Figures {
    /// Returns a line for [`read`](Self::read).
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "held": self.held,
            "heap": self.heap,
            "resident": self.resident,
            "pair_cpu": self.pair_cpu,
            "pair_p50": self.pair_p50,
            "pair_p99": self.pair_p99,
            "idle_cpu": self.idle_cpu,
        })
    }

    /// Parses the output of [`json`](Self::json).
    ///
    /// # Errors
    ///
    /// The line is something else.
    pub fn read(line: &str) -> Result<Self> {
        let value: Value = serde_json::from_str(line)?;
        let of = |name: &str| value[name].as_u64().with_context(|| format!("no {name}: {line}"));
        Ok(Self {
            held: of("held")?,
            heap: of("heap")?,
            resident: of("resident")?,
            pair_cpu: of("pair_cpu")?,
            pair_p50: of("pair_p50")?,
            pair_p99: of("pair_p99")?,
            idle_cpu: of("idle_cpu")?,
        })
    }
}

/// Holds more and more locks. `heap` returns how many bytes of heap are in use.
///
/// # Errors
///
/// Locks are refused, or a node is not ready.
pub fn climb(plan: &Plan, heap: impl Fn() -> u64) -> Result<Vec<Figures>> {
    let mut host = Host::connect(Config::builder().max_ttl(HELD_TTL), &plan.nodes)?;
    let mut held = Vec::with_capacity(plan.held.iter().copied().max().unwrap_or(0));
    pairs(&mut host, plan.pairs / 10 + 1)?;
    let (empty, resident) = (heap(), resident()?);
    let mut all = Vec::new();
    for &count in &plan.held {
        hold(&mut host, count, plan.waits, &mut held)?;
        let heap = heap().saturating_sub(empty);
        let resident = self::resident()?.saturating_sub(resident);
        pairs(&mut host, plan.pairs / 10 + 1)?;
        let (cpu, times) = blocks(&mut host, plan.pairs)?;
        let seconds = plan.idle.as_secs_f64();
        let idle_cpu = (idle(&mut host, plan.idle)?.as_nanos() as f64 / seconds) as u64;
        let at = |quantile| times.value_at_quantile(quantile);
        let (pair_p50, pair_p99) = (at(0.5), at(0.99));
        let held = count as u64;
        all.push(Figures { held, heap, resident, pair_cpu: cpu, pair_p50, pair_p99, idle_cpu });
    }
    Ok(all)
}

/// Acquires locks until `count` are held, in portions, because a node has little time to answer
/// each. On a busy machine one is refused now and then, and another is requested.
fn hold(host: &mut Host, count: usize, waits: bool, held: &mut Vec<LockId>) -> Result<()> {
    let wait = if waits { Wait::UpTo(PATIENCE) } else { Wait::No };
    let mut asked = held.len();
    while held.len() < count {
        ensure!(asked <= 2 * count + 20 * PORTION, "too many locks were refused");
        let first = held.len();
        let portion = asked..asked + PORTION.min(count - held.len());
        asked = portion.end;
        host.request(portion.clone(), Like { ttl: HELD_TTL, wait })?;
        for _ in portion {
            match host.event()? {
                Event::Granted(id) => held.push(id),
                Event::Refused(..) => {}
                event => host.void(event)?,
            }
        }
        // Nodes that no quorum needed may be behind.
        while held[first..].iter().any(|&id| host.driver.awaits_answers(id)) {
            host.process(PATIENCE)?;
        }
    }
    Ok(())
}

/// Runs pairs in several blocks, and returns the CPU time of the median block and the time of each
/// pair.
fn blocks(host: &mut Host, times: usize) -> Result<(u64, Histogram<u64>)> {
    let (mut all, mut cpu) = (histogram()?, Vec::new());
    for _ in 0..BLOCKS {
        let before = cpu_time();
        let spans = pairs(host, times.div_ceil(BLOCKS))?;
        cpu.push((cpu_time() - before).as_nanos() as u64 / spans.len().max(1));
        all.add(spans)?;
    }
    Ok((median(&cpu), all))
}

/// Acquires and releases another lock repeatedly.
fn pairs(host: &mut Host, times: usize) -> Result<Histogram<u64>> {
    let (mut spans, mut refused) = (histogram()?, 0);
    while spans.len() < times as u64 {
        let start = Instant::now();
        let id = host.driver.acquire(LockRequest::new(FREE).ttl(PAIR_TTL))?;
        loop {
            match host.event()? {
                Event::Granted(of) if of == id => host.driver.release(id),
                Event::Released(of, _) if of == id => {
                    record(&mut spans, start.elapsed());
                    break;
                }
                Event::Refused(of, refusal) if of == id => {
                    refused += 1;
                    ensure!(refused < times / 10 + 20, "{}", host.driver.report(&refusal));
                    break;
                }
                event => host.void(event)?,
            }
        }
    }
    Ok(spans)
}

/// Runs a loop without work, and returns its CPU time.
fn idle(host: &mut Host, span: Duration) -> Result<Duration> {
    let (before, until) = (cpu_time(), Instant::now() + span);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(cpu_time() - before);
        }
        host.process(left)?;
    }
}

/// Returns the resident bytes of this process.
fn resident() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()).context("no VmRSS")?;
    Ok(kilobytes.parse::<u64>()? * 1024)
}

/// The resource of the free lock.
const FREE: &[u8; 16] = b"redbolt-pair-of:";

const HELD_TTL: Duration = Duration::from_secs(600);
const PAIR_TTL: Duration = Duration::from_secs(10);
const PORTION: usize = 250;
const BLOCKS: usize = 5;
