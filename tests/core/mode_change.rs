//! Holders that change their mode: readers that try to become writers, and writers that become
//! readers.

use std::time::Duration;

use redbolt::proto::script::UNDO_SHARED;
use redbolt::proto::{
    AutoExtend, DetachedLock, Event, LockId, LockMode, LockRequest, LockState, LossCause, Refusal,
    RefusalReason, RequestError,
};

use redbolt_testkit::{Command, Kind};

use crate::world::{Accept, HOUR, Ran, World, Written, error, ms, secs};

/// Returns a key's members in the order in which they end, the string that it is, or nothing if it
/// does not exist.
fn members(world: &mut World, node: usize) -> Vec<String> {
    let now = world.server_now();
    let mut reply = world.servers[node].observe(&[b"ZRANGE", b"job", b"0", b"-1"], now);
    if reply.starts_with(b"-WRONGTYPE") {
        reply = world.servers[node].observe(&[b"GET", b"job"], now);
    }
    let reply = String::from_utf8_lossy(&reply);
    reply.lines().filter(|line| !line.starts_with(['*', '$', '-'])).map(str::to_owned).collect()
}

fn world(clients: usize) -> World {
    World::with(3, clients, |_| {}).warm()
}

/// Requests a lock directly from the core, so that the world does not watch it.
fn take(world: &mut World, client: usize, request: &LockRequest<'_>) -> LockId {
    let now = world.now();
    let id = world.clients[client].core.acquire(request, now).unwrap();
    world.flow();
    id
}

fn read(world: &mut World, client: usize) -> LockId {
    let id = take(world, client, &LockRequest::new("job").shared());
    assert!(world.clients[client].is_granted(id));
    id
}

fn upgrade(world: &mut World, client: usize, id: LockId) {
    let now = world.now();
    world.clients[client].core.try_upgrade(id, now).unwrap();
    world.flow();
}

fn downgrade(world: &mut World, client: usize, id: LockId) {
    let now = world.now();
    world.clients[client].core.downgrade(id, now).unwrap();
    world.flow();
}

fn last(world: &World, client: usize, id: LockId) -> Event {
    *world.clients[client].outcomes(id).last().expect("it has an outcome")
}

fn is_contended(event: &Event) -> bool {
    matches!(event, Event::NotUpgraded(_, Refusal { reason: RefusalReason::Contended, .. }))
}

/// Returns `true` if the second client can acquire the lock in this mode now, and releases it
/// again.
fn can_take(world: &mut World, mode: LockMode) -> bool {
    let request = LockRequest::new("job");
    let request = if mode == LockMode::Shared { request.shared() } else { request };
    let id = take(world, 1, &request);
    let is_granted = world.clients[1].is_granted(id);
    world.let_go(1, id);
    world.flow();
    is_granted
}

fn mode(world: &World, id: LockId) -> Option<LockMode> {
    world.clients[0].core.mode(id)
}

#[test]
fn a_reader_that_is_alone_becomes_a_writer_and_a_reader_again() {
    let mut world = world(2);
    let id = read(&mut world, 0);
    assert!(can_take(&mut world, LockMode::Shared));
    upgrade(&mut world, 0, id);
    assert_eq!(last(&world, 0, id), Event::Upgraded(id));
    assert_eq!(mode(&world, id), Some(LockMode::Exclusive));
    for mode in [LockMode::Shared, LockMode::Exclusive] {
        assert!(!can_take(&mut world, mode), "{mode:?} while a writer holds it");
    }
    downgrade(&mut world, 0, id);
    assert_eq!(last(&world, 0, id), Event::Downgraded(id));
    assert_eq!(mode(&world, id), Some(LockMode::Shared));
    assert!(can_take(&mut world, LockMode::Shared));
    assert!(!can_take(&mut world, LockMode::Exclusive));
    world.let_go(0, id);
    world.flow();
    assert!((0..3).all(|node| members(&mut world, node).is_empty()), "nothing is left");
    assert_eq!(world.kept(0), (0, 0));
    assert!(can_take(&mut world, LockMode::Exclusive));
}

