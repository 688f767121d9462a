//! Nodes that hang: connected, silent, and not waited for. What is slow is waited for all the same.

use std::time::Duration;

use redbolt::proto::{
    Cause, Event, KeyState, LockId, LockRequest, NodeMetrics, NodeState, PushState, RefusalReason,
    Settings, Verdict, ViewId, Vote, WakeStrategy,
};

use crate::world::{Accept, World, ms, secs};

/// Three nodes, each 1 ms away, on the second of which somebody else has the key; the third hangs.
fn split() -> World {
    let mut world = World::new(3).warm();
    world.delay(ms(1));
    world.set(1, b"job", b"theirs", 60_000);
    world.pause(2);
    world
}

/// As far away as a node was a few times makes it known.
fn get_to_know(world: &mut World, client: usize) {
    for _ in 0..8 {
        let id = world.acquire(client, &LockRequest::new(b"other"), &[b"other"]);
        world.run(ms(200));
        world.let_go(client, id);
        world.run(ms(200));
    }
    world.log.clear();
}

fn counted(world: &World, node: usize) -> &NodeMetrics {
    world.clients[0].core.metrics().node(world.node(node))
}

fn until_refused(world: &mut World, id: LockId) -> Duration {
    world.time_until(secs(10), |world| matches!(world.outcomes(id)[..], [Event::Refused(..)]))
}

#[test]
fn a_split_vote_is_decided_without_a_node_that_hangs() {
    let mut world = split();
    let id = world.lock(b"job", secs(10));
    let took = until_refused(&mut world, id);
    assert!(took <= ms(10), "{took:?}");
    let refusal = world.refusal(id);
    assert_eq!(
        (refusal.reason, refusal.votes.verdict()),
        (RefusalReason::Contended, Verdict::Contended)
    );
    assert_eq!(refusal.votes.of(world.node(2)), None, "it is no failure");
    assert!(refusal.votes.suspected().contains(world.node(2)));
    // From then on it costs nothing.
    let id = world.lock(b"job", secs(10));
    assert!(until_refused(&mut world, id) <= ms(2));
}

#[test]
fn it_is_reported_and_any_answer_ends_it() {
    let mut world = split();
    let id = world.lock(b"job", secs(10));
    until_refused(&mut world, id);
    assert_eq!(world.state(2), NodeState::Suspected);
    assert_eq!(counted(&world, 2).suspicions, 1);
    world.resume(2);
    world.run(ms(5));
    assert_eq!(world.state(2), NodeState::Ready);
    assert_eq!(world.holders(b"job"), [false, true, false], "what it granted late is undone");
    assert_eq!(world.kept(0), (0, 0));
}

/// Nobody has a key on the third node, so whoever has the first and that one has the lock.
#[test]
fn a_node_that_is_far_away_is_waited_for_where_its_answer_helps() {
    for far in [ms(40), ms(300)] {
        let mut world = World::with(3, 1, |settings| settings.response_timeout = secs(1)).warm();
        world.delay(ms(1));
        world.servers[2].delay = far.as_nanos() as u64;
        for _ in 0..8 {
            get_to_know(&mut world, 0);
        }
        world.set(1, b"job", b"theirs", 60_000);
        let id = world.lock(b"job", secs(10));
        world.run(2 * far + ms(10));
        assert!(world.is_granted(id), "{far:?}: {:?}", world.outcomes(id));
        assert_eq!(world.state(2), NodeState::Ready);
        world.release(id);
        // So it is where most are far away.
        world.servers[0].delay = far.as_nanos() as u64;
        get_to_know(&mut world, 0);
        let id = world.lock(b"job", secs(10));
        world.run(2 * far + ms(10));
        assert!(world.is_granted(id), "{far:?}: {:?}", world.outcomes(id));
    }
}

/// The first contact shows how far away a node is.
#[test]
fn a_node_that_is_far_away_is_waited_for_from_the_first_lock_on() {
    let mut world = World::new(3);
    world.delay(ms(1));
    world.servers[2].delay = ms(4).as_nanos() as u64;
    world.set(1, b"job", b"theirs", 60_000);
    let id = world.lock(b"job", secs(10));
    world.run(ms(40));
    assert!(world.is_granted(id), "{:?}", world.outcomes(id));
}

#[test]
fn suspicion_alone_is_no_failure_and_ends_no_try() {
    let mut world = split();
    let id = world.lock(b"job", secs(10));
    until_refused(&mut world, id);
    assert_eq!(world.state(2), NodeState::Suspected);
    // Without the second there is no quorum but with the one that is suspected.
    world.stop(1);
    let id = world.lock(b"job", secs(10));
    world.run(ms(45));
    assert_eq!(world.outcomes(id), [], "it is waited for");
    world.resume(2);
    world.run(ms(3));
    assert!(world.is_granted(id), "{:?}", world.outcomes(id));
}

