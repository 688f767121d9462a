//! The commands that a node supports and permits: a node that lacks one that locks need does not
//! vote, reports the cause, and keeps none of our keys.

use std::time::Duration;

use redbolt::proto::{
    Cause, Credentials, Event, LockRequest, NodeState, RefusalReason, RestartGuard, Secret, Setup,
    Vote,
};
use redbolt_node::model::Denial;

use crate::world::{World, Written, bulk, error, ms, secs};

const DENIALS: [Denial; 2] = [Denial::Forbidden, Denial::RenamedAway];

/// Returns a world with a node on which these commands were removed before any client connected.
fn lacking(mut world: World, node: usize, commands: &[&str], denial: Denial) -> World {
    for command in commands {
        world.servers[node].store.deny(command, Some(denial));
    }
    world
}

fn credentials() -> Credentials {
    Credentials::new(None, Secret::new(b"sesame".to_vec()))
}

fn asks() -> [LockRequest<'static>; 4] {
    let (one, many) = (LockRequest::new(b"job"), LockRequest::new(b"job").and(b"other"));
    [one.clone(), many.clone(), one.fenced(), many.fenced()]
}

fn detail(world: &World, node: usize, cause: Cause) -> String {
    world.clients[0].core.detail(world.node(node), cause).unwrap_or_default()
}

/// Returns the commands that may be missing, with the cause that reports each.
fn table(denial: Denial) -> [(&'static [&'static str], Cause); 4] {
    let missing = match denial {
        Denial::Forbidden => Cause::NoPermission,
        Denial::RenamedAway => Cause::UnknownCommand,
    };
    [
        (&["eval", "evalsha"], Cause::ScriptsForbidden),
        (&["eval"], Cause::ScriptsForbidden),
        (&["set"], missing),
        (&["eval", "evalsha", "set"], Cause::ScriptsForbidden),
    ]
}

// No key is left.

#[test]
fn a_refused_attempt_leaves_no_key_if_scripts_or_set_are_forbidden() {
    for denial in DENIALS {
        for (commands, cause) in table(denial) {
            for (kind, delay) in asks().iter().flat_map(|request| [(request, 0), (request, 5)]) {
                let mut world = lacking(World::new(1), 0, commands, denial);
                world.servers[0].delay = ms(delay).as_nanos() as u64;
                let id = world.acquire(0, kind, &[b"job"]);
                world.run(ms(100));
                let shown = format!("{denial:?} {commands:?}");
                assert_eq!(world.vote(id, 0), Some(Vote::Fail(cause)), "{shown}");
                assert_eq!(world.refusal(id).reason, RefusalReason::NoQuorum);
                assert_eq!(world.holders(b"job"), [false], "{shown}");
                let id = world.acquire(0, kind, &[b"job"]);
                world.run(ms(100));
                assert_eq!(world.vote(id, 0), Some(Vote::Fail(cause)), "{shown}: again");
                assert_eq!(world.kept(0), (0, 0), "{shown}: there is nothing to undo");
            }
        }
    }
}

#[test]
fn in_a_set_of_three_a_lock_leaves_no_key_on_a_node_without_undos() {
    for denial in DENIALS {
        for (commands, cause) in table(denial) {
            let mut world = lacking(World::new(3), 2, commands, denial);
            for _ in 0..3 {
                let id = world.lock(b"job", secs(20));
                world.run(ms(30));
                assert!(world.is_granted(id), "{commands:?}: the other nodes decide");
                assert_eq!(world.holders(b"job"), [true, true, false], "{commands:?}");
                assert_eq!(world.state(2), NodeState::Down(cause));
                world.release(id);
                world.cut(0, 2, Written::Runs);
                world.run(ms(700));
            }
            assert_eq!(world.kept(0), (0, 0));
        }
    }
}

/// The scripts run, but their undo may not read or may not delete.
#[test]
fn a_node_that_forbids_reading_or_deleting_does_not_vote_and_keeps_nothing() {
    let causes = [Cause::NoPermission, Cause::UnknownCommand];
    for (denial, cause) in DENIALS.into_iter().zip(causes) {
        // Without a restart guard, no lock can be fenced.
        for (restart_guard, kinds) in
            [(RestartGuard::On, &asks()[..]), (RestartGuard::Off, &asks()[..2])]
        {
            for (kind, command) in
                kinds.iter().flat_map(|request| [(request, "get"), (request, "del")])
            {
                let world = World::with(1, 1, |settings| settings.restart_guard = restart_guard);
                let mut world = lacking(world, 0, &[command], denial);
                let id = world.acquire(0, kind, &[b"job"]);
                world.run(ms(100));
                let shown = format!("{denial:?} {command} {restart_guard:?}");
                assert_eq!(world.vote(id, 0), Some(Vote::Fail(cause)), "{shown}");
                // The test's own lookup must be allowed.
                world.servers[0].store.deny(command, None);
                assert_eq!(
                    (world.holders(b"job"), world.kept(0)),
                    (vec![false], (0, 0)),
                    "{shown}"
                );
            }
        }
    }
}

