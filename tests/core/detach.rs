//! Locks that are detached from one core and attached to another.

use std::time::Duration;

use redbolt::proto::{
    DetachedLock, Event, LockId, LockRequest, LockState, LossCause, RefusalReason, RequestError,
    Settings, Vote,
};

use crate::world::{Accept, GUARD, World, Written, error, ms, secs};

/// Returns two clients of the same nodes: the first detaches, the second attaches.
fn pair(nodes: usize) -> World {
    World::with(nodes, 2, |_| {}).warm()
}

/// Detaches a lock and passes it on as text, as between two processes.
fn detach(world: &mut World, id: LockId) -> DetachedLock {
    let now = world.now();
    let detached = world.core().detach(id, now).expect("the lock is held");
    detached.to_text().parse().unwrap()
}

fn release_by(world: &mut World, client: usize, id: LockId) {
    let now = world.now();
    world.clients[client].core.release(id, now);
    world.flow();
}

fn extend_by(world: &mut World, client: usize, id: LockId, ttl: Duration) {
    let now = world.now();
    world.clients[client].core.extend(id, ttl, now).unwrap();
    world.flow();
}

#[test]
fn detaching_sends_nothing_and_the_lock_continues_in_another_core() {
    let mut world = pair(3);
    let id = world.lock(b"job", secs(10));
    let before = world.remaining(id);
    world.log.clear();
    let detached = detach(&mut world, id);
    assert_eq!(world.kept(0), (0, 0));
    assert_eq!(world.core().state(id), LockState::Unknown);
    world.release(id);
    world.run(secs(4));
    assert_eq!(world.log.len(), 0, "no request is sent: {:?}", world.ran(0));
    assert_eq!(world.outcomes(id), [Event::Granted(id)]);

    let taken = world.attach(1, &detached);
    assert_eq!(world.clients[1].remaining(taken, world.now()), before - secs(4));
    assert_eq!(world.clients[1].core.state(taken), LockState::Held);
    assert_eq!(world.log.len(), 0);
    extend_by(&mut world, 1, taken, secs(20));
    assert_eq!(world.clients[1].outcomes(taken), [Event::Extended(taken)]);
    assert!(world.pttl(0, b"job") > 19_000);
    release_by(&mut world, 1, taken);
    assert!(
        matches!(world.clients[1].outcomes(taken)[1..], [Event::Released(_, c)] if c.nodes >= 2)
    );
    assert_eq!(world.holders(b"job"), [false; 3]);
    assert_eq!(world.kept(1), (0, 0));
}

#[test]
fn a_detached_lock_carries_its_whole_state() {
    let mut world = World::with(3, 2, |settings| settings.label = b"web 1:77".to_vec()).warm();
    let keys: [&[u8]; 3] = [b"a", b"100%\r\n\0", b"\xff \xfe"];
    let request = LockRequest::new(keys[0]).and(keys[1]).and(keys[2]).ttl(secs(10)).fenced();
    let id = world.acquire(0, &request, &keys);
    let token = world.core().fencing_token(id);
    assert!(token.is_some());
    let values: Vec<_> = (0..3).map(|node| world.value(node, b"a")).collect();
    let detached = detach(&mut world, id);
    assert!(detached.keys().eq(keys));
    assert_eq!((detached.ttl(), detached.fencing_token()), (secs(10), token));
    assert_eq!(detached.label(), "web 1:77");
    let taken = world.attach(1, &detached);
    assert_eq!(world.clients[1].core.fencing_token(taken), token);
    // Detached again, the record is the same, except for what was learned of the nodes.
    let now = world.now();
    let again = world.clients[1].core.detach(taken, now).unwrap();
    assert_eq!(again, detached);
    assert_eq!((0..3).map(|node| world.value(node, b"a")).collect::<Vec<_>>(), values);
    let taken = world.attach(0, &again);
    extend_by(&mut world, 0, taken, secs(20));
    release_by(&mut world, 0, taken);
    for key in keys {
        assert_eq!(world.holders(key), [false; 3]);
    }
}

