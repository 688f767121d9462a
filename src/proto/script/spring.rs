//! The scripts of Spring Integration's lock registry.

use super::EXCLUSIVE;
use super::lua::{Library, Section, assemble, sections};

pub(super) const LUA: &[Section] = sections!("spring.lua");
const LIBRARY: Library<'_> = &[LUA, EXCLUSIVE];

/// Removes the holder of a lock of Spring and notifies waiters.
pub const UNDO_SPRING: &str = assemble!(LIBRARY, "undo_spring");
