//! Fencing tokens are larger for each later holder, even if counters are lost or differ.
//!
//! Clocks that disagree are tested in `tests/core/fence.rs`, because all real servers use the
//! machine's clock.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, SystemTime};

use redbolt::{
    AcquireError, Client, LockRequest, RequestError,
    config::RestartGuard,
    report::{Cause, Vote},
};
use redbolt_test_servers::{Reply, Server};

use crate::support::{
    builder, calls, client, client_of, eventually, held_on, long, patiently, refusal, server,
    servers, vouch_for, warm_client,
};

#[test]
fn a_token_is_on_a_quorum_after_one_round_trip() {
    for n in [1, 3, 5] {
        let servers = servers(n);
        let client = warm_client(builder(&servers));
        let before = micros();
        let lock = client.acquire(fenced(b"job")).unwrap();
        let token = lock.fencing_token().unwrap().get();
        assert!((before..=micros() + 1).contains(&token), "a proposal is the clock's: {token}");
        assert!(token.is_multiple_of(2), "{token}");
        eventually("all nodes grant", || held_on(&servers, "job") == n);
        for server in &servers {
            assert_eq!(counter(server, "job"), Some(token));
            let scripts = calls(server, "eval") + calls(server, "evalsha");
            assert_eq!(scripts, 1 + 2, "one script each, and two that find out whether they run");
        }
        assert!(lock.release().is_ok());
        assert!(servers.iter().all(|server| counter(server, "job") == Some(token)), "it stays");
        let again = client.acquire(fenced(b"job")).unwrap();
        assert!(again.fencing_token().unwrap().get() > token);
    }
}

/// Two counters are ahead of every clock and differ, so the token is written back.
#[test]
fn counters_that_diverged_are_brought_together() {
    for round in 0..10 {
        let servers = servers(3);
        let client = client(&servers);
        let ahead = micros() + 86_400_000_000;
        let (near, far) = (ahead + round, ahead + 1_000_000);
        set_counter(&servers[0], "job", far);
        set_counter(&servers[1], "job", near);
        let lock = client.acquire(fenced(b"job")).unwrap();
        let token = lock.fencing_token().unwrap().get();
        let next = |counter: u64| (counter + 1).next_multiple_of(2);
        assert!([next(near), next(far)].contains(&token), "{token}");
        let there = servers.iter().filter(|server| counter(server, "job") == Some(token)).count();
        assert!(there >= 2, "{there} nodes have {token}");
        assert!(
            servers.iter().all(|server| counter(server, "job") != Some(near)),
            "no counter goes back"
        );
        assert!(lock.release().is_ok());
        let next = client.acquire(fenced(b"job")).unwrap().fencing_token().unwrap().get();
        assert!(next > token, "{next} after {token}");
    }
}

#[test]
fn a_minority_of_counters_ahead_costs_nothing_and_order_is_kept() {
    let servers = servers(5);
    let client = client(&servers);
    let mut last = 0;
    for round in 0..20 {
        set_counter(&servers[round % 5], "job", micros() + 3_000_000);
        let lock = client.acquire(fenced(b"job")).unwrap();
        let token = lock.fencing_token().unwrap().get();
        assert!(token > last, "{token} after {last}");
        last = token;
        assert!(lock.release().is_ok());
    }
}

/// No counters are left, and the operator's `init` was wrong: the clocks still make tokens grow.
#[test]
fn tokens_grow_over_nodes_that_were_wiped() {
    let mut servers = servers(3);
    let client = client(&servers);
    let mut last = 0;
    for round in 0..6 {
        let lock = client.acquire(fenced(b"job")).unwrap();
        let token = lock.fencing_token().unwrap().get();
        assert!(token > last, "{token} after {last}");
        last = token;
        assert!(lock.release().is_ok());
        match round % 2 {
            // A minority loses its data, and is quarantined.
            0 => assert_eq!(servers[0].cmd("FLUSHALL"), Reply::Status("OK".into())),
            _ => {
                servers.iter_mut().for_each(Server::restart);
                vouch_for(&servers, 3);
            }
        }
    }
}

#[test]
fn several_resources_have_one_token() {
    let servers = servers(3);
    let client = warm_client(builder(&servers));
    let ahead = micros() + 3_600_000_000;
    servers.iter().for_each(|server| set_counter(server, "b", ahead));
    let a = token(&client, fenced(b"a"));
    let all = client.acquire(fenced(b"a").and(b"b").and(b"c")).unwrap();
    let together = all.fencing_token().unwrap().get();
    assert!(a < together);
    let next = (ahead + 1).next_multiple_of(2);
    assert_eq!(together, next, "the token is the next even number after the largest counter");
    eventually("all nodes grant", || held_on(&servers, "c") == 3);
    for key in ["a", "b", "c"] {
        assert!(servers.iter().all(|server| counter(server, key) == Some(together)), "{key}");
    }
    assert!(all.release().is_ok());
    for key in [b"a", b"b", b"c"] {
        assert!(token(&client, fenced(key)) > together);
    }
}

