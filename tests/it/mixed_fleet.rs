//! A fleet in which clients of the old SETNX recipe and redbolt compete for one lock.
//!
//! `cargo test -p redbolt --test it -- mixed_fleet --nocapture` prints the sections per second of
//! each fleet.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use redbolt::{LockRequest, Profile, Wait};
use redbolt_test_servers::{Connection, Reply, Server};

use crate::support::{client, server};

/// The state that all clients of a fleet share.
#[derive(Default)]
struct Fleet {
    is_inside: AtomicBool,
    overlaps: AtomicUsize,
    sections: AtomicUsize,
    of_redbolt: AtomicUsize,
    is_over: AtomicBool,
}

impl Fleet {
    /// Works under the lock for a moment, as a client of the fleet.
    fn section(&self) {
        self.overlaps.fetch_add(self.is_inside.swap(true, SeqCst).into(), SeqCst);
        thread::sleep(SECTION);
        self.is_inside.store(false, SeqCst);
        self.sections.fetch_add(1, SeqCst);
    }

    fn goes_on(&self) -> bool {
        !self.is_over.load(SeqCst)
    }
}

fn now() -> f64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs_f64()
}

fn second_in(reply: &Reply) -> f64 {
    match reply {
        Reply::Bulk(value) => String::from_utf8_lossy(value).parse().unwrap_or(0.0),
        _ => 0.0,
    }
}

/// Follows the recipe once, and returns the end of the lease if it acquired the lock.
fn ask(connection: &mut Connection) -> Option<f64> {
    let ends = || now() + LEASE.as_secs_f64() + 1.0;
    let end = ends();
    let value = format!("{end:.6}");
    if connection.run(&[b"SETNX", KEY, value.as_bytes()]) == Reply::Int(1) {
        return Some(end);
    }
    if second_in(&connection.run(&[b"GET", KEY])) >= now() {
        return None;
    }
    // The lease has expired or was deleted. Another client may be as fast, so GETSET decides.
    let end = ends();
    let value = format!("{end:.6}");
    let before = connection.run(&[b"GETSET", KEY, value.as_bytes()]);
    (second_in(&before) < now()).then_some(end)
}

fn follow_recipe(fleet: &Fleet, server: &Server) {
    let mut connection = server.connect();
    while fleet.goes_on() {
        match ask(&mut connection) {
            None => thread::sleep(POLL),
            Some(end) => {
                fleet.section();
                // Within its lease, the recipe deletes the key without checking it.
                if now() < end {
                    connection.run(&[b"DEL", KEY]);
                }
            }
        }
    }
}

fn use_redbolt(fleet: &Fleet, server: &Server) {
    let client = client(std::slice::from_ref(server));
    let ask = LockRequest::new(KEY).format(Profile::SETNX).ttl(TTL).wait(Wait::Forever);
    while fleet.goes_on() {
        let lock = client.acquire(ask.clone()).unwrap();
        fleet.section();
        fleet.of_redbolt.fetch_add(1, SeqCst);
        assert!(lock.release().is_ok());
    }
}

/// Runs a fleet until it has completed this number of sections, and prints how many it did per
/// second.
fn run(members: usize, redbolts: usize, sections: usize) -> Fleet {
    let (server, fleet) = (server(), Fleet::default());
    let since = Instant::now();
    // All threads end before the figures are read.
    thread::scope(|scope| {
        for _ in 0..members {
            scope.spawn(|| follow_recipe(&fleet, &server));
        }
        for _ in 0..redbolts {
            scope.spawn(|| use_redbolt(&fleet, &server));
        }
        while fleet.sections.load(SeqCst) < sections && since.elapsed() < LIMIT {
            thread::sleep(POLL);
        }
        fleet.is_over.store(true, SeqCst);
    });
    let (done, took) = (fleet.sections.load(SeqCst), since.elapsed().as_secs_f64());
    let of_redbolt = fleet.of_redbolt.load(SeqCst);
    println!(
        "{members} members and {redbolts} of redbolt: {:.0} sections of 5 ms per second, {of_redbolt} of {done} by redbolt",
        done as f64 / took
    );
    assert!(done >= sections, "{done} of {sections} sections in {took:.1} s");
    assert_eq!(fleet.overlaps.load(SeqCst), 0, "two clients held the lock at once");
    fleet
}

/// A client of the recipe that loses overwrites the value that redbolt has set. If redbolt's
/// release left that value, every client would wait for ten minutes.
#[test]
fn a_mixed_fleet_of_the_recipe_of_setnx_does_not_wait_for_a_ttl() {
    run(6, 0, SECTIONS);
    let mixed = run(4, 2, SECTIONS);
    assert!(mixed.of_redbolt.load(SeqCst) > 0);
    let few = run(2, 4, SECTIONS);
    assert!(few.of_redbolt.load(SeqCst) > 0);
}

const KEY: &[u8] = b"job";

/// The lease of a client of the recipe, which a run must not wait for: it far exceeds
/// [`LIMIT`].
const LEASE: Duration = Duration::from_secs(600);

/// The TTL of the locks that redbolt acquires.
const TTL: Duration = Duration::from_secs(20);

const SECTION: Duration = Duration::from_millis(5);

/// The time after which a client of the recipe asks again.
const POLL: Duration = Duration::from_millis(5);

const SECTIONS: usize = 500;

/// A limit far longer than a busy machine needs.
const LIMIT: Duration = Duration::from_secs(60);
