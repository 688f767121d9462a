//! The engine from threads: its limits, losses, shutdown, and that it leaves nothing behind.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use redbolt::{
    AcquireError, AutoExtend, ConfigBuilder, Engine, EngineError, ExtendError, LockRequest,
    LossCause, OwnedGuard, RefusalReason, RequestError, Wait,
    engine::LossFuture,
    inspect::InspectionVerdict,
    log::{Log, Note},
    report::PushState,
};
use redbolt_test_servers::{Mode, Proxy, Reply, Server};

use crate::clock::bent;
use crate::support::{
    LIMIT, LONG, PATIENCE, builder, calls, client, default, eventually, exists, held_on, long,
    loss, patient, patiently, servers,
};
use crate::timed::{Timed, waits};

pub(crate) fn engine(servers: &[Server]) -> Engine {
    engine_of(builder(servers))
}

pub(crate) fn engine_of(builder: ConfigBuilder) -> Engine {
    Engine::new(builder.build().unwrap()).unwrap()
}

fn limited(servers: &[Server], in_flight: usize) -> Engine {
    engine_of(builder(servers).in_flight(in_flight))
}

/// As `wait`, but bounded, so that a bug fails the test instead of hanging it.
trait Soon: Future + Sized {
    fn soon(self) -> Self::Output {
        let (reported, received) = mpsc::channel();
        let waker: Waker = Arc::new(Bell(reported)).into();
        let mut context = Context::from_waker(&waker);
        let mut future = pin!(self);
        let until = Instant::now() + 2 * LIMIT;
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return output;
            }
            let left = until.saturating_duration_since(Instant::now());
            received.recv_timeout(left).expect("the future never completes");
        }
    }
}

impl<F: Future> Soon for F {}

struct Bell(mpsc::Sender<()>);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        // The receiver may be gone.
        let _ = self.0.send(());
    }
}

/// A lease whose end a test waits for. Long enough to be looked at before, on a machine that is stalled for seconds.
const SHORT: Duration = Duration::from_secs(4);

/// For what cannot be done, or takes no time.
const BRIEF: Duration = Duration::from_millis(300);

/// For a node to confirm a release.
const ENOUGH: Duration = Duration::from_secs(4);

#[test]
fn a_lock_from_its_ask_to_its_end() {
    let servers = servers(3);
    let engine = engine(&servers);
    let guard = engine.acquire(patiently(b"job").fenced()).wait().unwrap();
    assert!(guard.is_valid() && guard.remaining() > Duration::from_secs(10));
    assert!(guard.fencing_token().is_some());
    assert_eq!(guard.resources().collect::<Vec<_>>(), [b"job"]);
    assert!(held_on(&servers, "job") >= 2);
    assert!(engine.lease("job", Duration::from_secs(9)).try_acquire().soon().unwrap().is_none());
    guard.extend(Duration::from_secs(29)).wait().unwrap();
    assert!(guard.remaining() > Duration::from_secs(25));
    assert!(guard.release().wait().is_ok());
    eventually("no key is left", || held_on(&servers, "job") == 0);
    assert!(engine.shutdown(LIMIT).is_clean());
}

/// Longer than a client's lease: only the engine can extend it.
#[test]
fn a_lock_by_its_name_alone_is_extended() {
    let timed = Timed::of(3);
    let engine = engine_of(timed.builder());
    let locks = [
        engine.lock("job").acquire().soon().unwrap(),
        engine.lock("other").try_acquire().soon().unwrap().unwrap(),
    ];
    let extended = || engine.metrics().soon().unwrap().metrics.auto_extended;
    timed.pass_until("both are extended", LONG, || extended() >= 2);
    assert!(locks.iter().all(|it| it.is_valid()));
}

#[test]
fn wait_and_ttl_are_independent_in_an_engine() {
    let servers = servers(1);
    let engine = engine(&servers);
    let holder = engine.acquire(patiently(b"job")).soon().unwrap();
    let request = LockRequest::new(b"job").ttl(SHORT).wait(Wait::Forever);
    let refused = engine.acquire(request.clone().wait(BRIEF)).soon().unwrap_err();
    assert!(
        matches!(&refused, AcquireError::Refused(report) if report.reason() == RefusalReason::OutOfTime)
    );
    let waiter = engine.acquire(request.wait(LIMIT));
    drop(holder);
    let guard = waiter.soon().unwrap();
    assert!(guard.remaining() <= SHORT);
}

#[test]
fn an_engine_refuses_invalid_requests() {
    let servers = servers(1);
    let engine = engine(&servers);
    let refused = |request| match engine.acquire(request).soon() {
        Err(AcquireError::Request(error)) => error,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(LockRequest::new(b"")), RequestError::EmptyResource);
    assert_eq!(refused(LockRequest::new(b"a").and(b"a")), RequestError::DuplicateKey { index: 1 });
    assert_eq!(engine.in_flight(), 0);
    let guard = engine.acquire(patiently(b"job")).soon().unwrap();
    let extended = guard.extend(Duration::ZERO).soon();
    assert_eq!(extended, Err(ExtendError::Request(RequestError::TtlZero)));
    for in_flight in [0, (1 << 20) + 1] {
        let error = builder(&servers).in_flight(in_flight).build().unwrap_err();
        assert!(error.to_string().contains("must be from 1 to 1048576"), "{error}");
    }
}

