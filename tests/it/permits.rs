//! Permits of a semaphore, on real servers: how many clients hold one, what each leaves behind, and
//! which data is left alone.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use redbolt::inspect::UnlockScope;
use redbolt::inspect::{InspectionVerdict, Kept, KeyState, Owner};
use redbolt::proto::script::{ACQUIRE_PERMIT, EXTEND_PERMIT, UNDO_PERMIT};
use redbolt::{AcquireError, AutoExtend, Engine, LockMode, RequestError};
use redbolt_test_servers::{Reply, Server};

use crate::fair_queue::{Waiters, first_never_ends, has_lost_its_place, nothing_is_left};
use crate::support::{
    builder, client, eventually, exists, held_on, long, patiently, pttl, refusal, servers,
    warm_client,
};

const ENDS: &str = "redbolt:until:job";

/// Returns a token of the length that real tokens have.
fn token(name: char) -> String {
    std::iter::repeat_n(name, 34).collect()
}

fn eval(server: &Server, script: &str, keys: &[&str], args: &[&str]) -> Reply {
    let count = keys.len().to_string();
    let words = [&["EVAL", script, &count], keys, args].concat();
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    server.connect().run(&words)
}

/// Asks for one of three permits, beginning with slot 0.
fn ask(server: &Server, token: &str, ttl: &str) -> Reply {
    eval(server, ACQUIRE_PERMIT.text, &["job", ENDS], &[token, ttl, "5", "3", "0", "1"])
}

