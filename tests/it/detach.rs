//! Locks that outlive their client, and locks that an operator force-unlocks.

use std::time::{Duration, Instant};

use redbolt::inspect::UnlockScope;
use redbolt::proto::script;
use redbolt::{
    DetachedLock, Event, LossCause, RequestError,
    inspect::{InspectionVerdict, KeyState, Owner},
};
use redbolt_test_servers::Reply;

use crate::support::{
    LIMIT, builder, client, client_of, driver_of, eventually, exists, held_by, held_on, long, loss,
    once_in, outcome, patient, patiently, process_until, pttl, refusal, server, servers, vouch_for,
    warm_client,
};
use crate::timed::{Timed, waits};

#[test]
fn a_lock_outlives_its_client_and_ends_with_another_one() {
    let servers = servers(3);
    let text = {
        let first = client(&servers);
        let lock = first.acquire(patiently(b"job")).unwrap();
        lock.detach().expect("the lock is held").to_text()
    };
    assert_eq!(held_on(&servers, "job"), 3, "the client is gone, and all nodes keep the key");
    let second = client(&servers);
    assert!(refusal(second.acquire(long(b"job"))).is_contended());

    let detached: DetachedLock = text.parse().unwrap();
    let mut lock = second.attach(&detached).unwrap();
    assert!(lock.is_valid());
    lock.extend(Duration::from_secs(20)).unwrap();
    let detached = lock.detach().unwrap();
    let third = client(&servers);
    // The undo owed to an unreachable node is sent only while a client exists.
    assert_eq!(third.warm_up(LIMIT).ready(), 3);
    assert!(third.attach(&detached).unwrap().release().is_ok());
    eventually("all nodes are free", || held_on(&servers, "job") == 0);
}

/// Detaching waits for a node that is slow to grant. Otherwise the lock would have one node less
/// until it ends.
#[test]
fn a_pending_grant_is_waited_for() {
    assert!(once_in(5, the_third_grant_is_waited_for), "each time the node answers too late");
}

/// Returns `false` if the node continued so late that the wait for it had ended.
fn the_third_grant_is_waited_for() -> bool {
    let servers = servers(3);
    let client = client(&servers);
    assert_eq!(client.warm_up(Duration::from_secs(5)).ready(), 3);
    servers[2].pause();
    let lock = client.acquire(patiently(b"job")).unwrap();
    let began = Instant::now();
    let detached = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(100));
            servers[2].resume();
        });
        lock.detach().unwrap()
    });
    let counted = detached.to_text().matches("\nnode counted ").count();
    assert!(counted == 3 || began.elapsed() > Duration::from_millis(400), "{counted}");
    counted == 3
}

/// Detaching does not wait for a hanging node until the lease ends.
#[test]
fn a_short_lock_can_be_detached_while_a_node_hangs() {
    let servers = servers(3);
    let client = client(&servers);
    assert_eq!(client.warm_up(Duration::from_secs(5)).ready(), 3);
    servers[2].pause();
    let brief = patiently(b"job").ttl(Duration::from_secs(6));
    let detached = client.acquire(brief).unwrap().detach();
    servers[2].resume();
    assert!(detached.is_some(), "the lock was lost meanwhile");
}

/// Three processes hold the lock one after another. The second extends it although a node that
/// counted is down.
#[test]
fn a_detached_lock_counts_on_all_nodes_that_granted() {
    let mut servers = servers(3);
    let detached = client(&servers).acquire(patiently(b"job")).unwrap().detach().unwrap();
    servers[0].kill();
    let second = client(&servers);
    let mut lock = second.attach(&detached).unwrap();
    lock.extend(Duration::from_secs(20)).unwrap();
    assert!(lock.release().is_ok());
}

#[test]
fn dropping_a_guard_that_was_attached_releases_it() {
    let servers = servers(3);
    let detached = client(&servers).acquire(patiently(b"job")).unwrap().detach().unwrap();
    let second = client(&servers);
    drop(second.attach(&detached).unwrap());
    drop(second);
    eventually("all nodes are free", || held_on(&servers, "job") == 0);
}

