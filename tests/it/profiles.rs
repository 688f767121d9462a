//! Locks in the formats of other libraries, on real servers: the data that clients of those
//! libraries find, and which holders exclude each other.

use std::time::Duration;

use redbolt::inspect::UnlockScope;
use redbolt::inspect::{InspectionVerdict, Owner};
use redbolt::proto::script::{
    ACQUIRE_PYTHON, ACQUIRE_REDISSON, ACQUIRE_REDISSON_FENCED, ACQUIRE_REDISSON_READ,
    ACQUIRE_REDISSON_WRITE, ACQUIRE_SYMFONY_READ, ACQUIRE_SYMFONY_WRITE, ACQUIRE_TIMED,
    EXTEND_REDISSON, EXTEND_REDISSON_RW, EXTEND_SHARED, EXTEND_SYMFONY_WRITE, EXTEND_TIMED,
    UNDO_PYTHON, UNDO_REDISSON, UNDO_REDISSON_RW, UNDO_SHARED, UNDO_SPRING, UNDO_SYMFONY_WRITE,
    UNDO_TIMED,
};
use redbolt::{AcquireError, Client, DetachedLock, LockRequest, Profile, RequestError};
use redbolt_test_servers::{Connection, Reply, Server};

use crate::engine::engine;
use crate::support::{
    calls, client, eventually, exists, held_on, long, looks, patiently, pttl, refusal, server,
    servers,
};

fn redisson(resource: &[u8]) -> LockRequest<'_> {
    patiently(resource).format(Profile::REDISSON)
}

fn eval(server: &Server, script: &str, keys: &[&str], args: &[&str]) -> Reply {
    let count = keys.len().to_string();
    let words = [&["EVAL", script, &count], keys, args].concat();
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    server.run(&words)
}

fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.into())
}

/// Returns a connection that has subscribed to a channel, like a waiter of the other library.
fn listener(server: &Server, channel: &str) -> Connection {
    let mut listener = server.connect();
    assert!(matches!(listener.cmd(&format!("SUBSCRIBE {channel}")), Reply::Array(_)));
    listener
}

/// Acquires the lock when it becomes free, and releases it.
fn waits_for(client: Client) {
    released(client.acquire(redisson(b"job")).unwrap());
}

fn released(lock: redbolt::LockGuard<'_>) {
    let outcome = lock.release();
    assert!(outcome.is_ok(), "{outcome:?}");
}

#[test]
fn a_redisson_lock_is_a_hash_of_one_holder_and_its_release_is_published() {
    for (resource, channel) in [
        ("job", "redisson_lock__channel:{job}"),
        ("{a}:job", "redisson_lock__channel:{a}:job"),
        ("a}:{job", "redisson_lock__channel:a}:{job"),
    ] {
        let servers = servers(3);
        let mut listeners: Vec<_> = servers.iter().map(|it| listener(it, channel)).collect();
        let client = client(&servers);
        client.warm_up(Duration::from_secs(15));
        let lock = client.acquire(redisson(resource.as_bytes())).unwrap();
        eventually("all nodes grant it", || held_on(&servers, resource) == 3);
        for server in &servers {
            let Reply::Array(found) = server.cmd(&format!("HGETALL {resource}")) else { panic!() };
            assert_eq!((found.len(), &found[1]), (2, &bulk("1")), "one holder, entered once");
            assert!(pttl(server, resource) > 0, "it ends by itself");
        }
        released(lock);
        for listener in &mut listeners {
            let reported = [bulk("message"), bulk(channel), bulk("0")];
            assert_eq!(listener.reply(), Reply::Array(reported.into()));
        }
        for server in &servers {
            assert_eq!(server.cmd("KEYS *"), Reply::Array(vec![bulk("redbolt:guard")]));
        }
    }
}

#[test]
fn a_redisson_holder_is_waited_for_and_its_release_is_received() {
    let server = server();
    let client = client(std::slice::from_ref(&server));
    server.cmd("HSET job 1f0c:42 2");
    server.cmd("PEXPIRE job 600000");
    assert!(refusal(client.acquire(long(b"job").format(Profile::REDISSON))).is_contended());
    assert!(
        refusal(client.acquire(long(b"job"))).is_contended(),
        "it is not free in other formats either"
    );
    std::thread::scope(|scope| {
        let waits = scope.spawn(move || waits_for(client));
        eventually("it tracks the key", || calls(&server, "client|tracking") > 0);
        assert_eq!(server.cmd("HGET job 1f0c:42"), bulk("2"), "it has not touched the holder");
        server.cmd("DEL job");
        waits.join().unwrap();
    });
    assert!(!exists(&server, "job"));
}

#[test]
fn an_inspection_shows_a_holder_in_another_format() {
    let servers = servers(3);
    let client = client(&servers);
    let uuid = "1f0c2d3e-0011-2233-4455-66778899aabb";
    let shown = |made: &str| {
        for server in &servers {
            server.cmd("DEL job");
            server.cmd(made);
            server.cmd("PEXPIRE job 600000");
        }
        let seen = looks(&client, b"job");
        assert!(seen.nodes.iter().all(|node| node.state.as_ref().unwrap().remaining().is_some()));
        seen.verdict.to_string()
    };
    assert!(shown(&format!("HSET job {uuid}:42 2")).contains("held by Redisson 1f0c…:42, 2 holds"));
    assert!(shown("HSET job mode read a:1 1").contains("held by 1 reader of Redisson"));
    let late = 4_100_000_000_000_u64;
    assert!(
        shown(&format!("ZADD job {late} {OF_SYMFONY}")).contains("held by 1 reader of Symfony")
    );
    let alone = format!("ZADD job {late} {OF_SYMFONY} {late} __write__");
    assert!(shown(&alone).contains("held by Symfony"));
    assert!(shown(&format!("SET job {uuid}")).contains("(as of Spring, pottery, "));
    assert!(shown("HSET job a 1 b 2").contains("other data, a hash"));
    for server in &servers {
        server.cmd("DEL job");
    }
    for request in [redisson(b"job"), rw(b"job"), symfony(b"job")] {
        let lock = client.acquire(request).unwrap();
        let seen = client.inspect(b"job").unwrap();
        assert!(matches!(seen.verdict, InspectionVerdict::Held(_)), "{seen:?}");
        assert_eq!(seen.owner(), Some(Owner::Mine));
        released(lock);
        eventually("it is free", || held_on(&servers, "job") == 0);
    }
    for request in [rw(b"job"), symfony(b"job")] {
        let lock = client.acquire(request.shared()).unwrap();
        let seen = client.inspect(b"job").unwrap();
        let InspectionVerdict::Shared(sharers) = &seen.verdict else { panic!("{seen:?}") };
        assert_eq!(sharers.count, 1);
        assert_eq!(seen.owner(), Some(Owner::Mine));
        released(lock);
        eventually("it is free", || held_on(&servers, "job") == 0);
    }
}

/// Waiters are notified, as when Redisson itself force-unlocks.
#[test]
fn a_redisson_waiter_is_notified_of_a_forced_unlock() {
    let server = server();
    let mut listener = listener(&server, "redisson_lock__channel:{job}");
    let client = client(std::slice::from_ref(&server));
    let lock = client.acquire(redisson(b"job")).unwrap();
    assert!(client.force_unlock(b"job", UnlockScope::Locks).unwrap().is_confirmed());
    assert!(matches!(listener.reply(), Reply::Array(_)));
    assert!(!exists(&server, "job"));
    drop(lock);
}

