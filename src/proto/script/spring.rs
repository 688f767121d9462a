//! The scripts of Spring Integration's lock registry.

use super::lua::{Library, Section, assemble, sections};
use super::{EXCLUSIVE, Role, Script};

pub(super) const LUA: &[Section] = sections!("spring.lua");
const LIBRARY: Library<'_> = &[LUA, EXCLUSIVE];

/// Removes the holder of a lock of Spring and notifies waiters.
pub static UNDO_SPRING: Script = Script {
    text: assemble!(LIBRARY, "undo_spring"),
    digest: "1d42caa99544707bb380afc8b080bbd19fc75b51",
    number: 32,
    role: Role::Undo,
    ..Script::named("undo_spring")
};

/// All of them.
pub(crate) static SCRIPTS: &[&Script] = &[&UNDO_SPRING];

/// How many colons of a name are taken for the end of a registry's key, as in `tell_spring` of spring.lua.
pub(crate) const COLONS: usize = 16;
