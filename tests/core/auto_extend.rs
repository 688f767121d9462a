//! Auto-extended locks: when extensions begin and end, and which events report them.

use std::time::Duration;

use redbolt::proto::{
    AutoExtend, ClockReading, Event, LockId, LockRequest, LockState, LossCause, RefusalReason,
    RequestError, Settings, Timestamp, Wait,
};

use crate::world::{World, Written, error, ms, secs};

/// Returns three nodes, each 1 ms away.
fn world() -> World {
    with(1, |_| {})
}

fn with(clients: usize, set: impl Fn(&mut Settings)) -> World {
    let mut world = World::with(3, clients, set).warm();
    world.delay(ms(1));
    world
}

fn kept(key: &[u8]) -> LockRequest<'_> {
    LockRequest::new(key).ttl(secs(3)).auto_extend(AutoExtend::until_released())
}

fn keep(world: &mut World, key: &[u8]) -> LockId {
    let id = world.acquire(0, &kept(key), &[key]);
    world.run(ms(2));
    assert!(world.is_granted(id));
    world.log.clear();
    id
}

/// Returns when a node received extensions, in ms after `since`.
fn extended(world: &World, node: usize, since: u64) -> Vec<u64> {
    let extends =
        world.log.iter().filter(|ran| ran.node == node && ran.kind().starts_with("extend"));
    extends.map(|ran| (ran.at - since) / 1_000_000).collect()
}

/// Returns the number of extensions on all nodes.
fn extensions(world: &World) -> usize {
    (0..3).map(|node| extended(world, node, 0).len()).sum()
}

fn reported(world: &World, id: LockId, is_it: impl Fn(&Event) -> bool) -> usize {
    world.outcomes(id).iter().filter(|event| is_it(event)).count()
}

fn losses(world: &World, id: LockId) -> Vec<(u64, LossCause)> {
    let lost = |&(at, event): &(u64, Event)| match event {
        Event::Lost(of, cause) if of == id => Some((at, cause)),
        _ => None,
    };
    world.clients[0].events.iter().filter_map(lost).collect()
}

fn is_auto_extended(event: &Event) -> bool {
    matches!(event, Event::AutoExtended(_))
}

fn is_not_auto_extended(event: &Event) -> bool {
    matches!(event, Event::AutoExtendFailed(..))
}

/// Returns when the validity ends if no more extensions follow.
fn ends(world: &mut World, id: LockId) -> u64 {
    let by_boot = ClockReading { boot: Timestamp(world.boot), wall: Timestamp(0) };
    world.boot + world.core().lease(id).unwrap().remaining(by_boot).as_nanos() as u64
}

// Without failures.

#[test]
fn a_lock_whose_ttl_is_a_few_round_trips_is_kept() {
    for (ttl, round_trip) in [(secs(3), ms(600)), (ms(900), ms(200)), (ms(900), ms(225))] {
        let mut world = World::with(3, 1, |settings| {
            settings.response_timeout = secs(1);
            settings.connect_timeout = secs(5);
        });
        world.delay(round_trip / 2);
        world.run(secs(5));
        let id = world.acquire(0, &kept(b"job").ttl(ttl), &[b"job"]);
        world.run(20 * ttl);
        assert_eq!(losses(&world, id), [], "{ttl:?} over {round_trip:?}");
        assert_eq!(reported(&world, id, is_not_auto_extended), 0, "{ttl:?} over {round_trip:?}");
        assert!(reported(&world, id, is_auto_extended) > 40);
    }
}

#[test]
fn a_lock_is_extended_each_third_of_its_ttl_or_a_little_earlier() {
    let mut world = world();
    let begun = world.boot;
    let id = keep(&mut world, b"job");
    world.run(secs(60));
    let mut times = extended(&world, 0, begun);
    times.insert(0, 0);
    let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().all(|gap| (870..=1_002).contains(gap)), "{gaps:?}");
    assert!(gaps.iter().max().unwrap() - gaps.iter().min().unwrap() > 50, "jittered: {gaps:?}");
    assert_eq!(reported(&world, id, is_auto_extended), times.len() - 1);
    assert_eq!(world.outcomes(id).len(), times.len(), "there is no other event");
}

#[test]
fn a_lock_is_extended_at_the_interval_that_was_set() {
    let mut world = world();
    let request = LockRequest::new(b"job")
        .ttl(secs(3))
        .auto_extend(AutoExtend::until_released().every(ms(500)));
    world.acquire(0, &request, &[b"job"]);
    world.run(secs(10));
    assert!((20..=23).contains(&extended(&world, 0, 0).len()));
}

