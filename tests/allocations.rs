//! Nothing is allocated in steady state: acquiring, extending and releasing locks reuses the memory
//! of earlier locks.
//!
//! This is a separate test binary, because the counting allocator is that of the whole program. It
//! counts per thread, so the servers' helper threads and other tests do not disturb. The counts are
//! exact: one allocation in ten thousand locks is a failure.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{ErrorKind, Read, Write};
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use redbolt::{
    AcquireError, AutoExtend, Client, Config, ConfigBuilder, Driver, Engine, Event, LockId,
    LockRequest, Wait,
    config::WakeStrategy,
    report::{LockState, PushState},
};
use redbolt_test_servers::{Server, on_a_real_clock, servers};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

#[test]
fn the_allocation_counter_works() {
    let counted = allocation_counter::measure(|| drop(LockRequest::new(b"a").and(b"b")));
    assert_eq!(counted.count_total, 1, "the list of further resources is allocated");
}

#[test]
fn a_client_does_not_allocate() {
    for n in SIZES {
        on_a_real_clock(NO_STALL, || {
            let servers = servers(n);
            client_does_not_allocate(&servers, initialised(&servers));
        });
    }
}

#[test]
fn a_client_that_spins_does_not_allocate() {
    for n in SIZES {
        on_a_real_clock(NO_STALL, || {
            let servers = servers(n);
            redbolt::init(&config(&servers), PATIENCE).unwrap();
            let config = builder(&servers).busy_poll(Duration::from_micros(200)).build().unwrap();
            client_does_not_allocate(&servers, config);
        });
    }
}

/// rustls allocates for each record that it writes or reads, and redbolt adds nothing: a pair is
/// two records to each node and two back.
#[cfg(feature = "tls")]
#[test]
fn over_tls_only_records_are_allocated() {
    for n in SIZES {
        let servers = redbolt_test_servers::servers_over_tls(n);
        let builder = builder_of(servers.iter().map(Server::tls_address));
        let config = builder.tls_ca(servers[0].authority().ca()).build().unwrap();
        redbolt::init(&config, PATIENCE).unwrap();
        let mut client = Client::new(config).unwrap();
        assert_eq!(client.warm_up(PATIENCE).ready(), n);
        client_pairs(&mut client, LAG);
        let counted = allocation_counter::measure(|| client_pairs(&mut client, TIMES));
        let of_a_pair = counted.count_total as f64 / TIMES as f64;
        println!("{n} nodes: {of_a_pair:.2} allocations for a pair over TLS");
        // Answers may come together, and lists grow now and then.
        assert!(of_a_pair <= (4 * n) as f64 + 1.0, "{of_a_pair} for {n} nodes");
    }
}

#[test]
fn a_driver_with_its_own_epoll_does_not_allocate() {
    for n in SIZES {
        let servers = servers(n);
        let driver = Driver::new(initialised(&servers)).unwrap();
        driver_does_not_allocate(&servers, &mut Host::with(driver));
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
        driver_does_not_allocate(&servers, &mut Host { driver, poll, own: None });
    }
}

/// The host serves other connections in the same loop.
#[test]
fn a_driver_with_other_sockets_in_its_loop_does_not_allocate() {
    for n in SIZES {
        let servers = servers(n);
        let config = initialised(&servers);
        let poll = mio::Poll::new().unwrap();
        let tokens = 100..100 + Driver::tokens_needed(&config);
        let driver = Driver::in_registry(config, poll.registry(), tokens).unwrap();
        let own = Own::in_registry(poll.registry());
        let poll = Some((poll, mio::Events::with_capacity(64)));
        let mut host = Host { driver, poll, own: Some(own) };
        host.step_until(|driver| driver.node_report().ready() == n);
        let kinds = [Host::served_pairs, Host::auto_extensions];
        none_in_steady_state(&servers, &mut host, Host::catch_up, &kinds);
    }
}

/// Each of two drivers in one loop waits for the lock that the other holds, until a node notifies
/// it. Without a queue on the nodes, that allocates nothing.
#[test]
fn notified_waiters_do_not_allocate() {
    for n in SIZES {
        let counts = of_hand_offs(n, WakeStrategy::Lead);
        // A node that becomes a lead for the first time opens a push link, and one that is slower
        // than ever before has more requests in flight. An allocation per hand-off would appear in
        // every batch.
        let growing = counts.iter().filter(|&&count| count > 0).count();
        assert!(growing <= BATCHES / 5, "{n} nodes: {counts:?}");
    }
}

