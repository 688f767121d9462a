//! Releases that use a server's own compare-and-delete command, on embedded nodes with the command
//! and on real servers with or without it.

use std::net::Ipv4Addr;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use redbolt::config::WakeStrategy;
use redbolt::proto::script::UNDO;
use redbolt::{Client, LockGuard};
use redbolt_node::Node;
use redbolt_node::model::{ClockReading, Denial, Store};
use redbolt_test_servers::{Connection, Reply};
use sha1_smol::Sha1;

use crate::support::{
    builder, calls, eventually, held_on, long, patient, patiently, servers, warm_client,
};

/// Starts three nodes that have these commands.
fn nodes(commands: &[&'static str], prepare: impl Fn(&mut Store)) -> Vec<Node> {
    let node = |name: char| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let now = ClockReading::from_micros(now.as_micros() as u64);
        let mut store = Store::new(&String::from_iter([name; 40]), now);
        store.offer(commands);
        prepare(&mut store);
        Node::serving(store, (Ipv4Addr::LOCALHOST, 0).into()).unwrap()
    };
    ['a', 'b', 'c'].map(node).into()
}

fn client_of(nodes: &[Node]) -> Client {
    let addresses = nodes.iter().map(|node| node.address().to_string());
    warm_client(patient(addresses).new_nodes().wake(WakeStrategy::Queue))
}

fn run(node: &Node, words: &[&str]) -> Reply {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    Connection::open(&node.address().to_string()).run(&words)
}

/// Returns `true` if the undo's script has run since [`forget_scripts`].
fn has_run_undo(node: &Node) -> bool {
    let digest = Sha1::from(UNDO.text).digest().to_string();
    run(node, &["SCRIPT", "EXISTS", &digest]) == Reply::Array(vec![Reply::Int(1)])
}

fn forget_scripts(nodes: &[Node]) {
    for node in nodes {
        assert_eq!(run(node, &["SCRIPT", "FLUSH"]), Reply::Status("OK".into()));
    }
}

fn is_free(node: &Node) -> bool {
    run(node, &["EXISTS", "job"]) == Reply::Int(0)
}

#[test]
fn a_release_on_nodes_that_can_compare_and_delete_runs_no_script() {
    for commands in [&["delifeq"][..], &["delex"], &["delex", "delifeq"]] {
        let nodes = nodes(commands, |_| {});
        let client = client_of(&nodes);
        let lock = client.acquire(long(b"job")).unwrap();
        eventually("all have granted", || nodes.iter().all(|node| !is_free(node)));
        forget_scripts(&nodes);
        assert!(lock.release().is_ok());
        eventually("all nodes have released it", || nodes.iter().all(is_free));
        assert!(!nodes.iter().any(has_run_undo), "{commands:?}");
    }
}

#[test]
fn a_node_that_forbids_the_command_is_sent_the_script() {
    for denial in [Denial::Forbidden, Denial::RenamedAway] {
        let nodes = nodes(&["delifeq"], |store| store.deny("delifeq", Some(denial)));
        let client = client_of(&nodes);
        let lock = client.acquire(long(b"job")).unwrap();
        eventually("all have granted", || nodes.iter().all(|node| !is_free(node)));
        forget_scripts(&nodes);
        assert!(lock.release().is_ok());
        eventually("all nodes have released it", || nodes.iter().all(is_free));
        eventually("by the script", || nodes.iter().all(has_run_undo));
    }
}

/// The waiter has put a mark on the lock's token meanwhile, so the plain compare-and-delete would
/// not match.
#[test]
fn the_release_of_a_plain_lock_calls_a_waiter_in_the_queue() {
    let nodes = nodes(&["delifeq"], |_| {});
    whoever_waits_gets_it_when(&nodes, |held| {
        assert!(held.release().is_ok());
    });
    eventually("nothing is left", || nodes.iter().all(is_free));
}

/// The holder's client sleeps and reads no answers.
#[test]
fn a_waiter_in_the_queue_gets_a_lock_whose_guard_was_dropped() {
    let nodes = nodes(&["delifeq"], |_| {});
    whoever_waits_gets_it_when(&nodes, |held| drop(held));
}

/// Checks that a waiter in the queue gets the lock after it is released in this way.
fn whoever_waits_gets_it_when(nodes: &[Node], let_go: impl FnOnce(LockGuard<'_>)) {
    let (one, two) = (client_of(nodes), client_of(nodes));
    let held = one.acquire(long(b"job")).unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(move || drop(two.acquire(patiently(b"job")).unwrap()));
        let stands = |node| run(node, &["ZCARD", "redbolt:line:job"]) == Reply::Int(1);
        eventually("it waits in the queue", || {
            nodes.iter().filter(|node| stands(node)).count() > 1
        });
        let_go(held);
        waiting.join().unwrap();
    });
}

/// Debian's server does not have the command; Valkey 9 and Redis 8.4 do.
#[test]
fn a_server_without_the_command_is_sent_the_script() {
    let servers = servers(3);
    let client = warm_client(builder(&servers));
    let lock = client.acquire(long(b"job")).unwrap();
    eventually("all have granted", || held_on(&servers, "job") == 3);
    for server in &servers {
        server.cmd("CONFIG RESETSTAT");
    }
    assert!(lock.release().is_ok());
    eventually("all nodes have released it", || held_on(&servers, "job") == 0);
    for server in &servers {
        let knows = |command: &str| server.cmd(&format!("COMMAND INFO {command}")) != unknown();
        let native = u64::from(knows("delifeq") || knows("delex"));
        assert_eq!(calls(server, "delifeq") + calls(server, "delex"), native);
        assert_eq!(calls(server, "eval") + calls(server, "evalsha"), 1 - native);
    }
}

fn unknown() -> Reply {
    Reply::Array(vec![Reply::Nil])
}
