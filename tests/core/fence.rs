//! Fencing tokens: the nodes' counters, when a quorum of them makes a token, and wrong clocks.

use std::collections::BTreeSet;
use std::time::Duration;

use redbolt::proto::{
    Cause, Event, LockId, LockRequest, LockState, LossCause, NodeState, RefusalReason,
    RequestError, RestartGuard, RestartTrust, Settings, Vote, Wait, fence::MAX_TOKEN,
};
use redbolt_node::Memory;
use redbolt_testkit::Random;

use crate::world::{SECOND, World, Written, error, ms, secs};

const JOB: &[u8] = b"job";

fn request() -> LockRequest<'static> {
    LockRequest::new(JOB).fenced()
}

fn lock(world: &mut World) -> LockId {
    world.acquire(0, &request(), &[JOB])
}

fn token(world: &World, id: LockId) -> Option<u64> {
    world.clients[0].core.fencing_token(id).map(|token| token.get())
}

/// Returns the client's present proposal, in µs.
fn wall_us(world: &World) -> u64 {
    world.now().wall.0 / 1_000
}

fn counter_key(key: &[u8]) -> Vec<u8> {
    [b"redbolt:fence:", key].concat()
}

fn set_counter(world: &mut World, node: usize, key: &[u8], counter: &str) {
    world.set(node, &counter_key(key), counter.as_bytes(), 1_000_000_000);
}

fn counters(world: &mut World, key: &[u8]) -> Vec<u64> {
    let read = |node| {
        let value = world.value(node, &counter_key(key));
        String::from_utf8(value).unwrap().parse().unwrap_or_default()
    };
    (0..3).map(read).collect()
}

fn is_gone(world: &mut World) {
    world.run(secs(2));
    assert_eq!(world.holders(JOB), [false; 3]);
    assert_eq!(world.kept(0), (0, 0));
}

/// Returns nodes whose counters are this far ahead of all clocks. Requests and answers take 10 ms
/// each, those of the last node 30 ms. The first two nodes are a quorum that disagrees.
fn diverged(counted: [u64; 3]) -> (World, u64) {
    diverged_with(counted, |_| {})
}

fn diverged_with(counted: [u64; 3], set: impl Fn(&mut Settings)) -> (World, u64) {
    let mut world = World::with(3, 1, set).warm();
    let future = wall_us(&world) + 1_000_000;
    for (node, past) in counted.into_iter().enumerate() {
        set_counter(&mut world, node, JOB, &(future + past).to_string());
        world.servers[node].delay = ms(if node == 2 { 30 } else { 10 }).as_nanos() as u64;
    }
    (world, future)
}

/// Requests a lock and runs until its write-back begins.
fn fencing(world: &mut World) -> LockId {
    let id = lock(world);
    world.run(ms(20));
    assert_eq!(world.core().state(id), LockState::Fencing);
    assert_eq!(token(world, id), None);
    id
}

// One round trip.

#[test]
fn a_quorum_of_equal_counters_is_the_token_in_one_round_trip() {
    let mut world = World::new(3).warm();
    for server in &mut world.servers {
        server.delay = ms(10).as_nanos() as u64;
    }
    let proposed = wall_us(&world);
    let id = lock(&mut world);
    assert_eq!(token(&world, id), None, "the lock is not held yet");
    world.run(ms(20));
    assert!(world.is_granted(id));
    assert_eq!(token(&world, id), Some(proposed));
    assert_eq!(counters(&mut world, JOB), [proposed; 3]);
    assert_eq!(world.ran(0), ["ask"]);
    let week = 7 * 24 * 60 * 60 * 1_000;
    assert_eq!(world.pttl(0, &counter_key(JOB)), week - 10, "the default");
}

/// Odd tokens are reserved for readers that share a resource.
#[test]
fn tokens_are_even_for_any_clock_and_any_counters() {
    for (counted, ahead) in [(None, 0), (None, 1), (Some("6"), 1), (Some("7"), 0), (Some("8.5"), 1)]
    {
        let mut world = World::new(3).warm();
        world.wall_ahead = ahead * 1_000;
        let future = wall_us(&world).next_multiple_of(2) + 1_000_000;
        let counter = counted.map(|past: &str| format!("{}{past}", future / 10));
        for node in 0..3 {
            counter.iter().for_each(|counter| set_counter(&mut world, node, JOB, counter));
        }
        let proposed = wall_us(&world);
        let id = lock(&mut world);
        let token = token(&world, id).unwrap();
        assert!(token.is_multiple_of(2), "{counted:?}: {token}");
        let least = counter.map_or(proposed as f64, |counter| counter.parse().unwrap());
        assert!((0.0..=2.0).contains(&(token as f64 - least)), "{counted:?}: {token}");
    }
}

