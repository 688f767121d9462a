//! Waiting with notifications: what wakes a waiter, and what happens without notifications.
//!
//! The driver's deadline shows that a notification caused a wake-up: its timers are so late that a
//! host which calls it only when the descriptor is readable, and before the deadline, sees only the
//! nodes' messages.

use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use redbolt::{
    ConfigBuilder, Driver, Event, LockId, LockRequest, Wait,
    config::{RestartGuard, WakeStrategy},
    report::{Cause, LockState, PushState},
};
use redbolt_test_servers::{Reply, Server};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::muffler::Muffler;
use crate::support::{
    LIMIT, LONG, builder, calls, client, client_of, driver_of, eventually, exists, held_by,
    held_on, long, once_in, patient, patiently, process_until, server, servers, side_by_side,
    vouched,
};

/// The retry backoff: without a notification, no waiter retries for at least an eighth of this.
const LATE: Duration = Duration::from_secs(20);

/// The strategies in which nodes notify.
const WAKES: [WakeStrategy; 2] = [WakeStrategy::Queue, WakeStrategy::Lead];

/// A time shorter than any timer: waiters with notifications retry after 1.5 s or more, and others
/// later.
const BEFORE_ANY_TIMER: Duration = Duration::from_secs(1);

/// Returns a configuration in which only a notification ends a pause soon.
fn late(servers: &[Server]) -> ConfigBuilder {
    builder(servers).retry_backoff(LATE, LATE)
}

/// Returns the same without a queue on the nodes: the first node that denied is the lead.
fn led(servers: &[Server]) -> ConfigBuilder {
    late(servers).wake(WakeStrategy::Lead)
}

/// A driver that waits for a resource.
struct Waiter {
    driver: Driver,
    id: LockId,
}

impl Waiter {
    /// Returns a waiter that is notified by the first of these servers, its lead.
    fn reported_by(servers: &[Server], builder: ConfigBuilder, resource: &[u8]) -> Self {
        Self::reported(servers, builder, patiently(resource))
    }

    fn reported(servers: &[Server], builder: ConfigBuilder, request: LockRequest<'_>) -> Self {
        let mut waiter = Self::with(builder, request);
        process_until(&mut waiter.driver, "the node notifies", |driver| {
            driver.node_report().nodes[0].push == PushState::Active
        });
        waiter.process_until("the key is watched", |_| is_watched(&servers[0]));
        // A node that denied earlier may have been the lead at first.
        waiter.process_until("the timers are far off", |driver| {
            driver.timeout().is_some_and(|deadline| deadline > BEFORE_ANY_TIMER)
        });
        waiter
    }

    /// Returns a driver that waits for the resource.
    fn of(builder: ConfigBuilder, resource: &[u8]) -> Self {
        Self::with(builder, patiently(resource))
    }

    fn with(builder: ConfigBuilder, request: LockRequest<'_>) -> Self {
        let mut driver = driver_of(builder);
        let id = driver.acquire(request).unwrap();
        process_until(&mut driver, "the first attempt is refused", |driver| {
            driver.state(id) == LockState::Pausing
        });
        Self { driver, id }
    }

    fn process_until(&mut self, what: &str, mut holds: impl FnMut(&Driver) -> bool) {
        process_until(&mut self.driver, what, |driver| holds(driver));
    }

    /// Runs until the waiter pauses again, and for longer than notifications are muted after a
    /// useless request.
    fn settle(&mut self) {
        let id = self.id;
        self.process_until("the waiter pauses", |driver| driver.state(id) == LockState::Pausing);
        thread::sleep(Duration::from_millis(100));
        self.process_until("the timers are far off", |driver| {
            driver.state(id) == LockState::Pausing
                && driver.timeout().is_some_and(|deadline| deadline > BEFORE_ANY_TIMER)
        });
    }

    /// Runs until the lock is granted, and checks that no timer ends a pause. While a request is in
    /// flight, the timers are those of its answers.
    fn is_granted_by_push(&mut self) {
        let until = Instant::now() + LIMIT;
        while !self.is_granted() {
            assert!(Instant::now() < until, "it still waits");
            let pauses = self.driver.state(self.id) == LockState::Pausing;
            let left = self.driver.timeout().unwrap_or(LIMIT);
            let span = Timespec::try_from(left).unwrap();
            let ready = poll(&mut [PollFd::new(&self.driver, PollFlags::IN)], Some(&span)).unwrap();
            assert!(!pauses || ready > 0, "no notification came, and the timer is due");
            // If this process was stalled, a timer and a message may both be due.
            let due = self.driver.timeout().is_some_and(|left| left.is_zero());
            let before = self.wakes();
            self.driver.process();
            assert!(!pauses || !due || self.wakes() > before, "the timer ended the pause");
        }
    }

