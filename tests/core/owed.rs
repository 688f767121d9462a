//! Owed undos: a release or an undo is repeated until the node has confirmed it, or its key has
//! expired.

use std::time::Duration;

use redbolt::proto::{Cause, Event, LockRequest, LockState, NodeState, Vote};
use redbolt_node::Memory;

use crate::world::{Accept, Ran, World, Written, bulk, error, ms, secs};

fn scripts_fail(world: &mut World, node: usize, text: &'static str) {
    world.answer(node, move |args| args[0].starts_with(b"EVAL").then(|| error(text)).flatten());
}

/// Returns a lock on all three nodes, whose release the last one did not confirm.
fn owing() -> World {
    let mut world = World::new(3).warm();
    let id = world.lock(b"job", secs(20));
    scripts_fail(&mut world, 2, "NOREPLICAS Not enough good replicas to write.");
    world.release(id);
    world
}

#[test]
fn an_error_does_not_confirm_an_undo() {
    for text in [
        "NOREPLICAS Not enough good replicas to write.",
        "MISCONF Redis is configured to save RDB snapshots",
        "LOADING Redis is loading the dataset in memory",
        "NOAUTH Authentication required.",
        "BUSY Redis is busy running a script.",
        "READONLY You can't write against a read only replica.",
        "OOM command not allowed when used memory > 'maxmemory'.",
        "WRONGTYPE Operation against a key holding the wrong kind of value",
        "WHATEVER",
    ] {
        let mut world = World::new(3).warm();
        let id = world.lock(b"job", secs(20));
        scripts_fail(&mut world, 2, text);
        world.release(id);
        assert!(matches!(world.outcomes(id)[1], Event::Released(_, c) if c.nodes == 2));
        world.run(secs(5));
        assert_eq!(world.kept(0), (0, 1), "{text}");
        assert!(world.core().has_pending_releases());
        let undos = world.ran(2).iter().filter(|kind| kind.starts_with("undo")).count();
        // The undo is repeated, with a pause between two attempts.
        assert!((5..20).contains(&undos), "{text}: {undos} in 5 s");
        world.servers[2].answer = None;
        // The longest pause between two attempts is one second.
        world.run(ms(1_100));
        assert_eq!(world.holders(b"job"), [false; 3], "{text}");
        assert_eq!(world.kept(0), (0, 0), "{text}");
        assert!(!world.core().has_pending_releases());
    }
}

/// A node that grants locks but would not undo them may not vote.
#[test]
fn a_node_that_forbids_the_undo_does_not_vote() {
    let mut world = World::new(1).warm();
    let id = world.lock(b"job", secs(20));
    scripts_fail(&mut world, 0, "NOPERM this user has no permissions to run the 'eval' command");
    world.release(id);
    for _ in 0..10 {
        world.run(ms(333));
        let id = world.lock(b"another", secs(20));
        world.run(ms(200));
        match world.outcomes(id)[..] {
            [Event::Refused(_, refusal)] => {
                let vote = refusal.votes.of(world.node(0));
                let expected = [Cause::NoPermission, Cause::ScriptsForbidden];
                assert!(expected.iter().any(|&cause| vote == Some(Vote::Fail(cause))), "{vote:?}");
            }
            ref other => panic!("{other:?}"),
        }
    }
    world.servers[0].answer = None;
    world.run(ms(1_100));
    assert_eq!(world.holders(b"job"), [false]);
    assert_eq!(world.holders(b"another"), [false]);
    assert_eq!(world.kept(0), (0, 0));
}

#[test]
fn an_owed_undo_survives_lost_connections() {
    let mut world = owing();
    for _ in 0..5 {
        world.cut(0, 2, Written::Vanishes);
        world.run(ms(1_500));
        assert_eq!(world.kept(0), (0, 1));
    }
    world.servers[2].answer = None;
    world.cut(0, 2, Written::Vanishes);
    world.run(ms(1_500));
    assert_eq!(world.holders(b"job"), [false; 3]);
    assert_eq!(world.kept(0), (0, 0));
}

