//! The scripts of an operator who breaks a lock.

use super::lua::{Library, assemble};
use super::{EXCLUSIVE, FORCE_UNLOCK_LUA, PERMITS, Role, SHARED, Script};

const LIBRARY: Library<'_> = &[FORCE_UNLOCK_LUA, EXCLUSIVE, SHARED, PERMITS];

/// Removes the holders of a lock of redbolt that an operator has seen, or data that has not changed since.
pub static FORCE_UNLOCK: Script = Script {
    digest: "5782c5d5734befe5785849c3e2b117fb3200411f",
    number: 42,
    role: Role::ForceUnlock,
    ..assemble!(LIBRARY, "force_unlock")
};

/// Returns a digest of the data at a key.
pub static VIEW_DIGEST: Script = Script {
    digest: "cc8fa422ffdd9c78f9b2eb2ad5d187b63bebb03c",
    number: 43,
    role: Role::View,
    ..assemble!(LIBRARY, "view_digest")
};

/// All of them.
pub(crate) static SCRIPTS: &[&Script] = &[&FORCE_UNLOCK, &VIEW_DIGEST];
