//! Threads that share one engine: they take turns, learn of a loss, and release their locks at the
//! end.
//!
//! ```text
//! cargo run --example engine
//! cargo run --example engine -- --node 10.0.0.1 --node 10.0.0.2 --node 10.0.0.3
//! ```
//!
//! Without `--node` it starts three embedded nodes. Exit status: 0 on success; 1 on failure, with
//! the reason; 2 if the command line is wrong.

mod nodes;

use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use redbolt::{AcquireError, AutoExtend, Config, ConfigError, Engine, LockRequest};

use crate::nodes::{addresses, embedded_nodes};

fn main() -> ExitCode {
    let Some(addresses) = addresses(env::args().skip(1)) else {
        eprintln!("usage: engine [--node ADDRESS]...");
        return ExitCode::from(2);
    };
    match tell(addresses) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("engine: {error}");
            ExitCode::FAILURE
        }
    }
}

fn tell(mut addresses: Vec<String>) -> Result<(), Box<dyn Error>> {
    // The nodes run as long as this value lives.
    let embedded = if addresses.is_empty() { embedded_nodes(3)? } else { Vec::new() };
    addresses.extend(embedded.iter().map(|node| node.address().to_string()));
    // The engine has one thread for the whole program. Each of the program's threads gets a clone
    // of the handle.
    let engine = Engine::new(configure(&addresses)?)?;

    run_scheduled(&engine)?;
    keep(&engine)?;
    be_told(&engine)?;

    // A shutdown releases every lock that is still held, and reports the loss to its holder.
    let guard = engine.acquire(LockRequest::new(RESOURCE)).wait()?;
    let report = engine.shutdown(Duration::from_secs(2));
    println!("{report}");
    if let Err(lost) = guard.release().wait() {
        println!("the last holder: {lost}");
    }
    if report.is_clean() { Ok(()) } else { Err(report.to_string().into()) }
}

/// Lets four threads compete for one lock. None of them polls: each sleeps until it has the lock.
fn run_scheduled(engine: &Engine) -> Result<(), Box<dyn Error>> {
    let threads: Vec<_> = (1..=4)
        .map(|number| {
            let engine = engine.clone();
            thread::spawn(move || -> Result<(), AcquireError> {
                // The time to wait for the lock and its TTL are independent.
                let request = LockRequest::new(RESOURCE).ttl(Duration::from_secs(10));
                let guard = engine.acquire(request.wait(Duration::from_secs(20))).wait()?;
                println!("thread {number} holds it for {:.0?} more", guard.remaining());
                // Dropping the guard releases the lock without waiting for the nodes.
                drop(guard);
                Ok(())
            })
        })
        .collect();
    for thread in threads {
        thread.join().map_err(|_| "a thread panicked")??;
    }
    Ok(())
}

/// Holds a lock that is auto-extended until it is released. Its TTL only determines how soon it
/// ends if this process dies.
fn keep(engine: &Engine) -> Result<(), Box<dyn Error>> {
    let request = LockRequest::new(RESOURCE)
        .ttl(Duration::from_secs(6))
        .auto_extend(AutoExtend::until_released());
    let guard = engine.acquire(request.wait(Duration::from_secs(5))).wait()?;
    thread::sleep(Duration::from_secs(7));
    println!("still held after 7 s: {}", guard.is_valid());
    println!("released, {}", guard.release().wait()?);
    Ok(())
}

/// Loses a lock by not extending it, and is notified.
fn be_told(engine: &Engine) -> Result<(), Box<dyn Error>> {
    let request = LockRequest::new(RESOURCE).ttl(Duration::from_secs(3));
    let guard = engine.acquire(request.wait(Duration::from_secs(5))).wait()?;
    let (tell, told) = mpsc::channel();
    // The callback runs on the engine's thread, so it should only pass the news on.
    guard.on_loss(move |cause| {
        let _ = tell.send(cause);
    });
    let cause = told.recv_timeout(Duration::from_secs(10))?;
    println!("lost, as expected: {cause}; is it valid? {}", guard.is_valid());
    Ok(())
}

fn configure(addresses: &[String]) -> Result<Config, ConfigError> {
    // A node that takes longer than this to answer fails its vote. In your own network, choose
    // less.
    let mut builder = Config::builder().response_timeout(Duration::from_secs(5));
    for address in addresses {
        builder = builder.node(address);
    }
    // This is only for nodes that are really new. In production an operator runs `redbolt init`,
    // once.
    builder.new_nodes().label(b"example").build()
}

const RESOURCE: &[u8] = b"redbolt-example-engine";
