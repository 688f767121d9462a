//! The nodes on which a lease rests: some missed an extension, and some lost the key after it.

use std::time::Duration;

use redbolt::proto::{
    AutoExtend, DetachedLock, Event, LockId, LockRequest, LockState, LossCause, RefusalReason,
};

use crate::world::{World, error, ms, secs};

const JOB: &[u8] = b"job";

/// Returns the drift of a TTL: 1 % and 2 ms.
fn drift(ttl: Duration) -> Duration {
    ttl / 100 + ms(2)
}

/// Returns a lock for 10 s that was extended by 30 s on the first two of three nodes.
fn uneven() -> (World, LockId) {
    let mut world = World::with(3, 2, |_| {}).warm();
    let id = world.lock(JOB, secs(10));
    extend_without(&mut world, 2, id, secs(30));
    assert_eq!(world.remaining(id), secs(30) - drift(secs(30)));
    (world.forgetful(), id)
}

/// Extends the lock while one node refuses, so that its key expires as before.
fn extend_without(world: &mut World, node: usize, id: LockId, ttl: Duration) {
    let refuse = |args: &[&[u8]]| (args[0] != b"PTTL").then(|| error("MISCONF disk")).flatten();
    world.answer(node, refuse);
    world.extend(id, ttl);
    world.servers[node].answer = None;
}

/// Checks that no other client gets the lock while the first client reports it as held, and that
/// one gets it afterwards.
fn is_honest(world: &mut World, id: LockId) {
    let mut others = None;
    while others.is_none() {
        world.run(ms(100));
        let request = LockRequest::new(JOB).ttl(secs(1));
        let theirs = world.acquire(1, &request, &[JOB]);
        others = world.clients[1].is_granted(theirs).then_some(theirs);
        assert!(others.is_none() || world.remaining(id).is_zero(), "two clients hold it");
        assert!(world.boot < 2_000_000_000_000, "no client is ever granted the lock");
    }
}

#[test]
fn an_extension_ignores_answers_from_before_a_node_lost_the_key() {
    let (mut world, id) = uneven();
    world.delete(0, JOB);
    world.extend(id, secs(5));
    let reported =
        [Event::Granted(id), Event::Extended(id), Event::Shortened(id), Event::Extended(id)];
    assert_eq!(world.outcomes(id), reported);
    // The second node keeps the key for 30 s, the third for the 10 s that it had.
    assert_eq!(world.remaining(id), secs(10) - drift(secs(10)));
    is_honest(&mut world, id);
    assert_eq!(world.core().state(id), LockState::Lost(LossCause::Expired));
}

#[test]
fn a_lock_that_too_few_nodes_keep_is_lost_at_once() {
    // The third node's key has expired by then.
    let (mut world, id) = uneven();
    world.run(secs(12));
    assert!(!world.remaining(id).is_zero());
    world.delete(0, JOB);
    world.extend(id, secs(5));
    assert_eq!(world.outcomes(id).last(), Some(&Event::Lost(id, LossCause::Gone)));
    assert!(world.remaining(id).is_zero());
    is_honest(&mut world, id);
}

/// One node never granted, so the lock is lost with the first of the others.
#[test]
fn a_bare_quorum_that_loses_a_node_loses_the_lock() {
    let mut world = World::with(3, 2, |_| {}).warm();
    world.set(2, JOB, b"theirs", 1_000);
    let id = world.lock(JOB, secs(10));
    world.run(secs(2));
    assert!(world.is_granted(id));
    let mut world = world.forgetful();
    world.delete(0, JOB);
    world.extend(id, secs(10));
    assert_eq!(world.outcomes(id)[1..], [Event::Lost(id, LossCause::Gone)]);
    is_honest(&mut world, id);
}

/// The quorum answers before the node that has lost the key.
#[test]
fn a_loss_that_is_found_after_the_verdict_shortens_the_lease() {
    let (mut world, id) = uneven();
    world.delete(0, JOB);
    world.servers[0].delay = ms(20).as_nanos() as u64;
    world.extend(id, secs(5));
    assert_eq!(world.outcomes(id)[2..], [Event::Extended(id)]);
    assert_eq!(world.remaining(id), secs(30) - drift(secs(30)), "the loss is not known yet");
    world.run(ms(40));
    assert_eq!(world.outcomes(id)[3..], [Event::Shortened(id)]);
    assert_eq!(world.remaining(id), secs(10) - drift(secs(10)) - ms(40));
    is_honest(&mut world, id);
}

/// The answer to a given-up extension does not count for the present one. But a missing key is a
/// fact, whichever request discovered it.
#[test]
fn a_loss_that_a_later_round_finds_shortens_the_lease() {
    let (mut world, id) = uneven();
    world.delete(0, JOB);
    world.servers[0].delay = ms(100).as_nanos() as u64;
    world.extend(id, secs(5));
    world.run(ms(150));
    world.extend(id, secs(6));
    assert_eq!(world.outcomes(id)[2..], [Event::Extended(id), Event::Extended(id)]);
    world.run(ms(100));
    assert_eq!(world.outcomes(id)[4..], [Event::Shortened(id)]);
    assert_eq!(world.remaining(id), secs(10) - drift(secs(10)) - ms(250));
    is_honest(&mut world, id);
}

/// A node that extends after the verdict keeps the lock for as long as the others.
#[test]
fn a_node_that_was_only_slow_counts() {
    let mut world = World::with(3, 2, |_| {}).warm();
    let id = world.lock(JOB, secs(10));
    world.pause(2);
    world.extend(id, secs(30));
    world.resume(2);
    let mut world = world.forgetful();
    world.delete(0, JOB);
    world.extend(id, secs(5));
    assert_eq!(world.outcomes(id)[1..], [Event::Extended(id), Event::Extended(id)]);
    assert_eq!(world.remaining(id), secs(30) - drift(secs(30)));
    is_honest(&mut world, id);
}