#[test]
fn an_interval_too_long_for_the_ttl_is_refused() {
    let mut world = world();
    let now = world.now();
    for every in [Duration::ZERO, ms(1_501), secs(3)] {
        let request = LockRequest::new(b"job")
            .ttl(secs(3))
            .auto_extend(AutoExtend::until_released().every(every));
        let refused = world.core().acquire(&request, now);
        assert_eq!(refused, Err(RequestError::AutoExtendInterval { every, ttl: secs(3) }));
    }
}

#[test]
fn without_auto_extend_a_lock_is_a_lease() {
    let mut world = world();
    let id = world.lock(b"job", secs(3));
    world.run(secs(4));
    assert_eq!(extensions(&world), 0);
    assert_eq!(losses(&world, id).len(), 1);
}

#[test]
fn a_lock_that_waited_is_extended_from_its_grant_on() {
    let mut world = world();
    world.foreign(b"job", &[5_000; 3]);
    let id = world.acquire(0, &kept(b"job").wait(Wait::Forever), &[b"job"]);
    world.run(secs(4));
    assert_eq!(extensions(&world), 0);
    world.run(secs(20));
    assert_eq!(world.core().state(id), LockState::Held);
}

#[test]
fn many_keys_are_extended_together() {
    let mut world = world();
    let request = kept(b"a").and(b"b");
    let id = world.acquire(0, &request, &[b"a", b"b"]);
    world.run(secs(20));
    assert!(world.core().lease(id).is_some());
    assert!(world.pttl(0, b"a") > 1_900 && world.pttl(0, b"b") > 1_900);
}

/// Locks granted at different times are extended at the same time.
#[test]
fn many_locks_are_extended_in_one_write_to_each_node() {
    let mut world = world();
    let names: Vec<_> = (0..64u8).map(|at| [b'k', at]).collect();
    for name in &names {
        world.acquire(0, &kept(name), &[name]);
        world.run(ms(1));
    }
    world.log.clear();
    world.run(secs(30));
    for node in 0..3 {
        let times = extended(&world, node, 0);
        let mut writes = times.clone();
        writes.dedup();
        assert!(times.len() >= 30 * 64, "{}", times.len());
        assert!(writes.len() <= 42, "{} writes for {} extensions", writes.len(), times.len());
    }
}

#[test]
fn a_deleted_key_is_not_recreated() {
    let mut world = world();
    let id = keep(&mut world, b"job");
    world.delete(2, b"job");
    world.run(secs(10));
    assert!(world.core().lease(id).is_some());
    assert_eq!(world.holders(b"job"), [true, true, false]);
}

// After the release.

/// Checks that no node receives an extension after the undo.
fn nothing_follows_the_undo(world: &World) {
    for node in 0..3 {
        let ran = world.ran(node);
        let undo = ran.iter().position(|kind| kind.starts_with("undo"));
        let extend = ran.iter().rposition(|kind| kind.starts_with("extend"));
        assert!(undo.is_some() && extend < undo, "node {node}: {ran:?}");
    }
}

fn let_go(world: &mut World, id: LockId) {
    let before = reported(world, id, is_auto_extended);
    world.release(id);
    world.run(secs(10));
    assert_eq!(reported(world, id, is_auto_extended), before);
    assert!(matches!(world.outcomes(id).last(), Some(Event::Released(..))));
    assert_eq!(world.holders(b"job"), [false; 3]);
    assert_eq!(world.kept(0), (0, 0));
}

#[test]
fn nothing_is_extended_after_the_release() {
    let mut world = world();
    let id = keep(&mut world, b"job");
    world.run(secs(2));
    let_go(&mut world, id);
    nothing_follows_the_undo(&world);
}

/// The lock is released at each moment of a round of extensions.
#[test]
fn nothing_follows_a_release_during_an_extension() {
    for at in 0..8 {
        let mut world = world();
        world.delay(ms(5));
        let id = world.acquire(0, &kept(b"job"), &[b"job"]);
        world.run(ms(20));
        world.run_until(secs(2), |world| world.core().state(id) == LockState::Extending);
        world.run(ms(2 * at));
        let_go(&mut world, id);
        nothing_follows_the_undo(&world);
    }
}

