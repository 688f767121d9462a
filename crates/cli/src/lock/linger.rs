//! `--at-least`: keeps the lock after the command has ended.
//!
//! This is for a job that cron starts on many hosts in the same minute. A host that is a second
//! late must find the lock taken, even if the job took less. No process has to stay for that,
//! because the nodes keep a lock for its TTL. So the lock is extended once to the end of that time
//! and left to expire, and redbolt exits with the command's status. It waits only while the rest is
//! longer than `max_ttl`.
//!
//! An extension never shortens, so the lock may last up to one TTL longer than requested. A signal
//! ends the wait at once, and leaves the lock with its current TTL.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use super::lease::{Lease, News};
use super::poller::{Poller, now};
use crate::duration::show;
use crate::speak::say;

/// The fate of the lock after the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// The requested time has passed, so the lock is released.
    Over,
    /// The lock is left to expire.
    Kept,
}

/// Keeps the lock taken until `until`, on the boot clock.
pub(super) fn linger(lease: &mut Lease, poller: &Poller, until: Duration) -> io::Result<Rest> {
    let max_ttl = lease.max_ttl();
    let mut told = false;
    loop {
        let rest = until.saturating_sub(now()?);
        if rest.is_zero() {
            return Ok(Rest::Over);
        }
        // Rounded up to whole milliseconds. No TTL may be shorter than its drift.
        let ttl = (rest + ONE_MS).max(SHORTEST).min(max_ttl);
        let is_extended = extend(lease, poller, ttl)?;
        if is_extended && rest <= max_ttl {
            return Ok(Rest::Kept);
        }
        let left = lease.remaining();
        if left.is_zero() {
            let (name, rest) = (lease.name(), show(rest));
            say(format_args!("warning: {name}: the lock is lost {rest} before --at-least is over"));
            return Ok(Rest::Kept);
        }
        if rest > max_ttl && !std::mem::replace(&mut told, true) && !lease.is_quiet() {
            let (name, rest) = (lease.name(), show(rest));
            say(format_args!("{name}: the command has ended; keeping the lock for {rest} more"));
        }
        let pause = match is_extended {
            true => (max_ttl / 3).min(rest - max_ttl),
            false => left / 10,
        };
        if sleep(lease, poller, pause)? {
            return Ok(Rest::Kept);
        }
    }
}

/// Extends the lock to this time from now. Returns whether that succeeded.
fn extend(lease: &mut Lease, poller: &Poller, ttl: Duration) -> io::Result<bool> {
    // An extension sent while the command ran may still be in flight. Its outcome comes first.
    while lease.is_extending() {
        hear(lease, poller)?;
    }
    if lease.extend_by(ttl).is_err() {
        return Ok(false);
    }
    loop {
        if let Some(is_extended) = hear(lease, poller)? {
            return Ok(is_extended);
        }
    }
}

/// Returns the outcome of an extension, if this turn received it. Every extension has an outcome in
/// time.
fn hear(lease: &mut Lease, poller: &Poller) -> io::Result<Option<bool>> {
    lease.process();
    while let Some(news) = lease.news() {
        match news {
            News::Extended => return Ok(Some(true)),
            News::NotExtended(_) | News::Lost(_) | News::Expired => return Ok(Some(false)),
            News::Shortened => {}
            News::Granted | News::Refused { .. } | News::Released { .. } | News::Seen(_) => {}
        }
    }
    poller.wait_muted(&[lease.as_fd()], lease.deadline())?;
    Ok(None)
}

/// Sleeps for `span`. Returns whether a signal, or the end of the outer process, ended the sleep.
fn sleep(lease: &mut Lease, poller: &Poller, span: Duration) -> io::Result<bool> {
    let until = now()? + span;
    loop {
        lease.process();
        while lease.news().is_some() {}
        let requests = &poller.requests;
        if requests.interruption()?.is_some() || requests.is_alone() {
            return Ok(true);
        }
        let left = until.saturating_sub(now()?);
        if left.is_zero() {
            return Ok(false);
        }
        let within = lease.deadline().map_or(left, |deadline| deadline.min(left));
        poller.wait(&[lease.as_fd()], Some(within))?;
    }
}

const ONE_MS: Duration = Duration::from_millis(1);

const SHORTEST: Duration = Duration::from_millis(100);
