//! The restart guard: which nodes vote, when nodes that may have forgotten locks vote again, and
//! what an operator learns.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use redbolt::proto::{
    Cause, Core, Event, LockId, LockRequest, NodeState, RefusalReason, RestartGuard,
    RestartGuardState, RestartTrust, Settings, Setup, Vote, Wait, restart_guard::BIG_MS,
};
use redbolt_node::Memory;

use crate::world::{Accept, GUARD, World, Written, bulk, error, ms, secs};

const QUARANTINED: Option<Vote> = Some(Vote::Fail(Cause::Quarantined));
const MAX_TTL: Duration = secs(30);

/// Returns a node with a delay, whose restart guard was altered before the client connected.
fn met(spoil: impl FnOnce(&mut World)) -> World {
    let mut world = World::with(1, 1, |_| {}).forgetful();
    spoil(&mut world);
    world
}

fn many() -> LockRequest<'static> {
    LockRequest::new(b"job").and(b"other")
}

/// Returns every kind of lock request. The restart guard is checked behind the first, and inside
/// the scripts of the others.
fn asks() -> [LockRequest<'static>; 4] {
    [LockRequest::new(b"job"), many(), LockRequest::new(b"job").fenced(), many().fenced()]
}

/// Requests a lock and runs to its outcome.
fn request(world: &mut World, request: &LockRequest<'_>) -> LockId {
    world.acquire(0, request, &[b"job"])
}

fn words(world: &World, node: usize) -> String {
    let words = world.clients[0].core.detail(world.node(node), Cause::Quarantined);
    words.expect("the refusal names the cause")
}

/// Checks that this node grants no request, and that no key is left there.
fn does_not_vote(world: &mut World) {
    for kind in asks() {
        let id = request(world, &kind);
        assert_eq!(world.vote(id, 0), QUARANTINED);
        assert_eq!(world.holders(b"job"), [false]);
    }
}

/// Returns when a node votes again, in ms from now.
fn votes_after(world: &mut World) -> u64 {
    let (begun, node) = (world.boot, world.node(0));
    world.run_until(secs(100), |world| world.core().node_state(node) == NodeState::Ready);
    (world.boot - begun) / 1_000_000
}

// First contact.

#[test]
fn first_contact_is_one_flight_and_its_grant_counts() {
    for kind in asks() {
        let mut world = met(|world| world.servers[0].delay = ms(10).as_nanos() as u64);
        let begun = world.boot;
        let id = request(&mut world, &kind);
        world.run(ms(100));
        let reported = world.clients[0].events[0];
        let handshake = ["client", "client", "info", "info", "info"];
        let flight = [&handshake[..], &["probe"; 6], &["look", "check", "ask"]].concat();
        assert_eq!(
            reported,
            (begun + 40_000_000, Event::Granted(id)),
            "connected, and one round trip"
        );
        assert_eq!(world.ran(0)[..flight.len()], flight);
        assert!(world.log.iter().all(|ran| ran.at == begun + 30_000_000));
    }
}

#[test]
fn a_later_request_is_checked_behind_itself_or_by_its_script() {
    let runs: [&[&str]; 4] = [&["ask", "check"], &["ask"], &["ask"], &["ask sha"]];
    let mut world = World::new(1).warm();
    for (kind, expected) in asks().iter().zip(runs) {
        let id = request(&mut world, kind);
        assert!(world.is_granted(id));
        assert_eq!(world.ran(0), expected);
        world.release(id);
        world.log.clear();
    }
}

#[test]
fn a_node_without_a_restart_guard_is_enrolled_once_and_votes_after_the_longest_ttl() {
    for kind in asks() {
        let mut world = World::new(1).unguarded();
        let id = request(&mut world, &kind);
        assert_eq!(world.vote(id, 0), QUARANTINED);
        assert_eq!(
            world.holders(b"job"),
            [false],
            "the grant is undone at once, on the same connection"
        );
        assert_eq!(world.restart_guard(0), (world.own_restart_guard(0, 0), 30_000));
        world.log.clear();
        for _ in 0..29 {
            does_not_vote(&mut world);
            world.run(secs(1));
        }
        let looks = ["look", "check"].repeat(29);
        assert_eq!(world.ran(0), looks, "the guard is read, and no lock is requested");
        world.log.clear();
        let after = votes_after(&mut world);
        assert!((1_000..=1_010).contains(&after), "{after} ms");
        assert_eq!(world.ran(0), ["look", "check"]);
        let id = request(&mut world, &kind);
        assert!(world.is_granted(id));
    }
}

/// An operator declares the nodes new while a client waits: the wait ends early.
#[test]
fn a_waiter_notices_that_nodes_were_declared_new() {
    let mut world = World::new(1).unguarded();
    let id = world.wait_for(b"job", secs(20));
    world.run(secs(3));
    assert!(!world.is_granted(id));
    let value = world.own_restart_guard(0, 0);
    world.set_restart_guard(0, &value, BIG_MS);
    world.run_until(secs(2), |world| world.is_granted(id));
}

/// The second client finds a quarantine in progress, and waits for the rest of it.
#[test]
fn a_quarantine_is_not_begun_again() {
    let mut world = World::new(1).unguarded();
    world.run(secs(20));
    let second = world.join(|_| {});
    let id = world.acquire(second, &LockRequest::new(b"job"), &[b"job"]);
    assert!(matches!(world.clients[second].outcomes(id)[..], [Event::Refused(..)]));
    world.restart_connections();
    world.run(secs(1));
    assert_eq!(world.restart_guard(0).1, 9_000);
    assert_eq!(world.count("enrol"), 1);
    world.run(ms(9_010));
    for client in 0..2 {
        let id = world.acquire(client, &LockRequest::new(b"job"), &[b"job"]);
        assert!(world.clients[client].outcomes(id).contains(&Event::Granted(id)));
        let now = world.now();
        world.clients[client].core.release(id, now);
        world.flow();
    }
}

// The values of a restart guard.

fn other_run(world: &mut World) {
    let stale = world.own_restart_guard(0, 7);
    world.set_restart_guard(0, &stale, BIG_MS);
}

fn other_database(world: &mut World) {
    let value = world.own_restart_guard(0, 0).replace(":30000:1:0", ":30000:1:5");
    world.set_restart_guard(0, &value, BIG_MS);
}

/// Its PTTL alone would let the node vote.
#[test]
fn a_restart_guard_of_another_run_or_database_is_enrolled_again() {
    for spoil in [other_run, other_database, |world: &mut World| world.flush(0)] {
        for kind in asks() {
            let mut world = met(spoil);
            let id = request(&mut world, &kind);
            assert_eq!(world.vote(id, 0), QUARANTINED);
            assert_eq!(world.holders(b"job"), [false]);
            assert_eq!(world.restart_guard(0), (world.own_restart_guard(0, 0), 30_000));
            does_not_vote(&mut world);
            assert!((30_000..=30_010).contains(&votes_after(&mut world)));
            assert_eq!(world.count("enrol"), 1);
        }
    }
}

