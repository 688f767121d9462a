//! Locks on tokio without a thread for them: a task drives the engine through one file descriptor, and five tasks
//! take one lock after the other. Other executors work the same way, `smol::Async` for example.
//!
//! ```text
//! cargo run --example tokio_unthreaded
//! cargo run --example tokio_unthreaded -- --node 10.0.0.1 --node 10.0.0.2 --node 10.0.0.3
//! ```
//!
//! Without `--node` it starts three embedded nodes. Exit status: 0 on success; 1 on failure, with the reason; 2 if the
//! command line is wrong.

mod nodes;

use std::env;
use std::error::Error;
use std::io;
use std::process::ExitCode;
use std::time::Duration;

use redbolt::{AcquireError, Config, Engine, engine::EngineIo};
use tokio::io::{Interest, unix::AsyncFd};
use tokio::time::sleep;

use crate::nodes::{addresses, embedded_nodes};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Some(addresses) = addresses(env::args().skip(1)) else {
        eprintln!("usage: tokio_unthreaded [--node ADDRESS]...");
        return ExitCode::from(2);
    };
    match serve(addresses).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tokio_unthreaded: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(mut addresses: Vec<String>) -> Result<(), Box<dyn Error>> {
    // The nodes run until this value is dropped.
    let embedded = if addresses.is_empty() { embedded_nodes(3)? } else { Vec::new() };
    addresses.extend(embedded.iter().map(|node| node.address().to_string()));
    // A busy machine can answer late. Only nodes that were just created may be declared as new here; for others an
    // operator runs `redbolt init` once.
    let builder = Config::builder().nodes(&addresses).response_timeout(Duration::from_secs(5));
    let (engine, io) = Engine::unthreaded(builder.new_nodes().label(b"example").build()?)?;
    let driven = tokio::spawn(drive(io));

    let tasks: Vec<_> = (1..=5).map(|number| tokio::spawn(work(number, engine.clone()))).collect();
    for task in tasks {
        task.await??;
    }
    // It drives the engine to its end on this thread, for up to 2 s.
    let report = engine.shutdown(Duration::from_secs(2));
    driven.await??;
    if report.is_clean() { Ok(()) } else { Err(report.to_string().into()) }
}

/// Drives the engine until it has ended.
async fn drive(io: EngineIo) -> io::Result<()> {
    #[allow(deprecated, reason = "what replaces it is unsafe; this descriptor stays as it is")]
    let io = AsyncFd::with_interest(io, Interest::READABLE)?;
    while !io.get_ref().has_ended() {
        let timeout = io.get_ref().timeout();
        tokio::select! {
            ready = io.readable() => ready?.clear_ready(),
            () = sleep(timeout.unwrap_or_default()), if timeout.is_some() => {}
        }
        io.get_ref().on_ready();
    }
    Ok(())
}

async fn work(number: u32, engine: Engine) -> Result<(), AcquireError> {
    let _lock = engine.lock("redbolt-example-tokio").wait(Duration::from_secs(20)).await?;
    println!("task {number} begins");
    sleep(Duration::from_millis(20)).await;
    println!("task {number} ends");
    Ok(())
}
