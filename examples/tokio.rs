//! A service on tokio: jobs that one task at a time runs, a wait with a limit, a job that is
//! cancelled because its lock is lost, and a log in `tracing`. Other executors work the same way.
//!
//! ```text
//! cargo run --example tokio
//! cargo run --example tokio -- --node 10.0.0.1 --node 10.0.0.2 --node 10.0.0.3
//! ```
//!
//! Without `--node` it starts three embedded nodes. The log goes to standard error. Exit status: 0
//! on success; 1 on failure, with the reason; 2 if the command line is wrong.

mod nodes;

use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use redbolt::{
    Config, ConfigError, Engine,
    engine::{HeldLock, RunError},
    log::{Level, Log, Note},
};
use tokio::time::{sleep, timeout};

use crate::nodes::{addresses, embedded_nodes};

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let Some(addresses) = addresses(env::args().skip(1)) else {
        eprintln!("usage: tokio [--node ADDRESS]...");
        return ExitCode::from(2);
    };
    match serve(addresses).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tokio: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(mut addresses: Vec<String>) -> Result<(), Box<dyn Error>> {
    // The nodes run until this value is dropped.
    let embedded = if addresses.is_empty() { embedded_nodes(3)? } else { Vec::new() };
    addresses.extend(embedded.iter().map(|node| node.address().to_string()));
    // One engine serves the whole program. Each task gets a clone of the handle.
    let engine = Engine::new(configure(&addresses)?)?;

    take_turns(&engine).await?;
    give_up(&engine).await?;
    lose(&engine).await?;
    try_once(&engine).await?;

    // The shutdown blocks, so it must not run on an executor's thread.
    let report =
        tokio::task::spawn_blocking(move || engine.shutdown(Duration::from_secs(2))).await?;
    if report.is_clean() { Ok(()) } else { Err(report.to_string().into()) }
}

/// Runs a job in three tasks. The lock lets one of them work at a time, as it would on three hosts.
async fn take_turns(engine: &Engine) -> Result<(), Box<dyn Error>> {
    let tasks: Vec<_> = (1..=3)
        .map(|number| {
            // The future is `Send` and `'static` because the work is.
            tokio::spawn(engine.lock(NAME).run(move |lock| job(number, lock)))
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    Ok(())
}

async fn job(number: u32, lock: HeldLock) {
    println!("task {number} begins");
    sleep(Duration::from_millis(20)).await;
    // The work is cancelled only at an await, so check the lock before a step that must not come
    // late.
    println!("task {number} ends, and the lock is valid: {}", lock.is_valid());
}

/// Limits a wait. Dropping the future, which `timeout` does, ends the wait here and on the nodes.
async fn give_up(engine: &Engine) -> Result<(), Box<dyn Error>> {
    let held = engine.lock(NAME).await?;
    match timeout(Duration::from_millis(200), engine.lock(NAME).acquire()).await {
        Ok(_) => return Err("two tasks hold one lock".into()),
        Err(_) => println!("gave up after 200 ms"),
    }
    // A lost lock is an error of the release: the work was not covered to its end.
    println!("released, {}", held.release().await?);
    Ok(())
}

/// Loses a lock: it may be held for 2 s, and the work takes longer.
async fn lose(engine: &Engine) -> Result<(), Box<dyn Error>> {
    let limits = engine.lock(NAME).ttl(Duration::from_secs(2)).hold_at_most(Duration::from_secs(2));
    let work = limits.run(|_| async {
        let _cleanup = OnDrop("the work was dropped where it awaited");
        sleep(Duration::from_secs(60)).await;
    });
    match work.await {
        Err(RunError::Lost { lost, value: None, .. }) => println!("cancelled: {lost}"),
        other => return Err(format!("expected a loss, got {other:?}").into()),
    }
    Ok(())
}

struct OnDrop(&'static str);

impl Drop for OnDrop {
    fn drop(&mut self) {
        println!("{}", self.0);
    }
}

/// Skips the job if another client runs it.
async fn try_once(engine: &Engine) -> Result<(), Box<dyn Error>> {
    let held = engine.lock(NAME).await?;
    if engine.lock(NAME).try_acquire().await?.is_none() {
        println!("another client does it");
    }
    held.release().await?;
    Ok(())
}

/// A log that passes redbolt's notes on to `tracing`.
struct Tracing;

impl Log for Tracing {
    fn note(&self, note: &Note<'_>) {
        match note.level() {
            Level::Error => tracing::error!("{note}"),
            Level::Warning => tracing::warn!("{note}"),
            Level::Info => tracing::info!("{note}"),
            Level::Debug => tracing::debug!("{note}"),
        }
    }
}

fn configure(addresses: &[String]) -> Result<Config, ConfigError> {
    // A busy machine can answer late. Declare nodes as new here only if they were just created; in
    // production an operator runs `redbolt init` once.
    let builder = Config::builder().nodes(addresses).response_timeout(Duration::from_secs(5));
    builder.new_nodes().label(b"example").log(Arc::new(Tracing)).build()
}

const NAME: &str = "redbolt-example-tokio-service";
