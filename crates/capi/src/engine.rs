//! The engine: one thread of redbolt for all threads of the host, with calls that wait and calls
//! that call back. Its locks are in `lock`.

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use redbolt::engine::AcquireFuture;
use redbolt::{AcquireError, DetachedLock, Engine, LockRequest, OwnedGuard};

use crate::call::{call, given, in_callback, look, may_wait, place};
use crate::config::{ConfigHandle, built};
use crate::failure::Failure;
use crate::foreign::{UserData, bytes, give, text, zero_ended};
use crate::lock::LockHandle;
use crate::many::{Outcomes, asked};
use crate::request::{RequestHandle, extended, lease, once, waiting};
use crate::status::Status;
use crate::task::Task;

/// Acquires locks for all threads of a program, with one background thread. For many threads at
/// once.
pub struct EngineHandle {
    engine: Engine,
}

/// A pending acquisition. `redbolt_pending_free` ends the handle, and not the acquisition.
pub struct PendingHandle {
    task: Arc<Task<AcquireFuture>>,
}

/// Receives the outcome of an acquisition, once: a lock, which the callback has to end, or null and
/// an error, which lives until the callback returns. It runs on the engine's thread, or on the
/// thread that made or cancelled the call, before that call returns. It must be quick and must not
/// block: calls that do return `REDBOLT_STATUS_IN_CALLBACK`.
pub type AcquiredCallback = Option<
    extern "C" fn(
        data: *mut c_void,
        status: Status,
        lock: Option<Box<LockHandle>>,
        error: Option<&Failure>,
    ),
>;

/// Starts the thread and begins to connect to all nodes. A node that cannot be reached is not an
/// error here. `redbolt_engine_free` ends the engine.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_engine_new(
    config: Option<&ConfigHandle>,
    engine: Option<&mut MaybeUninit<Option<Box<EngineHandle>>>>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    call(error, || {
        let place = place(engine, "engine")?;
        let engine = Engine::new(built(config)?)?;
        *place = Some(Box::new(EngineHandle { engine }));
        Ok(())
    })
}

/// Ends an engine: releases all locks, and waits for the nodes for up to 150 ms. Its locks are
/// lost, and their handles must still be ended. Do not call it in a callback. Null is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_engine_free(engine: Option<Box<EngineHandle>>) {
    look((), || drop(engine));
}

/// Shuts an engine down, and waits for at most `within_ms` until the nodes have confirmed every
/// release, and two seconds more if its thread is late. `REDBOLT_STATUS_UNRELEASED` if they have
/// not. `redbolt_engine_free` must still be called.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_engine_shutdown(
    engine: Option<&EngineHandle>,
    within_ms: u64,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    call(error, || {
        may_wait()?;
        let engine = &given(engine, "engine")?.engine;
        Failure::unless_ours(engine.is_ours())?;
        let report = engine.shutdown(Duration::from_millis(within_ms));
        match report.is_clean() {
            true => Ok(()),
            false => Err(Failure::new(Status::Unreleased, &report.to_string())),
        }
    })
}

/// Asks the engine's thread whether enough nodes are ready for a lock, and waits for its answer,
/// not for the nodes. Otherwise `REDBOLT_STATUS_NO_QUORUM`, and the error has the reason of each
/// node.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_engine_nodes(
    engine: Option<&EngineHandle>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    call(error, || {
        may_wait()?;
        Failure::unless_quorum(&given(engine, "engine")?.engine.node_report().wait()?)
    })
}

/// Waits until every node is ready or known not to be, for at most `within_ms`.
/// `REDBOLT_STATUS_NO_QUORUM` if too few are ready; the error has the reason of each node.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_engine_warm_up(
    engine: Option<&EngineHandle>,
    within_ms: u64,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    call(error, || {
        may_wait()?;
        let engine = &given(engine, "engine")?.engine;
        Failure::unless_quorum(&engine.warm_up(Duration::from_millis(within_ms)).wait()?)
    })
}

/// Acquires a lock, and waits for as long as the request allows. On success `lock` is not null, and
/// must be ended by `redbolt_lock_release`, `redbolt_lock_free` or `redbolt_lock_detach`.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_engine_acquire(
    engine: Option<&EngineHandle>,
    request: Option<&RequestHandle>,
    lock: Option<&mut MaybeUninit<Option<Box<LockHandle>>>>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    call(error, || {
        let lock = place(lock, "lock")?;
        let request = given(request, "request")?.asked();
        acquire(engine, lock, request)
    })
}

