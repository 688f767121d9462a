//! The formats of Redisson. See redisson.lua; its read/write locks are in `read_write`.

pub(crate) mod read_write;

use crate::proto::format::plain::is_uuid;
use crate::proto::format::{Data, Format};
use crate::proto::key_state::{DataKind, Foreign, ForeignLock, KeyState, holder_of};
use crate::proto::lock_kind::{Command, LockKind};
use crate::proto::profile::Profile;
use crate::proto::script::definition::{
    Argument::{Counter, Ttl},
    Grant, Role, Script,
};
use crate::proto::script::lua::{Library, scripts, sections};
use crate::proto::script::own::{EXCLUSIVE, RESTART_GUARD};

const LIBRARY: Library<'_> = &[sections!("redisson.lua"), EXCLUSIVE, RESTART_GUARD];

scripts! {
    LIBRARY;

    /// Acquires a lock of Redisson.
    ACQUIRE_REDISSON = 6, "e6ff21e274a73d069dbfd6c1515f0a404420d188",
        Role::Ask(Grant::Ok), "acquire_redisson" { arguments: &[Ttl] };

    /// Acquires a lock of Redisson with a fencing token.
    ACQUIRE_REDISSON_FENCED = 7, "8bb847045a428bf667d7055164b2a4fb319e42fb",
        Role::Ask(Grant::Counter), "acquire_redisson_fenced"
        { key_beside: Some(counter), arguments: &[Ttl] };

    /// Extends the holder of a lock of Redisson.
    EXTEND_REDISSON = 19, "d5143b9d0e8dbcb95a6ee6edd33fc91b098a225b",
        Role::Extend, "extend_redisson" { arguments: &[Ttl] };

    /// Removes the holder of a lock of Redisson and notifies waiters.
    UNDO_REDISSON = 29, "17cd1274828fed4c8a2a8683c4ec462479594d2d", Role::Undo, "undo_redisson";

    /// Raises the fencing counter of a lock of Redisson.
    WRITE_BACK_REDISSON = 39, "46406c9d7a02adabd1770d3df9de6d02ea175f08",
        Role::WriteBack, "write_back_redisson" { key_beside: Some(counter), arguments: &[Counter] };

    /// Removes the holder of a lock of Redisson that an operator has seen, and notifies waiters.
    FORCE_UNLOCK_REDISSON = 48, "013c22a321fa5f3ab3b24feba794600b5c1a301d",
        Role::ForceUnlock, "force_unlock_redisson";
}

static LOCK_KIND: LockKind = kind(&ACQUIRE_REDISSON);

static FENCED: LockKind = kind(&ACQUIRE_REDISSON_FENCED);

const fn kind(ask: &'static Script) -> LockKind {
    let [extend, undo] = [Command::Run(&EXTEND_REDISSON), Command::Run(&UNDO_REDISSON)];
    LockKind::foreign(Profile::of(&REDISSON), [Command::Run(ask), extend, undo])
        .written_back_by(&WRITE_BACK_REDISSON)
}

/// The locks of Redisson. Its spin locks have this format but publish no release, and neither does
/// a redbolt holder that may not publish. Their waiters ask later.
pub(crate) static REDISSON: Format = Format {
    scripts: SCRIPTS,
    fenced: Some(&FENCED),
    keeps: is_beside,
    channels: Some(|name| vec![beside(CHANNEL, name)]),
    publishes_every_release: true,
    recognise: |_, data| recognise(data),
    force_unlock: &FORCE_UNLOCK_REDISSON,
    ..Format::new("redisson", &LOCK_KIND)
};

