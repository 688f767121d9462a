//! Peers that are silent, late, or not Redis servers.

use redbolt::proto::{
    Cause, Event, LockRequest, MAX_PIPELINE, NodeState, RefusalReason, Vote, Wait, WakeStrategy,
};

use crate::world::{Accept, World, Written, ms, secs};

#[test]
fn a_silent_peer_is_given_up_after_the_limit() {
    let mut world = World::new(3).warm();
    let begun = world.boot;
    world.pause(2);
    let id = world.lock(b"job", secs(10));
    world.run(ms(1_999));
    let node = world.node(2);
    assert_eq!(world.core().node_state(node), NodeState::Ready, "a slow node is not dead");
    world.run(ms(1));
    assert_eq!(world.core().node_state(node), NodeState::Down(Cause::DeadPeer));
    assert_eq!(world.boot - begun, 2_000_000_000);
    world.release(id);
    world.resume(2);
    world.run(secs(3));
    assert_eq!(world.core().node_state(node), NodeState::Ready);
    assert_eq!(world.holders(b"job"), [false; 3]);
}

#[test]
fn a_peer_that_sends_anything_is_alive() {
    let mut world = World::new(1).warm();
    world.servers[0].delay = ms(900).as_nanos() as u64;
    for at in 0..20u8 {
        world.lock(&[at], secs(10));
        world.run(ms(300));
    }
    let node = world.node(0);
    assert_eq!(world.core().node_state(node), NodeState::Ready);
    assert_eq!(world.count("info"), 0, "the link was never reopened");
}

#[test]
fn a_late_answer_is_consumed_and_shifts_nothing() {
    let mut world = World::new(1).warm();
    world.set(0, b"theirs", b"x", 60_000);
    world.pause(0);
    let late = world.lock(b"theirs", secs(10));
    world.run(ms(60));
    assert!(
        matches!(world.outcomes(late)[..], [Event::Refused(_, r)] if r.reason == RefusalReason::NoQuorum)
    );
    let ours = world.lock(b"ours", secs(10));
    let denied = world.lock(b"theirs", secs(10));
    world.resume(0);
    assert!(world.is_granted(ours));
    assert!(
        matches!(world.outcomes(denied)[..], [Event::Refused(_, r)] if r.reason == RefusalReason::Contended)
    );
    assert_eq!(world.ran(0), ["ask", "check", "undo", "ask", "check", "ask", "check", "undo sha"]);
    world.release(ours);
    assert_eq!(world.kept(0), (0, 0));
}

#[test]
fn invalid_bytes_end_only_the_link_that_they_came_on() {
    let nonsense: [(&[u8], Cause); 12] = [
        (b"+OK\r\n", Cause::UnexpectedReply),
        (b":1\r\n", Cause::UnexpectedReply),
        (b"$-1\r\n", Cause::UnexpectedReply),
        (b"*-1\r\n", Cause::UnexpectedReply),
        (b"*2\r\n+OK\r\n+OK\r\n", Cause::UnexpectedReply),
        (b"-ERR what\r\n", Cause::UnexpectedReply),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", Cause::Violation),
        (b"_\r\n", Cause::Violation),
        (b"%1\r\n+a\r\n+b\r\n", Cause::Violation),
        (b"\0\0\0\0", Cause::Violation),
        (b"*99999999\r\n", Cause::Violation),
        (b"$99999999\r\n", Cause::Violation),
    ];
    for (bytes, cause) in nonsense {
        let mut world = World::new(3).warm();
        let held = world.lock(b"held", secs(20));
        world.say(0, 2, bytes);
        let node = world.node(2);
        let shown = bytes.escape_ascii().to_string();
        assert_eq!(world.core().node_state(node), NodeState::Down(cause), "{shown}");
        let id = world.lock(b"job", secs(20));
        assert!(world.is_granted(id), "{shown}");
        for other in [0, 1] {
            let other = world.node(other);
            assert_eq!(world.core().node_state(other), NodeState::Ready, "{shown}");
        }
        world.run(secs(2));
        assert_eq!(world.core().node_state(node), NodeState::Ready, "{shown}");
        world.release(id);
        world.release(held);
        assert_eq!(world.holders(b"held"), [false; 3], "{shown}");
        assert_eq!(world.kept(0), (0, 0), "{shown}");
    }
}

/// After a reply of a type that its request cannot have, no later reply can be matched.
#[test]
fn a_mistyped_answer_ends_the_link() {
    for answer in [&b":1\r\n"[..], b"$2\r\nOK\r\n", b"*1\r\n+OK\r\n", b"*0\r\n", b"+QUEUED\r\n"] {
        let mut world = World::new(1).warm();
        world.answer(0, |args| (args[0] == b"SET").then(|| answer.to_vec()));
        let id = world.lock(b"job", secs(20));
        let vote = Vote::Fail(Cause::UnexpectedReply);
        match world.outcomes(id)[..] {
            [Event::Refused(_, refusal)] => {
                assert_eq!(refusal.votes.of(world.node(0)), Some(vote));
            }
            ref other => panic!("{other:?}"),
        }
    }
}

