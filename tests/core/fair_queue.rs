//! The queue of waiters on the nodes: when a ticket is written, kept and removed, what ends a
//! pause, and what happens when nodes or connections fail.

use redbolt::proto::{
    Cause, Event, Kept, LockId, LockMode, LockRequest, PushState, RefusalReason, Settings, View,
    Wait, WakeStrategy,
};

use crate::world::{Accept, World, Written, error, ms, secs};

/// Makes pauses long, so that a test sees only what ends them early.
fn in_queue(settings: &mut Settings) {
    settings.wake = WakeStrategy::Queue;
    settings.retry_backoff = (secs(10), secs(10));
}

fn warm(clients: usize) -> World {
    World::with(3, clients, in_queue).warm()
}

/// Lets a client wait for `job` until the world is quiet.
fn waits(world: &mut World, client: usize) -> LockId {
    let request = LockRequest::new(b"job").ttl(secs(20)).wait(Wait::UpTo(secs(60)));
    let id = world.acquire(client, &request, &[b"job"]);
    world.run(ms(200));
    id
}

fn holds(world: &mut World, client: usize) -> LockId {
    let id = world.acquire(client, &LockRequest::new(b"job").ttl(secs(20)), &[b"job"]);
    world.run(ms(20));
    assert!(world.clients[client].is_granted(id));
    id
}

fn tickets(world: &mut World, node: usize) -> usize {
    let now = world.server_now();
    let server = &mut world.servers[node];
    let reply = server.observe(&[b"ZCARD", b"redbolt:line:job"], now);
    String::from_utf8_lossy(&reply)[1..].trim().parse().unwrap()
}

/// Returns the number of requests that a client has sent to the first node so far.
fn asks(world: &World, client: usize) -> usize {
    world.clients[client].core.metrics().node(world.node(0)).asks as usize
}

#[test]
fn the_first_waiter_asks_once_again_and_then_only_listens() {
    let mut world = warm(2);
    holds(&mut world, 0);
    let id = waits(&mut world, 1);
    assert_eq!((0..3).map(|node| tickets(&mut world, node)).collect::<Vec<_>>(), [1; 3]);
    assert!(world.clients[1].core.has_place(id));
    let before = asks(&world, 1);
    world.run(secs(1));
    assert_eq!(asks(&world, 1), before, "no request is sent while the lock is held");
    world.run(secs(2));
    let again = asks(&world, 1) - before;
    assert!((1..=2).contains(&again), "{again} asks: the timer renews the ticket");
}

#[test]
fn a_release_wakes_only_the_first_waiter() {
    let mut world = warm(4);
    let held = holds(&mut world, 0);
    let ids: Vec<_> = (1..4).map(|client| waits(&mut world, client)).collect();
    let before: Vec<_> = (1..4).map(|client| asks(&world, client)).collect();
    world.let_go(0, held);
    world.run(ms(15));
    assert!(world.clients[1].is_granted(ids[0]));
    let since: Vec<_> = (1..4).map(|client| asks(&world, client) - before[client - 1]).collect();
    assert_eq!(since, [1, 0, 0], "asks of each");
    for node in 0..3 {
        assert_eq!(tickets(&mut world, node), 2, "a granted waiter has left the queue");
    }
}

/// The first node's clock was set back, and a former holder's key expires there just after it has
/// denied the waiter.
#[test]
fn a_release_is_noticed_if_the_holder_never_had_the_first_node() {
    let mut world = warm(3);
    world.acquire(2, &LockRequest::new(b"job").shared().ttl(secs(1)), &[b"job"]);
    world.run(ms(20));
    world.set_clock(0, -500_000);
    world.run(secs(1));
    let held = holds(&mut world, 0);
    world.delay(ms(5));
    // The first request arrives after 5 ms, the one with a ticket after 15 ms, and the read after
    // 25 ms.
    let left = world.pttl(0, b"job").unsigned_abs();
    world.run(ms(left - 17));
    let id = waits(&mut world, 1);
    world.run(ms(100));
    assert!(!world.clients[1].is_granted(id), "the lock is held");
    world.let_go(0, held);
    world.run(ms(50));
    assert!(world.clients[1].is_granted(id), "it is free");
}

/// Another client has the first node's key alone, for about as long as the holder has the other
/// two.
#[test]
fn a_release_is_noticed_if_another_client_has_the_first_node() {
    // The other key expires just before, or just after, the holder's lease.
    for left in [19_900, 20_100] {
        let mut world = warm(2);
        world.set(0, b"job", b"theirs", left);
        let held = holds(&mut world, 0);
        let id = waits(&mut world, 1);
        world.let_go(0, held);
        world.run(ms(15));
        assert!(world.clients[1].is_granted(id), "{left} ms");
    }
}

/// An extension is a change too. The first waiter sends one useless request, and reads the key
/// before it sends another.
#[test]
fn a_holder_that_extends_is_not_asked_each_time() {
    let mut world = warm(2);
    let held = world.acquire(0, &LockRequest::new(b"job").ttl(secs(5)), &[b"job"]);
    world.run(ms(20));
    waits(&mut world, 1);
    let before = asks(&world, 1);
    for _ in 0..5 {
        world.extend(held, secs(20));
        world.run(ms(60));
    }
    let in_vain = asks(&world, 1) - before;
    assert!(in_vain <= 1, "{in_vain} useless requests");
}

