//! Nodes with sentinels: what counts on a replica that was promoted, as long as it does not vote. The old master may
//! still vote for other clients meanwhile.

use redbolt::proto::{Cause, LockRequest, NodeState, RestartTrust, Settings, Vote};
use redbolt_node::Memory;

use crate::world::{World, ms, secs};

const JOB: &[u8] = b"job";

/// The first of these nodes has sentinels, unless they are set otherwise.
fn watched_with(nodes: usize, set: impl Fn(&mut Settings)) -> World {
    let settings = |settings: &mut Settings| {
        settings.nodes[0].has_sentinels = true;
        settings.reconnect_backoff = (ms(1), ms(10));
        set(settings);
    };
    World::with(nodes, 1, settings).warm()
}

/// A replica with all keys of the first node takes its place, and the client is connected to it within 100 ms.
fn fail_over(world: &mut World) {
    let keys = world.servers[0].store.snapshot();
    world.restart(0, Memory::Stale(keys));
    world.run(ms(100));
    assert_eq!(world.state(0), NodeState::Down(Cause::Quarantined));
}

/// The old master's counter is as low as before, and it may grant to another client, with a smaller token.
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

/// It has its master's restart guard, and may lack what that has synced.
#[test]
fn a_promoted_replica_is_quarantined_also_if_restarts_are_said_to_lose_nothing() {
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
