//! `redbolt extend` and `redbolt release`: use a lock that `redbolt acquire` has left in a file.
//!
//! Each command attaches the lock, does one thing and exits. Unless it releases the lock, it must
//! not send anything at the end: it detaches the lock again, or forgets the client and lets the
//! system close its sockets. It writes no restart guard, which is for clients that take locks.

use std::ffi::OsStr;
use std::mem;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use redbolt::proto::Settings;
use redbolt::{
    Client, Config, DetachedLock, ExtendError, LockGuard, LossCause, Profile, Released,
    RequestError, inspect::InspectionVerdict, net,
};

use crate::args::{ExtendArgs, Nodes, ReleaseArgs};
use crate::contact::contact;
use crate::duration::show;
use crate::exit::{self, Failure};
use crate::foreign;
use crate::name;
use crate::nodes;
use crate::say::say;
use crate::token_file::{self, Draft};

/// Extends the lock by another TTL.
pub(crate) fn extend(args: &ExtendArgs) -> Result<u8, Failure> {
    let path = &args.token_file;
    let config = config(&args.nodes)?;
    let Some((held, alone)) = token_file::read(path, patience(config.settings()))? else {
        return Ok(overtaken(path));
    };
    if held.is_released {
        return Ok(overtaken(path));
    }
    let detached = held.detached;
    let draft = Draft::of_known(path, &alone)?;
    let client = Client::new(config)?;
    let mut lock = attach(&client, &detached)?;
    connect(&client, &lock);
    let outcome = lock.extend(args.ttl.unwrap_or_else(|| detached.ttl()));
    let extended = lock_leaves(lock);
    // Dropping the client could send something about a lost lock.
    mem::forget(client);
    let refused = match outcome {
        Ok(()) => None,
        Err(ExtendError::Lost(loss)) => return Ok(lost(&detached, loss.cause())),
        Err(ExtendError::Request(error)) => {
            return Err(Failure::request(named(&detached), error));
        }
        Err(ExtendError::Refused(report)) => Some(report),
        Err(error) => return Err(Failure::no_quorum(error)),
    };
    let Some(extended) = extended else { return Ok(lost(&detached, LossCause::Expired)) };
    // This covers file systems without locks.
    if !token_file::has(path, &detached) {
        return Ok(overtaken(path));
    }
    let written = draft.keep(&extended).map_err(|error| unwritten(path, &error));
    let Some(report) = refused else { return written.map(|()| exit::SUCCESS) };
    // A minority of nodes may have been extended, which a later release needs to account for.
    if let Err(failure) = written {
        say(format_args!("warning: {failure}"));
    }
    let left = show(extended.remaining(net::now()));
    Err(Failure::no_quorum(format_args!("not extended, and held for {left} more: {report}")))
}

/// Detaches the lock, so that it continues without this client. Nothing is sent about a lost lock.
fn lock_leaves(lock: LockGuard<'_>) -> Option<DetachedLock> {
    if lock.is_valid() {
        return lock.detach();
    }
    mem::forget(lock);
    None
}

/// Releases the lock.
pub(crate) fn release(args: &ReleaseArgs) -> Result<u8, Failure> {
    let path = &args.token_file;
    let config = config(&args.nodes)?;
    let Some((held, alone)) = token_file::read(path, patience(config.settings()))? else {
        return Err(Failure::usage(format_args!("{}: no such file", path.display())));
    };
    let (detached, is_released) = (held.detached, held.is_released);
    let client = Client::new(config)?;
    let mut lock = attach(&client, &detached)?;
    connect(&client, &lock);
    let looked = if is_released { Ok(()) } else { look(&client, &mut lock, &detached) };
    let quorum = client.config().quorum();
    match (looked, lock.release()) {
        (_, Err(_)) if is_released => {
            // Its keys have expired by now.
            tidy(path, &detached);
            Ok(exit::SUCCESS)
        }
        (Err(ExtendError::Lost(loss)), _) | (_, Err(loss)) => {
            tidy(path, &detached);
            Ok(lost(&detached, loss.cause()))
        }
        (looked, Ok(confirmed))
            if usize::try_from(confirmed.nodes).is_ok_and(|nodes| nodes >= quorum) =>
        {
            tidy(path, &detached);
            looked.map(|()| exit::SUCCESS).map_err(|reason| not_known(&detached, &reason))
        }
        (_, Ok(confirmed)) => {
            let draft = Draft::of_known(path, &alone);
            Err(unconfirmed(&client, args, draft, &detached, confirmed))
        }
    }
}

/// Returns whether the lock is still held. An extension finds out, and shortens nothing. An
/// extension ends after a sixth of its TTL, so the TTL is at least six times as long as a reply may
/// take. It is at most the lock's own, in case the release does not arrive.
fn look(
    client: &Client,
    lock: &mut LockGuard<'_>,
    detached: &DetachedLock,
) -> Result<(), ExtendError> {
    if is_overwritten(client, detached) {
        return Ok(());
    }
    let response_timeout = client.config().settings().response_timeout;
    lock.extend((ROUNDS * response_timeout).max(A_MOMENT).min(detached.ttl()))
}

