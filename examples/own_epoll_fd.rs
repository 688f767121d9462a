//! A program whose event loop is independent of redbolt: locks add one file descriptor and one
//! deadline to it. The loop is that of `calloop`, and any other would do.
//!
//! ```text
//! cargo run --example own_epoll_fd
//! cargo run --example own_epoll_fd -- --listen 127.0.0.1:7000 --node 10.0.0.1 --node 10.0.0.2 ...
//! ```
//!
//! It runs jobs, each under a lock of its name that is auto-extended until the job is done. So a
//! job runs on one machine at a time, if all machines run this program. Jobs are requested over
//! UDP:
//!
//! ```text
//! RUN job       RUNNING job, then DONE job, or STOPPED job and reason the lock was lost;
//!              REFUSED job and reason, after at most twenty seconds
//! ```
//!
//! Without `--node` it starts three embedded nodes. With `--listen` it serves until it is killed.
//! Without `--listen`, it sends itself requests over two sockets, and exits with 0 if every answer
//! was as expected.

mod nodes;

use std::collections::HashMap;
use std::env;
use std::error::Error;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use calloop::generic::Generic;
use calloop::ping::make_ping;
use calloop::timer::{TimeoutAction, Timer};
use calloop::{EventLoop, Interest, LoopHandle, Mode, PostAction, RegistrationToken};
use redbolt::{AutoExtend, Config, Driver, Event, LockId, LockRequest, Wait};

use crate::nodes::embedded_nodes;

fn main() -> ExitCode {
    let Some(options) = Options::read(env::args().skip(1)) else {
        eprintln!("usage: own_epoll_fd [--listen ADDRESS] [--node ADDRESS]...");
        return ExitCode::from(2);
    };
    match run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("own_epoll_fd: {error}");
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

    let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
    let socket = UdpSocket::bind(options.listen.unwrap_or(any_port))?;
    let address = socket.local_addr()?;
    println!("listening on {address}");
    let mut event_loop = EventLoop::try_new()?;
    let mut host = Host::start(builder.build()?, socket, &event_loop)?;
    if options.listen.is_some() {
        return host.serve(&mut event_loop);
    }
    let (stop, stopped) = make_ping()?;
    event_loop.handle().insert_source(stopped, |(), _, host| host.is_over = true)?;
    thread::scope(|scope| {
        // This thread ends the loop, also after an error.
        let story = scope.spawn(move || {
            let outcome = tell(address);
            stop.ping();
            outcome
        });
        host.serve(&mut event_loop)?;
        Ok(story.join().map_err(|_| "the story panicked")??)
    })
}

/// The host's server. Its only part of redbolt is `driver`.
struct Host {
    driver: Driver,
    socket: UdpSocket,
    own_loop: LoopHandle<'static, Self>,
    jobs: HashMap<LockId, Job>,
    is_over: bool,
}

struct Job {
    name: String,
    caller: SocketAddr,
    /// The running work: a timer of the host's loop.
    work: Option<RegistrationToken>,
}

impl Host {
    fn start(
        config: Config,
        socket: UdpSocket,
        event_loop: &EventLoop<'static, Self>,
    ) -> Result<Self, Box<dyn Error>> {
        let driver = Driver::new(config)?;
        let own_loop = event_loop.handle();
        // One descriptor covers all connections that the driver waits for. Its callback is empty,
        // because each iteration of the loop ends with `process`.
        let locks = driver.as_fd().try_clone_to_owned()?;
        own_loop.insert_source(Generic::new(locks, Interest::READ, Mode::Level), |_, _, _| {
            Ok(PostAction::Continue)
        })?;
        socket.set_nonblocking(true)?;
        let own = socket.try_clone()?;
        own_loop.insert_source(Generic::new(own, Interest::READ, Mode::Level), |_, _, host| {
            host.converse()?;
            Ok(PostAction::Continue)
        })?;
        Ok(Self { driver, socket, own_loop, jobs: HashMap::new(), is_over: false })
    }

    /// Runs the loop. Redbolt needs three lines in it.
    fn serve(&mut self, event_loop: &mut EventLoop<'static, Self>) -> Result<(), Box<dyn Error>> {
        while !self.is_over {
            // One: sleep no longer than the driver's deadline.
            event_loop.dispatch(self.driver.timeout(), self)?;
            // Two: do the driver's work.
            self.driver.process();
            // Three: take the outcomes.
            while let Some(event) = self.driver.poll_event() {
                self.tell_outcome(event)?;
            }
        }
        self.finish(event_loop)
    }