    /// Returns `true` if nothing wakes the waiter for half of the time to its timer. If this
    /// process is stalled, the timer may wake it.
    fn receives_nothing(&mut self) -> bool {
        let before = self.wakes();
        let until = Instant::now() + BEFORE_ANY_TIMER / 2;
        while Instant::now() < until {
            thread::sleep(Duration::from_millis(10));
            self.driver.process();
        }
        self.wakes() == before
    }

    fn wakes(&self) -> u64 {
        self.driver.metrics().metrics.wakes
    }

    fn is_granted(&mut self) -> bool {
        while let Some(event) = self.driver.poll_event() {
            match event {
                Event::Granted(id) => return id == self.id,
                Event::Refused(_, refusal) => panic!("{}", self.driver.report(&refusal)),
                _ => {}
            }
        }
        false
    }

    fn comes_to_a_grant(mut self) {
        let until = Instant::now() + LIMIT;
        while !self.is_granted() {
            assert!(Instant::now() < until, "it still waits");
            thread::sleep(Duration::from_millis(3));
            self.driver.process();
        }
    }

    fn push(&self, node: usize) -> PushState {
        self.driver.node_report().nodes[node].push
    }
}

/// Returns `true` if the server tracks any key for any client.
fn is_watched(server: &Server) -> bool {
    info(server, "stats", "tracking_total_keys") > 0
}

fn info(server: &Server, section: &str, name: &str) -> u64 {
    let Reply::Bulk(text) = server.cmd(&format!("INFO {section}")) else { panic!("no INFO") };
    let text = String::from_utf8(text).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap().parse().unwrap()
}

/// Acquires the lock as a program in another language would.
fn taken(servers: &[Server], resource: &str) {
    for server in servers {
        let set = server.cmd(&format!("SET {resource} theirs NX PX {}", LONG.as_millis()));
        assert_eq!(set, Reply::Status("OK".into()));
    }
}

/// Runs `redis-cli`, a program independent of redbolt.
fn redis_cli(server: &Server, words: &[&str]) {
    let port = server.port().to_string();
    let output = Command::new("redis-cli").args(["-p", &port]).args(words).output();
    let output = output.expect("redis-cli is missing: `apt-get install redis-tools`");
    assert!(output.status.success(), "{output:?}");
}

fn on_each_number_of_nodes(run: impl Fn(&[Server])) {
    for n in [1, 3, 5] {
        run(&servers(n));
    }
}

#[test]
fn a_release_by_redbolt_is_notified() {
    on_each_number_of_nodes(|servers| {
        let holder = client(servers);
        let lock = holder.acquire(patiently(b"job")).unwrap();
        let mut waiter = Waiter::reported_by(servers, led(servers), b"job");
        assert!(lock.release().is_ok());
        waiter.is_granted_by_push();
    });
}

#[test]
fn a_del_by_another_program_is_notified() {
    on_each_number_of_nodes(|servers| {
        taken(servers, "job");
        let mut waiter = Waiter::reported_by(servers, led(servers), b"job");
        // The lead comes last, because a notification before the others are free is useless.
        servers.iter().rev().for_each(|server| redis_cli(server, &["DEL", "job"]));
        waiter.is_granted_by_push();
    });
}

/// The script that requests such a lock also reads its keys, so the server tracks them.
#[test]
fn waiters_for_every_kind_of_lock_are_notified() {
    on_each_number_of_nodes(|servers| {
        for request in [
            patiently(b"free").and(b"job").and(b"other"),
            patiently(b"job").fenced(),
            patiently(b"job").and(b"free").fenced(),
        ] {
            taken(servers, "job");
            let mut waiter = Waiter::reported(servers, led(servers), request.clone());
            // The request that follows the confirmation reads the keys.
            waiter.process_until("the waiter has asked again", |driver| {
                driver.metrics().metrics.attempts >= 2 || request.resources().count() == 1
            });
            waiter.settle();
            servers.iter().rev().for_each(|server| drop(server.cmd("DEL job")));
            waiter.is_granted_by_push();
            waiter.driver.release(waiter.id);
            process_until(&mut waiter.driver, "the release is confirmed", |driver| {
                !driver.has_pending_releases()
            });
        }
    });
}