/// Returns whether a quorum has the time of a member that has lost, in a fleet where losers
/// overwrite. An extension treats that as a loss. A release deletes it within the lock's own lease,
/// as members do.
fn is_overwritten(client: &Client, detached: &DetachedLock) -> bool {
    let losers_overwrite = [Profile::REDIS_OBJECTS, Profile::SETNX].contains(&detached.profile());
    let Some(key) = detached.keys().next().filter(|_| losers_overwrite) else { return false };
    let verdict = client.inspect(key).map(|seen| seen.verdict);
    let Ok(InspectionVerdict::Foreign(data)) = verdict else { return false };
    foreign::lock(&data).is_some_and(|lock| lock.ends.is_some())
}

/// Returns the failure of a released lock if the nodes did not report whether it was held until
/// then. The nodes' report names the lock.
fn not_known(detached: &DetachedLock, reason: &ExtendError) -> Failure {
    match reason {
        ExtendError::Refused(report) => Failure::no_quorum(format_args!("{NOT_KNOWN}\n{report}")),
        reason => Failure::no_quorum(format_args!("{}: {NOT_KNOWN}\n{reason}", named(detached))),
    }
}

/// Notes in the file that a release was begun, so that it can be retried.
fn unconfirmed(
    client: &Client,
    args: &ReleaseArgs,
    draft: Result<Draft, Failure>,
    detached: &DetachedLock,
    confirmed: Released,
) -> Failure {
    let path = &args.token_file;
    let written = draft
        .and_then(|draft| draft.keep_released(detached).map_err(|error| unwritten(path, &error)));
    if let Err(failure) = written {
        say(format_args!("warning: {failure}"));
    }
    let report = client.warm_up(Duration::ZERO);
    let lines: String = report.nodes.iter().map(|node| format!("\n{node}")).collect();
    let file = name::word(path.as_os_str());
    let again = nodes::command(&format!("release --token-file {file}"), &args.nodes);
    Failure::no_quorum(format_args!(
        "{}: the release is {confirmed}, {} needed{lines}\n\
         {} is kept, to try again: {again}\n\
         without that the lock ends in {}",
        named(detached),
        report.quorum(),
        path.display(),
        show(detached.remaining(net::now()))
    ))
}

/// Removes the file of a lock that has ended. The exit status reports the end of the lock, even if
/// the file cannot be removed.
fn tidy(path: &Path, detached: &DetachedLock) {
    if let Err(error) = token_file::remove(path, detached) {
        say(format_args!("warning: {}: {error}", path.display()));
    }
}

/// Returns how long to wait for the lock of the file. Another `redbolt` holds it for less, in any
/// state of the nodes: it connects and extends, or checks and releases, and writes to the disk.
fn patience(settings: &Settings) -> Duration {
    settings.connect_timeout + 2 * settings.response_timeout + Duration::from_secs(2)
}

/// Builds the configuration before the token file is read, since a timeout that is out of range
/// must not bound the wait for that file.
fn config(nodes: &Nodes) -> Result<Config, Failure> {
    nodes::build(nodes::builder(nodes)?.read_only(), nodes)
}

/// Connects for at most a quarter of the lock's remaining time; the rest is for what follows.
fn connect(client: &Client, lock: &LockGuard<'_>) {
    let connect_timeout = client.config().settings().connect_timeout;
    let within = match lock.remaining() {
        Duration::ZERO => connect_timeout,
        left => connect_timeout.min(left / 4),
    };
    contact(client, within);
}

fn attach<'c>(client: &'c Client, detached: &DetachedLock) -> Result<LockGuard<'c>, Failure> {
    client.attach(detached).map_err(|error| match error {
        RequestError::OtherNodes => {
            let nodes: Vec<_> = detached.node_names().collect();
            Failure::usage(format_args!("{error}\nit was taken on {}", nodes.join(", ")))
        }
        error => Failure::request(named(detached), error),
    })
}

/// Returns the name of a lock, for messages.
fn named(detached: &DetachedLock) -> String {
    let keys = detached.keys().map(|key| name::show(OsStr::from_bytes(key)));
    keys.collect::<Vec<_>>().join(", ")
}

fn lost(detached: &DetachedLock, cause: LossCause) -> u8 {
    say(format_args!("{}: the lock is lost: {cause}", named(detached)));
    exit::LOST
}

/// Reports that another process has released the lock.
fn overtaken(path: &Path) -> u8 {
    say(format_args!("{}: it has been released", path.display()));
    exit::LOST
}

fn unwritten(path: &Path, error: &std::io::Error) -> Failure {
    Failure::system(format_args!("{}: {error}", path.display()))
}

/// The part of its TTL after which an extension ends.
const ROUNDS: u32 = 6;

/// A time longer than the drift.
const A_MOMENT: Duration = Duration::from_millis(10);

const NOT_KNOWN: &str = "the lock is released, but it is not known whether it was held until now";
