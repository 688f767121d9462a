//! Held locks: extension, loss, release.

use std::cell::Cell;
use std::rc::Rc;

use redbolt::proto::{
    Cause, Event, LockState, LossCause, RefusalReason, RequestError, Settings, Vote,
};
use redbolt_node::Memory;

use crate::world::{Accept, World, Written, error, ms, secs};

fn slow(world: &mut World, millis: u64) {
    for server in &mut world.servers {
        server.delay = ms(millis).as_nanos() as u64;
    }
}

#[test]
fn validity_is_counted_from_before_the_first_byte() {
    let mut world = World::new(3).warm();
    slow(&mut world, 20);
    let id = world.lock(b"job", secs(10));
    world.run(ms(45));
    assert!(world.is_granted(id));
    assert_eq!(world.remaining(id), secs(10) - ms(102) - ms(45));
    world.extend(id, secs(20));
    world.run(ms(45));
    assert_eq!(world.remaining(id), secs(20) - ms(202) - ms(45));
}

#[test]
fn an_extension_never_shortens() {
    let mut world = World::new(3).warm();
    let id = world.lock(b"job", secs(20));
    let before = world.remaining(id);
    world.extend(id, ms(100));
    assert_eq!(world.outcomes(id), [Event::Granted(id), Event::Extended(id)]);
    assert_eq!(world.remaining(id), before);
    assert!(world.pttl(0, b"job") > 19_000);
}

/// A round of an extension is short, so that a failed one leaves time for others. With nodes
/// farther away than such a round, none would succeed.
#[test]
fn a_lock_whose_ttl_is_a_few_round_trips_is_extended() {
    for (ttl, round_trip) in [(ms(3_000), ms(600)), (ms(900), ms(200)), (ms(900), ms(400))] {
        let settings = |settings: &mut Settings| {
            settings.response_timeout = secs(1);
            settings.connect_timeout = secs(5);
        };
        let mut world = World::with(3, 1, settings);
        world.delay(round_trip / 2);
        world.run(secs(5));
        let id = world.lock(b"job", ttl);
        world.run(round_trip);
        assert!(world.is_granted(id));
        world.extend(id, ttl);
        world.run(round_trip);
        let reported = &world.outcomes(id)[1..];
        assert_eq!(reported, [Event::Extended(id)], "{ttl:?} over {round_trip:?}");
        assert!(world.remaining(id) > ttl - round_trip - ms(50));
        world.release(id);
        world.run(round_trip);
        assert_eq!(world.holders(b"job"), [false; 3]);
    }
}

#[test]
fn without_a_quorum_a_lock_is_held_until_its_validity_ends() {
    let mut world = World::new(3).warm();
    let id = world.lock(b"job", secs(10));
    world.pause(1);
    world.pause(2);
    let before = world.remaining(id);
    world.extend(id, secs(20));
    world.run(ms(50));
    match world.outcomes(id)[1..] {
        [Event::NotExtended(_, refusal)] => {
            assert_eq!(refusal.reason, RefusalReason::NoQuorum);
            assert_eq!(refusal.votes.of(world.node(0)), Some(Vote::Grant));
        }
        ref other => panic!("{other:?}"),
    }
    assert_eq!(world.remaining(id), before - ms(50));
    world.run(before - ms(51));
    assert_eq!(world.outcomes(id).len(), 2);
    world.run(ms(1));
    assert_eq!(world.outcomes(id)[2..], [Event::Lost(id, LossCause::Expired)]);
}

