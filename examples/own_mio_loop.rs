//! A server that locks in its own mio loop, without another thread.
//!
//! ```text
//! cargo run --example own_mio_loop
//! cargo run --example own_mio_loop -- --listen 127.0.0.1:7000 --node 10.0.0.1 --node 10.0.0.2 ...
//! ```
//!
//! It serves lines over TCP. A lock belongs to the connection that requested it, and ends with it:
//!
//! ```text
//! LOCK key      GRANTED key ... or REFUSED key ..., after at most six seconds;
//!               LOST key, if the lock is lost
//! UNLOCK key    RELEASED key ... or UNKNOWN key
//! STATUS        STATUS ..., which nodes can vote, and how many notify waiters
//! ```
//!
//! Connections of this server that want the same key get it in the order of their requests. If a
//! client elsewhere holds the key, the server does not poll: a node notifies it of the change.
//!
//! Without `--node` it starts three embedded nodes. With `--listen` it serves until it is killed.
//! Without `--listen`, it sends itself requests over two connections, competes with another client,
//! and exits with 0 if every answer was as expected.

mod nodes;

use std::collections::HashMap;
use std::env;
use std::error::Error;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Waker};
use redbolt::{
    Config, Driver, Event, LockId, LockRequest, Wait,
    report::{NodeStatus, PushState},
};

use crate::nodes::embedded_nodes;

