//! The format of python-redis-lock, see python.lua.

use crate::proto::format::Format;
use crate::proto::lock_kind::{Command, LockKind, PLAIN};
use crate::proto::profile::Profile;
use crate::proto::script::lua::{Library, Section, assemble, sections};
use crate::proto::script::{Argument::Ttl, EXCLUSIVE, Grant, RESTART_GUARD, Role, Script};

pub(in crate::proto) const LUA: &[Section] = sections!("python.lua");
const LIBRARY: Library<'_> = &[LUA, EXCLUSIVE, RESTART_GUARD];

/// Acquires a lock of python-redis-lock.
pub static ACQUIRE_PYTHON: Script = Script {
    digest: "64773acc9dc28631e9988b5d6d28e93721b40c92",
    number: 5,
    role: Role::Ask(Grant::Ok),
    key_beside: Some(signal),
    arguments: &[Ttl],
    ..assemble!(LIBRARY, "acquire_python")
};

/// Removes its holder and wakes a waiter.
pub static UNDO_PYTHON: Script = Script {
    digest: "ad3e2f8f759c6e5ca2df41b9998770991f78d4b1",
    number: 28,
    role: Role::Undo,
    key_beside: Some(signal),
    ..assemble!(LIBRARY, "undo_python")
};

/// All of them.
pub(crate) static SCRIPTS: &[&Script] = &[&ACQUIRE_PYTHON, &UNDO_PYTHON];

/// One resource.
const LOCK_KIND: LockKind = LockKind::foreign(
    Profile::PythonRedisLock,
    [Command::Run(&ACQUIRE_PYTHON), PLAIN.extend, Command::Run(&UNDO_PYTHON)],
);

/// Locks of python-redis-lock.
pub(in crate::proto) static PYTHON_REDIS_LOCK: Format = Format {
    name: "python-redis-lock",
    cannot_be: |name| {
        let is_lock = name.len() > LOCK.len() && name.starts_with(LOCK);
        (!is_lock).then_some("have this name: it has to be `lock:` and the lock's")
    },
    ..Format::of(&LOCK_KIND)
};

/// Whether a key is the list of a lock's waiters.
pub(super) fn is_beside(name: &[u8]) -> bool {
    name.starts_with(SIGNAL)
}

/// The list on which those wait who want the lock of this name.
pub(crate) fn signal(name: &[u8]) -> Vec<u8> {
    [SIGNAL, name.strip_prefix(LOCK).unwrap_or(name)].concat()
}

/// How the names of locks begin, and those of their lists.
pub(crate) const LOCK: &[u8] = b"lock:";
pub(crate) const SIGNAL: &[u8] = b"lock-signal:";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_s_list_has_its_name() {
        assert_eq!(signal(b"lock:job"), b"lock-signal:job");
        assert_eq!(signal(b"lock:lock:job"), b"lock-signal:lock:job");
    }
}