#[test]
fn other_limits_are_for_an_operator_and_nothing_is_written() {
    let ours = World::new(1).own_restart_guard(0, 0);
    let foreign = |with: &str| ours.replace(":30000:1:0", with);
    let stale = World::new(1).own_restart_guard(0, 3).replace(":30000:1:0", ":30000:3:0");
    let table = [
        (foreign(":20000:1:0"), "set up for 1 nodes and a max_ttl of 20s"),
        (foreign(":30000:3:0"), "set up for 3 nodes and a max_ttl of 30s"),
        (foreign(":60000:5:2"), "set up for 5 nodes and a max_ttl of 60s"),
        (stale, "set up for 3 nodes and a max_ttl of 30s"),
    ];
    for (value, begins) in table {
        for ttl in [BIG_MS, BIG_MS + 9_000] {
            let mut world = met(|world| world.set_restart_guard(0, &value, ttl));
            let id = world.wait_for(b"job", secs(10));
            world.run(secs(5));
            assert_eq!(world.vote(id, 0), Some(Vote::Fail(Cause::OtherLimits)), "{value}");
            let replied = world.clients[0].core.detail(world.node(0), Cause::OtherLimits).unwrap();
            let ends = ", this client for 1 and 30s";
            assert!(replied.starts_with(begins) && replied.ends_with(ends), "{replied}");
            world.run(secs(60));
            let left = ttl as i64 - BIG_MS as i64 - 65_000;
            assert_eq!((world.restart_guard(0), world.count("enrol")), ((value.clone(), left), 0));
            assert_eq!(world.holders(b"job"), [false]);
        }
    }
}

#[test]
fn an_altered_restart_guard_is_for_an_operator_and_nothing_is_written() {
    let wrong_type = |world: &mut World| {
        world.answer(0, |args| (args[0] == b"GET").then(|| error("WRONGTYPE no")).flatten());
    };
    let endless = |world: &mut World| {
        let (value, now) = (world.own_restart_guard(0, 0), world.server_now());
        world.servers[0].observe(&[b"SET", GUARD, value.as_bytes()], now);
    };
    let table: [&dyn Fn(&mut World); 4] = [
        &|world| world.set_restart_guard(0, "mine", BIG_MS),
        &|world| world.set_restart_guard(0, "", BIG_MS),
        &wrong_type,
        &endless,
    ];
    for spoil in table {
        let mut world = met(|world| spoil(world));
        let before = world.restart_guard(0).0;
        let id = world.wait_for(b"job", secs(10));
        world.run(secs(5));
        assert_eq!(world.vote(id, 0), Some(Vote::Fail(Cause::RestartGuardAltered)));
        assert_eq!((world.restart_guard(0).0, world.count("enrol")), (before, 0));
        assert_eq!(world.holders(b"job"), [false]);
    }
}

/// The longer quarantine of clients with a larger `max_ttl` is respected, however long.
#[test]
fn a_quarantine_lasts_until_the_time_in_the_restart_guard() {
    let mut world = met(|world| {
        let value = world.own_restart_guard(0, 0);
        world.set_restart_guard(0, &value, BIG_MS + 75_000);
    });
    does_not_vote(&mut world);
    assert!((75_000..=75_010).contains(&votes_after(&mut world)));
}

#[test]
fn the_last_moment_of_a_quarantine_is_part_of_it() {
    for (ttl, votes) in [(BIG_MS + 1, false), (BIG_MS, true), (1, true)] {
        let mut world = met(|world| {
            let value = world.own_restart_guard(0, 0);
            world.set_restart_guard(0, &value, ttl);
        });
        let id = request(&mut world, &LockRequest::new(b"job"));
        assert_eq!(world.is_granted(id), votes, "{ttl} ms");
    }
}

/// In a race to enrol a node, no client overwrites the value of another.
#[test]
fn a_restart_guard_that_changed_since_it_was_read_is_read_again() {
    let table =
        [(20_000, Cause::OtherLimits, ":20000:1:0"), (30_000, Cause::Quarantined, ":30000:1:0")];
    for (max_ttl, cause, limits) in table {
        let mut world = World::new(1).unguarded();
        world.servers[0].delay = ms(10).as_nanos() as u64;
        world.run(ms(45));
        assert_eq!(
            world.ran(0).last(),
            Some(&"check"),
            "the guard was read, and the enrolment is in flight"
        );
        let value = world.own_restart_guard(0, 0).replace(":30000:1:0", limits);
        world.set_restart_guard(0, &value, BIG_MS + max_ttl / 2);
        world.run(ms(200));
        assert_eq!(world.count("enrol"), 1);
        assert_eq!(world.state(0), NodeState::Down(cause));
        assert_eq!(world.restart_guard(0), (value, max_ttl as i64 / 2 - 200));
    }
}

// Data lost without losing the connection.

/// Writes the first client's flight to the only node, up to the command that begins with these
/// bytes.
fn write_up_to(world: &mut World, command: &[u8]) {
    let link = world.link(0);
    let flight = world.core().transmit(link).to_vec();
    let at = flight.windows(command.len()).rposition(|window| window == command);
    world.servers[0].window = at.expect("the command is part of the flight");
    world.flow();
}

fn write_the_rest(world: &mut World) {
    world.servers[0].window = usize::MAX;
    world.flow();
}

fn set_job(world: &mut World) -> LockId {
    let request = LockRequest::new(b"job").ttl(secs(10));
    world.begin(0, &request, &[b"job"])
}

const BEHIND: &[u8] = b"*2\r\n$4\r\nPTTL\r\n$13\r\nredbolt:guard\r\n";

fn grant_is_undone(world: &mut World, id: LockId) {
    assert_eq!(world.vote(id, 0), QUARANTINED);
    assert_eq!(world.holders(b"job"), [false]);
    let asked = world.log.iter().filter(|ran| ran.is_ask()).count();
    let undone = world.log.iter().filter(|ran| ran.is_undo()).count();
    assert_eq!((asked, undone), (1, 1), "one request and one undo, on the same connection");
    assert_eq!(world.restart_guard(0).1, 30_000, "the quarantine begins now");
    assert_eq!(world.kept(0), (0, 0));
}

#[test]
fn a_flush_between_two_requests_is_seen_behind_the_second() {
    for kind in asks() {
        let mut world = World::new(3).warm().forgetful();
        let held = world.lock(b"held", secs(20));
        world.flush(0);
        let id = world.acquire(0, &kind, &[b"job"]);
        assert!(world.is_granted(id), "the other nodes grant it");
        let votes = world.core().votes(id);
        assert_eq!(votes.of(world.node(0)), QUARANTINED);
        assert_eq!(
            world.holders(b"job"),
            [false, true, true],
            "the flushed node never joins the lease"
        );
        assert_eq!(world.restart_guard(0), (world.own_restart_guard(0, 0), 30_000));
        world.release(held);
        world.release(id);
        assert_eq!(world.kept(0), (0, 0));
    }
}

