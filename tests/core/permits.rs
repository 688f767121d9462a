//! Permits of a semaphore: how many there are, which slot each holder gets, and what a waiter waits
//! for.

use std::collections::BTreeSet;

use redbolt::proto::script::LEAVE_QUEUE;
use redbolt::proto::{
    Event, KeyState, LockId, LockRequest, LockState, LossCause, RefusalReason, RequestError, Wait,
};
use redbolt_testkit::Command;

use crate::world::{World, Written, error, ms, secs};

const ENDS: &[u8] = b"redbolt:until:job";

fn permit(world: &mut World, client: usize, permits: u16) -> LockId {
    let request = LockRequest::new(b"job").ttl(secs(10)).permits(permits);
    world.acquire(client, &request, &[])
}

fn wait_for_permit(world: &mut World, client: usize, permits: u16) -> LockId {
    let request =
        LockRequest::new(b"job").ttl(secs(10)).permits(permits).wait(Wait::UpTo(secs(30)));
    world.acquire(client, &request, &[])
}

fn slot(world: &World, client: usize, id: LockId) -> u16 {
    world.clients[client].core.slot(id).expect("the permit is held")
}

fn is_contended(world: &World, client: usize, id: LockId) -> bool {
    matches!(world.clients[client].outcomes(id)[..], [Event::Refused(_, it)] if it.reason == RefusalReason::Contended)
}

#[test]
fn no_more_holders_than_permits_and_each_has_a_different_slot() {
    for permits in [1, 2, 3, 7] {
        let mut world = World::with(3, 2, |_| {}).warm();
        let held: Vec<_> = (0..permits)
            .map(|at| (usize::from(at) % 2, permit(&mut world, usize::from(at) % 2, permits)))
            .collect();
        let slots: BTreeSet<u16> =
            held.iter().map(|&(client, id)| slot(&world, client, id)).collect();
        assert!(slots.into_iter().eq(0..permits), "{permits} permits");
        let late = permit(&mut world, 0, permits);
        assert!(is_contended(&world, 0, late), "{permits} permits are all");
        let (client, first) = held[0];
        let free = slot(&world, client, first);
        world.let_go(client, first);
        world.flow();
        let next = permit(&mut world, 1, permits);
        assert_eq!(slot(&world, 1, next), free);
    }
}

#[test]
fn a_permit_excludes_exclusive_and_shared_locks_and_they_exclude_it() {
    let mut world = World::with(3, 2, |_| {}).warm();
    let id = permit(&mut world, 0, 2);
    let (alone, shared) = (LockRequest::new(b"job"), LockRequest::new(b"job").shared());
    for other in [&alone, &shared] {
        let other = world.acquire(1, other, &[]);
        assert!(is_contended(&world, 1, other));
    }
    world.let_go(0, id);
    world.flow();
    for other in [&alone, &shared] {
        let other = world.acquire(1, other, &[]);
        let late = permit(&mut world, 0, 2);
        assert!(is_contended(&world, 0, late));
        world.let_go(1, other);
        world.flow();
    }
    assert_eq!(world.pttl(0, b"job"), -2);
}

/// In one process, waiters do not queue behind holders of permits.
#[test]
fn waiters_of_one_process_get_the_permits_that_are_left() {
    let mut world = World::with(3, 1, |_| {}).warm();
    let ids = [(); 4].map(|()| wait_for_permit(&mut world, 0, 3));
    world.run(ms(200));
    let held = ids.map(|id| world.is_granted(id));
    assert_eq!(held, [true, true, true, false], "in the order in which they came");
    let state = world.core().state(ids[3]);
    assert!(matches!(state, LockState::Pausing | LockState::Asked), "{state:?}");
    world.release(ids[1]);
    world.run(ms(200));
    assert!(world.is_granted(ids[3]));
}