/// If a command is forbidden while a plain lock is held, that lock's key stays, but no later one.
#[test]
fn a_node_that_has_refused_an_undo_gets_no_request_that_could_leave_a_key() {
    let mut world = lacking(World::new(1).warm(), 0, &["del"], Denial::Forbidden);
    let id = world.lock(b"job", secs(20));
    world.release(id);
    // A denied request is undone as well and finds nothing to delete, which does not prove that
    // undos work.
    let _ = world.lock(b"job", secs(20));
    for _ in 0..20 {
        let id = world.lock(b"another", secs(20));
        assert_eq!(world.vote(id, 0), Some(Vote::Fail(Cause::NoPermission)));
        assert_eq!(world.holders(b"another"), [false]);
        world.run(ms(333));
    }
    world.servers[0].store.deny("del", None);
    world.run(ms(1_500));
    assert_eq!((world.holders(b"job"), world.kept(0)), (vec![false], (0, 0)));
    let id = world.lock(b"another", secs(20));
    assert!(world.is_granted(id));
}

/// A user with a password may have few permissions. A script shows a missing permission before it
/// could leave a key that cannot be deleted.
#[test]
fn with_a_password_the_first_lock_leaves_no_key_on_a_node_without_undos() {
    for request in asks() {
        for others in [0, 2] {
            let mut world = World::with(1 + others, 1, |settings| {
                for node in &mut settings.nodes {
                    node.credentials = Some(credentials());
                }
            });
            world.servers.iter_mut().for_each(|server| server.store.require_password("sesame"));
            let mut world = lacking(world.warm(), 0, &["del"], Denial::Forbidden);
            let id = world.acquire(0, &request, &[b"job"]);
            world.run(ms(30));
            assert_eq!(world.is_granted(id), others == 2);
            world.servers[0].store.deny("del", None);
            assert!(!world.holders(b"job")[0], "of {} nodes", 1 + others);
        }
    }
}

/// By then the permissions are known, and plain commands are cheaper.
#[test]
fn with_a_password_the_second_lock_uses_set() {
    let mut world = World::with(1, 1, |settings| {
        settings.nodes[0].credentials = Some(credentials());
    });
    world.servers[0].store.require_password("sesame");
    let first = world.lock(b"first", secs(20));
    assert!(world.is_granted(first));
    let begun = world.log.len();
    let second = world.lock(b"second", secs(20));
    assert!(world.is_granted(second));
    assert!(world.log[begun..].iter().any(|ran| ran.is_ask() && ran.words[0] == b"SET"));
}

#[test]
fn with_a_password_a_node_without_scripts_gets_no_request() {
    let mut world = World::with(1, 1, |settings| {
        settings.nodes[0].credentials = Some(credentials());
    });
    world.servers[0].store.require_password("sesame");
    let mut world = lacking(world, 0, &["eval"], Denial::Forbidden);
    let id = world.lock(b"job", secs(20));
    world.run(ms(30));
    assert_eq!(world.vote(id, 0), Some(Vote::Fail(Cause::ScriptsForbidden)));
    assert!(!world.log.iter().any(|ran| ran.is_ask()));
}

/// Without a restart guard, nothing else would stop the request.
#[test]
fn without_a_restart_guard_a_node_without_scripts_keeps_no_key() {
    let world = World::with(1, 1, |settings| settings.restart_guard = RestartGuard::Off);
    let mut world = lacking(world, 0, &["eval"], Denial::Forbidden);
    let id = world.lock(b"job", secs(20));
    world.run(ms(30));
    assert_eq!(world.vote(id, 0), Some(Vote::Fail(Cause::ScriptsForbidden)));
    assert_eq!((world.holders(b"job"), world.kept(0)), (vec![false], (0, 0)));
}

/// The last connection proves nothing: permissions may change while no client is connected.
#[test]
fn scripts_that_were_forbidden_between_two_connections_leave_no_key() {
    let mut world = World::new(1).warm();
    let id = world.lock(b"job", secs(20));
    world.release(id);
    world.cut(0, 0, Written::Runs);
    let mut world = lacking(world, 0, &["eval", "evalsha"], Denial::Forbidden);
    world.run(secs(1));
    let id = world.lock(b"job", secs(20));
    world.run(ms(10));
    assert_eq!(world.vote(id, 0), Some(Vote::Fail(Cause::ScriptsForbidden)));
    assert_eq!(world.holders(b"job"), [false]);
}

