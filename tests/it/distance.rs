//! Nodes near and far with the default timeouts: nobody has to tune them to a network.

use std::time::Duration;

use redbolt::{LockRequest, ReleaseOutcome, Wait};
use redbolt_test_servers::{Mode, Proxy, Server};

use crate::support::{client_of, default, servers};

/// Proxies that add this to each round trip.
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
        let client = client_of(default(proxies.iter().map(Proxy::address)));
        // From the first contact on, with `Wait::No`.
        for _ in 0..2 {
            let mut lock = client.acquire(LockRequest::new(b"job")).unwrap();
            lock.extend(Duration::from_secs(20)).unwrap();
            let ReleaseOutcome::Released(confirmed) = lock.release() else {
                panic!("{distance:?}")
            };
            assert!(confirmed.nodes >= 2, "{distance:?}: {confirmed}");
        }
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
    for _ in 0..3 {
        let lock = client.acquire(LockRequest::new(b"job")).unwrap();
        assert!(lock.remaining() > Duration::from_secs(9));
        let ReleaseOutcome::Released(_) = lock.release() else { panic!("the lock was not lost") };
    }
    crate::support::eventually("the far node has the undo", || {
        let _ = client.warm_up(Duration::ZERO);
        crate::support::held_on(&servers, "job") == 0
    });
}