/// A grant that arrives after the lock was detached is not undone, and not counted.
#[test]
fn a_late_grant_is_kept_and_never_counts() {
    let mut world = pair(3);
    world.pause(2);
    let id = world.lock(b"job", secs(10));
    let detached = detach(&mut world, id);
    world.log.clear();
    world.resume(2);
    world.run(ms(100));
    assert_eq!(world.ran(2), ["ask", "check"], "not undone");
    assert_eq!(world.holders(b"job"), [true; 3]);
    assert_eq!(world.kept(0), (0, 0));

    let taken = world.attach(1, &detached);
    world.pause(0);
    extend_by(&mut world, 1, taken, secs(20));
    world.run(ms(60));
    match world.clients[1].outcomes(taken)[..] {
        [Event::NotExtended(_, refusal)] => {
            assert_eq!(refusal.reason, RefusalReason::NoQuorum);
            assert!(matches!(refusal.votes.of(world.node(2)), Some(Vote::Fail(_))));
            assert_eq!(refusal.votes.of(world.node(1)), Some(Vote::Grant));
        }
        ref other => panic!("{other:?}"),
    }
    world.resume(0);
    release_by(&mut world, 1, taken);
    world.run(ms(100));
    assert_eq!(world.holders(b"job"), [false; 3], "the late grant is undone with the others");
}

/// The restart guard keeps the node from voting. The claim that would undo this grant was detached,
/// so the key stays with the lock.
#[test]
fn a_late_grant_that_would_not_have_counted_is_kept_too() {
    let mut world = pair(3);
    world.pause(2);
    let id = world.lock(b"job", secs(10));
    let detached = detach(&mut world, id);
    world.flush(2);
    world.resume(2);
    world.run(ms(100));
    assert_eq!(world.holders(b"job"), [true; 3]);
    let taken = world.attach(1, &detached);
    release_by(&mut world, 1, taken);
    world.run(ms(100));
    assert_eq!(world.holders(b"job"), [false; 3]);
}

/// The label is a part of the token, so a lock with another label is a different lock to the nodes.
#[test]
fn a_lock_attached_under_another_label_is_released() {
    let mut world = World::new(3).warm();
    let other = world.join(|settings| settings.label = b"web-2".to_vec());
    let id = world.lock(b"job", secs(10));
    let detached = detach(&mut world, id);
    let taken = world.attach(other, &detached);
    release_by(&mut world, other, taken);
    world.run(ms(100));
    assert_eq!(world.holders(b"job"), [false; 3]);
    assert_eq!(world.kept(other), (0, 0));
}

#[test]
fn a_request_that_was_not_sent_before_detaching_is_never_sent() {
    let mut world = pair(3);
    world.servers[2].window = 0;
    let id = world.lock(b"job", secs(10));
    let detached = detach(&mut world, id);
    world.log.clear();
    world.servers[2].window = usize::MAX;
    world.run(ms(100));
    assert_eq!(world.log.len(), 0);
    let taken = world.attach(1, &detached);
    release_by(&mut world, 1, taken);
    assert_eq!(world.count("undo"), 2, "the third node has nothing to undo");
    assert_eq!(world.kept(1), (0, 0));
}

/// The request is still in one connection when the lock is released over another one, and runs
/// after the undo.
#[test]
fn a_pending_request_that_runs_after_the_undo_is_undone_at_half_of_the_ttl() {
    let mut world = pair(3);
    world.pause(2);
    let id = world.lock(b"job", secs(10));
    let detached = detach(&mut world, id);
    world.cut(0, 2, Written::LeavesGhost);
    world.resume(2);
    let taken = world.attach(1, &detached);
    release_by(&mut world, 1, taken);
    assert!(matches!(world.clients[1].outcomes(taken)[..], [Event::Released(..)]));
    world.free_ghosts();
    assert_eq!(world.holders(b"job"), [false, false, true]);
    world.run(secs(6));
    assert_eq!(world.holders(b"job"), [false; 3]);
    assert_eq!(world.kept(1), (0, 0));
}

