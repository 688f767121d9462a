//! Counts the allocations and system calls of a contender's acquire and release, on real nodes that
//! it starts itself. Times are not measured.
//!
//! Allocations are those of the whole process with all its threads, in the run with the fewest.
//! strace counts the system calls. It runs this program once with a number of pairs and once with
//! twice as many: the difference belongs to the pairs, without start and end. strace slows each
//! call down, so replies are always ready, and a spinning thread makes fewer calls.

use std::alloc::System;
use std::collections::BTreeMap;
use std::env::current_exe;
use std::fs::read_to_string;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use redbolt_benches::contender::{ALL, Contender, Entry, Node, Task, Timings};
use redbolt_test_servers::{Server, servers};
use serde_json::json;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Allocations and system calls of an acquire and a release, as JSON.
#[derive(Clone, Parser)]
struct Options {
    /// The contender's full name
    #[arg(long)]
    contender: String,
    /// The number of nodes
    #[arg(long, default_value_t = 3)]
    nodes: usize,
    /// Unix sockets instead of TCP
    #[arg(long)]
    unix: bool,
    /// The number of pairs
    #[arg(long, default_value_t = 500)]
    pairs: usize,
    /// Running nodes, for the program under strace: it counts nothing and prints nothing
    #[arg(long, hide = true)]
    at: Vec<String>,
}

fn main() -> Result<()> {
    let options = Options::parse();
    ensure!(options.pairs > 0, "there is nothing to count");
    if !options.at.is_empty() {
        return spent(&mut *start(&options)?, options.pairs).map(drop);
    }
    let servers = servers(options.nodes);
    let address = |server: &Server| match options.unix {
        true => server.socket().display().to_string(),
        false => server.address(),
    };
    let options = Options { at: servers.iter().map(address).collect(), ..options };
    let memory = memory(&options)?;
    let calls = system_calls(&options);
    let per_pair = |count: u64| count as f64 / options.pairs as f64;
    let by_name = |calls: &Calls| -> BTreeMap<String, f64> {
        calls.iter().map(|(name, &count)| (name.clone(), per_pair(count))).collect()
    };
    let about = json!({
        "contender": options.contender,
        "nodes": options.nodes,
        "unix": options.unix,
        "pairs": options.pairs,
        "allocations": memory.map(|(allocations, _)| per_pair(allocations)),
        "bytes": memory.map(|(_, bytes)| per_pair(bytes)),
        "syscalls": calls.as_ref().ok().map(|calls| per_pair(calls.values().sum())),
        "syscalls_by_name": calls.as_ref().ok().map(by_name),
        "why_no_syscalls": calls.as_ref().err().map(|error| format!("{error:#}")),
    });
    println!("{about:#}");
    Ok(())
}

fn start(options: &Options) -> Result<Box<dyn Contender>> {
    let found = ALL.iter().find(|entry| entry.name == options.contender);
    let names = || ALL.map(|entry: Entry| entry.name).join("; ");
    let entry = found.with_context(|| format!("no contender of that name: {}", names()))?;
    let node = |address: &String| match address.starts_with('/') {
        true => Node::Unix(address.clone()),
        false => Node::Tcp(address.clone()),
    };
    let nodes = options.at.iter().map(node).collect();
    (entry.start)(&Task { nodes, resource: "redbolt-bench-00".into(), ttl: TTL })
}

/// Runs this many pairs, and returns the number and the bytes of their allocations.
fn spent(contender: &mut dyn Contender, pairs: usize) -> Result<Option<(u64, u64)>> {
    let mut timings = Timings::with_room(pairs);
    let before = ALLOCATOR.stats();
    contender.block(pairs, PATIENCE, &mut timings)?;
    let spent = ALLOCATOR.stats() - before;
    ensure!(timings.acquire.len() == pairs, "it takes too long");
    let own = (spent.allocations + spent.reallocations, spent.bytes_allocated);
    Ok(match timings.outside {
        None => Some((own.0 as u64, own.1 as u64)),
        Some(outside) => outside.allocations.zip(outside.bytes),
    })
}

