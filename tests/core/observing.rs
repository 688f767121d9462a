//! Observing a leader: what is reported and when, what it costs, and that no leader is shown with
//! another's term.

use std::collections::BTreeMap;
use std::time::Duration;

use redbolt::proto::{
    AutoExtend, Cause, Event, Leader, LeaderVerdict, LeaderView, LockId, LockRequest, ObserverId,
    PushState, RequestError, Settings, Wait, WakeStrategy,
};
use redbolt_node::Memory;
use redbolt_testkit::Random;

use crate::world::{Accept, GUARD, World, Written, error, ms, secs};

/// Returns an observer and two candidates with labels, on nodes that are 1 ms away.
fn world(nodes: usize) -> World {
    with(nodes, |_| {})
}

fn with(nodes: usize, set: impl Fn(&mut Settings)) -> World {
    let mut world = World::with(nodes, 1, set);
    for label in ["one:80", "two:80"] {
        world.join(|settings| settings.label = label.as_bytes().to_vec());
    }
    let mut world = world.warm();
    world.delay(ms(1));
    world
}

fn observe(world: &mut World) -> ObserverId {
    let now = world.now();
    let id = world.core().observe(b"lead", now).unwrap();
    world.flow();
    id
}

/// Returns an observer to which a quorum of nodes reports changes.
fn settled(world: &mut World) -> ObserverId {
    let id = observe(world);
    world.run(ms(100));
    assert_eq!(reporting(world), world.servers.len() / 2 + 1);
    world.log.clear();
    id
}

fn reporting(world: &World) -> usize {
    let active = |node: &usize| world.push_state(0, *node) == PushState::Active;
    (0..world.servers.len()).filter(active).count()
}

fn lead(world: &mut World, client: usize) -> LockId {
    let keep = AutoExtend::until_released();
    let request = LockRequest::new(b"lead").fenced().auto_extend(keep).wait(Wait::Forever);
    world.acquire(client, &request, &[b"lead"])
}

fn resign(world: &mut World, client: usize, lock: LockId) {
    world.let_go(client, lock);
    world.flow();
}

fn view(world: &mut World, id: ObserverId) -> LeaderView {
    world.core().observation(id).expect("it was announced")
}

fn verdict(world: &mut World, id: ObserverId) -> LeaderVerdict {
    view(world, id).verdict
}

fn leader(world: &mut World, id: ObserverId) -> Option<Leader> {
    match world.core().observation(id)?.verdict {
        LeaderVerdict::Leader(leader) => Some(leader),
        _ => None,
    }
}

/// Returns the number of events of an observer.
fn news(world: &World, id: ObserverId) -> usize {
    world.clients[0].events.iter().filter(|(_, event)| *event == Event::Observed(id)).count()
}

/// Returns the time until a leader with this label is seen, with its term.
fn until_led(world: &mut World, id: ObserverId, label: &str, within: Duration) -> Duration {
    world.time_until(within, |world| {
        let leader = leader(world, id);
        leader.is_some_and(|it| it.label.as_deref() == Some(label) && it.term.is_some())
    })
}

fn until_nobody(world: &mut World, id: ObserverId, within: Duration) -> Duration {
    let nobody = Some(LeaderVerdict::Nobody);
    world.time_until(within, |world| world.core().observation(id).map(|it| it.verdict) == nobody)
}

/// The time for the report, one round trip, and the gap between two rounds.
const SOON: Duration = ms(12);

#[test]
fn a_leader_is_seen_with_its_label_and_term() {
    let mut world = world(3);
    let lock = lead(&mut world, 1);
    world.run(ms(20));
    let id = observe(&mut world);
    assert_eq!(until_led(&mut world, id, "one:80", secs(1)), ms(2), "one round trip");
    let seen = leader(&mut world, id).unwrap();
    assert_eq!(seen.term, world.clients[1].core.fencing_token(lock));
    assert_eq!(news(&world, id), 1);
    let token = String::from_utf8(world.value(1, b"lead")).unwrap();
    assert!(!format!("{:?}", view(&mut world, id)).contains(&token[..16]));
}

#[test]
fn an_observer_reports_that_there_is_no_leader() {
    let mut world = world(3);
    let id = observe(&mut world);
    assert_eq!(until_nobody(&mut world, id, secs(1)), ms(2));
    world.run(secs(10));
    assert_eq!(news(&world, id), 1);
}

#[test]
fn a_new_leader_is_seen_as_soon_as_the_nodes_report_it() {
    let mut world = world(3);
    let first = lead(&mut world, 1);
    let id = settled(&mut world);
    let before = leader(&mut world, id).unwrap();
    resign(&mut world, 1, first);
    assert!(until_nobody(&mut world, id, secs(1)) <= SOON);
    lead(&mut world, 2);
    assert!(until_led(&mut world, id, "two:80", secs(1)) <= SOON);
    let after = leader(&mut world, id).unwrap();
    assert!(after.term > before.term && after.fingerprint != before.fingerprint);
}