/// That connection was lost before the lock was detached.
#[test]
fn a_request_in_a_connection_lost_earlier_is_undone_at_half_of_the_ttl() {
    let mut world = pair(3);
    world.pause(2);
    let id = world.lock(b"job", secs(10));
    world.cut(0, 2, Written::LeavesGhost);
    let detached = detach(&mut world, id);
    world.resume(2);
    let taken = world.attach(1, &detached);
    release_by(&mut world, 1, taken);
    world.free_ghosts();
    assert_eq!(world.holders(b"job"), [false, false, true]);
    world.run(secs(6));
    assert_eq!(world.holders(b"job"), [false; 3]);
    assert_eq!(world.kept(1), (0, 0));
}

/// A node granted the lock while it could not vote, and refused the undo. The client that releases
/// the lock undoes that grant too.
#[test]
fn a_grant_that_did_not_count_is_undone_by_the_process_that_attaches_the_lock() {
    let mut world = pair(3);
    world.delete(2, GUARD);
    scripts_fail(&mut world, 2);
    let id = world.lock(b"job", secs(10));
    let detached = detach(&mut world, id);
    assert_eq!(world.holders(b"job"), [true; 3]);
    world.servers[2].answer = None;
    let taken = world.attach(1, &detached);
    release_by(&mut world, 1, taken);
    assert_eq!(world.holders(b"job"), [false; 3]);
    assert_eq!(world.kept(1), (0, 0));
}

/// A node may keep the key for longer than the requested TTL.
#[test]
fn the_undo_of_an_extended_lock_is_owed_for_the_extended_ttl() {
    let mut world = pair(3);
    let id = world.lock(b"job", secs(10));
    world.extend(id, secs(20));
    let detached = detach(&mut world, id);
    let taken = world.attach(1, &detached);
    assert_eq!(owed_for(&mut world, taken), secs(20));
}

/// Times of another boot mean nothing here, so the keys may live as long as any lock's, but no
/// longer.
#[test]
fn the_undo_of_a_lock_of_another_boot_is_owed_for_the_longest_ttl() {
    let mut world = pair(3);
    let id = world.lock(b"job", secs(10));
    let detached = detach(&mut world, id);
    let taken = world.attach(1, &detached.outlived());
    assert_eq!(owed_for(&mut world, taken), secs(30));
}

/// Returns how long a release is owed that a node does not confirm.
fn owed_for(world: &mut World, taken: LockId) -> Duration {
    scripts_fail(world, 2);
    let begun = world.boot;
    release_by(world, 1, taken);
    assert_eq!(world.kept(1), (0, 1));
    world.run_until(secs(100), |world| world.kept(1) == (0, 0));
    Duration::from_nanos(world.boot - begun)
}

fn scripts_fail(world: &mut World, node: usize) {
    world.answer(node, |args| args[0].starts_with(b"EVAL").then(|| error("MISCONF no")).flatten());
}

#[test]
fn an_expired_detached_lock_is_lost_and_its_release_undoes_it() {
    let mut world = pair(3);
    let id = world.lock(b"job", secs(10));
    let detached = detach(&mut world, id);
    // The validity has ended, and the keys live on for the drift.
    world.run(ms(9_950));
    assert_eq!(world.holders(b"job"), [true; 3]);
    let taken = world.attach(1, &detached);
    assert_eq!(world.clients[1].outcomes(taken), [Event::Lost(taken, LossCause::Expired)]);
    let now = world.now();
    let extended = world.clients[1].core.extend(taken, secs(10), now);
    assert_eq!(extended, Err(RequestError::NotHeld));
    let now = world.now();
    assert!(world.clients[1].core.detach(taken, now).is_none());
    assert_eq!(world.holders(b"job"), [true; 3], "a loss sends no request");
    release_by(&mut world, 1, taken);
    assert_eq!(world.holders(b"job"), [false; 3]);
    assert_eq!(world.clients[1].outcomes(taken).len(), 1, "the lock ends once");
    assert_eq!(world.kept(1), (0, 0));
}

