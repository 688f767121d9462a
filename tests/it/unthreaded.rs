//! An engine without a thread: driven by executors through its descriptor, and by the test.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use redbolt::{
    AcquireError, AutoExtend, ConfigBuilder, Engine, EngineError, ExtendError, LockRequest,
    LossCause, OwnedGuard,
    engine::{AcquireFuture, EngineIo},
    report::PushState,
};
use redbolt_test_servers::Server;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use smol::Timer;
use tokio::io::{Interest, unix::AsyncFd};

use crate::futures::block_on;
use crate::support::{
    LIMIT, LONG, builder, client, eventually, held_on, long, loss, patiently, servers,
};
use crate::timed::{Timed, waits};

/// Starts an engine that a task of the present executor drives.
type Start = fn(ConfigBuilder) -> Engine;

/// Each scenario on each executor.
macro_rules! on_each_executor {
    ($($scenario:ident),* $(,)?) => {
        mod tokio_current_thread { $(#[test] fn $scenario() { super::on_tokio(super::$scenario); })* }
        mod smol_executor { $(#[test] fn $scenario() { super::on_smol(super::$scenario); })* }
    };
}

on_each_executor!(
    a_lock_from_its_ask_to_its_end,
    a_lock_is_extended_until_it_is_released,
    a_loss_is_reported_and_its_callback_may_use_the_engine,
    a_shutdown_on_the_executor_s_thread_ends_everything,
    a_waiter_is_notified,
    many_tasks_at_once,
    tasks_wait_for_one_another,
);

fn on_tokio<F: Future<Output = ()>>(scenario: fn(Start) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let start = |builder| {
        let (engine, io) = unthreaded(builder);
        tokio::spawn(drive_on_tokio(io));
        engine
    };
    runtime.block_on(async {
        let bounded = tokio::time::timeout(4 * LIMIT, scenario(start));
        bounded.await.expect("the scenario ends");
    });
}

async fn drive_on_tokio(io: EngineIo) {
    #[allow(deprecated, reason = "what replaces it is unsafe; the descriptor stays as it is")]
    let io = AsyncFd::with_interest(io, Interest::READABLE).unwrap();
    while !io.get_ref().has_ended() {
        let timeout = io.get_ref().timeout();
        tokio::select! {
            ready = io.readable() => ready.unwrap().clear_ready(),
            () = tokio::time::sleep(timeout.unwrap_or_default()), if timeout.is_some() => {}
        }
        io.get_ref().on_ready();
    }
}

fn on_smol<F: Future<Output = ()>>(scenario: fn(Start) -> F) {
    let start = |builder| {
        let (engine, io) = unthreaded(builder);
        smol::spawn(drive_on_smol(io)).detach();
        engine
    };
    let late = async {
        Timer::after(4 * LIMIT).await;
        panic!("the scenario does not end");
    };
    smol::block_on(smol::future::or(scenario(start), late));
}

async fn drive_on_smol(io: EngineIo) {
    let io = smol::Async::new_nonblocking(io).unwrap();
    while !io.get_ref().has_ended() {
        let due = async {
            match io.get_ref().timeout() {
                Some(timeout) => drop(Timer::after(timeout).await),
                None => std::future::pending().await,
            }
            Ok(())
        };
        smol::future::or(io.readable(), due).await.unwrap();
        io.get_ref().on_ready();
    }
}

fn unthreaded(builder: ConfigBuilder) -> (Engine, EngineIo) {
    Engine::unthreaded(builder.build().unwrap()).unwrap()
}

/// Waits without holding up the executor.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < until, "not within {LIMIT:?}: {what}");
        Timer::after(Duration::from_millis(2)).await;
    }
}

async fn a_lock_from_its_ask_to_its_end(start: Start) {
    let servers = servers(3);
    let engine = start(builder(&servers));
    let guard = engine.acquire(patiently(b"job").fenced()).await.unwrap();
    assert!(guard.is_valid() && guard.fencing_token().is_some());
    assert!(engine.lock("job").try_acquire().await.unwrap().is_none());
    guard.extend(Duration::from_secs(29)).await.unwrap();
    assert!(guard.remaining() > Duration::from_secs(25));
    // It is cancelled, also if it was never polled.
    drop(engine.acquire(patiently(b"job")));
    assert!(guard.release().await.is_ok());
    until("no key is left", || held_on(&servers, "job") == 0).await;
    assert_eq!(engine.node_report().await.unwrap().nodes.len(), 3);
    assert_eq!((engine.in_flight(), engine.panics()), (0, 0));
}

/// The host's timer alone brings it about.
async fn a_lock_is_extended_until_it_is_released(start: Start) {
    let timed = Timed::of(3);
    let engine = start(timed.builder());
    let guard = engine.lock("job").await.unwrap();
    let time = thread::spawn(move || {
        timed.pass(3 * Duration::from_secs(10));
        timed
    });
    until("time has passed", || time.is_finished()).await;
    let _nodes = time.join().unwrap();
    assert!(guard.is_valid());
    assert!(engine.metrics().await.unwrap().metrics.auto_extended >= 3);
    guard.release().await.unwrap();
}

async fn a_loss_is_reported_and_its_callback_may_use_the_engine(start: Start) {
    let timed = Timed::of(3);
    let engine = start(timed.builder());
    let guard = engine.acquire(waits(b"job")).await.unwrap();
    let (sender, received) = mpsc::channel();
    let of_callback = engine.clone();
    guard.on_loss(move |cause| {
        let waited = catch_unwind(AssertUnwindSafe(|| of_callback.node_report().wait()));
        let next = of_callback.acquire(waits(b"next"));
        sender.send((cause, waited.is_err(), next)).unwrap();
    });
    let time = thread::spawn(move || {
        timed.pass(Duration::from_secs(12));
        timed
    });
    assert_eq!(guard.lost().await, Some(LossCause::Expired));
    let _nodes = time.join().unwrap();
    let (cause, is_refused, next) = received.recv_timeout(LIMIT).unwrap();
    assert_eq!((cause, is_refused), (LossCause::Expired, true));
    assert!(next.await.unwrap().is_valid());
    assert_eq!(guard.release().await.map_err(|lost| lost.cause()), Err(LossCause::Expired));
}

async fn many_tasks_at_once(start: Start) {
    let servers = servers(3);
    let engine = start(builder(&servers));
    let names: Vec<String> = (0..200).map(|at| format!("job{at}")).collect();
    let asked: Vec<_> = names.iter().map(|name| engine.acquire(long(name.as_bytes()))).collect();
    let mut guards = engine.acquire_all((0..50).map(names_of)).await;
    for asked in asked {
        guards.push(asked.await);
    }
    let guards: Vec<_> = guards.into_iter().map(Result::unwrap).collect();
    assert!(guards.iter().all(|it| it.is_valid()));
    for extended in guards.iter().map(|it| it.extend(LONG)).collect::<Vec<_>>() {
        extended.await.unwrap();
    }
    for release in guards.into_iter().map(OwnedGuard::release).collect::<Vec<_>>() {
        assert!(release.await.is_ok());
    }
}

/// A request for one of many locks.
fn names_of(at: usize) -> LockRequest<'static> {
    LockRequest::new(format!("other{at}").as_bytes()).ttl(LONG).into_owned()
}

/// Two tasks take turns: each waits for the lock that the other one holds.
async fn tasks_wait_for_one_another(start: Start) {
    let servers = servers(3);
    let engine = start(builder(&servers));
    let mut guard = engine.acquire(patiently(b"job")).await.unwrap();
    for _ in 0..20 {
        let next = engine.acquire(patiently(b"job"));
        drop(guard);
        guard = next.await.unwrap();
    }
    assert!(guard.release().await.is_ok());
}

/// A client of another thread releases its lock.
async fn a_waiter_is_notified(start: Start) {
    let servers = servers(1);
    let client = client(&servers);
    let held = client.acquire(long(b"job")).unwrap();
    let engine = start(builder(&servers));
    let waiter = engine.acquire(patiently(b"job"));
    let end = Instant::now() + LIMIT;
    while engine.node_report().await.unwrap().nodes[0].push != PushState::Active {
        assert!(Instant::now() < end, "the node does not notify");
        Timer::after(Duration::from_millis(2)).await;
    }
    held.release().unwrap();
    assert!(waiter.await.unwrap().is_valid());
    assert!(engine.metrics().await.unwrap().metrics.wakes > 0);
}

/// The thread that would drive it waits for the shutdown.
async fn a_shutdown_on_the_executor_s_thread_ends_everything(start: Start) {
    let servers = servers(3);
    let engine = start(builder(&servers));
    let guard = engine.acquire(patiently(b"job")).await.unwrap();
    let other = engine.acquire(patiently(b"other")).await.unwrap();
    let waiting = engine.acquire(patiently(b"job"));
    let report = engine.shutdown(LIMIT);
    assert!(report.is_clean() && report.released == 2 && report.cancelled == 1, "{report}");
    assert_eq!(held_on(&servers, "job") + held_on(&servers, "other"), 0);
    assert_eq!(waiting.await.unwrap_err(), over());
    assert_eq!(guard.lost().await, Some(LossCause::ShutDown));
    assert_eq!(loss(&other.extend(LONG).await.unwrap_err()), Some(LossCause::ShutDown));
    assert_eq!(engine.acquire(long(b"next")).await.unwrap_err(), over());
    assert_eq!(engine.shutdown(LIMIT), report, "the same end");
}

fn over() -> AcquireError {
    AcquireError::Engine(EngineError::ShutDown)
}

/// A host that is driven by the test.
struct Host {
    engine: Engine,
    io: EngineIo,
}

impl Host {
    fn of(servers: &[Server]) -> Self {
        let (engine, io) = unthreaded(builder(servers));
        let host = Self { engine, io };
        host.complete(host.engine.warm_up(LIMIT)).unwrap();
        host
    }

    /// One sleep and one turn.
    fn step(&self) {
        sleep(&self.io);
        self.io.on_ready();
    }

    /// Drives it until the future is complete.
    fn complete<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        let until = Instant::now() + 2 * LIMIT;
        loop {
            let mut context = Context::from_waker(Waker::noop());
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return output;
            }
            assert!(Instant::now() < until, "the future never completes");
            self.step();
        }
    }
}

