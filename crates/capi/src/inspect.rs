//! Inspections and forced unlocks, for operators.

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::ptr;

use redbolt::inspect::{ForceUnlockReport, Inspection, Owner, UnlockScope};

use crate::call::{call, given, may_wait};
use crate::client::ClientHandle;
use crate::engine::EngineHandle;
use crate::failure::Failure;
use crate::foreign::{bytes, give, zero_ended};
use crate::lock::whole_ms;
use crate::request::format_of;
use crate::status::Status;

/// The owner of a resource.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holding {
    /// No client holds it: enough nodes are free.
    Nobody = 0,
    /// The client or engine that was asked holds it.
    Mine = 1,
    /// Another client holds it, or there is data that is not a lock of redbolt.
    Other = 2,
    /// Too few nodes answered to decide.
    Unknown = 3,
}

/// The scope of a forced unlock: the data that it may delete.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unlock {
    /// Locks of redbolt.
    Locks = 0,
    /// Locks of redbolt, and those of one format, which is named as in
    /// `redbolt_request_set_format`.
    LocksOf = 1,
    /// Any data under the key: also locks of other libraries, and data of an application. Inspect
    /// first.
    Anything = 2,
}

/// The result of an inspection.
#[repr(C)]
pub struct Seen {
    /// The owner of the resource.
    pub owner: Holding,
    /// True if a quorum of the nodes denies it to a client that asks for it exclusively.
    pub is_locked: bool,
    /// The time until that ends unless the holder extends it, as the nodes report it, in
    /// milliseconds; -1 if it is unknown or without end.
    pub remaining_ms: i64,
}

/// Asks all nodes who holds `resource`, a name that ends with a zero byte. Takes no lock and writes
/// nothing. If `words` is not null, it is set to one line with the data of each node, which
/// `redbolt_text_free` ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_client_inspect(
    client: Option<&ClientHandle>,
    resource: *const c_char,
    seen: Option<&mut MaybeUninit<Seen>>,
    words: Option<&mut MaybeUninit<*mut c_char>>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    inspected(seen, words, error, || {
        // SAFETY: the caller passes pointers that are valid, as the header requires.
        by_client(client, unsafe { zero_ended(resource, "resource") }?)
    })
}

/// Does the same as `redbolt_client_inspect`, for a name of any bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_client_inspect_bytes(
    client: Option<&ClientHandle>,
    resource: *const u8,
    length: usize,
    seen: Option<&mut MaybeUninit<Seen>>,
    words: Option<&mut MaybeUninit<*mut c_char>>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    inspected(seen, words, error, || {
        // SAFETY: the caller passes pointers that are valid, as the header requires.
        by_client(client, unsafe { bytes(resource, length, "resource") }?)
    })
}

/// Inspects with an engine, as `redbolt_client_inspect` does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_engine_inspect(
    engine: Option<&EngineHandle>,
    resource: *const c_char,
    seen: Option<&mut MaybeUninit<Seen>>,
    words: Option<&mut MaybeUninit<*mut c_char>>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    inspected(seen, words, error, || {
        // SAFETY: the caller passes pointers that are valid, as the header requires.
        by_engine(engine, unsafe { zero_ended(resource, "resource") }?)
    })
}

/// Does the same as `redbolt_engine_inspect`, for a name of any bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_engine_inspect_bytes(
    engine: Option<&EngineHandle>,
    resource: *const u8,
    length: usize,
    seen: Option<&mut MaybeUninit<Seen>>,
    words: Option<&mut MaybeUninit<*mut c_char>>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    inspected(seen, words, error, || {
        // SAFETY: the caller passes pointers that are valid, as the header requires.
        by_engine(engine, unsafe { bytes(resource, length, "resource") }?)
    })
}

/// Breaks the lock of any holder on `resource`, a name that ends with a zero byte, on every node
/// that can be reached. `scope` is one of `REDBOLT_UNLOCK_...` and limits what is deleted. `format`
/// is the name of a format for `REDBOLT_UNLOCK_LOCKS_OF`, and null otherwise. The holder is not
/// asked, and continues until it checks its lock. `REDBOLT_STATUS_NO_QUORUM` if no quorum has
/// confirmed it. If `words` is not null, it is set to one line with the outcome on each node, which
/// `redbolt_text_free` ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_client_force_unlock(
    client: Option<&ClientHandle>,
    resource: *const c_char,
    scope: i32,
    format: *const c_char,
    words: Option<&mut MaybeUninit<*mut c_char>>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    broken(words, error, || {
        // SAFETY: the caller passes pointers that are valid, as the header requires.
        let (resource, scope) =
            unsafe { (zero_ended(resource, "resource")?, scope_of(scope, format)?) };
        broken_by_client(client, resource, scope)
    })
}

/// Does the same as `redbolt_client_force_unlock`, for a name of any bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_client_force_unlock_bytes(
    client: Option<&ClientHandle>,
    resource: *const u8,
    length: usize,
    scope: i32,
    format: *const c_char,
    words: Option<&mut MaybeUninit<*mut c_char>>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    broken(words, error, || {
        // SAFETY: the caller passes pointers that are valid, as the header requires.
        let (resource, scope) =
            unsafe { (bytes(resource, length, "resource")?, scope_of(scope, format)?) };
        broken_by_client(client, resource, scope)
    })
}

