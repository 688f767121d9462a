//! Auto-extended locks, and how they end.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redbolt::{
    AcquireError, AutoExtend, Driver, Engine, Event, LockId, LockRequest, LossCause, OwnedGuard,
    RequestError, Wait,
};
use redbolt_node::Memory;
use redbolt_test_servers::{Connection, Mode, Proxy, Reply, Server, on_a_real_clock};
use rustix::process::{Pid, Signal, kill_process};

use crate::engine::engine;
use crate::support::{
    LIMIT, builder, calls, client, default, driver_of, eventually, held_by, held_on, patient,
    patiently, process_until, servers, side_by_side, warm_client,
};
use crate::timed::{Timed, waits};

/// A TTL long enough for a busy machine: a process that is not scheduled for most of it loses its
/// lock. For TTLs of 10 s and more, a loss is reported half a second before the lease ends.
const TTL: Duration = Duration::from_secs(10);

/// The interval between extensions, short enough that several may be late.
const EVERY: Duration = Duration::from_millis(300);

/// A TTL that is short enough for the test to outlast it.
const SHORT_TTL: Duration = Duration::from_millis(1_500);

fn until_released() -> AutoExtend {
    AutoExtend::until_released().every(EVERY)
}

fn kept(resource: &[u8]) -> LockRequest<'_> {
    kept_by(resource, until_released())
}

fn kept_by(resource: &[u8], keep: AutoExtend) -> LockRequest<'_> {
    LockRequest::new(resource).ttl(TTL).wait(Wait::UpTo(LIMIT)).auto_extend(keep)
}

/// Drives the driver until each lock has been extended this often, and checks that nothing else
/// happens. A failed extension, as on a stalled machine, is retried.
fn keeps(driver: &mut Driver, ids: &[LockId], extensions: usize) {
    let (until, mut left) = (Instant::now() + TTL + 2 * LIMIT, extensions);
    while left > 0 {
        assert!(Instant::now() < until, "{left} of {extensions} extensions are missing");
        thread::sleep(Duration::from_millis(2));
        driver.process();
        while let Some(event) = driver.poll_event() {
            match event {
                Event::AutoExtended(_) => left = left.saturating_sub(1),
                Event::AutoExtendFailed(..) | Event::Node(..) => {}
                other => panic!("{other:?}"),
            }
        }
        assert!(ids.iter().all(|&id| !driver.remaining(id).is_zero()));
    }
}

fn values(servers: &[Server], resource: &str) -> Vec<Reply> {
    servers.iter().map(|server| server.cmd(&format!("GET {resource}"))).collect()
}

#[test]
fn a_driver_extends_a_lock_past_its_ttl() {
    for n in [1, 3, 5] {
        let timed = Timed::of(n);
        let mut driver = driver_of(timed.builder());
        let id = held_by(&mut driver, kept(b"job"));
        timed.drive_until(&mut driver, &[id], "all nodes have the key", |_| {
            timed.held_on("job") == n
        });
        let before = timed.owners("job");
        let granted = timed.now();
        let is_past = |_: &mut Driver| timed.now() > granted + 3 * TTL;
        timed.drive_until(&mut driver, &[id], "three TTLs have passed", is_past);
        assert!(!driver.remaining(id).is_zero());
        let now = timed.owners("job");
        assert_eq!(now, before, "the lock was held without a gap");
        driver.release(id);
        process_until(&mut driver, "the release is confirmed", |driver| {
            !driver.has_pending_releases()
        });
        assert_eq!(timed.held_on("job"), 0);
    }
}

/// This runs on real servers, by the machine's clock.
#[test]
fn an_engine_extends_locks_past_their_ttl() {
    on_a_real_clock(SHORT_TTL, locks_of_an_engine_outlive_their_ttl);
}

