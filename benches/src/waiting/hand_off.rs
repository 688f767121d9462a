//! A hand-off: one client holds the lock, another waits on its own thread and connections, and the
//! first releases.
//!
//! Contenders take turns in rounds, forward and back, as in `rounds`, and ratios are computed
//! within a round. One that fails is out, and the others continue. The clients, or else the nodes,
//! count useless requests.

use std::cell::Cell;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use redbolt_test_servers::Server;

use super::holder::{Holder, Other, Own, ReleasedBy, spread};
use super::{Entry, PATIENCE, WokenBy};
use crate::contender::{Contender, Node, Task};
use crate::counts::Counts;
use crate::stats::{histogram, record};

/// The extent of the measurement.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The number of rounds, each of two blocks for each contender.
    pub rounds: usize,
    /// The number of hand-offs in a block.
    pub block: usize,
    /// The number of hand-offs in a block of a contender that waits by timer, which is slow.
    pub slow_block: usize,
    /// The time after which no further round begins, once there is one.
    pub within: Duration,
}

/// The figures of a contender. Times are in nanoseconds.
pub struct Figures {
    /// The time from the start of the release until the waiter holds the lock.
    pub hand_off: Histogram<u64>,
    /// The median of each round.
    pub medians: Vec<u64>,
    /// The average number of requests to a node per hand-off, without the one that it granted.
    pub failed_asks: f64,
    /// The error, if it failed.
    pub failure: Option<String>,
    failed: u64,
    round: Histogram<u64>,
}

/// A holder and a waiter.
struct Pair {
    holder: Box<dyn Holder>,
    waiter: Waiter,
    by: ReleasedBy,
    woken_by: WokenBy,
    times: u32,
}

/// Runs the plan: each of `entries` waits, and `released_by` determines how its waits end. The
/// floor, which can wait only for its own kind, always releases itself. The figures are in the
/// order of the entries. `turn` is called after each contender's turn in a round.
///
/// # Errors
///
/// The nodes do not report their counters, or there is no memory. A contender that cannot take part
/// has the reason in its figures.
pub fn run(
    servers: &[Server],
    entries: &[Entry],
    released_by: ReleasedBy,
    plan: Plan,
    mut turn: impl FnMut(),
) -> Result<Vec<Figures>> {
    let mut figures = entries.iter().map(|_| Figures::new()).collect::<Result<Vec<_>>>()?;
    let mut pairs: Vec<Option<Pair>> = Vec::new();
    for (at, (entry, figures)) in entries.iter().zip(&mut figures).enumerate() {
        let resource = format!("redbolt-bench-{}-{at:02}", released_by.name());
        let pair = Pair::new(servers, entry, released_by, resource);
        let warm = pair.and_then(|mut pair| pair.hand_off().map(|_| pair));
        pairs.push(warm.map_err(|error| figures.fail(&error)).ok());
    }
    let (mut counts, begun) = (Counts::of(servers), Instant::now());
    for round in 0..plan.rounds {
        if round > 0 && begun.elapsed() > plan.within {
            break;
        }
        let there = 0..entries.len();
        for at in there.clone().chain(there.rev()) {
            figures[at].block(&mut pairs[at], plan, &mut counts)?;
            turn();
        }
        figures.iter_mut().try_for_each(Figures::end_round)?;
    }
    for figures in &mut figures {
        let failed = figures.failed as f64 / servers.len() as f64;
        figures.failed_asks = failed / figures.hand_off.len() as f64;
    }
    Ok(figures)
}

impl Figures {
    fn new() -> Result<Self> {
        let (hand_off, round) = (histogram()?, histogram()?);
        let (medians, failed_asks, failure, failed) = (Vec::new(), 0.0, None, 0);
        Ok(Self { hand_off, medians, failed_asks, failure, failed, round })
    }

    fn block(&mut self, taking: &mut Option<Pair>, plan: Plan, counts: &mut Counts) -> Result<()> {
        let Some(pair) = taking else { return Ok(()) };
        let (before, asked_before) = (counts.sets()?, pair.waiter.asked.get());
        let hand_offs = pair.block(plan);
        let outcome = (0..hand_offs).try_for_each(|_| {
            record(&mut self.round, pair.hand_off()?);
            anyhow::Ok(())
        });
        match outcome {
            Ok(()) => {
                let granted = (hand_offs * before.len()) as u64;
                let sum = |sets: Vec<u64>| sets.iter().sum::<u64>();
                // The holder's requests are granted; the nodes cannot distinguish them from the
                // waiter's.
                self.failed += match pair.waiter.asked.get().zip(asked_before) {
                    Some((after, before)) => (after - before).saturating_sub(granted),
                    None => (sum(counts.sets()?) - sum(before)).saturating_sub(2 * granted),
                };
            }
            Err(error) => {
                self.fail(&error);
                *taking = None;
            }
        }
        Ok(())
    }

    /// Records a failure; the figures of the present round do not count.
    fn fail(&mut self, error: &anyhow::Error) {
        self.failure = Some(format!("{error:#}"));
        self.round.reset();
    }

