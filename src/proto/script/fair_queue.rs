//! The scripts of the queue of waiters that each node keeps for a resource.

use super::definition::{
    Argument::{
        Counter, CounterTtl, FirstSlot, Grace, LeastKept, Nodes, Permits, Proposal, Stamp, Step,
        Ttl,
    },
    Grant, Role,
};
use super::lua::{Library, scripts, sections};
use super::own::{EXCLUSIVE, PERMITS, RESTART_GUARD, SHARED};
use crate::proto::{fence, permits};

const LIBRARY: Library<'_> =
    &[sections!("fair_queue.lua"), EXCLUSIVE, SHARED, PERMITS, RESTART_GUARD];

scripts! {
    LIBRARY;

    /// Acquires a resource through its queue of waiters.
    ACQUIRE_IN_QUEUE = 1, "bfccad8c3ce46120d353934e3f565fdcb77bcd1f",
        Role::Ask(Grant::InQueue), "acquire_in_queue"
        { fenced_keys: &[fence::COUNTER_PREFIX], arguments: &[Ttl, Nodes, Stamp, Proposal, Grace],
          fenced_arguments: &[Counter, CounterTtl, LeastKept] };

    /// Acquires a permit through the queue of waiters.
    ACQUIRE_PERMIT_IN_QUEUE = 4, "7b1797c2a9e5bab3c6d26b7116b9c3bb103a1b24",
        Role::Ask(Grant::SlotInQueue), "acquire_permit_in_queue"
        { keys: &[permits::ENDS_PREFIX], fenced_keys: &[permits::COUNTERS_PREFIX],
          arguments: &[Ttl, Nodes, Stamp, Proposal, Grace, Permits, FirstSlot, Step],
          fenced_arguments: &[Counter, CounterTtl] };

    /// Removes a ticket from the queue.
    LEAVE_QUEUE = 24, "33968331c10496bd749b9a73a3a36d0d057ab1a5", Role::LeaveQueue, "leave_queue";

    /// Lists the queue of waiters for a resource.
    VIEW_QUEUE = 44, "94210a4db7fef5c7d872865633e9ee6267c69092", Role::View, "view_queue";
}
