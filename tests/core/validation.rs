//! The requests that a core refuses at once, and the secrets that it never shows.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use redbolt::proto::{
    Config, Credentials, LockRequest, MAX_KEYS, MAX_NODES, MAX_RESOURCE, NodeSettings,
    RequestError, Secret, Settings, SettingsError,
};

use crate::world::{World, ms, secs};

#[test]
fn ttls_have_bounds() {
    let mut world = World::new(3).warm();
    let now = world.now();
    let (max_ttl, us) = (secs(30), Duration::from_micros);
    let above = |ttl| RequestError::TtlAboveMaximum { ttl, max_ttl };
    let cases = [
        (us(0), Some(RequestError::TtlZero)),
        (us(999), Some(RequestError::TtlZero)),
        (ms(1), Some(RequestError::TtlBelowDrift { ttl: ms(1), drift: us(2_010) })),
        (ms(2), Some(RequestError::TtlBelowDrift { ttl: ms(2), drift: us(2_020) })),
        (ms(3), None),
        (max_ttl, None),
        (max_ttl + Duration::from_nanos(1), Some(above(max_ttl + Duration::from_nanos(1)))),
        (Duration::MAX, Some(above(Duration::MAX))),
    ];
    let held = world.lock(b"held", secs(10));
    for (ttl, refused) in cases {
        let asked = world.core().acquire(&LockRequest::new(b"job").ttl(ttl), now);
        assert_eq!(asked.err(), refused, "{ttl:?}");
        if let Some(refused) = refused {
            assert_eq!(world.core().extend(held, ttl, now), Err(refused), "{ttl:?}");
        }
    }
    assert!(world.core().lease(held).is_some());
}

/// Redis counts whole milliseconds: a lease must not rely on the rest.
#[test]
fn a_ttl_counts_in_whole_milliseconds() {
    let mut world = World::new(1).warm();
    let id = world.lock(b"job", Duration::from_micros(100_999));
    assert_eq!(world.remaining(id), ms(100) - ms(3));
}

#[test]
fn resources_have_bounds() {
    let mut world = World::new(1).warm();
    let now = world.now();
    let long = vec![b'x'; MAX_RESOURCE + 1];
    let many: Vec<_> = (0..=MAX_KEYS as u32).map(u32::to_be_bytes).collect();
    let ask_many = |keys: usize| {
        many[1..keys].iter().fold(LockRequest::new(&many[0]), |request, key| request.and(key))
    };
    let core = world.core();
    let mut request = |request: &LockRequest<'_>| core.acquire(request, now).err();
    assert_eq!(request(&LockRequest::new(b"")), Some(RequestError::EmptyResource));
    assert_eq!(request(&LockRequest::new(b"a").and(b"")), Some(RequestError::EmptyResource));
    let len = MAX_RESOURCE + 1;
    assert_eq!(request(&LockRequest::new(&long)), Some(RequestError::ResourceTooLong { len }));
    assert_eq!(request(&LockRequest::new(&long[1..])), None);
    let twice = LockRequest::new(b"a").and(b"b").and(b"a");
    assert_eq!(request(&twice), Some(RequestError::DuplicateKey { index: 2 }));
    let keys = MAX_KEYS + 1;
    assert_eq!(request(&ask_many(keys)), Some(RequestError::TooManyKeys { keys }));
    assert_eq!(request(&ask_many(MAX_KEYS)), None);
    world.flow();
    assert_eq!(world.count("ask"), 2, "nothing was sent for the refused requests");
}

