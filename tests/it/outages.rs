//! Servers that are killed, stopped and restarted: minorities and majorities.

use std::net::TcpListener;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use redbolt::{
    Client, LockLost, LockRequest, RefusalReason, RefusalReport, Released, Wait,
    report::{Cause, Vote},
};
use redbolt_test_servers::Server;

use crate::support::{
    LIMIT, PATIENCE, builder, client, client_of, default, eventually, held_on, long, patiently,
    refusal, server, servers, vouch_for,
};

#[test]
fn a_killed_minority_delays_nothing() {
    for n in [3, 5] {
        let mut servers = servers(n);
        let client = client(&servers);
        let lock = client.acquire(long(b"job")).unwrap();
        servers[..n / 2].iter_mut().for_each(Server::kill);
        let mut lock = extended(lock);
        lock.extend(Duration::from_secs(20)).unwrap();
        released_by_quorum(lock.release(), n);
        released_by_quorum(client.acquire(long(b"job")).unwrap().release(), n);
        assert_eq!(held_on(&servers[n / 2..], "job"), 0);
    }
}

#[test]
fn a_killed_majority_refuses_and_a_restarted_one_grants() {
    for n in [1, 3, 5] {
        let mut servers = servers(n);
        let client = client(&servers);
        let dead = n / 2 + 1;
        released_by_quorum(client.acquire(long(b"job")).unwrap().release(), n);
        servers[..dead].iter_mut().for_each(Server::kill);
        let report = refused_soon(&client, long(b"job"));
        assert_eq!(report.reason(), RefusalReason::NoQuorum, "{report}");
        assert!(report.node_votes()[..dead].iter().all(is_fail), "{report}");
        let refused = format!("node 1 {}: connection refused", servers[0].address());
        eventually("the message names the refused connection", || {
            refused_soon(&client, long(b"job")).to_string().contains(&refused)
        });
        assert_eq!(held_on(&servers[dead..], "job"), 0, "the refusal leaves no key");

        servers[..dead].iter_mut().for_each(Server::restart);
        // No lock was held when they lost their data.
        vouch_for(&servers, n);
        released_by_quorum(client.acquire(patiently(b"job")).unwrap().release(), n);
    }
}

/// The new listener accepts connections and never replies.
#[test]
fn a_report_explains_why_a_node_is_being_reconnected() {
    let mut server = server();
    let client = client(std::slice::from_ref(&server));
    assert_eq!(client.warm_up(LIMIT).ready(), 1);
    server.kill();
    let reported = || client.warm_up(Duration::from_millis(20)).nodes[0].to_string();
    eventually("nobody listens", || reported().ends_with(": connection refused"));
    let _silent = TcpListener::bind(server.address()).unwrap();
    let words = ": connecting again after: connection refused";
    eventually("it is being connected to", || reported().ends_with(words));
}

/// With the default timeouts, which are long, no acquisition waits for one to elapse.
#[test]
fn many_waiters_for_one_lock_do_not_wait_for_a_hanging_minority() {
    for stopped in [0, 2] {
        let servers = servers(3);
        let begun = Barrier::new(4);
        let contend = || {
            // The timeout is long, so that a machine that is stalled does not count as a node that
            // hangs.
            let builder = default(servers.iter().map(Server::address));
            let client = client_of(builder.response_timeout(LIMIT / 2));
            let _ = client.warm_up(LIMIT);
            if begun.wait().is_leader() {
                servers[stopped].pause();
            }
            begun.wait();
            for _ in 0..50 {
                let lock = client.acquire(patiently(b"job")).unwrap();
                let Ok(_) = lock.release() else { panic!("the lock was not lost") };
            }
            let metrics = client.metrics().metrics;
            metrics.nodes.iter().map(|node| node.timeouts).sum::<u64>()
        };
        let timeouts = std::thread::scope(|scope| {
            let all: Vec<_> = (0..4).map(|_| scope.spawn(contend)).collect();
            all.into_iter().map(|one| one.join().unwrap()).sum::<u64>()
        });
        servers[stopped].resume();
        assert_eq!(timeouts, 0, "rounds that waited for node {}", stopped + 1);
    }
}

#[test]
fn a_stopped_minority_is_not_waited_for() {
    let servers = servers(5);
    let client = client(&servers);
    let _ = client.warm_up(Duration::from_secs(5));
    servers[..2].iter().for_each(Server::pause);
    let began = Instant::now();
    let lock = client.acquire(long(b"job")).unwrap();
    released_by_quorum(lock.release(), 5);
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    servers[..2].iter().for_each(Server::resume);
    eventually("the late grants are undone", || held_on(&servers, "job") == 0);
}

