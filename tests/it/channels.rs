//! The channels on which other libraries publish releases, on real servers: a message wakes
//! waiters, and no subscription outlives the last waiter.

use std::thread;
use std::time::{Duration, Instant};

use redbolt::proto::script::UNDO_REDISSON;
use redbolt::{
    ConfigBuilder, Driver, Event, LockId, LockRequest, Profile,
    config::{RestartGuard, WakeStrategy},
    report::{Cause, LockState, PushState},
};
use redbolt_test_servers::{Reply, Server};

use crate::support::{
    LIMIT, builder, calls, client_of, driver_of, eventually, once_in, patient, patiently,
    process_until, server, vouched,
};

/// The retry backoff: without a notification, no waiter retries for at least an eighth of this.
const LATE: Duration = Duration::from_secs(40);

/// A time far shorter than any timer, in which every message arrives.
const SOON: Duration = Duration::from_secs(1);

const CHANNEL: &str = "redisson_lock__channel:{job}";

/// A driver that waits for `job` in Redisson's format while the member `peer:1` holds it.
struct Waiter {
    driver: Driver,
    id: LockId,
}

impl Waiter {
    fn of(server: &Server, builder: ConfigBuilder) -> Self {
        held(server);
        let mut driver = driver_of(builder);
        let id = driver.acquire(redisson()).unwrap();
        process_until(&mut driver, "it waits", |driver| driver.state(id) == LockState::Pausing);
        Self { driver, id }
    }

    /// Returns a waiter that has subscribed to the channel and whose timers are far off.
    fn hearing(server: &Server, builder: ConfigBuilder) -> Self {
        let mut waiter = Self::of(server, builder);
        waiter.until("it has subscribed", |_| hearers(server) == 1);
        waiter.settle();
        waiter
    }

    fn until(&mut self, what: &str, mut holds: impl FnMut(&Driver) -> bool) {
        process_until(&mut self.driver, what, |driver| holds(driver));
    }