#[test]
fn one_node_or_two_are_waited_for_as_long_as_they_may_take() {
    for nodes in [1, 2] {
        let mut world = World::new(nodes).warm();
        world.delay(ms(1));
        world.pause(nodes - 1);
        let id = world.lock(b"job", secs(10));
        world.run(ms(45));
        assert_eq!(world.outcomes(id), []);
        assert_ne!(world.state(nodes - 1), NodeState::Suspected);
        let took = until_refused(&mut world, id);
        assert!(took <= ms(6), "{took:?}");
        assert_eq!(world.refusal(id).reason, RefusalReason::NoQuorum);
    }
}

#[test]
fn a_lock_that_waits_has_one_ask_open_at_a_node_that_hangs() {
    let mut world = World::with(3, 1, |settings| settings.wake = WakeStrategy::Timer).warm();
    world.delay(ms(1));
    world.foreign(b"job", &[60_000, 60_000]);
    world.pause(2);
    let id = world.wait_for(b"job", secs(10));
    world.run(ms(1_500));
    assert_eq!(world.state(2), NodeState::Suspected);
    let asked = counted(&world, 2).asks;
    let others = counted(&world, 0).asks;
    assert!(asked <= 4 && others > 8, "{asked} asks, {others} of another node");
    world.run(ms(400));
    assert_eq!(counted(&world, 2).asks, asked, "no more of them");
    // What was held back is asked as soon as it answers, and counts.
    world.set(0, b"job", b"theirs", 1);
    world.run(ms(1_000));
    let id_is_out = !world.is_granted(id);
    world.resume(2);
    world.run(ms(500));
    assert!(id_is_out && world.is_granted(id), "{:?}", world.outcomes(id));
    assert_eq!(world.holders(b"job"), [true, true, true]);
}

/// A late grant takes part, as that of any node.
#[test]
fn a_suspected_node_is_asked_once_for_each_lock_and_its_late_grant_counts() {
    let mut world = split();
    let id = world.lock(b"job", secs(10));
    until_refused(&mut world, id);
    let id = world.lock(b"free", secs(10));
    world.run(ms(2));
    assert!(world.is_granted(id));
    assert_eq!(world.core().votes(id).grants().len(), 2);
    world.resume(2);
    world.run(ms(5));
    assert_eq!(world.core().votes(id).grants().len(), 3);
}

/// The others are asked without the lead's word, which has told and hangs then.
#[test]
fn a_lead_that_hangs_is_not_waited_for() {
    let far = |settings: &mut Settings| settings.retry_backoff = (secs(10), secs(10));
    let mut world = World::with(3, 2, far).warm();
    world.delay(ms(1));
    let theirs = world.acquire(1, &LockRequest::new(b"job").ttl(secs(20)), &[b"job"]);
    world.run(ms(10));
    let id = world.wait_for(b"job", secs(10));
    world.run(ms(100));
    assert_eq!(world.push_state(0, 0), PushState::Active);
    world.log.clear();
    world.let_go(1, theirs);
    world.run_until(secs(1), |world| world.ran(0).contains(&"undo"));
    world.pause(0);
    let took = world.time_until(secs(10), |world| world.is_granted(id));
    assert!(took <= ms(15), "{took:?}");
    // The next one waits for the word of another node.
    world.release(id);
    world.run(ms(50));
    let theirs = world.acquire(1, &LockRequest::new(b"job").ttl(secs(20)), &[b"job"]);
    world.run(ms(20));
    let id = world.wait_for(b"job", secs(10));
    // Longer than it sits out, having had its turn.
    world.run(ms(200));
    assert_eq!(world.push_state(0, 1), PushState::Active);
    world.let_go(1, theirs);
    world.flow();
    let took = world.time_until(secs(10), |world| world.is_granted(id));
    assert!(took <= ms(15), "{took:?}");
}

/// It was suspected, so that its confirmation cannot be what makes the quorum of the release.
#[test]
fn a_release_does_not_wait_for_a_node_that_hangs() {
    let mut world = World::new(3).warm();
    world.delay(ms(1));
    let held = world.lock(b"mine", secs(10));
    world.run(ms(10));
    world.set(1, b"job", b"theirs", 60_000);
    world.pause(2);
    let id = world.lock(b"job", secs(10));
    until_refused(&mut world, id);
    world.stop(1);
    world.run(ms(200));
    world.release(held);
    let took = world
        .time_until(secs(1), |world| matches!(world.outcomes(held)[..], [_, Event::Released(..)]));
    assert!(took <= ms(3), "{took:?}");
}