#[test]
fn a_flush_between_the_request_and_its_check_is_seen() {
    let mut world = World::new(1).warm();
    let id = set_job(&mut world);
    write_up_to(&mut world, BEHIND);
    // The request has run, and its check has not.
    world.flush(0);
    write_the_rest(&mut world);
    grant_is_undone(&mut world, id);
}

#[test]
fn a_flush_before_the_request_is_seen_behind_it() {
    let mut world = World::new(1).warm();
    world.flush(0);
    let id = set_job(&mut world);
    write_up_to(&mut world, BEHIND);
    // The grant must not count, because another client may hold the lock that the node forgot.
    assert_eq!(world.holders(b"job"), [true], "a node without memory has granted it");
    write_the_rest(&mut world);
    grant_is_undone(&mut world, id);
}

/// At first contact the guard's value is read before the request, and its TTL again behind it: even
/// if another client enrols the node in between, the check shows the quarantine.
#[test]
fn a_flush_behind_the_value_that_was_read_is_seen() {
    for others_enrol in [false, true] {
        let mut world = World::new(1);
        world.servers[0].delay = ms(1).as_nanos() as u64;
        let id = set_job(&mut world);
        // The value of the guard has been written, and the rest waits.
        world.servers[0].window = 0;
        world.run(ms(2));
        write_up_to(&mut world, b"*8\r\n$4\r\nEVAL\r\n");
        world.run(ms(1));
        assert_eq!(world.ran(0).last(), Some(&"check"));
        world.flush(0);
        if others_enrol {
            let value = world.own_restart_guard(0, 0);
            world.set_restart_guard(0, &value, BIG_MS + 30_000);
        }
        write_the_rest(&mut world);
        world.run(ms(20));
        assert_eq!(world.vote(id, 0), QUARANTINED);
        assert_eq!(world.holders(b"job"), [false]);
        assert_eq!(world.count("enrol"), usize::from(!others_enrol));
    }
}

/// In row 49 of the model, a late request sets a key on a flushed node. The key is extended there,
/// but the grant never counted.
#[test]
fn an_extension_counts_only_on_nodes_whose_grant_did() {
    let mut world = World::new(3).warm().forgetful();
    world.servers[2].delay = ms(20).as_nanos() as u64;
    let id = world.lock(b"job", secs(10));
    assert!(world.is_granted(id));
    world.flush(2);
    // With the second node silent, a quorum would need the flushed one.
    world.pause(1);
    world.run(ms(10));
    world.extend(id, secs(20));
    world.run(ms(45));
    assert_eq!(world.ran(2)[..3], ["ask", "check", "extend"], "the extension found the key");
    assert!(!world.outcomes(id).contains(&Event::Extended(id)), "one of three is not a quorum");
    world.run(ms(100));
    assert!(matches!(world.outcomes(id)[..], [Event::Granted(_), Event::NotExtended(..)]));
    assert_eq!(world.holders(b"job"), [true, true, false]);
}

#[test]
fn a_lock_held_while_its_node_is_quarantined_is_extended_and_released() {
    let mut world = World::new(3).warm();
    let id = world.lock(b"job", secs(10));
    // The node keeps its data, and so the key of the lock, whose grant counted before.
    world.restart(0, Memory::Kept);
    world.run(secs(2));
    assert_eq!(world.state(0), NodeState::Down(Cause::Quarantined));
    // The extension needs the quarantined node for its quorum.
    world.pause(2);
    world.extend(id, secs(20));
    assert!(world.outcomes(id).contains(&Event::Extended(id)), "the quarantined node extends, too");
    assert!(world.pttl(0, b"job") > 19_000);
    world.resume(2);
    world.release(id);
    assert_eq!(world.holders(b"job"), [false; 3]);
    assert_eq!(world.kept(0), (0, 0));
    assert_eq!(world.state(0), NodeState::Down(Cause::Quarantined));
}

/// The lock is refused for exactly as long as the forgotten lock can live.
#[test]
fn a_lock_that_two_nodes_forgot_is_granted_to_no_other_client() {
    for memory in ["lost", "kept", "stale"] {
        let mut world = World::with(3, 2, |_| {}).warm().forgetful();
        // A snapshot from before the lock is what a restored backup has.
        let before = [0, 1].map(|node| world.servers[node].store.snapshot());
        let held = world.lock(b"job", MAX_TTL);
        for (node, before) in before.into_iter().enumerate() {
            let memory = match memory {
                "lost" => Memory::Lost,
                "kept" => Memory::Kept,
                _ => Memory::Stale(before),
            };
            world.restart(node, memory);
        }
        let request = LockRequest::new(b"job").ttl(secs(10)).wait(Wait::Forever);
        let begun = world.boot;
        let rival = world.acquire(1, &request, &[b"job"]);
        let is_granted = |world: &World| !world.clients[1].outcomes(rival).is_empty();
        world.run(world.remaining(held));
        assert!(!is_granted(&world), "the holder may rely on its lock until now");
        world.run_until(secs(5), |world| is_granted(world));
        let after = (world.boot - begun) / 1_000_000;
        assert!((30_000..31_500).contains(&after), "{after} ms");
    }
}

#[test]
fn a_waiting_acquisition_gets_the_lock_when_the_quarantines_end() {
    let mut world = World::new(3).unguarded();
    let begun = world.boot;
    let id = world.wait_for(b"job", secs(10));
    world.run_until(secs(40), |world| world.is_granted(id));
    let after = (world.boot - begun) / 1_000_000;
    assert!((30_000..=30_210).contains(&after), "{after} ms");
    assert!(
        world.log.len() < 3 * 31 * 2 + 60,
        "the waiter sends no useless requests: {}",
        world.log.len()
    );
}

// Errors.

#[test]
fn a_grant_whose_check_fails_is_undone() {
    let down = NodeState::Down(Cause::NoPermission);
    for (words, cause, state) in [
        ("NOPERM this user has no permissions to run 'pttl'", Cause::NoPermission, down),
        // A server that is loading votes again without an operator.
        ("LOADING wait", Cause::Loading, NodeState::Ready),
    ] {
        let mut world = World::new(1).warm();
        world.answer(0, move |args| (args == [b"PTTL", GUARD]).then(|| error(words)).flatten());
        let id = world.lock(b"job", secs(10));
        assert_eq!(world.vote(id, 0), Some(Vote::Fail(cause)), "{words}");
        assert_eq!(world.holders(b"job"), [false], "{words}");
        assert_eq!(world.state(0), state, "{words}");
        assert_eq!(world.kept(0), (0, 0));
    }
}