#[test]
fn nothing_follows_a_release_if_the_node_has_forgotten_the_script() {
    for at in 0..8 {
        let mut world = world();
        world.delay(ms(5));
        let id = world.acquire(0, &kept(b"job"), &[b"job"]);
        world.run(secs(2));
        let now = world.server_now();
        for server in &mut world.servers {
            server.observe(&[b"SCRIPT", b"FLUSH"], now);
        }
        world.run_until(secs(2), |world| world.core().state(id) == LockState::Extending);
        world.run(ms(2 * at) + ms(1));
        world.log.clear();
        let_go(&mut world, id);
        for node in 0..3 {
            let ran = world.ran(node);
            let undo = ran.iter().rposition(|kind| kind.starts_with("undo"));
            let extend = ran.iter().rposition(|kind| kind.starts_with("extend"));
            assert!(undo.is_some() && extend < undo, "node {node}: {ran:?}");
        }
    }
}

#[test]
fn nothing_follows_a_release_if_connections_are_lost_with_it() {
    for written in [Written::Runs, Written::Vanishes] {
        let mut world = world();
        world.delay(ms(5));
        let id = world.acquire(0, &kept(b"job"), &[b"job"]);
        world.run(ms(20));
        world.run_until(secs(2), |world| world.core().state(id) == LockState::Extending);
        for node in 0..3 {
            world.cut(0, node, written);
        }
        world.run(ms(1));
        let_go(&mut world, id);
        nothing_follows_the_undo(&world);
    }
}

#[test]
fn nothing_follows_a_release_if_an_extension_is_due_at_that_moment() {
    let mut world = world();
    let id = keep(&mut world, b"job");
    // The driver calls late: no timer has fired.
    world.boot += 1_100_000_000;
    let_go(&mut world, id);
    assert_eq!(extensions(&world), 0);
}

// Failures.

#[test]
fn a_loss_is_reported_before_the_validity_ends() {
    let mut world = world();
    let id = keep(&mut world, b"job");
    world.run(secs(5));
    (0..3).for_each(|node| world.pause(node));
    world.run(ms(1_100));
    let ends = ends(&mut world, id);
    world.run(secs(10));
    let [(at, cause)] = losses(&world, id)[..] else { panic!("{:?}", losses(&world, id)) };
    assert_eq!(cause, LossCause::Unextended);
    let notice = Duration::from_nanos(ends - at);
    assert_eq!(notice, ms(150), "a twentieth of the TTL");
    assert_eq!(reported(&world, id, is_not_auto_extended), 1);
    assert!(world.core().lease(id).is_none());
}

/// The driver sleeps through the rest of the validity. The cause is still the failed extension.
#[test]
fn a_loss_after_a_failure_has_the_same_cause_if_it_is_noticed_late() {
    for has_failed in [true, false] {
        let mut world = world();
        let id = keep(&mut world, b"job");
        if has_failed {
            (0..3).for_each(|node| world.pause(node));
            world.run_until(secs(3), |world| reported(world, id, is_not_auto_extended) == 1);
        }
        world.boot += 10_000_000_000;
        world.run(ms(1));
        let cause = if has_failed { LossCause::Unextended } else { LossCause::Expired };
        assert_eq!(losses(&world, id).iter().map(|&(_, it)| it).collect::<Vec<_>>(), [cause]);
    }
}

#[test]
fn consecutive_failures_are_reported_once() {
    let mut world = world();
    let id = keep(&mut world, b"job");
    for round in 1..=3 {
        (0..2).for_each(|node| world.pause(node));
        world.run(ms(1_800));
        assert_eq!(reported(&world, id, is_not_auto_extended), round);
        (0..2).for_each(|node| world.resume(node));
        world.run(secs(3));
        assert!(
            matches!(world.outcomes(id).last(), Some(Event::AutoExtended(_))),
            "auto-extension goes on"
        );
    }
}

#[test]
fn an_extension_is_tried_several_times_before_the_lock_is_lost() {
    let mut world = world();
    let id = keep(&mut world, b"job");
    for node in 0..2 {
        world
            .answer(node, |args| args[0].starts_with(b"EVAL").then(|| error("OOM full")).flatten());
    }
    world.run(secs(4));
    assert_eq!(losses(&world, id).len(), 1);
    let times = extended(&world, 2, 0);
    assert!((4..100).contains(&times.len()), "{} times", times.len());
}

#[test]
fn a_deleted_key_loses_the_lock_at_once() {
    let mut world = world();
    let id = keep(&mut world, b"job");
    let mut world = world.forgetful();
    (0..2).for_each(|node| world.delete(node, b"job"));
    world.run(ms(1_010));
    let [(_, cause)] = losses(&world, id)[..] else { panic!("{:?}", world.outcomes(id)) };
    assert_eq!(cause, LossCause::Gone);
    world.log.clear();
    world.run(secs(10));
    assert_eq!(extensions(&world), 0);
    assert_eq!(losses(&world, id).len(), 1);
}

