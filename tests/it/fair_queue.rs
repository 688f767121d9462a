//! The queue of waiters on real servers: grants follow its order, newcomers do not overtake, and
//! nothing is left behind.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redbolt::config::WakeStrategy;
use redbolt::inspect::UnlockScope;
use redbolt::inspect::{FairQueue, InspectionVerdict, Kept, KeyState};
use redbolt::proto::script::EXTEND;
use redbolt::report::{Cause, LockState};
use redbolt::{
    AcquireError, Client, ConfigBuilder, Driver, Event, LockId, LockMode, LockRequest,
    RefusalReason, RequestError, Wait,
};
use redbolt_test_servers::{Reply, Server};

use crate::support::{
    builder, changes, client, client_of, driver_of, eventually, exists, held_by, held_on, long,
    looks, outcome, patient, patiently, process_until, pttl, refusal, server, servers,
};

const STAMPS: &str = "redbolt:line:job";

fn in_queue(servers: &[Server]) -> ConfigBuilder {
    builder(servers).wake(WakeStrategy::Queue).label("in queue: 7")
}

/// The processes that wait for a resource, each with its own driver.
pub(crate) struct Waiters(pub(crate) Vec<(Driver, LockId)>);

impl Waiters {
    /// Starts the waiters one after another: each starts when all servers have recorded the one
    /// before.
    pub(crate) fn come(servers: &[Server], requests: Vec<LockRequest<'_>>) -> Self {
        let mut all = Self(Vec::new());
        for (before, request) in requests.into_iter().enumerate() {
            let mut driver = driver_of(in_queue(servers));
            let id = driver.acquire(request).unwrap();
            all.0.push((driver, id));
            all.process_until("the last waiter is in the queue", |_| stands(servers, before + 1));
        }
        all
    }

    fn process(&mut self) {
        self.0.iter_mut().for_each(|(driver, _)| driver.process());
    }

    pub(crate) fn process_until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        eventually(what, || {
            self.process();
            holds(self)
        });
    }

    /// Returns the waiters that were granted the lock since the last call; panics if one was
    /// refused.
    pub(crate) fn granted(&mut self) -> Vec<usize> {
        let mut granted = Vec::new();
        for (at, (driver, _)) in self.0.iter_mut().enumerate() {
            while let Some(event) = driver.poll_event() {
                match event {
                    Event::Granted(_) => granted.push(at),
                    Event::Refused(_, refusal) => panic!("{}", driver.report(&refusal)),
                    _ => {}
                }
            }
        }
        granted
    }

    pub(crate) fn release(&mut self, at: usize) {
        let (driver, id) = &mut self.0[at];
        driver.release(*id);
    }
}

/// Returns `true` if each server has this number of waiters in its queue, all at the same stamps.
fn stands(servers: &[Server], count: usize) -> bool {
    let queues: Vec<_> = servers
        .iter()
        .map(|server| match server.cmd(&format!("ZRANGE {STAMPS} 0 -1 WITHSCORES")) {
            Reply::Array(all) => {
                all.iter().skip(1).step_by(2).map(|reply| format!("{reply:?}")).collect()
            }
            other => vec![format!("{other:?}")],
        })
        .collect();
    queues.iter().all(|queue| queue.len() == count && *queue == queues[0])
}

pub(crate) fn nothing_is_left(servers: &[Server]) {
    for key in ["job", STAMPS, "redbolt:line-until:job", "redbolt:line-call:job"] {
        eventually(&format!("{key} is gone"), || held_on(servers, key) == 0);
    }
    let tickets = |server: &Server| server.cmd("KEYS redbolt:line-wait:*");
    eventually("no ticket", || {
        servers.iter().all(|server| tickets(server) == Reply::Array(Vec::new()))
    });
}

/// Makes the first ticket on each server end in the far future, so that only its grace can remove
/// it.
pub(crate) fn first_never_ends(servers: &[Server]) -> Vec<String> {
    let first = |server: &Server| {
        let Reply::Array(first) = server.cmd(&format!("ZRANGE {STAMPS} 0 0")) else { panic!() };
        let [Reply::Bulk(ticket)] = &first[..] else { panic!("{first:?}") };
        let end = [b"ZADD", &b"redbolt:line-until:job"[..], b"9999999999999", ticket];
        assert_eq!(server.run(&end), Reply::Int(0), "the ticket is in the queue");
        String::from_utf8(ticket.clone()).unwrap()
    };
    servers.iter().map(first).collect()
}