/// The restart guard is intact: the node votes again once the guard can be read.
#[test]
fn a_check_that_fails_once_costs_one_vote() {
    let mut world = World::new(1).warm();
    let failed = Rc::new(Cell::new(false));
    world.answer(0, move |args| {
        (args == [b"PTTL", GUARD] && !failed.replace(true)).then(|| error("BUSY script")).flatten()
    });
    let id = world.lock(b"job", secs(10));
    assert_eq!(world.vote(id, 0), Some(Vote::Fail(Cause::Busy)));
    assert_eq!(world.holders(b"job"), [false]);
    let id = world.lock(b"job", secs(10));
    assert!(world.is_granted(id));
    assert_eq!(world.count("enrol"), 0);
}

/// The error does not concern the restart guard, so the node is asked again.
#[test]
fn an_error_in_reply_to_everything_causes_no_quarantine() {
    let mut world = World::new(1).warm();
    world.answer(0, |_| error("BUSY Redis is busy running a script."));
    let id = world.lock(b"job", secs(10));
    assert_eq!(world.vote(id, 0), Some(Vote::Fail(Cause::Busy)));
    assert_eq!(world.state(0), NodeState::Ready);
    // An error in reply to the request alone does not hide a missing restart guard.
    world.answer(0, |args| (args[0] == b"SET").then(|| error("BUSY busy")).flatten());
    world.delete(0, GUARD);
    world.lock(b"job", secs(10));
    assert_eq!(world.state(0), NodeState::Down(Cause::Quarantined));
}

#[test]
fn a_node_whose_acl_forbids_a_check_does_not_vote() {
    for command in [&b"GET"[..], b"PTTL", b"INFO", b"EVAL"] {
        let mut world = World::new(1).unguarded();
        world.answer(0, move |args| {
            (args[0] == command).then(|| error("NOPERM this user has no permissions")).flatten()
        });
        let id = world.lock(b"job", secs(10));
        assert!(matches!(world.vote(id, 0), Some(Vote::Fail(_))));
        world.run(secs(40));
        let id = world.lock(b"job", secs(10));
        let shown = command.escape_ascii();
        let cause = if command == b"EVAL" { Cause::ScriptsForbidden } else { Cause::NoPermission };
        assert_eq!(world.vote(id, 0), Some(Vote::Fail(cause)), "{shown}");
        assert_eq!(world.restart_guard(0).0, "", "{shown}");
    }
}

// Levels of trust.

fn trusting(restart_trust: RestartTrust) -> impl Fn(&mut Settings) {
    move |settings| settings.nodes.iter_mut().for_each(|node| node.restart_trust = restart_trust)
}

#[test]
fn an_operator_can_vouch_for_what_a_node_keeps_but_not_for_what_it_lost() {
    let table = [
        (RestartTrust::Strict, Memory::Kept, false),
        (RestartTrust::Durable, Memory::Kept, true),
        (RestartTrust::MarkerOnly, Memory::Kept, true),
        (RestartTrust::Durable, Memory::Lost, false),
        (RestartTrust::MarkerOnly, Memory::Lost, false),
    ];
    for (restart_trust, memory, votes) in table {
        let mut world = World::with(1, 1, trusting(restart_trust)).warm();
        world.restart(0, memory.clone());
        world.run(secs(2));
        let id = world.lock(b"job", secs(10));
        assert_eq!(world.is_granted(id), votes, "{restart_trust:?} {memory:?}");
        assert_eq!(world.count("enrol"), usize::from(!votes), "{restart_trust:?} {memory:?}");
    }
}

#[test]
fn a_marker_is_enough_if_info_is_forbidden_and_the_operator_accepts_it() {
    for (restart_trust, votes) in [
        (RestartTrust::Strict, false),
        (RestartTrust::Durable, false),
        (RestartTrust::MarkerOnly, true),
    ] {
        let mut world = World::with(1, 1, trusting(restart_trust)).unguarded();
        world.answer(0, |args| (args[0] == b"INFO").then(|| error("NOPERM no")).flatten());
        world.run(secs(31));
        let id = world.lock(b"job", secs(10));
        assert_eq!(world.is_granted(id), votes, "{restart_trust:?}");
        if votes {
            assert_eq!(world.restart_guard(0).0, "-:30000:1:0");
        } else {
            assert_eq!(world.vote(id, 0), Some(Vote::Fail(Cause::NoPermission)));
        }
    }
}

#[test]
fn without_the_restart_guard_none_is_read_or_written() {
    let mut world =
        World::with(3, 1, |settings| settings.restart_guard = RestartGuard::Off).unguarded().warm();
    let id = world.lock(b"job", secs(10));
    assert!(world.is_granted(id));
    world.release(id);
    world.restart(0, Memory::Lost);
    world.run(secs(2));
    let id = world.lock(b"job", secs(10));
    world.release(id);
    let many = world.acquire(0, &many(), &[b"job", b"other"]);
    assert!(world.is_granted(many));
    assert_eq!(world.state(0), NodeState::Ready);
    for kind in ["look", "check", "enrol"] {
        assert_eq!(world.count(kind), 0, "{kind}");
    }
    let node = world.node(0);
    assert_eq!(world.core().restart_guard_state(node), RestartGuardState::Off);
}

/// A node sends an answer about it all the same.
#[test]
fn without_the_restart_guard_an_answer_about_one_is_unexpected() {
    let mut world = World::with(1, 1, |settings| settings.restart_guard = RestartGuard::Off).warm();
    world.answer(0, |args| (args[0] == b"EVAL").then(|| b"+GUARD -2\r\n".to_vec()));
    let id = world.acquire(0, &many(), &[b"job", b"other"]);
    assert_eq!(world.vote(id, 0), Some(Vote::Fail(Cause::UnexpectedReply)));
    world.run(secs(1));
    assert_eq!(world.count("look"), 0);
}

#[test]
fn the_restart_guard_key_has_the_configured_name() {
    let mut world = World::with(1, 1, |settings| settings.restart_guard_key = b"ours".to_vec());
    let now = world.server_now();
    world.servers[0].observe(&[b"DEL", b"ours"], now);
    world.run(ms(1));
    assert_eq!(world.value(0, b"ours"), world.own_restart_guard(0, 0).into_bytes());
    assert_eq!(world.value(0, GUARD), b"");
    let asked = world.core().acquire(&LockRequest::new(b"ours"), Default::default());
    assert_eq!(
        asked,
        Err(redbolt::proto::RequestError::RestartGuardKey),
        "the guard's key cannot be locked by mistake"
    );
}

// Setting up.

fn setting_up(setup: Setup) -> impl Fn(&mut Settings) {
    move |settings| settings.setup = setup
}

fn fresh(setup: Setup) -> World {
    World::with(3, 1, setting_up(setup)).unguarded().forgetful()
}

fn restart_guards(world: &mut World) -> Vec<(String, i64)> {
    (0..3).map(|node| world.restart_guard(node)).collect()
}

