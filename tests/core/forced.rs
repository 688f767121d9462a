//! An operator breaks locks.

use redbolt::proto::{
    Cause, Event, Guard, InputError, KeyState, LossCause, NodeState, View, guard::BIG_MS,
};

use crate::world::{GUARD, World, Written, error, ms, secs};

/// What the first client's order did.
fn broken(world: &mut World, key: &[u8]) -> View {
    let now = world.now();
    let id = world.core().break_lock(key, now).unwrap();
    world.run(secs(3));
    assert_eq!(world.clients[0].events.iter().filter(|(_, e)| *e == Event::Viewed(id)).count(), 1);
    world.core().take_view(id).expect("its time is over")
}

fn was_held(view: &View) -> Vec<bool> {
    view.nodes.iter().map(|node| matches!(node.state, Ok(KeyState::Held(_)))).collect()
}

#[test]
fn the_key_is_gone_and_whose_it_was_is_told() {
    let mut world = World::with(3, 2, |settings| settings.label = b"web-1:77".to_vec()).warm();
    let now = world.now();
    let held = world.clients[1].core.acquire(&redbolt::proto::Ask::new(b"job"), now).unwrap();
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
    assert_eq!(world.ran(0), ["pttl", "break"]);
    assert_eq!(world.holders(b"job"), [false; 3]);
    assert_eq!(world.value(0, b"jo"), b"another");
    assert!(!world.value(0, GUARD).is_empty());
    // The holder learns of it as of any other loss.
    let now = world.now();
    world.clients[1].core.extend(held, secs(10), now).unwrap();
    world.flow();
    assert_eq!(world.clients[1].outcomes(held)[1..], [Event::Lost(held, LossCause::Gone)]);
    let again = broken(&mut world, b"job");
    assert!(again.nodes.iter().all(|node| node.state == Ok(KeyState::Free)));
}

#[test]
fn neither_guards_nor_counters_are_locks() {
    for guard in [Guard::On, Guard::Off] {
        let mut world = World::with(1, 1, |settings| settings.guard = guard).warm();
        let now = world.now();
        let mut refused = |key: &[u8]| world.core().break_lock(key, now).unwrap_err();
        assert_eq!(refused(GUARD), InputError::GuardKey, "also of a client that minds none");
        assert_eq!(refused(b"redbolt:fence:job"), InputError::CounterKey);
        assert_eq!(refused(b""), InputError::EmptyResource);
        assert_eq!(refused(&[0; 70_000]), InputError::ResourceTooLong { len: 70_000 });
        world.flow();
        assert_eq!(world.log.len(), 0, "nothing is sent");
    }
}

#[test]
fn data_of_another_kind_is_left_alone() {
    let mut world = World::new(1).warm();
    let wrong = "WRONGTYPE Operation against a key holding the wrong kind of value";
    for text in [wrong.to_owned(), format!("ERR Error running script (call to f_1): -{wrong}")] {
        world.answer(0, move |args| args[0].starts_with(b"EVAL").then(|| error(&text)).flatten());
        let view = broken(&mut world, b"job");
        assert_eq!(view.nodes[0].state, Err(Cause::WrongType));
    }
}

#[test]
fn a_node_that_does_not_vote_is_told_all_the_same() {
    let mut world = World::new(3).warm();
    world.lock(b"job", secs(10));
    let mut world = world.forgetful();
    world.restart_connections();
    let value = world.own_guard(1, 0);
    world.set_guard(1, &value, BIG_MS + 20_000);
    world.run(secs(1));
    assert_eq!(world.state(1), NodeState::Down(Cause::Quarantined));
    let view = broken(&mut world, b"job");
    assert_eq!(was_held(&view), [true; 3]);
    assert_eq!(world.holders(b"job"), [false; 3]);
}

#[test]
fn each_node_says_for_itself_why_not() {
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

/// Whether it ran is not known: a second one could hit whoever has the lock by then.
#[test]
fn it_is_never_sent_twice() {
    for written in [Written::Runs, Written::Vanishes] {
        let mut world = World::new(1).warm();
        world.lock(b"job", secs(20));
        let mut world = world.forgetful();
        world.pause(0);
        let now = world.now();
        let id = world.core().break_lock(b"job", now).unwrap();
        world.flow();
        world.cut(0, 0, written);
        world.resume(0);
        world.run(secs(3));
        let view = world.core().take_view(id).unwrap();
        assert_eq!(view.nodes[0].state, Err(Cause::ConnectionReset));
        assert_eq!(world.count("break"), usize::from(written == Written::Runs));
    }
}

#[test]
fn a_script_that_the_node_forbids_is_said() {
    let mut world = World::new(1).warm();
    world.answer(0, |args| args[0].starts_with(b"EVAL").then(|| error("NOPERM no")).flatten());
    let view = broken(&mut world, b"job");
    assert_eq!(view.nodes[0].state, Err(Cause::NoPermission));
    world.servers[0].answer = None;
    world.run(ms(1));
    assert_eq!(world.state(0), NodeState::Ready, "it votes on");
}
