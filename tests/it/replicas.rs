//! Nodes that become replicas of another server and are promoted again, with all their connections
//! open. Their data is then the other server's, and so is the restart guard, unless it is a copy of
//! the node's own.

use std::slice::from_ref;
use std::time::Duration;

use redbolt::config::RestartGuard;
use redbolt::proto::restart_guard::BIG_MS;
use redbolt::{Client, LockRequest, RefusalReason};
use redbolt_test_servers::{Reply, Server};

use crate::support::{
    builder, client_of, eventually, exists, info, long, patiently, pttl, refusal, vouch_for,
    warm_client,
};

/// The master is a node of another set with the same limits, and votes there.
#[test]
fn a_node_that_was_a_replica_does_not_vote() {
    for request in kinds() {
        let [node, master] = [started(), started()];
        vouch_for(&[&node, &master], 1);
        let (first, second) = (warm(&node), warm(&node));
        let lock = first.acquire(long(b"job")).unwrap();
        second.acquire(long(b"other")).unwrap().release().unwrap();
        take_over(&node, &master);
        assert_ne!(value(&node), own_value(&node));
        assert!(!exists(&node, "job"), "it has lost its data");
        does_not_vote(&second, request.clone());
        assert!(lock.is_valid());
        does_not_vote(&warm_or_not(&node), request);
        is_quarantined(&node, &second);
    }
}

/// The master was a replica of this node before, and no client has asked it for a lock since. So
/// the restart guard that comes back is the node's own.
#[test]
fn a_node_that_got_its_own_restart_guard_back_does_not_vote() {
    for request in kinds() {
        let [node, copy] = copied();
        let (first, second) = (warm(&node), warm(&node));
        let lock = first.acquire(long(b"job")).unwrap();
        let (guard, replication_id) = (value(&node), info(&node, "replication", "master_replid"));
        take_over(&node, &copy);
        assert_eq!(value(&node), guard);
        // Only the replication id shows that the node was a replica.
        assert_ne!(info(&node, "replication", "master_replid"), replication_id);
        assert!(!exists(&node, "job"), "it has lost its data");
        does_not_vote(&second, request.clone());
        assert!(lock.is_valid());
        does_not_vote(&warm_or_not(&node), request);
        is_quarantined(&node, &second);
    }
}

/// As a control, without the restart guard there are two holders.
#[test]
fn without_the_restart_guard_a_node_that_was_a_replica_grants_a_lock_twice() {
    let [node, copy] = copied();
    let unguarded = || warm_client(builder(from_ref(&node)).restart_guard(RestartGuard::Off));
    let (first, second) = (unguarded(), unguarded());
    let lock = first.acquire(long(b"job")).unwrap();
    take_over(&node, &copy);
    let other = second.acquire(patiently(b"job")).unwrap();
    assert!(lock.is_valid() && other.is_valid());
}

/// The read that follows a request belongs to it: this vote counts, and so do the next ones.
#[test]
fn a_node_that_has_a_replica_votes() {
    let [node, _copy] = copied();
    let client = warm(&node);
    for request in kinds() {
        client.acquire(request).unwrap().release().unwrap();
    }
}

/// This is a known cost: once the replica has disconnected for long, its first arrival cannot be
/// distinguished from a promotion.
#[test]
fn a_node_that_gets_its_first_replica_is_quarantined_once() {
    let [node, replica] = [started(), started()];
    vouch_for(&[&node], 1);
    let client = warm(&node);
    client.acquire(long(b"job")).unwrap().release().unwrap();
    follow(&replica, &node);
    let report = refusal(client.acquire(long(b"job"))).to_string();
    assert!(report.ends_with("its replication id changed: it was a replica, or got its first one"));
    does_not_vote(&client, long(b"job"));
    is_quarantined(&node, &client);
}

/// Returns requests that use a plain command, and scripts.
fn kinds() -> [LockRequest<'static>; 4] {
    let plain = || long(b"job");
    [plain(), plain().and(b"more"), plain().fenced(), plain().shared()]
}

/// Starts a server that sends its data to a replica at once.
fn started() -> Server {
    Server::with(&["--repl-diskless-sync-delay", "0"])
}

/// Returns a node that votes, and a server that was its replica until a moment ago.
fn copied() -> [Server; 2] {
    let [node, copy] = [started(), started()];
    follow(&copy, &node);
    vouch_for(&[&node], 1);
    eventually("the restart guard is copied", || value(&copy) == value(&node));
    assert_eq!(copy.cmd("REPLICAOF NO ONE"), Reply::Status("OK".into()));
    [node, copy]
}

/// Returns a client that has asked this node before.
fn warm(node: &Server) -> Client {
    warm_client(builder(from_ref(node)))
}

fn warm_or_not(node: &Server) -> Client {
    client_of(builder(from_ref(node)))
}

/// Gives the node the data of another server; its process and its connections stay.
fn take_over(node: &Server, master: &Server) {
    let run_id = info(node, "server", "run_id");
    follow(node, master);
    assert_eq!(node.cmd("REPLICAOF NO ONE"), Reply::Status("OK".into()));
    assert_eq!(info(node, "server", "run_id"), run_id);
    assert!(pttl(node, GUARD) <= BIG_MS.cast_signed(), "a guard by which it would vote");
}

fn follow(replica: &Server, master: &Server) {
    replica.cmd(&format!("REPLICAOF 127.0.0.1 {}", master.port()));
    eventually("the replica has its master's memory", || {
        info(replica, "replication", "master_link_status") == "up"
    });
}

fn does_not_vote(client: &Client, request: LockRequest<'_>) {
    let report = refusal(client.acquire(request));
    assert_eq!(report.reason(), RefusalReason::NoQuorum, "{report}");
    let text = report.to_string();
    let (_, rest) = text.split_once(": quarantined ").unwrap_or_else(|| panic!("{text}"));
    let (seconds, _) = rest.split_once(" s, ").unwrap_or_else(|| panic!("{text}"));
    assert!((20..=30).contains(&seconds.parse().unwrap()), "{text}");
}

/// Checks that the restart guard is the node's own, and that it keeps the node from voting for a
/// while.
fn is_quarantined(node: &Server, client: &Client) {
    eventually("the node is enrolled again", || {
        let _ = client.warm_up(Duration::from_millis(20));
        value(node) == own_value(node)
    });
    assert!(pttl(node, GUARD) > BIG_MS.cast_signed());
}

fn value(server: &Server) -> String {
    match server.cmd(&format!("GET {GUARD}")) {
        Reply::Bulk(value) => String::from_utf8(value).unwrap(),
        Reply::Nil => String::new(),
        other => panic!("{other:?}"),
    }
}

fn own_value(server: &Server) -> String {
    crate::support::own_restart_guard(server, 1)
}

const GUARD: &str = "redbolt:guard";
