//! The engine's futures on several executors, one of them of twenty lines: the same scenarios on
//! each.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use redbolt::{
    Engine, LossCause, OwnedGuard,
    engine::{AcquireFuture, ExtendFuture, LossFuture, ReleaseFuture},
};
use redbolt_test_servers::Server;

use crate::engine::{Bad, engine, engine_of};
use crate::support::{LIMIT, eventually, held_on, long, patiently, servers};
use crate::timed::{Timed, waits};

/// Runs each scenario on each executor.
macro_rules! on_each_executor {
    ($($scenario:ident),* $(,)?) => {
        mod tokio_current_thread { $(#[test] fn $scenario() {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            super::bounded(move || runtime.block_on(super::$scenario()));
        })* }
        mod tokio_multi_thread { $(#[test] fn $scenario() {
            let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build();
            let runtime = threads.unwrap();
            let scenario = runtime.spawn(super::$scenario());
            super::bounded(move || runtime.block_on(scenario).unwrap());
        })* }
        mod smol_executor { $(#[test] fn $scenario() {
            super::bounded(|| smol::block_on(smol::spawn(super::$scenario())));
        })* }
        mod twenty_lines { $(#[test] fn $scenario() {
            super::bounded(|| super::block_on(super::$scenario()));
        })* }
    };
}

on_each_executor!(
    a_lock_from_its_ask_to_its_end,
    a_pending_future_that_is_dropped_is_cancelled,
    a_watcher_learns_of_the_loss,
    a_watcher_learns_of_the_release,
    many_at_once,
    tasks_wait_for_one_another,
);

async fn a_lock_from_its_ask_to_its_end() {
    let servers = servers(3);
    let engine = engine(&servers);
    let guard = engine.acquire(patiently(b"job").fenced()).await.unwrap();
    assert!(guard.is_valid() && guard.fencing_token().is_some());
    assert!(engine.lock("job").try_acquire().await.unwrap().is_none());
    guard.extend(Duration::from_secs(29)).await.unwrap();
    assert!(guard.remaining() > Duration::from_secs(25));
    assert!(guard.release().await.is_ok());
    assert_eq!(engine.node_report().await.unwrap().nodes.len(), 3);
    eventually("no key is left", || held_on(&servers, "job") == 0);
}

async fn a_pending_future_that_is_dropped_is_cancelled() {
    let servers = servers(3);
    let engine = engine(&servers);
    let guard = engine.acquire(patiently(b"job")).await.unwrap();
    // One future is polled once, the other never.
    let mut polled = engine.acquire(patiently(b"job"));
    assert!(once(&mut polled).await.is_none());
    let unpolled = engine.acquire(patiently(b"job"));
    assert_eq!(engine.in_flight(), 2);
    drop((polled, unpolled));
    eventually("both have ended", || engine.in_flight() == 0);
    assert!(guard.is_valid());
    assert!(guard.release().await.is_ok());
    // This one is granted, and dropped before it was polled.
    let granted = engine.acquire(patiently(b"job"));
    eventually("the lock is granted", || engine.in_flight() == 0);
    drop(granted);
    eventually("no key is left", || held_on(&servers, "job") == 0);
}

async fn a_watcher_learns_of_the_loss() {
    let timed = Timed::of(3);
    let engine = engine_of(timed.builder());
    let guard = engine.acquire(waits(b"job")).await.unwrap();
    // A dropped future does not remove a waker that another one needs.
    let mut dropped = guard.lost();
    assert!(once(&mut dropped).await.is_none());
    let watcher = guard.lost();
    drop(dropped);
    // The task waits while time passes.
    let time = thread::spawn(move || {
        timed.pass(Duration::from_secs(12));
        timed
    });
    assert_eq!(watcher.await, Some(LossCause::Expired));
    let _nodes = time.join().unwrap();
    assert_eq!(guard.lost().await, Some(LossCause::Expired));
    assert_eq!(guard.release().await.map_err(|lost| lost.cause()), Err(LossCause::Expired));
}

