//! A cache that all hosts read together. A host that finds it out of date upgrades its lock,
//! rebuilds the cache alone, and downgrades the lock to read on.
//!
//! ```text
//! cargo run --example cache
//! cargo run --example cache -- --node 10.0.0.1 --node 10.0.0.2 --node 10.0.0.3
//! ```
//!
//! Without `--node` it starts three embedded nodes. Exit status: 0 on success; 1 on failure, with
//! the reason; 2 if the command line is wrong.

mod nodes;

use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use redbolt::{Client, Config, ConfigError, LockGuard, LockRequest, Wait};

use crate::nodes::{addresses, embedded_nodes};

/// The number of hosts that come for the cache at once, each with its own client.
const HOSTS: usize = 8;

fn main() -> ExitCode {
    let Some(addresses) = addresses(env::args().skip(1)) else {
        eprintln!("usage: cache [--node ADDRESS]...");
        return ExitCode::from(2);
    };
    match tell(addresses) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cache: {error}");
            ExitCode::FAILURE
        }
    }
}

type Outcome<T> = Result<T, Box<dyn Error>>;

fn tell(mut addresses: Vec<String>) -> Outcome<()> {
    // The nodes run as long as this value lives.
    let embedded = if addresses.is_empty() { embedded_nodes(3)? } else { Vec::new() };
    addresses.extend(embedded.iter().map(|node| node.address().to_string()));
    let cache = Cache::default();
    rebuild_alone(&addresses, &cache)?;
    rebuild_after_a_reader(&addresses, &cache)?;
    cache.source.store(3, Ordering::SeqCst);
    at_once(HOSTS, |host| serve(&format!("host {host}"), &connect(&addresses)?, &cache))?;
    println!("{HOSTS} hosts came at once; rebuilt {} times in all", cache.rebuilt());
    Ok(())
}

/// The only reader becomes a writer, and lets others read again without a release in between.
fn rebuild_alone(addresses: &[String], cache: &Cache) -> Outcome<()> {
    let (one, other) = (connect(addresses)?, connect(addresses)?);
    cache.source.store(1, Ordering::SeqCst);
    let lock = look("first", &one, cache)?;
    println!("first is {:?} now", lock.mode());
    serve("second", &other, cache)?;
    println!("first and second have read beside each other");
    done(lock)
}

/// Writes while another client reads for long: releases the shared lock, and waits for an exclusive
/// one.
fn rebuild_after_a_reader(addresses: &[String], cache: &Cache) -> Outcome<()> {
    let (one, other) = (connect(addresses)?, connect(addresses)?);
    let reading = other.acquire(to_read())?;
    cache.source.store(2, Ordering::SeqCst);
    let mut lock = one.acquire(to_read())?;
    if lock.try_upgrade()? {
        return Err("a writer beside a reader".into());
    }
    println!("first is not alone, and goes on to read: {:?}", lock.mode());
    done(lock)?;
    done(reading)?;
    done(look("first", &one, cache)?)
}

/// Reads the cache, as one of the hosts.
fn serve(host: &str, client: &Client, cache: &Cache) -> Outcome<()> {
    let lock = look(host, client, cache)?;
    let value = cache.read()?;
    println!("{host} has read {value}");
    done(lock)
}

/// Returns a lock under which the cache can be read and is up to date.
fn look<'a>(host: &str, client: &'a Client, cache: &Cache) -> Outcome<LockGuard<'a>> {
    let mut lock = client.acquire(to_read())?;
    if cache.is_fresh() {
        return Ok(lock);
    }
    if !lock.try_upgrade()? {
        // Two hosts that waited here for each other's release would wait forever.
        println!("{host} is not alone, and lets go");
        done(lock)?;
        lock = client.acquire(LockRequest::new(RESOURCE).wait(PATIENTLY))?;
    }
    // Another host may have held the lock, and rebuilt the cache, in between.
    if !cache.is_fresh() {
        println!("{host} rebuilds");
        cache.rebuild(&lock)?;
    }
    lock.downgrade()?;
    Ok(lock)
}

fn to_read() -> LockRequest<'static> {
    LockRequest::new(RESOURCE).shared().wait(PATIENTLY)
}

fn done(lock: LockGuard<'_>) -> Outcome<()> {
    lock.release()?;
    Ok(())
}

/// The cached data, in two parts. Only the lock protects it: reading it during a write would return
/// parts that do not belong together.
#[derive(Default)]
struct Cache {
    /// The source of truth, which is slow to read.
    source: AtomicU64,
    parts: [AtomicU64; 2],
    rebuilt: AtomicU64,
}

impl Cache {
    fn is_fresh(&self) -> bool {
        let newest = self.source.load(Ordering::SeqCst);
        self.parts.iter().all(|part| part.load(Ordering::SeqCst) == newest)
    }

    fn rebuild(&self, lock: &LockGuard<'_>) -> Outcome<()> {
        for part in &self.parts {
            // The lock is a lease, so check it before each step.
            if !lock.is_valid() {
                return Err("the lock is over".into());
            }
            part.store(self.source.load(Ordering::SeqCst), Ordering::SeqCst);
            thread::sleep(Duration::from_millis(20));
        }
        self.rebuilt.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn read(&self) -> Outcome<u64> {
        let [one, other] = [0, 1].map(|part: usize| self.parts[part].load(Ordering::SeqCst));
        if one != other {
            return Err(format!("half rebuilt: {one} and {other}").into());
        }
        Ok(one)
    }

    fn rebuilt(&self) -> u64 {
        self.rebuilt.load(Ordering::SeqCst)
    }
}

fn at_once(hosts: usize, work: impl Fn(usize) -> Outcome<()> + Sync) -> Outcome<()> {
    let work = |host| work(host).map_err(|error| error.to_string());
    thread::scope(|scope| {
        let hosts: Vec<_> = (1..=hosts).map(|host| scope.spawn(move || work(host))).collect();
        hosts.into_iter().try_for_each(|host| host.join().map_err(|_| "a host panicked")?)
    })?;
    Ok(())
}

fn connect(addresses: &[String]) -> Outcome<Client> {
    Ok(Client::new(configure(addresses)?)?)
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
    builder.new_nodes().build()
}

const PATIENTLY: Wait = Wait::UpTo(Duration::from_secs(20));
const RESOURCE: &[u8] = b"redbolt-example-cache";
