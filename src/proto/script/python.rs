//! The scripts of python-redis-lock.

use super::lua::{Library, Section, assemble, sections};
use super::{Argument::Ttl, EXCLUSIVE, Grant, RESTART_GUARD, Role, Script};

pub(super) const LUA: &[Section] = sections!("python.lua");
const LIBRARY: Library<'_> = &[LUA, EXCLUSIVE, RESTART_GUARD];

/// Acquires a lock of python-redis-lock.
pub static ACQUIRE_PYTHON: Script = Script {
    text: assemble!(LIBRARY, "acquire_python"),
    digest: "64773acc9dc28631e9988b5d6d28e93721b40c92",
    number: 5,
    role: Role::Ask(Grant::Ok),
    key_beside: Some(signal),
    arguments: &[Ttl],
    ..Script::named("acquire_python")
};

/// Removes its holder and wakes a waiter.
pub static UNDO_PYTHON: Script = Script {
    text: assemble!(LIBRARY, "undo_python"),
    digest: "ad3e2f8f759c6e5ca2df41b9998770991f78d4b1",
    number: 28,
    role: Role::Undo,
    key_beside: Some(signal),
    ..Script::named("undo_python")
};

/// All of them.
pub(crate) static SCRIPTS: &[&Script] = &[&ACQUIRE_PYTHON, &UNDO_PYTHON];

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