#[test]
fn a_ticket_outlives_a_connection_that_delivered_no_request() {
    let mut world = warm(2);
    holds(&mut world, 0);
    let id = waits(&mut world, 1);
    world.cut(1, 1, Written::Vanishes);
    world.run(ms(1));
    world.let_go(1, id);
    world.run(secs(2));
    assert!(matches!(world.clients[1].outcomes(id)[..], [Event::Refused(..)]));
    for node in 0..3 {
        assert_eq!(tickets(&mut world, node), 0, "node {node}");
    }
    assert_eq!(world.kept(1), (0, 0), "locks and claims");
}

#[test]
fn a_waiter_that_gives_up_leaves_the_queue_and_its_mark() {
    let mut world = warm(2);
    let held = holds(&mut world, 0);
    let id = waits(&mut world, 1);
    assert!(world.value(0, b"job").contains(&b'\n'), "it is marked");
    world.let_go(1, id);
    world.run(ms(20));
    let refused = world.clients[1].outcomes(id);
    assert!(
        matches!(refused[..], [Event::Refused(_, it)] if it.reason == RefusalReason::Cancelled)
    );
    assert!(!world.value(0, b"job").contains(&b'\n'), "it is marked no longer");
    world.let_go(0, held);
    world.run(ms(20));
    assert!(world.value(0, b"job").is_empty(), "nothing is closed");
}

/// Returns the name of the ticket in the latest request.
fn ticket(world: &World) -> Vec<u8> {
    let is_key = |word: &&Vec<u8>| word.starts_with(b"redbolt:line-wait:");
    let asks = world.log.iter().rev().filter(|ran| ran.is_ask());
    asks.flat_map(|ran| &ran.words).find(is_key).cloned().expect("an ask in the queue")
}

/// The node has confirmed that the ticket is removed, and then runs a request from a dead
/// connection.
#[test]
fn a_ghost_that_puts_a_ticket_back_is_undone() {
    let mut world = warm(2);
    holds(&mut world, 0);
    let id = waits(&mut world, 1);
    let ticket = ticket(&world);
    // Without a kill, only the second undo can remove the ticket of the ghost.
    world.answer(2, |args| match args {
        [b"CLIENT", b"KILL", ..] => error("NOPERM no"),
        _ => None,
    });
    let node = world.node(2);
    let asks = move |world: &World| world.clients[1].core.metrics().node(node).asks;
    let before = asks(&world);
    world.pause(2);
    world.run_until(secs(3), |world| asks(world) > before);
    world.flow();
    world.cut(1, 2, Written::LeavesGhost);
    world.resume(2);
    world.run(ms(100));
    world.let_go(1, id);
    world.run(ms(100));
    assert_eq!(world.pttl(2, &ticket), -2, "it has left");
    world.free_ghosts();
    assert!(world.pttl(2, &ticket) > 10_000, "and is back");
    world.run(secs(7));
    assert_eq!(world.pttl(2, &ticket), -2);
    world.run(secs(7));
    assert_eq!(world.kept(1), (0, 0), "locks and claims");
}

/// Its ticket would cost the waiters behind it a grace.
#[test]
fn a_waiter_that_gave_up_leaves_the_queue_of_a_node_that_is_back_after_three_seconds() {
    let mut world = warm(2);
    holds(&mut world, 0);
    let id = waits(&mut world, 1);
    world.servers[2].accept = Accept::No;
    // The node still has the ticket, and cannot be reached.
    world.cut(1, 2, Written::Runs);
    world.let_go(1, id);
    world.run(secs(3));
    assert_eq!([0, 1, 2].map(|node| tickets(&mut world, node)), [0, 0, 1]);
    world.servers[2].accept = Accept::Yes;
    world.run(secs(2));
    assert_eq!(tickets(&mut world, 2), 0);
}

/// The extension ends the node's tracking of the key, and the node does not notify the connection
/// that sent it. Another process releases the lock.
#[test]
fn a_waiter_is_woken_although_its_own_process_has_extended_the_lock_meanwhile() {
    for pause in [5_000, 5_300, 5_700, 6_100, 6_600] {
        let mut world = warm(2);
        let held = holds(&mut world, 0);
        let id = waits(&mut world, 0);
        world.run(ms(pause));
        world.extend(held, secs(20));
        world.run(ms(1));
        let detached = world.detach(0, held).unwrap();
        let attached = world.attach(1, &detached);
        world.let_go(1, attached);
        let waited = world.time_until(secs(9), |world| world.is_granted(id));
        assert!(waited < ms(100), "{waited:?} after {pause} ms");
    }
}

