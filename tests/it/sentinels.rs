//! Masters that real sentinels watch: clients find them through the sentinels, and follow failovers
//! while they compete for a lock.
//!
//! No lock has two holders although the promoted replica lacks the last locks; without the restart
//! guard, one does. A sentinel that is down, late or lies changes nothing as long as the others are
//! a majority.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use redbolt::config::{Credentials, RestartGuard, Secret};
use redbolt::proto::{ClockReading, Timestamp};
use redbolt::{Client, ConfigBuilder, LockRequest, Wait};
use redbolt_test_servers::{Act, Impostor, Mode, Proxy, Reply, Sentinels, Server};

use crate::support::{
    LIMIT, LONG, PATIENCE, client_of, driver_of, eventually, exists, info, long, patient,
    patiently, process_until, pttl, refusal, vouch_for, warm_client,
};

/// A master, its replica, and the sentinels that watch them.
struct Watched {
    master: Server,
    replica: Server,
    sentinels: Sentinels,
}

impl Watched {
    fn new() -> Self {
        Self::that_fails_over_after(SILENCE)
    }

    /// Returns servers that fail over only on command, even if the machine stalls.
    fn steady() -> Self {
        Self::that_fails_over_after(Duration::from_secs(8))
    }

    fn that_fails_over_after(silence: Duration) -> Self {
        let [master, replica] = pair();
        let sentinels = Sentinels::watching(&[("jobs", &master)], silence);
        Self { master, replica, sentinels }
    }

    fn builder(&self) -> ConfigBuilder {
        patient([self.address()])
    }

    fn address(&self) -> String {
        among(self.sentinels.all().iter().map(Server::address))
    }

    /// Stops replication, so that the replica does not get the master's next locks.
    fn cut_replication(&self) {
        assert_eq!(self.master.cmd("ACL SETUSER default -psync -sync"), ok());
        self.master.cmd("CLIENT KILL TYPE replica");
        eventually("the replica is cut off", || {
            info(&self.replica, "replication", "master_link_status") == "down"
        });
    }

    fn kill_master(&mut self) {
        self.master.kill();
        self.sentinels.wait_for_another("jobs", &self.master);
    }
}

/// Starts a master and a replica that has connected to it.
fn pair() -> [Server; 2] {
    let started = || Server::with(&["--repl-diskless-sync-delay", "0"]);
    let [master, replica] = [started(), started()];
    replica.cmd(&format!("REPLICAOF 127.0.0.1 {}", master.port()));
    eventually("the replica has its master's memory", || {
        info(&replica, "replication", "master_link_status") == "up"
    });
    [master, replica]
}

fn among(sentinels: impl IntoIterator<Item = String>) -> String {
    let sentinels: Vec<_> = sentinels.into_iter().collect();
    format!("redis+sentinel://{}/jobs", sentinels.join("+"))
}

#[test]
fn a_lock_is_acquired_on_the_master_named_by_the_sentinels() {
    let watched = Watched::steady();
    vouch_for(&[&watched.master], 1);
    let client = client_of(watched.builder());
    let lock = client.acquire(patiently(b"job")).unwrap();
    assert!(exists(&watched.master, "job"));
    assert!(client.acquire(long(b"job")).is_err());
    lock.release().unwrap();
    assert!(!exists(&watched.master, "job"));
}

/// Three nodes have the same sentinels, and the failover of one delays no lock.
#[test]
fn a_failover_of_one_node_of_three_delays_no_lock() {
    let names = ["a", "b", "c"];
    let mut pairs = names.map(|_| pair());
    let masters: Vec<&Server> = pairs.iter().map(|[master, _]| master).collect();
    let watched: Vec<_> = names.into_iter().zip(masters.iter().copied()).collect();
    let sentinels = Sentinels::watching(&watched, SILENCE);
    vouch_for(&masters, 3);
    let places: Vec<_> = sentinels.all().iter().map(Server::address).collect();
    let address = |name| format!("redis+sentinel://{}/{name}", places.join("+"));
    let client = warm_client(patient(names.map(address)));
    pairs[0][0].kill();
    sentinels.wait_for_another("a", &pairs[0][0]);
    eventually("the promoted replica is connected to, and quarantined", || {
        client.acquire(patiently(b"job")).unwrap().release().unwrap();
        client.warm_up(MOMENT).to_string().contains("node 1 redis+sentinel://")
            && client.warm_up(MOMENT).to_string().contains(": quarantined ")
    });
}

