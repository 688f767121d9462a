//! The scripts of the line of waiters that each node keeps for a resource.

use super::lua::{Library, assemble, sections};
use super::{EXCLUSIVE, PERMITS, RESTART_GUARD, SHARED};

const LIBRARY: Library<'_> = &[sections!("line.lua"), EXCLUSIVE, SHARED, PERMITS, RESTART_GUARD];

/// Acquires a resource in its line of waiters.
pub const ACQUIRE_IN_LINE: &str = assemble!(LIBRARY, "acquire_in_line");

/// Acquires a permit in the line of waiters.
pub const ACQUIRE_PERMIT_IN_LINE: &str = assemble!(LIBRARY, "acquire_permit_in_line");

/// Removes a ticket from the line.
pub const LEAVE_LINE: &str = assemble!(LIBRARY, "leave_line");

/// Lists the line of waiters for a resource.
pub const VIEW_LINE: &str = assemble!(LIBRARY, "view_line");
