//! A lock that is kept for a time after its work has ended, by ShedLock and by redbolt's command
//! line.
//!
//! This check runs a process of the command line, because the library has no such feature. It also
//! shows the cost of ShedLock's delete without a check.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::fleet::{Fleet, comes, tries};

use super::common::{Extent, Found, LONG};

/// Checks that on both sides a holder that keeps the lock after its work excludes others, and that
/// without that time it does not.
pub(super) fn check(fleet: &Fleet<'_>, _: Extent) -> Result<Found, Failure> {
    if !fleet.library.name.starts_with("shedlock") {
        return Ok(Found::none());
    }
    let mut peer = fleet.peer()?;
    let client = fleet.client()?;
    let program = command_line()?;
    for (at_least, stays) in [(LEAST, true), (Duration::ZERO, false)] {
        let since = Instant::now();
        peer.expect(&format!("at-least kept 20000 {}", at_least.as_millis()), "held")?;
        peer.expect("release kept", "released")?;
        let refused = !tries(&client, fleet.request("kept"))?;
        told(refused, stays, "redbolt", at_least)?;
        let is_free = || tries(&client, fleet.request("kept")).unwrap_or(false);
        in_time(comes(3 * LEAST, is_free), since, at_least)?;
        let since = Instant::now();
        run_a_job(&program, fleet, at_least)?;
        let refused = !peer.tries("kept", TTL)?;
        told(refused, stays, "it", at_least)?;
        if refused {
            in_time(
                comes(3 * LEAST, || peer.tries("kept", TTL).unwrap_or(false)),
                since,
                at_least,
            )?;
        }
        peer.expect("release kept", "released")?;
    }
    let overrun = overrun(fleet)?;
    let words = format!("kept on both sides (control: not without a time); {overrun}");
    Ok(Found::new("at least", words))
}

/// Runs a job of the command line that is done at once.
fn run_a_job(program: &PathBuf, fleet: &Fleet<'_>, at_least: Duration) -> Result<(), Failure> {
    let mut job = Command::new(program);
    job.args(["lock", "--prefix", fleet.library.prefix]);
    for address in fleet.addresses() {
        job.args(["--node", &address]);
    }
    if !at_least.is_zero() {
        // A lock is never shortened, so its TTL must be less.
        job.args(["--ttl", "1s"]);
        job.arg("--at-least").arg(format!("{}s", at_least.as_secs()));
    }
    let status = job.args(["kept", "--", "true"]).stdin(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(format!("{job:?}: {status}").into()) }
}

fn told(refused: bool, stays: bool, who: &str, at_least: Duration) -> Result<(), Failure> {
    match refused == stays {
        true => Ok(()),
        false => Err(format!("{who} was refused: {refused}, after {at_least:?} at least").into()),
    }
}

/// Checks that the lock becomes free then, and not before.
fn in_time(came: bool, since: Instant, at_least: Duration) -> Result<(), Failure> {
    // Both count in milliseconds, each on a different clock.
    let early = Duration::from_millis(20);
    match came && since.elapsed() + early >= at_least {
        true => Ok(()),
        false => Err(format!("free: {came}, after {:?}", since.elapsed()).into()),
    }
}

/// Lets ShedLock hold for longer than it may and delete, without a check, the lock that redbolt has
/// by then. The next extension notices.
fn overrun(fleet: &Fleet<'_>) -> Result<&'static str, Failure> {
    let mut peer = fleet.peer()?;
    let client = fleet.client()?;
    peer.expect("acquire over 0 1000", "held")?;
    let mut lock = client.acquire(fleet.patiently("over"))?;
    // As a control, redbolt's lock is there until ShedLock releases.
    lock.extend(LONG)?;
    peer.expect("release over", "released")?;
    match lock.extend(LONG) {
        Ok(()) => Err("after an overrun it leaves redbolt's lock".into()),
        Err(_) => Ok("after an overrun it deletes redbolt's lock, which an extension notices"),
    }
}

/// Returns the program of the command line, built as this one is. `cargo xtask test` has built it
/// and names it.
fn command_line() -> Result<PathBuf, Failure> {
    if let Some(built) = env::var_os("REDBOLT_CLI") {
        return Ok(built.into());
    }
    let here = env::current_exe()?;
    let folder = here.parent().ok_or("no folder")?;
    let mut build = Command::new("cargo");
    build.args(["build", "--quiet", "--package", "redbolt-cli", "--bin", "redbolt"]);
    if folder.ends_with("release") {
        build.arg("--release");
    }
    let status = build.current_dir(env!("CARGO_MANIFEST_DIR")).stdin(Stdio::null()).status()?;
    if status.success() {
        return Ok(folder.join("redbolt"));
    }
    Err(format!("{build:?}: {status}").into())
}

const TTL: Duration = Duration::from_secs(20);

/// The time for which the lock is kept.
const LEAST: Duration = Duration::from_secs(2);
