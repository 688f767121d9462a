//! Many processes that want the same lock repeatedly, and a shared file that only the holder may
//! touch.
//!
//! The processes are workers ([`worker`]): the program starts itself this many times. All connect,
//! and all begin at the same moment.

pub mod queue;
pub mod span;
pub mod turns;
pub mod worker;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use redbolt_test_servers::Server;

use self::span::Span;
use self::turns::{Turn, gaps};
use self::worker::{Order, Report, Shared, Spent, monotonic};
use crate::contender::{Node, Task};
use crate::counts::{Counts, NodeUsage};
use crate::waiting::{Entry, default_settings};

/// The plan of a crowd.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The number of processes.
    pub processes: usize,
    /// The number of times that each acquires the lock.
    pub times: usize,
    /// The time for which each holds it.
    pub section: Duration,
    /// The time limit of the whole crowd.
    pub limit: Duration,
}

/// A crowd whose processes take turns for a while, and of which only the later ones count.
#[derive(Clone, Copy, Debug)]
pub struct Contest {
    /// The number of processes.
    pub processes: usize,
    /// The time for which each holds the lock.
    pub section: Duration,
    /// The time for which they contend before anything counts.
    pub warm_up: Duration,
    /// The time for which they take turns that count.
    pub lasts: Duration,
}

/// The result of a crowd. Times are in nanoseconds.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The time from the start to the last process's end.
    pub total: u64,
    /// All turns, in the order of their grants.
    pub turns: Vec<Turn>,
    /// The wait of each acquisition, sorted.
    pub waits: Vec<u64>,
    /// The times from the begin of each release to the next grant, sorted.
    pub hand_offs: Vec<u64>,
    /// The time at which each process was done, from the start.
    pub finished: Vec<u64>,
    /// The number of times that a process found another one in its section.
    pub trespasses: u64,
    /// The number of updates of the shared file that another process has overwritten.
    pub overwritten: u64,
    /// The span that counts.
    pub counts: Span,
    /// The cost of all turns for the clients, by their own count.
    pub spent: Spent,
    /// The cost of the span that counts for the nodes, by their own count.
    pub nodes: NodeUsage,
    /// The errors of workers. A failed worker has acquired the lock less often than it should.
    pub failures: Vec<String>,
}

impl Outcome {
    /// Returns the outcome of a crowd that could not begin, which counts as one without any grant.
    #[must_use]
    pub fn failed(error: &anyhow::Error) -> Self {
        let failures = vec![format!("{error:#}")];
        Self { failures, ..Self::nothing(Span::ALWAYS) }
    }

    fn nothing(counts: Span) -> Self {
        Self {
            total: 0,
            turns: Vec::new(),
            waits: Vec::new(),
            hand_offs: Vec::new(),
            finished: Vec::new(),
            trespasses: 0,
            overwritten: 0,
            counts,
            spent: Spent::default(),
            nodes: NodeUsage::default(),
            failures: Vec::new(),
        }
    }

    /// Returns how often the lock was granted.
    #[must_use]
    pub fn grants(&self) -> usize {
        self.turns.len()
    }

    /// Returns how often a process found another one in its section, or overwrote its update.
    #[must_use]
    pub fn intruders(&self) -> u64 {
        self.trespasses + self.overwritten
    }
}

/// Runs one crowd on nodes on which no key of another crowd may be left. Recreates `file`. Calls
/// `begin` when all processes have connected, before they start.
///
/// # Errors
///
/// A worker could not be started, or did not connect.
pub fn run(
    nodes: &[String],
    entry: &Entry,
    plan: Plan,
    file: &Path,
    begin: &mut dyn FnMut() -> Result<()>,
) -> Result<Outcome> {
    let order = order(nodes, entry, RESOURCE, plan.section, file);
    let mut crowd = Crowd::start(&Order { times: plan.times, ..order }, plan.processes)?;
    begin()?;
    let start = crowd.go(Span::ALWAYS.end)?;
    crowd.gather(start, Span::ALWAYS, plan.limit)
}

/// Runs one contest for this resource. Recreates `file`.
///
/// # Errors
///
/// A worker could not be started, or did not connect.
pub fn contest(
    servers: &[Server],
    entry: &Entry,
    contest: Contest,
    resource: &str,
    file: &Path,
) -> Result<Outcome> {
    let nodes: Vec<_> = servers.iter().map(Server::address).collect();
    let mut counts = Counts::of(servers);
    let order = order(&nodes, entry, resource, contest.section, file);
    let mut crowd = Crowd::start(&order, contest.processes)?;
    let begin = monotonic() + contest.warm_up.as_nanos() as u64;
    let span = Span { begin, end: begin + contest.lasts.as_nanos() as u64 };
    let start = crowd.go(span.end)?;
    sleep_until(span.begin);
    let before = counts.usage()?;
    sleep_until(span.end);
    let after = counts.usage()?;
    let mut outcome = crowd.gather(start, span, ENDS_WITHIN)?;
    outcome.nodes = after - before;
    Ok(outcome)
}

