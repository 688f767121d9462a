//! The life of a lock on the calling thread: taken, refused to another, extended, released.
//!
//! ```text
//! cargo run --example blocking
//! cargo run --example blocking -- --node 10.0.0.1 --node 10.0.0.2 --node 10.0.0.3
//! ```
//!
//! Without `--node` it starts three embedded nodes of its own. It ends with 0 if all went well, with 1
//! and the reason if not, and with 2 if the command line is wrong.

use std::env;
use std::error::Error;
use std::io;
use std::process::ExitCode;
use std::time::Duration;

use redbolt::{AcquireError, Client, Config, ConfigError, LockRequest, Wait};
use redbolt_node::Node;

fn main() -> ExitCode {
    let Some(addresses) = addresses(env::args().skip(1)) else {
        eprintln!("usage: blocking [--node ADDRESS]...");
        return ExitCode::from(2);
    };
    match tell(addresses) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("blocking: {error}");
            ExitCode::FAILURE
        }
    }
}

fn tell(mut addresses: Vec<String>) -> Result<(), Box<dyn Error>> {
    // They serve for as long as this value lives.
    let embedded = if addresses.is_empty() { embedded_nodes(3)? } else { Vec::new() };
    addresses.extend(embedded.iter().map(|node| node.address().to_string()));
    let config = configure(&addresses)?;
    println!("{} of {} nodes make a lock", config.quorum(), config.node_count());

    // A node that cannot be reached is no error here: the others may be enough.
    let client = Client::new(config.clone())?;
    println!("nodes: {}", client.warm_up(Duration::from_secs(2)));

    // If somebody else has it, wait for up to five seconds. The nodes forget it after ten, should
    // this process die.
    let request = LockRequest::new(RESOURCE).ttl(Duration::from_secs(10));
    let mut lock = client.acquire(request.clone().wait(Wait::UpTo(Duration::from_secs(5))))?;
    println!("held for {:.1?} more", lock.remaining());

    // Another client cannot have it meanwhile, and is told why.
    let other = Client::new(config)?;
    match other.acquire(request.clone()) {
        Err(AcquireError::Refused(report)) => println!("refused to another: {report}"),
        Err(error) => return Err(error.into()),
        Ok(_) => return Err("two clients hold the same lock".into()),
    }

    // Nothing extends a lock behind our back. Whoever works for longer asks for more in time, and
    // looks before each step whether the lock still holds.
    for step in 1..=3 {
        lock.extend(Duration::from_secs(10))?;
        if !lock.is_valid() {
            return Err("the lock was lost: stop the work".into());
        }
        println!("step {step} done, {:.1?} left", lock.remaining());
    }

    // Letting go tells whether it was held to the end. Dropping the guard would do it silently.
    println!("{}", lock.release());

    // The same for a piece of code. It is released also if the code panics.
    let held = other.with(request, |lock| format!("worked with {:.1?} left", lock.remaining()))?;
    println!("{}; {}", held.value, held.outcome);
    Ok(())
}

fn configure(addresses: &[String]) -> Result<Config, ConfigError> {
    // How long a node may take to answer before the others decide without it. On a network of your
    // own it is less.
    let mut builder = Config::builder().response_timeout(Duration::from_millis(500));
    for address in addresses {
        builder = builder.node(address)?;
    }
    // Nodes that nobody has called new do not vote before the longest lock would be over. A program for
    // real nodes leaves this to an operator, who runs `redbolt init` once.
    builder = builder.new_nodes();
    // What an operator sees who looks at the lock.
    builder.label(b"example").build()
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

const RESOURCE: &[u8] = b"redbolt-example";