#[test]
fn no_lock_is_held_twice_when_a_master_is_killed() {
    nobody_holds_it_twice(Watched::new(), Watched::kill_master);
}

#[test]
fn no_lock_is_held_twice_over_an_ordered_failover() {
    nobody_holds_it_twice(Watched::steady(), |watched| {
        watched.sentinels.fail_over("jobs");
        watched.sentinels.wait_for_another("jobs", &watched.master);
    });
}

/// Lets clients compete for a lock while the master is replaced, until the new master has granted
/// it again. During the failover one client holds the lock for as long as it can.
fn nobody_holds_it_twice(mut watched: Watched, replace: impl FnOnce(&mut Watched)) {
    let builder = watched.builder().max_ttl(MAX_TTL).reconnect_backoff(MOMENT, 2 * MOMENT);
    // The nodes are declared new, or the first lock would wait for a quarantine.
    redbolt::init(&builder.clone().build().unwrap(), LIMIT).unwrap();
    let (ledger, is_over) = (Ledger::default(), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| contend(&builder, &ledger, &is_over));
        }
        eventually("they take turns", || ledger.len() > 20);
        let holder = client_of(builder.clone());
        let lock = holder.acquire(patiently(b"job").ttl(MAX_TTL)).unwrap();
        let until = Instant::now() + lock.remaining();
        ledger.note(Instant::now(), until);
        // The replica lacks this lock, so a vote of the promoted replica would be a second grant.
        watched.cut_replication();
        replace(&mut watched);
        let before = ledger.len();
        // The lock is not released: a node that remembers it still keeps it.
        eventually("the new master grants it", || ledger.len() > before + 20);
        is_over.store(true, Ordering::Relaxed);
        drop(lock);
    });
    assert_ne!(watched.sentinels.master("jobs"), Some(watched.master.port()));
    ledger.check();
}

fn contend(builder: &ConfigBuilder, ledger: &Ledger, is_over: &AtomicBool) {
    let client = client_of(builder.clone());
    let until = Instant::now() + 3 * LIMIT;
    while !is_over.load(Ordering::Relaxed) && Instant::now() < until {
        let wait = Wait::UpTo(10 * MOMENT);
        let Ok(lock) = client.acquire(LockRequest::new(b"job").ttl(MAX_TTL / 2).wait(wait)) else {
            continue;
        };
        let (since, valid_until) = (Instant::now(), Instant::now() + lock.remaining());
        thread::sleep(MOMENT / 10);
        ledger.note(since, valid_until.min(Instant::now()));
        lock.release().unwrap();
    }
}

/// The spans of time in which a holder was sure to hold the lock.
#[derive(Default)]
struct Ledger(Mutex<Vec<(Instant, Instant)>>);

impl Ledger {
    fn note(&self, since: Instant, until: Instant) {
        self.0.lock().unwrap().push((since, until));
    }

    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    fn check(self) {
        let mut all = self.0.into_inner().unwrap();
        all.sort();
        let twice = all.windows(2).find(|two| two[1].0 < two[0].1);
        assert_eq!(twice, None, "two clients held it at once");
    }
}

/// The lock was not replicated before the master died.
#[test]
fn a_promoted_replica_is_quarantined() {
    let mut watched = Watched::new();
    vouch_for(&[&watched.master], 1);
    // With the guard on the replica, only the run id shows that it is another server.
    eventually("the restart guard is copied", || exists(&watched.replica, "redbolt:guard"));
    let (first, second) = (warm_client(watched.builder()), warm_client(watched.builder()));
    watched.cut_replication();
    let lock = first.acquire(long(b"job")).unwrap();
    watched.kill_master();
    assert!(!exists(&watched.replica, "job"), "it never had the lock");
    let mut reported = String::new();
    eventually("the promoted replica is seen", || {
        reported = refusal(second.acquire(long(b"job"))).to_string();
        reported.contains(": quarantined ")
    });
    assert!(reported.contains("its run id changed"), "{reported}");
    assert!(lock.is_valid());
}

