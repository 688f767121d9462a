//! Shared locks on real servers: which holders exclude each other, what each leaves behind, and
//! which fencing tokens a store sees.

use std::time::Duration;

use redbolt::inspect::UnlockScope;
use redbolt::inspect::{DataKind, InspectionVerdict, KeyState, Owner};
use redbolt::proto::fence::least_kept;
use redbolt::proto::script::{
    ACQUIRE_SHARED, ACQUIRE_SHARED_FENCED, EXTEND_SHARED, UNDO_SHARED, WRITE_BACK_SHARED,
};
use redbolt::{AcquireError, LockMode, LockRequest, RequestError};
use redbolt_test_servers::{Reply, Server};

use crate::engine::engine;
use crate::support::{
    builder, calls, client, eventually, exists, held_on, long, patiently, pttl, refusal, servers,
    warm_client,
};

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

fn ok() -> Reply {
    Reply::Status("OK".into())
}

#[test]
fn readers_hold_a_lock_together_and_exclude_writers() {
    let servers = servers(3);
    let (one, two, writer) = (client(&servers), client(&servers), client(&servers));
    let first = one.acquire(patiently(b"job").shared()).unwrap();
    let second = two.acquire(patiently(b"job").shared()).unwrap();
    assert_eq!(first.mode(), LockMode::Shared);
    assert!(refusal(writer.acquire(long(b"job"))).to_string().contains("held"));
    assert!(first.release().is_ok());
    refusal(writer.acquire(long(b"job")));
    assert!(second.release().is_ok());
    let alone = writer.acquire(patiently(b"job")).unwrap();
    assert_eq!(alone.mode(), LockMode::Exclusive);
    refusal(one.acquire(long(b"job").shared()));
    assert!(alone.release().is_ok());
    eventually("nothing is left", || held_on(&servers, "job") == 0);
}

#[test]
fn a_writer_is_granted_when_the_last_reader_releases() {
    let servers = servers(3);
    let (reader, writer) = (client(&servers), client(&servers));
    let shared = reader.acquire(patiently(b"job").shared()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let writer = writer;
            let alone = writer.acquire(patiently(b"job")).unwrap();
            assert!(alone.is_valid());
        });
        eventually("it has been denied", || calls(&servers[0], "set") > 0);
        assert!(shared.release().is_ok());
    });
}

/// The waiters are in one queue of the process, and each asks when it is first.
#[test]
fn readers_of_one_process_are_granted_together() {
    let servers = servers(3);
    let engine = engine(&servers);
    let ask = |request| engine.acquire(request);
    let first = ask(patiently(b"job").shared()).wait().unwrap();
    let second = ask(patiently(b"job").shared()).wait().unwrap();
    assert!(first.is_valid() && second.is_valid());
    let writer = ask(patiently(b"job"));
    let behind = ask(patiently(b"job").shared());
    drop((first, second));
    let alone = writer.wait().unwrap();
    assert_eq!(alone.mode(), LockMode::Exclusive);
    let beside = ask(long(b"job").shared()).wait();
    assert!(matches!(beside, Err(AcquireError::Refused(_))), "{beside:?}");
    alone.downgrade().wait().unwrap();
    let behind = behind.wait().unwrap();
    assert!(alone.is_valid() && behind.is_valid());
}

#[test]
fn a_dead_reader_delays_others_by_its_own_ttl_only() {
    let server = Server::start();
    let share =
        |name: &str, ttl: &str| eval(&server, ACQUIRE_SHARED.text, &["job"], &[name, ttl, "3"]);
    assert_eq!(share(&token('a'), "60000"), ok());
    assert_eq!(share(&token('b'), "300"), ok());
    assert!(pttl(&server, "job") > 50_000, "as long as the last of them");
    assert_eq!(eval(&server, UNDO_SHARED.text, &["job"], &[&token('a')]), Reply::Int(1));
    assert!(pttl(&server, "job") <= 300, "no longer than the remaining reader");
    eventually("its TTL has expired", || !exists(&server, "job"));
}