fn locks_of_an_engine_outlive_their_ttl() {
    let servers = servers(3);
    let engine = engine(&servers);
    let guards = [
        kept(b"plain"),
        kept(b"one").and(b"two"),
        kept(b"fenced").fenced(),
        kept(b"shared").shared().fenced(),
    ]
    .map(|request| engine.acquire(request.ttl(SHORT_TTL)).wait().unwrap());
    let (losses, token) = (guards.each_ref().map(count_losses), guards[2].fencing_token());
    let until = Instant::now() + SHORT_TTL * 3 / 2;
    while Instant::now() < until {
        assert!(guards.iter().all(|it| it.is_valid()));
        thread::sleep(Duration::from_millis(5));
    }
    for name in ["plain", "one", "two", "fenced"] {
        assert!(held_on(&servers, name) >= 2, "{name}");
    }
    assert_eq!(guards[2].fencing_token(), token);
    for guard in guards {
        assert!(guard.release().wait().is_ok());
    }
    assert!(losses.iter().all(|reported| reported.load(Ordering::SeqCst) == 0));
    assert!(engine.shutdown(LIMIT).is_clean());
    for name in ["plain", "one", "two", "fenced"] {
        eventually(name, || held_on(&servers, name) == 0);
    }
}

fn count_losses(guard: &OwnedGuard) -> Arc<AtomicUsize> {
    let reported = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&reported);
    guard.on_loss(move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
    });
    reported
}

#[test]
fn without_auto_extend_a_lease_has_a_fixed_length() {
    let timed = Timed::of(3);
    let mut driver = driver_of(timed.builder());
    let short = held_by(&mut driver, waits(b"short").ttl(TTL / 2));
    let long = held_by(&mut driver, kept(b"long"));
    let mut lost = Vec::new();
    let until = timed.now() + TTL;
    timed.drive_until(&mut driver, &[short, long], "a TTL has passed", |driver| {
        while let Some(event) = driver.poll_event() {
            assert!(!matches!(event, Event::AutoExtended(id) if id == short));
            if let Event::Lost(id, cause) = event {
                lost.push((id, cause));
            }
        }
        timed.now() > until
    });
    assert_eq!(lost, [(short, LossCause::Expired)]);
    assert_eq!(timed.held_on("short"), 0);
    assert!(timed.held_on("long") >= 2);
}

/// A blocking client does nothing between two calls.
#[test]
fn a_blocking_client_refuses_to_auto_extend() {
    let servers = servers(1);
    let client = client(&servers);
    let refused = client.acquire(kept(b"job")).unwrap_err();
    assert_eq!(refused, AcquireError::Request(RequestError::AutoExtendUnsupported));
    let mut outcomes = client.acquire_all([patiently(b"free"), kept(b"job")]).into_iter();
    assert!(outcomes.next().unwrap().is_ok());
    let refused = outcomes.next().unwrap().unwrap_err();
    assert_eq!(refused, AcquireError::Request(RequestError::AutoExtendUnsupported));
}

/// A hundred extensions that are due at about the same time share one write to each node.
#[test]
fn many_locks_are_auto_extended_together() {
    const LOCKS: usize = 60;
    let servers = servers(3);
    let mut driver = driver_of(builder(&servers));
    let names: Vec<String> = (0..LOCKS).map(|at| format!("job{at}")).collect();
    let keep = AutoExtend::until_released().every(Duration::from_millis(200));
    let ttl = Duration::from_secs(10);
    let ids: Vec<LockId> = driver.batch(|driver| {
        let request = |name: &String| kept_by(name.as_bytes(), keep).ttl(ttl).into_owned();
        names.iter().map(|name| driver.acquire(request(name)).unwrap()).collect()
    });
    process_until(&mut driver, "all locks are held", |driver| {
        ids.iter().all(|&id| !driver.remaining(id).is_zero())
    });
    while driver.poll_event().is_some() {}
    // The first use of a script sends its text, so measuring starts after it.
    keeps(&mut driver, &ids, 2 * LOCKS);
    let count = |server: &Server| (reads(server), calls(server, "evalsha"));
    let before: Vec<_> = servers.iter().map(count).collect();
    keeps(&mut driver, &ids, 12 * LOCKS);
    let mut quorum = 0;
    for (server, (reads_before, extensions_before)) in servers.iter().zip(before) {
        let (reads, extensions) = count(server);
        // Some of the reads belong to the inspection.
        let (reads, extensions) = (reads - reads_before, extensions - extensions_before);
        println!("{extensions} extensions in {reads} reads of the node");
        quorum += usize::from(extensions >= 10 * LOCKS as u64);
        assert!(reads <= extensions / 20, "{extensions} extensions came in {reads} reads");
    }
    assert!(quorum >= 2);
}

