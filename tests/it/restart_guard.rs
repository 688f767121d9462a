//! Nodes that lose their data (killed without persistence, flushed, or swapped), and restart guards
//! that are altered, moved or forbidden.

use std::time::{Duration, Instant};

use redbolt::proto::restart_guard::BIG_MS;
use redbolt::{
    Client, ConfigBuilder, LockGuard, LockRequest, RefusalReason, RefusalReport, RequestError,
    SetupError, Wait,
    config::{RestartGuard, RestartTrust},
    init, init_change,
    report::{Cause, NodeState, RestartGuardState, Vote},
};
use redbolt_test_servers::{Mode, Proxy, Reply, Server};

use crate::support::{
    LIMIT, builder, calls, changes, client, client_of, eventually, held_on, long, looks, patient,
    patiently, pttl, refusal, server, servers, vouched,
};

// Memory lost while a lock is held.

/// The holder's lease is still valid when the nodes are back, so a single vote from them could
/// create a second holder.
#[test]
fn a_node_that_lost_its_data_does_not_vote() {
    for n in [1, 3, 5] {
        let mut servers = servers(n);
        let (first, second) = (client(&servers), client(&servers));
        let lock = held_everywhere(&first, &servers);
        servers[..n / 2 + 1].iter_mut().for_each(Server::restart);
        for _ in 0..3 {
            let report = refusal(second.acquire(long(b"job")));
            assert_ne!(report.reason(), RefusalReason::Expired, "{report}");
            assert!(granted(&report) <= n / 2, "{report}");
        }
        eventually("the new connections see why", || {
            quarantined(&refusal(second.acquire(long(b"job")))) == n / 2 + 1
        });
        let report = refusal(second.acquire(long(b"job")));
        assert_eq!(report.reason(), RefusalReason::NoQuorum, "{report}");
        assert!(lock.is_valid());
        reports_quarantine(
            &report,
            &servers[0],
            "it has no restart guard: it is new, or has lost its memory",
        );
        assert_eq!(held_on(&servers[..n / 2 + 1], "job"), 0, "what they granted is undone");
    }
}

/// As a control, without the restart guard there are two holders.
#[test]
fn without_the_restart_guard_two_clients_hold_the_same_lock() {
    for n in [1, 3, 5] {
        let mut servers = redbolt_test_servers::servers(n);
        let unguarded = || client_of(builder(&servers).restart_guard(RestartGuard::Off));
        let (first, second) = (unguarded(), unguarded());
        let lock = held_everywhere(&first, &servers);
        servers[..n / 2 + 1].iter_mut().for_each(Server::restart);
        let other = second.acquire(patiently(b"job")).unwrap();
        assert!(other.is_valid() && lock.is_valid());
        let guarded = servers.iter().filter(|server| value(server).is_some());
        assert_eq!(guarded.count(), 0, "no restart guard was written");
        let report = second.warm_up(LIMIT);
        assert!(report.nodes.iter().all(|node| node.restart_guard == RestartGuardState::Off));
    }
}

#[test]
fn the_next_holder_is_granted_when_the_forgotten_lock_has_expired() {
    for n in [1, 3] {
        let mut servers = redbolt_test_servers::servers(n);
        let (first, second) = (client_of(brief(&servers).new_nodes()), client_of(brief(&servers)));
        let lock = first.acquire(briefly(b"job")).unwrap();
        servers[..n / 2 + 1].iter_mut().for_each(Server::restart);
        let other = second.acquire(briefly(b"job")).unwrap();
        assert!(!lock.is_valid(), "{:?} were left", lock.remaining());
        assert!(other.release().is_ok());
        assert!(lock.release().is_err());
        eventually("all nodes vote again", || second.warm_up(LIMIT).ready() == n);
    }
}

