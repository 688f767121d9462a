//! An operator breaks a lock while its holders change. The break is a second request, sent after
//! the look, and removes only holders that the look has seen.

use std::thread;
use std::time::Duration;

use redbolt::inspect::ForceUnlockReport;
use redbolt::inspect::UnlockScope;
use redbolt::{Client, LockGuard, LockRequest, Profile};
use redbolt_test_servers::{Mode, Proxy, Reply, Server};

use crate::support::{LONG, calls, client, client_of, eventually, long, patient, refusal, server};

/// Runs the operator's call through a network that is slow in both directions. `change` runs after
/// the server has executed `looks`, the last command of the look, and long before the break
/// arrives.
fn broken_while(
    server: &Server,
    order: impl FnOnce(&Client) -> ForceUnlockReport + Send,
    looks: &str,
    change: impl FnOnce(),
) -> ForceUnlockReport {
    let proxy = Proxy::before(&server.address());
    let operator = client_of(patient([proxy.address()]).read_only());
    // The connection is opened before the network becomes slow.
    operator.warm_up(Duration::from_secs(15));
    proxy.set(Mode::Coalesce(FAR));
    // The look's commands are counted from here on.
    server.cmd("CONFIG RESETSTAT");
    thread::scope(|scope| {
        let order = scope.spawn(move || order(&operator));
        eventually("the operator has looked", || calls(server, looks) > 0);
        change();
        order.join().unwrap()
    })
}

fn breaks(operator: &Client) -> ForceUnlockReport {
    operator.force_unlock(b"job", UnlockScope::Locks).unwrap()
}

fn breaks_anything(operator: &Client) -> ForceUnlockReport {
    operator.force_unlock(b"job", UnlockScope::Anything).unwrap()
}

/// Checks that holders that acquire between the look and the break keep their locks.
fn next_holders_stay(looks: &str, holders: usize, held: LockRequest<'_>, rival: LockRequest<'_>) {
    let server = server();
    let [old, new, other] = [(); 3].map(|()| client(std::slice::from_ref(&server)));
    let hold = |client| -> Vec<LockGuard<'_>> {
        (0..holders).map(|_| Client::acquire(client, held.clone()).unwrap()).collect()
    };
    let guards = hold(&old);
    let mut next = Vec::new();
    let report = broken_while(&server, breaks, looks, || {
        for guard in guards {
            guard.release().unwrap();
        }
        next = hold(&new);
    });
    refusal(other.acquire(rival));
    for guard in &mut next {
        assert!(guard.is_valid(), "{report}");
        guard.extend(LONG).unwrap();
    }
    assert_eq!(report.broken(), 0, "{report}");
}

#[test]
fn force_unlock_leaves_a_lock_that_others_share_meanwhile() {
    for holders in [1, 2] {
        let looks = if holders == 1 { "pttl" } else { "zrangebyscore" };
        next_holders_stay(looks, holders, long(b"job").shared(), long(b"job"));
    }
}

#[test]
fn force_unlock_leaves_permits_that_were_taken_meanwhile() {
    next_holders_stay("zrangebyscore", 2, long(b"job").permits(2), long(b"job"));
}

#[test]
fn force_unlock_leaves_a_lock_of_redisson_s_format_that_was_taken_meanwhile() {
    let redisson = || long(b"job").format(Profile::REDISSON);
    next_holders_stay("hgetall", 1, redisson(), redisson());
    let rw = || long(b"job").format(Profile::REDISSON_RW);
    next_holders_stay("hgetall", 1, rw(), rw());
    next_holders_stay("hgetall", 2, rw().shared(), rw());
}

#[test]
fn force_unlock_leaves_a_lock_of_symfony_s_format_that_was_taken_meanwhile() {
    let symfony = || long(b"job").format(Profile::SYMFONY);
    next_holders_stay("zrangebyscore", 1, symfony(), symfony());
    next_holders_stay("zrangebyscore", 2, symfony().shared(), symfony());
}