/// Checks that on a quorum these tickets are no longer in the queue.
pub(crate) fn has_lost_its_place(servers: &[Server], tickets: &[String]) {
    let is_gone = |(server, ticket): &(&Server, &String)| {
        server.run(&[b"ZSCORE", STAMPS.as_bytes(), ticket.as_bytes()]) == Reply::Nil
    };
    let gone = servers.iter().zip(tickets).filter(is_gone).count();
    assert!(gone > servers.len() / 2, "its ticket was removed on {gone} servers only");
}

#[test]
fn waiters_are_granted_in_the_order_of_arrival() {
    let servers = servers(3);
    let holder = client(&servers);
    let guard = holder.acquire(long(b"job")).unwrap();
    let mut waiters = Waiters::come(&servers, (0..6).map(|_| patiently(b"job")).collect());
    guard.release().unwrap();
    let mut order = Vec::new();
    waiters.process_until("all are granted", |waiters| {
        let granted = waiters.granted();
        assert!(granted.len() <= 1, "one at a time");
        for at in granted {
            order.push(at);
            waiters.release(at);
        }
        order.len() == 6
    });
    assert_eq!(order, [0, 1, 2, 3, 4, 5]);
    waiters.process();
    waiters.process_until("all is released", |_| held_on(&servers, "job") == 0);
    nothing_is_left(&servers);
}

