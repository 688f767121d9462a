//! The embedded API: a lock client inside the host's loop. Its locks are numbers (see `numbers`),
//! and its outcomes are events.

use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use redbolt::report::LockState;
use redbolt::{DetachedLock, Driver, LockId, RequestError};

use crate::call::{call, given, look, place};
use crate::config::{ConfigHandle, built};
use crate::door::in_use;
use crate::event::{EventRecord, told};
use crate::failure::Failure;
use crate::foreign::{UserData, give, places, text};
use crate::lock::{Mode, tell, whole_ms};
use crate::many::asked;
use crate::numbers::Numbers;
use crate::request::RequestHandle;
use crate::status::Status;

/// Acquires locks in the event loop of another program: one file descriptor, one deadline, and no
/// blocking. For one thread at a time: a concurrent call returns `REDBOLT_STATUS_IN_USE`.
pub struct DriverHandle {
    state: Mutex<State>,
}

pub(crate) struct State {
    pub(crate) driver: Driver,
    pub(crate) numbers: Numbers,
}

/// Begins to connect to all nodes. A node that cannot be reached is not an error here.
/// `redbolt_driver_free` ends the driver.
///
/// In the host's loop: watch `redbolt_driver_fd` for readability, sleep no longer than
/// `redbolt_driver_timeout_ms`, then call `redbolt_driver_process`, and take events until there
/// are none. After every command take events too, and read the deadline again.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_driver_new(
    config: Option<&ConfigHandle>,
    driver: Option<&mut MaybeUninit<Option<Box<DriverHandle>>>>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    call(error, || {
        let place = place(driver, "driver")?;
        let driver = Driver::new(built(config)?)?;
        let state = Mutex::new(State { driver, numbers: Numbers::default() });
        *place = Some(Box::new(DriverHandle { state }));
        Ok(())
    })
}

/// Ends a driver: writes what the sockets accept, and does not wait. Before that, release all locks
/// and process until `redbolt_driver_has_pending_releases` is false. Null is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_driver_free(driver: Option<Box<DriverHandle>>) {
    look((), || drop(driver));
}

/// Returns the file descriptor to watch for readability; it belongs to the driver, and stays the
/// same. -1 for null.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_driver_fd(driver: Option<&DriverHandle>) -> c_int {
    ask(driver, -1, |state| state.driver.as_fd().as_raw_fd())
}

/// Returns when `redbolt_driver_process` is due, in milliseconds from now, as epoll_wait takes
/// them: rounded up, and -1 if only readability matters.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_driver_timeout_ms(driver: Option<&DriverHandle>) -> c_int {
    ask(driver, -1, |state| {
        let deadline = state.driver.timeout().map(|left| left.as_nanos().div_ceil(1_000_000));
        deadline.map_or(-1, |left| c_int::try_from(left).unwrap_or(c_int::MAX))
    })
}

/// Does everything that can be done now, without waiting. Calling it too often is harmless.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_driver_process(driver: Option<&DriverHandle>) -> Status {
    call(None, || {
        entered(driver)?.driver.process();
        Ok(())
    })
}

/// Does the same as `redbolt_driver_process`, but tries reads for at most the configured
/// `busy_poll` first, without sleeping. Returns true if a read returned data: do not sleep then.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_driver_process_busy(driver: Option<&DriverHandle>) -> bool {
    ask(driver, false, |state| state.driver.process_busy())
}

/// Takes the next event. Returns false if there is none, as in a forked child. If `error` is not
/// null, it becomes the error of the event, or null if it has none.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_driver_next_event(
    driver: Option<&DriverHandle>,
    event: Option<&mut MaybeUninit<EventRecord>>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> bool {
    let error = error.map(|error| error.write(None));
    look(false, || {
        let (Ok(mut state), Some(place)) = (entered(driver), event) else { return false };
        let State { driver, numbers } = &mut *state;
        let Some((event, refusal)) = told(driver, numbers) else { return false };
        place.write(event);
        if let (Some(error), Some(refusal)) = (error, refusal) {
            *error = Some(Box::new(refusal(driver)));
        }
        true
    })
}

/// Requests a lock from all nodes, and writes its number to `lock`. The outcome is
/// `REDBOLT_EVENT_KIND_GRANTED` or `REDBOLT_EVENT_KIND_REFUSED`. Every event of the lock returns
/// `data`.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_driver_acquire(
    driver: Option<&DriverHandle>,
    request: Option<&RequestHandle>,
    data: *mut c_void,
    lock: Option<&mut MaybeUninit<u64>>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    call(error, || {
        let lock = given(lock, "lock")?.write(0);
        let request = given(request, "request")?.asked();
        let mut state = entered(driver)?;
        let id = state.driver.acquire(request)?;
        *lock = state.numbers.number(id, UserData(data));
        Ok(())
    })
}