/// The end of the registry's key cannot be seen in a lock's name, so any colon may be it.
#[test]
fn the_release_of_a_spring_lock_is_published_to_its_registry() {
    for (name, channel) in [
        ("shop:job", "shop-channel:shop:job"),
        ("shop:eu:job", "shop:eu-channel:shop:eu:job"),
        ("shop:job:7", "shop-channel:shop:job:7"),
    ] {
        let servers = servers(3);
        let mut listeners: Vec<_> = servers.iter().map(|it| listener(it, channel)).collect();
        let client = client(&servers);
        client.warm_up(Duration::from_secs(15));
        let spring = || patiently(name.as_bytes()).format(Profile::SPRING);
        let lock = client.acquire(spring()).unwrap();
        eventually("all nodes grant it", || held_on(&servers, name) == 3);
        released(lock);
        for listener in &mut listeners {
            let reported = [bulk("message"), bulk(channel), bulk(name)];
            assert_eq!(listener.reply(), Reply::Array(reported.into()));
        }
        // A force-unlock publishes as well.
        let lock = client.acquire(spring()).unwrap();
        eventually("all nodes grant it", || held_on(&servers, name) == 3);
        assert!(client.force_unlock(name.as_bytes(), UnlockScope::Locks).unwrap().is_confirmed());
        for listener in &mut listeners {
            assert!(matches!(listener.reply(), Reply::Array(_)));
        }
        drop(lock);
    }
}

/// Spring's clients use one value for all locks of a process, so the undo must check it.
#[test]
fn only_the_holder_of_a_spring_lock_undoes_and_publishes_it() {
    let server = Server::start();
    let mut listener = listener(&server, "shop-channel:shop:job");
    server.cmd("SET shop:job mine PX 60000");
    let undo = |token: &str| eval(&server, UNDO_SPRING.text, &["shop:job"], &[token]);
    assert_eq!(undo("other"), Reply::Int(0));
    assert!(exists(&server, "shop:job"));
    assert_eq!((undo("mine"), undo("mine")), (Reply::Int(1), Reply::Int(0)));
    server.cmd("PUBLISH shop-channel:shop:job last");
    let reported =
        |body: &str| Reply::Array(["message", "shop-channel:shop:job", body].map(bulk).into());
    assert_eq!(
        (listener.reply(), listener.reply()),
        (reported("shop:job"), reported("last")),
        "once"
    );
    server.cmd("HSET shop:job mine 1");
    assert_eq!(undo("mine"), Reply::Int(0), "data of another type is left alone");
    assert!(exists(&server, "shop:job"));
}

fn python(name: &str) -> LockRequest<'_> {
    patiently(name.as_bytes()).format(Profile::PYTHON_REDIS_LOCK)
}

/// Clients of python-redis-lock block on a list, and each entry wakes one of them.
#[test]
fn the_release_of_a_python_redis_lock_adds_one_entry_to_its_list() {
    let servers = servers(3);
    let client = client(&servers);
    client.warm_up(Duration::from_secs(15));
    for broken in [false, true] {
        let mut sleepers: Vec<_> = servers.iter().map(Server::connect).collect();
        let lock = client.acquire(python("lock:job")).unwrap();
        eventually("all nodes grant it", || held_on(&servers, "lock:job") == 3);
        for (server, sleeper) in servers.iter().zip(&mut sleepers) {
            assert!(!exists(server, "lock-signal:job"), "the list is empty before the release");
            sleeper.send(b"BLPOP lock-signal:job 60\r\n");
            eventually("it sleeps", || blocked(server) == 1);
        }
        match broken {
            false => released(lock),
            true => {
                assert!(
                    client.force_unlock(b"lock:job", UnlockScope::Locks).unwrap().is_confirmed()
                );
                drop(lock);
            }
        }
        for sleeper in &mut sleepers {
            let woken = ["lock-signal:job", "1"].map(bulk);
            assert_eq!(sleeper.reply(), Reply::Array(woken.into()));
        }
        for server in &servers {
            assert_eq!(server.cmd("KEYS *"), Reply::Array(vec![bulk("redbolt:guard")]));
        }
        // If no client is blocked, the entry wakes one that comes within a second, and then
        // expires.
        released(client.acquire(python("lock:job")).unwrap());
        for server in &servers {
            let left = pttl(server, "lock-signal:job");
            assert!((0..=1_000).contains(&left) || left == -2, "{left}");
        }
        eventually("nothing is left", || held_on(&servers, "lock-signal:job") == 0);
    }
}

/// Returns the number of clients that are blocked on a list.
fn blocked(server: &Server) -> usize {
    let Reply::Bulk(info) = server.cmd("INFO clients") else { panic!("no INFO") };
    let info = String::from_utf8(info).unwrap();
    let line = info.lines().find_map(|line| line.strip_prefix("blocked_clients:"));
    line.unwrap().parse().unwrap()
}

#[test]
fn only_the_holder_of_a_python_redis_lock_undoes_and_publishes_it() {
    let server = Server::start();
    let keys = ["lock:job", "lock-signal:job"];
    let ask = |token: &str| eval(&server, ACQUIRE_PYTHON.text, &keys, &[token, "60000"]);
    let undo = |token: &str| eval(&server, UNDO_PYTHON.text, &keys, &[token]);
    let reported = || server.cmd("LLEN lock-signal:job");
    // These entries are from an earlier release, and no longer mean anything.
    server.cmd("RPUSH lock-signal:job 1 1");
    assert_eq!((ask("mine"), reported()), (Reply::Status("OK".into()), Reply::Int(0)));
    assert!(matches!(ask("mine"), Reply::Int(1..)), "a second request does not re-enter");
    assert_eq!((undo("other"), reported()), (Reply::Int(0), Reply::Int(0)));
    server.cmd("RPUSH lock-signal:job 1 1");
    assert_eq!((undo("mine"), reported()), (Reply::Int(1), Reply::Int(1)), "one entry");
    server.cmd("DEL lock-signal:job");
    assert_eq!((undo("mine"), reported()), (Reply::Int(0), Reply::Int(0)), "once");
    // The script's trial write of an entry must not wake a blocked client.
    let mut sleeper = server.connect();
    sleeper.send(b"BLPOP lock-signal:job 60\r\n");
    eventually("it sleeps", || blocked(&server) == 1);
    assert_eq!(ask("mine"), Reply::Status("OK".into()));
    assert_eq!(blocked(&server), 1);
    assert_eq!(undo("mine"), Reply::Int(1));
    assert_eq!(sleeper.reply(), Reply::Array(["lock-signal:job", "1"].map(bulk).into()));
    server.cmd("HSET lock:job mine 1");
    assert_eq!((ask("mine"), undo("mine")), (Reply::Int(-1), Reply::Int(0)));
    assert!(exists(&server, "lock:job"), "data of another type is left alone");
}

