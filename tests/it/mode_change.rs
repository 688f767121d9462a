//! Holders who change their mode, on real servers, by each API.

use std::time::Duration;

use redbolt::inspect::{InspectionVerdict, Owner};
use redbolt::{AutoExtend, Event, ExtendError, LockMode, LockRequest, RefusalReason, RequestError};

use redbolt_test_servers::Server;

use crate::clock::bent;
use crate::engine::{engine, engine_of};
use crate::support::{
    LONG, builder, client, client_of, driver_of, eventually, held_by, held_on, long, outcome,
    patiently, refusal, servers,
};

#[test]
fn a_client_reads_then_writes_then_reads_again() {
    let servers = servers(3);
    let (one, other) = (client(&servers), client(&servers));
    let mut lock = one.acquire(patiently(b"job").shared().fenced()).unwrap();
    let read = lock.fencing_token().unwrap();
    let beside = other.acquire(patiently(b"job").shared()).unwrap();
    assert_eq!(lock.try_upgrade(), Ok(false), "somebody else reads");
    assert_eq!(lock.mode(), LockMode::Shared);
    assert!(beside.release().is_ok());

    // Only two nodes may have confirmed the release so far.
    eventually("it writes", || lock.try_upgrade() == Ok(true));
    let written = lock.fencing_token().unwrap();
    assert_eq!((lock.mode(), lock.is_valid()), (LockMode::Exclusive, true));
    assert!(written > read && written.get() % 2 == 0);
    refusal(other.acquire(long(b"job").shared()));
    refusal(other.acquire(long(b"job")));
    let seen = other.inspect("job").unwrap();
    assert!(matches!(seen.verdict, InspectionVerdict::Held(_)), "{:?}", seen.verdict);
    assert_eq!(one.inspect("job").unwrap().owner(), Some(Owner::Mine));
    let again = Err(ExtendError::Request(RequestError::NotShared));
    assert_eq!(lock.try_upgrade(), again);

    lock.downgrade().unwrap();
    assert_eq!((lock.mode(), lock.fencing_token()), (LockMode::Shared, Some(written)));
    let beside = other.acquire(patiently(b"job").shared()).unwrap();
    refusal(other.acquire(long(b"job")));
    assert!(beside.release().is_ok());
    assert!(lock.release().is_ok());
    eventually("nothing is left", || held_on(&servers, "job") == 0);
}

#[test]
fn an_exclusive_lock_is_downgraded_and_one_on_several_resources_is_not() {
    let servers = servers(3);
    let (one, other) = (client(&servers), client(&servers));
    let mut both = one.acquire(patiently(b"a").and("b")).unwrap();
    let keys = Err(ExtendError::Request(RequestError::SharedKeys { keys: 2 }));
    assert_eq!(both.downgrade(), keys);
    drop(both);
    let mut lock = one.acquire(patiently(b"job")).unwrap();
    lock.downgrade().unwrap();
    let beside = other.acquire(patiently(b"job").shared()).unwrap();
    assert!(lock.is_valid() && beside.is_valid());
    assert_eq!(lock.downgrade(), Err(ExtendError::Request(RequestError::NotExclusive)));
    drop((lock, beside));
    eventually("nothing is left", || held_on(&servers, "job") == 0);
}

#[test]
fn an_engine_changes_the_mode_of_a_lock_that_it_extends() {
    let servers = servers(3);
    let (engine, other) = (engine(&servers), client(&servers));
    let request = LockRequest::new("job").shared().auto_extend(AutoExtend::until_released());
    let lock = engine.acquire(request).wait().unwrap();
    assert_eq!(lock.try_upgrade().wait(), Ok(true));
    assert_eq!(lock.mode(), LockMode::Exclusive);
    refusal(other.acquire(long(b"job").shared()));
    let downgrade = lock.downgrade();
    assert_eq!(lock.mode(), LockMode::Shared, "the mode changes before the outcome is awaited");
    assert_eq!(downgrade.wait(), Ok(()));
    let beside = other.acquire(patiently(b"job").shared()).unwrap();
    assert_eq!(lock.try_upgrade().wait(), Ok(false));
    assert!(lock.is_valid());
    drop(beside);
    let detached = lock.detach().wait().unwrap().unwrap();
    assert_eq!(detached.mode(), LockMode::Shared);
    let mut lock = other.attach(&detached).unwrap();
    assert_eq!(lock.try_upgrade(), Ok(true));
    let lock = engine.attach(&lock.detach().unwrap()).wait().unwrap();
    assert_eq!(lock.mode(), LockMode::Exclusive);
    assert!(lock.release().wait().is_ok());
    eventually("nothing is left", || held_on(&servers, "job") == 0);
}

