//! `redbolt demo`: five nodes in this process, and what becomes of a lock when they fail.
//!
//! Every line is what happened a moment ago: the nodes are servers on loopback sockets, the clients
//! are the library's, and the times are measured. Nothing outside this process is used.

use std::fmt;
use std::io::{self, Write};
use std::thread;
use std::time::{Duration, Instant};

use redbolt::{AcquireError, Ask, Client, Config, LockGuard, Vote, Wait};
use redbolt_node::{Memory, Node};

use crate::duration::show;
use crate::exit::{self, Failure};

/// Tells the story.
pub(crate) fn run() -> Result<u8, Failure> {
    let mut nodes = (0..NODES).map(|_| Node::start()).collect::<io::Result<Vec<_>>>()?;
    tell(format_args!("{NODES} nodes from memory, in this process, on loopback sockets:"));
    tell(format_args!("{}", addresses(&nodes)));

    let alice = client(&nodes, "alice")?;
    let bob = client(&nodes, "bob")?;
    tell(format_args!(
        "alice connects: {} of {NODES} nodes are ready",
        alice.warm_up(SOON).ready()
    ));
    bob.warm_up(SOON);

    let guard = contend(&alice, &bob)?;
    hand_over(guard, bob)?;
    lose_nodes(&alice, &mut nodes)?;
    Ok(exit::SUCCESS)
}

/// Alice takes the lock, and Bob does not.
fn contend<'a>(alice: &'a Client, bob: &Client) -> Result<LockGuard<'a>, Failure> {
    let (guard, took) = timed(|| alice.acquire(ask()));
    let guard = guard.map_err(unexpected)?;
    tell(format_args!(
        "alice takes the lock in {}; it is valid for {} unless extended",
        show(took),
        show(guard.remaining())
    ));
    match timed(|| bob.acquire(ask())) {
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
        let ask = ask().wait(Wait::For(SOON));
        bob.acquire(ask).map(|guard| (Instant::now(), guard.release()))
    });
    thread::sleep(Duration::from_millis(100));
    let (ending, took) = timed(|| guard.release());
    let released = Instant::now();
    tell(format_args!("bob waits; alice lets go in {}: {ending}", show(took)));
    let outcome = waiter.join().map_err(|_| unexpected("the waiter panicked"))?;
    let (granted, _) = outcome.map_err(unexpected)?;
    let later = show(granted.saturating_duration_since(released));
    tell(format_args!("bob has the lock {later} later, and lets go"));
    Ok(())
}

/// Nodes stop and come back.
fn lose_nodes(alice: &Client, nodes: &mut [Node]) -> Result<(), Failure> {
    for (stopped, words) in ["one node is stopped", "another one is stopped"].iter().enumerate() {
        nodes[stopped].stop(Memory::Kept);
        let took = take_and_release(alice)?;
        tell(format_args!("{words}: alice takes the lock in {} and lets go", show(took)));
    }
    nodes[2].stop(Memory::Kept);
    match timed(|| alice.acquire(ask())) {
        (Err(AcquireError::Refused(report)), took) => {
            tell(format_args!("a third one is stopped: alice is refused in {}, for", show(took)));
            let silent =
                report.nodes().iter().filter(|node| matches!(node.vote, Some(Vote::Fail(_))));
            silent.for_each(|node| tell(format_args!("  {node}")));
        }
        (Err(error), _) => return Err(unexpected(error)),
        (Ok(_), _) => return Err(unexpected("a lock without a quorum")),
    }
    for node in &mut *nodes {
        node.start_again()?;
    }
    let (report, took) = timed(|| alice.warm_up(SOON));
    tell(format_args!("they come back: {} of {NODES} are ready in {}", report.ready(), show(took)));
    let took = take_and_release(alice)?;
    tell(format_args!("alice takes the lock in {} and lets go", show(took)));
    Ok(())
}

fn take_and_release(client: &Client) -> Result<Duration, Failure> {
    let (guard, took) = timed(|| client.acquire(ask()));
    guard.map_err(unexpected)?.release();
    Ok(took)
}

fn client(nodes: &[Node], name: &str) -> Result<Client, Failure> {
    let mut builder = Config::builder().label(name.as_bytes());
    for node in nodes {
        builder = builder.node(&node.address().to_string()).map_err(unexpected)?;
    }
    Ok(Client::new(builder.build().map_err(unexpected)?)?)
}

fn ask() -> Ask<'static> {
    Ask::new(KEY).ttl(TTL)
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
    // A reader who has seen enough may close the pipe.
    let _ = writeln!(io::stdout(), "{line}");
}

fn unexpected(what: impl fmt::Display) -> Failure {
    Failure::system(format_args!("the demo went wrong: {what}"))
}

const NODES: usize = 5;
const KEY: &[u8] = b"demo";
const TTL: Duration = Duration::from_secs(10);

/// More than anything here takes on a busy machine.
const SOON: Duration = Duration::from_secs(5);
