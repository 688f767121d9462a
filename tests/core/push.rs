//! Waiting with notifications: the messages on each link and their order, which messages wake which
//! waiters, and the cost of a lost message.

use std::time::Duration;

use redbolt::proto::restart_guard::RestartGuard;
use redbolt::proto::{
    AutoExtend, Cause, Credentials, Event, LockId, LockRequest, LockState, PushState, Secret,
    Settings, Wait, WakeStrategy,
};

use crate::world::{Accept, Ran, World, Written, bulk, error, ms, secs};

/// Makes pauses long, so that a test sees only what ends them early.
fn patient(settings: &mut Settings) {
    settings.retry_backoff = (secs(10), secs(10));
}

/// Returns three nodes, each 1 ms away, on which another client has the key for a minute.
fn world() -> World {
    with(1, patient)
}

fn with(clients: usize, set: impl Fn(&mut Settings)) -> World {
    let mut world = World::led(3, clients, set).warm();
    world.delay(ms(1));
    world.foreign(b"job", &[60_000; 3]);
    world
}

/// Returns a world whose first client waits, notified by the first node.
fn reported() -> (World, LockId) {
    let mut world = world();
    let id = reported_in(&mut world);
    (world, id)
}

fn reported_in(world: &mut World) -> LockId {
    let id = world.wait_for(b"job", secs(10));
    world.run(ms(100));
    assert_eq!(world.push_state(0, 0), PushState::Active);
    world.log.clear();
    id
}

/// Returns the kinds of commands that ran on a node, and when, in ms.
fn history(world: &World, node: usize) -> Vec<(&'static str, u64)> {
    let here = world.log.iter().filter(|ran| ran.node == node);
    here.map(|ran| (ran.kind(), ran.at / 1_000_000)).collect()
}

fn asks(world: &World, node: usize) -> Vec<&Ran> {
    world.log.iter().filter(|ran| ran.node == node && ran.is_ask()).collect()
}

fn until_granted(world: &mut World, id: LockId, within: Duration) -> Duration {
    world.flow();
    world.time_until(within, |world| world.is_granted(id))
}

/// Returns `true` if a node notifies. If nodes answer at the same time, any of them may be the
/// first to deny.
fn a_node_reports(world: &World) -> bool {
    (0..world.servers.len()).any(|node| world.push_state(0, node) == PushState::Active)
}

/// The longest hand-off: the message, the request to the lead, and the requests to the others.
const HAND_OFF: Duration = ms(5);

fn forbid(world: &mut World, node: usize, command: &'static [&'static [u8]], text: &'static str) {
    world.answer(node, move |args| args.starts_with(command).then(|| error(text)).flatten());
}

#[test]
fn the_subscription_is_confirmed_before_tracking_and_tracking_before_the_key_is_read() {
    let mut world = world();
    world.wait_for(b"job", secs(10));
    world.run(ms(100));
    let history = history(&world, 0);
    let last = |kind| history.iter().rev().find(|&&(it, _)| it == kind).unwrap().1;
    let round_trip = 2;
    assert!(last("track") >= last("subscribe") + round_trip, "{history:?}");
    assert!(last("pttl") >= last("track") + round_trip, "{history:?}");
    for kind in ["subscribe", "track"] {
        assert_eq!(history.iter().filter(|&&(it, _)| it == kind).count(), 1, "{history:?}");
    }
}

#[test]
fn a_node_does_not_count_as_notifying_before_its_confirmation() {
    let mut world = world();
    world.answer(0, |args| (args[0] == b"SUBSCRIBE").then(Vec::new));
    world.wait_for(b"job", secs(10));
    world.run(ms(100));
    assert_eq!((world.count("subscribe"), world.count("track")), (1, 0));
    assert_eq!(world.push_state(0, 0), PushState::Opening);
    world.send_to_push(0, 0, b"*3\r\n$9\r\nsubscribe\r\n$20\r\n__redis__:invalidate\r\n:1\r\n");
    world.run(ms(10));
    assert_eq!((world.count("track"), world.push_state(0, 0)), (1, PushState::Active));
}

