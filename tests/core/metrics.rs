//! Metrics, exactly: each history is short enough to count by hand.

use std::time::Duration;

use redbolt::proto::metrics::{By, Kind};
use redbolt::proto::{
    AutoExtend, Cause, Event, LockRequest, LossCause, Metrics, NodeMetrics, RefusalReason, Wait,
    WakeStrategy,
};
use redbolt_node::Memory;

use crate::world::{Accept, World, Written, error, ms, secs};

/// Returns three voters, each 1 ms away.
fn world() -> World {
    let mut world = World::new(3).warm();
    world.servers.iter_mut().for_each(|server| server.delay = ms(1).as_nanos() as u64);
    world
}

fn counted(world: &World) -> &Metrics {
    world.clients[0].core.metrics()
}

/// Returns a counter of each node.
fn each(world: &World, of: impl Fn(&NodeMetrics) -> u64) -> [u64; 3] {
    std::array::from_fn(|node| of(&counted(world).nodes[node]))
}

/// Returns the kinds with a count above zero.
fn happened<K: Kind>(counts: By<K>) -> Vec<(K, u64)> {
    counts.iter().filter(|&(_, count)| count > 0).collect()
}

fn fails(world: &World, node: usize) -> Vec<(Cause, u64)> {
    happened(counted(world).nodes[node].fails)
}

#[test]
fn a_new_core_has_counted_nothing_but_its_connections() {
    let world = world();
    assert_eq!(counted(&world).acquisitions + counted(&world).attempts, 0);
    assert_eq!(each(&world, |node| node.connections), [1; 3]);
    assert_eq!(each(&world, NodeMetrics::reconnects), [0; 3]);
    assert_eq!(each(&world, |node| node.asks + node.undos + node.timeouts), [0; 3]);
    assert_eq!(each(&world, |node| node.round_trip.count()), [0; 3], "handshakes are not counted");
}

#[test]
fn a_lock_that_is_taken_and_released() {
    let mut world = world();
    let id = world.lock(b"job", secs(20));
    world.run(ms(10));
    let metrics = counted(&world);
    assert_eq!((metrics.acquisitions, metrics.attempts, metrics.grants), (1, 1, 1));
    assert_eq!((metrics.wait_granted.count(), metrics.wait_granted.sum()), (1, ms(2)));
    assert_eq!((metrics.hold.count(), metrics.releases), (0, 0), "the lock is still held");
    assert_eq!(each(&world, |node| node.asks), [1; 3]);
    assert_eq!(each(&world, |node| node.grants), [1; 3], "the third grant was late, and counts");
    // The request and the restart-guard check behind it count as one.
    assert_eq!(each(&world, |node| node.round_trip.count()), [1; 3]);
    assert_eq!(each(&world, |node| node.undos), [0; 3]);

    world.release(id);
    world.run(ms(10));
    let metrics = counted(&world);
    assert_eq!((metrics.releases, metrics.unconfirmed, metrics.losses.total()), (1, 0, 0));
    // The lock is granted after 2 ms and released after 10.
    assert_eq!((metrics.hold.count(), metrics.hold.sum()), (1, ms(8)));
    assert_eq!(each(&world, |node| node.undos), [1; 3]);
    assert_eq!(each(&world, |node| node.undos_confirmed), [1; 3]);
    assert_eq!(each(&world, |node| node.undos_again), [0; 3]);
    assert_eq!(each(&world, |node| node.round_trip.count()), [2; 3]);
    assert_eq!(each(&world, |node| node.round_trip.sum().as_millis() as u64), [4; 3]);
    assert_eq!(each(&world, |node| node.late_replies + node.timeouts), [0; 3]);

    // The next lock reuses the slot of the first.
    let id = world.lock(b"job", secs(20));
    world.run(ms(10));
    world.release(id);
    world.run(ms(10));
    assert_eq!(each(&world, |node| node.undos), [2; 3]);
    assert_eq!(each(&world, |node| node.undos_again), [0; 3]);
}