/// Requests several locks with one write to each node. `requests` and `locks` have `count` places.
/// If a request cannot be carried out, the call returns its status and error, its number and all
/// after it are 0, and those before it are sent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_driver_acquire_all(
    driver: Option<&DriverHandle>,
    requests: *const Option<&RequestHandle>,
    count: usize,
    data: *mut c_void,
    locks: *mut MaybeUninit<u64>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    call(error, || {
        // SAFETY: the caller passes pointers that are valid, as the header requires.
        let (locks, requests) =
            unsafe { (places(locks, count, "locks")?, asked(requests, count)?) };
        for lock in locks.iter_mut() {
            lock.write(0);
        }
        let mut state = entered(driver)?;
        let State { driver, numbers } = &mut *state;
        driver.batch(|driver| {
            for (request, lock) in requests.into_iter().zip(locks) {
                lock.write(numbers.number(driver.acquire(request)?, UserData(data)));
            }
            Ok(())
        })
    })
}

/// Asks all nodes to keep a held lock for `ttl_ms` more. The outcome is
/// `REDBOLT_EVENT_KIND_EXTENDED`, `..._NOT_EXTENDED` or `..._LOST`.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_driver_extend(
    driver: Option<&DriverHandle>,
    lock: u64,
    ttl_ms: u64,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    let ttl = Duration::from_millis(ttl_ms);
    command(driver, lock, error, |driver, id| Ok(driver.extend(id, ttl)?))
}

/// Tries once to make a shared lock exclusive. The outcome is `REDBOLT_EVENT_KIND_UPGRADED` or
/// `..._NOT_UPGRADED`, which leaves it shared.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_driver_try_upgrade(
    driver: Option<&DriverHandle>,
    lock: u64,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    command(driver, lock, error, |driver, id| Ok(driver.try_upgrade(id)?))
}

/// Makes an exclusive lock shared, from this call on. After `REDBOLT_EVENT_KIND_DOWNGRADED` other
/// clients may share it.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_driver_downgrade(
    driver: Option<&DriverHandle>,
    lock: u64,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    command(driver, lock, error, |driver, id| Ok(driver.downgrade(id)?))
}

/// Releases a lock, or cancels its acquisition. The outcome is `REDBOLT_EVENT_KIND_RELEASED`,
/// `..._REFUSED` or `..._LOST`. `REDBOLT_STATUS_LOST`: the lock was lost before, and another client
/// may have held it meanwhile; the rest of it is released. If its `..._LOST` event was taken, no
/// event follows. A number means nothing after the last event of a released lock.
#[must_use]
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_driver_release(driver: Option<&DriverHandle>, lock: u64) -> Status {
    call(None, || {
        let mut state = entered(driver)?;
        let id = state.known(lock)?;
        let is_lost = state.is_lost(lock, id);
        state.driver.release(id);
        state.numbers.let_go(lock);
        match is_lost {
            true => Err(Failure::plain(Status::Lost)),
            false => Ok(()),
        }
    })
}

/// Detaches a held lock, for another process on this machine to attach. The driver forgets it. The
/// text is ended by `redbolt_text_free`. Nodes that have not answered yet will not count for the
/// lock.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_driver_detach(
    driver: Option<&DriverHandle>,
    lock: u64,
    detached: Option<&mut MaybeUninit<*mut c_char>>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    call(error, || {
        let detached = given(detached, "detached")?.write(ptr::null_mut());
        let mut state = entered(driver)?;
        let id = state.known(lock)?;
        let record = state.driver.detach(id).ok_or(RequestError::NotHeld)?;
        state.numbers.forget(lock);
        *detached = give(&record.to_text());
        Ok(())
    })
}

/// Attaches a lock that was detached, from its text. It is held from here on, or
/// `REDBOLT_EVENT_KIND_LOST` follows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_driver_attach(
    driver: Option<&DriverHandle>,
    detached: *const c_char,
    data: *mut c_void,
    lock: Option<&mut MaybeUninit<u64>>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    call(error, || {
        let lock = given(lock, "lock")?.write(0);
        // SAFETY: the caller passes pointers that are valid, as the header requires.
        let detached: DetachedLock = unsafe { text(detached, "detached") }?.parse()?;
        let mut state = entered(driver)?;
        let id = state.driver.attach(&detached)?;
        *lock = state.numbers.number(id, UserData(data));
        Ok(())
    })
}

