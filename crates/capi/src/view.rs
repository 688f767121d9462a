//! Views of a driver: inspections and forced unlocks. Each begins with a number, is reported by an
//! event, and is taken once.

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;

use redbolt::Driver;
use redbolt::proto::ViewId;

use crate::call::{call, given};
use crate::driver::{DriverHandle, State, entered};
use crate::failure::Failure;
use crate::foreign::{UserData, bytes, zero_ended};
use crate::inspect::{Seen, confirmed, empty, scope_of, show};
use crate::numbers::ViewKind;
use crate::status::Status;

/// Begins to ask all nodes who holds `resource`, a name that ends with a zero byte, and writes the
/// number of the view to `view`. Takes no lock and writes nothing. The outcome is
/// `REDBOLT_EVENT_KIND_VIEWED`, which returns `data`; `redbolt_driver_take_inspection` has the
/// result then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_driver_inspect(
    driver: Option<&DriverHandle>,
    resource: *const c_char,
    data: *mut c_void,
    view: Option<&mut MaybeUninit<u64>>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    begun(driver, ViewKind::Inspection, data, view, error, |driver| {
        // SAFETY: the caller passes pointers that are valid, as the header requires.
        Ok(driver.inspect(unsafe { zero_ended(resource, "resource") }?)?)
    })
}

/// Does the same as `redbolt_driver_inspect`, for a name of any bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_driver_inspect_bytes(
    driver: Option<&DriverHandle>,
    resource: *const u8,
    length: usize,
    data: *mut c_void,
    view: Option<&mut MaybeUninit<u64>>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    begun(driver, ViewKind::Inspection, data, view, error, |driver| {
        // SAFETY: the caller passes pointers that are valid, as the header requires.
        Ok(driver.inspect(unsafe { bytes(resource, length, "resource") }?)?)
    })
}

/// Takes the result of an inspection after its event, once. `REDBOLT_STATUS_REQUEST` if there is
/// none. If `words` is not null, it is set to one line with the data of each node, which
/// `redbolt_text_free` ends.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_driver_take_inspection(
    driver: Option<&DriverHandle>,
    view: u64,
    seen: Option<&mut MaybeUninit<Seen>>,
    words: Option<&mut MaybeUninit<*mut c_char>>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    call(error, || {
        let words = empty(words);
        let seen = given(seen, "seen")?;
        let taken = taken(driver, view, ViewKind::Inspection, Driver::take_inspection)?;
        show(&taken, seen, words);
        Ok(())
    })
}

/// Begins to break the lock on `resource`, a name that ends with a zero byte, and writes the number
/// of the view to `view`. `scope` and `format` are those of `redbolt_client_force_unlock`. The
/// outcome is `REDBOLT_EVENT_KIND_VIEWED`, which returns `data`; `redbolt_driver_take_force_unlock`
/// has the result then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_driver_force_unlock(
    driver: Option<&DriverHandle>,
    resource: *const c_char,
    scope: i32,
    format: *const c_char,
    data: *mut c_void,
    view: Option<&mut MaybeUninit<u64>>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    begun(driver, ViewKind::ForceUnlock, data, view, error, |driver| {
        // SAFETY: the caller passes pointers that are valid, as the header requires.
        let (resource, scope) =
            unsafe { (zero_ended(resource, "resource")?, scope_of(scope, format)?) };
        Ok(driver.force_unlock(resource, scope)?)
    })
}

/// Does the same as `redbolt_driver_force_unlock`, for a name of any bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_driver_force_unlock_bytes(
    driver: Option<&DriverHandle>,
    resource: *const u8,
    length: usize,
    scope: i32,
    format: *const c_char,
    data: *mut c_void,
    view: Option<&mut MaybeUninit<u64>>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    begun(driver, ViewKind::ForceUnlock, data, view, error, |driver| {
        // SAFETY: the caller passes pointers that are valid, as the header requires.
        let (resource, scope) =
            unsafe { (bytes(resource, length, "resource")?, scope_of(scope, format)?) };
        Ok(driver.force_unlock(resource, scope)?)
    })
}

/// Takes the result of a forced unlock after its event, once. `REDBOLT_STATUS_REQUEST` if there is
/// none, `REDBOLT_STATUS_NO_QUORUM` if no quorum has confirmed it. If `words` is not null, it is
/// set to one line with the outcome on each node, which `redbolt_text_free` ends.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_driver_take_force_unlock(
    driver: Option<&DriverHandle>,
    view: u64,
    words: Option<&mut MaybeUninit<*mut c_char>>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    call(error, || {
        let words = empty(words);
        let report = taken(driver, view, ViewKind::ForceUnlock, Driver::take_force_unlock)?;
        confirmed(&report, words)
    })
}

fn begun(
    driver: Option<&DriverHandle>,
    kind: ViewKind,
    data: *mut c_void,
    view: Option<&mut MaybeUninit<u64>>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
    begin: impl FnOnce(&mut Driver) -> Result<ViewId, Failure>,
) -> Status {
    call(error, || {
        let view = given(view, "view")?.write(0);
        let mut state = entered(driver)?;
        let id = begin(&mut state.driver)?;
        *view = state.numbers.view(id, kind, UserData(data));
        Ok(())
    })
}

/// Returns the result of a view, and forgets its number.
fn taken<T>(
    driver: Option<&DriverHandle>,
    view: u64,
    kind: ViewKind,
    take: impl FnOnce(&mut Driver, ViewId) -> Option<T>,
) -> Result<T, Failure> {
    let mut state = entered(driver)?;
    let State { driver, numbers } = &mut *state;
    let result = numbers.view_id(view, kind).and_then(|id| take(driver, id));
    let result = result.ok_or_else(|| Failure::new(Status::Request, NO_RESULT))?;
    numbers.forget_view(view);
    Ok(result)
}

const NO_RESULT: &str = "the view has no result: it is not complete, was taken, or never began";