#[test]
fn a_lock_that_another_client_holds() {
    let mut world = world();
    for node in 0..3 {
        world.set(node, b"job", b"theirs", 60_000);
    }
    let id = world.lock(b"job", secs(20));
    world.run(ms(10));
    assert_eq!(world.refusal(id).reason, RefusalReason::Contended);
    let metrics = counted(&world);
    assert_eq!((metrics.acquisitions, metrics.attempts, metrics.grants), (1, 1, 0));
    assert_eq!(happened(metrics.refusals), [(RefusalReason::Contended, 1)]);
    assert_eq!((metrics.wait_refused.count(), metrics.wait_refused.sum()), (1, ms(2)));
    assert_eq!(metrics.wait_granted.count(), 0);
    assert_eq!(
        each(&world, |node| node.denies),
        [1; 3],
        "the third node was not needed, and denied as well"
    );
    assert_eq!(each(&world, |node| node.undos_confirmed), [1; 3]);
}

#[test]
fn each_attempt_of_a_waiter() {
    let mut world = World::with(3, 1, |settings| settings.wake = WakeStrategy::Timer).warm();
    world.delay(ms(1));
    for node in 0..3 {
        world.set(node, b"job", b"theirs", 1_000);
    }
    let id = world.wait_for(b"job", secs(20));
    world.run(secs(2));
    assert!(world.is_granted(id));
    let requests = world.count("ask") as u64 / 3;
    let metrics = counted(&world);
    assert!(requests > 3, "{requests}");
    assert_eq!((metrics.acquisitions, metrics.attempts, metrics.grants), (1, requests, 1));
    assert_eq!(metrics.refusals.total(), 0);
    assert_eq!(metrics.wait_granted.count(), 1);
    let waited = metrics.wait_granted.sum();
    assert!(
        waited >= ms(999) && waited < ms(1_300),
        "counted from the call of acquire: {waited:?}"
    );
}

#[test]
fn a_wait_that_times_out_or_is_cancelled() {
    let mut world = world();
    for node in 0..3 {
        world.set(node, b"job", b"theirs", 60_000);
    }
    world.acquire(0, &LockRequest::new(b"job").wait(Wait::UpTo(ms(300))), &[b"job"]);
    world.run(ms(400));
    let id = world.wait_for(b"job", secs(20));
    world.run(ms(100));
    world.release(id);
    assert_eq!(
        happened(counted(&world).refusals),
        [(RefusalReason::Cancelled, 1), (RefusalReason::OutOfTime, 1)]
    );
    assert_eq!(counted(&world).wait_refused.sum(), ms(400));
}

#[test]
fn a_node_that_does_not_answer_in_time() {
    let mut world = world();
    world.pause(1);
    world.pause(2);
    let id = world.lock(b"job", secs(20));
    world.run(ms(70));
    assert_eq!(world.refusal(id).reason, RefusalReason::NoQuorum);
    assert_eq!(happened(counted(&world).refusals), [(RefusalReason::NoQuorum, 1)]);
    assert_eq!(each(&world, |node| node.timeouts), [0, 1, 1]);
    assert_eq!(fails(&world, 1), [(Cause::NoAnswer, 1)]);
    assert_eq!(each(&world, |node| node.late_replies), [0; 3], "no reply has come");
    world.resume(1);
    world.resume(2);
    world.run(ms(10));
    // The undo was sent when the 50 ms of the request had passed, and has itself waited for 20.
    assert_eq!(each(&world, |node| node.late_replies), [0, 1, 1]);
    assert_eq!(each(&world, |node| node.grants), [1; 3], "late grants are counted, too");
    assert_eq!(each(&world, |node| node.undos_confirmed), [1; 3]);
    assert_eq!(counted(&world).nodes[1].round_trip.sum(), ms(71) + ms(21));
}

/// A quorum that has granted waits for no other node, so this is not a timeout.
#[test]
fn a_slow_minority_counts_as_late_and_not_as_a_timeout() {
    let mut world = world();
    world.pause(2);
    let id = world.lock(b"job", secs(20));
    world.run(ms(60));
    assert!(world.is_granted(id));
    world.resume(2);
    world.run(ms(10));
    assert_eq!(each(&world, |node| node.late_replies), [0, 0, 1]);
    assert_eq!(each(&world, |node| node.timeouts), [0; 3]);
    assert_eq!(each(&world, |node| node.grants), [1; 3]);
}

