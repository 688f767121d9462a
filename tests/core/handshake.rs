//! The facts that a client must know about a node before the node votes.

use redbolt::proto::{Cause, Credentials, Event, NodeState, RefusalReason, Secret, Settings};
use redbolt_node::Memory;

use crate::world::{Accept, World, Written, bulk, error, ms, secs};

fn with_password(settings: &mut Settings) {
    let credentials = Credentials::new(None, Secret::new(b"sesame".to_vec()));
    for node in &mut settings.nodes {
        node.credentials = Some(credentials.clone());
        node.database = 3;
    }
}

fn protected(nodes: usize) -> World {
    let mut world = World::with(nodes, 1, with_password);
    let now = world.server_now();
    for server in &mut world.servers {
        server.inspect("3", now);
        server.store.require_password("sesame");
        server.delay = ms(10).as_nanos() as u64;
    }
    world
}

/// Returns when lock requests reached a node, in ms after `since`.
fn ask_times(world: &World, since: u64) -> Vec<u64> {
    world.log.iter().filter(|ran| ran.is_ask()).map(|ran| (ran.at - since) / 1_000_000).collect()
}

#[test]
fn without_auth_and_select_the_first_request_is_sent_with_the_handshake() {
    let mut world = World::new(1);
    world.servers[0].delay = ms(10).as_nanos() as u64;
    let begun = world.boot;
    let id = world.lock(b"job", secs(10));
    world.run(ms(100));
    assert_eq!(ask_times(&world, begun), [30], "connect, and one flight");
    assert!(world.is_granted(id));
}

#[test]
fn the_first_request_waits_until_auth_and_select_have_succeeded() {
    let mut world = protected(1);
    let begun = world.boot;
    let id = world.lock(b"job", secs(10));
    world.run(ms(200));
    assert_eq!(ask_times(&world, begun), [50], "connect, handshake, request");
    assert!(world.is_granted(id));
    world.release(id);
    world.run(ms(100));

    world.cut(0, 0, Written::Runs);
    world.log.clear();
    let begun = world.boot;
    let id = world.lock(b"job", secs(10));
    world.run(ms(49));
    assert_eq!(ask_times(&world, begun), [30], "proven credentials save a flight");
    assert!(world.is_granted(id));
}

#[test]
fn after_a_wrong_password_or_database_no_request_is_sent() {
    type Spoil = fn(&mut World);
    let table: [(&str, Spoil, Cause); 2] = [
        (
            "password",
            |world| world.servers[0].store.require_password("changed"),
            Cause::WrongPassword,
        ),
        (
            "database",
            |world| {
                world.answer(0, |args| {
                    (args[0] == b"SELECT").then(|| error("ERR DB index is out of range")).flatten()
                });
            },
            Cause::NoSuchDatabase,
        ),
    ];
    for (what, spoil, cause) in table {
        let mut world = protected(1);
        spoil(&mut world);
        let id = world.lock(b"job", secs(10));
        world.run(secs(5));
        match world.outcomes(id)[..] {
            [Event::Refused(_, refusal)] => {
                let vote = refusal.votes.of(world.node(0));
                assert_eq!(vote, Some(redbolt::proto::Vote::Fail(cause)), "{what}");
            }
            ref other => panic!("{what}: {other:?}"),
        }
        let id = world.lock(b"job", secs(10));
        world.run(secs(5));
        assert!(matches!(world.outcomes(id)[..], [Event::Refused(..)]), "{what}");
        let handshake = ["auth", "select", "client", "info", "probe", "look", "check"];
        assert!(world.ran(0).iter().all(|kind| handshake.contains(kind)), "{what}");
        let now = world.server_now();
        for database in ["0", "3"] {
            world.servers[0].inspect(database, now);
            assert_eq!(world.value(0, b"job"), b"", "{what}");
        }
    }
}