#[test]
fn a_force_unlock_leaves_a_signal_key_that_is_not_a_list() {
    let server = server();
    let client = client(std::slice::from_ref(&server));
    server.cmd("SET lock-signal:job data");
    // The name could be that of a python-redis-lock, whose signal key an operator's break would
    // write.
    let lock = client.acquire(patiently(b"lock:job")).unwrap();
    assert!(client.force_unlock(b"lock:job", UnlockScope::Locks).unwrap().is_confirmed());
    assert_eq!(server.cmd("GET lock-signal:job"), bulk("data"));
    assert_eq!(pttl(&server, "lock-signal:job"), -1);
    drop(lock);
}

/// Another client may hold a lock with the name of the list.
#[test]
fn python_redis_lock_leaves_a_key_that_is_not_a_list() {
    let server = server();
    let [holder, client] = [(); 2].map(|()| client(std::slice::from_ref(&server)));
    let other = holder.acquire(patiently(b"lock:job").format(Profile::PYTHON_REDIS_LOCK)).unwrap();
    server.cmd("SET lock-signal:job token PX 30000");
    assert!(other.release().is_ok(), "its own release goes through");
    let refused = refusal(client.acquire(long(b"lock:job").format(Profile::PYTHON_REDIS_LOCK)));
    assert!(refused.to_string().contains("the key holds other data"), "{refused}");
    assert_eq!(server.cmd("GET lock-signal:job"), bulk("token"), "another client's lock");
    assert!(pttl(&server, "lock-signal:job") > 10_000);
    assert!(!exists(&server, "lock:job"));
    server.cmd("DEL lock-signal:job");
    released(client.acquire(python("lock:job")).unwrap());
}

/// No lock can have the name of a key that a format keeps with its locks.
#[test]
fn a_key_that_a_format_keeps_with_a_lock_cannot_be_locked() {
    let server = server();
    let client = client(std::slice::from_ref(&server));
    for name in [
        "lock-signal:job",
        "redbolt:lease:job",
        "redisson_lock_token:{job}",
        "redisson_lock_token:{a}:job",
        "redisson_unlock_latch:{job}:1",
        "redisson_lock_queue:{job}",
        "redisson_lock_timeout:{job}",
        "{job}:peer:1:rwlock_timeout:1",
    ] {
        for profile in [Profile::PLAIN, Profile::REDISSON] {
            let refused = client.acquire(long(name.as_bytes()).format(profile));
            let is_refused =
                matches!(refused, Err(AcquireError::Request(RequestError::ReservedKey)));
            assert!(is_refused, "{name} {refused:?}");
        }
        assert_eq!(
            client.force_unlock(name, UnlockScope::Locks).unwrap_err(),
            RequestError::ReservedKey
        );
    }
    for name in ["lock-signal", "redisson_lock", "a:rwlock_timeout:b", "job:rwlock_timeout:"] {
        released(client.acquire(patiently(name.as_bytes())).unwrap());
    }
}

/// A node that refuses the list would leave clients of that library blocked.
#[test]
fn a_node_that_cannot_publish_grants_no_python_redis_lock() {
    let server = server();
    let client = client(std::slice::from_ref(&server));
    client.warm_up(Duration::from_secs(15));
    let ask = || long(b"lock:job").format(Profile::PYTHON_REDIS_LOCK);
    for rule in ["-lpush", "+lpush resetkeys ~lock:* ~redbolt:guard"] {
        server.cmd(&format!("ACL SETUSER default {rule}"));
        let report = refusal(client.acquire(ask()));
        assert!(!report.is_contended(), "{report}");
        assert!(!exists(&server, "lock:job"));
    }
    server.cmd("ACL SETUSER default allkeys");
    released(client.acquire(ask()).unwrap());
}

fn rw(resource: &[u8]) -> LockRequest<'_> {
    patiently(resource).format(Profile::REDISSON_RW)
}

#[test]
fn each_redisson_reader_has_a_key_and_the_last_to_leave_publishes() {
    for (resource, before) in [("job", "{job}:"), ("{a}:job", "{a}:job:")] {
        let servers = servers(3);
        let channel = format!("redisson_rwlock:{}", before.strip_suffix(':').unwrap());
        let mut listeners: Vec<_> = servers.iter().map(|it| listener(it, &channel)).collect();
        let (one, other) = (client(&servers), client(&servers));
        for client in [&one, &other] {
            client.warm_up(Duration::from_secs(15));
        }
        let first = one.acquire(rw(resource.as_bytes()).shared()).unwrap();
        let second = other.acquire(rw(resource.as_bytes()).shared()).unwrap();
        for server in &servers {
            eventually("both read", || server.cmd(&format!("HLEN {resource}")) == Reply::Int(3));
            assert_eq!(server.cmd(&format!("HGET {resource} mode")), bulk("read"));
            let Reply::Array(fields) = server.cmd(&format!("HKEYS {resource}")) else { panic!() };
            for field in fields.iter().filter(|&field| *field != bulk("mode")) {
                let Reply::Bulk(field) = field else { panic!("{field:?}") };
                let hold = format!("{before}{}:rwlock_timeout:1", String::from_utf8_lossy(field));
                assert!(pttl(server, &hold) > 0, "{hold}");
            }
        }
        let writes = |client: &Client| {
            refusal(client.acquire(long(resource.as_bytes()).format(Profile::REDISSON_RW)))
        };
        assert!(writes(&one).is_contended());
        released(first);
        released(second);
        eventually("it is free", || held_on(&servers, resource) == 0);
        let writer = other.acquire(rw(resource.as_bytes())).unwrap();
        assert!(
            refusal(one.acquire(long(resource.as_bytes()).format(Profile::REDISSON_RW).shared()))
                .is_contended()
        );
        eventually("all nodes grant it", || held_on(&servers, resource) == 3);
        released(writer);
        for listener in &mut listeners {
            for body in ["0", "1"] {
                let reported = ["message", &channel, body].map(bulk);
                assert_eq!(listener.reply(), Reply::Array(reported.into()), "once by each");
            }
        }
        for server in &servers {
            assert_eq!(server.cmd("KEYS *"), Reply::Array(vec![bulk("redbolt:guard")]));
        }
    }
}

#[test]
fn a_reader_that_leaves_keeps_redisson_s_readers_until_they_expire() {
    let server = server();
    let client = client(std::slice::from_ref(&server));
    server.cmd("HSET job mode read peer:1 2");
    server.cmd("PEXPIRE job 20000");
    server.cmd("SET {job}:peer:1:rwlock_timeout:1 1 PX 10000");
    server.cmd("SET {job}:peer:1:rwlock_timeout:2 1 PX 20000");
    let ask = || LockRequest::new("job").ttl(Duration::from_secs(28)).format(Profile::REDISSON_RW);
    assert!(refusal(client.acquire(ask())).is_contended(), "it reads");
    let mut lock = client.acquire(ask().shared()).unwrap();
    assert!(pttl(&server, "job") > 20_000, "as long as the last of them");
    lock.extend(Duration::from_secs(29)).unwrap();
    released(lock);
    let left = pttl(&server, "job");
    assert!((10_001..=20_000).contains(&left), "{left}");
    let fields = ["mode", "read", "peer:1", "2"].map(bulk);
    assert_eq!(server.cmd("HGETALL job"), Reply::Array(fields.into()));
    // All other readers have expired.
    let lock = client.acquire(ask().shared()).unwrap();
    server.cmd("DEL {job}:peer:1:rwlock_timeout:1 {job}:peer:1:rwlock_timeout:2");
    released(lock);
    assert!(!exists(&server, "job"));
    // This reader has entered often, and only its last entry is left.
    server.cmd("HSET job mode read peer:1 100");
    server.cmd("SET {job}:peer:1:rwlock_timeout:100 1 PX 20000");
    released(client.acquire(ask().shared()).unwrap());
    assert!((10_001..=20_000).contains(&pttl(&server, "job")), "{}", pttl(&server, "job"));
}

