//! Taking, holding and letting go, with all nodes well.

use std::time::Duration;

use redbolt::{AcquireError, Ask, Ending, Wait, Why};
use redbolt_proving::{Reply, servers};

use crate::support::client;

#[test]
fn a_lock_is_taken_on_a_quorum_and_released_everywhere() {
    for n in [1, 3, 5] {
        let servers = servers(n);
        let client = client(&servers);
        let lock = client.acquire(Ask::new(b"job").ttl(Duration::from_secs(5))).unwrap();
        assert!(lock.is_valid() && lock.remaining() <= Duration::from_secs(5));
        let held = servers.iter().filter(|s| s.cmd("EXISTS job") == Reply::Int(1)).count();
        assert!(held > n / 2, "{held} of {n}");
        match lock.release() {
            Ending::Released(confirmed) => assert!(confirmed.nodes as usize > n / 2),
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
    let lock = first.acquire(Ask::new(b"job")).unwrap();
    match second.acquire(Ask::new(b"job")) {
        Err(AcquireError::Refused(report)) => {
            assert_eq!(report.why(), Why::Contended);
            assert!(report.to_string().starts_with("held by another: 0 of 3 granted, 2 needed"));
        }
        other => panic!("{other:?}"),
    }
    let _ = lock.release();
    let ask = Ask::new(b"job").wait(Wait::For(Duration::from_secs(10)));
    assert!(second.acquire(ask).unwrap().is_valid());
}
