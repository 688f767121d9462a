//! The format of Redisson's read/write locks, see redisson_rw.lua.

use super::{RW_CHANNEL, beside};
use crate::proto::format::Format;
use crate::proto::lock_kind::{Command, LockKind};
use crate::proto::profile::Profile;
use crate::proto::script::lua::{Library, assemble, sections};
use crate::proto::script::{
    Argument::{Nodes, Ttl},
    EXCLUSIVE, Grant, RESTART_GUARD, Role, SHARED, Script,
};

const LIBRARY: Library<'_> = &[sections!("redisson_rw.lua"), EXCLUSIVE, SHARED, RESTART_GUARD];

/// Acquires a read/write lock of Redisson as a reader.
pub static ACQUIRE_REDISSON_READ: Script = Script {
    digest: "9058d83f8fdd2dae20223f5077177ea560574864",
    number: 8,
    role: Role::Ask(Grant::Ok),
    arguments: &[Ttl, Nodes],
    ..assemble!(LIBRARY, "acquire_redisson_read")
};

/// Acquires a read/write lock of Redisson as the writer.
pub static ACQUIRE_REDISSON_WRITE: Script = Script {
    digest: "b5fc7e00d78fd9990faab9a4a59ed8f9f003be8b",
    number: 9,
    role: Role::Ask(Grant::Ok),
    arguments: &[Ttl],
    ..assemble!(LIBRARY, "acquire_redisson_write")
};

/// Extends a reader or the writer.
pub static EXTEND_REDISSON_RW: Script = Script {
    digest: "281436ad395971538b1e536bd3db5f6e6312de20",
    number: 20,
    role: Role::Extend,
    arguments: &[Ttl],
    ..assemble!(LIBRARY, "extend_redisson_rw")
};

/// Removes a reader or the writer, and notifies waiters.
pub static UNDO_REDISSON_RW: Script = Script {
    digest: "f4c5772dfe7e873f952d82a216125dceff4fccd7",
    number: 30,
    role: Role::Undo,
    ..assemble!(LIBRARY, "undo_redisson_rw")
};

/// All of them.
pub(crate) static SCRIPTS: &[&Script] =
    &[&ACQUIRE_REDISSON_READ, &ACQUIRE_REDISSON_WRITE, &EXTEND_REDISSON_RW, &UNDO_REDISSON_RW];

/// One resource, for its writer.
const WRITE: LockKind = kind(&ACQUIRE_REDISSON_WRITE);

/// One resource, for a reader. The key's TTL does not show that a writer has become a reader.
const READ: LockKind = kind(&ACQUIRE_REDISSON_READ).told_by_ask();

const fn kind(ask: &'static Script) -> LockKind {
    let [extend, undo] = [Command::Run(&EXTEND_REDISSON_RW), Command::Run(&UNDO_REDISSON_RW)];
    LockKind::foreign(Profile::RedissonRw, [Command::Run(ask), extend, undo])
}

/// Read/write locks of Redisson. A writer that becomes a reader publishes nothing.
pub(in crate::proto) static REDISSON_RW: Format = Format {
    name: "redisson-rw",
    shared: Some(&READ),
    channels: Some(|name| vec![beside(RW_CHANNEL, name)]),
    ..Format::of(&WRITE)
};
