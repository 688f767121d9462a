//! Extending a lock: its TTL grows or stays, and a lost lock stays lost.

use std::time::Duration;

use redbolt::{ExtendError, LossCause, RequestError, Wait};
use redbolt_test_servers::Reply;

use crate::support::{
    builder, client, client_of, eventually, held_on, long, loss, patiently, pttl, servers,
    warm_client,
};

#[test]
fn a_ttl_never_gets_shorter() {
    let servers = servers(3);
    let client = warm_client(builder(&servers));
    let mut lock = client.acquire(patiently(b"job").and(b"other")).unwrap();
    eventually("all nodes grant", || held_on(&servers, "other") == 3);
    for ttl in [1, 29, 2, 25] {
        // A short extension waits for only a sixth of its TTL, which a stalled machine exceeds.
        eventually("it is extended", || lock.extend(Duration::from_secs(ttl)).is_ok());
        assert!(lock.remaining() > Duration::from_secs(10), "{:?}", lock.remaining());
        for (server, key) in servers.iter().flat_map(|server| [(server, "job"), (server, "other")])
        {
            let left = pttl(server, key);
            assert!((10_000..=30_000).contains(&left), "{ttl}: {left} ms of {key}");
        }
    }
}

#[test]
fn an_extension_counts_from_its_own_beginning() {
    let servers = servers(3);
    let client = client(&servers);
    let mut lock = client.acquire(patiently(b"job").ttl(Duration::from_secs(10))).unwrap();
    assert!(lock.remaining() <= Duration::from_secs(10));
    lock.extend(Duration::from_secs(30)).unwrap();
    // The 1 % and 2 ms for clock drift are subtracted.
    assert!(lock.remaining() <= Duration::from_millis(29_698));
    assert!(lock.remaining() > Duration::from_secs(20));
    eventually("all nodes extended", || servers.iter().all(|server| pttl(server, "job") > 20_000));
}

#[test]
fn a_lock_whose_keys_were_deleted_is_lost_and_not_revived() {
    for n in [1, 3, 5] {
        let servers = servers(n);
        let client = warm_client(builder(&servers));
        let mut lock = client.acquire(patiently(b"job")).unwrap();
        eventually("all nodes grant", || held_on(&servers, "job") == n);
        for server in &servers[..n / 2 + 1] {
            assert_eq!(server.cmd("DEL job"), Reply::Int(1));
        }
        let error = lock.extend(Duration::from_secs(20)).unwrap_err();
        assert_eq!(loss(&error), Some(LossCause::Gone), "{error}");
        assert_eq!(error.to_string(), "lock job is lost: its key is gone on too many nodes");
        assert!(!lock.is_valid());
        assert_eq!(held_on(&servers[..n / 2 + 1], "job"), 0, "not revived");
        let again = lock.extend(Duration::from_secs(20)).unwrap_err();
        assert!(matches!(again, ExtendError::Lost(_)), "{again}");
        assert_eq!(lock.release().map_err(|lost| lost.cause()), Err(LossCause::Gone));
        eventually("what was left is undone", || {
            let _ = client.warm_up(Duration::ZERO);
            held_on(&servers, "job") == 0
        });
    }
}

#[test]
fn a_lock_taken_by_another_client_is_lost_and_the_other_keeps_it() {
    let servers = servers(3);
    let client = warm_client(builder(&servers));
    let mut lock = client.acquire(patiently(b"job")).unwrap();
    eventually("all nodes grant", || held_on(&servers, "job") == 3);
    for server in &servers {
        server.cmd("SET job stranger PX 30000");
    }
    assert!(matches!(lock.extend(Duration::from_secs(20)), Err(ExtendError::Lost(_))));
    assert!(lock.release().is_err());
    drop(client);
    for server in &servers {
        assert_eq!(server.cmd("GET job"), Reply::Bulk(b"stranger".to_vec()));
    }
}

