//! The scripts of an operator who breaks a lock.

use super::lua::{Library, assemble, sections};
use super::{PERMITS, SHARED, python, redisson, spring};

const LIBRARY: Library<'_> =
    &[sections!("force_unlock.lua"), SHARED, PERMITS, redisson::LUA, spring::LUA, python::LUA];

/// Removes the holders that an operator has seen.
pub const FORCE_UNLOCK: &str = assemble!(LIBRARY, "force_unlock");

/// Returns a digest of the data at a key.
pub const VIEW_DIGEST: &str = assemble!(LIBRARY, "view_digest");