fn reads(server: &Server) -> u64 {
    let Reply::Bulk(stats) = server.cmd("INFO stats") else { panic!("no INFO") };
    let stats = String::from_utf8(stats).unwrap();
    let count = stats.lines().find_map(|line| line.strip_prefix("total_reads_processed:"));
    count.unwrap().parse().unwrap()
}

#[test]
fn a_killed_minority_does_no_harm() {
    for n in [3, 5] {
        let mut timed = Timed::of(n);
        let mut driver = driver_of(timed.builder());
        let id = held_by(&mut driver, kept(b"job"));
        keeps_by(&timed, &mut driver, id, 3);
        let minority = n / 2;
        timed.nodes[..minority].iter_mut().for_each(|node| node.stop(Memory::Lost));
        keeps_by(&timed, &mut driver, id, 10);
        assert!((minority..n).all(|node| timed.has(node, "job")));
        // The restarted nodes have lost the key, and do not vote for this lock again.
        timed.nodes[..minority].iter_mut().for_each(|node| node.start_again().unwrap());
        keeps_by(&timed, &mut driver, id, 40);
        assert!(!(0..minority).any(|node| timed.has(node, "job")));
    }
}

/// Does the same as [`keeps`] while time passes.
fn keeps_by(timed: &Timed, driver: &mut Driver, id: LockId, extensions: usize) {
    let mut left = extensions;
    timed.drive_until(driver, &[id], "the lock is extended", |driver| {
        while let Some(event) = driver.poll_event() {
            match event {
                Event::AutoExtended(_) => left = left.saturating_sub(1),
                Event::AutoExtendFailed(..) | Event::Node(..) => {}
                other => panic!("{other:?}"),
            }
        }
        assert!(!driver.remaining(id).is_zero());
        left == 0
    });
}

/// The loss is reported before the validity ends, so that the holder has a moment to stop.
#[test]
fn the_loss_of_a_majority_is_reported_in_time() {
    for stopped in [false, true] {
        let mut timed = Timed::of(3);
        let proxies: Vec<_> =
            timed.nodes.iter().map(|node| Proxy::before(&node.address().to_string())).collect();
        let mut driver = driver_of(timed.bend(default(proxies.iter().map(Proxy::address))));
        let id = held_by(&mut driver, kept(b"job"));
        keeps_by(&timed, &mut driver, id, 3);
        for (proxy, node) in proxies.iter().zip(&mut timed.nodes).skip(1) {
            match stopped {
                true => proxy.set(Mode::Stall),
                false => node.stop(Memory::Lost),
            }
        }
        let reported = outcome_by(&timed, &mut driver, id);
        assert_eq!(reported.cause, LossCause::Unextended);
        assert!(reported.warnings >= 1, "a warning before the loss");
        assert!(reported.warnings_in_a_row <= 1, "reported again");
        assert!(reported.in_time, "the loss was reported after the validity had ended");
        proxies.iter().for_each(|proxy| proxy.set(Mode::Pass));
        // A loss sends no undo, so that the remaining keys still protect the holder's work.
        driver.release(id);
        timed.drive_until(&mut driver, &[], "no undo is owed", |driver| {
            !driver.has_pending_releases()
        });
    }
}

