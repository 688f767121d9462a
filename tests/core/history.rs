//! The proof that a node was not a replica meanwhile: when a grant waits for it, and what it shows.

use redbolt::proto::{Cause, LockId, LockRequest, NodeState, RestartGuardState, Vote};
use redbolt_node::Memory;

use crate::world::{World, Written, bulk, error, ms, secs};

const BEFORE: &str = "0123456789012345678901234567890123456789";
const AFTER: &str = "abcdefabcdefabcdefabcdefabcdefabcdefabcd";

/// Returns a node that reports its replication history, after the quarantine that this causes has
/// ended.
fn reporting() -> World {
    let mut world = World::with(1, 1, |_| {});
    world.servers[0].store.report_replication_id(Some(BEFORE));
    world.run(secs(40));
    let mut world = world.warm();
    let id = held(&mut world, b"first");
    world.release(id);
    world.run(ms(1));
    world.log.clear();
    world
}

/// Acquires a lock that is granted at once. Its request proves the node's history for a moment.
fn held(world: &mut World, key: &[u8]) -> LockId {
    let id = world.lock(key, secs(20));
    world.run(ms(1));
    assert!(world.is_granted(id));
    id
}

/// Requests a lock after such a proof, on a node that answers this many ms late.
fn asked_late(world: &mut World, late: u64) -> LockId {
    held(world, b"other");
    world.log.clear();
    world.pause(0);
    let id = world.lock(b"job", secs(20));
    world.run(ms(late));
    id
}

fn late_proofs(world: &mut World) -> u64 {
    world.core().metrics().nodes[0].late_proofs
}

#[test]
fn after_a_pause_the_proof_is_sent_with_the_request() {
    let mut world = reporting();
    world.run(ms(20));
    held(&mut world, b"job");
    assert_eq!(world.ran(0), ["ask", "check", "info"]);
    assert_eq!(late_proofs(&mut world), 0);
}

#[test]
fn a_prompt_answer_after_another_one_needs_no_proof() {
    let mut world = reporting();
    world.run(ms(20));
    held(&mut world, b"other");
    world.log.clear();
    held(&mut world, b"job");
    assert_eq!(world.ran(0), ["ask", "check"]);
}

#[test]
fn a_late_answer_waits_for_a_proof() {
    let mut world = reporting();
    let id = asked_late(&mut world, 20);
    world.resume(0);
    world.run(ms(1));
    assert!(world.is_granted(id));
    assert_eq!(world.ran(0), ["ask", "check", "info"]);
    assert_eq!(late_proofs(&mut world), 1);
}

#[test]
fn one_proof_serves_all_late_answers() {
    let mut world = reporting();
    let first = asked_late(&mut world, 0);
    let others: Vec<_> =
        (0..20).map(|at| world.lock(format!("job{at}").as_bytes(), secs(20))).collect();
    world.run(ms(20));
    world.resume(0);
    world.run(ms(1));
    assert!(others.iter().chain([&first]).all(|&id| world.is_granted(id)));
    assert_eq!((world.count("info"), late_proofs(&mut world)), (1, 1));
}

#[test]
fn an_unsent_proof_is_sent_after_the_last_request() {
    let mut world = reporting();
    world.run(ms(20));
    let now = world.now();
    for key in [&b"a"[..], b"b", b"c"] {
        world.core().acquire(&LockRequest::new(key).ttl(secs(20)), now).unwrap();
    }
    world.run(ms(1));
    assert_eq!(world.ran(0), ["ask", "check", "ask", "check", "ask", "check", "info"]);
}

/// The request was held up until the node had lost the data by which it granted.
#[test]
fn a_late_grant_by_other_data_is_undone() {
    let mut world = reporting().forgetful();
    let id = asked_late(&mut world, 20);
    let now = world.server_now();
    world.servers[0].store.was_replica(Memory::Lost, AFTER, now);
    let guard = world.own_restart_guard(0, 0);
    world.set_restart_guard(0, &guard, 1_000_000);
    world.resume(0);
    world.run(ms(1));
    assert!(!world.is_granted(id));
    assert_eq!(world.ran(0)[..4], ["ask", "check", "info", "undo sha"]);
    assert_eq!(world.holders(b"job"), [false]);
}

/// The lock is given up before the proof comes: its undo is owed once, and nothing stays.
#[test]
fn a_late_grant_that_is_being_undone_waits_for_nothing() {
    let mut world = reporting();
    let id = asked_late(&mut world, 0);
    world.release(id);
    world.run(ms(20));
    world.resume(0);
    world.run(ms(20));
    assert!(!world.is_granted(id));
    assert_eq!(late_proofs(&mut world), 0);
    assert_eq!((world.holders(b"job"), world.kept(0)), (vec![false], (1, 1)));
}

#[test]
fn a_late_permit_waits_for_a_proof_as_well() {
    let mut world = reporting();
    world.run(ms(20));
    held(&mut world, b"other");
    world.log.clear();
    world.pause(0);
    let request = LockRequest::new(b"job").ttl(secs(20)).permits(2);
    let now = world.now();
    let id = world.core().acquire(&request, now).unwrap();
    world.run(ms(20));
    world.resume(0);
    world.run(ms(1));
    assert!(world.core().slot(id).is_some());
    assert_eq!(world.ran(0), ["ask", "info"]);
}

