//! Locks of one core that wait for the same resource form a queue: one sends requests at a time,
//! and a release lets the next one ask.

use std::time::Duration;

use redbolt::proto::{
    Event, LockId, LockRequest, LockState, LossCause, RefusalReason, Settings, Wait,
};

use redbolt_node::model::Denial;

use crate::world::{World, Written, error, ms, secs};

/// Makes pauses long, so that a test sees only what ends them early.
fn patient(settings: &mut Settings) {
    settings.retry_backoff = (secs(10), secs(10));
}

/// Returns three nodes, each 1 ms away.
fn world() -> World {
    with(1)
}

fn with(clients: usize) -> World {
    let mut world = World::led(3, clients, patient).warm();
    world.delay(ms(1));
    world
}

fn waits<'a>(keys: &[&'a [u8]]) -> LockRequest<'a> {
    let request =
        keys[1..].iter().fold(LockRequest::new(keys[0]), |request, &key| request.and(key));
    request.wait(Wait::Forever)
}

/// Lets a lock wait for these keys.
fn join(world: &mut World, client: usize, keys: &[&[u8]]) -> LockId {
    world.acquire(client, &waits(keys), keys)
}

fn waiters(world: &mut World, len: usize) -> Vec<LockId> {
    (0..len).map(|_| join(world, 0, &[b"job"])).collect()
}

fn is_queued(world: &World, id: LockId) -> bool {
    world.clients[0].core.state(id) == LockState::Queued
}

/// Releases the holder, and returns the lock that is granted next.
fn next(world: &mut World, ids: &[LockId]) -> LockId {
    let held = |world: &World| {
        ids.iter().copied().find(|&id| world.clients[0].core.state(id) == LockState::Held)
    };
    world.run_until(secs(3), |world| held(world).is_some());
    held(world).unwrap()
}

/// Returns the kinds of commands that ran on a node, and when, in ms after `since`.
fn history(world: &World, node: usize, since: u64) -> Vec<(&'static str, u64)> {
    let here = world.log.iter().filter(|ran| ran.node == node && ran.kind() != "check");
    let kind = |kind: &'static str| kind.trim_end_matches(" sha");
    here.map(|ran| (kind(ran.kind()), (ran.at - since) / 1_000_000)).collect()
}

#[test]
fn locks_of_one_core_are_granted_in_order() {
    let mut world = world();
    let ids = waiters(&mut world, 6);
    for &id in &ids {
        assert_eq!(next(&mut world, &ids), id);
        world.release(id);
    }
    world.run(secs(1));
    assert_eq!(world.kept(0), (0, 0));
    assert_eq!(world.holders(b"job"), [false; 3]);
}

#[test]
fn one_lock_of_a_queue_asks_at_a_time() {
    let mut world = world();
    world.foreign(b"job", &[60_000; 3]);
    let ids = waiters(&mut world, 50);
    world.run(secs(4));
    assert!(ids[1..].iter().all(|&id| is_queued(&world, id)));
    assert!(world.count("ask") <= 3 * 8, "{} asks", world.count("ask"));
}

#[test]
fn another_resource_is_another_queue() {
    let mut world = world();
    let ids = [join(&mut world, 0, &[b"job"]), join(&mut world, 0, &[b"other"])];
    world.run(ms(2));
    assert!(ids.iter().all(|&id| world.is_granted(id)));
}

#[test]
fn a_lock_that_does_not_wait_does_not_join_the_queue() {
    let mut world = world();
    world.foreign(b"job", &[60_000; 3]);
    waiters(&mut world, 3);
    let id = world.lock(b"job", secs(10));
    world.run(ms(2));
    assert_eq!(world.refusal(id).reason, RefusalReason::Contended);
}

/// The undo and the next request are written together.
#[test]
fn a_release_and_the_next_request_are_one_flight() {
    let mut world = world();
    let ids = waiters(&mut world, 3);
    world.run(ms(10));
    world.log.clear();
    let now = world.now();
    world.core().release(ids[0], now);
    for node in 0..3 {
        let link = world.link(node);
        let unsent = world.core().transmit(link);
        let find = |what: &[u8]| memchr::memmem::find(unsent, what);
        let (undo, request) = (find(b"EVAL"), find(b"\r\nSET\r\n"));
        assert!(undo.is_some() && undo < request, "{}", unsent.escape_ascii());
    }
    let begun = world.boot;
    world.run(ms(2));
    assert!(world.is_granted(ids[1]));
    for node in 0..3 {
        assert_eq!(history(&world, node, begun), [("undo", 1), ("ask", 1)]);
    }
}

