//! The scripts of Symfony's lock component.

use super::lua::{Library, assemble, sections};
use super::{EXCLUSIVE, RESTART_GUARD, SHARED};

const LIBRARY: Library<'_> = &[sections!("symfony.lua"), EXCLUSIVE, SHARED, RESTART_GUARD];

/// Acquires a lock of Symfony as one of its readers.
pub const ACQUIRE_SYMFONY_READ: &str = assemble!(LIBRARY, "acquire_symfony_read");

/// Acquires a lock of Symfony as its writer.
pub const ACQUIRE_SYMFONY_WRITE: &str = assemble!(LIBRARY, "acquire_symfony_write");

/// Extends the writer of a lock of Symfony.
pub const EXTEND_SYMFONY_WRITE: &str = assemble!(LIBRARY, "extend_symfony_write");

/// Removes the writer of a lock of Symfony.
pub const UNDO_SYMFONY_WRITE: &str = assemble!(LIBRARY, "undo_symfony_write");

/// What our holders' names begin with, and who has the lock alone beside.
pub(crate) const MARK: &[u8] = b"s:";
pub(crate) const ALONE: &str = "__write__";