#[test]
fn many_take_turns_and_leave_nothing() {
    for nodes in [1, 3] {
        let servers = servers(nodes);
        let (inside, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..6 {
                let client = client_of(in_queue(&servers));
                scope.spawn(|| {
                    let client = client;
                    for _ in 0..25 {
                        let guard = client.acquire(patiently(b"job").fenced()).unwrap();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "alone");
                        assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
                        assert!(guard.release().is_ok());
                        done.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(done.into_inner(), 6 * 25);
        nothing_is_left(&servers);
    }
}

/// The first waiter does not look at the nodes after the release, and still keeps its turn.
#[test]
fn a_newcomer_does_not_pass_a_waiter_in_the_queue() {
    let servers = servers(3);
    let holder = client(&servers);
    let guard = holder.acquire(long(b"job")).unwrap();
    let mut waiters = Waiters::come(&servers, vec![patiently(b"job")]);
    guard.release().unwrap();
    for newcomer in [client(&servers), client_of(in_queue(&servers))] {
        let tried = newcomer.acquire(long(b"job").wait(Wait::No));
        assert_eq!(refusal(tried).reason(), RefusalReason::Contended);
        refusal(newcomer.acquire(long(b"job").shared()));
        refusal(newcomer.acquire(long(b"job").fenced()));
    }
    waiters.process_until("its turn has come", |waiters| waiters.granted() == [0]);
}

/// A holder that dies in the middle of its work does not let newcomers in.
#[test]
fn no_newcomer_overtakes_when_a_holder_expires() {
    let servers = servers(3);
    let mut holder = driver_of(builder(&servers));
    let ttl = Duration::from_secs(4);
    held_by(&mut holder, LockRequest::new("job").ttl(ttl));
    let mut waiters = Waiters::come(&servers, vec![patiently(b"job")]);
    std::thread::sleep(ttl + Duration::from_millis(100));
    let newcomer = client(&servers);
    refusal(newcomer.acquire(long(b"job")));
    waiters.process_until("its turn has come", |waiters| waiters.granted() == [0]);
}

#[test]
fn readers_between_two_writers_are_granted_together() {
    let servers = servers(3);
    let holder = client(&servers);
    let guard = holder.acquire(long(b"job")).unwrap();
    let read = || patiently(b"job").shared();
    let requests = vec![read(), read(), patiently(b"job"), read()];
    let mut waiters = Waiters::come(&servers, requests);
    guard.release().unwrap();
    let mut order = Vec::new();
    waiters.process_until("the readers are in", |waiters| {
        order.extend(waiters.granted());
        order.len() == 2
    });
    order.sort_unstable();
    assert_eq!(order, [0, 1], "the third reader waits behind the writer");
    let late = client(&servers);
    refusal(late.acquire(long(b"job").shared()));
    (0..2).for_each(|at| waiters.release(at));
    waiters.process_until("the writer is in", |waiters| waiters.granted() == [2]);
    waiters.release(2);
    waiters.process_until("the last reader is in", |waiters| waiters.granted() == [3]);
    waiters.release(3);
    waiters.process_until("all is released", |_| held_on(&servers, "job") == 0);
    nothing_is_left(&servers);
}

/// A dead first waiter costs its grace, but neither its ticket's lifetime nor the TTL of a lock
/// that it never had.
#[test]
fn a_dead_first_waiter_is_called_and_skipped() {
    let servers = servers(3);
    let holder = client(&servers);
    let guard = holder.acquire(long(b"job")).unwrap();
    let mut waiters = Waiters::come(&servers, vec![patiently(b"job"), patiently(b"job")]);
    let dead = waiters.0.remove(0);
    let tickets = first_never_ends(&servers);
    guard.release().unwrap();
    waiters.process_until("the second is in", |waiters| waiters.granted() == [0]);
    has_lost_its_place(&servers, &tickets);
    drop(dead);
}

#[test]
fn a_waiter_that_gives_up_blocks_no_other() {
    let servers = servers(3);
    let holder = client(&servers);
    let guard = holder.acquire(long(b"job")).unwrap();
    let mut waiters = Waiters::come(&servers, vec![patiently(b"job")]);
    waiters.process_until("it waits", |waiters| {
        let (driver, id) = &waiters.0[0];
        driver.state(*id) == LockState::Pausing
    });
    waiters.release(0);
    waiters.process_until("it has left", |_| held_on(&servers, STAMPS) == 0);
    for server in &servers {
        let Reply::Bulk(value) = server.cmd("GET job") else { panic!() };
        assert!(!value.contains(&b'\n'), "the mark of the waiter is removed");
        assert!(pttl(server, "job") <= 30_000);
    }
    guard.release().unwrap();
    client(&servers).acquire(long(b"job")).unwrap().release().unwrap();
    nothing_is_left(&servers);
}

#[test]
fn a_holder_with_waiters_extends_and_is_shown() {
    let servers = servers(3);
    let holder = client_of(in_queue(&servers).label("web"));
    let mut guard = holder.acquire(LockRequest::new("job").ttl(Duration::from_secs(5))).unwrap();
    let mut waiters = Waiters::come(&servers, vec![patiently(b"job")]);
    guard.extend(Duration::from_secs(20)).unwrap();
    let seen = looks(&client(&servers), b"job");
    assert!(matches!(seen.verdict, InspectionVerdict::Held { .. }), "{seen:?}");
    for node in &seen.nodes {
        let Ok(KeyState::Held(held)) = &node.state else { panic!("{node:?}") };
        assert_eq!(held.label.as_deref(), Some("web"));
        let left = held.remaining.unwrap();
        assert!(left <= Duration::from_secs(20) && left > Duration::from_secs(8), "{left:?}");
    }
    drop(guard);
    waiters.process_until("its turn has come", |waiters| waiters.granted() == [0]);
    let (driver, id) = &mut waiters.0[0];
    driver.extend(*id, Duration::from_secs(10)).unwrap();
    assert_eq!(outcome(driver, *id), Event::Extended(*id));
}

#[test]
fn a_node_that_forbids_the_queue_is_used_without_it() {
    let server = server();
    let rules = "on >secret ~job ~redbolt:guard +@all";
    assert_eq!(server.cmd(&format!("ACL SETUSER plain {rules}")), Reply::Status("OK".into()));
    let holder = client(std::slice::from_ref(&server));
    let guard = holder.acquire(long(b"job")).unwrap();
    let url = format!("redis://plain:secret@{}", server.address());
    let mut waiter = driver_of(patient([url]).wake(WakeStrategy::Queue));
    let id = waiter.acquire(patiently(b"job")).unwrap();
    process_until(&mut waiter, "it waits", |driver| driver.state(id) == LockState::Pausing);
    assert!(!exists(&server, STAMPS));
    guard.release().unwrap();
    assert_eq!(outcome(&mut waiter, id), Event::Granted(id));
    let report = waiter.node_report();
    assert!(report.to_string().contains("do not queue"), "{report}");
}

/// Returns the queue that a quorum reports.
fn queue_of(client: &Client) -> FairQueue {
    client.inspect("job").unwrap().queue.expect("a quorum reports the queue")
}

#[test]
fn an_inspection_shows_who_waits_and_since_when() {
    let servers = servers(3);
    let holder = client_of(in_queue(&servers).label("web"));
    let onlooker = client(&servers);
    assert_eq!(queue_of(&onlooker), FairQueue::default());
    let guard = holder.acquire(long(b"job")).unwrap();
    let requests = vec![patiently(b"job"), patiently(b"job").shared()];
    let mut waiters = Waiters::come(&servers, requests);
    waiters.process_until("the first has waited for some time", |_| {
        let queue = queue_of(&onlooker);
        queue.count == 2 && queue.waiters[0].age > Duration::from_millis(300)
    });
    let before: Vec<_> = servers.iter().map(changes).collect();
    let seen = looks(&onlooker, b"job");
    assert_eq!(servers.iter().map(changes).collect::<Vec<_>>(), before, "nothing is written");
    let queue = seen.queue.as_ref().unwrap();
    assert_eq!((queue.count, queue.kept, queue.called), (2, Kept::Marked, None));
    let modes: Vec<_> = queue.waiters.iter().map(|waiter| waiter.mode.unwrap()).collect();
    assert_eq!(modes, [LockMode::Exclusive, LockMode::Shared]);
    assert!(queue.waiters[0].stamp < queue.waiters[1].stamp);
    for waiter in &queue.waiters {
        assert!(waiter.remaining <= Duration::from_secs(6), "{waiter:?}");
        assert!(!waiter.grace.is_zero(), "{waiter:?}");
        assert_eq!(waiter.label.as_deref(), Some("in queue: 7"));
    }
    for node in &seen.nodes {
        let reported = node.queue.as_ref().unwrap();
        let names =
            |queue: &FairQueue| queue.waiters.iter().map(|it| it.fingerprint).collect::<Vec<_>>();
        assert_eq!(names(reported), names(queue));
        assert!(node.to_string().ends_with(" more, 2 in the queue"), "{node}");
    }
    guard.release().unwrap();
    waiters.process_until("its turn has come", |waiters| waiters.granted() == [0]);
    waiters.process_until("one is left", |_| queue_of(&onlooker).count == 1);
    waiters.release(0);
    waiters.process_until("the next", |waiters| waiters.granted() == [1]);
    waiters.release(1);
    waiters.process_until("the queue is empty", |_| queue_of(&onlooker) == FairQueue::default());
}

/// A force-unlock lets in the first waiter, and no one else.
#[test]
fn a_force_unlocked_resource_is_kept_for_the_first_in_the_queue() {
    let servers = servers(3);
    let holder = client(&servers);
    for shares in [false, true] {
        let held = if shares { long(b"job").shared() } else { long(b"job") };
        let guard = holder.acquire(held).unwrap();
        let mut waiters = Waiters::come(&servers, vec![patiently(b"job")]);
        let operator = client(&servers);
        let report = operator.force_unlock("job", UnlockScope::Locks).unwrap();
        let queue = report.queue.as_ref().unwrap();
        assert_eq!((queue.count, queue.kept), (1, Kept::Marked), "{report}");
        eventually("it is broken on all", || {
            operator.force_unlock("job", UnlockScope::Locks).unwrap().gone() == 3
        });
        let seen = looks(&operator, b"job");
        assert_eq!(seen.verdict, InspectionVerdict::Free);
        assert_eq!(seen.queue.as_ref().unwrap().kept, Kept::Closed);
        assert!(seen.nodes[0].to_string().contains("free, kept for who waits"), "{seen:?}");
        refusal(client(&servers).acquire(long(b"job")));
        waiters.process_until("its turn has come", |waiters| waiters.granted() == [0]);
        drop(guard);
        waiters.release(0);
        waiters.process_until("all is released", |_| held_on(&servers, "job") == 0);
    }
    nothing_is_left(&servers);
}

#[test]
fn a_node_that_forbids_the_queue_reports_holders_and_no_waiters() {
    let servers = servers(3);
    let rules = "on >secret ~job ~redbolt:guard +@all";
    for server in &servers[..2] {
        assert_eq!(server.cmd(&format!("ACL SETUSER plain {rules}")), Reply::Status("OK".into()));
    }
    let everything = "ACL SETUSER plain on >secret ~* +@all";
    assert_eq!(servers[2].cmd(everything), Reply::Status("OK".into()));
    let holder = client(&servers);
    let _guard = holder.acquire(long(b"job")).unwrap();
    let url = |server: &Server| format!("redis://plain:secret@{}", server.address());
    let onlooker = client_of(patient(servers.iter().map(url)));
    let seen = looks(&onlooker, b"job");
    assert!(matches!(seen.verdict, InspectionVerdict::Held(_)), "{seen:?}");
    assert_eq!(seen.queue, None, "no quorum reports the queue");
    for node in &seen.nodes[..2] {
        assert_eq!(node.queue, Err(Cause::NoPermission));
        assert!(node.no_queue().unwrap().contains("NOPERM"), "{node:?}");
        assert!(node.to_string().ends_with(" more, does not tell who waits"), "{node}");
    }
    assert_eq!((&seen.nodes[2].queue, seen.nodes[2].no_queue()), (&Ok(FairQueue::default()), None));
}

#[test]
fn metrics_report_how_many_locks_of_a_process_wait_in_the_queue() {
    let servers = servers(3);
    let holder = client(&servers);
    let guard = holder.acquire(long(b"job")).unwrap();
    let mut waiters = Waiters::come(&servers, vec![patiently(b"job")]);
    let text = waiters.0[0].0.metrics().to_prometheus();
    assert!(text.contains("\nredbolt_in_queue 1\n"), "{text}");
    guard.release().unwrap();
    waiters.process_until("its turn has come", |waiters| waiters.granted() == [0]);
    let text = waiters.0[0].0.metrics().to_prometheus();
    assert!(text.contains("\nredbolt_in_queue 0\n"), "{text}");
    assert!(text.contains("\nredbolt_wait_in_queue_seconds_count 1\n"), "{text}");
}

#[test]
fn keys_of_the_queue_cannot_be_locked() {
    let server = server();
    let client = client_of(in_queue(std::slice::from_ref(&server)));
    for name in ["redbolt:line:job", "redbolt:line-wait:x", "redbolt:line"] {
        let refused = client.acquire(long(name.as_bytes()));
        assert!(matches!(refused, Err(AcquireError::Request(RequestError::ReservedKey))));
    }
}

/// The lease of a marked lock ends at the time in the mark, not when the key expires.
#[test]
fn an_extension_without_permission_for_every_step_changes_nothing() {
    let server = Server::start();
    let token = "0".repeat(34);
    let extend = |ttl: &str| {
        let words = ["EVAL", EXTEND.text, "1", "job", &token, ttl];
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        server.connect().run(&words)
    };
    let ends = || match server.cmd("GET job") {
        Reply::Bulk(value) => String::from_utf8(value).unwrap().split_once('\n').unwrap().1.parse(),
        other => panic!("{other:?}"),
    };
    let Reply::Array(time) = server.cmd("TIME") else { panic!("no TIME") };
    let Reply::Bulk(seconds) = &time[0] else { panic!("{time:?}") };
    let seconds: i64 = String::from_utf8_lossy(seconds).parse().unwrap();
    // The mark ends in ten seconds, and the key eight seconds later.
    let marked = format!("{token}\n{}", seconds * 1_000 + 10_000);
    let set: [&[u8]; 5] = [b"SET", b"job", marked.as_bytes(), b"PX", b"18000"];
    assert_eq!(server.connect().run(&set), Reply::Status("OK".into()));
    server.cmd("ACL SETUSER default -set");
    assert!(matches!(extend("20000"), Reply::Error(_)));
    server.cmd("ACL SETUSER default +set");
    assert_eq!(ends(), Ok::<i64, std::num::ParseIntError>(seconds * 1_000 + 10_000));
    assert!(pttl(&server, "job") <= 18_000, "as it was");
    assert_eq!(extend("20000"), Reply::Int(1));
    let (ends, left) = (ends().unwrap(), pttl(&server, "job"));
    assert!(left > 20_000 && ends >= seconds * 1_000 + 19_000, "{ends} {left}");
}
