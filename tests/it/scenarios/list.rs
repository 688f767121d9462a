//! The scenarios, each from top to bottom.
//!
//! A party is an instance of an API with its own connections, so two parties are two processes to
//! the nodes. A scenario sees on a node that a party waits: the node has received its request and
//! still keeps the other's key.

use std::collections::HashSet;
use std::thread;
use std::time::{Duration, Instant};

use redbolt::{
    AcquireError, AutoExtend, Client, ExtendError, LockMode, LockRequest, LossCause, RefusalReason,
    RefusalReport, RequestError, Wait,
    inspect::{InspectionVerdict, Owner},
    report::{Cause, Vote},
};
use redbolt_test_servers::{Reply, Server};

use crate::scenarios::api::{Api, Cancels, Detaches, Guards, Inspects, Locks, Notifies, by, on};
use crate::support::{
    LIMIT, LONG, address, calls, eventually, held_on, long, loss, once_in, patiently, pttl, servers,
};
use crate::timed::{Timed, waits};

// Waiting.

/// The refusal's reason is "held by another", and the holder notices nothing.
pub(super) fn refused_while_it_is_held<F: Api>() {
    let servers = servers(3);
    let (mut holder, mut other) = (on::<F>(&servers), on::<F>(&servers));
    let lock = hold_everywhere(&mut holder, &servers, patiently(b"job"));
    let report = other.refused(long(b"job"));
    assert_eq!(report.reason(), RefusalReason::Contended, "{report}");
    let denials = report.node_votes().iter().filter(|node| node.vote == Some(Vote::Deny)).count();
    assert!(denials >= 2, "{report}");
    assert!(holder.is_valid(&lock));
    assert!(holder.release(lock).is_ok());
    free_again(&servers, &["job"]);
}

pub(super) fn waits_until_it_is_released<F: Api>() {
    let servers = servers(3);
    let (mut holder, mut waiter) = (on::<F>(&servers), on::<F>(&servers));
    let lock = hold_everywhere(&mut holder, &servers, patiently(b"job"));
    let asked = ask_in_vain(&mut waiter, &servers, patiently(b"job"));
    assert!(holder.is_valid(&lock));
    assert!(holder.release(lock).is_ok());
    let next = waiter.outcome(asked).unwrap();
    assert!(waiter.is_valid(&next));
    assert!(waiter.release(next).is_ok());
    free_again(&servers, &["job"]);
}

/// The time to wait and the TTL are independent, and the refusal names the obstacle.
pub(super) fn refused_when_its_time_is_over<F: Api>() {
    let servers = servers(3);
    let (mut holder, mut waiter) = (on::<F>(&servers), on::<F>(&servers));
    let lock = hold_everywhere(&mut holder, &servers, patiently(b"job"));
    let before = owners(&servers, "job");
    // On a stalled machine, no node may have answered by then.
    let is_given_reason = once_in(TRIES, || {
        let began = Instant::now();
        let report = waiter.refused(long(b"job").wait(Wait::UpTo(SHORT)));
        assert!(began.elapsed() >= SHORT, "{:?}", began.elapsed());
        assert_eq!(report.reason(), RefusalReason::OutOfTime, "{report}");
        let left = report.remaining().is_some_and(|span| span > Duration::from_secs(10));
        report.is_contended() && left
    });
    assert!(is_given_reason);
    assert_eq!(owners(&servers, "job"), before);
    assert!(holder.release(lock).is_ok());
    free_again(&servers, &["job"]);
}

/// The short form waits until the lock is granted.
pub(super) fn locked_by_name_alone<F: Locks>() {
    let servers = servers(3);
    let (mut holder, mut waiter) = (on::<F>(&servers), on::<F>(&servers));
    let lock = hold_everywhere(&mut holder, &servers, patiently(b"job"));
    let before = asks(&servers);
    let asked = waiter.lock("job");
    eventually("the request has arrived", || asks(&servers) > before);
    assert!(holder.is_valid(&lock));
    assert!(holder.release(lock).is_ok());
    let next = waiter.outcome(asked).unwrap();
    let left = waiter.remaining(&next);
    assert!(left > DEFAULT_TTL / 2 && left <= DEFAULT_TTL, "{left:?}");
    assert!(waiter.release(next).is_ok());
    free_again(&servers, &["job"]);
}