#[test]
fn an_expired_holder_is_neither_extended_nor_counted() {
    let server = Server::start();
    eval(&server, ACQUIRE_SHARED.text, &["job"], &[&token('a'), "1", "3"]);
    eval(&server, ACQUIRE_SHARED.text, &["job"], &[&token('b'), "60000", "3"]);
    // The sleep is longer than the first TTL. An extension that ignored the expiry would revive
    // that reader.
    std::thread::sleep(Duration::from_millis(5));
    let extend = |name: &str, ttl: &str| eval(&server, EXTEND_SHARED.text, &["job"], &[name, ttl]);
    assert_eq!(extend(&token('a'), "60000"), Reply::Int(0));
    assert_eq!(extend(&token('b'), "90000"), Reply::Int(1));
    assert!(pttl(&server, "job") > 80_000);
    assert_eq!(extend(&token('b'), "1000"), Reply::Int(1));
    assert!(pttl(&server, "job") > 80_000, "never shortened");
    eval(&server, ACQUIRE_SHARED.text, &["job"], &[&token('c'), "60000", "3"]);
    assert_eq!(server.cmd("ZCARD job"), Reply::Int(2), "the expired reader was removed");
}

/// The other data are exclusive locks, data of other programs, and sorted sets that redbolt did not
/// write.
#[test]
fn data_that_is_not_a_shared_lock_denies_and_is_unchanged() {
    let server = Server::start();
    for (other, pttl) in [
        ("SET other x PX 60000", 50_000..=60_000),
        ("SET other x", -1..=-1),
        ("HSET other x y", -1..=-1),
        ("RPUSH other x", -1..=-1),
        ("ZADD other 1 x", -1..=-1),
    ] {
        server.cmd("DEL other");
        server.cmd(other);
        let before = server.cmd("DUMP other");
        for fenced in [false, true] {
            let denied = match fenced {
                false => {
                    eval(&server, ACQUIRE_SHARED.text, &["other"], &[&token('a'), "1000", "3"])
                }
                true => {
                    let args = [&token('a'), "1000", "1", "1000", "1", "3"];
                    eval(&server, ACQUIRE_SHARED_FENCED.text, &["other", "counter"], &args)
                }
            };
            assert!(matches!(denied, Reply::Int(ms) if pttl.contains(&ms)), "{other}: {denied:?}");
        }
        for (script, keys, args) in [
            (EXTEND_SHARED.text, &["other"][..], &["token", "1000"][..]),
            (UNDO_SHARED.text, &["other"], &["token"]),
            (WRITE_BACK_SHARED.text, &["other", "counter"], &["token", "9", "1000"]),
        ] {
            assert_eq!(eval(&server, script, keys, args), Reply::Int(0), "{other}");
        }
        assert_eq!(server.cmd("DUMP other"), before, "{other}");
    }
    server.cmd("DEL other");
    server.cmd("ZADD other 1 x");
    server.cmd("PEXPIRE other 60000");
    let denied = eval(&server, ACQUIRE_SHARED.text, &["other"], &[&token('a'), "1000", "3"]);
    assert!(matches!(denied, Reply::Int(50_000..=60_000)), "{denied:?}");
    assert_eq!(server.cmd("ZCARD other"), Reply::Int(1));
}

/// A key without a TTL would deny all clients forever.
#[test]
fn a_request_without_permission_for_every_step_leaves_nothing() {
    let server = Server::start();
    let of_set = ["zadd", "pexpireat", "zrem", "zremrangebyscore", "zrange", "zscore"];
    let of_string = ["get", "del", "set"];
    // The script writes a string for the first reader, and a sorted set for later ones.
    for (held, commands) in [("", &of_string[..]), ("b", &of_set), ("bc", &of_set)] {
        for command in commands {
            server.cmd("DEL job");
            for other in held.chars() {
                eval(&server, ACQUIRE_SHARED.text, &["job"], &[&token(other), "60000", "3"]);
            }
            let before = server.cmd("DUMP job");
            server.cmd(&format!("ACL SETUSER default -{command}"));
            let refused =
                eval(&server, ACQUIRE_SHARED.text, &["job"], &[&token('a'), "60000", "3"]);
            server.cmd(&format!("ACL SETUSER default +{command}"));
            assert!(matches!(refused, Reply::Error(_)), "{command} {held:?}: {refused:?}");
            assert_eq!(server.cmd("DUMP job"), before, "{command} {held:?}");
        }
    }
}