#[test]
fn an_observer_sees_changes_made_by_the_same_core_at_once() {
    let mut world = world(3);
    let id = settled(&mut world);
    let lock = lead(&mut world, 0);
    let is_led = |world: &mut World| leader(world, id).is_some_and(|seen| seen.term.is_some());
    assert!(world.time_until(secs(1), is_led) <= SOON);
    world.run(ms(100));
    resign(&mut world, 0, lock);
    assert!(until_nobody(&mut world, id, secs(1)) <= SOON);
}

#[test]
fn an_extension_causes_no_event() {
    let mut world = world(3);
    lead(&mut world, 1);
    let id = settled(&mut world);
    let before = news(&world, id);
    world.run(secs(30));
    assert!(world.count("extend sha") > 6);
    assert_eq!(news(&world, id), before);
}

#[test]
fn a_lost_report_costs_two_seconds_at_most() {
    let mut world = world(3);
    let first = lead(&mut world, 1);
    let id = settled(&mut world);
    world.servers.iter_mut().for_each(|server| server.loses_messages = true);
    resign(&mut world, 1, first);
    lead(&mut world, 2);
    let waited = until_led(&mut world, id, "two:80", secs(2) + SOON);
    assert!(waited > ms(500), "it does not poll: {waited:?}");
}

#[test]
fn without_reports_the_timer_sees_all() {
    let mut world = with(3, |settings| settings.wake = WakeStrategy::Timer);
    let id = observe(&mut world);
    world.run(ms(100));
    lead(&mut world, 1);
    until_led(&mut world, id, "one:80", secs(2) + SOON);
    assert_eq!((reporting(&world), world.count("subscribe")), (0, 0));
}

/// Any quorum shares at least one node with the quorum that reports changes.
#[test]
fn a_leader_on_any_quorum_is_reported() {
    for down in 0..3 {
        let mut world = world(3);
        let id = settled(&mut world);
        // The node fails for the candidate alone.
        world.answer(down, |args| match args[0] {
            // The candidate's requests fail here, and the observer's reads do not.
            b"EVAL" | b"EVALSHA" => error("ERR not today"),
            _ => None,
        });
        lead(&mut world, 1);
        assert!(until_led(&mut world, id, "one:80", secs(1)) <= SOON, "without node {down}");
    }
}

#[test]
fn a_node_that_is_down_changes_nothing_and_a_quorum_that_is_down_leaves_it_unknown() {
    let mut world = world(3);
    lead(&mut world, 1);
    let id = settled(&mut world);
    let seen = leader(&mut world, id);
    world.stop(0);
    world.run(secs(5));
    assert_eq!(leader(&mut world, id), seen);
    assert!(matches!(view(&mut world, id).nodes[0], Some(Err(_))));
    assert_eq!(reporting(&world), 2, "another one reports in its place");
    world.stop(1);
    world.run(ms(10));
    assert_eq!(verdict(&mut world, id), LeaderVerdict::Unknown);
    world.start(1, Memory::Kept);
    world.time_until(secs(40), |world| leader(world, id).is_some());
}

#[test]
fn a_node_that_hangs_delays_nothing() {
    let mut world = world(3);
    let first = lead(&mut world, 1);
    let id = settled(&mut world);
    world.pause(0);
    world.run(secs(3));
    resign(&mut world, 1, first);
    assert!(until_nobody(&mut world, id, secs(1)) <= SOON);
    lead(&mut world, 2);
    assert!(until_led(&mut world, id, "two:80", secs(1)) <= SOON);
}

#[test]
fn a_verdict_is_unknown_if_all_nodes_hang() {
    let mut world = world(3);
    lead(&mut world, 1);
    let id = settled(&mut world);
    (0..3).for_each(|node| world.pause(node));
    let patience = secs(2) + ms(50);
    world.time_until(patience, |world| verdict(world, id) == LeaderVerdict::Unknown);
    (0..3).for_each(|node| world.resume(node));
    world.time_until(secs(3), |world| leader(world, id).is_some());
}

#[test]
fn changes_missed_by_lost_connections_are_read() {
    let mut world = world(3);
    let first = lead(&mut world, 1);
    let id = settled(&mut world);
    for round in 0..4 {
        for node in 0..3 {
            world.cut(0, node, Written::Vanishes);
            // A lost command link ends tracking too, so both cases may miss a change.
            if round % 2 == 0 {
                world.cut_push(0, node);
            }
        }
        world.run(secs(4));
        assert!(leader(&mut world, id).is_some());
        assert!(reporting(&world) >= 2);
    }
    resign(&mut world, 1, first);
    assert!(until_nobody(&mut world, id, secs(1)) <= SOON);
}