/// The replica has the key, and the old master keeps it for longer than it may grant to others.
#[test]
fn a_lock_on_one_node_survives_a_failover_to_a_replica_that_has_its_key() {
    let watched = Watched::steady();
    vouch_for(&[&watched.master], 1);
    let client = warm_client(watched.builder());
    let ttl = LONG * 2 / 3;
    let mut lock = client.acquire(LockRequest::new(b"job").ttl(ttl)).unwrap();
    eventually("the key is copied", || exists(&watched.replica, "job"));
    watched.sentinels.fail_over("jobs");
    watched.sentinels.wait_for_another("jobs", &watched.master);
    let is_longer = || pttl(&watched.replica, "job") > ttl.as_millis() as i64;
    eventually("the new master extends it", || lock.extend(LONG).is_ok() && is_longer());
    assert!(lock.remaining() > ttl, "it counts before the new master votes");
}

#[test]
fn without_the_restart_guard_a_failover_grants_a_lock_twice() {
    let mut watched = Watched::new();
    let unguarded = || warm_client(watched.builder().restart_guard(RestartGuard::Off));
    let (first, second) = (unguarded(), unguarded());
    watched.cut_replication();
    let lock = first.acquire(long(b"job")).unwrap();
    watched.kill_master();
    let other = second.acquire(patiently(b"job")).unwrap();
    assert!(lock.is_valid() && other.is_valid(), "a restart guard would be of no use");
}

/// The old master may not become a replica, and so never closes our connections by itself.
#[test]
fn a_failover_is_followed_at_once_although_the_old_master_stays_up() {
    let watched = Watched::steady();
    vouch_for(&[&watched.master], 1);
    // Sentinels cannot make it a replica, so it keeps its connections.
    assert_eq!(watched.master.cmd("ACL SETUSER default -replicaof -slaveof"), ok());
    let client = warm_client(watched.builder().dead_peer_timeout(4 * LIMIT));
    watched.sentinels.fail_over("jobs");
    watched.sentinels.wait_for_another("jobs", &watched.master);
    followed(&client);
    assert_eq!(info(&watched.master, "replication", "role"), "master");
    refusal(client.acquire(long(b"job")));
    assert!(!exists(&watched.master, "job"), "the old master is not asked any more");
}

/// In the time of this test, only the report of the failover can end a connection to the hanging
/// master.
#[test]
fn a_failover_of_a_master_that_hangs_is_followed_at_once() {
    let watched = Watched::new();
    vouch_for(&[&watched.master], 1);
    // The dead-peer timeout is longer than the test, so it cannot end the connection.
    let client = warm_client(watched.builder().dead_peer_timeout(4 * LIMIT));
    watched.master.pause();
    watched.sentinels.wait_for_another("jobs", &watched.master);
    followed(&client);
}

/// The backoff applies to the master that died, not to its replacement.
#[test]
fn a_dead_master_is_replaced_at_once_despite_a_long_backoff() {
    let mut watched = Watched::new();
    vouch_for(&[&watched.master], 1);
    let minute = Duration::from_secs(60);
    let builder = watched.builder().reconnect_backoff(minute, minute);
    let mut driver = driver_of(builder);
    process_until(&mut driver, "it is ready", |driver| driver.node_report().ready() == 1);
    watched.master.kill();
    watched.sentinels.wait_for_another("jobs", &watched.master);
    process_until(&mut driver, "the promoted replica is seen", |driver| {
        driver.node_report().to_string().contains(": quarantined ")
    });
}

/// The client subscribes again to sentinels that have restarted.
#[test]
fn a_failover_is_followed_after_all_sentinels_have_restarted() {
    let mut watched = Watched::steady();
    vouch_for(&[&watched.master], 1);
    assert_eq!(watched.master.cmd("ACL SETUSER default -replicaof -slaveof"), ok());
    let client = warm_client(watched.builder());
    watched.sentinels.all_mut().iter_mut().for_each(Server::restart);
    watched.sentinels.fail_over("jobs");
    watched.sentinels.wait_for_another("jobs", &watched.master);
    followed(&client);
    assert_eq!(info(&watched.master, "replication", "role"), "master");
}

