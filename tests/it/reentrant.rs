//! Reentrant locks on real servers: an owner has one lock on the nodes, however often and from
//! whichever thread it enters, and the lock is released with the last guard.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use redbolt::engine::{ReentrantFuture, ReentrantGuard};
use redbolt::{
    AcquireError, AutoExtend, Engine, LockMode, LockRequest, LossCause, Profile, RefusalReason,
    RequestError, Wait,
};
use redbolt_test_servers::{Reply, Server};

use crate::engine::engine;
use crate::support::{
    LIMIT, calls, client, eventually, exists, held_on, long, patiently, pttl, refusal, servers,
};

const OWNER: &str = "request:42";

/// A TTL shorter than that of the other requests.
const SHORTER: Duration = Duration::from_secs(10);

fn ask(engine: &Engine, request: LockRequest<'_>) -> ReentrantFuture {
    engine.acquire_reentrant(request, OWNER)
}

fn enter(engine: &Engine, request: LockRequest<'_>) -> ReentrantGuard {
    ask(engine, request).wait().unwrap()
}

#[track_caller]
fn refused(engine: &Engine, request: LockRequest<'_>) -> AcquireError {
    ask(engine, request).wait().unwrap_err()
}

fn lost(error: AcquireError) -> LossCause {
    match error {
        AcquireError::Lost(lost) => lost.cause(),
        error => panic!("{error}"),
    }
}

/// Returns the number of commands about locks that the servers have executed.
fn asked(servers: &[Server]) -> u64 {
    let all = |server| {
        ["set", "eval", "evalsha"].map(|command| calls(server, command)).iter().sum::<u64>()
    };
    servers.iter().map(all).sum()
}

#[test]
fn a_re_entry_is_a_guard_of_the_same_lock_and_sends_nothing() {
    let servers = servers(3);
    let engine = engine(&servers);
    let outer = enter(&engine, patiently(b"job").fenced());
    eventually("all nodes grant", || held_on(&servers, "job") == 3);
    let before = asked(&servers);
    let inner = enter(&engine, patiently(b"job").fenced());
    let innermost = enter(&engine, LockRequest::new(b"job"));
    assert_eq!(asked(&servers), before);
    assert!(inner.fencing_token().is_some());
    for guard in [&outer, &inner, &innermost] {
        assert_eq!((guard.hold_count(), guard.owner()), (3, OWNER.as_bytes()));
        assert_eq!(guard.fencing_token(), outer.fencing_token());
        assert!(guard.is_valid());
    }
    // The guards may be released in any order.
    assert!(outer.release().is_none());
    drop(innermost);
    assert!(inner.is_valid() && inner.hold_count() == 1);
    assert_eq!(held_on(&servers, "job"), 3);
    let outcome = inner.release().expect("this is the last guard").wait();
    assert!(outcome.is_ok());
    assert_eq!(held_on(&servers, "job"), 0);
}

/// The engine counts entries locally. Clients of the other library see one holder with one hold.
#[test]
fn a_re_entry_in_the_format_of_another_library_sends_nothing_either() {
    let servers = servers(3);
    let engine = engine(&servers);
    for (profile, name) in [(Profile::REDISSON, "job"), (Profile::REDISSON_RW, "data")] {
        let request = || patiently(name.as_bytes()).format(profile);
        let outer = enter(&engine, request());
        eventually("all nodes grant", || held_on(&servers, name) == 3);
        let before = asked(&servers);
        let inner = enter(&engine, request());
        assert_eq!((asked(&servers), inner.hold_count()), (before, 2));
        let Reply::Array(holds) = servers[0].cmd(&format!("HVALS {name}")) else { panic!() };
        assert_eq!(holds.last(), Some(&Reply::Bulk(b"1".to_vec())), "{holds:?}");
        assert!(outer.release().is_none());
        assert_eq!(held_on(&servers, name), 3, "until the last guard goes");
        drop(inner);
        eventually("nothing is left", || held_on(&servers, name) == 0);
    }
}

