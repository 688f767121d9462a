//! Ghosts: bytes of a dead connection that may still run, behind an undo on a newer connection.

use redbolt::proto::{Cause, Event, LockRequest, NodeState, RestartTrust};
use redbolt_node::Memory;

use crate::world::{World, Written, error, ms, secs};

const TTL: std::time::Duration = secs(20);

/// Returns a world in which the last node alone has the request, without its undo, in a dead
/// connection. The other nodes will deny.
fn with_ghost(spoil: impl FnOnce(&mut World)) -> World {
    leave_ghost(World::new(3).warm(), spoil)
}

fn leave_ghost(mut world: World, spoil: impl FnOnce(&mut World)) -> World {
    for node in 0..3 {
        // Two denials refuse the lock, so that its undo is due on all nodes.
        if node < 2 {
            world.set(node, b"job", b"theirs", 60_000);
        }
        world.pause(node);
    }
    world.lock(b"job", TTL);
    spoil(&mut world);
    world.cut(0, 2, Written::LeavesGhost);
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
    let mut world = with_ghost(|_| {});
    world.run(ms(100));
    let ran = world.ran(2);
    let place = |kind| ran.iter().position(|&other| other == kind);
    assert!(place("kill").is_some() && place("kill") < place("undo"), "{ran:?}");
    world.free_ghosts();
    assert_eq!(world.holders(b"job"), [true, true, false], "the ghost cannot run any more");
    assert_eq!(world.kept(0), (0, 0));
}

#[test]
fn the_connection_of_a_held_lock_is_killed_too() {
    let mut world = World::new(3).warm();
    world.pause(2);
    let id = world.lock(b"job", TTL);
    world.cut(0, 2, Written::LeavesGhost);
    world.resume(2);
    world.run(ms(100));
    assert_eq!(world.count("kill"), 1);
    // Nothing runs, because the connection with the ghost was killed.
    world.free_ghosts();
    world.release(id);
    assert_eq!(world.holders(b"job"), [false; 3]);
    assert_eq!(world.kept(0), (0, 0));
}

#[test]
fn no_connection_is_killed_if_every_request_was_answered() {
    let mut world = World::new(3).warm();
    let id = world.lock(b"job", TTL);
    // The written bytes still run, so nothing of this connection can run later.
    world.cut(0, 2, Written::Runs);
    world.release(id);
    world.run(secs(1));
    assert_eq!(world.count("kill"), 0);
    assert_eq!(world.holders(b"job"), [false; 3]);
}

/// The connection ids of another process belong to other clients.
#[test]
fn no_connection_of_another_process_is_killed() {
    let mut world = with_ghost(|world| {
        world.stop(2);
        world.start(2, Memory::Kept);
    });
    world.run(secs(1));
    assert_eq!(world.count("kill"), 0);
    assert!(world.ran(2).contains(&"undo"));
}

#[test]
fn without_a_kill_the_undo_is_sent_again_at_half_of_the_ttl() {
    let mut world = with_ghost(|world| refuse_kills(world, 2));
    world.run(ms(100));
    assert_eq!(world.kept(0), (0, 1), "the ghost may still run");
    let undone = world.log.iter().rfind(|ran| ran.is_undo() && ran.node == 2).unwrap().at;
    world.free_ghosts();
    assert_eq!(world.holders(b"job"), [true; 3], "the ghost runs");
    world.run(secs(11));
    let undos: Vec<_> = world.log.iter().filter(|r| r.is_undo() && r.node == 2).collect();
    assert_eq!(undos.len(), 2);
    let later = (undos[1].at - undone) / 1_000_000;
    // The second undo counts from the first, because the ghost may run at any time in between.
    assert!((9_900..=10_000).contains(&later), "after {later} ms");
    assert_eq!(world.holders(b"job"), [true, true, false]);
    assert_eq!(world.kept(0), (0, 0));
}

