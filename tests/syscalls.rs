//! Counts the system calls of an acquire and a release.
//!
//! The test binary runs itself again under `strace`, as the program that acquires locks. Before
//! each phase the program writes the phase's name to /dev/null, which divides the trace, and the
//! test counts the calls of each phase. Reads of the clock do not appear if the vDSO provides them.
//! If a grant came so late that its node was asked for a proof, the program reports that as well,
//! and one more write is expected for each.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::env;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use redbolt::metrics::MetricsReport;
use redbolt::{AutoExtend, Client, Config, ConfigBuilder, Driver, Event, LockId, LockRequest};
use redbolt_test_servers::{Connection, Reply, Server, servers};

#[test]
fn a_driver_makes_n_writes_one_poll_and_at_most_n_reads() {
    let test = "a_driver_makes_n_writes_one_poll_and_at_most_n_reads";
    in_both_roles(test, drive, |phases, n| {
        for (what, calls) in phases {
            match what.as_str() {
                "ask" | "release" => calls.expect(n..=n, 0..=0, 0..=0),
                "grant" | "confirmation" => calls.expect(0..=0, 1..=1, 1..=n),
                _ => Ok(()),
            }
            .unwrap_or_else(|fault| panic!("{n} nodes, {what}: {fault}"));
        }
        let rounds = asks().len() * ROUNDS;
        assert_eq!(count(phases, "confirmation"), rounds);
        let drawn: usize = phases.iter().map(|(_, calls)| calls.of(&["getrandom"])).sum();
        assert!(drawn <= rounds / ATTEMPTS_PER_DRAW + 2, "{drawn} draws for {rounds} attempts");
    });
}

/// It needs no readiness events, and does not poll for answers that are not due.
#[test]
fn a_driver_that_spins_polls_only_where_nothing_is_due() {
    let test = "a_driver_that_spins_polls_only_where_nothing_is_due";
    in_both_roles(test, drive_busily, |phases, n| {
        for (what, calls) in phases {
            match what.as_str() {
                "ask" | "release" => calls.expect(n..=n, 0..=0, 0..=0),
                "grant" | "confirmation" => calls.expect(0..=0, 0..=0, n..=n),
                "nothing due" => calls.expect(0..=0, 1..=1, 0..=0),
                _ => Ok(()),
            }
            .unwrap_or_else(|fault| panic!("{n} nodes, {what}: {fault}"));
        }
        assert_eq!(count(phases, "nothing due"), asks().len() * ROUNDS);
    });
}

/// A spinning client never sleeps if the nodes are fast, and sleeps as usual if they are not.
#[test]
fn a_client_that_spins_sleeps_only_where_nodes_are_slow() {
    let test = "a_client_that_spins_sleeps_only_where_nodes_are_slow";
    in_both_roles(test, block_busily, |phases, n| {
        let pairs = phases.iter().filter(|(what, _)| what == "pair");
        // On a busy machine, and under strace, a node is not always fast, and five hardly ever are.
        let is_fast = pairs.into_iter().any(|(_, calls)| calls.of(&POLLS) == 0);
        assert!(is_fast || n > 3, "{n} nodes");
        let (_, silent) = phases.iter().find(|(what, _)| what == "silent").unwrap();
        let polls = silent.of(&POLLS);
        // It spins long enough to read from each node many times.
        let most = READS_IN_A_SPIN * n * (polls + 1);
        silent
            .expect(2 * n..=2 * n, 1..=usize::MAX, 1..=most)
            .unwrap_or_else(|fault| panic!("{n} nodes: {fault}"));
    });
}

#[test]
fn a_client_polls_at_most_once_for_each_vote_that_it_needs() {
    let test = "a_client_polls_at_most_once_for_each_vote_that_it_needs";
    in_both_roles(test, block, |phases, n| {
        let quorum = n / 2 + 1;
        for (what, calls) in phases {
            // After a pause, a client first checks for news.
            let calls = calls.since_the_first_write().without_what_was_in_vain(3 * n);
            match what.as_str() {
                "acquire" | "release" => calls.expect(n..=n, 1..=quorum, quorum..=n),
                _ => Ok(()),
            }
            .unwrap_or_else(|fault| panic!("{n} nodes, {what}: {fault}"));
        }
        let rounds = asks().len() * ROUNDS;
        assert_eq!(count(phases, "release"), rounds);
        // An alarm for each sleep would be two or more in a round.
        let alarms: usize = phases.iter().map(|(_, calls)| calls.of(&ALARMS)).sum();
        assert!(alarms <= rounds / 2, "{alarms} for alarms in {rounds} rounds");
    });
}

