//! The format of Symfony's lock component, see symfony.lua.

use crate::proto::format::Format;
use crate::proto::lock_kind::{Command, LockKind};
use crate::proto::profile::Profile;
use crate::proto::script::lua::{Library, assemble, sections};
use crate::proto::script::{
    Argument::{Nodes, Ttl},
    EXCLUSIVE, EXTEND_SHARED, Grant, RESTART_GUARD, Role, SHARED, Script, UNDO_SHARED,
};

const LIBRARY: Library<'_> = &[sections!("symfony.lua"), EXCLUSIVE, SHARED, RESTART_GUARD];

/// Acquires a lock of Symfony as one of its readers.
pub static ACQUIRE_SYMFONY_READ: Script = Script {
    digest: "a792f7ed0fdbda8a6053e6035dd95b93d5481112",
    number: 12,
    role: Role::Ask(Grant::Ok),
    arguments: &[Ttl, Nodes],
    ..assemble!(LIBRARY, "acquire_symfony_read")
};

/// Acquires a lock of Symfony as its writer.
pub static ACQUIRE_SYMFONY_WRITE: Script = Script {
    digest: "ff458bb66b69acd4fdbc8ba45db4ebc9a2661f32",
    number: 13,
    role: Role::Ask(Grant::Ok),
    arguments: &[Ttl],
    ..assemble!(LIBRARY, "acquire_symfony_write")
};

/// Extends the writer of a lock of Symfony.
pub static EXTEND_SYMFONY_WRITE: Script = Script {
    digest: "3a1488cc8d6e538109c8221030eb4a91159e85f9",
    number: 22,
    role: Role::Extend,
    arguments: &[Ttl],
    ..assemble!(LIBRARY, "extend_symfony_write")
};

/// Removes the writer of a lock of Symfony.
pub static UNDO_SYMFONY_WRITE: Script = Script {
    digest: "2fa62c34eef4e23863327c1997b1ef99dda1232b",
    number: 33,
    role: Role::Undo,
    ..assemble!(LIBRARY, "undo_symfony_write")
};

/// All of them.
pub(crate) static SCRIPTS: &[&Script] =
    &[&ACQUIRE_SYMFONY_READ, &ACQUIRE_SYMFONY_WRITE, &EXTEND_SYMFONY_WRITE, &UNDO_SYMFONY_WRITE];

/// One resource, for its writer.
const WRITE: LockKind = kind([
    Command::Run(&ACQUIRE_SYMFONY_WRITE),
    Command::Run(&EXTEND_SYMFONY_WRITE),
    Command::Run(&UNDO_SYMFONY_WRITE),
]);

/// One resource, for a reader. The key's TTL does not show that a writer has become a reader.
const READ: LockKind = kind([
    Command::Run(&ACQUIRE_SYMFONY_READ),
    Command::Run(&EXTEND_SHARED),
    Command::Run(&UNDO_SHARED),
])
.told_by_ask();

const fn kind(commands: [Command; 3]) -> LockKind {
    LockKind::foreign(Profile::Symfony, commands).marked(MARK)
}

/// Locks of Symfony. A release notifies no waiter.
pub(in crate::proto) static SYMFONY: Format =
    Format { name: "symfony", shared: Some(&READ), ..Format::of(&WRITE) };

/// Whether this is the name of a member of Symfony's: 32 bytes in base64.
pub(crate) fn is_member(name: &str) -> bool {
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
    name.len() == 44 && name.strip_suffix('=').is_some_and(|it| it.bytes().all(is_base64))
}

/// What our holders' names begin with, and who has the lock alone beside.
pub(crate) const MARK: &[u8] = b"s:";
pub(crate) const ALONE: &str = "__write__";