/// Lets time pass until a lock is lost, and a while longer. Time passes even while a node does not
/// answer.
fn outcome_by(timed: &Timed, driver: &mut Driver, id: LockId) -> Told {
    let (cause, in_time) = (LossCause::Gone, false);
    let mut reported = Told { cause, warnings: 0, warnings_in_a_row: 0, in_time, extensions: 0 };
    let (mut in_a_row, mut until) = (0, None);
    let mut end = timed.now();
    timed.drive_until(driver, &[], "the lock is lost", |driver| {
        while let Some(event) = driver.poll_event() {
            match event {
                Event::AutoExtended(of) if of == id => {
                    reported.extensions += 1;
                    in_a_row = 0;
                }
                Event::AutoExtendFailed(of, _) if of == id => {
                    reported.warnings += 1;
                    in_a_row += 1;
                    reported.warnings_in_a_row = reported.warnings_in_a_row.max(in_a_row);
                }
                Event::Lost(of, cause) if of == id => {
                    assert_eq!(until, None, "reported more than once");
                    (reported.cause, reported.in_time) = (cause, timed.now() < end);
                    until = Some(timed.now() + A_WHILE);
                }
                Event::Node(..) => {}
                other => panic!("{other:?}"),
            }
        }
        if until.is_none() {
            end = timed.now() + driver.remaining(id);
        }
        // Answers arrive in real time.
        thread::sleep(Duration::from_micros(300));
        until.is_some_and(|until| timed.now() > until)
    });
    reported
}

/// A record of how an auto-extended lock ended.
struct Told {
    cause: LossCause,
    warnings: usize,
    /// The largest number of warnings between two extensions.
    warnings_in_a_row: usize,
    /// `true` if some validity was left when the loss was reported, by a check made just before.
    in_time: bool,
    extensions: usize,
}

/// The time in which a duplicate report would arrive.
const A_WHILE: Duration = Duration::from_millis(1_500);

#[test]
fn an_engine_reports_a_loss_in_time_and_once() {
    let mut timed = Timed::of(3);
    let config = timed.builder().build().unwrap();
    let engine = Engine::new(config).unwrap();
    let guard = engine.acquire(kept(b"job")).wait().unwrap();
    let reported = count_losses(&guard);
    let extended = || engine.metrics().wait().unwrap().metrics.auto_extended >= 3;
    timed.pass_until("it is extended", TTL, extended);
    timed.nodes[1..].iter_mut().for_each(|node| node.stop(Memory::Lost));
    timed.pass_until("the callback came", 2 * TTL, || reported.load(Ordering::SeqCst) == 1);
    assert_eq!(guard.lost().wait(), Some(LossCause::Unextended));
    assert!(!guard.is_valid());
    timed.pass(A_WHILE);
    assert_eq!(reported.load(Ordering::SeqCst), 1);
    assert_eq!(guard.release().wait().map_err(|lost| lost.cause()), Err(LossCause::Unextended));
}

#[test]
fn a_key_that_an_operator_deletes_is_noticed_by_the_next_extension() {
    let timed = Timed::of(3);
    let mut driver = driver_of(timed.builder());
    let id = held_by(&mut driver, kept(b"job"));
    let is_everywhere = |_: &mut Driver| timed.held_on("job") == 3;
    timed.drive_until(&mut driver, &[id], "all nodes have granted", is_everywhere);
    keeps_by(&timed, &mut driver, id, 3);
    // A key that is missing on one of three nodes loses nothing, and is not recreated.
    assert_eq!(timed.run_on(0, "DEL job"), Reply::Int(1));
    keeps_by(&timed, &mut driver, id, 6);
    assert_eq!(timed.held_on("job"), 2);
    assert_eq!(timed.run_on(1, "DEL job"), Reply::Int(1));
    let reported = outcome_by(&timed, &mut driver, id);
    assert_eq!(reported.cause, LossCause::Gone);
    assert!(reported.in_time);
    // The holder releases the key that is left on the third node.
    driver.release(id);
    process_until(&mut driver, "no undo is owed", |driver| !driver.has_pending_releases());
    assert_eq!(timed.held_on("job"), 0);
}