/// The short form returns `None` after one attempt if another client has the lock, and an error if
/// too few nodes answer.
pub(super) fn tried_by_name_alone<F: Locks>() {
    let mut servers = servers(3);
    let (mut holder, mut other) = (on::<F>(&servers), on::<F>(&servers));
    let lock = hold_everywhere(&mut holder, &servers, patiently(b"job"));
    let tried = other
        .try_lock("job")
        .unwrap_or_else(|error| panic!("the lock is held by another: {error}"));
    assert!(tried.is_none());
    assert!(holder.is_valid(&lock));
    assert!(holder.release(lock).is_ok());
    free_again(&servers, &["job"]);
    let lock =
        other.try_lock("job").unwrap_or_else(|error| panic!("the lock is free: {error}")).unwrap();
    assert!(other.is_valid(&lock) && other.remaining(&lock) <= DEFAULT_TTL);
    assert!(other.release(lock).is_ok());
    free_again(&servers, &["job"]);

    assert_eq!(other.try_lock("").err(), Some(RequestError::EmptyResource.into()));
    servers[1..].iter_mut().for_each(Server::kill);
    match other.try_lock("job") {
        Err(AcquireError::Refused(report)) => {
            assert_eq!(report.reason(), RefusalReason::NoQuorum, "{report}");
        }
        Err(error) => panic!("the nodes cannot vote: {error}"),
        Ok(tried) => panic!("too few nodes answer: {:?}", tried.map(drop)),
    }
    free_again(&servers[..1], &["job"]);
}

/// A cancelled wait leaves nothing, whether the lock was held by another or just granted.
pub(super) fn cancelled_while_it_waits<F: Cancels>() {
    let servers = servers(3);
    let (mut holder, mut waiter) = (on::<F>(&servers), on::<F>(&servers));
    let lock = hold_everywhere(&mut holder, &servers, patiently(b"job"));
    let before = owners(&servers, "job");
    let asked = ask_in_vain(&mut waiter, &servers, patiently(b"job"));
    waiter.cancel(asked);
    assert_eq!(owners(&servers, "job"), before);
    assert!(holder.release(lock).is_ok());
    free_again(&servers, &["job"]);
    // The waiter can be used again, and its cancelled request does not come back.
    let lock = waiter.hold(patiently(b"job"));
    assert!(waiter.release(lock).is_ok());
    free_again(&servers, &["job"]);
}

pub(super) fn ended_by_its_deadline<F: Api>() {
    let servers = servers(3);
    let (mut holder, mut waiter) = (on::<F>(&servers), on::<F>(&servers));
    let lock = hold_everywhere(&mut holder, &servers, patiently(b"job"));
    warm(&mut waiter, &servers);
    let asked = ask_in_vain(&mut waiter, &servers, long(b"job").wait(Wait::UpTo(BRIEF)));
    match waiter.outcome(asked) {
        Err(AcquireError::Refused(report)) => {
            assert_eq!(report.reason(), RefusalReason::OutOfTime, "{report}")
        }
        _ => panic!("the wait has a deadline"),
    }
    assert!(holder.release(lock).is_ok());
    free_again(&servers, &["job"]);
}

/// Opens the party's links, so that a short wait is enough for the nodes to answer.
fn warm<F: Api>(api: &mut F, servers: &[Server]) {
    let other = hold_everywhere(api, servers, patiently(b"other"));
    assert!(api.release(other).is_ok());
}

/// The waiters of one process get the lock in the order of their requests.
pub(super) fn waiters_take_turns<F: Cancels>() {
    let servers = servers(3);
    let (mut holder, mut waiters) = (on::<F>(&servers), on::<F>(&servers));
    let lock = hold_everywhere(&mut holder, &servers, patiently(b"job"));
    let first = ask_in_vain(&mut waiters, &servers, patiently(b"job"));
    let behind = [0; 4].map(|_| waiters.request(patiently(b"job")));
    assert!(holder.release(lock).is_ok());
    // If a later waiter had the lock, the first one would never get it, because no waiter releases
    // it meanwhile.
    for asked in [first].into_iter().chain(behind) {
        let lock = waiters.outcome(asked).unwrap();
        assert!(waiters.is_valid(&lock));
        assert!(waiters.release(lock).is_ok());
    }
    free_again(&servers, &["job"]);
}

pub(super) fn is_for_one_thread<F: Api>() {
    trait NotSync<Marker> {
        fn is_not_sync() {}
    }
    struct Ambiguous;
    impl<T> NotSync<()> for T {}
    impl<T: Sync> NotSync<Ambiguous> for T {}
    // This does not compile for a type that is `Sync`.
    <Client as NotSync<_>>::is_not_sync();
}

// Holding.

