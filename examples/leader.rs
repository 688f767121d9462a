//! Leader election: two candidates, a store that refuses former leaders, and an observer.
//!
//! ```text
//! cargo run --example leader
//! cargo run --example leader -- --node 10.0.0.1 --node 10.0.0.2 --node 10.0.0.3
//! ```
//!
//! Two candidates campaign in one election, as two processes would. The first leads until its term
//! ends, because here no leader may lead for longer than eight seconds. Then it writes once again,
//! like a leader that was paused, and the store refuses the write by its term. The second candidate
//! resigns by itself. An observer prints each leader.
//!
//! Without `--node` it starts three embedded nodes. Exit status: 0 on success; 1 on failure, with
//! the reason; 2 if the command line is wrong.

mod nodes;

use std::env;
use std::error::Error;
use std::io;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use redbolt::leader::Leadership;
use redbolt::{Client, Config, ConfigError, Engine, FencingToken, LockLost, Released};

use crate::nodes::{addresses, embedded_nodes};

fn main() -> ExitCode {
    let Some(addresses) = addresses(env::args().skip(1)) else {
        eprintln!("usage: leader [--node ADDRESS]...");
        return ExitCode::from(2);
    };
    match tell(addresses) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("leader: {error}");
            ExitCode::FAILURE
        }
    }
}

fn tell(mut addresses: Vec<String>) -> Result<(), Box<dyn Error>> {
    // The nodes run as long as this value lives.
    let embedded = if addresses.is_empty() { embedded_nodes(3)? } else { Vec::new() };
    addresses.extend(embedded.iter().map(|node| node.address().to_string()));
    let store = Store::default();

    // Only the first one declares the nodes new.
    let first = Candidate::start("first", configure(&addresses, "first")?, &store)?;
    let lead = first.campaign()?;
    let second = Candidate::start("second", configure(&addresses, "second")?, &store)?;
    let onlooker = Client::new(configure(&addresses, "onlooker")?)?;
    thread::scope(|scope| {
        let observing = scope.spawn(move || observe(&onlooker).map_err(|error| error.to_string()));
        let waiting = scope.spawn(|| {
            // The candidate sleeps until a node notifies it that there is no leader.
            let lead = second.campaign().map_err(|error| error.to_string())?;
            second.lead(lead, Some(30)).map_err(|error| error.to_string())
        });
        // The first leader does not resign: the end of its term deposes it.
        if first.lead(lead, None)?.is_ok() {
            return Err("the first leader's term did not end".into());
        }
        waiting.join().map_err(|_| "the second candidate panicked")???;
        Ok(observing.join().map_err(|_| "the observer panicked")??)
    })
}

/// Prints each leader until the second one has resigned.
fn observe(client: &Client) -> Result<(), Box<dyn Error>> {
    let mut observer = client.observe(RESOURCE)?;
    let mut saw_second = false;
    loop {
        // An observation is a hint: it may be outdated when it is printed.
        let seen = observer.changed(PATIENCE).ok_or("nothing changes")?;
        println!("seen: {seen}");
        match seen.leader() {
            Some(leader) => saw_second |= leader.label.as_deref() == Some("second"),
            None if saw_second => return Ok(()),
            None => {}
        }
    }
}

/// The store to which leaders write. A database does the same with a condition in each write.
#[derive(Default)]
struct Store {
    largest_term: AtomicU64,
}

impl Store {
    /// Returns `true` if it accepted the write of the leader in this term.
    fn write(&self, term: FencingToken) -> bool {
        self.largest_term.fetch_max(term.get(), Ordering::SeqCst) <= term.get()
    }
}

struct Candidate<'s> {
    name: &'static str,
    engine: Engine,
    store: &'s Store,
}

impl<'s> Candidate<'s> {
    fn start(name: &'static str, config: Config, store: &'s Store) -> io::Result<Self> {
        Ok(Self { name, engine: Engine::new(config)?, store })
    }

    /// Waits until it is elected.
    fn campaign(&self) -> Result<Leadership, Box<dyn Error>> {
        // The TTL bounds how long it still leads if this process dies, and `hold_at_most` how long
        // it may lead at all.
        let campaign = self.engine.lock(RESOURCE).ttl(TTL).hold_at_most(TERM).wait(PATIENCE);
        let lead = campaign.campaign().wait()?;
        println!("{} leads in term {}", self.name, lead.term());
        Ok(lead)
    }

    /// Works in steps until it has completed all of them, or has lost the lead.
    fn lead(
        &self,
        lead: Leadership,
        steps: Option<u32>,
    ) -> Result<Result<Released, LockLost>, Box<dyn Error>> {
        let (tell, told) = mpsc::channel();
        lead.on_loss(move |cause| {
            let _ = tell.send(cause);
        });
        let (term, mut done) = (lead.term(), 0);
        while steps.is_none_or(|steps| done < steps) {
            // This wait is the work. A loss interrupts it, and is reported before the validity
            // ends, so that there is a moment to stop in.
            match told.recv_timeout(STEP) {
                Ok(cause) => {
                    println!("{} stops: {cause}", self.name);
                    break;
                }
                Err(RecvTimeoutError::Timeout) if self.store.write(term) => done += 1,
                Err(RecvTimeoutError::Timeout) => return Err("a later leader has written".into()),
                Err(RecvTimeoutError::Disconnected) => return Err("nobody tells".into()),
            }
        }
        println!("{} has done some work: {}", self.name, done > 0);
        let outcome = lead.resign().wait();
        match &outcome {
            Ok(_) => println!("{} steps down", self.name),
            Err(lost) => {
                println!("{} is deposed: {lost}", self.name);
                self.write_late(term)?;
            }
        }
        Ok(outcome)
    }

    /// Writes like a leader that was paused and has not noticed the end of its term.
    fn write_late(&self, term: FencingToken) -> Result<(), Box<dyn Error>> {
        for _ in 0..PATIENCE.as_millis() / STEP.as_millis() {
            thread::sleep(STEP);
            if !self.store.write(term) {
                println!("{} writes late, and is refused", self.name);
                return Ok(());
            }
        }
        Err("no later leader has written".into())
    }
}

fn configure(addresses: &[String], label: &str) -> Result<Config, ConfigError> {
    // A node that takes longer than this to answer fails its vote. In your own network, choose
    // less.
    let mut builder = Config::builder().response_timeout(Duration::from_secs(5));
    for address in addresses {
        builder = builder.node(address);
    }
    // This is only for nodes that are really new. In production an operator runs `redbolt init`,
    // once.
    builder.new_nodes().label(label).build()
}

const RESOURCE: &[u8] = b"redbolt-example-leader";
/// The time for which a leader that has died still leads.
const TTL: Duration = Duration::from_secs(4);
/// The longest that a leader may lead.
const TERM: Duration = Duration::from_secs(8);
/// The time for which a candidate waits.
const PATIENCE: Duration = Duration::from_secs(20);
/// The length of a step of work.
const STEP: Duration = Duration::from_millis(100);