/// The connection and the process stay the same: only the TTL read behind each request shows the
/// flush.
#[test]
fn a_node_that_was_flushed_does_not_vote() {
    type Loss = fn(&Server);
    let losses: [(&str, Loss); 4] = [
        ("FLUSHALL", |server| ok(server, "FLUSHALL")),
        ("FLUSHDB", |server| ok(server, "FLUSHDB")),
        ("eviction", |server| {
            server.cmd("DEL job");
            assert_eq!(server.cmd("DEL redbolt:guard"), Reply::Int(1));
        }),
        ("SWAPDB", |server| ok(server, "SWAPDB 0 5")),
    ];
    for (what, lose) in losses {
        for request in [long(b"job"), long(b"job").and(b"other"), long(b"job").fenced()] {
            let servers = servers(3);
            let (first, second) = (client(&servers), client(&servers));
            let lock = held_everywhere(&first, &servers);
            assert_eq!(second.warm_up(LIMIT).ready(), 3);
            servers[..2].iter().for_each(lose);
            let report = refusal(second.acquire(request));
            assert_eq!(quarantined(&report), 2, "{what}: {report}");
            reports_quarantine(
                &report,
                &servers[0],
                "it has no restart guard: it is new, or has lost its memory",
            );
            assert!(lock.is_valid());
            eventually("the refusal leaves no key", || {
                let _ = second.warm_up(Duration::from_millis(20));
                held_on(&servers[..2], "job") + held_on(&servers, "other") == 0
            });
            eventually("the node is enrolled again, and quarantined", || {
                let _ = second.warm_up(Duration::from_millis(20));
                u64::try_from(pttl(&servers[0], GUARD)).is_ok_and(|ms| ms > BIG_MS + 10_000)
            });
        }
    }
}

#[test]
fn a_swap_with_another_guarded_database_is_seen_by_new_connections() {
    let servers = servers(3);
    let in_one = servers.iter().map(|server| format!("redis://{}/1", server.address()));
    let other = client_of(patient(in_one).new_nodes());
    assert_eq!(other.warm_up(LIMIT).ready(), 3);
    servers.iter().for_each(|server| ok(server, "SWAPDB 0 1"));
    let client = client(&servers);
    eventually("the words", || {
        refusal(client.acquire(long(b"job"))).to_string().contains("its database was swapped")
    });
}

/// Two addresses of one server must not become two votes while they wait for the same quarantine.
#[test]
fn one_server_under_two_names_has_one_vote_after_a_quarantine() {
    let server = Server::start();
    let names =
        [server.address(), format!("localhost:{}", server.port()), "127.0.0.1:1".to_owned()];
    let client = client_of(patient(names).max_ttl(BRIEF).reconnect_backoff(BRIEF / 50, BRIEF / 20));
    eventually("one of the nodes votes", || {
        let report = client.warm_up(Duration::from_millis(20));
        assert!(report.ready() <= 1, "{report}");
        report.ready() == 1
    });
    let until = Instant::now() + BRIEF;
    while Instant::now() < until {
        let report = refusal(client.acquire(briefly(b"job").wait(Wait::No)));
        assert!(granted(&report) <= 1, "{report}");
        assert!(client.warm_up(Duration::from_millis(20)).ready() <= 1, "{report}");
    }
}

// Data that a server keeps.

/// A server that syncs every write loses nothing. The operator declares that.
#[test]
fn a_durable_node_votes_after_a_restart_and_a_strict_one_does_not() {
    let mut server = vouched(Server::with(&["--appendonly", "yes", "--appendfsync", "always"]));
    let of =
        |server: &Server, trust| client_of(patient([""; 0]).node_with(&server.address(), trust));
    let holder = of(&server, RestartTrust::Durable);
    let lock = holder.acquire(patiently(b"job")).unwrap();
    server.restart();
    eventually("the node has kept its memory", || server.cmd("EXISTS job") == Reply::Int(1));

    let durable = of(&server, RestartTrust::Durable);
    let report = refusal(durable.acquire(long(b"job")));
    assert_eq!(report.reason(), RefusalReason::Contended, "{report}");
    assert!(
        durable.acquire(long(b"another")).unwrap().is_valid(),
        "the durable node votes at once"
    );
    assert!(lock.is_valid());

    let strict = of(&server, RestartTrust::Strict);
    eventually("the words", || {
        let report = refusal(strict.acquire(long(b"third")));
        quarantined(&report) == 1 && report.to_string().contains("restarted: its run id changed")
    });
    // A missing restart guard counts as data loss even on a durable node.
    ok(&server, "FLUSHALL");
    eventually("the durable one too", || {
        quarantined(&refusal(durable.acquire(long(b"another")))) == 1
    });
}

