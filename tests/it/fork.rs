//! A forked child holds none of its parent's locks and writes nothing to its connections. These are
//! real forks, through every API.
//!
//! Each test runs this binary as a child process, so that no other threads exist in the process
//! that forks. The forked child reports only through its exit status.

use std::env;
use std::future::Future;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use fork::Fork;
use redbolt::inspect::UnlockScope;
use redbolt::{
    AcquireError, AutoExtend, Client, Driver, Engine, EngineError, Event, LockRequest, LossCause,
    RequestError, report::LockState,
};
use redbolt_test_servers::{Connection, Reply};
use rustix::process::{Pid, Signal, kill_process};

use crate::futures::block_on;
use crate::support::{
    LIMIT, LONG, held_by, long, looks, loss, outcome, patient, patiently, refusal, servers,
};

#[test]
fn a_child_of_a_client_holds_nothing_and_sends_nothing() {
    in_its_own_process("fork::client_process");
}

#[test]
#[ignore = "the process of a_child_of_a_client_holds_nothing_and_sends_nothing"]
fn client_process() {
    let Some(mut nodes) = Nodes::given() else { return };
    let client = nodes.client();
    assert_eq!(client.warm_up(LIMIT).ready(), nodes.addresses.len());
    let mut lock = client.acquire(long(b"job")).unwrap();
    let other = client.acquire(long(b"other")).unwrap();
    let fenced = client.acquire(long(b"fenced").fenced()).unwrap();
    let mut observer = client.observe(b"nobody").unwrap();
    assert!(observer.changed(LIMIT).is_some());
    // The inspection ends when no request of this client is in flight.
    let _ = looks(&client, b"nobody");

    if let Some(child) = nodes.fork_in_silence() {
        assert!(!lock.is_valid() && lock.remaining().is_zero());
        assert!(fenced.fencing_token().is_none());
        assert_eq!(loss(&lock.extend(LONG).unwrap_err()), Some(LossCause::Forked));
        let forked = AcquireError::Request(RequestError::Forked);
        assert_eq!(client.acquire(LockRequest::new(b"new")).unwrap_err(), forked);
        assert_eq!(
            client.acquire_all([LockRequest::new(b"new")]).pop().unwrap().unwrap_err(),
            forked
        );
        assert_eq!(client.inspect(b"job").unwrap_err(), RequestError::Forked);
        assert_eq!(client.observe(b"job").unwrap_err(), RequestError::Forked);
        assert_eq!(observer.changed(LIMIT), None);
        assert_eq!(
            client.force_unlock(b"job", UnlockScope::Locks).unwrap_err(),
            RequestError::Forked
        );
        assert_eq!(
            client.force_unlock(b"job", UnlockScope::Anything).unwrap_err(),
            RequestError::Forked
        );
        let begun = Instant::now();
        client.warm_up(LIMIT);
        assert!(begun.elapsed() < LIMIT);
        assert!(fenced.detach().is_none());
        drop(other);
        assert_eq!(lock.release().map_err(|lost| lost.cause()), Err(LossCause::Forked));
        drop(observer);
        drop(client);
        child.ends();
    }
    nodes.have_received_nothing();

    // The child's own clients work; a grandchild does not inherit them.
    if let Some(child) = forked() {
        let own = nodes.client();
        assert!(refusal(own.acquire(LockRequest::new(b"job"))).is_contended());
        let held = own.acquire(long(b"of the child")).unwrap();
        if let Some(grandchild) = forked() {
            assert!(!held.is_valid() && !lock.is_valid());
            drop(nodes.client().acquire(LockRequest::new(b"of the grandchild")).unwrap());
            grandchild.ends();
        }
        assert!(held.is_valid() && !lock.is_valid());
        assert!(held.release().is_ok());
        child.ends();
    }

    assert!(lock.is_valid() && other.is_valid() && fenced.fencing_token().is_some());
    lock.extend(LONG).unwrap();
    for lock in [lock, other, fenced] {
        assert!(matches!(lock.release(), Ok(confirmed) if confirmed.nodes >= 2));
    }
}

#[test]
fn a_child_of_a_driver_reads_no_answers_and_sends_nothing() {
    in_its_own_process("fork::driver_process");
}