#[test]
fn an_answer_just_in_time_is_not_late() {
    let mut world = world();
    for (micros, late) in [(25_000, 0), (25_001, 1)] {
        world.servers[0].delay = micros * 1_000;
        let id = world.lock(b"job", secs(20));
        world.run(ms(200));
        assert_eq!(counted(&world).nodes[0].late_replies, late, "{micros}");
        world.servers[0].delay = 0;
        world.release(id);
        world.run(ms(200));
    }
}

#[test]
fn a_node_that_cannot_vote() {
    let mut world = world();
    world.answer(1, |args| (args[0] == b"SET").then(|| error("LOADING wait")).flatten());
    let id = world.lock(b"job", secs(20));
    world.run(ms(10));
    assert!(world.is_granted(id));
    assert_eq!(fails(&world, 1), [(Cause::Loading, 1)]);
    assert_eq!(each(&world, |node| node.timeouts), [0; 3]);
    world.release(id);

    world.stop(2);
    world.run(ms(10));
    let id = world.lock(b"another", secs(20));
    world.run(ms(100));
    assert!(!world.is_granted(id));
    assert_eq!(fails(&world, 2), [(Cause::ConnectionClosed, 1)]);
    assert_eq!(each(&world, |node| node.asks), [2, 2, 1], "the last node got no request");
}

/// A request lost with its connection is a failed vote if the attempt still waited for it.
#[test]
fn a_request_that_is_lost_with_its_connection() {
    let mut world = world();
    world.pause(1);
    world.pause(2);
    world.lock(b"job", secs(20));
    world.run(ms(10));
    world.cut(0, 1, Written::Vanishes);
    assert_eq!(fails(&world, 1), [(Cause::ConnectionReset, 1)]);
    world.run(ms(100));
    // The attempt has ended, and does not wait for this node.
    world.cut(0, 2, Written::Vanishes);
    assert_eq!(fails(&world, 2), [(Cause::NoAnswer, 1)]);
}

#[test]
fn connections_that_end_and_come_back() {
    let mut world = world();
    world.cut(0, 1, Written::Runs);
    world.run(secs(1));
    world.hang_up(1);
    world.run(secs(1));
    let lost = happened(counted(&world).nodes[1].link_failures);
    assert_eq!(lost, [(Cause::ConnectionReset, 1), (Cause::ConnectionClosed, 1)]);
    assert_eq!(each(&world, NodeMetrics::reconnects), [0, 2, 0]);

    world.stop(1);
    world.run(secs(5));
    let node = &counted(&world).nodes[1];
    assert!(node.link_failures.of(Cause::ConnectionRefused) > 3, "{node:?}");
    assert_eq!(node.reconnects(), 2, "no reconnect has succeeded");
    world.start(1, Memory::Kept);
    world.run(secs(2));
    assert_eq!(each(&world, NodeMetrics::reconnects), [0, 3, 0]);
}

#[test]
fn connections_and_handshakes_that_take_too_long() {
    let mut world = World::new(3);
    world.servers[0].accept = Accept::Silent;
    world.pause(1);
    world.run(ms(540));
    assert_eq!(each(&world, |node| node.timeouts), [1, 1, 0]);
    assert_eq!(each(&world, |node| node.connections), [0, 1, 1]);
    let failed = happened(counted(&world).nodes[0].link_failures);
    assert_eq!(failed, [(Cause::ConnectTimeout, 1)]);
}

#[test]
fn a_silence_that_takes_too_long() {
    let mut world = world();
    world.pause(2);
    let id = world.lock(b"job", secs(20));
    world.run(ms(2_010));
    assert!(world.is_granted(id));
    assert_eq!(each(&world, |node| node.timeouts), [0, 0, 1]);
    assert_eq!(happened(counted(&world).nodes[2].link_failures), [(Cause::DeadPeer, 1)]);
}