/// Redisson does not publish this change.
#[test]
fn a_waiting_reader_sees_that_redisson_s_writer_became_a_reader() {
    let server = server();
    let client = client(std::slice::from_ref(&server));
    server.cmd("HSET job mode write peer:1:write 1 peer:1 1");
    server.cmd("PEXPIRE job 600000");
    server.cmd("SET {job}:peer:1:rwlock_timeout:1 1 PX 600000");
    std::thread::scope(|scope| {
        let waits = scope.spawn(move || released(client.acquire(rw(b"job").shared()).unwrap()));
        eventually("it tracks the key", || calls(&server, "client|tracking") > 0);
        server.cmd("HSET job mode read");
        server.cmd("HDEL job peer:1:write");
        waits.join().unwrap();
    });
    assert_eq!(server.cmd("HLEN job"), Reply::Int(2), "the other reader stays");
}

#[test]
fn a_reader_whose_own_key_has_expired_no_longer_reads() {
    let server = Server::start();
    let token = "a".repeat(34);
    let twin = [&token[..32], "01"].concat();
    let hold = format!("{{job}}:{token}:rwlock_timeout:1");
    let read =
        |token: &str| eval(&server, ACQUIRE_REDISSON_READ.text, &["job"], &[token, "60000", "3"]);
    let extend = || eval(&server, EXTEND_REDISSON_RW.text, &["job"], &[&token, "90000"]);
    let undo = || eval(&server, UNDO_REDISSON_RW.text, &["job"], &[&token]);
    let node_0 = [&token[..32], "00"].concat();
    assert_eq!(read(&node_0), Reply::Status("OK".into()));
    assert!(matches!(read(&twin), Reply::Int(1..)), "the same client, as another node");
    assert_eq!(eval(&server, UNDO_REDISSON_RW.text, &["job"], &[&node_0]), Reply::Int(1));
    assert_eq!(read(&token), Reply::Status("OK".into()));
    assert_eq!(extend(), Reply::Int(1));
    assert!(pttl(&server, &hold) > 60_000 && pttl(&server, "job") > 60_000);
    server.cmd(&format!("DEL {hold}"));
    assert_eq!((extend(), undo(), undo()), (Reply::Int(0), Reply::Int(1), Reply::Int(0)));
    // A writer, and data of another kind, are handled alike.
    let write = || eval(&server, ACQUIRE_REDISSON_WRITE.text, &["job"], &[&token, "60000"]);
    assert_eq!((write(), extend()), (Reply::Status("OK".into()), Reply::Int(1)));
    assert!(matches!(write(), Reply::Int(1..)) && matches!(read(&twin), Reply::Int(1..)));
    assert_eq!((undo(), undo()), (Reply::Int(1), Reply::Int(0)));
    for made in ["SET job x", "HSET job x 1", "SADD job x"] {
        server.cmd("DEL job");
        server.cmd(made);
        assert_eq!((read(&token), write()), (Reply::Int(-1), Reply::Int(-1)), "{made}");
        assert_eq!((undo(), extend()), (Reply::Int(0), Reply::Int(0)), "{made}");
        assert!(exists(&server, "job"));
    }
}

/// Only redbolt's own format supports a change of mode.
#[test]
fn a_lock_in_another_format_cannot_change_its_mode() {
    let servers = servers(1);
    let engine = engine(&servers);
    for profile in [Profile::REDISSON_RW, Profile::SYMFONY] {
        let ask = || patiently(b"job").format(profile);
        let reader = engine.acquire(ask().shared()).wait().unwrap();
        let refused = reader.try_upgrade().wait().unwrap_err().to_string();
        let reported = format!("the profile {profile} cannot change its mode");
        assert!(refused.contains(&reported), "{refused}");
        assert!(reader.is_valid());
        reader.release().wait().unwrap();
        let writer = engine.acquire(ask()).wait().unwrap();
        let refused = writer.downgrade().wait().unwrap_err().to_string();
        assert!(refused.contains("cannot change its mode"), "{refused}");
        assert!(writer.is_valid());
        writer.release().wait().unwrap();
    }
}

#[test]
fn a_reader_in_another_format_moves_to_another_process() {
    let servers = servers(3);
    for profile in [Profile::REDISSON_RW, Profile::SYMFONY] {
        let ask = patiently(b"job").format(profile).shared();
        let text = client(&servers).acquire(ask).unwrap().detach().unwrap().to_text();
        assert!(text.contains(&format!("\nkind {profile}-shared\n")), "{text}");
        let second = client(&servers);
        second.warm_up(Duration::from_secs(15));
        let mut lock = second.attach(&text.parse().unwrap()).unwrap();
        lock.extend(Duration::from_secs(20)).unwrap();
        released(lock);
        eventually("nothing is left", || held_on(&servers, "job") == 0);
    }
}

fn symfony(resource: &[u8]) -> LockRequest<'_> {
    patiently(resource).format(Profile::SYMFONY)
}

/// A token in the form that Symfony uses: 32 bytes in base64.
const OF_SYMFONY: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

/// Returns the time on the node's clock in ms since 1970.
fn clock_ms(server: &Server) -> u64 {
    let Reply::Array(time) = server.cmd("TIME") else { panic!("no time") };
    let [seconds, micros] = [0, 1].map(|at| match &time[at] {
        Reply::Bulk(digits) => String::from_utf8_lossy(digits).parse::<u64>().unwrap(),
        other => panic!("{other:?}"),
    });
    seconds * 1_000 + micros / 1_000
}

/// Writes members with their remaining times in ms into the set, and lets the key live as long as
/// the last of them.
fn set_of_symfony(server: &Server, members: &[(&str, i64)]) {
    let now = clock_ms(server).cast_signed();
    for (name, left) in members {
        server.cmd(&format!("ZADD job {} {name}", now + left));
    }
    let last = members.iter().map(|(_, left)| now + left).max().unwrap();
    server.cmd(&format!("PEXPIREAT job {}", last.max(now + 600_000)));
}