#[test]
fn an_owed_undo_survives_a_restart_with_the_keys() {
    let mut world = World::new(3).warm();
    let id = world.lock(b"job", secs(20));
    world.stop(2);
    world.release(id);
    assert_eq!(world.kept(0), (0, 1));
    world.run(secs(3));
    world.start(2, Memory::Kept);
    assert_eq!(world.holders(b"job"), [false, false, true]);
    // The backoff may delay the new connection by a second.
    world.run(ms(1_500));
    assert_eq!(world.holders(b"job"), [false; 3]);
    assert_eq!(world.kept(0), (0, 0));
}

#[test]
fn a_failed_handshake_still_sends_what_is_owed() {
    let mut world = World::new(3).warm();
    let id = world.lock(b"job", secs(20));
    world.stop(2);
    world.release(id);
    world.start(2, Memory::Kept);
    // A replica may not vote, but an undo on it can only delete our own key.
    world.answer(2, |args| {
        (args.get(1) == Some(&&b"replication"[..])).then(|| bulk("role:slave\r\n")).flatten()
    });
    world.run(secs(2));
    let node = world.node(2);
    assert_eq!(world.core().node_state(node), NodeState::Down(Cause::Replica));
    assert_eq!(world.holders(b"job"), [false; 3]);
    assert_eq!(world.kept(0), (0, 0));
}

#[test]
fn an_owed_undo_is_forgotten_one_ttl_later() {
    let mut world = owing();
    world.run(ms(19_900));
    assert_eq!(world.kept(0), (0, 1));
    // By then the key has expired on the node, with the drift of its clock.
    world.run(ms(101));
    assert_eq!(world.kept(0), (0, 0));
    world.log.clear();
    world.servers[2].answer = None;
    world.run(secs(5));
    assert_eq!(world.ran(2), [""; 0], "no more undos are sent");
}

#[test]
fn an_extension_that_may_have_run_prolongs_it() {
    let mut world = World::new(3).warm();
    let id = world.lock(b"job", secs(10));
    world.run(secs(5));
    world.extend(id, secs(20));
    scripts_fail(&mut world, 2, "MISCONF no");
    world.release(id);
    // The extension ran, so the node keeps the key for 20 s from then on.
    world.run(ms(19_900));
    assert_eq!(world.kept(0), (0, 1));
    world.run(ms(101));
    assert_eq!(world.kept(0), (0, 0));
}

#[test]
fn a_lost_lock_that_is_never_released_is_forgotten_with_its_keys() {
    let mut world = World::new(3).warm();
    let id = world.lock(b"job", secs(10));
    world.run(ms(9_999));
    assert_eq!(world.kept(0), (1, 1));
    assert!(matches!(world.core().state(id), LockState::Lost(_)));
    world.run(ms(2));
    assert_eq!(world.kept(0), (0, 0));
}

#[test]
fn an_undo_is_not_sent_at_wire_speed() {
    let mut world = owing();
    world.log.clear();
    world.run(secs(10));
    let undos = world.ran(2).len();
    assert!((8..25).contains(&undos), "{undos} in 10 s");
}

#[test]
fn a_node_that_was_down_gets_its_undo_when_it_is_back() {
    let mut world = World::new(3).warm();
    for node in [0, 1] {
        // The first lock is refused, so that its claim is undone as well.
        world.set(node, b"job", b"theirs", 60_000);
    }
    world.lock(b"job", secs(20));
    let id = world.lock(b"other", secs(20));
    world.servers[2].accept = Accept::Silent;
    world.cut(0, 2, Written::Vanishes);
    world.release(id);
    world.run(secs(3));
    assert_eq!(world.kept(0), (0, 1));
    world.servers[2].accept = Accept::Yes;
    world.run(secs(3));
    assert_eq!(world.holders(b"other"), [false; 3]);
    assert_eq!(world.kept(0), (0, 0));
}