#[test]
fn an_undo_that_is_sent_again() {
    let mut world = world();
    let id = world.lock(b"job", secs(20));
    world.run(ms(10));
    world.pause(2);
    world.release(id);
    world.run(ms(10));
    assert_eq!(each(&world, |node| node.undos), [1; 3]);
    assert_eq!(each(&world, |node| node.undos_confirmed), [1, 1, 0]);
    // The undo was lost with its connection, and is sent on the next one.
    world.cut(0, 2, Written::Vanishes);
    world.resume(2);
    world.run(ms(200));
    assert_eq!(each(&world, |node| node.undos), [1, 1, 2]);
    assert_eq!(each(&world, |node| node.undos_again), [0, 0, 1]);
    assert_eq!(each(&world, |node| node.undos_confirmed), [1; 3]);
    assert_eq!(world.kept(0), (0, 0));
}

/// The first undo for a node that was down is not a repetition.
#[test]
fn an_undo_that_had_to_wait_is_the_first() {
    let mut world = world();
    let id = world.lock(b"job", secs(20));
    world.run(ms(10));
    world.stop(2);
    world.release(id);
    world.run(ms(100));
    assert_eq!(each(&world, |node| node.undos), [1, 1, 0]);
    world.start(2, Memory::Kept);
    world.run(secs(2));
    assert_eq!(each(&world, |node| node.undos), [1; 3]);
    assert_eq!(each(&world, |node| node.undos_again), [0; 3]);
}

#[test]
fn a_release_that_no_quorum_confirms() {
    let mut world = world();
    let id = world.lock(b"job", secs(20));
    world.run(ms(10));
    world.pause(1);
    world.pause(2);
    world.release(id);
    world.run(ms(100));
    assert!(matches!(world.outcomes(id)[1], Event::Released(_, c) if c.nodes == 1));
    assert_eq!((counted(&world).releases, counted(&world).unconfirmed), (1, 1));
}

#[test]
fn extensions() {
    let mut world = world();
    let id = world.lock(b"job", secs(20));
    world.run(ms(10));
    world.extend(id, secs(20));
    world.run(ms(10));
    assert_eq!((counted(&world).extended, counted(&world).not_extended), (1, 0));
    assert_eq!(each(&world, |node| node.round_trip.count()), [2; 3]);
    world.pause(1);
    world.pause(2);
    world.extend(id, secs(20));
    world.run(ms(100));
    assert_eq!((counted(&world).extended, counted(&world).not_extended), (1, 1));
    assert_eq!(each(&world, |node| node.timeouts), [0, 1, 1]);
    assert_eq!(each(&world, |node| node.grants), [1; 3], "extensions are not counted as grants");
    assert_eq!(counted(&world).refusals.total(), 0, "nor acquisitions");
}

#[test]
fn losses() {
    let mut world = world();
    let id = world.lock(b"job", secs(1));
    world.run(secs(2));
    assert_eq!(world.outcomes(id)[1], Event::Lost(id, LossCause::Expired));
    assert_eq!(happened(counted(&world).losses), [(LossCause::Expired, 1)]);
    // The validity is 1 s less 12 ms from the request, which was sent 2 ms before the grant.
    assert_eq!(counted(&world).hold.sum(), ms(1_000 - 12 - 2));

    let id = world.lock(b"job", secs(20));
    world.run(ms(10));
    for node in 0..3 {
        let now = world.server_now();
        world.servers[node].observe(&[b"DEL", b"job"], now);
    }
    world.extend_unwatched(id, secs(20));
    world.run(ms(10));
    assert_eq!(counted(&world).auto_extend_losses, 0);
    let losses = [(LossCause::Expired, 1), (LossCause::Gone, 1)];
    assert_eq!(happened(counted(&world).losses), losses);
    world.release(id);
    assert_eq!(happened(counted(&world).losses), losses, "the lock has ended once");
    assert_eq!((counted(&world).releases, counted(&world).hold.count()), (0, 2));
}

