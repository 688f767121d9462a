//! The format of locks whose value is a time: SETNX and redis-objects. See timed.lua.

use std::time::Duration;

use crate::proto::format::{Data, Format};
use crate::proto::key_state::{DataKind, Foreign, ForeignLock, KeyState, TOKEN_DIGITS, holder_of};
use crate::proto::lock_kind::{Command, LockKind};
use crate::proto::profile::Profile;
use crate::proto::script::definition::{Argument::Ttl, Grant, Role};
use crate::proto::script::lua::{Library, scripts, sections};
use crate::proto::script::own::{EXCLUSIVE, RESTART_GUARD};

const LIBRARY: Library<'_> = &[sections!("timed.lua"), EXCLUSIVE, RESTART_GUARD];

/// The prefix of the key that exists for a holder's lease.
const LEASE_PREFIX: &[u8] = b"redbolt:lease:";

scripts! {
    LIBRARY;

    /// Acquires a lock whose value is a time.
    ACQUIRE_TIMED = 14, "17c11a5f66044f67b0d5b8b9509234bbf1a18301",
        Role::Ask(Grant::Ok), "acquire_timed" { keys: &[LEASE_PREFIX], arguments: &[Ttl] };

    /// Extends the holder of a lock whose value is a time.
    EXTEND_TIMED = 23, "9dfbeb363fc9632ca469b24f714d8ad20dba9433", Role::Extend, "extend_timed"
        { keys: &[LEASE_PREFIX], arguments: &[Ttl] };

    /// Removes the holder of a lock whose value is a time.
    UNDO_TIMED = 34, "0f54cbea4f74a5747ea0d5bad59131ab8aefc8bd", Role::Undo, "undo_timed"
        { keys: &[LEASE_PREFIX] };

    /// Removes a value that an operator has seen, and the holder's lease.
    FORCE_UNLOCK_TIMED = 52, "17ab25109f992d60acfa6f54eacc7e4e6f967a76",
        Role::ForceUnlock, "force_unlock_timed";
}

static LOCK_KIND: LockKind = kind(&SETNX);

static OF_REDIS_OBJECTS: LockKind = kind(&REDIS_OBJECTS);

const fn kind(format: &'static Format) -> LockKind {
    let [extend, undo] = [Command::Run(&EXTEND_TIMED), Command::Run(&UNDO_TIMED)];
    let commands = [Command::Run(&ACQUIRE_TIMED), extend, undo];
    LockKind::foreign(Profile::of(format), commands).told_by_ask()
}

pub(crate) static SETNX: Format = Format { scripts: SCRIPTS, ..format("setnx", &LOCK_KIND) };

/// Locks of redis-objects, with the same scripts.
pub(crate) static REDIS_OBJECTS: Format = format("redis-objects", &OF_REDIS_OBJECTS);

const fn format(name: &'static str, kind: &'static LockKind) -> Format {
    Format {
        keeps: |name| name.starts_with(LEASE_PREFIX),
        recognise: |_, data| recognise(data),
        force_unlock: &FORCE_UNLOCK_TIMED,
        ..Format::new(name, kind)
    }
}

/// Returns the state for a time, or for a value of redis-objects without one. That is an empty
/// string, or `1`, which is too common to name a profile.
fn recognise(data: &Data<'_>) -> Option<KeyState> {
    let &Data::String(value) = data else { return None };
    let data = match value {
        b"" => Foreign::string(value, Some("redis-objects"), None)
            .of_profiles(&[Profile::of(&REDIS_OBJECTS)]),
        // Too common a value to name a library.
        b"1" => Foreign::string(value, None, None),
        _ => match token_behind_time(value).and_then(|token| holder_of(&token)) {
            Some(holder) => return Some(KeyState::Held(holder)),
            None => of_member(time(value)?),
        },
    };
    Some(KeyState::Foreign(data))
}

/// Returns the lock of another library that others may take over at this time since 1970.
fn of_member(ends: Duration) -> Foreign {
    let words = format!("held by SETNX or redis-objects until second {}", ends.as_secs());
    let lock = ForeignLock { ends: Some(ends), ..ForeignLock::new("string", words) };
    let data = Foreign::new(DataKind::Lock(lock), None);
    data.of_profiles(&[Profile::of(&SETNX), Profile::of(&REDIS_OBJECTS)])
}

/// Reads a time of this century, in seconds since 1970 with or without a fraction.
fn time(value: &[u8]) -> Option<Duration> {
    // `parse` alone would accept a sign or an exponent. The range excludes milliseconds.
    let is_plain = value.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
    let text = std::str::from_utf8(value).ok().filter(|_| is_plain && value.len() <= 20)?;
    let seconds = text.parse::<f64>().ok().filter(|seconds| (1e9..4.2e9).contains(seconds))?;
    Some(Duration::from_secs_f64(seconds))
}

/// Returns the digits of the token in the value of a redbolt lock, or `None` for other values.
#[must_use]
pub fn token_behind_time(value: &[u8]) -> Option<Vec<u8>> {
    let point = value.iter().position(|&byte| byte == b'.')?;
    let (time, digits) = (&value[..point], &value[point + 1..]);
    let is_number = |part: &[u8]| part.iter().all(u8::is_ascii_digit);
    if time.is_empty() || digits.len() != 2 * TOKEN_DIGITS || !is_number(time) {
        return None;
    }
    // Two decimal digits for each hexadecimal one, so that members can read the value as a number.
    let hex = |pair: &[u8]| {
        let number = std::str::from_utf8(pair).ok()?.parse().ok()?;
        char::from_digit(number, 16).map(|digit| digit as u8)
    };
    digits.chunks(2).map(hex).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_the_digits_of_its_token() {
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

    #[test]
    fn a_second_of_this_century_is_a_time() {
        let ms = |value: &str| time(value.as_bytes()).map(|ends| ends.as_millis());
        assert_eq!(
            (ms("1795327176"), ms("1795327176.75")),
            (Some(1_795_327_176_000), Some(1_795_327_176_750))
        );
        for value in ["", "1", "1795327176123", "1795327176-x", "1e9", "999999999", "1.7.9"] {
            assert_eq!(ms(value), None, "{value}");
        }
    }
}