/// Tries once to acquire a lock, and ignores the wait of the request. `REDBOLT_STATUS_CONTENDED`
/// means that another client holds it. Any other failure means that its holder is not known.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_engine_try_acquire(
    engine: Option<&EngineHandle>,
    request: Option<&RequestHandle>,
    lock: Option<&mut MaybeUninit<Option<Box<LockHandle>>>>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    call(error, || {
        let lock = place(lock, "lock")?;
        let request = given(request, "request")?.asked();
        acquire(engine, lock, once(request))
    })
}

/// Acquires several independent locks, as `redbolt_client_acquire_all` does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_engine_acquire_all(
    engine: Option<&EngineHandle>,
    requests: *const Option<&RequestHandle>,
    count: usize,
    locks: *mut MaybeUninit<Option<Box<LockHandle>>>,
    statuses: *mut MaybeUninit<Status>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    call(error, || {
        // SAFETY: the caller passes pointers that are valid, as the header requires.
        let (outcomes, requests) =
            unsafe { (Outcomes::at(locks, statuses, count)?, asked(requests, count)?) };
        may_wait()?;
        let engine = &given(engine, "engine")?.engine;
        let granted = engine.acquire_all(requests).wait().into_iter();
        outcomes.tell(granted.map(|outcome| Ok(LockHandle::of_engine(outcome?))))
    })
}

/// Acquires the lock on `resource`, a name that ends with a zero byte, waits until it is granted,
/// and extends it until it is released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_engine_lock(
    engine: Option<&EngineHandle>,
    resource: *const c_char,
    lock: Option<&mut MaybeUninit<Option<Box<LockHandle>>>>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    call(error, || {
        let lock = place(lock, "lock")?;
        // SAFETY: the caller passes pointers that are valid, as the header requires.
        let resource = unsafe { zero_ended(resource, "resource") }?;
        acquire(engine, lock, waiting(extended(resource)))
    })
}

/// Tries once to acquire the lock on `resource`, and extends it until it is released.
/// `REDBOLT_STATUS_CONTENDED` means that another client holds it. Any other failure means that its
/// holder is not known.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_engine_try_lock(
    engine: Option<&EngineHandle>,
    resource: *const c_char,
    lock: Option<&mut MaybeUninit<Option<Box<LockHandle>>>>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    call(error, || {
        let lock = place(lock, "lock")?;
        // SAFETY: the caller passes pointers that are valid, as the header requires.
        let resource = unsafe { zero_ended(resource, "resource") }?;
        acquire(engine, lock, once(extended(resource)))
    })
}

/// Acquires a lease on `resource`, a name that ends with a zero byte, and waits until it is
/// granted. The lease ends after `ttl_ms` unless it is extended or released before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_engine_lease(
    engine: Option<&EngineHandle>,
    resource: *const c_char,
    ttl_ms: u64,
    lock: Option<&mut MaybeUninit<Option<Box<LockHandle>>>>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    call(error, || {
        let lock = place(lock, "lock")?;
        // SAFETY: the caller passes pointers that are valid, as the header requires.
        let resource = unsafe { zero_ended(resource, "resource") }?;
        acquire(engine, lock, waiting(lease(resource, ttl_ms)))
    })
}

/// Tries once to acquire a lease on `resource`, which ends after `ttl_ms`.
/// `REDBOLT_STATUS_CONTENDED` means that another client holds it. Any other failure means that its
/// holder is not known.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_engine_try_lease(
    engine: Option<&EngineHandle>,
    resource: *const c_char,
    ttl_ms: u64,
    lock: Option<&mut MaybeUninit<Option<Box<LockHandle>>>>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    call(error, || {
        let lock = place(lock, "lock")?;
        // SAFETY: the caller passes pointers that are valid, as the header requires.
        let resource = unsafe { zero_ended(resource, "resource") }?;
        acquire(engine, lock, once(lease(resource, ttl_ms)))
    })
}

/// Acquires a lock for an owner, such as a task, that is named by any bytes and may acquire it
/// again while holding it. Each handle must be ended, and the last one releases the lock: releasing
/// an earlier one returns `REDBOLT_STATUS_OK`, and sends nothing. `redbolt_lock_hold_count` counts
/// the handles. The lock cannot be detached, and changes its mode only if the owner acquires it
/// again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_engine_acquire_reentrant(
    engine: Option<&EngineHandle>,
    request: Option<&RequestHandle>,
    owner: *const u8,
    length: usize,
    lock: Option<&mut MaybeUninit<Option<Box<LockHandle>>>>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    call(error, || {
        let lock = place(lock, "lock")?;
        may_wait()?;
        // SAFETY: the caller passes pointers that are valid, as the header requires.
        let owner = unsafe { bytes(owner, length, "owner") }?;
        let engine = &given(engine, "engine")?.engine;
        let request = given(request, "request")?.asked();
        let guard = engine.acquire_reentrant(request, owner).wait()?;
        *lock = Some(LockHandle::of_owner(guard));
        Ok(())
    })
}