#[test]
fn a_symfony_lock_is_a_set_of_holders_with_a_mark_if_exclusive() {
    let servers = servers(3);
    let (one, other) = (client(&servers), client(&servers));
    for client in [&one, &other] {
        client.warm_up(Duration::from_secs(15));
    }
    let asks = || long(b"job").format(Profile::SYMFONY);
    let names = |server: &Server| match server.cmd("ZRANGE job 0 -1 WITHSCORES") {
        Reply::Array(found) => found,
        other => panic!("{other:?}"),
    };
    let mut lock = one.acquire(symfony(b"job")).unwrap();
    eventually("all nodes grant it", || held_on(&servers, "job") == 3);
    lock.extend(Duration::from_secs(25)).unwrap();
    for server in &servers {
        let members = names(server);
        assert_eq!((members.len(), &members[0]), (4, &bulk("__write__")));
        assert_eq!(members[1], members[3], "it ends with its mark");
        let Reply::Bulk(name) = &members[2] else { panic!("{members:?}") };
        assert!(name.starts_with(b"s:"), "redbolt's own readers are others");
        let Reply::Bulk(ends) = &members[3] else { panic!("{members:?}") };
        let left = String::from_utf8_lossy(ends).parse::<u64>().unwrap() - clock_ms(server);
        assert!(pttl(server, "job").abs_diff(left.cast_signed()) < 1_000, "so does the key");
    }
    assert!(refusal(other.acquire(asks())).is_contended());
    assert!(refusal(other.acquire(asks().shared())).is_contended());
    released(lock);
    eventually("it is free", || held_on(&servers, "job") == 0);
    let first = one.acquire(symfony(b"job").shared()).unwrap();
    let second = other.acquire(symfony(b"job").shared()).unwrap();
    for server in &servers {
        eventually("both read", || server.cmd("ZCARD job") == Reply::Int(2));
    }
    assert!(refusal(other.acquire(asks())).is_contended());
    released(first);
    assert!(refusal(one.acquire(asks())).is_contended(), "one reader is left");
    released(second);
    for server in &servers {
        eventually("nothing is left", || {
            server.cmd("KEYS *") == Reply::Array(vec![bulk("redbolt:guard")])
        });
    }
}

#[test]
fn a_symfony_holder_denies_until_it_expires() {
    let server = server();
    let client = client(std::slice::from_ref(&server));
    let asks = || long(b"job").format(Profile::SYMFONY);
    // One reader is valid, the other has expired.
    set_of_symfony(&server, &[(OF_SYMFONY, 20_000), (&OF_SYMFONY.replace('M', "N"), -5)]);
    assert!(refusal(client.acquire(asks())).is_contended());
    let lock = client.acquire(LockRequest::new("job").format(Profile::SYMFONY).shared()).unwrap();
    assert_eq!(server.cmd("ZCARD job"), Reply::Int(2), "the expired reader was removed");
    released(lock);
    assert_eq!(server.cmd("ZCARD job"), Reply::Int(1));
    assert!((1..=20_000).contains(&pttl(&server, "job")), "as long as the last of them");
    // An exclusive holder changes to shared mode, which Symfony does not publish.
    server.cmd("DEL job");
    set_of_symfony(&server, &[(OF_SYMFONY, 600_000), ("__write__", 600_000)]);
    assert!(refusal(client.acquire(asks())).is_contended());
    assert!(refusal(client.acquire(asks().shared())).is_contended());
    for (shares, goes) in [(true, "__write__"), (false, OF_SYMFONY)] {
        let before = calls(&server, "client|tracking");
        let waiter = crate::support::client(std::slice::from_ref(&server));
        std::thread::scope(|scope| {
            let waits = scope.spawn(move || {
                let ask = if shares { symfony(b"job").shared() } else { symfony(b"job") };
                released(waiter.acquire(ask).unwrap());
            });
            eventually("it tracks the key", || calls(&server, "client|tracking") > before);
            server.cmd(&format!("ZREM job {goes}"));
            waits.join().unwrap();
        });
    }
    // An expired holder holds nothing, in either mode.
    for over in [&[(OF_SYMFONY, -5)][..], &[(OF_SYMFONY, -5), ("__write__", -5)]] {
        for ask in [symfony(b"job"), symfony(b"job").shared()] {
            set_of_symfony(&server, over);
            released(client.acquire(ask).unwrap());
            assert!(!exists(&server, "job"));
        }
    }
}

#[test]
fn a_set_that_symfony_cannot_have_made_denies_and_stays() {
    let server = server();
    let client = client(std::slice::from_ref(&server));
    let asks = || long(b"job").format(Profile::SYMFONY);
    for made in ["SET job x", "HSET job x 1", "SADD job x", "ZADD job 5 player", "ZADD job 5 line"]
    {
        for ends in [true, false] {
            server.cmd("DEL job");
            server.cmd(made);
            if ends {
                server.cmd("PEXPIRE job 600000");
            }
            // DUMP shows the whole value, so any change is noticed.
            let dump = server.cmd("DUMP job");
            assert!(refusal(client.acquire(asks())).is_contended(), "{made}");
            assert!(refusal(client.acquire(asks().shared())).is_contended(), "{made}");
            assert_eq!(server.cmd("DUMP job"), dump, "{made}");
        }
    }
    server.cmd("DEL job");
    server.cmd(&format!("ZADD job 5 {OF_SYMFONY}"));
    assert!(refusal(client.acquire(asks())).is_contended(), "Symfony always sets a TTL");
}

#[test]
fn only_its_holder_can_undo_or_extend_a_symfony_lock() {
    let server = Server::start();
    let name = |node: &str| format!("s:{}{node}:web", "a".repeat(32));
    let (mine, other) = (name("00"), name("01"));
    let run = |script, words: &[&str]| eval(&server, script, &["job"], words);
    let alone = |token: &str| run(ACQUIRE_SYMFONY_WRITE.text, &[token, "60000"]);
    let reads = |token: &str| run(ACQUIRE_SYMFONY_READ.text, &[token, "60000", "3"]);
    let undo = |token: &str| run(UNDO_SYMFONY_WRITE.text, &[token]);
    let extend = |token: &str| run(EXTEND_SYMFONY_WRITE.text, &[token, "90000"]);
    assert_eq!(alone(&mine), Reply::Status("OK".into()));
    assert!(matches!(alone(&mine), Reply::Int(1..)), "a second request does not re-enter");
    assert_eq!((undo(&other), extend(&other)), (Reply::Int(0), Reply::Int(0)));
    assert_eq!(run(UNDO_SHARED.text, &[&other]), Reply::Int(0), "of a reader that was denied");
    assert_eq!(server.cmd("ZCARD job"), Reply::Int(2), "it is marked as before");
    assert_eq!(extend(&mine), Reply::Int(1));
    assert!(pttl(&server, "job") > 60_000);
    server.cmd("ZREM job __write__");
    assert_eq!(extend(&mine), Reply::Int(0), "other readers may have come");
    assert_eq!((undo(&mine), undo(&mine)), (Reply::Int(1), Reply::Int(0)));
    assert!(!exists(&server, "job"));
    assert_eq!(reads(&mine), Reply::Status("OK".into()));
    assert!(matches!(reads(&other), Reply::Int(1..)), "the same client, as another node");
    assert_eq!(reads(&mine.replace('a', "b")), Reply::Status("OK".into()), "another one");
    assert_eq!(run(EXTEND_SHARED.text, &[&mine, "90000"]), Reply::Int(1));
    assert_eq!(run(UNDO_SHARED.text, &[&mine]), Reply::Int(1));
    assert!((1..=60_000).contains(&pttl(&server, "job")), "as long as the last of them");
    for made in ["SET job x", "HSET job x 1"] {
        server.cmd("DEL job");
        server.cmd(made);
        assert_eq!((alone(&mine), reads(&mine)), (Reply::Int(-1), Reply::Int(-1)), "{made}");
        assert_eq!((undo(&mine), extend(&mine)), (Reply::Int(0), Reply::Int(0)), "{made}");
        assert!(exists(&server, "job"));
    }
}

