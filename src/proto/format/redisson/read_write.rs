//! The format of Redisson's read/write locks. See redisson_rw.lua.

use super::{LIBRARY_NAME, RW_CHANNEL, beside, is_beside, owner_of, several_holds};
use crate::proto::format::{Data, Format};
use crate::proto::key_state::{
    DataKind, Foreign, ForeignLock, KeyState, MOST_SHOWN, Sharers, holder_of, plural,
};
use crate::proto::lock_kind::{Command, LockKind};
use crate::proto::profile::Profile;
use crate::proto::script::definition::{
    Argument::{Nodes, Ttl},
    Grant, Role, Script,
};
use crate::proto::script::lua::{Library, scripts, sections};
use crate::proto::script::own::{EXCLUSIVE, RESTART_GUARD, SHARED};

const LIBRARY: Library<'_> = &[sections!("redisson_rw.lua"), EXCLUSIVE, SHARED, RESTART_GUARD];

scripts! {
    LIBRARY;

    /// Acquires a read/write lock of Redisson as a reader.
    ACQUIRE_REDISSON_READ = 8, "9058d83f8fdd2dae20223f5077177ea560574864",
        Role::Ask(Grant::Ok), "acquire_redisson_read" { arguments: &[Ttl, Nodes] };

    /// Acquires a read/write lock of Redisson as the writer.
    ACQUIRE_REDISSON_WRITE = 9, "b5fc7e00d78fd9990faab9a4a59ed8f9f003be8b",
        Role::Ask(Grant::Ok), "acquire_redisson_write" { arguments: &[Ttl] };

    /// Extends a reader or the writer.
    EXTEND_REDISSON_RW = 20, "281436ad395971538b1e536bd3db5f6e6312de20",
        Role::Extend, "extend_redisson_rw" { arguments: &[Ttl] };

    /// Removes a reader or the writer, and notifies waiters.
    UNDO_REDISSON_RW = 30, "f4c5772dfe7e873f952d82a216125dceff4fccd7",
        Role::Undo, "undo_redisson_rw";

    /// Removes holders that an operator has seen, and notifies waiters.
    FORCE_UNLOCK_REDISSON_RW = 49, "dec719e2db7feba5ba022539fb399c24626a563a",
        Role::ForceUnlock, "force_unlock_redisson_rw";
}

static WRITE: LockKind = kind(&ACQUIRE_REDISSON_WRITE);

/// A reader's lock on one resource. The key's TTL does not show that a writer has become a reader.
static READ: LockKind = kind(&ACQUIRE_REDISSON_READ).told_by_ask();

const fn kind(ask: &'static Script) -> LockKind {
    let [extend, undo] = [Command::Run(&EXTEND_REDISSON_RW), Command::Run(&UNDO_REDISSON_RW)];
    LockKind::foreign(Profile::of(&REDISSON_RW), [Command::Run(ask), extend, undo])
}

/// The read/write locks of Redisson. A writer that becomes a reader publishes nothing.
pub(crate) static REDISSON_RW: Format = Format {
    scripts: SCRIPTS,
    shared: Some(&READ),
    keeps: is_beside,
    channels: Some(|name| vec![beside(RW_CHANNEL, name)]),
    recognise: |_, data| recognise(data),
    mark: MODE,
    force_unlock: &FORCE_UNLOCK_REDISSON_RW,
    ..Format::new("redisson-rw", &WRITE)
};

/// Returns the state of a hash with a mode, whose holders are redbolt's or other clients'.
fn recognise(data: &Data<'_>) -> Option<KeyState> {
    let &Data::Hash(fields) = data else { return None };
    // The mode is what distinguishes this hash from an RLock.
    let &(mode, _) = fields.iter().find(|&&(_, field)| field == MODE)?;
    let names = || fields.iter().map(|&(_, field)| field).filter(|&field| field != MODE);
    let count = names().count();
    let writer = names().find_map(|name| holder_of(name.strip_suffix(WRITES)?.as_bytes()));
    let readers = names().map(|name| holder_of(name.as_bytes())).collect::<Option<Vec<_>>>();
    match (mode, writer, readers) {
        ("write", Some(writer), _) => Some(KeyState::Held(writer)),
        ("read", _, Some(mut readers)) if count > 0 => {
            readers.truncate(MOST_SHOWN);
            Some(KeyState::Shared(Sharers::new(readers, count, None)))
        }
        ("read" | "write", ..) => Some(lock(mode == "write", count, fields)),
        _ => None,
    }
}