#[test]
fn new_nodes_vote_at_once_if_an_operator_declares_them_new() {
    for setup in [Setup::Init, Setup::IfNew] {
        let mut world = fresh(setup);
        assert!(!world.core().has_set_up());
        world.run(ms(1));
        assert!(world.core().has_set_up(), "{setup:?}");
        let expected: Vec<_> = (0..3).map(|node| (world.own_restart_guard(node, 0), -1)).collect();
        assert_eq!(restart_guards(&mut world), expected, "{setup:?}: no quarantine");
        let id = world.lock(b"job", secs(10));
        assert!(world.is_granted(id), "{setup:?}");
    }
}

/// The first lock waits for the round trips of the set-up, and no longer.
#[test]
fn the_first_lock_on_new_nodes_is_granted() {
    for kind in asks() {
        let mut world = fresh(Setup::IfNew);
        for server in &mut world.servers {
            server.delay = ms(5).as_nanos() as u64;
        }
        let id = world.acquire(0, &kind, &[b"job"]);
        assert_eq!(world.state(0), NodeState::Connecting);
        world.run(ms(100));
        assert!(world.is_granted(id));
    }
}

#[test]
fn init_writes_nothing_unless_all_are_new() {
    let guarded = |world: &mut World| {
        let value = world.own_restart_guard(1, 0);
        world.set_restart_guard(1, &value, BIG_MS);
    };
    let stale = |world: &mut World| {
        let value = world.own_restart_guard(1, 4);
        world.set_restart_guard(1, &value, BIG_MS);
    };
    let others = |world: &mut World| {
        let value = world.own_restart_guard(1, 0).replace(":30000:3:0", ":30000:5:0");
        world.set_restart_guard(1, &value, BIG_MS);
    };
    let down = |world: &mut World| world.stop(1);
    let silent = |world: &mut World| world.servers[1].accept = Accept::Silent;
    let spoils: [fn(&mut World); 5] = [guarded, stale, others, down, silent];
    for (at, spoil) in spoils.iter().enumerate() {
        let mut world = fresh(Setup::Init);
        spoil(&mut world);
        let before: Vec<_> =
            restart_guards(&mut world).into_iter().map(|(value, _)| value).collect();
        world.run(secs(40));
        let after: Vec<_> =
            restart_guards(&mut world).into_iter().map(|(value, _)| value).collect();
        assert_eq!((before, world.count("enrol")), (after, 0), "case {at}");
        assert!(!world.core().has_set_up(), "case {at}");
        assert_ne!(world.state(0), NodeState::Ready, "case {at}");
    }
}

/// The first client has quarantined the nodes; none of them has voted since.
#[test]
fn init_can_follow_a_first_contact() {
    let mut world = World::new(3).unguarded();
    let id = world.lock(b"job", secs(10));
    assert!(matches!(world.outcomes(id)[..], [Event::Refused(..)]));
    assert!(restart_guards(&mut world).iter().all(|(_, left)| *left == 30_000));
    let init = world.join(setting_up(Setup::Init));
    world.run(ms(1));
    assert!(world.clients[init].core.has_set_up());
    assert!(restart_guards(&mut world).iter().all(|(_, left)| *left < 0));
    let id = world.acquire(init, &LockRequest::new(b"job"), &[b"job"]);
    assert!(world.clients[init].outcomes(id).contains(&Event::Granted(id)));
}

/// While one node votes, it may have locks that the others have forgotten.
#[test]
fn init_does_not_end_the_quarantine_of_a_set_in_use() {
    let mut world = World::new(3).warm().forgetful();
    world.restart(0, Memory::Lost);
    world.restart(1, Memory::Lost);
    world.run(secs(2));
    let init = world.join(setting_up(Setup::Init));
    world.run(secs(1));
    assert!(!world.clients[init].core.has_set_up());
    for node in [0, 1] {
        assert!(world.restart_guard(node).1 > 25_000);
    }
}

#[test]
fn a_read_only_client_writes_nothing() {
    type Spoil = fn(&mut World);
    let table: [(Spoil, Cause); 3] = [
        (|world| world.flush(0), Cause::Quarantined),
        (other_run, Cause::Quarantined),
        (|world| world.set_restart_guard(0, "r:30000:5:0", BIG_MS), Cause::OtherLimits),
    ];
    for (spoil, cause) in table {
        let mut world = World::with(1, 1, setting_up(Setup::ReadOnly));
        spoil(&mut world);
        let before = world.restart_guard(0).0;
        world.run(secs(5));
        let node = world.node(0);
        assert_eq!(world.core().node_state(node), NodeState::Down(cause));
        let now = world.now();
        let view = world.core().inspect(b"job", now).unwrap();
        world.flow();
        assert!(world.core().take_view(view).unwrap().nodes[0].state.is_ok(), "{cause}");
        assert_eq!((world.restart_guard(0).0, world.count("enrol")), (before, 0));
    }
}

/// The last node may be slow to answer.
#[test]
fn a_set_is_new_only_once_all_nodes_have_been_read() {
    for setup in [Setup::Init, Setup::IfNew] {
        let mut world = fresh(setup);
        world.servers[2].delay = ms(100).as_nanos() as u64;
        world.run(ms(390));
        assert_eq!(world.count("enrol"), 0, "{setup:?}");
        world.run(secs(1));
        assert_eq!(world.count("enrol"), 3, "{setup:?}");
        assert!(restart_guards(&mut world).iter().all(|(_, left)| *left < 0), "{setup:?}");
    }
}

#[test]
fn unless_all_are_new_the_others_are_quarantined() {
    let guarded = |world: &mut World| {
        let value = world.own_restart_guard(1, 0);
        world.set_restart_guard(1, &value, BIG_MS);
    };
    let stale = |world: &mut World| {
        let value = world.own_restart_guard(1, 4);
        world.set_restart_guard(1, &value, BIG_MS);
    };
    let down = |world: &mut World| world.stop(1);
    let spoils: [fn(&mut World); 3] = [guarded, stale, down];
    for (at, spoil) in spoils.iter().enumerate() {
        let mut world = fresh(Setup::IfNew);
        spoil(&mut world);
        world.run(secs(1));
        let id = world.lock(b"job", secs(10));
        assert!(matches!(world.outcomes(id)[..], [Event::Refused(..)]), "case {at}");
        for node in [0, 2] {
            let (value, left) = world.restart_guard(node);
            assert_eq!(value, world.own_restart_guard(node, 0), "case {at}");
            assert!((28_900..=30_000).contains(&left), "case {at}: {left} ms");
        }
    }
}