#[test]
fn a_user_without_info_can_be_accepted() {
    let server = server();
    ok(&server, "ACL SETUSER default -info");
    let strict = client(std::slice::from_ref(&server));
    let report = refusal(strict.acquire(long(b"job")));
    assert_eq!(report.node_votes()[0].vote, Some(Vote::Fail(Cause::NoPermission)), "{report}");
    let marker_only = || patient([""; 0]).node_with(&server.address(), RestartTrust::MarkerOnly);
    let client = client_of(marker_only());
    assert!(client.acquire(patiently(b"job")).unwrap().release().is_ok());
    // Without INFO, the client assumes nothing, and checks what it can.
    ok(&server, "FLUSHALL");
    assert_eq!(quarantined(&refusal(client.acquire(long(b"job")))), 1);
    eventually("the node is enrolled", || {
        let _ = client.warm_up(Duration::from_millis(20));
        value(&server).is_some_and(|value| value == "-:30000:1:0")
    });
}

// Altered restart guards, and differing limits.

#[test]
fn an_altered_restart_guard_needs_an_operator() {
    type Harm = fn(&Server);
    let harms: [(&str, Harm); 3] = [
        ("no TTL", |server| assert_eq!(server.cmd("PERSIST redbolt:guard"), Reply::Int(1))),
        ("other data", |server| ok(server, "SET redbolt:guard hello PX 1000000")),
        ("another type", |server| {
            server.cmd("DEL redbolt:guard");
            assert_eq!(server.cmd("RPUSH redbolt:guard x"), Reply::Int(1));
        }),
    ];
    for (what, harm) in harms {
        let server = server();
        harm(&server);
        let before = server.cmd("DUMP redbolt:guard");
        let client = client(std::slice::from_ref(&server));
        // The refusal ends a wait, because only an operator can correct the restart guard.
        let report = refusal(client.acquire(patiently(b"job")));
        assert_eq!(
            report.node_votes()[0].vote,
            Some(Vote::Fail(Cause::RestartGuardAltered)),
            "{what}: {report}"
        );
        assert_eq!(server.cmd("DUMP redbolt:guard"), before, "{what}: nothing was written");
        server.cmd("DEL job");
    }
}

#[test]
fn a_restart_guard_that_loses_its_ttl_on_a_live_connection_stops_the_node() {
    let servers = servers(1);
    let client = client(&servers);
    let _ = client.acquire(patiently(b"job")).unwrap().release();
    servers[0].cmd("PERSIST redbolt:guard");
    let report = refusal(client.acquire(long(b"job")));
    assert_eq!(granted(&report), 0, "{report}");
    eventually("the words", || {
        refusal(client.acquire(long(b"job"))).to_string().ends_with("its restart guard was altered")
    });
    eventually("no key is left", || held_on(&servers, "job") == 0);
}

#[test]
fn clients_with_other_limits_are_refused_and_write_nothing() {
    let servers = servers(3);
    let before: Vec<_> = servers.iter().map(value).collect();
    let shorter = client_of(builder(&servers).max_ttl(Duration::from_secs(10)));
    let request = || LockRequest::new(b"job").ttl(Duration::from_secs(5)).wait(Wait::UpTo(LIMIT));
    let report = refusal(shorter.acquire(request()));
    assert_eq!(
        report.reason(),
        RefusalReason::NoQuorum,
        "a wait for an operator ends at once: {report}"
    );
    let words = "set up for 3 nodes and a max_ttl of 30s, this client for 3 and 10s";
    assert!(report.to_string().contains(words), "{report}");

    let two = client(&servers[..2]);
    let report = refusal(two.acquire(request())).to_string();
    let words = "set up for 3 nodes and a max_ttl of 30s, this client for 2 and 30s";
    assert!(report.contains(words), "{report}");

    assert_eq!(servers.iter().map(value).collect::<Vec<_>>(), before);
    assert_eq!(held_on(&servers, "job"), 0);
    assert!(
        client(&servers).acquire(request()).unwrap().is_valid(),
        "the others' set is unchanged"
    );
}

#[test]
fn the_restart_guard_and_counters_cannot_be_locked() {
    let servers = servers(1);
    let client = client(&servers);
    let error = client.acquire(long(b"redbolt:guard")).unwrap_err();
    assert_eq!(error, redbolt::AcquireError::Request(RequestError::RestartGuardKey));
    let error = client.acquire(long(b"job").and(b"redbolt:fence:job").fenced()).unwrap_err();
    assert_eq!(error, redbolt::AcquireError::Request(RequestError::CounterKey));
    let other_key = client_of(builder(&servers).restart_guard_key(b"g").new_nodes());
    assert!(other_key.acquire(patiently(b"redbolt:guarded")).unwrap().is_valid());
    assert!(servers[0].cmd("GET g") != Reply::Nil);
}

