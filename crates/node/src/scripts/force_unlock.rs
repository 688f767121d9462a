//! The scripts of an operator who breaks a lock: the inspected holders are removed, and no later
//! ones.

use sha1_smol::Sha1;

use super::common::BAD_ARGUMENTS;
use super::shared::{READER, WRITER};
use super::{mark, permits, shared};
use crate::calls::{Answer, Calls, Stop, caught};

/// Removes the inspected holders. A marked key without holders left is closed.
pub(super) fn force_unlock(
    calls: &mut Calls<'_>,
    names: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Answer, Stop> {
    let (&[name, ref more @ ..], &[seen, ref words @ ..]) = (names, argv) else {
        return Err(BAD_ARGUMENTS);
    };
    let count = match seen {
        b"dump" => {
            let is_same = digest(calls, name)?.is_some_and(|digest| words == [digest.as_bytes()]);
            i64::from(is_same && calls.del(name)?)
        }
        b"string" => return remove_seen(calls, name, words).map(Answer::Int),
        b"zset" => remove_members(calls, name, words, None)?,
        b"hash" if caught(calls.hexists(name, permits::MARK))? == Some(true) => {
            let &[ends] = more else { return Err(BAD_ARGUMENTS) };
            permits::Pair { resource: name, ends }.remove(calls, words)?
        }
        _ => 0,
    };
    Ok(Answer::Int(count))
}

/// Returns the resource and the inspected values, for a script of another library's format.
pub(super) fn resource_and_seen<'a>(
    names: &[&'a [u8]],
    argv: &'a [&'a [u8]],
) -> Result<(&'a [u8], &'a [&'a [u8]]), Stop> {
    match (names, argv) {
        (&[name], [_, seen @ ..]) => Ok((name, seen)),
        _ => Err(BAD_ARGUMENTS),
    }
}

/// Removes an inspected string, or its token from a set: the only reader may have become a member
/// since then, or a writer a reader.
pub(super) fn remove_seen(
    calls: &mut Calls<'_>,
    name: &[u8],
    words: &[&[u8]],
) -> Result<i64, Stop> {
    let &[seen] = words else { return Err(BAD_ARGUMENTS) };
    if let Some(count) = remove_string(calls, name, seen)? {
        return Ok(count);
    }
    let reader = seen.strip_prefix(READER).filter(|token| !token.is_empty());
    let member = reader.map_or_else(|| [WRITER, seen].concat(), <[u8]>::to_vec);
    remove_members(calls, name, &[&member], None)
}

/// Replies with a digest of all data of a key except its TTL.
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

/// Removes a string if it is the inspected one, with or without a mark. Returns `None` if the key
/// has another type.
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

/// Removes inspected members, and `also` with them.
pub(super) fn remove_members(
    calls: &mut Calls<'_>,
    name: &[u8],
    members: &[&[u8]],
    also: Option<&[u8]>,
) -> Result<i64, Stop> {
    let mut count = 0;
    for member in members {
        let Some(was_there) = caught(calls.zrem(name, member))? else { return Ok(0) };
        count += i64::from(was_there);
    }
    if count > 0 {
        if let Some(also) = also {
            calls.zrem(name, also)?;
        }
        shared::live_as_long_as_the_last(calls, name)?;
    }
    Ok(count)
}

/// The length of the longest mark.
const MARK: usize = 17;