#[test]
fn the_push_link_gets_the_changes_of_others_only() {
    let (mut world, _) = reported();
    world.cut(0, 0, Written::Runs);
    world.run(ms(100));
    let track = world.log.iter().find(|ran| ran.kind() == "track").unwrap();
    assert_eq!(track.words[3], b"REDIRECT");
    assert_eq!(track.words[5], b"NOLOOP");
    let subscriber = std::str::from_utf8(&track.words[4]).unwrap().parse::<u64>();
    assert!(subscriber.is_ok_and(|id| id > 0));
}

#[test]
fn the_lead_is_the_first_node_in_order_that_denied() {
    let cases: [(usize, &[usize]); 3] = [(3, &[1, 2]), (3, &[0, 2]), (5, &[2, 3, 4])];
    for (nodes, holding) in cases {
        let mut world = World::led(nodes, 1, patient).warm();
        world.delay(ms(1));
        for &node in holding {
            world.set(node, b"job", b"theirs", 60_000);
        }
        world.wait_for(b"job", secs(10));
        world.run(ms(200));
        for node in 0..nodes {
            let state = if node == holding[0] { PushState::Active } else { PushState::Off };
            assert_eq!(world.push_state(0, node), state, "node {node} of {nodes}");
        }
    }
}

#[test]
fn a_lock_that_does_not_wait_opens_no_push_link() {
    let mut world = world();
    world.lock(b"job", secs(10));
    world.lock(b"other", secs(10));
    world.run(secs(1));
    assert_eq!(world.count("subscribe") + world.count("track"), 0);
    assert_eq!(world.connections(0), 3);
}

#[test]
fn a_manual_del_wakes_a_waiter() {
    let (mut world, id) = reported();
    world.delete_everywhere(b"job");
    assert!(until_granted(&mut world, id, secs(3)) <= HAND_OFF);
}

#[test]
fn a_release_by_redbolt_wakes() {
    let mut world = with(2, patient);
    world.delete_everywhere(b"job");
    let theirs = world.acquire(1, &LockRequest::new(b"job"), &[b"job"]);
    world.run(ms(10));
    let id = reported_in(&mut world);
    world.let_go(1, theirs);
    assert!(until_granted(&mut world, id, secs(3)) <= HAND_OFF + ms(1));
}

/// The first node was held by another client, whose attempt fails 50 ms later.
#[test]
fn the_undo_of_another_waiter_wakes() {
    let mut world = World::led(3, 2, patient).warm();
    world.delay(ms(1));
    world.servers[2].delay = ms(40).as_nanos() as u64;
    // The other client must know that the third node is far away, or its attempt would end sooner.
    for _ in 0..3 {
        let seen = world.acquire(1, &LockRequest::new(b"other"), &[b"other"]);
        world.run(ms(100));
        world.let_go(1, seen);
        world.run(ms(100));
    }
    for node in [1, 2] {
        world.set(node, b"job", b"theirs", 60_000);
    }
    let theirs = world.acquire(1, &LockRequest::new(b"job"), &[b"job"]);
    world.run(ms(1));
    let id = world.wait_for(b"job", secs(10));
    world.run(ms(20));
    assert_eq!(world.push_state(0, 0), PushState::Active);
    assert!(world.clients[1].outcomes(theirs).is_empty());
    world.delete(1, b"job");
    assert!(until_granted(&mut world, id, secs(3)) <= ms(40));
}

/// Servers notify of expired keys only in their expiry cycle, ten times a second.
#[test]
fn the_end_of_a_key_is_met_by_the_timer() {
    let mut world = with(1, patient);
    world.foreign(b"job", &[350; 3]);
    let id = world.wait_for(b"job", secs(10));
    let waited = until_granted(&mut world, id, secs(3));
    assert!((ms(350)..=ms(360)).contains(&waited), "{waited:?}");
}

