//! A server's own compare-and-delete command: when it replaces the undo's script, and when the
//! script follows it.

use redbolt::proto::{Cause, Event, LockId, LockRequest, NodeState, Wait, WakeStrategy};
use redbolt_node::model::Denial;

use crate::world::{World, Written, error, ms, secs};

/// Returns a world in which all nodes have these commands and the client has connected.
fn offering(commands: &[&'static str]) -> World {
    offered_by(World::new(3), &[commands; 3])
}

/// Gives each node its own commands, and connects the client.
fn offered_by(mut world: World, commands: &[&[&'static str]]) -> World {
    for (server, commands) in world.servers.iter_mut().zip(commands) {
        server.store.offer(commands);
    }
    world.warm()
}

fn held(world: &mut World) -> LockId {
    let id = world.lock(b"job", secs(20));
    world.run(ms(20));
    assert!(world.is_granted(id));
    world.log.clear();
    id
}

/// Releases the lock, and checks that each node has confirmed that.
fn let_go(world: &mut World, id: LockId) {
    world.release(id);
    world.run(ms(20));
    assert!(matches!(world.outcomes(id)[..], [Event::Granted(_), Event::Released(..)]));
    assert_eq!(world.kept(0), (0, 0), "nothing is owed");
}

/// Acquires and releases a lock, and returns what each node ran for the release.
fn released(world: &mut World) -> Vec<Vec<&'static str>> {
    let id = held(world);
    let_go(world, id);
    (0..world.servers.len()).map(|node| world.ran(node)).collect()
}

fn by_script(world: &World) -> usize {
    world.count("undo") + world.count("undo sha")
}

#[test]
fn a_release_is_one_command_of_the_servers_own() {
    for (commands, name) in [
        (&["delex"][..], &b"DELEX"[..]),
        (&["delifeq"], b"DELIFEQ"),
        (&["delex", "delifeq"], b"DELIFEQ"),
    ] {
        let mut world = offering(commands);
        assert_eq!(released(&mut world), [["delete"]; 3]);
        assert!(world.log.iter().all(|ran| ran.words[0] == name), "{commands:?}");
        assert_eq!(world.holders(b"job"), [false; 3]);
    }
}

/// The version that a node reports plays no role.
#[test]
fn each_node_is_released_by_a_command_that_it_has() {
    let mut world = offered_by(World::new(3), &[&["delex"], &["delifeq"], &[]]);
    released(&mut world);
    assert_eq!(released(&mut world), [["delete"], ["delete"], ["undo sha"]]);
    assert_eq!(world.holders(b"job"), [false; 3]);
}

/// A waiter has put a mark on the token meanwhile, and the release calls it.
#[test]
fn a_token_that_was_marked_meanwhile_is_undone_by_the_script() {
    let mut world = offering(&["delifeq"]);
    let id = held(&mut world);
    let marked = [&world.value(0, b"job")[..], b"\n1700000020000"].concat();
    world.set(0, b"job", &marked, 28_000);
    world.servers[0].delay = ms(5).as_nanos() as u64;
    world.log.clear();
    let_go(&mut world, id);
    assert_eq!(world.ran(0), ["delete", "undo"]);
    assert_eq!(world.ran(1), ["delete"]);
    assert_eq!(world.value(0, b"job"), b"\nredbolt", "kept for the first in the queue");
}

/// A blocking client reads no more answers once a quorum has confirmed.
#[test]
fn the_script_follows_to_nodes_that_have_not_answered() {
    let mut world = offering(&["delifeq"]);
    let id = held(&mut world);
    for node in 0..3 {
        let marked = [&world.value(node, b"job")[..], b"\n1700000020000"].concat();
        world.set(node, b"job", &marked, 28_000);
    }
    world.log.clear();
    world.servers[2].delay = ms(40).as_nanos() as u64;
    world.release(id);
    world.run(ms(20));
    assert!(matches!(world.outcomes(id)[..], [Event::Granted(_), Event::Released(..)]));
    // The answer of the third node is lost, so that its release is not confirmed.
    world.cut(0, 2, Written::Runs);
    world.run(secs(3));
    assert_eq!(world.ran(2)[..2], ["delete", "undo"], "nothing was left to be asked");
    assert_eq!((&world.value(2, b"job")[..], world.kept(0)), (&b"\nredbolt"[..], (0, 0)));
}

#[test]
fn a_missing_key_is_undone_twice_and_then_confirmed() {
    let mut world = offering(&["delex"]).forgetful();
    let id = held(&mut world);
    world.delete(2, b"job");
    world.log.clear();
    let_go(&mut world, id);
    assert_eq!(world.ran(2), ["delete", "undo"]);
}

#[test]
fn data_of_another_type_is_not_ours_and_the_command_is_used_again() {
    let mut world = offering(&["delex"]);
    let id = held(&mut world);
    world.answer(1, |words| error("WRONGTYPE Operation").filter(|_| words[0] == b"DELEX"));
    let_go(&mut world, id);
    assert_eq!(world.ran(1), ["delete", "undo"]);
    world.answer(1, |_| None);
    assert_eq!(released(&mut world), [["delete"]; 3]);
}

#[test]
fn a_node_that_revokes_the_command_is_sent_the_script() {
    for denial in [Denial::Forbidden, Denial::RenamedAway] {
        let mut world = offering(&["delifeq"]);
        let id = held(&mut world);
        world.servers[0].store.deny("delifeq", Some(denial));
        let_go(&mut world, id);
        assert_eq!(world.ran(0), ["delete", "undo"], "{denial:?}");
        assert_eq!(world.holders(b"job"), [false; 3]);
        assert_eq!(released(&mut world), [["undo sha"], ["delete"], ["delete"]], "{denial:?}");
        world.servers[0].store.deny("delifeq", None);
        world.restart_connections();
        world.run(secs(3));
        assert_eq!(released(&mut world), [["delete"]; 3], "a new connection finds out again");
    }
}

#[test]
fn a_handshake_finds_out_what_may_not_be_run() {
    let mut world = World::new(3);
    world.servers[0].store.deny("delifeq", Some(Denial::Forbidden));
    world.servers[1].store.deny("delifeq", Some(Denial::RenamedAway));
    let mut world = offered_by(world, &[&["delifeq"][..]; 3]);
    assert_eq!(released(&mut world), [["undo"], ["undo"], ["delete"]]);
}

#[test]
fn a_release_whose_connection_dies_is_followed_by_the_script() {
    for written in [Written::Runs, Written::LeavesGhost, Written::Vanishes] {
        let mut world = offering(&["delifeq"]);
        let id = held(&mut world);
        world.pause(0);
        world.release(id);
        world.cut(0, 0, written);
        world.resume(0);
        world.run(secs(3));
        world.free_ghosts();
        world.run(secs(1));
        assert!(by_script(&world) > 0, "{written:?}: it was not confirmed");
        assert_eq!((world.holders(b"job"), world.kept(0)), (vec![false; 3], (0, 0)));
    }
}

/// The lock is forgotten when the answer comes, but the answer still belongs to a request.
#[test]
fn a_mistyped_answer_about_a_lock_that_is_forgotten_ends_the_link() {
    let mut world = offering(&["delifeq"]);
    let id = world.lock(b"job", ms(200));
    world.run(ms(20));
    world.servers[2].delay = ms(150).as_nanos() as u64;
    world.answer(2, |words| (words[0] == b"DELIFEQ").then(|| b"$2\r\nOK\r\n".to_vec()));
    world.release(id);
    world.run(ms(250));
    assert_eq!(world.kept(0), (0, 0), "the TTL has passed");
    let node = world.node(2);
    assert_eq!(world.core().node_state(node), NodeState::Ready);
    world.run(ms(60));
    assert_eq!(world.core().node_state(node), NodeState::Down(Cause::UnexpectedReply));
}

/// For these, the script does more than compare and delete, or its reply shows more.
#[test]
fn other_locks_and_attempts_that_failed_are_undone_by_the_script() {
    let one = LockRequest::new(b"job");
    for request in [one.clone().and(b"other"), one.clone().shared(), one.permits(3)] {
        let mut world = offering(&["delifeq"]);
        let id = world.acquire(0, &request, &[b"job"]);
        world.run(ms(20));
        let_go(&mut world, id);
        assert_eq!((world.count("delete"), by_script(&world)), (0, 3), "{request:?}");
    }
    let mut world = offering(&["delifeq"]);
    world.foreign(b"job", &[20_000, 20_000, 20_000]);
    world.lock(b"job", secs(20));
    world.run(ms(20));
    assert_eq!((world.count("delete"), by_script(&world)), (0, 3), "it was refused");
}

/// The token has a mark from the beginning.
#[test]
fn a_grant_in_the_queue_is_undone_by_the_script() {
    let world = World::with(3, 2, |settings| settings.wake = WakeStrategy::Queue);
    let mut world = offered_by(world, &[&["delifeq"][..]; 3]);
    let first = held(&mut world);
    let request = LockRequest::new(b"job").ttl(secs(20)).wait(Wait::UpTo(secs(60)));
    let second = world.acquire(1, &request, &[b"job"]);
    world.run(ms(200));
    world.release(first);
    world.run(secs(1));
    assert!(world.clients[1].is_granted(second));
    // Only the commands of the second release count.
    world.log.clear();
    world.let_go(1, second);
    world.run(ms(20));
    assert_eq!((world.count("delete"), by_script(&world)), (0, 3));
}