#[test]
#[ignore = "the process of a_child_of_a_driver_reads_no_answers_and_sends_nothing"]
fn driver_process() {
    let Some(mut nodes) = Nodes::given() else { return };
    let mut driver = nodes.driver();
    let held = held_by(&mut driver, long(b"job"));
    let mut witnesses: Vec<_> = nodes.addresses.iter().map(|it| Connection::open(it)).collect();
    let asked = driver.acquire(long(b"asked")).unwrap();
    // A server answers once per iteration of its loop, so the second answer comes after all earlier
    // commands.
    for witness in &mut witnesses {
        (0..2).for_each(|_| assert_eq!(witness.cmd("PING"), Reply::Status("PONG".into())));
    }

    if let Some(child) = nodes.fork_in_silence() {
        for _ in 0..3 {
            driver.process();
            assert!(!driver.process_busy());
            driver.connect();
            assert_eq!(driver.poll_event(), None);
        }
        assert!(driver.remaining(held).is_zero());
        assert_eq!(driver.state(held), LockState::Lost(LossCause::Forked));
        assert_eq!(driver.extend(held, LONG), Err(RequestError::Forked));
        assert_eq!(driver.acquire(LockRequest::new(b"new")), Err(RequestError::Forked));
        assert_eq!(driver.inspect(b"job"), Err(RequestError::Forked));
        assert_eq!(driver.observe(b"job"), Err(RequestError::Forked));
        assert_eq!(driver.force_unlock(b"job", UnlockScope::Locks), Err(RequestError::Forked));
        assert!(driver.detach(held).is_none());
        assert!(
            driver.timeout().is_none()
                && !driver.has_pending_releases()
                && !driver.awaits_answers(asked)
        );
        driver.release(held);
        driver.release(asked);
        drop(driver);
        child.ends();
    }
    nodes.have_received_nothing();

    // The child must not write the bytes that the parent is about to write.
    let child = driver.batch(|driver| {
        driver.acquire(long(b"gathered")).unwrap();
        let child = nodes.fork_in_silence();
        if child.is_none() {
            nodes.have_received_nothing();
        }
        child
    });
    if let Some(child) = child {
        drop(driver);
        child.ends();
    }

    // The answers and the readiness of their sockets are still available to the parent.
    assert_eq!(outcome(&mut driver, asked), Event::Granted(asked));
    assert!(!driver.remaining(held).is_zero());
    driver.release(held);
    assert!(
        matches!(outcome(&mut driver, held), Event::Released(_, confirmed) if confirmed.nodes >= 2)
    );
}

#[test]
fn a_child_of_an_engine_holds_nothing_and_sends_nothing() {
    in_its_own_process("fork::engine_process");
}

#[test]
#[ignore = "the process of a_child_of_an_engine_holds_nothing_and_sends_nothing"]
fn engine_process() {
    let Some(mut nodes) = Nodes::given() else { return };
    let config = patient(&nodes.addresses).build().unwrap();
    let engine = Engine::new(config).unwrap();
    // This lock waits in the queue, so the one queued after it sends no request.
    let guard = engine.acquire(patiently(b"job")).wait().unwrap();
    let other = engine.acquire(long(b"other")).wait().unwrap();
    // The extension is due after the child has ended.
    let kept = LockRequest::new(b"kept").ttl(LONG / 2).auto_extend(AutoExtend::until_released());
    let kept = engine.acquire(kept).wait().unwrap();
    let entered = engine.acquire_reentrant(long(b"entered"), "owner").wait().unwrap();
    let waiting = engine.acquire(long(b"job").wait(redbolt::Wait::Forever));
    drop(engine.inspect(b"nobody").wait().unwrap());

    if let Some(child) = nodes.fork_in_silence() {
        let forked = AcquireError::Engine(EngineError::Forked);
        assert!(!guard.is_valid() && !kept.is_valid() && guard.fencing_token().is_none());
        assert_eq!(engine.acquire(LockRequest::new(b"new")).wait().unwrap_err(), forked);
        assert_eq!(waiting.wait().unwrap_err(), forked);
        assert_eq!(engine.inspect(b"job").wait().unwrap_err(), forked);
        assert_eq!(engine.observe(b"job").unwrap_err(), forked);
        let again = engine.acquire_reentrant(long(b"entered"), "owner");
        assert_eq!(again.wait().unwrap_err(), forked);
        assert!(!entered.is_valid() && entered.hold_count() == 0);
        assert!(entered.release().is_none());
        assert_eq!(engine.campaign("new").wait().unwrap_err(), forked);
        assert_eq!(engine.node_report().wait().unwrap_err(), EngineError::Forked);
        let lost = guard.extend(LONG).wait().unwrap_err();
        assert_eq!(loss(&lost), Some(LossCause::Forked));
        assert_eq!(guard.lost().wait(), Some(LossCause::Forked));
        assert_eq!(guard.release().wait().map_err(|lost| lost.cause()), Err(LossCause::Forked));
        drop(other);
        assert!(!engine.shutdown(LIMIT).ended);
        drop(engine);
        child.ends();
    }
    nodes.have_received_nothing();

    assert!(guard.is_valid() && other.is_valid() && kept.is_valid());
    guard.extend(LONG).wait().unwrap();
    assert!(guard.release().wait().is_ok());
    assert!(waiting.wait().unwrap().is_valid());
    assert!(entered.is_valid() && entered.hold_count() == 1);
    drop((other, kept, entered));
    assert!(engine.shutdown(LIMIT).is_clean());
}

#[test]
fn a_child_of_an_engine_without_a_thread_holds_nothing_and_sends_nothing() {
    in_its_own_process("fork::unthreaded_process");
}