/// A rename frees the key without deleting it.
#[test]
fn a_rename_is_notified() {
    let servers = servers(3);
    taken(&servers, "job");
    let mut waiter = Waiter::reported_by(&servers, led(&servers), b"job");
    servers.iter().rev().for_each(|server| drop(server.cmd("RENAME job away")));
    waiter.is_granted_by_push();
}

/// FLUSHALL also deletes the restart guards, and a node without one is quarantined, so this test
/// runs without restart guards.
#[test]
fn a_flushall_is_notified() {
    on_each_number_of_nodes(|servers| {
        taken(servers, "job");
        let builder = led(servers).restart_guard(RestartGuard::Off);
        let mut waiter = Waiter::reported_by(servers, builder, b"job");
        servers.iter().rev().for_each(|server| drop(server.cmd("FLUSHALL")));
        waiter.is_granted_by_push();
    });
}

#[test]
fn each_release_notifies_the_next_waiter() {
    on_each_number_of_nodes(|servers| {
        taken(servers, "job");
        let rest: Vec<_> =
            (0..2).map(|_| Waiter::reported_by(servers, led(servers), b"job")).collect();
        let mut first = Waiter::reported_by(servers, led(servers), b"job");
        servers.iter().rev().for_each(|server| drop(server.cmd("DEL job")));
        first.is_granted_by_push();
        first.driver.release(first.id);
        process_until(&mut first.driver, "the release is confirmed", |driver| {
            !driver.has_pending_releases()
        });
        // Whichever waiter is first lets the other one in.
        hand_on(rest);
        assert_eq!(held_on(servers, "job"), 0);
    });
}

/// Runs each waiter on its own thread until all have been granted. Timers alone would take seconds
/// for each.
fn hand_on(waiters: Vec<Waiter>) {
    thread::scope(|scope| {
        for mut waiter in waiters {
            scope.spawn(move || {
                let until = Instant::now() + LIMIT;
                while !waiter.is_granted() {
                    assert!(Instant::now() < until);
                    thread::sleep(Duration::from_millis(1));
                    waiter.driver.process();
                }
                waiter.driver.release(waiter.id);
                process_until(&mut waiter.driver, "the release is confirmed", |driver| {
                    !driver.has_pending_releases()
                });
            });
        }
    });
}

/// Two processes request the lock again at once, often enough to see a rare order of answers and
/// notifications.
#[test]
fn no_hand_off_between_two_processes_waits_for_a_timer() {
    for (n, wake) in [1, 3].into_iter().flat_map(|n| WAKES.map(|wake| (n, wake))) {
        let is_quick = once_in(3, || {
            let longest = longest_hand_off(n, wake);
            println!("{n} nodes, {wake:?}: the longest hand-off took {longest:?}");
            longest < BEFORE_ANY_TIMER
        });
        assert!(is_quick, "{n} nodes, {wake:?}: each time one waits for a timer");
    }
}

fn longest_hand_off(n: usize, wake: WakeStrategy) -> Duration {
    let mut longest = Duration::ZERO;
    let servers = servers(n);
    let mut drivers = [(); 2].map(|()| driver_of(late(&servers).wake(wake)));
    let mut held = held_by(&mut drivers[0], patiently(b"job"));
    for round in 0..600 {
        let [one, other] = &mut drivers;
        let (holder, waiter) = if round % 2 == 0 { (one, other) } else { (other, one) };
        let id = waiter.acquire(patiently(b"job")).unwrap();
        process_until(waiter, "the waiter waits", |waiter| waiter.state(id) == LockState::Pausing);
        if round < 2 {
            // It listens to one of the nodes that have answered first.
            process_until(waiter, "a node notifies", |waiter| {
                waiter.node_report().nodes.iter().any(|node| node.push == PushState::Active)
            });
        }
        let began = Instant::now();
        holder.release(held);
        process_until(waiter, "the lock is granted", |waiter| {
            holder.process();
            waiter.state(id) == LockState::Held
        });
        longest = longest.max(began.elapsed());
        for driver in [holder, waiter] {
            while driver.poll_event().is_some() {}
        }
        held = id;
    }
    longest
}