fn main() -> ExitCode {
    let Some(options) = Options::read(env::args().skip(1)) else {
        eprintln!("usage: own_mio_loop [--listen ADDRESS] [--node ADDRESS]...");
        return ExitCode::from(2);
    };
    match run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("own_mio_loop: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(mut options: Options) -> Result<(), Box<dyn Error>> {
    // The nodes run as long as this value lives.
    let embedded = if options.nodes.is_empty() { embedded_nodes(3)? } else { Vec::new() };
    options.nodes.extend(embedded.iter().map(|node| node.address().to_string()));
    // These nodes are new: they are embedded, or were created for this example. In production an
    // operator declares that once, with `redbolt init`.
    let mut builder = Config::builder().response_timeout(Duration::from_secs(5)).new_nodes();
    for node in &options.nodes {
        builder = builder.node(node);
    }
    let config = builder.build()?;

    let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut host = Host::start(config.clone(), options.listen.unwrap_or(any_port))?;
    let address = host.listener.local_addr()?;
    println!("listening on {address}");
    if options.listen.is_some() {
        return Ok(host.serve()?);
    }
    let waker = Waker::new(host.poll.registry(), STOP)?;
    thread::scope(|scope| {
        // This thread ends the loop, also after an error.
        let story = scope.spawn(|| {
            let outcome = tell(address, config);
            let _ = waker.wake();
            outcome
        });
        host.serve()?;
        Ok(story.join().map_err(|_| "the story panicked")??)
    })
}

/// The host's server. Its only part of redbolt is `driver`.
struct Host {
    poll: Poll,
    listener: TcpListener,
    driver: Driver,
    clients: HashMap<mio::Token, Client>,
    next_client: usize,
    /// The connection of each requested or held lock.
    locks: HashMap<LockId, (mio::Token, String)>,
}

impl Host {
    fn start(config: Config, listen: SocketAddr) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mut listener = TcpListener::bind(listen)?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        // The driver gets a range of the host's tokens, and the host uses those after it.
        let end = FIRST_FREE + Driver::tokens_needed(&config);
        let driver = Driver::in_registry(config, poll.registry(), FIRST_FREE..end)?;
        let (clients, locks) = (HashMap::new(), HashMap::new());
        Ok(Self { poll, listener, driver, clients, next_client: end, locks })
    }

    /// Runs the loop. Redbolt needs four lines in it.
    fn serve(&mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(64);
        loop {
            // One: sleep no longer than the driver's deadline.
            sleep(&mut self.poll, &mut events, self.driver.timeout())?;
            for event in &events {
                match event.token() {
                    // Two: pass the driver's events on.
                    _ if self.driver.on_event(event) => {}
                    STOP => return self.finish(),
                    LISTENER => self.accept()?,
                    client => self.converse(client),
                }
            }
            // Three: do the driver's work.
            self.driver.process();
            // Four: take the outcomes.
            while let Some(event) = self.driver.poll_event() {
                self.tell_outcome(event);
            }
        }
    }

    /// Executes a command. It returns at once; the outcome is an event of a later iteration.
    fn obey(&mut self, client: mio::Token, line: &str) {
        match line.split_once(' ') {
            Some(("LOCK", key)) if self.lock_of(client, key).is_some() => {
                self.send(client, &format!("REFUSED {key} you have it, or wait for it"));
            }
            Some(("LOCK", key)) => {
                let request = LockRequest::new(key.as_bytes()).wait(Wait::UpTo(PATIENCE));
                match self.driver.acquire(request) {
                    Ok(id) => drop(self.locks.insert(id, (client, key.to_owned()))),
                    Err(error) => self.send(client, &format!("REFUSED {key} {error}")),
                }
            }
            Some(("UNLOCK", key)) => match self.lock_of(client, key) {
                Some(id) => self.driver.release(id),
                None => self.send(client, &format!("UNKNOWN {key}")),
            },
            None if line == "STATUS" => {
                let nodes = self.driver.node_report();
                let tells = |node: &&NodeStatus| node.push == PushState::Active;
                let telling = nodes.nodes.iter().filter(tells).count();
                let told = if telling > 0 { "told" } else { "not told" };
                self.send(client, &format!("STATUS {told} of changes; {nodes}"));
            }
            _ => self.send(client, "WHAT? LOCK key, UNLOCK key or STATUS"),
        }
    }

    fn tell_outcome(&mut self, event: Event) {
        let (id, word, more) = match event {
            Event::Granted(id) => (id, "GRANTED", format!("for {:.1?}", self.driver.remaining(id))),
            Event::Refused(id, refusal) => {
                (id, "REFUSED", self.driver.report(&refusal).to_string())
            }
            Event::Released(id, confirmed) => (id, "RELEASED", confirmed.to_string()),
            Event::Lost(id, cause) => {
                // The loss sent nothing. The release deletes the keys that are left on the nodes.
                self.driver.release(id);
                (id, "LOST", cause.to_string())
            }
            // These are changes of nodes, and extensions, which this server does not use.
            _ => return,
        };
        let Some((client, key)) = self.locks.get(&id).cloned() else { return };
        if !matches!(event, Event::Granted(_)) {
            self.locks.remove(&id);
        }
        self.send(client, &format!("{word} {key} {more}"));
    }

    fn lock_of(&self, client: mio::Token, key: &str) -> Option<LockId> {
        let mut locks = self.locks.iter();
        locks.find(|(_, (owner, name))| *owner == client && name == key).map(|(id, _)| *id)
    }

    fn accept(&mut self) -> io::Result<()> {
        // An error of `accept` concerns one connection, or is temporary.
        while let Ok((mut stream, _)) = self.listener.accept() {
            let token = mio::Token(self.next_client);
            self.next_client += 1;
            let both = Interest::READABLE | Interest::WRITABLE;
            self.poll.registry().register(&mut stream, token, both)?;
            self.clients.insert(token, Client { stream, received: Vec::new(), unsent: Vec::new() });
        }
        Ok(())
    }

    /// Reads what a client has sent and executes each line.
    fn converse(&mut self, token: mio::Token) {
        let Some(client) = self.clients.get_mut(&token) else { return };
        let open = client.receive().is_ok() && client.flush().is_ok();
        while let Some(line) = self.clients.get_mut(&token).and_then(Client::line) {
            self.obey(token, &line);
        }
        if !open {
            self.clients.remove(&token);
            for (id, _) in self.locks.iter().filter(|(_, (owner, _))| *owner == token) {
                self.driver.release(*id);
            }
        }
    }

    fn send(&mut self, client: mio::Token, line: &str) {
        // The next read notices a client that has disconnected.
        let Some(client) = self.clients.get_mut(&client) else { return };
        client.unsent.extend_from_slice(line.as_bytes());
        client.unsent.push(b'\n');
        let _ = client.flush();
    }

    /// Releases everything, and waits a moment for the nodes.
    fn finish(&mut self) -> io::Result<()> {
        self.locks.keys().for_each(|id| self.driver.release(*id));
        let until = Instant::now() + PATIENCE;
        let mut events = Events::with_capacity(64);
        while self.driver.has_pending_releases() && Instant::now() < until {
            let wait = self.driver.timeout().map_or(PATIENCE, |deadline| deadline.min(PATIENCE));
            sleep(&mut self.poll, &mut events, Some(wait))?;
            for event in &events {
                self.driver.on_event(event);
            }
            self.driver.process();
        }
        Ok(())
    }
}

/// Sleeps until an event or the deadline. A signal that interrupts the poll is not an error.
fn sleep(poll: &mut Poll, events: &mut Events, longest: Option<Duration>) -> io::Result<()> {
    match poll.poll(events, longest) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
        polled => polled,
    }
}

/// A connection of a client.
struct Client {
    stream: TcpStream,
    received: Vec<u8>,
    unsent: Vec<u8>,
}