/// Sleeps for as long as the engine allows. Returns whether its descriptor is readable.
fn sleep(io: &EngineIo) -> bool {
    let span = io.timeout().map(|span| Timespec::try_from(span).unwrap());
    poll(&mut [PollFd::new(io, PollFlags::IN)], span.as_ref()).unwrap() > 0
}

#[test]
fn requests_and_releases_are_written_by_the_calls() {
    let servers = servers(3);
    let host = Host::of(&servers);
    for _ in 0..3 {
        // Nobody drives it.
        let asked = host.engine.acquire(long(b"job"));
        eventually("all nodes have the key", || held_on(&servers, "job") == 3);
        let guard = host.complete(asked).unwrap();
        let released = guard.release();
        eventually("no node has the key", || held_on(&servers, "job") == 0);
        assert!(host.complete(released).is_ok());
        let many = host.engine.acquire_all([long(b"job"), long(b"other")]);
        eventually("both are written", || {
            held_on(&servers, "job") + held_on(&servers, "other") == 6
        });
        host.complete(many).into_iter().for_each(|guard| drop(guard.unwrap()));
        eventually("both are free", || held_on(&servers, "job") + held_on(&servers, "other") == 0);
    }
}

/// All other calls wake the host.
#[test]
fn what_callers_do_not_write_makes_the_descriptor_readable() {
    let servers = servers(1);
    let host = Host::of(&servers);
    let guard = host.complete(host.engine.acquire(long(b"job"))).unwrap();
    while host.io.timeout().is_some_and(|span| span < LIMIT / 2) {
        host.step();
    }
    let extension = guard.extend(LONG);
    assert!(sleep(&host.io));
    host.complete(extension).unwrap();
    host.complete(guard.release()).unwrap();
}