/// Handshake, restart guard and request are one write to each node, so that a first contact needs
/// no second round trip.
#[test]
fn a_first_contact_is_one_write_to_each_node() {
    let test = "a_first_contact_is_one_write_to_each_node";
    in_both_roles(test, meet, |phases, n| {
        assert_eq!(count(phases, "contact"), 2 * CONTACTS);
        for (_, calls) in phases.iter().filter(|(what, _)| what == "contact") {
            let writes = calls.of(&["sendto", "sendmsg"]);
            assert_eq!(writes, n, "{n} nodes: {calls:?}");
        }
    });
}

/// Many locks that are requested or released together cost as much as one.
#[test]
fn a_batch_is_one_write_to_each_node() {
    let test = "a_batch_is_one_write_to_each_node";
    in_both_roles(test, gather, |phases, n| {
        for (what, calls) in phases {
            match what.as_str() {
                "asks" | "releases" | "extensions" => calls.expect(n..=n, 0..=0, 0..=0),
                "grants" | "confirmations" | "answers" => calls.expect(0..=0, 1..=1, 1..=n),
                _ => Ok(()),
            }
            .unwrap_or_else(|fault| panic!("{n} nodes, {what}: {fault}"));
        }
        assert_eq!(count(phases, "confirmations"), BATCHES);
    });
}

#[test]
fn a_client_s_batch_is_one_write_to_each_node() {
    let test = "a_client_s_batch_is_one_write_to_each_node";
    in_both_roles(test, gather_blocking, |phases, n| {
        for (_, calls) in phases.iter().filter(|(what, _)| what == "batch") {
            // The number of polls and reads depends on how fast the nodes are. Allocating the
            // result may take a system call as well.
            assert_eq!(calls.of(&WRITES), n + calls.late, "{n} nodes: {calls:?}");
        }
        assert_eq!(count(phases, "batch"), BATCHES);
    });
}

/// Auto-extension is one write to each node for all locks that are due, and an iteration in which
/// none is due writes nothing.
#[test]
fn auto_extended_locks_cost_one_write_to_each_node() {
    let test = "auto_extended_locks_cost_one_write_to_each_node";
    in_both_roles(test, keep, |phases, n| {
        let turns = phases.iter().filter(|(what, _)| what == "turn");
        let writes = turns.map(|(_, calls)| calls.of(&WRITES));
        // A node that connects late is asked for the locks in the first turns.
        let writes: Vec<usize> = writes.skip_while(|&writes| writes < n).collect();
        assert!(writes.iter().all(|&writes| writes == 0 || writes == n), "{n} nodes: {writes:?}");
        let rounds = writes.iter().filter(|&&writes| writes == n).count();
        // The program ends when each of its locks was extended this often.
        assert!((EXTENSIONS..=2 * EXTENSIONS).contains(&rounds), "{n} nodes: {rounds} rounds");
    });
}

/// Without a pause between calls, each call reads the replies that the previous one did not wait
/// for. Even so, every poll and every read finds something.
#[test]
fn a_client_back_to_back_reads_at_most_once_for_each_reply() {
    let test = "a_client_back_to_back_reads_at_most_once_for_each_reply";
    in_both_roles(test, block_back_to_back, |phases, n| {
        let calls = &phases.iter().find(|(what, _)| what == "pairs").unwrap().1;
        let rounds = asks().len() * ROUNDS;
        let replies = 2 * n * rounds;
        let polls = rounds..=calls.of(&READS) + STALLS;
        calls
            .expect(replies..=replies, polls, rounds..=replies)
            .unwrap_or_else(|fault| panic!("{n} nodes, {rounds} pairs: {fault}"));
    });
}

