//! Connections and scripts that are lost while all servers are healthy.

use std::io::Write;
use std::os::unix::net::UnixListener;
use std::thread;
use std::time::{Duration, Instant};

use redbolt::{
    Client, LockGuard, LockLost, RefusalReason, Released,
    report::{Cause, NodeState},
};
use redbolt_test_servers::{Reply, Server};

use crate::support::{
    builder, calls, client, client_of, driver_of, eventually, exists, held_by, held_on, long,
    once_in, patient, patiently, process_until, refusal, servers, vouch_for, vouched,
};

#[test]
fn a_flush_of_scripts_between_any_two_steps_is_not_noticed() {
    for n in [1, 3, 5] {
        let servers = servers(n);
        let client = client(&servers);
        let flush = || servers.iter().for_each(flush_scripts);
        for round in 0..4 {
            // One resource is requested with SET, several with a script.
            let request =
                if round % 2 == 0 { patiently(b"job") } else { patiently(b"job").and(b"b") };
            flush();
            let mut lock = client.acquire(request.clone()).unwrap();
            for _ in 0..2 {
                flush();
                lock.extend(Duration::from_secs(20)).unwrap();
            }
            flush();
            assert!(refusal(client.acquire(long(b"job"))).is_contended());
            flush();
            released_by_quorum(lock.release(), n);
            // The call returns with a quorum; the undos of the other nodes are in their sockets.
            eventually("released everywhere", || {
                let _ = client.warm_up(Duration::ZERO);
                held_on(&servers, "job") + held_on(&servers, "b") == 0
            });
        }
    }
}

fn flush_scripts(server: &Server) {
    assert_eq!(server.cmd("SCRIPT FLUSH"), Reply::Status("OK".into()));
}

#[test]
fn a_held_lock_survives_the_loss_of_every_connection() {
    for n in [1, 3, 5] {
        let servers = servers(n);
        let client = client(&servers);
        let mut lock = client.acquire(patiently(b"job")).unwrap();
        for _ in 0..3 {
            cut_all(&servers);
            eventually("it is extended", || lock.extend(Duration::from_secs(25)).is_ok());
        }
        assert!(lock.remaining() > Duration::from_secs(20));
        cut_all(&servers);
        released_by_quorum(lock.release(), n);
        settle(&client);
        assert_eq!(held_on(&servers, "job"), 0);
    }
}

/// A write to a Unix socket whose peer has closed fails at once and ends the link. The extension
/// waits for the next link, which must not be taken for the failed one.
#[test]
fn an_extension_survives_the_loss_of_every_unix_socket() {
    let servers = servers(3);
    let client = client_of(patient(servers.iter().map(unix)));
    let mut lock = client.acquire(patiently(b"job")).unwrap();
    // A link that was just opened is not reopened at once, and one that was silent for a while is
    // read before it is written. Between the two, the write fails.
    for pause in [0, 40, 50, 60, 150] {
        thread::sleep(Duration::from_millis(pause));
        cut_all(&servers);
        lock.extend(Duration::from_secs(25)).unwrap();
    }
    released_by_quorum(lock.release(), 3);
}

fn unix(server: &Server) -> String {
    format!("unix://{}", server.socket().display())
}

/// The failed write itself causes the refusal. By then the other nodes have the request, and the
/// caller may never call the client again.
#[test]
fn a_refusal_by_a_failed_write_leaves_no_undo_unwritten() {
    assert!(once_in(5, a_refused_request_is_undone), "the node never got the request");
}

/// Returns `false` if the client was so late that it saw the dead connection before it sent the
/// request.
fn a_refused_request_is_undone() -> bool {
    let mut servers = servers(2);
    // The third node of the set does not exist, so the two others are a bare quorum.
    vouch_for(&servers, 3);
    let nobody = "unix:///nonexistent/redis.sock".to_owned();
    let client = client_of(patient([nobody, unix(&servers[0]), unix(&servers[1])]));
    let both = |client: &Client| client.warm_up(Duration::ZERO).ready() == 2;
    eventually("two nodes are ready", || both(&client));
    servers[1].kill();
    assert_eq!(refusal(client.acquire(long(b"job"))).reason(), RefusalReason::NoQuorum);
    eventually("the healthy node's key is undone without another call", || {
        calls(&servers[0], "eval") > 0 && !exists(&servers[0], "job")
    });
    // Without this request there was nothing to undo, and the try proves nothing.
    calls(&servers[0], "set") == 1
}