#[test]
fn an_upgrade_with_another_reader_is_refused_and_both_stay_readers() {
    let mut world = world(2);
    let ids = [0, 1].map(|client| read(&mut world, client));
    for client in [0, 1] {
        upgrade(&mut world, client, ids[client]);
        assert!(is_contended(&last(&world, client, ids[client])));
    }
    for client in [0, 1] {
        assert_eq!(world.clients[client].core.state(ids[client]), LockState::Held);
        assert_eq!(world.clients[client].core.mode(ids[client]), Some(LockMode::Shared));
    }
    assert!((0..3).all(|node| members(&mut world, node).len() == 2), "the tries left nothing");
    world.let_go(1, ids[1]);
    world.flow();
    upgrade(&mut world, 0, ids[0]);
    assert_eq!(last(&world, 0, ids[0]), Event::Upgraded(ids[0]), "a try may be repeated");
}

/// The two readers deny each other on the third node.
#[test]
fn of_readers_that_upgrade_at_once_at_most_one_writes() {
    for late in 0..3 {
        let mut world = world(2);
        let ids = [0, 1].map(|client| read(&mut world, client));
        let now = world.now();
        world.clients[0].core.try_upgrade(ids[0], now).unwrap();
        world.clients[1].core.try_upgrade(ids[1], now).unwrap();
        // One node answers later than the others.
        world.servers[late].delay = ms(3).as_nanos() as u64;
        world.run(ms(10));
        for client in [0, 1] {
            assert!(is_contended(&last(&world, client, ids[client])));
            assert_eq!(world.clients[client].core.mode(ids[client]), Some(LockMode::Shared));
        }
    }
}

#[test]
fn the_validity_of_an_upgrade_counts_from_its_own_first_byte() {
    let mut world = world(1);
    let id = read(&mut world, 0);
    world.run(secs(4));
    world.delay(ms(20));
    let now = world.now();
    world.core().try_upgrade(id, now).unwrap();
    world.run(ms(45));
    assert_eq!(last(&world, 0, id), Event::Upgraded(id));
    assert_eq!(world.remaining(id), secs(10) - ms(102) - ms(45));
}

#[test]
fn a_writer_that_downgrades_is_a_reader_at_once_and_no_less_valid() {
    let mut world = world(2);
    let id = take(&mut world, 0, &LockRequest::new("job"));
    world.run(secs(3));
    world.delay(ms(20));
    let before = world.remaining(id);
    let now = world.now();
    world.core().downgrade(id, now).unwrap();
    assert_eq!(mode(&world, id), Some(LockMode::Shared), "from the first byte on");
    assert_eq!(world.remaining(id), before);
    world.run(ms(45));
    assert_eq!(last(&world, 0, id), Event::Downgraded(id));
    assert!(world.remaining(id) >= before - ms(45), "{:?}", world.remaining(id));
    assert!(world.remaining(id) < before + ms(200), "it was not extended");
    world.run(ms(45));
    assert!((0..3).all(|node| members(&mut world, node).len() == 1), "the writer's claim is gone");
    world.delay(ms(0));
    assert!(can_take(&mut world, LockMode::Shared));
}

/// The TTL was longer than the longest hold from the beginning.
#[test]
fn a_downgrade_after_the_longest_hold_shortens_nothing() {
    let mut world = World::with(3, 1, |settings| settings.max_hold = Some(secs(3))).warm();
    let id = take(&mut world, 0, &LockRequest::new("job").ttl(secs(20)));
    world.run(secs(5));
    let before = world.remaining(id);
    downgrade(&mut world, 0, id);
    assert_eq!(last(&world, 0, id), Event::Downgraded(id));
    assert!(world.remaining(id) >= before && before > secs(14), "{before:?}");
}