/// Equal counters need no clock: each node takes the next even number.
#[test]
fn counters_ahead_of_the_clock_count_on() {
    let (mut world, future) = diverged([7, 7, 7]);
    let id = lock(&mut world);
    world.run(ms(20));
    assert_eq!(token(&world, id), Some(future + 8));
    assert_eq!(world.count("write back"), 0);
}

#[test]
fn the_counter_lives_for_as_long_as_was_chosen() {
    let day = secs(24 * 60 * 60);
    let mut world = World::with(3, 1, |settings| settings.fencing_counter_ttl = 2 * day).warm();
    lock(&mut world);
    assert_eq!(world.pttl(0, &counter_key(JOB)), 2 * day.as_millis() as i64);
}

#[test]
fn many_keys_have_one_token() {
    let mut world = World::new(3).warm();
    let future = wall_us(&world) + 1_000_000;
    for node in 0..3 {
        set_counter(&mut world, node, b"other", &(future + 50).to_string());
    }
    let id = world.acquire(0, &request().and(b"other"), &[JOB, b"other"]);
    assert_eq!(token(&world, id), Some(future + 52));
    assert_eq!(counters(&mut world, JOB), [future + 52; 3]);
    assert_eq!(counters(&mut world, b"other"), [future + 52; 3]);
}

#[test]
fn a_lock_has_its_token_while_it_is_held() {
    let mut world = World::new(3).warm();
    let plain = world.lock(b"plain", secs(10));
    assert_eq!(token(&world, plain), None, "the request was not fenced");
    let id = lock(&mut world);
    let first = token(&world, id);
    world.extend(id, secs(20));
    assert!(first.is_some() && token(&world, id) == first, "an extension keeps the token");
    world.release(id);
    assert_eq!(token(&world, id), None);
    let id = lock(&mut world);
    world.run(secs(11));
    assert_eq!(world.outcomes(id)[1..], [Event::Lost(id, LossCause::Expired)]);
    assert_eq!(token(&world, id), None);
}

#[test]
fn fenced_locks_need_the_restart_guard_and_a_long_limit() {
    let refused = |set: fn(&mut Settings)| {
        let mut world = World::with(3, 1, set);
        let now = world.now();
        world.core().acquire(&request().ttl(secs(5)), now).err()
    };
    assert_eq!(refused(|_| {}), None);
    assert_eq!(refused(|settings| settings.max_ttl = secs(11)), None);
    let short = refused(|settings| settings.max_ttl = secs(11) - Duration::from_nanos(1));
    assert_eq!(short, Some(RequestError::CannotFence));
    assert_eq!(
        refused(|settings| settings.restart_guard = RestartGuard::Off),
        Some(RequestError::CannotFence)
    );
}

/// A lock on a counter's key would make the counter look held, or write its token over it.
#[test]
fn a_counter_cannot_be_locked() {
    let mut world = World::new(3).warm();
    let (now, counter) = (world.now(), counter_key(JOB));
    let refused = Err(RequestError::CounterKey);
    for request in
        [LockRequest::new(&counter), request().and(&counter), LockRequest::new(b"redbolt:fence:")]
    {
        assert_eq!(world.core().acquire(&request, now), refused);
    }
    world.flow();
    assert_eq!(world.log.len(), 0);
    let id = world.lock(b"redbolt:fence", secs(10));
    assert!(world.is_granted(id), "only the begin of the name is a counter's");
}

// The write-back.

