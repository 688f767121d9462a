//! Many locks at once, and many resources in one lock.

use std::time::{Duration, Instant};

use redbolt::{
    AcquireError, Client, Event, LockGuard, LockId, LockRequest, LossCause, RefusalReason,
    RequestError, Wait, report::LockState,
};
use redbolt_test_servers::{Reply, Server};

use crate::engine::engine;
use crate::support::{
    LIMIT, builder, calls, client, driver_of, eventually, held_on, long, outcome, patiently,
    process_until, pttl, refusal, servers,
};

/// The largest number of resources in one lock.
const MOST: usize = 64;

fn names(count: usize) -> Vec<String> {
    (0..count).map(|at| format!("job{at}")).collect()
}

/// Returns one request for all of these resources.
fn on_all<'a>(names: &'a [String], request: LockRequest<'a>) -> LockRequest<'a> {
    names.iter().fold(request, |request, name| request.and(name.as_bytes()))
}

/// Returns the number of keys, without the restart guard.
fn keys(server: &Server) -> i64 {
    match server.cmd("DBSIZE") {
        Reply::Int(keys) => keys - 1,
        other => panic!("{other:?}"),
    }
}

type Outcome<'c> = Result<LockGuard<'c>, AcquireError>;

fn all_of<'c>(client: &'c Client, requests: &[LockRequest<'_>]) -> Vec<Outcome<'c>> {
    client.acquire_all(requests.iter().cloned())
}

#[test]
fn outcomes_are_in_the_order_of_the_requests() {
    for n in [1, 3, 5] {
        let servers = servers(n);
        let (holder, client) = (client(&servers), client(&servers));
        let held = holder.acquire(patiently(b"held").and(b"too")).unwrap();
        let too_long = Duration::from_secs(31);
        let requests = [
            patiently(b"first"),
            long(b"held"),
            LockRequest::new(b"other").ttl(too_long),
            patiently(b"one").and(b"two"),
            LockRequest::new(b""),
            patiently(b"fenced").fenced(),
            long(b"free").and(b"too"),
        ];
        let outcomes = all_of(&client, &requests);
        let [first, taken, ttl, both, empty, fenced, half] = &outcomes[..] else { panic!() };
        assert!(first.as_ref().unwrap().is_valid());
        assert!(both.as_ref().unwrap().is_valid());
        assert!(fenced.as_ref().unwrap().fencing_token().is_some());
        assert!(first.as_ref().unwrap().fencing_token().is_none());
        for refused in [taken, half] {
            let Err(AcquireError::Refused(report)) = refused else { panic!("{refused:?}") };
            assert_eq!(report.reason(), RefusalReason::Contended);
        }
        let max_ttl = crate::support::LONG;
        let error = RequestError::TtlAboveMaximum { ttl: too_long, max_ttl };
        assert_eq!(*ttl.as_ref().unwrap_err(), AcquireError::Request(error));
        assert_eq!(
            *empty.as_ref().unwrap_err(),
            AcquireError::Request(RequestError::EmptyResource)
        );
        eventually("the refused requests leave no key", || held_on(&servers, "free") == 0);
        for (name, on) in [("first", n), ("one", n), ("two", n), ("fenced", n), ("other", 0)] {
            eventually(name, || held_on(&servers, name) == on);
        }
        drop(outcomes);
        assert!(held.is_valid());
        assert!(held.release().is_ok());
        drop((holder, client));
        // Only the fencing counter remains.
        eventually("no key is left", || servers.iter().all(|server| keys(server) == 1));
    }
}

#[test]
fn an_empty_batch_has_no_outcomes() {
    let servers = servers(1);
    assert!(all_of(&client(&servers), &[]).is_empty());
}

#[test]
fn a_batch_that_times_out_reports_it_for_each_request() {
    let servers = servers(3);
    let (holder, client) = (client(&servers), client(&servers));
    let _held = holder.acquire(patiently(b"held")).unwrap();
    let soon = Wait::UpTo(Duration::from_millis(300));
    let outcomes = all_of(&client, &[long(b"held").wait(soon), patiently(b"free")]);
    let mut outcomes = outcomes.into_iter();
    assert_eq!(refusal(outcomes.next().unwrap()).reason(), RefusalReason::OutOfTime);
    assert!(outcomes.next().unwrap().unwrap().is_valid());
}

#[test]
fn a_batch_without_a_quorum_is_refused_as_a_whole() {
    let mut servers = servers(3);
    let client = client(&servers);
    client.warm_up(LIMIT);
    servers[1..].iter_mut().for_each(Server::kill);
    for refused in all_of(&client, &[long(b"a"), long(b"b"), long(b"c")]) {
        assert_eq!(refusal(refused).reason(), RefusalReason::NoQuorum);
    }
    eventually("no key is left", || keys(&servers[0]) == 0);
}

/// In a blocking batch, the second request could only wait for the first, whose guard the caller
/// gets when the call returns.
#[test]
fn a_resource_listed_twice_in_a_batch_is_refused_the_second_time() {
    let servers = servers(3);
    let client = client(&servers);
    let requests = [
        patiently(b"a").and(b"b"),
        patiently(b"c"),
        long(b"a"),
        patiently(b"d").and(b"b"),
        LockRequest::new(b"d").ttl(LIMIT).wait(Wait::Forever),
    ];
    let outcomes = all_of(&client, &requests);
    let errors: Vec<_> = outcomes.iter().map(|outcome| outcome.as_ref().err()).collect();
    let twice = |index| AcquireError::Request(RequestError::DuplicateRequest { index });
    assert_eq!(errors, [None, None, Some(&twice(2)), Some(&twice(3)), None]);
    drop(outcomes);
    eventually("no key is left", || servers.iter().all(|server| keys(server) == 0));
}

/// A driver returns at once, so the second request can wait for the first.
#[test]
fn a_driver_s_second_request_for_a_resource_waits_for_the_first() {
    let servers = servers(3);
    let mut driver = driver_of(builder(&servers));
    let [first, second] = driver.batch(|driver| {
        [(); 2].map(|()| driver.acquire(patiently(b"job").wait(Wait::Forever)).unwrap())
    });
    assert_eq!(outcome(&mut driver, first), Event::Granted(first));
    assert_eq!(driver.state(second), LockState::Queued);
    driver.release(first);
    assert_eq!(outcome(&mut driver, second), Event::Granted(second));
}

#[test]
fn a_driver_gathers_commands_of_every_kind() {
    let servers = servers(3);
    let mut driver = driver_of(builder(&servers));
    process_until(&mut driver, "all nodes are ready", |driver| driver.node_report().ready() == 3);
    let names = names(100);
    let ids: Vec<LockId> = driver.batch(|driver| {
        let request = |name: &String| driver.acquire(patiently(name.as_bytes())).unwrap();
        names.iter().map(request).collect()
    });
    process_until(&mut driver, "all locks are held", |driver| {
        ids.iter().all(|&id| !driver.remaining(id).is_zero())
    });
    let mut granted = Vec::new();
    while let Some(event) = driver.poll_event() {
        if let Event::Granted(id) = event {
            granted.push(id);
        }
    }
    assert_eq!(granted, ids);
    // Some locks are released while others are extended and acquired, and one request is cancelled.
    let (new, called_off) = driver.batch(|driver| {
        ids[..50].iter().for_each(|&id| driver.release(id));
        ids[50..].iter().for_each(|&id| driver.extend(id, Duration::from_secs(20)).unwrap());
        let new = driver.acquire(patiently(b"new")).unwrap();
        let called_off = driver.acquire(patiently(b"called off")).unwrap();
        driver.release(called_off);
        (new, called_off)
    });
    assert!(matches!(outcome(&mut driver, called_off), Event::Refused(..)));
    process_until(&mut driver, "all commands are done", |driver| {
        !driver.has_pending_releases() && !driver.remaining(new).is_zero()
    });
    eventually("half of the locks and the new one are held", || {
        servers.iter().all(|server| keys(server) == 51)
    });
    for (at, &id) in ids.iter().enumerate() {
        assert_eq!(driver.remaining(id).is_zero(), at < 50);
    }
}

#[test]
fn an_invalid_request_in_a_batch_stops_no_other() {
    let servers = servers(3);
    let mut driver = driver_of(builder(&servers));
    let asked = driver.batch(|driver| {
        [long(b""), patiently(b"job"), LockRequest::new(b"job").ttl(Duration::ZERO)]
            .map(|request| driver.acquire(request))
    });
    assert_eq!(asked[0], Err(RequestError::EmptyResource));
    assert_eq!(asked[2], Err(RequestError::TtlZero));
    let id = asked[1].unwrap();
    assert_eq!(outcome(&mut driver, id), Event::Granted(id));
}

#[test]
fn sixty_four_resources_are_one_lock() {
    for n in [1, 3, 5] {
        let servers = servers(n);
        let (client, other) = (client(&servers), client(&servers));
        assert_eq!(client.warm_up(LIMIT).ready(), n);
        let names = names(MOST);
        let request = || on_all(&names[1..], patiently(names[0].as_bytes()).ttl(LIMIT));
        let before: Vec<_> = servers.iter().map(scripts).collect();
        let mut lock = client.acquire(request()).unwrap();
        eventually("each node has all keys", || {
            servers.iter().all(|server| keys(server) == MOST as i64)
        });
        for (server, before) in servers.iter().zip(before) {
            assert_eq!(scripts(server) - before, 1, "one script for all of them");
        }
        // All resources have one token and one expiry.
        for server in &servers {
            let values = names.iter().map(|name| server.cmd(&format!("GET {name}")));
            let values: Vec<Reply> = values.collect();
            assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
        }
        for name in [&names[0], &names[MOST / 2], &names[MOST - 1]] {
            assert!(other.acquire(long(name.as_bytes())).is_err(), "{name}");
        }
        lock.extend(Duration::from_secs(28)).unwrap();
        eventually("each is extended on each node", || {
            let least = (LIMIT + Duration::from_secs(1)).as_millis() as i64;
            servers.iter().all(|server| names.iter().all(|name| pttl(server, name) > least))
        });
        assert!(lock.release().is_ok());
        eventually("none stays", || servers.iter().all(|server| keys(server) == 0));
        drop(other);
    }
}

/// Returns how many scripts the server has run: requests for many resources, extensions and undos.
fn scripts(server: &Server) -> u64 {
    calls(server, "eval") + calls(server, "evalsha")
}

#[test]
fn one_resource_too_many_is_refused() {
    let servers = servers(1);
    let client = client(&servers);
    let names = names(MOST + 1);
    let refused = client.acquire(on_all(&names[1..], patiently(names[0].as_bytes()))).unwrap_err();
    assert_eq!(refused, AcquireError::Request(RequestError::TooManyKeys { keys: MOST + 1 }));
}

/// Whichever resource is taken, no node keeps a key of the others, and the foreign key is
/// unchanged.
#[test]
fn many_resources_are_granted_together_or_not_at_all() {
    let servers = servers(3);
    let client = client(&servers);
    let names = names(MOST);
    let request = || on_all(&names[1..], long(names[0].as_bytes()));
    for in_the_way in [0, 17, MOST - 1] {
        for server in &servers[1..] {
            server.cmd(&format!("SET {} theirs PX 20000", names[in_the_way]));
        }
        let report = refusal(client.acquire(request()));
        assert_eq!(report.reason(), RefusalReason::Contended, "{report}");
        let remaining = report.remaining().expect("the script's denial contains the TTL");
        assert!((15..=20).contains(&remaining.as_secs()), "{remaining:?}");
        eventually("no key is left", || {
            keys(&servers[0]) == 0 && servers[1..].iter().all(|server| keys(server) == 1)
        });
        servers[1..]
            .iter()
            .for_each(|server| drop(server.cmd(&format!("DEL {}", names[in_the_way]))));
    }
    // A foreign key on one of three nodes does not prevent the grant.
    servers[0].cmd("SET job5 theirs");
    let lock = client.acquire(request().wait(Wait::UpTo(LIMIT))).unwrap();
    assert!(lock.release().is_ok());
    eventually("no key is left", || {
        keys(&servers[0]) == 1 && servers[1..].iter().all(|server| keys(server) == 0)
    });
}

/// A lock on many resources is lost if one of its keys is missing on a majority.
#[test]
fn one_missing_key_loses_the_whole_lock() {
    let servers = servers(3);
    let engine = engine(&servers);
    let names = names(MOST);
    let guard = engine.acquire(on_all(&names[1..], patiently(names[0].as_bytes()))).wait().unwrap();
    servers[..2].iter().for_each(|server| assert_eq!(server.cmd("DEL job63"), Reply::Int(1)));
    assert!(guard.extend(Duration::from_secs(20)).wait().is_err());
    assert_eq!(guard.lost().wait(), Some(LossCause::Gone));
    assert_eq!(guard.release().wait().map_err(|lost| lost.cause()), Err(LossCause::Gone));
    eventually("the rest is given back", || servers.iter().all(|server| keys(server) == 0));
}

/// The last release wakes a request for many resources.
#[test]
fn a_lock_on_many_resources_waits_for_each_of_them() {
    let servers = servers(3);
    let mut holder = driver_of(builder(&servers));
    let names = names(MOST);
    let held: Vec<LockId> =
        [3, 40].map(|at| crate::support::held_by(&mut holder, long(names[at].as_bytes()))).into();
    let mut waiter = driver_of(builder(&servers));
    let id = waiter.acquire(on_all(&names[1..], patiently(names[0].as_bytes()))).unwrap();
    for (left, lock) in held.into_iter().enumerate() {
        let until = Instant::now() + Duration::from_millis(300);
        while Instant::now() < until {
            waiter.process();
            while let Some(event) = waiter.poll_event() {
                assert!(!matches!(event, Event::Granted(_)), "only {left} were released");
            }
        }
        holder.release(lock);
        process_until(&mut holder, "the release is confirmed", |holder| {
            !holder.has_pending_releases()
        });
    }
    assert_eq!(outcome(&mut waiter, id), Event::Granted(id));
}