/// The request is sent together with the handshake, which has not yet shown what is allowed now.
#[test]
fn a_request_sent_with_the_next_handshake_leaves_no_key() {
    let mut world = World::new(1).warm();
    let id = world.lock(b"job", secs(20));
    world.release(id);
    world.run(ms(100));
    world.cut(0, 0, Written::Runs);
    let mut world = lacking(world, 0, &["eval", "evalsha"], Denial::Forbidden);
    world.log.clear();
    let id = world.lock(b"job", secs(20));
    world.run(ms(10));
    assert_eq!(world.vote(id, 0), Some(Vote::Fail(Cause::ScriptsForbidden)));
    assert!(world.log.iter().any(|ran| ran.is_ask()), "it did ride with it");
    assert_eq!(world.holders(b"job"), [false]);
}

/// An undo that has found nothing does not prove that the user may delete.
#[test]
fn with_a_password_a_node_that_denied_gets_a_script_again() {
    let mut world = World::with(1, 1, |settings| {
        settings.nodes[0].credentials = Some(credentials());
    });
    world.servers[0].store.require_password("sesame");
    world.set(0, b"first", b"theirs", 60_000);
    let first = world.lock(b"first", secs(20));
    assert_eq!(world.vote(first, 0), Some(Vote::Deny));
    assert_eq!(world.kept(0), (0, 0));
    let begun = world.log.len();
    let second = world.lock(b"second", secs(20));
    assert!(world.is_granted(second));
    assert!(!world.log[begun..].iter().any(|ran| ran.is_ask() && ran.words[0] == b"SET"));
}

// The missing command is named, and nothing is written.

#[test]
fn a_node_without_a_needed_command_is_not_enrolled_and_its_cause_names_the_command() {
    for setup in [Setup::Enrol, Setup::IfNew, Setup::Init, Setup::ReadOnly] {
        let world = World::with(1, 1, |settings| settings.setup = setup).unguarded();
        let mut world = lacking(world, 0, &["eval", "evalsha"], Denial::Forbidden);
        world.run(secs(3));
        assert_eq!(world.state(0), NodeState::Down(Cause::ScriptsForbidden), "{setup:?}");
        let words = "NOPERM this user has no permissions to run the 'eval' command";
        assert_eq!(detail(&world, 0, Cause::ScriptsForbidden), words);
        assert_eq!(world.restart_guard(0).0, "", "{setup:?}");
        assert_eq!(world.count("enrol"), 0, "{setup:?}");
    }
}

#[test]
fn a_node_votes_again_when_scripts_are_allowed_again() {
    let mut world = lacking(World::new(1), 0, &["eval"], Denial::Forbidden);
    world.run(secs(3));
    world.servers[0].store.deny("eval", None);
    world.run(secs(2));
    let id = world.lock(b"job", secs(20));
    assert!(world.is_granted(id));
}

/// Probes change nothing, even if the restart guard is missing.
#[test]
fn probing_a_node_writes_nothing() {
    let mut world = World::with(1, 1, |settings| settings.setup = Setup::ReadOnly).unguarded();
    let keys = |world: &World| {
        let text = format!("{:?}", world.servers[0].store);
        text[text.find("keys").unwrap()..].to_owned()
    };
    let before = keys(&world);
    world.run(secs(3));
    assert_eq!(world.count("probe"), 6, "probes run once per connection");
    assert_eq!(keys(&world), before);
}

// Digests.

#[test]
fn without_evalsha_scripts_are_sent_as_text() {
    for denial in DENIALS {
        for kind in asks() {
            let mut world = lacking(World::new(3), 2, &["evalsha"], denial);
            for _ in 0..3 {
                let id = world.acquire(0, &kind, &[b"job"]);
                world.run(ms(10));
                assert!(world.is_granted(id));
                assert_eq!(world.holders(b"job"), [true; 3]);
                world.extend(id, secs(20));
                world.release(id);
                assert_eq!(world.holders(b"job"), [false; 3]);
            }
            assert_eq!(world.state(2), NodeState::Ready);
            assert!(world.ran(2).iter().all(|kind| !kind.ends_with("sha")), "{denial:?}");
            assert!(world.ran(0).contains(&"undo sha"), "the other nodes still get digests");
        }
    }
}

// Writes.

