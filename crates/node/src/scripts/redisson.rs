//! The scripts of Redisson's locks: a resource is a hash of its one holder, and a release is
//! published on a channel.

use redbolt::proto::fence::MAX_TOKEN;

use super::common::{
    self, BAD_ARGUMENTS, BAD_COUNTER, begin, check_restart_guard, raise_for_ever, span,
    token_and_ttl,
};
use super::force_unlock::resource_and_seen;
use crate::calls::{Answer, Calls, Stop, caught};
use crate::mutants::mutant;

/// Writes a hash with the holder if the restart guard lets the node vote and the key is free.
pub(super) fn acquire_redisson(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let (resource, token, ttl) = begin(calls, names, argv)?;
    check_free(calls, resource, token, ttl)?;
    hold(calls, resource, token, ttl)?;
    Ok(Answer::Status("OK"))
}

/// Acquires like `acquire_redisson`, and counts.
pub(super) fn acquire_redisson_fenced(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let (token, ttl) = token_and_ttl(argv)?;
    let &[resource, counter, ref restart_guard @ ..] = names else { return Err(BAD_ARGUMENTS) };
    check_restart_guard(calls, restart_guard.first())?;
    check_free(calls, resource, token, ttl)?;
    let is_token = |&count: &f64| (0.0..MAX_TOKEN as f64).contains(&count);
    common::counter(calls, counter)?.filter(is_token).ok_or(BAD_COUNTER)?;
    if mutant!(CounterBeginsAnew) {
        calls.del(counter)?;
    }
    let count = calls.incr(counter)?;
    hold(calls, resource, token, ttl)?;
    Ok(Answer::StatusAnd("OK", count))
}

/// Extends the holder's lock to at least this TTL. Never shortens anything.
pub(super) fn extend_redisson(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let &[resource] = names else { return Err(BAD_ARGUMENTS) };
    let (token, ttl) = token_and_ttl(argv)?;
    if !is_mine(calls, resource, token)? {
        return Ok(Answer::Int(0));
    }
    if calls.pttl(resource)? < span(argv.get(1))? {
        calls.pexpire(resource, ttl)?;
    }
    Ok(Answer::Int(1))
}

/// Removes the holder, and reports the release if no holder is left.
pub(super) fn undo_redisson(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let (&[resource], &[token, ..]) = (names, argv) else { return Err(BAD_ARGUMENTS) };
    if mutant!(HashOfAnyHolder) {
        calls.del(resource)?;
    }
    if !is_mine(calls, resource, token)? {
        return Ok(Answer::Int(0));
    }
    let was_alone = calls.hlen(resource)? == 1;
    calls.hdel(resource, &[token])?;
    if was_alone {
        report(calls, resource);
    }
    Ok(Answer::Int(1))
}

/// Removes inspected holders, and reports the release.
pub(super) fn force_unlock_redisson(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let (name, seen) = resource_and_seen(names, argv)?;
    let mut count = 0;
    for field in seen {
        let Some(removed) = caught(calls.hdel(name, &[field]))? else { return Ok(Answer::Int(0)) };
        count += removed;
    }
    if count > 0 {
        report(calls, name);
    }
    Ok(Answer::Int(count))
}

/// Wakes the waiters.
fn report(calls: &mut Calls<'_>, resource: &[u8]) {
    calls.publish_if_allowed(beside(b"redisson_lock__channel", resource), b"0");
}

/// Returns the name of a key that Redisson keeps for a lock.
pub(super) fn beside(prefix: &[u8], resource: &[u8]) -> Vec<u8> {
    match resource.contains(&b'{') {
        true => [prefix, b":", resource].concat(),
        false => [prefix, b":{", resource, b"}"].concat(),
    }
}

/// Raises the counter to at least the given value, if the holder has the lock.
pub(super) fn write_back_redisson(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let (&[resource, counter], &[token, _]) = (names, argv) else { return Err(BAD_ARGUMENTS) };
    if !is_mine(calls, resource, token)? {
        return Ok(Answer::Int(0));
    }
    raise_for_ever(calls, counter, argv.get(1))?;
    Ok(Answer::Int(1))
}

/// Checks that the key is free; otherwise it denies with the key's TTL. Whether an undo is allowed
/// is checked before anything is written.
fn check_free(calls: &mut Calls<'_>, name: &[u8], token: &[u8], ttl: i64) -> Result<(), Stop> {
    match calls.pttl(name)? {
        -2 => {}
        left => return Err(Stop::Answered(Answer::Int(left))),
    }
    calls.hexists(name, token)?;
    calls.hlen(name)?;
    calls.pexpire(name, ttl)?;
    calls.hdel(name, &[token])?;
    Ok(())
}

fn hold(calls: &mut Calls<'_>, name: &[u8], token: &[u8], ttl: i64) -> Result<(), Stop> {
    calls.hset(name, &[(token, b"1")])?;
    calls.pexpire(name, ttl)?;
    Ok(())
}

fn is_mine(calls: &mut Calls<'_>, name: &[u8], token: &[u8]) -> Result<bool, Stop> {
    Ok(caught(calls.hexists(name, token))?.unwrap_or(false))
}