#[test]
fn an_expired_detached_lock_is_lost() {
    let timed = Timed::of(3);
    let client = || client_of(timed.builder());
    let detached = client().acquire(waits(b"job")).unwrap().detach().unwrap();
    timed.pass(Duration::from_secs(12));
    let second = warm_client(timed.builder());
    let mut lock = second.attach(&detached).unwrap();
    assert!(!lock.is_valid());
    let error = lock.extend(Duration::from_secs(20)).unwrap_err();
    assert_eq!(loss(&error), Some(LossCause::Expired));
    assert_eq!(lock.release().map_err(|lost| lost.cause()), Err(LossCause::Expired));
    // The text of an expired lock gives no access to another client's lock.
    let other = second.acquire(waits(b"job")).unwrap();
    eventually("all nodes grant", || timed.held_on("job") == 3);
    let late = client();
    assert_eq!(
        late.attach(&detached).unwrap().release().map_err(|lost| lost.cause()),
        Err(LossCause::Expired)
    );
    drop(late);
    assert_eq!(timed.held_on("job"), 3);
    assert!(other.release().is_ok());
}

/// Linux has an id for each boot, and the record's times mean nothing after another boot.
#[test]
#[cfg(target_os = "linux")]
fn a_detached_lock_of_another_boot_is_lost() {
    let servers = servers(1);
    let detached = client(&servers).acquire(patiently(b"job")).unwrap().detach().unwrap();
    let boot = detached.boot().to_owned();
    assert!(boot.len() >= 32, "{boot}");
    let text = detached.to_text().replace(&boot, "00000000-0000-0000-0000-000000000000");
    let second = client(&servers);
    assert_eq!(second.warm_up(Duration::from_secs(5)).ready(), 1);
    let lock = second.attach(&text.parse().unwrap()).unwrap();
    assert_eq!(lock.release().map_err(|lost| lost.cause()), Err(LossCause::Expired));
    eventually("what it left is undone", || held_on(&servers, "job") == 0);
}

#[test]
fn other_nodes_and_other_orders_are_refused() {
    let servers = servers(3);
    let detached = client(&servers).acquire(patiently(b"job")).unwrap().detach().unwrap();
    let [a, b, c] = [0, 1, 2].map(|at: usize| servers[at].address());
    for addresses in [
        vec![b.clone(), a.clone(), c.clone()],
        vec![a.clone(), b.clone()],
        vec![a.clone(), b.clone(), format!("redis://{c}/1")],
    ] {
        let other = client_of(patient(&addresses));
        let refused = other.attach(&detached).map(drop);
        assert_eq!(refused, Err(RequestError::OtherNodes), "{addresses:?}");
    }
    assert_eq!(held_on(&servers, "job"), 3);
    assert!(client(&servers).attach(&detached).is_ok());
}

#[test]
fn a_driver_detaches_and_attaches() {
    let servers = servers(3);
    let mut first = driver_of(builder(&servers));
    let request = patiently(b"job").fenced();
    let id = held_by(&mut first, request);
    process_until(&mut first, "all nodes have voted", |driver| !driver.awaits_answers(id));
    let token = first.fencing_token(id);
    let detached = first.detach(id).unwrap();
    assert!(first.detach(id).is_none());
    assert_eq!(first.remaining(id), Duration::ZERO);
    drop(first);
    let mut second = driver_of(builder(&servers));
    let id = second.attach(&detached).unwrap();
    assert_eq!(second.fencing_token(id), token);
    second.extend(id, Duration::from_secs(25)).unwrap();
    assert_eq!(outcome(&mut second, id), Event::Extended(id));
    assert!(servers.iter().filter(|server| pttl(server, "job") <= 30_000).count() == 3);
    second.release(id);
    assert!(matches!(outcome(&mut second, id), Event::Released(..)));
}

#[test]
fn an_inspection_names_the_owner_of_a_lock() {
    let servers = servers(3);
    let (holder, onlooker) = (client(&servers), client(&servers));
    let free = onlooker.inspect(b"job").unwrap();
    assert_eq!((free.is_locked(), free.owner(), free.remaining()), (false, None, None));
    let lock = holder.acquire(patiently(b"job")).unwrap();
    let mine = holder.inspect(b"job").unwrap();
    assert_eq!((mine.is_locked(), mine.owner()), (true, Some(Owner::Mine)));
    let left = mine.remaining().unwrap();
    assert!(left <= Duration::from_secs(30) && left + Duration::from_secs(15) > lock.remaining());
    assert_eq!(onlooker.inspect(b"job").unwrap().owner(), Some(Owner::Other));
    let detached = lock.detach().unwrap();
    assert_eq!(
        holder.inspect(b"job").unwrap().owner(),
        Some(Owner::Other),
        "the lock was detached"
    );
    let lock = onlooker.attach(&detached).unwrap();
    assert_eq!(onlooker.inspect(b"job").unwrap().owner(), Some(Owner::Mine));
    servers[0].cmd("SET job 00112233445566778899aabbccddeeff00 PX 30000");
    servers[1].cmd("SET job 10112233445566778899aabbccddeeff01 PX 30000");
    let split = onlooker.inspect(b"job").unwrap();
    assert_eq!((split.is_locked(), split.owner()), (false, Some(Owner::Unknown)));
    drop(lock);
}

