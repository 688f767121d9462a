//! The server around the store: start and stop, limits, and bytes that arrive in pieces.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use redbolt_node::{
    Memory, Node,
    model::{ClockReading, Store},
};
use redbolt_test_servers::{Connection, Reply};
use socket2::{Domain, Socket, Type};

fn connect(node: &Node) -> Connection {
    Connection::open(&node.address().to_string())
}

fn ok() -> Reply {
    Reply::Status("OK".into())
}

#[test]
fn a_stopped_node_refuses_connections_and_comes_back_on_its_port() {
    let mut node = Node::start().unwrap();
    let address = node.address();
    let mut before = connect(&node);
    assert_eq!(before.cmd("SET k v"), ok());
    let run_id = run_id(&mut before);

    node.stop(Memory::Kept);
    assert_eq!(before.rest(), b"", "open connections end");
    assert!(TcpStream::connect(address).is_err());
    node.stop(Memory::Lost);

    node.start_again().unwrap();
    node.start_again().unwrap();
    assert_eq!(node.address(), address);
    let mut after = connect(&node);
    assert_eq!(after.cmd("GET k"), Reply::Bulk(b"v".to_vec()), "the second stop changed nothing");
    assert_ne!(self::run_id(&mut after), run_id);

    node.stop(Memory::Lost);
    node.start_again().unwrap();
    assert_eq!(connect(&node).cmd("GET k"), Reply::Nil);
}

