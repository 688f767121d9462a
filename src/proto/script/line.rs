//! The scripts of the line of waiters that each node keeps for a resource.

use super::lua::{Library, assemble, sections};
use super::{
    Argument::{
        Counter, CounterTtl, FirstSlot, Grace, LeastKept, Nodes, Permits, Proposal, Stamp, Step,
        Ttl,
    },
    EXCLUSIVE, Grant, PERMITS, RESTART_GUARD, Role, SHARED, Script,
};
use crate::proto::fence;
use crate::proto::permits;

const LIBRARY: Library<'_> = &[sections!("line.lua"), EXCLUSIVE, SHARED, PERMITS, RESTART_GUARD];

/// Acquires a resource in its line of waiters.
pub static ACQUIRE_IN_LINE: Script = Script {
    digest: "bfccad8c3ce46120d353934e3f565fdcb77bcd1f",
    number: 1,
    role: Role::Ask(Grant::InLine),
    fenced_keys: &[fence::COUNTER_PREFIX],
    arguments: &[Ttl, Nodes, Stamp, Proposal, Grace],
    fenced_arguments: &[Counter, CounterTtl, LeastKept],
    ..assemble!(LIBRARY, "acquire_in_line")
};

/// Acquires a permit in the line of waiters.
pub static ACQUIRE_PERMIT_IN_LINE: Script = Script {
    digest: "7b1797c2a9e5bab3c6d26b7116b9c3bb103a1b24",
    number: 4,
    role: Role::Ask(Grant::SlotInLine),
    keys: &[permits::ENDS_PREFIX],
    fenced_keys: &[permits::COUNTERS_PREFIX],
    arguments: &[Ttl, Nodes, Stamp, Proposal, Grace, Permits, FirstSlot, Step],
    fenced_arguments: &[Counter, CounterTtl],
    ..assemble!(LIBRARY, "acquire_permit_in_line")
};

/// Removes a ticket from the line.
pub static LEAVE_LINE: Script = Script {
    digest: "33968331c10496bd749b9a73a3a36d0d057ab1a5",
    number: 24,
    role: Role::LeaveLine,
    ..assemble!(LIBRARY, "leave_line")
};

/// Lists the line of waiters for a resource.
pub static VIEW_LINE: Script = Script {
    digest: "94210a4db7fef5c7d872865633e9ee6267c69092",
    number: 44,
    role: Role::View,
    ..assemble!(LIBRARY, "view_line")
};

/// All of them.
pub(crate) static SCRIPTS: &[&Script] =
    &[&ACQUIRE_IN_LINE, &ACQUIRE_PERMIT_IN_LINE, &LEAVE_LINE, &VIEW_LINE];