/// A node that hangs is noticed although every lock is granted without it.
#[test]
fn it_is_noticed_where_nothing_is_contended() {
    let mut world = World::new(3).warm();
    world.delay(ms(1));
    world.pause(2);
    for _ in 0..20 {
        let id = world.lock(b"job", secs(10));
        world.run(ms(5));
        assert!(world.is_granted(id));
        world.release(id);
        world.run(ms(5));
    }
    assert_eq!(world.state(2), NodeState::Suspected);
}

/// It has not answered since long before, and stays suspected while its link is opened again and again.
#[test]
fn a_node_behind_a_black_hole_stays_suspected() {
    let mut world = split();
    let id = world.lock(b"job", secs(10));
    until_refused(&mut world, id);
    world.servers[2].accept = Accept::Silent;
    // It is given up and opened again, in vain.
    for _ in 0..8 {
        world.run(ms(400));
        let id = world.lock(b"job", secs(10));
        let took = until_refused(&mut world, id);
        assert!(took <= ms(3), "{took:?}");
        assert!(matches!(world.vote(id, 2), None | Some(Vote::Fail(_))));
    }
}

#[test]
fn an_extension_takes_a_sixth_of_its_ttl_at_the_most() {
    let mut world = World::with(3, 1, |settings| settings.response_timeout = secs(1)).warm();
    let id = world.lock(b"job", ms(1_200));
    world.pause(1);
    world.pause(2);
    world.extend(id, ms(1_200));
    let is_told = |world: &mut World| {
        world.outcomes(id).iter().any(|event| matches!(event, Event::NotExtended(..)))
    };
    let took = world.time_until(secs(2), is_told);
    assert_eq!(took, ms(200));
    world.resume(1);
    world.extend(id, ms(1_200));
    assert!(world.outcomes(id).contains(&Event::Extended(id)), "there is time for another one");
}

fn seen(world: &mut World, id: ViewId) -> (Duration, Vec<Result<KeyState, Cause>>) {
    let viewed = |world: &mut World| {
        world.clients[0].events.iter().any(|&(_, event)| event == Event::Viewed(id))
    };
    let took = world.time_until(secs(10), viewed);
    let view = world.core().take_view(id).unwrap();
    (took, view.nodes.into_iter().map(|node| node.state).collect())
}

/// As it is taken for as long as it has not failed to answer anything.
#[test]
fn whoever_looks_waits_for_a_node_that_hangs_for_a_moment_only() {
    let mut world = split();
    let now = world.now();
    let id = world.core().inspect(b"job", now).unwrap();
    world.flow();
    let (took, seen) = seen(&mut world, id);
    assert!(took >= ms(250) && took <= ms(260), "{took:?}");
    assert!(seen[0].is_ok() && seen[1].is_ok());
    assert_eq!(seen[2], Err(Cause::NoAnswer));
    assert_eq!(counted(&world, 2).timeouts, 1);
    // What it says later is nobody's.
    world.resume(2);
    world.run(secs(1));
}

#[test]
fn whoever_looks_or_breaks_a_lock_does_not_wait_for_a_suspected_node() {
    let mut world = split();
    let id = world.lock(b"job", secs(10));
    until_refused(&mut world, id);
    assert_eq!(world.state(2), NodeState::Suspected);
    let now = world.now();
    let id = world.core().inspect(b"job", now).unwrap();
    world.flow();
    let (took, _) = seen(&mut world, id);
    assert!(took <= ms(5), "{took:?}");
    let now = world.now();
    let id = world.core().force_unlock_foreign(b"job", now).unwrap();
    world.flow();
    let (took, _) = seen(&mut world, id);
    assert!(took <= ms(10), "{took:?}");
    assert!(!world.holders(b"job")[1]);
}

#[test]
fn whoever_looks_sees_what_a_slow_node_has_to_say() {
    let mut world = World::new(3).warm();
    world.set(2, b"job", b"theirs", 60_000);
    world.servers[2].delay = ms(100).as_nanos() as u64;
    let now = world.now();
    let id = world.core().inspect(b"job", now).unwrap();
    world.flow();
    let (_, seen) = seen(&mut world, id);
    assert!(matches!(seen[2], Ok(KeyState::Foreign(_))), "{seen:?}");
}

/// Nobody can say anything without them.
#[test]
fn without_a_quorum_whoever_looks_waits_for_nodes_that_hang() {
    let mut world = split();
    world.pause(1);
    let now = world.now();
    let id = world.core().inspect(b"job", now).unwrap();
    world.flow();
    world.run(ms(400));
    world.resume(1);
    let (_, seen) = seen(&mut world, id);
    assert!(matches!(seen[1], Ok(KeyState::Foreign(_))), "{seen:?}");
}