#[test]
fn a_waiter_listens_to_the_two_tickets_before_its_own_until_it_leaves() {
    let mut world = warm(5);
    holds(&mut world, 0);
    let ids: Vec<_> = (1..5).map(|client| waits(&mut world, client)).collect();
    let listen = |world: &World| [1, 2, 3, 4].map(|client| world.listeners(client));
    assert_eq!(listen(&world), [0, 1, 2, 2]);
    // The two tickets before the last one leave, so the first one is directly before it.
    world.let_go(2, ids[1]);
    world.let_go(3, ids[2]);
    world.run(secs(4));
    assert_eq!(listen(&world), [0, 0, 0, 1]);
    world.let_go(4, ids[3]);
    world.run(ms(20));
    assert_eq!(listen(&world), [0; 4]);
}

#[test]
fn a_node_that_forbids_the_queue_is_asked_without_a_ticket() {
    let mut world = warm(2);
    let held = holds(&mut world, 0);
    world.answer(0, |args| {
        let is_of_queue = args.iter().any(|arg| arg == b"redbolt:line:job");
        is_of_queue.then(|| error("NOPERM No permissions to access a key")).flatten()
    });
    let id = waits(&mut world, 1);
    let node = world.node(0);
    assert!(world.clients[1].core.no_queue(node).is_some());
    assert_eq!([1, 2].map(|node| tickets(&mut world, node)), [1, 1]);
    world.let_go(0, held);
    world.run(secs(1));
    assert!(world.clients[1].is_granted(id));
    world.let_go(1, id);
    world.run(secs(1));
    assert_eq!(world.kept(1), (0, 0), "and nothing is owed there");
}

/// The client announces each tracked read of a ticket or resource, so several replies carry the
/// error.
#[test]
fn a_node_that_forbids_client_caching_loses_its_push_link_once() {
    let mut world = warm(3);
    holds(&mut world, 0);
    waits(&mut world, 1);
    world.answer(0, |args| {
        let announces = args.starts_with(&[b"CLIENT", b"CACHING"]);
        announces.then(|| error("NOPERM no permissions to run the command")).flatten()
    });
    waits(&mut world, 2);
    let node = world.node(0);
    let state = world.clients[2].core.push_state(node);
    assert_eq!(state, PushState::Unavailable(Cause::NoPermission));
}

/// The tokens of exclusive holders are even, those of readers odd.
#[test]
fn a_counter_that_a_lock_in_the_queue_cannot_have_is_rejected() {
    for (request, counter) in [
        (LockRequest::new(b"job").fenced(), Some(1)),
        (LockRequest::new(b"job").fenced(), None),
        (LockRequest::new(b"job").fenced().shared(), Some(2)),
        // A lock without a token has no counter in its answer.
        (LockRequest::new(b"job"), Some(2)),
    ] {
        let mut world = warm(2);
        holds(&mut world, 0);
        for node in 0..3 {
            world.answer(node, move |args| {
                let asks_in_queue = args.len() > 8 && args.contains(&&b"redbolt:line:job"[..]);
                let counter = counter.map_or(String::new(), |counter| format!(" {counter}"));
                asks_in_queue.then(|| format!("+OK 5{counter}\r\n").into_bytes())
            });
        }
        let request = request.ttl(secs(20)).wait(Wait::UpTo(ms(100)));
        let id = world.acquire(1, &request, &[b"job"]);
        world.run(secs(1));
        assert!(!world.clients[1].is_granted(id), "{counter:?}");
    }
}

#[test]
fn an_answer_from_the_queue_counts_after_a_change_of_mode_too() {
    let mut world = warm(2);
    let held = holds(&mut world, 0);
    let request = LockRequest::new(b"job").fenced().ttl(secs(20)).wait(Wait::Forever);
    let id = world.acquire(1, &request, &[b"job"]);
    world.run(ms(200));
    world.servers[2].delay = ms(50).as_nanos() as u64;
    let node = world.node(2);
    let connections = |world: &World| world.clients[1].core.metrics().node(node).connections;
    let before = connections(&world);
    world.let_go(0, held);
    world.run(ms(40));
    assert!(world.clients[1].is_granted(id));
    world.change_mode(1, id);
    world.run(secs(1));
    assert_eq!(connections(&world), before, "it is believed");
}

#[test]
fn a_read_answered_with_another_type_ends_the_connection() {
    for (command, nonsense) in [(&b"PTTL"[..], "$1\r\n5\r\n"), (b"GETRANGE", ":5\r\n")] {
        let mut world = warm(2);
        holds(&mut world, 0);
        waits(&mut world, 1);
        world.answer(0, move |args| (args[0] == command).then(|| nonsense.as_bytes().to_vec()));
        let node = world.node(0);
        let connections = |world: &World| world.clients[1].core.metrics().node(node).connections;
        let before = connections(&world);
        world.run(secs(5));
        assert!(connections(&world) > before, "{}", command.escape_ascii());
    }
}

#[test]
fn a_process_queues_behind_the_waiters_for_its_own_lock() {
    let mut world = warm(2);
    let held = holds(&mut world, 0);
    let id = waits(&mut world, 1);
    let next = waits(&mut world, 0);
    world.let_go(0, held);
    world.run(ms(15));
    assert!(world.clients[1].is_granted(id));
    assert!(!world.clients[0].is_granted(next), "it came behind the other");
    world.let_go(1, id);
    world.run(ms(15));
    assert!(world.clients[0].is_granted(next));
}