/// Connects one client before all others, so that the restart guards of new nodes are written once,
/// not by all clients at a time.
///
/// # Errors
///
/// It cannot take a lock.
pub fn set_up(nodes: &[String]) -> Result<()> {
    let nodes = nodes.iter().cloned().map(Node::Tcp).collect();
    let (resource, ttl) = ("redbolt-bench-first".to_owned(), Duration::from_secs(10));
    let mut first = default_settings().start(&Task { nodes, resource, ttl })?;
    first.acquire()?;
    first.release()
}

fn sleep_until(moment: u64) {
    thread::sleep(Duration::from_nanos(moment.saturating_sub(monotonic())));
}

/// Returns the order for the first of the processes.
fn order(nodes: &[String], entry: &Entry, resource: &str, section: Duration, file: &Path) -> Order {
    Order {
        contender: entry.name.to_owned(),
        nodes: nodes.to_vec(),
        seat: 0,
        seats: 1,
        resource: resource.to_owned(),
        times: usize::MAX,
        section,
        file: file.to_owned(),
    }
}

/// The processes of a crowd.
struct Crowd {
    workers: Vec<Worker>,
    lines: Receiver<(usize, String)>,
    shared: Shared,
}

impl Crowd {
    /// Starts this many workers. Returns when all have connected.
    fn start(order: &Order, seats: usize) -> Result<Self> {
        let shared = Shared::create(&order.file)?;
        let (tell, lines) = channel();
        let worker = |seat| Worker::start(&Order { seat, seats, ..order.clone() }, tell.clone());
        let workers = (0..seats).map(worker).collect::<Result<Vec<_>>>()?;
        await_ready(&lines, seats)?;
        Ok(Self { workers, lines, shared })
    }

    /// Lets all workers begin, for a time. Returns the moment before that.
    fn go(&mut self, until: u64) -> Result<u64> {
        let start = monotonic();
        self.workers.iter_mut().try_for_each(|worker| worker.go(until))?;
        Ok(start)
    }

    /// Collects the reports.
    fn gather(&self, start: u64, counts: Span, limit: Duration) -> Result<Outcome> {
        let until = Instant::now() + limit;
        let (mut outcome, mut spent) = (Outcome::nothing(counts), None);
        for heard in 0..self.workers.len() {
            let left = until.saturating_duration_since(Instant::now());
            let Ok((at, line)) = self.lines.recv_timeout(left) else {
                let late = self.workers.len() - heard;
                outcome.failures.push(format!("{late} not finished within {limit:?}"));
                break;
            };
            let report = Report::parse(&line).with_context(|| format!("worker {at}"))?;
            outcome.turns.extend(report.turns);
            outcome.finished.push(report.finished.saturating_sub(start));
            outcome.trespasses += report.trespasses;
            outcome.failures.extend(report.failure);
            spent = Some(spent.map_or(report.spent, |spent: Spent| spent.plus(report.spent)));
        }
        outcome.spent = spent.unwrap_or_default();
        outcome.finished.sort_unstable();
        outcome.total = outcome.finished.last().copied().unwrap_or(0);
        outcome.turns.sort_unstable_by_key(|turn| turn.granted);
        outcome.waits = outcome.turns.iter().map(|turn| turn.granted - turn.began).collect();
        outcome.waits.sort_unstable();
        outcome.hand_offs = gaps(&outcome.turns);
        outcome.overwritten = (outcome.grants() as u64).saturating_sub(self.shared.sections()?);
        Ok(outcome)
    }
}

fn await_ready(lines: &Receiver<(usize, String)>, processes: usize) -> Result<()> {
    let until = Instant::now() + CONNECT_WITHIN;
    for _ in 0..processes {
        let left = until.saturating_duration_since(Instant::now());
        let (at, line) = lines.recv_timeout(left).context("a worker does not connect")?;
        ensure!(line == worker::READY, "worker {at} says: {line}");
    }
    Ok(())
}

/// A worker's process. Dropping it kills it.
struct Worker {
    process: Child,
    input: Option<ChildStdin>,
}

impl Worker {
    fn start(order: &Order, tell: Sender<(usize, String)>) -> Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(order.arguments())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (input, output) = (process.stdin.take(), process.stdout.take());
        let worker = Self { process, input };
        let at = order.seat;
        let output = output.ok_or_else(|| anyhow!("a worker has a standard output"))?;
        thread::Builder::new().name("worker's lines".to_owned()).spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if tell.send((at, line)).is_err() {
                    return;
                }
            }
        })?;
        Ok(worker)
    }

    fn go(&mut self, until: u64) -> Result<()> {
        match &mut self.input {
            Some(input) => Ok(writeln!(input, "{until}")?),
            None => bail!("a worker has a standard input"),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // A failure here cannot be handled; the process may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const CONNECT_WITHIN: Duration = Duration::from_secs(30);

/// The time for the last turns of a contest after its end, so that processes that wait then have
/// theirs.
const ENDS_WITHIN: Duration = Duration::from_secs(35);

/// The resource for which a crowd contends.
pub const RESOURCE: &str = "redbolt-bench-crowd";
