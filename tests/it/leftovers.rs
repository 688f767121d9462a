//! Cancelled waits leave nothing behind. Each test runs in a separate process, because other tests
//! change the number of threads and descriptors.

use std::env;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use redbolt::{Driver, Engine, LockId, Wait, engine::AcquireFuture};
use redbolt_test_servers::{Reply, Server};

use crate::support::{
    builder, driver_of, eventually, held_by, held_on, long, patient, process_until, servers,
};

const WAITS: usize = 10_000;

/// The number of waits that are pending at the same time.
const AT_ONCE: usize = 100;

const NODES: &str = "REDBOLT_LEFTOVERS_NODES";

#[test]
fn ten_thousand_cancelled_waits_of_a_driver_leave_nothing() {
    leave_nothing("leftovers::driver_process");
}

#[test]
fn ten_thousand_dropped_waits_of_an_engine_leave_nothing() {
    leave_nothing("leftovers::engine_process");
}

/// Runs the process while another client holds every second resource that it waits for.
fn leave_nothing(process: &str) {
    let servers = servers(3);
    let mut holder = driver_of(builder(&servers));
    let held = resources().into_iter().step_by(2);
    let held: Vec<LockId> = held.map(|name| held_by(&mut holder, long(name.as_bytes()))).collect();
    let addresses: Vec<_> = servers.iter().map(Server::address).collect();
    let child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "--ignored", "--nocapture", "--test-threads=1", process])
        .env(NODES, addresses.join(","))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let reported = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && reported.contains(ALL_IS_WELL), "{reported}");
    println!("{reported}");
    // The process has ended. Its leftovers on the nodes would be visible here.
    holder.process();
    for server in &servers {
        let keys = server.cmd("DBSIZE");
        assert_eq!(
            keys,
            Reply::Int(1 + held.len() as i64),
            "only the restart guard and the other client's keys are left"
        );
    }
    holder.batch(|holder| held.iter().for_each(|&id| holder.release(id)));
    process_until(&mut holder, "all locks are released", |holder| !holder.has_pending_releases());
    assert!(resources().iter().all(|name| held_on(&servers, name) == 0));
}

const ALL_IS_WELL: &str = "all is well";

fn resources() -> Vec<String> {
    (0..10).map(|at| format!("job{at}")).collect()
}

#[test]
#[ignore = "the process of ten_thousand_cancelled_waits_of_a_driver_leave_nothing"]
fn driver_process() {
    let Some(nodes) = nodes() else { return };
    let before = Trace::of_this_process();
    let mut driver = driver_of(patient(&nodes));
    process_until(&mut driver, "all nodes are ready", |driver| {
        driver.node_report().ready() == nodes.len()
    });
    let start = Trace::of_this_process();
    assert_eq!(start.threads, before.threads, "a driver has no thread");
    for round in 0..WAITS / AT_ONCE {
        let names = resources();
        let waits: Vec<LockId> = (0..AT_ONCE)
            .map(|at| driver.acquire(forever(&names[at % names.len()])).unwrap())
            .collect();
        process_for(&mut driver, round);
        // Releasing the first ones lets the next ones send requests; the last ones are still
        // queued.
        if round % 2 == 0 {
            waits.into_iter().for_each(|id| driver.release(id));
        } else {
            waits.into_iter().rev().for_each(|id| driver.release(id));
        }
        while driver.poll_event().is_some() {}
    }
    process_until(&mut driver, "no undo is owed", |driver| !driver.has_pending_releases());
    let metrics = driver.metrics();
    process_until(&mut driver, "threads and descriptors are as before", |_| {
        Trace::of_this_process() == start && is_quiet(&nodes)
    });
    let (attempts, grants) = (metrics.metrics.attempts, metrics.metrics.grants);
    println!("{start:?}, {WAITS} waits, {attempts} attempts, {grants} grants");
    println!("{ALL_IS_WELL}");
}

/// Runs for a while that depends on the round: from nothing, through refusals and push links, to
/// pauses.
fn process_for(driver: &mut Driver, round: usize) {
    let span = Duration::from_micros(200 * round as u64);
    let until = std::time::Instant::now() + span;
    while std::time::Instant::now() < until {
        driver.process();
    }
}

#[test]
#[ignore = "the process of ten_thousand_dropped_waits_of_an_engine_leave_nothing"]
fn engine_process() {
    let Some(nodes) = nodes() else { return };
    let config = patient(&nodes).build().unwrap();
    let before = Trace::of_this_process();
    let engine = Engine::new(config).unwrap();
    let ready = || engine.node_report().wait().unwrap().ready() == nodes.len();
    eventually("all nodes are ready", ready);
    let start = Trace::of_this_process();
    assert_eq!(start.threads, before.threads + 1, "an engine has one thread");
    for round in 0..WAITS / AT_ONCE {
        let names = resources();
        let requests = (0..AT_ONCE).map(|at| engine.acquire(forever(&names[at % names.len()])));
        let waits: Vec<AcquireFuture> = requests.collect();
        std::thread::sleep(Duration::from_micros(200 * round as u64));
        drop(waits);
    }
    eventually("all calls have ended", || engine.in_flight() == 0);
    eventually("threads and descriptors are as before", || {
        Trace::of_this_process() == start && is_quiet(&nodes)
    });
    let report = engine.shutdown(Duration::from_secs(5));
    assert!(report.is_clean(), "{report}");
    // The engine can be woken as long as a handle exists.
    drop(engine);
    eventually("the engine is gone", || Trace::of_this_process() == before);
    println!("{start:?}");
    println!("{ALL_IS_WELL}");
}

fn forever(name: &str) -> redbolt::LockRequest<'_> {
    long(name.as_bytes()).wait(Wait::Forever)
}

fn nodes() -> Option<Vec<String>> {
    Some(env::var(NODES).ok()?.split(',').map(str::to_owned).collect())
}

/// The open resources of a process.
#[derive(Debug, PartialEq, Eq)]
struct Trace {
    threads: usize,
    descriptors: usize,
}

impl Trace {
    fn of_this_process() -> Self {
        let count = |path| fs::read_dir(path).unwrap().count();
        Self { threads: count("/proc/self/task"), descriptors: count("/proc/self/fd") }
    }
}

/// Returns `true` if none of our connections is subscribed or tracked, and each node has only one
/// of them.
fn is_quiet(nodes: &[String]) -> bool {
    nodes.iter().all(|node| {
        let mut connection = redbolt_test_servers::Connection::open(node);
        let subscribers = connection.cmd("PUBSUB NUMSUB __redis__:invalidate");
        let Reply::Array(subscribers) = subscribers else { panic!("{subscribers:?}") };
        let Reply::Bulk(info) = connection.cmd("INFO clients") else { panic!("no INFO") };
        let info = String::from_utf8(info).unwrap();
        // These are the holder's connection, ours, and the one that sends this query.
        let has = |line: &str| info.lines().any(|other| other == line);
        subscribers[1] == Reply::Int(0) && has("tracking_clients:0") && has("connected_clients:3")
    })
}
