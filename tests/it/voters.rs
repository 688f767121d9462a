//! Nodes that cannot vote: each reports its exact cause, and the other nodes decide.

use std::time::{Duration, Instant};

use redbolt::{
    RefusalReason,
    config::RestartTrust,
    report::{Cause, NodeState, Vote},
};
use redbolt_test_servers::{Act, Impostor, Reply, Server};

use crate::support::{
    LONG, PATIENCE, calls, calls_by, client_of, eventually, exists, held_on, long, patient,
    patiently, refusal, server, servers, vouch_for, vouched,
};

/// A node that must not vote, and its expected report.
struct Unfit<'a> {
    /// The address in the configuration, and as shown.
    url: &'a str,
    shown: &'a str,
    /// The text after the address in a refusal.
    words: &'a str,
}

impl Unfit<'_> {
    /// Checks that the node alone leads to a refusal with its cause, and that with two good nodes
    /// the lock is granted.
    fn check(&self) {
        let client = client_of(patient([self.url]));
        let began = Instant::now();
        let report = refusal(client.acquire(long(b"job")));
        let begin = "lock job: no quorum: 0 of 1 granted, 1 needed; node 1";
        let expected = format!("{begin} {}: {}", self.shown, self.words);
        assert_eq!(report.to_string(), expected);
        assert_eq!(report.reason(), RefusalReason::NoQuorum);
        assert!(began.elapsed() < PATIENCE + LONG / 4, "{:?}", began.elapsed());

        let mut good = servers(2);
        let addresses = good.iter().map(Server::address);
        vouch_for(&good, 3);
        let client = client_of(patient([self.url.to_owned()].into_iter().chain(addresses)));
        let lock = client.acquire(patiently(b"job")).unwrap();
        let _ = lock.release();
        // Without one of the good nodes there is no quorum, so the unfit node has no vote.
        drop(good.pop());
        let report = refusal(client.acquire(long(b"job")));
        assert!(
            report
                .node_votes()
                .iter()
                .all(|node| node.number == 2 || node.vote != Some(Vote::Grant)),
            "{report}"
        );
        assert!(report.to_string().contains(&format!("node 1 {}: ", self.shown)), "{report}");
        drop(client);
        assert_eq!(held_on(&good, "job"), 0);
    }
}

fn check(address: &str, words: &str) {
    Unfit { url: address, shown: address, words }.check();
}

#[test]
fn a_missing_password() {
    let server = Server::with(&["--requirepass", "secret"]);
    check(&server.address(), "NOAUTH: the server wants a password");
    nothing_was_set(calls_by(admin(&server, "INFO commandstats"), "set"));
}

#[test]
fn a_wrong_password() {
    let server = Server::with(&["--requirepass", "secret"]);
    let url = format!("redis://:guess@{}", server.address());
    let shown = server.address();
    Unfit { url: &url, shown: &shown, words: WRONGPASS }.check();
    nothing_was_set(calls_by(admin(&server, "INFO commandstats"), "set"));
    assert_eq!(admin(&server, "KEYS *"), Reply::Array(vec![]));
}

/// After a failed AUTH, commands run as the default user, who may do everything here.
#[test]
fn a_wrong_password_fails_even_if_none_is_required() {
    let server = Server::start();
    server.cmd("ACL SETUSER alice on >right ~* +@all");
    let shown = server.address();
    for user_info in ["alice:wrong", "bob:right"] {
        let url = format!("redis://{user_info}@{shown}");
        Unfit { url: &url, shown: &shown, words: WRONGPASS }.check();
    }
    let url = format!("redis://:guess@{shown}");
    let words = "a password is configured, but the server has none";
    Unfit { url: &url, shown: &shown, words }.check();
    nothing_was_set(calls(&server, "set"));
    assert_eq!(server.cmd("KEYS *"), Reply::Array(vec![]));
}

#[test]
fn a_missing_database() {
    let server = Server::start();
    let (url, shown) = (format!("redis://{}/99", server.address()), server.address());
    Unfit { url: &url, shown: &shown, words: "no such database" }.check();
    nothing_was_set(calls(&server, "set"));
    assert_eq!(server.cmd("KEYS *"), Reply::Array(vec![]));
}

