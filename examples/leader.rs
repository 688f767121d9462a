//! Leader election: the holder of an auto-extended lock leads until it steps down, and learns of a
//! loss in time to stop.
//!
//! ```text
//! cargo run --example leader
//! cargo run --example leader -- --node 10.0.0.1 --node 10.0.0.2 --node 10.0.0.3
//! ```
//!
//! Two candidates want the same lock, as two processes would. The first leads until its term is
//! over, because here nobody may lead for longer than four seconds; the second steps down on its
//! own.
//!
//! Without `--node` it starts three embedded nodes. Exit status: 0 on success; 1 on failure, with
//! the reason; 2 if the command line is wrong.

use std::env;
use std::error::Error;
use std::io;
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use redbolt::{
    AutoExtend, Config, ConfigError, Engine, EngineLimits, LockRequest, OwnedGuard, ReleaseOutcome,
    Wait,
};
use redbolt_node::Node;

fn main() -> ExitCode {
    let Some(addresses) = addresses(env::args().skip(1)) else {
        eprintln!("usage: leader [--node ADDRESS]...");
        return ExitCode::from(2);
    };
    match tell(addresses) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("leader: {error}");
            ExitCode::FAILURE
        }
    }
}

fn tell(mut addresses: Vec<String>) -> Result<(), Box<dyn Error>> {
    // The nodes run as long as this value lives.
    let embedded = if addresses.is_empty() { embedded_nodes(3)? } else { Vec::new() };
    addresses.extend(embedded.iter().map(|node| node.address().to_string()));
    let config = configure(&addresses)?;

    let first = Candidate::start("first", config.clone())?;
    let office = first.run_for_office()?;
    let second = Candidate::start("second", config)?;
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            // The candidate sleeps until a node notifies it that the lock is free.
            let office = second.run_for_office().map_err(|error| error.to_string())?;
            second.lead(office, Some(3)).map_err(|error| error.to_string())
        });
        // The first leader does not step down on its own; the end of its term makes it.
        let outcome = first.lead(office, None)?;
        if !matches!(outcome, ReleaseOutcome::Lost(_)) {
            return Err(format!("the first leader's term did not end: {outcome}").into());
        }
        match waiting.join().map_err(|_| "the second candidate panicked")?? {
            ReleaseOutcome::Released(_) => Ok(()),
            ReleaseOutcome::Lost(cause) => {
                Err(format!("the second leader was deposed: {cause}").into())
            }
        }
    })
}

struct Candidate {
    name: &'static str,
    engine: Engine,
}

impl Candidate {
    fn start(name: &'static str, config: Config) -> io::Result<Self> {
        Ok(Self { name, engine: Engine::start(config, EngineLimits::default())? })
    }

    /// Waits for the lock, which is auto-extended from then on.
    fn run_for_office(&self) -> Result<OwnedGuard, Box<dyn Error>> {
        // The TTL: how long the nodes keep the lock if this process dies. `max_hold`: how long the
        // leader may lead.
        let keep = AutoExtend::until_released().max_hold(TERM);
        let request = LockRequest::new(RESOURCE).ttl(TTL).auto_extend(keep);
        let office = self.engine.acquire(request.wait(Wait::UpTo(PATIENCE))).wait()?;
        println!("{} leads", self.name);
        Ok(office)
    }

    /// Works in steps until it has done all of them, or has lost the lock.
    fn lead(
        &self,
        office: OwnedGuard,
        steps: Option<u32>,
    ) -> Result<ReleaseOutcome, Box<dyn Error>> {
        let (tell, told) = mpsc::channel();
        office.on_loss(move |cause| {
            let _ = tell.send(cause);
        });
        let mut done = 0;
        while steps.is_none_or(|steps| done < steps) {
            // The work. A loss interrupts it, and is reported before the validity ends, so that a
            // moment is left to stop in.
            match told.recv_timeout(STEP) {
                Ok(cause) => {
                    println!("{} stops: {cause}", self.name);
                    break;
                }
                Err(RecvTimeoutError::Timeout) => done += 1,
                Err(RecvTimeoutError::Disconnected) => return Err("nobody tells".into()),
            }
        }
        println!("{} has done some work: {}", self.name, done > 0);
        let outcome = office.release().wait();
        println!("{} steps down: {outcome}", self.name);
        Ok(outcome)
    }
}

fn configure(addresses: &[String]) -> Result<Config, ConfigError> {
    // A node that takes longer than this to answer fails its vote. On a network of your own, choose
    // less.
    let mut builder = Config::builder().response_timeout(Duration::from_millis(500));
    for address in addresses {
        builder = builder.node(address)?;
    }
    // Only for nodes that are really new. On real ones an operator runs `redbolt init`, once.
    builder.new_nodes().label(b"example").build()
}

/// The addresses after `--node`; `None` if there is any other argument.
fn addresses(mut args: impl Iterator<Item = String>) -> Option<Vec<String>> {
    let mut addresses = Vec::new();
    while let Some(arg) = args.next() {
        if arg != "--node" {
            return None;
        }
        addresses.push(args.next()?);
    }
    Some(addresses)
}

fn embedded_nodes(count: usize) -> io::Result<Vec<Node>> {
    (0..count).map(|_| Node::start()).collect()
}

const RESOURCE: &[u8] = b"redbolt-example-leader";
/// How long the nodes keep the lock of a leader that has died.
const TTL: Duration = Duration::from_secs(2);
/// The longest that a leader may lead.
const TERM: Duration = Duration::from_secs(4);
/// How long a candidate waits.
const PATIENCE: Duration = Duration::from_secs(20);
/// The length of a step of work.
const STEP: Duration = Duration::from_millis(100);