/// The holder was not in the queue, and the first in the queue pauses because of it.
#[test]
fn the_release_of_a_lock_that_did_not_wait_hands_on_in_one_flight() {
    let mut world = world();
    let holder = world.lock(b"job", secs(10));
    world.run(ms(5));
    let id = join(&mut world, 0, &[b"job"]);
    world.run(ms(200));
    assert_eq!(world.clients[0].core.state(id), LockState::Pausing);
    world.log.clear();
    let begun = world.boot;
    world.release(holder);
    world.run(ms(2));
    assert!(world.is_granted(id));
    assert_eq!(history(&world, 0, begun), [("undo", 1), ("ask", 1)]);
}

#[test]
fn a_cancellation_during_the_grant_hands_on_in_one_flight() {
    let mut world = world();
    world.delay(ms(10));
    let ids = waiters(&mut world, 2);
    world.run(ms(15));
    let begun = world.boot;
    world.log.clear();
    world.release(ids[0]);
    world.run(ms(20));
    assert!(world.is_granted(ids[1]));
    let history = history(&world, 0, begun);
    assert!(history.ends_with(&[("undo", 10), ("ask", 10)]), "{history:?}");
}

#[test]
fn a_loss_makes_room() {
    let mut world = world();
    let first = world.acquire(0, &waits(&[b"job"]).ttl(ms(500)), &[b"job"]);
    let second = join(&mut world, 0, &[b"job"]);
    world.run(ms(490));
    assert_eq!(world.outcomes(first), [Event::Granted(first)]);
    assert!(is_queued(&world, second));
    world.run(ms(50));
    assert_eq!(world.outcomes(first)[1..], [Event::Lost(first, LossCause::Expired)]);
    assert!(world.is_granted(second));
}

/// The lost lock's keys still exist, and are deleted when its holder releases. No node notifies us
/// of changes that we made.
#[test]
fn releasing_a_lost_lock_makes_room_at_once() {
    let mut world = world();
    let first = world.acquire(0, &waits(&[b"job"]).ttl(secs(20)), &[b"job"]);
    let second = join(&mut world, 0, &[b"job"]);
    world.run(ms(100));
    // The wall clock ends the rest of the lease.
    world.wall_ahead += 30_000_000_000;
    world.let_go(0, first);
    world.flow();
    assert_eq!(world.outcomes(first)[1..], [Event::Lost(first, LossCause::Expired)]);
    world.run(ms(10));
    assert!(world.is_granted(second));
}

// Several keys.

#[test]
fn crossed_orders_do_not_wait_for_each_other() {
    let mut world = world();
    let (ab, ba): ([&[u8]; 2], [&[u8]; 2]) = ([b"a", b"b"], [b"b", b"a"]);
    let ids: Vec<_> = [ab, ba, ab, ba].map(|keys| join(&mut world, 0, &keys)).to_vec();
    for &id in &ids {
        assert_eq!(next(&mut world, &ids), id);
        world.release(id);
    }
    world.run(secs(1));
    assert_eq!(world.kept(0), (0, 0));
}

#[test]
fn no_lock_overtakes_one_that_is_in_several_queues() {
    let mut world = world();
    let a = join(&mut world, 0, &[b"a"]);
    world.run(ms(5));
    let both = join(&mut world, 0, &[b"a", b"b"]);
    let b = join(&mut world, 0, &[b"b"]);
    world.run(ms(50));
    assert!(is_queued(&world, both) && is_queued(&world, b));
    world.release(a);
    world.run(ms(3));
    assert!(world.is_granted(both) && is_queued(&world, b));
    world.release(both);
    world.run(ms(3));
    assert!(world.is_granted(b));
}

