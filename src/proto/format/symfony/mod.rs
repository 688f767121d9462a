//! The format of Symfony's lock component. See symfony.lua.

use std::time::Duration;

use crate::proto::format::{Data, Format};
use crate::proto::key_state::{
    DataKind, Foreign, ForeignLock, Holder, KeyState, MOST_SHOWN, Sharers, holder_of, plural,
};
use crate::proto::lock_kind::{Command, LockKind};
use crate::proto::profile::Profile;
use crate::proto::script::definition::{
    Argument::{Nodes, Ttl},
    Grant, Role,
};
use crate::proto::script::force_unlock::FORCE_UNLOCK_LUA;
use crate::proto::script::lua::{Library, scripts, sections};
use crate::proto::script::own::{EXCLUSIVE, EXTEND_SHARED, RESTART_GUARD, SHARED, UNDO_SHARED};

const LIBRARY: Library<'_> =
    &[sections!("symfony.lua"), FORCE_UNLOCK_LUA, EXCLUSIVE, SHARED, RESTART_GUARD];

scripts! {
    LIBRARY;

    /// Acquires a lock of Symfony as one of its readers.
    ACQUIRE_SYMFONY_READ = 12, "a792f7ed0fdbda8a6053e6035dd95b93d5481112",
        Role::Ask(Grant::Ok), "acquire_symfony_read" { arguments: &[Ttl, Nodes] };

    /// Acquires a lock of Symfony as its writer.
    ACQUIRE_SYMFONY_WRITE = 13, "ff458bb66b69acd4fdbc8ba45db4ebc9a2661f32",
        Role::Ask(Grant::Ok), "acquire_symfony_write" { arguments: &[Ttl] };

    /// Extends the writer of a lock of Symfony.
    EXTEND_SYMFONY_WRITE = 22, "3a1488cc8d6e538109c8221030eb4a91159e85f9",
        Role::Extend, "extend_symfony_write" { arguments: &[Ttl] };

    /// Removes the writer of a lock of Symfony.
    UNDO_SYMFONY_WRITE = 33, "2fa62c34eef4e23863327c1997b1ef99dda1232b",
        Role::Undo, "undo_symfony_write";

    /// Removes holders of a lock of Symfony that an operator has seen.
    FORCE_UNLOCK_SYMFONY = 51, "b0a3687191d0bdb45e3abb6a07165aca999f4411",
        Role::ForceUnlock, "force_unlock_symfony";
}

static WRITE: LockKind = kind([
    Command::Run(&ACQUIRE_SYMFONY_WRITE),
    Command::Run(&EXTEND_SYMFONY_WRITE),
    Command::Run(&UNDO_SYMFONY_WRITE),
]);

/// A reader's lock on one resource. The key's TTL does not show that a writer has become a reader.
static READ: LockKind = kind([
    Command::Run(&ACQUIRE_SYMFONY_READ),
    Command::Run(&EXTEND_SHARED),
    Command::Run(&UNDO_SHARED),
])
.told_by_ask();

const fn kind(commands: [Command; 3]) -> LockKind {
    LockKind::foreign(Profile::of(&SYMFONY), commands).marked(MARK)
}

/// The locks of Symfony. A release notifies no waiter.
pub(crate) static SYMFONY: Format = Format {
    scripts: SCRIPTS,
    shared: Some(&READ),
    recognise: |_, data| recognise(data),
    mark: ALONE,
    force_unlock: &FORCE_UNLOCK_SYMFONY,
    ..Format::new("symfony", &WRITE)
};