#[test]
fn a_released_permit_wakes_a_waiter_of_another_process() {
    let mut world =
        World::with(3, 2, |settings| settings.retry_backoff = (secs(5), secs(5))).warm();
    let held = [(); 2].map(|()| permit(&mut world, 0, 2));
    let waits = wait_for_permit(&mut world, 1, 2);
    world.run(secs(1));
    assert!(!world.clients[1].is_granted(waits));
    world.let_go(0, held[0]);
    world.flow();
    world.run(ms(300));
    assert!(world.clients[1].is_granted(waits));
}

/// The dead holder's TTL ends its permit, and the semaphore's other permits stay.
#[test]
fn a_holder_that_dies_denies_for_no_longer_than_its_own_ttl() {
    let mut world = World::with(3, 3, |_| {}).warm();
    let short = LockRequest::new(b"job").ttl(secs(1)).permits(2);
    let dies = world.acquire(0, &short, &[]);
    let stays = permit(&mut world, 1, 2);
    world.flow();
    assert!(world.is_granted(dies) && world.clients[1].is_granted(stays));
    let begun = world.boot;
    for node in 0..3 {
        world.cut(0, node, Written::Runs);
    }
    let waits = wait_for_permit(&mut world, 2, 2);
    world.run_until(secs(9), |world| world.clients[2].is_granted(waits));
    let waited = (world.boot - begun) / 1_000_000;
    assert!((900..1_500).contains(&waited), "{waited} ms");
    assert!(world.clients[1].core.lease(stays).is_some());
}

/// The first waiter is dead, and the key of its ticket, whose change would wake others, was
/// deleted. So only each request names the ticket again.
#[test]
fn an_orphaned_ticket_does_not_hide_the_expiry_of_a_permit() {
    let mut world =
        World::with(3, 3, |settings| settings.retry_backoff = (secs(10), secs(10))).warm();
    let short = LockRequest::new(b"job").ttl(secs(1)).permits(1);
    let dies = world.acquire(0, &short, &[]);
    world.flow();
    assert!(world.detach(0, dies).is_some(), "no client will release it");
    let leaves = wait_for_permit(&mut world, 1, 1);
    world.run(ms(100));
    for node in 0..3 {
        world.answer(node, |args| {
            // The nodes confirm that the ticket is removed, but keep it.
            let is_farewell = args.get(1).is_some_and(|text| *text == LEAVE_QUEUE.text.as_bytes());
            is_farewell.then(|| b":1\r\n".to_vec())
        });
    }
    world.let_go(1, leaves);
    world.run(ms(10));
    let is_key = |word: &&Vec<u8>| word.starts_with(b"redbolt:line-wait:");
    let keys: BTreeSet<_> =
        world.log.iter().flat_map(|ran| ran.words.iter().filter(is_key)).cloned().collect();
    keys.iter().for_each(|key| world.delete_everywhere(key));
    let waits = wait_for_permit(&mut world, 2, 1);
    let waited = world.time_until(secs(9), |world| world.clients[2].is_granted(waits));
    assert!(waited < ms(1_400), "{waited:?}");
}

#[test]
fn a_node_that_gave_another_slot_is_moved_to_the_right_one() {
    let mut world = World::with(3, 2, |_| {}).warm();
    // On one node, another holder has the first slot.
    let one = permit(&mut world, 0, 2);
    let first = slot(&world, 0, one);
    world.let_go(0, one);
    world.flow();
    let token = b"0123456789abcdef0123456789abcdef00";
    let now = world.server_now();
    let node = &mut world.servers[2];
    let text = redbolt::proto::script::ACQUIRE_PERMIT.text.as_bytes();
    let slots = [first, 1 - first];
    let ask: Vec<&[u8]> = vec![b"EVAL", text, b"2", b"job", ENDS, token, b"20", b"1", b"2"];
    let digits = slots.map(|slot| slot.to_string().into_bytes());
    node.observe(&[&ask[..], &[&digits[1], b"1"]].concat(), now);
    let id = permit(&mut world, 0, 2);
    let mine = slot(&world, 0, id);
    // The foreign permit expires after 20 ms, and then the node can be moved.
    world.run(ms(500));
    for node in 0..3 {
        let reply = world.servers[node].observe(
            &[b"HGET", b"job", mine.to_string().as_bytes()],
            redbolt_node::model::ClockReading::from_micros(0),
        );
        assert!(reply.starts_with(b"$3"), "node {node}: {}", reply.escape_ascii());
    }
    assert_eq!(world.core().votes(id).grants().len(), 3);
}