#[test]
fn nodes_that_refuse_a_read_are_shown_with_their_cause() {
    let mut world = World::with(3, 1, |_| {});
    for node in 0..3 {
        world.answer(node, |args| match args[0] {
            b"CLIENT" | b"INFO" => error("NOAUTH Authentication required."),
            _ => None,
        });
    }
    let id = observe(&mut world);
    world.run(secs(1));
    let seen = view(&mut world, id);
    assert_eq!(seen.verdict, LeaderVerdict::Unknown);
    for node in seen.nodes {
        assert!(matches!(node, Some(Err(cause)) if cause.is_configuration()), "{node:?}");
    }
}

#[test]
fn nodes_that_cannot_be_reached_are_waited_for_until_it_is_known() {
    let mut world = World::with(3, 1, |_| {});
    world.servers[1].accept = Accept::Silent;
    let id = observe(&mut world);
    world.run(ms(100));
    assert_eq!(verdict(&mut world, id), LeaderVerdict::Nobody, "the third changes nothing");

    let mut world = World::with(3, 1, |_| {});
    [1, 2].iter().for_each(|&node| world.servers[node].accept = Accept::Silent);
    let id = observe(&mut world);
    world.run(ms(100));
    assert_eq!(world.core().observation(id), None);
    world.run(secs(1));
    assert_eq!(verdict(&mut world, id), LeaderVerdict::Unknown);
    let causes = view(&mut world, id).nodes;
    assert_eq!(causes[1], Some(Err(Cause::ConnectTimeout)));
}

#[test]
fn only_the_holder_of_an_exclusive_lock_is_a_leader() {
    let mut world = world(3).forgetful();
    world.foreign(b"lead", &[60_000; 3]);
    let id = settled(&mut world);
    assert_eq!(verdict(&mut world, id), LeaderVerdict::Nobody);
    world.delete_everywhere(b"lead");
    let shared = world.acquire(1, &LockRequest::new(b"lead").shared().fenced(), &[b"lead"]);
    world.run(ms(100));
    assert!(world.clients[1].is_granted(shared));
    assert_eq!(verdict(&mut world, id), LeaderVerdict::Nobody);
    resign(&mut world, 1, shared);
    world.acquire(1, &LockRequest::new(b"lead"), &[b"lead"]);
    world.run(ms(100));
    assert_eq!(leader(&mut world, id).unwrap().label.as_deref(), Some("one:80"));
}

/// Between the two reads of the counter, another client is granted, or the counter becomes invalid.
#[test]
fn a_counter_that_changes_during_a_read_is_not_shown_as_a_term() {
    for other in [&b"$16\r\n1700000000000002\r\n"[..], b"$4\r\nnone\r\n", b"-ERR no\r\n"] {
        let mut world = world(3);
        lead(&mut world, 1);
        world.run(ms(20));
        for node in 0..3 {
            let mut reads = 0;
            world.answer(node, move |args| {
                let is_counter = args[0] == b"GETRANGE" && args[1].starts_with(b"redbolt:fence:");
                reads += usize::from(is_counter);
                (is_counter && reads % 2 == 0).then(|| other.to_vec())
            });
        }
        let id = observe(&mut world);
        world.run(ms(100));
        assert_eq!(leader(&mut world, id).unwrap().term, None);
    }
}

/// Only the client that was elected in a term may be shown as its leader.
#[test]
fn no_leader_is_shown_with_the_term_of_another() {
    for seed in 0..40 {
        let mut world = world(3);
        let mut random = Random::new(seed);
        let id = settled(&mut world);
        // The term and the label of every client that was elected.
        let mut elected = BTreeMap::new();
        let mut shown = 0;
        for _ in 0..30 {
            let client = random.between(1, 2) as usize;
            for server in &mut world.servers {
                server.delay = random.between(20_000, 2_000_000);
            }
            let lock = lead(&mut world, client);
            for _ in 0..random.between(1, 60) {
                world.run(Duration::from_nanos(random.between(1_000, 300_000)));
                if let Some(term) = world.clients[client].core.fencing_token(lock) {
                    elected.insert(term, if client == 1 { "one:80" } else { "two:80" });
                }
                if let Some(Leader { label: Some(label), term: Some(term), .. }) =
                    leader(&mut world, id)
                {
                    shown += 1;
                    // A term can be seen on a quorum before its leader learns of it.
                    if let Some(&of) = elected.get(&term) {
                        assert_eq!(label, of, "term {term} with seed {seed}");
                    }
                }
            }
            resign(&mut world, client, lock);
        }
        assert!(shown > 30, "{shown}");
    }
}