/// Writability is watched only while a socket is full, and then it must be.
#[test]
fn a_full_socket_is_written_to_again_once_it_has_room() {
    let servers = servers(3);
    let nodes: Vec<_> =
        servers.iter().map(|server| format!("unix://{}", server.socket().display())).collect();
    redbolt::init(&config(&nodes), PATIENCE).unwrap();
    let client = warm_client(&nodes, Duration::ZERO);
    servers[0].pause();
    let resource = vec![b'x'; 64 << 10];
    for _ in 0..100 {
        let _ = client.acquire(LockRequest::new(&resource)).unwrap().release();
    }
    servers[0].resume();
    has_received_all(&client);
    assert_eq!(servers[0].run(&[b"EXISTS", &resource]), Reply::Int(0));
    let lock = client.acquire(LockRequest::new(&resource)).unwrap();
    has_received_all(&client);
    assert_eq!(servers[0].run(&[b"EXISTS", &resource]), Reply::Int(1));
    drop(lock);
}

/// The traced program: a driver that is called once all replies have arrived.
fn drive(nodes: &[String]) {
    drive_by(nodes, Duration::ZERO, Driver::process);
}

/// The traced program: the same, with calls that do not wait for readiness.
fn drive_busily(nodes: &[String]) {
    drive_by(nodes, BUSY, |driver| assert!(driver.process_busy(), "everything has been answered"));
}

fn drive_by(nodes: &[String], busy_poll: Duration, turn: fn(&mut Driver)) {
    let mut driver = warm_driver(nodes, busy_poll);
    let mut witnesses: Vec<_> = nodes.iter().map(|node| witness(node)).collect();
    let mut report = teller();
    let mut answered = |driver: &mut Driver, what: &str| {
        report("wait");
        witnesses.iter_mut().for_each(all_is_answered);
        let late = late_proofs(&driver.metrics());
        report(what);
        turn(driver);
        report_late(&mut report, late, &driver.metrics());
        witnesses.iter_mut().for_each(all_is_answered);
        while driver.process_busy() {}
        report("other");
    };
    let mut report = teller();
    for (round, request) in (0..=ROUNDS).flat_map(|round| asks().map(|request| (round, request))) {
        // The first use of a script sends its text.
        let warm = round > 0;
        report(if warm { "ask" } else { "first" });
        let id = driver.acquire(request).unwrap();
        answered(&mut driver, if warm { "grant" } else { "first" });
        assert!(happened(&mut driver, |event| event == Event::Granted(id)));
        report(if warm { "release" } else { "first" });
        driver.release(id);
        answered(&mut driver, if warm { "confirmation" } else { "first" });
        assert!(happened(&mut driver, |event| is_release(event, id)));
        report(if warm { "nothing due" } else { "first" });
        assert!(!driver.process_busy());
        report("other");
    }
}

fn happened(driver: &mut Driver, wanted: impl Fn(Event) -> bool) -> bool {
    std::iter::from_fn(|| driver.poll_event()).any(wanted)
}

fn is_release(event: Event, id: LockId) -> bool {
    matches!(event, Event::Released(of, _) if of == id)
}

/// The traced program: a client that has read all replies before each call.
fn block(nodes: &[String]) {
    let client = warm_client(nodes, Duration::ZERO);
    let mut report = teller();
    for request in (0..ROUNDS).flat_map(|_| asks()) {
        let late = late_proofs(&client.metrics());
        report("acquire");
        let lock = client.acquire(request).unwrap();
        report_late(&mut report, late, &client.metrics());
        report("wait");
        has_received_all(&client);
        report("release");
        let _ = lock.release();
        report("wait");
        has_received_all(&client);
    }
}

/// The traced program: a client without pauses between calls.
fn block_back_to_back(nodes: &[String]) {
    let client = warm_client(nodes, Duration::ZERO);
    let mut report = teller();
    let late = late_proofs(&client.metrics());
    report("pairs");
    for request in (0..ROUNDS).flat_map(|_| asks()) {
        let _ = client.acquire(request).unwrap().release();
    }
    report_late(&mut report, late, &client.metrics());
}

