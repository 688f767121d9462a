//! Whoever has the lock leads: it is auto-extended until the leader steps down, and the leader hears of its
//! loss in time to stop.
//!
//! ```text
//! cargo run --example leader
//! cargo run --example leader -- --node 10.0.0.1 --node 10.0.0.2 --node 10.0.0.3
//! ```
//!
//! Two candidates want the same lock, as two processes would. The first one leads until its term is over,
//! for no leader may lead for longer than four seconds here; the second one steps down by itself.
//!
//! Without `--node` it starts three embedded nodes of its own. It ends with 0 if all went well, with 1
//! and the reason if not, and with 2 if the command line is wrong.

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
    // They serve for as long as this value lives.
    let embedded = if addresses.is_empty() { embedded_nodes(3)? } else { Vec::new() };
    addresses.extend(embedded.iter().map(|node| node.address().to_string()));
    let config = configure(&addresses)?;

    let first = Candidate::start("first", config.clone())?;
    let office = first.run_for_office()?;
    let second = Candidate::start("second", config)?;
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            // It sleeps meanwhile: a node tells it when the lock is free.
            let office = second.run_for_office().map_err(|error| error.to_string())?;
            second.lead(office, Some(3)).map_err(|error| error.to_string())
        });
        // It does not think of stepping down, and has to.
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

    /// Waits for the lock, and has it auto-extended from then on.
    fn run_for_office(&self) -> Result<OwnedGuard, Box<dyn Error>> {
        // How long the nodes keep it if this process dies, and how long it may lead if it lives.
        let keep = AutoExtend::until_released().max_hold(TERM);
        let request = LockRequest::new(RESOURCE).ttl(TTL).auto_extend(keep);
        let office = self.engine.acquire(request.wait(Wait::UpTo(PATIENCE))).wait()?;
        println!("{} leads", self.name);
        Ok(office)
    }

    /// Works in steps until it has done as many as it wants to, or has lost the lock.
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
            // The work, which is interrupted by a loss. That is told before the validity is over, so
            // that there is a moment left to stop in.
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
    // How long a node may take to answer before the others decide without it. On a network of your
    // own it is less.
    let mut builder = Config::builder().response_timeout(Duration::from_millis(500));
    for address in addresses {
        builder = builder.node(address)?;
    }
    // For nodes that were just made. On real ones an operator runs `redbolt init`, once.
    builder.new_nodes().label(b"example").build()
}

/// What follows each `--node`; `None` if there is anything else.
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
/// How long one may lead.
const TERM: Duration = Duration::from_secs(4);
/// How long a candidate waits.
const PATIENCE: Duration = Duration::from_secs(20);
/// What a leader does between two looks at its office.
const STEP: Duration = Duration::from_millis(100);
