//! The scripts of Symfony's lock component.

use super::lua::{Library, assemble, sections};
use super::{
    Argument::{Nodes, Ttl},
    EXCLUSIVE, Grant, RESTART_GUARD, Role, SHARED, Script,
};

const LIBRARY: Library<'_> = &[sections!("symfony.lua"), EXCLUSIVE, SHARED, RESTART_GUARD];

/// Acquires a lock of Symfony as one of its readers.
pub static ACQUIRE_SYMFONY_READ: Script = Script {
    text: assemble!(LIBRARY, "acquire_symfony_read"),
    digest: "a792f7ed0fdbda8a6053e6035dd95b93d5481112",
    number: 12,
    role: Role::Ask(Grant::Ok),
    arguments: &[Ttl, Nodes],
    ..Script::named("acquire_symfony_read")
};

/// Acquires a lock of Symfony as its writer.
pub static ACQUIRE_SYMFONY_WRITE: Script = Script {
    text: assemble!(LIBRARY, "acquire_symfony_write"),
    digest: "ff458bb66b69acd4fdbc8ba45db4ebc9a2661f32",
    number: 13,
    role: Role::Ask(Grant::Ok),
    arguments: &[Ttl],
    ..Script::named("acquire_symfony_write")
};

/// Extends the writer of a lock of Symfony.
pub static EXTEND_SYMFONY_WRITE: Script = Script {
    text: assemble!(LIBRARY, "extend_symfony_write"),
    digest: "3a1488cc8d6e538109c8221030eb4a91159e85f9",
    number: 22,
    role: Role::Extend,
    arguments: &[Ttl],
    ..Script::named("extend_symfony_write")
};

/// Removes the writer of a lock of Symfony.
pub static UNDO_SYMFONY_WRITE: Script = Script {
    text: assemble!(LIBRARY, "undo_symfony_write"),
    digest: "2fa62c34eef4e23863327c1997b1ef99dda1232b",
    number: 33,
    role: Role::Undo,
    ..Script::named("undo_symfony_write")
};

/// All of them.
pub(crate) static SCRIPTS: &[&Script] =
    &[&ACQUIRE_SYMFONY_READ, &ACQUIRE_SYMFONY_WRITE, &EXTEND_SYMFONY_WRITE, &UNDO_SYMFONY_WRITE];

/// What our holders' names begin with, and who has the lock alone beside.
pub(crate) const MARK: &[u8] = b"s:";
pub(crate) const ALONE: &str = "__write__";