/// In another database the undo finds no key, and that answer does not confirm it.
#[test]
fn an_undo_is_not_sent_to_the_wrong_database() {
    let mut world = World::with(3, 1, |settings| {
        settings.nodes.iter_mut().for_each(|node| node.database = 3);
    });
    let now = world.server_now();
    world.servers.iter_mut().for_each(|server| server.inspect("3", now));
    let mut world = world.warm();
    let id = world.lock(b"job", secs(20));
    assert_eq!(world.holders(b"job"), [true; 3]);
    world.answer(2, |args| {
        // The error is temporary, so that the node is tried again.
        (args[0] == b"SELECT").then(|| error("BUSY Redis is busy running a script.")).flatten()
    });
    world.cut(0, 2, Written::Runs);
    world.release(id);
    world.run(secs(1));
    assert!(world.ran(2).contains(&"select"), "the node was reached");
    assert_eq!(world.holders(b"job"), [false, false, true]);
    assert_eq!(world.kept(0), (0, 1), "the undo is still owed");
    world.servers[2].answer = None;
    world.run(ms(1_500));
    assert_eq!(world.holders(b"job"), [false; 3]);
    assert_eq!(world.kept(0), (0, 0));
}

/// Requests may follow a handshake at once if an earlier one has succeeded. The undo of a request
/// from an earlier connection is sent with it. In the wrong database it finds no key, and its reply
/// must not count.
#[test]
fn an_undo_sent_with_a_failed_handshake_is_not_confirmed() {
    // The handshake is answered with an error, or incompletely within its time.
    for is_answered in [true, false] {
        let mut world = World::with(3, 1, |settings| {
            settings.nodes.iter_mut().for_each(|node| node.database = 3);
        });
        let now = world.server_now();
        world.servers.iter_mut().for_each(|server| server.inspect("3", now));
        let mut world = world.warm();
        let id = world.lock(b"job", secs(20));
        assert_eq!(world.holders(b"job"), [true; 3]);
        world.answer(2, |args| {
            (args[0] == b"SELECT").then(|| error("BUSY Redis is busy running a script.")).flatten()
        });
        world.pause(2);
        world.cut(0, 2, Written::Runs);
        let link = world.link(2);
        world.run_until(secs(2), |world| world.core().is_awaited(link));
        world.release(id);
        world.run(if is_answered { ms(1) } else { ms(510) });
        world.resume(2);
        world.run(ms(20));
        assert!(world.ran(2).contains(&"undo"), "the undo was sent behind the handshake");
        assert_eq!(world.holders(b"job"), [false, false, true]);
        assert_eq!(world.kept(0), (0, 1), "the undo is still owed");
        world.servers[2].answer = None;
        world.run(secs(3));
        assert_eq!(world.holders(b"job"), [false; 3]);
        assert_eq!(world.kept(0), (0, 0));
    }
}

/// An address leads to another node's server for a while. The undo would find no key there, and
/// that answer would count as a confirmation.
#[test]
fn an_undo_is_not_sent_to_the_server_of_another_node() {
    let mut world = World::new(3).warm();
    let id = world.lock(b"job", secs(20));
    world.answer(2, |args| match args {
        // This is the run id of the first node.
        [b"INFO", b"server"] => bulk(&format!("run_id:{:040}\r\n", 0)),
        [b"EVAL" | b"EVALSHA", _, _, b"job", _] => Some(b":0\r\n".to_vec()),
        _ => None,
    });
    world.cut(0, 2, Written::Runs);
    world.release(id);
    world.run(secs(1));
    assert_eq!(world.state(2), NodeState::Down(Cause::SameServer), "the server was reached");
    assert_eq!(world.holders(b"job"), [false, false, true]);
    assert_eq!(world.kept(0), (0, 1), "the undo is still owed");
    world.servers[2].answer = None;
    world.run(secs(3));
    assert_eq!(world.holders(b"job"), [false; 3]);
    assert_eq!(world.kept(0), (0, 0));
}

