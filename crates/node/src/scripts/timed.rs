//! The scripts of locks whose value is a time: a resource is a string, a second since 1970 and the
//! digits of its holder. A second key lasts as long as the holder's lease.

use super::common::{BAD_ARGUMENTS, check_restart_guard, lua_number, token_and_ttl};
use super::force_unlock::resource_and_seen;
use crate::calls::{Answer, Calls, Stop, caught};
use crate::mutants::mutant;

/// Sets the resource if the restart guard lets the node vote, and the key is free or its time has
/// passed.
pub(super) fn acquire_timed(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let (token, ttl) = token_and_ttl(argv)?;
    let &[resource, lease, ref restart_guard @ ..] = names else { return Err(BAD_ARGUMENTS) };
    check_restart_guard(calls, restart_guard.first())?;
    let now = now_ms(calls)?;
    let ends = caught(calls.get(resource))?.flatten().and_then(second);
    let left = match (calls.pttl(resource)?, ends) {
        (-1, Some(ends)) => (ends * 1_000.0).ceil() as i64 - now,
        (-2, _) => 0,
        (left, _) => return Ok(Answer::Int(left)),
    };
    let is_there = calls.pttl(resource)? != -2;
    let left = if is_there && left <= 0 { calls.pttl(lease)? } else { left };
    if mutant!(LoserOverwrites) && left > 0 {
        set_with_time(calls, (resource, lease), token, ttl, now)?;
    }
    if mutant!(NeverTakenOver) && calls.pttl(resource)? == -1 {
        return Ok(Answer::Int(-1));
    }
    if left > 0 {
        return Ok(Answer::Int(left));
    }
    calls.del(resource)?;
    calls.del(lease)?;
    set_with_time(calls, (resource, lease), token, ttl, now)?;
    Ok(Answer::Status("OK"))
}

/// Extends the holder's lock to at least this TTL. Never shortens anything.
pub(super) fn extend_timed(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let &[resource, lease] = names else { return Err(BAD_ARGUMENTS) };
    let (token, ttl) = token_and_ttl(argv)?;
    if !is_own(calls, resource, token)? {
        end_lease(calls, lease, token)?;
        return Ok(Answer::Int(0));
    }
    if calls.pttl(resource)? < ttl {
        let now = now_ms(calls)?;
        calls.pexpire(resource, ttl)?;
        if mutant!(SecondNotExtended) {
            return Ok(Answer::Int(1));
        }
        set_with_time(calls, (resource, lease), token, ttl, now)?;
    }
    Ok(Answer::Int(1))
}

/// Deletes the key if it is the holder's. Within the holder's lease that includes the time of a
/// member that has overwritten it.
pub(super) fn undo_timed(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let (&[resource, lease], &[token, ..]) = (names, argv) else { return Err(BAD_ARGUMENTS) };
    if mutant!(SecondOfAnyHolder) {
        return Ok(Answer::Int(calls.del(resource)?.into()));
    }
    let is_own = is_own(calls, resource, token)?;
    let has_lease = end_lease(calls, lease, token)?;
    if mutant!(LeaseNotLookedAt) && is_second_of_member(calls, resource)? {
        return Ok(Answer::Int(calls.del(resource)?.into()));
    }
    let is_of_member = has_lease && is_second_of_member(calls, resource)?;
    Ok(Answer::Int(((is_own || is_of_member) && calls.del(resource)?).into()))
}

/// Removes an inspected value, with the lease.
pub(super) fn force_unlock_timed(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let (name, seen) = resource_and_seen(names, argv)?;
    let &[seen] = seen else { return Err(BAD_ARGUMENTS) };
    let value = caught(calls.getrange(name, seen.len()))?;
    let is_seen = value.is_some_and(|value| value == seen);
    let was_there = is_seen && calls.del(name)?;
    if was_there {
        calls.del(&[LEASE, name].concat()).ok();
    }
    Ok(Answer::Int(was_there.into()))
}

/// Ends the holder's lease and returns true if it had lasted until now.
fn end_lease(calls: &mut Calls<'_>, lease: &[u8], token: &[u8]) -> Result<bool, Stop> {
    let value = caught(calls.get(lease))?.flatten();
    let has_lease = value.is_some_and(|value| value == own_digits(token));
    Ok(has_lease && calls.del(lease)?)
}

/// Returns true if a value without a TTL is a second, and shorter than redbolt's.
fn is_second_of_member(calls: &mut Calls<'_>, name: &[u8]) -> Result<bool, Stop> {
    let value = caught(calls.get(name))?.flatten();
    let is_second = value.is_some_and(|value| value.len() < 60 && second(value).is_some());
    Ok(is_second && calls.pttl(name)? == -1)
}

fn now_ms(calls: &Calls<'_>) -> Result<i64, Stop> {
    Ok((calls.time()?.micros() / 1_000).cast_signed())
}

fn set_with_time(
    calls: &mut Calls<'_>,
    (name, lease): (&[u8], &[u8]),
    token: &[u8],
    ttl: i64,
    now: i64,
) -> Result<(), Stop> {
    let mut ends = (now + ttl + 999) / 1_000 + 1;
    if mutant!(SecondWithoutMargin) {
        ends -= 1;
    }
    let value = [ends.to_string().as_bytes(), b".", &own_digits(token)].concat();
    calls.set_for(name, &value, ttl)?;
    Ok(calls.set_for(lease, &own_digits(token), ttl)?)
}

fn is_own(calls: &mut Calls<'_>, name: &[u8], token: &[u8]) -> Result<bool, Stop> {
    let Some(value) = caught(calls.get(name))?.flatten() else { return Ok(false) };
    let is_number = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    let mut parts = value.splitn(2, |&byte| byte == b'.');
    let (Some(time), Some(digits)) = (parts.next(), parts.next()) else { return Ok(false) };
    Ok(is_number(time) && is_number(digits) && digits == own_digits(token))
}

/// Returns two decimal digits for each hexadecimal one among the first of the token.
fn own_digits(token: &[u8]) -> Vec<u8> {
    let mut digits = Vec::new();
    for &byte in &token[..token.len().min(34)] {
        match char::from(byte).to_digit(16) {
            Some(digit) => digits.extend(format!("{digit:02}").into_bytes()),
            None => digits.push(byte),
        }
    }
    digits
}

/// Returns the second of this century that a value is, with a fraction or without.
fn second(value: &[u8]) -> Option<f64> {
    let is_plain = value.first().is_some_and(u8::is_ascii_digit)
        && value.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.')
        && value.iter().filter(|&&byte| byte == b'.').count() <= 1;
    let number = lua_number(value).filter(|_| is_plain)?;
    (1e9..=4.2e9).contains(&number).then_some(number)
}

/// The prefix of a lease's name.
const LEASE: &[u8] = b"redbolt:lease:";
