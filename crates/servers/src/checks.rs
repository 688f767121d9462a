//! The check of each feature.
//!
//! Each check starts its own servers. A check returns yes, or the way in which the server does it,
//! if the promise is kept; if the server lacks something, it returns the cause that redbolt
//! reports. Anything else is an error.

use std::ffi::OsStr;
use std::time::{Duration, Instant};

use redbolt::report::{Cause, NodeState, PushState, Vote};
use redbolt::{AcquireError, Client, LockGuard, LockRequest, RefusalReport, SetupError, Wait};
use redbolt_test_servers::Reply;
use redbolt_testkit::{NATIVE, acl_rules};

use crate::cell::{Cell, Failure};
use crate::node::{LIMIT, Node, Waiter, request, until};

/// A program and its arguments.
type Start<'a> = (&'a OsStr, &'a [&'a str]);

type Check = fn(Start<'_>) -> Result<Cell, Failure>;

/// All checks, in the order of the table.
const ALL: [(&str, Check); 10] = [
    ("lock", lock),
    ("guard", guard),
    ("quarantine", quarantine),
    ("fencing", fencing),
    ("push", push),
    ("queue", queue),
    ("shared", shared),
    ("permits", permits),
    ("ACL", acl),
    ("release", release),
];

/// Returns the features, in the order of [`run`]'s cells.
pub fn features() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|(name, _)| *name)
}

/// Runs all checks, each on new servers of this program that are started with these arguments.
pub fn run(program: &OsStr, args: &[&str]) -> Vec<Cell> {
    ALL.iter().map(|(_, check)| outcome(*check, program, args)).collect()
}

/// Returns the outcome of a check. A refusal that names what only an operator could change is an
/// outcome, not a failure of redbolt.
fn outcome(check: Check, program: &OsStr, args: &[&str]) -> Cell {
    check((program, args)).unwrap_or_else(|error| match cause_in(&error) {
        Some(cause) if cause.is_configuration() => Cell::Named(cause.to_string()),
        _ => Cell::Failed(error.to_string()),
    })
}

/// Returns the reason why the node does not vote.
fn cause_in(error: &Failure) -> Option<Cause> {
    if let Some(AcquireError::Refused(report)) = error.downcast_ref() {
        return cause_of(report);
    }
    let Some(SetupError::Unready(report)) = error.downcast_ref() else { return None };
    report.nodes.iter().find_map(|node| match node.state {
        NodeState::Down(cause) => Some(cause),
        _ => None,
    })
}

fn cause_of(report: &RefusalReport) -> Option<Cause> {
    report.node_votes().iter().find_map(|node| match node.vote {
        Some(Vote::Fail(cause)) => Some(cause),
        _ => None,
    })
}

/// Checks that a lock is acquired, refused to another client, released, and acquired by the other.
fn lock((program, args): Start<'_>) -> Result<Cell, Failure> {
    let node = Node::set_up(program, args)?;
    let (one, other) = (node.client()?, node.client()?);
    let held = one.acquire(request("job"))?;
    is_refused(&other, request("job"))?;
    let_go(held)?;
    is_free_for(&other, &node)
}

/// Checks that a new node does not vote until an operator declares it new.
fn guard((program, args): Start<'_>) -> Result<Cell, Failure> {
    let node = Node::start(program, args)?;
    is_quarantined(&node.client()?, request("job"))?;
    redbolt::init(&node.config()?, LIMIT)?;
    let_go(node.client()?.acquire(request("job"))?)?;
    Ok(Cell::Yes)
}

/// Checks that a node that has lost its data does not vote while it may have forgotten a held lock,
/// and then votes again.
fn quarantine((program, args): Start<'_>) -> Result<Cell, Failure> {
    let mut node = Node::start(program, args)?;
    node.max_ttl = BRIEF;
    redbolt::init(&node.config()?, LIMIT)?;
    let brief = || request("job").ttl(BRIEF);
    let client = node.client()?;
    let held = client.acquire(brief())?;
    let began = Instant::now();
    node.server.restart();
    let another = node.client()?;
    is_quarantined(&another, brief())?;
    let_go(another.acquire(brief().wait(Wait::UpTo(LIMIT)))?)?;
    drop(held);
    match began.elapsed() {
        waited if waited < BRIEF => Err(format!("it voted again after {waited:?}").into()),
        _ => Ok(Cell::Yes),
    }
}

fn fencing((program, args): Start<'_>) -> Result<Cell, Failure> {
    let node = Node::set_up(program, args)?;
    let mut last = None;
    for client in [node.client()?, node.client()?] {
        let held = client.acquire(request("job").fenced())?;
        let token = held.fencing_token();
        if token <= last {
            return Err(format!("{token:?} after {last:?}").into());
        }
        last = token;
        let_go(held)?;
    }
    Ok(Cell::Yes)
}