#[test]
fn only_the_same_owner_enters_again() {
    let servers = servers(1);
    let engine = engine(&servers);
    let guard = enter(&engine, patiently(b"job"));
    let other = engine.acquire_reentrant(long(b"job"), "request:43").wait().unwrap_err();
    let nobody = engine.acquire(long(b"job")).wait().unwrap_err();
    for error in [other, nobody] {
        assert!(
            matches!(&error, AcquireError::Refused(report) if report.is_contended()),
            "{error}"
        );
    }
    let elsewhere = enter(&engine, patiently(b"other"));
    assert_eq!((guard.hold_count(), elsewhere.hold_count()), (1, 1));
    let waiting = engine.acquire_reentrant(patiently(b"job"), "request:43");
    drop(guard);
    assert_eq!(waiting.wait().unwrap().owner(), b"request:43");
}

#[test]
fn a_lock_that_is_lost_is_not_entered_again_until_all_guards_have_ended() {
    let servers = servers(3);
    let engine = engine(&servers);
    let keep = AutoExtend::until_released().every(Duration::from_millis(300));
    let request = || patiently(b"job").ttl(Duration::from_secs(6)).auto_extend(keep);
    let (outer, inner) = (enter(&engine, request()), enter(&engine, request()));
    servers.iter().for_each(|server| drop(server.cmd("DEL job")));
    assert_eq!(outer.lost().wait(), Some(LossCause::Gone));
    assert!(!inner.is_valid());
    assert_eq!(lost(refused(&engine, request())), LossCause::Gone);
    assert!(outer.release().is_none());
    assert_eq!(lost(refused(&engine, request())), LossCause::Gone);
    let outcome = inner.release().expect("this is the last guard").wait();
    assert_eq!(outcome.map_err(|lost| lost.cause()), Err(LossCause::Gone));
    assert!(enter(&engine, request()).is_valid());
}

#[test]
fn an_expired_lease_is_not_entered_again() {
    let servers = servers(1);
    let engine = engine(&servers);
    let short = || patiently(b"job").ttl(Duration::from_secs(4));
    let outer = enter(&engine, short());
    eventually("its lease has expired", || !outer.is_valid());
    assert_eq!(lost(refused(&engine, short())), LossCause::Expired);
    assert_eq!(outer.hold_count(), 1);
}

#[test]
fn a_re_entry_may_only_raise_the_ttl() {
    let servers = servers(1);
    let engine = engine(&servers);
    let outer = enter(&engine, patiently(b"job").ttl(Duration::from_secs(10)));
    let inner = enter(&engine, patiently(b"job").ttl(Duration::from_secs(30)));
    assert!(pttl(&servers[0], "job") > 20_000 && outer.remaining() > Duration::from_secs(20));
    let before = asked(&servers);
    for seconds in [1, 10, 30] {
        drop(enter(&engine, patiently(b"job").ttl(Duration::from_secs(seconds))));
    }
    assert_eq!(asked(&servers), before, "it has that TTL, or a longer one");
    assert!(outer.remaining() > Duration::from_secs(20));
    drop(inner);
    let too_long = patiently(b"job").ttl(Duration::from_secs(31));
    assert!(matches!(
        refused(&engine, too_long),
        AcquireError::Request(RequestError::TtlAboveMaximum { .. })
    ));
    assert_eq!(outer.hold_count(), 1);
}

#[test]
fn a_re_entry_whose_extension_is_refused_leaves_the_lock_as_it_was() {
    let mut servers = servers(3);
    let engine = engine(&servers);
    let outer = enter(&engine, patiently(b"job").ttl(Duration::from_secs(20)));
    servers[..2].iter_mut().for_each(Server::kill);
    match refused(&engine, patiently(b"job").ttl(Duration::from_secs(30))) {
        AcquireError::Refused(report) => assert_eq!(report.reason(), RefusalReason::NoQuorum),
        other => panic!("{other}"),
    }
    assert!(outer.is_valid() && outer.hold_count() == 1);
}