/// Until then, the writer's claim keeps others out, and nodes that have not answered count by it
/// alone.
#[test]
fn a_writers_claim_is_released_once_a_quorum_lets_others_share() {
    let mut world = world(2);
    let id = take(&mut world, 0, &LockRequest::new("job"));
    world.pause(1);
    world.pause(2);
    let now = world.now();
    world.core().downgrade(id, now).unwrap();
    world.flow();
    assert_eq!(members(&mut world, 0).len(), 2, "both claims are there");
    assert!(!can_take(&mut world, LockMode::Shared), "one node is not a quorum");
    assert_eq!(members(&mut world, 0).len(), 2);
    world.resume(1);
    world.flow();
    assert_eq!(last(&world, 0, id), Event::Downgraded(id));
    world.flow();
    assert_eq!(members(&mut world, 0).len(), 1);
    world.resume(2);
    world.flow();
    assert!(can_take(&mut world, LockMode::Shared));
}

/// The second node is reached while the downgrade waits for the others. Its connection ends before
/// anything could be undone there.
#[test]
fn a_node_that_is_reached_after_a_downgrade_lets_other_readers_in() {
    let request = LockRequest::new("job");
    for request in [request.clone(), request.clone().fenced(), request.shared()] {
        let mut world = World::with(3, 2, |_| {});
        world.servers[1].delay = ms(30).as_nanos() as u64;
        let id = take(&mut world, 0, &request);
        assert!(world.clients[0].is_granted(id), "by the other two");
        if request.mode() == LockMode::Shared {
            upgrade(&mut world, 0, id);
            assert_eq!(last(&world, 0, id), Event::Upgraded(id));
        }
        world.pause(0);
        world.pause(2);
        downgrade(&mut world, 0, id);
        world.run(ms(300));
        world.cut(0, 1, Written::Vanishes);
        world.servers[1].accept = Accept::No;
        world.servers[1].delay = 0;
        world.resume(2);
        assert_eq!(last(&world, 0, id), Event::Downgraded(id));
        assert_eq!(members(&mut world, 1).len(), 1, "{:?}", members(&mut world, 1));
        assert!(can_take(&mut world, LockMode::Shared), "beside the reader");
    }
}

/// Until then, others wait for the TTL or the next extension.
#[test]
fn a_downgrade_without_a_quorum_is_retried_with_the_next_extension() {
    let mut world = world(2);
    let id = take(&mut world, 0, &LockRequest::new("job"));
    let before = world.remaining(id);
    for node in [1, 2] {
        world.pause(node);
    }
    downgrade(&mut world, 0, id);
    world.run(secs(1));
    assert!(matches!(last(&world, 0, id), Event::DowngradeDelayed(..)));
    assert_eq!(mode(&world, id), Some(LockMode::Shared));
    assert_eq!(world.remaining(id), before - secs(1));
    for node in [1, 2] {
        world.resume(node);
    }
    world.run(secs(2));
    assert!(!can_take(&mut world, LockMode::Shared), "the writer's claim keeps them out");
    let now = world.now();
    world.core().extend(id, secs(10), now).unwrap();
    world.run(ms(100));
    let reported = world.outcomes(id);
    assert_eq!(reported[reported.len() - 2..], [Event::Extended(id), Event::Downgraded(id)]);
    assert!(can_take(&mut world, LockMode::Shared));
    world.let_go(0, id);
    world.run(secs(1));
    assert!((0..3).all(|node| members(&mut world, node).is_empty()));
}