/// The traced program: a client that spins, while the nodes answer and while they do not.
fn block_busily(nodes: &[String]) {
    let client = warm_client(nodes, BUSY);
    let mut witnesses: Vec<_> = nodes.iter().map(|node| witness(node)).collect();
    let mut report = teller();
    for request in (0..ROUNDS).flat_map(|_| asks()) {
        report("pair");
        let _ = client.acquire(request).unwrap().release();
    }
    report("wait");
    has_received_all(&client);
    for witness in &mut witnesses {
        assert_eq!(witness.cmd("CLIENT PAUSE 3000"), Reply::Status("OK".into()));
    }
    let late = late_proofs(&client.metrics());
    report("silent");
    let lock = client.acquire(LockRequest::new(b"job").ttl(PATIENCE)).unwrap();
    let _ = lock.release();
    report_late(&mut report, late, &client.metrics());
}

/// The traced program: new drivers on nodes that have been in use.
fn meet(nodes: &[String]) {
    let mut report = teller();
    for request in (0..CONTACTS).flat_map(|_| asks()) {
        report("contact");
        let mut driver = Driver::new(config(nodes)).unwrap();
        let id = driver.acquire(request).unwrap();
        let until = Instant::now() + PATIENCE;
        while !happened(&mut driver, |event| event == Event::Granted(id)) {
            assert!(Instant::now() < until, "{:?}", driver.node_report());
            driver.process();
        }
        report("other");
        driver.release(id);
        while driver.has_pending_releases() {
            assert!(Instant::now() < until, "{:?}", driver.node_report());
            driver.process();
        }
    }
}

/// The traced program: a driver with many locks at once.
fn gather(nodes: &[String]) {
    let mut driver = warm_driver(nodes, Duration::ZERO);
    let mut witnesses: Vec<_> = nodes.iter().map(|node| witness(node)).collect();
    let mut report = teller();
    for batch in 0..=BATCHES {
        // The first use of the scripts sends their texts.
        let name = |what: &'static str| if batch > 0 { what } else { "first" };
        let mut answered = |driver: &mut Driver, what: &str| {
            witnesses.iter_mut().for_each(all_is_answered);
            let late = late_proofs(&driver.metrics());
            report(what);
            driver.process();
            report_late(&mut report, late, &driver.metrics());
            witnesses.iter_mut().for_each(all_is_answered);
            while driver.process_busy() {}
            report("other");
        };
        let mut report = teller();
        report(name("asks"));
        let ids = driver.batch(|driver| acquire_many(driver, None));
        report("other");
        answered(&mut driver, name("grants"));
        let granted = std::iter::from_fn(|| driver.poll_event());
        assert_eq!(granted.filter(|event| matches!(event, Event::Granted(_))).count(), LOCKS);
        report(name("extensions"));
        driver.batch(|driver| {
            ids.iter().for_each(|&id| driver.extend(id, PATIENCE).unwrap());
        });
        report("other");
        answered(&mut driver, name("answers"));
        let extended = std::iter::from_fn(|| driver.poll_event());
        assert_eq!(extended.filter(|event| matches!(event, Event::Extended(_))).count(), LOCKS);
        report(name("releases"));
        driver.batch(|driver| ids.iter().for_each(|&id| driver.release(id)));
        report("other");
        answered(&mut driver, name("confirmations"));
        let released = std::iter::from_fn(|| driver.poll_event());
        assert_eq!(released.filter(|event| matches!(event, Event::Released(..))).count(), LOCKS);
    }
}

/// The traced program: a client with many locks at once.
fn gather_blocking(nodes: &[String]) {
    let client = warm_client(nodes, Duration::ZERO);
    let mut report = teller();
    let names: Vec<String> = (0..LOCKS).map(|at| format!("job{at}")).collect();
    for _ in 0..BATCHES {
        let late = late_proofs(&client.metrics());
        report("batch");
        let requests = names.iter().map(|name| LockRequest::new(name.as_bytes()).ttl(PATIENCE));
        let guards = client.acquire_all(requests);
        report_late(&mut report, late, &client.metrics());
        assert!(guards.into_iter().all(|guard| guard.unwrap().is_valid()));
        has_received_all(&client);
    }
}