/// The extension shows on the nodes and for the holder.
pub(super) fn extended_and_never_shortened<F: Api>() {
    let servers = servers(3);
    let mut api = on::<F>(&servers);
    let request = patiently(b"job").ttl(Duration::from_secs(8));
    let mut lock = hold_everywhere(&mut api, &servers, request);
    assert!(api.remaining(&lock) <= Duration::from_secs(8));
    api.extend(&mut lock, Duration::from_secs(29)).unwrap();
    assert!(api.remaining(&lock) > Duration::from_secs(12));
    eventually("all nodes extend", || servers.iter().all(|server| pttl(server, "job") > 12_000));
    api.extend(&mut lock, Duration::from_secs(2)).unwrap();
    assert!(api.remaining(&lock) > Duration::from_secs(8));
    assert!(servers.iter().all(|server| pttl(server, "job") > 8_000));
    let error = api.extend(&mut lock, Duration::ZERO).unwrap_err();
    assert_eq!(error, ExtendError::Request(RequestError::TtlZero));
    assert!(api.release(lock).is_ok());
    free_again(&servers, &["job"]);
}

/// Another program deletes the keys: the next extension notices the loss, and recreates nothing.
pub(super) fn lost_to_a_stranger<F: Notifies>() {
    let servers = servers(3);
    let mut api = on::<F>(&servers);
    let mut lock = hold_everywhere(&mut api, &servers, patiently(b"job"));
    take_away(&servers, "job");
    let before = owners(&servers, "job");
    let error = api.extend(&mut lock, Duration::from_secs(20)).unwrap_err();
    assert_eq!(loss(&error), Some(LossCause::Gone));
    assert!(!api.is_valid(&lock));
    assert!(api.extend(&mut lock, Duration::from_secs(20)).is_err());
    assert_eq!(api.losses(&mut lock), [LossCause::Gone], "told once");
    assert_eq!(api.release(lock).map_err(|lost| lost.cause()), Err(LossCause::Gone));
    api.end();
    assert_eq!(owners(&servers, "job"), before, "the stranger's keys are not ours to undo");
}

pub(super) fn finds_its_loss<F: Api>() {
    let servers = servers(3);
    let mut api = on::<F>(&servers);
    let mut lock = hold_everywhere(&mut api, &servers, patiently(b"job"));
    take_away(&servers, "job");
    let before = owners(&servers, "job");
    let error = api.extend(&mut lock, Duration::from_secs(20)).unwrap_err();
    assert_eq!(loss(&error), Some(LossCause::Gone));
    assert!(!api.is_valid(&lock));
    let again = api.extend(&mut lock, Duration::from_secs(20)).unwrap_err();
    assert_eq!(loss(&again), loss(&error));
    assert_eq!(api.release(lock).map_err(|lost| lost.cause()), Err(LossCause::Gone));
    api.end();
    assert_eq!(owners(&servers, "job"), before, "the stranger's keys are not ours to undo");
}

/// A lease without an extension ends by the clock, and its late release does not affect the next
/// holder.
pub(super) fn lost_by_its_end<F: Notifies>() {
    let timed = Timed::of(3);
    let (mut holder, mut waiter) = (by::<F>(&timed), by::<F>(&timed));
    let mut lock = holder.hold(waits(b"job"));
    let next = granted_at_the_end(&timed, &mut holder, &lock, &mut waiter);
    assert_eq!(holder.losses(&mut lock), [LossCause::Expired], "reported once");
    released_too_late(holder, lock, &mut waiter, next, &timed);
}

pub(super) fn finds_its_end<F: Api>() {
    let timed = Timed::of(3);
    let (mut holder, mut waiter) = (by::<F>(&timed), by::<F>(&timed));
    let mut lock = holder.hold(waits(b"job"));
    let next = granted_at_the_end(&timed, &mut holder, &lock, &mut waiter);
    let error = holder.extend(&mut lock, DEFAULT_TTL).unwrap_err();
    assert_eq!(loss(&error), Some(LossCause::Expired));
    released_too_late(holder, lock, &mut waiter, next, &timed);
}

/// Checks that another client that waits gets the lock when its validity has ended, not before.
fn granted_at_the_end<F: Api>(
    timed: &Timed,
    holder: &mut F,
    lock: &F::Held,
    waiter: &mut F,
) -> F::Held {
    let asked = waiter.request(waits(b"job").ttl(LONG));
    let first = timed.owners("job");
    let passed = timed.pass_until("the waiter's key is on a majority", 2 * DEFAULT_TTL, || {
        let owners = timed.owners("job");
        let is_next = |(now, first): (&Option<_>, _)| now.is_some() && now != first;
        owners.iter().zip(&first).filter(|&pair| is_next(pair)).count() >= 2
    });
    assert!(passed > DEFAULT_TTL / 2, "granted after {passed:?}");
    let next = waiter.outcome(asked).unwrap();
    assert!(!holder.is_valid(lock), "two clients hold the lock");
    next
}

