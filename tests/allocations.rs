//! In steady state nothing is allocated: taking, extending and releasing locks reuses what earlier
//! locks left behind.
//!
//! A test binary of its own, because the counting allocator is that of the whole program. It counts
//! per thread, so the servers' helper threads and other tests do not disturb. The counts are exact:
//! one allocation in ten thousand locks is a failure.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::{Duration, Instant};

use redbolt::{
    AcquireError, Ask, Client, Config, Driver, Ending, Engine, EngineLimits, Event, LockId,
};
use redbolt_proving::{Server, servers};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

#[test]
fn the_counter_counts() {
    let counted = allocation_counter::measure(|| drop(Ask::new(b"a").and(b"b")));
    assert_eq!(counted.count_total, 1, "the list of further resources");
}

#[test]
fn a_client_does_not_allocate() {
    for n in SIZES {
        let servers = servers(n);
        let mut client = Client::new(initialised(&servers)).unwrap();
        assert_eq!(client.warm_up(PATIENCE).ready(), n);
        // Every node answers in order, so an inspection that is complete has all earlier answers.
        let catch_up = |client: &mut Client| drop(client.inspect(b"job").unwrap());
        let kinds = [client_pairs, client_fenced_pairs, client_extensions];
        none_in_steady_state(&servers, &mut client, catch_up, &kinds);
    }
}

#[test]
fn a_driver_with_its_own_epoll_does_not_allocate() {
    for n in SIZES {
        let servers = servers(n);
        let driver = Driver::new(initialised(&servers)).unwrap();
        driver_does_not_allocate(&servers, &mut Host { driver, poll: None });
    }
}

#[test]
fn a_driver_in_its_hosts_loop_does_not_allocate() {
    for n in SIZES {
        let servers = servers(n);
        let config = initialised(&servers);
        let poll = mio::Poll::new().unwrap();
        let tokens = 100..100 + Driver::tokens_needed(&config);
        let driver = Driver::in_registry(config, poll.registry(), tokens).unwrap();
        let poll = Some((poll, mio::Events::with_capacity(64)));
        driver_does_not_allocate(&servers, &mut Host { driver, poll });
    }
}

/// Whoever calls an engine allocates what outlives the call: the lock's slot and the name of its
/// resource, and a reply for each extension. What is handed over costs nothing more.
#[test]
fn an_engine_s_caller_allocates_slots_only() {
    let servers = servers(3);
    let engine = Engine::start(initialised(&servers), EngineLimits::default()).unwrap();
    let pairs = || {
        for _ in 0..LAG {
            let guard = acquired(engine.acquire(Ask::new(b"job")).wait());
            assert!(matches!(guard.release().wait(), Ending::Released(_)));
        }
    };
    let extensions = || {
        let guard = acquired(engine.acquire(Ask::new(b"job")).wait());
        for _ in 0..LAG {
            guard.extend(Duration::from_secs(10)).wait().unwrap();
        }
        drop(guard);
    };
    pairs();
    extensions();
    for _ in 0..TIMES / LAG {
        let per_lock = allocation_counter::measure(pairs).count_total;
        assert_eq!(per_lock, 2 * LAG as u64);
        let per_extension = allocation_counter::measure(extensions).count_total;
        assert_eq!(per_extension, 2 + LAG as u64);
    }
}

fn driver_does_not_allocate(servers: &[Server], host: &mut Host) {
    host.step_until(|driver| driver.nodes().ready() == servers.len());
    let kinds = [Host::pairs, Host::fenced_pairs, Host::extensions, Host::denials];
    none_in_steady_state(servers, host, Host::catch_up, &kinds);
}

/// Counts allocations in each kind of work, which is given how often to do it.
///
/// On a busy machine a node falls behind now and then, and then more is under way than ever before.
/// That is growth, not steady state. So each node that a quorum can spare is silent once before
/// anything is counted, and while it is counted, all nodes catch up before as much is under way.
fn none_in_steady_state<T>(
    servers: &[Server],
    holder: &mut T,
    catch_up: fn(&mut T),
    kinds: &[fn(&mut T, usize)],
) {
    for server in servers {
        if servers.len() > 1 {
            server.pause();
        }
        kinds.iter().for_each(|work| work(holder, LAG));
        server.resume();
        catch_up(holder);
    }
    for work in kinds {
        for _ in 0..TIMES / LAG {
            let counted = allocation_counter::measure(|| work(holder, LAG));
            let counted = (counted.count_total, counted.bytes_total);
            assert_eq!(counted, (0, 0), "{} nodes", servers.len());
            catch_up(holder);
        }
    }
}

