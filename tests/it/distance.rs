//! Nodes near and far with the default timeouts, which need no tuning to a network.

use std::time::{Duration, Instant};

use redbolt::{Client, LockRequest, Wait};
use redbolt_test_servers::{Mode, Proxy, Server};

use crate::support::{LIMIT, client_of, default, once_in, servers};

/// Returns proxies that add this to each round trip.
fn far(servers: &[Server], round_trip: Duration) -> Vec<Proxy> {
    let before = |server: &Server| {
        let proxy = Proxy::before(&server.address());
        proxy.set(Mode::Coalesce(round_trip / 2));
        proxy
    };
    servers.iter().map(before).collect()
}

const DISTANCES: [Duration; 3] =
    [Duration::from_micros(100), Duration::from_millis(80), Duration::from_millis(600)];

#[test]
fn a_lock_is_taken_extended_and_released_over_any_distance() {
    for distance in DISTANCES {
        let servers = servers(3);
        let proxies = far(&servers, distance);
        // A machine that stalls for a second is farther away than the default timeouts allow.
        let is_taken = || {
            let client = client_of(default(proxies.iter().map(Proxy::address)));
            // This works from the first contact on, with `Wait::No`.
            (0..2).try_for_each(|_| is_taken_extended_and_released(&client))
        };
        let is_taken = || is_taken().inspect_err(|why| println!("{distance:?}: {why}")).is_ok();
        assert!(once_in(5, is_taken), "{distance:?}");
    }
}

fn is_taken_extended_and_released(client: &Client) -> Result<(), String> {
    let mut lock =
        client.acquire(LockRequest::new(b"job")).map_err(|refused| refused.to_string())?;
    lock.extend(Duration::from_secs(20)).map_err(|refused| refused.to_string())?;
    match lock.release() {
        Ok(confirmed) if confirmed.nodes >= 2 => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

#[test]
fn a_waiter_gets_the_lock_over_any_distance() {
    for distance in DISTANCES {
        let servers = servers(3);
        let proxies = far(&servers, distance);
        let client = || client_of(default(proxies.iter().map(Proxy::address)));
        let (holder, waiter) = (client(), client());
        let lock = holder.acquire(LockRequest::new(b"job")).unwrap();
        std::thread::scope(|scope| {
            let waits = Wait::UpTo(Duration::from_secs(30));
            let granted =
                scope.spawn(move || waiter.acquire(LockRequest::new(b"job").wait(waits)).is_ok());
            std::thread::sleep(2 * distance);
            let _ = lock.release();
            assert!(granted.join().unwrap(), "{distance:?}");
        });
    }
}

/// A far node does not delay a lock that the near ones grant, and still gets the undo.
#[test]
fn a_far_node_delays_nothing_and_still_gets_the_undo() {
    let servers = servers(3);
    let proxies = far(&servers[2..], Duration::from_millis(600));
    let addresses = [servers[0].address(), servers[1].address(), proxies[0].address()];
    let client = client_of(default(addresses));
    let mut took = Vec::new();
    for _ in 0..10 {
        let began = Instant::now();
        let lock = client.acquire(LockRequest::new(b"job").wait(Wait::UpTo(LIMIT))).unwrap();
        took.push(began.elapsed());
        let Ok(_) = lock.release() else { panic!("the lock was not lost") };
    }
    // The machine may stall, but not each time.
    assert!(took.iter().any(|&took| took < Duration::from_millis(300)), "{took:?}");
    crate::support::eventually("the far node has the undo", || {
        let _ = client.warm_up(Duration::ZERO);
        crate::support::held_on(&servers, "job") == 0
    });
}