#[test]
fn a_re_entry_shares_the_properties_of_the_lock() {
    let servers = servers(1);
    let engine = engine(&servers);
    let missing = |request: LockRequest<'_>| match refused(&engine, request) {
        AcquireError::Request(error) => error.to_string(),
        other => panic!("{other}"),
    };
    let alone = enter(&engine, patiently(b"job"));
    let reading = enter(&engine, patiently(b"job").shared());
    assert_eq!((reading.mode(), reading.hold_count()), (LockMode::Exclusive, 2));
    let with = |what: &str| format!("the owner holds the lock without {what}");
    assert_eq!(missing(patiently(b"job").fenced()), with("a fencing token"));
    let keep = AutoExtend::until_released();
    assert_eq!(missing(patiently(b"job").auto_extend(keep)), with("auto-extension"));
    drop((alone, reading));

    let shared = enter(&engine, patiently(b"job").shared());
    assert_eq!(enter(&engine, patiently(b"job").shared()).hold_count(), 2);
    assert_eq!(missing(patiently(b"job").fenced()), with("a fencing token"));
    assert_eq!((shared.hold_count(), shared.mode()), (1, LockMode::Shared));
    let two = long(b"one").and(b"two");
    assert_eq!(missing(two), "2 resources in one reentrant lock, it can have one");
}

#[test]
fn a_reading_owner_may_write_if_it_is_the_only_reader() {
    let servers = servers(3);
    let (engine, other) = (engine(&servers), client(&servers));
    let outer = enter(&engine, patiently(b"job").shared().fenced());
    let read = outer.fencing_token().unwrap();
    let inner = enter(&engine, patiently(b"job").fenced());
    let written = inner.fencing_token().unwrap();
    assert!(written > read && written.get().is_multiple_of(2));
    for guard in [&outer, &inner] {
        assert_eq!((guard.mode(), guard.hold_count()), (LockMode::Exclusive, 2));
        assert_eq!((guard.fencing_token(), guard.is_valid()), (Some(written), true));
    }
    refusal(other.acquire(long(b"job").shared()));
    let before = asked(&servers);
    let innermost = enter(&engine, patiently(b"job"));
    assert_eq!((asked(&servers), innermost.hold_count()), (before, 3));
    drop(innermost);
    assert!(inner.release().is_none());
    // The upgraded lock ends only with its last guard.
    assert_eq!((outer.mode(), outer.hold_count()), (LockMode::Exclusive, 1));
    refusal(other.acquire(long(b"job").shared()));
    let outcome = outer.release().expect("this is the last guard").wait();
    assert!(outcome.is_ok());
    eventually("nothing is left", || held_on(&servers, "job") == 0);
}

/// An upgrade does not wait, even if the request has a wait: two owners that waited for each other
/// would wait forever.
#[test]
fn readers_that_all_want_to_write_are_refused_and_stay_readers() {
    let servers = servers(3);
    let engine = engine(&servers);
    let of = |owner: &str, request| engine.acquire_reentrant(request, owner);
    let one = of("one", patiently(b"job").shared()).wait().unwrap();
    let two = of("two", patiently(b"job").shared()).wait().unwrap();
    eventually("all nodes have both readers", || {
        // A shared lock with several readers is a sorted set.
        servers.iter().all(|server| server.cmd("ZCARD job") == Reply::Int(2))
    });
    for owner in ["one", "two"] {
        match of(owner, patiently(b"job").wait(Wait::Forever)).wait() {
            Err(AcquireError::Refused(report)) => assert!(report.is_contended(), "{report}"),
            other => panic!("{other:?}"),
        }
    }
    for guard in [&one, &two] {
        assert_eq!((guard.mode(), guard.hold_count()), (LockMode::Shared, 1));
        assert!(guard.is_valid());
    }
    drop(two);
    eventually("the other reader is removed", || {
        servers.iter().all(|server| server.cmd("ZCARD job") == Reply::Int(1))
    });
    assert_eq!(of("one", long(b"job")).wait().unwrap().mode(), LockMode::Exclusive);
    assert_eq!(one.hold_count(), 1);
}

