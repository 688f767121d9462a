//! Waiting for a lock that another client holds.

use std::thread;
use std::time::{Duration, Instant};

use redbolt::{Client, LockRequest, RefusalReason, RefusalReport, Wait};
use redbolt_test_servers::{Reply, Server};

use crate::support::{
    LIMIT, builder, client, held_on, long, patiently, refusal, servers, warm_client,
};

#[test]
fn a_release_lets_the_next_waiter_in() {
    let servers = servers(3);
    let holder = client(&servers);
    let lock = holder.acquire(patiently(b"job")).unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let waiter = client(&servers);
            let lock = waiter.acquire(patiently(b"job")).unwrap();
            assert!(lock.release().is_ok());
        });
        thread::sleep(Duration::from_millis(150));
        assert!(!waiter.is_finished(), "granted while another held it");
        assert!(lock.release().is_ok());
        waiter.join().unwrap();
    });
}

#[test]
fn an_expiry_lets_the_next_one_in() {
    let servers = servers(3);
    let client = client(&servers);
    let began = Instant::now();
    for server in &servers {
        assert_eq!(server.cmd("SET job dead PX 700 NX"), Reply::Status("OK".into()));
    }
    let lock = client.acquire(patiently(b"job")).unwrap();
    assert!(began.elapsed() > Duration::from_millis(600), "{:?}", began.elapsed());
    assert!(lock.is_valid());
}

#[test]
fn a_foreign_key_without_a_ttl_denies_forever() {
    let servers = servers(3);
    servers[..2].iter().for_each(|server| drop(server.cmd("SET job theirs")));
    let client = warm_client(builder(&servers));
    for request in [LockRequest::new(b"job"), LockRequest::new(b"job").and(b"free")] {
        let report = out_of_time(&client, &request.wait(Wait::UpTo(MOMENT)));
        assert_eq!(report.remaining(), None, "the remaining time is unknown");
        assert!(report.to_string().contains(": out of time, held by another: "), "{report}");
    }
    for server in &servers[..2] {
        assert_eq!(server.cmd("GET job"), Reply::Bulk(b"theirs".to_vec()));
        assert_eq!(server.cmd("PTTL job"), Reply::Int(-1));
    }
    assert_eq!(held_on(&servers, "free") + held_on(&servers[2..], "job"), 0);
}

/// Returns the refusal of a request that waits for a moment and that a quorum has denied; on a
/// stalled machine, no node may answer in one such wait.
fn out_of_time(client: &Client, request: &LockRequest<'_>) -> RefusalReport {
    let refused = || {
        let began = Instant::now();
        let report = refusal(client.acquire(request.clone()));
        assert!(began.elapsed() >= MOMENT, "{:?}", began.elapsed());
        assert_eq!(report.reason(), RefusalReason::OutOfTime, "{report}");
        report
    };
    let reported = std::iter::repeat_with(refused).take(5).find(RefusalReport::is_contended);
    reported.expect("a quorum denies")
}

const MOMENT: Duration = Duration::from_millis(400);

#[test]
fn a_timed_out_wait_reports_the_remaining_ttl() {
    let servers = servers(3);
    let holder = client(&servers);
    let lock = holder.acquire(patiently(b"job")).unwrap();
    let waiter = warm_client(builder(&servers));
    let report = out_of_time(&waiter, &long(b"job").wait(Wait::UpTo(MOMENT)));
    let remaining = report.remaining().expect("a waiter asks for the remaining TTL");
    assert!((10..=30).contains(&remaining.as_secs()), "{remaining:?}");
    assert!(lock.is_valid(), "the waiter's undos do not affect the holder");
}

#[test]
fn wait_no_makes_one_attempt() {
    let servers = servers(1);
    let holder = client(&servers);
    let _lock = holder.acquire(patiently(b"job")).unwrap();
    let other = client(&servers);
    assert!(other.warm_up(LIMIT).has_quorum());
    let sets = || crate::support::calls(&servers[0], "set");
    let before = sets();
    for request in [long(b"job").wait(Wait::No), long(b"job").wait(Wait::UpTo(Duration::ZERO))] {
        let report = refusal(other.acquire(request));
        assert_eq!(report.reason(), RefusalReason::Contended, "{report}");
    }
    assert_eq!(sets() - before, 2);
}

#[test]
fn many_waiters_all_get_their_turn() {
    let servers = servers(3);
    let work = |servers: &[Server]| {
        let client = client(servers);
        for _ in 0..10 {
            let guard = client.acquire(patiently(b"job")).unwrap();
            assert!(guard.is_valid());
            guard.release().unwrap();
        }
    };
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| work(&servers));
        }
    });
    assert_eq!(held_on(&servers, "job"), 0);
}