/// A wait allocates a ticket, the places that the nodes report, and the parts of a request that
/// carry both, independently of the number of nodes and requests.
#[test]
fn a_wait_in_the_queue_allocates_a_few_times() {
    for n in SIZES {
        let counts = of_hand_offs(n, WakeStrategy::Queue);
        let growing =
            counts.iter().filter(|&&count| count > A_WAIT_IN_QUEUE * BATCH as u64).count();
        assert!(growing <= BATCHES / 5, "{n} nodes: {counts:?}");
    }
}

/// Returns the allocations of batches of hand-offs.
fn of_hand_offs(n: usize, wake: WakeStrategy) -> Vec<u64> {
    let servers = servers(n);
    redbolt::init(&config(&servers), PATIENCE).unwrap();
    let config = builder(&servers).wake(wake).build().unwrap();
    let [one, other] = [(); 2].map(|()| {
        let mut host = Host::with(Driver::new(config.clone()).unwrap());
        host.step_until(|driver| driver.node_report().ready() == n);
        host
    });
    let mut both = Both { hosts: [one, other], holder: None };
    both.hand_offs(LAG);
    // These are as many nodes as a quorum can spare.
    for server in &servers[n / 2 + 1..] {
        server.pause();
        both.hand_offs(2 * BATCH);
        server.resume();
        both.catch_up();
    }
    // The push links open during the hand-offs, which wait for a majority only.
    let push_of = |host: &Host| host.driver.node_report().nodes[0].push;
    let report = |both: &Both| both.hosts.each_ref().map(push_of) == [PushState::Active; 2];
    let until = Instant::now() + PATIENCE;
    while !report(&both) {
        assert!(Instant::now() < until, "{:#?}", both.hosts.each_ref().map(push_of));
        both.hand_offs(1);
    }
    let batch = || {
        both.catch_up();
        allocation_counter::measure(|| both.hand_offs(BATCH)).count_total
    };
    let counts: Vec<u64> = std::iter::repeat_with(batch).take(BATCHES).collect();
    println!("{n} nodes, {wake:?}: allocations in batches of {BATCH} hand-offs: {counts:?}");
    counts
}