#[test]
fn readers_share_an_odd_token_between_the_even_ones_of_writers() {
    let servers = servers(3);
    let (one, two) = (warm_client(builder(&servers)), warm_client(builder(&servers)));
    let mut last = 0;
    for _ in 0..3 {
        let alone = one.acquire(patiently(b"job").fenced()).unwrap();
        let even = alone.fencing_token().unwrap().get();
        assert!(even > last && even % 2 == 0, "{even} after {last}");
        alone.release().unwrap();
        let first = one.acquire(patiently(b"job").shared().fenced()).unwrap();
        let second = two.acquire(patiently(b"job").shared().fenced()).unwrap();
        last = first.fencing_token().unwrap().get();
        assert_eq!(
            second.fencing_token().unwrap().get(),
            last,
            "readers of one phase share the token"
        );
        assert!(last > even && last % 2 == 1, "{last} after {even}");
        first.release().unwrap();
        second.release().unwrap();
    }
}

/// A negative number can be odd in Lua.
#[test]
fn an_invalid_counter_does_not_become_a_fencing_token() {
    let server = Server::start();
    let micros = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_micros();
    for counter in ["-7", "0", "-inf"] {
        server.cmd("DEL job");
        server.cmd(&format!("SET counter {counter}"));
        let args = [&token('a'), "60000", &micros.to_string(), "60000", "1", "3"];
        let reply = eval(&server, ACQUIRE_SHARED_FENCED.text, &["job", "counter"], &args);
        assert_eq!(reply, Reply::Status(format!("OK {}", micros | 1)), "{counter}");
    }
}

/// A node restored from an old snapshot shows a number from before a writer held the lock.
#[test]
fn an_old_odd_counter_is_not_reused() {
    let server = Server::start();
    let micros = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_micros() as u64;
    let least = least_kept(micros, Duration::from_secs(30));
    assert_eq!(least, micros - 20_000_000);
    for (counter, shown) in [((least - 2) | 1, micros | 1), (least | 1, least | 1)] {
        server.cmd("DEL job");
        server.cmd(&format!("SET counter {counter}"));
        let args = [&token('a'), "60000", &micros.to_string(), "60000", &least.to_string(), "3"];
        let reply = eval(&server, ACQUIRE_SHARED_FENCED.text, &["job", "counter"], &args);
        assert_eq!(reply, Reply::Status(format!("OK {shown}")), "{counter}");
    }
}

#[test]
fn a_shared_lock_stays_shared_when_extended_detached_and_attached() {
    let servers = servers(3);
    let (reader, other) = (warm_client(builder(&servers)), warm_client(builder(&servers)));
    let mut lock = reader
        .acquire(LockRequest::new(b"job").ttl(Duration::from_secs(5)).shared().fenced())
        .unwrap();
    lock.extend(Duration::from_secs(20)).unwrap();
    assert!(lock.remaining() > Duration::from_secs(10));
    let detached = lock.detach().unwrap();
    assert_eq!(detached.mode(), LockMode::Shared);
    let detached = detached.to_text().parse().unwrap();
    let mut again = other.attach(&detached).unwrap();
    assert_eq!(again.mode(), LockMode::Shared);
    again.extend(Duration::from_secs(25)).unwrap();
    assert!(again.release().is_ok());
    eventually("nothing is left", || held_on(&servers, "job") == 0);
}

#[test]
fn a_shared_lock_on_two_resources_is_refused_at_once() {
    let servers = servers(1);
    let client = client(&servers);
    let error = client.acquire(long(b"a").and(b"b").shared()).unwrap_err();
    let expected = RequestError::SharedKeys { keys: 2 };
    assert!(matches!(error, AcquireError::Request(request) if request == expected));
}