#[test]
fn the_lead_is_asked_alone_and_the_others_when_it_has_granted() {
    let (mut world, id) = reported();
    let begun = world.boot;
    world.delete_everywhere(b"job");
    until_granted(&mut world, id, secs(3));
    world.run(ms(10));
    let asked: Vec<_> = (0..3).map(|node| asks(&world, node)[0]).collect();
    let at: Vec<_> = asked.iter().map(|ran| (ran.at - begun) / 1_000_000).collect();
    assert_eq!(at, [2, 4, 4], "first message and request, then a round trip later");
    assert!(asked.iter().all(|ran| ran.token() == asked[0].token()));
    assert_eq!(world.count("ask"), 3);
    let (node, metrics) = (world.node(0), world.core().metrics());
    assert_eq!((metrics.wakes, metrics.lead_asks, metrics.lead_grants), (1, 1, 1));
    assert_eq!(metrics.node(node).pushes, 1);
}

#[test]
fn validity_is_counted_from_before_the_first_byte_to_the_lead() {
    let (mut world, id) = reported();
    world.delete_everywhere(b"job");
    assert_eq!(until_granted(&mut world, id, secs(3)), HAND_OFF);
    let drift = ms(102);
    assert_eq!(world.remaining(id), secs(10) - drift - ms(4));
}

#[test]
fn a_change_that_releases_nothing_costs_one_request() {
    let (mut world, id) = reported();
    world.set(0, b"job", b"theirs", 70_000);
    world.run(ms(100));
    assert_eq!((0..3).map(|node| asks(&world, node).len()).collect::<Vec<_>>(), [1, 0, 0]);
    assert!(!world.is_granted(id));
    world.delete_everywhere(b"job");
    assert!(
        until_granted(&mut world, id, secs(3)) <= HAND_OFF,
        "the waiter listens again after the refused request"
    );
}

#[test]
fn the_lead_alone_is_not_enough() {
    let (mut world, id) = reported();
    world.delete(0, b"job");
    world.run(ms(100));
    assert!(!world.is_granted(id));
    assert_eq!(world.holders(b"job"), [false, true, true], "undone");
    assert_eq!(world.push_state(0, 1), PushState::Active, "the waiter listens to the next node");
    world.delete_everywhere(b"job");
    assert!(until_granted(&mut world, id, secs(3)) <= HAND_OFF);
}

#[test]
fn a_lost_message_costs_at_most_the_cap() {
    let (mut world, id) = reported();
    world.servers[0].loses_messages = true;
    world.delete_everywhere(b"job");
    let waited = until_granted(&mut world, id, secs(2));
    assert!(waited > secs(1), "the waiter does not poll: {waited:?}");
}

#[test]
fn a_redirect_that_is_broken_silently_costs_at_most_the_cap() {
    let (mut world, id) = reported();
    world.break_redirect(0, 0);
    world.delete_everywhere(b"job");
    until_granted(&mut world, id, secs(2));
}

#[test]
fn a_lost_push_link_counts_as_a_message() {
    let (mut world, id) = reported();
    world.servers[0].loses_messages = true;
    world.delete_everywhere(b"job");
    world.cut_push(0, 0);
    assert!(until_granted(&mut world, id, secs(3)) <= HAND_OFF);
}

#[test]
fn a_lost_command_link_counts_as_a_message() {
    let (mut world, id) = reported();
    world.servers[0].loses_messages = true;
    world.delete_everywhere(b"job");
    world.cut(0, 0, Written::Runs);
    assert!(until_granted(&mut world, id, secs(3)) <= HAND_OFF, "the other nodes grant it");
}

#[test]
fn after_the_loss_of_either_link_notifications_resume() {
    for lose in
        [World::cut_push, |world: &mut World, client, node| world.cut(client, node, Written::Runs)]
    {
        let (mut world, id) = reported();
        for _ in 0..5 {
            lose(&mut world, 0, 0);
            world.run(secs(3));
            assert!(a_node_reports(&world));
        }
        world.delete_everywhere(b"job");
        assert!(until_granted(&mut world, id, secs(3)) <= HAND_OFF);
    }
}