/// Returns all counts since the start, in the format of Prometheus. `redbolt_text_free` ends the
/// text.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_engine_metrics(
    engine: Option<&EngineHandle>,
    metrics: Option<&mut MaybeUninit<*mut c_char>>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    call(error, || {
        let metrics = given(metrics, "metrics")?.write(ptr::null_mut());
        may_wait()?;
        let report = given(engine, "engine")?.engine.metrics().wait()?;
        *metrics = give(&report.to_prometheus());
        Ok(())
    })
}

/// Requests a lock, and returns at once. `callback` always receives the outcome, once; its type
/// documents on which thread. If `pending` is not null, it becomes a handle that can cancel the
/// acquisition. If the status is not OK, nothing was sent, and the callback is not called.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_engine_acquire_async(
    engine: Option<&EngineHandle>,
    request: Option<&RequestHandle>,
    callback: AcquiredCallback,
    data: *mut c_void,
    pending: Option<&mut MaybeUninit<Option<Box<PendingHandle>>>>,
) -> Status {
    let pending = pending.map(|pending| pending.write(None));
    call(None, || {
        let engine = &given(engine, "engine")?.engine;
        let callback = given(callback, "callback")?;
        let data = UserData(data);
        let asked = engine.acquire(given(request, "request")?.asked());
        let task = Task::start(asked, move |outcome| {
            let outcome = match outcome {
                Some(outcome) => outcome.map_err(Failure::from),
                None => Err(Failure::new(Status::Cancelled, "it was cancelled")),
            };
            tell(callback, data, outcome);
        });
        if let Some(pending) = pending {
            *pending = Some(Box::new(PendingHandle { task }));
        }
        Ok(())
    })
}

/// Cancels an acquisition, unless its callback has been called: this call calls it with
/// `REDBOLT_STATUS_CANCELLED`. Grants of the nodes, also later ones, are undone. Null is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_pending_cancel(pending: Option<&PendingHandle>) {
    look((), || pending.into_iter().for_each(|pending| pending.task.cancel()));
}

/// Ends the handle of an acquisition, which continues. Null is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_pending_free(pending: Option<Box<PendingHandle>>) {
    look((), || drop(pending));
}

/// Attaches a lock that was detached, by this process or another one on the same machine, from its
/// text. Attach it once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_engine_attach(
    engine: Option<&EngineHandle>,
    detached: *const c_char,
    lock: Option<&mut MaybeUninit<Option<Box<LockHandle>>>>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    call(error, || {
        let lock = place(lock, "lock")?;
        // SAFETY: the caller passes pointers that are valid, as the header requires.
        let detached: DetachedLock = unsafe { text(detached, "detached") }?.parse()?;
        waited(engine, lock, |engine| engine.attach(&detached).wait())
    })
}

impl EngineHandle {
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }
}

fn acquire(
    engine: Option<&EngineHandle>,
    lock: &mut Option<Box<LockHandle>>,
    request: LockRequest<'_>,
) -> Result<(), Failure> {
    waited(engine, lock, |engine| engine.acquire(request).wait())
}

fn waited(
    engine: Option<&EngineHandle>,
    lock: &mut Option<Box<LockHandle>>,
    acquire: impl FnOnce(&Engine) -> Result<OwnedGuard, AcquireError>,
) -> Result<(), Failure> {
    may_wait()?;
    let guard = acquire(&given(engine, "engine")?.engine)?;
    *lock = Some(LockHandle::of_engine(guard));
    Ok(())
}

fn tell(
    callback: extern "C" fn(*mut c_void, Status, Option<Box<LockHandle>>, Option<&Failure>),
    data: UserData,
    outcome: Result<OwnedGuard, Failure>,
) {
    let data = data.get();
    in_callback(|| match outcome {
        Ok(guard) => callback(data, Status::Ok, Some(LockHandle::of_engine(guard)), None),
        Err(error) => callback(data, error.status(), None, Some(&error)),
    });
}
