//! The frame of every exported function: no panic leaves it, and no call waits inside a callback.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::failure::Failure;
use crate::status::Status;

/// Runs a call, and returns its status. If the caller wants an error, it is written, or null.
pub(crate) fn call(
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
    call: impl FnOnce() -> Result<(), Failure>,
) -> Status {
    let failure = stopped(call).unwrap_or_else(|| Err(Failure::panicked())).err();
    let status = failure.as_ref().map_or(Status::Ok, Failure::status);
    if let Some(error) = error {
        error.write(failure.map(Box::new));
    }
    status
}

/// Runs a call without a status. A panic in it becomes `otherwise`.
pub(crate) fn look<T>(otherwise: T, look: impl FnOnce() -> T) -> T {
    stopped(look).unwrap_or(otherwise)
}

/// Returns `None` if the call panicked. The panic's payload is never dropped, because that could
/// panic as well.
fn stopped<T>(call: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(call)).map_err(std::mem::forget).ok()
}

/// Returns a required pointer, or the error that it is null.
pub(crate) fn given<T>(pointer: Option<T>, name: &str) -> Result<T, Failure> {
    pointer.ok_or_else(|| Failure::argument(&format!("{name} is null")))
}

/// Returns the place for a new handle, which is null until there is one.
pub(crate) fn place<'a, T>(
    pointer: Option<&'a mut MaybeUninit<Option<T>>>,
    name: &str,
) -> Result<&'a mut Option<T>, Failure> {
    Ok(given(pointer, name)?.write(None))
}

/// Runs a callback of the host.
pub(crate) fn in_callback(callback: impl FnOnce()) {
    let before = IN_CALLBACK.replace(true);
    callback();
    IN_CALLBACK.set(before);
}

/// Returns an error inside a callback, for calls that wait: callbacks run on the thread that other
/// locks need, and an engine would wait for itself.
pub(crate) fn may_wait() -> Result<(), Failure> {
    match IN_CALLBACK.get() {
        false => Ok(()),
        true => Err(Failure::plain(Status::InCallback)),
    }
}

thread_local! {
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A panic that left the library would end the host's process, or be undefined behaviour.
    #[test]
    fn a_panic_does_not_leave_the_library() {
        let mut error = MaybeUninit::uninit();
        let status = call(Some(&mut error), || panic!("on purpose, as a bug would"));
        assert_eq!(status, Status::Panicked);
        // SAFETY: `call` writes the error with every outcome.
        let error = unsafe { error.assume_init() }.expect("an error with every failure");
        assert_eq!(error.status(), Status::Panicked);
        assert_eq!(look(7, || panic!("on purpose, as a bug would")), 7);
    }

    #[test]
    fn no_call_waits_inside_a_callback() {
        assert!(may_wait().is_ok());
        in_callback(|| {
            assert!(may_wait().is_err());
            in_callback(|| ());
            assert!(may_wait().is_err(), "an inner callback ends before the outer one");
        });
        assert!(may_wait().is_ok());
    }
}