/// The formats keep their readers in different kinds of data, and do not see each other's writers.
#[test]
fn readers_in_one_format_deny_those_in_the_others() {
    let servers = servers(3);
    let (one, other) = (client(&servers), client(&servers));
    let all = [Profile::PLAIN, Profile::REDISSON_RW, Profile::SYMFONY];
    for (holds, wants) in all.into_iter().flat_map(|holds| all.map(|wants| (holds, wants))) {
        let lock = one.acquire(patiently(b"job").format(holds).shared()).unwrap();
        let asked = other.acquire(long(b"job").format(wants).shared());
        match holds == wants {
            true => released(asked.unwrap()),
            false => assert!(refusal(asked).is_contended(), "{wants} while held as {holds}"),
        }
        released(lock);
        eventually("it is free", || held_on(&servers, "job") == 0);
    }
}

/// Returns the time before the point, and the digits after it.
fn time_of(server: &Server) -> (u64, String) {
    let Reply::Bulk(value) = server.cmd("GET job") else { panic!("no string") };
    let value = String::from_utf8(value).unwrap();
    let (time, digits) = value.split_once('.').unwrap();
    (time.parse().unwrap(), digits.to_owned())
}

/// Returns the second on the node's clock.
fn second(server: &Server) -> u64 {
    let Reply::Array(time) = server.cmd("TIME") else { panic!("no time") };
    let Reply::Bulk(seconds) = &time[0] else { panic!("no seconds") };
    String::from_utf8_lossy(seconds).parse().unwrap()
}

const TIMED: [Profile; 2] = [Profile::REDIS_OBJECTS, Profile::SETNX];

/// Clients of these formats compare the value, a number, with their clock.
#[test]
fn the_value_of_a_timed_lock_is_later_than_its_end() {
    let server = server();
    let client = client(std::slice::from_ref(&server));
    for profile in TIMED {
        let ask = LockRequest::new("job").ttl(Duration::from_secs(8)).format(profile);
        let mut lock = client.acquire(ask).unwrap();
        let (time, digits) = time_of(&server);
        assert!(time > second(&server) + pttl(&server, "job").cast_unsigned() / 1_000);
        assert!(digits.bytes().all(|byte| byte.is_ascii_digit()), "a decimal number: {digits}");
        lock.extend(Duration::from_secs(25)).unwrap();
        assert!(pttl(&server, "job") > 15_000);
        let (later, same) = time_of(&server);
        assert!(later > time + 10 && same == digits, "{later}.{same} after {time}.{digits}");
        let seen = client.inspect(b"job").unwrap();
        assert_eq!(seen.owner(), Some(Owner::Mine));
        released(lock);
        assert!(!exists(&server, "job"));
    }
}

#[test]
fn only_an_expired_timed_lock_is_taken_over() {
    let server = server();
    let client = client(std::slice::from_ref(&server));
    let second_of_next_century = "4100000000";
    for profile in TIMED {
        let ask = || long(b"job").format(profile);
        for held in [second_of_next_century, "1", "somebody", "1100000000-x", "999", "5000000000"] {
            server.cmd(&format!("SET job {held}"));
            assert!(refusal(client.acquire(ask())).is_contended(), "{held}");
            assert_eq!(server.cmd("GET job"), bulk(held));
        }
        // Newer versions of redis-objects write such a value.
        server.run(&[b"SET", b"job", b"", b"PX", b"600000"]);
        assert!(refusal(client.acquire(ask())).is_contended());
        // A value with a TTL expires by itself, so its time is not used.
        server.cmd("SET job 1100000000 PX 600000");
        assert!(refusal(client.acquire(ask())).is_contended());
        for over in ["1100000000", "1100000000.75"] {
            server.cmd(&format!("SET job {over}"));
            let lock = client.acquire(ask()).unwrap();
            assert!(pttl(&server, "job") > 0, "our key has a TTL");
            released(lock);
            assert!(!exists(&server, "job"));
        }
    }
}

/// Nodes send no notification when such a time passes.
#[test]
fn a_waiter_uses_the_time_in_a_value_without_a_ttl() {
    let servers = servers(3);
    let client = client(&servers);
    for profile in TIMED {
        for server in &servers {
            server.cmd(&format!("SET job {}", second(server) + 2));
        }
        // The time may pass on one node later than on a quorum. That key is left until a later lock
        // takes it over.
        eventually("nothing is left", || {
            released(client.acquire(patiently(b"job").format(profile)).unwrap());
            held_on(&servers, "job") == 0
        });
    }
}

/// In these recipes, a client that comes second overwrites the value of the holder.
#[test]
fn an_overwritten_timed_lock_is_lost_and_the_new_value_stays() {
    let server = server();
    let client = client(std::slice::from_ref(&server));
    for profile in TIMED {
        let mut lock = client.acquire(patiently(b"job").format(profile)).unwrap();
        let theirs = (second(&server) + 600).to_string();
        server.cmd(&format!("GETSET job {theirs}"));
        assert!(lock.extend(Duration::from_secs(25)).is_err());
        drop(lock);
        assert_eq!(server.cmd("GET job"), bulk(&theirs));
        server.cmd("DEL job");
    }
}

/// Clients of the SETNX recipe delete the key within their own lease, but a losing client leaves
/// its value there.
#[test]
fn a_timed_lock_overwritten_by_a_losing_client_is_free_after_its_release() {
    let servers = servers(3);
    let client = client(&servers);
    for (profile, theirs) in TIMED.into_iter().flat_map(|it| [(it, ""), (it, ".25")]) {
        let lock = client.acquire(patiently(b"job").format(profile)).unwrap();
        for server in &servers {
            let theirs = format!("{}{theirs}", second(server) + 600);
            server.cmd(&format!("GETSET job {theirs}"));
        }
        released(lock);
        eventually("it is free", || held_on(&servers, "job") == 0);
        eventually("its lease has expired", || held_on(&servers, LEASED[1]) == 0);
    }
}

/// The undo comes late, or twice, or finds a value that no client of the recipe wrote.
#[test]
fn an_undo_of_a_timed_lock_deletes_another_client_s_time_only_within_its_own_lease() {
    let server = Server::start();
    let (mine, other) = ("a".repeat(34), "b".repeat(34));
    let ask = |token: &str, ttl| eval(&server, ACQUIRE_TIMED.text, &LEASED, &[token, ttl]);
    let undo = |token: &str| eval(&server, UNDO_TIMED.text, &LEASED, &[token]);
    let (granted, theirs) = (Reply::Status("OK".into()), (second(&server) + 600).to_string());
    let overwrite = |value: &str| server.run(&[b"SET", b"job", value.as_bytes()]);
    // After the end of the lease, another client has the lock.
    assert_eq!(ask(&mine, "20"), granted);
    eventually("its lease has expired", || !exists(&server, "job") && !exists(&server, LEASED[1]));
    overwrite(&theirs);
    assert_eq!((undo(&mine), server.cmd("GET job")), (Reply::Int(0), bulk(&theirs)));
    // The first of two undos ends the lease.
    server.cmd("DEL job");
    assert_eq!((ask(&mine, "60000"), undo(&mine)), (granted.clone(), Reply::Int(1)));
    overwrite(&theirs);
    assert_eq!((undo(&mine), server.cmd("GET job")), (Reply::Int(0), bulk(&theirs)));
    // The undo of an earlier attempt, with another token, deletes nothing.
    server.cmd("DEL job");
    assert_eq!(ask(&mine, "60000"), granted);
    overwrite(&theirs);
    assert_eq!((undo(&other), server.cmd("GET job")), (Reply::Int(0), bulk(&theirs)));
    assert_eq!((undo(&mine), exists(&server, "job")), (Reply::Int(1), false));
    // Values of another redbolt, even one whose TTL was removed, and of other programs are left.
    for value in [&format!("{theirs}.{}", "01".repeat(34)), "1", "", "somebody", "5000000000"] {
        assert_eq!(ask(&mine, "60000"), granted, "{value}");
        overwrite(value);
        assert_eq!((undo(&mine), server.cmd("GET job")), (Reply::Int(0), bulk(value)));
        server.cmd("DEL job");
    }
    assert_eq!(ask(&mine, "60000"), granted);
    server.cmd(&format!("SET job {theirs} PX 600000"));
    assert_eq!(undo(&mine), Reply::Int(0), "a value with a TTL expires by itself");
}

