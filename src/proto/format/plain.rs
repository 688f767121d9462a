//! redbolt's own format, which is a string, and other libraries whose locks are strings.
//!
//! Invariant: of a string of another library only the library's name is shown, and the owner if it
//! precedes the secret.

use crate::proto::fair_queue::CLOSED;
use crate::proto::key_state::{Foreign, KeyState, LONGEST, Sharers, holder_of, without_mark};
use crate::proto::profile::Profile;

/// The libraries of this format whose tokens are UUIDs.
macro_rules! uuid_libraries {
    () => {
        "pottery, RedLock.net, redis-semaphore, async-redis-lock, redlock-rb or aioredlock"
    };
}
pub(super) use uuid_libraries;

/// Returns the state of a string, by its first `VIEWED` bytes, and one more if it is longer.
pub(crate) fn recognise(value: &[u8]) -> KeyState {
    // It denies newcomers in favour of waiters, but has no holder.
    if value == CLOSED {
        return KeyState::Free;
    }
    if let Some(holder) = value.strip_prefix(READER).and_then(holder_of) {
        return KeyState::Shared(Sharers::new(vec![holder], 1, None));
    }
    let (value, _) = without_mark(value);
    holder_of(value).map_or_else(|| foreign(value), KeyState::Held)
}

/// The prefix of the token of a single reader, which is a string and not a set.
const READER: &[u8] = b"r:";

fn foreign(value: &[u8]) -> KeyState {
    let (library, owner) = of_string(value).filter(|_| value.len() <= LONGEST).unzip();
    let data = Foreign::string(value, library, owner.flatten());
    let profiles: &[_] = if library.is_some() { &[Profile::PLAIN] } else { &[] };
    KeyState::Foreign(data.of_profiles(profiles))
}

/// Returns the libraries that write strings of this form, and the owner if it is readable.
fn of_string(value: &[u8]) -> Option<(&'static str, Option<String>)> {
    let all = |of: fn(&u8) -> bool| value.iter().all(of);
    let library = match value.len() {
        16 if all(u8::is_ascii_alphanumeric) => "Laravel",
        20 if std::str::from_utf8(value).is_err() => "rslock or redlock (Rust)",
        22 if all(u8::is_ascii_alphanumeric) => "redlock-py or redislock (Go)",
        22 if all(is_base64_of_urls) => "redislock (Go)",
        24 if value.ends_with(b"==") && is_base64(value) => "redsync",
        32 if all(is_hex) => "redis-py, node-redlock or redlock-universal",
        36 if is_uuid(value) => uuid_libraries!(),
        _ => return of_owner(value),
    };
    Some((library, None))
}

/// Returns the library that writes its owner's name into the string, and that name.
fn of_owner(value: &[u8]) -> Option<(&'static str, Option<String>)> {
    let text = std::str::from_utf8(value).ok()?;
    let (library, owner) = match text.strip_prefix("ADDED:") {
        // `ADDED:TIME@HOST:SECRET`
        Some(rest) => {
            let host = rest.split_once('@').map_or("", |(_, host)| host);
            ("ShedLock", host.rsplit_once(':').map_or(host, |(host, _)| host))
        }
        // `MACHINE_PROCESS_SECRET`
        None => {
            let (owner, secret) = text.rsplit_once('_')?;
            let (_, process) = owner.rsplit_once('_')?;
            let is_guid = secret.len() == 32 && secret.bytes().all(|byte| is_hex(&byte));
            let is_process = !process.is_empty() && process.bytes().all(|it| it.is_ascii_digit());
            if !is_process || !is_guid && !is_uuid(secret.as_bytes()) {
                return None;
            }
            ("DistributedLock", owner)
        }
    };
    // The owner is shown on terminals.
    let is_shown = !owner.is_empty() && owner.bytes().all(|byte| byte.is_ascii_graphic());
    Some((library, is_shown.then(|| owner.to_owned())))
}

fn is_hex(byte: &u8) -> bool {
    byte.is_ascii_digit() || (b'a'..=b'f').contains(byte)
}

fn is_base64_of_urls(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_".contains(byte)
}

pub(super) fn is_base64(value: &[u8]) -> bool {
    value.iter().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(byte))
}

pub(super) fn is_uuid(value: &[u8]) -> bool {
    let is_in_place = |(at, byte): (usize, &u8)| match at {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    value.len() == 36 && value.iter().enumerate().all(is_in_place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_of_a_string_shows_its_library() {
        for (value, library) in [
            ("ADDED:2026-11-23T08:00:00Z@host:0b1c", "ShedLock"),
            ("web-1_4711_0123456789abcdef0123456789abcdef", "DistributedLock"),
            ("0123456789abcDEF", "Laravel"),
            ("0123456789abcdefghij-_", "redislock (Go)"),
            ("0123456789abcdef0123456789abcdef", "redis-py, "),
            ("0b1c2d3e-0011-2233-4455-66778899aabb", "pottery, "),
            ("MDEyMzQ1Njc4OWFiY2RlZg==", "redsync"),
            ("0123456789abcdefghijkl", "redlock-py"),
        ] {
            let found = of_string(value.as_bytes());
            let found = found.map(|(library, _)| library);
            assert!(found.is_some_and(|it| it.starts_with(library)), "{value}: {found:?}");
        }
        assert_eq!(of_string(&[0xff; 20]), Some(("rslock or redlock (Rust)", None)));
        for other in
            ["x", "4711", "{\"user\":1}", "0123456789ABCDEF0123456789ABCDEF", "a string of words"]
        {
            assert_eq!(of_string(other.as_bytes()), None, "{other}");
        }
    }

    /// The secret that follows the owner is not shown, because it can release the lock.
    #[test]
    fn an_owner_is_shown_if_it_precedes_the_secret() {
        let owner = |value: &str| of_string(value.as_bytes()).and_then(|(_, owner)| owner);
        assert_eq!(owner("ADDED:2026-11-23T08:00:00Z@web-1:0b1c").as_deref(), Some("web-1"));
        assert_eq!(owner("ADDED:2026-11-23T08:00:00Z@web-1").as_deref(), Some("web-1"));
        assert_eq!(of_string(b"ADDED:2026-11-23T08:00:00Z"), Some(("ShedLock", None)));
        let guid = "0b1c2d3e-0011-2233-4455-66778899aabb";
        assert_eq!(owner(&format!("my_host_4711_{guid}")).as_deref(), Some("my_host_4711"));
        for other in [format!("my_host_{guid}"), "a_1_b".to_owned()] {
            assert_eq!(of_string(other.as_bytes()), None, "{other:?}");
        }
    }
}
