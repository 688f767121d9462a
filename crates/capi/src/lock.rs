//! Locks of a client or an engine, which differ only in who waits. A driver has none: its locks have numbers.

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

/// A lock that was granted. It protects nothing by itself: check `redbolt_lock_is_valid` before each step that relies on
/// it. It must be ended, by `redbolt_lock_release`, `redbolt_lock_free` or `redbolt_lock_detach`.
///
/// One of a client is for the client's thread. One of an engine is for many threads at once.
pub struct LockHandle {
    holder: Holder,
}

/// Hears of the outcome of a call, once. The error lives until the callback returns. It runs on the engine's thread, or on the
/// thread that made the call, before that returns. It must be quick and must not wait.
pub type DoneCallback =
    Option<extern "C" fn(data: *mut c_void, status: Status, error: Option<&Failure>)>;

/// Hears of the loss of a lock, once. It runs on the engine's thread, and all locks of the engine wait while it does: it must
/// be quick and must not wait. If the lock is lost already, it runs on the thread that set it.
pub type LossCallback = Option<extern "C" fn(data: *mut c_void, loss: Loss)>;

/// Beside whom a lock is held.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It is not known: the lock is over.
    Unknown = 0,
    /// Nobody.
    Exclusive = 1,
    /// Others who share it.
    Shared = 2,
    /// Others who have permits of the same resource.
    Permit = 3,
}

/// Whether the lock is held, by the clock as it is now. False for null.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_lock_is_valid(lock: Option<&LockHandle>) -> bool {
    !remaining(lock).is_zero()
}

/// The validity that is left, by the clock as it is now, in whole milliseconds; 0 once the lock is lost.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_lock_remaining_ms(lock: Option<&LockHandle>) -> u64 {
    whole_ms(remaining(lock))
}

/// Beside whom it is held.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_lock_mode(lock: Option<&LockHandle>) -> Mode {
    look(Mode::Unknown, || {
        lock.and_then(|lock| lock.holder.mode()).map_or(Mode::Unknown, Mode::from)
    })
}

/// The number of its permit, from 0 on. False unless it was asked for, and after the lock was lost.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_lock_slot(
    lock: Option<&LockHandle>,
    slot: Option<&mut MaybeUninit<u16>>,
) -> bool {
    look(false, || tell(slot, lock.and_then(|lock| lock.holder.slot())))
}

/// How often its owner has entered it and not left it, with this handle: 1 unless it is of `redbolt_engine_acquire_reentrant`.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_lock_hold_count(lock: Option<&LockHandle>) -> usize {
    look(0, || lock.map_or(0, |lock| lock.holder.hold_count()))
}

/// The fencing token, for whatever the lock protects. False unless it was asked for, and after the lock was lost.
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

/// Asks the nodes to keep the lock for `ttl_ms` from now, and waits for a quorum. `REDBOLT_STATUS_LOST`: stop. Otherwise
/// the lock is held until `redbolt_lock_remaining_ms` is 0.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_lock_extend(
    lock: Option<&LockHandle>,
    ttl_ms: u64,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    let ttl = Duration::from_millis(ttl_ms);
    call(error, || given(lock, "lock")?.holder.extend(ttl))
}

/// Tries once to become the only holder of a resource that is shared. `REDBOLT_STATUS_CONTENDED`: others share it, and
/// nothing is different.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_lock_try_upgrade(
    lock: Option<&LockHandle>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    call(error, || given(lock, "lock")?.holder.try_upgrade())
}

/// Shares a resource from now on that it held alone. It is shared from the call on, whatever the nodes say.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_lock_downgrade(
    lock: Option<&LockHandle>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    call(error, || given(lock, "lock")?.holder.downgrade())
}

/// Releases a lock, waits until a quorum has confirmed it or whoever answers has, and ends the handle, whatever the status
/// says. `REDBOLT_STATUS_LOST`: it had ended before, and what it protected may have been in other hands.
#[must_use]
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_lock_release(
    lock: Option<Box<LockHandle>>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    call(error, || given(lock, "lock")?.holder.release())
}

/// Lets go of a lock without waiting, and ends the handle. Null is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_lock_free(lock: Option<Box<LockHandle>>) {
    look((), || drop(lock));
}

/// Detaches a lock, for another process on this machine to attach, and ends the handle, whatever the status says. Until
/// then it stays taken, and its lease runs. The text is for `redbolt_client_attach` and the like, says nothing that is
/// secret but the right to release the lock, and is ended by `redbolt_text_free`.
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

/// Has `callback` called once if a lock of an engine is lost; never if it is released or freed before that. Several may be
/// set. `end`, if it is not null, is called once when it is clear that `callback` is not called again, also if the status is not
/// OK. A client's lock is refused: nobody would look while the client is not used.
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

/// Asks the nodes to keep a lock of an engine for `ttl_ms` from now, and returns at once. One at a time. If the status is not
/// OK, nothing was asked, and nobody is called.
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

/// Releases a lock of an engine, ends the handle, and returns at once. If the status is not OK, the handle is ended as well,
/// without waiting, and nobody is called. A null callback wants to hear nothing.
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

/// What fits a caller's number.
pub(crate) fn whole_ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Writes what is known.
pub(crate) fn tell<T>(place: Option<&mut MaybeUninit<T>>, known: Option<T>) -> bool {
    match (place, known) {
        (Some(place), Some(known)) => {
            place.write(known);
            true
        }
        _ => false,
    }
}
