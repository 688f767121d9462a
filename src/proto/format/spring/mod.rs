//! The format of Spring Integration's lock registry. See spring.lua.

use crate::proto::format::plain::{is_uuid, uuid_libraries};
use crate::proto::format::{Data, Format};
use crate::proto::key_state::{Foreign, KeyState, holder_of};
use crate::proto::lock_kind::{Command, LockKind, PLAIN};
use crate::proto::profile::Profile;
use crate::proto::script::definition::Role;
use crate::proto::script::force_unlock::FORCE_UNLOCK_LUA;
use crate::proto::script::lua::{Library, scripts, sections};
use crate::proto::script::own::{EXCLUSIVE, SHARED};

const LIBRARY: Library<'_> = &[sections!("spring.lua"), FORCE_UNLOCK_LUA, EXCLUSIVE, SHARED];

scripts! {
    LIBRARY;

    /// Removes the holder of a lock of Spring and notifies waiters.
    UNDO_SPRING = 32, "1d42caa99544707bb380afc8b080bbd19fc75b51", Role::Undo, "undo_spring";

    /// Removes a holder that an operator has seen and notifies waiters.
    FORCE_UNLOCK_SPRING = 50, "8b0fe2db956446bef288bf9311a29a719f9ba069",
        Role::ForceUnlock, "force_unlock_spring";
}

static LOCK_KIND: LockKind =
    LockKind::foreign(Profile::of(&SPRING), [PLAIN.ask, PLAIN.extend, Command::Run(&UNDO_SPRING)]);

/// The locks of Spring's registries. A registry may publish nothing.
pub(crate) static SPRING: Format = Format {
    scripts: SCRIPTS,
    cannot_be: |name| {
        (!is_lock(name))
            .then_some("have this name: it has to be the registry's key, a colon and the lock's")
    },
    channels: Some(|name| {
        // The key of a registry may contain colons, so its end is unknown: see spring.lua.
        let colons = memchr::memchr_iter(b':', name).take(COLONS);
        colons.map(|at| [&name[..at], b"-channel:", name].concat()).collect()
    }),
    recognise,
    force_unlock: &FORCE_UNLOCK_SPRING,
    ..Format::new("spring", &LOCK_KIND)
};

fn is_lock(name: &[u8]) -> bool {
    memchr::memchr(b':', name).is_some_and(|at| at > 0)
}

/// Returns the state for a token of redbolt at the name of a lock, or for a UUID, which other
/// libraries write too.
fn recognise(key: &[u8], data: &Data<'_>) -> Option<KeyState> {
    let &Data::String(value) = data else { return None };
    if is_lock(key)
        && let Some(holder) = holder_of(value)
    {
        return Some(KeyState::Held(holder));
    }
    // Other libraries use UUIDs as well, so the plain profile comes first.
    let libraries = concat!("Spring, ", uuid_libraries!());
    let data = is_uuid(value).then(|| Foreign::string(value, Some(libraries), None));
    Some(KeyState::Foreign(data?.of_profiles(&[Profile::PLAIN, Profile::of(&SPRING)])))
}

/// The maximum number of colons that are tried as the end of a registry's key, as in `tell_spring`
/// of spring.lua.
const COLONS: usize = 16;