#[test]
fn a_dropped_node_closes_its_socket() {
    let node = Node::start().unwrap();
    let (address, mut client) = (node.address(), connect(&node));
    assert_eq!(client.cmd("SET k v"), ok());
    drop(node);
    assert_eq!(client.rest(), b"");
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn a_node_serves_a_prepared_store() {
    let mut store = Store::new("mine", ClockReading::from_millis(0));
    store.require_password("sesame");
    let node = Node::serving(store, SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let mut client = connect(&node);
    assert_eq!(client.cmd("GET k"), Reply::Error("NOAUTH Authentication required.".into()));
    assert_eq!(client.cmd("AUTH sesame"), ok());
    assert_eq!(run_id(&mut client), "mine");
}

/// Servers other than Redis 7.0 have these commands in place of a script.
#[test]
fn a_node_compares_and_deletes_if_it_offers_the_commands() {
    let mut store = Store::new("mine", ClockReading::from_millis(0));
    store.offer(&["delifeq", "delex"]);
    let node = Node::serving(store, SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let mut client = connect(&node);
    for (command, answer) in [
        ("DELIFEQ k v", Reply::Int(0)),
        ("SET k v", ok()),
        ("DELIFEQ k other", Reply::Int(0)),
        ("DELIFEQ k v", Reply::Int(1)),
        ("EXISTS k", Reply::Int(0)),
        ("SET k v", ok()),
        ("DELEX k IFEQ other", Reply::Int(0)),
        ("DELEX k ifeq v", Reply::Int(1)),
        ("DELEX k IFEQ v", Reply::Int(0)),
        ("SET k v", ok()),
        ("DELEX k", Reply::Int(1)),
    ] {
        assert_eq!(client.cmd(command), answer, "{command}");
    }
    for command in ["DELEX k IFEQ", "DELEX k IFOTHER v", "DELIFEQ k"] {
        assert!(matches!(client.cmd(command), Reply::Error(_)), "{command}");
    }
    let plain = Node::start().unwrap();
    for command in ["DELIFEQ k v", "DELEX k IFEQ v"] {
        let Reply::Error(text) = connect(&plain).cmd(command) else { panic!("{command} is known") };
        assert!(text.starts_with("ERR unknown command 'DEL"), "{text}");
    }
}

#[test]
fn a_killed_client_reads_the_end_and_a_killer_of_itself_its_reply_first() {
    let node = Node::start().unwrap();
    let (mut one, mut two) = (connect(&node), connect(&node));
    let Reply::Int(id) = one.cmd("CLIENT ID") else { panic!("an id is an integer") };
    assert_eq!(two.cmd(&format!("CLIENT KILL ID {id}")), Reply::Int(1));
    assert_eq!(one.rest(), b"");
    let Reply::Int(id) = two.cmd("CLIENT ID") else { panic!("an id is an integer") };
    assert_eq!(two.cmd(&format!("CLIENT KILL ID {id} SKIPME no")), Reply::Int(1));
    assert_eq!(two.rest(), b"");
}

#[test]
fn an_invalid_request_gets_an_error_and_ends_the_connection() {
    let node = Node::start().unwrap();
    let mut client = connect(&node);
    client.send(b"*1\r\n$4\r\nPING\r\nGET / HTTP/1.1\r\n\r\n");
    assert_eq!(client.reply(), Reply::Status("PONG".into()));
    let Reply::Error(text) = client.reply() else { panic!("an error is expected") };
    assert!(text.starts_with("ERR Protocol error: "), "{text}");
    assert_eq!(client.rest(), b"");
    assert_eq!(connect(&node).cmd("PING"), Reply::Status("PONG".into()));
}

/// The node must stop reading, serve others meanwhile, and still answer everything once the client
/// reads: there are far more replies than the node and the kernel buffer for one client.
#[test]
fn a_client_that_does_not_read_stalls_only_itself() {
    let node = Node::start().unwrap();
    let (count, payload) = (600, vec![b'x'; 100_000]);
    let request = [b"*2\r\n$4\r\nECHO\r\n$100000\r\n", &payload[..], b"\r\n"].concat();

    let mut greedy = TcpStream::connect(node.address()).unwrap();
    greedy.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut writing = greedy.try_clone().unwrap();
    let written = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&written);
    let writer = thread::spawn(move || {
        for _ in 0..count {
            writing.write_all(&request).unwrap();
            counter.fetch_add(1, Relaxed);
        }
    });
    assert!(
        where_it_rests(&written) < count,
        "the node reads on although its replies are not read"
    );
    assert_eq!(connect(&node).cmd("PING"), Reply::Status("PONG".into()));

    let mut replies = vec![0; count * (payload.len() + "$100000\r\n\r\n".len())];
    greedy.read_exact(&mut replies).unwrap();
    writer.join().unwrap();
    assert!(replies.ends_with(b"xx\r\n"));
}

/// The node cannot slow down the clients that change keys, so it ends the subscriber, as a real
/// server does.
#[test]
fn a_subscriber_that_does_not_read_is_ended() {
    let node = Node::start().unwrap();
    let (mut deaf, mut tracker) = (connect(&node), connect(&node));
    let Reply::Int(id) = deaf.cmd("CLIENT ID") else { panic!("an id is an integer") };
    deaf.cmd("SUBSCRIBE __redis__:invalidate");
    let key = "k".repeat(500_000);
    let track = format!("CLIENT TRACKING ON REDIRECT {id}");
    assert_eq!(tracker.cmd(&track), ok());
    let mut reported = 0;
    while tracker.cmd(&track) == ok() {
        tracker.cmd(&format!("GET {key}"));
        assert_eq!(tracker.cmd(&format!("SET {key} v")), ok());
        reported += 1;
        assert!(reported < 200, "100 MB are buffered for a subscriber that does not read");
    }
    assert!(reported > 10, "a little is buffered for it");
    assert_eq!(connect(&node).cmd("PING"), Reply::Status("PONG".into()));
}

/// Returns the count once it has stopped changing for a while.
fn where_it_rests(count: &AtomicUsize) -> usize {
    let mut last = usize::MAX;
    for _ in 0..100 {
        let now = count.load(Relaxed);
        if now == last {
            return now;
        }
        last = now;
        thread::sleep(Duration::from_millis(200));
    }
    panic!("the count still grows after 20 seconds, at {last}");
}

fn run_id(client: &mut Connection) -> String {
    let Reply::Bulk(info) = client.cmd("INFO server") else { panic!("INFO is a bulk string") };
    let info = String::from_utf8(info).unwrap();
    info.lines().find_map(|line| line.strip_prefix("run_id:")).unwrap().to_owned()
}

/// Other tests open sockets at any time, and the kernel gives them any port that is free.
#[test]
fn the_port_is_never_free_while_a_node_stops_and_starts() {
    let mut node = Node::start().unwrap();
    let address = node.address();
    let ends = Arc::new(AtomicBool::new(false));
    let is_over = Arc::clone(&ends);
    let other = thread::spawn(move || {
        while !is_over.load(Relaxed) {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            if socket.bind(&address.into()).is_ok() {
                return true;
            }
        }
        false
    });
    let started = (0..300).try_for_each(|_| {
        node.stop(Memory::Kept);
        node.start_again()
    });
    ends.store(true, Relaxed);
    assert!(!other.join().unwrap(), "another socket got the port");
    started.unwrap();
}
