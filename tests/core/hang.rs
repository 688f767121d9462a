//! Nodes that hang, connected and silent: clients do not wait for them, but still wait for slow
//! nodes.

use std::time::Duration;

use redbolt::proto::UnlockScope;
use redbolt::proto::{
    Cause, Event, KeyState, LockId, LockRequest, NodeMetrics, NodeState, PushState, RefusalReason,
    Settings, Verdict, ViewId, Vote, WakeStrategy,
};

use crate::world::{Accept, World, Written, ms, secs};

/// Returns three nodes, each 1 ms away. Another client has the key on the second; the third hangs.
fn split() -> World {
    let mut world = World::new(3).warm();
    world.delay(ms(1));
    world.set(1, b"job", b"theirs", 60_000);
    world.pause(2);
    world
}

/// Sends a few requests, from whose round trips the client learns how far away the nodes are.
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
    // The response timeout is 50 ms, so the vote was decided earlier.
    assert!(took <= ms(10), "{took:?}");
    let refusal = world.refusal(id);
    assert_eq!(
        (refusal.reason, refusal.votes.verdict()),
        (RefusalReason::Contended, Verdict::Contended)
    );
    assert_eq!(refusal.votes.of(world.node(2)), None, "suspicion is not a failed vote");
    assert!(refusal.votes.suspected().contains(world.node(2)));
    // From then on, the node costs nothing.
    let id = world.lock(b"job", secs(10));
    assert!(until_refused(&mut world, id) <= ms(2));
}

#[test]
fn suspicion_is_reported_and_any_answer_ends_it() {
    let mut world = split();
    let id = world.lock(b"job", secs(10));
    until_refused(&mut world, id);
    assert_eq!(world.state(2), NodeState::Suspected);
    assert_eq!(counted(&world, 2).suspicions, 1);
    world.resume(2);
    world.run(ms(5));
    assert_eq!(world.state(2), NodeState::Ready);
    assert_eq!(world.holders(b"job"), [false, true, false], "its late grant is undone");
    assert_eq!(world.kept(0), (0, 0));
}

/// The third node has no key, so a client that is granted by the first node and that one has the
/// lock.
#[test]
fn a_far_node_is_waited_for_if_its_answer_matters() {
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
        // This also holds if most nodes are far away.
        world.servers[0].delay = far.as_nanos() as u64;
        get_to_know(&mut world, 0);
        let id = world.lock(b"job", secs(10));
        world.run(2 * far + ms(10));
        assert!(world.is_granted(id), "{far:?}: {:?}", world.outcomes(id));
    }
}

/// The first contact shows how far away a node is.
#[test]
fn a_far_node_is_waited_for_from_the_first_lock_on() {
    let mut world = World::new(3);
    world.delay(ms(1));
    world.servers[2].delay = ms(4).as_nanos() as u64;
    world.set(1, b"job", b"theirs", 60_000);
    let id = world.lock(b"job", secs(10));
    world.run(ms(40));
    assert!(world.is_granted(id), "{:?}", world.outcomes(id));
}

/// The time of a first contact counts from its beginning, also for locks that are requested later.
#[test]
fn a_node_that_has_not_been_reached_for_a_while_is_not_waited_for() {
    let mut world = World::new(3);
    world.delay(ms(1));
    world.servers[2].accept = Accept::Silent;
    world.set(1, b"job", b"theirs", 60_000);
    // The node has already had longer than an answer takes.
    world.run(ms(240));
    let id = world.lock(b"job", secs(10));
    let took = until_refused(&mut world, id);
    assert!(took >= ms(9) && took <= ms(15), "{took:?}");
    assert_eq!(world.refusal(id).reason, RefusalReason::Contended);
}

#[test]
fn suspicion_alone_is_not_a_failure_and_ends_no_attempt() {
    let mut world = split();
    let id = world.lock(b"job", secs(10));
    until_refused(&mut world, id);
    assert_eq!(world.state(2), NodeState::Suspected);
    // Without the second node, a quorum needs the suspected one.
    world.stop(1);
    let id = world.lock(b"job", secs(10));
    world.run(ms(45));
    assert_eq!(world.outcomes(id), [], "the client waits for the suspected node");
    world.resume(2);
    world.run(ms(3));
    assert!(world.is_granted(id), "{:?}", world.outcomes(id));
}

