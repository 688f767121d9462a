//! A queue of waiters in which some have died, and one in which a waiter is far from the nodes.
//!
//! The waiters are workers, so a dead one is a process that SIGKILL has ended. Each measurement has
//! a separate resource, because a dead waiter leaves a ticket.

use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use redbolt_test_servers::{Mode, Proxy, Reply, Server, until};

use super::span::Span;
use super::worker::{Order, Report, Shared, monotonic};
use super::{CONNECT_WITHIN, Crowd, ENDS_WITHIN, Worker, await_ready, order, sleep_until};
use crate::contender::{Node, Task};
use crate::waiting::default_settings;

/// Returns the nanoseconds from the start of a release to the grant of the waiter that stands
/// behind `dead` waiters, which have died in the queue.
///
/// # Errors
///
/// A process could not be started, did not get into the queue, or was not granted the lock.
pub fn behind_dead(servers: &[Server], dead: usize, resource: &str, file: &Path) -> Result<u64> {
    let nodes: Vec<_> = servers.iter().map(Server::address).collect();
    let order =
        Order { times: 1, ..order(&nodes, &default_settings(), resource, HOLD_NOTHING, file) };
    let _shared = Shared::create(file)?;
    let nodes = nodes.into_iter().map(Node::Tcp).collect();
    let task = Task { nodes, resource: resource.to_owned(), ttl: HELD_FOR };
    let mut holder = default_settings().start(&task)?;
    holder.acquire()?;

    let (tell, lines) = channel();
    let mut waiters = Vec::new();
    for seat in 0..=dead {
        let mut waiter = Worker::start(&Order { seat, ..order.clone() }, tell.clone())?;
        await_ready(&lines, 1)?;
        waiter.go(Span::ALWAYS.end)?;
        await_tickets(servers, resource, seat + 1)?;
        waiters.push(waiter);
    }
    // Dropping a worker ends its process.
    waiters.drain(..dead);
    let released = monotonic();
    holder.release()?;
    let (_, line) = lines.recv_timeout(ENDS_WITHIN).context("no waiter is granted the lock")?;
    let report = Report::parse(&line)?;
    match (report.turns.first(), report.failure) {
        (Some(turn), None) => Ok(turn.granted.saturating_sub(released)),
        (_, failure) => bail!("the waiter: {}", failure.unwrap_or_default()),
    }
}

/// Waits until this many tickets are in the queue on every node.
fn await_tickets(servers: &[Server], resource: &str, tickets: usize) -> Result<()> {
    let key = format!("redbolt:line:{resource}");
    let count = |server: &Server| server.run(&[b"ZCARD", key.as_bytes()]);
    let all_have_them = || {
        servers.iter().all(|server| matches!(count(server), Reply::Int(n) if n as usize == tickets))
    };
    until("the waiter is in the queue", CONNECT_WITHIN, all_have_them).map_err(anyhow::Error::msg)
}

/// The waits of processes that take turns, in nanoseconds and sorted.
pub struct Waits {
    /// The waits of the process that is far from the nodes.
    pub far: Vec<u64>,
    /// The waits of the two near ones.
    pub near: Vec<u64>,
}

/// Lets two processes next to the nodes and one whose bytes take `one_way` in each direction want
/// the same lock repeatedly, for a time.
///
/// # Errors
///
/// A process could not be started, or failed.
pub fn far_among_near(
    servers: &[Server],
    one_way: Duration,
    lasts: Duration,
    resource: &str,
    file: &Path,
) -> Result<Waits> {
    let nodes: Vec<_> = servers.iter().map(Server::address).collect();
    let near = order(&nodes, &default_settings(), resource, SECTION, file);
    let proxies: Vec<_> = nodes.iter().map(|node| Proxy::before(node)).collect();
    proxies.iter().for_each(|proxy| proxy.set(Mode::Coalesce(one_way)));
    let far = Order { nodes: proxies.iter().map(Proxy::address).collect(), ..near.clone() };

    let (shared, (tell, lines)) = (Shared::create(file)?, channel());
    let mut workers = Vec::new();
    for (seat, order) in [&far, &near, &near].into_iter().enumerate() {
        workers.push(Worker::start(&Order { seat, seats: 3, ..order.clone() }, tell.clone())?);
    }
    await_ready(&lines, workers.len())?;
    let mut crowd = Crowd { workers, lines, shared };
    let until = monotonic() + lasts.as_nanos() as u64;
    let start = crowd.go(until)?;
    sleep_until(until);
    let outcome = crowd.gather(start, Span::ALWAYS, ENDS_WITHIN)?;
    if let Some(failure) = outcome.failures.first() {
        bail!("{failure}");
    }
    let waits_of = |is_far: bool| {
        let turns = outcome.turns.iter().filter(|turn| (turn.process == FAR_SEAT) == is_far);
        let mut waits: Vec<_> = turns.map(|turn| turn.granted - turn.began).collect();
        waits.sort_unstable();
        waits
    };
    Ok(Waits { far: waits_of(true), near: waits_of(false) })
}

const FAR_SEAT: usize = 0;

const HOLD_NOTHING: Duration = Duration::ZERO;

/// The time for which each process holds the lock.
const SECTION: Duration = Duration::from_millis(20);

/// The longest TTL. All waiters are started in this time.
const HELD_FOR: Duration = Duration::from_secs(30);