/// The password was right once, so the request is sent together with AUTH; then it runs as another
/// user.
#[test]
fn a_password_that_was_right_once() {
    let server = server();
    server.cmd("ACL SETUSER alice on >right ~* +@all");
    let client = client_of(patient([format!("redis://alice:right@{}", server.address())]));
    let _ = client.acquire(patiently(b"job")).unwrap().release();
    server.cmd("ACL SETUSER alice resetpass >changed");
    server.cmd("CLIENT KILL TYPE normal SKIPME yes");
    for _ in 0..5 {
        let report = refusal(client.acquire(long(b"job")));
        assert!(!report.is_contended(), "{report}");
        let _ = client.warm_up(Duration::from_secs(1));
    }
    assert_eq!(
        client.warm_up(Duration::from_secs(5)).nodes[0].state,
        NodeState::Down(Cause::WrongPassword)
    );
    eventually("no key stays under another user", || {
        let _ = client.warm_up(Duration::from_millis(20));
        !exists(&server, "job")
    });
    server.cmd("ACL SETUSER alice resetpass >right");
    eventually("the node votes again", || client.acquire(long(b"job")).is_ok());
}

#[test]
fn a_user_without_set() {
    let server = server();
    forbid(&server, "-set");
    check(
        &server.address(),
        "NOPERM: the user lacks a permission (NOPERM this user has no permissions to run the \
         'set' command)",
    );
}

#[test]
fn a_user_without_info() {
    let server = Server::start();
    forbid(&server, "-info");
    check(
        &server.address(),
        "NOPERM: the user lacks a permission (NOPERM this user has no permissions to run the \
         'info' command)",
    );
    assert!(!exists(&server, "job"));
}

#[test]
fn a_user_without_access_to_the_key() {
    let server = Server::start();
    server.cmd("ACL SETUSER default resetkeys ~locks:*");
    check(
        &server.address(),
        "NOPERM: the user lacks a permission (NOPERM this user has no permissions to access one \
         of the keys used as arguments)",
    );
}

/// The client's name and id are a convenience, not a requirement.
#[test]
fn a_user_without_client_commands_votes() {
    let server = server();
    forbid(&server, "-client");
    let client = client_of(patient([server.address()]));
    let _ = client.acquire(patiently(b"job")).unwrap().release();
    assert!(!exists(&server, "job"));
}

/// A user who may not run scripts could not release a granted lock.
#[test]
fn a_user_without_scripts() {
    let words =
        "scripts are forbidden (NOPERM this user has no permissions to run the 'eval' command)";
    for rules in ["-eval -evalsha", "-@scripting", "-eval"] {
        let server = Server::start();
        forbid(&server, rules);
        check(&server.address(), words);
        assert_eq!(server.cmd("DBSIZE"), Reply::Int(0), "{rules}: nothing is kept, nor enrolled");
        nothing_was_set(calls(&server, "set"));
    }
}

#[test]
fn a_server_whose_scripts_were_renamed_away() {
    let server = Server::with(&["--rename-command", "EVAL", ""]);
    check(&server.address(), "scripts are forbidden (ERR unknown command 'EVAL')");
    assert_eq!(server.cmd("DBSIZE"), Reply::Int(0));
}

#[test]
fn a_server_without_set_or_del() {
    for command in ["SET", "DEL"] {
        let server = Server::with(&["--rename-command", command, ""]);
        let words =
            format!("a needed command is missing or renamed (ERR unknown command '{command}')");
        check(&server.address(), &words);
        assert_eq!(server.cmd("DBSIZE"), Reply::Int(0));
    }
}

/// Scripts run, but their DEL is forbidden. The first undo shows that, and afterwards no key is
/// left there.
#[test]
fn a_user_without_del() {
    let server = server();
    forbid(&server, "-del");
    let client = client_of(patient([server.address()]));
    drop(client.acquire(patiently(b"job").ttl(Duration::from_secs(20))));
    let is_notified = |resource: &[u8]| {
        let report = refusal(client.acquire(long(resource))).to_string();
        report.contains(": NOPERM: the user lacks a permission (")
    };
    eventually("the refusal names the cause", || is_notified(b"job"));
    for _ in 0..5 {
        assert!(is_notified(b"another"));
        let _ = client.warm_up(Duration::from_millis(50));
        assert!(!exists(&server, "another"));
    }
}