/// The answer arrived after the grant.
#[test]
fn a_node_that_gives_another_slot_late_is_moved_too() {
    let mut world = World::with(3, 2, |_| {}).warm();
    let first = permit(&mut world, 0, 1);
    world.let_go(0, first);
    world.flow();
    // On one node, a holder that will soon release has the only slot.
    let now = world.server_now();
    let text = redbolt::proto::script::ACQUIRE_PERMIT.text.as_bytes();
    let token = b"0123456789abcdef0123456789abcdef00";
    let ask: [&[u8]; 11] =
        [b"EVAL", text, b"2", b"job", ENDS, token, b"5000", b"1", b"1", b"0", b"1"];
    world.servers[2].observe(&ask, now);
    world.servers[2].delay = ms(40).as_nanos() as u64;
    let id = permit(&mut world, 0, 1);
    assert!(world.is_granted(id), "by the two others");
    // The node is asked once its denial has arrived.
    let is_moved = |world: &mut World| {
        world.log.iter().any(|ran| ran.node == 2 && ran.kind().starts_with("move"))
    };
    world.run_until(secs(1), is_moved);
    let undo =
        [&b"EVAL"[..], redbolt::proto::script::UNDO_PERMIT.text.as_bytes(), b"2", b"job", ENDS];
    let now = world.server_now();
    world.servers[2].observe(&[&undo[..], &[&token[..]]].concat(), now);
    world.run(secs(2));
    assert_eq!(world.core().votes(id).grants().len(), 3, "and again when the other has gone");
}

/// Makes a node give this slot to each request, out of the first three, and answer a request of
/// another kind as `other` does.
fn gives(world: &mut World, node: usize, slot: u16, other: fn(&str) -> Option<Vec<u8>>) {
    world.answer(node, move |args| match Command::new(args).name().trim_end_matches(" sha") {
        "ask" => Some(format!("+OK {slot} 0 7\r\n").into_bytes()),
        kind => other(kind),
    });
}

/// Returns the answer to an extension by a node that has lost the permit, and to a move by a node
/// whose slot is taken for a while.
fn has_lost_it(kind: &str) -> Option<Vec<u8>> {
    match kind {
        "extend" => Some(b":0\r\n".to_vec()),
        "move" => Some(b":5000\r\n".to_vec()),
        _ => None,
    }
}

/// The first node to answer gave another slot than the other two. One of these loses the permit,
/// and all others are silent.
#[test]
fn a_permit_does_not_rest_on_a_node_that_gave_another_one() {
    let mut world = World::with(3, 1, |_| {}).warm().forgetful();
    gives(&mut world, 0, 1, has_lost_it);
    gives(&mut world, 1, 0, has_lost_it);
    gives(&mut world, 2, 0, |_| None);
    let id = permit(&mut world, 0, 3);
    assert_eq!(slot(&world, 0, id), 0);
    let counted = world.core().votes(id).grants();
    assert_eq!(counted.iter().map(|node| node.index()).collect::<Vec<_>>(), [1, 2]);
    world.pause(0);
    world.pause(2);
    world.extend(id, secs(10));
    world.run(ms(10));
    assert_eq!(world.outcomes(id), [Event::Granted(id), Event::Lost(id, LossCause::Gone)]);
}

