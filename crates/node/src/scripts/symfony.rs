//! The scripts of Symfony's locks: a resource is a sorted set of its holders, with a mark if it is
//! exclusive.

use super::common::{BAD_ARGUMENTS, begin, number, token_and_ttl};
use super::force_unlock::{remove_members, resource_and_seen};
use super::shared::{self, TOKEN_DIGITS, look, rehearse_undo, share, twins};
use crate::calls::{Answer, Calls, Stop};
use crate::mutants::mutant;

/// Adds a reader, if the restart guard lets the node vote and there is no writer.
pub(super) fn acquire_symfony_read(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let nodes = number(argv.get(2))?;
    let (resource, token, ttl) = begin(calls, names, argv)?;
    let now = calls.time()?.millis();
    look(calls, resource)?;
    let (is_there, left) = deny_unless_symfony(calls, resource)?;
    if is_there {
        if calls.zscore(resource, ALONE)?.is_some_and(|end| end > now) {
            return Ok(Answer::Int(left));
        }
        let (mark, bare) = token.split_at(token.len().min(MARK.len()));
        for twin in twins(bare, nodes) {
            if calls.zscore(resource, &[mark, &twin].concat())?.is_some() {
                return Ok(Answer::Int(left));
            }
        }
    }
    rehearse_undo(calls, resource, now)?;
    share(calls, resource, token, now, ttl)?;
    Ok(Answer::Status("OK"))
}

/// Adds a writer, if the restart guard lets the node vote and there is no holder.
pub(super) fn acquire_symfony_write(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let (resource, token, ttl) = begin(calls, names, argv)?;
    let now = calls.time()?.millis();
    let (is_there, left) = deny_unless_symfony(calls, resource)?;
    if is_there {
        let last = calls.zrange(resource)?.and_then(|members| members.iter().next_back());
        if last.is_some_and(|(_, end)| end > now) {
            return Ok(Answer::Int(left));
        }
    }
    rehearse_undo(calls, resource, now)?;
    let end = now.saturating_add(ttl);
    calls.zadd(resource, end, token)?;
    calls.zadd(resource, end, ALONE)?;
    calls.pexpireat(resource, end)?;
    if mutant!(AloneUnmarked) {
        calls.zrem(resource, ALONE)?;
    }
    Ok(Answer::Status("OK"))
}

/// Extends a writer to at least this TTL. Never shortens anything.
pub(super) fn extend_symfony_write(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let (token, ttl) = token_and_ttl(argv)?;
    let &[resource] = names else { return Err(BAD_ARGUMENTS) };
    let Some((end, now)) = shared::read_mine(calls, resource, token)? else {
        return Ok(Answer::Int(0));
    };
    if calls.zscore(resource, ALONE)?.is_none() {
        return Ok(Answer::Int(0));
    }
    let later = now.saturating_add(ttl);
    if later > end {
        calls.pexpireat(resource, later)?;
        calls.zadd(resource, later, token)?;
        calls.zadd(resource, later, ALONE)?;
    }
    Ok(Answer::Int(1))
}

/// Removes a writer.
pub(super) fn undo_symfony_write(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let (&[resource], &[token, ..]) = (names, argv) else { return Err(BAD_ARGUMENTS) };
    Ok(Answer::Int(remove_members(calls, resource, &[token], Some(ALONE))?))
}

/// Removes inspected members, and the mark of a writer with them.
pub(super) fn force_unlock_symfony(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let (name, seen) = resource_and_seen(names, argv)?;
    Ok(Answer::Int(remove_members(calls, name, seen, Some(ALONE))?))
}

/// Returns whether there is a set of Symfony's members, and the TTL of the key. Any other data
/// denies for as long as it lives.
fn deny_unless_symfony(calls: &mut Calls<'_>, resource: &[u8]) -> Result<(bool, i64), Stop> {
    let (kind, left) = (calls.kind(resource)?, calls.pttl(resource)?);
    if kind == "none" {
        return Ok((false, left));
    }
    if kind == "zset" && left != -1 {
        let first = calls.zrange(resource)?.and_then(|members| members.iter().next());
        if first.is_some_and(|(name, _)| is_member(name)) {
            return Ok((true, left));
        }
    }
    Err(Stop::Answered(Answer::Int(left)))
}

/// Returns true if a member of Symfony's or of redbolt can have this name.
fn is_member(name: &[u8]) -> bool {
    let digits = name.strip_prefix(MARK).and_then(|token| token.get(..TOKEN_DIGITS));
    let is_ours = digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit));
    let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/".contains(byte);
    let base64 = name.strip_suffix(b"=").filter(|_| name.len() == NAME);
    name == ALONE || is_ours || base64.is_some_and(|name| name.iter().all(is_base64))
}

/// The member that marks an exclusive holder.
const ALONE: &[u8] = b"__write__";
/// The prefix of tokens of this library.
const MARK: &[u8] = b"s:";
/// The length of the names of Symfony's members.
const NAME: usize = 44;