#[test]
fn keys_missing_on_too_many_nodes_lose_the_lock_at_once() {
    let mut world = World::new(5).warm();
    let id = world.lock(b"job", secs(10));
    let now = world.server_now();
    for node in [1, 2, 3] {
        world.servers[node].observe(&[b"DEL", b"job"], now);
    }
    world.log.clear();
    world.pause(0);
    world.extend_unwatched(id, secs(20));
    assert_eq!(world.outcomes(id)[1..], [Event::Lost(id, LossCause::Gone)]);
    assert!(world.core().lease(id).is_none());
    world.resume(0);
    world.run(secs(1));
    assert_eq!(world.outcomes(id).len(), 2, "once");
    assert_eq!(world.count("undo"), 0);
    world.release(id);
    assert_eq!(world.holders(b"job"), [false; 5]);
    assert_eq!(world.outcomes(id).len(), 2);
    assert_eq!(world.kept(0), (0, 0));
}

#[test]
fn keys_missing_on_a_minority_do_not_lose_the_lock() {
    let mut world = World::new(5).warm();
    let id = world.lock(b"job", secs(10));
    let now = world.server_now();
    for node in [1, 2] {
        world.servers[node].observe(&[b"DEL", b"job"], now);
    }
    world.extend(id, secs(20));
    assert_eq!(world.outcomes(id)[1..], [Event::Extended(id)]);
    assert_eq!(world.holders(b"job"), [true, false, false, true, true], "no key is recreated");
}

#[test]
fn a_lock_that_has_ended_is_not_extended() {
    let mut world = World::new(3).warm();
    let id = world.lock(b"job", ms(500));
    // The driver calls late: no timer has noticed the end yet.
    world.boot += 493_000_000;
    let now = world.now();
    assert_eq!(world.core().extend(id, secs(20), now), Err(RequestError::NotHeld));
    world.flow();
    assert_eq!(world.outcomes(id)[1..], [Event::Lost(id, LossCause::Expired)]);
    assert_eq!(world.count("extend"), 0);
}

#[test]
fn answers_after_the_end_extend_nothing() {
    let mut world = World::new(3).warm();
    let id = world.lock(b"job", ms(500));
    world.run(ms(480));
    slow(&mut world, 10);
    world.extend(id, secs(20));
    world.run(ms(100));
    assert_eq!(world.outcomes(id)[1..], [Event::Lost(id, LossCause::Expired)]);
    assert_eq!(world.holders(b"job"), [true; 3], "the keys protect the holder until it releases");
    world.release(id);
    world.run(ms(100));
    assert_eq!(world.holders(b"job"), [false; 3]);
    assert_eq!(world.kept(0), (0, 0));
}

/// The answers to the first extension come during the second, and confirm. The answers to the
/// second show that the key is missing.
#[test]
fn an_answer_counts_for_its_own_round_only() {
    let mut world = World::new(3).warm();
    let id = world.lock(b"job", secs(10));
    for node in [1, 2] {
        let asked = Rc::new(Cell::new(0));
        world.answer(node, move |args| {
            let yes = asked.get() == 0;
            (args[0].starts_with(b"EVAL")).then(|| {
                asked.set(asked.get() + 1);
                if yes { b":1\r\n".to_vec() } else { b":0\r\n".to_vec() }
            })
        });
        world.pause(node);
    }
    world.extend(id, secs(20));
    world.run(ms(60));
    world.extend(id, secs(20));
    world.resume(1);
    world.resume(2);
    assert!(matches!(
        world.outcomes(id)[1..],
        [Event::NotExtended(..), Event::Lost(_, LossCause::Gone)]
    ));
}

#[test]
fn one_extension_at_a_time() {
    let mut world = World::new(3).warm();
    slow(&mut world, 10);
    let id = world.lock(b"job", secs(10));
    let now = world.now();
    assert_eq!(world.core().extend(id, secs(10), now), Err(RequestError::NotHeld), "still asking");
    world.run(ms(30));
    world.extend(id, secs(10));
    let now = world.now();
    assert_eq!(world.core().extend(id, secs(10), now), Err(RequestError::ExtensionUnderWay));
    world.run(ms(30));
    assert_eq!(world.outcomes(id), [Event::Granted(id), Event::Extended(id)]);
}

