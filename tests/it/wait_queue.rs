//! Many waiters in one process form a queue, and disturb neither one another nor the nodes.

use std::sync::{Barrier, Mutex};
use std::thread;

use redbolt::{Event, LockId, Wait, report::LockState};
use redbolt_test_servers::Server;

use crate::engine::engine;
use crate::support::{
    LIMIT, builder, calls, driver_of, eventually, held_on, long, patiently, process_until, servers,
};

/// The number of waiters for one resource.
const CROWD: usize = 200;

/// The expected number of requests: one for each grant, and a few more. A waiter outside the queue
/// would double them.
const ASKS: u64 = CROWD as u64 + CROWD as u64 / 20;

fn sets(servers: &[Server]) -> Vec<u64> {
    servers.iter().map(|server| calls(server, "set")).collect()
}

#[test]
fn a_driver_s_waiters_are_granted_in_the_order_of_their_requests() {
    for n in [1, 3, 5] {
        let servers = servers(n);
        let mut driver = driver_of(builder(&servers));
        process_until(&mut driver, "all nodes are ready", |driver| {
            driver.node_report().ready() == n
        });
        let before = sets(&servers);
        let ids: Vec<_> = (0..CROWD).map(|_| driver.acquire(patiently(b"job")).unwrap()).collect();
        let mut order = Vec::new();
        process_until(&mut driver, "all locks were granted", |driver| {
            while let Some(event) = driver.poll_event() {
                match event {
                    Event::Granted(id) => {
                        assert!(order.len() < CROWD);
                        let inside = |&&of: &&LockId| driver.state(of) == LockState::Held;
                        assert_eq!(ids.iter().filter(inside).count(), 1, "one at a time");
                        order.push(id);
                        driver.release(id);
                    }
                    Event::Refused(_, refusal) => panic!("{}", driver.report(&refusal)),
                    _ => {}
                }
            }
            order.len() == CROWD && !driver.has_pending_releases()
        });
        assert_eq!(order, ids);
        for (requests, before) in sets(&servers).into_iter().zip(before) {
            assert!(requests - before <= ASKS, "{} requests for {CROWD} grants", requests - before);
        }
        assert_eq!(held_on(&servers, "job"), 0);
    }
}

#[test]
fn an_engine_s_threads_are_granted_in_the_order_of_their_requests() {
    let servers = servers(3);
    let engine = engine(&servers);
    let holder = engine.acquire(patiently(b"job")).wait().unwrap();
    let before = sets(&servers);
    let asked: Vec<_> =
        (0..CROWD).map(|_| engine.acquire(long(b"job").wait(Wait::UpTo(2 * LIMIT)))).collect();
    let (order, begin) = (Mutex::new(Vec::new()), Barrier::new(CROWD + 1));
    thread::scope(|scope| {
        for (number, asked) in asked.into_iter().enumerate() {
            let (order, begin) = (&order, &begin);
            scope.spawn(move || {
                begin.wait();
                let guard = asked.wait().unwrap();
                // No other thread holds the lock here, so this records the order of the grants.
                order.lock().unwrap().push(number);
                assert!(guard.release().wait().is_ok());
            });
        }
        begin.wait();
        drop(holder);
    });
    assert_eq!(order.into_inner().unwrap(), (0..CROWD).collect::<Vec<_>>());
    for (requests, before) in sets(&servers).into_iter().zip(before) {
        assert!(requests - before <= ASKS, "{} requests for {CROWD} grants", requests - before);
    }
    eventually("no key is left", || held_on(&servers, "job") == 0);
}

/// Waiters that are cancelled, time out or are granted leave the queue alike.
#[test]
fn a_waiter_that_leaves_the_queue_lets_the_next_one_ask() {
    let servers = servers(3);
    let mut other = driver_of(builder(&servers));
    let held = crate::support::held_by(&mut other, long(b"job"));
    let mut driver = driver_of(builder(&servers));
    let soon = std::time::Duration::from_secs(3);
    let first = driver.acquire(patiently(b"job")).unwrap();
    let second = driver.acquire(long(b"job").wait(Wait::UpTo(soon))).unwrap();
    let third = driver.acquire(patiently(b"job")).unwrap();
    let both = driver.acquire(patiently(b"job").and(b"free")).unwrap();
    process_until(&mut driver, "the first asks", |driver| {
        driver.state(first) == LockState::Pausing
    });
    for id in [second, third, both] {
        assert_eq!(driver.state(id), LockState::Queued);
    }
    driver.release(first);
    process_until(&mut driver, "the second waiter times out", |driver| {
        driver.state(second) == LockState::Unknown
    });
    process_until(&mut driver, "the third asks", |driver| {
        driver.state(third) == LockState::Pausing
    });
    other.release(held);
    process_until(&mut driver, "the lock is granted", |driver| {
        other.process();
        driver.state(third) == LockState::Held
    });
    assert_eq!(driver.state(both), LockState::Queued);
    driver.release(third);
    process_until(&mut driver, "the last lock is held", |driver| {
        driver.state(both) == LockState::Held
    });
}

/// Locks on two resources, in either order, do not deadlock.
#[test]
fn locks_on_the_same_two_resources_follow_one_another() {
    let servers = servers(3);
    let engine = engine(&servers);
    thread::scope(|scope| {
        for number in 0..20 {
            let engine = engine.clone();
            let (one, other) = if number % 2 == 0 { (b"a", b"b") } else { (b"b", b"a") };
            scope.spawn(move || {
                for _ in 0..5 {
                    let guard = engine.acquire(patiently(one).and(other)).wait().unwrap();
                    assert!(guard.release().wait().is_ok());
                }
            });
        }
    });
    eventually("no key is left", || held_on(&servers, "a") + held_on(&servers, "b") == 0);
}
