//! The channels of other libraries: when a waiter subscribes, what a message on one does, and when
//! the subscription ends.

use std::time::Duration;

use redbolt::proto::{Cause, LockId, LockRequest, LockState, Profile, PushState, Settings, Wait};

use crate::world::{World, error, ms, secs};
/// Makes pauses long, so that a test sees only what ends them early.
fn patient(settings: &mut Settings) {
    settings.retry_backoff = (secs(10), secs(10));
}

/// Returns three nodes, each 1 ms away, on which another client has the keys for a minute.
fn world(clients: usize) -> World {
    let mut world = World::with(3, clients, patient).warm();
    world.delay(ms(1));
    world.foreign(b"job", &[60_000; 3]);
    world.foreign(b"shop:eu:job", &[60_000; 3]);
    world
}

/// Makes the first node refuse commands that begin with one of these.
fn forbid(world: &mut World, commands: &'static [&'static [&'static [u8]]]) {
    world.answer(0, move |args| {
        let is_forbidden = commands.iter().any(|command| args.starts_with(command));
        is_forbidden.then(|| error("NOPERM no")).flatten()
    });
}

const TRACKING: &[&[u8]] = &[b"CLIENT", b"TRACKING"];
const ENTERING: &[&[u8]] = &[b"SUBSCRIBE", CHANNEL];
const INVALIDATIONS: &[&[u8]] = &[b"SUBSCRIBE", b"__redis__:invalidate"];
const LEAVING: &[&[u8]] = &[b"UNSUBSCRIBE"];
const CHANNEL: &[u8] = b"redisson_lock__channel:{job}";

/// A time in which no timer ends a pause.
const SOON: Duration = ms(1_000);

/// The time for the message, the request to the lead, and those to the others.
const HAND_OFF: Duration = ms(5);

fn waits_as(world: &mut World, client: usize, profile: Profile, key: &[u8]) -> LockId {
    let request = LockRequest::new(key).format(profile).wait(Wait::Forever);
    let id = world.acquire(client, &request, &[]);
    world.run(ms(100));
    id
}

fn waits(world: &mut World) -> LockId {
    waits_as(world, 0, Profile::REDISSON, b"job")
}

fn everywhere(world: &mut World, command: &[&[u8]]) {
    let now = world.server_now();
    world.servers.iter_mut().for_each(|server| drop(server.observe(command, now)));
}

/// Releases the lock as a client of the other library does.
fn released(world: &mut World, key: &[u8], channel: &[u8]) {
    everywhere(world, &[b"DEL", key]);
    everywhere(world, &[b"PUBLISH", channel, b"0"]);
    world.flow();
}

fn is_granted_within(world: &mut World, id: LockId, span: Duration) -> bool {
    world.run(span);
    world.is_granted(id)
}

/// Returns `true` if a client has subscribed to the channel on the first node.
fn received(world: &mut World, channel: &[u8]) -> bool {
    let now = world.server_now();
    let reply = world.servers[0].observe(&[b"PUBSUB", b"NUMSUB", channel], now);
    !reply.ends_with(b":0\r\n")
}

fn asks(world: &World, node: usize) -> usize {
    world.log.iter().filter(|ran| ran.node == node && ran.is_ask()).count()
}

#[test]
fn a_message_alone_wakes_a_waiter_without_tracking() {
    for forbidden in [&[TRACKING][..], &[INVALIDATIONS], &[INVALIDATIONS, TRACKING]] {
        for is_notified in [true, false] {
            let mut world = world(1);
            forbid(&mut world, forbidden);
            let id = waits(&mut world);
            assert!(received(&mut world, CHANNEL));
            let reported = world.push_state(0, 0);
            assert_eq!(
                reported,
                PushState::Unavailable(Cause::NoPermission),
                "others are not told"
            );
            match is_notified {
                true => released(&mut world, b"job", CHANNEL),
                false => everywhere(&mut world, &[b"DEL", b"job"]),
            }
            let within = if is_notified { HAND_OFF } else { SOON };
            assert_eq!(is_granted_within(&mut world, id, within), is_notified, "{forbidden:?}");
        }
    }
}

/// The resources `job` and `{job}` have the same channel of Redisson.
#[test]
fn a_subscription_stays_when_another_resource_has_the_same_channel() {
    let mut world = world(1);
    forbid(&mut world, &[TRACKING]);
    world.foreign(b"{job}", &[60_000; 3]);
    let id = waits(&mut world);
    let other = waits_as(&mut world, 0, Profile::REDISSON, b"{job}");
    released(&mut world, b"job", CHANNEL);
    assert!(is_granted_within(&mut world, id, HAND_OFF));
    assert!(!world.is_granted(other));
}

/// After a minute the client tries to track again, but its push link still may not subscribe to
/// notifications.
#[test]
fn a_node_does_not_track_for_a_connection_that_may_not_subscribe() {
    let mut world = world(1);
    world.foreign(b"job", &[600_000; 3]);
    forbid(&mut world, &[INVALIDATIONS]);
    let id = waits(&mut world);
    world.run(secs(150));
    assert_eq!(world.push_state(0, 0), PushState::Unavailable(Cause::NoPermission));
    released(&mut world, b"job", CHANNEL);
    assert!(is_granted_within(&mut world, id, HAND_OFF));
}

#[test]
fn each_library_s_own_channel_is_subscribed_to() {
    let cases: [(Profile, &[u8], &[u8]); 4] = [
        (Profile::REDISSON, b"job", CHANNEL),
        (Profile::REDISSON_RW, b"job", b"redisson_rwlock:{job}"),
        (Profile::SPRING, b"shop:eu:job", b"shop-channel:shop:eu:job"),
        (Profile::SPRING, b"shop:eu:job", b"shop:eu-channel:shop:eu:job"),
    ];
    for (profile, key, channel) in cases {
        let mut world = world(1);
        forbid(&mut world, &[TRACKING]);
        let id = waits_as(&mut world, 0, profile, key);
        released(&mut world, key, channel);
        assert!(is_granted_within(&mut world, id, HAND_OFF), "{profile}");
        world.run(ms(10));
        assert!(!received(&mut world, channel), "{profile}");
    }
}

/// Redbolt does not know a Spring lock's registry, so a release is published on all channels that
/// it may have.
#[test]
fn a_message_on_several_channels_leads_to_one_request() {
    let mut world = world(1);
    forbid(&mut world, &[TRACKING]);
    waits_as(&mut world, 0, Profile::SPRING, b"shop:eu:job");
    let before = asks(&world, 0);
    for channel in ["shop-channel:shop:eu:job", "shop:eu-channel:shop:eu:job"] {
        everywhere(&mut world, &[b"PUBLISH", channel.as_bytes(), b"x"]);
    }
    world.run(ms(100));
    assert_eq!(asks(&world, 0) - before, 1);
}

/// Returns how many requests and reads of the key a waiter sends to the lead while the lock is
/// passed on twenty times.
fn sent(is_tracked: bool, is_notified: bool) -> (usize, usize) {
    let mut world = world(1);
    if !is_tracked {
        forbid(&mut world, &[TRACKING]);
    }
    waits(&mut world);
    assert!(received(&mut world, CHANNEL));
    world.log.clear();
    for _ in 0..20 {
        // No timer is due meanwhile.
        everywhere(&mut world, &[b"DEL", b"job"]);
        if is_notified {
            everywhere(&mut world, &[b"PUBLISH", CHANNEL, b"0"]);
        }
        everywhere(&mut world, &[b"SET", b"job", b"theirs", b"PX", b"60000"]);
        world.run(ms(50));
    }
    let pttls = world.log.iter().filter(|ran| ran.node == 0 && ran.kind() == "pttl").count();
    (asks(&world, 0), pttls)
}

/// A message about a change that a node has already reported causes neither a request nor a read.
#[test]
fn a_release_that_is_reported_and_published_is_one_request() {
    let (reported, both, published) = (sent(true, false), sent(true, true), sent(false, true));
    assert_eq!(both, reported);
    assert!((20..=21).contains(&both.0), "{both:?}");
    assert!((20..=21).contains(&published.0), "{published:?}");
    assert!(sent(false, false).0 <= 1, "nobody says anything");
}

#[test]
fn a_library_s_channel_is_subscribed_again_after_a_lost_connection() {
    for forbidden in [&[TRACKING][..], &[]] {
        let mut world = world(1);
        forbid(&mut world, forbidden);
        let id = waits(&mut world);
        world.cut_push(0, 0);
        assert!(!received(&mut world, CHANNEL));
        world.run(secs(1));
        assert!(received(&mut world, CHANNEL));
        assert_eq!(world.count("hear"), 2);
        released(&mut world, b"job", CHANNEL);
        assert!(is_granted_within(&mut world, id, ms(60)));
    }
}

/// No client received the message.
#[test]
fn a_message_missed_during_a_lost_connection_delays_a_waiter_only_briefly() {
    let mut world = world(1);
    forbid(&mut world, &[TRACKING]);
    let id = waits(&mut world);
    world.cut_push(0, 0);
    world.run(ms(1));
    released(&mut world, b"job", CHANNEL);
    assert!(is_granted_within(&mut world, id, SOON));
}

#[test]
fn a_channel_is_unsubscribed_after_the_last_local_waiter() {
    for forbidden in [&[TRACKING][..], &[]] {
        let mut world = world(1);
        forbid(&mut world, forbidden);
        let first = waits(&mut world);
        let second = waits(&mut world);
        let third = waits(&mut world);
        world.release(second);
        world.run(ms(10));
        world.release(first);
        world.run(ms(10));
        assert!(received(&mut world, CHANNEL), "the third one waits");
        assert_eq!((world.count("hear"), world.count("no longer hear")), (1, 0));
        released(&mut world, b"job", CHANNEL);
        world.run(ms(100));
        assert!(world.is_granted(third));
        assert!(!received(&mut world, CHANNEL));
        assert_eq!((world.count("hear"), world.count("no longer hear")), (1, 1));
        world.release(third);
        world.run(secs(10));
        assert_eq!((world.kept(0), world.connections(0)), ((0, 0), 3));
        assert_eq!(world.core().poll_timeout(), None, "no timer is left");
    }
}

/// The last subscriber may be a lock that never sent a request.
#[test]
fn a_queued_waiter_that_gives_up_leaves_no_subscription() {
    let mut world = world(1);
    let first = waits(&mut world);
    let second = waits(&mut world);
    released(&mut world, b"job", CHANNEL);
    world.run(ms(100));
    assert!(world.is_granted(first) && received(&mut world, CHANNEL));
    world.release(second);
    world.run(ms(10));
    assert!(!received(&mut world, CHANNEL));
}

#[test]
fn a_lock_that_does_not_wait_subscribes_to_nothing() {
    let mut world = World::with(3, 1, patient).warm();
    let request = LockRequest::new(b"job").format(Profile::REDISSON);
    let id = world.acquire(0, &request.clone().wait(Wait::Forever), &[]);
    world.run(ms(100));
    let tried = world.acquire(0, &request, &[]);
    world.run(ms(100));
    assert!(world.is_granted(id) && !world.is_granted(tried));
    assert_eq!(world.count("subscribe") + world.count("hear"), 0);
}

/// Changes are still reported.
#[test]
fn if_the_channel_is_forbidden_notifications_are_enough_and_it_is_reported() {
    let mut world = world(1);
    forbid(&mut world, &[ENTERING]);
    let id = waits(&mut world);
    let node = world.node(0);
    assert_eq!(world.core().no_channel(node), Some(Cause::NoPermission));
    assert_eq!(world.push_state(0, 0), PushState::Active);
    world.run(secs(20));
    assert_eq!(world.count("hear"), 1, "it is not asked for all the time");
    released(&mut world, b"job", CHANNEL);
    assert!(is_granted_within(&mut world, id, HAND_OFF));
    world.release(id);
    world.run(ms(10));
    assert_eq!(world.count("no longer hear"), 0);
    world.servers[0].answer = None;
    world.foreign(b"job", &[60_000; 3]);
    waits(&mut world);
    assert_eq!(world.core().no_channel(node), None);
}

/// Only one of the channels belongs to the lock's registry.
#[test]
fn one_of_its_channels_is_enough_to_follow_a_registry() {
    for forbidden in ["shop-channel:shop:eu:job", "shop:eu-channel:shop:eu:job"] {
        let mut world = world(1);
        world.answer(0, move |args| {
            (args == [&b"SUBSCRIBE"[..], forbidden.as_bytes()])
                .then(|| error("NOPERM no"))
                .flatten()
        });
        waits_as(&mut world, 0, Profile::SPRING, b"shop:eu:job");
        let node = world.node(0);
        assert_eq!(world.core().no_channel(node), None, "{forbidden}");
    }
}

#[test]
fn without_reports_and_messages_the_timer_is_enough() {
    let mut world = World::with(3, 1, |_| {}).warm();
    world.delay(ms(1));
    world.foreign(b"job", &[60_000; 3]);
    forbid(&mut world, &[TRACKING, INVALIDATIONS, ENTERING]);
    let id = waits(&mut world);
    world.run(secs(20));
    assert_eq!(world.push_state(0, 0), PushState::Unavailable(Cause::NoPermission));
    assert_eq!(world.connections(0), 3, "the push link is closed");
    assert_eq!(world.count("hear"), 1, "it is not tried all the time");
    released(&mut world, b"job", CHANNEL);
    assert!(is_granted_within(&mut world, id, ms(210)));
}

/// Another process may have acquired the lock meanwhile, which no message reports.
#[test]
fn a_channel_that_could_not_be_unsubscribed_is_not_subscribed_again() {
    let mut world = world(1);
    forbid(&mut world, &[LEAVING]);
    let id = waits(&mut world);
    world.release(id);
    world.run(secs(1));
    let node = world.node(0);
    assert!(!received(&mut world, CHANNEL), "its connection was closed");
    assert_eq!(world.core().no_channel(node), Some(Cause::NoPermission));
    let id = waits(&mut world);
    world.run(secs(1));
    assert_eq!(world.count("hear"), 1);
    assert_eq!(world.push_state(0, 0), PushState::Active, "changes are reported");
    released(&mut world, b"job", CHANNEL);
    assert!(is_granted_within(&mut world, id, HAND_OFF));
    world.run(secs(70));
    world.release(id);
    world.foreign(b"job", &[60_000; 3]);
    waits(&mut world);
    assert_eq!(world.count("hear"), 2, "the operator may have allowed it");
}

/// On a node without tracking, a plain lock waits by its timer, on the same push link.
#[test]
fn other_resources_neither_get_its_messages_nor_keep_its_subscription() {
    let mut world = world(1);
    forbid(&mut world, &[TRACKING]);
    world.foreign(b"plain", &[600_000; 3]);
    let plain = world.acquire(0, &LockRequest::new(b"plain").wait(Wait::Forever), &[b"plain"]);
    world.run(ms(100));
    assert_eq!(world.connections(0), 3, "of no use");
    let id = waits(&mut world);
    assert!(received(&mut world, CHANNEL), "a channel is of use at once");
    released(&mut world, b"job", CHANNEL);
    assert!(is_granted_within(&mut world, id, HAND_OFF));
    assert_eq!(world.core().state(plain), LockState::Pausing);
    world.servers[0].answer = None;
    world.run(secs(70));
    assert_eq!(world.push_state(0, 0), PushState::Active, "it is tried again");
}

#[test]
fn invalid_messages_about_channels_end_only_the_push_link() {
    let mut world = world(1);
    let id = waits(&mut world);
    for nonsense in [
        "*3\r\n$7\r\nmessage\r\n$5\r\nother\r\n$1\r\n0\r\n",
        "*3\r\n$9\r\nsubscribe\r\n$5\r\nother\r\n:2\r\n",
        "*3\r\n$11\r\nunsubscribe\r\n$28\r\nredisson_lock__channel:{job}\r\n:1\r\n",
        "*3\r\n$7\r\nmessage\r\n$28\r\nredisson_lock__channel:{job}\r\n:1\r\n",
    ] {
        world.send_to_push(0, 0, nonsense.as_bytes());
        world.run(secs(3));
        assert_eq!(world.push_state(0, 0), PushState::Active, "again, after {nonsense:?}");
        assert!(received(&mut world, CHANNEL));
    }
    released(&mut world, b"job", CHANNEL);
    assert!(is_granted_within(&mut world, id, HAND_OFF));
}
