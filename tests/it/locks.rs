//! Acquiring, holding and releasing, with all nodes healthy.

use std::time::Duration;

use redbolt::{AcquireError, LockRequest, RefusalReason, Wait};
use redbolt_test_servers::Reply;

use crate::support::{
    builder, client, client_of, eventually, held_on, long, patient, patiently, refusal, servers,
    warm_client,
};

#[test]
fn a_lock_is_taken_on_a_quorum_and_released_everywhere() {
    for n in [1, 3, 5] {
        let servers = servers(n);
        let client = client(&servers);
        let lock = client.acquire(LockRequest::new(b"job").ttl(Duration::from_secs(5))).unwrap();
        assert!(lock.is_valid() && lock.remaining() <= Duration::from_secs(5));
        let held = servers.iter().filter(|s| s.cmd("EXISTS job") == Reply::Int(1)).count();
        assert!(held > n / 2, "{held} of {n}");
        match lock.release() {
            Ok(confirmed) => assert!(confirmed.nodes as usize > n / 2),
            lost => panic!("{lost:?}"),
        }
        drop(client);
        for server in &servers {
            assert_eq!(server.cmd("EXISTS job"), Reply::Int(0));
        }
    }
}

#[test]
fn a_second_client_is_refused_and_then_granted() {
    let servers = servers(3);
    let (first, second) = (client(&servers), client(&servers));
    let lock = first.acquire(LockRequest::new(b"job")).unwrap();
    match second.acquire(LockRequest::new(b"job")) {
        Err(AcquireError::Refused(report)) => {
            assert_eq!(report.reason(), RefusalReason::Contended);
            assert!(
                report
                    .to_string()
                    .starts_with("lock job: held by another: 0 of 3 granted, 2 needed")
            );
        }
        other => panic!("{other:?}"),
    }
    let _ = lock.release();
    let request = LockRequest::new(b"job").wait(Wait::UpTo(Duration::from_secs(10)));
    assert!(second.acquire(request).unwrap().is_valid());
}

#[test]
fn several_resources_are_granted_together_or_not_at_all() {
    let servers = servers(3);
    let (ours, theirs) = (client(&servers), warm_client(builder(&servers)));
    let all = || patiently(b"a").and(b"b").and(b"c");
    let held = |keys: &[&str]| keys.iter().map(|key| held_on(&servers, key)).sum::<usize>();
    let theirs = theirs.acquire(patiently(b"b")).unwrap();
    eventually("all nodes grant", || held(&["b"]) == 3);
    let report = refusal(ours.acquire(all().wait(Wait::No)));
    assert_eq!(report.reason(), RefusalReason::Contended, "{report}");
    let left = report.remaining().expect("a script's denial contains the TTL");
    assert!((20..=30).contains(&left.as_secs()), "{left:?}");
    assert_eq!(held(&["a", "c"]), 0, "no partial lock is left");
    let _ = theirs.release();

    let lock = ours.acquire(all()).unwrap();
    assert!(held(&["a"]) >= 2 && held(&["b"]) >= 2 && held(&["c"]) >= 2);
    for key in [&b"a"[..], b"b", b"c"] {
        assert!(refusal(client(&servers).acquire(long(key))).is_contended());
    }
    assert!(lock.release().is_ok());
    eventually("all keys are gone", || {
        let _ = ours.warm_up(Duration::ZERO);
        held(&["a", "b", "c"]) == 0
    });
}

#[test]
fn at_most_thirty_two_nodes_are_accepted() {
    let servers = servers(32);
    let client = client(&servers);
    let lock = client.acquire(patiently(b"job")).unwrap();
    assert!(held_on(&servers, "job") >= 17);
    match lock.release() {
        Ok(confirmed) => assert!(confirmed.nodes >= 17 && confirmed.of == 32),
        lost => panic!("{lost:?}"),
    }
    drop(client);
    assert_eq!(held_on(&servers, "job"), 0);

    let error = builder(&servers).node("10.0.0.33").build().unwrap_err();
    assert_eq!(error.to_string(), "33 nodes given, the limit is 32");
}

#[test]
fn a_higher_quorum_is_configured_and_obeyed() {
    let servers = servers(3);
    let client = client_of(builder(&servers).quorum(3));
    let lock = client.acquire(patiently(b"job")).unwrap();
    assert_eq!(held_on(&servers, "job"), 3);
    assert!(matches!(lock.release(), Ok(confirmed) if confirmed.nodes == 3));
    servers[2].cmd("SET job theirs PX 30000");
    let report = refusal(client.acquire(long(b"job")));
    assert!(report.to_string().starts_with("lock job: held by another: "), "{report}");
    assert!(report.to_string().contains(" of 3 granted, 3 needed; "), "{report}");
    drop(client);
    eventually("no key is left", || held_on(&servers[..2], "job") == 0);
    let error = builder(&servers).quorum(1).build().unwrap_err();
    assert_eq!(error.to_string(), "a quorum of 1 does not fit 3 nodes: it must be 2 to 3");
}

#[test]
fn any_bytes_can_name_a_resource() {
    let servers = servers(1);
    let client = client(&servers);
    let longest = vec![b'x'; 64 << 10];
    for name in [&b"\r\n$3\r\n\0"[..], b" ", b"\xff\xfe", b"*", &longest] {
        let lock = client.acquire(patiently(name)).unwrap();
        assert_eq!(servers[0].run(&[b"EXISTS", name]), Reply::Int(1));
        assert!(lock.release().is_ok());
        assert_eq!(servers[0].cmd("DBSIZE"), Reply::Int(1), "the guard's");
    }
    for name in [&b""[..], &vec![b'x'; (64 << 10) + 1]] {
        assert!(matches!(client.acquire(long(name)), Err(AcquireError::Request(_))));
    }
}

#[test]
fn duplicate_or_missing_nodes_are_refused() {
    let twice = patient(["127.0.0.1:7000", "127.0.0.1:7000"]).build().unwrap_err();
    assert_eq!(twice.to_string(), "nodes 1 and 2 have the same address 127.0.0.1:7000");
    assert_eq!(patient([""; 0]).build().unwrap_err().to_string(), "no nodes given");
}