fn waits_to_share(world: &mut World, client: usize) -> LockId {
    let request = LockRequest::new(b"job").ttl(secs(20)).shared().wait(Wait::UpTo(secs(60)));
    let id = world.acquire(client, &request, &[b"job"]);
    world.run(ms(600));
    id
}

#[test]
fn a_reader_behind_a_writer_that_waits_for_readers_asks_no_more_than_the_writer() {
    let mut world = warm(3);
    let request = LockRequest::new(b"job").ttl(secs(20)).shared();
    world.acquire(0, &request, &[b"job"]);
    world.run(ms(20));
    waits(&mut world, 1);
    waits_to_share(&mut world, 2);
    let before = asks(&world, 2);
    world.run(secs(3));
    let asked = asks(&world, 2) - before;
    assert!(asked <= 3, "{asked} asks in 3 s");
}

/// One reader has released, and the other never does.
#[test]
fn a_dead_reader_delays_the_first_waiter_by_its_own_ttl_only() {
    let mut world = warm(4);
    let shares = |ttl| LockRequest::new(b"job").ttl(ttl).shared();
    let [first, second] = [0, 1].map(|client| {
        let id = world.acquire(client, &shares(secs(20)), &[b"job"]);
        world.run(ms(5));
        id
    });
    world.acquire(2, &shares(ms(500)), &[b"job"]);
    world.run(ms(5));
    let waiter = waits(&mut world, 3);
    world.let_go(0, first);
    world.run(ms(50));
    world.let_go(1, second);
    world.run(ms(50));
    world.clients[2].is_stopped = true;
    world.run(ms(150));
    assert!(!world.clients[3].is_granted(waiter), "the third has it");
    world.run(ms(150));
    assert!(world.clients[3].is_granted(waiter), "the dead reader's TTL has expired");
}

#[test]
fn a_reader_joins_another_as_soon_as_the_writer_before_it_gives_up() {
    let mut world = warm(3);
    world.acquire(0, &LockRequest::new(b"job").ttl(secs(20)).shared(), &[b"job"]);
    world.run(ms(20));
    let writer = waits(&mut world, 1);
    let reader = waits_to_share(&mut world, 2);
    assert!(!world.clients[2].is_granted(reader), "a writer stands before it");
    world.let_go(1, writer);
    world.run(ms(50));
    assert!(world.clients[2].is_granted(reader));
}

/// The writer's string becomes a set with both of its claims, which a read of the first waiter does
/// not show.
#[test]
fn a_reader_joins_a_writer_that_downgrades() {
    let mut world = warm(2);
    let held = holds(&mut world, 0);
    let id = waits_to_share(&mut world, 1);
    let now = world.now();
    world.clients[0].core.downgrade(held, now).unwrap();
    world.run(ms(100));
    assert!(world.clients[1].is_granted(id));
}

fn forbid_push(world: &mut World, node: usize) {
    world.answer(node, |args| {
        let is_push = args.iter().any(|arg| arg == b"SUBSCRIBE" || arg == b"TRACKING");
        is_push.then(|| error("NOPERM no")).flatten()
    });
}

#[test]
fn a_waiter_without_notifications_is_not_overtaken() {
    let mut world = World::with(3, 3, |settings| settings.wake = WakeStrategy::Queue).warm();
    (0..3).for_each(|node| forbid_push(&mut world, node));
    // Several rounds vary how the timers of both waiters fall.
    for _ in 0..5 {
        let held = holds(&mut world, 0);
        let [first, second] = [1, 2].map(|client| waits(&mut world, client));
        assert!(world.clients[1].core.has_place(first));
        world.let_go(0, held);
        world.run_until(secs(4), |world| world.clients[1].is_granted(first));
        assert!(!world.clients[2].is_granted(second));
        world.let_go(1, first);
        world.run_until(secs(4), |world| world.clients[2].is_granted(second));
        world.let_go(2, second);
        world.run(secs(1));
    }
}

#[test]
fn a_waiter_behind_a_dead_first_one_asks_only_a_few_times() {
    let mut world = warm(3);
    let held = holds(&mut world, 0);
    let [_, second] = [1, 2].map(|client| waits(&mut world, client));
    world.clients[1].is_stopped = true;
    let before = asks(&world, 2);
    world.let_go(0, held);
    world.run(secs(2));
    assert!(world.clients[2].is_granted(second), "the first has had its grace");
    let asked = asks(&world, 2) - before;
    assert!((2..=4).contains(&asked), "{asked} asks: one that calls, one behind the grace");
}

/// The grace is half a second, because no node notified the waiter when it queued.
#[test]
fn a_dead_first_waiter_has_one_grace_whichever_waiter_calls_it() {
    let mut world = warm(4);
    let held = holds(&mut world, 0);
    let [_, second, third] = [1, 2, 3].map(|client| waits(&mut world, client));
    world.clients[1].is_stopped = true;
    world.let_go(0, held);
    world.run(ms(400));
    assert!(!world.clients[2].is_granted(second), "it has called the first");
    world.let_go(2, second);
    world.run(ms(150));
    assert!(world.clients[3].is_granted(third), "the rest of the grace has passed");
}

