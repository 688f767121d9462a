//! Locks of a client or an engine, which differ only in what blocks. A driver's locks are numbers.

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::time::Duration;

use redbolt::engine::ReentrantGuard;
use redbolt::{LockMode, OwnedGuard};

use crate::call::{call, given, in_callback, look};
use crate::door::Held;
use crate::failure::Failure;
use crate::foreign::{EndCallback, OwnedData, UserData, give};
use crate::holder::{Holder, released};
use crate::status::{Loss, Status};
use crate::task::Task;

/// A lock that was granted. It protects nothing by itself: check `redbolt_lock_is_valid` before
/// each step that relies on it. It must be ended, by `redbolt_lock_release`, `redbolt_lock_free` or
/// `redbolt_lock_detach`.
///
/// One of a client is for the client's thread. One of an engine is for many threads at once.
pub struct LockHandle {
    holder: Holder,
}

/// Receives the outcome of a call, once. The error lives until the callback returns. It runs on the
/// engine's thread, or on the thread that made the call, before that returns. It must be quick and
/// must not block.
pub type DoneCallback =
    Option<extern "C" fn(data: *mut c_void, status: Status, error: Option<&Failure>)>;

/// Receives the loss of a lock, once. It runs on the engine's thread, and all locks of the engine
/// wait for it: it must be quick and must not block. If the lock is lost already, it runs on the
/// thread that set it.
pub type LossCallback = Option<extern "C" fn(data: *mut c_void, loss: Loss)>;

/// The sharing mode of a lock.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The mode is not known because the lock is lost.
    Unknown = 0,
    /// No other client holds the resource.
    Exclusive = 1,
    /// Other clients may share the resource.
    Shared = 2,
    /// Other clients may have permits of the same resource.
    Permit = 3,
}

/// Returns true if the lock is held now, and false for null.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_lock_is_valid(lock: Option<&LockHandle>) -> bool {
    !remaining(lock).is_zero()
}

/// Returns the validity that is left now, in whole milliseconds; 0 once the lock is lost.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_lock_remaining_ms(lock: Option<&LockHandle>) -> u64 {
    whole_ms(remaining(lock))
}

/// Returns the sharing mode of the lock.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_lock_mode(lock: Option<&LockHandle>) -> Mode {
    look(Mode::Unknown, || {
        lock.and_then(|lock| lock.holder.mode()).map_or(Mode::Unknown, Mode::from)
    })
}

/// Writes the number of the permit, from 0 on. Returns false unless a permit was requested, and
/// after the lock was lost.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_lock_slot(
    lock: Option<&LockHandle>,
    slot: Option<&mut MaybeUninit<u16>>,
) -> bool {
    look(false, || tell(slot, lock.and_then(|lock| lock.holder.slot())))
}

/// Returns how many handles of the lock its owner has, including this one: 1 unless it comes from
/// `redbolt_engine_acquire_reentrant`.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_lock_hold_count(lock: Option<&LockHandle>) -> usize {
    look(0, || lock.map_or(0, |lock| lock.holder.hold_count()))
}

/// Writes the fencing token, for the store that the lock protects. Returns false unless one was
/// requested, and after the lock was lost.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_lock_fencing_token(
    lock: Option<&LockHandle>,
    token: Option<&mut MaybeUninit<u64>>,
) -> bool {
    look(false, || {
        let known = lock.and_then(|lock| lock.holder.fencing_token());
        tell(token, known.map(|token| token.get()))
    })
}

/// Asks the nodes to keep the lock for `ttl_ms` from now, and waits for a quorum.
/// `REDBOLT_STATUS_LOST`: stop. Otherwise the lock is held until `redbolt_lock_remaining_ms` is 0.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_lock_extend(
    lock: Option<&LockHandle>,
    ttl_ms: u64,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    let ttl = Duration::from_millis(ttl_ms);
    call(error, || given(lock, "lock")?.holder.extend(ttl))
}

/// Tries once to make a shared lock exclusive. `REDBOLT_STATUS_CONTENDED`: other clients share it,
/// and the lock is shared as before.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_lock_try_upgrade(
    lock: Option<&LockHandle>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    call(error, || given(lock, "lock")?.holder.try_upgrade())
}

/// Makes an exclusive lock shared. It counts as shared from the call on, also if the call fails.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_lock_downgrade(
    lock: Option<&LockHandle>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    call(error, || given(lock, "lock")?.holder.downgrade())
}

/// Releases a lock, waits until a quorum or all nodes that answer have confirmed it, and ends the
/// handle for every status. `REDBOLT_STATUS_LOST`: the lock was lost before, and another client may
/// have held it meanwhile.
#[must_use]
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_lock_release(
    lock: Option<Box<LockHandle>>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    call(error, || given(lock, "lock")?.holder.release())
}