/// The sentinel's answer is true, and then it reports a failover that did not happen.
#[test]
fn one_sentinel_that_reports_a_failover_is_not_followed() {
    let watched = Watched::steady();
    vouch_for(&[&watched.master], 1);
    let stray = Server::start();
    let [_, first, second] = watched.sentinels.all() else { panic!("three") };
    let news = format!("jobs 127.0.0.1 {} 127.0.0.1 {}", watched.master.port(), stray.port());
    let reported =
        format!("*3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n${}\r\n{news}", news.len());
    let lying =
        Impostor::start(Act::Always(format!("{}\r\n{reported}", place(watched.master.port()))));
    let places = [lying.address(), first.address(), second.address()];
    let client = warm_client(patient([among(places)]));
    let connections = || {
        let count = info(&watched.master, "stats", "total_connections_received");
        count.parse::<u32>().unwrap()
    };
    let before = connections();
    // The client has time to follow the false report.
    for _ in 0..10 {
        client.acquire(patiently(b"job")).unwrap().release().unwrap();
        thread::sleep(MOMENT);
    }
    assert_eq!(connections(), before + 1, "only this query's connection is new");
    assert!(!exists(&stray, "job"));
}

/// Waits until the client sees the promoted replica, which is quarantined.
fn followed(client: &Client) {
    eventually("the promoted replica is seen", || {
        client.warm_up(MOMENT).to_string().contains(": quarantined ")
    });
}

/// A master that is cut off from the sentinels keeps granting, and its clients cannot learn of its
/// replacement. The test's clock lets the limit of 5 s pass at once.
#[test]
fn a_master_votes_only_while_most_sentinels_have_recently_named_it() {
    let watched = Watched::steady();
    vouch_for(&[&watched.master], 1);
    let ahead = Arc::new(AtomicU64::new(0));
    let bend = Arc::clone(&ahead);
    let client =
        warm_client(watched.builder().response_timeout(PATIENCE / 2).bend_clock(move |now| {
            let ahead = bend.load(Ordering::Relaxed);
            let [boot, wall] = [now.boot, now.wall].map(|time| Timestamp(time.0 + ahead));
            ClockReading { boot, wall }
        }));
    let pass = || ahead.fetch_add(6_000_000_000, Ordering::Relaxed);
    pass();
    client.acquire(patiently(b"job")).unwrap().release().unwrap();
    let [_, second, third] = watched.sentinels.all() else { panic!("three") };
    second.pause();
    pass();
    client.acquire(patiently(b"job")).unwrap().release().unwrap();
    third.pause();
    pass();
    let reported = refusal(client.acquire(briefly())).to_string();
    assert!(reported.contains("most of its sentinels have not named it for 5 s"), "{reported}");
    second.resume();
    client.acquire(patiently(b"job")).unwrap().release().unwrap();
    third.resume();
}

/// The process stops after it has checked the sentinels' answer and before it times the node's
/// answer, which may be as young as the end of the stop. By then the old master may have granted
/// another client's lock.
#[cfg(target_os = "linux")]
#[test]
fn an_answer_does_not_count_when_the_sentinels_answer_is_too_old() {
    let watched = Watched::steady();
    vouch_for(&[&watched.master], 1);
    let (port, stops) = (watched.master.port(), Arc::new(AtomicBool::new(false)));
    let (is_armed, had_bytes) = (Arc::clone(&stops), AtomicBool::new(false));
    let has_stopped = AtomicBool::new(false);
    let client = warm_client(watched.builder().bend_clock(move |now| {
        let looks = is_armed.load(Ordering::Relaxed) && !has_stopped.load(Ordering::Relaxed);
        let has_bytes = looks && unread_from(port) > 0;
        let was_read = had_bytes.fetch_or(has_bytes, Ordering::Relaxed) && !has_bytes;
        let has_stopped = has_stopped.fetch_or(was_read, Ordering::Relaxed) || was_read;
        let ahead = if has_stopped { 6_000_000_000 } else { 0 };
        let [boot, wall] = [now.boot, now.wall].map(|time| Timestamp(time.0 + ahead));
        ClockReading { boot, wall }
    }));
    client.acquire(patiently(b"job")).unwrap().release().unwrap();
    let [_, second, third] = watched.sentinels.all() else { panic!("three") };
    second.pause();
    third.pause();
    stops.store(true, Ordering::Relaxed);
    let reported = refusal(client.acquire(long(b"job"))).to_string();
    assert!(reported.contains("most of its sentinels have not named it for 5 s"), "{reported}");
    second.resume();
    third.resume();
}