fn released_too_late<F: Api>(
    mut late: F,
    lock: F::Held,
    holder: &mut F,
    next: F::Held,
    timed: &Timed,
) {
    // The old key may stay a moment longer on the node that the next holder does not need.
    let is_one = || {
        let tokens = timed.owners("job").into_iter().flatten();
        tokens.map(|token| token[..RANDOM].to_vec()).collect::<HashSet<_>>().len() == 1
    };
    timed.pass_until("one owner", DEFAULT_TTL, is_one);
    let before = timed.owners("job");
    assert_eq!(late.release(lock).map_err(|lost| lost.cause()), Err(LossCause::Expired));
    late.end();
    assert_eq!(timed.owners("job"), before);
    assert!(holder.is_valid(&next));
    assert!(holder.release(next).is_ok());
    timed.until_free("job");
}

/// An auto-extended lock outlives its TTL, and its release ends auto-extension.
pub(super) fn auto_extended<F: Notifies>() {
    let timed = Timed::of(3);
    let (mut holder, mut other) = (by::<F>(&timed), by::<F>(&timed));
    let keep = AutoExtend::until_released().every(LONG / 10);
    let lock = holder.hold(waits(b"job").ttl(LONG).auto_extend(keep));
    let mut passed = Duration::ZERO;
    while passed < 2 * LONG {
        timed.pass(LONG / 5);
        passed += LONG / 5;
        eventually("the nodes keep the key for longer", || {
            timed.shortest_ttl("job") > LONG * 9 / 10
        });
        assert!(holder.is_valid(&lock), "the lock was lost after {passed:?}");
    }
    let report = other.refused(LockRequest::new(b"job"));
    assert_eq!(report.reason(), RefusalReason::Contended, "{report}");
    assert!(holder.release(lock).is_ok());
    timed.until_free("job");
    let lock = other.hold(waits(b"job"));
    assert!(other.release(lock).is_ok());
}

/// The request is refused at once, and reaches no node.
pub(super) fn refused_auto_extend<F: Api>() {
    let servers = servers(3);
    let mut api = on::<F>(&servers);
    let request = patiently(b"job").auto_extend(AutoExtend::until_released());
    assert_eq!(api.turned_away(request.clone()), RequestError::AutoExtendUnsupported);
    let [outcome] = &api.batch(vec![request])[..] else { panic!("one ask, one outcome") };
    assert_eq!(
        outcome.as_ref().err(),
        Some(&AcquireError::Request(RequestError::AutoExtendUnsupported))
    );
    assert_eq!(asks(&servers), 0);
}

/// The holder makes no call, so auto-extension discovers the loss and reports it.
pub(super) fn auto_extended_until_a_stranger_deletes_it<F: Notifies>() {
    let servers = servers(3);
    let mut api = on::<F>(&servers);
    let keep = AutoExtend::until_released().every(Duration::from_millis(100));
    let mut lock = hold_everywhere(&mut api, &servers, patiently(b"job").auto_extend(keep));
    take_away(&servers, "job");
    let before = owners(&servers, "job");
    assert_eq!(api.losses(&mut lock), [LossCause::Gone], "told once");
    assert!(!api.is_valid(&lock));
    assert_eq!(api.release(lock).map_err(|lost| lost.cause()), Err(LossCause::Gone));
    api.end();
    assert_eq!(owners(&servers, "job"), before, "nothing was extended or undone");
}

pub(super) fn fenced<F: Api>() {
    let servers = servers(3);
    let (mut one, mut other) = (on::<F>(&servers), on::<F>(&servers));
    let mut largest = 0;
    for _ in 0..2 {
        for api in [&mut one, &mut other] {
            let lock = api.hold(patiently(b"job").fenced());
            let token = api.fencing_token(&lock).unwrap().get();
            assert!(token > largest, "{token} after {largest}");
            largest = token;
            assert!(api.release(lock).is_ok());
        }
    }
    let lock = one.hold(patiently(b"job"));
    assert_eq!(one.fencing_token(&lock), None, "the request was not fenced");
}

/// One of three resources is held, so none is acquired. When all are free, they are one lock,
/// extended and released together.
pub(super) fn all_of_many_keys_or_none<F: Api>() {
    let servers = servers(3);
    let (mut holder, mut api) = (on::<F>(&servers), on::<F>(&servers));
    let three = || patiently(b"a").and(b"b").and(b"c");
    let lock = hold_everywhere(&mut holder, &servers, patiently(b"b"));
    let report = api.refused(three().wait(Wait::No));
    assert_eq!(report.reason(), RefusalReason::Contended, "{report}");
    free_again(&servers, &["a", "c"]);
    assert!(holder.release(lock).is_ok());
    let mut lock = api.hold(three().ttl(Duration::from_secs(8)));
    eventually("all nodes grant", || held_on(&servers, "c") == 3);
    api.extend(&mut lock, Duration::from_secs(29)).unwrap();
    for key in ["a", "b", "c"] {
        eventually("all keys are extended", || {
            servers.iter().all(|server| pttl(server, key) > 12_000)
        });
    }
    assert!(api.release(lock).is_ok());
    free_again(&servers, &["a", "b", "c"]);
}