/// Each node gave another slot. One has moved to that of another, and the third has not answered.
#[test]
fn a_permit_does_not_rest_on_a_node_that_has_not_moved_yet() {
    let mut world = World::with(3, 1, |_| {}).warm().forgetful();
    for node in 0..3 {
        gives(&mut world, node, node as u16, |_| None);
    }
    world.delay(ms(1));
    let id = permit(&mut world, 0, 3);
    world.run(ms(2));
    let moves =
        |world: &World| world.log.iter().filter(|ran| ran.kind().starts_with("move")).count();
    assert_eq!(moves(&world), 0, "they are on their way");
    let moved: Vec<_> = (0..3)
        .filter(|&node| world.clients[0].core.votes(id).of(world.node(node)).is_none())
        .collect();
    let [silent, moves] = moved[..] else { panic!("{moved:?}") };
    let stays = 3 - silent - moves;
    world.pause(silent);
    world.answer(moves, move |args| match Command::new(args).name().trim_end_matches(" sha") {
        "move" => Some(format!("+OK {stays}\r\n").into_bytes()),
        kind => has_lost_it(kind),
    });
    world.run(ms(3));
    assert_eq!(usize::from(slot(&world, 0, id)), stays);
    world.pause(stays);
    world.extend(id, secs(10));
    world.run(ms(5));
    assert_eq!(world.outcomes(id), [Event::Granted(id), Event::Lost(id, LossCause::Gone)]);
}

#[test]
fn a_grant_of_a_slot_that_does_not_exist_is_a_denial() {
    let mut world = World::with(3, 1, |_| {}).warm();
    for node in 0..3 {
        // There are two permits, so slot 5 does not exist.
        gives(&mut world, node, 5, |_| None);
    }
    let id = permit(&mut world, 0, 2);
    assert!(is_contended(&world, 0, id));
    assert!((0..3).all(|node| world.ran(node).iter().any(|kind| kind.starts_with("undo"))));
}

/// The connection dies while the node is moved to the right slot, and the request in it runs after
/// the undo of the permit.
#[test]
fn a_ghost_that_acquires_a_released_permit_is_undone() {
    let mut world = World::with(3, 1, |_| {}).warm();
    let now = world.server_now();
    let text = redbolt::proto::script::ACQUIRE_PERMIT.text.as_bytes();
    let token = b"0123456789abcdef0123456789abcdef00";
    let ask: [&[u8]; 11] =
        [b"EVAL", text, b"2", b"job", ENDS, token, b"20", b"1", b"1", b"0", b"1"];
    world.servers[2].observe(&ask, now);
    world.delay(ms(1));
    let id = permit(&mut world, 0, 1);
    world.run(ms(2));
    assert!(world.is_granted(id), "by the two others");
    world.answer(2, |args| match args {
        // Without a kill, the move in the dead connection still runs.
        [b"CLIENT", b"KILL", ..] => error("NOPERM no"),
        _ => None,
    });
    world.cut(0, 2, Written::LeavesGhost);
    world.run(ms(100));
    world.release(id);
    world.run(ms(100));
    assert_eq!(world.pttl(2, b"job"), -2, "the undo has come first");
    world.free_ghosts();
    assert!(world.pttl(2, b"job") > 0, "and the ghost behind it");
    world.run(secs(6));
    assert_eq!(world.pttl(2, b"job"), -2, "half of the TTL has passed");
    assert_eq!(world.kept(0), (0, 0));
}

#[test]
fn data_that_is_not_a_semaphore_denies_and_is_left_alone() {
    let mut world = World::with(3, 1, |_| {}).warm();
    for node in 0..2 {
        world.set(node, b"job", b"theirs", 60_000);
    }
    let id = permit(&mut world, 0, 2);
    assert!(is_contended(&world, 0, id));
    assert_eq!(world.value(0, b"job"), b"theirs");
    assert_eq!(world.pttl(2, b"job"), -2, "what the third gave is undone");
}

#[test]
fn requests_with_other_numbers_of_permits_take_part_in_one_semaphore() {
    let mut world = World::with(3, 1, |_| {}).warm();
    let five = [(); 5].map(|()| permit(&mut world, 0, 5));
    let of_two = permit(&mut world, 0, 2);
    assert!(is_contended(&world, 0, of_two), "five are held");
    for id in five {
        if slot(&world, 0, id) >= 2 {
            world.release(id);
        }
    }
    let of_two = permit(&mut world, 0, 2);
    assert!(is_contended(&world, 0, of_two), "two are held");
    let of_three = permit(&mut world, 0, 3);
    assert_eq!(slot(&world, 0, of_three), 2);
}