#[test]
fn one_extension_at_a_time() {
    let servers = servers(1);
    let engine = engine(&servers);
    let guard = engine.acquire(patiently(b"job")).soon().unwrap();
    servers[0].pause();
    let first = guard.extend(Duration::from_secs(20));
    let second = guard.extend(Duration::from_secs(20));
    assert_eq!(second.soon(), Err(ExtendError::Request(RequestError::ExtensionUnderWay)));
    servers[0].resume();
    first.soon().unwrap();
    // An extension that nobody waits for does not block the next.
    drop(guard.extend(Duration::from_secs(20)));
    eventually("the next extension is accepted", || {
        guard.extend(Duration::from_secs(20)).soon().is_ok()
    });
    let last = guard.extend(Duration::from_secs(20));
    let release = guard.release();
    assert!(release.soon().is_ok());
    assert!(matches!(last.soon(), Ok(()) | Err(ExtendError::Request(RequestError::NotHeld))));
}

#[test]
fn more_than_the_limit_is_refused_and_releases_never_are() {
    let servers = servers(3);
    let engine = limited(&servers, 2);
    let guards: Vec<_> = (0..10).map(|at| held(&engine, &format!("held{at}"))).collect();
    let first = engine.acquire(patiently(b"held0"));
    let second = engine.acquire(patiently(b"held1"));
    let busy = AcquireError::Engine(EngineError::Busy { limit: 2 });
    assert_eq!(engine.acquire(patiently(b"free")).soon().unwrap_err(), busy);
    assert_eq!(busy.to_string(), "2 calls are in flight, which is the engine's limit");
    // The engine is at its limit, and still takes every release.
    for guard in guards {
        assert!(guard.release().soon().is_ok());
    }
    let both = (first.soon().unwrap(), second.soon().unwrap());
    // Cancelled requests make room as well.
    drop([engine.acquire(patiently(b"held0")), engine.acquire(patiently(b"held1"))]);
    eventually("there is room", || engine.in_flight() == 0);
    drop(engine.acquire(patiently(b"free")).soon().unwrap());
    drop(both);
}

fn held(engine: &Engine, name: &str) -> OwnedGuard {
    engine.acquire(patiently(name.as_bytes())).soon().unwrap()
}

#[test]
fn five_thousand_at_once() {
    let servers = servers(3);
    let engine = engine(&servers);
    let names: Vec<String> = (0..5_000).map(|at| format!("job{at}")).collect();
    let asked: Vec<_> =
        names.iter().map(|name| engine.acquire(patiently(name.as_bytes()))).collect();
    let guards: Vec<_> = asked.into_iter().map(|asked| asked.soon().unwrap()).collect();
    assert!(guards.iter().all(|it| it.is_valid()));
    let keys = |server: &Server| match server.cmd("DBSIZE") {
        Reply::Int(keys) => keys,
        other => panic!("{other:?}"),
    };
    // The restart guard of the node is a key, too.
    eventually("all keys exist", || servers.iter().all(|server| keys(server) == 5_001));
    let extended: Vec<_> =
        guards.iter().map(|guard| guard.extend(Duration::from_secs(29))).collect();
    extended.into_iter().for_each(|extended| extended.soon().unwrap());
    drop(guards);
    eventually("no key is left", || servers.iter().all(|server| keys(server) == 1));
    let report = engine.shutdown(LIMIT);
    assert!(report.is_clean(), "{report}");
}

/// While the thread sleeps in a callback, all requests queue up.
#[test]
fn calls_queued_in_one_iteration_are_one_write_to_each_node() {
    let servers = servers(3);
    let engine = engine(&servers);
    let stop = stopped(&engine, &servers);
    let reads = || servers.iter().map(|server| stat(server, "total_reads_processed"));
    let names: Vec<String> = (0..200).map(|at| format!("job{at}")).collect();
    let asked: Vec<_> =
        names.iter().map(|name| engine.acquire(patiently(name.as_bytes()))).collect();
    let before: Vec<u64> = reads().collect();
    drop(stop);
    let guards: Vec<_> = asked.into_iter().map(|asked| asked.soon().unwrap()).collect();
    for (now, before) in reads().zip(before) {
        // A server reads at most 16 KiB at once, and our own queries are reads as well.
        assert!(now - before <= 20, "{} reads for 200 asks", now - before);
    }
    drop(guards);
}

fn stat(server: &Server, name: &str) -> u64 {
    let Reply::Bulk(stats) = server.cmd("INFO stats") else { panic!("no INFO") };
    let stats = String::from_utf8(stats).unwrap();
    let line = stats.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap().parse().unwrap()
}

/// Stops the engine's thread in a callback until the returned sender is dropped.
fn stopped(engine: &Engine, servers: &[Server]) -> mpsc::Sender<()> {
    let (stop, until) = mpsc::channel::<()>();
    let (began, begun) = mpsc::channel();
    let guard = held(engine, "stop");
    guard.on_loss(move |_| {
        began.send(()).unwrap();
        // The wait ends when the sender is dropped.
        let _ = until.recv_timeout(LIMIT);
    });
    lose(&guard, servers, "stop");
    begun.recv_timeout(LIMIT).unwrap();
    stop
}