/// Returns the number of bytes that this process has not read yet from connections to this port.
/// The clock calls this, and the table may have tens of thousands of lines of other tests, so only
/// lines with the port are parsed.
#[cfg(target_os = "linux")]
fn unread_from(port: u16) -> u64 {
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let remote = format!(":{port:04X} ");
    let lines = table.lines().filter(|line| line.contains(&remote));
    let unread = lines.filter_map(|line| {
        let columns: Vec<_> = line.split_whitespace().collect();
        let is_there = columns[2].ends_with(remote.trim_end());
        let (_, received) = columns[4].split_once(':')?;
        let received = u64::from_str_radix(received, 16).ok()?;
        (is_there && received > 0 && is_ours(columns[9])).then_some(received)
    });
    unread.sum()
}

/// Returns `true` if this process has a descriptor of the socket with this inode.
#[cfg(target_os = "linux")]
fn is_ours(inode: &str) -> bool {
    let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let mut links = links.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    links.any(|link| link.to_string_lossy() == format!("socket:[{inode}]"))
}

/// A client is cut off from all sentinels together with the old master, which stays a master. The
/// client's TTL is shorter than `max_ttl` by more than the 5 s for which an answer of the sentinels
/// counts.
#[test]
fn an_old_master_isolated_with_a_client_grants_nothing_while_the_new_one_does() {
    let watched = Watched::steady();
    assert_eq!(watched.master.cmd("ACL SETUSER default -replicaof -slaveof"), ok());
    let ways: Vec<_> =
        watched.sentinels.all().iter().map(|it| Proxy::before(&it.address())).collect();
    let max_ttl = Duration::from_secs(8);
    let configured = |address: String| patient([address]).max_ttl(max_ttl);
    redbolt::init(&configured(watched.address()).build().unwrap(), LIMIT).unwrap();
    let cut_off = warm_client(configured(among(ways.iter().map(Proxy::address))));
    let brief = || LockRequest::new(b"job").ttl(max_ttl / 4);
    cut_off.acquire(brief().wait(Wait::UpTo(LIMIT))).unwrap().release().unwrap();
    // The client's connections to the sentinels stay open, but nothing arrives.
    ways.iter().for_each(|way| way.set(Mode::Stall));
    watched.sentinels.fail_over("jobs");
    watched.sentinels.wait_for_another("jobs", &watched.master);
    let is_taken = AtomicBool::new(false);
    let (mut granted, mut valid_until) = (0, Instant::now());
    let taken_at = thread::scope(|scope| {
        let taken = scope.spawn(|| {
            let other = client_of(configured(watched.address()));
            let lock = other.acquire(brief().wait(Wait::UpTo(3 * LIMIT)));
            let taken_at = Instant::now();
            is_taken.store(true, Ordering::Relaxed);
            lock.unwrap().release().unwrap();
            taken_at
        });
        let until = Instant::now() + 3 * LIMIT;
        while !is_taken.load(Ordering::Relaxed) && Instant::now() < until {
            if let Ok(lock) = cut_off.acquire(brief().wait(Wait::UpTo(10 * MOMENT))) {
                valid_until = Instant::now() + lock.remaining();
                granted += 1;
                lock.release().unwrap();
            }
        }
        taken.join().unwrap()
    });
    assert!(granted > 0, "the old master granted nothing");
    assert!(valid_until < taken_at, "two clients held it at once");
}

