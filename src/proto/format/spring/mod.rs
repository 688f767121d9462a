//! The format of Spring Integration's lock registry, see spring.lua.

use crate::proto::format::Format;
use crate::proto::lock_kind::{Command, LockKind, PLAIN};
use crate::proto::profile::Profile;
use crate::proto::script::lua::{Library, Section, assemble, sections};
use crate::proto::script::{EXCLUSIVE, Role, Script};

pub(in crate::proto) const LUA: &[Section] = sections!("spring.lua");
const LIBRARY: Library<'_> = &[LUA, EXCLUSIVE];

/// Removes the holder of a lock of Spring and notifies waiters.
pub static UNDO_SPRING: Script = Script {
    digest: "1d42caa99544707bb380afc8b080bbd19fc75b51",
    number: 32,
    role: Role::Undo,
    ..assemble!(LIBRARY, "undo_spring")
};

/// All of them.
pub(crate) static SCRIPTS: &[&Script] = &[&UNDO_SPRING];

/// One resource.
const LOCK_KIND: LockKind =
    LockKind::foreign(Profile::Spring, [PLAIN.ask, PLAIN.extend, Command::Run(&UNDO_SPRING)]);

/// Locks of Spring's registries. A registry may publish nothing.
pub(in crate::proto) static SPRING: Format = Format {
    name: "spring",
    cannot_be: |name| {
        let colon = memchr::memchr(b':', name);
        colon
            .is_none_or(|at| at == 0)
            .then_some("have this name: it has to be the registry's key, a colon and the lock's")
    },
    channels: Some(|name| {
        let colons = memchr::memchr_iter(b':', name).take(COLONS);
        colons.map(|at| [&name[..at], b"-channel:", name].concat()).collect()
    }),
    ..Format::of(&LOCK_KIND)
};

/// How many colons of a name are taken for the end of a registry's key, as in `tell_spring` of spring.lua.
pub(crate) const COLONS: usize = 16;
