//! An operator force-unlocks resources.

use redbolt::proto::UnlockScope;
use redbolt::proto::{
    Cause, ClockReading, Core, DataKind, Event, Fate, KeyState, LockRequest, LossCause, NodeState,
    RequestError, RestartGuard, View, ViewId, restart_guard::BIG_MS, script::FORCE_UNLOCK,
};

use crate::world::{GUARD, World, Written, error, ms, secs};

const STRANGER: &[u8] = b"somebody else";

/// Returns the result of the first client's force-unlock.
fn broken(world: &mut World, key: &[u8]) -> View {
    broken_by(world, |core, now| core.force_unlock(key, UnlockScope::Locks, now))
}

fn broken_by(
    world: &mut World,
    order: impl FnOnce(&mut Core, ClockReading) -> Result<ViewId, RequestError>,
) -> View {
    let now = world.now();
    let id = order(world.core(), now).unwrap();
    world.run(secs(3));
    assert_eq!(world.clients[0].events.iter().filter(|(_, e)| *e == Event::Viewed(id)).count(), 1);
    world.core().take_view(id).expect("the force-unlock has finished")
}

fn was_held(view: &View) -> Vec<bool> {
    view.nodes.iter().map(|node| matches!(node.state, Ok(KeyState::Held(_)))).collect()
}

#[test]
fn a_force_unlock_deletes_the_key_and_reports_its_owner() {
    let mut world = World::with(3, 2, |settings| settings.label = b"web-1:77".to_vec()).warm();
    let now = world.now();
    let held = world.clients[1].core.acquire(&LockRequest::new(b"job"), now).unwrap();
    world.flow();
    world.set(0, b"jo", b"another", 60_000);
    world.log.clear();
    let mut world = world.forgetful();
    let token = String::from_utf8(world.value(1, b"job")).unwrap();
    let view = broken(&mut world, b"job");
    assert_eq!(was_held(&view), [true; 3]);
    for node in &view.nodes {
        let Ok(KeyState::Held(holder)) = &node.state else { unreachable!() };
        assert_eq!(holder.label.as_deref(), Some("web-1:77"));
        let remaining = holder.remaining.unwrap();
        assert!(remaining > secs(9) && remaining <= secs(10), "{remaining:?}");
        assert!(node.round_trip.is_some());
        assert!(!format!("{view:?}").contains(&token[..16]));
    }
    assert!(view.nodes.iter().all(|node| node.fate == Some(Fate::Deleted)));
    assert_eq!(world.ran(0), ["queue", "type", "getrange", "pttl", "force unlock"]);
    assert_eq!(world.holders(b"job"), [false; 3]);
    assert_eq!(world.value(0, b"jo"), b"another");
    assert!(!world.value(0, GUARD).is_empty());
    // The holder learns of it like of any other loss.
    let now = world.now();
    world.clients[1].core.extend(held, secs(10), now).unwrap();
    world.flow();
    assert_eq!(world.clients[1].outcomes(held)[1..], [Event::Lost(held, LossCause::Gone)]);
    let again = broken(&mut world, b"job");
    assert!(again.nodes.iter().all(|node| node.state == Ok(KeyState::Free)));
}

#[test]
fn restart_guards_and_counters_are_not_force_unlocked() {
    for restart_guard in [RestartGuard::On, RestartGuard::Off] {
        let mut world = World::with(1, 1, |settings| settings.restart_guard = restart_guard).warm();
        let now = world.now();
        let mut refused =
            |key: &[u8]| world.core().force_unlock(key, UnlockScope::Locks, now).unwrap_err();
        assert_eq!(
            refused(GUARD),
            RequestError::RestartGuardKey,
            "even for a client without a restart guard"
        );
        assert_eq!(refused(b"redbolt:fence:job"), RequestError::CounterKey);
        assert_eq!(refused(b""), RequestError::EmptyResource);
        assert_eq!(refused(&[0; 70_000]), RequestError::ResourceTooLong { len: 70_000 });
        world.flow();
        assert_eq!(world.log.len(), 0, "no request is sent");
    }
}

#[test]
fn a_foreign_value_is_left_alone_unless_foreign_is_requested() {
    let mut world = World::new(3).warm();
    for (node, value) in [(0, STRANGER), (1, b"00112233445566778899aabbccddeeff"), (2, b"")] {
        world.set(node, b"job", value, 60_000);
    }
    world.log.clear();
    let view = broken(&mut world, b"job");
    for node in &view.nodes {
        assert!(matches!(&node.state, Ok(KeyState::Foreign(data)) if data.remaining.is_some()));
        assert_eq!(node.fate, Some(Fate::Kept));
    }
    assert_eq!(world.count("force unlock"), 0, "no force-unlock is sent");
    assert_eq!(world.value(0, b"job"), STRANGER);
    let view =
        broken_by(&mut world, |core, now| core.force_unlock(b"job", UnlockScope::Anything, now));
    assert!(view.nodes.iter().all(|node| node.fate == Some(Fate::Deleted)), "{view:?}");
    assert_eq!(world.holders(b"job"), [false; 3]);
}