#[test]
fn a_release_ends_an_extension() {
    let mut world = World::new(3).warm();
    let id = world.lock(b"job", secs(10));
    slow(&mut world, 10);
    world.extend(id, secs(20));
    world.release(id);
    world.run(secs(1));
    assert!(matches!(world.outcomes(id)[..], [Event::Granted(_), Event::Released(..)]));
    assert_eq!(world.ran(0), ["ask", "check", "extend", "undo"]);
    assert_eq!(world.holders(b"job"), [false; 3]);
    assert_eq!(world.kept(0), (0, 0));
}

#[test]
fn the_release_of_a_lock_that_has_ended_is_a_loss_and_an_undo() {
    let mut world = World::new(3).warm();
    let id = world.lock(b"job", secs(1));
    world.boot += 989_000_000;
    world.release(id);
    assert_eq!(world.outcomes(id)[1..], [Event::Lost(id, LossCause::Expired)]);
    assert_eq!(world.holders(b"job"), [false; 3]);
    assert_eq!(world.kept(0), (0, 0));
}

#[test]
fn a_release_without_answers_ends_in_its_time() {
    let mut world = World::new(3).warm();
    let id = world.lock(b"job", secs(10));
    for node in 0..3 {
        world.pause(node);
    }
    let begun = world.boot;
    world.release(id);
    world.run(ms(50));
    assert!(matches!(world.outcomes(id)[1], Event::Released(_, c) if c.nodes == 0 && c.of == 3));
    assert_eq!(world.clients[0].events.last().unwrap().0 - begun, 50_000_000);
    for node in 0..3 {
        world.resume(node);
    }
    assert_eq!(world.kept(0), (0, 0));
    assert_eq!(world.holders(b"job"), [false; 3]);
}

#[test]
fn a_release_ends_when_no_link_comes_back_and_is_owed() {
    let mut world = World::new(3).warm();
    let id = world.lock(b"job", secs(10));
    for node in 0..3 {
        world.stop(node);
    }
    world.release(id);
    world.run(ms(40));
    assert!(matches!(world.outcomes(id)[1], Event::Released(_, c) if c.nodes == 0));
    for node in 0..3 {
        world.start(node, Memory::Kept);
    }
    world.run(secs(2));
    assert_eq!(world.holders(b"job"), [false; 3]);
    assert_eq!(world.kept(0), (0, 0));
}

#[test]
fn a_hold_has_its_maximum() {
    let mut world = World::with(1, 1, |settings| settings.max_hold = Some(secs(25))).warm();
    let id = world.lock(b"job", secs(10));
    world.run(secs(5));
    world.extend(id, secs(20));
    world.run(ms(1));
    let (now, max_hold) = (world.now(), secs(25));
    let refused = Err(RequestError::HeldTooLong { max_hold });
    assert_eq!(world.core().extend(id, secs(20), now), refused);
    assert!(world.core().lease(id).is_some());
}

#[test]
fn an_extension_whose_links_are_lost_and_stay_silent_fails_in_its_time() {
    let mut world = World::new(3).warm();
    let id = world.lock(b"job", secs(10));
    for node in [1, 2] {
        world.pause(node);
    }
    world.extend(id, secs(20));
    for node in [1, 2] {
        world.cut(0, node, Written::Vanishes);
    }
    world.run(ms(50));
    assert!(matches!(world.outcomes(id)[1..], [Event::NotExtended(..)]));
    assert!(world.core().lease(id).is_some());
}