#[test]
fn an_upgraded_reader_has_a_larger_token_and_keeps_it_when_it_reads_again() {
    let mut world = world(2);
    let id = take(&mut world, 0, &LockRequest::new("job").shared().fenced());
    let token = |world: &World| world.clients[0].core.fencing_token(id).unwrap().get();
    let read = token(&world);
    assert_eq!(read % 2, 1);
    upgrade(&mut world, 0, id);
    let written = token(&world);
    assert!(written > read && written.is_multiple_of(2), "{written} after {read}");
    downgrade(&mut world, 0, id);
    assert_eq!(token(&world), written);
    let other = take(&mut world, 1, &LockRequest::new("job").shared().fenced());
    let others = world.clients[1].core.fencing_token(other).unwrap().get();
    assert!(others > written && others % 2 == 1, "a reader behind it is ahead of the writer");
    world.let_go(1, other);
    world.flow();
    upgrade(&mut world, 0, id);
    assert!(token(&world) > others);
}

/// Without the extension, the reader's claim that it has kept would expire first.
#[test]
fn an_extension_of_an_upgraded_lock_extends_both_claims() {
    let mut world = world(2);
    let id = read(&mut world, 0);
    upgrade(&mut world, 0, id);
    world.run(secs(6));
    let now = world.now();
    world.core().extend(id, secs(10), now).unwrap();
    world.flow();
    assert_eq!(last(&world, 0, id), Event::Extended(id));
    world.run(secs(6));
    assert_eq!(world.core().state(id), LockState::Held);
    assert!((0..3).all(|node| members(&mut world, node).len() == 2));
}

#[test]
fn an_auto_extended_lock_survives_all_changes_of_its_mode() {
    let mut world = world(2);
    let request = LockRequest::new("job").ttl(secs(3)).shared();
    let id = take(&mut world, 0, &request.auto_extend(AutoExtend::until_released()));
    for _ in 0..3 {
        // Each wait is longer than the TTL of 3 s.
        world.run(secs(7));
        upgrade(&mut world, 0, id);
        assert_eq!(last(&world, 0, id), Event::Upgraded(id));
        world.run(secs(7));
        downgrade(&mut world, 0, id);
        assert_eq!(last(&world, 0, id), Event::Downgraded(id));
    }
    world.run(secs(7));
    assert_eq!(world.core().state(id), LockState::Held);
    assert_eq!(mode(&world, id), Some(LockMode::Shared));
    world.let_go(0, id);
    world.flow();
    assert!((0..3).all(|node| members(&mut world, node).is_empty()));
}

#[test]
fn an_upgraded_lock_is_lost_once_and_its_release_leaves_nothing() {
    let mut world = world(2);
    let id = read(&mut world, 0);
    upgrade(&mut world, 0, id);
    world.run(secs(2));
    world.delete_everywhere(b"job");
    let now = world.now();
    world.core().extend(id, secs(10), now).unwrap();
    world.flow();
    assert_eq!(last(&world, 0, id), Event::Lost(id, LossCause::Gone));
    world.let_go(0, id);
    world.run(secs(15));
    let losses =
        world.outcomes(id).into_iter().filter(|reported| matches!(reported, Event::Lost(..)));
    assert_eq!(losses.count(), 1);
    assert_eq!(world.kept(0), (0, 0));
}

#[test]
fn an_upgraded_lock_whose_validity_ends_is_lost_as_a_whole() {
    let mut world = world(2);
    let id = read(&mut world, 0);
    // The upgrade comes in the middle of the reader's TTL, so its own lease ends later.
    world.run(secs(5));
    upgrade(&mut world, 0, id);
    world.run(secs(6));
    assert_eq!(
        world.core().state(id),
        LockState::Held,
        "the reader's claim has expired, and is not needed"
    );
    assert_eq!(mode(&world, id), Some(LockMode::Exclusive));
    world.run(secs(5));
    assert_eq!(last(&world, 0, id), Event::Lost(id, LossCause::Expired));
    world.run(secs(15));
    assert_eq!(world.kept(0), (0, 0));
}

