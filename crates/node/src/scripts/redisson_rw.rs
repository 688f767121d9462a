//! The scripts of Redisson's read/write locks: a resource is a hash of its mode and its holders,
//! and each reader has a separate key. A release is published on a channel, as for Redisson's other
//! locks.

use super::common::{BAD_ARGUMENTS, begin, lua_number, number, span, token_and_ttl};
use super::force_unlock::resource_and_seen;
use super::redisson::beside;
use super::shared::twins;
use crate::calls::{Answer, Calls, Stop, caught};

/// Adds a reader, if there are only readers.
pub(super) fn acquire_redisson_read(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let (resource, token, ttl) = begin(calls, names, argv)?;
    let left = calls.pttl(resource)?;
    if left != -2 {
        let mode = caught(calls.hget(resource, MODE))?.flatten();
        if mode.as_deref() != Some(b"read") {
            return Ok(Answer::Int(left));
        }
    }
    let own = own_hold(resource, token);
    rehearse_undo(calls, resource, &own, ttl)?;
    for twin in twins(token, number(argv.get(2))?) {
        if calls.hexists(resource, &twin)? {
            return Ok(Answer::Int(calls.pttl(resource)?));
        }
    }
    calls.set_for(&own, b"1", ttl)?;
    calls.hset(resource, &[(MODE, b"read"), (token, b"1")])?;
    if left < ttl {
        calls.pexpire(resource, ttl)?;
    }
    Ok(Answer::Status("OK"))
}

/// Writes a hash with a writer, if the key is free.
pub(super) fn acquire_redisson_write(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let (resource, token, ttl) = begin(calls, names, argv)?;
    match calls.pttl(resource)? {
        -2 => {}
        left => return Ok(Answer::Int(left)),
    }
    rehearse_undo(calls, resource, &own_hold(resource, token), ttl)?;
    calls.hset(resource, &[(MODE, b"write"), (&writer(token), b"1")])?;
    calls.pexpire(resource, ttl)?;
    Ok(Answer::Status("OK"))
}

/// Extends the holder's lock to at least this TTL. Never shortens anything, and restores no reader.
pub(super) fn extend_redisson_rw(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let &[resource] = names else { return Err(BAD_ARGUMENTS) };
    let (token, ttl) = token_and_ttl(argv)?;
    if !has(calls, resource, &writer(token))? {
        let reads = has(calls, resource, token)?;
        let own = own_hold(resource, token);
        let left = calls.pttl(&own)?;
        if !reads || left == -2 {
            return Ok(Answer::Int(0));
        }
        if left < ttl {
            calls.pexpire(&own, ttl)?;
        }
    }
    if calls.pttl(resource)? < span(argv.get(1))? {
        calls.pexpire(resource, ttl)?;
    }
    Ok(Answer::Int(1))
}

/// Removes the holder, and lets the lock live as long as its last remaining holder.
pub(super) fn undo_redisson_rw(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let (&[resource], &[token, ..]) = (names, argv) else { return Err(BAD_ARGUMENTS) };
    let writer = writer(token);
    if has(calls, resource, &writer)? {
        let is_last = calls.hlen(resource)? <= 2;
        calls.hdel(resource, &[&writer])?;
        if is_last {
            calls.del(resource)?;
        } else {
            calls.hset(resource, &[(MODE, b"read")])?;
        }
        report(calls, resource, b"1");
        return Ok(Answer::Int(1));
    }
    if !has(calls, resource, token)? {
        return Ok(Answer::Int(0));
    }
    calls.del(&own_hold(resource, token))?;
    calls.hdel(resource, &[token])?;
    match last_hold(calls, resource)? {
        Left::For(left) => drop(calls.pexpire(resource, left)?),
        Left::AsItIs => {}
        Left::Nobody => {
            calls.del(resource)?;
            report(calls, resource, b"0");
        }
    }
    Ok(Answer::Int(1))
}

/// Removes inspected holders, and reports the release. Remaining holders of a writer's lock become
/// readers. Without holders there is no mode.
pub(super) fn force_unlock_redisson_rw(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let (name, seen) = resource_and_seen(names, argv)?;
    let (mut count, mut writes) = (0, false);
    for field in seen {
        let Some(removed) = caught(calls.hdel(name, &[field]))? else { return Ok(Answer::Int(0)) };
        count += removed;
        writes |= removed == 1 && field.ends_with(b":write");
    }
    if count > 0 {
        if calls.hexists(name, MODE)? {
            if calls.hlen(name)? == 1 {
                calls.del(name)?;
            } else if writes {
                calls.hset(name, &[(MODE, b"read")])?;
            }
        }
        report(calls, name, b"1");
    }
    Ok(Answer::Int(count))
}

/// Wakes all waiting readers, or one writer.
fn report(calls: &mut Calls<'_>, resource: &[u8], message: &[u8]) {
    calls.publish_if_allowed(beside(b"redisson_rwlock", resource), message);
}

/// The time for which the remaining holders have a lock.
enum Left {
    AsItIs,
    For(i64),
    Nobody,
}

fn last_hold(calls: &mut Calls<'_>, resource: &[u8]) -> Result<Left, Stop> {
    let mut most = -2;
    for [field, value] in calls.hgetall(resource)? {
        if field == MODE && value == b"write" {
            return Ok(Left::AsItIs);
        }
        let entries = lua_number(&value).unwrap_or(0.0) as i64;
        for entry in (entries.saturating_sub(63).max(1)..=entries).rev() {
            match calls.pttl(&hold(resource, &field, entry))? {
                -1 => return Ok(Left::AsItIs),
                left => most = left.max(most),
            }
        }
    }
    Ok(if most > 0 { Left::For(most) } else { Left::Nobody })
}

fn rehearse_undo(calls: &mut Calls<'_>, resource: &[u8], own: &[u8], ttl: i64) -> Result<(), Stop> {
    calls.hexists(resource, b"")?;
    calls.hlen(resource)?;
    calls.hgetall(resource)?;
    calls.del(own)?;
    calls.hdel(resource, &[b""])?;
    calls.pexpire(own, ttl)?;
    Ok(())
}

fn has(calls: &mut Calls<'_>, resource: &[u8], field: &[u8]) -> Result<bool, Stop> {
    match caught(calls.hexists(resource, field))? {
        Some(has) => Ok(has),
        None => Err(Stop::Answered(Answer::Int(0))),
    }
}

fn writer(token: &[u8]) -> Vec<u8> {
    [token, b":write"].concat()
}

/// Returns the key of a reader's only entry.
fn own_hold(resource: &[u8], token: &[u8]) -> Vec<u8> {
    hold(resource, token, 1)
}

fn hold(resource: &[u8], holder: &[u8], entry: i64) -> Vec<u8> {
    let entry = entry.to_string();
    let (before, after): (&[u8], &[u8]) = match resource.contains(&b'{') {
        true => (b"", b":"),
        false => (b"{", b"}:"),
    };
    [before, resource, after, holder, b":rwlock_timeout:", entry.as_bytes()].concat()
}

const MODE: &[u8] = b"mode";