/// Returns the state of a sorted set whose members all have names of this format, redbolt's or
/// other clients'.
fn recognise(data: &Data<'_>) -> Option<KeyState> {
    let &Data::SortedSet { count, members } = data else { return None };
    // The mark is a member of the set, but not a holder.
    let names = || members.iter().filter(|&&(_, name)| name != ALONE);
    let is_write = names().count() < members.len();
    let mut ours = names().map(holder).collect::<Option<Vec<_>>>();
    ours.iter_mut().for_each(|holders| holders.truncate(MOST_SHOWN));
    match ours {
        Some(holders) if is_write => holders.into_iter().next().map(KeyState::Held),
        Some(holders) if !holders.is_empty() => {
            Some(KeyState::Shared(Sharers::new(holders, count, None)))
        }
        // Any other member means that the set is an application's data.
        None if names().all(|member| is_member(member.1) || holder(member).is_some()) => {
            Some(lock(is_write, count.checked_sub(usize::from(is_write))?))
        }
        _ => None,
    }
}

fn holder(&(left, name): &(&str, &str)) -> Option<Holder> {
    let holder = holder_of(name.as_bytes().strip_prefix(MARK)?)?;
    let remaining = Some(Duration::from_millis(left.parse().ok()?));
    Some(Holder { remaining, ..holder })
}

fn lock(is_write: bool, holders: usize) -> KeyState {
    let words = match is_write {
        true => "held by Symfony".to_owned(),
        false => format!("held by {holders} reader{} of Symfony", plural(holders)),
    };
    let lock = ForeignLock {
        library: Some("Symfony"),
        is_write: Some(is_write),
        holders: Some(holders),
        ..ForeignLock::new("zset", words)
    };
    let data = Foreign::new(DataKind::Lock(lock), None);
    KeyState::Foreign(data.of_profiles(&[Profile::of(&SYMFONY)]))
}

/// Returns whether this is the name of a Symfony holder: 32 bytes in base64.
fn is_member(name: &str) -> bool {
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
    name.len() == 44 && name.strip_suffix('=').is_some_and(|it| it.bytes().all(is_base64))
}

const MARK: &[u8] = b"s:";

/// The member that a lock has in addition if its holder is a writer.
const ALONE: &str = "__write__";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symfony_set_names_its_holders() {
        let name = "bm90IGEgc2VjcmV0IGF0IGFsbCwgb25seSAzMiBieXQ=";
        let ours = "s:00112233445566778899aabbccddeeff00:web";
        let of = |count, text: &str| {
            let members: Option<Vec<_>> = text.lines().map(|line| line.split_once(' ')).collect();
            recognise(&Data::SortedSet { count, members: &members? })
        };
        let shown = |count, text: &str| match of(count, text) {
            Some(KeyState::Foreign(data)) => data.to_string(),
            other => format!("{other:?}"),
        };
        assert_eq!(shown(2, &format!("7 {name}\n7 __write__")), "held by Symfony");
        assert_eq!(shown(1, &format!("7 {name}")), "held by 1 reader of Symfony");
        assert_eq!(shown(2, &format!("7 {name}\n9 {ours}")), "held by 2 readers of Symfony");
        match of(2, &format!("7 __write__\n7 {ours}")) {
            Some(KeyState::Held(holder)) => assert_eq!(holder.label.as_deref(), Some("web")),
            other => panic!("{other:?}"),
        }
        match of(20, &format!("7 {ours}\n8 {}", &ours[..36])) {
            Some(KeyState::Shared(sharers)) => {
                let left = |ms| Some(Duration::from_millis(ms));
                assert_eq!((sharers.count, sharers.holders.len()), (20, 2));
                assert_eq!(sharers.holders.iter().map(|it| it.remaining).max(), Some(left(8)));
            }
            other => panic!("{other:?}"),
        }
        for other in ["", "7", "7 player-1", "7 s:player", "7 00112233445566778899aabbccddeeff00"] {
            assert_eq!(shown(1, other), "None", "{other}");
        }
        // A redbolt token whose label makes it as long as a Symfony name, and a node that
        // miscounts.
        assert_eq!(shown(1, "7 00112233445566778899aabbccddeeff00:abcdefgh="), "None");
        assert_eq!(shown(0, &format!("7 {name}\n7 __write__")), "None");
    }
}
