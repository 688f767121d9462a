//! The scripts of Redisson's read/write locks.

use super::lua::{Library, assemble, sections};
use super::{RESTART_GUARD, SHARED};

const LIBRARY: Library<'_> = &[sections!("redisson_rw.lua"), SHARED, RESTART_GUARD];

/// Acquires a read/write lock of Redisson as a reader.
pub const ACQUIRE_REDISSON_READ: &str = assemble!(LIBRARY, "acquire_redisson_read");

/// Acquires a read/write lock of Redisson as the writer.
pub const ACQUIRE_REDISSON_WRITE: &str = assemble!(LIBRARY, "acquire_redisson_write");

/// Extends a reader or the writer.
pub const EXTEND_REDISSON_RW: &str = assemble!(LIBRARY, "extend_redisson_rw");

/// Removes a reader or the writer, and notifies waiters.
pub const UNDO_REDISSON_RW: &str = assemble!(LIBRARY, "undo_redisson_rw");