/// By the nodes' clocks, the first waiter's call is then a minute in the future.
#[test]
fn a_clock_that_is_set_back_lengthens_no_pause_by_as_much() {
    let mut world = warm(3);
    let held = holds(&mut world, 0);
    let [_, second] = [1, 2].map(|client| waits(&mut world, client));
    world.clients[1].is_stopped = true;
    world.let_go(0, held);
    world.run(ms(100));
    // The nodes compute how long the first waiter's grace still lasts from their clocks.
    (0..3).for_each(|node| world.set_clock(node, -60_000_000));
    let before = asks(&world, 2);
    world.run(secs(10));
    let asked = asks(&world, 2) - before;
    assert!(asked >= 4 || world.clients[2].is_granted(second), "{asked} asks in 10 s");
}

/// When its owner learns the stamp of a quorum, a ticket moves on a node. A waiter that reads that
/// the tickets before it are now behind it asks at once; otherwise it only listens.
#[test]
fn a_waiter_whose_predecessors_moved_behind_it_asks_again() {
    for (stamp, expected) in [(9_999_999_999_999_999_u64, 3..=5), (1, 2..=2)] {
        let mut world = warm(4);
        holds(&mut world, 0);
        for client in [1, 2] {
            waits(&mut world, client);
        }
        world.answer(0, move |args| {
            let is_ticket = args[0] == b"GETRANGE" && args[1].starts_with(b"redbolt:line-wait:");
            is_ticket.then(|| format!("$16\r\n{stamp:016}\r\n").into_bytes())
        });
        waits(&mut world, 3);
        let asked = asks(&world, 3);
        assert!(expected.contains(&asked), "{asked} requests with tickets at {stamp}");
    }
}

/// Each grace is at most half a second, because no node notified the waiter when it queued.
#[test]
fn several_dead_waiters_in_a_row_cost_a_grace_each() {
    for dead in [1, 2, 3, 5, 10] {
        let mut world = warm(dead + 2);
        let held = holds(&mut world, 0);
        let ids: Vec<_> = (1..dead + 2).map(|client| waits(&mut world, client)).collect();
        (1..=dead).for_each(|client| world.clients[client].is_stopped = true);
        world.let_go(0, held);
        let (last, began) = (dead + 1, world.boot);
        world.run_until(secs(30), |world| world.clients[last].is_granted(ids[dead]));
        let took = ms((world.boot - began) / 1_000_000);
        let graces = ms(500) * dead as u32;
        // A waiter behind the second checks after 50 ms for each ticket before it.
        let most = graces + graces / 20 + ms(50) * dead as u32 + ms(100);
        assert!(took <= most, "{took:?} behind {dead} dead waiters");
    }
}

/// The first waiter is called, and may come and go. Then this waiter is called, without a
/// notification, and has four round trips to ask.
#[test]
fn a_far_waiter_without_notifications_asks_within_its_grace() {
    let set = |settings: &mut Settings| {
        settings.wake = WakeStrategy::Queue;
        settings.response_timeout = secs(1);
    };
    let mut world = World::with(3, 3, set).warm();
    world.delay(ms(75));
    (0..3).for_each(|node| forbid_push(&mut world, node));
    let held = world.acquire(0, &LockRequest::new(b"job").ttl(secs(20)), &[b"job"]);
    world.run(ms(500));
    let [_, second] = [1, 2].map(|client| {
        let id = waits(&mut world, client);
        world.run(secs(2));
        id
    });
    world.clients[1].is_stopped = true;
    world.let_go(0, held);
    let (mut count, mut last) = (asks(&world, 2), world.boot);
    for _ in 0..10_000 {
        world.run(ms(1));
        let gap = ms((world.boot - last) / 1_000_000);
        // A round trip takes 150 ms.
        assert!(gap < ms(4 * 150), "no request for {gap:?}");
        if asks(&world, 2) > count {
            (count, last) = (asks(&world, 2), world.boot);
        }
        if world.clients[2].is_granted(second) {
            return;
        }
    }
    panic!("it is not granted");
}

/// The first waiter comes late and soon releases. A waiter behind the dead ones, which has seen the
/// call, is notified of neither.
#[test]
fn a_waiter_behind_dead_ones_notices_that_the_first_has_released() {
    let mut world = warm(5);
    let held = holds(&mut world, 0);
    let [first, _, _, last] = [1, 2, 3, 4].map(|client| waits(&mut world, client));
    // By then the waiter rarely checks whether its lead hangs.
    world.run(secs(1));
    (1..=3).for_each(|client| world.clients[client].is_stopped = true);
    let before = asks(&world, 4);
    world.let_go(0, held);
    world.run_until(secs(1), |world| asks(world, 4) > before);
    world.run(ms(10));
    world.clients[1].is_stopped = false;
    world.run_until(ms(100), |world| world.clients[1].is_granted(first));
    world.run(ms(10));
    world.let_go(1, first);
    let began = world.boot;
    world.run_until(secs(30), |world| world.clients[4].is_granted(last));
    let took = ms((world.boot - began) / 1_000_000);
    // This is the delay behind two dead waiters.
    let graces = ms(500) * 2;
    let most = graces + graces / 20 + ms(50) * 3 + ms(100);
    assert!(took <= most, "{took:?} after the release");
}

