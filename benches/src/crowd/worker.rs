//! One process of a crowd: takes the lock, updates the file, releases; this many times.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use rustix::fs::{FlockOperation, flock};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use crate::contender::{Contender, Node, Task};
use crate::waiting;

/// A worker's arguments.
#[derive(Args, Clone, Debug)]
pub struct Order {
    /// The name of its contender, from [`waiting::ALL`].
    #[arg(long)]
    pub contender: String,
    /// The nodes' addresses.
    #[arg(long = "node")]
    pub nodes: Vec<String>,
    /// How often it takes the lock.
    #[arg(long)]
    pub times: usize,
    /// How long it holds the lock.
    #[arg(long, value_parser = micros)]
    pub section: Duration,
    /// The file that only the holder may touch.
    #[arg(long)]
    pub file: PathBuf,
}

impl Order {
    /// The same as arguments of this program.
    pub(super) fn arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec![COMMAND.into()];
        let mut pair = |name: &str, value: OsString| arguments.extend([name.into(), value]);
        pair("--contender", self.contender.clone().into());
        self.nodes.iter().for_each(|node| pair("--node", node.into()));
        pair("--times", self.times.to_string().into());
        pair("--section", self.section.as_micros().to_string().into());
        pair("--file", self.file.clone().into());
        arguments
    }

    /// Runs the worker. It prints a line when it is connected, waits for a line, and prints its
    /// report at the end.
    ///
    /// # Errors
    ///
    /// The worker could not connect, or could not read or write its lines or the file.
    pub fn carry_out(&self) -> Result<()> {
        let entry = waiting::ALL.iter().find(|entry| entry.name == self.contender);
        let entry =
            entry.with_context(|| format!("no contender has the name {}", self.contender))?;
        let nodes = self.nodes.iter().cloned().map(Node::Tcp).collect();
        let task = Task { nodes, resource: RESOURCE.to_owned(), ttl: TTL };
        let mut contender = (entry.start)(&task)?;
        let shared = Shared::open(&self.file)?;
        println!("{READY}");
        let mut line = String::new();
        if std::io::stdin().read_line(&mut line)? == 0 {
            return Ok(());
        }
        let mut report = Report::default();
        let outcome =
            (0..self.times).try_for_each(|_| self.once(&mut *contender, &shared, &mut report));
        report.failure = outcome.err().map(|error| format!("{error:#}"));
        report.finished = monotonic();
        println!("{}", report.line());
        Ok(())
    }

    fn once(
        &self,
        contender: &mut dyn Contender,
        shared: &Shared,
        report: &mut Report,
    ) -> Result<()> {
        let start = Instant::now();
        contender.acquire()?;
        report.waits.push(start.elapsed().as_nanos() as u64);
        let granted = monotonic();
        report.trespasses += u64::from(!shared.touch(self.section)?);
        report.holds.push((granted, monotonic()));
        contender.release()
    }
}

/// The shared file: a number that each section increments.
pub(super) struct Shared(File);

impl Shared {
    pub(super) fn create(path: &Path) -> Result<Self> {
        std::fs::write(path, 0_u64.to_le_bytes())?;
        Self::open(path)
    }

    fn open(path: &Path) -> Result<Self> {
        Ok(Self(OpenOptions::new().read(true).write(true).open(path)?))
    }

    pub(super) fn sections(&self) -> Result<u64> {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, 0)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Reads the number, waits for the length of a section, writes the number plus one. Whether no
    /// other process was in a section.
    fn touch(&self, section: Duration) -> Result<bool> {
        let alone = flock(&self.0, FlockOperation::NonBlockingLockExclusive).is_ok();
        let sections = self.sections()?;
        thread::sleep(section);
        self.0.write_all_at(&(sections + 1).to_le_bytes(), 0)?;
        flock(&self.0, FlockOperation::Unlock)?;
        Ok(alone)
    }
}

/// A worker's report. Times are in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Report {
    pub(super) waits: Vec<u64>,
    /// From each grant to the begin of its release, on the machine's monotonic clock.
    pub(super) holds: Vec<(u64, u64)>,
    /// On the machine's monotonic clock.
    pub(super) finished: u64,
    pub(super) trespasses: u64,
    pub(super) failure: Option<String>,
}

impl Report {
    fn line(&self) -> String {
        json!({
            "waits": self.waits,
            "holds": self.holds,
            "finished": self.finished,
            "trespasses": self.trespasses,
            "failure": self.failure,
        })
        .to_string()
    }

    pub(super) fn parse(line: &str) -> Result<Self> {
        let value: Value = serde_json::from_str(line)?;
        let number =
            |name: &str| value[name].as_u64().with_context(|| format!("no {name}: {line}"));
        let waits = value["waits"].as_array().context("no waits")?;
        let holds = value["holds"].as_array().context("no holds")?;
        let hold = |hold: &Value| Some((hold[0].as_u64()?, hold[1].as_u64()?));
        Ok(Self {
            holds: holds.iter().filter_map(hold).collect(),
            waits: waits.iter().filter_map(Value::as_u64).collect(),
            finished: number("finished")?,
            trespasses: number("trespasses")?,
            failure: value["failure"].as_str().map(ToOwned::to_owned),
        })
    }
}

/// The machine's monotonic clock, which all processes share.
pub(super) fn monotonic() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn micros(text: &str) -> Result<Duration, std::num::ParseIntError> {
    text.parse().map(Duration::from_micros)
}

/// The subcommand of a worker.
pub const COMMAND: &str = "worker";

pub(super) const READY: &str = "ready";
pub(super) const RESOURCE: &str = "redbolt-bench-crowd";

/// Far longer than any section.
const TTL: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_survives_its_line() {
        let failure = Some("nobody let go".to_owned());
        let (waits, holds) = (vec![1, 2], vec![(5, 6), (7, 8)]);
        let report = Report { waits, holds, finished: 3, trespasses: 4, failure };
        assert_eq!(Report::parse(&report.line()).unwrap(), report);
    }

    #[test]
    fn two_at_a_time_are_noticed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let first = Shared::create(file.path()).unwrap();
        assert!(first.touch(Duration::ZERO).unwrap());
        let (inside, path) = (Duration::from_millis(500), file.path().to_owned());
        let other = thread::spawn(move || Shared::open(&path).unwrap().touch(inside).unwrap());
        let until = Instant::now() + Duration::from_secs(10);
        let mut alone = true;
        while alone && !other.is_finished() && Instant::now() < until {
            alone = first.touch(Duration::ZERO).unwrap();
        }
        // The second to arrive notices, and that can be either.
        let other_alone = other.join().unwrap();
        assert!(!alone || !other_alone);
    }
}