#[test]
fn a_release_while_a_mode_changes_leaves_nothing() {
    for upgrades in [true, false] {
        let mut world = world(2);
        let request = LockRequest::new("job");
        let id = take(&mut world, 0, &if upgrades { request.shared() } else { request });
        world.delay(ms(20));
        let now = world.now();
        match upgrades {
            true => world.core().try_upgrade(id, now).unwrap(),
            false => world.core().downgrade(id, now).unwrap(),
        }
        world.run(ms(10));
        world.let_go(0, id);
        world.run(ms(100));
        assert!(matches!(last(&world, 0, id), Event::Released(..)));
        assert!((0..3).all(|node| members(&mut world, node).is_empty()));
        assert_eq!(world.kept(0), (0, 0));
    }
}

fn pass_on(world: &mut World, id: LockId) -> LockId {
    let detached = world.detach(0, id).unwrap();
    let text = detached.to_text();
    let read: DetachedLock = text.parse().unwrap();
    assert_eq!((&read, read.to_text()), (&detached, text));
    let now = world.now();
    let id = world.clients[1].core.attach(&read, now).unwrap();
    world.flow();
    id
}

#[test]
fn an_upgraded_lock_is_detached_with_both_of_its_claims() {
    let mut world = world(2);
    let id = take(&mut world, 0, &LockRequest::new("job").shared().fenced());
    upgrade(&mut world, 0, id);
    let token = world.core().fencing_token(id);
    let taken = pass_on(&mut world, id);
    assert_eq!(world.kept(0), (0, 0));
    let core = &world.clients[1].core;
    assert_eq!((core.mode(taken), core.fencing_token(taken)), (Some(LockMode::Exclusive), token));
    let now = world.now();
    world.clients[1].core.extend(taken, secs(20), now).unwrap();
    world.flow();
    assert_eq!(last(&world, 1, taken), Event::Extended(taken));
    assert!((0..3).all(|node| members(&mut world, node).len() == 2));
    world.run(secs(15));
    downgrade(&mut world, 1, taken);
    assert_eq!(last(&world, 1, taken), Event::Downgraded(taken));
    world.let_go(1, taken);
    world.flow();
    assert!((0..3).all(|node| members(&mut world, node).is_empty()));
}

/// A downgraded lock is a reader at once, also for the process that attaches it.
#[test]
fn a_lock_detached_during_its_downgrade_completes_it() {
    let mut world = world(2);
    let id = take(&mut world, 0, &LockRequest::new("job").fenced());
    let token = world.core().fencing_token(id);
    world.delay(ms(20));
    let now = world.now();
    world.core().downgrade(id, now).unwrap();
    world.run(ms(10));
    let taken = pass_on(&mut world, id);
    assert_eq!(world.clients[1].core.mode(taken), Some(LockMode::Shared));
    world.run(ms(100));
    assert_eq!(last(&world, 1, taken), Event::Downgraded(taken));
    assert_eq!(world.clients[1].core.fencing_token(taken), token);
    world.let_go(1, taken);
    world.run(ms(100));
    assert!((0..3).all(|node| members(&mut world, node).is_empty()));
    assert_eq!((world.kept(0), world.kept(1)), ((0, 0), (0, 0)));
}

#[test]
fn a_lock_that_cannot_change_its_mode_is_refused_at_once() {
    let mut world = world(1);
    let now = world.now();
    let writer = take(&mut world, 0, &LockRequest::new("job"));
    assert_eq!(world.core().try_upgrade(writer, now), Err(RequestError::NotShared));
    let both = take(&mut world, 0, &LockRequest::new("a").and("b"));
    let keys = RequestError::SharedKeys { keys: 2 };
    assert_eq!(world.core().try_upgrade(both, now), Err(RequestError::NotShared));
    assert_eq!(world.core().downgrade(both, now), Err(keys));
    let reader = take(&mut world, 0, &LockRequest::new("c").shared());
    assert_eq!(world.core().downgrade(reader, now), Err(RequestError::NotExclusive));
    world.core().try_upgrade(reader, now).unwrap();
    let under_way = Err(RequestError::ModeChangeUnderWay);
    assert_eq!(world.core().try_upgrade(reader, now), under_way);
    assert_eq!(world.core().extend(reader, secs(5), now), under_way);
    world.core().downgrade(writer, now).unwrap();
    assert_eq!(world.core().extend(writer, secs(5), now), under_way);
    world.flow();
    world.let_go(0, reader);
    assert_eq!(world.core().try_upgrade(reader, now), Err(RequestError::NotHeld));
    assert_eq!(world.core().downgrade(reader, now), Err(RequestError::NotHeld));
}