impl Client {
    /// Reads all that has arrived. The end of the stream is an error, and so is a client that sends
    /// no line ends or reads no answers.
    fn receive(&mut self) -> io::Result<()> {
        let mut piece = [0; 512];
        while self.received.len() + self.unsent.len() < MAX_KEPT {
            match self.stream.read(&mut piece) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => self.received.extend_from_slice(&piece[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::InvalidData.into())
    }

    fn line(&mut self) -> Option<String> {
        let end = self.received.iter().position(|byte| *byte == b'\n')?;
        let line: Vec<u8> = self.received.drain(..=end).collect();
        Some(String::from_utf8_lossy(&line).trim_end().to_owned())
    }

    fn flush(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(length) => drop(self.unsent.drain(..length)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Runs two connections and a client elsewhere, and checks the answers to each.
fn tell(address: SocketAddr, config: Config) -> Result<(), String> {
    tell_of_two(address).map_err(|error| error.to_string())?;
    let elsewhere = redbolt::Client::new(config).map_err(|error| error.to_string())?;
    let request = LockRequest::new("redbolt-example").wait(Wait::UpTo(PATIENCE));
    let lock = elsewhere.acquire(request).map_err(|error| error.to_string())?;
    println!("a client elsewhere has it");
    let told = tell_of_one_who_is_told(address, || {
        println!("the client elsewhere: {:?}", lock.release());
    });
    told.map_err(|error| error.to_string())
}

/// Lets ann wait, without polling, until a node notifies that the key has changed.
fn tell_of_one_who_is_told(address: SocketAddr, release: impl FnOnce()) -> io::Result<()> {
    let mut ann = Caller::new("ann", address)?;
    ann.say("LOCK redbolt-example")?;
    let until = Instant::now() + PATIENCE / 2;
    loop {
        ann.say("STATUS")?;
        match ann.hear("STATUS told of changes") {
            // On Redis before version 6, or for a user who may not subscribe, only the timer ends
            // the wait.
            Err(error) if Instant::now() > until => println!("nobody tells: {error}"),
            Err(_) => {
                thread::sleep(Duration::from_millis(20));
                continue;
            }
            Ok(()) => {}
        }
        break;
    }
    release();
    ann.hear("GRANTED redbolt-example")
}

fn tell_of_two(address: SocketAddr) -> io::Result<()> {
    let (mut ann, mut ben) = (Caller::new("ann", address)?, Caller::new("ben", address)?);
    ann.say("LOCK redbolt-example")?;
    ann.hear("GRANTED redbolt-example")?;
    // Ben waits, and the loop continues.
    ben.say("LOCK redbolt-example")?;
    ann.say("STATUS")?;
    ann.hear("STATUS")?;
    ann.say("UNLOCK redbolt-example")?;
    ann.hear("RELEASED redbolt-example")?;
    ben.hear("GRANTED redbolt-example")?;
    // Now ann's wait runs out.
    ann.say("LOCK redbolt-example")?;
    ann.hear("REFUSED redbolt-example")?;
    ann.say("UNLOCK redbolt-example")?;
    ann.hear("UNKNOWN redbolt-example")?;
    // Ben's lock ends with ben's connection.
    ben.leave();
    ann.say("LOCK redbolt-example")?;
    ann.hear("GRANTED redbolt-example")?;
    ann.leave();
    Ok(())
}

/// A client's end of a connection to the host.
struct Caller {
    name: &'static str,
    stream: BufReader<std::net::TcpStream>,
}

impl Caller {
    fn new(name: &'static str, address: SocketAddr) -> io::Result<Self> {
        let stream = std::net::TcpStream::connect(address)?;
        stream.set_read_timeout(Some(5 * PATIENCE))?;
        Ok(Self { name, stream: BufReader::new(stream) })
    }

    fn say(&mut self, line: &str) -> io::Result<()> {
        println!("{} > {line}", self.name);
        self.stream.get_mut().write_all(format!("{line}\n").as_bytes())
    }

    fn hear(&mut self, expected: &str) -> io::Result<()> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        println!("{} < {}", self.name, line.trim_end());
        if line.starts_with(expected) {
            return Ok(());
        }
        Err(io::Error::other(format!("{} waited for {expected}", self.name)))
    }

    fn leave(self) {
        println!("{} leaves", self.name);
    }
}

#[derive(Default)]
struct Options {
    listen: Option<SocketAddr>,
    nodes: Vec<String>,
}

impl Options {
    fn read(mut args: impl Iterator<Item = String>) -> Option<Self> {
        let mut options = Self::default();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--listen" => options.listen = Some(args.next()?.parse().ok()?),
                "--node" => options.nodes.push(args.next()?),
                _ => return None,
            }
        }
        Some(options)
    }
}

/// The time for which LOCK waits.
const PATIENCE: Duration = Duration::from_secs(6);
/// The largest number of bytes that are buffered for a client.
const MAX_KEPT: usize = 64 << 10;

const LISTENER: mio::Token = mio::Token(0);
const STOP: mio::Token = mio::Token(1);
const FIRST_FREE: usize = 2;