#[test]
fn extensions_end_at_the_longest_hold() {
    let of_the_lock = |world: &mut World| {
        let keep = AutoExtend::until_released().max_hold(secs(8));
        world.acquire(0, &LockRequest::new(b"job").ttl(secs(3)).auto_extend(keep), &[b"job"])
    };
    let of_all = |world: &mut World| world.acquire(0, &kept(b"job"), &[b"job"]);
    let worlds = [
        (world(), &of_the_lock as &dyn Fn(&mut World) -> LockId),
        (with(1, |settings| settings.max_hold = Some(secs(8))), &of_all),
    ];
    for (mut world, request) in worlds {
        let begun = world.boot;
        let id = request(&mut world);
        world.run(secs(20));
        let [(at, cause)] = losses(&world, id)[..] else { panic!("{:?}", world.outcomes(id)) };
        assert_eq!(cause, LossCause::HeldTooLong);
        let held = Duration::from_nanos(at - begun);
        assert!(held > secs(6) && held < secs(8), "{held:?}");
        assert_eq!(reported(&world, id, is_not_auto_extended), 0);
    }
}

#[test]
fn the_release_of_a_lost_lock_reports_nothing_more() {
    let mut world = world();
    let id = keep(&mut world, b"job");
    (0..3).for_each(|node| world.pause(node));
    world.run(secs(3));
    let before = world.outcomes(id);
    world.release(id);
    (0..3).for_each(|node| world.resume(node));
    world.run(secs(10));
    assert_eq!(world.outcomes(id), before);
    assert_eq!(world.holders(b"job"), [false; 3]);
    assert_eq!(world.kept(0), (0, 0));
}

// Together with the caller's own extensions.

#[test]
fn the_callers_extension_replaces_the_automatic_one() {
    let mut world = world();
    world.delay(ms(5));
    let id = world.acquire(0, &kept(b"job"), &[b"job"]);
    world.run(ms(20));
    world.run_until(secs(2), |world| world.core().state(id) == LockState::Extending);
    world.extend(id, secs(20));
    let now = world.now();
    assert_eq!(world.core().extend(id, secs(20), now), Err(RequestError::ExtensionUnderWay));
    world.run(ms(20));
    assert_eq!(world.outcomes(id), [Event::Granted(id), Event::Extended(id)]);
    assert!(world.remaining(id) > secs(19));
    world.run(secs(5));
    assert!(reported(&world, id, is_auto_extended) >= 4, "auto-extension goes on");
    assert!(world.remaining(id) > secs(14), "an automatic extension shortens nothing");
}

#[test]
fn a_failure_of_the_callers_extension_is_reported_each_time() {
    let mut world = world();
    let id = keep(&mut world, b"job");
    (0..2).for_each(|node| world.pause(node));
    for round in 1..=2 {
        world.extend(id, secs(20));
        world.run(ms(60));
        let reported = reported(
            &world,
            id,
            |event| matches!(event, Event::NotExtended(_, r) if r.reason == RefusalReason::NoQuorum),
        );
        assert_eq!(reported, round);
    }
    (0..2).for_each(|node| world.resume(node));
    world.run(secs(5));
    assert!(world.core().lease(id).is_some());
}

// Stopped processes.

/// The process is stopped past its lease: the first check reports the end, one event reports the
/// loss, no request is sent, and the key of the next holder is unchanged.
#[test]
fn a_process_stopped_past_its_lease_has_lost_the_lock() {
    let mut world = with(2, |_| {});
    let id = keep(&mut world, b"job");
    world.run(ms(1_500));
    world.clients[0].is_stopped = true;
    let next = world.acquire(1, &LockRequest::new(b"job").wait(Wait::Forever), &[b"job"]);
    world.run(secs(6));
    assert!(world.clients[1].is_granted(next));
    let theirs: Vec<_> = (0..3).map(|node| world.value(node, b"job")).collect();
    let extended = extensions(&world);

    let now = world.now();
    assert!(world.core().lease(id).is_none_or(|lease| lease.remaining(now).is_zero()));
    assert_eq!(world.core().extend(id, secs(3), now), Err(RequestError::NotHeld));
    world.clients[0].is_stopped = false;
    world.run(secs(1));
    let [(_, cause)] = losses(&world, id)[..] else { panic!("{:?}", world.outcomes(id)) };
    assert_eq!(cause, LossCause::Expired);
    assert_eq!(extensions(&world), extended);
    world.release(id);
    world.run(secs(1));
    assert_eq!((0..3).map(|node| world.value(node, b"job")).collect::<Vec<_>>(), theirs);
    assert_eq!(losses(&world, id).len(), 1);
}