/// Threads, each with its own client, request the lock again and again.
#[test]
fn no_waiter_in_a_crowd_waits_for_a_timer() {
    let crowds = [(1, 2), (3, 2), (5, 4)];
    for ((n, threads), wake) in crowds.into_iter().flat_map(|of| WAKES.map(|wake| (of, wake))) {
        let is_quick = once_in(3, || {
            let longest = longest_wait_in_a_crowd(n, threads, wake);
            println!("{n} nodes, {threads} threads, {wake:?}: the longest wait took {longest:?}");
            longest < BEFORE_ANY_TIMER
        });
        assert!(
            is_quick,
            "{n} nodes, {threads} threads, {wake:?}: each time one waits for a timer"
        );
    }
}

fn longest_wait_in_a_crowd(n: usize, threads: usize, wake: WakeStrategy) -> Duration {
    let servers = servers(n);
    let work = || {
        let client = client_of(late(&servers).wake(wake));
        let wait = |_| {
            let began = Instant::now();
            let lock = client.acquire(patiently(b"job")).unwrap();
            let took = began.elapsed();
            assert!(lock.release().is_ok());
            took
        };
        (0..300).map(wait).max().unwrap()
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).max().unwrap()
    })
}

/// An expiring key causes no deletion by a client, so only the timer notices.
#[test]
fn an_expiry_is_noticed_by_the_timer() {
    side_by_side([1, 3, 5], |n| {
        let servers = &servers(n)[..];
        for builder in [led(servers), led(servers).wake(WakeStrategy::Timer)] {
            eventually("the previous waiter has released it", || held_on(servers, "job") == 0);
            for server in servers {
                assert_eq!(server.cmd("SET job dead NX PX 4000"), Reply::Status("OK".into()));
            }
            let before = calls(&servers[0], "set");
            let began = Instant::now();
            let waiter = Waiter::of(builder, b"job");
            waiter.comes_to_a_grant();
            assert!(began.elapsed() < LIMIT, "{:?}", began.elapsed());
            let requests = calls(&servers[0], "set") - before;
            assert!(requests <= 4, "{requests} asks to wait for one expiry");
        }
    });
}

/// The blocking client waits in `acquire`, on its own thread.
#[test]
fn a_blocking_client_is_notified() {
    for n in [1, 3, 5] {
        for by_redbolt in [true, false] {
            let servers = servers(n);
            let holder = client(&servers);
            let lock = holder.acquire(patiently(b"job")).unwrap();
            let (done, granted) = mpsc::channel();
            thread::scope(|scope| {
                scope.spawn(|| {
                    let waiter = client_of(led(&servers));
                    let lock = waiter.acquire(patiently(b"job")).unwrap();
                    done.send(waiter.metrics().metrics.wakes).unwrap();
                    assert!(lock.release().is_ok());
                });
                eventually("the node tracks the key", || is_watched(&servers[0]));
                assert!(granted.try_recv().is_err(), "the lock is held");
                if by_redbolt {
                    assert!(lock.release().is_ok());
                } else {
                    servers.iter().rev().for_each(|server| redis_cli(server, &["DEL", "job"]));
                }
                let wakes = granted.recv_timeout(LIMIT).expect("the waiter is granted");
                assert!(wakes > 0, "the notification wakes the waiter");
            });
        }
    }
}

#[test]
fn changes_of_other_keys_wake_no_waiter() {
    let servers = servers(3);
    taken(&servers, "job");
    let mut waiter = Waiter::reported_by(&servers, led(&servers), b"job");
    let is_quiet = once_in(5, || {
        waiter.settle();
        let before = calls(&servers[0], "set");
        servers.iter().for_each(|server| drop(server.cmd("MSET other 1 jobs 2 jo 3")));
        waiter.receives_nothing() && calls(&servers[0], "set") == before
    });
    assert!(is_quiet);
}