#[test]
fn notifications_resume_after_the_lead_restarts() {
    let (mut world, id) = reported();
    world.restart(0, redbolt_node::Memory::Kept);
    world.run(secs(40));
    world.foreign(b"job", &[60_000; 3]);
    world.run(secs(5));
    assert!(!world.is_granted(id));
    assert!(a_node_reports(&world));
    world.delete_everywhere(b"job");
    assert!(until_granted(&mut world, id, secs(3)) <= HAND_OFF);
}

#[test]
fn a_confirmation_for_a_lost_push_link_does_not_apply_to_the_next() {
    let mut world = world();
    world.delay(ms(10));
    let id = world.wait_for(b"job", secs(10));
    world.run_until(secs(1), |world| world.count("track") > 0);
    world.cut_push(0, 0);
    world.run(secs(1));
    assert_eq!(world.push_state(0, 0), PushState::Active);
    let reported: Vec<_> =
        world.ran(0).into_iter().filter(|kind| kind.ends_with("track")).collect();
    assert_eq!(reported, ["track", "untrack", "track"]);
    world.delete_everywhere(b"job");
    let waited = until_granted(&mut world, id, secs(3));
    assert!(waited <= ms(50), "{waited:?}");
}

/// The key changes after the node turned tracking on, and before it reads this key.
#[test]
fn a_change_before_the_first_notification_is_found_by_the_second_read() {
    let mut world = world();
    world.delay(ms(5));
    let id = world.wait_for(b"job", secs(10));
    world.run_until(secs(1), |world| world.count("track") > 0);
    world.delete_everywhere(b"job");
    let waited = until_granted(&mut world, id, secs(3));
    assert!(waited <= ms(5 + 10 + 20), "{waited:?}");
}

#[test]
fn a_release_at_any_moment_of_the_beginning_is_noticed() {
    for at in 0..80 {
        let mut world = world();
        world.delay(ms(5));
        let id = world.wait_for(b"job", secs(10));
        world.run(ms(at) + Duration::from_micros(300));
        world.delete_everywhere(b"job");
        let waited = until_granted(&mut world, id, secs(3));
        assert!(waited <= ms(60), "{waited:?} when released after {at} ms");
    }
}

/// With several keys, only the script shows whether one is held.
#[test]
fn a_release_of_several_keys_at_any_moment_of_the_beginning_is_noticed() {
    for at in 0..80 {
        let mut world = world();
        world.delay(ms(5));
        let request = LockRequest::new(b"job").and(b"other").wait(Wait::Forever);
        let id = world.acquire(0, &request, &[b"job", b"other"]);
        world.run(ms(at) + Duration::from_micros(300));
        world.delete_everywhere(b"job");
        let waited = until_granted(&mut world, id, secs(3));
        assert!(waited <= ms(60), "{waited:?} when released after {at} ms");
    }
}

#[test]
fn any_of_many_keys_wakes() {
    let names: Vec<_> = (0..64u8).map(|at| [b'k', at]).collect();
    let keys: Vec<&[u8]> = names.iter().map(|name| &name[..]).collect();
    let request = keys[1..].iter().fold(LockRequest::new(keys[0]), |request, key| request.and(key));
    for blocked in [0, 40, 63] {
        let mut world = world();
        world.foreign(keys[blocked], &[60_000; 3]);
        let request = request.clone().wait(Wait::Forever).auto_extend(AutoExtend::until_released());
        let id = world.acquire(0, &request, &keys);
        world.run(ms(100));
        world.delete_everywhere(keys[blocked]);
        assert!(until_granted(&mut world, id, secs(3)) <= HAND_OFF);
        world.run(secs(20));
        assert!(keys.iter().all(|key| world.pttl(0, key) > 1_000), "kept together");
        world.release(id);
        world.run(ms(10));
        assert!(
            keys.iter().all(|key| world.holders(key) == [false; 3]),
            "and all keys are released"
        );
    }
}

