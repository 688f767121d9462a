//! The formats of Redisson, see redisson.lua; its read/write locks are in `read_write`.

pub(in crate::proto) mod read_write;

use crate::proto::format::Format;
use crate::proto::lock_kind::{Command, LockKind};
use crate::proto::profile::Profile;
use crate::proto::script::lua::{Library, Section, assemble, sections};
use crate::proto::script::{
    Argument::{Counter, Ttl},
    EXCLUSIVE, Grant, RESTART_GUARD, Role, Script,
};

pub(in crate::proto) const LUA: &[Section] = sections!("redisson.lua");
const LIBRARY: Library<'_> = &[LUA, EXCLUSIVE, RESTART_GUARD];

/// Acquires a lock of Redisson.
pub static ACQUIRE_REDISSON: Script = Script {
    digest: "e6ff21e274a73d069dbfd6c1515f0a404420d188",
    number: 6,
    role: Role::Ask(Grant::Ok),
    arguments: &[Ttl],
    ..assemble!(LIBRARY, "acquire_redisson")
};

/// Acquires a lock of Redisson with a fencing token.
pub static ACQUIRE_REDISSON_FENCED: Script = Script {
    digest: "8bb847045a428bf667d7055164b2a4fb319e42fb",
    number: 7,
    role: Role::Ask(Grant::Counter),
    key_beside: Some(counter),
    arguments: &[Ttl],
    ..assemble!(LIBRARY, "acquire_redisson_fenced")
};

/// Extends the holder of a lock of Redisson.
pub static EXTEND_REDISSON: Script = Script {
    digest: "d5143b9d0e8dbcb95a6ee6edd33fc91b098a225b",
    number: 19,
    role: Role::Extend,
    arguments: &[Ttl],
    ..assemble!(LIBRARY, "extend_redisson")
};

/// Removes the holder of a lock of Redisson and notifies waiters.
pub static UNDO_REDISSON: Script = Script {
    digest: "17cd1274828fed4c8a2a8683c4ec462479594d2d",
    number: 29,
    role: Role::Undo,
    ..assemble!(LIBRARY, "undo_redisson")
};

/// Raises the fencing counter of a lock of Redisson.
pub static WRITE_BACK_REDISSON: Script = Script {
    digest: "46406c9d7a02adabd1770d3df9de6d02ea175f08",
    number: 39,
    role: Role::WriteBack,
    key_beside: Some(counter),
    arguments: &[Counter],
    ..assemble!(LIBRARY, "write_back_redisson")
};

/// All of them.
pub(crate) static SCRIPTS: &[&Script] = &[
    &ACQUIRE_REDISSON,
    &ACQUIRE_REDISSON_FENCED,
    &EXTEND_REDISSON,
    &UNDO_REDISSON,
    &WRITE_BACK_REDISSON,
];

/// One resource.
const LOCK_KIND: LockKind = kind(&ACQUIRE_REDISSON);

/// One resource with a fencing token.
const FENCED: LockKind = kind(&ACQUIRE_REDISSON_FENCED);

const fn kind(ask: &'static Script) -> LockKind {
    let [extend, undo] = [Command::Run(&EXTEND_REDISSON), Command::Run(&UNDO_REDISSON)];
    LockKind::foreign(Profile::Redisson, [Command::Run(ask), extend, undo])
        .written_back_by(&WRITE_BACK_REDISSON)
}

/// Locks of Redisson. Its spin locks have this format but publish no release, and neither does a redbolt holder that may
/// not publish; their waiters ask later.
pub(in crate::proto) static REDISSON: Format = Format {
    name: "redisson",
    fenced: Some(&FENCED),
    channels: Some(|name| vec![beside(CHANNEL, name)]),
    tells_every_release: true,
    ..Format::of(&LOCK_KIND)
};

/// Whether a key is one that Redisson keeps with its locks: counters, latches, the queues of fair locks, and hold keys.
pub(super) fn is_beside(name: &[u8]) -> bool {
    let is_hold = memchr::memmem::rfind(name, HOLD).is_some_and(|at| {
        let entry = &name[at + HOLD.len()..];
        !entry.is_empty() && entry.iter().all(u8::is_ascii_digit)
    });
    let begins =
        |prefix: &&[u8]| name.strip_prefix(*prefix).is_some_and(|rest| rest.first() == Some(&b':'));
    is_hold || BESIDE.iter().any(begins)
}

/// The counter's key.
fn counter(name: &[u8]) -> Vec<u8> {
    beside(COUNTER, name)
}

/// The name of what Redisson keeps beside a lock: both have to be in one slot of a cluster.
pub(crate) fn beside(prefix: &[u8], name: &[u8]) -> Vec<u8> {
    match name.contains(&b'{') {
        true => [prefix, b":", name].concat(),
        false => [prefix, b":{", name, b"}"].concat(),
    }
}

/// How the names of the channels begin on which releases are told, of locks and of read/write locks.
pub(crate) const CHANNEL: &[u8] = b"redisson_lock__channel";
pub(crate) const RW_CHANNEL: &[u8] = b"redisson_rwlock";

/// How the name of a lock's counter begins.
pub(crate) const COUNTER: &[u8] = b"redisson_lock_token";

/// The prefixes of all keys that Redisson keeps with its locks, up to a colon.
pub(crate) const BESIDE: [&[u8]; 4] =
    [COUNTER, b"redisson_unlock_latch", b"redisson_lock_queue", b"redisson_lock_timeout"];

/// The part of the name of a reader's hold key that stands before the number of its entry.
pub(crate) const HOLD: &[u8] = b":rwlock_timeout:";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_braces_gets_no_others() {
        assert_eq!(beside(COUNTER, b"job"), b"redisson_lock_token:{job}");
        assert_eq!(beside(COUNTER, b"{a}:job"), b"redisson_lock_token:{a}:job");
    }
}