const NOREPLICAS: &str = "NOREPLICAS Not enough good replicas to write.";

/// Makes the node refuse every write before it runs.
fn take_no_writes(world: &mut World, node: usize, words: &'static str) {
    world.answer(node, move |args| {
        let text = args.get(1).copied().unwrap_or_default();
        let writes = args[0] == b"SET"
            || args[0].starts_with(b"EVAL") && args.get(2) != Some(&&b"0"[..]) && !text.is_empty();
        writes.then(|| error(words)).flatten()
    });
}

#[test]
fn a_node_without_enough_replicas_does_not_vote_until_it_accepts_writes() {
    for restart_guard in [RestartGuard::On, RestartGuard::Off] {
        let mut world = World::with(3, 1, |settings| settings.restart_guard = restart_guard).warm();
        let held = world.lock(b"held", secs(20));
        take_no_writes(&mut world, 2, NOREPLICAS);
        let id = world.lock(b"job", secs(20));
        assert!(world.is_granted(id));
        assert_eq!(world.state(2), NodeState::Down(Cause::NoReplicas));
        world.release(id);
        world.log.clear();
        for _ in 0..10 {
            let id = world.lock(b"job", secs(20));
            let vote = world.core().votes(id).of(world.node(2));
            assert_eq!(
                vote,
                Some(Vote::Fail(Cause::NoReplicas)),
                "the state is known without a request"
            );
            world.release(id);
            world.run(ms(290));
        }
        let asked = world.log.iter().filter(|ran| ran.node == 2 && ran.is_ask()).count();
        assert_eq!(asked, 0, "{restart_guard:?}");
        assert!((2..=3).contains(&world.count("probe")), "the node is probed once a second");
        assert_eq!(world.count("client"), 0, "the connection is reused");

        world.servers[2].answer = None;
        world.run(ms(1_010));
        assert_eq!(world.state(2), NodeState::Ready, "{restart_guard:?}");
        let id = world.lock(b"job", secs(20));
        assert_eq!(world.holders(b"job"), [true; 3]);
        world.release(id);
        world.release(held);
        world.run(secs(1));
        assert_eq!((world.holders(b"held"), world.kept(0)), (vec![false; 3], (0, 0)));
    }
}

/// Before 7.0, scripts may write on such a node. A held lock can be extended there, but a grant in
/// the handshake's flight does not count.
#[test]
fn a_server_that_refuses_only_direct_writes_extends_and_does_not_vote() {
    let sets = |args: &[&[u8]]| (args[0] == b"SET").then(|| error(NOREPLICAS)).flatten();
    let mut world = World::new(1).warm();
    let held = world.lock(b"held", secs(10));
    world.answer(0, sets);
    let id = world.lock(b"job", secs(10));
    assert_eq!(world.vote(id, 0), Some(Vote::Fail(Cause::NoReplicas)));
    world.extend(held, secs(20));
    assert!(world.outcomes(held).contains(&Event::Extended(held)));

    let mut world = World::new(1);
    world.answer(0, sets);
    let id = world.lock(b"job", secs(10));
    world.run(ms(10));
    assert_eq!(world.vote(id, 0), Some(Vote::Fail(Cause::NoReplicas)));
    assert_eq!((world.holders(b"job"), world.kept(0)), (vec![false], (0, 0)));
}

#[test]
fn a_node_that_refuses_writes_is_named_at_first_contact() {
    for (words, cause) in [
        (NOREPLICAS, Cause::NoReplicas),
        ("OOM command not allowed when used memory > 'maxmemory'.", Cause::OutOfMemory),
        ("MISCONF Redis is configured to save RDB snapshots", Cause::DiskTrouble),
    ] {
        let mut world = World::new(1);
        take_no_writes(&mut world, 0, words);
        world.run(ms(10));
        assert_eq!(
            world.state(0),
            NodeState::Down(cause),
            "the cause is known before any lock request"
        );
        let id = world.lock(b"job", secs(10));
        assert_eq!(world.vote(id, 0), Some(Vote::Fail(cause)));
        world.servers[0].answer = None;
        world.run(ms(1_100));
        let id = world.lock(b"job", secs(10));
        assert!(world.is_granted(id), "{words}");
    }
}

// Other unusable peers.

#[test]
fn a_tls_port_is_recognised() {
    let mut world = World::new(1);
    world.answer(0, |_| Some(b"\x15\x03\x01\x00\x02\x02\x46".to_vec()));
    world.run(ms(10));
    assert_eq!(world.state(0), NodeState::Down(Cause::TlsPort));
}

