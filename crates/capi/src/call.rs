//! What every door does: no panic gets out, and nobody waits inside a callback. Not here: what a door is for.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::failure::Failure;
use crate::status::Status;

/// Runs a call, and says what it came to. If the caller wants an error, it is written, or null.
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

/// Runs what has no status. A panic in it becomes `otherwise`.
pub(crate) fn look<T>(otherwise: T, look: impl FnOnce() -> T) -> T {
    stopped(look).unwrap_or(otherwise)
}

/// `None` if it panicked. What it panicked with is never dropped, for that could panic as well.
fn stopped<T>(call: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(call)).map_err(std::mem::forget).ok()
}

/// A pointer that must be there.
pub(crate) fn given<T>(pointer: Option<T>, name: &str) -> Result<T, Failure> {
    pointer.ok_or_else(|| Failure::argument(&format!("{name} is null")))
}

/// Where a new handle is to be written. Until there is one, it is null.
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

/// For calls that wait: callbacks run on the thread that other locks need, and an engine would wait for itself.
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

    /// One that got out would end the host's process, or be undefined behaviour.
    #[test]
    fn a_panic_stops_at_the_door() {
        let mut error = MaybeUninit::uninit();
        let status = call(Some(&mut error), || panic!("on purpose, as a bug would"));
        assert_eq!(status, Status::Panicked);
        // SAFETY: `call` writes it, whatever comes of the call.
        let error = unsafe { error.assume_init() }.expect("an error with every failure");
        assert_eq!(error.status(), Status::Panicked);
        assert_eq!(look(7, || panic!("on purpose, as a bug would")), 7);
    }

    #[test]
    fn nobody_waits_inside_a_callback() {
        assert!(may_wait().is_ok());
        in_callback(|| {
            assert!(may_wait().is_err());
            in_callback(|| ());
            assert!(may_wait().is_err(), "an inner callback ends before the outer one");
        });
        assert!(may_wait().is_ok());
    }
}
