//! Owed releases and undos delete the key before its TTL does, despite errors, restarts and lost
//! connections.

use std::time::{Duration, Instant};

use redbolt::{Driver, Event, LockId, RefusalReason};
use redbolt_test_servers::{Connection, Mode, Proxy, Reply, Server};

use crate::support::{
    builder, calls, driver_of, eventually, exists, held_by, held_on, long, outcome, patient,
    process_until, server, servers, warm_client,
};

/// Returns a driver that holds `job` on one server, for 30 s unless it is released.
fn holding(server: &Server) -> (Driver, LockId) {
    let mut driver = driver_of(patient([server.address()]));
    let id = held_by(&mut driver, long(b"job"));
    (driver, id)
}

fn release(driver: &mut Driver, id: LockId) -> u32 {
    driver.release(id);
    match outcome(driver, id) {
        Event::Released(_, confirmed) => confirmed.nodes,
        other => panic!("{other:?}"),
    }
}

/// Drives until the key is deleted, long before it would expire.
fn gone(driver: &mut Driver, server: &Server) {
    process_until(driver, "the key is gone", |_| !exists(server, "job"));
    process_until(driver, "no undo is owed", |driver| !driver.has_pending_releases());
}

#[test]
fn too_few_replicas_delay_a_release() {
    let server = server();
    let (mut driver, id) = holding(&server);
    server.cmd("CONFIG SET min-replicas-to-write 1");
    assert_eq!(release(&mut driver, id), 0, "an error does not confirm");
    assert!(exists(&server, "job"));
    assert!(driver.has_pending_releases());
    server.cmd("CONFIG SET min-replicas-to-write 0");
    gone(&mut driver, &server);
}

#[test]
fn too_few_replicas_and_lost_connections_delay_a_release() {
    let server = server();
    let (mut driver, id) = holding(&server);
    server.cmd("CONFIG SET min-replicas-to-write 1");
    assert_eq!(release(&mut driver, id), 0);
    for _ in 0..5 {
        server.cmd("SCRIPT FLUSH");
        server.cmd("CLIENT KILL TYPE normal SKIPME yes");
        let until = Instant::now() + Duration::from_millis(60);
        process_until(&mut driver, "a moment", |_| Instant::now() > until);
        assert!(exists(&server, "job"));
    }
    server.cmd("CONFIG SET min-replicas-to-write 0");
    gone(&mut driver, &server);
}

#[test]
fn a_password_set_while_the_lock_is_held_delays_its_release() {
    let server = server();
    let (mut driver, id) = holding(&server);
    let mut admin = server.connect();
    admin.cmd("CONFIG SET requirepass secret");
    assert_eq!(admin.cmd("AUTH secret"), Reply::Status("OK".into()));
    admin.cmd("CLIENT KILL TYPE normal SKIPME yes");
    assert_eq!(release(&mut driver, id), 0);
    let until = Instant::now() + Duration::from_millis(300);
    process_until(&mut driver, "a moment", |_| Instant::now() > until);
    assert_eq!(admin.cmd("EXISTS job"), Reply::Int(1));
    admin.cmd("CONFIG SET requirepass ");
    assert_eq!(admin.run(&[b"CONFIG", b"SET", b"requirepass", b""]), Reply::Status("OK".into()));
    gone(&mut driver, &server);
}

#[test]
fn a_stop_delays_a_release() {
    let server = server();
    let mut driver = driver_of(
        patient([server.address()])
            .response_timeout(Duration::from_millis(50))
            .dead_peer_timeout(Duration::from_millis(100))
            .connect_timeout(Duration::from_millis(100)),
    );
    let id = held_by(&mut driver, long(b"job").wait(redbolt::Wait::UpTo(crate::support::LIMIT)));
    server.pause();
    assert_eq!(release(&mut driver, id), 0);
    // The connection is given up, and so are later ones to the silent server.
    let until = Instant::now() + Duration::from_millis(500);
    process_until(&mut driver, "a moment", |_| Instant::now() > until);
    server.resume();
    gone(&mut driver, &server);
}

/// A request in a dead connection runs after the undo on the next connection, unless that
/// connection first kills the dead one.
#[test]
fn a_request_from_a_dead_connection_leaves_no_key() {
    for _ in 0..3 {
        let server = server();
        let proxy = Proxy::before(&server.address());
        let mut driver = leave_ghost(&proxy);
        // The undo is complete before the request arrives.
        process_until(&mut driver, "the undo is confirmed", |driver| {
            calls(&server, "eval") > 0 && !driver.has_pending_releases()
        });
        proxy.set(Mode::Pass);
        // By then the server has run what it has read.
        let until = Instant::now() + Duration::from_millis(200);
        process_until(&mut driver, "the ghost's time", |_| Instant::now() > until);
        assert!(calls(&server, "client|kill") > 0);
        assert!(!exists(&server, "job"), "the request ran after its undo");
    }
}

/// Without permission to kill connections, the client sends the undo again at half of the TTL.
#[test]
fn a_ghost_without_a_kill_is_undone_at_half_of_the_ttl() {
    let server = server();
    server.cmd("ACL SETUSER default -client|kill");
    let proxy = Proxy::before(&server.address());
    let mut driver = leave_ghost(&proxy);
    process_until(&mut driver, "the first undo", |_| calls(&server, "eval") > 0);
    proxy.set(Mode::Pass);
    eventually("the request runs after its undo", || exists(&server, "job"));
    gone(&mut driver, &server);
    assert!(calls(&server, "eval") + calls(&server, "evalsha") > 1);
}

