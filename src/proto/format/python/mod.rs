//! The format of python-redis-lock. See python.lua.

use crate::proto::format::plain::is_base64;
use crate::proto::format::{Data, Format};
use crate::proto::key_state::{Foreign, KeyState, holder_of};
use crate::proto::lock_kind::{Command, LockKind, PLAIN};
use crate::proto::profile::Profile;
use crate::proto::script::definition::{Argument::Ttl, Grant, Role};
use crate::proto::script::force_unlock::FORCE_UNLOCK_LUA;
use crate::proto::script::lua::{Library, scripts, sections};
use crate::proto::script::own::{EXCLUSIVE, RESTART_GUARD, SHARED};

const LIBRARY: Library<'_> =
    &[sections!("python.lua"), FORCE_UNLOCK_LUA, EXCLUSIVE, SHARED, RESTART_GUARD];

scripts! {
    LIBRARY;

    /// Acquires a lock of python-redis-lock.
    ACQUIRE_PYTHON = 5, "64773acc9dc28631e9988b5d6d28e93721b40c92",
        Role::Ask(Grant::Ok), "acquire_python" { key_beside: Some(signal), arguments: &[Ttl] };

    /// Removes its holder and wakes a waiter.
    UNDO_PYTHON = 28, "ad3e2f8f759c6e5ca2df41b9998770991f78d4b1", Role::Undo, "undo_python"
        { key_beside: Some(signal) };

    /// Removes a holder that an operator has seen and wakes a waiter.
    FORCE_UNLOCK_PYTHON = 47, "1e33a4a4fac7e7ccaa067560499d59f7e04bee9e",
        Role::ForceUnlock, "force_unlock_python";
}

static LOCK_KIND: LockKind = LockKind::foreign(
    Profile::of(&PYTHON_REDIS_LOCK),
    [Command::Run(&ACQUIRE_PYTHON), PLAIN.extend, Command::Run(&UNDO_PYTHON)],
);

pub(crate) static PYTHON_REDIS_LOCK: Format = Format {
    scripts: SCRIPTS,
    cannot_be: |name| {
        (!is_lock(name)).then_some("have this name: it has to be `lock:` and the lock's")
    },
    keeps: |name| name.starts_with(SIGNAL),
    recognise,
    force_unlock: &FORCE_UNLOCK_PYTHON,
    ..Format::new(NAME, &LOCK_KIND)
};

fn is_lock(name: &[u8]) -> bool {
    name.len() > LOCK.len() && name.starts_with(LOCK)
}

/// Returns the state for a token of python-redis-lock (18 bytes in base64), or for one of redbolt
/// at the name of a lock.
fn recognise(key: &[u8], data: &Data<'_>) -> Option<KeyState> {
    let &Data::String(value) = data else { return None };
    // A lock of redbolt at another name belongs to another profile.
    if is_lock(key)
        && let Some(holder) = holder_of(value)
    {
        return Some(KeyState::Held(holder));
    }
    // A token of 16 bytes, as redsync's, ends with `==`.
    let is_token = value.len() == 24 && is_base64(value) && !value.ends_with(b"==");
    let data = is_token.then(|| Foreign::string(value, Some(NAME), None));
    Some(KeyState::Foreign(data?.of_profiles(&[Profile::of(&PYTHON_REDIS_LOCK)])))
}

const NAME: &str = "python-redis-lock";

/// Returns the list on which waiters for the lock of this name block.
fn signal(name: &[u8]) -> Vec<u8> {
    [SIGNAL, name.strip_prefix(LOCK).unwrap_or(name)].concat()
}

/// The prefix of the names of locks, and that of their lists.
const LOCK: &[u8] = b"lock:";
const SIGNAL: &[u8] = b"lock-signal:";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_a_lock_has_its_name() {
        assert_eq!(signal(b"lock:job"), b"lock-signal:job");
        assert_eq!(signal(b"lock:lock:job"), b"lock-signal:lock:job");
    }

    #[test]
    fn a_token_in_base64_is_of_python_redis_lock() {
        let of = |value: &[u8]| recognise(b"lock:job", &Data::String(value));
        let Some(KeyState::Foreign(data)) = of(b"MDEyMzQ1Njc4OWFiY2RlZmdo") else { panic!() };
        assert!(
            data.is_of(Profile::PYTHON_REDIS_LOCK) && data.to_string().contains(NAME),
            "{data}"
        );
        assert_eq!(of(b"MDEyMzQ1Njc4OWFiY2RlZg=="), None, "of redsync");
        assert!(matches!(of(b"00112233445566778899aabbccddeeff00"), Some(KeyState::Held(_))));
        assert_eq!(recognise(b"job", &Data::String(b"00112233445566778899aabbccddeeff00")), None);
    }
}