/// The undo without a proper reply is sent again on the next link.
#[test]
fn a_mistyped_answer_confirms_no_undo() {
    let mut world = World::new(3).warm();
    let id = world.lock(b"job", secs(20));
    world.answer(2, |args| args[0].starts_with(b"EVAL").then(|| b"+OK\r\n".to_vec()));
    world.release(id);
    let node = world.node(2);
    assert_eq!(world.core().node_state(node), NodeState::Down(Cause::UnexpectedReply));
    world.servers[2].answer = None;
    world.run(secs(1));
    assert_eq!(world.holders(b"job"), [false; 3]);
    world.run(secs(10));
    assert_eq!(world.kept(0), (0, 0));
}

#[test]
fn a_mistyped_answer_fails_what_it_was_for_at_once() {
    let mut world = World::new(1).warm();
    let id = world.lock(b"job", secs(20));
    world.answer(0, |args| args[0].starts_with(b"EVAL").then(|| b"+OK\r\n".to_vec()));
    world.extend(id, secs(20));
    assert!(matches!(world.outcomes(id)[1..], [Event::NotExtended(..)]));
    world.run(secs(1));
    world.servers[0].answer = None;
    world.run(secs(2));
    world.answer(0, |args| (args[0] == b"GETRANGE").then(|| b":1\r\n".to_vec()));
    let now = world.now();
    let view = world.core().inspect(b"job", now).unwrap();
    world.flow();
    let view = world.core().take_view(view).expect("the view failed at once");
    assert_eq!(view.nodes[0].state, Err(Cause::UnexpectedReply));
}

/// The elements of an array are not replies to later requests, even if no lock waits for the array
/// any more.
#[test]
fn an_array_for_a_forgotten_request_ends_the_link() {
    let mut world = World::new(1).warm();
    world.servers[0].delay = ms(100).as_nanos() as u64;
    world.answer(0, |args| (args[0] == b"SET").then(|| b"*2\r\n:0\r\n+OK\r\n".to_vec()));
    world.lock(b"job", ms(60));
    world.run(ms(150));
    assert_eq!(world.kept(0), (0, 0), "the request is forgotten");
    world.lock(b"other", secs(20));
    world.run(ms(60));
    let node = world.node(0);
    assert_eq!(world.core().node_state(node), NodeState::Down(Cause::UnexpectedReply));
}

#[test]
fn an_array_for_a_kill_ends_the_link() {
    let mut world = World::new(1).warm();
    world.pause(0);
    world.lock(b"job", secs(20));
    world.cut(0, 0, Written::LeavesGhost);
    world.answer(0, |args| (args.get(1) == Some(&&b"KILL"[..])).then(|| b"*0\r\n".to_vec()));
    world.resume(0);
    world.run_until(secs(1), |world| world.count("kill") > 0);
    let node = world.node(0);
    assert_eq!(world.core().node_state(node), NodeState::Down(Cause::UnexpectedReply));
}

#[test]
fn a_connection_refused_by_the_server_reports_its_reason() {
    for (words, cause) in [
        ("-DENIED Redis is running in protected mode\r\n", Cause::ProtectedMode),
        ("-ERR max number of clients reached\r\n", Cause::MaxClients),
    ] {
        let mut world = World::new(1);
        world.pause(0);
        let id = world.lock(b"job", secs(10));
        world.say(0, 0, words.as_bytes());
        world.hang_up(0);
        let node = world.node(0);
        assert_eq!(world.core().node_state(node), NodeState::Down(cause));
        match world.outcomes(id)[..] {
            [Event::Refused(_, refusal)] => {
                assert_eq!(refusal.votes.of(node), Some(Vote::Fail(cause)));
            }
            ref other => panic!("{other:?}"),
        }
    }
}

#[test]
fn unreachable_nodes_fail_with_their_cause() {
    let mut world = World::new(4);
    world.servers[2].accept = Accept::No;
    world.servers[3].accept = Accept::Silent;
    let id = world.lock(b"job", secs(10));
    world.run(ms(500));
    match world.outcomes(id)[..] {
        [Event::Refused(_, refusal)] => {
            let of = |node| refusal.votes.of(world.node(node));
            assert_eq!(refusal.reason, RefusalReason::NoQuorum);
            assert_eq!(of(2), Some(Vote::Fail(Cause::ConnectionRefused)));
            assert_eq!(of(3), Some(Vote::Fail(Cause::ConnectTimeout)));
        }
        ref other => panic!("{other:?}"),
    }
    assert_eq!(world.holders(b"job"), [false; 4]);
}

/// The limit is for lock requests; releases, which free room, are always accepted.
#[test]
fn a_full_pipeline_refuses_requests_and_accepts_releases() {
    let mut world = World::new(1).warm();
    let held = world.lock(b"held", secs(20));
    world.pause(0);
    let now = world.now();
    for at in 0..MAX_PIPELINE {
        world.core().acquire(&LockRequest::new(&at.to_be_bytes()), now).unwrap();
    }
    let one_more = world.core().acquire(&LockRequest::new(b"one more"), now).unwrap();
    match world.core().poll_event() {
        Some(Event::Refused(id, refusal)) => {
            assert_eq!(id, one_more);
            let vote = refusal.votes.of(world.node(0));
            assert_eq!(vote, Some(Vote::Fail(Cause::Backlog)));
        }
        other => panic!("{other:?}"),
    }
    world.release(held);
    world.resume(0);
    assert!(matches!(world.outcomes(held)[1], Event::Released(_, c) if c.nodes == 1));
    assert_eq!(world.holders(b"held"), [false]);
    assert_eq!(world.count("ask"), MAX_PIPELINE + 1);
}