#[test]
fn an_owner_whose_upgrade_cannot_be_requested_stays_a_reader() {
    let mut servers = servers(3);
    let engine = engine(&servers);
    let outer = enter(&engine, patiently(b"job").shared().ttl(Duration::from_secs(20)));
    servers[..2].iter_mut().for_each(Server::kill);
    match refused(&engine, patiently(b"job")) {
        AcquireError::Refused(report) => assert_eq!(report.reason(), RefusalReason::NoQuorum),
        other => panic!("{other}"),
    }
    assert!(outer.is_valid() && outer.hold_count() == 1);
    assert_eq!(outer.mode(), LockMode::Shared);
}

#[test]
fn threads_of_a_reading_owner_that_write_at_once_ask_the_nodes_once() {
    let servers = servers(3);
    let engine = engine(&servers);
    for round in 0..30 {
        let outer = enter(&engine, patiently(b"job").shared());
        let start = Barrier::new(4);
        let upgrades = || engine.metrics().wait().unwrap().metrics.upgrades;
        let before = upgrades();
        thread::scope(|scope| {
            let writing: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        start.wait();
                        enter(&engine, patiently(b"job"))
                    })
                })
                .collect();
            let writing: Vec<_> = writing.into_iter().map(|it| it.join().unwrap()).collect();
            assert_eq!(writing[0].hold_count(), 5, "round {round}");
            assert!(writing.iter().all(|it| it.mode() == LockMode::Exclusive && it.is_valid()));
        });
        assert_eq!(upgrades(), before + 1);
        assert_eq!(outer.hold_count(), 1);
    }
}

/// An extension that comes while the upgrade is in flight waits for its turn.
#[test]
fn threads_of_a_reading_owner_that_write_and_extend_at_once_take_turns() {
    let servers = servers(3);
    let engine = engine(&servers);
    for _ in 0..20 {
        let first = enter(&engine, patiently(b"job").ttl(SHORTER).shared());
        let writes = ask(&engine, patiently(b"job").ttl(SHORTER));
        let longer = ask(&engine, patiently(b"job").shared());
        let (longer, writes) = (longer.wait().unwrap(), writes.wait().unwrap());
        assert_eq!(writes.mode(), LockMode::Exclusive);
        for guard in [longer, writes, first] {
            if let Some(over) = guard.release() {
                over.wait().unwrap();
            }
        }
    }
}

#[test]
fn an_upgrade_does_not_shorten_the_validity() {
    let servers = servers(1);
    let engine = engine(&servers);
    let request = || patiently(b"job").ttl(Duration::from_secs(10));
    let outer = enter(&engine, request().shared());
    // The guard requests an extension while a re-entry comes, and the re-entry waits for its turn.
    let extension = outer.extend(Duration::from_secs(30));
    let inner = enter(&engine, request());
    extension.wait().unwrap();
    assert_eq!(inner.mode(), LockMode::Exclusive);
    assert!(inner.remaining() > Duration::from_secs(20), "{:?}", inner.remaining());
    assert!(pttl(&servers[0], "job") > 20_000);
    drop(inner);
    drop(enter(&engine, request().ttl(Duration::from_secs(25))));
    assert!(outer.remaining() > Duration::from_secs(20));
}