// Commands of an operator.

#[test]
fn new_nodes_vote_at_once_after_init_which_works_once() {
    let servers = redbolt_test_servers::servers(3);
    let config = builder(&servers).build().unwrap();
    let report = init(&config, Duration::MAX).unwrap();
    assert!(
        report.nodes.iter().all(|node| node.restart_guard == RestartGuardState::Votes),
        "{report}"
    );
    let client = Client::new(config.clone()).unwrap();
    let lock = client.acquire(long(b"job")).unwrap();
    let before: Vec<_> = servers.iter().map(value).collect();

    let error = init(&config, LIMIT).unwrap_err();
    assert!(matches!(error, SetupError::Guarded(_)), "{error}");
    assert!(error.to_string().starts_with("not new: a node votes"), "{error}");
    assert!(error.to_string().contains(&servers[2].address()), "{error}");
    assert_eq!(servers.iter().map(value).collect::<Vec<_>>(), before);
    assert!(lock.is_valid());
}

/// The first node's answer is enough to refuse. The error must name the last node, which needs a
/// correction.
#[test]
fn an_init_of_a_set_in_use_names_the_node_that_answers_last() {
    let servers = servers(3);
    ok(&servers[2], "ACL SETUSER default -eval -evalsha");
    let far = Proxy::before(&servers[2].address());
    far.set(Mode::Coalesce(Duration::from_millis(50)));
    let addresses = [servers[0].address(), servers[1].address(), far.address()];
    let error = init(&patient(addresses).build().unwrap(), LIMIT).unwrap_err();
    assert!(matches!(error, SetupError::Guarded(_)), "{error}");
    assert!(error.to_string().contains("scripts are forbidden"), "{error}");
}

/// The first lock on new nodes is refused, with the duration, the cause and the remedy: the word
/// "quarantined" alone did not help.
#[test]
fn a_refusal_by_new_nodes_suggests_init() {
    let mut servers = redbolt_test_servers::servers(3);
    let config = builder(&servers).build().unwrap();
    let first = Client::new(config.clone()).unwrap();
    let refused = refusal(first.acquire(long(b"job")));
    assert!(refused.are_nodes_new(), "{refused}");
    for words in ["if these nodes are new", "redbolt::init", "`redbolt init`", "new_nodes"] {
        assert!(refused.to_string().contains(words), "{refused}");
    }
    assert!(first.warm_up(LIMIT).is_new());
    init(&config, LIMIT).unwrap();
    let report = Client::new(config.clone()).unwrap().warm_up(LIMIT);
    assert!(!report.is_new() && report.ready() == 3, "{report}");
    // The advice is missing if one of the nodes remembers.
    servers[..2].iter_mut().for_each(Server::restart);
    let second = Client::new(config).unwrap();
    assert_eq!(second.warm_up(LIMIT).ready(), 1);
    let refused = refusal(second.acquire(long(b"job")));
    assert!(
        !refused.are_nodes_new() && !refused.to_string().contains("redbolt::init"),
        "{refused}"
    );
}

#[test]
fn init_ends_the_wait_of_earlier_clients() {
    let servers = redbolt_test_servers::servers(3);
    let config = builder(&servers).build().unwrap();
    let client = Client::new(config.clone()).unwrap();
    eventually("the nodes are quarantined", || {
        let report = refusal(client.acquire(long(b"job")));
        quarantined(&report) >= 2 && servers.iter().all(|server| value(server).is_some())
    });
    init(&config, LIMIT).unwrap();
    let fresh = Client::new(config).unwrap();
    let _ = fresh.acquire(long(b"job")).unwrap().release();
    // The client knows only the original quarantine, which ends much later.
    assert!(client.acquire(patiently(b"job")).unwrap().is_valid());
}

#[test]
fn init_with_a_node_down_writes_nothing_and_names_the_node() {
    let mut servers = redbolt_test_servers::servers(3);
    servers[1].kill();
    let config = builder(&servers).build().unwrap();
    let error = init(&config, Duration::from_secs(5)).unwrap_err();
    assert!(matches!(error, SetupError::Unready(_)), "{error}");
    let words = format!("node 2 {}: connection refused", servers[1].address());
    assert!(error.to_string().contains(&words), "{error}");
    assert_eq!((value(&servers[0]), value(&servers[2])), (None, None));
}