/// A node whose data is lost later is not new.
#[test]
fn a_set_is_new_once() {
    let mut world = fresh(Setup::IfNew).warm();
    for node in 0..3 {
        world.flush(node);
    }
    let id = world.lock(b"job", secs(10));
    assert!(matches!(world.outcomes(id)[..], [Event::Refused(..)]));
    for node in 0..3 {
        assert_eq!(world.restart_guard(node).1, 30_000);
        world.restart(node, Memory::Lost);
    }
    world.run(secs(2));
    for node in 0..3 {
        assert!(world.restart_guard(node).1 > 27_000);
    }
}

/// A change gives the set other limits: no node votes before every lock under either limit has
/// expired, and no client continues with a guard that it has read before.
#[test]
fn a_change_quarantines_for_the_larger_limit_and_disconnects_clients() {
    for (old, new) in [(60, 30), (20, 30)] {
        let mut world =
            World::with(3, 1, |settings| settings.max_ttl = secs(old)).warm().forgetful();
        let change = world.join(|settings| {
            settings.max_ttl = secs(new);
            settings.setup = Setup::Change;
        });
        world.clients[0].states.clear();
        world.run(ms(1));
        assert!(world.clients[change].core.has_set_up());
        assert_eq!((world.count("enrol"), world.count("kill others")), (3, 3));
        assert_eq!(
            world.count("look"),
            2 * 3,
            "every node is read before the change, and once after it"
        );
        for node in 0..3 {
            let (value, left) = world.restart_guard(node);
            assert!(value.ends_with(&format!(":{}:3:0", new * 1_000)), "{value}");
            assert_eq!(left, old.max(new) as i64 * 1_000 - 1);
            let dropped = (world.node(node), NodeState::Down(Cause::ConnectionClosed));
            assert!(world.clients[0].states.contains(&dropped));
        }
        world.run(secs(1));
        assert_eq!(
            world.state(0),
            NodeState::Down(Cause::OtherLimits),
            "the old limits are not valid any more"
        );
    }
}

#[test]
fn a_change_that_was_made_already_does_no_harm() {
    let mut world = World::with(3, 1, |settings| settings.max_ttl = secs(60)).warm().forgetful();
    let change = |settings: &mut Settings| {
        settings.max_ttl = secs(30);
        settings.setup = Setup::Change;
    };
    world.join(change);
    world.run(secs(50));
    let (enrols, kills) = (world.count("enrol"), world.count("kill others"));
    world.join(change);
    world.run(secs(1));
    assert_eq!(world.count("enrol"), enrols);
    assert_eq!(
        world.count("kill others"),
        kills + 3,
        "the first change may have stopped before the kill"
    );
    assert_eq!(world.restart_guard(0).1, 9_000, "the quarantine continues, and does not restart");
}

#[test]
fn a_change_waits_for_all_nodes() {
    let mut world = World::with(3, 1, |settings| settings.max_ttl = secs(60)).warm().forgetful();
    world.stop(2);
    let change = world.join(|settings| {
        settings.max_ttl = secs(30);
        settings.setup = Setup::Change;
    });
    world.run(secs(5));
    assert_eq!(world.count("enrol"), 0, "the third node may have the larger limit");
    assert!(!world.clients[change].core.has_set_up());
    world.start(2, Memory::Kept);
    world.run(secs(5));
    assert!(world.clients[change].core.has_set_up());
    assert!(restart_guards(&mut world).iter().all(|(value, _)| value.ends_with(":30000:3:0")));
}

// Reports.

#[test]
fn a_refusal_names_the_cause_and_the_seconds_left() {
    type Spoil = fn(&mut World);
    let new = "it has no restart guard: it is new, or has lost its memory";
    let table: [(Spoil, &str); 4] = [
        (|world| world.flush(0), new),
        (other_run, "restarted: its run id changed"),
        (other_database, "its database was swapped"),
        (
            |world| {
                let value = world.own_restart_guard(0, 0);
                world.set_restart_guard(0, &value, BIG_MS + 30_000);
            },
            "others saw it new, restarted or emptied",
        ),
    ];
    for (spoil, reason) in table {
        let mut world = met(spoil);
        let id = world.lock(b"job", secs(10));
        assert_eq!(world.refusal(id).reason, RefusalReason::NoQuorum);
        assert_eq!(words(&world, 0), format!("30 s, {reason}"));
        world.run(ms(6_100));
        let id = world.lock(b"job", secs(10));
        assert_eq!(world.vote(id, 0), QUARANTINED);
        assert_eq!(words(&world, 0), format!("24 s, {reason}"));
        assert_eq!(format!("{}", Cause::Quarantined), "quarantined");
    }
}

#[test]
fn a_restart_of_a_voter_is_reported() {
    for (memory, reason) in [
        (Memory::Kept, "restarted: its run id changed"),
        (Memory::Lost, "it has no restart guard: it is new, or has lost its memory"),
    ] {
        let mut world = World::new(1).warm();
        world.restart(0, memory);
        world.run(secs(2));
        let id = world.lock(b"job", secs(10));
        assert_eq!(world.vote(id, 0), QUARANTINED);
        let words = words(&world, 0);
        assert!(words.starts_with("29 s, ") || words.starts_with("30 s, "), "{words}");
        assert!(words.ends_with(reason), "{words}");
    }
}

/// No token and no run id is shown.
#[test]
fn reports_of_a_restart_guard_contain_no_secrets() {
    let mut world = World::new(3).warm();
    world.flush(0);
    let id = world.lock(b"job", secs(10));
    let token = String::from_utf8(world.value(1, b"job")).unwrap();
    let shown = [
        words(&world, 0),
        format!("{:?} {:?}", world.clients[0].events, world.clients[0].core.votes(id)),
        format!("{:?}", world.clients[0].core),
    ];
    for text in shown {
        let mut parts = (0..=token.len() - 8).map(|at| &token[at..at + 8]);
        assert!(!parts.any(|part| text.contains(part)), "{text}");
    }
}

#[test]
fn a_restart_guard_can_be_asked_about() {
    let restart_guard_state = |world: &World| {
        let core: &Core = &world.clients[0].core;
        core.restart_guard_state(world.node(0))
    };
    let mut world = World::new(1);
    assert_eq!(restart_guard_state(&world), RestartGuardState::Unknown);
    world.run(ms(1));
    assert_eq!(restart_guard_state(&world), RestartGuardState::Votes);
    world.flush(0);
    world.lock(b"job", secs(10));
    let found = redbolt::proto::restart_guard::Found::Missing;
    let left = MAX_TTL;
    match restart_guard_state(&world) {
        RestartGuardState::Quarantined { left: reported, found: was } => {
            assert!(
                was == found && reported >= left - ms(1) && reported <= left + ms(1),
                "{reported:?}"
            );
        }
        other => panic!("{other:?}"),
    }
    let mut world = met(|world| world.set_restart_guard(0, "r:30000:3:0", BIG_MS));
    world.run(ms(1));
    let limits = redbolt::proto::restart_guard::Found::OtherLimits { max_ttl_ms: 30_000, nodes: 3 };
    assert_eq!(restart_guard_state(&world), RestartGuardState::Found(limits));
}