/// The holder and the first waiters may be processes of one host. No node reports that the holder's
/// lease has ended.
#[test]
fn dead_waiters_cost_a_grace_each_behind_a_dead_holder_too() {
    for (dead, permits) in [(1, false), (1, true), (2, false), (2, true)] {
        let mut world = warm(dead + 2);
        let job = LockRequest::new(b"job");
        let job = if permits { job.permits(1) } else { job };
        let (began, ttl) = (world.boot, ms(1_300));
        world.acquire(0, &job.clone().ttl(ttl), &[b"job"]);
        world.run(ms(20));
        let mut wait = |client| {
            let id = world.acquire(client, &job.clone().wait(Wait::UpTo(secs(60))), &[b"job"]);
            world.run(ms(200));
            id
        };
        let ids: Vec<_> = (1..dead + 2).map(&mut wait).collect();
        (0..=dead).for_each(|client| world.clients[client].is_stopped = true);
        world.run_until(secs(30), |world| world.clients[dead + 1].is_granted(ids[dead]));
        let took = ms((world.boot - began) / 1_000_000) - ttl;
        let graces = ms(500) * dead as u32;
        let most = graces + graces / 20 + ms(50) * dead as u32 + ms(100);
        assert!(took <= most, "{took:?} behind {dead} dead waiters, permits: {permits}");
    }
}

/// The holder acquired the lock after the waiter's last request, which was denied because of an
/// earlier holder.
#[test]
fn a_waiter_behind_a_dead_one_notices_the_expiry_of_an_unseen_holder() {
    for permits in [0, 1, 2] {
        let mut world = warm(4);
        let job = LockRequest::new(b"job");
        let job = if permits > 0 { job.permits(permits) } else { job };
        let held = world.acquire(0, &job.clone().ttl(secs(20)), &[b"job"]);
        if permits == 2 {
            // The key lives for as long as this permit, whichever client takes the other slot.
            world.acquire(0, &job.clone().ttl(secs(25)), &[b"job"]);
        }
        world.run(ms(20));
        let ttl = ms(900);
        let [_, _, last] = [(1, ttl), (2, secs(20)), (3, secs(20))].map(|(client, ttl)| {
            let request = job.clone().ttl(ttl).wait(Wait::UpTo(secs(60)));
            let id = world.acquire(client, &request, &[b"job"]);
            world.run(ms(100));
            id
        });
        world.let_go(0, held);
        world.run(ms(20));
        let ended = world.boot + ttl.as_nanos() as u64;
        (1..3).for_each(|client| world.clients[client].is_stopped = true);
        world.run_until(secs(30), |world| world.clients[3].is_granted(last));
        let took = ms(world.boot.saturating_sub(ended) / 1_000_000);
        assert!(took <= ms(525 + 100 + 100), "{took:?} after the end, permits: {permits}");
    }
}

/// Returns the graces of the waiters in the queue at a node, in ms.
fn graces(world: &mut World, node: usize) -> Vec<u64> {
    let now = world.server_now();
    let queue = [&b"ZRANGE"[..], b"redbolt:line:job", b"0", b"-1", b"WITHSCORES"];
    let reply = String::from_utf8_lossy(&world.servers[node].observe(&queue, now)).into_owned();
    let tickets = reply.lines().filter(|line| line.starts_with('x'));
    tickets.map(|ticket| ticket.split(':').nth(1).unwrap().parse().unwrap()).collect()
}

/// At first the grace is half a second, because no node notifies the waiter.
#[test]
fn a_ticket_has_the_grace_that_its_owner_needs_now() {
    let mut world = World::with(3, 2, |settings| {
        in_queue(settings);
        settings.response_timeout = secs(2);
    });
    world = world.warm();
    holds(&mut world, 0);
    let id = waits(&mut world, 1);
    assert_eq!(graces(&mut world, 0), [500]);
    world.run(secs(4));
    assert_eq!(graces(&mut world, 0), [500], "it is notified, and keeps what it has");
    for (one_way, least) in [(75, 600), (150, 1_200), (300, 2_400)] {
        world.delay(ms(one_way));
        world.run(secs(5));
        let graces = graces(&mut world, 0);
        // There are two while the ticket is replaced.
        let grace = graces.iter().copied().max().unwrap_or(0);
        assert!(graces.len() <= 2, "{graces:?}");
        assert!((least..3_500).contains(&grace), "{grace} ms, {one_way} ms away");
        assert!(world.clients[1].core.has_place(id));
    }
}

/// A second node forbids the queue, so it is asked without a ticket, and denies as well; the third
/// fails.
#[test]
fn a_ticket_stays_while_the_one_that_replaces_it_is_known_to_one_node() {
    let mut world = World::with(3, 2, |settings| {
        in_queue(settings);
        settings.response_timeout = secs(2);
    });
    world = world.warm();
    holds(&mut world, 0);
    waits(&mut world, 1);
    for (node, text) in [(0, "NOPERM No permissions to access a key"), (2, "ERR no")] {
        world.answer(node, move |args| {
            let is_old = |name: &[u8]| name.windows(4).any(|part| part == b":500");
            let has_new = args.iter().any(|arg| arg.starts_with(b"x") && !is_old(arg));
            has_new.then(|| error(text)).flatten()
        });
    }
    world.delay(ms(150));
    world.run_until(secs(5), |world| graces(world, 1).len() == 2);
    for _ in 0..2_000 {
        world.run(ms(1));
        assert_eq!(
            graces(&mut world, 2),
            [500],
            "others could overtake at the first and the last node"
        );
    }
}

