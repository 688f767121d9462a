//! Allocations and system calls of a pair. A separate program counts them, because counting slows
//! it down.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::cell::MIDDLE;
use crate::contender::Entry;
use crate::progress::Progress;

/// The counts of a contender, per pair.
pub(super) struct Counted {
    pub(super) name: &'static str,
    pub(super) outcome: Result<Counts, String>,
}

/// A count; `None` if it cannot be counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Counts {
    pub(super) allocations: Option<f64>,
    pub(super) syscalls: Option<f64>,
}

impl Counted {
    pub(super) fn json(&self) -> Value {
        match &self.outcome {
            Ok(counts) => json!({
                "name": self.name,
                "allocations": counts.allocations,
                "syscalls": counts.syscalls,
            }),
            Err(error) => json!({ "name": self.name, "error": error }),
        }
    }
}

/// Returns the contenders to count; with `--quick` only those with a target.
pub(super) fn wanted(entries: &[Entry], quick: bool) -> Vec<Entry> {
    let wanted = |entry: &&Entry| !quick || entry.name.starts_with("redbolt");
    entries.iter().filter(wanted).copied().collect()
}

/// Counts for each contender, one after another.
pub(super) fn count(entries: &[Entry], progress: &Progress) -> Vec<Counted> {
    let one = |entry: &Entry| {
        progress.say(&format!("pair: counting {}", entry.name));
        let outcome = counts(entry.name).map_err(|error| format!("{error:#}"));
        progress.step();
        Counted { name: entry.name, outcome }
    };
    entries.iter().map(one).collect()
}

fn counts(name: &str) -> Result<Counts> {
    let program = std::env::current_exe()?.with_file_name(PROGRAM);
    ensure!(program.is_file(), "there is no {}; `cargo xtask bench` builds it", program.display());
    let nodes = MIDDLE.to_string();
    let mut counter = Command::new(program)
        .args(["--contender", name, "--nodes", &nodes])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let until = Instant::now() + PATIENCE;
    // The counter prints one line, which fits into the pipe.
    while counter.try_wait()?.is_none() {
        if Instant::now() > until {
            counter.kill()?;
            counter.wait()?;
            bail!("not counted within {PATIENCE:?}");
        }
        std::thread::sleep(PAUSE);
    }
    let output = counter.wait_with_output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    read(&output.stdout)
}

fn read(line: &[u8]) -> Result<Counts> {
    let value: Value = serde_json::from_slice(line).context("the counter's output is not JSON")?;
    Ok(Counts { allocations: value["allocations"].as_f64(), syscalls: value["syscalls"].as_f64() })
}

const PROGRAM: &str = "count";
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_count_is_none() {
        let counts = read(br#"{ "allocations": 0, "syscalls": null }"#).unwrap();
        assert_eq!(counts, Counts { allocations: Some(0.0), syscalls: None });
        assert!(read(b"help").is_err());
    }
}