#[test]
fn all_queues_of_a_leaving_lock_move_on() {
    let mut world = world();
    world.foreign(b"b", &[60_000; 3]);
    let keys: [&[u8]; 3] = [b"a", b"b", b"c"];
    let all = join(&mut world, 0, &keys);
    let rest = keys.map(|key| join(&mut world, 0, &[key]));
    world.run(ms(100));
    assert!(rest.iter().all(|&id| is_queued(&world, id)));
    world.release(all);
    world.run(ms(100));
    assert_eq!(rest.map(|id| world.is_granted(id)), [true, false, true]);
    assert!(!is_queued(&world, rest[1]));
}

// Leaving.

#[test]
fn a_lock_can_be_cancelled_anywhere_in_the_queue() {
    for leaves in 0..4 {
        let mut world = world();
        world.foreign(b"job", &[60_000; 3]);
        let mut ids = waiters(&mut world, 4);
        world.run(ms(100));
        let id = ids.remove(leaves);
        world.release(id);
        assert_eq!(world.refusal(id).reason, RefusalReason::Cancelled);
        world.run(ms(100));
        world.delete_everywhere(b"job");
        for &id in &ids {
            assert_eq!(next(&mut world, &ids), id, "{leaves} left");
            world.release(id);
        }
        world.run(secs(1));
        assert_eq!(world.kept(0), (0, 0));
    }
}

#[test]
fn the_next_in_the_queue_takes_over_the_notifications() {
    let mut world = world();
    world.foreign(b"job", &[60_000; 3]);
    let ids = waiters(&mut world, 2);
    world.run(ms(100));
    world.release(ids[0]);
    world.run(ms(100));
    let begun = world.boot;
    world.delete_everywhere(b"job");
    world.run_until(secs(3), |world| world.is_granted(ids[1]));
    assert!(world.boot - begun <= 5_000_000);
}

#[test]
fn a_deadline_also_ends_a_wait_in_the_queue() {
    let mut world = world();
    world.foreign(b"job", &[60_000; 3]);
    let begun = world.boot;
    let ends = [300, 100, 200];
    let ids = ends.map(|end| {
        world.acquire(0, &LockRequest::new(b"job").wait(Wait::UpTo(ms(end))), &[b"job"])
    });
    world.run(secs(1));
    for (id, end) in ids.into_iter().zip(ends) {
        assert_eq!(world.refusal(id).reason, RefusalReason::OutOfTime);
        let reported = world.clients[0]
            .events
            .iter()
            .find(|(_, event)| matches!(event, Event::Refused(of, _) if *of == id));
        assert_eq!((reported.unwrap().0 - begun) / 1_000_000, end);
    }
    assert_eq!(world.kept(0), (0, 0));
}

#[test]
fn a_turn_at_the_deadline_comes_too_late() {
    let mut world = world();
    let holder = join(&mut world, 0, &[b"job"]);
    world.run(ms(5));
    let late = world.acquire(0, &LockRequest::new(b"job").wait(Wait::UpTo(ms(50))), &[b"job"]);
    let next = join(&mut world, 0, &[b"job"]);
    world.log.clear();
    // The driver calls late: no timer has fired.
    world.boot += 50_000_000;
    world.release(holder);
    assert_eq!(world.refusal(late).reason, RefusalReason::OutOfTime);
    world.run(ms(3));
    assert!(world.is_granted(next));
    assert_eq!(world.count("ask"), 3);
}

/// The test runs on a stack that is too small for a call per lock.
#[test]
fn thousands_are_refused_one_after_the_other() {
    let refused = || {
        let mut world = World::with(3, 1, patient).warm();
        let holder = join(&mut world, 0, &[b"job"]);
        let ids: Vec<_> =
            (0..4_000).map(|_| world.begin(0, &waits(&[b"job"]), &[b"job"])).collect();
        for node in 0..3 {
            world.answer(node, |args| (args[0] == b"INFO").then(|| error("NOPERM no")).flatten());
            world.cut(0, node, Written::Runs);
        }
        world.run(secs(5));
        assert!(ids.iter().all(|&id| is_queued(&world, id)));
        world.clients[0].events.clear();
        world.release(holder);
        let refused = |event: &Event| matches!(event, Event::Refused(_, r) if r.reason == RefusalReason::NoQuorum);
        let reported = world.clients[0].events.iter().filter(|(_, event)| refused(event)).count();
        assert_eq!(reported, ids.len());
    };
    let small = std::thread::Builder::new().stack_size(512 << 10);
    small.spawn(refused).unwrap().join().unwrap();
}