/// Releases a lock without waiting, and ends the handle. Null is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_lock_free(lock: Option<Box<LockHandle>>) {
    look((), || drop(lock));
}

/// Detaches a lock, for another process on this machine to attach, and ends the handle for every
/// status. Until then the lock stays held, and its validity runs. The text is for
/// `redbolt_client_attach` and the like. Its reader can release the lock. `redbolt_text_free` ends
/// it.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_lock_detach(
    lock: Option<Box<LockHandle>>,
    detached: Option<&mut MaybeUninit<*mut c_char>>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    call(error, || {
        let detached = given(detached, "detached")?.write(ptr::null_mut());
        let record = given(lock, "lock")?.holder.detach()?;
        let lost = || Failure::new(Status::Lost, "the lock is lost: there is nothing to detach");
        *detached = give(&record.ok_or_else(lost)?.to_text());
        Ok(())
    })
}

/// Sets a callback that is called once if a lock of an engine is lost; never if it is released or
/// freed before that. Several may be set. `end`, if it is not null, is called once when `callback`
/// will not be called again, also if the status is not OK. A client's lock is refused, because
/// nothing happens between the calls of a client.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_lock_on_loss(
    lock: Option<&LockHandle>,
    callback: LossCallback,
    data: *mut c_void,
    end: EndCallback,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    let data = OwnedData::new(data, end);
    call(error, || {
        let callback = given(callback, "callback")?;
        let holder = &given(lock, "lock")?.holder;
        holder.on_loss(move |cause| in_callback(|| callback(data.get(), cause.into())))
    })
}

/// Asks the nodes to keep a lock of an engine for `ttl_ms` from now, and returns at once. One at a
/// time. If the status is not OK, nothing was sent, and the callback is not called.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_lock_extend_async(
    lock: Option<&LockHandle>,
    ttl_ms: u64,
    callback: DoneCallback,
    data: *mut c_void,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    call(error, || {
        let callback = given(callback, "callback")?;
        let data = UserData(data);
        let asked = given(lock, "lock")?.holder.extend_later(Duration::from_millis(ttl_ms))?;
        Task::start(asked, move |outcome| {
            let outcome = outcome.expect("only acquisitions are cancelled");
            done(callback, data, outcome.map_err(Failure::from));
        });
        Ok(())
    })
}

/// Releases a lock of an engine, ends the handle, and returns at once. If the status is not OK, the
/// handle is ended as well, without waiting, and the callback is not called. The callback may be
/// null.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_lock_release_async(
    lock: Option<Box<LockHandle>>,
    callback: DoneCallback,
    data: *mut c_void,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    call(error, || {
        let data = UserData(data);
        let ended = given(lock, "lock")?.holder.release_later()?;
        let Some(callback) = callback else { return Ok(()) };
        let Some(ended) = ended else {
            done(callback, data, Ok(()));
            return Ok(());
        };
        Task::start(ended, move |outcome| {
            let outcome = outcome.expect("only acquisitions are cancelled");
            done(callback, data, released(outcome));
        });
        Ok(())
    })
}

impl LockHandle {
    pub(crate) fn of_client(held: Held) -> Box<Self> {
        Box::new(Self { holder: Holder::Client(held) })
    }

    pub(crate) fn of_engine(guard: OwnedGuard) -> Box<Self> {
        Box::new(Self { holder: Holder::Engine(guard) })
    }

    pub(crate) fn of_owner(guard: ReentrantGuard) -> Box<Self> {
        Box::new(Self { holder: Holder::Reentrant(guard) })
    }
}

fn done(
    callback: extern "C" fn(*mut c_void, Status, Option<&Failure>),
    data: UserData,
    outcome: Result<(), Failure>,
) {
    let data = data.get();
    in_callback(|| match outcome {
        Ok(()) => callback(data, Status::Ok, None),
        Err(error) => callback(data, error.status(), Some(&error)),
    });
}

impl From<LockMode> for Mode {
    fn from(mode: LockMode) -> Self {
        match mode {
            LockMode::Exclusive => Self::Exclusive,
            LockMode::Shared => Self::Shared,
            LockMode::Permit { .. } => Self::Permit,
            _ => Self::Unknown,
        }
    }
}

fn remaining(lock: Option<&LockHandle>) -> Duration {
    look(Duration::ZERO, || lock.map(|lock| lock.holder.remaining()).unwrap_or_default())
}

/// Returns whole milliseconds that fit the caller's number.
pub(crate) fn whole_ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Writes a known value, and returns `true` if there is one.
pub(crate) fn tell<T>(place: Option<&mut MaybeUninit<T>>, known: Option<T>) -> bool {
    match (place, known) {
        (Some(place), Some(known)) => {
            place.write(known);
            true
        }
        _ => false,
    }
}