/// Its last request took longer than the grace of its ticket allows, so the next one carries a new
/// ticket, which reaches no node.
#[test]
fn a_waiter_whose_connections_end_keeps_its_place() {
    let mut world = World::with(3, 3, |settings| {
        in_queue(settings);
        settings.response_timeout = secs(2);
    });
    world = world.warm();
    holds(&mut world, 0);
    let first = waits(&mut world, 1);
    waits(&mut world, 2);
    let attempts = |world: &World| world.clients[1].core.metrics().attempts;
    let before = attempts(&world);
    (0..3).for_each(|node| world.pause(node));
    world.run_until(secs(3), |world| attempts(world) > before);
    world.run(ms(300));
    for node in 0..3 {
        world.servers[node].accept = Accept::No;
        world.cut(1, node, Written::Vanishes);
    }
    assert!(attempts(&world) > before + 1 && world.clients[1].core.has_place(first));
    for node in 0..3 {
        world.servers[node].accept = Accept::Yes;
        world.resume(node);
    }
    for _ in 0..1_000 {
        world.run(ms(1));
        assert!((0..3).all(|node| tickets(&mut world, node) >= 2), "one for each waiter");
    }
    world.run(secs(2));
    assert!((0..3).all(|node| tickets(&mut world, node) == 2), "the former one has left");
}

/// While readers hold the lock, no client calls a writer. A client that only the writer keeps out
/// checks whether it is alive.
#[test]
fn a_dead_writer_keeps_readers_out_for_a_pause_and_a_grace_while_others_share() {
    for age in [0, 1_900, 5_000] {
        let mut world = warm(3);
        let request = LockRequest::new(b"job").ttl(secs(20)).shared();
        world.acquire(0, &request, &[b"job"]);
        world.run(ms(20));
        waits(&mut world, 1);
        world.clients[1].is_stopped = true;
        world.run(ms(age));
        let began = world.boot;
        let reader = world.acquire(2, &request.wait(Wait::UpTo(secs(60))), &[b"job"]);
        world.run_until(secs(10), |world| world.clients[2].is_granted(reader));
        let took = ms((world.boot - began) / 1_000_000);
        let most = if age > 500 { ms(600) } else { ms(2_700) };
        assert!(took <= most, "{took:?} behind a writer that died {age} ms before");
    }
}

#[test]
fn a_dead_waiter_keeps_permits_out_for_a_pause_and_a_grace_while_slots_are_free() {
    let mut world = warm(3);
    let permit = |wait| {
        let request = LockRequest::new(b"job").ttl(secs(20)).permits(2);
        request.wait(wait)
    };
    world.acquire(0, &permit(Wait::No), &[b"job"]);
    world.run(ms(20));
    waits(&mut world, 1);
    world.clients[1].is_stopped = true;
    world.run(secs(1));
    let began = world.boot;
    let id = world.acquire(2, &permit(Wait::UpTo(secs(60))), &[b"job"]);
    world.run_until(secs(10), |world| world.clients[2].is_granted(id));
    let took = ms((world.boot - began) / 1_000_000);
    assert!(took <= ms(600), "{took:?}");
}

/// A writer that is alive answers the check, and is not overtaken.
#[test]
fn readers_do_not_overtake_a_waiting_writer() {
    let mut world = warm(5);
    let request = LockRequest::new(b"job").ttl(secs(30)).shared();
    let held = world.acquire(0, &request, &[b"job"]);
    world.run(ms(20));
    let writer = waits(&mut world, 1);
    let readers = [2, 3, 4].map(|client| waits_to_share(&mut world, client));
    let before = asks(&world, 1);
    world.run(secs(20));
    let asked = asks(&world, 1) - before;
    assert!(asked <= 42, "{asked} asks of the writer in 20 s");
    for (client, reader) in [2, 3, 4].into_iter().zip(readers) {
        assert!(!world.clients[client].is_granted(reader), "it has passed the writer");
    }
    world.let_go(0, held);
    world.run(ms(100));
    assert!(world.clients[1].is_granted(writer));
}

/// The writer was second until a moment ago, and learns that a later waiter calls it before it
/// learns that it is first.
#[test]
fn permits_do_not_overtake_a_writer_that_just_became_first() {
    // The newcomer arrives at each quarter of a millisecond after the release.
    for quarters in 0..40 {
        let mut world = warm(4);
        world.delay(ms(1));
        let request = LockRequest::new(b"job").ttl(secs(20)).permits(2);
        let request = request.wait(Wait::UpTo(secs(60)));
        let held = holds(&mut world, 0);
        let first = world.acquire(2, &request, &[b"job"]);
        world.run(ms(20));
        let writer = waits(&mut world, 1);
        world.run(ms(700));
        world.let_go(0, held);
        world.run(ms(1) * quarters / 4);
        let passing = world.acquire(3, &request, &[b"job"]);
        world.run(secs(5));
        assert!(!world.clients[3].is_granted(passing), "{quarters} quarters of a ms later");
        assert!(world.clients[2].is_granted(first));
        world.let_go(2, first);
        world.run(ms(100));
        assert!(world.clients[1].is_granted(writer));
    }
}