#[test]
fn one_node_or_two_are_waited_for_until_their_timeout() {
    for nodes in [1, 2] {
        let mut world = World::new(nodes).warm();
        world.delay(ms(1));
        world.pause(nodes - 1);
        let id = world.lock(b"job", secs(10));
        world.run(ms(45));
        assert_eq!(world.outcomes(id), []);
        // Without another quorum, suspicion could not shorten the wait.
        assert_ne!(world.state(nodes - 1), NodeState::Suspected);
        let took = until_refused(&mut world, id);
        assert!(took <= ms(6), "{took:?}");
        assert_eq!(world.refusal(id).reason, RefusalReason::NoQuorum);
    }
}

#[test]
fn a_waiting_lock_has_one_pending_request_at_a_hanging_node() {
    let mut world = World::with(3, 1, |settings| settings.wake = WakeStrategy::Timer).warm();
    world.delay(ms(1));
    // Two of three keys are held, so the lock must wait.
    world.foreign(b"job", &[60_000, 60_000]);
    world.pause(2);
    let id = world.wait_for(b"job", secs(10));
    world.run(ms(1_500));
    assert_eq!(world.state(2), NodeState::Suspected);
    let asked = counted(&world, 2).asks;
    let others = counted(&world, 0).asks;
    assert!(asked <= 4 && others > 8, "{asked} asks, {others} at another node");
    world.run(ms(400));
    assert_eq!(counted(&world, 2).asks, asked, "no request was added");
    // Once the node answers, it gets the request that was held back, and its grant counts.
    world.set(0, b"job", b"theirs", 1);
    world.run(ms(1_000));
    let id_is_out = !world.is_granted(id);
    world.resume(2);
    world.run(ms(500));
    assert!(id_is_out && world.is_granted(id), "{:?}", world.outcomes(id));
    assert_eq!(world.holders(b"job"), [true, true, true]);
}

#[test]
fn a_suspected_node_gets_one_request_per_lock_and_its_late_grant_counts() {
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

/// When the lead has notified and then hangs, the others are asked without its answer.
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
    // The first node has released the key and notified, and hangs from now on.
    world.pause(0);
    let took = world.time_until(secs(10), |world| world.is_granted(id));
    assert!(took <= ms(15), "{took:?}");
    // The next waiter listens to another node.
    world.release(id);
    world.run(ms(50));
    let theirs = world.acquire(1, &LockRequest::new(b"job").ttl(secs(20)), &[b"job"]);
    world.run(ms(20));
    let id = world.wait_for(b"job", secs(10));
    // A client that has just had the lock leaves it to others for less than this.
    world.run(ms(200));
    assert_eq!(world.push_state(0, 1), PushState::Active);
    world.let_go(1, theirs);
    world.flow();
    let took = world.time_until(secs(10), |world| world.is_granted(id));
    assert!(took <= ms(15), "{took:?}");
}

/// The node was suspected, so its confirmation cannot complete the release's quorum.
#[test]
fn a_release_does_not_wait_for_a_node_that_hangs() {
    let mut world = World::new(3).warm();
    world.delay(ms(1));
    let held = world.lock(b"mine", secs(10));
    world.run(ms(10));
    world.set(1, b"job", b"theirs", 60_000);
    world.pause(2);
    let id = world.lock(b"job", secs(10));
    // This attempt makes the client suspect the third node.
    until_refused(&mut world, id);
    world.stop(1);
    world.run(ms(200));
    world.release(held);
    let took = world
        .time_until(secs(1), |world| matches!(world.outcomes(held)[..], [_, Event::Released(..)]));
    assert!(took <= ms(3), "{took:?}");
}