#[test]
fn no_lock_is_extended_past_the_longest_hold() {
    let most = TTL * 3 / 2;
    for by_request in [true, false] {
        let timed = Timed::of(3);
        let (builder, keep) = match by_request {
            true => (timed.builder(), until_released().max_hold(most)),
            false => (timed.builder().max_hold(Some(most)), until_released()),
        };
        let mut driver = driver_of(builder);
        let id = held_by(&mut driver, kept_by(b"job", keep));
        let began = timed.now();
        let reported = outcome_by(&timed, &mut driver, id);
        assert_eq!(reported.cause, LossCause::HeldTooLong);
        assert!(reported.in_time);
        assert!(reported.extensions >= 3, "{} extensions", reported.extensions);
        let lasted = timed.now() - began - A_WHILE;
        assert!(lasted > TTL && lasted <= most + Duration::from_millis(100), "{lasted:?}");
        driver.release(id);
        process_until(&mut driver, "no undo is owed", |driver| !driver.has_pending_releases());
    }
}

/// The nodes' own logs show no extension after the first undo of a lock, in any interleaving of the
/// two.
#[test]
fn a_released_lock_is_not_extended() {
    let servers = servers(3);
    let mut monitors: Vec<Connection> = servers.iter().map(Server::connect).collect();
    for monitor in &mut monitors {
        assert_eq!(monitor.cmd("MONITOR"), Reply::Status("OK".into()));
    }
    let mut driver = driver_of(builder(&servers));
    let keep = AutoExtend::until_released().every(Duration::from_millis(2));
    let rounds = 150;
    for round in 0..rounds {
        let id = held_by(&mut driver, kept_by(b"job", keep));
        let until = Instant::now() + Duration::from_micros(100 * round);
        while Instant::now() < until {
            driver.process();
        }
        driver.release(id);
        process_until(&mut driver, "the release is confirmed", |driver| {
            !driver.has_pending_releases()
        });
    }
    let mut extensions = 0;
    for (server, monitor) in servers.iter().zip(&mut monitors) {
        server.cmd("ECHO the-end");
        let mut released = Vec::new();
        loop {
            let Reply::Status(line) = monitor.reply() else { panic!("no line") };
            if line.ends_with(r#""the-end""#) {
                break;
            }
            match about(&line) {
                Some((token, Step::Undo)) => released.push(token),
                Some((token, Step::Extension)) => {
                    assert!(!released.contains(&token), "extended after its release: {line}");
                    extensions += 1;
                }
                None => {}
            }
        }
        released.dedup();
        assert_eq!(released.len() as u64, rounds);
    }
    assert!(extensions > 100, "{extensions} extensions");
}

#[derive(Debug, PartialEq, Eq)]
enum Step {
    Extension,
    Undo,
}