/// The requests are sent together, and each has its own outcome.
pub(super) fn many_locks_at_once<F: Api>() {
    let servers = servers(3);
    let (mut holder, mut api) = (on::<F>(&servers), on::<F>(&servers));
    let held = hold_everywhere(&mut holder, &servers, patiently(b"shard 1"));
    let names: [&[u8]; 4] = [b"shard 0", b"shard 1", b"shard 2", b"shard 3"];
    let mut outcomes = api.batch(names.map(long).into());
    let refused = outcomes.remove(1).err().expect("another client has that lock");
    assert!(
        matches!(&refused, AcquireError::Refused(report) if report.reason() == RefusalReason::Contended)
    );
    for outcome in outcomes {
        let lock = outcome.unwrap_or_else(|error| panic!("must be granted: {error}"));
        assert!(api.is_valid(&lock));
        assert!(api.release(lock).is_ok());
    }
    assert!(holder.is_valid(&held));
    assert!(holder.release(held).is_ok());
    eventually("no key is left", || servers.iter().all(|server| keys(server) == 1));
}

/// A client that holds nothing inspects the lock.
pub(super) fn looked_at<F: Inspects>() {
    let servers = servers(3);
    let (mut holder, mut onlooker) = (on::<F>(&servers), on::<F>(&servers));
    assert_eq!(onlooker.inspect(b"job").verdict, InspectionVerdict::Free);
    let lock = hold_everywhere(&mut holder, &servers, patiently(b"job"));
    let inspection = onlooker.inspect(b"job");
    assert!(inspection.is_locked() && inspection.owner() == Some(Owner::Other), "{inspection:?}");
    assert!(inspection.remaining().is_some_and(|span| span > Duration::from_secs(10)));
    assert_eq!(holder.inspect(b"job").owner(), Some(Owner::Mine));
    assert!(holder.release(lock).is_ok());
    eventually("the lock is free", || onlooker.inspect(b"job").verdict == InspectionVerdict::Free);
}

/// Later calls of the former holder do not affect the next holder.
pub(super) fn broken_by_an_operator<F: Inspects>() {
    let servers = servers(3);
    let (mut holder, mut operator) = (on::<F>(&servers), on::<F>(&servers));
    assert_eq!(operator.force_unlock(b"job").broken(), 0, "the lock is free");
    let lock = hold_everywhere(&mut holder, &servers, patiently(b"job"));
    let report = operator.force_unlock(b"job");
    assert!(report.is_confirmed() && report.broken() == 3, "{report}");
    free_again(&servers, &["job"]);
    let next = hold_everywhere(&mut operator, &servers, patiently(b"job"));
    let _ = holder.release(lock);
    assert!(operator.is_valid(&next) && held_on(&servers, "job") == 3);
    assert!(operator.release(next).is_ok());
    free_again(&servers, &["job"]);
}

/// The process ends without releasing the lock, and another attaches it.
pub(super) fn leaves_for_another_process<F: Detaches>() {
    let servers = servers(3);
    let (mut first, mut second) = (on::<F>(&servers), on::<F>(&servers));
    let lock = hold_everywhere(&mut first, &servers, patiently(b"job").fenced());
    let token = first.fencing_token(&lock);
    let detached = first.detach(lock).expect("the lock is held");
    first.end();
    assert_eq!(held_on(&servers, "job"), 3);
    // This opens its links: a client that is not called does not finish a handshake.
    let other = hold_everywhere(&mut second, &servers, patiently(b"other"));
    assert!(second.release(other).is_ok());
    let mut lock = second.attach(detached);
    assert!(second.is_valid(&lock) && token.is_some());
    assert_eq!(second.fencing_token(&lock), token);
    second.extend(&mut lock, Duration::from_secs(20)).unwrap();
    assert!(second.release(lock).is_ok());
    free_again(&servers, &["job"]);
}

// Nodes that fail.

pub(super) fn without_a_minority<F: Api>() {
    let mut servers = servers(3);
    let mut api = on::<F>(&servers);
    let mut lock = hold_everywhere(&mut api, &servers, patiently(b"before"));
    servers[2].kill();
    api.extend(&mut lock, Duration::from_secs(20)).unwrap();
    assert!(api.release(lock).is_ok());
    let lock = api.hold(patiently(b"after"));
    assert_eq!(held_on(&servers[..2], "after"), 2);
    assert!(api.release(lock).is_ok());
    free_again(&servers[..2], &["before", "after"]);
}

