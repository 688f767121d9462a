//! Locks in tasks, on tokio: awaited, given up by a timeout, and watched beside the work that they
//! protect. Any other executor would do.
//!
//! ```text
//! cargo run --example futures
//! cargo run --example futures -- --node 10.0.0.1 --node 10.0.0.2 --node 10.0.0.3
//! ```
//!
//! Without `--node` it starts three embedded nodes. Exit status: 0 on success; 1 on failure, with
//! the reason; 2 if the command line is wrong.

mod nodes;

use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use redbolt::{Config, ConfigError, Engine, LockRequest, OwnedGuard, Wait};
use tokio::time::{sleep, timeout};

use crate::nodes::{addresses, embedded_nodes};

#[tokio::main]
async fn main() -> ExitCode {
    let Some(addresses) = addresses(env::args().skip(1)) else {
        eprintln!("usage: futures [--node ADDRESS]...");
        return ExitCode::from(2);
    };
    match tell(addresses).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("futures: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn tell(mut addresses: Vec<String>) -> Result<(), Box<dyn Error>> {
    // The nodes run as long as this value lives.
    let embedded = if addresses.is_empty() { embedded_nodes(3)? } else { Vec::new() };
    addresses.extend(embedded.iter().map(|node| node.address().to_string()));
    let engine = Engine::new(configure(&addresses)?)?;

    let request = LockRequest::new(RESOURCE).ttl(Duration::from_secs(10)).wait(Wait::Forever);
    let guard = engine.acquire(request.clone()).await?;
    println!("held for {:.0?} more", guard.remaining());

    // A second task would wait until the lock is released. Dropping its future cancels the wait,
    // here and on the nodes.
    let second = engine.acquire(request.clone());
    match timeout(Duration::from_millis(200), second).await {
        Ok(_) => return Err("two tasks hold the same lock".into()),
        Err(_) => println!("a second task gave up after 200 ms"),
    }

    guard.extend(Duration::from_secs(20)).await?;
    println!("extended: held for {:.0?} more", guard.remaining());
    println!("released, {}", guard.release().await?);

    // Work that takes longer than its lease, and is cancelled when the lease ends.
    let guard = engine.acquire(request.ttl(Duration::from_secs(3))).await?;
    tokio::select! {
        () = work() => return Err("the work ended before the lease".into()),
        cause = guard.lost() => match cause {
            Some(cause) => println!("the work was stopped: {cause}"),
            None => return Err("nobody released it".into()),
        },
    }
    if let Err(lost) = guard.release().await {
        println!("{lost}");
    }

    // Many requests are sent together: one write to each node, as far as they fit.
    let names: Vec<String> = (0..100).map(|at| format!("redbolt-example-{at}")).collect();
    let asked: Vec<_> =
        names.iter().map(|name| engine.acquire(LockRequest::new(name.as_bytes()))).collect();
    let mut guards: Vec<OwnedGuard> = Vec::new();
    for asked in asked {
        guards.push(asked.await?);
    }
    println!("{} locks held at once", guards.len());
    drop(guards);

    // The shutdown blocks, so it must not run on an executor's thread.
    let report =
        tokio::task::spawn_blocking(move || engine.shutdown(Duration::from_secs(2))).await?;
    if report.is_clean() { Ok(()) } else { Err(report.to_string().into()) }
}

async fn work() {
    sleep(Duration::from_secs(60)).await;
}

fn configure(addresses: &[String]) -> Result<Config, ConfigError> {
    // A node that takes longer than this to answer fails its vote. On a network of your own, choose
    // less.
    let mut builder = Config::builder().response_timeout(Duration::from_secs(5));
    for address in addresses {
        builder = builder.node(address);
    }
    // Only for nodes that are really new. On real ones an operator runs `redbolt init`, once.
    builder.new_nodes().label(b"example").build()
}

const RESOURCE: &[u8] = b"redbolt-example-futures";
