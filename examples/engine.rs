//! Threads that share one engine: they take turns, are told of a loss, and are let go at the end.
//!
//! ```text
//! cargo run --example engine
//! cargo run --example engine -- --node 10.0.0.1 --node 10.0.0.2 --node 10.0.0.3
//! ```
//!
//! Without `--node` it starts three embedded nodes of its own. It ends with 0 if all went well, with 1
//! and the reason if not, and with 2 if the command line is wrong.

use std::env;
use std::error::Error;
use std::io;
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use redbolt::{
    AcquireError, AutoExtend, Config, ConfigError, Engine, EngineLimits, LockRequest, Wait,
};
use redbolt_node::Node;

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
    // They serve for as long as this value lives.
    let embedded = if addresses.is_empty() { embedded_nodes(3)? } else { Vec::new() };
    addresses.extend(embedded.iter().map(|node| node.address().to_string()));
    // One thread stands behind it, for all threads of the program. Each gets a clone of the handle.
    let engine = Engine::start(configure(&addresses)?, EngineLimits::default())?;

    run_scheduled(&engine)?;
    keep(&engine)?;
    be_told(&engine)?;

    // Whatever is still held at the end is released, and its holder told.
    let guard = engine.acquire(LockRequest::new(RESOURCE)).wait()?;
    let report = engine.shutdown(Duration::from_secs(2));
    println!("{report}");
    println!("the last holder: {}", guard.release().wait());
    if report.is_clean() { Ok(()) } else { Err(report.to_string().into()) }
}

/// Four threads want the same lock. None of them polls: each sleeps until it has the lock.
fn run_scheduled(engine: &Engine) -> Result<(), Box<dyn Error>> {
    let threads: Vec<_> = (1..=4)
        .map(|number| {
            let engine = engine.clone();
            thread::spawn(move || -> Result<(), AcquireError> {
                // How long to wait for the lock, and how long to have it, are two things.
                let request = LockRequest::new(RESOURCE).ttl(Duration::from_secs(10));
                let guard = engine.acquire_timeout(request, Duration::from_secs(20)).wait()?;
                println!("thread {number} holds it for {:.0?} more", guard.remaining());
                // Dropping the guard releases the lock, and does not wait for the nodes.
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

/// A lock that is auto-extended until it is released: the TTL only says how soon it ends without this process.
fn keep(engine: &Engine) -> Result<(), Box<dyn Error>> {
    let request = LockRequest::new(RESOURCE)
        .ttl(Duration::from_secs(1))
        .auto_extend(AutoExtend::until_released());
    let guard = engine.acquire_timeout(request, Duration::from_secs(5)).wait()?;
    thread::sleep(Duration::from_millis(1_500));
    println!("still held after 1.5 s: {}", guard.is_valid());
    println!("{}", guard.release().wait());
    Ok(())
}

/// A holder that does not extend its lock loses it, and hears of it.
fn be_told(engine: &Engine) -> Result<(), Box<dyn Error>> {
    let request = LockRequest::new(RESOURCE).ttl(Duration::from_millis(300));
    let guard = engine.acquire(request.wait(Wait::UpTo(Duration::from_secs(5)))).wait()?;
    let (tell, told) = mpsc::channel();
    // It runs on the engine's thread: let it do no more than pass the news on.
    guard.on_loss(move |cause| {
        let _ = tell.send(cause);
    });
    let cause = told.recv_timeout(Duration::from_secs(5))?;
    println!("lost, as expected: {cause}; is it valid? {}", guard.is_valid());
    Ok(())
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

const RESOURCE: &[u8] = b"redbolt-example-engine";
