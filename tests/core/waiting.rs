//! Waiting: retries follow the nodes' answers, never come at wire speed, and always end.

use redbolt::proto::{Event, LockId, LockRequest, RefusalReason, Settings, Wait, WakeStrategy};

use crate::world::{Accept, World, Written, error, ms, secs};

/// Makes pauses long, so that a test sees only what ends them early.
fn patient(settings: &mut Settings) {
    settings.retry_backoff = (secs(10), secs(10));
}

/// Returns when a node received requests, in ms since `since`.
fn asked(world: &World, node: usize, since: u64) -> Vec<u64> {
    let requests = world.log.iter().filter(|ran| ran.node == node && ran.is_ask());
    requests.map(|ran| (ran.at - since) / 1_000_000).collect()
}

fn is_refused(world: &World, id: LockId, reason: RefusalReason) -> bool {
    matches!(world.outcomes(id)[..], [Event::Refused(_, refusal)] if refusal.reason == reason)
}

fn foreign(world: &mut World, ttls: &[u64]) {
    for (node, &ttl) in ttls.iter().enumerate() {
        world.set(node, b"job", b"theirs", ttl);
    }
}

#[test]
fn a_key_without_a_ttl_is_retried_with_pauses_under_the_cap() {
    let mut world = World::with(3, 1, |settings| settings.wake = WakeStrategy::Timer).warm();
    let now = world.server_now();
    for server in &mut world.servers {
        server.observe(&[b"SET", b"job", b"theirs"], now);
    }
    let begun = world.boot;
    world.wait_for(b"job", secs(10));
    world.run(secs(10));
    let asked = asked(&world, 0, begun);
    let gaps: Vec<_> = asked.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().all(|&gap| gap <= 200), "{gaps:?}");
    assert!(
        gaps[..5].iter().sum::<u64>() < 5 + 10 + 20 + 40 + 80,
        "the first pauses are short: {gaps:?}"
    );
    assert!((60..200).contains(&asked.len()), "{} requests in 10 s", asked.len());
    assert!(gaps[10..].iter().any(|&gap| gap > 100), "pauses spread up to the cap: {gaps:?}");
}

#[test]
fn the_expiry_of_the_denying_key_ends_the_pause() {
    let mut world = World::with(3, 1, patient).warm();
    foreign(&mut world, &[300, 300, 300]);
    let begun = world.boot;
    let id = world.wait_for(b"job", secs(10));
    world.run(secs(1));
    assert!(world.is_granted(id));
    let asked = asked(&world, 0, begun);
    assert!(asked.len() == 3 && (300..=306).contains(&asked[2]), "{asked:?}");
}

/// Three of five denials decide, and only those nodes are asked for the remaining TTL.
#[test]
fn as_many_keys_have_to_expire_as_grants_are_missing() {
    let cases: [(&[u64], u64); 3] =
        [(&[500, 300, 100], 100), (&[500, 100, 300, 900], 300), (&[300, 200, 100, 900, 900], 300)];
    for (ttls, end) in cases {
        let mut world = World::with(5, 1, patient).warm();
        foreign(&mut world, ttls);
        for node in 0..ttls.len() {
            // The grants arrive first.
            world.servers[node].delay = 100_000;
        }
        let begun = world.boot;
        let id = world.wait_for(b"job", secs(10));
        world.run_until(secs(5), |world| world.is_granted(id));
        let waited = (world.boot - begun) / 1_000_000;
        assert!((end..=end + 12).contains(&waited), "{waited} ms for {ttls:?}");
    }
}

#[test]
fn a_key_that_has_already_expired_is_requested_at_once() {
    let mut world = World::with(3, 1, patient).warm();
    foreign(&mut world, &[60_000, 60_000, 60_000]);
    for node in 0..3 {
        world.answer(node, |args| (args == [b"PTTL", &b"job"[..]]).then(|| b":-2\r\n".to_vec()));
    }
    let begun = world.boot;
    world.wait_for(b"job", secs(10));
    world.run(ms(6));
    let asked = asked(&world, 0, begun);
    assert!(asked.len() >= 2, "{asked:?}");
}

