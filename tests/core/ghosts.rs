//! Ghosts: bytes in a connection that has died may still run, behind an undo on a newer one.

use redbolt_node::Memory;

use crate::world::{World, Written, error, ms, secs};

const TTL: std::time::Duration = secs(20);

/// The others will deny; the last node has the ask alone, without its undo, in a connection that
/// died.
fn haunted(spoil: impl FnOnce(&mut World)) -> World {
    let mut world = World::new(3).warm();
    for node in 0..3 {
        if node < 2 {
            world.set(node, b"job", b"theirs", 60_000);
        }
        world.pause(node);
    }
    world.lock(b"job", TTL);
    spoil(&mut world);
    world.cut(0, 2, Written::Haunts);
    for node in 0..3 {
        world.resume(node);
    }
    world
}

fn refuse_kills(world: &mut World, node: usize) {
    world.answer(node, |args| {
        (args.get(1) == Some(&&b"KILL"[..])).then(|| error("NOPERM no")).flatten()
    });
}

#[test]
fn the_old_connection_is_killed_before_the_undo() {
    let mut world = haunted(|_| {});
    world.run(ms(100));
    let ran = world.ran(2);
    let place = |kind| ran.iter().position(|&other| other == kind);
    assert!(place("kill").is_some() && place("kill") < place("undo"), "{ran:?}");
    world.free_ghosts();
    assert_eq!(world.holders(b"job"), [true, true, false], "the ghost was laid");
    assert_eq!(world.kept(0), (0, 0));
}

#[test]
fn the_connection_of_a_lock_that_is_held_is_killed_too() {
    let mut world = World::new(3).warm();
    world.pause(2);
    let id = world.lock(b"job", TTL);
    world.cut(0, 2, Written::Haunts);
    world.resume(2);
    world.run(ms(100));
    assert_eq!(world.count("kill"), 1);
    world.free_ghosts();
    world.release(id);
    assert_eq!(world.holders(b"job"), [false; 3]);
    assert_eq!(world.kept(0), (0, 0));
}

#[test]
fn nobody_is_killed_when_every_ask_was_answered() {
    let mut world = World::new(3).warm();
    let id = world.lock(b"job", TTL);
    world.cut(0, 2, Written::Runs);
    world.release(id);
    world.run(secs(1));
    assert_eq!(world.count("kill"), 0);
    assert_eq!(world.holders(b"job"), [false; 3]);
}

/// The ids of another process are those of strangers.
#[test]
fn nobody_is_killed_in_another_process() {
    let mut world = haunted(|world| {
        world.stop(2);
        world.start(2, Memory::Kept);
    });
    world.run(secs(1));
    assert_eq!(world.count("kill"), 0);
    assert!(world.ran(2).contains(&"undo"));
}

#[test]
fn without_a_kill_the_undo_is_sent_again_at_half_of_the_ttl() {
    let mut world = haunted(|world| refuse_kills(world, 2));
    world.run(ms(100));
    assert_eq!(world.kept(0), (0, 1), "the ghost is not laid");
    let undone = world.log.iter().rfind(|ran| ran.is_undo() && ran.node == 2).unwrap().at;
    world.free_ghosts();
    assert_eq!(world.holders(b"job"), [true; 3], "and it runs");
    world.run(secs(11));
    let undos: Vec<_> = world.log.iter().filter(|r| r.is_undo() && r.node == 2).collect();
    assert_eq!(undos.len(), 2);
    let later = (undos[1].at - undone) / 1_000_000;
    assert!((9_900..=10_000).contains(&later), "after {later} ms");
    assert_eq!(world.holders(b"job"), [true, true, false]);
    assert_eq!(world.kept(0), (0, 0));
}

/// One of two connections is known by name; to kill that one would lay half of the ghosts.
#[test]
fn ghosts_in_two_connections_are_not_laid_by_one_kill() {
    let mut world = World::new(3).warm();
    refuse_kills(&mut world, 2);
    world.pause(2);
    let held = world.lock(b"job", TTL);
    world.cut(0, 2, Written::Haunts);
    world.resume(2);
    world.run(ms(100));
    for node in 0..3 {
        if node < 2 {
            world.set(node, b"other", b"theirs", 60_000);
        }
        world.pause(node);
    }
    world.lock(b"other", TTL);
    world.cut(0, 2, Written::Haunts);
    world.servers[2].answer = None;
    for node in 0..3 {
        world.resume(node);
    }
    world.run(secs(2));
    world.free_ghosts();
    assert!(world.holders(b"other")[2], "the ghost runs");
    world.run(secs(10));
    assert_eq!(world.holders(b"other"), [true, true, false]);
    world.release(held);
    assert_eq!(world.holders(b"job"), [false; 3]);
    world.run(secs(10));
    assert_eq!(world.kept(0), (0, 0));
}

/// The second undo keeps its timer while other timers fire and the release ends by an answer.
#[test]
fn the_second_undo_keeps_its_timer() {
    let mut world = World::with(3, 1, |settings| settings.dead_after = secs(60)).warm();
    world.pause(2);
    let id = world.lock(b"job", TTL);
    refuse_kills(&mut world, 2);
    world.cut(0, 2, Written::Haunts);
    world.resume(2);
    world.run(secs(1));

    world.pause(0);
    world.pause(1);
    world.lock(b"other", secs(30));
    world.run(ms(20));
    world.release(id);
    world.run(ms(35));
    assert_eq!(world.kept(0).0, 1, "a timer of the other lock fired, the release goes on");
    world.resume(0);
    world.resume(1);
    assert_eq!(world.kept(0), (0, 1));
    world.free_ghosts();
    assert_eq!(world.holders(b"job"), [false, false, true]);
    world.run(secs(11));
    assert_eq!(world.holders(b"job"), [false; 3]);
    assert_eq!(world.kept(0), (0, 0));
}

/// The kill must name the connection that the ghost is in: here that is one which died before its
/// greeting told its id.
#[test]
fn a_kill_of_another_connection_lays_no_ghost() {
    let mut world = World::new(3).warm();
    world.cut(0, 2, Written::Runs);
    for node in 0..3 {
        world.pause(node);
    }
    world.run(ms(30));
    for node in [0, 1] {
        world.set(node, b"job", b"theirs", 60_000);
    }
    world.lock(b"job", TTL);
    world.cut(0, 2, Written::Haunts);
    for node in 0..3 {
        world.resume(node);
    }
    world.run(secs(2));
    assert_eq!(world.kept(0), (0, 1), "the undo will be sent again");
    world.free_ghosts();
    assert_eq!(world.holders(b"job"), [true; 3]);
    world.run(secs(9));
    assert_eq!(world.holders(b"job"), [true, true, false]);
    assert_eq!(world.kept(0), (0, 0));
}