#[test]
fn the_largest_counter_is_written_back_to_a_quorum_that_disagrees() {
    let (mut world, future) = diverged([10, 20, 40]);
    let id = fencing(&mut world);
    world.run(ms(20));
    assert!(world.is_granted(id), "the grant takes two round trips");
    assert_eq!(token(&world, id), Some(future + 22));
    assert_eq!(world.ran(0), ["ask", "write back"]);
    assert_eq!(world.ran(1), ["ask"], "the node has the value already");
    world.run(ms(100));
    assert_eq!(counters(&mut world, JOB), [future + 22, future + 22, future + 42]);
    assert_eq!(world.ran(2), ["ask"], "a late grant counts for the lock, not for the token");
    world.release(id);
    is_gone(&mut world);
}

#[test]
fn nodes_that_denied_get_no_write_back() {
    let (mut world, future) = diverged([10, 20, 40]);
    world.servers[2].delay = 0;
    world.set(2, JOB, b"theirs", 60_000);
    let id = fencing(&mut world);
    world.run(ms(20));
    assert_eq!(token(&world, id), Some(future + 22));
    assert_eq!(counters(&mut world, JOB)[2], future + 40);
    assert_eq!(world.ran(2), ["ask"]);
}

/// The write-back must not count for a client that has lost the lock in between, nor raise the
/// counter of another holder.
#[test]
fn a_write_back_finds_that_the_lock_is_lost() {
    for next in [None, Some(&b"theirs"[..])] {
        let (mut world, future) = diverged([10, 20, 40]);
        world.stop(2);
        let id = fencing(&mut world);
        let now = world.server_now();
        world.servers[0].observe(&[b"DEL", JOB], now);
        if let Some(next) = next {
            world.set(0, JOB, next, 60_000);
        }
        world.run(ms(20));
        assert_eq!(world.refusal(id).reason, RefusalReason::Contended);
        assert_eq!(world.vote(id, 0), Some(Vote::Deny));
        world.run(secs(2));
        assert_eq!(world.count("write back"), 1);
        assert_eq!(counters(&mut world, JOB)[0], future + 12, "not raised");
        assert_eq!(world.holders(JOB), [next.is_some(), false, false]);
        assert_eq!(world.kept(0), (0, 0));
    }
}

/// Two nodes agree on the token, and the third answers the write-back that the key is missing. The
/// lease does not rest on the third, so the next loss leaves too few.
#[test]
fn a_node_that_reports_a_missing_key_to_the_write_back_does_not_count() {
    let (mut world, _) = diverged([10, 20, 20]);
    world.servers[2].delay = world.servers[0].delay;
    let id = lock(&mut world);
    world.run(ms(20));
    assert!(world.is_granted(id));
    let now = world.server_now();
    world.servers[0].observe(&[b"DEL", JOB], now);
    world.run(ms(100));
    assert_eq!(world.count("write back"), 1);
    let mut world = world.forgetful();
    world.servers[1].observe(&[b"DEL", JOB], now);
    world.pause(0);
    world.extend(id, secs(5));
    world.run(ms(50));
    assert_eq!(world.core().state(id), LockState::Lost(LossCause::Gone));
}

/// A node that grants while others are written back counts if its counter equals the token, or once
/// it does. A node whose counter is past the token may have granted the same token to another
/// holder before.
#[test]
fn a_late_grant_confirms_the_token_only_if_it_is_not_past_it() {
    for (counted, granted, written) in [(20, true, false), (0, true, true), (40, false, false)] {
        let (mut world, future) = diverged([10, 20, counted]);
        let id = lock(&mut world);
        world.run(ms(15));
        world.pause(0);
        world.run(ms(44));
        assert_eq!(world.core().state(id), LockState::Fencing, "the first node does not answer");
        world.servers[2].delay = 0;
        world.run(ms(1));
        assert_eq!(world.is_granted(id), granted, "{counted}");
        let wrote = world.ran(2).contains(&"write back");
        assert_eq!(wrote, written, "{counted}");
        if granted {
            assert_eq!(token(&world, id), Some(future + 22));
            assert!(counters(&mut world, JOB)[1..].iter().all(|&counter| counter == future + 22));
        } else {
            world.run(ms(60));
            assert_eq!(world.refusal(id).reason, RefusalReason::NoQuorum);
            world.resume(0);
            is_gone(&mut world);
        }
    }
}

