//! The scripts for an operator who breaks a lock.

use super::definition::Role;
use super::lua::{Library, Section, scripts, sections};
use super::own::{EXCLUSIVE, PERMITS, SHARED};

pub(in crate::proto) const FORCE_UNLOCK_LUA: &[Section] = sections!("force_unlock.lua");
const LIBRARY: Library<'_> = &[FORCE_UNLOCK_LUA, EXCLUSIVE, SHARED, PERMITS];

scripts! {
    LIBRARY;

    /// Removes holders of a redbolt lock that an operator has seen, or data that is unchanged
    /// since.
    FORCE_UNLOCK = 42, "5782c5d5734befe5785849c3e2b117fb3200411f",
        Role::ForceUnlock, "force_unlock";

    /// Returns a digest of the data at a key.
    VIEW_DIGEST = 43, "cc8fa422ffdd9c78f9b2eb2ad5d187b63bebb03c", Role::View, "view_digest";
}
