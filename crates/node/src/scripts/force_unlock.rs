//! The scripts of an operator who breaks a lock: what was seen is removed, and nothing that came behind it.

use sha1_smol::Sha1;

use super::common::BAD_ARGUMENTS;
use super::shared::{READER, WRITER};
use super::{mark, permits, shared};
use crate::calls::{Answer, Calls, Stop, caught};

/// Removes what was seen. A key that was marked, and has no holders left, is closed.
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

/// The resource, and what was seen there, of a script of another library's format.
pub(super) fn resource_and_seen<'a>(
    names: &[&'a [u8]],
    argv: &'a [&'a [u8]],
) -> Result<(&'a [u8], &'a [&'a [u8]]), Stop> {
    match (names, argv) {
        (&[name], [_, seen @ ..]) => Ok((name, seen)),
        _ => Err(BAD_ARGUMENTS),
    }
}

/// Removes a string that was seen, or its token from a set: a reader that shared it alone is a member by now, or a writer that
/// becomes a reader.
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

/// Removes members that were seen, and another one with them.
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

/// The longest mark.
const MARK: usize = 17;