#[test]
fn a_write_back_is_sent_again_by_its_text() {
    let (mut world, _) = diverged([10, 20, 40]);
    let first = fencing(&mut world);
    world.run(ms(100));
    world.release(first);
    world.run(ms(100));
    let future = counters(&mut world, JOB)[1];
    set_counter(&mut world, 0, JOB, &(future - 5).to_string());
    world.log.clear();
    let id = fencing(&mut world);
    let now = world.server_now();
    world.servers[0].observe(&[b"SCRIPT", b"FLUSH"], now);
    world.run(ms(40));
    assert_eq!(token(&world, id), Some(future + 2));
    assert_eq!(world.ran(0), ["ask sha", "write back sha", "write back"]);
}

/// Any outcome of the write-back other than a confirmation leads to a refusal, and an undo on every
/// node.
#[test]
fn without_confirmation_there_is_no_lock() {
    type Spoil = fn(&mut World);
    let refusing = |world: &mut World| {
        world.answer(0, |args| (args[0] == b"EVAL").then(|| error("MISCONF disk")).flatten());
    };
    let never_known = |world: &mut World| {
        world.answer(0, |args| (args[0] == b"EVAL").then(|| error("NOSCRIPT no")).flatten());
    };
    let table: [(&str, Spoil, Cause); 6] = [
        ("error", refusing, Cause::DiskTrouble),
        ("no script", never_known, Cause::ServerError),
        ("silence", |world| world.pause(0), Cause::NoAnswer),
        ("lost", |world| world.cut(0, 0, Written::Vanishes), Cause::ConnectionReset),
        ("lost behind it", |world| world.cut(0, 0, Written::Runs), Cause::ConnectionReset),
        ("nonsense", |world| world.say(0, 0, b"+OK\r\n"), Cause::UnexpectedReply),
    ];
    for (what, spoil, cause) in table {
        let (mut world, _) = diverged([10, 20, 40]);
        world.stop(2);
        let id = fencing(&mut world);
        spoil(&mut world);
        world.run(ms(50));
        assert_eq!(world.refusal(id).reason, RefusalReason::NoQuorum, "{what}");
        assert_eq!(world.vote(id, 0), Some(Vote::Fail(cause)), "{what}");
        world.servers[0].answer = None;
        world.resume(0);
        is_gone(&mut world);
    }
}

/// A quorum of confirmations is enough.
#[test]
fn a_write_back_that_fails_on_a_minority_does_no_harm() {
    let mut world = World::new(5).warm();
    let future = wall_us(&world) + 1_000_000;
    for (node, past) in [0, 10, 20, 0, 0].into_iter().enumerate() {
        world.servers[node].delay = ms(10).as_nanos() as u64;
        set_counter(&mut world, node, JOB, &(future + past).to_string());
    }
    let id = lock(&mut world);
    world.run(ms(20));
    assert_eq!(world.core().state(id), LockState::Fencing);
    world.stop(0);
    world.pause(1);
    world.run(ms(20));
    assert!(world.is_granted(id));
    assert_eq!(token(&world, id), Some(future + 22));
}

/// The clock is read again after the second round trip.
#[test]
fn the_validity_counts_on_while_the_token_is_written_back() {
    let patient = |settings: &mut Settings| settings.response_timeout = secs(5);
    for by_wall in [false, true] {
        let (mut world, _) = diverged_with([10, 20, 40], patient);
        let id = world.acquire(0, &request().ttl(ms(200)), &[JOB]);
        world.run(ms(20));
        assert_eq!(world.core().state(id), LockState::Fencing);
        if by_wall {
            world.wall_ahead += 1_000_000_000;
        } else {
            world.servers[0].delay = ms(180).as_nanos() as u64;
        }
        world.run(ms(400));
        assert_eq!(world.refusal(id).reason, RefusalReason::Expired, "by wall: {by_wall}");
        assert!(world.count("undo") >= 2);
        is_gone(&mut world);
    }
}

#[test]
fn a_lock_can_be_cancelled_during_the_write_back() {
    let (mut world, _) = diverged([10, 20, 40]);
    let id = fencing(&mut world);
    world.release(id);
    assert_eq!(world.refusal(id).reason, RefusalReason::Cancelled);
    assert_eq!(token(&world, id), None);
    is_gone(&mut world);
}