/// The answers to an extension wait in the sockets until the lease has ended.
#[test]
fn answers_that_waited_do_not_revive_a_lost_lock() {
    let mut world = with(2, |_| {});
    let id = keep(&mut world, b"job");
    world.run_until(secs(2), |world| world.core().state(id) == LockState::Extending);
    world.clients[0].is_stopped = true;
    let next = world.acquire(1, &LockRequest::new(b"job").wait(Wait::Forever), &[b"job"]);
    world.run(secs(6));
    assert!(world.clients[1].is_granted(next));
    world.clients[0].is_stopped = false;
    world.run(secs(1));
    assert_eq!(world.outcomes(id), [Event::Granted(id), Event::Lost(id, LossCause::Expired)]);
}

#[test]
fn a_process_stopped_for_less_than_its_lease_keeps_the_lock() {
    let mut world = world();
    let id = keep(&mut world, b"job");
    world.clients[0].is_stopped = true;
    world.run(ms(2_500));
    world.clients[0].is_stopped = false;
    world.run(secs(10));
    assert!(world.core().lease(id).is_some());
    assert_eq!(losses(&world, id), []);
}

#[test]
fn a_jump_of_the_wall_clock_past_the_lease_is_a_loss() {
    let mut world = world();
    let id = keep(&mut world, b"job");
    world.run(ms(100));
    world.wall_ahead += 10 * 1_000_000_000;
    world.run(secs(2));
    let [(_, cause)] = losses(&world, id)[..] else { panic!("{:?}", world.outcomes(id)) };
    assert_eq!(cause, LossCause::Expired);
    assert_eq!(extensions(&world), 0);
}

/// Extensions are combined only if none would come much too early.
#[test]
fn locks_whose_extensions_are_far_apart_are_not_extended_for_each_other() {
    let mut world = world();
    keep(&mut world, b"first");
    world.run(ms(450));
    keep(&mut world, b"second");
    world.run(ms(600));
    assert_eq!(extended(&world, 0, 0).len(), 1, "that of the first");
}

/// The gaps get shorter as less of the validity is left.
#[test]
fn a_failed_extension_is_retried_within_a_quarter_of_its_interval() {
    let mut world = world();
    keep(&mut world, b"job");
    for node in [1, 2] {
        world.answer(node, |args| args[0].starts_with(b"EVAL").then(|| error("MISCONF")).flatten());
    }
    world.run(secs(2));
    let times = extended(&world, 0, 0);
    let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.len() > 3 && gaps.iter().all(|gap| *gap <= 255), "{gaps:?}");
}

/// The first node's answer that its key is missing arrives after the extension has failed. The
/// remaining validity then rests on the node that missed an earlier extension.
#[test]
fn a_lease_that_got_shorter_is_extended_before_it_ends() {
    let mut tried = 0;
    for others in 0..24 {
        let mut world = world().forgetful();
        for _ in 0..others {
            let id = world.lock(b"other", secs(1));
            world.run(ms(2));
            world.release(id);
            world.run(ms(10));
        }
        let request = kept(b"job").ttl(secs(30));
        let request = request.auto_extend(AutoExtend::until_released().every(ms(13_500)));
        let id = world.acquire(0, &request, &[b"job"]);
        world.run(ms(10));
        world.log.clear();
        let refuse =
            |args: &[&[u8]]| args[0].starts_with(b"EVAL").then(|| error("MISCONF")).flatten();
        world.answer(2, refuse);
        world.run_until(secs(20), |world| extended(world, 1, 0).len() == 1);
        world.run(ms(10));
        world.servers[0].delay = ms(50).as_nanos() as u64;
        world.delete(0, b"job");
        world.run_until(secs(20), |world| extended(world, 1, 0).len() == 2);
        world.run(ms(60));
        world.servers[2].answer = None;
        world.run(ms(60));
        if world.outcomes(id).last() == Some(&Event::Shortened(id)) {
            tried += 1;
            world.run(secs(20));
            assert_eq!(losses(&world, id), [], "{others}: {:?}", world.outcomes(id));
        }
    }
    assert!(tried > 5, "{tried}");
}