/// A host that sleeps without a timeout, and a request that is due sooner.
#[test]
fn a_call_that_needs_an_earlier_turn_makes_the_descriptor_readable() {
    let servers = servers(1);
    let brief = Duration::from_millis(500);
    let (engine, io) = unthreaded(builder(&servers).response_timeout(brief));
    let host = Host { engine, io };
    drop(host.complete(host.engine.acquire(patiently(b"first"))).unwrap());
    let end = Instant::now() + LIMIT;
    while host.io.timeout().is_none_or(|span| span <= brief) {
        assert!(Instant::now() < end, "something is always due");
        if host.io.timeout().is_none() {
            break;
        }
        host.step();
    }
    servers[0].pause();
    let asked = host.engine.acquire(long(b"job"));
    assert!(sleep(&host.io), "the host is called");
    let begun = Instant::now();
    assert!(host.complete(asked).is_err());
    assert!(begun.elapsed() < LIMIT, "it is refused by its own timeout");
    servers[0].resume();
}

#[test]
fn dropping_the_io_ends_the_engine() {
    let servers = servers(3);
    let Host { engine, io } = Host::of(&servers);
    let host = Host { engine, io };
    let guard = host.complete(host.engine.acquire(patiently(b"job"))).unwrap();
    let waiting = host.engine.acquire(patiently(b"job"));
    let extension = guard.extend(LONG);
    let question = host.engine.inspect(b"job");
    let (sender, received) = mpsc::channel();
    guard.on_loss(move |cause| sender.send(cause).unwrap());
    let Host { engine, io } = host;
    drop(io);
    assert_eq!(received.recv_timeout(LIMIT), Ok(LossCause::ShutDown));
    assert_eq!(block_on(waiting).unwrap_err(), over());
    assert!(matches!(block_on(extension), Err(ExtendError::Lost(_)) | Ok(())));
    assert_eq!(block_on(question).unwrap_err(), over());
    assert_eq!(block_on(guard.lost()), Some(LossCause::ShutDown));
    assert!(!guard.is_valid());
    assert_eq!(block_on(engine.acquire(long(b"next"))).unwrap_err(), over());
    assert!(engine.shutdown(LIMIT).ended);
    eventually("it is released", || held_on(&servers, "job") == 0);
}

