//! Nodes with sentinels: which replies count on a promoted replica while it does not vote. The old
//! master may still vote for other clients meanwhile.

use std::time::Duration;

use redbolt::proto::{
    Cause, Event, LockRequest, LockState, LossCause, NodeState, RestartTrust, Settings, Vote,
};
use redbolt_node::Memory;

use crate::world::{World, Written, ms, secs};

const JOB: &[u8] = b"job";

/// Returns a world in which the first of these nodes has sentinels.
fn watched(nodes: usize) -> World {
    watched_with(nodes, |_| {})
}

fn watched_with(nodes: usize, set: impl Fn(&mut Settings)) -> World {
    let settings = |settings: &mut Settings| {
        settings.nodes[0].has_sentinels = true;
        settings.reconnect_backoff = (ms(1), ms(10));
        set(settings);
    };
    World::with(nodes, 1, settings).warm()
}

/// Replaces the first node by a replica with all its keys, to which the client connects within 100
/// ms.
fn fail_over(world: &mut World) {
    let keys = world.servers[0].store.snapshot();
    world.restart(0, Memory::Stale(keys));
    world.run(ms(100));
    assert_eq!(world.state(0), NodeState::Down(Cause::Quarantined));
}

/// Returns `true` if an extension of the lock succeeds at once.
fn extends(world: &mut World, ttl: Duration) -> bool {
    let id = world.clients[0].locks[0].id;
    let before = world.outcomes(id).len();
    world.extend_unwatched(id, ttl);
    world.run(ms(1));
    match world.outcomes(id)[before..] {
        [Event::Extended(_)] => true,
        [Event::NotExtended(_, refusal)] => {
            let first = refusal.votes.of(world.node(0));
            assert_eq!(first, Some(Vote::Fail(Cause::Quarantined)));
            false
        }
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn a_lock_survives_a_failover_if_the_old_master_keeps_it_longer_than_sentinels_answers_count() {
    let mut world = watched(1);
    let id = world.lock(JOB, secs(10));
    fail_over(&mut world);
    for _ in 0..20 {
        assert!(extends(&mut world, secs(10)));
        world.run(secs(2));
    }
    assert_eq!(world.state(0), NodeState::Ready, "its quarantine has ended");
    assert!(extends(&mut world, secs(10)));
    assert_eq!(world.core().state(id), LockState::Held);
}

/// The old master votes for another 5 s, for clients whose sentinels have not named the new one.
#[test]
fn a_short_lock_ends_with_a_failover_of_its_only_node() {
    let mut world = watched(1);
    let id = world.lock(JOB, secs(4));
    fail_over(&mut world);
    assert!(!extends(&mut world, secs(4)));
    assert!(world.pttl(0, JOB) > 3_990, "the replica has extended the key");
    world.run(secs(4));
    assert_eq!(world.outcomes(id).last(), Some(&Event::Lost(id, LossCause::Expired)));
}

/// The limit is 5 s, and 1 % of that and 2 ms for clocks that differ; the same drift is taken off
/// the TTL.
#[test]
fn a_lock_must_be_kept_for_5_s_from_the_connection_to_the_new_master() {
    for (held, counts) in [(4_846, false), (4_845, true)] {
        let mut world = watched(1);
        world.lock(JOB, secs(10));
        world.run(ms(held));
        let keys = world.servers[0].store.snapshot();
        world.restart(0, Memory::Stale(keys));
        world.flow();
        let left = secs(10) - ms(102) - ms(held);
        assert_eq!(left > secs(5) + ms(52), counts);
        world.run(ms(20));
        assert_eq!(extends(&mut world, secs(10)), counts, "{left:?}");
    }
}

#[test]
fn an_extension_that_did_not_count_is_not_remembered() {
    let mut world = watched(1);
    world.lock(JOB, secs(5));
    fail_over(&mut world);
    for _ in 0..4 {
        assert!(!extends(&mut world, secs(20)));
        world.cut(0, 0, Written::Runs);
        world.run(ms(100));
    }
}

/// The virtual machine was stopped, which only the wall clock shows.
#[test]
fn the_earlier_of_both_clocks_limits_how_long_a_lock_is_kept() {
    let mut world = watched(1);
    world.lock(JOB, secs(10));
    world.wall_ahead += secs(6).as_nanos() as i64;
    fail_over(&mut world);
    assert!(!extends(&mut world, secs(10)));
}

#[test]
fn a_node_without_sentinels_extends_in_quarantine() {
    let mut world = watched_with(1, |settings| settings.nodes[0].has_sentinels = false);
    world.lock(JOB, secs(4));
    fail_over(&mut world);
    assert!(extends(&mut world, secs(4)));
}

#[test]
fn a_short_lock_on_three_nodes_survives_a_failover_of_one() {
    let mut world = watched(3);
    let id = world.lock(JOB, secs(4));
    fail_over(&mut world);
    for _ in 0..20 {
        world.extend(id, secs(4));
        world.run(secs(2));
        assert_eq!(world.outcomes(id).last(), Some(&Event::Extended(id)));
    }
    assert_eq!(world.state(0), NodeState::Ready);
    world.pause(1);
    world.extend(id, secs(4));
    world.run(ms(100));
    assert_eq!(world.outcomes(id).last(), Some(&Event::Extended(id)), "now it counts");
}

/// The old master's counter is as low as before, and it may grant to another client, with a smaller
/// token.
#[test]
fn a_fencing_token_is_not_confirmed_by_a_promoted_replica_that_does_not_vote() {
    for is_watched in [false, true] {
        let mut world = watched_with(3, |settings| {
            settings.response_timeout = ms(500);
            settings.nodes[0].has_sentinels = is_watched;
        });
        let future = world.now().wall.0 / 1_000 + 1_000_000;
        for (node, counter) in [(0, future), (1, future + 10), (2, future + 20)] {
            let counter = counter.to_string();
            world.set(node, b"redbolt:fence:job", counter.as_bytes(), 1_000_000);
        }
        world.servers[1].delay = ms(150).as_nanos() as u64;
        world.pause(2);
        let request = LockRequest::new(JOB).ttl(secs(10)).fenced();
        let id = world.acquire(0, &request, &[JOB]);
        fail_over(&mut world);
        assert!(!world.is_granted(id), "the second node is slow");
        world.run(ms(700));
        assert_eq!(world.count("write back"), 1);
        assert_eq!(world.is_granted(id), !is_watched, "has sentinels: {is_watched}");
        if is_watched {
            let vote = world.refusal(id).votes.of(world.node(0));
            assert_eq!(vote, Some(Vote::Fail(Cause::Quarantined)));
        }
    }
}

/// The replica has its master's restart guard, but may lack writes that the master has synced.
#[test]
fn a_promoted_replica_is_quarantined_even_if_declared_durable() {
    for (has_sentinels, votes) in [(false, true), (true, false)] {
        let mut world = watched_with(1, |settings| {
            settings.nodes[0].has_sentinels = has_sentinels;
            settings.nodes[0].restart_trust = RestartTrust::Durable;
        });
        let keys = world.servers[0].store.snapshot();
        world.restart(0, Memory::Stale(keys));
        world.run(ms(100));
        assert_eq!(world.state(0) == NodeState::Ready, votes, "has sentinels: {has_sentinels}");
    }
}