#[test]
fn a_long_expired_detached_lock_leaves_nothing_to_do() {
    let mut world = pair(3);
    let id = world.lock(b"job", secs(10));
    let detached = detach(&mut world, id);
    world.run(secs(11));
    let taken = world.attach(1, &detached);
    assert_eq!(world.clients[1].outcomes(taken), [Event::Lost(taken, LossCause::Expired)]);
    world.run(secs(1));
    assert_eq!(world.kept(1), (0, 0));
    assert_eq!(world.clients[1].core.state(taken), LockState::Unknown);
}

#[test]
fn either_clock_ends_a_detached_lock() {
    let mut world = pair(3);
    let id = world.lock(b"job", secs(10));
    let detached = detach(&mut world, id);
    let lost = |world: &mut World| {
        let taken = world.attach(1, &detached);
        let lost = world.clients[1].outcomes(taken) == [Event::Lost(taken, LossCause::Expired)];
        assert_eq!(lost, world.clients[1].remaining(taken, world.now()).is_zero());
        lost
    };
    world.wall_ahead = 20_000_000_000;
    assert!(lost(&mut world), "the wall clock is ahead");
    world.wall_ahead = -20_000_000_000;
    assert!(!lost(&mut world), "a wall clock that was set back prolongs nothing");
}

/// The machine was restarted, and its wall clock shows the day before: the boot clock is behind the
/// detached lock's.
#[test]
fn a_boot_clock_that_restarted_ends_a_detached_lock() {
    let mut old = World::new(3).warm();
    old.run(secs(100));
    let id = old.lock(b"job", secs(10));
    let detached = detach(&mut old, id);
    let mut world = World::new(3).warm();
    world.wall_ahead = -86_400_000_000_000;
    let taken = world.attach(0, &detached);
    assert_eq!(world.outcomes(taken), [Event::Lost(taken, LossCause::Expired)]);
    // It is not known how long the nodes keep the keys, so they are undone.
    world.release(taken);
    assert_eq!(world.count("undo"), 3);
    assert_eq!(world.kept(0), (0, 0));
}

#[test]
fn a_lock_of_other_nodes_is_refused() {
    let mut world = World::new(3).warm();
    let id = world.lock(b"job", secs(10));
    let detached = detach(&mut world, id);
    let refuses = |nodes, set: &dyn Fn(&mut Settings)| {
        let mut other = World::with(nodes, 1, set);
        let now = world.now();
        let refused = other.core().attach(&detached, now);
        let kept = usize::from(refused.is_ok());
        assert_eq!(other.kept(0), (kept, kept));
        refused
    };
    assert!(refuses(3, &|_| {}).is_ok());
    assert_eq!(refuses(5, &|_| {}), Err(RequestError::OtherNodes));
    assert_eq!(refuses(3, &|s| s.quorum = Some(3)), Err(RequestError::OtherNodes));
    assert_eq!(
        refuses(3, &|s| s.restart_guard_key = b"job".to_vec()),
        Err(RequestError::RestartGuardKey)
    );
    let short = refuses(3, &|s| s.max_ttl = secs(5));
    assert!(matches!(short, Err(RequestError::TtlAboveMaximum { .. })));
}

#[test]
fn only_a_held_lock_can_be_detached() {
    let mut world = World::new(3).warm();
    for node in 0..3 {
        world.pause(node);
    }
    let id = world.lock(b"job", secs(10));
    let now = world.now();
    assert!(world.core().detach(id, now).is_none(), "the lock is not granted yet");
    for node in 0..3 {
        world.resume(node);
    }
    assert!(world.is_granted(id));
    world.release(id);
    let now = world.now();
    assert!(world.core().detach(id, now).is_none(), "released");
    assert_eq!(world.holders(b"job"), [false; 3]);
}