#[test]
fn a_force_unlock_reports_label_and_hash_and_the_holder_loses_the_lock() {
    let servers = servers(3);
    let holder = warm_client(builder(&servers).label(b"web-1:77"));
    let mut lock = holder.acquire(patiently(b"job")).unwrap();
    eventually("all nodes grant", || held_on(&servers, "job") == 3);
    let operator = client_of(builder(&servers).read_only());
    let InspectionVerdict::Held(seen) = operator.inspect(b"job").unwrap().verdict else { panic!() };
    let Reply::Bulk(token) = servers[0].cmd("GET job") else { panic!() };

    let report = operator.force_unlock(b"job", UnlockScope::Locks).unwrap();
    assert!(report.is_confirmed());
    assert_eq!(report.broken(), 3);
    let InspectionVerdict::Held(was) = &report.was else { panic!("{report}") };
    assert_eq!((was.fingerprint, was.label.as_deref()), (seen.fingerprint, Some("web-1:77")));
    let reported = format!("broke the lock of web-1:77 #{:08x}", seen.fingerprint);
    assert_eq!(report.to_string().matches(&reported).count(), 3, "{report}");
    assert!(!format!("{report} {report:?}").contains(std::str::from_utf8(&token[..16]).unwrap()));
    assert_eq!(held_on(&servers, "job"), 0);
    assert_eq!(held_on(&servers, "redbolt:guard"), 3);

    let next = operator.force_unlock(b"job", UnlockScope::Locks).unwrap();
    assert_eq!((next.is_confirmed(), next.broken()), (true, 0));
    assert_eq!(next.was, InspectionVerdict::Free);
    let error = lock.extend(Duration::from_secs(20)).unwrap_err();
    assert_eq!(loss(&error), Some(LossCause::Gone));
}

#[test]
fn a_key_that_is_not_a_lock_is_not_force_unlocked() {
    let servers = servers(1);
    servers[0].cmd("RPUSH list 1 2 3");
    servers[0].cmd("SET session {\"user\":1}");
    servers[0].cmd("SETRANGE big 1000000 x");
    let operator = client(&servers);
    for key in [&b"list"[..], b"session", b"big"] {
        let report = operator.force_unlock(key, UnlockScope::Locks).unwrap();
        assert!(!report.is_confirmed(), "{report}");
        assert_eq!((report.broken(), report.kept(), report.gone()), (0, 1, 0));
        assert!(report.to_string().ends_with("left alone, it is no lock of redbolt"), "{report}");
        assert!(matches!(report.was, InspectionVerdict::Foreign(_)));
        assert_eq!(held_on(&servers, std::str::from_utf8(key).unwrap()), 1);
    }
    for key in [&b"redbolt:guard"[..], b"redbolt:fence:a"] {
        let error = match key {
            b"redbolt:guard" => RequestError::RestartGuardKey,
            _ => RequestError::CounterKey,
        };
        assert_eq!(operator.force_unlock(key, UnlockScope::Locks).unwrap_err(), error);
        assert_eq!(operator.force_unlock(key, UnlockScope::Anything).unwrap_err(), error);
    }
    for key in [&b"list"[..], b"session", b"big"] {
        let report = operator.force_unlock(key, UnlockScope::Anything).unwrap();
        assert!(report.is_confirmed() && report.broken() == 1, "{report}");
        assert!(report.to_string().contains(": deleted other data, a "), "{report}");
        assert_eq!(held_on(&servers, std::str::from_utf8(key).unwrap()), 0);
    }
}