/// This setting limits an old master that is cut off.
#[test]
fn a_master_that_needs_its_replicas_grants_nothing_without_them() {
    let watched = Watched::steady();
    vouch_for(&[&watched.master], 1);
    let client = warm_client(watched.builder());
    watched.master.cmd("CONFIG SET min-replicas-to-write 1 min-replicas-max-lag 1");
    client.acquire(patiently(b"job")).unwrap().release().unwrap();
    watched.replica.pause();
    let mut reported = String::new();
    eventually("the replica is missed", || match client.acquire(long(b"job")) {
        Ok(lock) => {
            lock.release().unwrap();
            false
        }
        Err(error) => {
            reported = error.to_string();
            true
        }
    });
    assert!(reported.contains("NOREPLICAS"), "{reported}");
}

#[test]
fn a_minority_of_sentinels_that_is_down_late_or_lies_changes_nothing() {
    let mut watched = Watched::steady();
    let stray = Server::start();
    vouch_for(&[&watched.master, &stray], 1);
    let late = Impostor::start(Act::Silent);
    let lying = Impostor::start(Act::Always(place(stray.port())));
    watched.sentinels.all_mut()[0].kill();
    let [down, first, second] = watched.sentinels.all() else { panic!("three") };
    for other in [down.address(), late.address(), lying.address()] {
        let builder = patient([among([other, first.address(), second.address()])]);
        // A client that waited for the late sentinel would not be granted in time.
        let client = client_of(builder.response_timeout(4 * LIMIT));
        let lock = client.acquire(patiently(b"job")).unwrap();
        assert!(exists(&watched.master, "job") && !exists(&stray, "job"));
        lock.release().unwrap();
    }
}

/// A resolver cannot be interrupted, so the client neither waits for it nor calls it again before
/// it has answered.
#[test]
fn a_sentinel_whose_name_does_not_resolve_blocks_no_node() {
    let mut watched = Watched::steady();
    vouch_for(&[&watched.master], 1);
    watched.sentinels.all_mut()[0].kill();
    let [down, other, _] = watched.sentinels.all() else { panic!("three") };
    let address = among(["hangs.example".to_owned(), down.address(), other.address()]);
    let (_never, hangs) = channel::<()>();
    let (hangs, look_ups) = (Mutex::new(hangs), Arc::new(AtomicU64::new(0)));
    let count = Arc::clone(&look_ups);
    let builder = patient([address]).response_timeout(LIMIT / 50).resolve_hosts_by(move |_, _| {
        count.fetch_add(1, Ordering::Relaxed);
        // The resolver never returns, because nothing is ever sent.
        let _ = hangs.lock().unwrap().recv();
        Err(ErrorKind::TimedOut.into())
    });
    let client = client_of(builder);
    let asked = || info(other, "stats", "total_connections_received").parse::<u64>().unwrap();
    let (before, mut looks) = (asked(), 0);
    eventually("the sentinels are asked repeatedly", || {
        let reported = refusal(client.acquire(briefly())).to_string();
        // This query opens a connection too.
        looks += 1;
        asked() >= before + looks + 3
            && reported.contains("hangs.example:26379: its name is still being looked up")
    });
    watched.sentinels.all_mut()[0].restart();
    client.acquire(patiently(b"job")).unwrap().release().unwrap();
    assert_eq!(look_ups.load(Ordering::Relaxed), 1);
}