/// The proof that was requested on the previous connection will never come.
#[test]
fn a_late_answer_on_a_new_connection_waits_for_a_proof_on_that() {
    let mut world = reporting();
    world.run(ms(20));
    world.pause(0);
    let lost = world.lock(b"lost", secs(20));
    world.cut(0, 0, Written::Vanishes);
    world.resume(0);
    world.run(secs(1));
    assert!(!world.is_granted(lost));
    let id = asked_late(&mut world, 20);
    world.resume(0);
    world.run(ms(1));
    assert!(world.is_granted(id));
    assert_eq!(world.ran(0), ["ask", "check", "info"]);
}

/// The node is promoted between two grants, and stopped accepting writes before. Both answers are
/// so prompt that neither grant would wait for a proof, but the first request carries one.
#[test]
fn a_grant_of_a_quarantined_node_with_another_history_does_not_count() {
    let mut world = reporting().forgetful();
    world.servers[0].delay = 400_000;
    // The client first learns the node's round trip.
    for at in 0..30 {
        world.run(ms(20));
        held(&mut world, format!("job{at}").as_bytes());
    }
    world.answer(0, |args| match args {
        [b"SET", b"refused", ..] => error("NOREPLICAS Not enough good replicas to write."),
        [b"INFO", b"replication"] => bulk(&format!("role:master\r\nmaster_replid:{AFTER}\r\n")),
        _ => None,
    });
    world.log.clear();
    let refused = world.lock(b"refused", secs(20));
    let id = world.lock(b"job", secs(20));
    world.run(ms(5));
    assert_eq!(world.ran(0)[..5], ["ask", "check", "info", "ask", "check"]);
    assert!(!world.is_granted(refused));
    assert!(!world.is_granted(id));
}

const BUSY: &str = "BUSY Redis is busy running a script.";

/// Makes the node reply with this error to the commands that begin with these words.
fn fail_with(world: &mut World, command: &'static [&'static str], text: &'static str) {
    world.answer(0, move |args| {
        let is_meant = args.len() >= command.len()
            && command.iter().zip(args).all(|(word, arg)| word.as_bytes() == *arg);
        is_meant.then(|| error(text)).flatten()
    });
}

/// Checks that the node still votes, and grants the next lock at once.
fn votes_when_it_answers_again(world: &mut World) {
    let node = world.node(0);
    assert_eq!(world.state(0), NodeState::Ready);
    assert_eq!(world.core().restart_guard_state(node), RestartGuardState::Votes);
    world.servers[0].answer = None;
    world.run(ms(300));
    held(world, b"next");
}

#[test]
fn a_server_that_is_busy_with_a_script_is_not_quarantined() {
    let mut world = reporting();
    world.run(ms(20));
    fail_with(&mut world, &[], BUSY);
    let id = world.lock(b"job", secs(20));
    world.run(ms(5));
    assert_eq!(world.ran(0), ["ask", "check", "info", "undo sha"], "it is not looked at again");
    assert_eq!(world.vote(id, 0), Some(Vote::Fail(Cause::Busy)));
    votes_when_it_answers_again(&mut world);
}

/// The script begins between the request and the read of the history.
#[test]
fn a_grant_without_a_proof_does_not_count_and_is_undone() {
    for late in [0, 20] {
        let mut world = reporting();
        world.run(ms(20));
        fail_with(&mut world, &["INFO"], BUSY);
        let id = match late {
            0 => world.lock(b"job", secs(20)),
            _ => {
                world.pause(0);
                let id = world.lock(b"job", secs(20));
                world.run(ms(late));
                world.resume(0);
                id
            }
        };
        world.run(ms(5));
        assert_eq!(world.vote(id, 0), Some(Vote::Fail(Cause::Busy)));
        assert_eq!(world.holders(b"job"), [false]);
        votes_when_it_answers_again(&mut world);
    }
}

/// The script begins between the request and the read of the restart guard's TTL.
#[test]
fn a_grant_whose_restart_guard_is_not_read_does_not_count_and_is_undone() {
    let mut world = reporting();
    world.run(ms(20));
    fail_with(&mut world, &["PTTL"], BUSY);
    let id = world.lock(b"job", secs(20));
    world.run(ms(5));
    assert_eq!(world.vote(id, 0), Some(Vote::Fail(Cause::Busy)));
    assert_eq!(world.holders(b"job"), [false]);
    votes_when_it_answers_again(&mut world);
}

/// Only an operator can restore the permission.
#[test]
fn a_revoked_permission_is_reported_as_the_cause() {
    for command in [&["INFO"], &["PTTL"]] {
        let mut world = reporting();
        world.run(ms(20));
        fail_with(&mut world, command, "NOPERM this user has no permissions to run it");
        let id = world.lock(b"job", secs(20));
        world.run(ms(5));
        assert_eq!(world.vote(id, 0), Some(Vote::Fail(Cause::NoPermission)), "{command:?}");
        assert_eq!(world.state(0), NodeState::Down(Cause::NoPermission), "{command:?}");
        assert_eq!(world.holders(b"job"), [false], "{command:?}");
    }
}