/// A leftover key on one node looks like a split vote for as long as it lives.
#[test]
fn split_votes_in_a_row_are_not_retried_at_wire_speed() {
    let mut world = World::with(3, 1, |settings| settings.wake = WakeStrategy::Timer).warm();
    world.stop(1);
    world.set(2, b"job", b"left over", 60_000);
    for server in &mut world.servers {
        server.delay = 100_000;
    }
    let begun = world.boot;
    let id = world.wait_for(b"job", secs(10));
    world.run(secs(10));
    assert!(!world.is_granted(id));
    let asked = asked(&world, 0, begun);
    for second in 0..10 {
        let in_it = asked.iter().filter(|&&at| at / 1_000 == second).count();
        assert!((1..=40).contains(&in_it), "{in_it} requests in second {second}");
    }
}

#[test]
fn a_split_vote_is_retried_at_once() {
    let mut world = World::led(3, 1, patient).warm();
    world.set(0, b"job", b"theirs", 60_000);
    world.set(1, b"job", b"others", 60_000);
    for node in [0, 1] {
        world.servers[node].delay = ms(1).as_nanos() as u64;
    }
    let begun = world.boot;
    world.wait_for(b"job", secs(10));
    world.run(ms(100));
    let asked = asked(&world, 2, begun);
    assert_eq!(asked.len(), 5, "{asked:?}");
    assert!(asked[4] <= 5 * (2 + 4 * 2), "{asked:?}");
}

#[test]
fn a_deadline_ends_it_on_time() {
    let mut world = World::new(3).warm();
    foreign(&mut world, &[60_000, 60_000, 60_000]);
    let begun = world.boot;
    let request = LockRequest::new(b"job").wait(Wait::UpTo(ms(300)));
    let id = world.acquire(0, &request, &[b"job"]);
    world.run(secs(1));
    assert!(is_refused(&world, id, RefusalReason::OutOfTime));
    assert_eq!(world.clients[0].events.last().unwrap().0 - begun, 300_000_000);
    match world.outcomes(id)[..] {
        [Event::Refused(_, refusal)] => {
            let left = refusal.remaining.expect("a waiter learns the remaining TTL");
            assert!(left > secs(59) && left <= secs(60), "{left:?}");
        }
        ref other => panic!("{other:?}"),
    }
    assert_eq!(world.kept(0), (0, 0));
}

#[test]
fn a_deadline_ends_an_attempt_without_answers() {
    let mut world = World::new(3).warm();
    for node in 0..3 {
        world.pause(node);
    }
    let begun = world.boot;
    let request = LockRequest::new(b"job").wait(Wait::UpTo(ms(30)));
    let id = world.acquire(0, &request, &[b"job"]);
    world.run(secs(1));
    assert!(is_refused(&world, id, RefusalReason::OutOfTime));
    assert_eq!(world.clients[0].events.last().unwrap().0 - begun, 30_000_000);
}