/// With a read-only client, no quarantine passes, because none was written.
#[test]
fn an_inspection_reports_what_was_found_and_no_quarantine() {
    let mut world = World::with(1, 1, setting_up(Setup::ReadOnly)).unguarded();
    world.run(ms(1));
    let (node, found) = (world.node(0), redbolt::proto::restart_guard::Found::Missing);
    assert_eq!(world.core().restart_guard_state(node), RestartGuardState::Found(found));
}

/// Returns a lock that is held on a node whose enrolment is answered with this error.
fn not_enrolled(answer: &'static str) -> (World, LockId) {
    let mut world = World::new(3).warm().forgetful();
    let held = world.lock(b"held", secs(20));
    world.answer(2, move |args| {
        (args[0] == b"EVAL" && args.get(3) == Some(&GUARD)).then(|| error(answer)).flatten()
    });
    world.delete(2, GUARD);
    let id = world.lock(b"job", secs(1));
    world.release(id);
    (world, held)
}

#[test]
fn a_node_that_cannot_be_enrolled_yet_still_extends_held_locks() {
    let (mut world, held) = not_enrolled("MISCONF Redis is configured to save RDB snapshots");
    assert_eq!(world.state(2), NodeState::Down(Cause::DiskTrouble));
    world.extend(held, secs(20));
    assert_eq!(world.core().votes(held).of(world.node(2)), Some(Vote::Grant));
    world.servers[2].answer = None;
    world.run(ms(1_100));
    assert_eq!(world.restart_guard(2).0, world.own_restart_guard(2, 0));
    assert_eq!(world.count("client"), 0, "on the connection that it has");
}

#[test]
fn a_node_that_became_a_replica_before_its_enrolment_is_reported() {
    let (mut world, _) = not_enrolled("READONLY You can't write against a read only replica.");
    world.answer(2, |args| match args {
        [b"EVAL", _, _, GUARD, ..] => {
            error("READONLY You can't write against a read only replica.")
        }
        [b"INFO", b"replication"] => bulk("role:slave\r\n"),
        _ => None,
    });
    world.run(secs(3));
    assert_eq!(world.state(2), NodeState::Down(Cause::Replica));
}

/// The connection is lost between the reply to a request and the reply to its check.
#[test]
fn a_grant_whose_check_is_lost_does_not_count_and_is_undone() {
    let mut world = World::new(1).warm();
    let id = set_job(&mut world);
    write_up_to(&mut world, BEHIND);
    assert_eq!(world.holders(b"job"), [true]);
    assert_eq!(world.outcomes(id), [], "half an answer does not count");
    world.cut(0, 0, Written::Runs);
    assert_eq!(world.vote(id, 0), Some(Vote::Fail(Cause::ConnectionReset)));
    world.servers[0].window = usize::MAX;
    world.run(secs(1));
    assert_eq!(world.holders(b"job"), [false]);
    assert_eq!(
        (world.count("undo"), world.count("kill")),
        (1, 0),
        "the request is known to have run"
    );
    assert_eq!(world.kept(0), (0, 0));
}

/// A proxy sends every other command to another server.
#[test]
fn a_restart_guard_that_is_never_ours_is_not_enrolled_at_wire_speed() {
    let mut world = World::new(1);
    world.servers[0].delay = 100_000;
    let stale = world.own_restart_guard(0, 7);
    world.answer(0, move |args| {
        (args == [b"GET", GUARD]).then(|| format!("${}\r\n{stale}\r\n", stale.len()).into_bytes())
    });
    world.run(secs(1));
    let enrols = world.count("enrol");
    assert!((1..=100).contains(&enrols), "{enrols} enrolments in a second");
}

/// The grant was lost, so it is not known what the restart guard was at that time.
#[test]
fn an_extension_does_not_count_on_a_node_whose_grant_was_not_received() {
    let mut world = World::new(3).warm();
    world.servers[2].delay = ms(20).as_nanos() as u64;
    let id = world.lock(b"job", secs(10));
    assert!(world.is_granted(id));
    world.run(ms(20));
    assert!(world.holders(b"job")[2], "the key is set, and the reply is in flight");
    world.cut(0, 2, Written::Runs);
    world.servers[2].delay = 0;
    world.run(secs(1));
    assert_eq!(world.holders(b"job"), [true; 3]);
    world.pause(1);
    world.extend(id, secs(20));
    world.run(ms(60));
    match world.outcomes(id)[1..] {
        [Event::NotExtended(_, refusal)] => {
            let vote = refusal.votes.of(world.node(2));
            assert_eq!(vote, Some(Vote::Fail(Cause::NotCounted)));
        }
        ref other => panic!("{other:?}"),
    }
    world.resume(1);
    world.release(id);
    assert_eq!(world.holders(b"job"), [false; 3]);
    assert_eq!(world.kept(0), (0, 0));
}

/// No script answers that the restart guard refuses the vote, together with a TTL that lets the
/// node vote.
#[test]
fn a_script_reply_with_the_guard_of_a_voting_node_is_rejected() {
    for pttl in ["5", "126144000000", "many", ""] {
        let mut world = World::new(1).warm();
        world.answer(0, move |args| {
            (args[0] == b"EVAL").then(|| format!("+GUARD {pttl}\r\n").into_bytes())
        });
        let id = world.acquire(0, &many(), &[b"job", b"other"]);
        assert_eq!(world.vote(id, 0), Some(Vote::Fail(Cause::UnexpectedReply)), "{pttl}");
    }
}

/// A guard that is read again while the client waits for the last node of the set is written once,
/// according to the newer read.
#[test]
fn a_node_is_not_enrolled_while_it_is_being_read() {
    let mut world = World::with(3, 1, setting_up(Setup::Change));
    for node in 0..3 {
        let value = world.own_restart_guard(node, 0).replace(":30000:3:0", ":60000:3:0");
        world.set_restart_guard(node, &value, BIG_MS);
    }
    world.stop(2);
    world.run(ms(450));
    world.servers[0].delay = ms(900).as_nanos() as u64;
    world.run(ms(100));
    world.start(2, Memory::Kept);
    world.run(secs(5));
    assert!(world.core().has_set_up());
    for node in 0..3 {
        let ran = world.ran(node);
        let count = |kind| ran.iter().filter(|&&other| other == kind).count();
        assert_eq!((count("enrol"), count("kill others")), (1, 1), "node {node}");
        assert_eq!(
            world.restart_guard(node).0,
            world.own_restart_guard(node, u32::from(node == 2))
        );
    }
}

