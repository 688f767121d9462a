//! A process of a crowd: acquires the lock, updates the file, releases; this many times, or for
//! this long.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use rustix::fs::{FlockOperation, flock};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use super::turns::Turn;
use crate::contender::{Asked, Contender, Node, Task};
use crate::stats::cpu_time;
use crate::waiting::{self, Seat};

/// A worker's arguments.
#[derive(Args, Clone, Debug)]
pub struct Order {
    /// The name of its contender, from [`waiting::ALL`].
    #[arg(long)]
    pub contender: String,
    /// The nodes' addresses.
    #[arg(long = "node")]
    pub nodes: Vec<String>,
    /// Its number among all processes of the crowd.
    #[arg(long)]
    pub seat: usize,
    /// How many processes there are.
    #[arg(long)]
    pub seats: usize,
    /// The lock's name.
    #[arg(long)]
    pub resource: String,
    /// How often it takes the lock, unless it is stopped before.
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
    /// Returns the arguments of this program that describe it.
    pub(super) fn arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec![COMMAND.into()];
        let mut pair = |name: &str, value: OsString| arguments.extend([name.into(), value]);
        pair("--contender", self.contender.clone().into());
        self.nodes.iter().for_each(|node| pair("--node", node.into()));
        pair("--seat", self.seat.to_string().into());
        pair("--seats", self.seats.to_string().into());
        pair("--resource", self.resource.clone().into());
        pair("--times", self.times.to_string().into());
        pair("--section", self.section.as_micros().to_string().into());
        pair("--file", self.file.clone().into());
        arguments
    }

    /// Runs the worker. It prints a line when it is connected, waits for a line that says when to
    /// stop, and prints its report at the end.
    ///
    /// # Errors
    ///
    /// The worker could not connect, or could not read or write its lines or the file.
    pub fn carry_out(&self) -> Result<()> {
        let entry = waiting::ALL.iter().find(|entry| entry.name == self.contender);
        let entry =
            entry.with_context(|| format!("no contender has the name {}", self.contender))?;
        let nodes = self.nodes.iter().cloned().map(Node::Tcp).collect();
        let task = Task { nodes, resource: self.resource.clone(), ttl: TTL };
        let mut contender = entry.start_at(Seat { at: self.seat, of: self.seats }, &task)?;
        let shared = Shared::open(&self.file)?;
        println!("{READY}");
        let mut line = String::new();
        if std::io::stdin().read_line(&mut line)? == 0 {
            return Ok(());
        }
        let until = line.trim().parse()?;
        let (mut report, before) = (Report::default(), Spent::so_far(&*contender));
        let outcome = self.take_turns(&mut *contender, &shared, until, &mut report);
        report.spent = Spent::so_far(&*contender).since(before);
        report.failure = outcome.err().map(|error| format!("{error:#}"));
        report.finished = monotonic();
        println!("{}", report.line());
        Ok(())
    }

    /// Takes turns until there were enough of them, or the time is up.
    fn take_turns(
        &self,
        contender: &mut dyn Contender,
        shared: &Shared,
        until: u64,
        report: &mut Report,
    ) -> Result<()> {
        while report.turns.len() < self.times && monotonic() < until {
            self.once(contender, shared, report)?;
        }
        Ok(())
    }

    fn once(
        &self,
        contender: &mut dyn Contender,
        shared: &Shared,
        report: &mut Report,
    ) -> Result<()> {
        let began = monotonic();
        contender.acquire()?;
        let granted = monotonic();
        report.trespasses += u64::from(!shared.touch(self.section)?);
        report.turns.push(Turn { process: self.seat, began, granted, released: monotonic() });
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

    /// Reads the number, waits for the length of a section, and writes the number plus one. Returns
    /// `true` if no other process was in a section.
    fn touch(&self, section: Duration) -> Result<bool> {
        let alone = flock(&self.0, FlockOperation::NonBlockingLockExclusive).is_ok();
        let sections = self.sections()?;
        if !section.is_zero() {
            thread::sleep(section);
        }
        self.0.write_all_at(&(sections + 1).to_le_bytes(), 0)?;
        flock(&self.0, FlockOperation::Unlock)?;
        Ok(alone)
    }
}

/// The cost of all turns for the clients.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// The CPU time of their processes in nanoseconds.
    pub cpu: u64,
    /// The requests of the clients, if they count them.
    pub asked: Option<Asked>,
}

impl Spent {
    fn so_far(contender: &dyn Contender) -> Self {
        Self { cpu: cpu_time().as_nanos() as u64, asked: contender.asked() }
    }

    fn since(self, before: Self) -> Self {
        let asked = self.asked.zip(before.asked).map(|(after, before)| after - before);
        Self { cpu: self.cpu - before.cpu, asked }
    }

    /// Adds the cost of another process. Requests are known if all processes count them.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let asked = self.asked.zip(other.asked).map(|(own, other)| own + other);
        Self { cpu: self.cpu + other.cpu, asked }
    }
}

/// A worker's report. Times are in nanoseconds on the machine's monotonic clock.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Report {
    pub(super) turns: Vec<Turn>,
    pub(super) finished: u64,
    pub(super) trespasses: u64,
    pub(super) spent: Spent,
    pub(super) failure: Option<String>,
}

impl Report {
    fn line(&self) -> String {
        let turn = |turn: &Turn| [turn.process as u64, turn.began, turn.granted, turn.released];
        let asked = self.spent.asked;
        json!({
            "turns": self.turns.iter().map(turn).collect::<Vec<_>>(),
            "finished": self.finished,
            "trespasses": self.trespasses,
            "cpu": self.spent.cpu,
            "asked": asked.map(|asked| [asked.rounds, asked.to_nodes, asked.undos, asked.notified]),
            "failure": self.failure,
        })
        .to_string()
    }

    pub(super) fn parse(line: &str) -> Result<Self> {
        let value: Value = serde_json::from_str(line)?;
        let number =
            |name: &str| value[name].as_u64().with_context(|| format!("no {name}: {line}"));
        let turns = value["turns"].as_array().context("no turns")?;
        let turn = |turn: &Value| {
            let [process, began, granted, released] = numbers(turn)?;
            Some(Turn { process: process as usize, began, granted, released })
        };
        let asked = numbers(&value["asked"]).map(|[rounds, to_nodes, undos, notified]| Asked {
            rounds,
            to_nodes,
            undos,
            notified,
        });
        Ok(Self {
            turns: turns.iter().filter_map(turn).collect(),
            finished: number("finished")?,
            trespasses: number("trespasses")?,
            spent: Spent { cpu: number("cpu")?, asked },
            failure: value["failure"].as_str().map(ToOwned::to_owned),
        })
    }
}

/// Returns an array of exactly this many numbers.
fn numbers<const LEN: usize>(value: &Value) -> Option<[u64; LEN]> {
    let all = value.as_array()?.iter().map(Value::as_u64).collect::<Option<Vec<_>>>()?;
    all.try_into().ok()
}

/// Returns the machine's monotonic clock, which all processes share.
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

/// A TTL far longer than any section.
const TTL: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_report_survives_its_line() {
        let turn = |began| Turn { process: 3, began, granted: began + 1, released: began + 2 };
        for asked in [None, Some(Asked { rounds: 1, to_nodes: 3, undos: 2, notified: 4 })] {
            let report = Report {
                turns: vec![turn(5), turn(8)],
                finished: 11,
                trespasses: 4,
                spent: Spent { cpu: 7, asked },
                failure: asked.map(|_| "nobody let go".to_owned()),
            };
            assert_eq!(Report::parse(&report.line()).unwrap(), report);
        }
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