/// The refusal's reason is "no quorum", with the name of each node that cannot vote. The third
/// node's grant is undone.
pub(super) fn without_a_majority<F: Api>() {
    let mut servers = servers(3);
    let mut api = on::<F>(&servers);
    let lock = api.hold(patiently(b"before"));
    assert!(api.release(lock).is_ok());
    servers[1..].iter_mut().for_each(Server::kill);
    let report = api.refused(long(b"job"));
    assert_eq!(report.reason(), RefusalReason::NoQuorum, "{report}");
    assert!(!report.is_contended(), "{report}");
    for (node, server) in report.node_votes().iter().zip(&servers).skip(1) {
        assert!(matches!(node.vote, Some(Vote::Fail(_))), "{node}");
        assert!(report.to_string().contains(&address(server)), "{report}");
    }
    free_again(&servers[..1], &["job"]);
}

/// Two of three nodes restart without their data while a lock is held. They would grant it again;
/// the quarantine prevents that until the first holder's lease has ended.
pub(super) fn nodes_that_forgot_it<F: Api>() {
    let mut timed = Timed::of(3);
    let mut holder = by::<F>(&timed);
    let lock = holder.hold(waits(b"job").ttl(LONG));
    (0..2).for_each(|node| timed.forget(node));
    let mut other = by::<F>(&timed);
    let report = other.refused(LockRequest::new(b"job").ttl(LONG));
    assert_eq!(quarantined(&report), 2, "{report}");
    let asked = other.request(waits(b"job").ttl(LONG));
    timed.pass_until("the other's key is on a majority", 2 * LONG, || {
        timed.held_on("job") >= 2 && {
            assert!(!holder.is_valid(&lock), "two clients hold the same lock");
            true
        }
    });
    let next = other.outcome(asked).unwrap();
    assert!(!holder.is_valid(&lock), "two clients hold the same lock");
    assert!(holder.release(lock).is_err());
    assert!(other.release(next).is_ok());
}

// Ends.

pub(super) fn dropped_guard<F: Guards>() {
    let servers = servers(3);
    let (mut holder, mut waiter) = (on::<F>(&servers), on::<F>(&servers));
    let lock = hold_everywhere(&mut holder, &servers, patiently(b"job"));
    let asked = ask_in_vain(&mut waiter, &servers, patiently(b"job"));
    holder.drop_guard(lock);
    let next = waiter.outcome(asked).unwrap();
    waiter.drop_guard(next);
    free_again(&servers, &["job"]);
}

pub(super) fn forgotten_name<F: Api<Held: Copy>>() {
    let servers = servers(3);
    let (mut holder, mut other) = (on::<F>(&servers), on::<F>(&servers));
    let name = hold_everywhere(&mut holder, &servers, patiently(b"job"));
    assert_eq!(other.refused(long(b"job")).reason(), RefusalReason::Contended);
    assert!(holder.is_valid(&name));
    holder.end();
    free_again(&servers, &["job"]);
}

/// The lock is released at once, not when its TTL ends.
pub(super) fn panic_while_it_is_held<F: Api>() {
    let servers = servers(3);
    let api = on::<F>(&servers);
    let survivor = api.panic_holding(patiently(b"job"));
    free_again(&servers, &["job"]);
    if let Some(mut api) = survivor {
        let lock = api.hold(patiently(b"job"));
        assert!(api.release(lock).is_ok());
    }
}

/// Every node has answered first, because over TLS a node that has not may miss the releases of a
/// drop.
pub(super) fn end_of_an_api_that_holds<F: Api>() {
    let servers = servers(3);
    let (mut api, mut other) = (on::<F>(&servers), on::<F>(&servers));
    let one = hold_everywhere(&mut api, &servers, patiently(b"one"));
    let both = patiently(b"two").and(b"three");
    let _locks = (one, hold_everywhere(&mut api, &servers, both));
    api.end();
    free_again(&servers, &["one", "two", "three"]);
    let lock = other.hold(patiently(b"one").and(b"two").and(b"three"));
    assert!(other.release(lock).is_ok());
}

/// The wait ends with the API: the lock is not acquired later.
pub(super) fn end_of_an_api_that_waits<F: Cancels>() {
    let servers = servers(3);
    let (mut holder, mut waiter) = (on::<F>(&servers), on::<F>(&servers));
    let lock = hold_everywhere(&mut holder, &servers, patiently(b"job"));
    let before = owners(&servers, "job");
    let asked = ask_in_vain(&mut waiter, &servers, patiently(b"job"));
    waiter.end();
    assert_eq!(owners(&servers, "job"), before);
    assert!(holder.is_valid(&lock));
    assert!(holder.release(lock).is_ok());
    free_again(&servers, &["job"]);
    drop(asked);
}

