//! Counts the APIs on Unix sockets, where written bytes are readable at once.
//!
//! The kernel's instructions are not counted. A program's count depends on how often it polls
//! before everything has arrived. So the nodes answer on the driver's thread before it polls, and
//! each poll finds all replies. The client has a loop inside, so it gets one node that answers on
//! another thread: it waits once for one reply, whenever that arrives.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redbolt::{Client, Config, Driver, Event, LockRequest};
use redbolt_counts::{Scenario, aside, run};
use redbolt_node::model::ClockReading;
use redbolt_testkit::Peer;
use tempfile::TempDir;

fn main() -> ExitCode {
    run(&[
        Scenario { name: "api/driver-pair-1", prepare: || driver_pairs(1) },
        Scenario { name: "api/driver-pair-3", prepare: || driver_pairs(3) },
        Scenario { name: "api/driver-pair-5", prepare: || driver_pairs(5) },
        Scenario { name: "api/client-pair-1", prepare: client_pairs },
    ])
}

fn driver_pairs(nodes: usize) -> Box<dyn FnMut()> {
    let listening = Listening::new(nodes);
    let mut driver = Driver::new(listening.config()).expect("a driver");
    driver.process();
    let mut nodes = listening.accept();
    while driver.node_report().ready() < nodes.len() {
        nodes.iter_mut().for_each(Served::answer);
        driver.process();
    }
    Box::new(move || {
        let id = driver.acquire(LockRequest::new(b"orders:4711")).expect("the request is valid");
        aside(|| nodes.iter_mut().for_each(Served::answer));
        driver.process();
        assert!(happened(&mut driver, |event| event == Event::Granted(id)));
        driver.release(id);
        aside(|| nodes.iter_mut().for_each(Served::answer));
        driver.process();
        assert!(happened(&mut driver, |event| matches!(event, Event::Released(of, _) if of == id)));
    })
}

fn happened(driver: &mut Driver, wanted: impl Fn(Event) -> bool) -> bool {
    let mut seen = false;
    while let Some(event) = driver.poll_event() {
        seen |= wanted(event);
    }
    seen
}

fn client_pairs() -> Box<dyn FnMut()> {
    let listening = Listening::new(1);
    let config = listening.config();
    thread::spawn(move || {
        let mut nodes = listening.accept();
        nodes.iter_mut().for_each(Served::answer_for_ever);
    });
    let client = Client::new(config).expect("a client");
    assert_eq!(client.warm_up(PATIENCE).ready(), 1);
    Box::new(move || {
        let lock = client
            .acquire(LockRequest::new(b"orders:4711"))
            .expect("no other client wants the lock");
        assert!(lock.release().is_ok());
    })
}

/// The listening sockets without connections.
struct Listening {
    folder: TempDir,
    listeners: Vec<UnixListener>,
}

/// A node's end of a connection.
struct Served {
    peer: Peer,
    stream: UnixStream,
    buffer: Vec<u8>,
}

impl Listening {
    fn new(nodes: usize) -> Self {
        let folder = tempfile::tempdir().expect("the sockets need a folder");
        let bind = |node| UnixListener::bind(folder.path().join(format!("{node}")));
        let listeners = (0..nodes).map(bind).collect::<Result<_, _>>().expect("free names");
        Self { folder, listeners }
    }

    /// Returns a configuration with long timeouts, so that a busy machine changes nothing.
    fn config(&self) -> Config {
        let builder = Config::builder().response_timeout(PATIENCE).connect_timeout(PATIENCE);
        let builder =
            (0..self.listeners.len()).fold(builder.dead_peer_timeout(PATIENCE), |builder, node| {
                let path = self.folder.path().join(format!("{node}"));
                builder.node(&format!("unix://{}", path.display()))
            });
        builder.new_nodes().build().expect("a configuration")
    }

    fn accept(self) -> Vec<Served> {
        let streams = self.listeners.iter().map(|listener| listener.accept().expect("a client").0);
        let served = |(number, stream)| Served {
            peer: Peer::new(number, now()),
            stream,
            buffer: vec![0; 1 << 16],
        };
        streams.enumerate().map(served).collect()
    }
}

impl Served {
    /// Answers the requests that have arrived, if any.
    fn answer(&mut self) {
        self.stream.set_nonblocking(true).expect("a socket");
        match self.stream.read(&mut self.buffer) {
            Ok(read) => self.reply(read),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }

    /// Answers until the client disconnects.
    fn answer_for_ever(&mut self) {
        while let Ok(read @ 1..) = self.stream.read(&mut self.buffer) {
            self.reply(read);
        }
    }

    fn reply(&mut self, read: usize) {
        self.peer.receive(&self.buffer[..read]);
        self.stream.write_all(self.peer.answer(now())).expect("the client reads");
    }
}

fn now() -> ClockReading {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is set after 1970");
    ClockReading::from_micros(since.as_micros() as u64)
}

const PATIENCE: Duration = Duration::from_secs(5);