    fn end_round(&mut self) -> Result<()> {
        if self.failure.is_none() {
            self.medians.push(self.round.value_at_quantile(0.5));
            self.hand_off.add(&self.round)?;
            self.round.reset();
        }
        Ok(())
    }
}

impl Pair {
    fn new(
        servers: &[Server],
        entry: &Entry,
        released_by: ReleasedBy,
        resource: String,
    ) -> Result<Self> {
        let by = match entry.woken_by {
            WokenBy::OwnMessage | WokenBy::Turn => ReleasedBy::Own,
            WokenBy::Push | WokenBy::Timer => released_by,
        };
        let nodes = servers.iter().map(|server| Node::Tcp(server.address())).collect();
        let task = Task { nodes, resource, ttl: TTL };
        let holder: Box<dyn Holder> = match by {
            ReleasedBy::Own => Box::new(Own(entry.start(&task)?)),
            _ => Box::new(Other::new(servers, &task.resource, by)?),
        };
        let waiter = Waiter::start(entry, task)?;
        Ok(Self { holder, waiter, by, woken_by: entry.woken_by, times: 0 })
    }

    fn block(&self, plan: Plan) -> usize {
        match self.woken_by {
            WokenBy::Timer => plan.slow_block,
            WokenBy::OwnMessage | WokenBy::Push | WokenBy::Turn => plan.block,
        }
    }

    fn hand_off(&mut self) -> Result<Duration> {
        self.holder.take()?;
        self.waiter.begin()?;
        if self.by != ReleasedBy::Nobody {
            thread::sleep(self.settle());
        }
        let released = self.holder.let_go()?;
        let held = self.waiter.held()?;
        self.waiter.ended()?;
        Ok(held.saturating_duration_since(released))
    }

    /// Returns how long the waiter waits before the release: until it is subscribed, or, if it
    /// retries at intervals, for a span that ends at any point of an interval.
    fn settle(&mut self) -> Duration {
        self.times += 1;
        let (least, range) = match self.woken_by {
            WokenBy::OwnMessage | WokenBy::Push | WokenBy::Turn => (10, 20),
            WokenBy::Timer => (20, 200),
        };
        spread(self.times, Duration::from_millis(least), Duration::from_millis(range))
    }
}

/// The time of an event of a waiter, and the number of requests that it had sent to nodes by then.
struct Moment {
    at: Instant,
    asked: Option<u64>,
}

impl Moment {
    fn of(contender: &dyn Contender) -> Self {
        let at = Instant::now();
        Self { at, asked: contender.asked().map(|asked| asked.to_nodes) }
    }
}

/// A waiting contender, on a separate thread.
struct Waiter {
    begin: Option<Sender<()>>,
    moments: Receiver<Result<Moment>>,
    /// The number of requests that it had sent to nodes when it last released the lock, if it
    /// counts them.
    asked: Cell<Option<u64>>,
    thread: Option<JoinHandle<()>>,
}

impl Waiter {
    fn start(entry: &Entry, task: Task) -> Result<Self> {
        let (begin, orders) = channel();
        let (tell, moments) = channel();
        let entry = *entry;
        let thread = thread::Builder::new()
            .name("waiter".to_owned())
            .spawn(move || wait_and_release(entry, &task, &orders, &tell))?;
        let asked = Cell::new(None);
        let waiter = Self { begin: Some(begin), moments, asked, thread: Some(thread) };
        waiter.moment().context("connecting")?;
        Ok(waiter)
    }

    fn begin(&self) -> Result<()> {
        Ok(self.begin.as_ref().context("it has not been told to end")?.send(())?)
    }

    /// Returns the time at which it was granted the lock.
    fn held(&self) -> Result<Instant> {
        self.moment()
    }

    /// Returns the time at which it had released the lock.
    fn ended(&self) -> Result<Instant> {
        self.moment()
    }

    fn moment(&self) -> Result<Instant> {
        let moment = self.moments.recv_timeout(2 * PATIENCE).context("the waiter is silent")??;
        self.asked.set(moment.asked);
        Ok(moment.at)
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.begin = None;
        if let Some(thread) = self.thread.take() {
            // A panic already showed as a missing message.
            let _ = thread.join();
        }
    }
}

/// Reports when it is connected, and for each order when it holds the lock and when it has released
/// it.
fn wait_and_release(
    entry: Entry,
    task: &Task,
    orders: &Receiver<()>,
    tell: &Sender<Result<Moment>>,
) {
    let mut contender = match entry.start(task) {
        Ok(contender) => contender,
        Err(error) => return drop(tell.send(Err(error))),
    };
    let mut told = tell.send(Ok(Moment::of(&*contender)));
    while told.is_ok() && orders.recv().is_ok() {
        let held = contender.acquire().map(|()| Moment { at: Instant::now(), asked: None });
        let failed = held.is_err();
        told = tell.send(held);
        if failed || told.is_err() {
            return;
        }
        let released = contender.release().map(|()| Moment::of(&*contender));
        told = tell.send(released);
    }
}

/// A TTL longer than any wait, except for keys that are to expire.
const TTL: Duration = Duration::from_secs(10);