/// Once a check has missed the guard, no later value counts on this connection, with any TTL, until
/// the guard has been read again.
#[test]
fn after_a_miss_nothing_counts_on_this_connection_until_the_restart_guard_was_read_again() {
    for replies in [["+OK", ":-2", "+OK", ":60000"], ["+OK", ":126144000001", "+OK", ":60000"]] {
        let mut world = World::new(1).warm().forgetful();
        world.pause(0);
        let [first, second] = [&b"job"[..], b"other"].map(|key| world.lock(key, secs(10)));
        let mut replies = replies.into_iter();
        world.answer(0, move |args| match args {
            [b"SET", ..] | [b"PTTL", GUARD] => {
                replies.next().map(|reply| format!("{reply}\r\n").into_bytes())
            }
            [b"GET", GUARD] => bulk("somebody else's"),
            _ => None,
        });
        world.resume(0);
        for id in [first, second] {
            assert_eq!(world.vote(id, 0), QUARANTINED);
        }
    }
}

// Clocks.

/// Sets a node's clock forward by this much, so that all its keys age.
fn step(world: &mut World, node: usize, seconds: i64) {
    world.servers[node].ahead += seconds * 1_000_000;
}

/// Returns a holder on the first two nodes of three, and a second client that knows the nodes.
fn bare_quorum() -> (World, LockId) {
    let mut world = World::with(3, 2, |_| {}).warm().forgetful();
    world.set(2, b"job", b"theirs", 100);
    let id = world.lock(b"job", secs(10));
    world.run(secs(1));
    assert!(world.is_granted(id));
    (world, id)
}

#[test]
fn a_node_whose_clock_was_set_forward_does_not_vote_for_clients_that_know_it() {
    let (mut world, id) = bare_quorum();
    step(&mut world, 0, 10);
    let request = LockRequest::new(b"job").ttl(secs(1));
    let theirs = world.acquire(1, &request, &[b"job"]);
    assert!(!world.clients[1].is_granted(theirs), "the first client holds the lock");
    let node = world.node(0);
    let words = world.clients[1].core.detail(node, Cause::Quarantined).unwrap();
    assert!(words.contains("its clock was set forward"), "{words}");
    // By then, every lock that the node may have ended early has expired.
    world.run(secs(12));
    assert!(world.remaining(id).is_zero());
    let theirs = world.acquire(1, &request, &[b"job"]);
    assert!(world.clients[1].is_granted(theirs), "the other two nodes grant it");
    assert_eq!(world.clients[1].core.node_state(node), NodeState::Down(Cause::Quarantined));
    world.run(secs(20));
    assert_eq!(world.clients[1].core.node_state(node), NodeState::Ready);
}

/// As a control, a client that has never read the node's guard cannot notice.
#[test]
fn a_clock_that_was_set_before_the_first_read_goes_unseen() {
    let (mut world, id) = bare_quorum();
    step(&mut world, 0, 10);
    let newcomer = world.join(|_| {});
    let now = world.now();
    world.clients[newcomer].core.timeout(now);
    let left = world.remaining(id);
    assert!(left > secs(5));
    let request = LockRequest::new(b"job").ttl(ms(100));
    let now = world.now();
    let theirs = world.clients[newcomer].core.acquire(&request, now).unwrap();
    let grants = |world: &World| world.clients[newcomer].core.votes(theirs).grants().len();
    for _ in 0..50 {
        world.run(ms(1));
        if grants(&world) == 2 {
            return;
        }
    }
    panic!("{:?}", world.clients[newcomer].core.votes(theirs));
}

/// The client's own clock stood still, so all nodes seem ahead, and none may be kept from voting.
#[test]
fn a_client_whose_clock_stood_still_doubts_no_node() {
    for nodes in [1, 3, 5] {
        let mut world = World::new(nodes).warm();
        let id = world.lock(b"job", secs(1));
        world.release(id);
        (0..nodes).for_each(|node| step(&mut world, node, 60));
        let id = world.lock(b"job", secs(1));
        assert!(world.is_granted(id), "{nodes} nodes: {:?}", world.outcomes(id));
        world.release(id);
        world.run(ms(10));
        for node in 0..nodes {
            assert_eq!(world.state(node), NodeState::Ready, "{nodes} nodes");
        }
    }
}

/// A difference within the drift is not a step. A backward step and the end of a quarantine do not
/// count either.
#[test]
fn other_differences_of_clocks_are_not_taken_for_a_step_forward() {
    let mut world = World::new(3).warm();
    let pair = |world: &mut World| {
        let id = world.lock(b"job", secs(1));
        world.run(ms(1));
        assert_eq!(world.core().votes(id).grants().len(), 3);
        world.release(id);
    };
    pair(&mut world);
    for (after, node, micros) in
        [(10, 0, 90_000), (10, 1, -5_000_000), (1, 2, -10_000), (10, 1, 90_000)]
    {
        world.run(secs(after));
        world.servers[node].ahead += micros;
        pair(&mut world);
    }
}

/// A quarantine ends by the node's clock. For a client that saw it begin, it still has its full
/// length.
#[test]
fn a_quarantine_does_not_end_by_a_step_of_the_clock() {
    let mut world = World::new(3).warm().forgetful();
    world.restart(0, Memory::Lost);
    world.run(secs(2));
    assert_eq!(world.state(0), NodeState::Down(Cause::Quarantined));
    step(&mut world, 0, 3_600);
    world.run(secs(20));
    assert_eq!(world.state(0), NodeState::Down(Cause::Quarantined), "the 30 s are not over");
    world.run(secs(20));
    assert_eq!(world.state(0), NodeState::Ready);
}

/// While it is doubted, the node is not read as fast as it answers.
#[test]
fn a_node_whose_clock_was_set_forward_is_read_once_a_second() {
    let mut world = World::new(3).warm().forgetful();
    let id = world.lock(b"job", secs(1));
    world.release(id);
    step(&mut world, 0, 10);
    let id = world.lock(b"job", secs(1));
    world.release(id);
    assert_eq!(world.state(0), NodeState::Down(Cause::Quarantined));
    assert!(words(&world, 0).starts_with("30 s, its clock was set forward"));
    world.log.clear();
    world.run(secs(10));
    let looks = world.ran(0).iter().filter(|&&kind| kind == "look").count();
    assert!((9..=11).contains(&looks), "{looks} in 10 s");
}

/// The nodes answer one after the other, so that the first one was doubted alone for a while.
#[test]
fn a_node_that_was_doubted_wrongly_votes_again_at_once() {
    let mut world = World::new(3).warm();
    let id = world.lock(b"job", secs(1));
    world.release(id);
    for node in 0..3 {
        step(&mut world, node, 60);
        world.servers[node].delay = node as u64 * ms(5).as_nanos() as u64;
    }
    let id = world.lock(b"job", secs(1));
    world.run(ms(5));
    assert_eq!(world.state(0), NodeState::Down(Cause::Quarantined));
    world.run(ms(95));
    assert_eq!([0, 1, 2].map(|node| world.state(node)), [NodeState::Ready; 3]);
    world.release(id);
}