/// A hanging node is noticed although every lock is granted without it.
#[test]
fn a_hanging_node_is_noticed_without_contention() {
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

/// The node has long been silent, and stays suspected while its link is reopened repeatedly.
#[test]
fn a_node_behind_a_black_hole_stays_suspected() {
    let mut world = split();
    let id = world.lock(b"job", secs(10));
    until_refused(&mut world, id);
    world.servers[2].accept = Accept::Silent;
    // The link is given up and reopened without success.
    for _ in 0..8 {
        world.run(ms(400));
        let id = world.lock(b"job", secs(10));
        let took = until_refused(&mut world, id);
        assert!(took <= ms(3), "{took:?}");
        assert!(matches!(world.vote(id, 2), None | Some(Vote::Fail(_))));
    }
}

#[test]
fn an_extension_takes_at_most_a_sixth_of_its_ttl() {
    let mut world = World::with(3, 1, |settings| settings.response_timeout = secs(1)).warm();
    let id = world.lock(b"job", ms(1_200));
    world.pause(1);
    world.pause(2);
    world.extend(id, ms(1_200));
    let is_notified = |world: &mut World| {
        world.outcomes(id).iter().any(|event| matches!(event, Event::NotExtended(..)))
    };
    let took = world.time_until(secs(2), is_notified);
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

/// A node is treated as alive until it has failed to answer something.
#[test]
fn an_inspection_waits_only_briefly_for_a_hanging_node() {
    let mut world = split();
    let now = world.now();
    let id = world.core().inspect(b"job", now).unwrap();
    world.flow();
    let (took, seen) = seen(&mut world, id);
    assert!(took >= ms(250) && took <= ms(260), "{took:?}");
    assert!(seen[0].is_ok() && seen[1].is_ok());
    assert_eq!(seen[2], Err(Cause::NoAnswer));
    assert_eq!(counted(&world, 2).timeouts, 1);
    // A later answer belongs to no inspection.
    world.resume(2);
    world.run(secs(1));
}

#[test]
fn inspections_and_force_unlocks_do_not_wait_for_a_suspected_node() {
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
    let id = world.core().force_unlock(b"job", UnlockScope::Anything, now).unwrap();
    world.flow();
    let (took, _) = seen(&mut world, id);
    assert!(took <= ms(10), "{took:?}");
    assert!(!world.holders(b"job")[1]);
}

#[test]
fn an_inspection_includes_a_slow_node() {
    let mut world = World::new(3).warm();
    world.set(2, b"job", b"theirs", 60_000);
    world.servers[2].delay = ms(100).as_nanos() as u64;
    let now = world.now();
    let id = world.core().inspect(b"job", now).unwrap();
    world.flow();
    let (_, seen) = seen(&mut world, id);
    assert!(matches!(seen[2], Ok(KeyState::Foreign(_))), "{seen:?}");
}

/// A key that is left there would deny the next client.
#[test]
fn a_force_unlock_waits_for_a_node_that_is_later_than_an_inspection_does() {
    let patient = |settings: &mut Settings| {
        settings.response_timeout = secs(3);
        settings.connect_timeout = secs(3);
    };
    let mut world = World::with(3, 1, patient).warm();
    world.set(2, b"job", b"theirs", 60_000);
    world.servers[2].delay = ms(400).as_nanos() as u64;
    let now = world.now();
    let id = world.core().force_unlock(b"job", UnlockScope::Anything, now).unwrap();
    world.flow();
    let (_, seen) = seen(&mut world, id);
    assert!(matches!(seen[2], Ok(KeyState::Foreign(_))), "{seen:?}");
    assert!(!world.holders(b"job")[2]);
}

#[test]
fn without_a_quorum_an_inspection_waits_for_hanging_nodes() {
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

/// The node was never connected to, and no client has the key there.
#[test]
fn a_first_contact_may_take_as_long_as_the_farthest_nodes_do() {
    let mut world = World::with(3, 1, |settings| {
        settings.response_timeout = secs(3);
        settings.connect_timeout = secs(3);
    });
    world.delay(ms(150));
    world.servers[2].accept = Accept::Silent;
    world.run(secs(2));
    world.set(1, b"job", b"theirs", 60_000);
    world.servers[2].accept = Accept::Yes;
    world.servers[2].delay = ms(300).as_nanos() as u64;
    world.cut(0, 2, Written::Vanishes);
    let id = world.lock(b"job", secs(10));
    world.run(secs(2));
    assert!(world.is_granted(id), "{:?}", world.outcomes(id));
}

#[test]
fn a_node_that_is_only_slower_than_the_others_is_not_suspected() {
    let mut world = World::new(3).warm();
    world.delay(ms(1));
    world.servers[2].delay = ms(20).as_nanos() as u64;
    get_to_know(&mut world, 0);
    for at in 0..40 {
        let id = world.lock(&[at], secs(1));
        world.run(ms(5));
        assert_eq!(world.state(2), NodeState::Ready, "{at}");
        world.release(id);
    }
}