/// The node notifies already, because of another waiter for another key.
#[test]
fn a_message_that_comes_while_several_keys_are_asked_for_is_not_lost() {
    for at in 0..60 {
        let (mut world, _) = reported();
        world.foreign(b"one", &[60_000; 3]);
        world.delay(ms(5));
        world.servers[1].delay = ms(20).as_nanos() as u64;
        world.servers[2].delay = ms(20).as_nanos() as u64;
        let request = LockRequest::new(b"one").and(b"two").wait(Wait::Forever);
        let id = world.acquire(0, &request, &[b"one", b"two"]);
        world.run(ms(at) + Duration::from_micros(300));
        world.delete_everywhere(b"one");
        let waited = until_granted(&mut world, id, secs(3));
        assert!(waited <= ms(150), "{waited:?} when released after {at} ms");
    }
}

#[test]
fn flushall_wakes_all_who_wait() {
    let mut world = with(1, |settings| {
        patient(settings);
        settings.restart_guard = RestartGuard::Off;
    });
    world.foreign(b"other", &[60_000; 3]);
    let other = world.wait_for(b"other", secs(10));
    let id = reported_in(&mut world);
    (0..3).for_each(|node| world.flush(node));
    assert!(until_granted(&mut world, id, secs(3)) <= HAND_OFF);
    assert!(world.is_granted(other));
}

#[test]
fn messages_may_come_in_pieces() {
    let mut world = world();
    world.cut_bytes(3, 7);
    let id = reported_in(&mut world);
    world.delete_everywhere(b"job");
    assert!(until_granted(&mut world, id, secs(3)) <= HAND_OFF);
}

#[test]
fn without_notifications_the_timer_is_enough() {
    let cases: [(&[&[u8]], &str, Cause); 3] = [
        (&[b"SUBSCRIBE"], "NOPERM no permission to access the channel", Cause::NoPermission),
        (&[b"CLIENT", b"TRACKING"], "ERR unknown command 'CLIENT'", Cause::UnknownCommand),
        (
            &[b"CLIENT", b"TRACKING"],
            "ERR Unknown subcommand or wrong number of arguments for 'TRACKING'",
            Cause::ServerError,
        ),
    ];
    for (command, text, cause) in cases {
        let mut world = with(1, |_| {});
        forbid(&mut world, 0, command, text);
        let id = world.wait_for(b"job", secs(10));
        world.run(secs(30));
        assert_eq!(world.push_state(0, 0), PushState::Unavailable(cause), "{text}");
        assert_eq!(world.connections(0), 3, "the push link is closed");
        assert_eq!(world.count("subscribe"), 1, "subscribing is not retried all the time");
        assert!(asks(&world, 0).len() > 150, "{} asks", asks(&world, 0).len());
        world.delete_everywhere(b"job");
        until_granted(&mut world, id, ms(210));
    }
}

#[test]
fn forbidden_notifications_are_tried_again_after_a_minute() {
    let mut world = with(1, |_| {});
    forbid(&mut world, 0, &[b"SUBSCRIBE"], "NOPERM no");
    let request = LockRequest::new(b"job").wait(Wait::Forever);
    for node in 0..3 {
        world.set(node, b"job", b"theirs", 600_000);
    }
    world.acquire(0, &request, &[b"job"]);
    world.run(secs(10));
    world.servers[0].answer = None;
    world.run(secs(10));
    assert_eq!(world.push_state(0, 0), PushState::Unavailable(Cause::NoPermission));
    world.run(secs(50));
    assert_eq!(world.push_state(0, 0), PushState::Active);
}

/// As a regression, a report showed "waiters are not told: connection closed" for healthy nodes
/// forever.
#[test]
fn a_lost_push_link_is_not_reported_without_waiters() {
    let (mut world, id) = reported();
    let now = world.now();
    world.core().release(id, now);
    world.flow();
    assert_eq!(world.push_state(0, 0), PushState::Active, "the push link stays for later waiters");
    world.cut_push(0, 0);
    assert_eq!(world.push_state(0, 0), PushState::Off);
    world.run(secs(10));
    assert_eq!(world.push_state(0, 0), PushState::Off);

    let waiter = world.wait_for(b"job", secs(10));
    world.run(ms(100));
    world.servers[0].accept = Accept::No;
    world.cut_push(0, 0);
    let reported = world.push_state(0, 0);
    assert_eq!(
        reported,
        PushState::Unavailable(Cause::ConnectionReset),
        "a waiter needs the push link"
    );
    let now = world.now();
    world.core().release(waiter, now);
    world.flow();
    assert_eq!(world.push_state(0, 0), PushState::Off);
}