/// The id of only one of two connections is known; killing that one would leave the other ghost.
#[test]
fn one_kill_does_not_end_ghosts_in_two_connections() {
    let mut world = World::new(3).warm();
    refuse_kills(&mut world, 2);
    world.pause(2);
    let held = world.lock(b"job", TTL);
    world.cut(0, 2, Written::LeavesGhost);
    world.resume(2);
    world.run(ms(100));
    for node in 0..3 {
        if node < 2 {
            world.set(node, b"other", b"theirs", 60_000);
        }
        world.pause(node);
    }
    world.lock(b"other", TTL);
    world.cut(0, 2, Written::LeavesGhost);
    // From here on a kill would be permitted, but it would reach one connection only.
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

/// The second undo keeps its timer while other timers fire and an answer completes the release.
#[test]
fn the_second_undo_keeps_its_timer() {
    let mut world = World::with(3, 1, |settings| settings.dead_peer_timeout = secs(60)).warm();
    world.pause(2);
    let id = world.lock(b"job", TTL);
    refuse_kills(&mut world, 2);
    world.cut(0, 2, Written::LeavesGhost);
    world.resume(2);
    world.run(secs(1));

    world.pause(0);
    world.pause(1);
    world.lock(b"other", secs(30));
    world.run(ms(20));
    world.release(id);
    world.run(ms(35));
    assert_eq!(world.kept(0).0, 1, "a timer of the other lock has fired, and the release goes on");
    world.resume(0);
    world.resume(1);
    assert_eq!(world.kept(0), (0, 1));
    world.free_ghosts();
    assert_eq!(world.holders(b"job"), [false, false, true]);
    world.run(secs(11));
    assert_eq!(world.holders(b"job"), [false; 3]);
    assert_eq!(world.kept(0), (0, 0));
}

/// The lock still had its claim when the second undo fell due. When it is released, a connection
/// fails at the same moment, before any timer is checked.
#[test]
fn a_second_undo_that_was_due_while_the_lock_was_held_is_due_at_its_end() {
    let mut world = World::new(3);
    world.pause(2);
    let id = world.lock(b"job", TTL);
    world.run(secs(2));
    world.resume(2);
    // Its validity ends a little before its keys do.
    world.run(ms(17_850));
    assert!(matches!(world.outcomes(id)[..], [Event::Granted(_), Event::Lost(..)]));
    let undos = |world: &World| world.log.iter().filter(|r| r.is_undo() && r.node == 2).count();
    let before = undos(&world);
    assert!(before > 0, "the node may not vote, so its request is undone");
    world.let_go(0, id);
    let (now, link) = (world.now(), world.link(1));
    world.core().disconnected(link, Cause::ConnectionReset, now);
    assert_eq!(world.core().poll_timeout().filter(|&at| at <= now.boot), Some(now.boot));
    world.run(ms(100));
    assert!(undos(&world) > before);
    assert_eq!(world.kept(0), (0, 0));
}

/// The kill must name the ghost's connection, and that connection died before its handshake
/// returned its id.
#[test]
fn a_kill_of_another_connection_ends_no_ghost() {
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
    world.cut(0, 2, Written::LeavesGhost);
    for node in 0..3 {
        world.resume(node);
    }
    world.run(secs(2));
    assert_eq!(world.kept(0), (0, 1), "a second undo will follow");
    world.free_ghosts();
    assert_eq!(world.holders(b"job"), [true; 3]);
    world.run(secs(9));
    assert_eq!(world.holders(b"job"), [true, true, false]);
    assert_eq!(world.kept(0), (0, 0));
}

/// Ids start again with each process: another client now has our old connection's id.
#[test]
fn no_other_client_s_connection_is_killed_after_a_restart() {
    for memory in [Memory::Kept, Memory::Lost] {
        let mut world = with_ghost(|world| world.restart(2, memory)).forgetful();
        let stranger = world.join(|_| {});
        world.run(secs(5));
        let node = world.node(2);
        let reported: Vec<_> =
            world.clients[stranger].states.iter().filter(|(of, _)| *of == node).collect();
        let lost =
            |state: &NodeState| matches!(state, NodeState::Down(c) if *c != Cause::Quarantined);
        assert!(
            !reported.is_empty() && !reported.iter().any(|(_, state)| lost(state)),
            "{reported:?}"
        );
        assert_eq!(world.count("kill"), 0);
    }
}

/// If the kill fails for any reason, the undo is sent after the reconnect, and again at half of the
/// TTL.
#[test]
fn without_a_kill_the_undo_is_sent_twice() {
    let no = |world: &mut World, word: &'static [u8]| {
        world.answer(2, move |args| {
            (args[0] == word || args.get(1) == Some(&word)).then(|| error("NOPERM no")).flatten()
        });
    };
    type Forbid = fn(&mut World, fn(&mut World, &'static [u8]));
    let table: [(&str, Forbid, usize); 4] = [
        ("kill", |world, no| no(world, b"KILL"), 1),
        ("id", |world, no| no(world, b"ID"), 0),
        ("run id", |world, no| no(world, b"INFO"), 0),
        ("restart", |world, _| world.restart(2, Memory::Kept), 0),
    ];
    for (what, forbid, kills) in table {
        // The first connection's id is unknown as well.
        let early = matches!(what, "id" | "run id");
        let mut world = World::with(3, 1, |settings| {
            settings.nodes[2].restart_trust = RestartTrust::MarkerOnly;
        });
        if early {
            forbid(&mut world, no);
        }
        let mut world = leave_ghost(world.warm(), |world| {
            if !early {
                forbid(world, no);
            }
        });
        world.run(secs(9));
        let undos =
            |world: &World| world.log.iter().filter(|ran| ran.is_undo() && ran.node == 2).count();
        assert_eq!((world.count("kill"), undos(&world)), (kills, 1), "{what}");
        if what != "restart" {
            world.free_ghosts();
            assert_eq!(world.holders(b"job"), [true; 3], "{what}: the ghost runs");
        }
        world.run(ms(1_500));
        assert_eq!(undos(&world), 2, "{what}");
        assert_eq!(world.holders(b"job"), [true, true, false], "{what}");
        assert_eq!(world.kept(0), (0, 0), "{what}");
    }
}

/// After the second undo, only the TTL bounds the ghost.
#[test]
fn the_ttl_bounds_a_ghost() {
    let mut world = with_ghost(|world| refuse_kills(world, 2));
    world.run(secs(15));
    assert_eq!(world.kept(0), (0, 0), "nothing is owed any more");
    world.free_ghosts();
    assert_eq!(world.holders(b"job"), [true; 3]);
    world.run(TTL - ms(1));
    assert_eq!(world.holders(b"job"), [true; 3]);
    world.run(ms(2));
    assert_eq!(world.holders(b"job"), [true, true, false]);
}

/// A node that refuses every undo gets undos only as long as a key can live.
#[test]
fn nothing_is_owed_for_longer_than_the_ttl() {
    let mut world = with_ghost(|world| {
        world.answer(2, |args| {
            (args[0].starts_with(b"EVAL") || args.get(1) == Some(&&b"KILL"[..]))
                .then(|| error("MISCONF disk"))
                .flatten()
        });
    });
    world.run(TTL - secs(1));
    assert_eq!(world.kept(0), (0, 1));
    world.run(secs(2));
    assert_eq!(world.kept(0), (0, 0));
    world.log.clear();
    world.run(TTL);
    assert_eq!(world.count("undo") + world.count("undo sha"), 0);
}

/// A node that is quarantined by then may have ghosts as well.
#[test]
fn a_ghost_is_killed_on_a_node_that_does_not_vote() {
    let mut world = with_ghost(|world| world.flush(2));
    world.run(ms(100));
    assert_eq!(world.state(2), NodeState::Down(Cause::Quarantined));
    let ran = world.ran(2);
    let place = |kind| ran.iter().position(|&other| other == kind);
    assert!(place("kill").is_some() && place("kill") < place("undo"), "{ran:?}");
    world.free_ghosts();
    assert_eq!(world.holders(b"job"), [true, true, false]);
    assert_eq!(world.kept(0), (0, 0));
}

/// The write-back of a failed attempt can also arrive late: by then the lock is undone.
#[test]
fn a_ghost_of_a_fenced_request_is_killed() {
    let mut world = World::new(3).warm();
    for node in 0..3 {
        if node < 2 {
            world.set(node, b"job", b"theirs", 60_000);
        }
        world.pause(node);
    }
    world.acquire(0, &LockRequest::new(b"job").fenced().ttl(TTL), &[b"job"]);
    world.cut(0, 2, Written::LeavesGhost);
    for node in 0..3 {
        world.resume(node);
    }
    world.run(ms(100));
    assert_eq!(world.count("kill"), 1);
    world.free_ghosts();
    assert_eq!(world.holders(b"job"), [true, true, false]);
    assert_eq!(world.kept(0), (0, 0));
}

/// The extension from a dead connection runs after a later one.
#[test]
fn a_ghost_of_an_extension_shortens_nothing() {
    let mut world = World::new(3).warm();
    let id = world.lock(b"job", secs(10));
    world.pause(2);
    world.extend(id, secs(11));
    world.cut(0, 2, Written::LeavesGhost);
    world.resume(2);
    world.run(ms(100));
    world.extend(id, TTL);
    let before = world.pttl(2, b"job");
    assert!(before > 19_000);
    world.free_ghosts();
    assert_eq!(world.pttl(2, b"job"), before);
}

/// The ghost of an extension does not bring back a released lock either.
#[test]
fn a_ghost_of_an_extension_revives_nothing() {
    let mut world = World::new(3).warm();
    let id = world.lock(b"job", secs(10));
    world.pause(2);
    world.extend(id, TTL);
    world.cut(0, 2, Written::LeavesGhost);
    world.resume(2);
    world.run(ms(100));
    world.release(id);
    assert_eq!(world.holders(b"job"), [false; 3]);
    world.free_ghosts();
    assert_eq!(world.holders(b"job"), [false; 3]);
    assert_eq!(world.kept(0), (0, 0));
}

/// The state of another lock is forgotten first, and the ghost runs after that.
#[test]
fn a_second_undo_is_not_hastened_by_the_end_of_another_lock() {
    let mut world = with_ghost(|world| refuse_kills(world, 2));
    world.run(ms(100));
    world.pause(1);
    let other = world.lock(b"other", secs(1));
    world.release(other);
    world.run(secs(2));
    assert_eq!(world.kept(0), (0, 1), "the ghost is not laid, and the other lock is forgotten");
    world.resume(1);
    world.free_ghosts();
    assert_eq!(world.holders(b"job"), [true; 3], "it runs");
    world.run(secs(9));
    assert_eq!(world.holders(b"job"), [true, true, false]);
    assert_eq!(world.kept(0), (0, 0));
}
