//! The scripts of python-redis-lock.

use super::lua::{Library, Section, assemble, sections};
use super::{EXCLUSIVE, RESTART_GUARD};

pub(super) const LUA: &[Section] = sections!("python.lua");
const LIBRARY: Library<'_> = &[LUA, EXCLUSIVE, RESTART_GUARD];

/// Acquires a lock of python-redis-lock.
pub const ACQUIRE_PYTHON: &str = assemble!(LIBRARY, "acquire_python");

/// Removes its holder and wakes a waiter.
pub const UNDO_PYTHON: &str = assemble!(LIBRARY, "undo_python");

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
