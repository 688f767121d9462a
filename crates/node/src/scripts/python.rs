//! The scripts of python-redis-lock: a resource is a string, the token of its holder, and a release
//! is an entry of a list.

use super::common::{BAD_ARGUMENTS, check_restart_guard, token_and_ttl};
use super::exclusive::undo_value;
use super::force_unlock::{remove_seen, resource_and_seen};
use crate::calls::{Answer, CallError, Calls, Stop};
use crate::mutants::mutant;

/// Sets the resource if the restart guard lets the node vote and it is free. Before that it checks
/// that the release can be reported.
pub(super) fn acquire_python(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let (token, ttl) = token_and_ttl(argv)?;
    let &[resource, signal, ref restart_guard @ ..] = names else { return Err(BAD_ARGUMENTS) };
    check_restart_guard(calls, restart_guard.first())?;
    let left = calls.pttl(resource)?;
    if left != -2 {
        return Ok(Answer::Int(left));
    }
    calls.get(resource)?;
    calls.del(resource)?;
    calls.lpush(signal, b"1")?;
    let may_end = calls.pexpire(signal, SIGNAL_MS);
    calls.del(signal)?;
    may_end.map_err(CallError::answer)?;
    calls.set_for(resource, token, ttl)?;
    Ok(Answer::Status("OK"))
}

/// Deletes the key if it is the holder's, and reports the release.
pub(super) fn undo_python(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let (&[resource, signal], &[token, ..]) = (names, argv) else { return Err(BAD_ARGUMENTS) };
    if mutant!(ResetInsteadOfRelease) {
        calls.del(resource)?;
    }
    let count = undo_value(calls, resource, token)?;
    if count && calls.lpush(signal, b"1").is_ok() {
        calls.del(signal).ok();
        report(calls, signal);
    }
    Ok(Answer::Int(count.into()))
}

/// Removes an inspected token, and reports the release if the key can be a lock's.
pub(super) fn force_unlock_python(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let (name, seen) = resource_and_seen(names, argv)?;
    let count = remove_seen(calls, name, seen)?;
    if let Some(name) = name.strip_prefix(b"lock:").filter(|_| count > 0) {
        report(calls, &[b"lock-signal:", name].concat());
    }
    Ok(Answer::Int(count))
}

/// Wakes one waiter. No entry may stay that does not expire by itself.
fn report(calls: &mut Calls<'_>, signal: &[u8]) {
    if calls.lpush(signal, b"1").is_ok() && calls.pexpire(signal, SIGNAL_MS).is_err() {
        calls.del(signal).ok();
    }
}

const SIGNAL_MS: i64 = 1_000;