#[test]
fn a_permit_is_extended_released_and_detached_with_its_number() {
    let mut world = World::with(3, 2, |_| {}).warm();
    let id = permit(&mut world, 0, 4);
    let mine = slot(&world, 0, id);
    world.run(secs(6));
    world.extend(id, secs(10));
    assert!(world.remaining(id) > secs(9));
    let now = world.now();
    let detached = world.core().detach(id, now).expect("it is held");
    assert_eq!(detached.slot(), Some(mine));
    let text = detached.to_text();
    assert!(text.contains(&format!("permits 4\nslot {mine}\n")), "{text}");
    let again = text.parse().expect("as it was written");
    let id = world.clients[1].core.attach(&again, now).unwrap();
    world.flow();
    assert_eq!(slot(&world, 1, id), mine);
    world.let_go(1, id);
    world.flow();
    assert_eq!((world.pttl(0, b"job"), world.pttl(0, ENDS)), (-2, -2));
    for (line, wrong) in [(format!("slot {mine}"), "slot 4"), ("permits 4".into(), "permits 2000")]
    {
        let text = text.replace(&line, wrong);
        assert!(text.parse::<redbolt::DetachedLock>().is_err(), "{wrong}");
    }
}

#[test]
fn each_slot_has_growing_fencing_tokens() {
    let mut world = World::with(3, 2, |_| {}).warm();
    let request = LockRequest::new(b"job").ttl(secs(10)).permits(2).fenced();
    let mut last = [0; 2];
    for _ in 0..6 {
        let ids = [0, 1].map(|client| {
            let id = world.acquire(client, &request, &[]);
            (client, id)
        });
        for (client, id) in ids {
            let core = &world.clients[client].core;
            let token = core.fencing_token(id).expect("it is fenced").get();
            let of = &mut last[usize::from(core.slot(id).unwrap())];
            assert!(token > *of && token.is_multiple_of(2), "{token} after {of}");
            *of = token;
        }
        for (client, id) in ids {
            world.let_go(client, id);
            world.flow();
        }
    }
    assert!(world.pttl(0, b"redbolt:slotfence:job") > 0);
}

#[test]
fn an_inspection_names_the_holders_of_permits() {
    let mut world = World::with(3, 1, |settings| settings.label = b"web-1".into()).warm();
    let id = permit(&mut world, 0, 3);
    let mine = slot(&world, 0, id);
    let now = world.now();
    let view = world.core().inspect(b"job", now).unwrap();
    world.run(ms(100));
    let view = world.core().take_view(view).unwrap();
    for node in &view.nodes {
        let Ok(KeyState::Permits(permits)) = &node.state else { panic!("{:?}", node.state) };
        assert_eq!((permits.count, permits.holders[0].0), (1, mine));
        assert_eq!(permits.to_string(), format!("{mine}: web-1"));
        assert!(permits.remaining.is_some_and(|left| left > secs(9)));
    }
}

#[test]
fn invalid_requests_for_permits_are_refused() {
    let mut world = World::with(3, 1, |_| {}).warm();
    let now = world.now();
    let mut error = |request: &LockRequest<'_>| world.core().acquire(request, now).unwrap_err();
    let of = |permits| LockRequest::new(b"job").permits(permits);
    assert_eq!(error(&of(0)), RequestError::Permits { permits: 0 });
    assert_eq!(error(&of(1025)), RequestError::Permits { permits: 1025 });
    let two = LockRequest::new(b"a").and(b"b").permits(2);
    assert_eq!(error(&two), RequestError::PermitKeys { keys: 2 });
    for name in [ENDS, b"redbolt:slotfence:x"] {
        assert_eq!(error(&LockRequest::new(name)), RequestError::ReservedKey);
    }
}