#[test]
fn a_password_that_stops_working_has_to_be_proven_again() {
    let mut world = protected(1);
    world.run(ms(100));
    world.servers[0].store.require_password("changed");
    world.cut(0, 0, Written::Runs);
    world.run(ms(300));
    let node = world.node(0);
    world.run_until(secs(3), |world| world.core().node_state(node) == NodeState::Connecting);
    world.log.clear();
    let id = world.lock(b"job", secs(10));
    world.run(secs(3));
    assert!(world.count("auth") > 0);
    assert!(matches!(world.outcomes(id)[..], [Event::Refused(..)]));
    assert_eq!(world.log.iter().filter(|ran| ran.is_ask()).count(), 0);
}

/// Makes a node answer one section of INFO differently.
fn spoil(world: &mut World, node: usize, section: &'static [u8], reply: Option<Vec<u8>>) {
    world
        .answer(node, move |args| (args.get(1) == Some(&section)).then(|| reply.clone()).flatten());
}

#[test]
fn nodes_that_cannot_vote_are_named_with_their_cause() {
    type Answer = Option<Vec<u8>>;
    let table: [(&[u8], Answer, Cause); 9] = [
        (b"replication", bulk("role:slave\r\n"), Cause::Replica),
        (b"replication", bulk("# nothing\r\n"), Cause::UnexpectedReply),
        (
            b"server",
            bulk(&format!("redis_mode:cluster\r\nrun_id:{:040}\r\n", 7)),
            Cause::ClusterMode,
        ),
        (b"server", bulk("redis_mode:standalone\r\n"), Cause::UnexpectedReply),
        (b"server", bulk(&format!("run_id:{:040}\r\n", 0)), Cause::SameServer),
        (b"memory", bulk("maxmemory:1000\r\nmaxmemory_policy:allkeys-lru\r\n"), Cause::Evicting),
        (
            b"memory",
            error("NOPERM this user has no permissions to run 'info'"),
            Cause::NoPermission,
        ),
        (b"server", error("LOADING Redis is loading the dataset in memory"), Cause::Loading),
        (b"server", error("NOAUTH Authentication required."), Cause::PasswordMissing),
    ];
    for (section, reply, cause) in table {
        let mut world = World::new(3);
        spoil(&mut world, 2, section, reply);
        world.servers[1].delay = ms(5).as_nanos() as u64;
        let id = world.lock(b"job", secs(20));
        world.run(ms(30));
        let node = world.node(2);
        assert_eq!(world.core().node_state(node), NodeState::Down(cause));
        assert!(world.is_granted(id), "{cause}: the other nodes decide");
        assert_eq!(
            world.holders(b"job"),
            [true, true, false],
            "{cause}: the request in the handshake's flight is undone"
        );
        world.release(id);
        world.run(secs(2));
        assert_eq!(world.holders(b"job"), [false; 3], "{cause}");
        assert_eq!(world.kept(0), (0, 0), "{cause}");

        world.pause(1);
        let id = world.lock(b"job", secs(20));
        world.run(ms(600));
        assert!(
            matches!(world.outcomes(id)[..], [Event::Refused(_, r)] if r.reason == RefusalReason::NoQuorum)
        );
    }
}

#[test]
fn a_server_configured_twice_has_one_vote_and_the_report_names_both() {
    let mut world = World::new(3);
    spoil(&mut world, 2, b"server", bulk(&format!("run_id:{:040}\r\n", 0)));
    world.run(ms(30));
    let node = world.node(2);
    assert_eq!(world.core().detail(node, Cause::SameServer).as_deref(), Some("it is node 1"));
}

#[test]
fn an_evicting_node_votes_if_that_is_accepted() {
    let mut world = World::with(1, 1, |settings| settings.accept_evicting = true);
    spoil(&mut world, 0, b"memory", bulk("maxmemory:1000\r\nmaxmemory_policy:allkeys-lru\r\n"));
    let id = world.lock(b"job", secs(10));
    world.run(ms(30));
    assert!(world.is_granted(id));
}