/// The downgrade extends the lock as far as the pending extension would have.
#[test]
fn a_pending_extension_of_a_lock_that_is_downgraded_has_its_outcome() {
    let mut world = world(1);
    let id = take(&mut world, 0, &LockRequest::new("job").ttl(secs(2)));
    world.delay(ms(20));
    let now = world.now();
    world.core().extend(id, secs(20), now).unwrap();
    world.core().downgrade(id, now).unwrap();
    world.run(ms(45));
    assert!(world.outcomes(id).contains(&Event::Extended(id)), "{:?}", world.outcomes(id));
    assert_eq!(last(&world, 0, id), Event::Downgraded(id));
    assert!(world.remaining(id) > secs(19), "{:?}", world.remaining(id));
}

/// One node refuses the extension, and one is silent, so the extension is undecided when a quorum
/// has granted the downgrade.
#[test]
fn an_extension_that_is_overtaken_by_a_downgrade_has_its_outcome() {
    let mut world = world(1);
    let id = take(&mut world, 0, &LockRequest::new("job"));
    world.pause(1);
    world.answer(2, |args| {
        let extends = Command::new(args).kind == Kind::Extend;
        extends.then(|| error("MISCONF Redis is configured to save RDB snapshots")).flatten()
    });
    let now = world.now();
    world.core().extend(id, secs(20), now).unwrap();
    world.core().downgrade(id, now).unwrap();
    world.flow();
    let reported = world.outcomes(id);
    assert_eq!(reported[1..], [Event::Extended(id), Event::Downgraded(id)]);
    assert!(world.remaining(id) > secs(19), "{:?}", world.remaining(id));
}

#[test]
fn an_upgrade_waits_for_the_end_of_an_extension() {
    let mut world = world(1);
    let id = read(&mut world, 0);
    world.delay(ms(20));
    let now = world.now();
    world.core().extend(id, secs(20), now).unwrap();
    assert_eq!(world.core().try_upgrade(id, now), Err(RequestError::ExtensionUnderWay));
    world.run(ms(45));
    let now = world.now();
    assert_eq!(world.core().try_upgrade(id, now), Ok(()));
}

/// Quarantines last for `max_ttl`: a key that lived longer, even by a fraction of the ms in which
/// nodes count, could have two holders. The end of its keys in a record is bounded, but not in
/// whole ms.
#[test]
fn a_downgrade_asks_for_no_more_than_the_longest_ttl() {
    let longest = secs(20) + Duration::from_micros(500);
    let mut world = World::with(3, 2, |settings| settings.max_ttl = longest).warm();
    let id = take(&mut world, 0, &LockRequest::new("job").ttl(longest));
    world.delay(ms(20));
    let now = world.now();
    world.core().downgrade(id, now).unwrap();
    let text = world.detach(0, id).unwrap().to_text();
    let (before, after) = text.split_once("keys_until_ns ").unwrap();
    let (_, after) = after.split_once('\n').unwrap();
    // The record claims that the keys live for another hour.
    let later = now.boot.0 + 3_600_000_000_000;
    let record: DetachedLock = format!("{before}keys_until_ns {later}\n{after}").parse().unwrap();
    world.log.clear();
    let id = world.clients[1].core.attach(&record, now).unwrap();
    world.run(ms(100));
    assert_eq!(last(&world, 1, id), Event::Downgraded(id));
    let asked: Vec<_> = world.log.iter().filter(|ran| ran.is_ask()).map(Ran::ttl).collect();
    assert_eq!(asked, [20_000; 3]);
}