/// Returns the state of a hash with one holder and its number of entries.
fn recognise(data: &Data<'_>) -> Option<KeyState> {
    // A hash with more fields is not an RLock.
    let &Data::Hash(&[(holds, owner)]) = data else { return None };
    if let Some(holder) = holder_of(owner.as_bytes()) {
        return Some(KeyState::Held(holder));
    }
    let (owner, holds) = (owner_of(owner)?, holds.parse().ok()?);
    let words = format!("held by Redisson {owner}{}", several_holds(holds));
    let lock = ForeignLock {
        library: Some(LIBRARY_NAME),
        owner: Some(owner),
        holds: Some(holds),
        ..ForeignLock::new("hash", words)
    };
    let data = Foreign::new(DataKind::Lock(lock), None);
    Some(KeyState::Foreign(data.of_profiles(&[Profile::of(&REDISSON)])))
}

/// Returns a holder's name from its field, without most of it, which is a secret.
fn owner_of(field: &str) -> Option<String> {
    let (uuid, thread) = field.split_once(':').filter(|(uuid, _)| is_uuid(uuid.as_bytes()))?;
    // The whole name would let others release the lock.
    Some(format!("{}…:{}", uuid.get(..4)?, thread.parse::<u64>().ok()?))
}

fn several_holds(holds: u64) -> String {
    if holds == 1 { String::new() } else { format!(", {holds} holds") }
}

const LIBRARY_NAME: &str = "Redisson";

/// Returns whether Redisson keeps this key with its locks: counters, latches, the queues of fair
/// locks, and hold keys.
fn is_beside(name: &[u8]) -> bool {
    let is_hold = memchr::memmem::rfind(name, HOLD).is_some_and(|at| {
        let entry = &name[at + HOLD.len()..];
        !entry.is_empty() && entry.iter().all(u8::is_ascii_digit)
    });
    let begins =
        |prefix: &&[u8]| name.strip_prefix(*prefix).is_some_and(|rest| rest.first() == Some(&b':'));
    is_hold || BESIDE.iter().any(begins)
}

fn counter(name: &[u8]) -> Vec<u8> {
    beside(COUNTER, name)
}

/// Returns a name that Redisson derives from a lock's name. Braces keep both in one slot of a
/// cluster.
fn beside(prefix: &[u8], name: &[u8]) -> Vec<u8> {
    match name.contains(&b'{') {
        true => [prefix, b":", name].concat(),
        false => [prefix, b":{", name, b"}"].concat(),
    }
}

/// The prefixes of the channels on which releases are published, of locks and of read/write locks.
const CHANNEL: &[u8] = b"redisson_lock__channel";
const RW_CHANNEL: &[u8] = b"redisson_rwlock";

const COUNTER: &[u8] = b"redisson_lock_token";

/// The prefixes of all keys that Redisson keeps with its locks, up to a colon.
const BESIDE: [&[u8]; 4] =
    [COUNTER, b"redisson_unlock_latch", b"redisson_lock_queue", b"redisson_lock_timeout"];

/// The part of a reader's hold key that precedes the number of its entry.
const HOLD: &[u8] = b":rwlock_timeout:";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_braces_gets_no_more_braces() {
        assert_eq!(beside(COUNTER, b"job"), b"redisson_lock_token:{job}");
        assert_eq!(beside(COUNTER, b"{a}:job"), b"redisson_lock_token:{a}:job");
    }

    #[test]
    fn a_redisson_hash_names_its_holder() {
        const OWNER: &str = "1f0c2d3e-0011-2233-4455-66778899aabb:42";
        let of = |holds, owner| recognise(&Data::Hash(&[(holds, owner)]));
        let Some(KeyState::Foreign(data)) = of("2", OWNER) else { panic!() };
        assert_eq!(data.to_string(), "held by Redisson 1f0c…:42, 2 holds");
        assert!(!format!("{data:?}").contains(&OWNER[..8]));
        assert_eq!((of("x", OWNER), of("1", "a"), of("read", "mode")), (None, None, None));
        assert_eq!(recognise(&Data::Hash(&[])), None);
        let ours = of("1", "a0112233445566778899aabbccddeeff00:web-1:77");
        let Some(KeyState::Held(holder)) = ours else { panic!("{ours:?}") };
        assert_eq!(holder.label.as_deref(), Some("web-1:77"));
    }
}