// Shared helpers.

// Kinds of locks.

/// Readers of two processes, two of them in one, hold the lock together and exclude a writer.
pub(super) fn shared_by_readers<F: Api>() {
    let servers = servers(3);
    let (mut readers, mut other) = (on::<F>(&servers), on::<F>(&servers));
    let first = readers.hold(patiently(b"job").shared());
    let second = readers.hold(patiently(b"job").shared());
    let third = other.hold(patiently(b"job").shared());
    assert_eq!(readers.mode(&first), LockMode::Shared);
    assert!(readers.is_valid(&first) && readers.is_valid(&second) && other.is_valid(&third));
    assert!(other.refused(long(b"job")).is_contended());
    assert!(other.release(third).is_ok());
    assert!(readers.release(first).is_ok());
    assert!(other.refused(long(b"job")).is_contended());
    assert!(readers.release(second).is_ok());
    let alone = other.hold(patiently(b"job"));
    assert!(readers.refused(long(b"job").shared()).is_contended());
    assert!(other.release(alone).is_ok());
    free_again(&servers, &["job"]);
}

/// A reader that is not alone stays a reader. One that is alone becomes a writer, and lets others
/// read again.
pub(super) fn read_then_written_then_read<F: Api>() {
    let servers = servers(3);
    let (mut one, mut other) = (on::<F>(&servers), on::<F>(&servers));
    let mut lock = one.hold(patiently(b"job").shared().fenced());
    let read = one.fencing_token(&lock).unwrap();
    let beside = other.hold(patiently(b"job").shared());
    assert_eq!(one.try_upgrade(&mut lock), Ok(false));
    assert!(one.is_valid(&lock) && one.mode(&lock) == LockMode::Shared);
    assert!(other.release(beside).is_ok());
    eventually("it is alone", || one.try_upgrade(&mut lock) == Ok(true));
    assert_eq!(one.mode(&lock), LockMode::Exclusive);
    let written = one.fencing_token(&lock).unwrap();
    assert!(written > read);
    assert!(other.refused(long(b"job").shared()).is_contended());
    let again = Err(ExtendError::Request(RequestError::NotShared));
    assert_eq!(one.try_upgrade(&mut lock), again);
    one.extend(&mut lock, Duration::from_secs(30)).unwrap();

    one.downgrade(&mut lock).unwrap();
    assert_eq!((one.mode(&lock), one.fencing_token(&lock)), (LockMode::Shared, Some(written)));
    assert!(one.remaining(&lock) > Duration::from_secs(15));
    let beside = other.hold(patiently(b"job").shared());
    assert!(one.is_valid(&lock) && other.is_valid(&beside));
    assert!(one.release(lock).is_ok());
    assert!(other.release(beside).is_ok());
    free_again(&servers, &["job"]);
}

/// There are two permits, each with a number. A third client waits, and gets the one that is
/// released.
pub(super) fn one_of_a_few_permits<F: Api>() {
    let servers = servers(3);
    let (mut one, mut other) = (on::<F>(&servers), on::<F>(&servers));
    let first = one.hold(patiently(b"job").permits(2));
    let second = other.hold(patiently(b"job").permits(2));
    let (given, kept) = (one.slot(&first), other.slot(&second));
    assert!(given.is_some() && kept.is_some() && given != kept);
    assert_eq!(one.mode(&first), LockMode::Permit { of: 2 });
    assert!(other.refused(long(b"job").permits(2)).is_contended());
    assert!(other.refused(long(b"job")).is_contended());
    assert!(one.release(first).is_ok());
    let third = one.hold(patiently(b"job").permits(2));
    assert_eq!(one.slot(&third), given);
    assert!(one.release(third).is_ok());
    assert!(other.release(second).is_ok());
    free_again(&servers, &["job", "redbolt:until:job"]);
}