#[test]
fn automatic_extensions() {
    let mut world = world();
    let request = LockRequest::new(b"job").ttl(secs(3)).auto_extend(AutoExtend::until_released());
    let id = world.acquire(0, &request, &[b"job"]);
    world.run(ms(3_500));
    let kept = counted(&world).auto_extended;
    assert!((3..=4).contains(&kept), "{kept}");
    assert_eq!(counted(&world).extended, kept);
    world.extend(id, secs(3));
    world.run(ms(10));
    assert_eq!((counted(&world).extended, counted(&world).auto_extended), (kept + 1, kept));
    assert_eq!(counted(&world).auto_extend_failed, 0);

    world.pause(1);
    world.pause(2);
    world.run(secs(3));
    let metrics = counted(&world);
    assert_eq!(happened(metrics.losses), [(LossCause::Unextended, 1)]);
    assert_eq!(metrics.auto_extend_losses, 1);
    assert!(metrics.auto_extend_failed > 1, "{}", metrics.auto_extend_failed);
    assert_eq!(metrics.not_extended, metrics.auto_extend_failed);
}

#[test]
fn a_failed_extension_of_the_caller_is_not_counted_as_automatic() {
    let mut world = world();
    let request = LockRequest::new(b"job").ttl(secs(20)).auto_extend(AutoExtend::until_released());
    let id = world.acquire(0, &request, &[b"job"]);
    world.run(ms(10));
    world.pause(1);
    world.pause(2);
    world.extend(id, secs(20));
    world.run(ms(100));
    assert_eq!((counted(&world).not_extended, counted(&world).auto_extend_failed), (1, 0));
}

#[test]
fn a_lock_that_continues_in_another_core() {
    let mut world = World::with(3, 2, |_| {}).warm();
    // Another lock has used the slot before.
    let id = world.acquire(1, &LockRequest::new(b"other"), &[b"other"]);
    let now = world.now();
    world.clients[1].core.release(id, now);
    world.run(ms(10));
    let id = world.lock(b"job", secs(20));
    world.run(ms(1_000));
    let now = world.now();
    let detached = world.core().detach(id, now).unwrap();
    let left = counted(&world);
    assert_eq!((left.grants, left.detached, left.attached), (1, 1, 0));
    assert_eq!((left.releases, left.losses.total(), left.hold.count()), (0, 0, 0));

    let taken = world.attach(1, &detached);
    world.run(ms(7));
    let now = world.now();
    world.clients[1].core.release(taken, now);
    world.run(ms(10));
    let came = world.clients[1].core.metrics();
    assert_eq!((came.acquisitions, came.grants), (1, 1), "they are the other lock's");
    assert_eq!((came.detached, came.attached, came.releases), (0, 1, 2));
    assert_eq!(came.hold.sum(), ms(7), "the hold is counted from attaching");
}

/// A second attempt because of the clock belongs to the same acquisition.
#[test]
fn a_wrong_clock_costs_an_attempt() {
    let mut world = world();
    world.wall_ahead = -60_000_000_000;
    let id = world.acquire(0, &LockRequest::new(b"job").fenced(), &[b"job"]);
    world.run(ms(20));
    assert!(world.is_granted(id));
    let metrics = counted(&world);
    assert_eq!((metrics.acquisitions, metrics.attempts, metrics.grants), (1, 2, 1));
    assert_eq!(each(&world, |node| node.fails.of(Cause::ClockSkew)), [1; 3]);
}

#[test]
fn an_inspection_that_a_node_does_not_answer() {
    let mut world = world();
    world.pause(1);
    let now = world.now();
    world.core().inspect(b"job", now).unwrap();
    world.run(ms(600));
    assert_eq!(each(&world, |node| node.timeouts), [0, 1, 0]);
    assert_eq!(each(&world, |node| node.round_trip.count()), [4, 0, 4]);
}

#[test]
fn spans_are_those_of_boot() {
    let mut world = world();
    let id = world.lock(b"job", secs(20));
    world.run(ms(10));
    // The wall clock is set back by an hour.
    world.wall_ahead -= 3_600_000_000_000;
    world.release(id);
    assert_eq!(counted(&world).hold.sum(), Duration::from_millis(8));
}
