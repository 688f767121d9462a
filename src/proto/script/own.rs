//! The scripts of redbolt's own format.

use super::lua::{Library, assemble};
use super::{
    Argument::{Counter, CounterTtl, FirstSlot, Keys, LeastKept, Nodes, Permits, Slot, Step, Ttl},
    EXCLUSIVE, Grant, PERMITS, RESTART_GUARD, Role, SHARED, Script,
};
use crate::proto::{fence, permits};

const LIBRARY: Library<'_> = &[EXCLUSIVE, SHARED, PERMITS, RESTART_GUARD];

/// Acquires one resource or several, all or nothing.
pub static ACQUIRE_MANY: Script = Script {
    digest: "b275dfea5a3537917d4db4ed14faff83848fcf19",
    number: 2,
    role: Role::Ask(Grant::Ok),
    arguments: &[Ttl, Keys],
    ..assemble!(LIBRARY, "acquire_many")
};

/// Acquires one resource or several with a fencing token.
pub static ACQUIRE_FENCED: Script = Script {
    digest: "86f9f41e394bd24c8f64789c50a4680d023d088d",
    number: 0,
    role: Role::Ask(Grant::ExclusiveCounter),
    keys: &[fence::COUNTER_PREFIX],
    arguments: &[Ttl, Keys, Counter, CounterTtl],
    ..assemble!(LIBRARY, "acquire_fenced")
};

/// Acquires a resource as one of its readers.
pub static ACQUIRE_SHARED: Script = Script {
    digest: "d60c442090780729a37b71bcda63e44924b6fb6f",
    number: 10,
    role: Role::Ask(Grant::Ok),
    arguments: &[Ttl, Nodes],
    ..assemble!(LIBRARY, "acquire_shared")
};

/// Acquires a resource as one of its readers, with a fencing token.
pub static ACQUIRE_SHARED_FENCED: Script = Script {
    digest: "561d2d6eb5b80176f8a323453037adb7cc97a741",
    number: 11,
    role: Role::Ask(Grant::SharedCounter),
    keys: &[fence::COUNTER_PREFIX],
    arguments: &[Ttl, Counter, CounterTtl, LeastKept, Nodes],
    ..assemble!(LIBRARY, "acquire_shared_fenced")
};

/// Extends a reader.
pub static EXTEND_SHARED: Script = Script {
    digest: "30ce6f8e4fbb05993754507331a2fb5d418e7970",
    number: 21,
    role: Role::Extend,
    arguments: &[Ttl],
    ..assemble!(LIBRARY, "extend_shared")
};

/// Removes a reader.
pub static UNDO_SHARED: Script = Script {
    digest: "a63c6cebc539d91009a2f928753037f0d4583f89",
    number: 31,
    role: Role::Undo,
    ..assemble!(LIBRARY, "undo_shared")
};

/// Raises the fencing counter of a resource for one of its readers.
pub static WRITE_BACK_SHARED: Script = Script {
    digest: "ff8639589bd3476990681ad618349d59d8ae1e49",
    number: 40,
    role: Role::WriteBack,
    keys: &[fence::COUNTER_PREFIX],
    arguments: &[Counter, CounterTtl],
    ..assemble!(LIBRARY, "write_back_shared")
};

/// Acquires a permit, or moves it to another slot.
pub static ACQUIRE_PERMIT: Script = Script {
    digest: "3e6636714000a40ba7a5c1328892d126ccf6535e",
    number: 3,
    role: Role::Ask(Grant::Slot),
    keys: &[permits::ENDS_PREFIX],
    fenced_keys: &[permits::COUNTERS_PREFIX],
    arguments: &[Ttl, Nodes, Permits, FirstSlot, Step],
    fenced_arguments: &[Counter, CounterTtl],
    ..assemble!(LIBRARY, "acquire_permit")
};

/// Extends a permit.
pub static EXTEND_PERMIT: Script = Script {
    digest: "5c5490f0b43a290d715bb170a0d507e3e287e9e2",
    number: 18,
    role: Role::Extend,
    keys: &[permits::ENDS_PREFIX],
    arguments: &[Ttl, Slot],
    ..assemble!(LIBRARY, "extend_permit")
};

/// Removes a permit.
pub static UNDO_PERMIT: Script = Script {
    digest: "9781763056553befc0d7e533306cd8e8089e7e6c",
    number: 27,
    role: Role::Undo,
    keys: &[permits::ENDS_PREFIX],
    ..assemble!(LIBRARY, "undo_permit")
};

/// Raises the fencing counter of a permit's slot.
pub static WRITE_BACK_PERMIT: Script = Script {
    digest: "15e9935c8bdfdfdefe485a839cfd1a1d4c921df6",
    number: 38,
    role: Role::WriteBack,
    keys: &[permits::ENDS_PREFIX, permits::COUNTERS_PREFIX],
    arguments: &[Counter, CounterTtl, Slot],
    ..assemble!(LIBRARY, "write_back_permit")
};

