//! The blocking API: writes and reads happen on the calling thread. Its locks are in `lock`.

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use redbolt::{Client, DetachedLock, LockGuard, LockRequest};

use crate::call::{call, given, look, may_wait, place};
use crate::config::{ConfigHandle, built};
use crate::door::{Entered, Held, Shared};
use crate::failure::Failure;
use crate::foreign::{give, text, zero_ended};
use crate::lock::LockHandle;
use crate::many::{Outcomes, asked};
use crate::request::{RequestHandle, lease, once, waiting};
use crate::status::Status;

/// Acquires locks on the calling thread. It has no background thread, so nothing happens between
/// calls. For one thread at a time, together with its locks: a concurrent call returns
/// `REDBOLT_STATUS_IN_USE`.
pub struct ClientHandle {
    shared: Arc<Shared>,
}

/// Begins to connect to all nodes. A node that cannot be reached is not an error here.
/// `redbolt_client_free` ends the client.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_client_new(
    config: Option<&ConfigHandle>,
    client: Option<&mut MaybeUninit<Option<Box<ClientHandle>>>>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    call(error, || {
        let client = place(client, "client")?;
        let shared = Shared::new(Client::new(built(config)?)?);
        *client = Some(Box::new(ClientHandle { shared }));
        Ok(())
    })
}

/// Ends a client, after waiting up to 50 ms for the confirmation of releases. Locks that are still
/// held keep its connections until they are ended. Do not call it in a callback. Null is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_client_free(client: Option<Box<ClientHandle>>) {
    look((), || drop(client));
}

/// Waits until every node is ready or known not to be, for at most `within_ms`.
/// `REDBOLT_STATUS_NO_QUORUM` if too few are ready; the error has the reason of each node.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_client_warm_up(
    client: Option<&ClientHandle>,
    within_ms: u64,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    call(error, || {
        let client = given(client, "client")?.entered_to_wait()?;
        Failure::unless_quorum(&client.warm_up(Duration::from_millis(within_ms)))
    })
}

/// Acquires a lock, and waits for as long as the request allows. On success `lock` is not null, and
/// must be ended by `redbolt_lock_release`, `redbolt_lock_free` or `redbolt_lock_detach`.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_client_acquire(
    client: Option<&ClientHandle>,
    request: Option<&RequestHandle>,
    lock: Option<&mut MaybeUninit<Option<Box<LockHandle>>>>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    call(error, || {
        let lock = place(lock, "lock")?;
        let request = given(request, "request")?.asked();
        acquire(client, lock, request)
    })
}

/// Tries once to acquire a lock, and ignores the wait of the request. `REDBOLT_STATUS_CONTENDED`
/// means that another client holds it. Any other failure means that its holder is not known.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_client_try_acquire(
    client: Option<&ClientHandle>,
    request: Option<&RequestHandle>,
    lock: Option<&mut MaybeUninit<Option<Box<LockHandle>>>>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    call(error, || {
        let lock = place(lock, "lock")?;
        let request = given(request, "request")?.asked();
        acquire(client, lock, once(request))
    })
}

/// Acquires several independent locks, with one write to each node, and returns when each of them
/// is granted or refused: for all or nothing see `redbolt_request_and`. `requests`, `locks` and, if
/// it is not null, `statuses` have `count` places. A lock that was not granted is null. The status
/// and the error are those of the first refusal, if there is one; other locks may still be held,
/// and must be ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_client_acquire_all(
    client: Option<&ClientHandle>,
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
        let shared = &given(client, "client")?.shared;
        let inside = shared.enter()?;
        may_wait()?;
        let held = |guard| LockHandle::of_client(Held::new(shared, guard));
        let granted = inside.acquire_all(requests).into_iter();
        outcomes.tell(granted.map(|outcome| outcome.map(held).map_err(Failure::from)))
    })
}

/// Acquires a lease on `resource`, a name that ends with a zero byte, and waits until it is
/// granted. The lease ends after `ttl_ms` unless it is extended or released before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_client_lease(
    client: Option<&ClientHandle>,
    resource: *const c_char,
    ttl_ms: u64,
    lock: Option<&mut MaybeUninit<Option<Box<LockHandle>>>>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    call(error, || {
        let lock = place(lock, "lock")?;
        // SAFETY: the caller passes pointers that are valid, as the header requires.
        let resource = unsafe { zero_ended(resource, "resource") }?;
        acquire(client, lock, waiting(lease(resource, ttl_ms)))
    })
}

/// Tries once to acquire a lease on `resource`, which ends after `ttl_ms`.
/// `REDBOLT_STATUS_CONTENDED` means that another client holds it. Any other failure means that its
/// holder is not known.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_client_try_lease(
    client: Option<&ClientHandle>,
    resource: *const c_char,
    ttl_ms: u64,
    lock: Option<&mut MaybeUninit<Option<Box<LockHandle>>>>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    call(error, || {
        let lock = place(lock, "lock")?;
        // SAFETY: the caller passes pointers that are valid, as the header requires.
        let resource = unsafe { zero_ended(resource, "resource") }?;
        acquire(client, lock, once(lease(resource, ttl_ms)))
    })
}

/// Attaches a lock that was detached, by this process or another one on the same machine, from its
/// text. Attach it once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_client_attach(
    client: Option<&ClientHandle>,
    detached: *const c_char,
    lock: Option<&mut MaybeUninit<Option<Box<LockHandle>>>>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    call(error, || {
        let lock = place(lock, "lock")?;
        // SAFETY: the caller passes pointers that are valid, as the header requires.
        let detached: DetachedLock = unsafe { text(detached, "detached") }?.parse()?;
        held(client, lock, |client| Ok(client.attach(&detached)?))
    })
}

/// Returns all counts since the start, in the format of Prometheus. `redbolt_text_free` ends the
/// text.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_client_metrics(
    client: Option<&ClientHandle>,
    metrics: Option<&mut MaybeUninit<*mut c_char>>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    call(error, || {
        let metrics = given(metrics, "metrics")?.write(ptr::null_mut());
        let client = given(client, "client")?.entered()?;
        *metrics = give(&client.metrics().to_prometheus());
        Ok(())
    })
}

impl ClientHandle {
    /// Enters the client, which admits one call at a time.
    fn entered(&self) -> Result<Entered<'_>, Failure> {
        let inside = self.shared.enter()?;
        Failure::unless_ours(inside.is_ours())?;
        Ok(inside)
    }

    /// Enters the client for a call that waits.
    pub(crate) fn entered_to_wait(&self) -> Result<Entered<'_>, Failure> {
        let inside = self.entered()?;
        may_wait()?;
        Ok(inside)
    }
}

fn acquire(
    client: Option<&ClientHandle>,
    lock: &mut Option<Box<LockHandle>>,
    request: LockRequest<'_>,
) -> Result<(), Failure> {
    held(client, lock, |client| {
        may_wait()?;
        Ok(client.acquire(request)?)
    })
}

fn held(
    client: Option<&ClientHandle>,
    lock: &mut Option<Box<LockHandle>>,
    take: impl for<'c> FnOnce(&'c Entered<'_>) -> Result<LockGuard<'c>, Failure>,
) -> Result<(), Failure> {
    let shared = &given(client, "client")?.shared;
    let inside = shared.enter()?;
    let held = Held::new(shared, take(&inside)?);
    *lock = Some(LockHandle::of_client(held));
    Ok(())
}