/// The lock is lost as soon as the nodes have answered, without waiting for its end.
fn lose(guard: &OwnedGuard, servers: &[Server], name: &str) {
    servers.iter().for_each(|server| drop(server.cmd(&format!("DEL {name}"))));
    drop(guard.extend(Duration::from_secs(20)));
}

/// Only a push wakes the thread here: no timer is due before the test fails, and there are no
/// answers of other locks.
#[test]
fn no_wake_up_is_lost() {
    let servers = servers(1);
    let engine =
        engine_of(builder(&servers).response_timeout(2 * LIMIT).dead_peer_timeout(4 * LIMIT));
    let began = Instant::now();
    for round in (0..3_000).take_while(|_| began.elapsed() < LIMIT) {
        // The thread has just reported an outcome and is about to sleep when the next push comes.
        let guard = ready(engine.acquire(patiently(b"job"))).unwrap();
        // Or it sleeps already.
        for _ in 0..round % 50 * 20 {
            std::hint::spin_loop();
        }
        assert!(ready(guard.release()).is_ok());
    }
    assert!(engine.shutdown(LIMIT).is_clean());
}

/// The output of a future that is polled in a busy loop.
fn ready<F: Future + Unpin>(mut future: F) -> F::Output {
    let until = Instant::now() + LIMIT;
    let mut context = Context::from_waker(Waker::noop());
    loop {
        assert!(Instant::now() < until, "the future never completes");
        if let Poll::Ready(output) = Pin::new(&mut future).poll(&mut context) {
            return output;
        }
        std::hint::spin_loop();
    }
}

