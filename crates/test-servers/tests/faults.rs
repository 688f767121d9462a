//! The proxy and the impostors behave as documented, against a real server.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use redbolt_test_servers::{Act, Connection, Impostor, Mode, Proxy, Reply, Server};

fn pong() -> Reply {
    Reply::Status("PONG".into())
}

#[test]
fn the_proxy_passes_the_same_replies_in_every_harmless_mode() {
    let server = Server::start();
    let proxy = Proxy::before(&server.address());
    let mut connection = Connection::open(&proxy.address());
    for mode in [Mode::Pass, Mode::Bytes, Mode::Coalesce(Duration::from_millis(5)), Mode::Pass] {
        proxy.set(mode);
        let payload = [b'x'; 3000];
        assert_eq!(connection.run(&[b"ECHO", &payload]), Reply::Bulk(payload.to_vec()), "{mode:?}");
    }
}

#[test]
fn coalescing_joins_replies_that_came_apart() {
    let server = Server::start();
    let proxy = Proxy::before(&server.address());
    proxy.set(Mode::Coalesce(Duration::from_millis(200)));
    let mut stream = TcpStream::connect(proxy.address()).unwrap();
    stream.set_nodelay(true).unwrap();
    // A proxy in `Mode::Pass` would forward these two writes separately.
    stream.write_all(b"PING\r\n").unwrap();
    stream.write_all(b"PING\r\n").unwrap();
    let mut buffer = [0; 64];
    let length = stream.read(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"+PONG\r\n+PONG\r\n");
}

#[test]
fn a_cut_delivers_exactly_its_number_of_bytes_and_can_be_set_again() {
    let server = Server::start();
    let proxy = Proxy::before(&server.address());
    let mut connection = Connection::open(&proxy.address());
    assert_eq!(connection.cmd("PING"), pong());
    proxy.set(Mode::CutAfter(10));
    assert_eq!(connection.cmd("PING"), pong());
    connection.send(b"PING\r\n");
    assert_eq!(connection.rest(), b"+PO");
}

#[test]
fn a_stall_holds_bytes_and_loses_none() {
    let server = Server::start();
    let proxy = Proxy::before(&server.address());
    proxy.set(Mode::Stall);
    let mut connection = Connection::open(&proxy.address());
    connection.send(b"PING\r\n");
    assert!(connection.is_silent_for(Duration::from_millis(100)));
    proxy.set(Mode::Pass);
    assert_eq!(connection.reply(), pong());
}

#[test]
fn a_refusal_ends_old_connections_and_new_ones() {
    let server = Server::start();
    let proxy = Proxy::before(&server.address());
    let mut old = Connection::open(&proxy.address());
    assert_eq!(old.cmd("PING"), pong());
    proxy.set(Mode::Refuse);
    assert_eq!(old.rest(), b"");
    assert!(Connection::open(&proxy.address()).try_run(&[b"PING"]).is_err());
    proxy.set(Mode::Pass);
    assert_eq!(Connection::open(&proxy.address()).cmd("PING"), pong());
}

#[test]
fn a_proxy_dropped_in_a_stall_ends() {
    let server = Server::start();
    let proxy = Proxy::before(&server.address());
    proxy.set(Mode::Stall);
    let mut connection = Connection::open(&proxy.address());
    connection.send(b"PING\r\n");
    assert!(connection.is_silent_for(Duration::from_millis(50)));
    drop(proxy);
    assert!(connection.try_reply().is_err());
}

#[test]
fn each_impostor_plays_its_part() {
    let meet = |act| {
        let impostor = Impostor::start(act);
        let connection = Connection::open(&impostor.address());
        (impostor, connection)
    };

    let (_silent, mut connection) = meet(Act::Silent);
    connection.send(b"PING\r\n");
    assert!(connection.is_silent_for(Duration::from_millis(50)));

    let (_close, mut connection) = meet(Act::Close);
    assert_eq!(connection.rest(), b"");

    let (_http, mut connection) = meet(Act::Http);
    connection.send(b"*1\r\n$4\r\nPING\r\n");
    assert!(connection.rest().starts_with(b"HTTP/1.1 400 Bad Request\r\n"));

    let (_garbage, mut connection) = meet(Act::Garbage);
    assert!(connection.try_reply().is_err());

    let (_denied, mut connection) = meet(Act::Denied);
    assert!(connection.rest().starts_with(b"-DENIED "));
}

#[test]
fn a_fixed_reply_answers_each_command_once() {
    let impostor = Impostor::start(Act::Always("-OOM command not allowed".into()));
    let mut connection = Connection::open(&impostor.address());
    let refused = Reply::Error("OOM command not allowed".into());
    assert_eq!(connection.cmd("SET a 1"), refused);
    assert_eq!(connection.run(&[b"SET", b"a\r\n*9\r\n", b""]), refused);
    connection.send(b"*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nPING\r\n");
    assert_eq!(connection.reply(), refused);
    assert_eq!(connection.reply(), refused);
    assert!(connection.is_silent_for(Duration::from_millis(50)));
}

#[test]
fn the_bytes_of_an_orphan_arrive_when_the_mode_changes() {
    let server = Server::start();
    let proxy = Proxy::before(&server.address());
    let mut old = Connection::open(&proxy.address());
    assert_eq!(old.cmd("PING"), pong());
    proxy.set(Mode::Stall);
    old.send(b"SET key ghost\r\n");
    proxy.set(Mode::Orphan);
    assert!(old.try_reply().is_err());
    let mut new = Connection::open(&proxy.address());
    assert_eq!(new.cmd("DEL key"), Reply::Int(0));
    proxy.set(Mode::Pass);
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while server.cmd("GET key") != Reply::Bulk(b"ghost".to_vec()) {
        assert!(std::time::Instant::now() < deadline, "the held bytes never arrived");
    }
    assert_eq!(new.cmd("PING"), pong());
}