/// Each of five nodes has received other extensions: the third longest of the remaining ones
/// counts.
#[test]
fn extensions_of_different_lengths_leave_each_node_with_its_own() {
    // The nodes keep the key for 30, 30, 20, 15 and 30 s; two neighbours lose it.
    for (gone, left) in [15, 15, 30, 20, 15].into_iter().enumerate() {
        let mut world = World::with(5, 2, |_| {}).warm();
        let id = world.lock(JOB, secs(10));
        let misconf = |args: &[&[u8]]| (args[0] != b"PTTL").then(|| error("MISCONF")).flatten();
        for (ttl, silent) in [(30, [2, 3]), (20, [3, 4]), (15, [0, 1])] {
            silent.iter().for_each(|&node| world.answer(node, misconf));
            world.extend(id, secs(ttl));
            silent.iter().for_each(|&node| world.servers[node].answer = None);
        }
        assert_eq!(world.remaining(id), secs(30) - drift(secs(30)), "{gone}");
        let mut world = world.forgetful();
        world.delete(gone, JOB);
        world.delete((gone + 1) % 5, JOB);
        world.extend(id, ms(50));
        assert_eq!(world.remaining(id), secs(left) - drift(secs(left)), "{gone}");
        is_honest(&mut world, id);
    }
}

/// Several extensions without a quorum do not add up to more than each node keeps.
#[test]
fn an_extension_without_a_quorum_leaves_the_lease_alone() {
    let mut world = World::with(3, 2, |_| {}).warm();
    let id = world.lock(JOB, secs(10));
    let misconf = |args: &[&[u8]]| (args[0] != b"PTTL").then(|| error("MISCONF")).flatten();
    for node in [1, 2] {
        world.answer(node, misconf);
    }
    world.extend(id, secs(30));
    assert!(
        matches!(world.outcomes(id)[1..], [Event::NotExtended(_, r)] if r.reason == RefusalReason::NoQuorum)
    );
    assert_eq!(world.remaining(id), secs(10) - drift(secs(10)));
    world.servers[1].answer = None;
    let mut world = world.forgetful();
    world.delete(0, JOB);
    world.extend(id, secs(20));
    assert!(matches!(world.outcomes(id)[2..], [Event::NotExtended(..)]));
    assert_eq!(
        world.remaining(id),
        secs(10) - drift(secs(10)),
        "two nodes still keep the key for that long"
    );
    is_honest(&mut world, id);
}

/// When the validity of an auto-extended lock shrinks, the lock is extended soon, and outlives the
/// node's loss.
#[test]
fn an_auto_extended_lock_whose_lease_gets_shorter_is_extended_in_time() {
    let mut world = World::new(3).warm();
    let keep = AutoExtend::until_released();
    let id = world.acquire(0, &LockRequest::new(JOB).ttl(secs(10)).auto_extend(keep), &[JOB]);
    world.run(secs(1));
    extend_without(&mut world, 2, id, secs(30));
    let mut world = world.forgetful();
    // The next regular extension would come at about 4 s; a caller learns of the loss earlier.
    world.delete(0, JOB);
    world.answer(2, |args| (args[0] != b"PTTL").then(|| error("MISCONF")).flatten());
    world.extend(id, ms(50));
    world.servers[2].answer = None;
    assert!(world.outcomes(id).contains(&Event::Shortened(id)), "{:?}", world.outcomes(id));
    world.run(secs(60));
    assert!(!world.remaining(id).is_zero(), "{:?}", world.outcomes(id));
}

/// The process that attaches the lock learns which nodes missed an extension, and can count on them
/// again.
#[test]
fn a_detached_lock_records_the_nodes_that_its_lease_rests_on() {
    for gone in [true, false] {
        let (mut world, id) = uneven();
        let now = world.now();
        let detached = world.core().detach(id, now).unwrap().to_text();
        let nodes: Vec<_> = detached.lines().filter(|line| line.starts_with("node")).collect();
        assert_eq!(nodes, ["node counted ", "node counted ", "node behind "]);
        let detached: DetachedLock = detached.parse().unwrap();
        world.clients[0].locks.clear();
        let taken = world.attach(0, &detached);
        assert_eq!(world.remaining(taken), secs(30) - drift(secs(30)));
        if gone {
            world.delete(0, JOB);
            world.extend(taken, secs(5));
            let reported = world.outcomes(taken);
            assert_eq!(
                reported[..],
                [Event::Lost(taken, LossCause::Gone)],
                "only one node certainly keeps the key"
            );
        } else {
            world.extend(taken, secs(30));
            world.delete(0, JOB);
            world.extend(taken, secs(5));
            let reported = world.outcomes(taken);
            assert_eq!(
                reported,
                [Event::Extended(taken), Event::Extended(taken)],
                "on the other two"
            );
            assert_eq!(world.remaining(taken), secs(30) - drift(secs(30)));
        }
        is_honest(&mut world, taken);
    }
}

/// No request is due for a while, and the core keeps less state for the lock.
#[test]
fn an_idle_lock_remembers_how_long_each_node_keeps_it() {
    let (mut world, id) = uneven();
    world.extend(id, secs(5));
    world.run(secs(1));
    world.delete(0, JOB);
    world.extend(id, secs(5));
    assert_eq!(world.remaining(id), secs(10) - drift(secs(10)) - secs(1));
    is_honest(&mut world, id);
}