#[test]
fn an_inspection_names_the_readers_and_an_operator_can_break_their_lock() {
    let servers = servers(3);
    let reader = |label: &str| warm_client(builder(&servers).label(label));
    let (one, two, operator) = (reader("one"), reader("two"), reader("operator"));
    let first = one.acquire(patiently(b"job").shared()).unwrap();
    let second = two.acquire(patiently(b"job").shared()).unwrap();
    eventually("all nodes have both", || {
        servers.iter().all(|server| server.cmd("ZCARD job") == Reply::Int(2))
    });
    let seen = operator.inspect(b"job").unwrap();
    let InspectionVerdict::Shared(sharers) = &seen.verdict else { panic!("{seen:?}") };
    let labels: Vec<_> =
        sharers.holders.iter().map(|holder| holder.label.as_deref().unwrap()).collect();
    assert_eq!((labels.len(), sharers.count), (2, 2), "{labels:?}");
    assert!(labels.contains(&"one") && labels.contains(&"two"), "{labels:?}");
    assert!(seen.is_locked() && seen.owner() == Some(Owner::Other));
    assert_eq!(one.inspect(b"job").unwrap().owner(), Some(Owner::Mine));
    let words = seen.nodes[0].to_string();
    assert!(words.contains("shared by") && words.contains("two"), "{words}");
    let report = operator.force_unlock(b"job", UnlockScope::Locks).unwrap();
    assert!(report.is_confirmed() && report.broken() == 3, "{report}");
    assert_eq!(held_on(&servers, "job"), 0);
    let alone = operator.acquire(patiently(b"job")).unwrap();
    // These holders do not know yet that they lost the lock, and their release must not touch the
    // next holder's.
    for lock in [first, second] {
        drop(lock);
    }
    assert!(alone.is_valid() && held_on(&servers, "job") == 3);
}

/// One lock has more readers than a report shows, and one sorted set is of another program.
#[test]
fn many_readers_are_counted_and_another_sorted_set_is_other_data() {
    let servers = servers(1);
    let client = warm_client(builder(&servers));
    for name in 0..20 {
        let token = format!("{name:032x}00:reader {name}");
        assert_eq!(eval(&servers[0], ACQUIRE_SHARED.text, &["job"], &[&token, "60000", "3"]), ok());
    }
    let seen = client.inspect(b"job").unwrap();
    let Ok(KeyState::Shared(sharers)) = &seen.nodes[0].state else { panic!("{seen:?}") };
    assert_eq!((sharers.holders.len(), sharers.count), (16, 20));
    assert!(sharers.to_string().ends_with(" and 4 more"), "{sharers}");
    let long = "x".repeat(200);
    for member in ["x", "two\nlines", &long] {
        servers[0].cmd("DEL other");
        let add: [&[u8]; 4] = [b"ZADD", b"other", b"9795372973641", member.as_bytes()];
        servers[0].connect().run(&add);
        let seen = client.inspect(b"other").unwrap();
        let Ok(KeyState::Foreign(data)) = &seen.nodes[0].state else { panic!("{seen:?}") };
        assert_eq!(data.kind, DataKind::SortedSet);
    }
}

/// An address may lead to another server of the set for a moment, and back. A server's vote counts
/// once.
#[test]
fn a_server_that_is_asked_twice_grants_once() {
    let server = Server::start();
    let random = "a7".repeat(16);
    let ask = |node: &str, label: &str, fenced: bool| {
        let token = format!("{random}{node}{label}");
        let micros = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_micros().to_string();
        match fenced {
            false => eval(&server, ACQUIRE_SHARED.text, &["job"], &[&token, "60000", "5"]),
            true => {
                let args = [&token, "60000", &micros, "60000", "1", "5"];
                eval(&server, ACQUIRE_SHARED_FENCED.text, &["job", "counter"], &args)
            }
        }
    };
    assert_eq!(ask("00", "", false), ok());
    for (node, fenced) in [("04", false), ("01", true), ("00", false)] {
        let denied = ask(node, "", fenced);
        assert!(matches!(denied, Reply::Int(50_000..=60_000)), "{node}: {denied:?}");
    }
    assert_eq!(ask("01", ":another % label", false), ok(), "another holder");
    assert!(matches!(ask("02", ":another % label", false), Reply::Int(_)));
    assert_eq!(server.cmd("ZCARD job"), Reply::Int(2));
    assert!(!exists(&server, "counter"), "a denial raises no counter");
}