#[test]
fn scripts_that_are_forbidden_while_connected_and_allowed_again() {
    let server = server();
    let client = client_of(patient([server.address()]));
    let _ = client.acquire(patiently(b"before")).unwrap().release();
    forbid(&server, "-eval -evalsha");
    drop(client.acquire(patiently(b"job").ttl(Duration::from_secs(20))).unwrap());
    eventually("the refusal names the cause", || {
        let report = refusal(client.acquire(long(b"another"))).to_string();
        report.contains("scripts are forbidden (NOPERM")
    });
    let _ = refusal(client.acquire(long(b"third")));
    assert!(!exists(&server, "third"));
    allow(&server, "+eval +evalsha");
    eventually("the owed release is confirmed", || {
        let _ = client.warm_up(Duration::from_millis(20));
        !exists(&server, "job")
    });
    eventually("the node votes again", || client.acquire(long(b"another")).is_ok());
}

/// Every call sends the script's text.
#[test]
fn a_user_without_evalsha_votes() {
    let server = server();
    forbid(&server, "-evalsha");
    let client = client_of(patient([server.address()]));
    for _ in 0..3 {
        for request in
            [patiently(b"job"), patiently(b"job").and(b"more"), patiently(b"job").fenced()]
        {
            let mut lock = client.acquire(request).unwrap();
            lock.extend(LONG).unwrap();
            assert!(lock.release().is_ok());
            assert!(!exists(&server, "job"));
        }
    }
}

#[test]
fn protected_mode() {
    let impostor = Impostor::start(Act::Denied);
    check(&impostor.address(), "DENIED: the server is in protected mode");
}

#[test]
fn a_web_server() {
    let impostor = Impostor::start(Act::Http);
    let words = refusal_of(&impostor.address());
    assert!(words.starts_with("not a Redis server (protocol violation)"), "{words}");
    check(&impostor.address(), &words);
}

#[test]
fn garbage() {
    let impostor = Impostor::start(Act::Garbage);
    let words = refusal_of(&impostor.address());
    assert!(words.starts_with("not a Redis server (protocol violation)"), "{words}");
    check(&impostor.address(), &words);
}

#[test]
fn silence() {
    let impostor = Impostor::start(Act::Silent);
    let silent = "no answer, it seems to hang: connected, but no reply to the handshake in";
    let words = format!("{silent} {PATIENCE:?}");
    check(&impostor.address(), &words);
}

#[test]
fn a_port_for_tls_only() {
    let impostor = Impostor::start(Act::Tls);
    check(&impostor.address(), "the port expects TLS (rediss://)");
}

#[test]
fn a_server_that_is_too_old() {
    let impostor = Impostor::start(Act::Redis4);
    check(&impostor.address(), "the server is too old (4.0.14, 5.0.0 is needed)");
}

#[test]
fn a_password_for_an_old_server_without_one() {
    let error = "-ERR Client sent AUTH, but no password is set";
    let impostor = Impostor::start(Act::Always(error.into()));
    let url = format!("redis://:secret@{}", impostor.address());
    let words = "a password is configured, but the server has none";
    Unfit { url: &url, shown: &impostor.address(), words }.check();
}

#[test]
fn a_port_that_closes_every_connection() {
    let impostor = Impostor::start(Act::Close);
    let words = refusal_of(&impostor.address());
    assert!(words.starts_with("connection ") && words.ends_with("TLS only does that)"), "{words}");
}

#[test]
fn nobody() {
    let mut server = Server::start();
    server.kill();
    check(&server.address(), "connection refused");
}

#[test]
fn an_error_for_everything() {
    let impostor = Impostor::start(Act::Always("-ERR go away".into()));
    check(&impostor.address(), "unknown server error (ERR go away)");
}

#[test]
fn a_replica() {
    let server = Server::start();
    server.cmd("REPLICAOF 127.0.0.1 1");
    check(&server.address(), "a replica, not a master");
    assert!(!exists(&server, "job"));
}