/// The process was stopped between the answer and the timers, for longer than the TTL. Its driver
/// takes both events at once, and queries a lock that no longer exists.
#[test]
fn a_lock_granted_and_lost_in_one_iteration_can_be_queried() {
    let mut world = World::new(1).warm();
    world.pause(0);
    let id = world.lock(b"job", secs(10));
    let (link, node, now) = (world.link(0), world.node(0), world.now());
    let core = world.core();
    let answers = b"+OK\r\n:60000\r\n";
    core.space(link)[..answers.len()].copy_from_slice(answers);
    core.received(link, answers.len(), now);
    assert_eq!(core.state(id), LockState::Held);
    assert_eq!(core.votes(id).of(node), Some(Vote::Grant));
    world.boot += secs(60).as_nanos() as u64;
    let now = world.now();
    let core = world.core();
    core.timeout(now);
    assert_eq!(core.poll_event(), Some(Event::Granted(id)));
    assert_eq!(core.state(id), LockState::Unknown);
    assert_eq!((core.votes(id).node_count(), core.votes(id).of(node)), (1, None));
    assert_eq!(core.poll_event(), Some(Event::Lost(id, LossCause::Expired)));
}

/// A hold lasts at most a day, unless the caller wants no limit.
#[test]
fn a_hold_has_a_maximum_by_default_and_can_have_none() {
    let (hour, day) = (secs(60 * 60), secs(24 * 60 * 60));
    type Set = fn(&mut Settings);
    let table: [(Set, bool); 2] = [(|_| {}, false), (|settings| settings.max_hold = None, true)];
    for (set, endless) in table {
        let mut world = World::with(1, 1, |settings| {
            settings.max_ttl = secs(60 * 60);
            set(settings);
        })
        .warm();
        let id = world.lock(b"job", hour);
        for _ in 0..46 {
            world.run(hour / 2);
            world.extend(id, hour);
        }
        world.run(ms(1));
        let now = world.now();
        let extended = world.core().extend(id, hour, now);
        let refused = RequestError::HeldTooLong { max_hold: day };
        assert_eq!(extended.err(), (!endless).then_some(refused));
        assert!(world.core().lease(id).is_some(), "the lock is unchanged");
    }
}

/// The extension waited for a link when its lock was released. The next lock in the same slot has
/// its own TTL.
#[test]
fn an_extension_that_waited_for_a_link_ends_with_its_lock() {
    let mut world = World::new(3).warm();
    let id = world.lock(b"job", secs(10));
    world.run(ms(100));
    world.servers[2].accept = Accept::Silent;
    world.cut(0, 2, Written::Runs);
    world.extend(id, secs(20));
    assert_eq!(world.outcomes(id), [Event::Granted(id), Event::Extended(id)]);
    world.release(id);
    let next = world.lock(b"other", secs(10));
    assert!(world.is_granted(next));
    world.log.clear();
    world.servers[2].accept = Accept::Yes;
    world.run(secs(1));
    assert!(world.ran(2).contains(&"ask"), "{:?}", world.ran(2));
    assert_eq!(world.count("extend") + world.count("extend sha"), 0);
    assert!(world.pttl(2, b"other") <= 10_000);
}

/// The request was sent before the extension, so its answer is not a vote for the extension.
#[test]
fn a_late_answer_to_the_request_is_not_a_vote_for_an_extension() {
    let mut world = World::new(3).warm();
    world.pause(2);
    let id = world.lock(b"job", secs(10));
    world.servers[2].window = 0;
    world.extend(id, secs(10));
    assert_eq!(world.outcomes(id), [Event::Granted(id), Event::Extended(id)]);
    world.resume(2);
    assert!(world.holders(b"job")[2]);
    let node = world.node(2);
    assert_eq!(world.core().votes(id).of(node), None, "the extension is not sent yet");
    world.servers[2].window = usize::MAX;
    world.flow();
    assert_eq!(world.core().votes(id).of(node), Some(Vote::Grant));
}

#[test]
fn an_extension_waits_for_connections_that_come_back() {
    let mut world = World::new(3).warm();
    let id = world.lock(b"job", secs(10));
    (0..3).for_each(|node| world.hang_up(node));
    world.extend(id, secs(20));
    world.run(secs(1));
    assert_eq!(world.outcomes(id)[1..], [Event::Extended(id)]);
    assert!(world.pttl(0, b"job") > 18_000);
}