/// The core forgets the lock once no node can hold its key.
#[test]
fn a_guard_that_was_forgotten_leaves_its_mode_readable() {
    let servers = servers(1);
    let (builder, ahead) = bent(&servers);
    let one = client_of(builder);
    let mut lock = one.acquire(long(b"job").shared()).unwrap();
    assert_eq!(lock.try_upgrade(), Ok(true));
    ahead.sleep();
    assert!(matches!(lock.extend(LONG), Err(ExtendError::Lost(_))));
    assert_eq!(lock.mode(), LockMode::Exclusive);

    // The server's clock did not move with the client's, so its key is still there.
    servers[0].cmd("DEL job");
    let lock = one.acquire(patiently(b"job").shared()).unwrap();
    let detached = lock.detach().unwrap();
    ahead.sleep();
    let lock = one.attach(&detached).unwrap();
    assert_eq!((lock.mode(), lock.is_valid()), (LockMode::Shared, false));
}

/// Two of three nodes hang, so the downgrade does not reach a quorum in time; after they resume, an
/// extension makes the client try them again.
#[test]
fn a_late_downgrade_is_not_reported_as_an_upgrade() {
    let servers = servers(3);
    let one = client_of(builder(&servers).response_timeout(SOON));
    let mut lock = one.acquire(patiently(b"job")).unwrap();
    servers[1..].iter().for_each(Server::pause);
    lock.downgrade().unwrap();
    servers[1..].iter().for_each(Server::resume);
    eventually("it is extended", || lock.extend(LONG).is_ok());
    let mut reported = lock.try_upgrade();
    eventually("no change is in flight", || {
        if is_to_be_tried_again(&reported) {
            reported = lock.try_upgrade();
        }
        !is_to_be_tried_again(&reported)
    });
    assert_eq!((reported, lock.mode()), (Ok(true), LockMode::Exclusive));
    assert!(lock.release().is_ok());
}

/// Returns `true` if the previous change is still in flight, or too few nodes answered in [`SOON`].
fn is_to_be_tried_again(reported: &Result<bool, ExtendError>) -> bool {
    match reported {
        Err(ExtendError::Request(error)) => *error == RequestError::ModeChangeUnderWay,
        Err(ExtendError::Refused(report)) => report.reason() == RefusalReason::NoQuorum,
        _ => false,
    }
}

/// The engine's thread may learn of the completed downgrade before it takes the request to upgrade.
#[test]
fn an_upgrade_does_not_end_with_the_downgrade_before_it() {
    let servers = servers(3);
    let engine = engine_of(builder(&servers).response_timeout(SOON));
    for _ in 0..5 {
        let lock = engine.acquire(patiently(b"job")).wait().unwrap();
        servers[1..].iter().for_each(Server::pause);
        lock.downgrade().wait().unwrap();
        servers[1..].iter().for_each(Server::resume);
        eventually("it is extended", || lock.extend(LONG).wait().is_ok());
        let mut reported = lock.try_upgrade().wait();
        eventually("no change is in flight", || {
            if is_to_be_tried_again(&reported) {
                reported = lock.try_upgrade().wait();
            }
            !is_to_be_tried_again(&reported)
        });
        assert_eq!((reported, lock.mode()), (Ok(true), LockMode::Exclusive));
        assert!(lock.release().wait().is_ok());
    }
}

#[test]
fn a_driver_reports_a_change_of_mode_by_events() {
    let servers = servers(3);
    let mut driver = driver_of(builder(&servers));
    let id = held_by(&mut driver, patiently(b"job").shared());
    driver.try_upgrade(id).unwrap();
    assert_eq!(outcome(&mut driver, id), Event::Upgraded(id));
    assert_eq!(driver.mode(id), Some(LockMode::Exclusive));
    driver.downgrade(id).unwrap();
    assert_eq!(driver.mode(id), Some(LockMode::Shared));
    assert_eq!(outcome(&mut driver, id), Event::Downgraded(id));
    let beside = client(&servers);
    let beside = beside.acquire(patiently(b"job").shared()).unwrap();
    driver.try_upgrade(id).unwrap();
    assert!(matches!(outcome(&mut driver, id), Event::NotUpgraded(..)));
    drop(beside);
    driver.release(id);
}

/// The response timeout: usually enough for a node that answers, and short for one that hangs.
const SOON: Duration = Duration::from_millis(200);
