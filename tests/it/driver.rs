//! The driver in a host's loop that has other sockets, and behind one file descriptor.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use redbolt::{Config, Driver, Event};
use redbolt_test_servers::Server;

use crate::support::{
    LIMIT, builder, driver_of, held_by, held_on, long, outcome, patiently, process_until, servers,
    vouch_for,
};

/// A host with another socket in the same loop, whose token follows the driver's.
struct Host {
    poll: Poll,
    events: Events,
    driver: Driver,
    socket: TcpStream,
    token: Token,
    received: Vec<u8>,
}

impl Host {
    fn new(config: Config, socket: std::net::TcpStream) -> Self {
        let poll = Poll::new().unwrap();
        let tokens = FIRST..FIRST + Driver::tokens_needed(&config);
        let token = Token(tokens.end);
        let driver = Driver::in_registry(config, poll.registry(), tokens).unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut socket = TcpStream::from_std(socket);
        poll.registry().register(&mut socket, token, Interest::READABLE).unwrap();
        // With room for only two events, an iteration often sees some of them only.
        let events = Events::with_capacity(2);
        Self { poll, events, driver, socket, token, received: Vec::new() }
    }

    /// Runs one iteration of the host's loop.
    fn round(&mut self) {
        let patience = Duration::from_millis(50);
        let span = self.driver.timeout().map_or(patience, |deadline| deadline.min(patience));
        self.poll.poll(&mut self.events, Some(span)).unwrap();
        for event in &self.events {
            let guests = self.driver.on_event(event);
            assert_eq!(guests, event.token() != self.token, "{event:?}");
            if !guests {
                let mut bytes = [0; 64];
                while let Ok(length @ 1..) = self.socket.read(&mut bytes) {
                    self.received.extend_from_slice(&bytes[..length]);
                }
            }
        }
        self.driver.process();
    }

    fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        let until = Instant::now() + LIMIT;
        while !holds(self) {
            assert!(Instant::now() < until, "not in time: {what}");
            self.round();
        }
    }
}

#[test]
fn a_driver_in_a_loop_with_other_sockets() {
    let servers = servers(3);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut peer = listener.accept().unwrap().0;
    let mut host = Host::new(builder(&servers).build().unwrap(), socket);

    for round in 1..=20 {
        peer.write_all(b"host").unwrap();
        let id = host.driver.acquire(patiently(b"job")).unwrap();
        host.until("granted", |host| next_is(host, Event::Granted(id)));
        assert!(host.driver.remaining(id) > Duration::from_secs(10));
        host.driver.extend(id, Duration::from_secs(25)).unwrap();
        host.until("extended", |host| next_is(host, Event::Extended(id)));
        host.driver.release(id);
        host.until("released", |host| {
            std::iter::from_fn(|| host.driver.poll_event())
                .any(|event| matches!(event, Event::Released(of, _) if of == id))
        });
        host.until("the host's own bytes", |host| host.received.len() == round * 4);
    }
    host.until("no undo is owed", |host| !host.driver.has_pending_releases());
    assert_eq!(held_on(&servers, "job"), 0);
    assert_eq!(host.received, b"host".repeat(20));
}

fn next_is(host: &mut Host, expected: Event) -> bool {
    std::iter::from_fn(|| host.driver.poll_event()).any(|event| event == expected)
}

#[test]
fn a_driver_survives_servers_that_restart() {
    let mut servers = servers(3);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut host = Host::new(builder(&servers).build().unwrap(), socket);
    for round in 0..6 {
        let id = host.driver.acquire(patiently(b"job")).unwrap();
        host.until("granted", |host| next_is(host, Event::Granted(id)));
        servers[round % 3].restart();
        // No request is sent for the forgotten lock before it is released.
        vouch_for(&servers[round % 3..][..1], 3);
        host.driver.release(id);
        // An undo is owed longer if its request may be in a dead connection.
        host.until("nothing is held", |_| held_on(&servers, "job") == 0);
    }
    host.until("all nodes are ready", |host| host.driver.node_report().ready() == 3);
}

#[test]
fn a_driver_behind_one_file_descriptor() {
    let servers = servers(3);
    let mut driver = driver_of(builder(&servers));
    for _ in 0..20 {
        let id = held_by(&mut driver, patiently(b"job"));
        driver.release(id);
        assert!(matches!(outcome(&mut driver, id), Event::Released(..)));
    }
    process_until(&mut driver, "no undo is owed", |driver| !driver.has_pending_releases());
    assert_eq!(held_on(&servers, "job"), 0);
}

/// Only the descriptor wakes this host, so the driver must not hold back any work.
#[test]
fn readiness_and_deadline_are_all_that_a_host_needs() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    let servers = servers(3);
    let mut driver = driver_of(builder(&servers));
    let id = driver.acquire(long(b"job")).unwrap();
    let until = Instant::now() + LIMIT;
    while driver.remaining(id).is_zero() {
        assert!(Instant::now() < until);
        let span = driver.timeout().map(|deadline| Timespec {
            tv_sec: deadline.as_secs() as _,
            tv_nsec: deadline.subsec_nanos() as _,
        });
        poll(&mut [PollFd::new(&driver, PollFlags::IN)], span.as_ref()).unwrap();
        driver.process();
    }
    driver.release(id);
    process_until(&mut driver, "no undo is owed", |driver| !driver.has_pending_releases());
}

#[test]
fn a_driver_holds_several_locks_at_once() {
    let servers = servers(3);
    let mut driver = driver_of(builder(&servers));
    let names: Vec<String> = (0..50).map(|at| format!("job{at}")).collect();
    let ids: Vec<_> =
        names.iter().map(|name| driver.acquire(patiently(name.as_bytes())).unwrap()).collect();
    process_until(&mut driver, "all locks are held", |driver| {
        while driver.poll_event().is_some() {}
        ids.iter().all(|&id| !driver.remaining(id).is_zero())
    });
    assert!(names.iter().all(|name| held_on(&servers, name) >= 2));
    ids.iter().for_each(|&id| driver.release(id));
    process_until(&mut driver, "no undo is owed", |driver| !driver.has_pending_releases());
    assert!(names.iter().all(|name| held_on(&servers, name) == 0));
}

#[test]
fn too_few_tokens_are_refused() {
    let server = Server::start();
    let config = builder(std::slice::from_ref(&server)).build().unwrap();
    let poll = Poll::new().unwrap();
    let error = Driver::in_registry(config, poll.registry(), 5..6).unwrap_err();
    assert_eq!(error.to_string(), "1 tokens given, 3 needed");
}

const FIRST: usize = 1_000;
