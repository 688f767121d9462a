//! The scripts of Redisson's locks.

use super::lua::{Library, Section, assemble, sections};
use super::{EXCLUSIVE, RESTART_GUARD};

pub(super) const LUA: &[Section] = sections!("redisson.lua");
const LIBRARY: Library<'_> = &[LUA, EXCLUSIVE, RESTART_GUARD];

/// Acquires a lock of Redisson.
pub const ACQUIRE_REDISSON: &str = assemble!(LIBRARY, "acquire_redisson");

/// Acquires a lock of Redisson with a fencing token.
pub const ACQUIRE_REDISSON_FENCED: &str = assemble!(LIBRARY, "acquire_redisson_fenced");

/// Extends the holder of a lock of Redisson.
pub const EXTEND_REDISSON: &str = assemble!(LIBRARY, "extend_redisson");

/// Removes the holder of a lock of Redisson and notifies waiters.
pub const UNDO_REDISSON: &str = assemble!(LIBRARY, "undo_redisson");

/// Raises the fencing counter of a lock of Redisson.
pub const WRITE_BACK_REDISSON: &str = assemble!(LIBRARY, "write_back_redisson");

/// The name of what Redisson keeps beside a lock: both have to be in one slot of a cluster.
pub(crate) fn beside(prefix: &[u8], name: &[u8]) -> Vec<u8> {
    match name.contains(&b'{') {
        true => [prefix, b":", name].concat(),
        false => [prefix, b":{", name, b"}"].concat(),
    }
}

/// How the names of the channels begin on which releases are told, of locks and of read/write locks.
pub(crate) const CHANNEL: &[u8] = b"redisson_lock__channel";
pub(crate) const RW_CHANNEL: &[u8] = b"redisson_rwlock";

/// How the name of a lock's counter begins.
pub(crate) const COUNTER: &[u8] = b"redisson_lock_token";

/// The prefixes of all keys that Redisson keeps with its locks, up to a colon.
pub(crate) const BESIDE: [&[u8]; 4] =
    [COUNTER, b"redisson_unlock_latch", b"redisson_lock_queue", b"redisson_lock_timeout"];

/// The part of the name of a reader's hold key that stands before the number of its entry.
pub(crate) const HOLD: &[u8] = b":rwlock_timeout:";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_braces_gets_no_others() {
        assert_eq!(beside(COUNTER, b"job"), b"redisson_lock_token:{job}");
        assert_eq!(beside(COUNTER, b"{a}:job"), b"redisson_lock_token:{a}:job");
    }
}