#[test]
fn a_deadline_ends_a_write_back() {
    let (mut world, _) = diverged([10, 20, 40]);
    world.stop(2);
    let id = world.acquire(0, &request().wait(Wait::UpTo(ms(30))), &[JOB]);
    let begun = world.boot;
    world.run(ms(20));
    assert_eq!(world.core().state(id), LockState::Fencing);
    world.pause(0);
    world.run(ms(100));
    assert_eq!(world.refusal(id).reason, RefusalReason::OutOfTime);
    assert_eq!(world.clients[0].events.last().unwrap().0 - begun, 30_000_000);
    world.resume(0);
    is_gone(&mut world);
}

#[test]
fn a_node_flushed_during_the_write_back_confirms_nothing() {
    let (world, _) = diverged([10, 20, 40]);
    let mut world = world.forgetful();
    world.stop(2);
    let id = fencing(&mut world);
    world.flush(0);
    world.run(ms(60));
    assert_eq!(world.vote(id, 0), Some(Vote::Deny));
    is_gone(&mut world);
}

/// A node that may not vote can still grant, but its counter must not be used: with it, the two
/// that count would seem to agree.
#[test]
fn a_counter_that_came_with_no_vote_makes_no_token() {
    let (mut world, future) = diverged([10, 20, 20]);
    world.servers[2].delay = ms(5).as_nanos() as u64;
    world.answer(2, |args| (args[0] == b"SET").then(|| error("READONLY no")).flatten());
    world.begin(0, &LockRequest::new(b"other"), &[b"other"]);
    let id = fencing(&mut world);
    assert!(
        world.ran(2).contains(&"ask"),
        "the node got the request behind its handshake, and granted it"
    );
    world.run(ms(20));
    assert_eq!(token(&world, id), Some(future + 22));
    assert_eq!(
        counters(&mut world, JOB)[..2],
        [future + 22; 2],
        "a quorum of voters has the token"
    );
}

/// A node that hangs is suspected while the token is written back to another node, for which the
/// client still waits.
#[test]
fn a_write_back_outlasts_the_suspicion_of_a_node() {
    let mut world = World::new(5).warm().forgetful();
    let ahead = (wall_us(&world) + 3_000_000).to_string();
    [0, 3].into_iter().for_each(|node| set_counter(&mut world, node, JOB, &ahead));
    world.delay(ms(1));
    world.servers[2].delay = ms(4).as_nanos() as u64;
    world.pause(4);
    let id = lock(&mut world);
    // Three nodes have granted, one of them later than the others, and that one loses the key.
    world.run(Duration::from_micros(2_500));
    world.delete(1, JOB);
    world.run(ms(6));
    assert_eq!(world.core().state(id), LockState::Fencing);
    world.run(ms(2));
    assert_eq!(world.state(4), NodeState::Suspected);
    assert_eq!(world.core().state(id), LockState::Fencing, "one confirmation is still in flight");
    world.run(ms(8));
    assert!(world.is_granted(id), "{:?}", world.outcomes(id));
}

// Clocks.

#[test]
fn a_client_with_a_wrong_clock_is_set_right_at_once() {
    for hours in [-1, 1] {
        let mut world = World::new(3).warm();
        let right = wall_us(&world);
        world.wall_ahead = hours * crate::world::HOUR;
        let id = lock(&mut world);
        assert!(
            world.is_granted(id),
            "the second attempt follows without a pause, even with Wait::No"
        );
        assert!(token(&world, id).unwrap().abs_diff(right) < 100_000);
        assert_eq!(world.ran(0), ["ask", "undo", "ask sha"]);
        world.release(id);
        world.log.clear();
        let id = lock(&mut world);
        assert!(token(&world, id).is_some());
        assert_eq!(world.ran(0), ["ask sha"], "the client keeps the correction");
    }
}

#[test]
fn a_clock_is_set_right_once_in_a_call() {
    let mut world = World::new(3).warm();
    for node in 0..3 {
        world.answer(node, |args| {
            // The condition skips the undo, which has fewer arguments.
            (args.len() == 11).then(|| b"+CLOCK 12345678\r\n".to_vec())
        });
    }
    let id = lock(&mut world);
    assert_eq!(world.vote(id, 0), Some(Vote::Fail(Cause::ClockSkew)));
    assert_eq!(world.refusal(id).reason, RefusalReason::NoQuorum);
    assert_eq!(world.ran(0).iter().filter(|kind| kind.starts_with("ask")).count(), 2);
}