#[test]
fn thousands_run_out_of_time_at_once() {
    let mut world = world();
    world.foreign(b"job", &[60_000; 3]);
    let request = LockRequest::new(b"job").wait(Wait::UpTo(ms(100)));
    let ids: Vec<_> = (0..2_000).map(|_| world.begin(0, &request, &[b"job"])).collect();
    world.run(ms(101));
    assert!(ids.iter().all(|&id| world.clients[0].core.state(id) == LockState::Unknown));
    world.run(secs(1));
    assert_eq!(world.kept(0), (0, 0));
    assert!(world.count("ask") <= 3 * 8, "{} asks", world.count("ask"));
}

// Competition with other processes.

/// Returns two locks of the first client, and one of another client that came after the first was
/// granted.
fn contended() -> (World, [LockId; 2], LockId) {
    let mut world = with(3);
    let before = world.acquire(1, &LockRequest::new(b"job"), &[b"job"]);
    world.run(ms(10));
    let ids = [join(&mut world, 0, &[b"job"]), join(&mut world, 0, &[b"job"])];
    world.run(ms(100));
    world.let_go(1, before);
    world.flow();
    world.run_until(secs(3), |world| world.is_granted(ids[0]));
    let theirs = join(&mut world, 2, &[b"job"]);
    world.run(ms(100));
    (world, ids, theirs)
}

#[test]
fn a_released_lock_is_left_to_other_processes_for_a_moment() {
    let (mut world, ids, theirs) = contended();
    world.log.clear();
    world.release(ids[0]);
    world.run(ms(6));
    assert!(world.clients[2].is_granted(theirs));
    assert!(!world.is_granted(ids[1]));
    world.let_go(2, theirs);
    world.run(ms(50));
    assert!(world.is_granted(ids[1]), "afterwards the first client gets it again");
}

/// Another client asked when the turn was left to it, and got one node of three.
#[test]
fn a_lock_that_was_denied_by_one_node_is_left_to_other_processes_as_well() {
    let mut world = world();
    let ids = waiters(&mut world, 2);
    world.set(0, b"job", b"theirs", 60_000);
    world.run(ms(10));
    world.release(ids[0]);
    world.run(ms(10));
    assert!(world.is_granted(ids[1]), "no other client was seen");
    let third = waiters(&mut world, 1)[0];
    world.release(ids[1]);
    world.run(ms(5));
    assert!(!world.is_granted(third), "another client was seen at the first node");
    world.run(ms(200));
    assert!(world.is_granted(third));
}

/// This pause is only as long as others need to be notified and to send a request.
#[test]
fn a_lock_that_others_do_not_take_is_ours_soon() {
    let (mut world, ids, theirs) = contended();
    world.let_go(2, theirs);
    world.run(ms(10));
    let begun = world.boot;
    world.release(ids[0]);
    world.run_until(secs(1), |world| world.is_granted(ids[1]));
    let waited = Duration::from_nanos(world.boot - begun);
    assert!(waited >= ms(3 * 2) && waited <= ms(100 + 6 * 2 + 2), "{waited:?}");
}

/// A client that requests again at once is faster than the waiters of other clients, and would
/// never notice them.
#[test]
fn an_uncontended_queue_pauses_for_others_once_a_second() {
    let mut world = world();
    let ids = waiters(&mut world, 250);
    let begun = world.boot;
    let mut late = Vec::new();
    for pair in ids.windows(2) {
        world.run(ms(10));
        let before = world.boot;
        world.release(pair[0]);
        world.run_until(ms(30), |world| world.is_granted(pair[1]));
        if world.boot - before > 2_000_000 {
            late.push((before - begun) / 1_000_000);
        }
    }
    assert!((2..=3).contains(&late.len()), "{late:?}");
    assert!(late.windows(2).all(|pair| pair[1] - pair[0] >= 1_000), "{late:?}");
}

#[test]
fn after_a_second_without_rivals_there_is_no_pause_for_others() {
    let (mut world, ids, theirs) = contended();
    let last = join(&mut world, 0, &[b"job"]);
    world.let_go(2, theirs);
    world.run(secs(1));
    world.release(ids[0]);
    world.run(ms(20));
    world.release(ids[1]);
    world.run(ms(2));
    assert!(world.is_granted(last));
}