#[test]
fn many_threads_push_at_once() {
    let servers = servers(3);
    let engine = engine(&servers);
    let (done, finished) = mpsc::channel();
    let threads: Vec<_> = (0..8)
        .map(|of| {
            let (engine, done) = (engine.clone(), done.clone());
            thread::spawn(move || {
                for round in 0..200 {
                    let guard = held(&engine, &format!("job{of}.{round}"));
                    match round % 3 {
                        0 => drop(guard),
                        1 => drop(guard.release()),
                        _ => assert!(guard.release().soon().is_ok()),
                    }
                }
                done.send(()).unwrap();
            })
        })
        .collect();
    for _ in &threads {
        finished.recv_timeout(4 * LIMIT).expect("a thread never finishes");
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(engine.shutdown(LIMIT).is_clean());
    assert!(servers.iter().all(|server| server.cmd("DBSIZE") == Reply::Int(1)));
}

/// Dropped before, during and after its grant, at moments that move through its life.
#[test]
fn dropped_acquisitions_are_cancelled_at_any_point() {
    let servers = servers(3);
    let engine = engine(&servers);
    drop(held(&engine, "warm"));
    for round in 0..300u32 {
        let asked = engine.acquire(patiently(b"job"));
        let until = Instant::now() + Duration::from_micros(u64::from(round) * 3);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        drop(asked);
    }
    eventually("all calls have ended", || engine.in_flight() == 0);
    eventually("no key is left", || held_on(&servers, "job") == 0);
    // No ghost is in the way of the next lock.
    drop(engine.acquire(long(b"job")).soon().unwrap());
    let report = engine.shutdown(LIMIT);
    assert!(report.is_clean() && report.unreleased.is_empty(), "{report}");
}

#[test]
fn a_thread_that_waits_for_what_another_holds() {
    let servers = servers(3);
    let engine = engine(&servers);
    let guard = held(&engine, "job");
    let waiter = {
        let engine = engine.clone();
        thread::spawn(move || held(&engine, "job").release().wait())
    };
    eventually("the waiter waits", || engine.in_flight() == 1);
    drop(guard);
    assert!(waiter.join().unwrap().is_ok());
}

#[test]
fn a_lock_whose_keys_are_gone_is_lost_and_reported_once() {
    let servers = servers(3);
    let engine = engine(&servers);
    let guard = held(&engine, "job");
    let reported = count_losses(&guard);
    let watcher = guard.lost();
    servers.iter().for_each(|server| assert_eq!(server.cmd("DEL job"), Reply::Int(1)));
    let error = guard.extend(Duration::from_secs(20)).soon().unwrap_err();
    assert_eq!(loss(&error), Some(LossCause::Gone));
    assert!(!guard.is_valid() && guard.fencing_token().is_none());
    assert_eq!(watcher.soon(), Some(LossCause::Gone));
    assert_eq!(guard.lost().soon(), Some(LossCause::Gone));
    eventually("the callback came", || reported.load(Ordering::SeqCst) == 1);
    let again = guard.extend(Duration::from_secs(20)).soon().unwrap_err();
    assert_eq!(loss(&again), Some(LossCause::Gone));
    // A callback that is registered after the loss is called at once.
    let late = count_losses(&guard);
    assert_eq!(late.load(Ordering::SeqCst), 1);
    assert_eq!(guard.release().soon().map_err(|lost| lost.cause()), Err(LossCause::Gone));
    assert_eq!(reported.load(Ordering::SeqCst), 1);
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
fn a_lock_that_is_not_extended_expires_with_a_callback() {
    let timed = Timed::of(3);
    let engine = engine_of(timed.builder());
    let guard = engine.acquire(waits(b"job").ttl(SHORT)).soon().unwrap();
    let reported = count_losses(&guard);
    timed.pass(SHORT / 2);
    assert!(guard.is_valid());
    timed.pass(SHORT / 2);
    assert_eq!(guard.lost().soon(), Some(LossCause::Expired));
    assert!(!guard.is_valid());
    eventually("the callback came", || reported.load(Ordering::SeqCst) == 1);
    assert_eq!(guard.release().soon().map_err(|lost| lost.cause()), Err(LossCause::Expired));
}

#[test]
fn no_callback_comes_after_a_release() {
    let timed = Timed::of(3);
    let engine = engine_of(timed.builder());
    let request = waits(b"job").ttl(SHORT);
    let mut reported = Vec::new();
    let mut watchers = Vec::new();
    for round in 0..2 {
        let guard = engine.acquire(request.clone()).soon().unwrap();
        reported.push(count_losses(&guard));
        watchers.push(guard.lost());
        match round {
            0 => assert!(guard.release().soon().is_ok()),
            _ => drop(guard),
        }
    }
    watchers.into_iter().for_each(|watcher| assert_eq!(watcher.soon(), None));
    // Their leases have ended, and so has a lock that was taken later.
    let last = engine.acquire(request).soon().unwrap();
    timed.pass(SHORT);
    assert_eq!(last.lost().soon(), Some(LossCause::Expired));
    assert!(reported.iter().all(|reported| reported.load(Ordering::SeqCst) == 0));
    assert!(engine.shutdown(LIMIT).is_clean());
    assert!(reported.iter().all(|reported| reported.load(Ordering::SeqCst) == 0));
}

#[test]
fn a_panic_in_a_callback_is_counted_and_goes_no_further() {
    let servers = servers(3);
    let engine = engine(&servers);
    let guard = held(&engine, "job");
    guard.on_loss(|_| panic!("on purpose, in a callback"));
    let reported = count_losses(&guard);
    lose(&guard, &servers, "job");
    eventually("the others are called", || reported.load(Ordering::SeqCst) == 1);
    assert_eq!(engine.panics(), 1);
    assert!(held(&engine, "next").release().soon().is_ok());
    // A callback that waits for the engine's own thread panics as well.
    let second = held(&engine, "again");
    let own = engine.clone();
    second.on_loss(move |_| drop(own.acquire(LockRequest::new(b"from within")).wait()));
    lose(&second, &servers, "again");
    eventually("the request is refused", || engine.panics() == 2);
    eventually("the call is cancelled", || held_on(&servers, "from within") == 0);
    let report = engine.shutdown(LIMIT);
    assert_eq!((report.ended, report.panics), (true, 2));
}

/// A value that panics when it is dropped.
pub(crate) struct Bad;

impl Drop for Bad {
    fn drop(&mut self) {
        panic!("on purpose, in a drop");
    }
}

#[test]
fn a_panic_payload_that_panics_goes_no_further() {
    let servers = servers(3);
    let engine = engine(&servers);
    let guard = held(&engine, "job");
    guard.on_loss(|_| std::panic::panic_any(Bad));
    let reported = count_losses(&guard);
    lose(&guard, &servers, "job");
    eventually("the others are called", || reported.load(Ordering::SeqCst) == 1);
    drop(held(&engine, "next"));
    let report = engine.shutdown(LIMIT);
    assert_eq!((report.failed, report.panics), (false, 1));
}

#[test]
fn callbacks_that_panic_when_they_are_dropped_do_not_stop_the_release() {
    let servers = servers(3);
    let engine = engine(&servers);
    let guard = held(&engine, "job");
    for bad in [Bad, Bad] {
        guard.on_loss(move |_| drop(bad));
    }
    drop(guard);
    eventually("the release is confirmed", || held_on(&servers, "job") == 0);
    assert_eq!(engine.panics(), 2);
    let report = engine.shutdown(LIMIT);
    assert!(report.is_clean(), "{report}");
}

/// For example the last handle, whose drop waits for the end of the engine.
#[test]
fn a_callback_that_waits_for_the_release_when_it_is_dropped_does_not_stop_it() {
    struct Waits(Option<LossFuture>, mpsc::Sender<Option<LossCause>>);
    impl Drop for Waits {
        fn drop(&mut self) {
            self.1.send(self.0.take().unwrap().soon()).unwrap();
        }
    }
    let servers = servers(3);
    let engine = engine(&servers);
    let guard = held(&engine, "job");
    let (reported, received) = mpsc::channel();
    let waits = Waits(Some(guard.lost()), reported);
    guard.on_loss(move |_| drop(waits));
    drop(guard);
    assert_eq!(received.try_recv(), Ok(None), "the lock was released");
}

/// The thread is blocked past the end of a lease: the guard reports the end anyway, and the loss is
/// reported when the thread continues.
#[test]
fn a_guard_knows_its_end_while_the_thread_is_late() {
    let servers = servers(3);
    let (builder, ahead) = bent(&servers);
    let engine = engine_of(builder);
    let guard = held(&engine, "job");
    let reported = count_losses(&guard);
    let stop = stopped(&engine, &servers);
    ahead.sleep();
    assert!(!guard.is_valid(), "its validity has ended");
    assert_eq!(reported.load(Ordering::SeqCst), 0, "the thread is stopped");
    drop(stop);
    assert_eq!(guard.lost().soon(), Some(LossCause::Expired));
    eventually("the loss is reported", || reported.load(Ordering::SeqCst) == 1);
    assert_eq!(guard.release().soon().map_err(|lost| lost.cause()), Err(LossCause::Expired));
}

/// Its lease ends before the release, and the thread has noticed neither.
#[test]
fn a_release_behind_an_unseen_loss_says_lost_and_calls_nobody() {
    let servers = servers(3);
    let (builder, ahead) = bent(&servers);
    let engine = engine_of(builder);
    let guard = held(&engine, "job");
    let reported = count_losses(&guard);
    let watcher = guard.lost();
    let stop = stopped(&engine, &servers);
    ahead.sleep();
    assert!(!guard.is_valid(), "its validity has ended");
    let release = guard.release();
    drop(stop);
    assert_eq!(release.soon().map_err(|lost| lost.cause()), Err(LossCause::Expired));
    assert_eq!(watcher.soon(), Some(LossCause::Expired));
    assert!(engine.shutdown(LIMIT).is_clean());
    assert_eq!(reported.load(Ordering::SeqCst), 0);
}

/// The nodes granted it, and nobody polled before it ended.
#[test]
fn a_grant_that_is_polled_too_late_is_refused() {
    let servers = servers(3);
    let (builder, ahead) = bent(&servers);
    let engine = engine_of(builder);
    let asked = engine.acquire(patiently(b"job"));
    eventually("the lock is granted", || engine.in_flight() == 0);
    ahead.sleep();
    match asked.soon() {
        Err(AcquireError::Refused(report)) => {
            assert_eq!(report.reason(), RefusalReason::Expired);
            assert_eq!(report.node_votes().len(), 3);
        }
        other => panic!("{other:?}"),
    }
    assert!(engine.shutdown(LIMIT).is_clean());
}

#[test]
fn a_shutdown_releases_everything() {
    let servers = servers(3);
    let engine = engine(&servers);
    let guards: Vec<_> = (0..5).map(|at| held(&engine, &format!("job{at}"))).collect();
    let reported: Vec<_> = guards.iter().map(count_losses).collect();
    let watcher = guards[0].lost();
    let waiter = engine.acquire(patiently(b"job0"));
    eventually("the waiter waits", || engine.in_flight() == 1);
    let report = engine.shutdown(LIMIT);
    assert!(report.is_clean(), "{report}");
    assert_eq!((report.cancelled, report.released), (1, 5));
    assert_eq!(report.to_string(), "1 acquisitions cancelled, 5 locks released");
    for at in 0..5 {
        assert_eq!(held_on(&servers, &format!("job{at}")), 0);
    }
    let over = AcquireError::Engine(EngineError::ShutDown);
    assert_eq!(waiter.soon().unwrap_err(), over);
    assert_eq!(engine.acquire(long(b"late")).soon().unwrap_err(), over);
    assert_eq!(engine.node_report().soon().unwrap_err(), EngineError::ShutDown);
    assert_eq!(engine.shutdown(Duration::ZERO), report);
    assert!(reported.iter().all(|reported| reported.load(Ordering::SeqCst) == 1));
    assert_eq!(watcher.soon(), Some(LossCause::ShutDown));
    for guard in guards {
        assert!(!guard.is_valid());
        assert_eq!(count_losses(&guard).load(Ordering::SeqCst), 1);
        let extended = guard.extend(Duration::from_secs(20)).soon();
        assert_eq!(loss(&extended.unwrap_err()), Some(LossCause::ShutDown));
        assert_eq!(guard.release().soon().map_err(|lost| lost.cause()), Err(LossCause::ShutDown));
    }
}

/// Waiters in the queue are removed before the lock they wait for is released. So many bytes are to
/// be written that their requests could not be withdrawn.
#[test]
fn no_lock_is_handed_on_to_a_waiter_when_the_engine_ends() {
    const LOCKS: usize = 400;
    let servers = servers(1);
    let engine = engine(&servers);
    let names: Vec<_> = (0..LOCKS).map(|at| format!("{at:0400}")).collect();
    let request = |name: &String| engine.acquire(patiently(name.as_bytes()));
    let guards: Vec<_> = names
        .iter()
        .map(request)
        .collect::<Vec<_>>()
        .into_iter()
        .map(|it| it.soon().unwrap())
        .collect();
    let waiters: Vec<_> = names.iter().map(request).collect();
    // This query is answered after the last of them.
    engine.node_report().soon().unwrap();
    let report = engine.shutdown(LIMIT);
    assert_eq!((report.cancelled, report.released), (LOCKS, LOCKS), "{report}");
    assert_eq!(calls(&servers[0], "set"), LOCKS as u64, "no waiter has sent a request");
    drop((guards, waiters));
}

#[test]
fn a_shutdown_reports_what_it_could_not_release() {
    let servers = servers(3);
    // The engine would wait for these nodes longer than the shutdown does.
    let engine = engine_of(builder(&servers).response_timeout(LIMIT).dead_peer_timeout(2 * LIMIT));
    let guard = engine.acquire(patiently(b"job").and(b"other")).soon().unwrap();
    servers[..2].iter().for_each(Server::pause);
    let begin = Instant::now();
    let report = engine.shutdown(ENOUGH);
    let took = begin.elapsed();
    servers[..2].iter().for_each(Server::resume);
    assert!(took < LIMIT, "{took:?}");
    assert!(report.ended && report.owed && !report.is_clean(), "{report}");
    let [lock] = &report.unreleased[..] else { panic!("{report}") };
    assert_eq!(lock.resources, [b"job".to_vec(), b"other".to_vec()]);
    assert_eq!((lock.confirmed.nodes, lock.confirmed.of), (1, 3));
    assert!(report.to_string().contains("not released: lock job, other (1 of 3 confirmed)"));
    assert_eq!(guard.release().soon().map_err(|lost| lost.cause()), Err(LossCause::ShutDown));
    // The undo was written nevertheless.
    eventually("no key is left", || held_on(&servers, "job") == 0);
}

#[test]
fn a_release_that_the_shutdown_overtakes_says_how_far_it_got() {
    let servers = servers(3);
    let engine = engine_of(builder(&servers).response_timeout(LIMIT).dead_peer_timeout(2 * LIMIT));
    let guard = held(&engine, "job");
    let watcher = guard.lost();
    servers[..2].iter().for_each(Server::pause);
    let release = guard.release();
    let report = engine.shutdown(ENOUGH);
    servers[..2].iter().for_each(Server::resume);
    assert_eq!(report.unreleased.len(), 1);
    match release.soon() {
        Ok(confirmed) => assert_eq!((confirmed.nodes, confirmed.of), (1, 3)),
        other => panic!("{other:?}"),
    }
    assert_eq!(watcher.soon(), None, "its holder had released it");
}

#[test]
fn a_second_shutdown_with_less_time_cuts_the_first_short() {
    let servers = servers(3);
    let engine = engine_of(builder(&servers).response_timeout(LIMIT).dead_peer_timeout(2 * LIMIT));
    let guard = held(&engine, "job");
    servers[..2].iter().for_each(Server::pause);
    let first = {
        let engine = engine.clone();
        thread::spawn(move || engine.shutdown(LIMIT))
    };
    eventually("the shutdown has begun", || !guard.is_valid());
    let report = engine.shutdown(ENOUGH);
    servers[..2].iter().for_each(Server::resume);
    assert!(report.ended && report.unreleased.len() == 1, "{report}");
    assert_eq!(first.join().unwrap(), report);
}

#[test]
fn a_shutdown_from_a_callback_does_not_wait_for_itself() {
    let servers = servers(1);
    let engine = engine(&servers);
    let guard = held(&engine, "job");
    let (reported, received) = mpsc::channel();
    let own = engine.clone();
    guard.on_loss(move |_| reported.send(own.shutdown(LIMIT)).unwrap());
    lose(&guard, &servers, "job");
    assert!(!received.recv_timeout(LIMIT).unwrap().ended);
    assert!(engine.shutdown(LIMIT).ended);
}

#[test]
fn a_callback_that_hangs_is_left_behind() {
    let servers = servers(1);
    let engine = engine(&servers);
    let stop = stopped(&engine, &servers);
    let begin = Instant::now();
    assert!(!engine.shutdown(BRIEF).ended);
    drop(engine.clone());
    assert!(begin.elapsed() < 2 * LIMIT / 3);
    drop(stop);
    assert!(engine.shutdown(LIMIT).ended);
}

#[test]
fn dropping_the_last_handle_ends_the_engine() {
    let servers = servers(3);
    let engine = engine(&servers);
    let second = engine.clone();
    let guard = held(&engine, "job");
    drop(engine);
    assert!(guard.is_valid(), "another handle exists");
    drop(held(&second, "next"));
    drop(second);
    // The drop waits for no longer than a moment.
    eventually("the lock is taken back", || !guard.is_valid());
    eventually("no key is left", || held_on(&servers, "job") == 0);
    assert_eq!(guard.release().soon().map_err(|lost| lost.cause()), Err(LossCause::ShutDown));
}

#[test]
fn a_dead_minority_is_not_missed_and_a_dead_majority_is_named() {
    let mut servers = servers(3);
    let engine = engine_of(default(servers.iter().map(Server::address)));
    drop(held(&engine, "job"));
    servers[2].kill();
    drop(held(&engine, "job"));
    servers[1].kill();
    let refused = engine.acquire(long(b"job")).soon().unwrap_err();
    let AcquireError::Refused(report) = refused else { panic!("{refused}") };
    assert_eq!(report.reason(), RefusalReason::NoQuorum);
    assert!(report.to_string().contains("node 2"), "{report}");
    assert!(engine.node_report().soon().unwrap().ready() <= 2);
    assert!(engine.shutdown(PATIENCE).ended);
}

#[test]
fn an_engine_answers_inspections_and_reports() {
    let servers = servers(3);
    let engine = limited(&servers, 1);
    let request = patiently(b"job");
    let guard = engine.acquire(request.clone()).soon().unwrap();
    let report = engine.inspect(b"job").soon().unwrap();
    assert!(matches!(report.verdict, InspectionVerdict::Held(_)), "{report:?}");
    assert_eq!(engine.inspect(b"free").soon().unwrap().verdict, InspectionVerdict::Free);
    let error = engine.inspect(b"").soon().unwrap_err();
    assert_eq!(error, AcquireError::Request(RequestError::EmptyResource));
    assert_eq!(engine.node_report().soon().unwrap().nodes.len(), 3);
    assert_eq!(engine.metrics().soon().unwrap().metrics.grants, 1);
    // Inspections count as calls in flight. Reports that a busy engine can make itself do not.
    let waiter = engine.acquire(request);
    let busy = AcquireError::Engine(EngineError::Busy { limit: 1 });
    assert_eq!(engine.inspect(b"job").soon().unwrap_err(), busy);
    assert_eq!(engine.node_report().soon().unwrap().nodes.len(), 3);
    assert_eq!(engine.metrics().soon().unwrap().metrics.grants, 1);
    assert_eq!(engine.in_flight(), 1);
    drop(waiter);
    eventually("there is room", || engine.inspect(b"job").soon().is_ok());
    assert!(guard.release().soon().is_ok());
    // An inspection that nobody waits for leaves nothing behind.
    drop(engine.inspect(b"job"));
    eventually("all calls are answered", || engine.in_flight() == 0);
}

#[test]
fn a_panic_in_a_log_costs_nobody_an_outcome() {
    struct Bad;
    impl Log for Bad {
        fn note(&self, _: &Note<'_>) {
            panic!("on purpose, in a log");
        }
    }
    let servers = servers(3);
    let engine = engine_of(builder(&servers).log(Arc::new(Bad)));
    for _ in 0..3 {
        let guard = held(&engine, "job");
        guard.extend(Duration::from_secs(20)).soon().unwrap();
        assert!(guard.release().soon().is_ok());
    }
    assert!(engine.panics() > 0);
    assert!(!engine.shutdown(LIMIT).failed);
}

/// Extended many times in its TTL, so that none of them has to come in time.
fn kept(keep: AutoExtend) -> LockRequest<'static> {
    waits(b"job").ttl(LONG).auto_extend(keep.every(LONG / 20))
}

#[test]
fn a_lock_that_is_auto_extended_outlives_its_ttl() {
    let timed = Timed::of(3);
    let engine = engine_of(timed.builder());
    let guard = engine.acquire(kept(AutoExtend::until_released())).soon().unwrap();
    let reported = count_losses(&guard);
    let mut passed = Duration::ZERO;
    while passed < 2 * LONG {
        timed.pass(LONG / 10);
        passed += LONG / 10;
        eventually("the key is extended", || timed.shortest_ttl("job") > LONG * 9 / 10);
    }
    assert!(guard.is_valid(), "the guard knows of the extensions");
    assert!(guard.release().soon().is_ok());
    timed.until_free("job");
    assert_eq!(reported.load(Ordering::SeqCst), 0);
}

#[test]
fn an_auto_extended_lock_that_cannot_be_extended_is_lost_and_reported_once() {
    let timed = Timed::of(3);
    let proxies: Vec<_> =
        timed.nodes.iter().map(|node| Proxy::before(&node.address().to_string())).collect();
    let engine = engine_of(timed.bend(patient(proxies.iter().map(Proxy::address))));
    let guard = engine.acquire(kept(AutoExtend::until_released())).soon().unwrap();
    let reported = count_losses(&guard);
    let watcher = guard.lost();
    proxies[..2].iter().for_each(|proxy| proxy.set(Mode::Stall));
    timed.pass_until("the lock is lost", 2 * LONG, || !guard.is_valid());
    let cause = watcher.soon();
    proxies[..2].iter().for_each(|proxy| proxy.set(Mode::Pass));
    assert_eq!(cause, Some(LossCause::Unextended));
    eventually("the callback came", || reported.load(Ordering::SeqCst) == 1);
    assert_eq!(guard.release().soon().map_err(|lost| lost.cause()), Err(LossCause::Unextended));
    timed.pass_until("no key is left", 2 * LONG, || timed.held_on("job") == 0);
    assert_eq!(reported.load(Ordering::SeqCst), 1);
}

#[test]
fn an_auto_extended_lock_is_held_for_no_longer_than_it_may() {
    let timed = Timed::of(3);
    let engine = engine_of(timed.builder());
    let keep = AutoExtend::until_released().max_hold(LONG + Duration::from_secs(5));
    let guard = engine.acquire(kept(keep)).soon().unwrap();
    let granted = timed.now();
    timed.pass_until("the lock is lost", 2 * LONG, || !guard.is_valid());
    assert!(timed.now() - granted > LONG, "lost before its TTL");
    assert_eq!(guard.lost().soon(), Some(LossCause::HeldTooLong));
    assert_eq!(guard.release().soon().map_err(|lost| lost.cause()), Err(LossCause::HeldTooLong));
}

/// The engine's lock keeps out a client of another API, and vice versa.
#[test]
fn an_engine_shares_the_nodes_with_other_apis() {
    let servers = servers(3);
    let (engine, client) = (engine(&servers), client(&servers));
    let guard = held(&engine, "job");
    assert!(client.acquire(long(b"job")).is_err());
    drop(guard);
    let lock = client.acquire(patiently(b"job")).unwrap();
    assert!(engine.acquire(long(b"job")).soon().is_err());
    drop(lock);
    drop(held(&engine, "job"));
    eventually("no key is left", || !servers.iter().any(|server| exists(server, "job")));
}

#[test]
fn a_lock_that_is_over_when_it_is_attached_is_lost() {
    let timed = Timed::of(3);
    let engine = engine_of(timed.builder());
    let guard = engine.acquire(waits(b"job").ttl(SHORT)).soon().unwrap();
    let detached = guard.detach().soon().unwrap().expect("the lock is held");
    timed.pass(2 * SHORT);
    let guard = engine.attach(&detached).soon().unwrap();
    assert!(!guard.is_valid());
    assert_eq!(guard.lost().soon(), Some(LossCause::Expired));
    assert_eq!(guard.release().soon().map_err(|lost| lost.cause()), Err(LossCause::Expired));

    let strangers = engine_of(builder(&servers(1)));
    let error = strangers.attach(&detached).soon().unwrap_err();
    assert_eq!(error, AcquireError::Request(RequestError::OtherNodes));
    assert_eq!(engine.in_flight(), 0);
}

/// For its watchers it was held to its end here.
#[test]
fn a_lock_that_is_detached_is_not_lost() {
    let servers = servers(3);
    let engine = engine(&servers);
    let guard = engine.acquire(patiently(b"job")).soon().unwrap();
    let lost = guard.lost();
    guard.on_loss(|cause| panic!("the lock is not lost: {cause}"));
    let detached = guard.detach().soon().unwrap().expect("the lock is held");
    assert_eq!(lost.soon(), None);
    // A dropped future releases what it attaches.
    drop(engine.attach(&detached));
    eventually("no key is left", || held_on(&servers, "job") == 0);
    let report = engine.shutdown(LIMIT);
    assert!(report.is_clean() && report.panics == 0, "{report}");

    let engine = engine_of(builder(&servers));
    let guard = engine.acquire(patiently(b"job")).soon().unwrap();
    assert!(engine.shutdown(LIMIT).is_clean());
    assert_eq!(guard.detach().soon().unwrap_err(), EngineError::ShutDown);
    assert_eq!(engine.attach(&detached).soon().unwrap_err(), EngineError::ShutDown.into());
}

#[test]
fn an_engine_reports_when_its_nodes_are_ready() {
    let servers = servers(3);
    let engine = engine(&servers);
    let report = engine.warm_up(LIMIT).soon().unwrap();
    assert_eq!(report.ready(), 3, "{report}");
    let report = engine.warm_up_push(LIMIT).soon().unwrap();
    assert!(report.nodes.iter().all(|node| node.push == PushState::Active), "{report:?}");

    let nobody = engine_of(default(["127.0.0.1:1"]));
    let report = nobody.warm_up_push(LIMIT).soon().unwrap();
    assert_eq!(report.ready(), 0, "{report}");
    assert!(report.to_string().contains("connection refused"), "{report}");
}

#[test]
fn locks_that_are_asked_for_together_have_their_outcomes_in_order() {
    let servers = servers(3);
    let engine = engine(&servers);
    let _held = engine.acquire(patiently(b"b")).soon().unwrap();
    let requests = || [patiently(b"a"), long(b"b"), patiently(b"a"), long(b"c")];
    let mut outcomes = engine.acquire_all(requests()).soon().into_iter();
    let a = outcomes.next().unwrap().unwrap();
    assert!(matches!(outcomes.next().unwrap(), Err(AcquireError::Refused(_))));
    let twice = RequestError::DuplicateRequest { index: 2 };
    assert_eq!(outcomes.next().unwrap().unwrap_err(), AcquireError::Request(twice));
    let c = outcomes.next().unwrap().unwrap();
    assert!(a.is_valid() && c.is_valid() && outcomes.next().is_none());
    drop((a, c));

    // Dropping it cancels its requests, and releases what was granted.
    let waiting = engine.acquire_all([patiently(b"d"), patiently(b"b")]);
    eventually("the first of them is granted", || held_on(&servers, "d") >= 2);
    drop(waiting);
    eventually("no key and no call is left", || {
        held_on(&servers, "d") == 0 && engine.in_flight() == 0
    });

    engine.shutdown(LIMIT);
    let over = engine.acquire_all(requests()).soon();
    let is_over = |outcome: &Result<OwnedGuard, AcquireError>| {
        matches!(outcome, Err(AcquireError::Engine(EngineError::ShutDown)))
    };
    assert_eq!(over.iter().filter(|outcome| is_over(outcome)).count(), 3);
}