/// The force-unlock script runs on a real server, with edge cases.
#[test]
fn a_force_unlock_deletes_only_the_value_that_was_seen() {
    let server = &servers(1)[0];
    let order = |kind: &str, seen: &[&[u8]]| {
        let words = [&b"EVAL"[..], script::FORCE_UNLOCK.text.as_bytes(), b"2", b"k", b"u"];
        server.run(&[&words[..], &[kind.as_bytes()], seen].concat())
    };
    let order_of = |script: &script::Script, seen: &[&[u8]]| {
        let words = [&b"EVAL"[..], script.text.as_bytes(), b"1", b"k", b"hash"];
        server.run(&[&words[..], seen].concat())
    };
    let text = "x".repeat(200);
    for (write, kind, seen, count) in [
        ("SET k abc", "string", &[&b"abc"[..]][..], 1),
        ("SET k abcd", "string", &[b"abc"], 0),
        ("SET k ab", "string", &[b"abc"], 0),
        ("SET k abc", "hash", &[b"abc"], 0),
        (&format!("SET k {text}"), "string", &[text.as_bytes()], 1),
        (&format!("SET k {text}x"), "string", &[text.as_bytes()], 0),
        ("RPUSH k a", "string", &[b"a"], 0), // no WRONGTYPE
        ("RPUSH k a", "hash", &[b"a"], 0),
        ("RPUSH k a", "list", &[b"a"], 0), // compared by its digest only
        ("ZADD k 1 abc", "string", &[b"abc"], 0),
        ("ZADD k 1 abc", "string", &[b"r:abc"], 1), // a reader that was alone
        ("ZADD k 1 w:abc 2 d", "string", &[b"abc"], 1), // a writer that becomes a reader
        ("ZADD k 1 w:abc 2 d", "string", &[b"r:w"], 0),
        ("ZADD k 1 abc 2 d", "zset", &[b"abc", b"e"], 1),
        ("ZADD k 1 abc 1 d", "zset", &[b"abc", b"d"], 2),
        ("HSET k abc 1 d 1", "hash", &[b"abc"], 0), // another library's
        ("DEL none", "string", &[b""], 0),
        ("DEL none", "zset", &[b"abc"], 0),
        ("DEL none", "dump", &[b""], 0),
    ] {
        server.cmd("DEL k");
        server.cmd(write);
        assert_eq!(order(kind, seen), Reply::Int(count), "{write}, {kind} {seen:?}");
    }
    server.cmd("HSET k abc 1 d 1");
    assert_eq!(order_of(&script::FORCE_UNLOCK_REDISSON, &[b"abc", b"e"]), Reply::Int(1));
    assert_eq!(order_of(&script::FORCE_UNLOCK_REDISSON_RW, &[b"d"]), Reply::Int(1));
    server.cmd("HSET k mode write a:write 1 a 1");
    assert_eq!(order_of(&script::FORCE_UNLOCK_REDISSON_RW, &[b"a:write"]), Reply::Int(1));
    assert_eq!(server.cmd("HGET k mode"), Reply::Bulk(b"read".to_vec()), "who is left reads");
    assert_eq!(order_of(&script::FORCE_UNLOCK_REDISSON_RW, &[b"a"]), Reply::Int(1));
    assert_eq!(server.cmd("EXISTS k"), Reply::Int(0), "no mode stays without holders");
}

/// The lock has more holders than a report names.
#[test]
fn a_force_unlock_breaks_every_holder_that_shares_the_lock() {
    let server = server();
    let holder = client(std::slice::from_ref(&server));
    for request in [long(b"job").shared(), long(b"job").permits(40)] {
        let guards: Vec<_> = (0..40).map(|_| holder.acquire(request.clone()).unwrap()).collect();
        let report = holder.force_unlock(b"job", UnlockScope::Locks).unwrap();
        let (named, count) = match &report.nodes[0].state {
            Ok(KeyState::Shared(sharers)) => (sharers.holders.len(), sharers.count),
            Ok(KeyState::Permits(permits)) => (permits.holders.len(), permits.count),
            other => panic!("{other:?}"),
        };
        assert_eq!((named, count, report.broken()), (16, 40, 1), "{report}");
        assert!(!exists(&server, "job"), "no holder is left: {report}");
        drop(guards);
    }
}

#[test]
fn a_node_that_is_down_confirms_no_force_unlock() {
    let mut servers = redbolt_test_servers::servers(2);
    vouch_for(&servers, 3);
    servers[1].cmd("SET job 00112233445566778899aabbccddeeff01 PX 30000");
    let dead = redbolt_test_servers::Server::start();
    let addresses = [servers[0].address(), servers[1].address(), dead.address()];
    drop(dead);
    let operator = client_of(patient(&addresses));
    let report = operator.force_unlock(b"job", UnlockScope::Locks).unwrap();
    assert!(report.is_confirmed() && report.broken() == 1, "{report}");
    assert!(matches!(report.nodes[1].state, Ok(KeyState::Held(_))));
    assert!(report.nodes[2].to_string().ends_with("connection refused"), "{report}");
    servers[1].kill();
    assert!(!operator.force_unlock(b"job", UnlockScope::Locks).unwrap().is_confirmed());
}