/// Returns the token and the kind of command in a line of `MONITOR`. An undo ends with the token;
/// in an extension the TTL follows it.
fn about(line: &str) -> Option<(String, Step)> {
    if !line.contains(r#""EVAL"#) || line.contains("redbolt:guard") {
        return None;
    }
    let (_, arguments) = line.split_once(r#""1" "job" ""#)?;
    match arguments.split_once('"')? {
        (token, "") => Some((token.to_owned(), Step::Undo)),
        (token, _) => Some((token.to_owned(), Step::Extension)),
    }
}

/// The holder is stopped for longer than its lease, and another client acquires the lock. When the
/// holder continues, its first check reports the loss, the callback runs once, and the next
/// holder's key is unchanged.
#[test]
fn a_stopped_process_notices_at_once_that_its_auto_extended_lock_is_lost() {
    side_by_side([1, 3, 5], |n| {
        on_a_real_clock(STOPPED_TTL, || a_holder_that_was_stopped_has_lost_its_lock(n));
    });
}

fn a_holder_that_was_stopped_has_lost_its_lock(n: usize) {
    let servers = servers(n);
    let mut holder = Holder::start(&servers);
    assert_eq!(holder.receive(), "held");
    assert_eq!(holder.asked("look"), "held true, told 0");
    holder.signal(Signal::STOP);
    let client = warm_client(builder(&servers));
    // One node may keep the key for a moment longer, and would deny.
    eventually("the keys of the holder have expired", || held_on(&servers, "job") == 0);
    let lock = client.acquire(patiently(b"job")).unwrap();
    eventually("all nodes have the key", || held_on(&servers, "job") == n);
    let before = values(&servers, "job");
    // The holder reads this command first when it continues.
    holder.request("look");
    holder.signal(Signal::CONT);
    assert!(holder.receive().starts_with("held false, told "));
    eventually("the loss is reported", || holder.asked("look") == "held false, told 1");
    thread::sleep(A_WHILE / 5);
    assert_eq!(holder.asked("look"), "held false, told 1");
    assert_eq!(holder.asked("release"), "lost");
    assert_eq!(values(&servers, "job"), before);
    assert!(lock.is_valid());
    let pttl = crate::support::pttl(&servers[0], "job");
    assert!(pttl > TTL.as_millis() as i64, "{pttl}: the next holder's TTL was shortened");
    assert!(matches!(lock.release(), Ok(confirmed) if confirmed.nodes >= 1));
}

/// The TTL of a holder that is stopped for longer than this.
const STOPPED_TTL: Duration = Duration::from_millis(1_500);

/// A child process that runs this test binary, auto-extends a lock with an engine, and obeys
/// commands.
struct Holder {
    child: Child,
    replied: BufReader<ChildStdout>,
}

impl Holder {
    fn start(servers: &[Server]) -> Self {
        let addresses: Vec<_> = servers.iter().map(Server::address).collect();
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "--ignored", "--nocapture", "--quiet", "auto_extend::holder_process"])
            .env(NODES, addresses.join(","))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let replied = BufReader::new(child.stdout.take().unwrap());
        Self { child, replied }
    }

    fn request(&mut self, what: &str) {
        let orders = self.child.stdin.as_mut().unwrap();
        orders.write_all(format!("{what}\n").as_bytes()).unwrap();
    }

    fn asked(&mut self, what: &str) -> String {
        self.request(what);
        self.receive()
    }

    /// Returns the next line of the child, skipping those of the test harness.
    fn receive(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(self.replied.read_line(&mut line).unwrap() > 0, "the holder has ended");
            if let Some((_, replied)) = line.trim_end().split_once(SAYS) {
                return replied.to_owned();
            }
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // It is our child and has not been reaped, so the id is still its own.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "the process of a_stopped_process_notices_at_once_that_its_auto_extended_lock_is_lost"]
fn holder_process() {
    let Ok(nodes) = env::var(NODES) else { return };
    let config = patient(nodes.split(',')).build().unwrap();
    let engine = Engine::new(config).unwrap();
    let guard = engine.acquire(kept(b"job").ttl(STOPPED_TTL)).wait().unwrap();
    let reported = count_losses(&guard);
    println!("{SAYS}held");
    for line in std::io::stdin().lock().lines() {
        if line.unwrap() == "release" {
            break;
        }
        let is_valid = guard.is_valid();
        println!("{SAYS}held {is_valid}, told {}", reported.load(Ordering::SeqCst));
    }
    match guard.release().wait() {
        Err(_) => println!("{SAYS}lost"),
        Ok(released) => println!("{SAYS}released, {released}"),
    }
    assert!(engine.shutdown(LIMIT).is_clean());
}

const NODES: &str = "REDBOLT_AUTO_EXTEND_NODES";
const SAYS: &str = "holder: ";
