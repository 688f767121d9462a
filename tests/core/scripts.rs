//! Scripts that a node has forgotten.

use redbolt::proto::{Event, LockRequest};

use crate::world::{World, Written, error, ms, secs};

/// Returns a world in which all scripts have run once on all connections, and then every node
/// forgot them.
fn flushed(nodes: usize) -> World {
    let mut world = World::new(nodes).warm();
    let many = LockRequest::new(b"warm").and(b"up").ttl(secs(10));
    let id = world.acquire(0, &many, &[b"warm", b"up"]);
    world.extend(id, secs(10));
    world.release(id);
    forget(&mut world);
    world.log.clear();
    world
}

fn forget(world: &mut World) {
    let now = world.server_now();
    for server in &mut world.servers {
        assert_eq!(server.observe(&[b"SCRIPT", b"FLUSH"], now), b"+OK\r\n");
    }
}

#[test]
fn a_release_is_sent_again_by_its_text() {
    let mut world = flushed(3);
    let id = world.lock(b"job", secs(10));
    world.release(id);
    assert_eq!(world.ran(0), ["ask", "check", "undo sha", "undo"]);
    assert!(matches!(world.outcomes(id)[1], Event::Released(_, c) if c.nodes >= 2));
    assert_eq!(world.holders(b"job"), [false; 3]);
    assert_eq!(world.kept(0), (0, 0));
}

#[test]
fn an_extension_is_sent_again_by_its_text() {
    let mut world = flushed(3);
    let id = world.lock(b"job", secs(10));
    world.extend(id, secs(20));
    assert_eq!(world.ran(0), ["ask", "check", "extend sha", "extend"]);
    assert_eq!(world.outcomes(id), [Event::Granted(id), Event::Extended(id)]);
    assert!(world.pttl(0, b"job") > 19_000);
}

#[test]
fn a_request_for_many_keys_is_sent_again_within_its_attempt() {
    let mut world = flushed(3);
    let request = LockRequest::new(b"a").and(b"b").ttl(secs(10));
    let id = world.acquire(0, &request, &[b"a", b"b"]);
    assert!(world.is_granted(id));
    assert_eq!(world.ran(0), ["ask sha", "ask"]);
}

#[test]
fn a_request_whose_attempt_has_ended_is_not_sent_again() {
    let mut world = flushed(3);
    for server in &mut world.servers {
        server.delay = ms(60).as_nanos() as u64;
    }
    let request = LockRequest::new(b"a").and(b"b").ttl(secs(10));
    let id = world.acquire(0, &request, &[b"a", b"b"]);
    world.run(secs(1));
    assert!(matches!(world.outcomes(id)[..], [Event::Refused(..)]));
    assert_eq!(world.ran(0), ["ask sha", "undo sha", "undo"]);
    assert_eq!(world.kept(0), (0, 0));
}

#[test]
fn an_extension_of_an_ended_round_is_not_sent_again() {
    let mut world = flushed(3);
    let id = world.lock(b"job", secs(10));
    for server in &mut world.servers {
        server.delay = ms(60).as_nanos() as u64;
    }
    world.extend(id, secs(20));
    world.run(secs(1));
    assert!(matches!(world.outcomes(id)[..], [Event::Granted(_), Event::NotExtended(..)]));
    assert_eq!(world.ran(0), ["ask", "check", "extend sha"]);
}

#[test]
fn a_new_connection_begins_with_the_text() {
    let mut world = World::new(1).warm();
    let first = world.lock(b"job", secs(10));
    world.release(first);
    let second = world.lock(b"job", secs(10));
    world.release(second);
    world.cut(0, 0, Written::Runs);
    world.run(secs(1));
    let third = world.lock(b"job", secs(10));
    world.release(third);
    let undos: Vec<_> = world.log.iter().filter(|ran| ran.is_undo()).map(|r| r.kind()).collect();
    assert_eq!(undos, ["undo", "undo sha", "undo"]);
}

#[test]
fn several_pending_requests_are_all_sent_again() {
    let mut world = flushed(3);
    let ids: Vec<_> = [b"a", b"b", b"c"].map(|key| world.lock(key, secs(10))).into();
    let now = world.now();
    for &id in &ids {
        world.core().release(id, now);
    }
    world.flow();
    assert_eq!(world.count("undo sha") + world.count("undo"), 3 * (3 + 3));
    for key in [b"a", b"b", b"c"] {
        assert_eq!(world.holders(key), [false; 3]);
    }
    assert_eq!(world.kept(0), (0, 0));
}

/// A node that does not even accept a script's text must not be asked at wire speed.
#[test]
fn a_node_that_never_accepts_a_script_is_asked_with_pauses() {
    let mut world = World::new(1).warm();
    world.servers[0].delay = ms(1).as_nanos() as u64;
    world.answer(0, |args| args[0].starts_with(b"EVAL").then(|| error("NOSCRIPT none")).flatten());
    let many = LockRequest::new(b"a").and(b"b");
    let refused = world.acquire(0, &many, &[b"a", b"b"]);
    let id = world.lock(b"job", secs(10));
    world.run(ms(10));
    assert!(matches!(world.outcomes(refused)[..], [Event::Refused(..)]), "at once");
    world.log.clear();
    world.extend(id, secs(10));
    world.run(ms(100));
    let extensions = world.count("extend") + world.count("extend sha");
    assert!(extensions <= 2, "{extensions} extensions");
    world.release(id);
    world.run(secs(5));
    let undos = world.count("undo") + world.count("undo sha");
    assert!((5..60).contains(&undos), "{undos} undos of two attempts in 5 s");
}

#[test]
fn a_request_without_a_script_is_not_sent_again() {
    let mut world = World::new(1).warm();
    world.answer(0, |args| (args[0] == b"SET").then(|| error("NOSCRIPT what")).flatten());
    let id = world.lock(b"job", secs(10));
    assert!(matches!(world.outcomes(id)[..], [Event::Refused(..)]));
    assert_eq!(world.ran(0), ["ask", "check", "undo"]);
}