#[test]
fn other_data_is_reported_by_its_type_and_left_alone() {
    let mut world = World::new(1).warm();
    let wrong = "WRONGTYPE Operation against a key holding the wrong kind of value";
    for (reported, kind) in
        [(&b"+zset\r\n"[..], DataKind::SortedSet), (b"-NOPERM no\r\n", DataKind::Unknown)]
    {
        world.set(0, b"job", STRANGER, 60_000);
        world.log.clear();
        world.answer(0, move |args| match args[0] {
            b"TYPE" => Some(reported.to_vec()),
            b"GETRANGE" => error(wrong),
            _ => None,
        });
        let view = broken(&mut world, b"job");
        let Ok(KeyState::Foreign(data)) = &view.nodes[0].state else { panic!("{view:?}") };
        assert_eq!((&data.kind, view.nodes[0].fate), (&kind, Some(Fate::Kept)));
        // If the node does not report the type, there is nothing to compare.
        let view = broken_by(&mut world, |core, now| {
            core.force_unlock(b"job", UnlockScope::Anything, now)
        });
        let is_notified = kind == DataKind::SortedSet;
        assert_eq!(world.count("force unlock"), usize::from(is_notified));
        assert_eq!(view.nodes[0].state.is_ok(), is_notified, "{view:?}");
        assert!(is_notified || view.nodes[0].state == Err(Cause::NoPermission));
    }
}

/// A single reader is stored as a string, which a second reader turns into a set between two reads.
#[test]
fn an_inspection_reports_both_readers_if_one_joins_during_it() {
    let mut world = World::with(1, 2, |_| {}).warm();
    for client in 0..2 {
        let now = world.now();
        let request = LockRequest::new("job").shared();
        world.clients[client].core.acquire(&request, now).unwrap();
        world.flow();
    }
    world.answer(0, |args| (args[0] == b"TYPE").then(|| b"+string\r\n".to_vec()));
    let view = broken(&mut world, b"job");
    let state = &view.nodes[0].state;
    assert!(matches!(state, Ok(KeyState::Shared(sharers)) if sharers.count == 2), "{view:?}");
    assert_eq!(view.nodes[0].fate, Some(Fate::Deleted));
}

/// The holder releases between the look and the force-unlock, or the force-unlock is late because
/// the node was stopped. By then another client has the lock.
#[test]
fn the_next_holder_s_lock_is_not_force_unlocked() {
    let mut world = World::new(1).warm();
    world.lock(b"job", secs(20));
    let mut world = world.forgetful();
    let seen = world.value(0, b"job");
    let next = b"ffeeddccbbaa9988776655443322110000";
    world.set(0, b"job", next, 60_000);
    let bulk = [format!("${}\r\n", seen.len()).as_bytes(), &seen, b"\r\n"].concat();
    world.answer(0, move |args| (args[0] == b"GETRANGE").then(|| bulk.clone()));
    for foreign in [false, true] {
        let view = broken_by(&mut world, |core, now| match foreign {
            false => core.force_unlock(b"job", UnlockScope::Locks, now),
            true => core.force_unlock(b"job", UnlockScope::Anything, now),
        });
        assert!(matches!(&view.nodes[0].state, Ok(KeyState::Held(_))), "{view:?}");
        assert_eq!(view.nodes[0].fate, Some(Fate::Gone));
        assert_eq!(world.value(0, b"job"), next);
    }
}

#[test]
fn a_force_unlock_also_reaches_nodes_that_do_not_vote() {
    let mut world = World::new(3).warm();
    world.lock(b"job", secs(10));
    let mut world = world.forgetful();
    world.restart_connections();
    let value = world.own_restart_guard(1, 0);
    world.set_restart_guard(1, &value, BIG_MS + 20_000);
    world.run(secs(1));
    assert_eq!(world.state(1), NodeState::Down(Cause::Quarantined));
    let view = broken(&mut world, b"job");
    assert_eq!(was_held(&view), [true; 3]);
    assert_eq!(world.holders(b"job"), [false; 3]);
}

#[test]
fn each_node_reports_why_it_did_not_force_unlock() {
    let mut world = World::new(3).warm();
    world.lock(b"job", secs(10));
    let mut world = world.forgetful();
    world.stop(0);
    world.pause(1);
    let view = broken(&mut world, b"job");
    assert!(view.nodes[0].state.is_err());
    assert_eq!(view.nodes[1].state, Err(Cause::NoAnswer));
    assert!(matches!(view.nodes[2].state, Ok(KeyState::Held(_))));
}

/// It is not known whether the first script ran. If it did, a second one could break another
/// holder's lock.
#[test]
fn a_force_unlock_is_never_sent_twice() {
    let mut world = World::new(1).warm();
    world.lock(b"job", secs(20));
    let mut world = world.forgetful();
    let is_force_unlock =
        |args: &[&[u8]]| args.get(1).is_some_and(|it| *it == FORCE_UNLOCK.text.as_bytes());
    world.answer(0, move |args| is_force_unlock(args).then(Vec::new));
    let now = world.now();
    let id = world.core().force_unlock(b"job", UnlockScope::Locks, now).unwrap();
    world.flow();
    assert_eq!(world.count("force unlock"), 1);
    world.servers[0].answer = None;
    world.cut(0, 0, Written::Vanishes);
    world.run(secs(3));
    let view = world.core().take_view(id).unwrap();
    assert_eq!(view.nodes[0].state, Err(Cause::ConnectionReset));
    assert_eq!((view.nodes[0].fate, world.count("force unlock")), (None, 1));
    assert_eq!(world.state(0), NodeState::Ready);
}

#[test]
fn a_node_that_forbids_the_force_unlock_script_is_reported() {
    let mut world = World::new(1).warm();
    world.lock(b"job", secs(20));
    let mut world = world.forgetful();
    world.answer(0, |args| args[0].starts_with(b"EVAL").then(|| error("NOPERM no")).flatten());
    let view = broken(&mut world, b"job");
    assert_eq!(view.nodes[0].state, Err(Cause::NoPermission));
    world.servers[0].answer = None;
    world.run(ms(1));
    assert_eq!(world.state(0), NodeState::Ready, "the node remains a voter");
}