/// A client overwrites a holder with a time that ends before the holder's lease. Other redbolt
/// clients are denied until that lease ends.
#[test]
fn redbolt_does_not_take_over_an_overwritten_timed_lock_within_its_lease() {
    let server = Server::start();
    let (mine, other) = ("a".repeat(34), "b".repeat(34));
    let ask = |token: &str, ttl| eval(&server, ACQUIRE_TIMED.text, &LEASED, &[token, ttl]);
    assert_eq!(ask(&mine, "60000"), Reply::Status("OK".into()));
    server.cmd("SET job 1100000000");
    let Reply::Int(left) = ask(&other, "60000") else { panic!("it was granted") };
    assert!((1..=60_000).contains(&left), "{left}");
    assert_eq!(eval(&server, UNDO_TIMED.text, &LEASED, &[&mine]), Reply::Int(1));
    assert_eq!(ask(&other, "60000"), Reply::Status("OK".into()));
}

/// The holder may release the lock after an operator has broken it.
#[test]
fn a_timed_lock_that_an_operator_broke_is_not_released_again() {
    let server = server();
    let client = client(std::slice::from_ref(&server));
    for profile in TIMED {
        let lock = client.acquire(patiently(b"job").format(profile)).unwrap();
        assert!(client.force_unlock(b"job", UnlockScope::Locks).is_ok());
        let theirs = (second(&server) + 600).to_string();
        server.cmd(&format!("SET job {theirs}"));
        drop(lock);
        client.warm_up(Duration::from_secs(1));
        assert_eq!(server.cmd("GET job"), bulk(&theirs));
        server.cmd("DEL job");
    }
}

/// A resource, and the key that lives as long as its holder's lease.
const LEASED: [&str; 2] = ["job", "redbolt:lease:job"];

#[test]
fn only_its_holder_can_undo_or_extend_a_timed_lock() {
    let server = Server::start();
    let (mine, other) = ("a".repeat(34), "b".repeat(34));
    let ask = |token: &str| eval(&server, ACQUIRE_TIMED.text, &LEASED, &[token, "60000"]);
    let undo = |token: &str| eval(&server, UNDO_TIMED.text, &LEASED, &[token]);
    let extend = |token: &str| eval(&server, EXTEND_TIMED.text, &LEASED, &[token, "90000"]);
    assert_eq!(ask(&mine), Reply::Status("OK".into()));
    assert!(matches!(ask(&mine), Reply::Int(1..)) && matches!(ask(&other), Reply::Int(1..)));
    assert_eq!((undo(&other), extend(&other)), (Reply::Int(0), Reply::Int(0)));
    assert_eq!(
        (extend(&mine), undo(&mine), undo(&mine)),
        (Reply::Int(1), Reply::Int(1), Reply::Int(0))
    );
    server.cmd("HSET job a 1");
    assert_eq!(ask(&mine), Reply::Int(-1));
    assert_eq!((undo(&mine), extend(&mine)), (Reply::Int(0), Reply::Int(0)));
    assert!(exists(&server, "job"));
}

#[test]
fn a_lock_in_one_format_denies_the_others() {
    let servers = servers(3);
    let (one, other) = (client(&servers), client(&servers));
    for (holds, wants) in [
        (Profile::REDISSON, Profile::PLAIN),
        (Profile::PLAIN, Profile::REDISSON),
        (Profile::REDISSON, Profile::REDISSON),
        (Profile::SPRING, Profile::PLAIN),
        (Profile::PLAIN, Profile::SPRING),
        (Profile::SPRING, Profile::REDISSON),
        (Profile::SPRING, Profile::SPRING),
        (Profile::SYMFONY, Profile::PLAIN),
        (Profile::PLAIN, Profile::SYMFONY),
        (Profile::SYMFONY, Profile::REDISSON),
        (Profile::REDISSON, Profile::SYMFONY),
        (Profile::SYMFONY, Profile::SYMFONY),
        (Profile::PYTHON_REDIS_LOCK, Profile::PLAIN),
        (Profile::PLAIN, Profile::PYTHON_REDIS_LOCK),
        (Profile::REDISSON, Profile::PYTHON_REDIS_LOCK),
        (Profile::PYTHON_REDIS_LOCK, Profile::PYTHON_REDIS_LOCK),
        (Profile::REDISSON_RW, Profile::REDISSON_RW),
        (Profile::REDISSON_RW, Profile::PLAIN),
        (Profile::PLAIN, Profile::REDISSON_RW),
        (Profile::REDISSON, Profile::REDISSON_RW),
        (Profile::REDISSON_RW, Profile::REDISSON),
        (Profile::SETNX, Profile::PLAIN),
        (Profile::PLAIN, Profile::SETNX),
        (Profile::REDISSON, Profile::REDIS_OBJECTS),
        (Profile::REDIS_OBJECTS, Profile::REDISSON),
        (Profile::SETNX, Profile::REDIS_OBJECTS),
    ] {
        let lock = one.acquire(patiently(b"lock:job").format(holds)).unwrap();
        assert!(refusal(other.acquire(long(b"lock:job").format(wants))).is_contended());
        let shares = || long(b"lock:job").shared();
        assert!(refusal(other.acquire(shares())).is_contended(), "{holds}");
        assert!(refusal(other.acquire(long(b"lock:job").permits(3))).is_contended(), "{holds}");
        released(lock);
        eventually("it is free", || held_on(&servers, "lock:job") == 0);
    }
}

#[test]
fn a_redisson_lock_is_extended_while_its_field_exists() {
    let server = server();
    let client = client(std::slice::from_ref(&server));
    let mut lock = client
        .acquire(LockRequest::new("job").ttl(Duration::from_secs(8)).format(Profile::REDISSON))
        .unwrap();
    lock.extend(Duration::from_secs(25)).unwrap();
    assert!(pttl(&server, "job") > 15_000);
    server.cmd("DEL job");
    server.cmd("HSET job another:1 1");
    server.cmd("PEXPIRE job 600000");
    assert!(lock.extend(Duration::from_secs(25)).is_err(), "another holds it");
    drop(lock);
    assert_eq!(server.cmd("HGETALL job"), Reply::Array(vec![bulk("another:1"), bulk("1")]));
}

