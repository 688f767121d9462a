//! Many processes that want the same lock again and again, and a shared file that only the holder
//! may touch.
//!
//! The processes are workers ([`worker`]): the program starts itself this many times. All connect,
//! and all begin at the same moment. Not here: printing, and the floor, which is a hand-off.

pub mod worker;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use redbolt_test_servers::Server;

use crate::counts::Counts;
use crate::waiting::Entry;
use worker::{Order, Report, Shared, monotonic};

/// What a crowd does.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The number of processes.
    pub processes: usize,
    /// How often each takes the lock.
    pub times: usize,
    /// How long each holds it.
    pub section: Duration,
    /// The time limit of the whole crowd.
    pub limit: Duration,
}

/// The result of a crowd. Times are in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// From the start to the last process's end.
    pub total: u64,
    /// The wait of each acquisition.
    pub waits: Vec<u64>,
    /// From the begin of each release to the next grant.
    pub hand_offs: Vec<u64>,
    /// When each process was done, from the start.
    pub finished: Vec<u64>,
    /// How often a process found another one in its section.
    pub trespasses: u64,
    /// How many updates of the shared file are missing: each was overwritten by another.
    pub overwritten: u64,
    /// How many `SET`s each node ran.
    pub sets: Vec<u64>,
    /// The errors of workers. A failed worker has taken the lock less often than it should.
    pub failures: Vec<String>,
}

impl Outcome {
    /// How often the lock was granted.
    #[must_use]
    pub fn grants(&self) -> usize {
        self.waits.len()
    }

    /// How often all nodes were asked, per grant: the node with the fewest `SET`s was asked only
    /// then. With one node this cannot be distinguished from requests to the lead alone.
    #[must_use]
    pub fn full_asks(&self) -> f64 {
        self.sets.iter().copied().min().unwrap_or(0) as f64 / self.grants().max(1) as f64
    }

    /// How often one node was asked alone, per grant: the nodes' further `SET`s.
    #[must_use]
    pub fn lead_asks(&self) -> f64 {
        let fewest = self.sets.iter().copied().min().unwrap_or(0);
        let more: u64 = self.sets.iter().map(|sets| sets - fewest).sum();
        more as f64 / self.grants().max(1) as f64
    }
}

/// Runs one crowd on the nodes. Recreates `file`.
///
/// # Errors
///
/// A worker could not be started, or did not connect.
pub fn run(servers: &[Server], entry: &Entry, plan: Plan, file: &Path) -> Result<Outcome> {
    let mut counts = Counts::of(servers);
    // An aborted crowd may have left the lock held.
    for server in servers {
        server.run(&[b"DEL", worker::RESOURCE.as_bytes()]);
    }
    let mut before = Vec::new();
    let mut begin = || {
        before = counts.sets()?;
        Ok(())
    };
    let nodes: Vec<_> = servers.iter().map(Server::address).collect();
    let mut outcome = run_on(&nodes, entry, plan, file, &mut begin)?;
    let after = counts.sets()?;
    outcome.sets = after.iter().zip(before).map(|(after, before)| after - before).collect();
    Ok(outcome)
}

/// As [`run`], without querying the nodes, on which no key of another crowd may be left. Calls
/// `begin` when all processes have connected, before they start.
///
/// # Errors
///
/// A worker could not be started, or did not connect.
pub fn run_on(
    nodes: &[String],
    entry: &Entry,
    plan: Plan,
    file: &Path,
    begin: &mut dyn FnMut() -> Result<()>,
) -> Result<Outcome> {
    let shared = Shared::create(file)?;
    let order = Order {
        contender: entry.name.to_owned(),
        nodes: nodes.to_vec(),
        times: plan.times,
        section: plan.section,
        file: file.to_owned(),
    };
    let (tell, lines) = channel();
    let mut workers = Vec::new();
    for at in 0..plan.processes {
        workers.push(Worker::start(at, &order, tell.clone())?);
    }
    await_ready(&lines, plan.processes)?;
    begin()?;
    let start = monotonic();
    workers.iter_mut().try_for_each(Worker::go)?;
    let mut outcome = gather(&lines, plan, start)?;
    outcome.overwritten = (outcome.grants() as u64).saturating_sub(shared.sections()?);
    Ok(outcome)
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

fn gather(lines: &Receiver<(usize, String)>, plan: Plan, start: u64) -> Result<Outcome> {
    let until = Instant::now() + plan.limit;
    let (mut outcome, mut holds) = (Outcome::default(), Vec::new());
    for heard in 0..plan.processes {
        let left = until.saturating_duration_since(Instant::now());
        let Ok((at, line)) = lines.recv_timeout(left) else {
            let late = plan.processes - heard;
            outcome.failures.push(format!("{late} not finished within {:?}", plan.limit));
            break;
        };
        let report = Report::parse(&line).with_context(|| format!("worker {at}"))?;
        outcome.waits.extend(report.waits);
        holds.extend(report.holds);
        outcome.finished.push(report.finished.saturating_sub(start));
        outcome.trespasses += report.trespasses;
        outcome.failures.extend(report.failure);
    }
    outcome.finished.sort_unstable();
    outcome.waits.sort_unstable();
    outcome.hand_offs = hand_offs(holds);
    outcome.total = outcome.finished.last().copied().unwrap_or(0);
    Ok(outcome)
}

/// From the end of each hold to the begin of the next, sorted.
fn hand_offs(mut holds: Vec<(u64, u64)>) -> Vec<u64> {
    holds.sort_unstable();
    let pairs = holds.windows(2);
    let mut hand_offs: Vec<_> = pairs.map(|pair| pair[1].0.saturating_sub(pair[0].1)).collect();
    hand_offs.sort_unstable();
    hand_offs
}

/// The process of a worker. Dropping it kills it.
struct Worker {
    process: Child,
    input: Option<ChildStdin>,
}

impl Worker {
    fn start(at: usize, order: &Order, tell: Sender<(usize, String)>) -> Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(order.arguments())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (input, output) = (process.stdin.take(), process.stdout.take());
        let worker = Self { process, input };
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

    fn go(&mut self) -> Result<()> {
        match &mut self.input {
            Some(input) => Ok(writeln!(input)?),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hand_off_is_from_one_hold_to_the_next_whoever_has_it() {
        assert_eq!(hand_offs(vec![(50, 60), (0, 10), (15, 47)]), [3, 5]);
    }

    #[test]
    fn requests_to_all_nodes_are_distinguished_from_requests_to_one() {
        let outcome = Outcome { waits: vec![0; 10], sets: vec![25, 20, 20], ..Outcome::default() };
        assert_eq!((outcome.full_asks(), outcome.lead_asks()), (2.0, 0.5));
    }
}