async fn a_watcher_learns_of_the_release() {
    let servers = servers(3);
    let engine = engine(&servers);
    let guard = engine.acquire(patiently(b"job")).await.unwrap();
    let mut watcher = guard.lost();
    assert!(once(&mut watcher).await.is_none());
    drop(guard);
    assert_eq!(watcher.await, None);
}

async fn many_at_once() {
    let servers = servers(3);
    let engine = engine(&servers);
    let names: Vec<String> = (0..200).map(|at| format!("job{at}")).collect();
    let asked: Vec<_> = names.iter().map(|name| engine.acquire(long(name.as_bytes()))).collect();
    let mut guards = Vec::new();
    for asked in asked {
        guards.push(asked.await.unwrap());
    }
    assert!(guards.iter().all(|it| it.is_valid()));
    let releases: Vec<_> = guards.into_iter().map(OwnedGuard::release).collect();
    for release in releases {
        assert!(release.await.is_ok());
    }
}

/// Two tasks take turns: each waits for the lock that the other holds.
async fn tasks_wait_for_one_another() {
    let servers = servers(3);
    let engine = engine(&servers);
    let mut guard = engine.acquire(patiently(b"job")).await.unwrap();
    for _ in 0..20 {
        let mut next = engine.acquire(patiently(b"job"));
        assert!(once(&mut next).await.is_none());
        drop(guard);
        guard = next.await.unwrap();
    }
    assert!(guard.release().await.is_ok());
}

/// Runs a scenario, and fails if it takes too long.
fn bounded(scenario: impl FnOnce() + Send + 'static) {
    let (done, finished) = mpsc::channel();
    let thread = thread::spawn(move || {
        // The sender is dropped when the scenario ends, even by a panic.
        let _done = done;
        scenario();
    });
    let ended = finished.recv_timeout(4 * LIMIT);
    assert_eq!(
        ended,
        Err::<(), _>(mpsc::RecvTimeoutError::Disconnected),
        "the scenario never ends"
    );
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

async fn once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    let mut future = Some(future);
    std::future::poll_fn(|context| match future.take().map(|f| Pin::new(f).poll(context)) {
        Some(Poll::Ready(output)) => Poll::Ready(Some(output)),
        _ => Poll::Ready(None),
    })
    .await
}

/// A future may be polled by one task first and by another later: the last one is woken.
#[test]
fn the_task_that_polled_last_is_woken() {
    let servers = servers(3);
    let engine = engine(&servers);
    let guard = block_on(engine.acquire(patiently(b"job"))).unwrap();
    let mut asked = engine.acquire(patiently(b"job"));
    assert!(Pin::new(&mut asked).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let mut watcher = guard.lost();
    assert!(Pin::new(&mut watcher).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let waiting = thread::spawn(move || block_on(asked).map(|guard| block_on(guard.release())));
    let watching = thread::spawn(move || block_on(watcher));
    eventually("a future waits", || engine.in_flight() == 1);
    drop(guard);
    assert!(waiting.join().unwrap().unwrap().is_ok());
    assert_eq!(watching.join().unwrap(), None);
}

#[test]
fn a_panic_in_a_waker_does_not_end_the_engine() {
    struct Bad;
    impl Wake for Bad {
        fn wake(self: Arc<Self>) {
            panic!("on purpose, in a waker");
        }
    }
    let servers = servers(3);
    let engine = engine(&servers);
    let guard = block_on(engine.acquire(patiently(b"job"))).unwrap();
    let waker: Waker = Arc::new(Bad).into();
    let mut watcher = guard.lost();
    assert!(Pin::new(&mut watcher).poll(&mut Context::from_waker(&waker)).is_pending());
    drop(guard);
    eventually("the task was woken", || engine.panics() == 1);
    assert_eq!(block_on(watcher), None);
    drop(block_on(engine.acquire(patiently(b"job"))).unwrap());
}

/// A waker of a task that owns a value; the last waker drops it.
struct Owner<T>(Mutex<T>);

impl<T: Send + 'static> Wake for Owner<T> {
    fn wake(self: Arc<Self>) {}
}

fn owner<T: Send + 'static>(owned: T) -> Waker {
    Arc::new(Owner(Mutex::new(owned))).into()
}

