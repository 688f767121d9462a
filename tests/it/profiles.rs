//! Locks in the formats of other libraries, on real servers: what their members find, and what stands in whose way.

use std::time::Duration;

use redbolt::inspect::{InspectionVerdict, Owner};
use redbolt::proto::script::{
    ACQUIRE_REDISSON, ACQUIRE_REDISSON_FENCED, EXTEND_REDISSON, UNDO_REDISSON,
};
use redbolt::{
    AcquireError, Client, DetachedLock, LockRequest, Profile, ReleaseOutcome, RequestError,
};
use redbolt_test_servers::{Connection, Reply, Server};

use crate::engine::engine;
use crate::support::{
    calls, client, eventually, exists, held_on, long, patiently, pttl, refusal, server, servers,
};

fn redisson(resource: &[u8]) -> LockRequest<'_> {
    patiently(resource).profile(Profile::Redisson)
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

/// A member that waits: it listens to a channel.
fn listener(server: &Server, channel: &str) -> Connection {
    let mut listener = server.connect();
    assert!(matches!(listener.cmd(&format!("SUBSCRIBE {channel}")), Reply::Array(_)));
    listener
}

/// Takes it when it becomes free.
fn waits_for(client: Client) {
    released(client.acquire(redisson(b"job")).unwrap());
}

fn released(lock: redbolt::LockGuard<'_>) {
    let outcome = lock.release();
    assert!(matches!(outcome, ReleaseOutcome::Released(_)), "{outcome:?}");
}

#[test]
fn a_lock_of_redisson_s_is_a_hash_of_one_holder_and_its_release_is_told() {
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
            let told = [bulk("message"), bulk(channel), bulk("0")];
            assert_eq!(listener.reply(), Reply::Array(told.into()));
        }
        for server in &servers {
            assert_eq!(server.cmd("KEYS *"), Reply::Array(vec![bulk("redbolt:guard")]));
        }
    }
}