#[test]
fn a_re_entry_dropped_during_its_upgrade_is_counted_correctly() {
    let servers = servers(3);
    let engine = engine(&servers);
    for _ in 0..30 {
        let outer = enter(&engine, patiently(b"job").shared());
        drop(ask(&engine, patiently(b"job")));
        assert_eq!(outer.hold_count(), 1);
        // The upgrade that was begun continues, and later entries wait for it.
        let inner = enter(&engine, patiently(b"job"));
        assert_eq!((inner.mode(), inner.hold_count()), (LockMode::Exclusive, 2));
        drop((outer, inner));

        let outer = enter(&engine, patiently(b"job").shared());
        let asked = ask(&engine, patiently(b"job"));
        drop(outer);
        let inner = asked.wait().unwrap();
        assert_eq!((inner.mode(), inner.hold_count()), (LockMode::Exclusive, 1));
        assert!(inner.is_valid());
    }
    eventually("nothing is left", || engine.in_flight() == 0 && held_on(&servers, "job") == 0);
}

#[test]
fn an_owner_has_one_permit_however_often_it_enters() {
    let servers = servers(1);
    let engine = engine(&servers);
    let request = || patiently(b"job").permits(2);
    let (outer, inner) = (enter(&engine, request()), enter(&engine, request()));
    assert!(outer.slot().is_some() && outer.slot() == inner.slot());
    let other = engine.acquire_reentrant(request(), "request:43").wait().unwrap();
    assert_ne!(other.slot(), outer.slot());
    let full = engine.acquire_reentrant(long(b"job").permits(2), "request:44").wait();
    assert!(matches!(full, Err(AcquireError::Refused(_))));
    for (wants, what) in [
        (patiently(b"job"), "having it alone"),
        (patiently(b"job").shared(), "sharing it"),
        (patiently(b"job").permits(3), "such a permit"),
    ] {
        let missing = AcquireError::Request(RequestError::HeldWithout { missing: what });
        assert_eq!(refused(&engine, wants), missing);
    }
    drop(outer);
    assert_eq!((inner.hold_count(), inner.is_valid()), (1, true));
}

#[test]
fn acquisitions_of_one_owner_that_wait_are_granted_together() {
    let servers = servers(1);
    let engine = engine(&servers);
    let strangers = engine.acquire(patiently(b"job")).wait().unwrap();
    let waiting: Vec<_> = (0..4).map(|_| ask(&engine, patiently(b"job"))).collect();
    let error = refused(&engine, long(b"job").wait(Wait::No));
    assert!(matches!(&error, AcquireError::Refused(report) if report.is_contended()), "{error}");
    drop(strangers);
    thread::scope(|scope| {
        let entered: Vec<_> =
            waiting.into_iter().map(|it| scope.spawn(|| it.wait().unwrap())).collect();
        let guards: Vec<_> = entered.into_iter().map(|it| it.join().unwrap()).collect();
        assert_eq!(guards[0].hold_count(), 4);
    });
    eventually("no request is in flight", || engine.in_flight() == 0);
    eventually("it is released", || !exists(&servers[0], "job"));
}

/// Returns `true` if the server has one reader. A reader that found the resource free is stored as
/// a string, which becomes a sorted set when a second one comes.
fn has_one_reader(server: &Server) -> bool {
    match server.cmd("TYPE job") {
        Reply::Status(kind) if kind == "string" => true,
        _ => server.cmd("ZCARD job") == Reply::Int(1),
    }
}

/// The nodes would grant several shared locks, so the engine must keep one and return the others.
#[test]
fn an_owner_that_requests_a_shared_lock_twice_at_once_has_one_lock() {
    let servers = servers(1);
    let engine = engine(&servers);
    // The requests race, so the order varies from run to run.
    for _ in 0..50 {
        let asked: Vec<_> = (0..3).map(|_| ask(&engine, patiently(b"job").shared())).collect();
        let guards: Vec<_> = asked.into_iter().map(|it| it.wait().unwrap()).collect();
        assert_eq!(guards[0].hold_count(), 3);
        eventually("the other locks are released", || has_one_reader(&servers[0]));
        assert!(guards.iter().all(|it| it.is_valid()));
    }
}

