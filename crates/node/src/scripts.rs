//! Redbolt's scripts as Rust functions.
//!
//! A test runs each beside its Lua text on a real server. A script is called by the library with
//! well-formed arguments; for others the models reply with an error of their own wording.

use redbolt::proto::script::{ACQUIRE_MANY, EXTEND, UNDO};

use crate::{keys::Keys, reply::Reply, store::Script};

/// The scripts that every store knows from the start.
pub(crate) const SHIPPED: &[(&str, Script)] =
    &[(ACQUIRE_MANY, acquire_many), (EXTEND, extend), (UNDO, undo)];

/// Sets all keys if none exists; else the longest TTL in the way, −1 for a key without one.
fn acquire_many(keys: &mut Keys<'_>, names: &[&[u8]], argv: &[&[u8]], reply: &mut Reply<'_>) {
    let Some((token, ttl)) = token_and_ttl(argv) else { return reply.error(BAD_ARGUMENTS) };
    let mut longest = -2;
    for name in names {
        match keys.pttl(name) {
            -1 => return reply.int(-1),
            left => longest = longest.max(left),
        }
    }
    if longest >= 0 {
        return reply.int(longest);
    }
    names.iter().for_each(|name| keys.set_for(name, token, ttl));
    reply.status("OK");
}

/// Lets all keys live for at least the TTL, if all are ours; never shortens one.
fn extend(keys: &mut Keys<'_>, names: &[&[u8]], argv: &[&[u8]], reply: &mut Reply<'_>) {
    let Some((token, ttl)) = token_and_ttl(argv) else { return reply.error(BAD_ARGUMENTS) };
    if names.iter().any(|name| keys.value(name) != Some(token)) {
        return reply.int(0);
    }
    for name in names {
        if keys.pttl(name) < ttl {
            keys.expire_in(name, ttl);
        }
    }
    reply.int(1);
}

/// Deletes the keys that are ours, and counts them.
fn undo(keys: &mut Keys<'_>, names: &[&[u8]], argv: &[&[u8]], reply: &mut Reply<'_>) {
    let token = argv.first().copied();
    let is_ours = |keys: &mut Keys<'_>, name| token.is_some() && keys.value(name) == token;
    let deleted = names.iter().filter(|name| is_ours(keys, name) && keys.delete(name)).count();
    reply.int(deleted as i64);
}

fn token_and_ttl<'a>(argv: &[&'a [u8]]) -> Option<(&'a [u8], i64)> {
    let [token, ttl, ..] = argv else { return None };
    let ttl = std::str::from_utf8(ttl).ok()?.parse().ok()?;
    (ttl > 0).then_some((*token, ttl))
}

const BAD_ARGUMENTS: &[u8] =
    b"ERR this embedded node runs a lock script only with a token and a TTL";