/// Polls a pending future with the only copy of a waker.
fn pend<F: Future + Unpin>(future: &mut F, waker: Waker) {
    assert!(Pin::new(future).poll(&mut Context::from_waker(&waker)).is_pending());
}

#[test]
fn a_watcher_whose_task_owns_the_guard_can_be_dropped() {
    bounded(|| {
        let servers = servers(3);
        let engine = engine(&servers);
        let guard = block_on(engine.acquire(patiently(b"job"))).unwrap();
        let mut watcher = guard.lost();
        pend(&mut watcher, owner(guard));
        drop(watcher);
        eventually("the release is confirmed", || held_on(&servers, "job") == 0);
    });
}

#[test]
fn a_watcher_can_be_polled_by_a_task_that_does_not_own_the_guard() {
    bounded(|| {
        let servers = servers(3);
        let engine = engine(&servers);
        let guard = block_on(engine.acquire(patiently(b"job"))).unwrap();
        let mut watcher = guard.lost();
        pend(&mut watcher, owner(guard));
        // This poll replaces the waker that owns the guard, and so drops the guard.
        let _ = Pin::new(&mut watcher).poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(block_on(watcher), None);
    });
}

#[test]
fn a_release_can_be_polled_by_a_task_that_does_not_own_a_watcher() {
    bounded(|| {
        let servers = servers(3);
        let engine = engine(&servers);
        let guard = block_on(engine.acquire(patiently(b"job"))).unwrap();
        let mut watcher = guard.lost();
        pend(&mut watcher, Waker::noop().clone());
        // Keeps the lock from being released before the poll.
        servers.iter().for_each(Server::pause);
        let mut release = guard.release();
        pend(&mut release, owner(watcher));
        pend(&mut release, Waker::noop().clone());
        servers.iter().for_each(Server::resume);
        block_on(release).unwrap();
    });
}

/// Dropping a future drops its waker. The engine survives a panic there.
#[test]
fn a_waker_that_panics_when_it_is_dropped_does_not_end_the_engine() {
    let servers = servers(3);
    let engine = engine(&servers);
    let guard = block_on(engine.acquire(patiently(b"job"))).unwrap();
    let mut asked = engine.acquire(patiently(b"job"));
    pend(&mut asked, owner(Bad));
    drop(asked);
    assert_eq!(engine.panics(), 1);
    eventually("the acquisition is cancelled", || engine.in_flight() == 0);
    assert!(block_on(guard.release()).is_ok());
    let report = engine.shutdown(LIMIT);
    assert!(report.is_clean(), "{report}");
}

/// Without the panic, the caller would wait forever.
#[test]
fn polling_a_finished_future_panics_with_its_name() {
    fn again<F: Future + Unpin>(mut future: F) -> String {
        let mut context = Context::from_waker(Waker::noop());
        let polled = catch_unwind(AssertUnwindSafe(|| Pin::new(&mut future).poll(&mut context)));
        let payload = polled.err().expect("it panics");
        payload.downcast_ref::<String>().expect("it has a message").clone()
    }
    let servers = servers(3);
    let engine = engine(&servers);
    let mut answer = engine.node_report();
    block_on(&mut answer).unwrap();
    assert_eq!(again(answer), "a QueryFuture was polled after it was ready");
    let guard = block_on(engine.acquire(patiently(b"job"))).unwrap();
    let mut extend = guard.extend(Duration::from_secs(29));
    block_on(&mut extend).unwrap();
    assert_eq!(again(extend), "an ExtendFuture was polled after it was ready");
}

#[test]
fn everything_can_be_sent_and_shared() {
    fn sent<T: Send + 'static>() {}
    fn shared<T: Sync>() {}
    sent::<(Engine, OwnedGuard, AcquireFuture, ExtendFuture, ReleaseFuture, LossFuture)>();
    shared::<(Engine, OwnedGuard, AcquireFuture, ExtendFuture, ReleaseFuture, LossFuture)>();
}

/// An executor of twenty lines, including its bound.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let until = Instant::now() + 4 * LIMIT;
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker: Waker = Arc::new(Unpark(thread::current())).into();
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => {
                assert!(Instant::now() < until, "the future never completes");
                thread::park_timeout(LIMIT);
            }
        }
    }
}