    /// Reads all datagrams that have arrived.
    fn converse(&mut self) -> io::Result<()> {
        let mut piece = [0; 512];
        loop {
            match self.socket.recv_from(&mut piece) {
                Ok((length, caller)) => {
                    let line = String::from_utf8_lossy(&piece[..length]).trim_end().to_owned();
                    self.obey(caller, &line);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // A caller has closed its socket before its answer was sent.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn obey(&mut self, caller: SocketAddr, line: &str) {
        let Some(name) = line.strip_prefix("RUN ") else {
            return self.send(caller, "WHAT? RUN job");
        };
        // If this process dies, other clients can have the lock after six seconds. The driver
        // extends it as long as the loop calls `process`.
        let request = LockRequest::new(name.as_bytes()).ttl(TTL).wait(Wait::UpTo(PATIENCE));
        match self.driver.acquire(request.auto_extend(AutoExtend::until_released())) {
            Ok(id) => {
                let job = Job { name: name.to_owned(), caller, work: None };
                self.jobs.insert(id, job);
            }
            Err(error) => self.send(caller, &format!("REFUSED {name} {error}")),
        }
    }

    fn tell_outcome(&mut self, event: Event) -> Result<(), Box<dyn Error>> {
        match event {
            Event::Granted(id) => self.begin(id)?,
            Event::Refused(id, refusal) => {
                let reason = self.driver.report(&refusal).to_string();
                self.end(id, "REFUSED", &reason);
            }
            Event::Lost(id, cause) => {
                // A loss is reported before the validity ends, so there is a moment to stop in.
                self.end(id, "STOPPED", &cause.to_string());
                self.driver.release(id);
            }
            Event::Released(id, confirmed) => self.end(id, "DONE", &confirmed.to_string()),
            // These are changes of nodes, and extensions that succeed or are retried.
            _ => {}
        }
        Ok(())
    }

    /// Begins the work, which releases the lock at its end.
    fn begin(&mut self, id: LockId) -> Result<(), Box<dyn Error>> {
        let Some(job) = self.jobs.get_mut(&id) else { return Ok(()) };
        let timer = Timer::from_duration(WORK);
        job.work = Some(self.own_loop.insert_source(timer, move |_, (), host: &mut Self| {
            host.driver.release(id);
            TimeoutAction::Drop
        })?);
        let (caller, line) = (job.caller, format!("RUNNING {}", job.name));
        self.send(caller, &line);
        Ok(())
    }

    fn end(&mut self, id: LockId, word: &str, more: &str) {
        let Some(job) = self.jobs.remove(&id) else { return };
        if let Some(work) = job.work {
            // A timer that has fired has already been removed.
            self.own_loop.remove(work);
        }
        self.send(job.caller, &format!("{word} {} {more}", job.name));
    }

    fn send(&self, caller: SocketAddr, line: &str) {
        // An answer over UDP may get lost.
        let _ = self.socket.send_to(line.as_bytes(), caller);
    }

    /// Releases everything, and waits a moment for the nodes.
    fn finish(&mut self, event_loop: &mut EventLoop<'static, Self>) -> Result<(), Box<dyn Error>> {
        self.jobs.keys().for_each(|id| self.driver.release(*id));
        let until = Instant::now() + PATIENCE;
        while self.driver.has_pending_releases() && Instant::now() < until {
            let wait = self.driver.timeout().map_or(PATIENCE, |deadline| deadline.min(PATIENCE));
            event_loop.dispatch(Some(wait), self)?;
            self.driver.process();
        }
        Ok(())
    }
}

/// Runs two callers, and checks the answers to each.
fn tell(address: SocketAddr) -> io::Result<()> {
    let (ann, ben) = (Caller::new("ann", address)?, Caller::new("ben", address)?);
    ann.say("RUN redbolt-example-job")?;
    ann.hear("RUNNING redbolt-example-job")?;
    // Ben waits while the loop runs another job.
    ben.say("RUN redbolt-example-job")?;
    ann.say("RUN redbolt-example-other-job")?;
    ann.hear("RUNNING redbolt-example-other-job")?;
    ann.hear("DONE redbolt-example-job")?;
    ben.hear("RUNNING redbolt-example-job")?;
    ann.hear("DONE redbolt-example-other-job")?;
    ben.hear("DONE redbolt-example-job")
}

/// A caller that requests jobs.
struct Caller {
    name: &'static str,
    socket: UdpSocket,
}

impl Caller {
    fn new(name: &'static str, address: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.connect(address)?;
        socket.set_read_timeout(Some(2 * PATIENCE))?;
        Ok(Self { name, socket })
    }

    fn say(&self, line: &str) -> io::Result<()> {
        println!("{} > {line}", self.name);
        self.socket.send(line.as_bytes()).map(drop)
    }

    fn hear(&self, expected: &str) -> io::Result<()> {
        let mut piece = [0; 512];
        let length = self.socket.recv(&mut piece)?;
        let line = String::from_utf8_lossy(&piece[..length]);
        println!("{} < {line}", self.name);
        if line.starts_with(expected) {
            return Ok(());
        }
        Err(io::Error::other(format!("{} waited for {expected}", self.name)))
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

/// The time for which RUN waits.
const PATIENCE: Duration = Duration::from_secs(20);
/// The duration of a job: longer than the TTL of its lock.
const WORK: Duration = Duration::from_secs(7);
/// The time for which the nodes keep a lock that is not extended.
const TTL: Duration = Duration::from_secs(6);