/// The error does not show how far the script came. So the undo is owed, even if the node refuses
/// undos as well.
#[test]
fn a_script_that_failed_may_have_set_a_key() {
    let mut world = World::new(3).warm();
    scripts_fail(&mut world, 2, "MISCONF Redis is configured to save RDB snapshots");
    let request = LockRequest::new(b"a").and(b"b").ttl(secs(20));
    let id = world.acquire(0, &request, &[b"a", b"b"]);
    let mut token = world.value(0, b"a");
    // The last two digits of a token are the number of the node.
    token[32..34].copy_from_slice(b"02");
    world.set(2, b"a", &token, 20_000);
    world.release(id);
    world.run(secs(1));
    assert_eq!(world.holders(b"a"), [false, false, true]);
    assert_eq!(world.kept(0), (0, 1), "a refused undo is not confirmed");
    world.servers[2].answer = None;
    world.run(ms(1_100));
    assert_eq!(world.holders(b"a"), [false; 3]);
    assert_eq!(world.kept(0), (0, 0));
}

/// A node that refuses both lock requests and undos has nothing to undo.
#[test]
fn a_failing_minority_is_not_flooded_with_undos() {
    const LOCKS: usize = 500;
    let mut world = World::new(3).warm();
    world.answer(2, |args| {
        let sick = args[0] == b"SET" || args[0].starts_with(b"EVAL");
        sick.then(|| error("MISCONF Redis is configured to save RDB snapshots")).flatten()
    });
    for _ in 0..LOCKS {
        let id = world.lock(b"job", secs(10));
        assert!(world.is_granted(id));
        world.release(id);
        world.run(Duration::from_micros(2_500));
    }
    assert_eq!(world.kept(0), (0, 0), "claims do not pile up");
    let on_sick = |is: fn(&Ran) -> bool| world.log.iter().filter(|r| r.node == 2 && is(r)).count();
    assert_eq!(on_sick(Ran::is_ask), LOCKS);
    // Each request has its undo in the same flight; no undo is for an earlier lock.
    let undos = on_sick(Ran::is_undo);
    assert!(undos <= LOCKS + LOCKS / 10, "{undos} undos for {LOCKS} asks");
}

/// After a hundred refused undos, a single one probes whether the node accepts them again.
#[test]
fn many_refused_undos_are_probed_by_one() {
    let mut world = World::new(3).warm();
    scripts_fail(&mut world, 2, "MISCONF Redis is configured to save RDB snapshots");
    for at in 0..100 {
        let id = world.lock(&[at], secs(30));
        world.release(id);
    }
    assert_eq!(world.kept(0), (0, 100));
    world.run(secs(1));
    // By now the undos that were sent with the releases have been refused.
    world.log.clear();
    world.run(secs(10));
    let probes = world.ran(2).len();
    assert!((8..25).contains(&probes), "{probes} in 10 s");
    world.servers[2].answer = None;
    world.run(ms(1_100));
    assert_eq!(world.kept(0), (0, 0), "the others are sent once that one is confirmed");
    assert!((0..100).all(|at| world.value(2, &[at]).is_empty()));
}

/// Its release was lost with the connection, and has to come before the next request.
#[test]
fn a_released_lock_does_not_deny_the_next() {
    let mut world = World::new(1).warm();
    let id = world.lock(b"job", secs(20));
    world.run(ms(100));
    world.pause(0);
    world.release(id);
    // The undo never arrives on this connection.
    world.cut(0, 0, Written::Vanishes);
    world.resume(0);
    let id = world.lock(b"job", secs(20));
    world.run(ms(50));
    assert!(world.is_granted(id), "{:?}", world.outcomes(id));
}
