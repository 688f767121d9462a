//! A late write that no lease can prevent, and a fencing token does: a holder is paused past its
//! lease, and writes after another has taken over.
//!
//! ```text
//! cargo run --example fenced_write
//! cargo run --example fenced_write -- --node 10.0.0.1 --node 10.0.0.2 --node 10.0.0.3
//! ```
//!
//! The program runs the story twice: with a store that accepts every write, which loses the newer
//! one, and with a store that remembers the largest token and refuses smaller ones. Without
//! `--node` it starts three embedded nodes. Exit status: 0 if both stories ended as described; 1 if
//! not, with the reason; 2 if the command line is wrong.

mod nodes;

use std::env;
use std::error::Error;
use std::fmt;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use redbolt::{Client, Config, ConfigError, FencingToken, LockRequest, Wait};

use crate::nodes::{addresses, embedded_nodes};

fn main() -> ExitCode {
    let Some(addresses) = addresses(env::args().skip(1)) else {
        eprintln!("usage: fenced_write [--node ADDRESS]...");
        return ExitCode::from(2);
    };
    match tell(addresses) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fenced_write: {error}");
            ExitCode::FAILURE
        }
    }
}

fn tell(mut addresses: Vec<String>) -> Result<(), Failure> {
    // The nodes run as long as this value lives.
    let embedded = if addresses.is_empty() { embedded_nodes(3)? } else { Vec::new() };
    addresses.extend(embedded.iter().map(|node| node.address().to_string()));
    let config = configure(&addresses)?;

    println!("a store that takes every write:");
    let last = story(&config, Store::default())?;
    println!("  at the end it says {last:?}: the newer write is lost");
    if last != "by slow" {
        return Err("the late write did not arrive".into());
    }

    println!("a store that remembers the largest token:");
    let last = story(&config, Store { largest: Some(0), ..Store::default() })?;
    println!("  at the end it says {last:?}: the newer write is kept");
    if last != "by quick" {
        return Err("the newer write was lost".into());
    }
    Ok(())
}

/// The protected resource. A real one makes the same comparison as part of the write: in its
/// transaction, or in its server.
#[derive(Default)]
struct Store {
    value: String,
    /// The largest token so far; `None` for a store that ignores tokens.
    largest: Option<u64>,
}

impl Store {
    fn write(&mut self, value: &str, token: FencingToken) -> Result<(), Stale> {
        if let Some(largest) = &mut self.largest {
            if token.get() < *largest {
                return Err(Stale { token: token.get(), largest: *largest });
            }
            // A holder may write again with its own token.
            *largest = token.get();
        }
        value.clone_into(&mut self.value);
        Ok(())
    }
}

/// Runs two holders of one lock, one after the other, and returns the store's final value.
fn story(config: &Config, store: Store) -> Result<String, Failure> {
    let store = Mutex::new(store);
    let (paused, when_paused) = channel();
    let (written, when_written) = channel();
    thread::scope(|scope| {
        let slow = scope.spawn(|| be_slow(config, &store, paused, when_written));
        let quick = scope.spawn(|| be_quick(config, &store, when_paused, written));
        slow.join().map_err(|_| "slow panicked")??;
        quick.join().map_err(|_| "quick panicked")?
    })?;
    Ok(store.into_inner().map_err(|_| "a writer panicked")?.value)
}

/// Does everything right: it checks its lease just before it writes. Between check and write it is
/// paused, as any process can be: by a page fault, a garbage collector, the migration of a virtual
/// machine.
fn be_slow(
    config: &Config,
    store: &Mutex<Store>,
    paused: Sender<()>,
    when_written: Receiver<()>,
) -> Result<(), Failure> {
    let client = Client::new(config.clone())?;
    let lock = client.acquire(request())?;
    let token = lock.fencing_token().ok_or("no token")?;
    println!("  slow holds the lock, with token {token}");
    if !lock.is_valid() {
        return Err("slow was paused too early".into());
    }
    println!("  slow sees that its lease is valid, and is paused");
    paused.send(())?;
    thread::sleep(2 * TTL);
    when_written.recv()?;
    match write(store, "by slow", token) {
        Ok(()) => println!("  slow wakes up and writes"),
        Err(stale) => println!("  slow wakes up, and is refused: {stale}"),
    }
    // The write cannot be taken back now.
    if let Err(lost) = lock.release() {
        println!("  slow: {lost}");
    }
    Ok(())
}

/// Waits for the lock, which is free when the other's lease has ended.
fn be_quick(
    config: &Config,
    store: &Mutex<Store>,
    when_paused: Receiver<()>,
    written: Sender<()>,
) -> Result<(), Failure> {
    when_paused.recv()?;
    let client = Client::new(config.clone())?;
    let lock = client.acquire(request())?;
    let token = lock.fencing_token().ok_or("no token")?;
    println!("  quick holds the lock, with token {token}");
    write(store, "by quick", token)?;
    println!("  quick writes");
    println!("  quick: released, {}", lock.release()?);
    written.send(())?;
    Ok(())
}

fn write(store: &Mutex<Store>, value: &str, token: FencingToken) -> Result<(), Stale> {
    let mut store = store.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    store.write(value, token)
}

fn request() -> LockRequest<'static> {
    LockRequest::new(RESOURCE).ttl(TTL).wait(Wait::UpTo(PATIENCE)).fenced()
}

fn configure(addresses: &[String]) -> Result<Config, ConfigError> {
    let mut builder = Config::builder().response_timeout(Duration::from_secs(5));
    for address in addresses {
        builder = builder.node(address);
    }
    // This declares the nodes new; otherwise they would not vote until the longest possible lock
    // had ended. In production an operator does that once, with `redbolt init`.
    builder.new_nodes().build()
}

/// The store's reason for refusing a write.
#[derive(Debug)]
struct Stale {
    token: u64,
    largest: u64,
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "token {} is older than {}", self.token, self.largest)
    }
}

impl Error for Stale {}

type Failure = Box<dyn Error + Send + Sync>;

const RESOURCE: &[u8] = b"redbolt-example-fenced";

/// A TTL that is short, so that the example is. Real work uses longer ones.
const TTL: Duration = Duration::from_secs(3);

const PATIENCE: Duration = Duration::from_secs(10);