#[test]
fn a_master_that_becomes_a_replica_while_connected() {
    let server = server();
    let client = client_of(patient([server.address()]));
    let _ = client.acquire(patiently(b"job")).unwrap().release();
    server.cmd("REPLICAOF 127.0.0.1 1");
    let report = refusal(client.acquire(long(b"job")));
    assert_eq!(report.node_votes()[0].vote, Some(Vote::Fail(Cause::ReadOnly)), "{report}");
    assert!(report.to_string().ends_with("READONLY: the server is a replica"), "{report}");
    eventually("the handshake finds a replica", || {
        let report = client.warm_up(Duration::from_secs(1));
        report.nodes[0].state == NodeState::Down(Cause::Replica)
    });
    server.cmd("REPLICAOF NO ONE");
    // A new master might have another's data; here the test knows that it does not.
    vouch_for(std::slice::from_ref(&server), 1);
    eventually("the node votes again", || client.acquire(long(b"job")).is_ok());
}

#[test]
fn a_server_that_is_loading_its_data() {
    let mut server = vouched(Server::with(&[
        "--key-load-delay",
        "20000",
        "--loading-process-events-interval-bytes",
        "1024",
        "--rdbcompression",
        "no",
    ]));
    let mut connection = server.connect();
    (0..250)
        .for_each(|at| drop(connection.run(&[b"SET", format!("old{at}").as_bytes(), &[0; 600]])));
    assert_eq!(server.cmd("SAVE"), Reply::Status("OK".into()));
    server.restart();
    // This check proves that the server is still loading.
    let loading = |server: &Server| matches!(server.cmd("GET x"), Reply::Error(e) if e.starts_with("LOADING"));
    assert!(loading(&server));
    // The restart guard is saved with the rest of the data.
    let client = client_of(patient([""; 0]).node_with(&server.address(), RestartTrust::Durable));
    let report = refusal(client.acquire(long(b"job"))).to_string();
    assert!(report.ends_with(": LOADING: the server is still reading its data"), "{report}");
    let lock = client.acquire(patiently(b"job")).unwrap();
    assert!(!loading(&server));
    let _ = lock.release();
}

#[test]
fn a_server_without_memory() {
    let server = Server::with(&["--maxmemory", "1", "--maxmemory-policy", "noeviction"]);
    check(&server.address(), "OOM: the server's memory is full");
    assert!(!exists(&server, "job"));
}

#[test]
fn a_server_that_may_evict() {
    let server =
        vouched(Server::with(&["--maxmemory", "64mb", "--maxmemory-policy", "volatile-ttl"]));
    check(&server.address(), "may evict locks: maxmemory is set with an evicting policy");
    assert!(!exists(&server, "job"));
    let client = client_of(patient([server.address()]).accept_evicting(true));
    assert!(client.acquire(patiently(b"job")).unwrap().is_valid());
}

/// The first request follows the handshake in the same flight. If the handshake then shows that the
/// node may not vote, its grant is undone at once, not with the lock.
#[test]
fn the_grant_of_a_refused_node_is_undone_while_the_lock_is_held() {
    let unfit = Server::with(&["--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru"]);
    let good = servers(2);
    vouch_for(&good, 3);
    vouch_for(std::slice::from_ref(&unfit), 3);
    let addresses = good.iter().map(Server::address).chain([unfit.address()]);
    let client = client_of(patient(addresses));
    let lock = client.acquire(patiently(b"job")).unwrap();
    eventually("the request ran, and its undo", || {
        let _ = client.warm_up(Duration::from_millis(20));
        calls(&unfit, "set") > 0 && !exists(&unfit, "job")
    });
    assert!(lock.is_valid());
    assert_eq!(held_on(&good, "job"), 2);
}

#[test]
fn a_server_in_cluster_mode() {
    let server = Server::with(&["--cluster-enabled", "yes"]);
    check(&server.address(), "in cluster mode");
}

#[test]
fn a_server_without_enough_replicas() {
    let server = Server::with(&["--min-replicas-to-write", "1"]);
    check(&server.address(), "NOREPLICAS: too few replicas to accept writes");
}