/// A holder that was seen loses the lock, and one that was not keeps it, even if the first was
/// alone when the operator looked.
#[test]
fn force_unlock_breaks_the_holders_that_were_seen_and_no_others() {
    let rw = || long(b"job").format(Profile::REDISSON_RW);
    let symfony = || long(b"job").format(Profile::SYMFONY);
    for (looks, request) in [
        ("pttl", long(b"job").shared()),
        ("zrangebyscore", long(b"job").permits(2)),
        ("hgetall", rw().shared()),
        ("zrangebyscore", symfony().shared()),
    ] {
        let server = server();
        let [old, new] = [(); 2].map(|()| client(std::slice::from_ref(&server)));
        let mut seen = old.acquire(request.clone()).unwrap();
        let mut joined = None;
        let report = broken_while(&server, breaks, looks, || {
            joined = Some(new.acquire(request.clone()).unwrap());
        });
        let mut joined = joined.unwrap();
        joined.extend(LONG).unwrap();
        assert!(joined.is_valid() && report.broken() == 1, "{report}");
        assert!(seen.extend(LONG).is_err(), "its lock is broken");
        drop(joined);
        assert_eq!(
            server.cmd("EXISTS job"),
            Reply::Int(0),
            "no key of either holder is left: {report}"
        );
    }
}

#[test]
fn force_unlock_leaves_data_that_was_replaced_meanwhile() {
    let long_text = |last: char| format!("SET job {}{last}", "x".repeat(200));
    for [seen, next] in [
        [long_text('a'), long_text('b')],
        ["HSET job a 1".into(), "HSET job b 1".into()],
        ["RPUSH job a".into(), "RPUSH job b".into()],
        ["SADD job a".into(), "SADD job b".into()],
        ["ZADD job 1 a".into(), "ZADD job 1 b".into()],
        ["XADD job * a 1".into(), "XADD job * b 1".into()],
    ] {
        let server = server();
        server.cmd(&seen);
        let report = broken_while(&server, breaks_anything, "pttl", || {
            server.cmd("DEL job");
            server.cmd(&next);
        });
        assert_eq!(server.cmd("EXISTS job"), Reply::Int(1), "{next}: {report}");
        assert_eq!((report.broken(), report.gone()), (0, 1), "{report}");
        // Unchanged data is deleted.
        assert_eq!(breaks_anything(&client(std::slice::from_ref(&server))).broken(), 1);
        assert_eq!(server.cmd("EXISTS job"), Reply::Int(0), "{next}");
    }
}

/// Data of an unconfigured format may or may not be a lock of another library. The report says
/// which format to name.
#[test]
fn force_unlock_leaves_a_lock_whose_format_is_not_configured() {
    let server = server();
    let holder = client(std::slice::from_ref(&server));
    let operator = client_of(patient([server.address()]).formats(&[Profile::SYMFONY]));
    for (profile, named) in [
        (Profile::REDISSON, "redisson or redisson-rw"),
        (Profile::REDISSON_RW, "redisson or redisson-rw"),
        (Profile::SETNX, "python-redis-lock or redis-objects or setnx or spring"),
    ] {
        let mut lock = holder.acquire(long(b"job").format(profile)).unwrap();
        let report = breaks(&operator);
        assert_eq!((report.kept(), report.broken()), (1, 0), "{report}");
        let advice = format!("; it may be of a format that is not configured: {named}");
        assert!(report.to_string().ends_with(&advice), "{report}");
        lock.extend(LONG).unwrap();
        // The profile that an operator names needs no other configuration. The operator may break
        // redbolt's own lock in it, not a member's.
        assert_eq!(
            operator.force_unlock(b"job", UnlockScope::LocksOf(profile)).unwrap().broken(),
            1,
            "{profile}"
        );
        assert!(lock.extend(LONG).is_err(), "{profile}");
    }
    let lock = holder.acquire(long(b"job").format(Profile::SYMFONY)).unwrap();
    assert_eq!(breaks(&operator).broken(), 1);
    drop(lock);
}

/// The time that one direction through the network takes.
const FAR: Duration = Duration::from_millis(300);
