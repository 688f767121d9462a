//! What a program has left after its locks are over: no thread, no file descriptor, no key.
//!
//! A test binary of its own, with one test, because threads and descriptors are those of the whole
//! program.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::time::{Duration, Instant};

use redbolt::{Ask, Config, Engine, EngineLimits, Wait};
use redbolt_proving::{Reply, Server, servers};

#[test]
fn ten_thousand_cancelled_waits_leave_nothing() {
    let servers = servers(3);
    // A first engine, so that whatever a program makes once has been made.
    wait_in_vain(&servers, 10);
    let before = left();
    wait_in_vain(&servers, 10_000);
    assert_eq!(left(), before);
    for server in &servers {
        // The guard of the node is all.
        assert_eq!(server.cmd("DBSIZE"), Reply::Int(1));
        let until = Instant::now() + PATIENCE;
        while connected(server) {
            assert!(Instant::now() < until, "a connection is left");
        }
    }
}

/// Waits for a lock that another one of the same engine holds, and gives up, so many times.
fn wait_in_vain(servers: &[Server], times: usize) {
    let engine = Engine::start(config(servers), EngineLimits::default()).unwrap();
    let ask = Ask::new(b"job").ttl(LONGEST).wait(Wait::For(PATIENCE));
    let guard = engine.acquire(ask.clone()).wait().unwrap();
    for _ in 0..times / CROWD {
        let crowd: Vec<_> = (0..CROWD).map(|_| engine.acquire(ask.clone())).collect();
        // Half of them are dropped while they are asked for, the others while they pause.
        let (at_once, later): (Vec<_>, Vec<_>) =
            crowd.into_iter().enumerate().partition(|(at, _)| at % 2 == 0);
        drop(at_once);
        std::thread::sleep(Duration::from_millis(1));
        drop(later);
    }
    assert!(guard.is_valid());
    drop(guard);
    let report = engine.shutdown(PATIENCE);
    assert!(report.is_clean(), "{report}");
}

/// The program's threads and descriptors.
fn left() -> (usize, usize) {
    let entries = |folder: &str| fs::read_dir(folder).unwrap().count();
    (entries("/proc/self/task"), entries("/proc/self/fd"))
}

fn connected(server: &Server) -> bool {
    match server.cmd("CLIENT LIST") {
        Reply::Bulk(list) => String::from_utf8(list).unwrap().contains(" name=redbolt "),
        other => panic!("{other:?}"),
    }
}

fn config(servers: &[Server]) -> Config {
    let builder = Config::builder().answer_within(PATIENCE).dead_after(2 * PATIENCE);
    let add = |builder: redbolt::ConfigBuilder, server: &Server| builder.node(&server.address());
    servers.iter().try_fold(builder, add).unwrap().new_nodes().build().unwrap()
}

/// So many wait at a time.
const CROWD: usize = 10;

/// The longest TTL that the default configuration takes: all waits are over before.
const LONGEST: Duration = Duration::from_secs(30);

/// Far longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(10);
