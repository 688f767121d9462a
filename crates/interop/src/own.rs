//! redbolt as a peer: a separate process that executes commands, one per line, like those of other
//! libraries.
//!
//! `fleet` uses redbolt in the process that checks. Here, both sides have the same overhead when
//! times are compared, and a separate process can be killed.

use std::collections::HashMap;
use std::env;
use std::io::{self, BufRead, Write};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redbolt::{AcquireError, Client, Config, LockGuard, LockRequest, Profile, Wait};

use crate::failure::Failure;
use crate::library::Library;
use crate::peer::Peer;

/// Starts a process of redbolt for these nodes, with the profile of this library.
pub(crate) fn start(library: &Library, nodes: &[String]) -> Result<Peer, Failure> {
    let mut command = Command::new(env::current_exe()?);
    Peer::start(command.arg("--as-peer").arg(library.profile.name()).args(nodes))
}

/// Executes commands until the input ends: the profile and the nodes come first.
pub(crate) fn serve(words: &[String]) -> Result<(), Failure> {
    let (profile, nodes) = words.split_first().ok_or("no profile")?;
    let profile = Profile::of_name(profile).ok_or("no such profile")?;
    let client = Client::new(Config::builder().nodes(nodes).build()?)?;
    client.warm_up(Duration::from_secs(10));
    let mut held = HashMap::new();
    for order in io::stdin().lock().lines() {
        let order = order?;
        let reply = match order.split(' ').collect::<Vec<_>>()[..] {
            // The TTL is the same without a lease, because this API has no watchdog.
            ["pairs", name, count, _] => pairs(&client, &request(name, profile), count.parse()?),
            ["hold", name, ttl] => hold(&client, request(name, profile), &mut held, name, ttl),
            ["wait", name] => wait(&client, request(name, profile), &mut held, name),
            ["leave", name] => leave(&mut held, name),
            _ => Err("no such order".into()),
        };
        let reply = reply.unwrap_or_else(|error| format!("failed {error}"));
        writeln!(io::stdout(), "{}", reply.replace('\n', " "))?;
    }
    Ok(())
}

fn request(name: &str, profile: Profile) -> LockRequest<'_> {
    LockRequest::new(name).format(profile).ttl(TTL)
}

/// Returns how many nanoseconds each pair of lock and unlock takes.
fn pairs(client: &Client, request: &LockRequest<'_>, count: usize) -> Result<String, Failure> {
    let mut reply = "pairs".to_owned();
    for _ in 0..count {
        let since = Instant::now();
        match client.acquire(request.clone()) {
            Ok(lock) => released(lock)?,
            Err(AcquireError::Refused(report)) if report.is_contended() => {
                return Err("busy".into());
            }
            Err(error) => return Err(error.into()),
        }
        reply.push_str(&format!(" {}", since.elapsed().as_nanos()));
    }
    Ok(reply)
}

/// Waits for a lock, and returns when it was granted.
fn wait<'c>(
    client: &'c Client,
    request: LockRequest<'_>,
    held: &mut HashMap<String, LockGuard<'c>>,
    name: &str,
) -> Result<String, Failure> {
    let lock = client.acquire(request.wait(Wait::UpTo(LONGEST)))?;
    let at = now()?;
    held.insert(name.to_owned(), lock);
    Ok(format!("held {at}"))
}

/// Acquires a lock for this many milliseconds.
fn hold<'c>(
    client: &'c Client,
    request: LockRequest<'_>,
    held: &mut HashMap<String, LockGuard<'c>>,
    name: &str,
    ttl: &str,
) -> Result<String, Failure> {
    let lock = client.acquire(request.ttl(Duration::from_millis(ttl.parse()?)))?;
    held.insert(name.to_owned(), lock);
    Ok("held".to_owned())
}

/// Releases a lock, and returns when the release began.
fn leave(held: &mut HashMap<String, LockGuard<'_>>, name: &str) -> Result<String, Failure> {
    let lock = held.remove(name).ok_or("it is not held")?;
    let at = now()?;
    released(lock)?;
    Ok(format!("left {at}"))
}

fn released(lock: LockGuard<'_>) -> Result<(), Failure> {
    match lock.release() {
        Ok(_) => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}

/// Returns the nanoseconds since 1970, which two processes of one machine can compare.
fn now() -> Result<u128, Failure> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos())
}

/// The TTL, which is the same for the other side.
const TTL: Duration = Duration::from_secs(20);
const LONGEST: Duration = Duration::from_secs(60);