/// Breaks a lock with an engine, as `redbolt_client_force_unlock` does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_engine_force_unlock(
    engine: Option<&EngineHandle>,
    resource: *const c_char,
    scope: i32,
    format: *const c_char,
    words: Option<&mut MaybeUninit<*mut c_char>>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    broken(words, error, || {
        // SAFETY: the caller passes pointers that are valid, as the header requires.
        let (resource, scope) =
            unsafe { (zero_ended(resource, "resource")?, scope_of(scope, format)?) };
        broken_by_engine(engine, resource, scope)
    })
}

/// Does the same as `redbolt_engine_force_unlock`, for a name of any bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_engine_force_unlock_bytes(
    engine: Option<&EngineHandle>,
    resource: *const u8,
    length: usize,
    scope: i32,
    format: *const c_char,
    words: Option<&mut MaybeUninit<*mut c_char>>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
) -> Status {
    broken(words, error, || {
        // SAFETY: the caller passes pointers that are valid, as the header requires.
        let (resource, scope) =
            unsafe { (bytes(resource, length, "resource")?, scope_of(scope, format)?) };
        broken_by_engine(engine, resource, scope)
    })
}

fn by_client(client: Option<&ClientHandle>, resource: &[u8]) -> Result<Inspection, Failure> {
    Ok(given(client, "client")?.entered_to_wait()?.inspect(resource)?)
}

fn by_engine(engine: Option<&EngineHandle>, resource: &[u8]) -> Result<Inspection, Failure> {
    may_wait()?;
    Ok(given(engine, "engine")?.engine().inspect(resource).wait()?)
}

fn broken_by_client(
    client: Option<&ClientHandle>,
    resource: &[u8],
    scope: UnlockScope,
) -> Result<ForceUnlockReport, Failure> {
    let client = given(client, "client")?.entered_to_wait()?;
    Ok(client.force_unlock(resource, scope)?)
}

fn broken_by_engine(
    engine: Option<&EngineHandle>,
    resource: &[u8],
    scope: UnlockScope,
) -> Result<ForceUnlockReport, Failure> {
    may_wait()?;
    Ok(given(engine, "engine")?.engine().force_unlock(resource, scope).wait()?)
}

/// Returns the scope that the host passes. A format that does not belong to the scope is refused,
/// because the host means another scope.
///
/// # Safety
///
/// As [`zero_ended`], for `format`.
pub(crate) unsafe fn scope_of(scope: i32, format: *const c_char) -> Result<UnlockScope, Failure> {
    let format = match format.is_null() {
        true => None,
        // SAFETY: the caller promises it.
        false => Some(format_of(unsafe { zero_ended(format, "format") }?)?),
    };
    match (scope, format) {
        (it, None) if it == Unlock::Locks as i32 => Ok(UnlockScope::Locks),
        (it, Some(format)) if it == Unlock::LocksOf as i32 => Ok(UnlockScope::LocksOf(format)),
        (it, None) if it == Unlock::Anything as i32 => Ok(UnlockScope::Anything),
        (it, None) if it == Unlock::LocksOf as i32 => {
            Err(Failure::argument("REDBOLT_UNLOCK_LOCKS_OF needs the name of a format"))
        }
        (_, Some(_)) => Err(Failure::argument("only REDBOLT_UNLOCK_LOCKS_OF has a format")),
        (_, None) => Err(Failure::argument("scope is none of REDBOLT_UNLOCK_...")),
    }
}

fn inspected(
    seen: Option<&mut MaybeUninit<Seen>>,
    words: Option<&mut MaybeUninit<*mut c_char>>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
    ask: impl FnOnce() -> Result<Inspection, Failure>,
) -> Status {
    call(error, || {
        let words = empty(words);
        let seen = given(seen, "seen")?;
        show(&ask()?, seen, words);
        Ok(())
    })
}

fn broken(
    words: Option<&mut MaybeUninit<*mut c_char>>,
    error: Option<&mut MaybeUninit<Option<Box<Failure>>>>,
    unlock: impl FnOnce() -> Result<ForceUnlockReport, Failure>,
) -> Status {
    call(error, || {
        let words = empty(words);
        confirmed(&unlock()?, words)
    })
}

/// Sets a text that the host wants to null, until there is one.
pub(crate) fn empty(words: Option<&mut MaybeUninit<*mut c_char>>) -> Option<&mut *mut c_char> {
    words.map(|words| words.write(ptr::null_mut()))
}

pub(crate) fn show(
    inspection: &Inspection,
    seen: &mut MaybeUninit<Seen>,
    words: Option<&mut *mut c_char>,
) {
    let owner = match inspection.owner() {
        None => Holding::Nobody,
        Some(Owner::Mine) => Holding::Mine,
        Some(Owner::Other) => Holding::Other,
        Some(_) => Holding::Unknown,
    };
    let remaining = inspection.remaining().map(whole_ms);
    let remaining_ms = remaining.map_or(-1, |left| i64::try_from(left).unwrap_or(i64::MAX));
    seen.write(Seen { owner, is_locked: inspection.is_locked(), remaining_ms });
    if let Some(words) = words {
        let nodes = inspection.nodes.iter().map(|node| format!("; {node}"));
        *words = give(&format!("{}{}", inspection.verdict, nodes.collect::<String>()));
    }
}

pub(crate) fn confirmed(
    report: &ForceUnlockReport,
    words: Option<&mut *mut c_char>,
) -> Result<(), Failure> {
    let line = report.to_string();
    if let Some(words) = words {
        *words = give(&line);
    }
    match report.is_confirmed() {
        true => Ok(()),
        false => Err(Failure::new(Status::NoQuorum, &line)),
    }
}