#[test]
fn without_a_restart_guard_there_is_nothing_to_set_up() {
    let servers = redbolt_test_servers::servers(1);
    let config = builder(&servers).restart_guard(RestartGuard::Off).build().unwrap();
    for outcome in [init(&config, LIMIT), init_change(&config, LIMIT)] {
        let error = outcome.unwrap_err();
        assert!(matches!(error, SetupError::RestartGuardOff), "{error}");
    }
    assert_eq!(value(&servers[0]), None);
}

/// No node votes by the new limits before every lock under the old ones has expired, and no client
/// continues with a guard that it has read before.
#[test]
fn a_change_of_max_ttl_disconnects_clients_and_quarantines() {
    let servers = redbolt_test_servers::servers(3);
    let old = client_of(brief(&servers).new_nodes());
    let lock = old.acquire(briefly(b"job")).unwrap();
    let killed = || servers.iter().map(|server| calls(server, "client|kill")).sum::<u64>();
    assert_eq!(killed(), 0);

    let new = builder(&servers).max_ttl(BRIEF / 2).build().unwrap();
    let report = init_change(&new, LIMIT).unwrap();
    assert!(killed() >= 3);
    for (server, node) in servers.iter().zip(&report.nodes) {
        assert!(value(server).unwrap().ends_with(":1500:3:0"), "{report}");
        assert!(
            matches!(
                node.restart_guard,
                RestartGuardState::Quarantined { .. } | RestartGuardState::Votes
            ),
            "{report}"
        );
    }
    let client = Client::new(new.clone()).unwrap();
    let request = || LockRequest::new(b"job").ttl(BRIEF / 2).wait(Wait::UpTo(LIMIT));
    let other = client.acquire(request()).unwrap();
    assert!(!lock.is_valid(), "{:?} were left", lock.remaining());
    drop(other);
    drop(lock);
    let report = refusal(old.acquire(briefly(b"job"))).to_string();
    assert!(report.contains("set up for 3 nodes and a max_ttl of 1.5s"), "{report}");

    // Repeating the change has no effect.
    let before: Vec<_> = servers.iter().map(value).collect();
    init_change(&new, LIMIT).unwrap();
    assert_eq!(servers.iter().map(value).collect::<Vec<_>>(), before);
}

#[test]
fn a_set_grows_by_two_nodes() {
    let mut servers = redbolt_test_servers::servers(3);
    init(&brief(&servers).build().unwrap(), LIMIT).unwrap();
    let old = client_of(brief(&servers));
    assert!(old.acquire(briefly(b"job")).unwrap().is_valid());
    servers.extend(redbolt_test_servers::servers(2));
    let config = brief(&servers).build().unwrap();
    assert!(matches!(init(&config, LIMIT), Err(SetupError::Guarded(_))), "the set is not new");
    init_change(&config, LIMIT).unwrap();
    assert!(servers.iter().all(|server| value(server).unwrap().ends_with(":3000:5:0")));
    let report = refusal(old.acquire(briefly(b"job"))).to_string();
    assert!(report.contains("set up for 5 nodes"), "{report}");
    assert!(Client::new(config).unwrap().acquire(briefly(b"job")).unwrap().is_valid());
}

/// A user who may not close the other connections cannot change a set: those connections would vote
/// by the guards that they have read.
#[test]
fn a_change_that_cannot_disconnect_clients_is_not_complete() {
    let servers = redbolt_test_servers::servers(1);
    init(&brief(&servers).build().unwrap(), LIMIT).unwrap();
    ok(&servers[0], "ACL SETUSER default -client|kill");
    let config = builder(&servers).max_ttl(2 * BRIEF).build().unwrap();
    let error = init_change(&config, Duration::from_secs(5)).unwrap_err();
    assert!(matches!(error, SetupError::Incomplete(_)), "{error}");
    assert!(error.to_string().contains("NOPERM") && error.to_string().contains("kill"), "{error}");
    ok(&servers[0], "ACL SETUSER default +client|kill");
    init_change(&config, LIMIT).unwrap();
}