/// Returns the validity that a lock has left now, in whole milliseconds; 0 if it is not held.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_driver_remaining_ms(driver: Option<&DriverHandle>, lock: u64) -> u64 {
    ask(driver, 0, |state| state.known(lock).map_or(0, |id| whole_ms(state.driver.remaining(id))))
}

/// Returns true if a lock is held now.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_driver_is_valid(driver: Option<&DriverHandle>, lock: u64) -> bool {
    ask(driver, false, |state| {
        state.known(lock).is_ok_and(|id| !state.driver.remaining(id).is_zero())
    })
}

/// Returns the sharing mode of a lock.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_driver_mode(driver: Option<&DriverHandle>, lock: u64) -> Mode {
    ask(driver, Mode::Unknown, |state| {
        let mode = state.known(lock).ok().and_then(|id| state.driver.mode(id));
        mode.map_or(Mode::Unknown, Mode::from)
    })
}

/// Writes the number of the permit of a held lock, from 0 on. Returns false unless a permit was
/// requested.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_driver_slot(
    driver: Option<&DriverHandle>,
    lock: u64,
    slot: Option<&mut MaybeUninit<u16>>,
) -> bool {
    ask(driver, false, |state| {
        tell(slot, state.known(lock).ok().and_then(|id| state.driver.slot(id)))
    })
}

/// Writes the fencing token of a held lock. Returns false unless one was requested.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_driver_fencing_token(
    driver: Option<&DriverHandle>,
    lock: u64,
    token: Option<&mut MaybeUninit<u64>>,
) -> bool {
    ask(driver, false, |state| {
        let known = state.known(lock).ok().and_then(|id| state.driver.fencing_token(id));
        tell(token, known.map(|token| token.get()))
    })
}

/// Returns true while a release or an undo is not confirmed on a node that can be reached.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_driver_has_pending_releases(driver: Option<&DriverHandle>) -> bool {
    ask(driver, false, |state| state.driver.has_pending_releases())
}

/// Returns OK if enough nodes are ready for a lock. Otherwise `REDBOLT_STATUS_NO_QUORUM`, and the
/// error has the reason of each node.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_driver_nodes(
    driver: Option<&DriverHandle>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    call(error, || Failure::unless_quorum(&entered(driver)?.driver.node_report()))
}

/// Returns all counts since the start, in the format of Prometheus. `redbolt_text_free` ends the
/// text.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_driver_metrics(
    driver: Option<&DriverHandle>,
    metrics: Option<&mut MaybeUninit<*mut c_char>>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    call(error, || {
        let metrics = given(metrics, "metrics")?.write(ptr::null_mut());
        *metrics = give(&entered(driver)?.driver.metrics().to_prometheus());
        Ok(())
    })
}

impl State {
    /// Returns the lock that a number stands for.
    fn known(&self, lock: u64) -> Result<LockId, RequestError> {
        self.numbers.id(lock).ok_or(RequestError::NotHeld)
    }

    /// Returns `true` if the lock was held once and is not any longer, whether or not its host has
    /// taken the event.
    fn is_lost(&self, lock: u64, id: LockId) -> bool {
        let has_ended = || self.driver.remaining(id).is_zero();
        match self.driver.state(id) {
            LockState::Lost(_) => true,
            LockState::Held | LockState::Extending => has_ended(),
            _ => self.numbers.is_lost(lock),
        }
    }
}

/// Enters the driver, in the process that created it.
pub(crate) fn entered(driver: Option<&DriverHandle>) -> Result<MutexGuard<'_, State>, Failure> {
    let state = inside(driver)?;
    Failure::unless_ours(state.driver.is_ours())?;
    Ok(state)
}

fn inside(driver: Option<&DriverHandle>) -> Result<MutexGuard<'_, State>, Failure> {
    given(driver, "driver")?.state.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => in_use(),
        TryLockError::Poisoned(_) => Failure::panicked(),
    })
}

fn ask<T>(driver: Option<&DriverHandle>, otherwise: T, ask: impl FnOnce(&mut State) -> T) -> T {
    let asked = || inside(driver).ok().map(|mut state| ask(&mut state));
    look(None, asked).unwrap_or(otherwise)
}

fn command(
    driver: Option<&DriverHandle>,
    lock: u64,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
    command: impl FnOnce(&mut Driver, LockId) -> Result<(), Failure>,
) -> Status {
    call(error, || {
        let mut state = entered(driver)?;
        let id = state.known(lock)?;
        command(&mut state.driver, id)
    })
}