fn lock(is_write: bool, holders: usize, fields: &[(&str, &str)]) -> KeyState {
    let theirs = |&(holds, field): &(&str, &str)| {
        let name = field.strip_suffix(WRITES).unwrap_or(field);
        Some((owner_of(name)?, holds.parse().ok()?))
    };
    let (owner, holds) = fields.iter().find_map(theirs).unzip();
    let holds = holds.unwrap_or_default();
    let mut words = match is_write {
        true => "held by a writer of Redisson".to_owned(),
        false => format!("held by {holders} reader{} of Redisson", plural(holders)),
    };
    if let Some(owner) = &owner {
        let among = if holders > 1 { ", among them" } else { "" };
        words += &format!("{among} {owner}{}", several_holds(holds));
    }
    let lock = ForeignLock {
        library: Some(LIBRARY_NAME),
        is_write: Some(is_write),
        holders: Some(holders),
        owner,
        holds: Some(holds),
        ..ForeignLock::new("hash", words)
    };
    let data = Foreign::new(DataKind::Lock(lock), None);
    KeyState::Foreign(data.of_profiles(&[Profile::of(&REDISSON_RW)]))
}

/// The field with the mode, `read` or `write`.
const MODE: &str = "mode";

const WRITES: &str = ":write";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::key_state::Holder;

    fn of_hash(text: &str) -> Option<KeyState> {
        let fields: Option<Vec<_>> = text.lines().map(|line| line.split_once(' ')).collect();
        recognise(&Data::Hash(&fields?))
    }

    #[test]
    fn readers_and_writers_of_redbolt_are_recognised() {
        let digits = "00112233445566778899aabbccddeeff00";
        let label = |holder: &Holder| holder.label.clone().unwrap_or_default();
        match of_hash(&format!("write mode\n1 {digits}:web:write")) {
            Some(KeyState::Held(holder)) => assert_eq!(label(&holder), "web"),
            other => panic!("{other:?}"),
        }
        match of_hash(&format!("read mode\n1 {digits}:web\n1 {digits}")) {
            Some(KeyState::Shared(sharers)) => {
                assert_eq!(sharers.holders.iter().map(label).collect::<Vec<_>>(), ["web", ""]);
            }
            other => panic!("{other:?}"),
        }
        let mixed = of_hash(&format!("read mode\n1 {digits}\n1 a:1"));
        assert!(matches!(mixed, Some(KeyState::Foreign(_))), "{mixed:?}");
        let KeyState::Foreign(empty) = of_hash("read mode").unwrap() else { panic!() };
        let DataKind::Lock(lock) = empty.kind else { panic!() };
        assert_eq!((lock.holders, lock.owner, lock.holds), (Some(0), None, Some(0)));
        assert_eq!(of_hash("fast mode\n1 a:1"), None);
        assert_eq!(of_hash("1 a\n2 b"), None);
    }

    #[test]
    fn a_hash_with_a_mode_names_its_holders() {
        const OWNER: &str = "1f0c2d3e-0011-2233-4455-66778899aabb:42";
        let shown = |text: &str| match of_hash(text) {
            Some(KeyState::Foreign(data)) => data.to_string(),
            other => panic!("{other:?}"),
        };
        assert_eq!(shown("read mode\n1 a:1\n1 b:2"), "held by 2 readers of Redisson");
        assert_eq!(shown("write mode\n1 a:1:write"), "held by a writer of Redisson");
        assert_eq!(
            shown(&format!("write mode\n2 {OWNER}:write")),
            "held by a writer of Redisson 1f0c…:42, 2 holds"
        );
        assert_eq!(
            shown(&format!("read mode\n1 {OWNER}\n1 b:2")),
            "held by 2 readers of Redisson, among them 1f0c…:42"
        );
    }
}