#[test]
fn whoever_holds_it_as_redisson_does_is_waited_for_and_heard() {
    let server = server();
    let client = client(std::slice::from_ref(&server));
    server.cmd("HSET job 1f0c:42 2");
    server.cmd("PEXPIRE job 600000");
    assert!(refusal(client.acquire(long(b"job").profile(Profile::Redisson))).is_contended());
    assert!(refusal(client.acquire(long(b"job"))).is_contended(), "nor is it free for others");
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
fn who_holds_it_in_another_format_is_shown() {
    let servers = servers(3);
    let client = client(&servers);
    let uuid = "1f0c2d3e-0011-2233-4455-66778899aabb";
    let shown = |made: &str| {
        for server in &servers {
            server.cmd("DEL job");
            server.cmd(made);
            server.cmd("PEXPIRE job 600000");
        }
        let seen = client.inspect(b"job").unwrap();
        assert!(seen.nodes.iter().all(|node| node.state.as_ref().unwrap().remaining().is_some()));
        seen.verdict.to_string()
    };
    assert!(shown(&format!("HSET job {uuid}:42 2")).contains("held by Redisson 1f0c…:42, 2 holds"));
    assert!(shown("HSET job mode read a:1 1").contains("held by 1 reader of Redisson"));
    assert!(shown(&format!("SET job {uuid}")).contains("(as of pottery, "));
    assert!(shown("HSET job a 1 b 2").contains("other data, a hash"));
    for server in &servers {
        server.cmd("DEL job");
    }
    let lock = client.acquire(redisson(b"job")).unwrap();
    let seen = client.inspect(b"job").unwrap();
    assert!(matches!(seen.verdict, InspectionVerdict::Held(_)), "{seen:?}");
    assert_eq!(seen.owner(), Some(Owner::Mine));
    drop(lock);
}

/// Its waiters are told, as by the operator of Redisson.
#[test]
fn whoever_waits_as_redisson_does_hears_of_a_lock_that_was_broken() {
    let server = server();
    let mut listener = listener(&server, "redisson_lock__channel:{job}");
    let client = client(std::slice::from_ref(&server));
    let lock = client.acquire(redisson(b"job")).unwrap();
    assert!(client.force_unlock(b"job").unwrap().is_confirmed());
    assert!(matches!(listener.reply(), Reply::Array(_)));
    assert!(!exists(&server, "job"));
    drop(lock);
}

#[test]
fn what_is_held_in_one_format_is_in_the_way_of_the_others() {
    let servers = servers(3);
    let (one, other) = (client(&servers), client(&servers));
    for (holds, wants) in [
        (Profile::Redisson, Profile::Plain),
        (Profile::Plain, Profile::Redisson),
        (Profile::Redisson, Profile::Redisson),
    ] {
        let lock = one.acquire(patiently(b"job").profile(holds)).unwrap();
        assert!(refusal(other.acquire(long(b"job").profile(wants))).is_contended());
        let shares = || long(b"job").shared();
        assert!(refusal(other.acquire(shares())).is_contended(), "{holds}");
        assert!(refusal(other.acquire(long(b"job").permits(3))).is_contended(), "{holds}");
        released(lock);
        eventually("it is free", || held_on(&servers, "job") == 0);
    }
}

#[test]
fn it_is_extended_as_long_as_its_field_is_there() {
    let server = server();
    let client = client(std::slice::from_ref(&server));
    let mut lock = client
        .acquire(LockRequest::new("job").ttl(Duration::from_secs(8)).profile(Profile::Redisson))
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

/// Redisson's own counter has no TTL, and grows with each holder, whoever it is.
#[test]
fn its_fencing_token_is_that_of_redisson_s_counter() {
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
    // A member's token after them is larger on any quorum.
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
fn a_lock_of_redisson_s_goes_on_in_another_process() {
    let servers = servers(3);
    let text = {
        let lock = client(&servers);
        let lock = lock.acquire(redisson(b"job")).unwrap();
        lock.detach().unwrap().to_text()
    };
    assert!(text.contains("\nkind redisson\n"), "{text}");
    let detached: DetachedLock = text.parse().unwrap();
    assert_eq!(detached.profile(), Profile::Redisson);
    let second = client(&servers);
    second.warm_up(Duration::from_secs(15));
    let mut lock = second.attach(&detached).unwrap();
    lock.extend(Duration::from_secs(20)).unwrap();
    released(lock);
    eventually("nothing is left", || held_on(&servers, "job") == 0);
}

#[test]
fn what_a_format_has_no_room_for_is_refused_at_the_door() {
    let servers = servers(1);
    let client = client(&servers);
    let refused = |request: LockRequest<'_>| match client.acquire(request) {
        Err(AcquireError::Request(error @ RequestError::ProfileCannot { .. })) => error.to_string(),
        other => panic!("{other:?}"),
    };
    let ask = || long(b"job").profile(Profile::Redisson);
    assert_eq!(
        refused(ask().shared()),
        "a lock of the profile redisson cannot be shared: its format has no readers"
    );
    assert!(refused(ask().permits(3)).contains("have permits"));
    assert!(refused(ask().and_resource("other")).contains("several resources"));
    let engine = engine(&servers);
    let lock = engine.acquire(ask()).wait().unwrap();
    let downgraded = lock.downgrade().wait().unwrap_err().to_string();
    assert!(downgraded.contains("the profile redisson cannot be shared"), "{downgraded}");
    assert!(lock.is_valid());
}

#[test]
fn nobody_else_can_undo_or_extend_it() {
    let server = Server::start();
    let ask = |token: &str| eval(&server, ACQUIRE_REDISSON, &["job"], &[token, "60000"]);
    let undo = |token: &str| eval(&server, UNDO_REDISSON, &["job"], &[token]);
    assert_eq!(ask("mine"), Reply::Status("OK".into()));
    assert!(matches!(ask("mine"), Reply::Int(1..)), "an ask is no re-entry");
    assert_eq!(undo("other"), Reply::Int(0));
    let extend = |token: &str| eval(&server, EXTEND_REDISSON, &["job"], &[token, "90000"]);
    assert_eq!((extend("other"), extend("mine")), (Reply::Int(0), Reply::Int(1)));
    assert!(pttl(&server, "job") > 60_000);
    assert_eq!((undo("mine"), undo("mine")), (Reply::Int(1), Reply::Int(0)));
    // What another library has put there is nobody's, and stays.
    for (made, kind) in [("SET job mine", "string"), ("SADD job mine", "set")] {
        server.cmd(made);
        assert_eq!(ask("mine"), Reply::Int(-1), "without end");
        assert_eq!((undo("mine"), extend("mine")), (Reply::Int(0), Reply::Int(0)));
        assert_eq!(server.cmd("TYPE job"), Reply::Status(kind.into()));
        server.cmd("DEL job");
    }
    // A counter that is none gives no lock.
    server.cmd("SET c x");
    let fenced = eval(&server, ACQUIRE_REDISSON_FENCED, &["job", "c"], &["mine", "60000"]);
    assert!(matches!(fenced, Reply::Error(_)), "{fenced:?}");
    assert!(!exists(&server, "job"));
}

#[test]
fn a_prefix_is_a_part_of_the_key() {
    let server = server();
    let client = client(std::slice::from_ref(&server));
    let request = || patiently(b"job").prefix("redlock:");
    let several = || request().and_resource("other");
    assert_eq!(several().resources().collect::<Vec<_>>(), [&b"redlock:job"[..], b"redlock:other"]);
    let again = several().prefix("lock:");
    assert_eq!(again.resources().collect::<Vec<_>>(), [&b"lock:job"[..], b"lock:other"]);
    let lock = client.acquire(request()).unwrap();
    let Reply::Bulk(token) = server.cmd("GET redlock:job") else { panic!("no token") };
    assert!(token[0].is_ascii_lowercase(), "no library takes it for a number");
    released(lock);
}

/// A process of another library that held the lock without a TTL.
#[test]
fn a_key_without_a_ttl_is_held_without_end() {
    let server = server();
    let client: Client = client(std::slice::from_ref(&server));
    server.cmd("SET job somebody");
    for profile in Profile::ALL {
        assert!(refusal(client.acquire(long(b"job").profile(profile))).is_contended());
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
