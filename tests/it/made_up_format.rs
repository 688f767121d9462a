//! A made-up format, which shows what it takes to add another library's format outside this crate.
//!
//! The format is the module `format`. A format that ships with redbolt is a folder with such a
//! module, a constant of `Profile`, two lines in `src/proto/format/mod.rs`, and its scripts in the
//! embedded node.

use redbolt::inspect::UnlockScope;
use redbolt::inspect::{InspectionVerdict, Owner};
use redbolt::{Profile, RequestError};
use redbolt_test_servers::Reply;

use crate::support::{
    client, client_of, eventually, exists, held_on, long, patient, patiently, refusal, server,
};

/// A format whose lock is a string at `NAME`, which begins with `made-up/`. The value is `m:` and a
/// token, or `member:` and a number. A release is published on `NAME/free`.
mod format {
    use redbolt::Profile;
    use redbolt::proto::format::{
        Command, Data, DataKind, Foreign, ForeignLock, Format, KeyState, LockKind, holder_of,
    };
    use redbolt::proto::script::{EXTEND, Role, Script};

    pub(super) const MADE_UP: Profile = Profile::of(&FORMAT);

    static FORMAT: Format = {
        let mut format = Format::new("made-up", &KIND);
        format.scripts = &[&UNDO, &FORCE_UNLOCK];
        format.cannot_be = |name| {
            (!name.starts_with(b"made-up/")).then_some("have this name: it begins with `made-up/`")
        };
        format.keeps = |name| name.ends_with(b"/free");
        format.channels = Some(|name| vec![[name, b"/free"].concat()]);
        format.recognise = |_, data| recognise(data);
        format.force_unlock = &FORCE_UNLOCK;
        format
    };

    static KIND: LockKind = LockKind::foreign(
        Profile::of(&FORMAT),
        [Command::SetIfAbsent, Command::Run(&EXTEND), Command::Run(&UNDO)],
    )
    .marked(b"m:");

    static UNDO: Script = script("undo_made_up", 62, Role::Undo, b"if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end redis.call('DEL', KEYS[1]) redis.call('PUBLISH', KEYS[1] .. '/free', '') return 1", "69703031e5df5ce809de9e7f734d17023d9da07a");

    static FORCE_UNLOCK: Script = script("force_unlock_made_up", 63, Role::ForceUnlock, b"if redis.call('GET', KEYS[1]) ~= ARGV[2] then return 0 end redis.call('DEL', KEYS[1]) redis.call('PUBLISH', KEYS[1] .. '/free', '') return 1", "10b2e90396b2f7db6692a0b63d80f280fd96d0ac");

    const fn script(
        name: &'static str,
        number: u8,
        role: Role,
        text: &'static [u8],
        digest: &'static str,
    ) -> Script {
        let mut script = Script::with_text(name, text);
        (script.number, script.role, script.digest) = (number, role, digest);
        script
    }

    fn recognise(data: &Data<'_>) -> Option<KeyState> {
        let Data::String(value) = data else { return None };
        if let Some(token) = value.strip_prefix(b"m:") {
            return holder_of(token).map(KeyState::Held);
        }
        let member = std::str::from_utf8(value.strip_prefix(b"member:")?).ok()?;
        let lock = ForeignLock::new("string", format!("held by member {member}"));
        let data = Foreign::new(DataKind::Lock(lock), None);
        Some(KeyState::Foreign(data.of_profiles(&[MADE_UP])))
    }
}

use format::MADE_UP;

const NAME: &str = "made-up/job";

#[test]
fn a_made_up_format_has_locks_names_and_channels() {
    let server = server();
    let [one, other] = [(); 2].map(|()| client(std::slice::from_ref(&server)));
    let ask = || patiently(NAME.as_bytes()).format(MADE_UP);
    let lock = one.acquire(ask()).unwrap();
    let Reply::Bulk(value) = server.cmd(&format!("GET {NAME}")) else { panic!("no string") };
    assert!(value.starts_with(b"m:"), "{}", value.escape_ascii());
    assert!(refusal(other.acquire(long(NAME.as_bytes()))).is_contended());
    let mut listener = server.connect();
    listener.cmd(&format!("SUBSCRIBE {NAME}/free"));
    lock.release().unwrap();
    assert!(matches!(listener.reply(), Reply::Array(_)), "the release is published");
    assert_eq!(held_on(&[server], NAME), 0);
    for (name, reason) in [("job", "it begins with `made-up/`"), ("made-up/a/free", "a key beside")]
    {
        let refused = one.acquire(patiently(name.as_bytes()).format(MADE_UP)).unwrap_err();
        assert!(refused.to_string().contains(reason), "{refused}");
    }
}

#[test]
fn a_made_up_format_is_inspected_and_broken_if_it_is_configured() {
    let server = server();
    let [knows, knows_not] = [&[MADE_UP][..], &[]]
        .map(|formats| client_of(patient([server.address()]).formats(formats)));
    let holds = |set: &str, was: &str| {
        server.cmd(set);
        let seen = knows.inspect(NAME.as_bytes()).unwrap();
        assert!(seen.nodes[0].to_string().contains(was), "{seen:?}");
        let report = knows_not.force_unlock(NAME.as_bytes(), UnlockScope::Locks).unwrap();
        assert!((report.kept(), report.broken()) == (1, 0) && exists(&server, NAME), "{report}");
    };
    let lock = knows.acquire(patiently(NAME.as_bytes()).format(MADE_UP)).unwrap();
    holds("PING", "held by unlabelled");
    let seen = knows.inspect(NAME.as_bytes()).unwrap();
    assert!(matches!(seen.verdict, InspectionVerdict::Held(_)));
    assert_eq!(seen.owner(), Some(Owner::Mine));
    assert_eq!(knows.force_unlock(NAME.as_bytes(), UnlockScope::Locks).unwrap().broken(), 1);
    lock.release().unwrap();
    holds(&format!("SET {NAME} member:7 PX 60000"), "held by member 7");
    assert_eq!(
        knows.force_unlock(NAME.as_bytes(), UnlockScope::Locks).unwrap().kept(),
        1,
        "of another library"
    );
    let mut listener = server.connect();
    listener.cmd(&format!("SUBSCRIBE {NAME}/free"));
    assert_eq!(
        knows_not.force_unlock(NAME.as_bytes(), UnlockScope::LocksOf(MADE_UP)).unwrap().broken(),
        1
    );
    assert!(matches!(listener.reply(), Reply::Array(_)), "it is published");
    eventually("it is free", || !exists(&server, NAME));
}

/// A key that a format keeps with its locks cannot be locked in any format.
#[test]
fn keys_of_a_configured_format_cannot_be_locked() {
    let server = server();
    let client = client_of(patient([server.address()]).formats(&[MADE_UP]));
    for profile in [Profile::PLAIN, MADE_UP] {
        let refused = client.acquire(patiently(b"made-up/a/free").format(profile)).unwrap_err();
        assert!(refused.to_string().contains("a key beside locks"), "{refused}");
    }
    assert_eq!(
        client.force_unlock(b"made-up/a/free", UnlockScope::Locks).unwrap_err(),
        RequestError::ReservedKey
    );
}