/// Such a server may also just close the connection, as others do for other reasons.
#[test]
fn a_server_that_closes_before_it_answers_may_expect_tls() {
    let mut world = World::new(1);
    world.servers[0].delay = ms(5).as_nanos() as u64;
    world.run(ms(12));
    world.hang_up(0);
    world.run(ms(10));
    assert_eq!(world.state(0), NodeState::Down(Cause::ConnectionClosed));
    let words = detail(&world, 0, Cause::ConnectionClosed);
    assert!(words.contains("TLS"), "{words}");

    let mut world = World::new(1).warm();
    world.hang_up(0);
    assert_eq!(detail(&world, 0, Cause::ConnectionClosed), "", "the server had answered before");
}

#[test]
fn a_server_that_is_too_old_is_reported_with_its_version() {
    let mut world = World::new(1);
    world.answer(0, |args| match args.get(1).copied() {
        Some(b"ID") => error("ERR Syntax error, try CLIENT (LIST | KILL | GETNAME | SETNAME)"),
        Some(b"server") => {
            let info = format!("redis_version:4.0.14\r\nrun_id:{:040}\r\n", 0);
            bulk(&info)
        }
        _ => None,
    });
    let id = world.lock(b"job", secs(10));
    world.run(ms(10));
    assert_eq!(world.vote(id, 0), Some(Vote::Fail(Cause::TooOld)));
    assert_eq!(detail(&world, 0, Cause::TooOld), "4.0.14, 5.0.0 is needed");
    assert_eq!(world.holders(b"job"), [false]);
}

#[test]
fn a_password_for_a_server_without_one_is_reported() {
    let mut world = World::with(1, 1, |settings| {
        settings.nodes[0].credentials = Some(credentials());
    });
    let id = world.lock(b"job", secs(10));
    world.run(ms(10));
    assert_eq!(world.vote(id, 0), Some(Vote::Fail(Cause::NoPasswordSet)));
}

/// A batch at first contact works like a single lock.
#[test]
fn many_first_requests_are_granted_in_one_flight() {
    const LOCKS: usize = 50;
    let mut world = World::new(3);
    world.delay(ms(10));
    let begun = world.boot;
    let names: Vec<Vec<u8>> = (0..LOCKS).map(|at| vec![b'k', at as u8]).collect();
    let ids: Vec<_> = names
        .iter()
        .map(|name| world.begin(0, &LockRequest::new(name).ttl(secs(10)), &[name]))
        .collect();
    world.run(ms(50));
    assert!(ids.iter().all(|&id| world.is_granted(id)));
    let requests: Vec<_> = world.log.iter().filter(|ran| ran.is_ask()).collect();
    assert_eq!(requests.len(), 3 * LOCKS);
    assert!(requests.iter().all(|ran| ran.at == begun + Duration::as_nanos(&ms(30)) as u64));
}

/// The node is read once a second, and each read takes a while.
#[test]
fn a_node_that_refuses_writes_is_reported_while_it_is_being_read() {
    let mut world = World::new(1).warm();
    world.servers[0].delay = ms(10).as_nanos() as u64;
    take_no_writes(&mut world, 0, NOREPLICAS);
    world.lock(b"job", secs(10));
    world.run(ms(100));
    for _ in 0..400 {
        world.run(ms(5));
        assert_eq!(world.state(0), NodeState::Down(Cause::NoReplicas));
    }
}

#[test]
fn a_node_that_may_not_vote_is_disconnected_at_once_if_nothing_is_owed() {
    let mut world = World::new(1);
    world.answer(0, |args| {
        (args.get(1) == Some(&&b"replication"[..])).then(|| bulk("role:slave\r\n")).flatten()
    });
    world.run(ms(1));
    assert_eq!(world.state(0), NodeState::Down(Cause::Replica));
    assert_eq!(world.connections(0), 0);
}

#[test]
fn a_server_that_sends_nonsense_first_is_not_taken_for_a_tls_port() {
    let mut world = World::new(1);
    world.pause(0);
    world.run(ms(1));
    world.say(0, 0, b"HTTP/1.1 400 Bad Request\r\n\r\n");
    assert_eq!(world.state(0), NodeState::Down(Cause::Violation));
}

/// The second refusal has a different text.
#[test]
fn the_text_of_a_refusal_is_that_of_its_cause() {
    let mut world = lacking(World::new(1), 0, &["info", "eval"], Denial::Forbidden);
    world.run(ms(1));
    assert_eq!(world.state(0), NodeState::Down(Cause::NoPermission));
    assert!(detail(&world, 0, Cause::NoPermission).contains("'info"));
}