/// Passes the lock round among all waiters, and returns the order of their clients.
fn rounds(world: &mut World, mut waiting: Vec<(usize, LockId)>) -> Vec<usize> {
    let mut order = Vec::new();
    while !waiting.is_empty() {
        let held = |world: &World| {
            let holds = |&(client, id): &(usize, LockId)| {
                world.clients[client].core.state(id) == LockState::Held
            };
            waiting.iter().position(holds)
        };
        world.run_until(secs(5), |world| held(world).is_some());
        let (client, id) = waiting.remove(held(world).unwrap());
        order.push(client);
        world.run(ms(10));
        world.let_go(client, id);
        world.flow();
    }
    order
}

fn three_processes(waiters: usize) -> (World, Vec<(usize, LockId)>) {
    let mut world = World::with(3, 3, |_| {}).warm();
    world.delay(Duration::from_micros(200));
    let waiting = (0..waiters).map(|at| (at % 3, join(&mut world, at % 3, &[b"job"]))).collect();
    (world, waiting)
}

#[test]
fn many_processes_with_many_waiters_leave_nothing() {
    let (mut world, waiting) = three_processes(15);
    let order = rounds(&mut world, waiting);
    assert_eq!(order.len(), 15);
    world.run(secs(10));
    for client in 0..3 {
        assert_eq!((world.kept(client), world.connections(client)), ((0, 0), 3));
    }
}

/// The first client has not noticed the others, because it was never denied.
#[test]
fn processes_that_know_of_one_another_take_turns() {
    let (mut world, waiting) = three_processes(15);
    let order = rounds(&mut world, waiting);
    let known: Vec<_> = order.iter().skip_while(|&&client| client == 0).collect();
    let in_a_row = known.windows(4).any(|some| some.iter().all(|client| *client == some[0]));
    let last = known.len() - 4;
    assert!(!in_a_row || known[last..].iter().all(|client| *client == known[last]), "{order:?}");
}

#[test]
fn a_process_with_a_long_queue_lets_others_in() {
    let mut world = World::with(3, 2, |_| {}).warm();
    world.delay(Duration::from_micros(200));
    let ours = (0..3_000).map(|_| (0, join(&mut world, 0, &[b"job"])));
    let mut waiting: Vec<_> = ours.collect();
    waiting.push((1, join(&mut world, 1, &[b"job"])));
    let order = rounds(&mut world, waiting);
    let waited = order.iter().position(|&client| client == 1).unwrap();
    assert!(waited < 300, "{waited} holds of 10 ms");
}

/// The nodes forbid their queue, or the lock has several resources and cannot use it.
#[test]
fn a_process_with_many_locks_that_cannot_queue_on_the_nodes_lets_others_in() {
    for is_forbidden in [false, true] {
        let mut world = World::with(3, 2, |_| {}).warm();
        world.delay(Duration::from_micros(200));
        if is_forbidden {
            (0..3).for_each(|node| world.servers[node].store.deny("zadd", Some(Denial::Forbidden)));
        }
        let keys: &[&[u8]] = if is_forbidden { &[b"job"] } else { &[b"job", b"other"] };
        let mut waiting: Vec<_> = (0..400).map(|_| (0, join(&mut world, 0, keys))).collect();
        waiting.push((1, join(&mut world, 1, keys)));
        let order = rounds(&mut world, waiting);
        let waited = order.iter().position(|&client| client == 1).unwrap();
        assert!(waited < 200, "{waited} holds of 10 ms");
    }
}

/// The lock before it has left one of the queues, but not the other.
#[test]
fn a_lock_sends_nothing_before_it_is_first_in_all_of_its_queues() {
    let mut world = world();
    world.foreign(b"a", &[60_000; 3]);
    world.foreign(b"b", &[60_000; 3]);
    let [a, b] = [b"a", b"b"].map(|key| join(&mut world, 0, &[key]));
    let both = join(&mut world, 0, &[b"a", b"b"]);
    world.run(ms(50));
    world.release(b);
    world.run(ms(50));
    assert!(is_queued(&world, both));
    world.release(a);
    world.run(ms(50));
    assert!(!is_queued(&world, both));
}