/// A client that has seen a set's restart guards does not treat the set as new when all of them are
/// missing.
#[test]
fn a_client_that_has_seen_the_nodes_never_treats_them_as_new() {
    let mut servers = servers(3);
    let client = client_of(builder(&servers).new_nodes());
    assert_eq!(client.warm_up(LIMIT).ready(), 3);
    servers.iter_mut().for_each(Server::kill);
    eventually("all nodes are missing", || client.warm_up(LIMIT).ready() == 0);
    servers.iter_mut().for_each(Server::restart);
    for _ in 0..3 {
        assert_eq!(granted(&refusal(client.acquire(long(b"job")))), 0);
    }
    eventually("all nodes are quarantined", || {
        let _ = client.warm_up(Duration::from_millis(20));
        let left = |server| u64::try_from(pttl(server, GUARD)).unwrap_or_default();
        servers.iter().all(|server| left(server) > BIG_MS + 10_000)
    });
}

#[test]
fn a_read_only_client_changes_nothing() {
    let servers = redbolt_test_servers::servers(3);
    let client = client_of(builder(&servers).read_only());
    let report = client.warm_up(LIMIT);
    assert_eq!(report.ready(), 0, "{report}");
    let _ = looks(&client, b"job");
    assert!(servers.iter().all(|server| value(server).is_none()));
    for server in &servers {
        assert_eq!(changes(server), 0, "not even temporarily");
    }
    let down = NodeState::Down(Cause::Quarantined);
    assert!(report.nodes.iter().all(|node| node.state == down), "{report}");
}

/// The first request to a guarded node waits for no earlier round trip.
#[test]
fn a_first_contact_reads_the_restart_guard_together_with_the_request() {
    let servers = servers(3);
    let client = client(&servers);
    let lock = client.acquire(long(b"job")).unwrap();
    eventually("all nodes have the key", || held_on(&servers, "job") == 3);
    for server in &servers {
        let counts = ["get", "set", "pttl", "eval"].map(|command| calls(server, command));
        assert_eq!(
            counts,
            [2, 1, 3, 2],
            "one flight: a probe for scripts, the restart guard's value and TTL, the request that checks it, \
             and the commands of its undo"
        );
    }
    drop(lock);
}

fn held_everywhere<'c>(client: &'c Client, servers: &[Server]) -> LockGuard<'c> {
    assert_eq!(client.warm_up(LIMIT).ready(), servers.len());
    let lock = client.acquire(patiently(b"job")).unwrap();
    eventually("all nodes grant", || {
        let _ = client.warm_up(Duration::ZERO);
        held_on(servers, "job") == servers.len()
    });
    lock
}

fn granted(report: &RefusalReport) -> usize {
    report.node_votes().iter().filter(|node| node.vote == Some(Vote::Grant)).count()
}

fn quarantined(report: &RefusalReport) -> usize {
    let quarantined = Some(Vote::Fail(Cause::Quarantined));
    report.node_votes().iter().filter(|node| node.vote == quarantined).count()
}

/// Checks that the report names the node, the reason, and the seconds left.
#[track_caller]
fn reports_quarantine(report: &RefusalReport, server: &Server, reason: &str) {
    let text = report.to_string();
    let start = format!("node 1 {}: quarantined ", server.address());
    let (_, rest) = text.split_once(&start).unwrap_or_else(|| panic!("{text}"));
    let (seconds, rest) = rest.split_once(" s, ").unwrap_or_else(|| panic!("{text}"));
    assert!((10..=30).contains(&seconds.parse().unwrap()), "{text}");
    assert!(rest.starts_with(reason), "{text}");
}

/// Returns the restart guard's value in database 0.
fn value(server: &Server) -> Option<String> {
    match server.cmd(&format!("GET {GUARD}")) {
        Reply::Bulk(value) => Some(String::from_utf8(value).unwrap()),
        Reply::Nil => None,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn ok(server: &Server, line: &str) {
    assert_eq!(server.cmd(line), Reply::Status("OK".into()), "{line}");
}

/// Returns a configuration for a set whose quarantines are short enough to wait for.
fn brief(servers: &[Server]) -> ConfigBuilder {
    builder(servers).max_ttl(BRIEF)
}

fn briefly(resource: &[u8]) -> LockRequest<'_> {
    LockRequest::new(resource).ttl(BRIEF).wait(Wait::UpTo(LIMIT))
}

const BRIEF: Duration = Duration::from_secs(3);
const GUARD: &str = "redbolt:guard";