/// An extension that cannot succeed does not use up its time.
#[test]
fn an_extension_fails_at_once_if_no_connection_comes_back() {
    let mut world = World::new(3).warm();
    let id = world.lock(b"job", secs(10));
    world.run(secs(1));
    let begun = world.boot;
    [1, 2].iter().for_each(|&node| world.stop(node));
    world.extend(id, secs(20));
    world.run(secs(1));
    let reported = world.clients[0].events.iter().find(|(at, _)| *at >= begun);
    match reported {
        Some(&(at, Event::NotExtended(_, refusal))) => {
            assert!(at - begun < 20_000_000, "{} ns", at - begun);
            let refused = Some(Vote::Fail(Cause::ConnectionRefused));
            assert_eq!([1, 2].map(|node| refusal.votes.of(world.node(node))), [refused; 2]);
        }
        other => panic!("{other:?}"),
    }
}

/// The node has closed its connection meanwhile, and the backoff would delay a new one for long.
#[test]
fn a_release_opens_the_connection_that_it_needs() {
    let backoff = |settings: &mut Settings| settings.reconnect_backoff = (secs(5), secs(5));
    let mut world = World::with(3, 1, backoff).warm();
    let id = world.lock(b"job", secs(10));
    world.run(secs(1));
    world.hang_up(2);
    world.release(id);
    world.run(ms(1));
    assert_eq!(world.holders(b"job"), [false; 3]);
    assert_eq!(world.kept(0), (0, 0));
}

#[test]
fn releasing_everything_keeps_nothing() {
    let mut world = World::new(3).warm();
    let [held, other] = [&b"job"[..], b"other"].map(|key| world.lock(key, secs(10)));
    let waiting = world.wait_for(b"job", secs(10));
    let now = world.now();
    world.core().release_all(now);
    world.flow();
    for id in [held, other] {
        assert!(matches!(world.outcomes(id)[1..], [Event::Released(..)]));
    }
    assert_eq!(world.refusal(waiting).reason, RefusalReason::Cancelled);
    assert_eq!([world.holders(b"job"), world.holders(b"other")], [[false; 3]; 2]);
    assert_eq!(world.kept(0), (0, 0));
}

/// The request meanwhile finds that these nodes refuse writes. The extension in flight finds that
/// the key is missing there.
#[test]
fn nodes_that_are_being_disconnected_still_report_a_missing_key() {
    let mut world = World::new(3).warm().forgetful();
    let id = world.lock(b"job", secs(10));
    for node in [1, 2] {
        world.answer(node, |args| (args[0] == b"SET").then(|| error("READONLY no")).flatten());
        world.pause(node);
    }
    world.lock(b"other", secs(10));
    world.extend(id, secs(10));
    let now = world.server_now();
    for node in [1, 2] {
        world.servers[node].observe(&[b"DEL", b"job"], now);
        world.resume(node);
    }
    match world.outcomes(id)[1..] {
        [Event::NotExtended(_, refusal), Event::Lost(_, LossCause::Gone)] => {
            let vote = refusal.votes.of(world.node(2));
            assert_eq!(vote, Some(Vote::Fail(Cause::ReadOnly)), "without a wait");
        }
        ref other => panic!("{other:?}"),
    }
}

/// The release overtakes an extension, which finds that the keys were deleted.
#[test]
fn a_release_is_not_reported_as_a_loss_found_by_an_extension() {
    let mut world = World::new(3).warm().forgetful();
    let id = world.lock(b"job", secs(10));
    (0..3).for_each(|node| world.pause(node));
    world.extend(id, secs(10));
    let now = world.server_now();
    [1, 2].iter().for_each(|&node| drop(world.servers[node].observe(&[b"DEL", b"job"], now)));
    world.release(id);
    [1, 2, 0].iter().for_each(|&node| world.resume(node));
    assert!(matches!(world.outcomes(id)[1..], [Event::Released(_, c)] if c.nodes >= 2));
    assert_eq!(world.kept(0), (0, 0));
}