#[test]
fn the_maximum_hold_is_counted_from_the_first_grant() {
    let mut world = World::with(3, 2, |settings| settings.max_hold = Some(secs(15))).warm();
    let id = world.lock(b"job", secs(10));
    let detached = detach(&mut world, id);
    world.run(secs(8));
    let taken = world.attach(1, &detached);
    let now = world.now();
    let refused = world.clients[1].core.extend(taken, secs(10), now);
    assert!(matches!(refused, Err(RequestError::HeldTooLong { .. })), "{refused:?}");
    extend_by(&mut world, 1, taken, secs(6));
}

#[test]
fn an_inspection_recognises_the_lock_where_it_is_attached() {
    let mut world = pair(3);
    let id = world.lock(b"job", secs(10));
    let now = world.now();
    let seen = world.core().inspect(b"job", now).unwrap();
    world.flow();
    let view = world.core().take_view(seen).unwrap();
    let Ok(redbolt::proto::KeyState::Held(holder)) = &view.nodes[1].state else { panic!() };
    let whose = |world: &mut World| -> Vec<_> {
        let now = world.now();
        world.clients.iter_mut().map(|client| client.core.held_on(b"job", now)).collect()
    };
    let mine = Some(holder.fingerprint);
    assert_eq!(whose(&mut world), [mine, None]);
    assert_eq!(world.core().held_on(b"jo", now), None);
    let detached = detach(&mut world, id);
    assert_eq!(whose(&mut world), [None, None]);
    let taken = world.attach(1, &detached);
    assert_eq!(whose(&mut world), [None, mine]);
    // No timer has noticed the end yet.
    world.wall_ahead = 20_000_000_000;
    assert_eq!(whose(&mut world), [None, None]);
    world.wall_ahead = 0;
    release_by(&mut world, 1, taken);
    assert_eq!(whose(&mut world), [None, None]);
}

/// A quorum decides; the other nodes answer later, or never.
#[test]
fn answers_are_awaited_until_all_are_in() {
    let mut world = pair(3);
    world.pause(2);
    let id = world.lock(b"job", secs(10));
    assert!(world.is_granted(id) && world.core().awaits_answers(id));
    world.resume(2);
    assert!(!world.core().awaits_answers(id));
    world.pause(1);
    world.extend(id, secs(20));
    assert_eq!(world.outcomes(id)[1..], [Event::Extended(id)]);
    assert!(world.core().awaits_answers(id));
    world.resume(1);
    assert!(!world.core().awaits_answers(id));
    world.release(id);
    assert!(!world.core().awaits_answers(id));
}

/// The others granted it while a connection was being opened, and that node has not been asked yet.
#[test]
fn a_lock_awaits_the_answer_of_a_node_that_is_not_connected_yet() {
    let mut world = World::new(3).warm();
    world.servers[2].accept = Accept::Silent;
    world.hang_up(2);
    world.run(ms(100));
    let id = world.lock(b"job", secs(10));
    assert!(world.is_granted(id) && world.core().awaits_answers(id));
    world.servers[2].accept = Accept::Yes;
    world.run(ms(40));
    assert_eq!(world.holders(b"job"), [true; 3]);
    assert!(!world.core().awaits_answers(id));
}

/// One node answered while the wall clock was ahead, so the two nodes keep the key for different
/// times by different clocks.
#[test]
fn a_lock_leaves_with_what_a_quorum_supports_by_both_clocks() {
    let mut world = pair(3);
    world.stop(2);
    let id = world.lock(b"job", secs(10));
    world.run(secs(2));
    world.wall_ahead = 3_000_000_000;
    world.pause(1);
    world.extend(id, secs(7));
    world.wall_ahead = 0;
    world.resume(1);
    assert!(world.remaining(id) > ms(7_500));
    let detached = detach(&mut world, id);
    let now = world.now();
    assert_eq!(detached.remaining(now), secs(7) - ms(72));
}