/// An upgraded reader and the holder of a permit keep their kind in another process.
pub(super) fn every_kind_leaves_for_another_process<F: Detaches>() {
    let servers = servers(3);
    let (mut one, mut other) = (on::<F>(&servers), on::<F>(&servers));
    // If a client cannot reach a node yet, it sends it what it owes in its next call.
    let warm = hold_everywhere(&mut other, &servers, patiently(b"warm"));
    assert!(other.release(warm).is_ok());
    let mut lock = one.hold(patiently(b"job").shared());
    eventually("it writes", || one.try_upgrade(&mut lock) == Ok(true));
    let permit = one.hold(patiently(b"place").permits(2));
    let place = one.slot(&permit);
    let detached = [one.detach(lock).unwrap(), one.detach(permit).unwrap()];
    let [lock, permit] = detached.map(|it| it.to_text().parse().unwrap());
    let (mut lock, permit) = (other.attach(lock), other.attach(permit));
    assert_eq!((other.mode(&lock), other.slot(&permit)), (LockMode::Exclusive, place));
    assert!(one.refused(long(b"job").shared()).is_contended());
    other.downgrade(&mut lock).unwrap();
    let beside = one.hold(patiently(b"job").shared());
    assert!(other.is_valid(&lock) && other.is_valid(&permit));
    assert!(one.release(beside).is_ok());
    assert!(other.release(lock).is_ok());
    assert!(other.release(permit).is_ok());
    free_again(&servers, &["job", "place", "redbolt:until:place"]);
}

/// Acquires a lock with the grants of all nodes, so that none grants later. A request that still
/// waited for a connection at the grant may never be sent; then the lock is acquired again.
fn hold_everywhere<F: Api>(
    api: &mut F,
    servers: &[Server],
    request: LockRequest<'static>,
) -> F::Held {
    let key = String::from_utf8(request.resources().next().unwrap().to_vec()).unwrap();
    let is_held = |server: &Server| server.run(&[b"EXISTS", key.as_bytes()]) == Reply::Int(1);
    let until = Instant::now() + 2 * LIMIT;
    loop {
        let lock = api.hold(request.clone());
        let soon = Instant::now() + LIMIT / 5;
        while Instant::now() < soon {
            if servers.iter().all(is_held) {
                return lock;
            }
            thread::sleep(Duration::from_millis(3));
        }
        assert!(Instant::now() < until, "not in time: all nodes grant");
        assert!(api.release(lock).is_ok());
    }
}

/// Requests a held lock, and returns when a node has received the request and kept the holder's
/// key.
fn ask_in_vain<F: Api>(api: &mut F, servers: &[Server], request: LockRequest<'static>) -> F::Asked {
    let (before, owned) = (asks(servers), owners(servers, "job"));
    let asked = api.request(request);
    eventually("the request has arrived", || asks(servers) > before);
    assert_eq!(owners(servers, "job"), owned, "the key is still the other's");
    asked
}

/// Returns the number of requests for a lock on one resource that the nodes have received. The
/// flight that opens a connection uses a script, and adds one more.
fn asks(servers: &[Server]) -> i64 {
    let of = |server| {
        let [set, eval, handshake_done] =
            ["set", "eval", "client|setname"].map(|name| calls(server, name).cast_signed());
        set + eval - handshake_done
    };
    servers.iter().map(of).sum()
}

/// Returns the key's value on each node, without the mark that a queue of waiters adds.
fn owners(servers: &[Server], key: &str) -> Vec<Reply> {
    let owner = |server: &Server| match server.cmd(&format!("GET {key}")) {
        Reply::Bulk(value) => {
            Reply::Bulk(value.split(|&byte| byte == b'\n').next().unwrap().into())
        }
        other => other,
    };
    servers.iter().map(owner).collect()
}

/// Deletes or overwrites a holder's key on two nodes, as another program would.
fn take_away(servers: &[Server], key: &str) {
    for server in &servers[..2] {
        server.cmd(&format!("SET {key} theirs"));
    }
    // The third node's key is changed too, so from here on none of our keys may change.
    servers[2].cmd(&format!("SET {key} theirs"));
}

fn free_again(servers: &[Server], keys: &[&str]) {
    for key in keys {
        eventually("no key is left", || held_on(servers, key) == 0);
    }
}

fn keys(server: &Server) -> i64 {
    match server.cmd("DBSIZE") {
        Reply::Int(keys) => keys,
        other => panic!("{other:?}"),
    }
}

fn quarantined(report: &RefusalReport) -> usize {
    let cause = Some(Vote::Fail(Cause::Quarantined));
    report.node_votes().iter().filter(|node| node.vote == cause).count()
}

/// The length of the part that all tokens of a lock share; the rest is the number of the node.
const RANDOM: usize = 32;

/// The TTL of a request that does not set one.
const DEFAULT_TTL: Duration = Duration::from_secs(10);

/// The TTL of a lock that is meant to expire, and the wait of a request that must arrive.
const BRIEF: Duration = Duration::from_secs(3);

/// The number of tries for a scenario that needs a machine without stalls.
const TRIES: usize = 4;

/// A wait that is meant to fail.
const SHORT: Duration = Duration::from_millis(300);
