//! The scripts of an operator who breaks a lock.

use super::lua::{Library, assemble, sections};
use super::{PERMITS, Role, SHARED, Script};
use crate::proto::format::{python, redisson, spring};

const LIBRARY: Library<'_> =
    &[sections!("force_unlock.lua"), SHARED, PERMITS, redisson::LUA, spring::LUA, python::LUA];

/// Removes the holders that an operator has seen.
pub static FORCE_UNLOCK: Script = Script {
    digest: "0d584e67f11beb6c24388e94a878ce9f0afbb3be",
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