#[test]
fn a_change_that_frees_nothing_costs_one_request_to_the_lead() {
    let servers = servers(3);
    taken(&servers, "job");
    let mut waiter = Waiter::reported_by(&servers, led(&servers), b"job");
    let sets = || servers.iter().map(|server| calls(server, "set")).collect::<Vec<_>>();
    // If the lead is more than 5 ms late, the others are asked as well.
    let costs_one = once_in(5, || {
        waiter.settle();
        let before = sets();
        servers.iter().for_each(|server| drop(server.cmd("PEXPIRE job 29000")));
        waiter.process_until("the waiter asks the lead", |_| calls(&servers[0], "set") > before[0]);
        let (is_quiet, after) = (waiter.receives_nothing(), sets());
        println!("asks before and after: {before:?}, {after:?}");
        is_quiet && after == [before[0] + 1, before[1], before[2]]
    });
    assert!(costs_one);
    waiter.settle();
    // The next change is notified as well.
    servers.iter().rev().for_each(|server| drop(server.cmd("DEL job")));
    waiter.is_granted_by_push();
}

#[test]
fn by_timers_alone_nothing_is_subscribed() {
    let servers = servers(3);
    taken(&servers, "job");
    let mut waiter = Waiter::of(late(&servers).wake(WakeStrategy::Timer), b"job");
    assert!(waiter.receives_nothing());
    for server in &servers {
        assert_eq!(info(server, "clients", "tracking_clients"), 0);
        assert_eq!(subscribers(server), 0);
    }
    assert!((0..3).all(|node| waiter.push(node) == PushState::Off));
    servers.iter().for_each(|server| drop(server.cmd("DEL job")));
    assert!(waiter.receives_nothing(), "only its timer wakes it");
}