/// The traced program: a driver that auto-extends many locks, and is called at its deadline.
fn keep(nodes: &[String]) {
    let mut driver = warm_driver(nodes, Duration::ZERO);
    let every = AutoExtend::until_released().every(Duration::from_millis(60));
    let ids = driver.batch(|driver| acquire_many(driver, Some(every)));
    let mut report = teller();
    let until = Instant::now() + PATIENCE;
    let mut extended = std::collections::HashMap::new();
    while extended.len() < LOCKS || extended.values().any(|&times| times < EXTENSIONS) {
        assert!(Instant::now() < until);
        std::thread::sleep(driver.timeout().unwrap().min(Duration::from_millis(5)));
        report("turn");
        driver.process();
        report("other");
        while let Some(event) = driver.poll_event() {
            if let Event::AutoExtended(id) = event {
                *extended.entry(id).or_insert(0) += 1;
            }
        }
    }
    assert!(ids.iter().all(|&id| !driver.remaining(id).is_zero()));
}

/// Acquires this many locks, auto-extended as `keep` specifies.
fn acquire_many(driver: &mut Driver, keep: Option<AutoExtend>) -> Vec<LockId> {
    let names = (0..LOCKS).map(|at| format!("job{at}"));
    let acquire = |name: String| {
        let request = LockRequest::new(name.as_bytes()).ttl(PATIENCE);
        let request = keep.into_iter().fold(request, LockRequest::auto_extend);
        driver.acquire(request).unwrap()
    };
    names.map(acquire).collect()
}

fn warm_driver(nodes: &[String], busy_poll: Duration) -> Driver {
    let config = builder(nodes).busy_poll(busy_poll).build().unwrap();
    let mut driver = Driver::new(config).unwrap();
    let until = Instant::now() + PATIENCE;
    while driver.node_report().ready() < nodes.len() {
        assert!(Instant::now() < until, "{:?}", driver.node_report());
        driver.process();
    }
    driver
}

fn warm_client(nodes: &[String], busy_poll: Duration) -> Client {
    let client = Client::new(builder(nodes).busy_poll(busy_poll).build().unwrap()).unwrap();
    assert_eq!(client.warm_up(PATIENCE).ready(), nodes.len());
    for request in asks() {
        let _ = client.acquire(request).unwrap().release();
    }
    has_received_all(&client);
    client
}

/// Waits for all replies: nodes answer in order, so a complete inspection comes after them.
fn has_received_all(client: &Client) {
    let until = Instant::now() + PATIENCE;
    while !client.inspect(b"nobody").unwrap().nodes.iter().all(|node| node.state.is_ok()) {
        assert!(Instant::now() < until, "the nodes do not answer");
    }
}

fn witness(node: &str) -> Connection {
    match node.strip_prefix("unix://") {
        Some(path) => Connection::open_unix(Path::new(path)).unwrap(),
        None => Connection::open(node),
    }
}

/// Waits until all replies are in our socket. A server writes the replies of a loop iteration
/// before the next one, and the first PING follows the commands, so the second is answered after
/// them.
fn all_is_answered(witness: &mut Connection) {
    witness.cmd("PING");
    witness.cmd("PING");
}

/// Returns every kind of request: the restart guard is checked behind the first, and by the script
/// of the second.
fn asks() -> [LockRequest<'static>; 2] {
    let request = LockRequest::new(b"job").ttl(PATIENCE);
    [request.clone(), request.fenced()]
}

/// Returns a configuration with no timer that is due while the test runs.
fn config(nodes: &[String]) -> Config {
    builder(nodes).build().unwrap()
}

fn builder(nodes: &[String]) -> ConfigBuilder {
    let builder = Config::builder().max_ttl(PATIENCE).dead_peer_timeout(PATIENCE);
    let builder = builder.response_timeout(PATIENCE).connect_timeout(PATIENCE);
    builder.nodes(nodes)
}

/// Returns a function that marks the beginning of a phase.
fn teller() -> impl FnMut(&str) {
    let mut nowhere = OpenOptions::new().write(true).open("/dev/null").unwrap();
    move |phase| nowhere.write_all(format!("{PHASE}{phase}").as_bytes()).unwrap()
}

/// Ends a phase, and reports how many proofs were requested in it because a grant came late: those
/// in addition to `before`.
fn report_late(report: &mut impl FnMut(&str), before: u64, metrics: &MetricsReport) {
    report(&format!("{LATE}{}", late_proofs(metrics) - before));
}

