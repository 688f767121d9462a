//! The life of a lock on the calling thread: taken, refused to another client, extended, released.
//!
//! ```text
//! cargo run --example blocking
//! cargo run --example blocking -- --node 10.0.0.1 --node 10.0.0.2 --node 10.0.0.3
//! ```
//!
//! Without `--node` it starts three embedded nodes. Exit status: 0 on success; 1 on failure, with
//! the reason; 2 if the command line is wrong.

mod nodes;

use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use redbolt::{AcquireError, Client, Config, ConfigError, LockRequest};

use crate::nodes::{addresses, embedded_nodes};

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
    // The nodes run as long as this value lives.
    let embedded = if addresses.is_empty() { embedded_nodes(3)? } else { Vec::new() };
    addresses.extend(embedded.iter().map(|node| node.address().to_string()));
    let config = configure(&addresses)?;
    println!("{} of {} nodes make a lock", config.quorum(), config.node_count());

    // An unreachable node is not an error here, because the others may be enough.
    let client = Client::new(config.clone())?;
    println!("nodes: {}", client.warm_up(Duration::from_secs(2)));

    // If another client holds the lock, wait up to five seconds. If this process dies, the nodes
    // delete the key after ten.
    let request = LockRequest::new(RESOURCE).ttl(Duration::from_secs(10));
    let mut lock = client.acquire(request.clone().wait(Duration::from_secs(5)))?;
    println!("held for {:.1?} more", lock.remaining());

    // Meanwhile another client is refused, and its error names the reason.
    let other = Client::new(config)?;
    match other.acquire(request.clone()) {
        Err(AcquireError::Refused(report)) => println!("refused to another: {report}"),
        Err(error) => return Err(error.into()),
        Ok(_) => return Err("two clients hold the same lock".into()),
    }

    // Nothing extends this lock in the background. Longer work must extend it in time, and check
    // before each step that it is still valid.
    for step in 1..=3 {
        lock.extend(Duration::from_secs(10))?;
        if !lock.is_valid() {
            return Err("the lock was lost: stop the work".into());
        }
        println!("step {step} done, {:.1?} left", lock.remaining());
    }

    // A release fails if the lock was not held to the end, so that the work was not covered.
    // Dropping the guard releases the lock without such a report, also when the work panics.
    println!("released, {}", lock.release()?);

    let next = other.acquire(request)?;
    println!("the next one has {:.1?} left", next.remaining());
    next.release()?;
    Ok(())
}

fn configure(addresses: &[String]) -> Result<Config, ConfigError> {
    // A node that takes longer than this to answer fails its vote. In your own network, choose
    // less.
    let mut builder = Config::builder().response_timeout(Duration::from_secs(5));
    for address in addresses {
        builder = builder.node(address);
    }
    // This declares the nodes new; otherwise they would not vote until the longest possible lock
    // had ended. In production an operator does that once, with `redbolt init`.
    builder = builder.new_nodes();
    // An operator who inspects the lock sees this label.
    builder.label(b"example").build()
}

const RESOURCE: &[u8] = b"redbolt-example";