    fn settle(&mut self) {
        let until = Instant::now() + Duration::from_millis(100);
        while Instant::now() < until {
            self.driver.process();
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Returns `true` if a message, rather than a timer, makes the waiter ask and be granted.
    fn is_granted_by_a_message(&mut self) -> bool {
        let (before, until) = (self.wakes(), Instant::now() + LIMIT);
        while Instant::now() < until {
            self.driver.process();
            while let Some(event) = self.driver.poll_event() {
                if event == Event::Granted(self.id) {
                    return self.wakes() > before;
                }
            }
            thread::sleep(Duration::from_millis(1));
        }
        false
    }

    /// Returns `true` if nothing wakes the waiter for [`SOON`].
    fn receives_nothing(&mut self) -> bool {
        let (before, until) = (self.wakes(), Instant::now() + SOON);
        while Instant::now() < until {
            self.driver.process();
            thread::sleep(Duration::from_millis(1));
        }
        self.wakes() == before
    }

    fn wakes(&self) -> u64 {
        self.driver.metrics().metrics.wakes
    }

    fn push(&self) -> PushState {
        self.driver.node_report().nodes[0].push
    }
}

fn redisson() -> LockRequest<'static> {
    patiently(b"job").format(Profile::REDISSON)
}

fn held(server: &Server) {
    server.cmd("HSET job peer:1 1");
    server.cmd("PEXPIRE job 600000");
}

/// Releases the lock as a Redisson client does: one script deletes the key and publishes the
/// release.
fn released(server: &Server) {
    let words = ["EVAL", UNDO_REDISSON.text, "1", "job", "peer:1"].map(str::as_bytes);
    assert_eq!(server.run(&words), Reply::Int(1));
}

/// Returns the number of subscribers to the channel.
fn hearers(server: &Server) -> i64 {
    match server.cmd(&format!("PUBSUB NUMSUB {CHANNEL}")) {
        Reply::Array(counts) => match counts[1] {
            Reply::Int(count) => count,
            ref other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

fn late(server: &Server) -> ConfigBuilder {
    builder(std::slice::from_ref(server)).retry_backoff(LATE, LATE)
}

fn untracked() -> Server {
    let server = server();
    assert_eq!(server.cmd("ACL SETUSER default -client|tracking"), Reply::Status("OK".into()));
    server
}

#[test]
fn a_redisson_message_wakes_a_waiter_that_may_not_be_tracked() {
    for is_notified in [true, false] {
        let server = untracked();
        let mut waiter = Waiter::hearing(&server, late(&server));
        assert_eq!(waiter.push(), PushState::Unavailable(Cause::NoPermission));
        if is_notified {
            released(&server);
            assert!(waiter.is_granted_by_a_message());
        } else {
            assert_eq!(server.cmd("DEL job"), Reply::Int(1));
            assert!(waiter.receives_nothing());
        }
    }
}

/// Servers before Redis 6 have channels, but no client-side tracking.
#[test]
fn a_redisson_message_wakes_a_waiter_on_a_server_without_tracking() {
    let server = vouched(Server::with(&["--rename-command", "CLIENT", "no-longer"]));
    let mut waiter = Waiter::hearing(&server, late(&server));
    assert_eq!(waiter.push(), PushState::Unavailable(Cause::UnknownCommand));
    released(&server);
    assert!(waiter.is_granted_by_a_message());
}

/// Passes the lock on in one step, so that a waiter that retries is denied.
const PASS_ON: &str = "redis.call('DEL', KEYS[1]) \
     if ARGV[1] ~= '' then redis.call('PUBLISH', ARGV[1], '0') end \
     redis.call('HSET', KEYS[1], 'peer:2', 1) \
     redis.call('PEXPIRE', KEYS[1], 600000)";

/// The release is only reported, only published, or both.
#[test]
fn a_release_that_is_reported_and_published_leads_to_one_request() {
    const RELEASES: u64 = 10;
    for wake in [WakeStrategy::Queue, WakeStrategy::Lead] {
        for (server, channel) in [(server(), ""), (server(), CHANNEL), (untracked(), CHANNEL)] {
            let mut waiter = Waiter::hearing(&server, late(&server).wake(wake));
            // Each request runs a script, and so does the undo that follows a denial; only the undo
            // uses HEXISTS.
            let asks = || {
                let scripts = calls(&server, "evalsha") + calls(&server, "eval");
                scripts - calls(&server, "hexists")
            };
            // On a stalled machine, a timer adds a request.
            let leads_to_one = once_in(5, || {
                let before = asks();
                for _ in 0..RELEASES {
                    let words = ["EVAL", PASS_ON, "1", "job", channel].map(str::as_bytes);
                    server.run(&words);
                    waiter.settle();
                }
                let asked = asks() - before - RELEASES;
                println!("{asked} requests, {wake:?}, on {channel:?}");
                (1..=RELEASES).contains(&asked)
            });
            assert!(leads_to_one);
        }
    }
}

#[test]
fn a_channel_is_subscribed_again_after_a_lost_connection() {
    for server in [server(), untracked()] {
        let mut waiter = Waiter::hearing(&server, late(&server));
        assert_eq!(server.cmd("CLIENT KILL TYPE pubsub"), Reply::Int(1));
        waiter.until("the connection is lost", |driver| {
            driver.node_report().nodes[0].push != PushState::Active && hearers(&server) == 0
        });
        waiter.until("it has subscribed again", |_| hearers(&server) == 1);
        waiter.settle();
        released(&server);
        assert!(waiter.is_granted_by_a_message());
    }
}

#[test]
fn no_channel_stays_subscribed_without_waiters() {
    for server in [server(), untracked()] {
        let mut waiter = Waiter::hearing(&server, late(&server));
        let behind = waiter.driver.acquire(redisson()).unwrap();
        waiter.settle();
        released(&server);
        assert!(waiter.is_granted_by_a_message());
        waiter.settle();
        assert_eq!(hearers(&server), 1, "another waiter of this process needs the channel");
        waiter.driver.release(behind);
        waiter.until("the channel has no subscriber", |_| hearers(&server) == 0);
        waiter.driver.release(waiter.id);
        waiter.until("there is no channel", |_| {
            server.cmd("PUBSUB CHANNELS") == Reply::Array(Vec::new())
        });
        assert_eq!(server.cmd("KEYS *"), Reply::Array(vec![Reply::Bulk("redbolt:guard".into())]));
    }
}

/// Waiters with the Redisson format also receive the releases of a redbolt holder.
#[test]
fn releases_are_received_on_channels_if_tracking_is_forbidden() {
    let server = untracked();
    let holder = client_of(late(&server));
    for _ in 0..5 {
        let lock = holder.acquire(redisson()).unwrap();
        let mut driver = driver_of(late(&server));
        let id = driver.acquire(redisson()).unwrap();
        process_until(&mut driver, "it has subscribed", |_| hearers(&server) == 1);
        let mut waiter = Waiter { driver, id };
        waiter.settle();
        drop(lock);
        assert!(waiter.is_granted_by_a_message());
        waiter.driver.release(id);
        waiter.until("it is free", |_| server.cmd("EXISTS job") == Reply::Int(0));
    }
}

const RULES: &str = "~job ~redbolt:guard ~redbolt:line* +get +set +del +pttl +pexpire +eval +evalsha \
                     +info +client|setname +client|id +client|kill +hset +hdel +hexists +hlen +hgetall \
                     +publish +subscribe resetchannels";

fn as_user(server: &Server, rules: &str) -> ConfigBuilder {
    let set = server.cmd(&format!("ACL SETUSER waiter on >secret -@all {RULES} {rules}"));
    assert_eq!(set, Reply::Status("OK".into()));
    patient([format!("redis://waiter:secret@{}", server.address())])
        .retry_backoff(LATE, LATE)
        .restart_guard(RestartGuard::Off)
}

#[test]
fn a_user_with_the_channel_needs_no_tracking() {
    let server = Server::start();
    let rules = "+unsubscribe &redisson_lock__channel:*";
    let mut waiter = Waiter::hearing(&server, as_user(&server, rules));
    assert_eq!(waiter.driver.node_report().nodes[0].no_channel, None);
    released(&server);
    assert!(waiter.is_granted_by_a_message());
    waiter.until("it has unsubscribed", |_| hearers(&server) == 0);
}

/// The user may be tracked, but not subscribe: the node report names the missing permission, as it
/// does for a queue that the user may not use.
#[test]
fn a_user_without_the_channel_is_notified_of_changes_and_reports_it() {
    let server = Server::start();
    let rules = "+unsubscribe +client|tracking +client|caching &__redis__:invalidate";
    let mut waiter = Waiter::of(&server, as_user(&server, rules));
    waiter.until("changes are reported", |driver| {
        let node = &driver.node_report().nodes[0];
        node.push == PushState::Active && node.no_channel == Some(Cause::NoPermission)
    });
    let report = waiter.driver.node_report().to_string();
    assert!(report.contains("waiters do not hear their library's channel: NOPERM"), "{report}");
    waiter.settle();
    released(&server);
    assert!(waiter.is_granted_by_a_message());
}

#[test]
fn a_user_who_may_not_unsubscribe_does_not_stay_subscribed() {
    let server = Server::start();
    let rules = "&redisson_lock__channel:*";
    let mut waiter = Waiter::hearing(&server, as_user(&server, rules));
    waiter.driver.release(waiter.id);
    waiter.until("the lost connection ends the subscription", |_| hearers(&server) == 0);
    assert_eq!(waiter.driver.node_report().nodes[0].no_channel, Some(Cause::NoPermission));
    eventually("nothing is left", || {
        waiter.driver.process();
        server.cmd("PUBSUB CHANNELS") == Reply::Array(Vec::new())
    });
}