#[test]
fn tokens_grow_from_holder_to_holder_of_four_clients() {
    let servers = servers(5);
    let seen = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let client = client(&servers);
                for round in 0..25 {
                    let lock = client.acquire(fenced(b"job")).unwrap();
                    let token = lock.fencing_token().unwrap();
                    seen.lock().unwrap().push(token);
                    // Later holders will find counters that differ, some of them ahead of the
                    // clocks.
                    if round % 5 == 0 {
                        let ahead = seen.lock().unwrap().len() as u64 % 5;
                        set_counter(&servers[ahead as usize], "job", token.get() + 50 * ahead);
                    }
                    assert!(lock.release().is_ok());
                }
            });
        }
    });
    let seen = seen.into_inner().unwrap();
    assert_eq!(seen.len(), 100);
    assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "{seen:?}");
}

#[test]
fn a_lock_that_is_lost_has_no_token_and_an_extended_one_keeps_it() {
    let servers = servers(3);
    let client = client(&servers);
    let mut lock = client.acquire(fenced(b"job")).unwrap();
    let token = lock.fencing_token();
    lock.extend(Duration::from_secs(25)).unwrap();
    assert_eq!(lock.fencing_token(), token);
    servers.iter().for_each(|server| drop(server.cmd("DEL job")));
    assert!(lock.extend(Duration::from_secs(25)).is_err());
    assert_eq!(lock.fencing_token(), None);
    assert_eq!(
        client.acquire(patiently(b"other")).unwrap().fencing_token(),
        None,
        "the request was not fenced"
    );
}

#[test]
fn a_counter_that_cannot_be_raised_is_its_node_s_failure() {
    for spoilt in ["9007199254740991", "hello"] {
        let servers = servers(3);
        let client = client(&servers);
        set(&servers[0], "job", spoilt);
        assert!(token(&client, fenced(b"job")) > 0, "the other nodes decide");
        set(&servers[1], "job", spoilt);
        let report = refusal(client.acquire(long(b"job").fenced()));
        assert_eq!(report.node_votes()[1].vote, Some(Vote::Fail(Cause::ServerError)), "{report}");
        assert!(report.to_string().contains("the fencing counter cannot be raised"), "{report}");
        eventually("the refusal leaves no key", || {
            let _ = client.warm_up(Duration::from_millis(20));
            held_on(&servers, "job") == 0
        });
    }
}

#[test]
fn a_counter_lives_for_the_configured_ttl() {
    let server = server();
    let day = Duration::from_secs(24 * 60 * 60);
    for (life, expected) in [(None, 7 * day), (Some(day), day)] {
        let builder = builder(std::slice::from_ref(&server));
        let client =
            client_of(life.into_iter().fold(builder, |b, life| b.fencing_counter_ttl(life)));
        assert!(token(&client, fenced(b"job")) > 0);
        let Reply::Int(left) = server.cmd("PTTL redbolt:fence:job") else { panic!() };
        let expected = expected.as_millis() as i64;
        assert!((expected - 60_000..=expected).contains(&left), "{left}");
    }
}

#[test]
fn requests_that_cannot_be_fenced_are_refused_at_once() {
    let servers = servers(1);
    let unguarded = builder(&servers).restart_guard(RestartGuard::Off);
    let brief = builder(&servers).max_ttl(Duration::from_millis(10_999));
    for builder in [unguarded, brief] {
        let client = client_of(builder);
        let request = LockRequest::new(b"job").ttl(Duration::from_secs(1)).fenced();
        let error = client.acquire(request).unwrap_err();
        assert_eq!(error, AcquireError::Request(RequestError::CannotFence));
    }
}

fn fenced(resource: &[u8]) -> LockRequest<'_> {
    patiently(resource).fenced()
}

/// Returns the token of a lock that is released at once.
fn token(client: &Client, request: LockRequest<'_>) -> u64 {
    let lock = client.acquire(request).unwrap();
    let token = lock.fencing_token().unwrap().get();
    lock.release().unwrap();
    token
}

fn counter(server: &Server, resource: &str) -> Option<u64> {
    match server.cmd(&format!("GET redbolt:fence:{resource}")) {
        Reply::Bulk(text) => Some(String::from_utf8(text).unwrap().parse().unwrap()),
        Reply::Nil => None,
        other => panic!("{other:?}"),
    }
}

fn set_counter(server: &Server, resource: &str, value: u64) {
    set(server, resource, &value.to_string());
}

fn set(server: &Server, resource: &str, value: &str) {
    let set = server.cmd(&format!("SET redbolt:fence:{resource} {value} PX 86400000"));
    assert_eq!(set, Reply::Status("OK".into()));
}

fn micros() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros() as u64
}
