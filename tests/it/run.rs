//! Work that runs under a lock of an engine: the work ends with its lock, and the lock with the
//! work.

use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redbolt::{
    AcquireError, LossCause, Wait,
    engine::{HeldLock, RunError},
};
use redbolt_test_servers::Server;

use crate::engine::engine;
use crate::support::{LIMIT, eventually, held_on, long, servers};

fn forget(servers: &[Server]) {
    servers.iter().for_each(|server| drop(server.cmd("DEL job")));
}

/// Bounds a future that a bug could make wait forever.
fn soon<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(LIMIT, future).await }).expect("it ends")
}

/// A flag that is set when this value is dropped.
struct Flag(Arc<AtomicBool>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn the_lock_is_held_while_the_work_runs_and_not_afterwards() {
    let servers = servers(3);
    let engine = engine(&servers);
    let done = engine.lease("job", Duration::from_secs(29)).fenced().run(|lock| async {
        assert!(lock.is_valid() && u64::from(lock.fencing_token().unwrap()) > 0);
        lock.extend(Duration::from_secs(29)).await.unwrap();
        (held_on(&servers, "job"), lock)
    });
    let (held, lock) = soon(done).unwrap();
    assert!(held >= 2, "{held}");
    assert!(
        !lock.is_valid() && lock.fencing_token().is_none(),
        "the lock has ended for everyone who keeps it"
    );
    assert!(soon(lock.extend(Duration::from_secs(29))).is_err());
    eventually("no key is left", || held_on(&servers, "job") == 0);
}

#[test]
fn work_is_not_run_without_the_lock() {
    let servers = servers(1);
    let engine = engine(&servers);
    let _held = engine.acquire(long(b"job")).wait().unwrap();
    let work = async |_| unreachable!("the lock is held by another");
    let lease = engine.lease("job", Duration::from_secs(9)).wait(Wait::No);
    let refused = soon(lease.run::<(), _, _>(work));
    assert!(matches!(refused, Err(RunError::Acquire(AcquireError::Refused(_)))), "{refused:?}");
}

/// Returns the cause of the loss, and what the work returned.
fn lost<T>(outcome: Result<T, RunError<T>>) -> (LossCause, Option<T>) {
    match outcome {
        Err(RunError::Lost { lost, value, .. }) => (lost.cause(), value),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("the lock was held to the end"),
    }
}

#[test]
fn work_is_cancelled_when_its_lock_is_lost() {
    let servers = servers(3);
    let engine = engine(&servers);
    let dropped = Arc::new(AtomicBool::new(false));
    let flag = Flag(Arc::clone(&dropped));
    let outcome = soon(engine.lock("job").ttl(Duration::from_secs(3)).run(|_| async {
        let _flag = flag;
        forget(&servers);
        pending::<()>().await
    }));
    let words = outcome.as_ref().unwrap_err().to_string();
    assert_eq!(
        words,
        "lock job is lost: its key is gone on too many nodes; the work was cancelled"
    );
    assert_eq!(lost(outcome), (LossCause::Gone, None));
    assert!(dropped.load(Ordering::SeqCst));

    // A lease without auto-extension ends as well.
    let short = engine.lease("short", Duration::from_secs(4));
    assert_eq!(lost(soon(short.run(|_| pending::<()>()))), (LossCause::Expired, None));
}

/// A value that the work has already computed is returned despite the loss.
#[test]
fn work_that_ends_before_the_loss_is_noticed_has_a_value() {
    let servers = servers(3);
    let engine = engine(&servers);
    let outcome = soon(engine.lock("job").run(|lock| async move {
        forget(&servers);
        assert!(lock.is_valid(), "nobody has noticed");
        // Work that does not await cannot be cancelled.
        lock.extend(Duration::from_secs(10)).wait().unwrap_err();
        7
    }));
    assert_eq!(lost(outcome), (LossCause::Gone, Some(7)));
}

#[test]
fn the_lock_is_released_after_a_panic_or_a_dropped_future() {
    let servers = servers(3);
    let engine = engine(&servers);
    let panics = |lock: HeldLock| {
        assert!(held_on(&servers, "job") >= 2 && lock.is_valid());
        panic!("on purpose")
    };
    let run = AssertUnwindSafe(|| soon(engine.lock("job").run(async |lock| panics(lock))));
    assert!(catch_unwind(run).is_err());
    eventually("no key is left", || held_on(&servers, "job") == 0);

    let begun = Arc::new(AtomicBool::new(false));
    let work = engine.lock("job").run(|_| async {
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