fn subscribers(server: &Server) -> i64 {
    match server.cmd("PUBSUB NUMSUB __redis__:invalidate") {
        Reply::Array(counts) => match counts[1] {
            Reply::Int(count) => count,
            ref other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

/// A lost push link may have lost a message, and counts as one; a new link is opened.
#[test]
fn a_push_link_that_is_killed_is_replaced() {
    let servers = servers(3);
    taken(&servers, "job");
    let mut waiter = Waiter::reported_by(&servers, led(&servers), b"job");
    let before = calls(&servers[0], "set");
    assert_eq!(servers[0].cmd("CLIENT KILL TYPE pubsub"), Reply::Int(1));
    waiter.process_until("the loss leads to a request", |_| calls(&servers[0], "set") > before);
    waiter.process_until("there is a new push link", |_| subscribers(&servers[0]) == 1);
    process_until(&mut waiter.driver, "the node notifies", |driver| {
        driver.node_report().nodes[0].push == PushState::Active
    });
    waiter.process_until("the key is read again", |_| is_watched(&servers[0]));
    servers.iter().rev().for_each(|server| drop(server.cmd("DEL job")));
    waiter.is_granted_by_push();
}

/// The command link reads the keys, and tracking ends with it.
#[test]
fn a_command_link_that_is_killed_is_replaced() {
    let servers = servers(3);
    taken(&servers, "job");
    let mut waiter = Waiter::reported_by(&servers, led(&servers), b"job");
    // The server drops its tracking entries for a closed connection when their key changes.
    assert_eq!(servers[0].cmd("CLIENT KILL TYPE normal"), Reply::Int(1));
    assert_eq!(info(&servers[0], "clients", "tracking_clients"), 0);
    let before = calls(&servers[0], "client|tracking");
    waiter.process_until("the next connection is tracked", |_| {
        calls(&servers[0], "client|tracking") > before
    });
    process_until(&mut waiter.driver, "the node notifies", |driver| {
        driver.node_report().nodes[0].push == PushState::Active
    });
    servers.iter().rev().for_each(|server| drop(server.cmd("DEL job")));
    waiter.comes_to_a_grant();
}

/// The push link is dead, and neither the client nor the server's tracking notices. The message is
/// lost, and the timer ends the wait after at most 2 s.
#[test]
fn a_push_link_that_dies_silently_delays_a_waiter_until_its_timer() {
    let servers = servers(3);
    taken(&servers, "job");
    let muffler = Muffler::before(&servers[0].address());
    let addresses = [muffler.address().to_owned(), servers[1].address(), servers[2].address()];
    let mut waiter = Waiter::reported_by(
        &servers,
        patient(addresses).retry_backoff(LATE, LATE).wake(WakeStrategy::Lead),
        b"job",
    );
    muffler.muffle();
    assert_eq!(servers[0].cmd("CLIENT KILL TYPE pubsub"), Reply::Int(1));
    assert_eq!(waiter.push(0), PushState::Active, "no side has noticed");
    let before = calls(&servers[1], "set");
    servers.iter().rev().for_each(|server| drop(server.cmd("DEL job")));
    assert!(waiter.receives_nothing());
    let began = Instant::now();
    waiter.comes_to_a_grant();
    // The limit is 2 s and a stall.
    assert!(began.elapsed() < Duration::from_secs(7), "{:?}", began.elapsed());
    assert!(calls(&servers[1], "set") - before <= 2);
}

/// The permissions that waiting with notifications needs, and no others.
const RULES: [&str; 28] = [
    // These are for requests with the restart-guard check behind them, extensions and undos.
    "~job",
    "~redbolt:guard",
    "+get",
    "+set",
    "+pttl",
    "+eval",
    "+evalsha",
    // Scripts run these commands, and `+get` above.
    "+del",
    "+pexpire",
    // These are for the handshake.
    "+info",
    "+client|setname",
    "+client|id",
    "+client|kill",
    // These are for notifications. The channel is a separate rule.
    "+client|tracking",
    "+client|caching",
    "+subscribe",
    // These are for the queue.
    "~redbolt:line*",
    "+time",
    "+type",
    "+getrange",
    "+pexpireat",
    "+zadd",
    "+zrem",
    "+zscore",
    "+zrange",
    "+zrangebyscore",
    "+zcard",
    "+zrank",
];

const CHANNEL: &str = "&__redis__:invalidate";

/// Starts a server with a user of these rules, as the only node of an initialised set.
fn server_with_user(rules: &[&str]) -> Server {
    let server = server();
    let rules = rules.join(" ");
    let set = server.cmd(&format!("ACL SETUSER waiter on >secret resetchannels -@all {rules}"));
    assert_eq!(set, Reply::Status("OK".into()));
    server
}

fn as_user(server: &Server) -> ConfigBuilder {
    patient([format!("redis://waiter:secret@{}", server.address())]).retry_backoff(LATE, LATE)
}

#[test]
fn a_user_with_just_these_permissions_is_notified() {
    let server = server_with_user(&[&RULES[..], &[CHANNEL]].concat());
    taken(std::slice::from_ref(&server), "job");
    let mut waiter = Waiter::reported_by(std::slice::from_ref(&server), as_user(&server), b"job");
    assert_eq!(server.cmd("DEL job"), Reply::Int(1));
    waiter.is_granted_by_push();
    assert_eq!(denials(&server), Vec::<String>::new());
}

/// Returns the denials from the server's own log.
fn denials(server: &Server) -> Vec<String> {
    let Reply::Array(entries) = server.cmd("ACL LOG") else { panic!("no ACL LOG") };
    entries.iter().map(|entry| format!("{entry:?}")).collect()
}

#[test]
fn a_user_who_may_not_be_notified_uses_the_timer_and_reports_why() {
    let without = |dropped: &str, added: &[&'static str]| {
        let rules = RULES.iter().chain([&CHANNEL]).copied().filter(|rule| *rule != dropped);
        rules.chain(added.iter().copied()).collect::<Vec<_>>()
    };
    let all =
        [without(CHANNEL, &[]), without("+subscribe", &[]), without("", &["-client|tracking"])];
    side_by_side(all, |rules| {
        let server = server_with_user(&rules);
        is_not_notified(&server, as_user(&server), Cause::NoPermission);
    });
}

#[test]
fn with_renamed_commands_only_the_timer_ends_a_wait() {
    side_by_side(["SUBSCRIBE", "CLIENT"], |command| {
        let server = vouched(Server::with(&["--rename-command", command, "no-longer"]));
        let builder = patient([server.address()]).retry_backoff(LATE, LATE);
        is_not_notified(&server, builder, Cause::UnknownCommand);
    });
}

/// The redirect names the push link by its id, and here only the missing id is reported.
#[test]
fn a_user_who_may_not_read_client_ids_uses_the_timer() {
    let rules = [&RULES[..], &[CHANNEL, "-client|id"]].concat();
    let server = server_with_user(&rules);
    is_not_notified(&server, as_user(&server), Cause::NoPermission);
}

/// Checks that the node cannot notify, and that the timer ends the wait when the key expires.
fn is_not_notified(server: &Server, builder: ConfigBuilder, cause: Cause) {
    let set = server.cmd("SET job theirs NX PX 4000");
    assert_eq!(set, Reply::Status("OK".into()));
    let mut waiter = Waiter::of(builder, b"job");
    process_until(&mut waiter.driver, "the node cannot notify", |driver| {
        driver.node_report().nodes[0].push == PushState::Unavailable(cause)
    });
    let nodes = waiter.driver.node_report();
    assert_eq!(nodes.ready(), 1, "the node still votes: {nodes}");
    assert!(nodes.to_string().contains(&format!("waiters are not told: {cause}")), "{nodes}");
    let requests = calls(server, "set");
    waiter.comes_to_a_grant();
    assert!(calls(server, "set") - requests <= 3, "the waiter does not poll");
}

/// Checks that two waiters do not keep waking each other while a third client holds the lock.
mod damping {
    use super::*;

    /// The time for which requests are counted.
    const SPAN: Duration = Duration::from_secs(2);

    /// The largest number of requests per second and waiter if only the waiters change anything, or
    /// if the lead grants and the others deny: useless requests are then at least 25 ms apart after
    /// a while.
    const PER_WAITER: u64 = 60;

    /// The largest number if the lead denies: a waiter's notifications are then muted for at least
    /// half a millisecond after a while. Without backoff there would be ten thousand requests.
    const PER_WAITER_DENIED: u64 = 1000;

    #[test]
    fn while_the_first_node_is_free() {
        let servers = servers(3);
        taken(&servers[1..], "job");
        assert!(asks_per_second(&servers, || {}) <= 2 * PER_WAITER);
    }

    #[test]
    fn while_a_third_extends_the_lock() {
        let servers = servers(3);
        taken(&servers[1..], "job");
        let mut lead = servers[1].connect();
        assert!(
            asks_per_second(&servers, || drop(lead.cmd("PEXPIRE job 30000")))
                <= 2 * PER_WAITER_DENIED
        );
    }

    #[test]
    fn while_a_third_takes_and_frees_the_lead() {
        let servers = servers(3);
        taken(&servers, "job");
        let mut lead = servers[0].connect();
        let requests = asks_per_second(&servers, || {
            lead.cmd("PSETEX job 30000 third");
            lead.cmd("DEL job");
        });
        assert!(requests <= 2 * PER_WAITER);
    }

    /// Returns the most requests per second at any node, by two waiters, while `again` changes
    /// something.
    fn asks_per_second(servers: &[Server], mut again: impl FnMut()) -> u64 {
        let sets = || servers.iter().map(|server| calls(server, "set")).collect::<Vec<_>>();
        let waiter = |_| Waiter::of(builder(servers).wake(WakeStrategy::Lead), b"job");
        let mut waiters: Vec<_> = (0..2).map(waiter).collect();
        let (before, began) = (sets(), Instant::now());
        while began.elapsed() < SPAN {
            again();
            for waiter in &mut waiters {
                waiter.driver.process();
                assert!(!waiter.is_granted());
            }
            thread::yield_now();
        }
        let took = began.elapsed().as_secs_f64();
        let rates =
            sets().into_iter().zip(before).map(|(now, before)| (now - before) as f64 / took);
        let rates: Vec<u64> = rates.map(|rate| rate.round() as u64).collect();
        println!("requests per second at each node, two waiters: {rates:?}");
        rates.into_iter().max().unwrap()
    }
}

/// The second read finds a resource that is released between the refusal and the first
/// notification.
#[test]
fn a_release_before_the_first_notification_is_not_missed() {
    let servers = servers(1);
    for round in 0..40u32 {
        taken(&servers, "job");
        let mut driver = driver_of(led(&servers));
        let id = driver.acquire(patiently(b"job")).unwrap();
        let until = Instant::now() + Duration::from_micros(u64::from(round) * 150);
        while Instant::now() < until || driver.state(id) == LockState::Asked {
            driver.process();
        }
        assert_eq!(servers[0].cmd("DEL job"), Reply::Int(1));
        let mut waiter = Waiter { driver, id };
        waiter.is_granted_by_push();
        waiter.driver.release(id);
        process_until(&mut waiter.driver, "the release is confirmed", |driver| {
            !driver.has_pending_releases()
        });
    }
}

/// A node does not notify a connection of changes that it made itself, so the driver passes the
/// lock on.
#[test]
fn a_lock_is_passed_to_a_waiter_of_the_same_driver() {
    on_each_number_of_nodes(|servers| {
        for wake in [WakeStrategy::Queue, WakeStrategy::Lead, WakeStrategy::Timer] {
            let mut driver = driver_of(late(servers).wake(wake));
            // The holder did not wait and is in no queue, so the next request is sent, and denied.
            process_until(&mut driver, "all nodes are ready", |driver| {
                driver.node_report().ready() == servers.len()
            });
            let held = held_by(&mut driver, long(b"job"));
            let id = driver.acquire(patiently(b"job")).unwrap();
            process_until(&mut driver, "the first attempt is refused", |driver| {
                driver.state(id) == LockState::Pausing && !driver.has_pending_releases()
            });
            let mut waiter = Waiter { driver, id };
            waiter.driver.release(held);
            waiter.is_granted_by_push();
        }
    });
}

/// Without waiters, the second connection and the subscription are closed.
#[test]
fn the_push_link_is_closed_after_the_last_wait() {
    let servers = servers(3);
    taken(&servers, "job");
    let mut waiter = Waiter::reported_by(&servers, led(&servers), b"job");
    waiter.driver.release(waiter.id);
    assert_eq!(subscribers(&servers[0]), 1, "the push link stays for the next wait");
    waiter.process_until("the push link is closed", |_| subscribers(&servers[0]) == 0);
    waiter.process_until("no key is tracked", |_| {
        info(&servers[0], "clients", "tracking_clients") == 0
    });
    assert_eq!(waiter.push(0), PushState::Off);
    // The next wait opens it again.
    let id = waiter.driver.acquire(patiently(b"job")).unwrap();
    process_until(&mut waiter.driver, "the node notifies again", |driver| {
        driver.node_report().nodes[0].push == PushState::Active
    });
    assert!(exists(&servers[0], "job") && waiter.driver.state(id) == LockState::Pausing);
}

/// A second lock of the same driver, on another resource, uses the same link.
#[test]
fn one_push_link_serves_all_waits_of_a_driver() {
    let servers = servers(3);
    let mut holder = driver_of(builder(&servers));
    let names: Vec<String> = (0..20).map(|at| format!("job{at}")).collect();
    let held: Vec<_> =
        names.iter().map(|name| held_by(&mut holder, long(name.as_bytes()))).collect();
    let mut driver = driver_of(led(&servers));
    let waits: Vec<_> = driver.batch(|driver| {
        let wait = |name: &String| driver.acquire(patiently(name.as_bytes())).unwrap();
        names.iter().map(wait).collect()
    });
    process_until(&mut driver, "all keys are tracked", |_| {
        info(&servers[0], "stats", "tracking_total_keys") >= 20
    });
    assert_eq!(subscribers(&servers[0]), 1);
    // A node that denied earlier than the first may have been the lead before.
    assert!(
        subscribers(&servers[1]) <= 1 && subscribers(&servers[2]) <= 1,
        "one push link for each node"
    );
    holder.batch(|holder| held.iter().for_each(|&id| holder.release(id)));
    let mut open = waits.len();
    let until = Instant::now() + LIMIT;
    while open > 0 {
        assert!(Instant::now() < until, "{open} still wait");
        let left = driver.timeout().unwrap();
        let span = Timespec::try_from(left).unwrap();
        let ready = poll(&mut [PollFd::new(&driver, PollFlags::IN)], Some(&span)).unwrap();
        // A nearer timer does not end a pause; it may be that of a request to the lead alone.
        let is_far = left > BEFORE_ANY_TIMER / 2;
        assert!(ready > 0 || !is_far, "no notification came for {open} of them");
        driver.process();
        while let Some(event) = driver.poll_event() {
            open -= usize::from(matches!(event, Event::Granted(_)));
        }
        holder.process();
    }
}

/// `Wait` and the TTL are independent.
#[test]
fn a_wait_can_be_shorter_and_longer_than_the_lease() {
    let servers = servers(1);
    taken(&servers, "job");
    let waiter = client_of(led(&servers));
    let short = LockRequest::new(b"job").ttl(LONG).wait(Wait::UpTo(Duration::from_millis(200)));
    let began = Instant::now();
    assert!(waiter.acquire(short).is_err());
    assert!(began.elapsed() >= Duration::from_millis(200));
    assert_eq!(servers[0].cmd("PEXPIRE job 900"), Reply::Int(1));
    let long = LockRequest::new(b"job").ttl(Duration::from_millis(300)).wait(Wait::UpTo(LIMIT));
    let lock = waiter.acquire(long).unwrap();
    assert!(lock.remaining() <= Duration::from_millis(300));
}