/// The next server process may be a newer one, or permit notifications.
#[test]
fn forbidden_notifications_are_tried_again_after_a_restart() {
    let mut world = with(1, |settings| settings.restart_guard = RestartGuard::Off);
    forbid(&mut world, 0, &[b"SUBSCRIBE"], "NOPERM no");
    world.foreign(b"job", &[600_000; 3]);
    world.wait_for(b"job", secs(10));
    world.run(secs(1));
    assert_eq!(world.push_state(0, 0), PushState::Unavailable(Cause::NoPermission));
    world.servers[0].answer = None;
    world.restart(0, redbolt_node::Memory::Kept);
    world.run_until(secs(5), |world| world.push_state(0, 0) == PushState::Active);
}

#[test]
fn a_push_link_that_cannot_be_opened_costs_no_more_than_the_timer() {
    for (accept, cause) in
        [(Accept::No, Cause::ConnectionRefused), (Accept::Silent, Cause::NoAnswer)]
    {
        let mut world = with(1, |_| {});
        world.servers[0].accept = accept;
        let id = world.wait_for(b"job", secs(10));
        world.run_until(secs(2), |world| world.push_state(0, 0) == PushState::Unavailable(cause));
        world.delete_everywhere(b"job");
        until_granted(&mut world, id, ms(210));
    }
}

/// The redirect id would name another client's connection.
#[test]
fn a_push_link_to_another_process_is_not_used() {
    let mut world = with(1, |_| {});
    world.answer(0, |args| {
        let run_id = format!("run_id:{:040}\r\n", 77);
        (args == [&b"INFO"[..], b"server"]).then(|| bulk(&run_id)).flatten()
    });
    world.wait_for(b"job", secs(10));
    world.run(secs(5));
    assert_eq!(world.count("track"), 0);
    assert!(matches!(world.push_state(0, 0), PushState::Unavailable(_) | PushState::Opening));
    assert!(world.count("subscribe") < 20, "it backs off: {}", world.count("subscribe"));
}

#[test]
fn the_push_link_gives_the_password_first() {
    let mut world = World::led(3, 1, |settings| {
        let password = Secret::new(b"sesame".to_vec());
        for node in &mut settings.nodes {
            node.credentials = Some(Credentials::new(None, password.clone()));
        }
    });
    for server in &mut world.servers {
        server.store.require_password("sesame");
    }
    let mut world = world.warm();
    let now = world.server_now();
    for server in &mut world.servers {
        server.observe(&[b"AUTH", b"sesame"], now);
    }
    world.foreign(b"job", &[60_000; 3]);
    world.wait_for(b"job", secs(10));
    world.run(ms(10));
    assert_eq!(world.push_state(0, 0), PushState::Active);
    let history: Vec<_> = history(&world, 0).into_iter().map(|(kind, _)| kind).collect();
    let at = |kind| history.iter().position(|&it| it == kind).unwrap();
    assert!(at("auth") < at("subscribe"), "{history:?}");
}

#[test]
fn invalid_bytes_on_a_push_link_end_only_that_link() {
    let (mut world, id) = reported();
    for nonsense in ["\0", "+PONG\r\n", ":1\r\n", "*3\r\n$8\r\npmessage\r\n", "*99999999\r\n"] {
        world.send_to_push(0, 0, nonsense.as_bytes());
        world.run(secs(3));
        assert_eq!(world.push_state(0, 0), PushState::Active, "again, after {nonsense:?}");
    }
    assert_eq!(world.count("info"), 5, "only handshakes of push links");
    world.delete_everywhere(b"job");
    assert!(until_granted(&mut world, id, secs(3)) <= HAND_OFF);
}