/// The drop drives it to its end, which its host is notified of.
#[test]
fn dropping_the_last_handle_ends_the_engine() {
    let servers = servers(3);
    let Host { engine, io } = Host::of(&servers);
    let host = Host { engine: engine.clone(), io };
    let guard = host.complete(engine.acquire(patiently(b"job"))).unwrap();
    let Host { engine: other, io } = host;
    drop(other);
    assert!(!io.has_ended() && guard.is_valid());
    drop(engine);
    assert!(io.has_ended() && !guard.is_valid());
    assert!(sleep(&io), "the host is woken");
    io.on_ready();
    assert_eq!(io.timeout(), None);
    assert_eq!(held_on(&servers, "job"), 0);
}

/// A callback of a loss shuts the engine down, which cannot wait for itself.
#[test]
fn a_shutdown_in_a_callback_does_not_wait() {
    let servers = servers(1);
    let host = Host::of(&servers);
    let guard = host.complete(host.engine.acquire(patiently(b"job"))).unwrap();
    let (engine, (sender, received)) = (host.engine.clone(), mpsc::channel());
    guard.on_loss(move |_| sender.send(engine.shutdown(LIMIT)).unwrap());
    servers[0].cmd("DEL job");
    let begun = Instant::now();
    assert_eq!(loss(&host.complete(guard.extend(LONG)).unwrap_err()), Some(LossCause::Gone));
    assert!(!received.recv_timeout(LIMIT).unwrap().ended);
    while !host.io.has_ended() {
        host.step();
    }
    assert!(begun.elapsed() < LIMIT);
    assert!(host.engine.shutdown(LIMIT).ended);
}

#[test]
fn nobody_can_wait_for_an_engine_without_a_thread() {
    let servers = servers(1);
    let host = Host::of(&servers);
    let panics = |wait: &dyn Fn()| {
        let payload = catch_unwind(AssertUnwindSafe(wait)).expect_err("it panics");
        let message = payload.downcast_ref::<&str>().expect("it has a message");
        assert_eq!(*message, "an engine without a thread cannot be waited for: await it");
    };
    panics(&|| drop(host.engine.acquire(long(b"job")).wait()));
    panics(&|| drop(host.engine.lock("job").acquire_blocking()));
    panics(&|| drop(host.engine.node_report().wait()));
    panics(&|| drop(host.engine.acquire_all([long(b"job")]).wait()));
    // A call that is refused is not waited for.
    let Host { engine, io } = host;
    drop(io);
    assert_eq!(engine.acquire(long(b"job")).wait().unwrap_err(), over());
}

/// Wakers are called by whoever drives the engine.
#[test]
fn a_waker_that_panics_does_not_end_it() {
    let servers = servers(1);
    let host = Host::of(&servers);
    let guard = host.complete(host.engine.acquire(patiently(b"job"))).unwrap();
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("on purpose");
        }
    }
    let waker: Waker = Arc::new(Panics).into();
    let mut watcher = pin!(guard.lost());
    assert!(watcher.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    host.complete(guard.release()).unwrap();
    assert_eq!(host.engine.panics(), 1);
    drop(host.complete(host.engine.acquire(patiently(b"job"))).unwrap());
}

/// Threads that push, a host that turns, and a shutdown by another thread in the middle: each future has an outcome.
#[test]
fn no_call_is_forgotten_between_threads() {
    let servers = servers(3);
    for is_shut_down in [false, true] {
        let Host { engine, io } = Host::of(&servers);
        let driver = thread::spawn(move || {
            while !io.has_ended() {
                sleep(&io);
                io.on_ready();
            }
        });
        let caller = |number: usize| {
            let engine = engine.clone();
            let keep = AutoExtend::until_released().every(Duration::from_millis(1));
            move || {
                let name = format!("job{number}");
                for _ in 0..200 {
                    let asked: AcquireFuture = match number {
                        // All of them extend their locks, and two wait for each other.
                        0 | 1 => engine.acquire(patiently(b"job")),
                        _ => engine.acquire(long(name.as_bytes()).auto_extend(keep)),
                    };
                    let Ok(guard) = block_on(asked) else { return };
                    let _ = block_on(guard.extend(LONG));
                    let _ = block_on(guard.release());
                }
            }
        };
        let callers: Vec<_> = (0..4).map(|number| thread::spawn(caller(number))).collect();
        if is_shut_down {
            thread::sleep(Duration::from_millis(30));
            assert!(engine.shutdown(LIMIT).ended);
        }
        callers.into_iter().for_each(|caller| caller.join().unwrap());
        assert_eq!(engine.in_flight(), 0);
        assert!(engine.shutdown(LIMIT).is_clean());
        driver.join().unwrap();
    }
}

#[test]
fn it_can_be_sent_and_shared() {
    fn sent<T: Send + Sync + 'static>() {}
    sent::<EngineIo>();
}