/// Checks that a waiter has the lock before its timer would have made it ask. On a busy machine
/// that may take several tries.
fn push((program, args): Start<'_>) -> Result<Cell, Failure> {
    let node = Node::set_up(program, args)?;
    (1..TRIES).find_map(|_| told_in_time(&node).ok()).map_or_else(|| told_in_time(&node), Ok)
}

fn told_in_time(node: &Node) -> Result<Cell, Failure> {
    let client = node.client()?;
    let held = client.acquire(request("job"))?;
    let mut waiter = Waiter::come(node, "job")?;
    let mut state = PushState::Off;
    until("its push link is settled", || {
        waiter.process();
        state = waiter.status().map_or(PushState::Off, |node| node.push);
        !matches!(state, PushState::Off | PushState::Opening)
    })?;
    if let PushState::Unavailable(cause) = state {
        return Ok(Cell::Named(format!("waiters go by their timers, {cause}")));
    }
    let mut timer = Duration::ZERO;
    until("its timer is far off", || {
        waiter.process();
        timer = waiter.timer().unwrap_or_default();
        timer > FAR
    })?;
    let began = Instant::now();
    let_go(held)?;
    until("it is granted", || {
        waiter.process();
        waiter.is_held()
    })?;
    let took = began.elapsed();
    waiter.release()?;
    match took {
        took if took >= timer => Err(format!("a hand-off took {took:?}").into()),
        _ => Ok(Cell::Yes),
    }
}

/// Checks that three waiters get the lock in the order in which they came.
fn queue((program, args): Start<'_>) -> Result<Cell, Failure> {
    let node = Node::set_up(program, args)?;
    let client = node.client()?;
    let held = client.acquire(request("job"))?;
    let mut waiters: Vec<(usize, Waiter)> = Vec::new();
    for number in 0..3 {
        waiters.push((number, Waiter::come(&node, "job")?));
        let mut refused = None;
        until("a waiter waits in the queue", || {
            waiters.iter_mut().for_each(|(_, waiter)| waiter.process());
            let no_queue = |(_, waiter): &(usize, Waiter)| waiter.status()?.no_queue;
            refused = waiters.iter().find_map(no_queue);
            refused.is_some() || in_queue(&client) == waiters.len()
        })?;
        if let Some(cause) = refused {
            return Ok(Cell::Named(format!("waiters do not queue, {cause}")));
        }
    }
    let_go(held)?;
    let order = order_of(waiters)?;
    match order[..] {
        [0, 1, 2] => nothing_is_left(&node, "job").map(|()| Cell::Yes),
        _ => Err(format!("they came in the order {order:?}").into()),
    }
}

fn in_queue(client: &Client) -> usize {
    let seen = client.inspect("job").ok();
    seen.and_then(|seen| seen.queue).map_or(0, |queue| queue.count)
}

/// Returns the order in which waiters get the lock; each releases it at once.
fn order_of(mut waiters: Vec<(usize, Waiter)>) -> Result<Vec<usize>, Failure> {
    let mut order = Vec::new();
    while !waiters.is_empty() {
        let mut next = None;
        until("a waiter is granted", || {
            waiters.iter_mut().for_each(|(_, waiter)| waiter.process());
            next = waiters.iter().position(|(_, waiter)| waiter.is_held());
            next.is_some()
        })?;
        if let Some(at) = next {
            let (number, waiter) = waiters.remove(at);
            waiter.release()?;
            order.push(number);
        }
    }
    Ok(order)
}

/// Checks that two readers share a lock, and a third client waits until both have released it.
fn shared((program, args): Start<'_>) -> Result<Cell, Failure> {
    let node = Node::set_up(program, args)?;
    let (one, two, third) = (node.client()?, node.client()?, node.client()?);
    let held = [one.acquire(request("job").shared())?, two.acquire(request("job").shared())?];
    for lock in held {
        is_refused(&third, request("job"))?;
        let_go(lock)?;
    }
    is_free_for(&third, &node)
}

/// Checks that two clients have the two permits, and a third gets the one that is released.
fn permits((program, args): Start<'_>) -> Result<Cell, Failure> {
    let node = Node::set_up(program, args)?;
    let (one, two, third) = (node.client()?, node.client()?, node.client()?);
    let permit = || request("job").permits(2);
    let (first, second) = (one.acquire(permit())?, two.acquire(permit())?);
    if first.slot() == second.slot() {
        return Err(format!("both have {:?}", first.slot()).into());
    }
    is_refused(&third, permit())?;
    let_go(first)?;
    let_go(third.acquire(permit())?)?;
    let_go(second)?;
    nothing_is_left(&node, "job")?;
    Ok(Cell::Yes)
}

