//! Bytes of replies split in different ways, and connections that end within a reply.

use std::time::Duration;

use redbolt::{Client, LockRequest};
use redbolt_test_servers::{Mode, Proxy, Reply, Server};

use crate::support::{
    LIMIT, client_of, default, eventually, exists, held_on, long, patient, servers,
};
use crate::support::{patiently, refusal};

#[test]
fn split_and_coalesced_bytes_change_nothing() {
    for n in [1, 3] {
        let (servers, proxies) = proxied(n);
        // On a busy machine, every byte can cost a time slice.
        let patient =
            |addresses| patient(addresses).response_timeout(LIMIT / 2).connect_timeout(LIMIT);
        let client = client_of(patient(proxies.iter().map(Proxy::address)));
        for mode in [Mode::Bytes, Mode::Coalesce(Duration::from_millis(4)), Mode::Pass, Mode::Bytes]
        {
            proxies.iter().for_each(|proxy| proxy.set(mode));
            // A new client's handshake is split as well.
            for client in [&client, &client_of(patient(proxies.iter().map(Proxy::address)))] {
                all_that_a_client_does(client, &servers);
            }
        }
    }
}

fn all_that_a_client_does(client: &Client, servers: &[Server]) {
    let mut lock = client.acquire(patiently(b"job").and(b"other")).unwrap();
    lock.extend(Duration::from_secs(20)).unwrap();
    assert!(lock.remaining() > Duration::from_secs(15));
    let report = refusal(client.acquire(LockRequest::new(b"job")));
    assert!(report.is_contended(), "{report}");
    let inspection = client.inspect(b"other").unwrap();
    assert!(
        matches!(inspection.verdict, redbolt::inspect::InspectionVerdict::Held(_)),
        "{inspection:?}"
    );
    assert!(lock.release().is_ok());
    let fenced = client.acquire(patiently(b"job").and(b"other").fenced()).unwrap();
    assert!(fenced.fencing_token().is_some());
    assert!(fenced.release().is_ok());
    eventually("released everywhere", || {
        let _ = client.warm_up(Duration::ZERO);
        held_on(servers, "job") + held_on(servers, "other") == 0
    });
}

/// The reply to a request has 5 bytes, that of the restart-guard check 15, that of an undo 4: a
/// warm connection is cut before, within and after each of them.
#[test]
fn a_cut_reply_leaves_nothing_locked() {
    let (servers, proxies) = proxied(1);
    let client = client_of(patient([proxies[0].address()]));
    // The three replies together have 24 bytes.
    for limit in 0..=25 {
        let _ = client.acquire(patiently(b"job")).unwrap().release();
        proxies[0].set(Mode::CutAfter(limit));
        match client.acquire(long(b"job")) {
            Ok(lock) => drop(lock),
            Err(error) => assert!(error.to_string().contains("connection"), "{limit}: {error}"),
        }
        proxies[0].set(Mode::Pass);
        // A key that exists here would outlive the test's wait.
        eventually("the key is gone", || {
            let _ = client.warm_up(Duration::from_millis(20));
            !exists(&servers[0], "job")
        });
    }
}

#[test]
fn a_cut_handshake_leaves_nothing_locked() {
    let (servers, proxies) = proxied(1);
    let length = handshake_length(&servers[0]);
    for limit in (0..length + 20).step_by(length / 40).chain([length - 1, length, length + 1]) {
        proxies[0].set(Mode::CutAfter(limit));
        let client = client_of(patient([proxies[0].address()]));
        if let Ok(lock) = client.acquire(long(b"job")) {
            drop(lock);
        }
        proxies[0].set(Mode::Pass);
        let lock = client.acquire(patiently(b"job")).unwrap();
        assert!(lock.release().is_ok(), "{limit}");
        assert!(!exists(&servers[0], "job"), "{limit}");
    }
}

/// Returns roughly how many bytes a server sends in reply to a handshake.
fn handshake_length(server: &Server) -> usize {
    let length = |section| match server.cmd(&format!("INFO {section}")) {
        Reply::Bulk(text) => text.len(),
        other => panic!("{other:?}"),
    };
    length("server") + length("replication") + length("memory") + GUARD
}

#[test]
fn every_node_s_connection_cut_at_another_byte() {
    let (servers, proxies) = proxied(3);
    let client = client_of(patient(proxies.iter().map(Proxy::address)));
    for round in 0..12 {
        for (at, proxy) in proxies.iter().enumerate() {
            proxy.set(Mode::CutAfter((5 * round + 3 * at) % 27));
        }
        if let Ok(lock) = client.acquire(long(b"job")) {
            drop(lock);
        }
        proxies.iter().for_each(|proxy| proxy.set(Mode::Pass));
        let _ = client.acquire(patiently(b"job")).unwrap().release();
        eventually("no key is left", || {
            let _ = client.warm_up(Duration::from_millis(20));
            held_on(&servers, "job") == 0
        });
    }
}

/// The end of a connection that arrives together with its last reply is noticed at once, not after
/// the dead-peer timeout.
#[test]
fn a_connection_end_after_a_reply_is_noticed_at_once() {
    let (_servers, proxies) = proxied(1);
    let client = client_of(default([proxies[0].address()]).dead_peer_timeout(4 * LIMIT));
    for _ in 0..20 {
        proxies[0].set(Mode::Pass);
        let _ = client.acquire(patiently(b"job")).unwrap().release();
        // The replies to the request and its check pass completely; then the connection ends.
        proxies[0].set(Mode::CutAfter(20));
        let lock = client.acquire(long(b"job"));
        eventually("the end is seen", || {
            let report = client.warm_up(Duration::ZERO);
            report.ready() == 0 || report.to_string().contains("closed")
        });
        drop(lock);
    }
}

fn proxied(n: usize) -> (Vec<Server>, Vec<Proxy>) {
    let servers = servers(n);
    let proxies = servers.iter().map(|server| Proxy::before(&server.address())).collect();
    (servers, proxies)
}

/// The length in bytes of the replies with the restart guard's value and TTL.
const GUARD: usize = 70;