#[test]
fn a_stopped_majority_refuses_in_time_and_keeps_nothing() {
    for (n, warm) in [(1, true), (3, true), (3, false), (5, true)] {
        let servers = servers(n);
        let client = client_of(default(servers.iter().map(Server::address)));
        if warm {
            let report = client.warm_up(Duration::from_secs(5));
            assert_eq!(report.ready(), n, "{report}");
        }
        let stopped = n / 2 + 1;
        servers[..stopped].iter().for_each(Server::pause);
        let report = refused_soon(&client, long(b"job"));
        assert_eq!(report.reason(), RefusalReason::NoQuorum, "{report}");
        assert_eq!(report.node_votes()[0].vote, Some(Vote::Fail(Cause::NoAnswer)), "{report}");
        if warm {
            let silent = format!("node 1 {}: no answer in 1s", servers[0].address());
            assert!(report.to_string().contains(&silent), "{report}");
        }
        servers[..stopped].iter().for_each(Server::resume);
        // The request and its undo are in the sockets: the servers run them without the client.
        drop(client);
        eventually("the servers have heard us", || {
            servers[..stopped].iter().all(|server| crate::support::calls(server, "set") > 0)
        });
        eventually("the refusal leaves no key", || held_on(&servers, "job") == 0);
    }
}

#[test]
fn a_stopped_majority_outlasts_the_callers_time() {
    let servers = servers(3);
    let client = client_of(default(servers.iter().map(Server::address)));
    let _ = client.warm_up(Duration::from_secs(5));
    servers[1..].iter().for_each(Server::pause);
    let request = long(b"job").wait(Wait::UpTo(Duration::from_millis(300)));
    let began = Instant::now();
    let report = refused_soon(&client, request);
    assert!(began.elapsed() >= Duration::from_millis(300));
    assert_eq!(report.reason(), RefusalReason::OutOfTime, "{report}");
    assert!(!report.is_contended(), "{report}");
    servers[1..].iter().for_each(Server::resume);
    let _ = client.warm_up(Duration::from_secs(5));
    eventually("the refusal leaves no key", || held_on(&servers, "job") == 0);
    let lock = client.acquire(patiently(b"job")).unwrap();
    released_by_quorum(lock.release(), 3);
}

#[test]
fn a_lock_outlives_a_stop_of_its_majority_that_is_shorter_than_it() {
    let servers = servers(3);
    let client = client_of(builder(&servers).response_timeout(Duration::from_secs(3)));
    let mut lock = client.acquire(patiently(b"job")).unwrap();
    servers[1..].iter().for_each(Server::pause);
    let refused = lock.extend(Duration::from_secs(25)).unwrap_err().to_string();
    assert!(refused.starts_with("lock job: no quorum: 1 of 3 granted, 2 needed"), "{refused}");
    assert!(refused.contains("no answer in 3s"), "{refused}");
    assert!(lock.is_valid(), "the lock is held until its validity ends");
    servers[1..].iter().for_each(Server::resume);
    let lock = extended(lock);
    assert!(lock.release().is_ok());
    drop(client);
    eventually("released everywhere", || held_on(&servers, "job") == 0);
}

#[test]
fn rolling_restarts_never_stop_the_service() {
    let max_ttl = Duration::from_secs(3);
    let mut servers = redbolt_test_servers::servers(3);
    let client = client_of(builder(&servers).max_ttl(max_ttl).new_nodes());
    assert_eq!(client.warm_up(LIMIT).ready(), 3);
    let request = || LockRequest::new(b"job").ttl(max_ttl).wait(Wait::UpTo(LIMIT));
    for round in 0..3 {
        released_by_quorum(client.acquire(request()).unwrap().release(), 3);
        servers[round % 3].restart();
        released_by_quorum(client.acquire(request()).unwrap().release(), 3);
        // The quarantine ends before the next restart.
        eventually("all nodes vote again", || client.warm_up(LIMIT).ready() == 3);
    }
}

#[test]
fn ttl_and_wait_decide_how_long_dead_nodes_are_retried() {
    let mut servers = servers(1);
    let client = client(&servers);
    servers[0].kill();
    let began = Instant::now();
    let request = LockRequest::new(b"job")
        .ttl(Duration::from_secs(1))
        .wait(Wait::UpTo(Duration::from_secs(1)));
    let report = refused_soon(&client, request);
    assert_eq!(report.reason(), RefusalReason::OutOfTime, "{report}");
    assert!(began.elapsed() >= Duration::from_secs(1));
}

/// Returns a refusal, and checks that it came long before any timeout.
fn refused_soon(client: &Client, request: LockRequest<'_>) -> RefusalReport {
    let began = Instant::now();
    let report = refusal(client.acquire(request));
    assert!(began.elapsed() < Duration::from_secs(12), "{:?}: {report}", began.elapsed());
    report
}

/// Extends until it succeeds, because nodes may just have come back.
fn extended(mut lock: redbolt::LockGuard<'_>) -> redbolt::LockGuard<'_> {
    eventually("an extension", || lock.extend(Duration::from_secs(25)).is_ok());
    lock
}

fn released_by_quorum(outcome: Result<Released, LockLost>, n: usize) {
    match outcome {
        Ok(confirmed) => {
            assert!(confirmed.nodes as usize > n / 2, "{confirmed}")
        }
        Err(lost) => panic!("{lost}"),
    }
}

fn is_fail(vote: &redbolt::report::NodeVote) -> bool {
    matches!(vote.vote, Some(Vote::Fail(_)))
}
