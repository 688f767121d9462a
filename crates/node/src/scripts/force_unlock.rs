//! The scripts of an operator who breaks a lock: what was seen is removed, and nothing that came behind it.

use sha1_smol::Sha1;

use super::common::BAD_ARGUMENTS;
use super::shared::{READER, WRITER};
use super::{mark, permits, python, redisson, redisson_rw, shared, spring, symfony};
use crate::calls::{Answer, Calls, Stop, caught};

/// Removes what was seen, and notifies waiters. A key that was marked, and has no holders left, is closed.
pub(super) fn force_unlock(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let (&[name, ref more @ ..], &[seen, ref words @ ..]) = (names, argv) else {
        return Err(BAD_ARGUMENTS);
    };
    let (count, kind) = match seen {
        b"dump" => {
            let kind = calls.kind(name)?;
            let is_same = digest(calls, name)?.is_some_and(|digest| words == [digest.as_bytes()]);
            (i64::from(is_same && calls.del(name)?), kind)
        }
        b"string" => {
            let &[seen] = words else { return Err(BAD_ARGUMENTS) };
            match remove_string(calls, name, seen)? {
                Some(count) => (count, "string"),
                // A reader that shared it alone is a member of a set by now, or a writer that becomes a reader.
                None => {
                    let reader = seen.strip_prefix(READER).filter(|token| !token.is_empty());
                    let member = reader.map_or_else(|| [WRITER, seen].concat(), <[u8]>::to_vec);
                    (remove_members(calls, name, &[&member])?, "zset")
                }
            }
        }
        b"zset" => (remove_members(calls, name, words)?, "zset"),
        b"hash" => match caught(calls.hexists(name, permits::MARK))? {
            None => (0, "hash"),
            Some(true) => {
                let &[ends] = more else { return Err(BAD_ARGUMENTS) };
                (permits::Pair { resource: name, ends }.remove(calls, words)?, "hash")
            }
            Some(false) => (remove_holders_of_redisson(calls, name, words)?, "hash"),
        },
        _ => (0, "none"),
    };
    match kind {
        "hash" if count > 0 => {
            redisson::tell(calls, name);
            redisson_rw::tell(calls, name, b"1");
        }
        "string" if count > 0 => {
            calls.del(&[LEASE, name].concat()).ok();
            spring::tell(calls, name);
            python::tell_of(calls, name);
        }
        _ => {}
    }
    Ok(Answer::Int(count))
}

/// All of it but for the TTL, as a digest.
pub(super) fn view_digest(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    _: &[&[u8]],
) -> Result<Answer, Stop> {
    let &[name] = names else { return Err(BAD_ARGUMENTS) };
    Ok(Answer::Bulk(digest(calls, name)?.unwrap_or_default().into_bytes()))
}

fn digest(calls: &mut Calls<'_>, name: &[u8]) -> Result<Option<String>, Stop> {
    Ok(calls.dump(name)?.map(|dump| Sha1::from(dump).digest().to_string()))
}

/// A string that is what was seen, or that and a mark. Nothing if it is of another type.
fn remove_string(calls: &mut Calls<'_>, name: &[u8], seen: &[u8]) -> Result<Option<i64>, Stop> {
    let Some(value) = caught(calls.getrange(name, seen.len() + MARK))? else { return Ok(None) };
    let is_token = |token: &[u8]| shared::begins_with_digits(token);
    let is_marked = mark::marked(value).is_some_and(|(token, _)| token == seen && is_token(token));
    let is_seen = is_marked || value == seen;
    let count = i64::from(is_seen && calls.del(name)?);
    if is_marked {
        mark::close(calls, name)?;
    }
    Ok(Some(count))
}

fn remove_members(calls: &mut Calls<'_>, name: &[u8], members: &[&[u8]]) -> Result<i64, Stop> {
    let mut count = 0;
    for member in members {
        let Some(was_there) = caught(calls.zrem(name, member))? else { return Ok(0) };
        count += i64::from(was_there);
    }
    if count > 0 {
        calls.zrem(name, symfony::ALONE)?;
        shared::live_as_long_as_the_last(calls, name)?;
    }
    Ok(count)
}

/// Those who are left of a writer's lock read. Without holders there is no mode.
fn remove_holders_of_redisson(
    calls: &mut Calls<'_>,
    name: &[u8],
    fields: &[&[u8]],
) -> Result<i64, Stop> {
    let (mut count, mut writes) = (0, false);
    for field in fields {
        if calls.hdel(name, &[field])? == 1 {
            count += 1;
            writes |= field.ends_with(b":write");
        }
    }
    if count > 0 && calls.hexists(name, b"mode")? {
        if calls.hlen(name)? == 1 {
            calls.del(name)?;
        } else if writes {
            calls.hset(name, &[(b"mode", b"read")])?;
        }
    }
    Ok(count)
}

/// What the lease of a lock begins with whose value is a time.
const LEASE: &[u8] = b"redbolt:lease:";

/// The longest mark.
const MARK: usize = 17;