#[test]
#[ignore = "the process of a_child_of_an_engine_without_a_thread_holds_nothing_and_sends_nothing"]
fn unthreaded_process() {
    let Some(mut nodes) = Nodes::given() else { return };
    let (engine, io) = Engine::unthreaded(patient(&nodes.addresses).build().unwrap()).unwrap();
    let drive = |io: &redbolt::engine::EngineIo| {
        std::thread::sleep(Duration::from_millis(1));
        io.on_ready();
    };
    let mut asked = std::pin::pin!(engine.acquire(patiently(b"job")));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let guard = loop {
        match asked.as_mut().poll(&mut context) {
            std::task::Poll::Ready(guard) => break guard.unwrap(),
            std::task::Poll::Pending => drive(&io),
        }
    };
    // Late answers are read.
    (0..200).for_each(|_| drive(&io));

    if let Some(child) = nodes.fork_in_silence() {
        assert!(!engine.is_ours() && !guard.is_valid());
        assert_eq!((io.timeout(), io.has_ended()), (None, false));
        io.on_ready();
        let forked = AcquireError::Engine(EngineError::Forked);
        assert_eq!(block_on(engine.acquire(LockRequest::new(b"new"))).unwrap_err(), forked);
        let lost = block_on(guard.release()).map_err(|lost| lost.cause());
        assert_eq!(lost, Err(LossCause::Forked));
        assert!(!engine.shutdown(LIMIT).ended);
        drop((io, engine));
        child.ends();
    }
    nodes.have_received_nothing();

    assert!(guard.is_valid());
    drop(guard);
    assert!(engine.shutdown(LIMIT).is_clean() && io.has_ended());
}

/// Runs a test of this binary in a separate process, on three new nodes.
fn in_its_own_process(role: &str) {
    let servers = servers(3);
    let addresses: Vec<_> = servers.iter().map(redbolt_test_servers::Server::address).collect();
    let outcome = Command::new(env::current_exe().unwrap())
        .args(["--exact", "--ignored", "--nocapture", "--test-threads=1", role])
        .env(NODES, addresses.join(","))
        .output()
        .unwrap();
    let (reported, replied) =
        [&outcome.stdout, &outcome.stderr].map(|it| String::from_utf8_lossy(it)).into();
    assert!(outcome.status.success(), "{reported}\n{replied}");
    assert!(reported.contains("1 passed"), "{role} did not run: {reported}");
}

/// The nodes of a process that forks, and witnesses that count their commands.
struct Nodes {
    addresses: Vec<String>,
    witnesses: Vec<Connection>,
    received: Vec<u64>,
}

impl Nodes {
    fn given() -> Option<Self> {
        let addresses = env::var(NODES).ok()?;
        let addresses: Vec<_> = addresses.split(',').map(str::to_owned).collect();
        let witnesses = addresses.iter().map(|address| Connection::open(address)).collect();
        Some(Self { addresses, witnesses, received: Vec::new() })
    }

    fn client(&self) -> Client {
        Client::new(patient(&self.addresses).build().unwrap()).unwrap()
    }

    fn driver(&self) -> Driver {
        Driver::new(patient(&self.addresses).build().unwrap()).unwrap()
    }

    /// Forks; the parent waits for the child's end.
    fn fork_in_silence(&mut self) -> Option<Forked> {
        self.received = self.commands();
        forked()
    }

    /// Checks that no command has reached the nodes since the fork.
    fn have_received_nothing(&mut self) {
        // This query is one more command.
        let expected: Vec<u64> = self.received.iter().map(|count| count + 1).collect();
        assert_eq!(self.commands(), expected, "the child has sent commands to the nodes");
    }

    /// Returns the number of commands that each node has executed.
    fn commands(&mut self) -> Vec<u64> {
        let count = |witness: &mut Connection| {
            let Reply::Bulk(stats) = witness.cmd("INFO stats") else { panic!("no INFO") };
            let stats = String::from_utf8(stats).unwrap();
            let mut lines = stats.lines();
            let count = lines.find_map(|line| line.strip_prefix("total_commands_processed:"));
            count.unwrap().parse().unwrap()
        };
        self.witnesses.iter_mut().map(count).collect()
    }
}

/// Forks. The child gets a value to exit with; the parent waits until it has exited.
fn forked() -> Option<Forked> {
    let Fork::Parent(pid) = fork::fork().unwrap() else { return Some(Forked) };
    let until = Instant::now() + LIMIT;
    let status = loop {
        if let Some(status) = fork::waitpid_nohang(pid).unwrap() {
            break ExitStatus::from_raw(status);
        }
        if Instant::now() >= until {
            // It is our child and has not been reaped, so the id is still its own.
            kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
        }
        std::thread::sleep(Duration::from_millis(3));
    };
    assert!(status.success(), "the child: {status}");
    None
}

/// A child that has not failed yet.
struct Forked;

impl Forked {
    /// Exits without running destructors, because the parent's state is not the child's to clean
    /// up.
    fn ends(self) -> ! {
        std::process::exit(0)
    }
}

impl Drop for Forked {
    /// Runs only after a panic, because [`Self::ends`] exits. The thread that waits for the test's
    /// outcome does not exist in the child.
    fn drop(&mut self) {
        std::process::exit(1)
    }
}

/// The environment variable that makes this binary a process that forks.
const NODES: &str = "REDBOLT_FORKING_NODES";