/// One node accepts the client's proposal, the other refuses it, and the third is down. With the
/// same proposal, every attempt would end like that.
#[test]
fn a_client_whose_clock_suits_one_of_two_nodes_is_set_right_for_both() {
    let cases = [(5, 0), (5, 2), (-5, 0), (-5, 2)];
    for ((own, taker), hours) in cases.into_iter().flat_map(|it| [0, 1, -1].map(|h| (it, h))) {
        let mut world = World::new(3);
        let nearer = 300_000 * i64::signum(own);
        world.set_clock(taker, nearer);
        world.set_clock(2 - taker, -nearer);
        let mut world = world.warm();
        // The node accepted proposals before, which means nothing after the step.
        world.wall_ahead = hours * crate::world::HOUR;
        let id = lock(&mut world);
        world.release(id);
        world.stop(1);
        world.wall_ahead += own * SECOND as i64;
        let id = lock(&mut world);
        assert!(world.is_granted(id), "{own} {taker} {hours}: {:?}", world.outcomes(id));
    }
}

/// The wrong clock is ignored, whichever node answers first: tokens continue to follow the other
/// clocks.
#[test]
fn one_node_with_a_wrong_clock_does_not_affect_the_others() {
    // With 10 s, a proposal between the clocks would suit all of them.
    for (seconds, own_hours) in [(-3_600, 0), (11, 0), (YEAR, 0), (-3_600, 1), (11, 1), (YEAR, 1)] {
        for (wild, order) in (0..3).flat_map(|wild| ORDERS.map(|order| (wild, order))) {
            let mut world = World::new(3);
            world.set_clock(wild, seconds * 1_000_000);
            let mut world = world.warm();
            let (right, wild_one) = (wall_us(&world), world.node(wild));
            world.wall_ahead = own_hours * crate::world::HOUR;
            answer_in(&mut world, &order);
            let case = format!("{seconds} s, own {own_hours} h, node {wild}, {order:?}");
            let mut last = 0;
            for _ in 0..3 {
                let id = lock(&mut world);
                world.run(ms(40));
                let token = token(&world, id).unwrap_or_else(|| panic!("{case}: {:?}", world.log));
                assert!(token.abs_diff(right) < 10_000_000 && token > last, "{case}: {token}");
                last = token;
                let vote = world.core().votes(id).of(wild_one);
                assert_eq!(vote, Some(Vote::Fail(Cause::ClockSkew)), "{case}");
                world.release(id);
                world.run(ms(100));
            }
            assert_eq!(counters(&mut world, JOB)[wild], 0, "{case}");
        }
    }
}

/// Two of five nodes agree on a wrong time, and answer before the others, in any position.
#[test]
fn two_wrong_clocks_of_five_do_not_affect_the_others() {
    for (first, second) in (0..5).flat_map(|a| (0..a).map(move |b| (a, b))) {
        for own_hours in [0, 1] {
            let mut world = World::new(5);
            for wild in [first, second] {
                world.set_clock(wild, 60_000_000);
            }
            let mut world = world.warm();
            let right = wall_us(&world);
            world.wall_ahead = own_hours * crate::world::HOUR;
            world.delay(ms(1));
            (world.servers[first].delay, world.servers[second].delay) = (0, 0);
            for _ in 0..3 {
                let id = lock(&mut world);
                world.run(ms(10));
                let token = token(&world, id).unwrap();
                assert!(token.abs_diff(right) < 10_000_000, "{first} {second}: {token}");
                world.release(id);
                world.run(ms(10));
            }
            for wild in [first, second] {
                assert_eq!(world.value(wild, &counter_key(JOB)), b"", "{first} {second}");
            }
        }
    }
}