/// Makes a reader the writer of a resource.
pub static UPGRADE: Script = Script {
    digest: "d0fbdde662a7e5d180afa48b28587a0594b4efdb",
    number: 35,
    role: Role::Ask(Grant::Ok),
    arguments: &[Ttl],
    names_other_claim: true,
    ..assemble!(LIBRARY, "upgrade")
};

/// Makes a reader the writer of a resource, with a fencing token.
pub static UPGRADE_FENCED: Script = Script {
    digest: "55e2de54f71d6755cea32c49c97c8c76a3ec1e24",
    number: 36,
    role: Role::Ask(Grant::ExclusiveCounter),
    keys: &[fence::COUNTER_PREFIX],
    arguments: &[Ttl, Counter, CounterTtl],
    names_other_claim: true,
    ..assemble!(LIBRARY, "upgrade_fenced")
};

/// Makes the writer of a resource one of its readers.
pub static DOWNGRADE: Script = Script {
    digest: "59f3730bdfac2c830ec13e79ec84449e2982396e",
    number: 15,
    role: Role::Ask(Grant::Ok),
    arguments: &[Ttl, Nodes],
    names_other_claim: true,
    ..assemble!(LIBRARY, "downgrade")
};

/// Extends the claim of a writer that has become a reader.
pub static EXTEND_DOWNGRADED: Script = Script {
    digest: "b2530b8577fce58830c6acbc555ed2507ca038f1",
    number: 17,
    role: Role::Extend,
    arguments: &[Ttl],
    ..assemble!(LIBRARY, "extend_downgraded")
};

/// Removes the claim of a writer that has become a reader.
pub static UNDO_DOWNGRADED: Script = Script {
    digest: "6b99e81048cd256a3fdfdc6e58a65b461de86605",
    number: 26,
    role: Role::Undo,
    ..assemble!(LIBRARY, "undo_downgraded")
};

/// Raises fencing counters for the holder of their resources.
pub static WRITE_BACK: Script = Script {
    digest: "435b59118f749cc9a46164cdc6f76cb01f53ee50",
    number: 37,
    role: Role::WriteBack,
    keys: &[fence::COUNTER_PREFIX],
    arguments: &[Keys, Counter, CounterTtl],
    ..assemble!(LIBRARY, "write_back")
};

/// Writes the restart guard.
pub static ENROL: Script = Script {
    digest: "ff4632257fbf23cd919137183dfefa7775346c3d",
    number: 41,
    role: Role::Enrol,
    ..assemble!(LIBRARY, "enrol")
};

/// Extends the holder of one resource or several.
pub static EXTEND: Script = Script {
    digest: "07792a2d562f8e8b85444344f856ed0cab1c9863",
    number: 16,
    role: Role::Extend,
    arguments: &[Ttl],
    ..assemble!(LIBRARY, "extend")
};

/// Removes the holder of one resource or several.
pub static UNDO: Script = Script {
    digest: "16f873ccd6eb3ca706327d802bd0b80f1d2eca80",
    number: 25,
    role: Role::Undo,
    ..assemble!(LIBRARY, "undo")
};

/// Lists the readers of a resource.
pub static VIEW_SHARED: Script = Script {
    digest: "3e121c9bf6ecde90d0a9dc34788c792453a5e5d7",
    number: 46,
    role: Role::View,
    ..assemble!(LIBRARY, "view_shared")
};

/// Lists the holders of a semaphore.
pub static VIEW_PERMITS: Script = Script {
    digest: "2f0f770251ecdced32f7f165827615754f52aa92",
    number: 45,
    role: Role::View,
    ..assemble!(LIBRARY, "view_permits")
};

/// All of them.
pub(crate) static SCRIPTS: &[&Script] = &[
    &ACQUIRE_MANY,
    &ACQUIRE_FENCED,
    &ACQUIRE_SHARED,
    &ACQUIRE_SHARED_FENCED,
    &EXTEND_SHARED,
    &UNDO_SHARED,
    &WRITE_BACK_SHARED,
    &ACQUIRE_PERMIT,
    &EXTEND_PERMIT,
    &UNDO_PERMIT,
    &WRITE_BACK_PERMIT,
    &UPGRADE,
    &UPGRADE_FENCED,
    &DOWNGRADE,
    &EXTEND_DOWNGRADED,
    &UNDO_DOWNGRADED,
    &WRITE_BACK,
    &ENROL,
    &EXTEND,
    &UNDO,
    &VIEW_SHARED,
    &VIEW_PERMITS,
];