/// A node that reports nothing changes while a read is in flight.
#[test]
fn a_change_during_a_read_leads_to_another_read() {
    let mut world = world(3);
    world.servers[2].delay = ms(20).as_nanos() as u64;
    let id = observe(&mut world);
    world.run(ms(200));
    assert_eq!(world.push_state(0, 2), PushState::Off, "it reports nothing");
    let token = "00112233445566778899aabbccddeeff";
    world.set(0, b"lead", format!("{token}00:one:80").as_bytes(), 60_000);
    // The read has found no leader on the third node, and its answer is in flight.
    world.run(ms(30));
    world.set(2, b"lead", format!("{token}02:one:80").as_bytes(), 60_000);
    world.set(1, b"lead", b"theirs", 60_000);
    world.flow();
    assert!(world.time_until(secs(3), |world| leader(world, id).is_some()) <= ms(100));
}

/// The resource changes hands more often than rounds may follow each other.
#[test]
fn rounds_are_apart() {
    let mut world = world(3);
    settled(&mut world);
    for _ in 0..500 {
        world.set(0, b"lead", b"theirs", 60_000);
        world.set(1, b"lead", b"theirs", 60_000);
        world.run(ms(1));
    }
    let looks = world.count("getrange") / 9;
    assert!((50..=120).contains(&looks), "{looks} rounds in half a second");
}

#[test]
fn an_observer_writes_nothing_and_leaves_nothing() {
    let mut world = world(3);
    lead(&mut world, 1);
    let id = settled(&mut world);
    let other = observe(&mut world);
    assert_ne!(id, other);
    world.run(secs(8));
    assert_eq!(reporting(&world), 2, "nodes report as long as there is an observer");
    for end in [id, other] {
        assert!(leader(&mut world, end).is_some());
        world.core().unobserve(end);
        assert_eq!(world.core().observation(end), None);
    }
    let reads = world.count("getrange");
    assert!(reads > 0);
    world.run(secs(8));
    assert_eq!(world.count("getrange"), reads);
    assert_eq!((reporting(&world), world.connections(0)), (0, 3));
    world.core().unobserve(id);
}

/// An answer may come after the last observer has stopped.
#[test]
fn an_observer_that_stops_during_a_read_is_forgotten() {
    let mut world = world(3);
    let id = observe(&mut world);
    world.core().unobserve(id);
    let next = observe(&mut world);
    world.run(ms(100));
    assert_eq!((news(&world, id), news(&world, next)), (0, 1));
}

/// Each read brings the answers to a round, followed by bytes that end the connection: the node
/// counts in the verdict, and is lost again, before the driver polls.
#[test]
fn a_change_reverted_within_one_read_causes_no_event() {
    let mut world = with(1, |settings| settings.wake = WakeStrategy::Timer);
    let id = observe(&mut world);
    world.run(ms(100));
    let before = news(&world, id);
    let mut reads = 0;
    world.answer(0, move |args| {
        let is_counter = args[0] == b"GETRANGE" && args[1].starts_with(b"redbolt:fence:");
        reads += usize::from(is_counter);
        (is_counter && reads % 2 == 0).then(|| b"$0\r\n\r\n?".to_vec())
    });
    let node = world.node(0);
    let connections = |world: &mut World| world.core().metrics().node(node).connections;
    let opened = connections(&mut world);
    world.cut(0, 0, Written::Vanishes);
    world.run(secs(5));
    assert!(connections(&mut world) > opened + 1, "it looks again, each time");
    assert_eq!(verdict(&mut world, id), LeaderVerdict::Unknown);
    assert_eq!(news(&world, id) - before, 1, "the quorum was lost once, and never found again");
}

/// The driver has not polled since.
#[test]
fn an_observer_that_has_stopped_gets_no_event() {
    let mut world = world(1);
    let id = settled(&mut world);
    let before = news(&world, id);
    let (now, link) = (world.now(), world.link(0));
    world.core().disconnected(link, Cause::ConnectionReset, now);
    world.core().unobserve(id);
    while let Some(event) = world.core().poll_event() {
        assert_ne!(event, Event::Observed(id));
    }
    assert_eq!(news(&world, id), before);
}

#[test]
fn names_that_cannot_be_elections_are_refused() {
    let mut world = World::new(1).warm();
    let now = world.now();
    let mut refused = |key: &[u8]| world.core().observe(key, now).unwrap_err();
    assert_eq!(refused(GUARD), RequestError::RestartGuardKey);
    assert_eq!(refused(b"redbolt:fence:lead"), RequestError::CounterKey);
    assert_eq!(refused(b""), RequestError::EmptyResource);
    assert_eq!(refused(&[0; 70_000]), RequestError::ResourceTooLong { len: 70_000 });
}