/// An operator has removed the writer's own claim.
#[test]
fn nothing_of_an_upgraded_lock_is_extended_once_it_is_lost() {
    let mut world = world(2);
    let request = LockRequest::new("job").ttl(secs(3)).shared();
    let id = take(&mut world, 0, &request.auto_extend(AutoExtend::until_released()));
    upgrade(&mut world, 0, id);
    for node in 0..3 {
        let writer = members(&mut world, node).into_iter().find(|name| name.starts_with("w:"));
        let (now, writer) = (world.server_now(), writer.unwrap());
        let undo: [&[u8]; 5] =
            [b"EVAL", UNDO_SHARED.text.as_bytes(), b"1", b"job", writer.as_bytes()];
        assert_eq!(world.servers[node].observe(&undo, now), b":1\r\n");
    }
    world.run(secs(3));
    assert_eq!(last(&world, 0, id), Event::Lost(id, LossCause::Gone));
    world.run(secs(6));
    assert!(can_take(&mut world, LockMode::Exclusive), "the reader's claim has ended as well");
    world.let_go(0, id);
    world.run(secs(1));
    assert_eq!(world.kept(0), (0, 0));
}

/// The second node is connected after the loss. The reader's claim on it would keep writers out for
/// a whole TTL.
#[test]
fn a_node_reached_after_an_upgraded_lock_is_lost_gets_no_request_for_it() {
    let mut world = World::with(3, 1, |_| {});
    world.servers[1].delay = ms(30).as_nanos() as u64;
    let id = read(&mut world, 0);
    upgrade(&mut world, 0, id);
    assert_eq!(last(&world, 0, id), Event::Upgraded(id));
    // The wall clock ends the lease before the second node is connected.
    world.wall_ahead += secs(3_600).as_nanos() as i64;
    let now = world.now();
    assert!(world.core().extend(id, secs(10), now).is_err());
    world.flow();
    assert_eq!(last(&world, 0, id), Event::Lost(id, LossCause::Expired));
    world.run(ms(300));
    assert_eq!(members(&mut world, 1), Vec::<String>::new());
}

#[test]
fn an_upgrade_is_held_for_at_most_the_longest_hold() {
    let mut world = World::with(3, 1, |settings| settings.max_hold = Some(secs(15))).warm();
    let id = read(&mut world, 0);
    world.run(secs(8));
    upgrade(&mut world, 0, id);
    assert_eq!(last(&world, 0, id), Event::Upgraded(id));
    assert!(world.remaining(id) < secs(7), "{:?}", world.remaining(id));
    let now = world.now();
    let too_long = RequestError::HeldTooLong { max_hold: secs(15) };
    assert_eq!(world.core().extend(id, secs(8), now), Err(too_long));
}

/// The second attempt, whose proposal suits the nodes, begins later than the first.
#[test]
fn an_upgrade_with_a_corrected_clock_is_held_for_at_most_the_longest_hold() {
    let mut world = World::with(3, 1, |settings| {
        settings.max_hold = Some(secs(15));
        settings.response_timeout = secs(1);
    })
    .warm();
    let begun = world.now();
    let id = take(&mut world, 0, &LockRequest::new("job").shared().fenced());
    world.run(secs(8));
    (0..3).for_each(|node| world.set_clock(node, -HOUR));
    world.delay(ms(200));
    let now = world.now();
    world.core().try_upgrade(id, now).unwrap();
    world.run(ms(900));
    assert_eq!(last(&world, 0, id), Event::Upgraded(id));
    let held = world.now().boot.since(begun.boot) + world.remaining(id);
    assert!(held <= secs(15), "held for {held:?}");
}