#[test]
fn an_attempt_cut_short_still_reports_the_other_holder() {
    let mut world = World::with(3, 1, |settings| settings.retry_backoff = (ms(1), ms(2))).warm();
    foreign(&mut world, &[60_000, 60_000, 60_000]);
    let request = LockRequest::new(b"job").wait(Wait::UpTo(ms(300)));
    let id = world.acquire(0, &request, &[b"job"]);
    world.run(ms(280));
    for node in 0..3 {
        world.pause(node);
    }
    world.run(secs(1));
    assert!(is_refused(&world, id, RefusalReason::OutOfTime));
    match world.outcomes(id)[..] {
        [Event::Refused(_, refusal)] => assert!(refusal.votes.is_contended(), "{refusal:?}"),
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn a_lock_can_be_cancelled_while_asking() {
    let mut world = World::new(3).warm();
    for node in 0..3 {
        world.pause(node);
    }
    let id = world.wait_for(b"job", secs(10));
    world.release(id);
    assert!(is_refused(&world, id, RefusalReason::Cancelled));
    for node in 0..3 {
        world.resume(node);
    }
    assert_eq!(world.holders(b"job"), [false; 3]);
    assert_eq!(world.ran(0), ["ask", "check", "undo"]);
    assert_eq!(world.kept(0), (0, 0));
}

#[test]
fn a_lock_can_be_cancelled_while_pausing() {
    let mut world = World::with(3, 1, patient).warm();
    foreign(&mut world, &[60_000, 60_000, 60_000]);
    let id = world.wait_for(b"job", secs(10));
    world.run(ms(100));
    assert_eq!(world.outcomes(id), []);
    world.release(id);
    assert!(is_refused(&world, id, RefusalReason::Cancelled));
    world.run(secs(60));
    assert_eq!(asked(&world, 0, 0).len(), 2, "the second in the queue");
    assert_eq!(world.kept(0), (0, 0));
}

#[test]
fn a_lock_can_be_cancelled_while_connecting() {
    let mut world = World::new(3);
    for server in &mut world.servers {
        server.delay = ms(20).as_nanos() as u64;
    }
    let id = world.wait_for(b"job", secs(10));
    world.run(ms(10));
    world.release(id);
    assert!(is_refused(&world, id, RefusalReason::Cancelled));
    assert_eq!(world.kept(0), (0, 0));
    world.run(secs(1));
    assert_eq!(world.log.iter().filter(|ran| ran.is_ask() || ran.is_undo()).count(), 0);
}

#[test]
fn a_fault_that_needs_an_operator_ends_a_wait() {
    let mut world = World::new(3).warm();
    for node in [0, 1] {
        world.answer(node, |args| (args[0] == b"SET").then(|| error("NOPERM no")).flatten());
    }
    let id = world.wait_for(b"job", secs(10));
    world.run(ms(10));
    assert!(is_refused(&world, id, RefusalReason::NoQuorum));
    assert_eq!(world.holders(b"job"), [false; 3]);
}

#[test]
fn a_temporary_fault_does_not_end_a_wait() {
    let mut world = World::new(3);
    for node in [0, 1] {
        world.servers[node].accept = Accept::No;
    }
    let id = world.wait_for(b"job", secs(10));
    world.run(secs(20));
    assert_eq!(world.outcomes(id), []);
    for node in [0, 1] {
        world.servers[node].accept = Accept::Yes;
    }
    world.run(secs(3));
    assert!(world.is_granted(id));
    world.release(id);
    assert_eq!(world.holders(b"job"), [false; 3]);
    world.run(secs(1));
    assert_eq!(world.kept(0), (0, 0));
}

/// Many clients want the same resource: each is granted it in the end, and one at a time.
#[test]
fn waiters_of_several_clients_take_turns() {
    let mut world = World::with(3, 3, |_| {}).warm();
    for server in &mut world.servers {
        server.delay = 200_000;
    }
    let request = LockRequest::new(b"job").ttl(secs(2)).wait(Wait::Forever);
    let ids: Vec<_> = (0..3).map(|client| world.acquire(client, &request, &[b"job"])).collect();
    let mut waiting = vec![0, 1, 2];
    while !waiting.is_empty() {
        let granted = |world: &World| {
            let is_granted = |&client: &usize| {
                world.clients[client].outcomes(ids[client]).contains(&Event::Granted(ids[client]))
            };
            waiting.iter().position(is_granted)
        };
        world.run_until(secs(10), |world| granted(world).is_some());
        let client = waiting.remove(granted(&world).unwrap());
        world.run(ms(20));
        let now = world.now();
        world.clients[client].core.release(ids[client], now);
    }
    world.run(secs(1));
    assert_eq!(world.holders(b"job"), [false; 3]);
    for client in 0..3 {
        assert_eq!(world.kept(client), (0, 0));
    }
}

#[test]
fn a_wait_outlives_lost_connections() {
    let mut world = World::new(3).warm();
    foreign(&mut world, &[2_000, 2_000, 2_000]);
    let id = world.wait_for(b"job", secs(10));
    for round in 0..10 {
        world.run(ms(150));
        world.cut(0, round % 3, Written::Runs);
    }
    world.run(secs(2));
    assert!(world.is_granted(id));
}

/// All nodes hang when the key expires.
#[test]
fn a_wait_continues_after_an_attempt_without_answers() {
    let mut world = World::new(3).warm();
    foreign(&mut world, &[300, 300, 300]);
    let id = world.wait_for(b"job", secs(10));
    world.run(ms(200));
    assert!(world.core().decided_votes(id).is_some_and(|votes| votes.is_contended()));
    (0..3).for_each(|node| world.pause(node));
    world.run(ms(300));
    (0..3).for_each(|node| world.resume(node));
    world.run_until(secs(3), |world| world.is_granted(id));
}

/// As many keys must expire as grants are missing.
#[test]
fn a_refusal_reports_when_the_holder_expires() {
    let mut world = World::with(3, 1, patient).warm();
    foreign(&mut world, &[9_000, 4_000]);
    // The grant comes first.
    [0, 1].iter().for_each(|&node| world.servers[node].delay = 100_000);
    let request = LockRequest::new(b"job").wait(Wait::UpTo(ms(500)));
    let id = world.acquire(0, &request, &[b"job"]);
    world.run(secs(1));
    let left = world.refusal(id).remaining.expect("one key has to end");
    assert!((ms(3_500)..ms(3_520)).contains(&left), "{left:?}");
}
