//! The scripts of locks whose value is a time: a resource is a string, a second since 1970 and the digits of its holder.

use super::{BAD_ARGUMENTS, begin, lua_number, token_and_ttl};
use crate::calls::{Answer, Calls, Stop, caught};
use crate::mutants::mutant;

/// Sets the resource if the restart guard lets the node vote, and nothing is there but a time that is over.
pub(super) fn acquire_timed(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let (resource, token, ttl) = begin(calls, names, argv)?;
    let now = now_ms(calls)?;
    let ends = caught(calls.get(resource))?.flatten().and_then(second);
    let left = match (calls.pttl(resource)?, ends) {
        (-1, Some(ends)) => (ends * 1_000.0).ceil() as i64 - now,
        (-2, _) => 0,
        (left, _) => return Ok(Answer::Int(left)),
    };
    if mutant!(LoserOverwrites) && left > 0 {
        set_with_time(calls, resource, token, ttl, now)?;
    }
    if mutant!(NeverTakenOver) && calls.pttl(resource)? == -1 {
        return Ok(Answer::Int(-1));
    }
    if left > 0 {
        return Ok(Answer::Int(left));
    }
    calls.del(resource)?;
    set_with_time(calls, resource, token, ttl, now)?;
    Ok(Answer::Status("OK"))
}

/// Lets the holder have it for at least this TTL more. Never shortens anything.
pub(super) fn extend_timed(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let &[resource] = names else { return Err(BAD_ARGUMENTS) };
    let (token, ttl) = token_and_ttl(argv)?;
    if !is_own(calls, resource, token)? {
        return Ok(Answer::Int(0));
    }
    if calls.pttl(resource)? < ttl {
        let now = now_ms(calls)?;
        calls.pexpire(resource, ttl)?;
        if mutant!(SecondNotExtended) {
            return Ok(Answer::Int(1));
        }
        set_with_time(calls, resource, token, ttl, now)?;
    }
    Ok(Answer::Int(1))
}

/// Deletes it if it is the holder's.
pub(super) fn undo_timed(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let (&[resource], &[token, ..]) = (names, argv) else { return Err(BAD_ARGUMENTS) };
    if mutant!(SecondOfAnyHolder) {
        return Ok(Answer::Int(calls.del(resource)?.into()));
    }
    let is_own = is_own(calls, resource, token)?;
    Ok(Answer::Int((is_own && calls.del(resource)?).into()))
}

fn now_ms(calls: &Calls<'_>) -> Result<i64, Stop> {
    Ok((calls.time()?.micros() / 1_000).cast_signed())
}

fn set_with_time(
    calls: &mut Calls<'_>,
    name: &[u8],
    token: &[u8],
    ttl: i64,
    now: i64,
) -> Result<(), Stop> {
    let mut ends = (now + ttl + 999) / 1_000 + 1;
    if mutant!(SecondWithoutMargin) {
        ends -= 1;
    }
    let value = [ends.to_string().as_bytes(), b".", &own_digits(token)].concat();
    Ok(calls.set_for(name, &value, ttl)?)
}

fn is_own(calls: &mut Calls<'_>, name: &[u8], token: &[u8]) -> Result<bool, Stop> {
    let Some(value) = caught(calls.get(name))?.flatten() else { return Ok(false) };
    let is_number = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    let mut parts = value.splitn(2, |&byte| byte == b'.');
    let (Some(time), Some(digits)) = (parts.next(), parts.next()) else { return Ok(false) };
    Ok(is_number(time) && is_number(digits) && digits == own_digits(token))
}

/// Two decimal digits for each hexadecimal one among the first of the token.
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

/// The second of this century that a value is, with a fraction or without.
fn second(value: &[u8]) -> Option<f64> {
    let is_plain = value.first().is_some_and(u8::is_ascii_digit)
        && value.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.')
        && value.iter().filter(|&&byte| byte == b'.').count() <= 1;
    let number = lua_number(value).filter(|_| is_plain)?;
    (1e9..=4.2e9).contains(&number).then_some(number)
}