/// Each refusal names the node and the sentinels' answers.
#[test]
fn without_a_majority_there_is_no_master() {
    let watched = Watched::steady();
    let [first, second, third] = watched.sentinels.all() else { panic!("three") };
    let lying = [0, 1].map(|port| Impostor::start(Act::Always(place(7_001 + port))));
    let divided = among([lying[0].address(), lying[1].address(), first.address()]);
    let reported = refused(patient([divided]), "2 of 3 sentinels must name the same master `jobs`");
    assert!(
        reported.contains("says 127.0.0.1:7001") && reported.contains("says 127.0.0.1:7002"),
        "{reported}"
    );
    assert!(reported.contains(&format!("says {}", watched.master.address())), "{reported}");
    let unknown = watched.address().replace("/jobs", "/nobody");
    let reported = refused(patient([unknown]), "sentinels must name the same master `nobody`");
    assert!(
        reported.contains(&format!("{}: it does not know that master", first.address())),
        "{reported}"
    );
    for sentinel in [second, third] {
        assert_eq!(sentinel.cmd("ACL SETUSER default resetpass >right"), ok());
    }
    refused(watched.builder(), ": NOAUTH");
    let reported = refused(with_password(&watched, b"s3cret"), ": WRONGPASS");
    assert!(!reported.contains("s3cret"), "{reported}");
    vouch_for(&[&watched.master], 1);
    client_of(with_password(&watched, b"right"))
        .acquire(patiently(b"job"))
        .unwrap()
        .release()
        .unwrap();
}

/// The user is set separately, and the line end in the file is not part of the password.
#[test]
fn the_sentinels_password_comes_from_a_file() {
    let watched = Watched::new();
    vouch_for(&[&watched.master], 1);
    for sentinel in watched.sentinels.all() {
        sentinel.cmd("ACL SETUSER ann on >s3cret +@all &*");
        assert_eq!(sentinel.cmd("ACL SETUSER default resetpass >right"), ok());
    }
    let file = watched.master.socket().with_file_name("password");
    std::fs::write(&file, "right\n").unwrap();
    let builder = watched.builder().sentinel_password_file(&file);
    client_of(builder.clone()).acquire(patiently(b"job")).unwrap().release().unwrap();
    std::fs::write(&file, "s3cret\r\n").unwrap();
    client_of(builder.clone().sentinel_user("ann"))
        .acquire(patiently(b"job"))
        .unwrap()
        .release()
        .unwrap();
    refused(builder, ": WRONGPASS");
    std::fs::remove_file(&file).unwrap();
    let gone = watched.builder().sentinel_password_file(&file).build().unwrap_err().to_string();
    assert!(gone.contains("password: No such file"), "{gone}");
    let alone = watched.builder().sentinel_user("ann").build().unwrap_err().to_string();
    assert_eq!(alone, "a user of the sentinels without a password");
}

/// Returns the text of a refusal, once it contains these words.
fn refused(builder: ConfigBuilder, words: &str) -> String {
    let client = client_of(builder);
    let mut reported = String::new();
    eventually(words, || {
        reported = refusal(client.acquire(briefly())).to_string();
        reported.contains(words)
    });
    assert!(reported.contains("node 1 redis"), "{reported}");
    reported
}

fn with_password(watched: &Watched, password: &[u8]) -> ConfigBuilder {
    let credentials = Credentials::new(None, Secret::new(password.to_vec()));
    watched.builder().sentinel_credentials(credentials)
}

fn briefly() -> LockRequest<'static> {
    long(b"job").wait(Wait::UpTo(10 * MOMENT))
}

/// Returns a sentinel's answer that names a master at this port, without the last line end.
fn place(port: u16) -> String {
    format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}", port.to_string().len())
}

fn ok() -> Reply {
    Reply::Status("OK".into())
}

/// The silence after which sentinels treat a master as down.
const SILENCE: Duration = Duration::from_millis(500);

/// The longest TTL, which is also the quarantine of a promoted replica.
const MAX_TTL: Duration = Duration::from_secs(2);

const MOMENT: Duration = Duration::from_millis(20);

/// The sentinels and the master have certificates, and accept only TLS.
#[cfg(feature = "tls")]
mod over_tls {
    use std::sync::Arc;

    use redbolt_test_servers::Authority;

    use super::*;