#[test]
fn a_release_written_into_dead_connections_still_arrives() {
    for n in [1, 3] {
        let servers = servers(n);
        let mut driver = driver_of(builder(&servers));
        // A connection cut before its handshake has no known id, so its ghost could not be killed.
        process_until(&mut driver, "all nodes are ready", |driver| {
            driver.node_report().ready() == n
        });
        let id = held_by(&mut driver, patiently(b"job"));
        cut_all(&servers);
        driver.release(id);
        process_until(&mut driver, "no undo is owed", |driver| !driver.has_pending_releases());
        assert_eq!(held_on(&servers, "job"), 0);
    }
}

#[test]
fn an_idle_client_notices_dead_connections() {
    let servers = servers(3);
    let client = client(&servers);
    released_by_quorum(client.acquire(patiently(b"job")).unwrap().release(), 3);
    cut_all(&servers);
    thread::sleep(Duration::from_millis(1_200));
    // One attempt must be enough.
    released_by_quorum(client.acquire(long(b"job")).unwrap().release(), 3);
}

#[test]
fn a_cut_at_any_moment_loses_no_lock_and_leaves_no_key() {
    let servers = servers(3);
    let client = client(&servers);
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..400 {
                thread::sleep(Duration::from_micros(300 + 700 * (round % 13)));
                cut_all(&servers[..2]);
            }
        });
        let until = Instant::now() + Duration::from_secs(2);
        while Instant::now() < until {
            let mut lock = client.acquire(patiently(b"job")).unwrap();
            // A refused extension is retried; the lock is held meanwhile.
            extend_in_the_end(&mut lock);
            assert!(lock.release().is_ok());
        }
    });
    eventually("no key is left", || {
        settle(&client);
        held_on(&servers, "job") == 0
    });
}

fn extend_in_the_end(lock: &mut LockGuard<'_>) {
    eventually("an extension", || lock.extend(Duration::from_secs(25)).is_ok());
}

/// A node that was refused for its configuration is retried after the operator corrects it, even by
/// a client that never waits.
#[test]
fn a_corrected_node_votes_again_for_a_client_that_never_waits() {
    let server =
        vouched(Server::with(&["--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru"]));
    let client = client_of(builder(std::slice::from_ref(&server)));
    let report = refusal(client.acquire(long(b"job")));
    assert_eq!(report.reason(), RefusalReason::NoQuorum, "{report}");
    assert!(report.to_string().contains("evict"), "{report}");
    server.cmd("CONFIG SET maxmemory-policy noeviction");
    eventually("a grant", || client.acquire(long(b"job")).is_ok());
}

/// A full server sends an error on connect and closes. Writing the handshake then fails, but the
/// error is the reported cause.
#[test]
fn an_error_before_a_hang_up_is_reported() {
    let dir = vouched(Server::start());
    let path = dir.socket().with_file_name("full.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let mut driver = driver_of(patient([format!("unix://{}", path.display())]));
    let (mut stream, _) = listener.accept().unwrap();
    stream.write_all(b"-ERR max number of clients reached\r\n").unwrap();
    drop(stream);
    process_until(&mut driver, "the end", |driver| {
        matches!(driver.node_report().nodes[0].state, NodeState::Down(_))
    });
    assert_eq!(driver.node_report().nodes[0].state, NodeState::Down(Cause::MaxClients));
}

/// Closes every connection except the one that sends the command.
fn cut_all(servers: &[Server]) {
    for server in servers {
        let reply = server.cmd("CLIENT KILL TYPE normal SKIPME yes");
        assert!(matches!(reply, Reply::Int(_)), "{reply:?}");
    }
}

/// Lets the client read its sockets.
fn settle(client: &Client) {
    let _ = client.warm_up(Duration::from_secs(1));
}

fn released_by_quorum(outcome: Result<Released, LockLost>, n: usize) {
    match outcome {
        Ok(confirmed) => {
            assert!(confirmed.nodes as usize > n / 2, "{confirmed}")
        }
        Err(lost) => panic!("{lost}"),
    }
}
