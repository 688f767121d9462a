//! `redbolt demo`: five nodes in this process, and what happens to a lock when they fail.
//!
//! The demo is real: the nodes are servers on loopback sockets, the clients are the library's, and
//! the times are measured. It uses nothing outside this process.

use std::fmt;
use std::io::{self, Write};
use std::thread;
use std::time::{Duration, Instant};

use redbolt::{
    AcquireError, Client, Config, FencingToken, LockGuard, LockRequest, Wait,
    config::RestartTrust,
    report::{NodeState, Vote},
};
use redbolt_node::{Memory, Node};

use crate::duration::show;
use crate::exit::{self, Failure};
use crate::say::end_with_reader;

/// Tells the story.
pub(crate) fn run() -> Result<u8, Failure> {
    end_with_reader()?;
    let mut nodes = (0..NODES).map(|_| Node::start()).collect::<io::Result<Vec<_>>>()?;
    tell(format_args!("{NODES} nodes from memory, in this process, on loopback sockets:"));
    tell(format_args!("{}", addresses(&nodes)));

    let (alice, bob) = (config(&nodes, "alice")?, config(&nodes, "bob")?);
    redbolt::init(&alice, SOON).map_err(unexpected)?;
    tell(format_args!("redbolt init declares them as new, so they vote at once"));
    let (alice, bob) = (Client::new(alice)?, Client::new(bob)?);
    tell(format_args!(
        "alice connects: {} of {NODES} nodes are ready",
        alice.warm_up(SOON).ready()
    ));
    bob.warm_up(SOON);

    let guard = contend(&alice, &bob)?;
    hand_over(guard, bob)?;
    lose_nodes(&alice, &mut nodes)?;
    lose_memory(&alice, &mut nodes)?;
    Ok(exit::SUCCESS)
}

/// Alice takes the lock, and Bob does not.
fn contend<'a>(alice: &'a Client, bob: &Client) -> Result<LockGuard<'a>, Failure> {
    let (guard, took) = timed(|| alice.acquire(request()));
    let guard = guard.map_err(unexpected)?;
    tell(format_args!(
        "alice takes the lock in {}; it is valid for {} unless extended",
        show(took),
        show(guard.remaining())
    ));
    tell(format_args!("  her fencing token is {}", token(&guard)?));
    match timed(|| bob.acquire(request())) {
        (Err(AcquireError::Refused(report)), took) if report.is_contended() => {
            let seen = bob.inspect(KEY).map_err(unexpected)?;
            tell(format_args!("bob is refused in {}: the lock is {}", show(took), seen.verdict));
        }
        (Err(error), _) => return Err(unexpected(error)),
        (Ok(_), _) => return Err(unexpected("two holders")),
    }
    Ok(guard)
}

/// Bob waits for the lock, and gets it from Alice.
fn hand_over(guard: LockGuard<'_>, bob: Client) -> Result<(), Failure> {
    let waiter = thread::spawn(move || {
        let request = request().wait(Wait::UpTo(SOON));
        let guard = bob.acquire(request)?;
        Ok::<_, AcquireError>((Instant::now(), guard.fencing_token(), guard.release()))
    });
    thread::sleep(Duration::from_millis(100));
    let (outcome, took) = timed(|| guard.release());
    outcome.map_err(unexpected)?;
    let released = Instant::now();
    tell(format_args!("bob waits; alice releases it in {}", show(took)));
    let outcome = waiter.join().map_err(|_| unexpected("the waiter panicked"))?;
    let (granted, token, _) = outcome.map_err(unexpected)?;
    let later = show(granted.saturating_duration_since(released));
    tell(format_args!("bob has the lock {later} later, and releases it"));
    let token = token.ok_or_else(|| unexpected("no fencing token"))?;
    tell(format_args!(
        "  his fencing token is {token}: larger, so a store can refuse a late write of alice"
    ));
    Ok(())
}

/// Nodes stop and come back.
fn lose_nodes(alice: &Client, nodes: &mut [Node]) -> Result<(), Failure> {
    for (stopped, words) in ["one node is stopped", "another one is stopped"].iter().enumerate() {
        nodes[stopped].stop(Memory::Kept);
        let took = take_and_release(alice)?;
        tell(format_args!("{words}: alice takes the lock in {} and releases it", show(took)));
    }
    nodes[2].stop(Memory::Kept);
    match timed(|| alice.acquire(request())) {
        (Err(AcquireError::Refused(report)), took) => {
            tell(format_args!("a third one is stopped: alice is refused in {}", show(took)));
            let silent =
                report.node_votes().iter().filter(|node| matches!(node.vote, Some(Vote::Fail(_))));
            silent.for_each(|node| tell(format_args!("  {node}")));
        }
        (Err(error), _) => return Err(unexpected(error)),
        (Ok(_), _) => return Err(unexpected("a lock without a quorum")),
    }
    for node in &mut *nodes {
        node.start_again()?;
    }
    let (report, took) = timed(|| alice.warm_up(SOON));
    tell(format_args!(
        "they come back with what they had on disk: {} of {NODES} are ready in {}",
        report.ready(),
        show(took)
    ));
    let took = take_and_release(alice)?;
    tell(format_args!("alice takes the lock in {} and releases it", show(took)));
    Ok(())
}

/// A node comes back without its memory, and does not vote.
fn lose_memory(alice: &Client, nodes: &mut [Node]) -> Result<(), Failure> {
    nodes[0].stop(Memory::Lost);
    nodes[0].start_again()?;
    tell(format_args!("one comes back empty: it may have forgotten a lock, and does not vote"));
    // The first hears that the connection is gone, the second opens another.
    alice.warm_up(SOON);
    let report = alice.warm_up(SOON);
    let silent = report.nodes.iter().filter(|node| node.state != NodeState::Ready);
    silent.for_each(|node| tell(format_args!("  {node}")));
    let took = take_and_release(alice)?;
    tell(format_args!("the other four are enough: alice takes the lock in {}", show(took)));
    Ok(())
}

fn token(guard: &LockGuard<'_>) -> Result<FencingToken, Failure> {
    guard.fencing_token().ok_or_else(|| unexpected("no fencing token"))
}

fn take_and_release(client: &Client) -> Result<Duration, Failure> {
    let (guard, took) = timed(|| client.acquire(request()));
    guard.map_err(unexpected)?.release().map_err(unexpected)?;
    Ok(took)
}

/// Nodes that keep everything, as servers do that sync each write to their disk.
fn config(nodes: &[Node], name: &str) -> Result<Config, Failure> {
    let mut builder = Config::builder().label(name.as_bytes()).response_timeout(SOON);
    for node in nodes {
        let address = node.address().to_string();
        builder = builder.node_with(&address, RestartTrust::Durable);
    }
    builder.build().map_err(unexpected)
}

fn request() -> LockRequest<'static> {
    LockRequest::new(KEY).ttl(TTL).fenced()
}

fn addresses(nodes: &[Node]) -> String {
    let all: Vec<_> = nodes.iter().map(|node| node.address().to_string()).collect();
    all.join("  ")
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let value = work();
    (value, start.elapsed())
}

fn tell(line: fmt::Arguments<'_>) {
    // A reader that has read enough may close the pipe. That ends this process.
    let _ = writeln!(io::stdout(), "{line}");
}

fn unexpected(what: impl fmt::Display) -> Failure {
    Failure::system(format_args!("the demo went wrong: {what}"))
}

const NODES: usize = 5;
const KEY: &[u8] = b"demo";
const TTL: Duration = Duration::from_secs(10);

/// Longer than anything here takes on a busy machine.
const SOON: Duration = Duration::from_secs(5);