    #[test]
    fn a_lock_is_acquired_over_tls_on_the_master_named_by_a_sentinel() {
        let authority = Arc::new(Authority::new());
        let master = Server::over_tls(&authority, authority.server(), &[]);
        vouch_for(&[&master], 1);
        let sentinel = Server::sentinel_over_tls(
            &authority,
            authority.server(),
            &["--tls-replication", "yes"],
        );
        let order = format!("SENTINEL MONITOR jobs 127.0.0.1 {} 1", master.tls_port());
        assert_eq!(sentinel.cmd(&order), ok());
        let address = format!("rediss+sentinel://127.0.0.1:{}/jobs", sentinel.tls_port());
        let client = client_of(patient([&address]).tls_ca(authority.ca()));
        let lock = client.acquire(patiently(b"job")).unwrap();
        assert!(exists(&master, "job"));
        lock.release().unwrap();
        let stranger = Authority::named("somebody else");
        refused(patient([&address]).tls_ca(stranger.ca()), "its issuer is not trusted");
        let plain = address.replace(&sentinel.tls_port().to_string(), &sentinel.port().to_string());
        refused(patient([&plain]).tls_ca(authority.ca()), "sentinels must name");
    }
    /// A sentinel and a master with different CAs; the sentinel requires a client certificate.
    struct Apart {
        theirs: Arc<Authority>,
        authority: Arc<Authority>,
        master: Server,
        sentinel: Server,
    }

    impl Apart {
        /// Starts a sentinel that watches the master's port with or without TLS. It cannot connect
        /// to the former, but still names it.
        fn new(is_master_over_tls: bool) -> Self {
            let [authority, theirs] =
                ["the nodes' CA", "the sentinels' CA"].map(|name| Arc::new(Authority::named(name)));
            let master = Server::over_tls(&authority, authority.server(), &[]);
            vouch_for(&[&master], 1);
            let wants_us = ["--tls-auth-clients", "yes"];
            let identity = theirs.server_named("sentinel.example");
            let sentinel = Server::sentinel_over_tls(&theirs, identity, &wants_us);
            let port = if is_master_over_tls { master.tls_port() } else { master.port() };
            assert_eq!(sentinel.cmd(&format!("SENTINEL MONITOR jobs 127.0.0.1 {port} 1")), ok());
            Self { theirs, authority, master, sentinel }
        }

        fn sentinel_over_tls(&self, builder: ConfigBuilder) -> ConfigBuilder {
            let ours = self.theirs.client();
            builder
                .sentinel_tls_ca(self.theirs.ca())
                .sentinel_tls_cert(ours.certificate)
                .sentinel_tls_key(ours.key)
                .sentinel_tls_server_name("sentinel.example")
        }

        fn is_granted(&self, builder: ConfigBuilder) {
            let client = client_of(builder);
            let lock = client.acquire(patiently(b"job")).unwrap();
            assert!(exists(&self.master, "job"));
            lock.release().unwrap();
        }
    }

    #[test]
    fn the_sentinels_can_have_a_separate_ca_certificate_and_name() {
        let apart = Apart::new(true);
        let address = format!("rediss+sentinel://127.0.0.1:{}/jobs", apart.sentinel.tls_port());
        let builder = || patient([&address]).tls_ca(apart.authority.ca());
        apart.is_granted(apart.sentinel_over_tls(builder()));
        refused(builder(), "its issuer is not trusted");
        let unnamed = builder().sentinel_tls_ca(apart.theirs.ca());
        refused(unnamed.clone(), "it is for sentinel.example, not for 127.0.0.1");
        let unknown = unnamed.sentinel_tls_server_name("sentinel.example");
        refused(unknown, "it wants a client certificate");
        // The name for the sentinels does not apply to the node.
        let ours = apart.theirs.client();
        let everybody_s =
            builder().sentinel_tls_ca(apart.theirs.ca()).sentinel_tls_cert(ours.certificate);
        let everybody_s =
            everybody_s.sentinel_tls_key(ours.key).tls_server_name("sentinel.example");
        refused(everybody_s, "not for sentinel.example");
    }

    #[test]
    fn only_the_sentinels_or_only_the_master_can_use_tls() {
        let apart = Apart::new(false);
        let address = format!("redis+sentinel://127.0.0.1:{}/jobs", apart.sentinel.tls_port());
        apart.is_granted(apart.sentinel_over_tls(patient([address]).sentinel_tls(true)));
        let apart = Apart::new(true);
        let address = format!("rediss+sentinel://127.0.0.1:{}/jobs", apart.sentinel.port());
        apart.is_granted(patient([address]).tls_ca(apart.authority.ca()).sentinel_tls(false));
    }
}
