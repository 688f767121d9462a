//! The format of locks whose value is a time, of SETNX and redis-objects, see timed.lua.

use crate::proto::format::Format;
use crate::proto::lock_kind::{Command, LockKind};
use crate::proto::profile::Profile;
use crate::proto::script::lua::{Library, assemble, sections};
use crate::proto::script::{Argument::Ttl, EXCLUSIVE, Grant, RESTART_GUARD, Role, Script};

const LIBRARY: Library<'_> = &[sections!("timed.lua"), EXCLUSIVE, RESTART_GUARD];

/// What the key begins with that lasts as long as a holder's lease.
pub(in crate::proto) const LEASE_PREFIX: &[u8] = b"redbolt:lease:";

/// Acquires a lock whose value is a time.
pub static ACQUIRE_TIMED: Script = Script {
    digest: "17c11a5f66044f67b0d5b8b9509234bbf1a18301",
    number: 14,
    role: Role::Ask(Grant::Ok),
    keys: &[LEASE_PREFIX],
    arguments: &[Ttl],
    ..assemble!(LIBRARY, "acquire_timed")
};

/// Extends the holder of a lock whose value is a time.
pub static EXTEND_TIMED: Script = Script {
    digest: "9dfbeb363fc9632ca469b24f714d8ad20dba9433",
    number: 23,
    role: Role::Extend,
    keys: &[LEASE_PREFIX],
    arguments: &[Ttl],
    ..assemble!(LIBRARY, "extend_timed")
};

/// Removes the holder of a lock whose value is a time.
pub static UNDO_TIMED: Script = Script {
    digest: "0f54cbea4f74a5747ea0d5bad59131ab8aefc8bd",
    number: 34,
    role: Role::Undo,
    keys: &[LEASE_PREFIX],
    ..assemble!(LIBRARY, "undo_timed")
};

/// All of them.
pub(crate) static SCRIPTS: &[&Script] = &[&ACQUIRE_TIMED, &EXTEND_TIMED, &UNDO_TIMED];

/// One resource.
const LOCK_KIND: LockKind = kind(Profile::Setnx);

/// One resource, as redis-objects locks it.
const OF_REDIS_OBJECTS: LockKind = kind(Profile::RedisObjects);

const fn kind(profile: Profile) -> LockKind {
    let [extend, undo] = [Command::Run(&EXTEND_TIMED), Command::Run(&UNDO_TIMED)];
    LockKind::foreign(profile, [Command::Run(&ACQUIRE_TIMED), extend, undo]).told_by_ask()
}

/// Locks of the SETNX recipe.
pub(in crate::proto) static SETNX: Format = Format { name: "setnx", ..Format::of(&LOCK_KIND) };

/// Locks of redis-objects.
pub(in crate::proto) static REDIS_OBJECTS: Format =
    Format { name: "redis-objects", ..Format::of(&OF_REDIS_OBJECTS) };

/// The first digits of the token whose lock has this value, if it is one of ours.
#[must_use]
pub fn token_behind_time(value: &[u8]) -> Option<Vec<u8>> {
    let point = value.iter().position(|&byte| byte == b'.')?;
    let (time, digits) = (&value[..point], &value[point + 1..]);
    let is_number = |part: &[u8]| part.iter().all(u8::is_ascii_digit);
    if time.is_empty() || digits.len() != 2 * TOKEN_DIGITS || !is_number(time) {
        return None;
    }
    let hex = |pair: &[u8]| {
        let number = std::str::from_utf8(pair).ok()?.parse().ok()?;
        char::from_digit(number, 16).map(|digit| digit as u8)
    };
    digits.chunks(2).map(hex).collect()
}

/// So many digits of a token are in a value.
const TOKEN_DIGITS: usize = 34;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_tells_the_digits_of_its_token() {
        let of = |value: &str| token_behind_time(value.as_bytes());
        let digits = "10111213141500010203040506070809".repeat(2) + "0003";
        let token = [&b"abcdef0123456789"[..], b"abcdef0123456789", b"03"].concat();
        assert_eq!(of(&format!("1795327176.{digits}")), Some(token));
        for value in ["1795327176.77", "1795327176", "", "."] {
            assert_eq!(of(value), None, "{value}");
        }
        assert_eq!(of(&format!(".{digits}")), None);
        assert_eq!(of(&format!("1795327176.16{}", &digits[2..])), None, "no digit");
    }
}
