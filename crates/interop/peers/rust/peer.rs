//! The common part of all peers in Rust: they read commands on standard input, one per line.

use std::error::Error;
use std::io::{self, BufRead};
use std::thread::sleep;
use std::time::{Duration, Instant};

pub type Outcome<T> = Result<T, Box<dyn Error>>;

/// A library. TTLs are in milliseconds.
pub trait Adapter {
    /// Tries once to get the lock, and returns `true` if it did.
    fn attempt(&mut self, name: &str, ttl: usize) -> Outcome<bool>;
    fn release(&mut self, name: &str) -> Outcome<()>;
    fn extend(&mut self, name: &str, ttl: usize) -> Outcome<()>;
}

/// Returns the addresses of the nodes.
pub fn addresses() -> Vec<String> {
    std::env::args().skip(1).map(|address| format!("redis://{address}")).collect()
}

/// Executes commands until the input ends. Counters are on the first node.
pub fn serve(it: &mut impl Adapter) -> Outcome<()> {
    let mut counters = redis::Client::open(addresses().remove(0))?.get_connection()?;
    for line in io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<_> = line.split(' ').collect();
        let reply = obey(it, &mut counters, &words);
        let reply = reply.unwrap_or_else(|error| format!("failed {error}"));
        println!("{}", reply.replace('\n', " "));
    }
    Ok(())
}

fn acquire(it: &mut impl Adapter, name: &str, wait: u64, ttl: usize) -> Outcome<bool> {
    let until = Instant::now() + Duration::from_millis(wait);
    loop {
        if it.attempt(name, ttl)? {
            return Ok(true);
        } else if Instant::now() >= until {
            return Ok(false);
        }
        sleep(Duration::from_millis(10));
    }
}

fn obey(
    it: &mut impl Adapter,
    counters: &mut redis::Connection,
    words: &[&str],
) -> Outcome<String> {
    let reply = match *words {
        ["acquire", name, wait, ttl] => match acquire(it, name, wait.parse()?, ttl.parse()?)? {
            true => "held",
            false => "busy",
        },
        ["release", name] => it.release(name).map(|()| "released")?,
        ["extend", name, ttl] => it.extend(name, ttl.parse()?).map(|()| "extended")?,
        ["release-lost", name] => match it.release(name) {
            Ok(()) => "released",
            Err(error) => return Ok(format!("refused {error}")),
        },
        ["count", name, counter, turns, ttl] => {
            return count(it, counters, (name, counter), turns.parse()?, ttl.parse()?);
        }
        _ => "failed no such order",
    };
    Ok(reply.to_owned())
}

/// Reads, waits and writes under the lock, which alone protects the counter.
fn count(
    it: &mut impl Adapter,
    counters: &mut redis::Connection,
    (name, counter): (&str, &str),
    turns: u64,
    ttl: usize,
) -> Outcome<String> {
    let mut contended = 0;
    for turn in 0..turns {
        if !acquire(it, name, 0, ttl)? {
            contended += 1;
            if !acquire(it, name, 60_000, ttl)? {
                return Ok("failed not within a minute".to_owned());
            }
        }
        let value: Option<u64> = redis::cmd("GET").arg(counter).query(counters)?;
        sleep(Duration::from_micros(turn % 4 * 700));
        let () = redis::cmd("SET").arg(counter).arg(value.unwrap_or(0) + 1).query(counters)?;
        it.release(name)?;
        sleep(Duration::from_micros(turn % 5 * 700));
    }
    Ok(format!("counted {contended}"))
}