#[test]
fn a_minority_without_the_key_changes_nothing() {
    let servers = servers(5);
    let client = warm_client(builder(&servers));
    let mut lock = client.acquire(patiently(b"job")).unwrap();
    eventually("all nodes grant", || held_on(&servers, "job") == 5);
    servers[..2].iter().for_each(|server| drop(server.cmd("DEL job")));
    lock.extend(Duration::from_secs(25)).unwrap();
    assert_eq!(held_on(&servers, "job"), 3, "no key is recreated");
    assert!(lock.release().is_ok());
}

/// The second node keeps the lock for 20 s, the third for 6 s, and the first answers that its key
/// is missing.
#[test]
fn an_extension_that_finds_a_lost_key_counts_on_the_other_nodes_only() {
    let servers = servers(3);
    let (client, others) = (warm_client(builder(&servers)), client(&servers));
    let mut lock = client.acquire(patiently(b"job").ttl(Duration::from_secs(6))).unwrap();
    eventually("all nodes grant", || held_on(&servers, "job") == 3);
    servers[2].cmd("ACL SETUSER default -pexpire");
    lock.extend(Duration::from_secs(20)).unwrap();
    assert!(lock.remaining() > Duration::from_secs(10), "a quorum keeps it");
    eventually("two nodes extend", || {
        pttl(&servers[0], "job").min(pttl(&servers[1], "job")) > 10_000
    });
    assert!(pttl(&servers[2], "job") <= 6_000);
    servers[2].cmd("ACL SETUSER default +pexpire");
    servers[0].cmd("DEL job");
    let mut reported = lock.extend(Duration::from_millis(500));
    // The extension waits for only a twelfth of a second, which a stalled machine exceeds.
    eventually("a quorum answers in time", || {
        if matches!(reported, Err(ExtendError::Refused(_))) {
            reported = lock.extend(Duration::from_millis(500));
        }
        !matches!(reported, Err(ExtendError::Refused(_)))
    });
    match reported {
        // The first node may answer after the two others.
        Ok(()) => eventually("the client learns that the key is missing", || {
            let _ = client.warm_up(Duration::ZERO);
            lock.remaining() < Duration::from_secs(6)
        }),
        // The call took longer than the third node keeps the key.
        Err(error) => assert!(matches!(error, ExtendError::Lost(_)), "{error}"),
    }
    eventually("another client gets the lock", || {
        let theirs = others.acquire(patiently(b"job").wait(Wait::No));
        assert!(theirs.is_err() || !lock.is_valid(), "two clients hold the lock");
        theirs.is_ok()
    });
}

#[test]
fn a_lock_that_is_not_extended_expires() {
    let servers = servers(3);
    let client = client(&servers);
    let mut lock = client.acquire(patiently(b"job").ttl(Duration::from_millis(400))).unwrap();
    eventually("its end", || !lock.is_valid());
    assert_eq!(lock.remaining(), Duration::ZERO);
    let error = lock.extend(Duration::from_secs(20)).unwrap_err();
    assert_eq!(loss(&error), Some(LossCause::Expired), "{error}");
    assert_eq!(lock.release().map_err(|lost| lost.cause()), Err(LossCause::Expired));
    eventually("the keys end too", || held_on(&servers, "job") == 0);
    let _ = client.acquire(patiently(b"job")).unwrap();
}

#[test]
fn invalid_extensions_are_refused_at_once() {
    let servers = servers(1);
    let client = client_of(builder(&servers).max_hold(Some(Duration::from_secs(40))));
    let mut lock = client.acquire(patiently(b"job")).unwrap();
    let mut refused = |ttl| match lock.extend(ttl) {
        Err(ExtendError::Request(error)) => error,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(Duration::ZERO), RequestError::TtlZero);
    assert!(matches!(refused(Duration::from_secs(31)), RequestError::TtlAboveMaximum { .. }));
    assert!(matches!(refused(Duration::from_millis(1)), RequestError::TtlBelowDrift { .. }));
    assert!(lock.is_valid());
    drop(lock);

    let client = client_of(builder(&servers).max_hold(Some(Duration::from_secs(10))));
    let mut lock = client.acquire(long(b"other")).unwrap();
    match lock.extend(Duration::from_secs(20)) {
        Err(ExtendError::Request(RequestError::HeldTooLong { .. })) => {}
        other => panic!("{other:?}"),
    }
}