/// Any client of the server can publish on the channel of its notifications.
#[test]
fn a_message_of_another_client_does_not_end_a_push_link() {
    let (mut world, id) = reported();
    let before = world.count("info");
    for _ in 0..3 {
        let message = b"*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n$3\r\njob\r\n";
        world.send_to_push(0, 0, message);
        world.run(ms(10));
    }
    assert_eq!(world.count("info"), before, "no push link was opened again");
    world.delete_everywhere(b"job");
    assert!(until_granted(&mut world, id, secs(3)) <= HAND_OFF);
}

// Waiters must not keep waking one another.

/// Another client's key changes a thousand times a second.
#[test]
fn changes_at_wire_speed_are_not_answered_at_wire_speed() {
    let (mut world, _) = reported();
    for change in 0..4_000 {
        world.set(0, b"job", b"theirs", 60_000 + change);
        world.run(ms(1));
    }
    let asked = asks(&world, 0).len();
    assert!((60..4 * 150).contains(&asked), "{asked} requests in 4 s");
    assert_eq!(asks(&world, 1).len(), 0);
}

/// The link is lost while the waiter ignores notifications because several were useless.
#[test]
fn a_busy_waiter_whose_push_link_is_lost_for_good_asks_as_often_as_without_one() {
    for changes in 20..40 {
        let mut world = with(1, |_| {});
        let id = reported_in(&mut world);
        for change in 0..changes {
            world.set(0, b"job", b"theirs", 60_000 + change);
            world.run(ms(1));
        }
        forbid(&mut world, 0, &[b"CLIENT", b"TRACKING"], "NOPERM no");
        world.cut_push(0, 0);
        world.run(ms(100));
        world.delete_everywhere(b"job");
        // The waiter needs a pause without notifications, and an attempt.
        let took = until_granted(&mut world, id, secs(3));
        assert!(took <= ms(200 + 20), "{took:?} after {changes} changes");
    }
}

/// The lock is held on two nodes, and on the third many waiters deny one another.
#[test]
fn waiters_do_not_wake_one_another_while_it_is_held_elsewhere() {
    for wake in [WakeStrategy::Lead, WakeStrategy::Timer] {
        for held in [[0, 1], [0, 2], [1, 2]] {
            let mut world = World::with(3, 4, |settings| settings.wake = wake).warm();
            for (node, server) in world.servers.iter_mut().enumerate() {
                server.delay = 300_000 * (node as u64 + 1);
            }
            for node in held {
                world.set(node, b"job", b"theirs", 60_000);
            }
            for client in 0..4 {
                world.acquire(client, &LockRequest::new(b"job").wait(Wait::Forever), &[b"job"]);
                world.run(Duration::from_micros(700));
            }
            world.run(secs(5));
            world.log.clear();
            world.run(secs(5));
            let per_second = world.count("ask") as f64 / 5.0 / 3.0 / 4.0;
            assert!(per_second < 25.0, "{per_second} attempts of each a second: {wake:?} {held:?}");
        }
    }
}

#[test]
fn an_extending_holder_does_not_cause_a_flood_of_requests() {
    let mut world = World::with(3, 3, |_| {}).warm();
    world.delay(ms(1));
    let keep = AutoExtend::until_released();
    let holder =
        world.acquire(1, &LockRequest::new(b"job").ttl(secs(3)).auto_extend(keep), &[b"job"]);
    world.run(ms(10));
    let ids: Vec<_> = [0, 2]
        .map(|client| {
            (
                client,
                world.acquire(client, &LockRequest::new(b"job").wait(Wait::Forever), &[b"job"]),
            )
        })
        .to_vec();
    world.run(secs(3));
    world.log.clear();
    world.run(secs(9));
    let extensions =
        world.log.iter().filter(|ran| ran.node == 0 && ran.kind().starts_with("extend"));
    let extensions = extensions.count();
    assert!((9..=11).contains(&extensions), "{extensions}");
    // Each waiter sends one request per message, and one when the longest pause has ended.
    let asked = asks(&world, 0).len();
    assert!(asked <= ids.len() * (extensions + 9), "{asked} asks for {extensions} extensions");
    assert!(world.clients[1].core.lease(holder).is_some());
}