/// Makes an acquisition fail whose request is in a connection that the client has lost and the
/// server has not.
fn leave_ghost(proxy: &Proxy) -> Driver {
    let mut driver = driver_of(patient([proxy.address()]));
    let ready = |driver: &mut Driver| driver.node_report().ready() == 1;
    process_until(&mut driver, "the node is ready", ready);
    proxy.set(Mode::Stall);
    let request = redbolt::LockRequest::new(b"job").ttl(Duration::from_secs(8));
    let id = driver.acquire(request).unwrap();
    let until = Instant::now() + Duration::from_millis(20);
    process_until(&mut driver, "the request is in the proxy", |_| Instant::now() > until);
    proxy.set(Mode::Orphan);
    match outcome(&mut driver, id) {
        Event::Refused(_, refusal) => assert_eq!(refusal.reason, RefusalReason::NoQuorum),
        other => panic!("{other:?}"),
    }
    driver
}

#[test]
fn a_connection_cut_before_a_stopped_server_leaves_no_key() {
    let server = server();
    let proxy = Proxy::before(&server.address());
    let mut driver = driver_of(patient([proxy.address()]));
    process_until(&mut driver, "the node is ready", |driver| driver.node_report().ready() == 1);
    server.pause();
    let id = driver.acquire(long(b"job")).unwrap();
    let until = Instant::now() + Duration::from_millis(50);
    process_until(&mut driver, "the request is in the server's socket", |_| Instant::now() > until);
    proxy.set(Mode::Refuse);
    assert!(matches!(outcome(&mut driver, id), Event::Refused(..)));
    proxy.set(Mode::Pass);
    server.resume();
    process_until(&mut driver, "the request has run", |_| calls(&server, "set") > 0);
    gone(&mut driver, &server);
}

/// A node that grants long after the quorum takes part in everything that follows.
#[test]
fn a_late_grant_is_kept_and_released() {
    let servers = servers(3);
    let mut driver = driver_of(patient(servers.iter().map(Server::address)));
    process_until(&mut driver, "all nodes are ready", |driver| driver.node_report().ready() == 3);
    servers[2].pause();
    let id = held_by(&mut driver, long(b"job"));
    servers[2].resume();
    process_until(&mut driver, "the late grant", |_| exists(&servers[2], "job"));
    driver.extend(id, Duration::from_secs(29)).unwrap();
    assert_eq!(outcome(&mut driver, id), Event::Extended(id));
    assert!(release(&mut driver, id) >= 2);
    process_until(&mut driver, "all keys are gone", |driver| !driver.has_pending_releases());
    assert_eq!(held_on(&servers, "job"), 0);
}

#[test]
fn a_grant_that_arrives_after_the_release_is_undone() {
    let servers = servers(3);
    let mut driver = driver_of(patient(servers.iter().map(Server::address)));
    process_until(&mut driver, "all nodes are ready", |driver| driver.node_report().ready() == 3);
    servers[2].pause();
    let id = held_by(&mut driver, long(b"job"));
    assert_eq!(release(&mut driver, id), 2);
    assert!(driver.has_pending_releases(), "the stopped node has not confirmed");
    servers[2].resume();
    process_until(&mut driver, "all keys are gone", |driver| !driver.has_pending_releases());
    assert_eq!(calls(&servers[2], "set"), 1, "the request has run");
    assert_eq!(held_on(&servers, "job"), 0);
}

/// Ends a holder while the last server is still working: one answer has arrived and was not read,
/// and the server is executing the next request.
fn end_before_an_answer<H>(
    mut holder: H,
    servers: &[Server],
    hold: impl Fn(&mut H, &'static [u8]),
) {
    let last = &servers[2];
    hold(&mut holder, b"one");
    eventually("all nodes grant", || held_on(servers, "one") == 3);
    let mut busy = [last.connect(), last.connect()];
    busy.iter_mut().for_each(|connection| drop(connection.cmd("PING")));
    last.pause();
    hold(&mut holder, b"two");
    be_busy(&mut busy[0]);
    last.resume();
    // Now the server has read the second request, is busy, and has not answered yet.
    std::thread::sleep(MOMENT);
    hold(&mut holder, b"three");
    be_busy(&mut busy[1]);
    busy[0].reply();
    std::thread::sleep(MOMENT);
    drop(holder);
    busy[1].reply();
    for key in ["one", "two", "three"] {
        eventually("no key is left", || held_on(servers, key) == 0);
    }
}

/// The time in which the server reads the second request. If it takes longer, it reads more at
/// once, and the test proves less.
const MOMENT: Duration = Duration::from_millis(100);

/// Keeps a server busy for half a second. Requests that it read in the same loop iteration are
/// answered afterwards.
fn be_busy(connection: &mut Connection) {
    let script = "local function now() local t = redis.call('TIME') return t[1] + t[2] / 1e6 end \
                  local over = now() + 0.5 local n = 0 \
                  while now() < over and n < 3e6 do n = n + 1 end return n";
    let words = format!("*3\r\n$4\r\nEVAL\r\n${}\r\n{script}\r\n$1\r\n0\r\n", script.len());
    connection.send(words.as_bytes());
}

/// Closing a socket with unread answers sends a reset, and a server that cannot answer drops unread
/// requests, such as the undo.
#[test]
fn a_client_dropped_with_unread_answers_still_undoes() {
    let servers = servers(3);
    let client = warm_client(builder(&servers));
    end_before_an_answer(client, &servers, |client, key| {
        std::mem::forget(client.acquire(long(key)).unwrap());
    });
}

#[test]
fn a_driver_dropped_with_unread_answers_still_undoes() {
    let servers = servers(3);
    let mut driver = driver_of(builder(&servers));
    process_until(&mut driver, "all nodes are ready", |driver| driver.node_report().ready() == 3);
    end_before_an_answer(driver, &servers, |driver, key| {
        held_by(driver, long(key));
    });
}