#[test]
fn a_dead_first_waiter_is_skipped_although_the_nodes_clocks_are_set_back() {
    let mut world = warm(3);
    let held = holds(&mut world, 0);
    let [_, second] = [1, 2].map(|client| waits(&mut world, client));
    world.clients[1].is_stopped = true;
    world.let_go(0, held);
    world.run(ms(100));
    (0..3).for_each(|node| world.set_clock(node, -60_000_000));
    world.run(secs(3));
    assert!(world.clients[2].is_granted(second), "the first waiter has had another grace");
}

#[test]
fn readers_overtake_a_dead_writer_although_the_nodes_clocks_are_set_back() {
    // The world checks leases by the true time, so it must allow nodes to lose keys.
    let mut world = warm(3).forgetful();
    let request = LockRequest::new(b"job").ttl(secs(20)).shared();
    world.acquire(0, &request, &[b"job"]);
    world.run(ms(20));
    waits(&mut world, 1);
    world.clients[1].is_stopped = true;
    (0..3).for_each(|node| world.set_clock(node, -60_000_000));
    let reader = waits_to_share(&mut world, 2);
    world.run(secs(3));
    assert!(world.clients[2].is_granted(reader));
}

fn looks(world: &mut World, client: usize) -> View {
    let now = world.now();
    let id = world.clients[client].core.inspect(b"job", now).unwrap();
    world.run(ms(20));
    world.clients[client].core.take_view(id).expect("it has looked")
}

#[test]
fn an_inspection_names_the_waiters_in_their_order_and_how_long_they_have_waited() {
    let mut world = warm(4);
    let held = holds(&mut world, 0);
    assert_eq!(looks(&mut world, 3).nodes[0].queue.as_ref().map(|queue| queue.count), Ok(0));
    waits(&mut world, 1);
    world.run(secs(1));
    waits_to_share(&mut world, 2);
    let view = looks(&mut world, 3);
    for node in &view.nodes {
        let queue = node.queue.as_ref().unwrap();
        assert_eq!((queue.count, queue.kept, queue.called), (2, Kept::Marked, None));
        let [first, second] = &queue.waiters[..] else { panic!("{queue:?}") };
        let modes = [first.mode, second.mode];
        assert_eq!(modes, [Some(LockMode::Exclusive), Some(LockMode::Shared)]);
        assert!(first.stamp < second.stamp);
        assert!((ms(1_790)..ms(1_830)).contains(&first.age), "{first:?}");
        assert!((ms(590)..ms(630)).contains(&second.age), "{second:?}");
        let of = view.nodes[0].queue.as_ref().unwrap().waiters.iter();
        assert!(of.map(|it| it.fingerprint).eq([first.fingerprint, second.fingerprint]));
    }
    // The first waiter does not come when its turn comes, and the second one calls it.
    world.clients[1].is_stopped = true;
    world.let_go(0, held);
    world.run(ms(15));
    let view = looks(&mut world, 3);
    let queue = view.nodes[0].queue.as_ref().unwrap();
    assert_eq!((queue.count, queue.kept), (2, Kept::Closed));
    assert!(queue.called.is_some(), "{queue:?}");
}

#[test]
fn a_node_that_forbids_the_queue_still_reports_its_keys() {
    let mut world = warm(2);
    holds(&mut world, 0);
    world.answer(0, |args| {
        let is_of_queue = args.iter().any(|arg| arg == b"redbolt:line:job");
        is_of_queue.then(|| error("NOPERM No permissions to access a key")).flatten()
    });
    let view = looks(&mut world, 1);
    assert_eq!(view.nodes[0].queue, Err(Cause::NoPermission));
    assert!(view.nodes[0].state.is_ok() && view.nodes[1].queue.is_ok());
}

#[test]
fn a_core_counts_its_locks_in_the_queue() {
    let mut world = warm(2);
    let held = holds(&mut world, 0);
    let id = waits(&mut world, 1);
    let counted = |world: &World| {
        let metrics = world.clients[1].core.metrics();
        (metrics.joined_queue, metrics.in_queue(), metrics.wait_in_queue.count())
    };
    assert_eq!(counted(&world), (1, 1, 0));
    world.let_go(0, held);
    world.run(ms(15));
    assert!(world.clients[1].is_granted(id));
    assert_eq!(counted(&world), (1, 0, 1));
    let metrics = world.clients[1].core.metrics();
    assert!((ms(190)..ms(230)).contains(&metrics.wait_in_queue.sum()));
    let metrics = world.clients[0].core.metrics();
    assert_eq!(metrics.joined_queue, 0, "a holder that did not wait joined no queue");
}