// The wake strategies.

#[test]
fn with_the_timer_alone_there_are_no_push_links() {
    let mut world = with(1, |settings| settings.wake = WakeStrategy::Timer);
    let id = world.wait_for(b"job", secs(10));
    world.run(secs(3));
    assert_eq!(world.count("subscribe") + world.count("track"), 0);
    assert_eq!((world.connections(0), world.push_state(0, 0)), (3, PushState::Off));
    world.delete_everywhere(b"job");
    until_granted(&mut world, id, ms(210));
}

// Nothing is left.

#[test]
fn a_push_link_is_closed_after_a_while_without_waiters() {
    let (mut world, id) = reported();
    world.release(id);
    world.run(ms(4_800));
    assert_eq!((world.connections(0), world.push_state(0, 0)), (4, PushState::Active));
    world.run(ms(300));
    assert_eq!((world.connections(0), world.push_state(0, 0)), (3, PushState::Off));
    assert_eq!(world.count("untrack"), 1);
    world.run(secs(3));
    assert_eq!(world.core().poll_timeout(), None, "no timer is left");
    let id = world.wait_for(b"job", secs(10));
    world.run(ms(100));
    assert_eq!(world.push_state(0, 0), PushState::Active, "the new waiter opens it again");
    world.delete_everywhere(b"job");
    assert!(until_granted(&mut world, id, secs(3)) <= HAND_OFF);
}

#[test]
fn a_push_link_stays_while_a_lock_waits() {
    let (mut world, id) = reported();
    world.run(secs(30));
    assert_eq!(world.core().state(id), LockState::Pausing);
    assert_eq!(world.count("subscribe") + world.count("untrack"), 0);
    assert_eq!(world.push_state(0, 0), PushState::Active);
}

#[test]
fn ten_thousand_cancelled_waits_leave_nothing() {
    const NAMES: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];
    let mut world = with(1, |_| {});
    for name in NAMES {
        world.foreign(name, &[1_000_000; 3]);
    }
    for round in 0..2_500 {
        let ids: Vec<_> = (0..4)
            .map(|at| {
                let name = NAMES[(round + at * at) % 4];
                let request = LockRequest::new(name).wait(Wait::Forever);
                let request = if at == 3 { request.and(b"many") } else { request };
                world.acquire(0, &request, &[])
            })
            .collect();
        world.run(Duration::from_micros(100 * (round as u64 % 97)));
        for id in ids {
            world.release(id);
        }
        assert!(world.connections(0) <= 2 * 3);
        assert!(
            world.clients[0].events.iter().all(|(_, event)| matches!(event, Event::Refused(..)))
        );
        world.clients[0].locks.clear();
        world.clients[0].events.clear();
        world.log.clear();
    }
    world.run(secs(40));
    assert_eq!((world.kept(0), world.connections(0)), ((0, 0), 3));
    for node in 0..3 {
        assert_eq!(world.push_state(0, node), PushState::Off);
    }
    assert_eq!(world.core().poll_timeout(), None);
    assert_eq!(world.holders(b"many"), [false; 3]);
}

/// An operator who inspects a set of nodes probes them like this.
#[test]
fn whether_nodes_notify_can_be_tried_without_waiting() {
    for (wake, state) in
        [(WakeStrategy::Lead, PushState::Active), (WakeStrategy::Timer, PushState::Off)]
    {
        let mut world = World::with(3, 1, |settings| settings.wake = wake).warm();
        let now = world.now();
        world.core().try_push(now);
        world.run(ms(10));
        assert_eq!([0, 1, 2].map(|node| world.push_state(0, node)), [state; 3]);
    }
}

#[test]
fn a_flush_is_one_notification_of_each_node() {
    let mut world = with(1, |settings| {
        patient(settings);
        settings.restart_guard = RestartGuard::Off;
    });
    reported_in(&mut world);
    world.flush(0);
    world.run(ms(10));
    let node = world.node(0);
    assert_eq!(world.core().metrics().node(node).pushes, 1);
}