/// Checks that a user with the manual's rules is denied nothing, and that one without scripts is
/// refused with that cause.
fn acl((program, args): Start<'_>) -> Result<Cell, Failure> {
    let mut node = Node::start(program, args)?;
    if let Reply::Error(words) = node.server.cmd("ACL WHOAMI") {
        return Ok(Cell::Named(format!("it has no ACL, {words}")));
    }
    let rules = acl_rules(|command| node.knows(command));
    node.come_as("worker", &rules)?;
    redbolt::init(&node.config()?, LIMIT)?;
    let client = node.client()?;
    for request in [request("jobs:a"), request("jobs:a").shared(), request("jobs:a").permits(2)] {
        let_go(client.acquire(request.fenced())?)?;
    }
    let told = client.warm_up_push(LIMIT);
    let log = node.server.cmd("ACL LOG");
    if log != Reply::Array(Vec::new()) {
        return Err(format!("it denies something: {told}, {log:?}").into());
    }
    let without: Vec<_> = rules.into_iter().filter(|rule| !rule.starts_with("+eval")).collect();
    node.come_as("poor", &without)?;
    match node.client()?.acquire(request("jobs:a")) {
        Err(AcquireError::Refused(report))
            if cause_of(&report) == Some(Cause::ScriptsForbidden) =>
        {
            Ok(Cell::Yes)
        }
        other => Err(format!("without scripts: {:?}", other.map(drop)).into()),
    }
}

/// Returns the command that releases a lock, and checks that the script replaces one that is
/// forbidden or renamed.
fn release((program, args): Start<'_>) -> Result<Cell, Failure> {
    let mut node = Node::set_up(program, args)?;
    let native = NATIVE.iter().find(|name| node.knows(name));
    let Some(name) = native else {
        return match released_by(&node)? {
            "script" => Ok(Cell::By("script, it has no command for it".to_owned())),
            other => Err(format!("by {other}, which it does not know").into()),
        };
    };
    let by = released_by(&node)?;
    node.come_as("worker", &acl_rules(|_| false))?;
    let forbidden = released_by(&node)?;
    let all = NATIVE.iter().filter(|name| node.knows(name));
    let gone = all.flat_map(|name| ["--rename-command", name, ""]);
    let args: Vec<_> = args.iter().copied().chain(gone).collect();
    let renamed = Node::set_up(program, &args).and_then(|node| released_by(&node))?;
    match (by, forbidden, renamed) {
        (by, "script", "script") if by == *name => {
            Ok(Cell::By(format!("{}, the script where that is not to be had", by.to_uppercase())))
        }
        all => Err(format!("as it is, forbidden and renamed: {all:?}").into()),
    }
}

/// Returns the command with which the server released a lock.
fn released_by(node: &Node) -> Result<&'static str, Failure> {
    let client = node.client()?;
    let held = client.acquire(request("jobs:a"))?;
    node.server.cmd("CONFIG RESETSTAT");
    let_go(held)?;
    nothing_is_left(node, "jobs:a")?;
    let scripts = node.server.calls("eval") + node.server.calls("evalsha");
    match (NATIVE.iter().find(|name| node.server.calls(name) == 1), scripts) {
        (Some(name), 0) => Ok(name),
        (None, 1) => Ok("script"),
        (native, scripts) => Err(format!("{native:?} and {scripts} scripts have run").into()),
    }
}

fn is_refused(client: &Client, request: LockRequest<'_>) -> Result<(), Failure> {
    match client.acquire(request) {
        Err(AcquireError::Refused(report)) if report.is_contended() => Ok(()),
        Err(error) => Err(error.into()),
        Ok(_) => Err("two have it at once".into()),
    }
}

/// Checks that this client acquires and releases the lock, and that nothing is left.
fn is_free_for(client: &Client, node: &Node) -> Result<Cell, Failure> {
    let_go(client.acquire(request("job"))?)?;
    nothing_is_left(node, "job")?;
    Ok(Cell::Yes)
}

fn is_quarantined(client: &Client, request: LockRequest<'_>) -> Result<(), Failure> {
    match client.acquire(request) {
        Err(AcquireError::Refused(report)) if cause_of(&report) == Some(Cause::Quarantined) => {
            Ok(())
        }
        Err(error) => Err(error.into()),
        Ok(_) => Err("it votes although it may have forgotten locks".into()),
    }
}

fn let_go(lock: LockGuard<'_>) -> Result<(), Failure> {
    match lock.release() {
        Ok(_) => Ok(()),
        Err(cause) => Err(format!("a lock was lost: {cause:?}").into()),
    }
}

fn nothing_is_left(node: &Node, name: &str) -> Result<(), Failure> {
    until("the key is gone", || node.server.cmd(&format!("EXISTS {name}")) == Reply::Int(0))
}

/// A `max_ttl` that is short enough to wait for.
const BRIEF: Duration = Duration::from_secs(1);

/// The number of tries for a hand-off.
const TRIES: usize = 5;

/// A timer that is not due while a release is in flight.
const FAR: Duration = Duration::from_secs(1);
