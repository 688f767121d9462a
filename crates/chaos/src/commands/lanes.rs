//! The common parts of all runs of commands: lanes, the wait for a call's end, and the check for
//! remains.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use redbolt_test_servers::{Server, until};
use rustix::process::Signal;
use tempfile::TempDir;

use super::processes::{in_folder, send};
use crate::nodes::{self, LIMIT};
use crate::stage::Failure;

/// Runs `lanes` lanes in parallel, each with its own random numbers, and returns their results in
/// order.
pub(super) fn run<T: Send>(
    lanes: usize,
    seed: u64,
    lane: impl Fn(usize, Rng) -> Result<T, Failure> + Sync,
) -> Result<Vec<T>, Failure> {
    let lane = &lane;
    thread::scope(|scope| {
        let start = |number: usize| {
            let rng = Rng::with_seed(seed.wrapping_add(number as u64));
            scope.spawn(move || lane(number, rng))
        };
        let lanes: Vec<_> = (0..lanes).map(start).collect();
        let results =
            lanes.into_iter().map(|lane| lane.join().map_err(|_| "a lane has panicked")?);
        results.collect()
    })
}

/// Creates a folder with the script of a section, for commands under locks on these nodes.
pub(super) fn home_for(servers: &[Server], max_ttl: Duration) -> Result<TempDir, Failure> {
    nodes::init(&nodes::part(addresses(servers), max_ttl, true, "operator"))?;
    let home = TempDir::new()?;
    fs::write(home.path().join("section.sh"), SECTION)?;
    Ok(home)
}

/// Returns a call of the program for these nodes, in this folder. Its output is discarded.
pub(super) fn command(
    program: &Path,
    servers: &[Server],
    max_ttl: Duration,
    home: &Path,
) -> Command {
    let mut command = Command::new(program);
    command
        .env("REDBOLT_NODES", addresses(servers).join(","))
        .env("REDBOLT_MAX_TTL", format!("{}ms", max_ttl.as_millis()))
        .current_dir(home)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

fn addresses(servers: &[Server]) -> Vec<String> {
    servers.iter().map(Server::address).collect()
}

/// Waits until a call ends, and calls `strike` every other millisecond until then.
pub(super) fn end(
    mut call: Child,
    what: &str,
    mut strike: impl FnMut(),
) -> Result<ExitStatus, Failure> {
    let mut status = Ok(None);
    until(&format!("{what} finishes"), LONGEST_CALL, || {
        status = call.try_wait();
        let has_ended = !matches!(status, Ok(None));
        if !has_ended {
            strike();
        }
        has_ended
    })?;
    Ok(status?.ok_or("a call that has ended has a status")?)
}

/// Returns the exit status, or minus the signal.
pub(super) fn end_of(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| -signal)).unwrap_or(i32::MIN)
}

/// Returns the number of sections that have begun in this folder.
pub(super) fn sections(home: &Path) -> Result<usize, Failure> {
    let files = fs::read_dir(home)?.flatten();
    Ok(files.filter(|file| file.file_name().to_string_lossy().starts_with("ready-")).count())
}

/// Returns the number of processes that are left in this folder once they have had time to end.
/// They are killed.
pub(super) fn left_behind(home: &Path) -> usize {
    let Ok(folder) = home.canonicalize() else { return 0 };
    if until("all processes end", LIMIT, || in_folder(&folder).is_empty()).is_ok() {
        return 0;
    }
    let left = in_folder(&folder);
    left.iter().for_each(|&pid| send(pid, Signal::KILL));
    left.len()
}

/// The maximum duration of a call. Others may hold the lock before, each for some seconds.
const LONGEST_CALL: Duration = Duration::from_secs(120);

/// The maximum number of overlaps that a report shows.
pub(super) const SHOWN: usize = 10;

const SECTION: &str = include_str!("section.sh");