/// A caller of an engine allocates what outlives the call: the lock's slot and the name of its
/// resource, and a reply for each extension. Passing the request to the engine allocates nothing
/// more.
#[test]
fn an_engine_s_caller_allocates_slots_only() {
    let servers = servers(3);
    let engine = Engine::new(initialised(&servers)).unwrap();
    let pairs = || {
        for _ in 0..LAG {
            let guard = acquired(engine.acquire(LockRequest::new(b"job")).wait());
            assert!(guard.release().wait().is_ok());
        }
    };
    let extensions = || {
        let guard = acquired(engine.acquire(LockRequest::new(b"job")).wait());
        for _ in 0..LAG {
            guard.extend(Duration::from_secs(29)).wait().unwrap();
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

/// The same for an engine without a thread, with all that its host does on the thread of the caller.
#[test]
fn an_engine_without_a_thread_allocates_slots_only() {
    for n in SIZES {
        on_a_real_clock(NO_STALL, || unthreaded_allocates_slots_only(&servers(n)));
    }
}

fn unthreaded_allocates_slots_only(servers: &[Server]) {
    let (engine, io) = Engine::unthreaded(initialised(servers)).unwrap();
    let complete = |mut future: std::pin::Pin<&mut dyn Future<Output = ()>>| {
        let mut context = Context::from_waker(Waker::noop());
        while future.as_mut().poll(&mut context).is_pending() {
            let span = io.timeout().map(|span| Timespec::try_from(span).unwrap());
            poll(&mut [PollFd::new(&io, PollFlags::IN)], span.as_ref()).unwrap();
            io.on_ready();
        }
    };
    complete(pin!(async { drop(engine.warm_up(PATIENCE).await.unwrap()) }));
    let pairs = || {
        complete(pin!(async {
            for _ in 0..LAG {
                let guard = acquired(engine.acquire(LockRequest::new(b"job")).await);
                assert!(guard.release().await.is_ok());
            }
        }));
    };
    // Every node answers in order, so a complete inspection comes after all earlier answers.
    let catch_up = || {
        complete(pin!(async {
            drop(engine.inspect(b"job").await.unwrap());
        }));
    };
    // More is in flight at once than ever after.
    complete(pin!(async {
        let each = [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h"].map(LockRequest::new);
        drop(engine.acquire_all(each).await);
    }));
    for server in servers {
        if servers.len() > 1 {
            server.pause();
        }
        pairs();
        server.resume();
        catch_up();
    }
    // An answer that is later than ever before lets more requests be in flight, which is growth. An allocation per pair
    // would appear in every batch.
    let batch = || {
        catch_up();
        allocation_counter::measure(pairs).count_total
    };
    let counts: Vec<u64> = std::iter::repeat_with(batch).take(TIMES / LAG).collect();
    let growing = counts.iter().filter(|&&count| count > 2 * LAG as u64).count();
    assert!(growing <= counts.len() / 5, "{} nodes: {counts:?}", servers.len());
}

fn client_does_not_allocate(servers: &[Server], config: Config) {
    let mut client = Client::new(config).unwrap();
    assert_eq!(client.warm_up(PATIENCE).ready(), servers.len());
    // Every node answers in order, so a complete inspection comes after all earlier answers.
    let catch_up = |client: &mut Client| {
        let until = Instant::now() + PATIENCE;
        while !client.inspect(b"job").unwrap().nodes.iter().all(|node| node.state.is_ok()) {
            assert!(Instant::now() < until, "the nodes do not answer");
        }
    };
    let kinds = [client_pairs, client_fenced_pairs, client_extensions];
    none_in_steady_state(servers, &mut client, catch_up, &kinds);
}

fn driver_does_not_allocate(servers: &[Server], host: &mut Host) {
    host.step_until(|driver| driver.node_report().ready() == servers.len());
    let kinds = [Host::pairs, Host::fenced_pairs, Host::extensions, Host::denials];
    none_in_steady_state(servers, host, Host::catch_up, &kinds);
}

/// Counts the allocations of each kind of work; the argument is the number of repetitions.
///
/// On a busy machine a node falls behind now and then, and then more requests are in flight than
/// ever before. That is growth, not steady state. So each node that a quorum can spare is silent
/// once before the count, and during the count all nodes catch up before as much is in flight
/// again.
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
        let lock = acquired(client.acquire(LockRequest::new(b"job")));
        assert!(lock.release().is_ok());
    }
}

fn client_fenced_pairs(client: &mut Client, pairs: usize) {
    for _ in 0..pairs {
        let lock = acquired(client.acquire(LockRequest::new(b"job").fenced()));
        assert!(lock.fencing_token().is_some());
        assert!(lock.release().is_ok());
    }
}

fn client_extensions(client: &mut Client, extensions: usize) {
    let mut lock = acquired(client.acquire(LockRequest::new(b"job")));
    for _ in 0..extensions {
        lock.extend(Duration::from_secs(29)).unwrap();
    }
    assert!(lock.release().is_ok());
}

fn acquired<T>(outcome: Result<T, AcquireError>) -> T {
    outcome.unwrap_or_else(|error| panic!("not granted: {error}"))
}

/// A program with an event loop and a driver in it.
struct Host {
    driver: Driver,
    /// The host's poll; `None` if the driver has its own epoll, of which the host sees only the
    /// file descriptor.
    poll: Option<(mio::Poll, mio::Events)>,
    /// The host's other work.
    own: Option<Own>,
}

/// An echo service of the host, and its client, in the same loop.
struct Own {
    service: TcpStream,
    client: TcpStream,
    answers: usize,
}

impl Own {
    fn in_registry(registry: &mio::Registry) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let service = listener.accept().unwrap().0;
        let [mut service, mut client] = [service, client].map(|stream| {
            stream.set_nonblocking(true).unwrap();
            stream.set_nodelay(true).unwrap();
            TcpStream::from_std(stream)
        });
        let readable = mio::Interest::READABLE;
        registry.register(&mut service, SERVICE, readable).unwrap();
        registry.register(&mut client, CLIENT, readable).unwrap();
        Self { service, client, answers: 0 }
    }

    fn request(&mut self) {
        self.client.write_all(b"?").unwrap();
    }

    fn on_event(&mut self, event: &mio::event::Event) {
        let mut bytes = [0; 64];
        match event.token() {
            SERVICE => {
                while let Ok(length @ 1..) = self.service.read(&mut bytes) {
                    self.service.write_all(&bytes[..length]).unwrap();
                }
            }
            CLIENT => {
                while let Ok(length @ 1..) = self.client.read(&mut bytes) {
                    self.answers += length;
                }
            }
            other => panic!("{other:?} belongs to neither the driver nor the host"),
        }
    }
}

/// Two hosts that wait for each other's lock.
struct Both {
    hosts: [Host; 2],
    /// The host that has the lock.
    holder: Option<(usize, LockId)>,
}

impl Both {
    fn catch_up(&mut self) {
        self.hosts.iter_mut().for_each(Host::catch_up);
    }

    /// Hands the lock over repeatedly; a host releases only when the other waits.
    fn hand_offs(&mut self, times: usize) {
        let request = LockRequest::new(b"job").wait(Wait::UpTo(PATIENCE));
        for _ in 0..times {
            let (holder, held) = self.holder.take().unwrap_or_else(|| {
                let held = self.hosts[0].acquire();
                (0, held)
            });
            let waiter = 1 - holder;
            let id = self.hosts[waiter].driver.acquire(request.clone()).unwrap();
            self.hosts[waiter].step_until(|driver| driver.state(id) == LockState::Pausing);
            self.hosts[holder].release(held);
            assert_eq!(self.hosts[waiter].outcome(), Event::Granted(id));
            self.holder = Some((waiter, id));
        }
    }
}

/// A program may hold very many locks.
#[test]
fn an_idle_held_lock_takes_at_most_256_bytes_and_its_key() {
    let servers = servers(3);
    redbolt::init(&config(&servers), PATIENCE).unwrap();
    let soon = Duration::from_secs(3);
    let config = builder(&servers).response_timeout(soon).build().unwrap();
    let mut host = Host::with(Driver::new(config).unwrap());
    host.step_until(|driver| driver.node_report().ready() == 3);
    let hold = |host: &mut Host, locks: std::ops::Range<usize>| {
        for portion in locks.step_by(PORTION) {
            let ids = host.driver.batch(|driver| {
                let name = |at| format!("resource-{at:07}");
                let acquire = |at| driver.acquire(LockRequest::new(name(at).as_bytes()).ttl(LONG));
                (portion..portion + PORTION).map(acquire).collect::<Result<Vec<_>, _>>().unwrap()
            });
            let mut granted = 0;
            while granted < ids.len() {
                let event = host.outcome();
                assert!(matches!(event, Event::Granted(_)), "{event:?}");
                granted += 1;
            }
            // The memory of an attempt is freed when no late answers are expected any more.
            host.step_until(|driver| driver.timeout().is_none_or(|left| left > 2 * soon));
        }
    };
    // The freed memory is reused.
    hold(&mut host, 0..PORTION);
    let counted = allocation_counter::measure(|| hold(&mut host, PORTION..PORTION + HELD));
    let each = counted.bytes_current as f64 / HELD as f64;
    assert!((100.0..=256.0 + 16.0).contains(&each), "{each} bytes for a lock");
}

impl Host {
    fn with(driver: Driver) -> Self {
        Self { driver, poll: None, own: None }
    }

    /// Calls the host's own service once under each lock.
    fn served_pairs(&mut self, pairs: usize) {
        let own = |host: &mut Self| host.own.as_mut().map(|own| own.request());
        for pair in 0..pairs {
            let before = self.own.as_ref().map_or(0, |own| own.answers);
            own(self).unwrap();
            let id = self.acquire();
            while self.own.as_ref().is_some_and(|own| own.answers == before) {
                self.step();
            }
            assert!(!self.driver.remaining(id).is_zero(), "pair {pair}");
            self.release(id);
        }
    }

    /// Extends two auto-extended locks; no caller waits for the extensions of one of them.
    fn auto_extensions(&mut self, extensions: usize) {
        let keep = AutoExtend::until_released().every(Duration::from_micros(200));
        let ids = [b"one", b"two"].map(|name| {
            let id =
                self.driver.acquire(LockRequest::new(name).ttl(LONG).auto_extend(keep)).unwrap();
            while !matches!(self.outcome(), Event::Granted(of) if of == id) {}
            id
        });
        let mut kept = 0;
        while kept < extensions {
            match self.outcome() {
                Event::AutoExtended(_) => kept += 1,
                other => panic!("{other:?}"),
            }
        }
        for id in ids {
            self.driver.release(id);
            while !matches!(self.outcome(), Event::Released(of, _) if of == id) {}
        }
    }

    fn pairs(&mut self, pairs: usize) {
        for _ in 0..pairs {
            let id = self.acquire();
            self.release(id);
        }
    }

    fn fenced_pairs(&mut self, pairs: usize) {
        for _ in 0..pairs {
            let id = self.driver.acquire(LockRequest::new(b"job").fenced()).unwrap();
            assert_eq!(self.outcome(), Event::Granted(id));
            assert!(self.driver.fencing_token(id).is_some());
            self.release(id);
        }
    }

    fn extensions(&mut self, extensions: usize) {
        let id = self.acquire();
        for _ in 0..extensions {
            self.driver.extend(id, Duration::from_secs(29)).unwrap();
            assert_eq!(self.outcome(), Event::Extended(id));
        }
        self.release(id);
    }

    /// Makes attempts on a held resource, each with its undo.
    fn denials(&mut self, denials: usize) {
        let held = self.acquire();
        for _ in 0..denials {
            let id = self.driver.acquire(LockRequest::new(b"job")).unwrap();
            assert!(matches!(self.outcome(), Event::Refused(of, _) if of == id));
        }
        self.release(held);
    }

    fn catch_up(&mut self) {
        self.step_until(|driver| !driver.has_pending_releases());
    }

    fn step_until(&mut self, reached: impl Fn(&Driver) -> bool) {
        let until = Instant::now() + 2 * PATIENCE;
        while !reached(&self.driver) {
            assert!(
                Instant::now() < until,
                "the nodes do not answer: {:?}",
                self.driver.node_report()
            );
            self.step();
        }
    }

    fn acquire(&mut self) -> LockId {
        let id = self.driver.acquire(LockRequest::new(b"job")).unwrap();
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

    /// Waits for work, and lets the driver do it.
    fn step(&mut self) {
        let timeout = self.driver.timeout().unwrap_or(PATIENCE);
        match &mut self.poll {
            Some((poll, events)) => {
                match poll.poll(events, Some(timeout)) {
                    // The process was stopped meanwhile.
                    Err(error) if error.kind() == ErrorKind::Interrupted => return,
                    slept => slept.unwrap(),
                }
                for event in &*events {
                    if !self.driver.on_event(event) {
                        self.own.as_mut().expect("the event is the driver's").on_event(event);
                    }
                }
            }
            None => {
                let timeout = Timespec::try_from(timeout).unwrap();
                poll(&mut [PollFd::new(&self.driver, PollFlags::IN)], Some(&timeout)).unwrap();
            }
        }
        self.driver.process();
    }
}

/// Returns a configuration of nodes that were just initialised.
fn initialised(servers: &[Server]) -> Config {
    let config = config(servers);
    redbolt::init(&config, PATIENCE).unwrap();
    config
}

fn config(servers: &[Server]) -> Config {
    builder(servers).build().unwrap()
}

fn builder(servers: &[Server]) -> ConfigBuilder {
    builder_of(servers.iter().map(Server::address))
}

fn builder_of(addresses: impl Iterator<Item = String>) -> ConfigBuilder {
    let builder = Config::builder();
    let builder = builder
        .response_timeout(PATIENCE)
        .connect_timeout(PATIENCE)
        .dead_peer_timeout(2 * PATIENCE);
    builder.nodes(addresses)
}

const SERVICE: mio::Token = mio::Token(0);
const CLIENT: mio::Token = mio::Token(1);

const SIZES: [usize; 3] = [1, 3, 5];

/// The number of repetitions of each kind of work on each number of nodes: more than ten thousand
/// in all.
const TIMES: usize = 4_000;

/// The number of hand-offs in a batch, and of batches that are counted.
const BATCH: usize = 25;
const BATCHES: usize = 60;
/// The largest number of allocations of one wait.
const A_WAIT_IN_QUEUE: u64 = 8;

/// The largest number of locks by which a node can be behind.
const LAG: usize = 100;

/// A TTL longer than any test.
const LONG: Duration = Duration::from_secs(30);
/// The number of locks that are held at once.
const HELD: usize = 2 * PORTION;
/// The number of locks that are requested together. It is not a power of two, so that other
/// requests to a node also fit into the list of pending requests.
const PORTION: usize = 800;

/// A limit far longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(5);

/// A limit for stalls: a process that is stopped for a third of this has left the steady state that
/// is counted.
const NO_STALL: Duration = Duration::from_millis(300);