/// Returns the run with the fewest allocations: a node that lags further than before makes lists
/// grow again, which does not belong to a pair.
fn memory(options: &Options) -> Result<Option<(u64, u64)>> {
    let mut contender = start(options)?;
    spent(&mut *contender, WARM_UP)?;
    let runs = (0..RUNS).map(|_| spent(&mut *contender, options.pairs));
    Ok(runs.collect::<Result<Option<Vec<_>>>>()?.and_then(|runs| runs.into_iter().min()))
}

/// The number of times that each system call was made.
type Calls = BTreeMap<String, u64>;

fn system_calls(options: &Options) -> Result<Calls> {
    let (once, twice) = (trace(options, options.pairs)?, trace(options, 2 * options.pairs)?);
    more(&once, &twice, options.pairs as u64)
}

/// Returns the additional calls of the second run. A spinning thread may have made far fewer, and
/// then no number is known; the calls of a start may differ by a few.
fn more(once: &Calls, twice: &Calls, pairs: u64) -> Result<Calls> {
    let before = |name: &String| once.get(name).copied().unwrap_or(0);
    for (name, &calls) in twice {
        let fewer = before(name).saturating_sub(calls);
        ensure!(fewer <= pairs / 4, "{name} does not depend on the number of pairs: it spins");
    }
    let more = twice.iter().map(|(name, calls)| (name.clone(), calls.saturating_sub(before(name))));
    Ok(more.filter(|&(_, calls)| calls > 0).collect())
}

fn trace(options: &Options, pairs: usize) -> Result<Calls> {
    let folder = tempfile::tempdir()?;
    let table = folder.path().join("calls");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-c", "-o"]).arg(&table).arg(current_exe()?);
    strace.args(["--contender", &options.contender, "--pairs", &pairs.to_string()]);
    strace.args(options.at.iter().flat_map(|address| ["--at", address]));
    let mut child = strace
        .stdout(Stdio::null())
        .spawn()
        .context("strace does not run: apt-get install strace")?;
    let until = Instant::now() + 2 * PATIENCE;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() > until {
            child.kill()?;
            child.wait()?;
            bail!("it takes too long under strace");
        }
        sleep(Duration::from_millis(10));
    };
    ensure!(status.success(), "it fails under strace");
    Ok(read_table(&read_to_string(&table)?))
}

/// Parses strace's table: share, seconds, microseconds per call, calls, errors if any, name.
fn read_table(table: &str) -> Calls {
    let row = |line: &str| {
        let cells: Vec<_> = line.split_whitespace().collect();
        let (name, calls) = (cells.last()?, cells.get(3)?.parse().ok()?);
        (*name != "total").then(|| ((*name).to_owned(), calls))
    };
    table.lines().filter_map(row).collect()
}

const TTL: Duration = Duration::from_secs(10);
/// The number of pairs after which all memory has reached its final size.
const WARM_UP: usize = 200;
/// The number of runs, of which the one with the fewest allocations counts.
const RUNS: usize = 3;
/// The limit for all pairs of a run.
const PATIENCE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read_with_and_without_errors() {
        let table = "% time     seconds  usecs/call     calls    errors syscall\n\
                     ------ ----------- ----------- --------- --------- ----------------\n\
                      66.67    0.000020           2        10         3 recvfrom\n\
                      33.33    0.000010           1         7           sendto\n\
                     ------ ----------- ----------- --------- --------- ----------------\n\
                     100.00    0.000030           1        17         3 total\n";
        let expected = [("recvfrom".to_owned(), 10), ("sendto".to_owned(), 7)];
        assert_eq!(read_table(table), Calls::from(expected));
    }

    #[test]
    fn only_what_grows_with_the_pairs_is_counted() {
        let calls =
            |recv, mmap| Calls::from([("recv".to_owned(), recv), ("mmap".to_owned(), mmap)]);
        let recv = Calls::from([("recv".to_owned(), 600)]);
        assert_eq!(more(&calls(700, 30), &calls(1_300, 29), 100).unwrap(), recv);
        assert!(more(&calls(700, 30), &calls(600, 30), 100).is_err());
    }
}