fn client_pairs(client: &mut Client, pairs: usize) {
    for _ in 0..pairs {
        let lock = acquired(client.acquire(Ask::new(b"job")));
        assert!(matches!(lock.release(), Ending::Released(_)));
    }
}

fn client_fenced_pairs(client: &mut Client, pairs: usize) {
    for _ in 0..pairs {
        let lock = acquired(client.acquire(Ask::new(b"job").fenced()));
        assert!(lock.fencing_token().is_some());
        assert!(matches!(lock.release(), Ending::Released(_)));
    }
}

fn client_extensions(client: &mut Client, extensions: usize) {
    let mut lock = acquired(client.acquire(Ask::new(b"job")));
    for _ in 0..extensions {
        lock.extend(Duration::from_secs(10)).unwrap();
    }
    assert!(matches!(lock.release(), Ending::Released(_)));
}

fn acquired<T>(outcome: Result<T, AcquireError>) -> T {
    outcome.unwrap_or_else(|error| panic!("not granted: {error}"))
}

/// A program with a loop of its own, and a driver in it.
struct Host {
    driver: Driver,
    /// `None`: the driver has an epoll of its own, of which the host sees the descriptor.
    poll: Option<(mio::Poll, mio::Events)>,
}

impl Host {
    fn pairs(&mut self, pairs: usize) {
        for _ in 0..pairs {
            let id = self.acquire();
            self.release(id);
        }
    }

    fn fenced_pairs(&mut self, pairs: usize) {
        for _ in 0..pairs {
            let id = self.driver.acquire(&Ask::new(b"job").fenced()).unwrap();
            assert_eq!(self.outcome(), Event::Granted(id));
            assert!(self.driver.fencing_token(id).is_some());
            self.release(id);
        }
    }

    fn extensions(&mut self, extensions: usize) {
        let id = self.acquire();
        for _ in 0..extensions {
            self.driver.extend(id, Duration::from_secs(10)).unwrap();
            assert_eq!(self.outcome(), Event::Extended(id));
        }
        self.release(id);
    }

    /// Attempts on a resource that is held, each with its undo.
    fn denials(&mut self, denials: usize) {
        let held = self.acquire();
        for _ in 0..denials {
            let id = self.driver.acquire(&Ask::new(b"job")).unwrap();
            assert!(matches!(self.outcome(), Event::Refused(of, _) if of == id));
        }
        self.release(held);
    }

    fn catch_up(&mut self) {
        self.step_until(|driver| !driver.owes());
    }

    fn step_until(&mut self, reached: impl Fn(&Driver) -> bool) {
        let until = Instant::now() + 2 * PATIENCE;
        while !reached(&self.driver) {
            assert!(Instant::now() < until, "the nodes do not answer: {:?}", self.driver.nodes());
            self.step();
        }
    }

    fn acquire(&mut self) -> LockId {
        let id = self.driver.acquire(&Ask::new(b"job")).unwrap();
        assert_eq!(self.outcome(), Event::Granted(id));
        id
    }

    fn release(&mut self, id: LockId) {
        self.driver.release(id);
        assert!(matches!(self.outcome(), Event::Released(of, _) if of == id));
    }

    fn outcome(&mut self) -> Event {
        loop {
            match self.driver.poll_event() {
                Some(Event::Node(..)) => {}
                Some(event) => return event,
                None => self.step(),
            }
        }
    }

    /// Waits until there is something to do, and has the driver do it.
    fn step(&mut self) {
        let timeout = self.driver.deadline().unwrap_or(PATIENCE);
        match &mut self.poll {
            Some((poll, events)) => {
                poll.poll(events, Some(timeout)).unwrap();
                for event in &*events {
                    assert!(self.driver.on_event(event));
                }
            }
            None => {
                let timeout = Timespec::try_from(timeout).unwrap();
                poll(&mut [PollFd::new(&self.driver, PollFlags::IN)], Some(&timeout)).unwrap();
            }
        }
        self.driver.turn();
    }
}

/// A configuration of nodes that have just been made.
fn initialised(servers: &[Server]) -> Config {
    let config = config(servers);
    redbolt::init(&config, PATIENCE).unwrap();
    config
}

fn config(servers: &[Server]) -> Config {
    let builder = Config::builder();
    let builder = builder.answer_within(PATIENCE).connect_within(PATIENCE).dead_after(2 * PATIENCE);
    let add = |builder: redbolt::ConfigBuilder, server: &Server| builder.node(&server.address());
    servers.iter().try_fold(builder, add).unwrap().build().unwrap()
}

const SIZES: [usize; 3] = [1, 3, 5];

/// How often each kind of work is done.
const TIMES: usize = 10_000;

/// The most locks that a node can be behind with.
const LAG: usize = 100;

/// Far longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(5);
