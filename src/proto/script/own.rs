//! The scripts for redbolt's own format.

use super::definition::{
    Argument::{Counter, CounterTtl, FirstSlot, Keys, LeastKept, Nodes, Permits, Slot, Step, Ttl},
    Grant, Role,
};
use super::lua::{Library, Section, scripts, sections};
use crate::proto::{fence, permits};

pub(in crate::proto) const EXCLUSIVE: &[Section] = sections!("exclusive.lua");
pub(in crate::proto) const PERMITS: &[Section] = sections!("permits.lua");
pub(in crate::proto) const RESTART_GUARD: &[Section] = sections!("restart_guard.lua");
pub(in crate::proto) const SHARED: &[Section] = sections!("shared.lua");
const LIBRARY: Library<'_> = &[EXCLUSIVE, SHARED, PERMITS, RESTART_GUARD];

scripts! {
    LIBRARY;

    /// Acquires one or several resources, all or nothing.
    ACQUIRE_MANY = 2, "b275dfea5a3537917d4db4ed14faff83848fcf19",
        Role::Ask(Grant::Ok), "acquire_many" { arguments: &[Ttl, Keys] };

    /// Acquires one or several resources with a fencing token.
    ACQUIRE_FENCED = 0, "86f9f41e394bd24c8f64789c50a4680d023d088d",
        Role::Ask(Grant::ExclusiveCounter), "acquire_fenced"
        { keys: &[fence::COUNTER_PREFIX], arguments: &[Ttl, Keys, Counter, CounterTtl] };

    /// Acquires a resource as one of its readers.
    ACQUIRE_SHARED = 10, "d60c442090780729a37b71bcda63e44924b6fb6f",
        Role::Ask(Grant::Ok), "acquire_shared" { arguments: &[Ttl, Nodes] };

    /// Acquires a resource as one of its readers, with a fencing token.
    ACQUIRE_SHARED_FENCED = 11, "561d2d6eb5b80176f8a323453037adb7cc97a741",
        Role::Ask(Grant::SharedCounter), "acquire_shared_fenced"
        { keys: &[fence::COUNTER_PREFIX],
          arguments: &[Ttl, Counter, CounterTtl, LeastKept, Nodes] };

    /// Extends a reader.
    EXTEND_SHARED = 21, "30ce6f8e4fbb05993754507331a2fb5d418e7970", Role::Extend, "extend_shared"
        { arguments: &[Ttl] };

    /// Removes a reader.
    UNDO_SHARED = 31, "a63c6cebc539d91009a2f928753037f0d4583f89", Role::Undo, "undo_shared";

    /// Raises the fencing counter of a resource for one of its readers.
    WRITE_BACK_SHARED = 40, "ff8639589bd3476990681ad618349d59d8ae1e49",
        Role::WriteBack, "write_back_shared"
        { keys: &[fence::COUNTER_PREFIX], arguments: &[Counter, CounterTtl] };

    /// Acquires a permit, or moves it to another slot.
    ACQUIRE_PERMIT = 3, "3e6636714000a40ba7a5c1328892d126ccf6535e",
        Role::Ask(Grant::Slot), "acquire_permit"
        { keys: &[permits::ENDS_PREFIX], fenced_keys: &[permits::COUNTERS_PREFIX],
          arguments: &[Ttl, Nodes, Permits, FirstSlot, Step],
          fenced_arguments: &[Counter, CounterTtl] };

    /// Extends a permit.
    EXTEND_PERMIT = 18, "5c5490f0b43a290d715bb170a0d507e3e287e9e2", Role::Extend, "extend_permit"
        { keys: &[permits::ENDS_PREFIX], arguments: &[Ttl, Slot] };

    /// Removes a permit.
    UNDO_PERMIT = 27, "9781763056553befc0d7e533306cd8e8089e7e6c", Role::Undo, "undo_permit"
        { keys: &[permits::ENDS_PREFIX] };

    /// Raises the fencing counter of a permit's slot.
    WRITE_BACK_PERMIT = 38, "15e9935c8bdfdfdefe485a839cfd1a1d4c921df6",
        Role::WriteBack, "write_back_permit"
        { keys: &[permits::ENDS_PREFIX, permits::COUNTERS_PREFIX],
          arguments: &[Counter, CounterTtl, Slot] };

    /// Makes a reader the writer of a resource (upgrade).
    UPGRADE = 35, "d0fbdde662a7e5d180afa48b28587a0594b4efdb", Role::Ask(Grant::Ok), "upgrade"
        { arguments: &[Ttl], names_other_claim: true };

    /// Makes a reader the writer of a resource, with a fencing token.
    UPGRADE_FENCED = 36, "55e2de54f71d6755cea32c49c97c8c76a3ec1e24",
        Role::Ask(Grant::ExclusiveCounter), "upgrade_fenced"
        { keys: &[fence::COUNTER_PREFIX], arguments: &[Ttl, Counter, CounterTtl],
          names_other_claim: true };

    /// Makes the writer of a resource one of its readers (downgrade).
    DOWNGRADE = 15, "59f3730bdfac2c830ec13e79ec84449e2982396e", Role::Ask(Grant::Ok), "downgrade"
        { arguments: &[Ttl, Nodes], names_other_claim: true };

    /// Extends the writer's claim of a holder that has become a reader.
    EXTEND_DOWNGRADED = 17, "b2530b8577fce58830c6acbc555ed2507ca038f1",
        Role::Extend, "extend_downgraded" { arguments: &[Ttl] };

    /// Removes the writer's claim of a holder that has become a reader.
    UNDO_DOWNGRADED = 26, "6b99e81048cd256a3fdfdc6e58a65b461de86605",
        Role::Undo, "undo_downgraded";

    /// Raises fencing counters for the holder of their resources.
    WRITE_BACK = 37, "435b59118f749cc9a46164cdc6f76cb01f53ee50", Role::WriteBack, "write_back"
        { keys: &[fence::COUNTER_PREFIX], arguments: &[Keys, Counter, CounterTtl] };

    /// Writes the restart guard.
    ENROL = 41, "ff4632257fbf23cd919137183dfefa7775346c3d", Role::Enrol, "enrol";

    /// Extends the holder of one or several resources.
    EXTEND = 16, "07792a2d562f8e8b85444344f856ed0cab1c9863", Role::Extend, "extend"
        { arguments: &[Ttl] };

    /// Removes the holder of one or several resources.
    UNDO = 25, "16f873ccd6eb3ca706327d802bd0b80f1d2eca80", Role::Undo, "undo";

    /// Lists the readers of a resource.
    VIEW_SHARED = 46, "3e121c9bf6ecde90d0a9dc34788c792453a5e5d7", Role::View, "view_shared";

    /// Lists the holders of a semaphore.
    VIEW_PERMITS = 45, "2f0f770251ecdced32f7f165827615754f52aa92", Role::View, "view_permits";
}
