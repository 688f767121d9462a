//! Work under a lock of an engine, as a future and on a thread: the work ends with its lock, and
//! the lock with the work.

use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redbolt::{
    AcquireError, AutoExtend, LockRequest, LossCause, ReleaseOutcome,
    engine::{HeldLock, WithError},
};
use redbolt_test_servers::Server;

use crate::engine::engine;
use crate::support::{LIMIT, eventually, held_on, long, servers};

/// Extended often, so that a loss is noticed soon.
fn kept() -> LockRequest<'static> {
    let often = AutoExtend::until_released().every(Duration::from_millis(40));
    LockRequest::new(b"job").ttl(Duration::from_secs(10)).auto_extend(often)
}

fn forget(servers: &[Server]) {
    servers.iter().for_each(|server| drop(server.cmd("DEL job")));
}

/// Bounds a future that a bug could make wait for ever.
fn soon<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(LIMIT, future).await }).expect("it ends")
}

/// Set when it is dropped.
struct Flag(Arc<AtomicBool>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn the_lock_is_held_while_the_work_runs_and_not_behind_it() {
    let servers = servers(3);
    let engine = engine(&servers);
    let done = engine.with(long(b"job").fenced(), |lock| async {
        assert!(lock.is_valid() && u64::from(lock.fencing_token().unwrap()) > 0);
        lock.extend(Duration::from_secs(29)).await.unwrap();
        (held_on(&servers, "job"), lock)
    });
    let done = soon(done).unwrap();
    let (held, lock) = done.value;
    assert!(
        held >= 2 && matches!(done.outcome, ReleaseOutcome::Released(_)),
        "{held}, {}",
        done.outcome
    );
    assert!(
        !lock.is_valid() && lock.fencing_token().is_none(),
        "the lock has ended for everyone who keeps it"
    );
    assert!(soon(lock.extend(Duration::from_secs(29))).is_err());
    eventually("no key is left", || held_on(&servers, "job") == 0);

    let done = engine.with_blocking(long(b"job"), |lock| (lock.is_valid(), lock)).unwrap();
    assert!(done.value.0 && !done.value.1.is_valid());
    assert!(matches!(done.outcome, ReleaseOutcome::Released(_)));
}

#[test]
fn work_is_not_run_without_the_lock() {
    let servers = servers(1);
    let engine = engine(&servers);
    let _held = engine.acquire(long(b"job")).wait().unwrap();
    let refused = soon(
        engine
            .with(LockRequest::new(b"job"), async |_| unreachable!("the lock is held by another")),
    );
    assert!(matches!(refused, Err(WithError::Acquire(AcquireError::Refused(_)))), "{refused:?}");
    let refused = engine
        .with_blocking(LockRequest::new(b"job"), |_| unreachable!("the lock is held by another"));
    assert!(matches!(refused, Err(AcquireError::Refused(_))));
}

#[test]
fn work_is_cancelled_when_its_lock_is_lost() {
    let servers = servers(3);
    let engine = engine(&servers);
    let dropped = Arc::new(AtomicBool::new(false));
    let flag = Flag(Arc::clone(&dropped));
    let lost = soon(engine.with(kept(), |_| async {
        let _flag = flag;
        forget(&servers);
        pending::<()>().await
    }));
    assert_eq!(lost.unwrap_err(), WithError::Lost(LossCause::Gone));
    assert!(dropped.load(Ordering::SeqCst));

    // A lease without auto-extension ends as well.
    let short = LockRequest::new(b"short").ttl(Duration::from_secs(4));
    let lost = soon(engine.with(short, |_| pending::<()>()));
    assert_eq!(lost.unwrap_err(), WithError::Lost(LossCause::Expired));
}

#[test]
fn work_on_a_thread_is_notified_when_its_lock_is_lost() {
    let servers = servers(3);
    let engine = engine(&servers);
    let reported = Arc::new(Mutex::new(None));
    let done = engine.with_blocking(kept(), |lock| {
        let reported = Arc::clone(&reported);
        lock.on_loss(move |cause| *reported.lock().unwrap() = Some(cause));
        forget(&servers);
        eventually("the lock is lost", || !lock.is_valid());
        lock.lost().wait()
    });
    let done = done.unwrap();
    assert_eq!(done.value, Some(LossCause::Gone));
    assert_eq!(done.outcome, ReleaseOutcome::Lost(LossCause::Gone));
    eventually("the loss is reported", || *reported.lock().unwrap() == Some(LossCause::Gone));
}

#[test]
fn the_lock_is_released_behind_a_panic_and_a_future_that_is_dropped() {
    let servers = servers(3);
    let engine = engine(&servers);
    let panics = |lock: HeldLock| {
        assert!(held_on(&servers, "job") >= 2 && lock.is_valid());
        panic!("on purpose")
    };
    for blocking in [false, true] {
        let run = AssertUnwindSafe(|| match blocking {
            true => drop(engine.with_blocking(long(b"job"), panics)),
            false => drop(soon(engine.with(long(b"job"), async |lock| panics(lock)))),
        });
        assert!(catch_unwind(run).is_err());
        eventually("no key is left", || held_on(&servers, "job") == 0);
    }

    let begun = Arc::new(AtomicBool::new(false));
    let work = engine.with(long(b"job"), |_| async {
        begun.store(true, Ordering::SeqCst);
        pending::<()>().await
    });
    soon(async {
        tokio::select! {
            _ = work => unreachable!("the work never ends"),
            () = async {
                while !begun.load(Ordering::SeqCst) {
                    tokio::time::sleep(Duration::from_millis(3)).await;
                }
            } => {}
        }
    });
    eventually("no key is left", || held_on(&servers, "job") == 0);
}