#[test]
fn a_server_that_loses_its_replicas_votes_again_when_it_has_them() {
    let server = server();
    let client = client_of(patient([server.address()]));
    let _ = client.acquire(patiently(b"job")).unwrap().release();
    let seen = || calls(&server, "client|setname");
    let connected = seen();
    server.cmd("CONFIG SET min-replicas-to-write 1");
    for _ in 0..3 {
        let report = refusal(client.acquire(long(b"job"))).to_string();
        assert!(report.ends_with(": NOREPLICAS: too few replicas to accept writes"), "{report}");
    }
    server.cmd("CONFIG SET min-replicas-to-write 0");
    let _ = client.acquire(patiently(b"job")).unwrap().release();
    assert_eq!(seen(), connected, "on the same connection");
    assert!(!exists(&server, "job"));
}

#[test]
fn a_server_that_is_busy_with_a_script() {
    let server = vouched(Server::with(&["--busy-reply-threshold", "1"]));
    let client = client_of(patient([server.address()]));
    let _ = client.acquire(patiently(b"job")).unwrap().release();
    let mut spinning = server.connect();
    spinning.send(b"*3\r\n$4\r\nEVAL\r\n$17\r\nwhile true do end\r\n$1\r\n0\r\n");
    eventually(
        "the server is busy",
        || matches!(server.cmd("GET x"), Reply::Error(e) if e.starts_with("BUSY")),
    );
    let report = refusal(client.acquire(long(b"job"))).to_string();
    assert!(report.ends_with(": BUSY: a script blocks the server"), "{report}");
    assert_eq!(server.cmd("SCRIPT KILL"), Reply::Status("OK".into()));
    let _ = client.acquire(patiently(b"job")).unwrap().release();
}

#[test]
fn a_server_that_has_no_room() {
    let server = Server::with(&["--maxclients", "1"]);
    let only = server.connect();
    check(&server.address(), "the server has no room for another client");
    drop(only);
    let client = client_of(patient([server.address()]).new_nodes());
    assert!(client.acquire(patiently(b"job")).unwrap().is_valid());
}

#[test]
fn one_server_under_two_names() {
    let servers = servers(2);
    vouch_for(&servers, 3);
    let twins = [
        (format!("localhost:{}", servers[0].port()), format!("localhost:{}", servers[0].port())),
        (
            format!("unix://{}", servers[0].socket().display()),
            format!("unix:{}", servers[0].socket().display()),
        ),
    ];
    for (url, _shown) in twins {
        let client = client_of(patient([servers[0].address(), url, servers[1].address()]));
        for _ in 0..5 {
            let mut lock = client.acquire(patiently(b"job")).unwrap();
            // The key exists once for both names, and must stay while it counts for one.
            for _ in 0..5 {
                let _ = client.warm_up(Duration::from_millis(50));
                lock.extend(Duration::from_secs(20)).unwrap();
            }
            assert_eq!(held_on(&servers, "job"), 2);
            let _ = lock.release();
        }
        let report = client.warm_up(Duration::from_secs(5));
        assert_eq!(report.ready(), 2, "{report}");
        assert!(
            report.to_string().contains("the same server as another node: it is node "),
            "{report}"
        );
        drop(client);
        assert_eq!(held_on(&servers, "job"), 0);
    }
}

/// Returns the text of a refusal about the only node.
fn refusal_of(address: &str) -> String {
    let report = refusal(client_of(patient([address])).acquire(long(b"job"))).to_string();
    let (_, words) = report.split_once(&format!("node 1 {address}: ")).unwrap();
    words.to_owned()
}

fn forbid(server: &Server, rules: &str) {
    assert_eq!(server.cmd(&format!("ACL SETUSER default {rules}")), Reply::Status("OK".into()));
}

fn allow(server: &Server, rules: &str) {
    forbid(server, rules);
}

/// Sends a command to a server whose password is `secret`.
fn admin(server: &Server, line: &str) -> Reply {
    let mut connection = server.connect();
    connection.cmd("AUTH secret");
    connection.cmd(line)
}

#[track_caller]
fn nothing_was_set(sets: u64) {
    assert_eq!(sets, 0, "a SET ran although AUTH or SELECT had failed");
}

const WRONGPASS: &str = "WRONGPASS: wrong user or password";
