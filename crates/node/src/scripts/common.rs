//! Parts that scripts share: arguments, the restart guard, the node's clock, counters.

use std::str::{self, FromStr};

use redbolt::proto::{
    fence::{MAX_SKEW, MAX_TOKEN},
    restart_guard::Standing,
};

use crate::calls::{Answer, Calls, Stop, caught};

/// Checks that the restart guard, if one is given, lets the node vote.
pub(super) fn check_restart_guard(calls: &mut Calls<'_>, name: Option<&&[u8]>) -> Result<(), Stop> {
    let Some(name) = name else { return Ok(()) };
    match calls.pttl(name)? {
        left if Standing::of(left) == Standing::Votes => Ok(()),
        left => Err(Stop::Answered(Answer::StatusAnd("GUARD", left))),
    }
}

/// Checks that the proposal, in µs, is close to the node's clock.
pub(super) fn check_clock(proposal: u64, now: u64) -> Result<(), Stop> {
    match u128::from(proposal.abs_diff(now)) > MAX_SKEW.as_micros() {
        true => Err(Stop::Answered(Answer::StatusAnd("CLOCK", now.cast_signed()))),
        false => Ok(()),
    }
}

/// Returns a counter from which a token can be made.
pub(super) fn counter_to_raise(calls: &mut Calls<'_>, name: &[u8]) -> Result<f64, Stop> {
    counter(calls, name)?.filter(|&count| count < (MAX_TOKEN - 1) as f64).ok_or(BAD_COUNTER)
}

/// Raises a counter to at least the given value.
pub(super) fn raise(
    calls: &mut Calls<'_>,
    name: &[u8],
    least: Argument<'_>,
    life: i64,
) -> Result<(), Stop> {
    let count = counter(calls, name)?.filter(|&count| count <= MAX_TOKEN as f64);
    if count.ok_or(BAD_COUNTER)? < number::<u64>(least)? as f64 {
        calls.set_for(name, least.copied().unwrap_or_default(), life)?;
    }
    Ok(())
}

/// Raises a counter that has no TTL.
pub(super) fn raise_for_ever(
    calls: &mut Calls<'_>,
    name: &[u8],
    least: Argument<'_>,
) -> Result<(), Stop> {
    let count = counter(calls, name)?.filter(|&count| count <= MAX_TOKEN as f64);
    if count.ok_or(BAD_COUNTER)? < number::<u64>(least)? as f64 {
        calls.set(name, least.copied().unwrap_or_default())?;
    }
    Ok(())
}

/// Reads a counter like `tonumber`: a C string with blanks around a number, without hexadecimal
/// here.
pub(super) fn counter(calls: &mut Calls<'_>, name: &[u8]) -> Result<Option<f64>, Stop> {
    let Some(found) = caught(calls.get(name))? else { return Ok(None) };
    Ok(found.map_or(Some(0.0), lua_number))
}

/// Returns the number that `tonumber` reads.
pub(super) fn lua_number(value: &[u8]) -> Option<f64> {
    let text = value.split(|&byte| byte == 0).next().and_then(|text| str::from_utf8(text).ok());
    let blanks = [' ', '\t', '\n', '\x0b', '\x0c', '\r'];
    text.and_then(|text| text.trim_matches(blanks).parse().ok())
}

pub(super) type Argument<'a> = Option<&'a &'a [u8]>;

/// Returns the name, token and TTL of a request for one resource, if the restart guard behind the
/// name lets the node vote.
pub(super) fn begin<'a>(
    calls: &mut Calls<'_>,
    names: &[&'a [u8]],
    argv: &[&'a [u8]],
) -> Result<(&'a [u8], &'a [u8], i64), Stop> {
    let (token, ttl) = token_and_ttl(argv)?;
    let &[resource, ref restart_guard @ ..] = names else { return Err(BAD_ARGUMENTS) };
    check_restart_guard(calls, restart_guard.first())?;
    Ok((resource, token, ttl))
}

pub(super) fn token_and_ttl<'a>(argv: &[&'a [u8]]) -> Result<(&'a [u8], i64), Stop> {
    let [token, ttl, ..] = argv else { return Err(BAD_ARGUMENTS) };
    Ok((token, span(Some(ttl))?))
}

/// Reads the milliseconds for which a key can be set.
pub(super) fn span(arg: Argument<'_>) -> Result<i64, Stop> {
    number(arg).and_then(|ms| if ms > 0 { Ok(ms) } else { Err(BAD_ARGUMENTS) })
}

pub(super) fn number<T: FromStr>(arg: Argument<'_>) -> Result<T, Stop> {
    let text = arg.and_then(|arg| str::from_utf8(arg).ok());
    text.and_then(|text| text.parse().ok()).ok_or(BAD_ARGUMENTS)
}

pub(super) const BAD_ARGUMENTS: Stop = Stop::Answered(Answer::Error(
    "ERR this embedded node runs a lock script only with its arguments",
));
pub(super) const BAD_COUNTER: Stop =
    Stop::Answered(Answer::Error("ERR the fencing counter cannot be raised"));