/// No counter that outlives the wrong clock shows its time, so tokens stay in order after counters
/// have expired.
#[test]
fn tokens_do_not_go_backwards_after_a_wrong_clock_is_fixed() {
    for (wild, order) in (0..3).flat_map(|wild| ORDERS.map(|order| (wild, order))) {
        let mut world = World::new(3);
        world.set_clock(wild, YEAR * 1_000_000);
        let mut world = world.warm().forgetful();
        answer_in(&mut world, &order);
        let mut last = 0;
        let mut grows = |world: &mut World| {
            let id = lock(world);
            world.run(ms(200));
            let token = token(world, id).unwrap();
            assert!(token > last, "node {wild}, {order:?}: {token} after {last}");
            assert!(token < wall_us(world) + 10_000_000, "node {wild}, {order:?}: {token}");
            last = token;
            world.release(id);
            world.run(ms(200));
        };
        (0..3).for_each(|_| grows(&mut world));
        world.set_clock(wild, 0);
        let other = (wild + 1) % 3;
        world.pause(other);
        grows(&mut world);
        world.resume(other);
        grows(&mut world);
        world.run(8 * DAY);
        grows(&mut world);
    }
}

/// Makes the nodes answer one after another, in this order.
fn answer_in(world: &mut World, order: &[usize]) {
    for (turn, &node) in order.iter().enumerate() {
        world.servers[node].delay = ms(1 + turn as u64).as_nanos() as u64;
    }
}

const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

const DAY: Duration = secs(24 * 60 * 60);

const YEAR: i64 = 365 * 24 * 60 * 60;

#[test]
fn a_refusal_reports_how_far_a_clock_is_off() {
    for (hours, words) in [(1, "3600.0s ahead of"), (-1, "3600.0s behind")] {
        let mut world = World::new(3);
        world.set_clock(2, hours * 3_600_000_000);
        let mut world = world.warm();
        lock(&mut world);
        let replied = world.clients[0].core.detail(world.node(2), Cause::ClockSkew);
        assert_eq!(replied, Some(format!("{words} the proposed fencing token")));
    }
}

#[test]
fn clocks_that_are_a_little_apart_need_no_second_attempt() {
    let mut world = World::new(3);
    for (node, millis) in [-4_900, 0, 4_900].into_iter().enumerate() {
        world.set_clock(node, millis * 1_000);
    }
    let mut world = world.warm();
    let id = lock(&mut world);
    assert!(world.is_granted(id));
    for node in 0..3 {
        assert_eq!(world.ran(node), ["ask"]);
    }
}

#[test]
fn a_counter_that_cannot_be_raised_is_that_nodes_failure() {
    for counter in [&MAX_TOKEN.to_string(), "9999999999999999999999", "many"] {
        let mut world = World::new(3).warm();
        set_counter(&mut world, 0, JOB, counter);
        let id = lock(&mut world);
        assert!(world.is_granted(id), "the other nodes grant it");
        let node = world.node(0);
        assert_eq!(world.core().votes(id).of(node), Some(Vote::Fail(Cause::ServerError)));
        let words = world.core().detail(node, Cause::ServerError).unwrap();
        assert_eq!(words, "ERR the fencing counter cannot be raised");
        assert!(token(&world, id).unwrap() < MAX_TOKEN / 2);
        assert_eq!(world.holders(JOB), [false, true, true]);
        world.release(id);
        is_gone(&mut world);
    }
}

#[test]
fn the_largest_token_is_the_last() {
    let mut world = World::new(3).warm();
    for node in 0..3 {
        set_counter(&mut world, node, JOB, &(MAX_TOKEN - 2).to_string());
    }
    let id = lock(&mut world);
    assert_eq!(token(&world, id), Some(MAX_TOKEN - 1));
    world.release(id);
    let id = lock(&mut world);
    assert_eq!(world.refusal(id).reason, RefusalReason::NoQuorum);
    is_gone(&mut world);
}

// Order.

/// Counters diverge, clocks jump by seconds, nodes are slow, down, or restarted with their data:
/// each holder's token is larger than all earlier ones.
#[test]
fn tokens_grow_from_holder_to_holder() {
    for seed in 1..=20 {
        let mut world = World::with(3, 3, durable).warm();
        let mut random = Random::new(seed);
        let (mut last, mut grants, mut written) = (0, 0, 0);
        for _ in 0..60 {
            disturb(&mut world, &mut random);
            let client = random.below(3) as usize;
            let id = world.acquire(client, &request().ttl(ms(500)), &[JOB]);
            world.run(ms(120));
            if let Some(token) = world.clients[client].core.fencing_token(id) {
                assert!(token.get() > last, "seed {seed}: {} after {last}", token.get());
                (last, grants) = (token.get(), grants + 1);
            }
            let now = world.now();
            world.clients[client].core.release(id, now);
            world.flow();
            written = world.log.iter().filter(|ran| ran.kind().starts_with("write")).count();
        }
        assert!(grants >= 15 && written > 0, "seed {seed}: {grants} grants, {written} write-backs");
    }
}