/// Redisson's own counter has no TTL, and grows with each holder of either library.
#[test]
fn a_redisson_lock_has_the_token_of_redisson_s_counter() {
    let servers = servers(3);
    let client = client(&servers);
    client.warm_up(Duration::from_secs(15));
    let counter = "redisson_lock_token:{job}";
    for (server, count) in servers.iter().zip(["4", "4", "9"]) {
        server.cmd(&format!("SET {counter} {count}"));
    }
    let mut last = 4;
    for _ in 0..5 {
        let lock = client.acquire(redisson(b"job").fenced()).unwrap();
        let token = lock.fencing_token().unwrap().get();
        assert!(token > last, "{token} after {last}");
        last = token;
        released(lock);
    }
    assert!(servers.iter().all(|server| pttl(server, counter) == -1), "without a TTL");
    // The next token of a Redisson client is larger on any quorum.
    let mut counts: Vec<_> = servers
        .iter()
        .map(|server| match server.cmd(&format!("INCR {counter}")) {
            Reply::Int(count) => count.cast_unsigned(),
            other => panic!("{other:?}"),
        })
        .collect();
    counts.sort_unstable();
    assert!(counts[1] > last, "{counts:?} after {last}");
}

#[test]
fn a_lock_in_another_format_moves_to_another_process() {
    let servers = servers(3);
    for profile in Profile::ALL.into_iter().filter(|&profile| profile != Profile::PLAIN) {
        let text = {
            let lock = client(&servers);
            let lock = lock.acquire(patiently(b"lock:job").format(profile)).unwrap();
            lock.detach().unwrap().to_text()
        };
        assert!(text.contains(&format!("\nkind {profile}\n")), "{text}");
        let detached: DetachedLock = text.parse().unwrap();
        assert_eq!(detached.profile(), profile);
        let second = client(&servers);
        second.warm_up(Duration::from_secs(15));
        let mut lock = second.attach(&detached).unwrap();
        lock.extend(Duration::from_secs(20)).unwrap();
        released(lock);
        eventually("nothing is left", || held_on(&servers, "lock:job") == 0);
    }
}

#[test]
fn a_request_that_a_format_cannot_express_is_refused_at_once() {
    let servers = servers(1);
    let client = client(&servers);
    let refused = |request: LockRequest<'_>| match client.acquire(request) {
        Err(AcquireError::Request(error @ RequestError::ProfileCannot { .. })) => error.to_string(),
        other => panic!("{other:?}"),
    };
    let ask = || long(b"job").format(Profile::REDISSON);
    assert_eq!(
        refused(ask().shared()),
        "a lock of the profile redisson cannot be shared: its format has no readers"
    );
    assert!(refused(ask().permits(3)).contains("have permits"));
    assert!(refused(ask().and("other")).contains("several resources"));
    let spring = |name| long(name).format(Profile::SPRING);
    assert!(refused(spring(b"job")).contains("the registry's key, a colon and the lock's"));
    assert!(refused(spring(b"a:job").fenced()).contains("have a fencing token"));
    let python = |name| long(name).format(Profile::PYTHON_REDIS_LOCK);
    assert!(refused(python(b"job")).contains("has to be `lock:` and the lock's"));
    assert!(refused(python(b"lock:job").fenced()).contains("have a fencing token"));
    assert!(refused(python(b"lock:job").shared()).contains("be shared"));
    assert!(refused(python(b"lock:job").and("lock:b")).contains("several resources"));
    let symfony = || long(b"job").format(Profile::SYMFONY);
    assert!(refused(symfony().fenced()).contains("have a fencing token"));
    assert!(refused(symfony().shared().fenced()).contains("have a fencing token"));
    assert!(refused(symfony().permits(2)).contains("have permits"));
    assert!(refused(symfony().and("other")).contains("several resources"));
    for profile in TIMED {
        let timed = || long(b"job").format(profile);
        assert!(refused(timed().fenced()).contains("have a fencing token"));
        assert!(refused(timed().shared()).contains("be shared"));
        assert!(refused(timed().permits(2)).contains("have permits"));
        assert!(refused(timed().and("other")).contains("several resources"));
    }
    let engine = engine(&servers);
    let lock = engine.acquire(ask()).wait().unwrap();
    let downgraded = lock.downgrade().wait().unwrap_err().to_string();
    assert!(downgraded.contains("the profile redisson cannot be shared"), "{downgraded}");
    assert!(lock.is_valid());
}

#[test]
fn only_its_holder_can_undo_or_extend_a_redisson_lock() {
    let server = Server::start();
    let ask = |token: &str| eval(&server, ACQUIRE_REDISSON.text, &["job"], &[token, "60000"]);
    let undo = |token: &str| eval(&server, UNDO_REDISSON.text, &["job"], &[token]);
    assert_eq!(ask("mine"), Reply::Status("OK".into()));
    assert!(matches!(ask("mine"), Reply::Int(1..)), "a second request does not re-enter");
    assert_eq!(undo("other"), Reply::Int(0));
    let extend = |token: &str| eval(&server, EXTEND_REDISSON.text, &["job"], &[token, "90000"]);
    assert_eq!((extend("other"), extend("mine")), (Reply::Int(0), Reply::Int(1)));
    assert!(pttl(&server, "job") > 60_000);
    assert_eq!((undo("mine"), undo("mine")), (Reply::Int(1), Reply::Int(0)));
    // Data that another library wrote is left alone.
    for (made, kind) in [("SET job mine", "string"), ("SADD job mine", "set")] {
        server.cmd(made);
        assert_eq!(ask("mine"), Reply::Int(-1), "without end");
        assert_eq!((undo("mine"), extend("mine")), (Reply::Int(0), Reply::Int(0)));
        assert_eq!(server.cmd("TYPE job"), Reply::Status(kind.into()));
        server.cmd("DEL job");
    }
    // A counter that is not a number grants no lock.
    server.cmd("SET c x");
    let fenced = eval(&server, ACQUIRE_REDISSON_FENCED.text, &["job", "c"], &["mine", "60000"]);
    assert!(matches!(fenced, Reply::Error(_)), "{fenced:?}");
    assert!(!exists(&server, "job"));
}

#[test]
fn no_token_can_be_read_as_a_number() {
    let server = server();
    let client = client(std::slice::from_ref(&server));
    let lock = client.acquire(patiently(b"redlock:job")).unwrap();
    let Reply::Bulk(token) = server.cmd("GET redlock:job") else { panic!("no token") };
    assert!(token[0].is_ascii_lowercase(), "{token:?}");
    released(lock);
}

/// A process of another library held the lock without a TTL.
#[test]
fn a_key_without_a_ttl_is_held_without_end() {
    let server = server();
    let client: Client = client(std::slice::from_ref(&server));
    for name in ["job", "lock:job"] {
        server.cmd(&format!("SET {name} somebody"));
    }
    for profile in Profile::ALL {
        assert!(refusal(client.acquire(long(b"lock:job").format(profile))).is_contended());
    }
    let seen = client.inspect(b"job").unwrap();
    assert_eq!(seen.nodes[0].state.as_ref().unwrap().remaining(), None);
    std::thread::scope(|scope| {
        let waits = scope.spawn(move || waits_for(client));
        eventually("it waits", || calls(&server, "pttl") > 3);
        server.cmd("DEL job");
        waits.join().unwrap();
    });
}