#[test]
fn spurious_calls_are_harmless() {
    let mut world = World::new(3).warm();
    let id = world.lock(b"job", secs(10));
    let (now, link) = (world.now(), world.link(1));
    let core = world.core();
    core.connected(link, now);
    core.received(link, 0, now);
    core.transmitted(link, 0);
    core.timeout(now);
    core.open_all(now);
    core.release(id, now);
    core.release(id, now);
    assert!(core.extend(id, secs(1), now).is_err());
    world.flow();
    world.release(id);
    assert!(matches!(world.outcomes(id)[..], [Event::Granted(_), Event::Released(..)]));
    let now = world.now();
    world.stop(2);
    let link = world.link(2);
    let core = world.core();
    core.disconnected(link, Cause::ConnectionReset, now);
    core.space(link)[0] = b'+';
    core.received(link, 1, now);
    assert_eq!(core.transmit(link), b"");
    world.run(secs(1));
    assert_eq!(world.kept(0), (0, 0));
}

/// The lock stays as it is: a silent peer does not make the client keep extensions without end.
#[test]
fn a_full_pipeline_refuses_extensions() {
    let mut world = World::new(1).warm();
    let held = world.lock(b"held", secs(20));
    world.pause(0);
    let now = world.now();
    for at in 0..MAX_PIPELINE {
        world.core().acquire(&LockRequest::new(&at.to_be_bytes()), now).unwrap();
    }
    world.core().extend(held, secs(20), now).unwrap();
    match world.core().poll_event() {
        Some(Event::NotExtended(id, refusal)) => {
            assert_eq!(id, held);
            let vote = refusal.votes.of(world.node(0));
            assert_eq!(vote, Some(Vote::Fail(Cause::Backlog)));
        }
        other => panic!("{other:?}"),
    }
    world.release(held);
    world.resume(0);
    assert_eq!(world.count("extend"), 0);
    assert_eq!(world.holders(b"held"), [false]);
}

/// A waiter asks for the remaining TTL only if there is room; otherwise its timer is enough.
#[test]
fn a_full_pipeline_is_not_asked_for_remaining_times() {
    for room in [0, 1] {
        let mut world = World::with(1, 1, |settings| settings.wake = WakeStrategy::Timer).warm();
        world.set(0, b"job", b"theirs", 60_000);
        world.pause(0);
        let now = world.now();
        world.core().acquire(&LockRequest::new(b"job").wait(Wait::Forever), now).unwrap();
        // The undo takes the slot of the request that it undoes.
        for at in 1 + room..MAX_PIPELINE {
            world.core().acquire(&LockRequest::new(&at.to_be_bytes()), now).unwrap();
        }
        world.resume(0);
        assert_eq!((world.count("undo"), world.count("pttl")), (1, room));
    }
}

/// Each attempt may open the link ahead of its backoff, but not once per attempt.
#[test]
fn a_dead_node_is_not_probed_by_every_attempt() {
    let mut world = World::new(3).warm();
    world.servers[2].accept = Accept::No;
    world.cut(0, 2, Written::Runs);
    let tries = |world: &mut World, count: usize| {
        world.clients[0].states.clear();
        for _ in 0..count {
            let id = world.lock(b"job", secs(10));
            world.release(id);
            world.run(ms(5));
        }
        let opened = (world.node(2), NodeState::Connecting);
        world.clients[0].states.iter().filter(|&&state| state == opened).count()
    };
    let first = tries(&mut world, 200);
    assert!(first <= 20, "{first} connects in the first second");
    let later = tries(&mut world, 800);
    assert!((4..=24).contains(&later), "{later} connects in four seconds");
}

#[test]
fn a_cause_is_reported_with_what_the_driver_knows_of_it() {
    let mut world = World::new(1).warm();
    let (node, link) = (world.node(0), world.link(0));
    world.core().explain(link, Cause::NameLookup, "no such host".to_owned());
    assert_eq!(world.core().detail(node, Cause::NameLookup).as_deref(), Some("no such host"));
    assert_eq!(world.core().detail(node, Cause::Io), None);
}

/// A deadline ends the attempt before the connection is given up.
#[test]
fn a_node_that_is_not_connected_yet_is_not_reported_as_silent() {
    let mut world = World::new(3);
    [1, 2].iter().for_each(|&node| world.servers[node].accept = Accept::Silent);
    let request = LockRequest::new(b"job").wait(Wait::UpTo(ms(100)));
    let id = world.acquire(0, &request, &[b"job"]);
    world.run(ms(200));
    assert_eq!(world.vote(id, 1), Some(Vote::Fail(Cause::ConnectTimeout)));
}