/// A vote in the handshake's flight counts only once the handshake has succeeded.
#[test]
fn a_grant_counts_only_after_its_handshake() {
    let mut world = World::new(1);
    spoil(&mut world, 0, b"replication", bulk("role:slave\r\n"));
    let id = world.lock(b"job", secs(10));
    world.run(ms(600));
    assert!(matches!(world.outcomes(id)[..], [Event::Refused(..)]));
    assert_eq!(world.holders(b"job"), [false]);
    assert_eq!(world.kept(0), (0, 0));
}

#[test]
fn a_restarted_server_gets_a_handshake_again() {
    let mut world = World::new(1).warm();
    world.stop(0);
    world.start(0, Memory::Lost);
    world.run(secs(2));
    assert!(world.count("info") > 0);
    let node = world.node(0);
    assert_eq!(world.core().node_state(node), NodeState::Down(Cause::Quarantined));
    world.run(secs(30));
    let id = world.lock(b"job", secs(10));
    assert!(world.is_granted(id));
}

/// A server behind two addresses must not count twice for an extension either.
#[test]
fn an_extension_in_the_flight_of_a_refused_handshake_does_not_count() {
    let mut world = World::new(3).warm();
    let id = world.lock(b"job", secs(10));
    world.pause(2);
    world.cut(0, 1, Written::Runs);
    spoil(&mut world, 1, b"server", bulk(&format!("run_id:{:040}\r\n", 0)));
    world.servers[1].delay = ms(10).as_nanos() as u64;
    world.log.clear();
    world.run_until(secs(1), |world| world.count("info") > 0);
    world.extend(id, secs(20));
    world.run(ms(100));
    assert!(world.ran(1).contains(&"extend"), "the extension was in the handshake's flight");
    assert!(!world.outcomes(id).contains(&Event::Extended(id)), "one of three is not a quorum");
    assert!(matches!(world.outcomes(id)[..], [Event::Granted(_), Event::NotExtended(..)]));
}

/// Its requests are undone after that handshake, so none of their grants may count.
#[test]
fn a_node_whose_handshake_is_late_does_not_vote() {
    let mut world = World::with(3, 1, |settings| settings.response_timeout = ms(300));
    world.pause(1);
    world.run(ms(300));
    world.pause(2);
    let id = world.lock(b"job", secs(10));
    let node = world.node(1);
    world.run_until(secs(1), |world| world.core().node_state(node) != NodeState::Connecting);
    assert_eq!(world.outcomes(id), [], "one node has granted, and the round is not over");
    world.resume(1);
    assert!(world.ran(1).contains(&"ask"), "the request was in the handshake's flight");
    assert_eq!(world.core().node_state(node), NodeState::Down(Cause::NoAnswer));
    assert!(!world.is_granted(id), "its grant is being undone");
    assert!(!world.holders(b"job")[1]);
    world.resume(2);
    world.release(id);
    world.run(secs(3));
    assert_eq!(world.core().node_state(node), NodeState::Ready, "a second handshake succeeded");
    assert_eq!(world.holders(b"job"), [false; 3]);
    assert_eq!(world.kept(0), (0, 0));
}

/// Each address is known to lead to the other's server, until that address completes a new
/// handshake.
#[test]
fn nodes_that_swapped_their_addresses_vote_again() {
    let mut world = World::new(3).warm();
    for node in [0, 1] {
        world.servers[node].accept = Accept::No;
        world.cut(0, node, Written::Runs);
    }
    let (first, second) = world.servers.split_at_mut(1);
    std::mem::swap(&mut first[0].store, &mut second[0].store);
    for node in [0, 1] {
        world.servers[node].accept = Accept::Yes;
    }
    world.run(secs(10));
    for node in 0..3 {
        let node = world.node(node);
        assert_eq!(world.core().node_state(node), NodeState::Ready);
    }
    world.stop(2);
    let id = world.lock(b"job", secs(10));
    assert!(world.is_granted(id), "both nodes count");
}