fn durable(settings: &mut Settings) {
    settings.nodes.iter_mut().for_each(|node| node.restart_trust = RestartTrust::Durable);
}

fn disturb(world: &mut World, random: &mut Random) {
    let node = random.below(3) as usize;
    match random.below(6) {
        0 => world.pause(node),
        1 => world.restart(node, Memory::Kept),
        2 => world.cut(random.below(3) as usize, node, Written::LeavesGhost),
        3 => {
            let past = random.below(3_000_000);
            let ahead = world.wall_ahead / 1_000;
            let counter = (wall_us(world).saturating_add_signed(-ahead) + past).to_string();
            let now: u64 = counters(world, JOB)[node];
            if counter.parse::<u64>().unwrap() > now {
                set_counter(world, node, JOB, &counter);
            }
        }
        _ => world.servers[node].delay = ms(random.below(30)).as_nanos() as u64,
    }
    world.wall_ahead = random.below(8_000) as i64 * 1_000_000 - 4_000_000_000;
    for node in 0..3 {
        if random.chance(500) {
            world.resume(node);
        }
    }
    world.free_ghosts();
}

/// No two holders ever have the same token, in any order.
#[test]
fn tokens_of_rivals_differ() {
    let mut world = World::with(3, 3, |_| {}).warm();
    let mut random = Random::new(7);
    let mut seen = BTreeSet::new();
    for _ in 0..200 {
        for node in 0..3 {
            world.servers[node].delay = random.below(20_000_000);
        }
        let ids: Vec<_> = (0..3)
            .map(|client| {
                let request = request().ttl(ms(300)).wait(Wait::UpTo(ms(200)));
                world.acquire(client, &request, &[JOB])
            })
            .collect();
        world.run(ms(250));
        for (client, id) in ids.into_iter().enumerate() {
            if let Some(token) = world.clients[client].core.fencing_token(id) {
                assert!(seen.insert(token.get()), "{token} twice");
            }
            let now = world.now();
            world.clients[client].core.release(id, now);
        }
        world.run(ms(100));
    }
    assert!(seen.len() > 50, "{} grants", seen.len());
}

/// The counter is lost with the node's data, and the clocks have advanced since.
#[test]
fn a_node_that_lost_its_counter_does_not_set_tokens_back() {
    let mut world = World::new(3).warm().forgetful();
    let id = lock(&mut world);
    let before = token(&world, id).unwrap();
    world.release(id);
    for node in 0..2 {
        world.restart(node, Memory::Lost);
    }
    world.run(secs(33));
    world.stop(2);
    let id = lock(&mut world);
    assert!(token(&world, id).unwrap() > before);
}

/// An answer whose counter is not a valid token does not grant.
#[test]
fn an_answer_with_a_counter_out_of_bounds_is_rejected() {
    for counter in [0, 7, MAX_TOKEN, MAX_TOKEN + 1, u64::MAX] {
        let mut world = World::new(1).warm();
        world.answer(0, move |args| {
            let granted = format!("+OK {counter}\r\n").into_bytes();
            (args.len() == 11).then_some(granted)
        });
        let id = lock(&mut world);
        assert_eq!(world.vote(id, 0), Some(Vote::Fail(Cause::UnexpectedReply)), "{counter}");
    }
}

/// Another request finds that the node no longer accepts writes. The third node is down.
#[test]
fn a_write_back_does_not_wait_for_a_disconnected_node() {
    let (mut world, _) = diverged([100, 0, 0]);
    world.stop(2);
    world.answer(1, |args| (args[0] == b"SET").then(|| error("READONLY no")).flatten());
    let id = lock(&mut world);
    world.run(ms(5));
    world.lock(b"other", secs(10));
    world.run(ms(15));
    assert_eq!(world.core().state(id), LockState::Fencing);
    world.run(ms(6));
    assert_eq!(world.vote(id, 1), Some(Vote::Fail(Cause::ReadOnly)));
}