#[test]
fn a_dropped_future_is_no_longer_counted() {
    let servers = servers(1);
    let engine = engine(&servers);
    let outer = enter(&engine, patiently(b"job"));
    let entered = ask(&engine, patiently(b"job"));
    assert_eq!(outer.hold_count(), 2);
    drop(entered);
    assert_eq!(outer.hold_count(), 1);
    drop(outer);
    drop(ask(&engine, patiently(b"job")));
    eventually("no request is in flight", || engine.in_flight() == 0);
    eventually("nothing is left", || !exists(&servers[0], "job"));
}

#[test]
fn an_engine_that_is_shut_down_holds_none() {
    let servers = servers(1);
    let engine = engine(&servers);
    let guard = enter(&engine, patiently(b"job"));
    assert!(engine.shutdown(LIMIT).is_clean());
    assert!(!guard.is_valid());
    assert_eq!(lost(refused(&engine, long(b"job"))), LossCause::ShutDown);
    drop(guard);
    assert!(matches!(refused(&engine, long(b"job")), AcquireError::Engine(_)));
}

/// The last guard ends while another thread enters: that thread either keeps the lock or gets a new
/// one.
#[test]
fn a_re_entry_during_the_last_release_has_a_lock() {
    let servers = servers(1);
    let engine = engine(&servers);
    for _ in 0..300 {
        let last = enter(&engine, patiently(b"job"));
        // The barrier makes the entry and the drop meet as often as possible.
        let start = Barrier::new(2);
        let entered = thread::scope(|scope| {
            let entering = scope.spawn(|| {
                start.wait();
                enter(&engine, patiently(b"job"))
            });
            start.wait();
            drop(last);
            entering.join().unwrap()
        });
        assert!(entered.is_valid() && entered.hold_count() == 1);
        assert!(exists(&servers[0], "job"), "the guard's lock is on the node");
        let outcome = entered.release().expect("this is the last guard").wait();
        assert!(outcome.is_ok());
        assert!(!exists(&servers[0], "job"));
    }
}

/// Enters for the thread's owner, at a depth that varies by round, and checks that the other owner
/// is not inside.
fn go_in(
    engine: &Engine,
    number: usize,
    round: usize,
    inside: &[AtomicUsize; 2],
    met: &AtomicUsize,
) {
    let (owner, depth) = (number % 2, 1 + (round + number) % 3);
    let ask = || engine.acquire_reentrant(patiently(b"job"), &[owner as u8]);
    let guards: Vec<_> = (0..depth).map(|_| ask().wait().unwrap()).collect();
    inside[owner].fetch_add(1, Ordering::SeqCst);
    assert_eq!(inside[1 - owner].load(Ordering::SeqCst), 0, "two owners at once");
    assert!(guards.iter().all(|it| it.is_valid()));
    met.fetch_add(usize::from(guards[0].hold_count() > depth), Ordering::Relaxed);
    inside[owner].fetch_sub(1, Ordering::SeqCst);
}

/// Two owners have threads that enter and leave at various depths. They are never inside at the
/// same time.
#[test]
fn threads_of_two_owners_exclude_those_of_the_other() {
    let servers = servers(1);
    let engine = engine(&servers);
    let inside = [AtomicUsize::new(0), AtomicUsize::new(0)];
    let met = AtomicUsize::new(0);
    // On a busy machine two threads of one owner may not meet in one run.
    for _ in 0..50 {
        thread::scope(|scope| {
            for number in 0..6 {
                let (engine, inside, met) = (&engine, &inside, &met);
                scope.spawn(move || {
                    (0..60).for_each(|round| go_in(engine, number, round, inside, met))
                });
            }
        });
        if met.load(Ordering::Relaxed) > 0 {
            break;
        }
    }
    assert!(met.into_inner() > 0, "no two threads of one owner were inside at one time");
    eventually("nothing is left", || engine.in_flight() == 0 && !exists(&servers[0], "job"));
}