fn late_proofs(report: &MetricsReport) -> u64 {
    report.metrics.nodes.iter().map(|node| node.late_proofs).sum()
}

/// Runs a test's program under strace, and judges its trace in the test itself, for each number of
/// nodes and each kind of socket.
fn in_both_roles(test: &str, program: fn(&[String]), judge: fn(&[(String, Calls)], usize)) {
    if let Ok(nodes) = env::var(NODES) {
        return program(&nodes.split(' ').map(str::to_owned).collect::<Vec<_>>());
    }
    for n in [1, 3, 5] {
        let servers = servers(n);
        let tcp = servers.iter().map(Server::address).collect::<Vec<_>>();
        redbolt::init(&config(&tcp), PATIENCE).unwrap();
        let unix =
            servers.iter().map(|server: &Server| format!("unix://{}", server.socket().display()));
        for nodes in [tcp, unix.collect()] {
            judge(&traced(test, &nodes), n);
        }
    }
}

fn traced(test: &str, nodes: &[String]) -> Vec<(String, Calls)> {
    let kind = if nodes[0].starts_with("unix:") { "unix" } else { "tcp" };
    let name = format!("{test}-{}-{kind}-{}", nodes.len(), std::process::id());
    let trace = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let outcome = Command::new("strace")
        .args(["-f", "-qq", "-e", "signal=none", "-s", "64", "-o"])
        .arg(&trace)
        .arg(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(NODES, nodes.join(" "))
        // A node that lags further than before makes the heap grow, which must not be counted, so
        // the heap starts large enough.
        .env("MALLOC_ARENA_MAX", "1")
        .env("MALLOC_TOP_PAD_", (16 << 20).to_string())
        .output();
    let output = match outcome {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            panic!("strace is missing: `apt-get install strace`")
        }
        outcome => outcome.unwrap(),
    };
    assert!(
        output.status.success(),
        "the traced program failed:\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let phases = phases(&fs::read_to_string(&trace).unwrap());
    fs::remove_file(trace).unwrap();
    phases
}

/// Splits a trace into its phases. Lines of threads other than the one that names the phases are
/// left out.
fn phases(trace: &str) -> Vec<(String, Calls)> {
    let named = trace.lines().find(|line| line.contains(PHASE)).expect("the program has phases");
    let thread = format!("{} ", named.split_whitespace().next().unwrap());
    let mut phases: Vec<(String, Calls)> = Vec::new();
    for line in trace.lines() {
        let Some(("", call)) = line.split_once(&thread) else { continue };
        if let Some((_, begun)) = call.split_once(PHASE) {
            let what = begun.split('"').next().unwrap();
            if let (Some(late), Some((_, calls))) = (what.strip_prefix(LATE), phases.last_mut()) {
                calls.late = late.parse().unwrap();
            }
            phases.push((what.to_owned(), Calls::default()));
        } else if let (Some((_, calls)), Some((name, _))) =
            (phases.last_mut(), call.trim_start().split_once('('))
            && !name.starts_with("<...")
        {
            let is_in_vain = match POLLS.contains(&name) {
                true => call.ends_with(" = 0") && !call.ends_with(", 0) = 0"),
                false => READS.contains(&name) && call.contains(" = -1 EAGAIN"),
            };
            calls.names.push(if is_in_vain { format!("{name}{IN_VAIN}") } else { name.to_owned() });
        }
    }
    phases
}

fn count(phases: &[(String, Calls)], wanted: &str) -> usize {
    phases.iter().filter(|(what, _)| what == wanted).count()
}

/// The names of a phase's system calls, in order, and the number of proofs that were requested in
/// it because a grant came late.
#[derive(Debug, Default)]
struct Calls {
    names: Vec<String>,
    late: usize,
}

impl Calls {
    fn of(&self, kinds: &[&str]) -> usize {
        let plain = |name: &'_ String| name.trim_end_matches(IN_VAIN).to_owned();
        self.names.iter().filter(|name| kinds.contains(&plain(name).as_str())).count()
    }

    /// Returns the calls without polls that a timer ended, by their timeout or by the alarm:
    /// nothing is read after them, and the next call is a poll again. On a busy machine a node
    /// seems to hang, but each node is suspected at most once. If the timer is noticed late, as on
    /// a stalled machine, the client tries to read again, which is another poll.
    fn without_what_was_in_vain(mut self, most: usize) -> Self {
        let mut left = most;
        self.names.retain(|name| !ALARMS.contains(&name.as_str()));
        let is_poll = |name: &String| POLLS.contains(&name.trim_end_matches(IN_VAIN));
        let follows = self.names.iter().skip(1).map(is_poll).chain([false]);
        let mut follows = follows.collect::<Vec<_>>().into_iter();
        self.names.retain(|name| {
            let is_in_vain = follows.next() == Some(true) && is_poll(name);
            let goes = (is_in_vain || name.ends_with(IN_VAIN)) && left > 0;
            left -= usize::from(goes);
            !goes
        });
        self
    }

    fn since_the_first_write(&self) -> Self {
        let before = self.names.iter().take_while(|name| !WRITES.contains(&name.as_str())).count();
        Self { names: self.names[before..].to_vec(), late: self.late }
    }

    /// Checks for these calls and no others, except draws of randomness and alarms, each of which
    /// lasts for many attempts. A late proof is one write, and at most one round trip.
    fn expect(&self, writes: Bounds, polls: Bounds, reads: Bounds) -> Result<(), String> {
        let writes = writes.start() + self.late..=writes.end() + self.late;
        let [polls, reads] =
            [polls, reads].map(|of| *of.start()..=of.end().saturating_add(self.late));
        for (kind, found, bounds) in [
            ("writes", self.of(&WRITES), writes),
            ("polls", self.of(&POLLS), polls),
            ("reads", self.of(&READS), reads),
        ] {
            if !bounds.contains(&found) {
                return Err(format!(
                    "{found} {kind} where {bounds:?} are due, in {:?}",
                    self.names
                ));
            }
        }
        let known = [&WRITES[..], &POLLS, &READS, &["getrandom"], &ALARMS].concat();
        match self.names.iter().find(|name| !known.contains(&name.trim_end_matches(IN_VAIN))) {
            None => Ok(()),
            Some(clock) if clock.starts_with("clock_gettime") => Err(format!(
                "{clock} is a system call on this machine: its clock source cannot be read through \
                 the vDSO (see /sys/devices/system/clocksource/clocksource0/current_clocksource)"
            )),
            Some(other) => Err(format!("unexpected {other}: {:?}", self.names)),
        }
    }
}

type Bounds = std::ops::RangeInclusive<usize>;

const WRITES: [&str; 4] = ["write", "writev", "sendto", "sendmsg"];
const POLLS: [&str; 3] = ["epoll_wait", "epoll_pwait", "epoll_pwait2"];
/// The mark of a poll or a read that found nothing.
const IN_VAIN: &str = " = 0";
const READS: [&str; 4] = ["read", "readv", "recvfrom", "recvmsg"];
/// The calls that set an alarm, which ends many sleeps instead of a timeout for each.
const ALARMS: [&str; 1] = ["timerfd_settime"];

/// A number of rounds that needs more than one draw of randomness.
const ROUNDS: usize = 100;

/// A few contacts are enough: each opens new connections.
const CONTACTS: usize = 5;

/// The number of batches, and of the locks in each, whose replies fit into one read.
const BATCHES: usize = 10;
const LOCKS: usize = 50;

/// The number of extensions of each lock.
const EXTENSIONS: usize = 8;

/// The number of polls of a client that checks for news because the machine stalled between two
/// calls.
const STALLS: usize = 20;

/// The longest spin that a configuration permits.
const BUSY: Duration = Duration::from_micros(200);

/// The number of reads in a spin; a read takes far more than a µs under strace.
const READS_IN_A_SPIN: usize = 200;

/// The number of attempts for one draw: a token takes 16 of its 1024 bytes.
const ATTEMPTS_PER_DRAW: usize = 64;

/// The environment variable that makes the test binary the traced program.
const NODES: &str = "REDBOLT_TRACED_NODES";

/// The beginning of a phase's name that reports late proofs.
const LATE: &str = "late: ";

/// The text that marks a line of the trace as a phase's name.
const PHASE: &str = "phase: ";

const PATIENCE: Duration = Duration::from_secs(60);