#[test]
fn configurations_have_bounds() {
    let with = |nodes: usize, set: fn(&mut Settings)| {
        let mut settings = Settings::new(vec![NodeSettings::default(); nodes]);
        set(&mut settings);
        Config::new(settings).map(|config| config.quorum())
    };
    assert_eq!(with(0, |_| {}), Err(SettingsError::NoNodes));
    assert_eq!(with(MAX_NODES + 1, |_| {}), Err(SettingsError::TooManyNodes { nodes: 33 }));
    let majorities = [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (MAX_NODES, 17)];
    for (nodes, quorum) in majorities {
        assert_eq!(with(nodes, |_| {}), Ok(quorum));
    }
    assert_eq!(with(5, |s| s.quorum = Some(5)), Ok(5));
    for quorum in [0, 2, 6] {
        let mut settings = Settings::new(vec![NodeSettings::default(); 5]);
        settings.quorum = Some(quorum);
        let refused = Config::new(settings).err();
        assert_eq!(refused, Some(SettingsError::Quorum { quorum, nodes: 5 }));
    }
    let refused = |result: Result<usize, SettingsError>| result.is_err();
    assert!(refused(with(1, |s| s.drift_ppm = 500_000)));
    assert!(refused(with(1, |s| s.max_ttl = Duration::from_micros(999))));
    assert!(refused(with(1, |s| s.max_ttl = ms(2))));
    assert!(refused(with(1, |s| s.max_ttl = secs(24 * 3_600 + 1))));
    assert!(refused(with(1, |s| s.response_timeout = Duration::ZERO)));
    assert!(refused(with(1, |s| s.label = b"line\n".to_vec())));
    assert!(refused(with(1, |s| s.label = vec![b'x'; 129])));
    assert!(refused(with(1, |s| s.client_name = b"a b".to_vec())));
}

#[test]
fn no_token_and_no_password_is_ever_shown() {
    let mut world = World::with(3, 1, |settings| {
        settings.label = b"web-1".to_vec();
        let password = Secret::new(b"sesame".to_vec());
        settings.nodes[2].credentials = Some(Credentials::new(None, password));
    });
    world.servers[2].store.require_password("sesame");
    world.set(0, b"other", b"theirs", 60_000);
    // The server echoes its arguments, as servers do for unknown commands.
    world.answer(1, |args| {
        let echo: String = args.iter().map(|arg| format!("'{}' ", arg.escape_ascii())).collect();
        let text = format!("ERR unknown command, {echo}");
        (args[0] == b"SET" && args[1] == b"other").then(|| crate::world::error(&text)).flatten()
    });
    world.run(ms(10));
    let held = world.lock(b"job", secs(10));
    let refused = world.lock(b"other", secs(10));
    let now = world.now();
    let view = world.core().inspect(b"job", now).unwrap();
    world.flow();

    let token = String::from_utf8(world.value(2, b"job")).unwrap();
    let (digits, label) = token.split_once(':').unwrap();
    assert_eq!((digits.len(), label), (34, "web-1"));
    let view = world.core().take_view(view).unwrap();
    let node = world.node(1);
    let core = &world.clients[0].core;
    let mut shown = vec![
        format!("{core:?} {:?} {:?}", core.config(), core.lease(held)),
        format!("{:?} {view:?}", world.clients[0].events),
        format!("{:?} {:?}", core.votes(held), world.outcomes(refused)),
        format!("{:?} {:?}", LockRequest::new(b"job"), world.clients[0].states),
    ];
    let causes = [redbolt::proto::Cause::UnknownCommand, redbolt::proto::Cause::ServerError];
    shown.extend(causes.iter().filter_map(|&cause| core.detail(node, cause)));
    assert_eq!(shown.len(), 5, "the echo is among the texts");
    let asked = world.log.iter().filter(|ran| ran.is_ask()).map(|ran| ran.token().to_vec());
    let secrets: BTreeSet<_> = asked.map(|token| String::from_utf8(token).unwrap()).collect();
    assert_eq!((secrets.len(), secrets.contains(&digits[..32])), (2, true));
    for (text, secret) in shown.iter().flat_map(|text| secrets.iter().map(move |s| (text, s))) {
        assert!(!text.contains("sesame"), "{text}");
        let mut parts = (0..=secret.len() - 8).map(|at| &secret[at..at + 8]);
        assert!(!parts.any(|part| text.contains(part)), "{text}");
    }
    assert!(shown[1].contains("web-1"), "the label may be shown");
}

#[test]
fn entropy_is_drawn_in_large_portions() {
    let config = Config::new(Settings::new(vec![NodeSettings::default()]));
    let draws = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counter = Arc::clone(&draws);
    let mut core = redbolt::proto::Core::new(Arc::new(config.unwrap()), move |bytes| {
        assert!(bytes.len() >= 1_000);
        bytes.fill(7);
        counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    });
    // This includes the entropy that the core drew for itself.
    for at in 0..63u8 {
        core.acquire(&LockRequest::new(&[at]), Default::default()).unwrap();
    }
    assert_eq!(draws.load(std::sync::atomic::Ordering::Relaxed), 1);
}
