//! Dropping a lock, a request or a client at any moment, without a release, leaves nothing behind.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use redbolt::{Driver, Event, LockRequest, RefusalReason, Wait};
use redbolt_test_servers::{Reply, Server};

use crate::support::{
    LIMIT, client, driver_of, eventually, exists, held_by, held_on, long, outcome, patient,
    patiently, process_until, servers,
};

#[test]
fn a_dropped_guard_releases_without_waiting() {
    let servers = servers(3);
    let client = client(&servers);
    drop(client.acquire(patiently(b"job")).unwrap());
    eventually("no key is left", || held_on(&servers, "job") == 0);
}

#[test]
fn guards_and_their_client_dropped_together() {
    let servers = servers(3);
    for _ in 0..5 {
        let client = client(&servers);
        let one = client.acquire(patiently(b"one")).unwrap();
        let two = client.acquire(patiently(b"two")).unwrap();
        drop((two, one));
        drop(client);
        assert_eq!(held_on(&servers, "one") + held_on(&servers, "two"), 0);
    }
}

#[test]
fn a_forgotten_guard_is_released_with_its_client() {
    let servers = servers(3);
    let client = client(&servers);
    std::mem::forget(client.acquire(patiently(b"job")).unwrap());
    drop(client);
    eventually("no key is left", || held_on(&servers, "job") == 0);
}

#[test]
fn a_panic_under_the_lock_releases_it() {
    let servers = servers(3);
    let client = client(&servers);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let guard = client.acquire(patiently(b"job")).unwrap();
        assert!(guard.is_valid());
        panic!("in the middle of the work");
    }));
    let panic = outcome.unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"in the middle of the work"));
    eventually("no key is left", || held_on(&servers, "job") == 0);
    // The client still works.
    client.acquire(patiently(b"job")).unwrap().release().unwrap();
}

/// A cold client is cancelled during connects and handshakes, a warm one while the request is sent.
#[test]
fn an_acquisition_is_cancelled_after_any_number_of_turns() {
    let servers = servers(3);
    for warm in [false, true] {
        for turns in 0..12 {
            let mut driver = driver_of(patient(servers.iter().map(Server::address)));
            if warm {
                let all = |driver: &mut Driver| driver.node_report().ready() == 3;
                process_until(&mut driver, "all nodes are ready", all);
            }
            let id = driver.acquire(patiently(b"job")).unwrap();
            (0..turns).for_each(|_| driver.process());
            driver.release(id);
            // The lock may have been granted just before the cancellation.
            let end = match outcome(&mut driver, id) {
                Event::Granted(_) => outcome(&mut driver, id),
                end => end,
            };
            match end {
                Event::Released(..) => {}
                Event::Refused(_, refusal) => assert_eq!(refusal.reason, RefusalReason::Cancelled),
                other => panic!("{other:?}"),
            }
            process_until(&mut driver, "no undo is owed", |driver| !driver.has_pending_releases());
            assert_eq!(held_on(&servers, "job"), 0, "warm {warm}, {turns} turns");
        }
    }
}

#[test]
fn a_driver_is_dropped_after_any_number_of_turns() {
    let servers = servers(3);
    for turns in 0..16 {
        let mut driver = driver_of(patient(servers.iter().map(Server::address)));
        driver.acquire(patiently(b"job")).unwrap();
        (0..turns).for_each(|_| driver.process());
        drop(driver);
        // Servers that have seen the end of our connections have executed everything that was in
        // them.
        eventually("our connections are gone", || servers.iter().all(|server| !connected(server)));
        assert_eq!(held_on(&servers, "job"), 0, "{turns} turns");
    }
}

fn connected(server: &Server) -> bool {
    match server.cmd("CLIENT LIST TYPE normal") {
        Reply::Bulk(list) => String::from_utf8(list).unwrap().contains(" name=redbolt "),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_waiter_that_gives_up_leaves_the_holder_alone() {
    let servers = servers(3);
    let holder = client(&servers);
    let lock = holder.acquire(patiently(b"job")).unwrap();
    let mut driver = driver_of(patient(servers.iter().map(Server::address)));
    let id = driver.acquire(LockRequest::new(b"job").wait(Wait::Forever)).unwrap();
    let asked = || servers.iter().all(|server| crate::support::calls(server, "set") > 3);
    process_until(&mut driver, "some attempts", |_| asked());
    driver.release(id);
    match outcome(&mut driver, id) {
        Event::Refused(_, refusal) => assert_eq!(refusal.reason, RefusalReason::Cancelled),
        other => panic!("{other:?}"),
    }
    process_until(&mut driver, "no undo is owed", |driver| !driver.has_pending_releases());
    assert!(held_on(&servers, "job") >= 2, "the holder's keys remain");
    assert!(lock.release().is_ok());
}

#[test]
fn a_lock_cancelled_before_a_stopped_server_leaves_no_key_there() {
    let servers = servers(1);
    let mut driver = driver_of(patient(servers.iter().map(Server::address)));
    let id = held_by(&mut driver, long(b"first"));
    driver.release(id);
    let _ = outcome(&mut driver, id);
    servers[0].pause();
    let id = driver.acquire(long(b"job").wait(Wait::UpTo(LIMIT))).unwrap();
    (0..3).for_each(|_| driver.process());
    driver.release(id);
    drop(driver);
    servers[0].resume();
    eventually("the request has run", || crate::support::calls(&servers[0], "set") == 2);
    eventually("the undo has run", || !exists(&servers[0], "job"));
    std::thread::sleep(Duration::from_millis(20));
    assert!(!exists(&servers[0], "job"));
}