#[test]
fn at_most_as_many_workers_run_as_there_are_permits() {
    const PERMITS: u16 = 3;
    let servers = servers(3);
    let at_work: [AtomicBool; PERMITS as usize] = Default::default();
    let (most, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            let client = client(&servers);
            scope.spawn(|| {
                let client = client;
                for _ in 0..12 {
                    let permit = client.acquire(patiently(b"job").permits(PERMITS)).unwrap();
                    assert_eq!(permit.mode(), LockMode::Permit { of: PERMITS });
                    let place = &at_work[usize::from(permit.slot().unwrap())];
                    assert!(
                        !place.swap(true, Ordering::SeqCst),
                        "no two holders have the same number"
                    );
                    let count = at_work.iter().filter(|place| place.load(Ordering::SeqCst)).count();
                    most.fetch_max(count, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(1));
                    place.store(false, Ordering::SeqCst);
                    assert!(permit.release().is_ok());
                    done.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!(done.into_inner(), 8 * 12);
    assert!(most.into_inner() > 1, "no two workers overlapped");
    eventually("nothing is left", || held_on(&servers, "job") == 0);
    eventually("the second key is deleted too", || held_on(&servers, ENDS) == 0);
}

#[test]
fn an_expired_holder_is_neither_extended_nor_counted() {
    let server = Server::start();
    assert_eq!(ask(&server, &token('a'), "1"), Reply::Status("OK 0 0 7".into()));
    // This is longer than its TTL.
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(ask(&server, &token('b'), "60000"), Reply::Status("OK 0 0 7".into()));
    let extend = |name, slot| {
        eval(&server, EXTEND_PERMIT.text, &["job", ENDS], &[&token(name), "90000", slot])
    };
    assert_eq!(extend('a', "0"), Reply::Int(0));
    assert_eq!(extend('b', "1"), Reply::Int(0), "that is not its permit");
    assert_eq!(extend('b', "0"), Reply::Int(1));
    assert!(pttl(&server, "job") > 80_000 && pttl(&server, ENDS) > 80_000);
    ask(&server, &token('c'), "50000");
    assert_eq!(server.cmd(&format!("ZCARD {ENDS}")), Reply::Int(2));
    let undo = |name| eval(&server, UNDO_PERMIT.text, &["job", ENDS], &[&token(name)]);
    assert_eq!(undo('b'), Reply::Int(1));
    assert!(pttl(&server, "job") <= 50_000, "no longer than the remaining holder");
    assert_eq!((undo('b'), undo('c')), (Reply::Int(0), Reply::Int(1)));
    assert!(!exists(&server, "job") && !exists(&server, ENDS));
}

/// The other data are exclusive locks, data of other programs, and hashes that redbolt did not
/// write.
#[test]
fn data_that_is_not_a_semaphore_denies_and_is_unchanged() {
    let server = Server::start();
    for (other, left) in [
        ("SET job x PX 60000", 50_000..=60_000),
        ("SET job x", -1..=-1),
        ("HSET job x y", -1..=-1),
        ("HSET job redbolt 1", -1..=-1),
        ("RPUSH job x", -1..=-1),
        ("ZADD job 1 x", -1..=-1),
    ] {
        server.cmd("DEL job");
        server.cmd(other);
        // DUMP shows the whole value, so any change is noticed.
        let before = server.cmd("DUMP job");
        let denied = ask(&server, &token('a'), "1000");
        assert!(matches!(denied, Reply::Int(ms) if left.contains(&ms)), "{other}: {denied:?}");
        let keys = ["job", ENDS];
        for (script, args) in [
            (UNDO_PERMIT.text, vec![token('a')]),
            (EXTEND_PERMIT.text, vec![token('a'), "9".into(), "0".into()]),
        ] {
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            assert_eq!(eval(&server, script, &keys, &args), Reply::Int(0), "{other}");
        }
        assert_eq!(server.cmd("DUMP job"), before, "{other}");
        assert!(!exists(&server, ENDS), "{other}");
    }
    server.cmd("DEL job");
    server.cmd("HSET job x y");
    server.cmd("PEXPIRE job 60000");
    assert!(matches!(ask(&server, &token('a'), "1000"), Reply::Int(50_000..)));
    assert_eq!(server.cmd("HLEN job"), Reply::Int(1));
}

/// One of the semaphore's two keys was deleted.
#[test]
fn the_rest_of_a_half_deleted_semaphore_belongs_to_no_holder() {
    let server = Server::start();
    for half in ["job", ENDS] {
        assert_eq!(ask(&server, &token('a'), "60000"), Reply::Status("OK 0 0 7".into()));
        server.cmd(&format!("DEL {half}"));
        assert_eq!(ask(&server, &token('b'), "60000"), Reply::Status("OK 0 0 7".into()), "{half}");
        assert_eq!(server.cmd("HLEN job"), Reply::Int(3), "{half}");
        assert_eq!(server.cmd(&format!("ZCARD {ENDS}")), Reply::Int(1), "{half}");
        eval(&server, UNDO_PERMIT.text, &["job", ENDS], &[&token('b')]);
    }
}

/// An address may lead to another server of the set for a moment, and back. A server's vote counts
/// once.
#[test]
fn a_server_that_is_asked_twice_gives_one_permit() {
    let server = Server::start();
    let random = "a7".repeat(16);
    assert_eq!(ask(&server, &format!("{random}00"), "60000"), Reply::Status("OK 0 0 7".into()));
    for node in ["01", "04"] {
        let twin = format!("{random}{node}");
        assert!(matches!(ask(&server, &twin, "60000"), Reply::Int(50_000..)), "{node}");
        let moved = eval(
            &server,
            ACQUIRE_PERMIT.text,
            &["job", ENDS],
            &[&twin, "60000", "5", "3", "2", "0"],
        );
        assert!(matches!(moved, Reply::Int(50_000..)), "{node}: {moved:?}");
    }
    assert_eq!(server.cmd("HLEN job"), Reply::Int(3));
    let other = format!("{random}01:another % label");
    assert_eq!(ask(&server, &other, "60000"), Reply::Status("OK 1 0 6".into()), "another holder");
}

#[test]
fn a_permit_is_extended_until_it_is_released_and_lost_if_it_is_broken() {
    let servers = servers(3);
    let engine = Engine::new(builder(&servers).label("worker").build().unwrap()).unwrap();
    let operator = warm_client(builder(&servers));
    let request = patiently(b"job").permits(4).ttl(Duration::from_secs(6));
    let keep = AutoExtend::until_released().every(Duration::from_millis(300));
    let request = request.auto_extend(keep);
    let permit = engine.acquire(request.clone()).wait().unwrap();
    let slot = permit.slot().unwrap();
    eventually("it is extended", || engine.metrics().wait().unwrap().metrics.auto_extended >= 3);
    assert!(permit.is_valid());
    assert_eq!(permit.slot(), Some(slot));
    let seen = operator.inspect(b"job").unwrap();
    let InspectionVerdict::Permits(permits) = &seen.verdict else { panic!("{seen:?}") };
    assert_eq!((permits.count, permits.holders[0].0), (1, slot));
    assert_eq!(permits.holders[0].1.label.as_deref(), Some("worker"));
    assert!(seen.is_locked() && seen.owner() == Some(Owner::Other));
    assert!(matches!(seen.nodes[0].state, Ok(KeyState::Permits(_))));
    let report = operator.force_unlock(b"job", UnlockScope::Locks).unwrap();
    assert!(report.is_confirmed() && report.broken() == 3, "{report}");
    eventually("the holder notices", || !permit.is_valid());
    assert_eq!(permit.slot(), None);
    let alone = operator.acquire(patiently(b"job")).unwrap();
    // The guard of a lost permit must not release the next holder's lock.
    drop(permit);
    assert!(alone.is_valid() && held_on(&servers, "job") == 3);
}

#[test]
fn permits_are_granted_in_the_order_of_arrival() {
    let servers = servers(3);
    let holder = client(&servers);
    let two = || [(); 2].map(|()| holder.acquire(long(b"job").permits(2)).unwrap());
    let guards = two();
    let requests = (0..5).map(|_| patiently(b"job").permits(2)).collect();
    let mut waiters = Waiters::come(&servers, requests);
    let seen = holder.inspect("job").unwrap().queue.unwrap();
    assert_eq!((seen.count, seen.kept), (5, Kept::Marked));
    assert!(seen.waiters.iter().all(|it| it.mode == Some(LockMode::Permit { of: 0 })));
    refusal(client(&servers).acquire(long(b"job").permits(2)));
    let [first, second] = guards;
    first.release().unwrap();
    let mut order = Vec::new();
    let mut release = Some(second);
    waiters.process_until("all are granted", |waiters| {
        let granted = waiters.granted();
        assert!(granted.len() <= 1, "only one permit is free");
        for at in granted {
            order.push(at);
            match release.take() {
                Some(second) => drop(second.release()),
                None => waiters.release(at - 1),
            }
        }
        order.len() == 5
    });
    assert_eq!(order, [0, 1, 2, 3, 4]);
    waiters.release(4);
    waiters.process_until("all is released", |_| held_on(&servers, "job") == 0);
    nothing_is_left(&servers);
    eventually("the second key is deleted too", || held_on(&servers, ENDS) == 0);
}

/// A newcomer gets no slot that others wait for, but a holder of a slot on other nodes gets the
/// same slot here.
#[test]
fn while_others_wait_a_holder_s_permit_can_move_but_a_newcomer_gets_none() {
    let server = &servers(1)[0];
    let ask = |token: &str, first: &str, step: &str| {
        let [key, ttl] = [&b"job"[..], b"30000"];
        let words = [ACQUIRE_PERMIT.text.as_bytes(), b"2", key, ENDS.as_bytes(), token.as_bytes()];
        let order = [ttl, b"3", b"3", first.as_bytes(), step.as_bytes()];
        server.run(&[&[&b"EVAL"[..]], &words[..], &order].concat())
    };
    let [holder, newcomer] = ["a", "b"].map(|digit| format!("{}00", digit.repeat(32)));
    assert!(matches!(ask(&holder, "0", "1"), Reply::Status(_)));
    assert_eq!(server.cmd("HSET job line 1"), Reply::Int(1));
    assert!(matches!(ask(&newcomer, "1", "1"), Reply::Int(1..)));
    assert_eq!(ask(&newcomer, "1", "0"), Reply::Status("OK 1".into()));
}

/// The first waiter in the queue dies, and does not ask when its turn comes.
#[test]
fn a_dead_first_waiter_for_a_permit_delays_the_others_by_its_grace_only() {
    let servers = servers(3);
    let holder = client(&servers);
    let guards = [(); 2].map(|()| holder.acquire(long(b"job").permits(2)).unwrap());
    let requests = (0..3).map(|_| patiently(b"job").permits(2)).collect();
    let mut waiters = Waiters::come(&servers, requests);
    let (dead, _) = waiters.0.remove(0);
    let tickets = first_never_ends(&servers);
    for guard in guards {
        guard.release().unwrap();
    }
    let mut granted = Vec::new();
    waiters.process_until("the others are granted", |waiters| {
        granted.extend(waiters.granted());
        granted.len() == 2
    });
    has_lost_its_place(&servers, &tickets);
    drop(dead);
    (0..2).for_each(|at| waiters.release(at));
    waiters.process_until("all is released", |_| held_on(&servers, ENDS) == 0);
}

/// All available permits are granted together, but not before an earlier waiter that wants the
/// resource exclusively.
#[test]
fn permits_do_not_overtake_an_exclusive_waiter() {
    let servers = servers(3);
    let holder = client(&servers);
    let guard = holder.acquire(long(b"job").permits(3)).unwrap();
    let permit = || patiently(b"job").permits(3);
    let mut waiters =
        Waiters::come(&servers, vec![patiently(b"job"), permit(), permit(), permit()]);
    guard.release().unwrap();
    let mut granted = Vec::new();
    waiters.process_until("its turn has come", |waiters| {
        granted.extend(waiters.granted());
        !granted.is_empty()
    });
    assert_eq!(granted, [0]);
    waiters.release(0);
    waiters.process_until("they come in together", |waiters| {
        granted.extend(waiters.granted());
        granted.len() == 4
    });
    (1..4).for_each(|at| waiters.release(at));
    waiters.process_until("all is released", |_| held_on(&servers, "job") == 0);
    nothing_is_left(&servers);
}

#[test]
fn an_owner_reenters_its_permit_and_no_other_mode() {
    let servers = servers(3);
    let config = builder(&servers).build().unwrap();
    let engine = Engine::new(config).unwrap();
    let enter = |request| engine.acquire_reentrant(request, "task").wait();
    let first = enter(patiently(b"job").permits(2)).unwrap();
    let again = enter(patiently(b"job").permits(2)).unwrap();
    assert_eq!((first.slot(), again.slot().is_some()), (again.slot(), true));
    let other = [patiently(b"job"), patiently(b"job").shared(), patiently(b"job").permits(3)];
    for request in other {
        let error = enter(request).unwrap_err();
        let is_it = matches!(error, AcquireError::Request(RequestError::HeldWithout { .. }));
        assert!(is_it, "{error}");
    }
    drop(first);
    assert!(again.is_valid());
}
