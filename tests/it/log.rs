//! Which events and fields a log gets, and which secrets it never gets.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::{Duration, SystemTime};

use redbolt::{
    ConfigBuilder, LockRequest,
    config::RestartGuard,
    log::{Level, Log, Note},
};
use redbolt_node::model::ClockReading;
use redbolt_test_servers::{Act, Impostor, Reply, Server};
use redbolt_testkit::Peer;

use crate::engine::engine_of;
use crate::support::{
    LIMIT, builder, client_of, driver_of, eventually, held_by, long, outcome, patient, patiently,
    process_until, refusal, server, servers, vouch_for, vouched,
};

/// A log that keeps all notes.
#[derive(Default)]
struct Heard(Mutex<Vec<Line>>);

#[derive(Clone, Debug)]
struct Line {
    level: Level,
    text: String,
    debug: String,
    thread: ThreadId,
}

impl Log for Heard {
    fn note(&self, note: &Note<'_>) {
        let (level, text, debug) = (note.level(), note.to_string(), format!("{note:?}"));
        self.0.lock().unwrap().push(Line { level, text, debug, thread: thread::current().id() });
    }
}

impl Heard {
    fn with(builder: ConfigBuilder) -> (Arc<Self>, ConfigBuilder) {
        let received = Arc::new(Self::default());
        (Arc::clone(&received), builder.log(received))
    }

    fn lines(&self) -> Vec<Line> {
        self.0.lock().unwrap().clone()
    }

    /// Returns the lines with this beginning.
    fn of(&self, beginning: &str) -> Vec<Line> {
        let lines = self.lines().into_iter();
        lines.filter(|line| line.text.starts_with(beginning)).collect()
    }
}

#[test]
fn the_life_of_locks() {
    let servers = servers(3);
    let (received, builder) = Heard::with(builder(&servers));
    let client = client_of(builder);
    assert_eq!(client.warm_up(LIMIT).ready(), 3);
    let mut lock = client.acquire(patiently(b"job")).unwrap();
    lock.extend(Duration::from_secs(20)).unwrap();
    assert!(refusal(client.acquire(long(b"job"))).is_contended());
    assert!(lock.release().is_ok());
    let locks: Vec<_> =
        received.of("lock").into_iter().map(|line| (line.level, line.text)).collect();
    let beginnings = [
        "lock granted: job",
        "lock extended: job",
        "lock refused: job: held",
        "lock released: job, ",
    ];
    assert_eq!(locks.len(), beginnings.len(), "{locks:?}");
    for ((level, text), beginning) in locks.iter().zip(beginnings) {
        assert!(text.starts_with(beginning) && *level == Level::Debug, "{level:?} {text}");
    }
    let here = thread::current().id();
    assert!(received.lines().iter().all(|line| line.thread == here));
    let ready = received.of("node 1 ");
    assert_eq!(ready.len(), 1, "{ready:?}");
    assert_eq!(ready[0].level, Level::Info);
    assert_eq!(ready[0].text, format!("node 1 {}: ready", servers[0].address()));
}

#[test]
fn a_lock_that_is_lost() {
    let servers = servers(1);
    let (received, builder) = Heard::with(builder(&servers));
    let mut driver = driver_of(builder);
    let id = held_by(&mut driver, patiently(b"job").ttl(Duration::from_millis(100)));
    outcome(&mut driver, id);
    let lost = received.of("lock lost");
    assert_eq!(lost.len(), 1);
    assert_eq!(
        (lost[0].level, &lost[0].text[..]),
        (Level::Error, "lock lost: job: its validity ended")
    );
}

/// Further attempts to reconnect are not logged.
#[test]
fn a_node_that_goes_down_and_comes_back_is_logged_once_each() {
    let mut servers = servers(3);
    let (received, builder) = Heard::with(builder(&servers));
    let mut driver = driver_of(builder);
    let drained = |driver: &mut redbolt::Driver| while driver.poll_event().is_some() {};
    process_until(&mut driver, "all nodes are ready", |driver| {
        drained(driver);
        driver.node_report().ready() == 3
    });
    servers[2].kill();
    let failures = |driver: &redbolt::Driver| driver.metrics().metrics.nodes[2].link_failures;
    process_until(&mut driver, "reconnecting was tried a few times", |driver| {
        drained(driver);
        failures(driver).total() >= 5
    });
    servers[2].restart();
    vouch_for(&servers[2..], 3);
    process_until(&mut driver, "the node is back", |driver| {
        drained(driver);
        driver.node_report().ready() == 3
    });
    drained(&mut driver);
    let reported: Vec<_> =
        received.of("node 3 ").into_iter().map(|line| (line.level, line.text)).collect();
    // A quarantine may come in between, if the client is faster than the test's set-up of the
    // server.
    assert!(reported.len() <= 5, "{reported:?}");
    let downs = reported
        .iter()
        .filter(|(level, text)| *level == Level::Warning && text.ends_with("connection refused"));
    assert_eq!(downs.count(), 1, "{reported:?}");
    let (level, text) = reported.last().unwrap();
    assert!(*level == Level::Info && text.contains("ready, reconnected ("), "{reported:?}");
}

#[test]
fn nodes_that_do_not_vote() {
    let new = Server::start();
    let (received, config) = Heard::with(builder(std::slice::from_ref(&new)));
    let client = client_of(config);
    let _ = refusal(client.acquire(long(b"job")));
    let reported = received.of("node 1 ");
    assert!(
        reported[0].text.contains("quarantined") && reported[0].level == Level::Warning,
        "{reported:?}"
    );
    let refused = received.of("lock refused: job: no quorum");
    assert_eq!((refused.len(), refused[0].level), (1, Level::Warning));

    let other = vouched(Server::start());
    let config = builder(std::slice::from_ref(&other)).max_ttl(LIMIT);
    let (received, config) = Heard::with(config);
    let _ = refusal(client_of(config).acquire(LockRequest::new(b"job").ttl(LIMIT / 2)));
    let reported = received.of("node 1 ");
    assert!(
        reported[0].text.contains("set up for") && reported[0].level == Level::Error,
        "{reported:?}"
    );
}

/// The attempt is repeated without an event for the caller, so only the log shows it.
#[test]
fn a_clock_that_is_wrong() {
    let address = node_with_a_clock_ahead(Duration::from_secs(600));
    let (received, config) = Heard::with(patient([address]).new_nodes());
    let client = client_of(config);
    assert!(client.acquire(patiently(b"job").fenced()).unwrap().fencing_token().is_some());
    let reported = received.of("node 1 ").into_iter().find(|line| line.text.contains("clock"));
    let reported = reported.unwrap_or_else(|| panic!("{:?}", received.lines()));
    assert_eq!(reported.level, Level::Warning);
    let words = ["its clock is too far from ours (", "s ahead of the proposed fencing token)"];
    assert!(words.iter().all(|words| reported.text.contains(words)), "{}", reported.text);
    assert_eq!(
        received.of("node 1 ").len(),
        2,
        "two notes: the wrong clock once, and that the node is ready"
    );
}

/// Starts a node whose clock is wrong on one connection.
fn node_with_a_clock_ahead(ahead: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let clock = move || {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap() + ahead;
        ClockReading::from_micros(now.as_micros() as u64)
    };
    thread::spawn(move || {
        let mut node = Peer::new(7, clock());
        let mut socket = listener.accept().unwrap().0;
        let mut read = [0; 4096];
        while let Ok(length @ 1..) = socket.read(&mut read) {
            node.receive(&read[..length]);
            socket.write_all(node.answer(clock())).unwrap();
        }
    });
    address
}

#[test]
fn no_note_contains_a_password_or_a_token() {
    const PASSWORD: &str = "s3same-open";
    let mut all = Vec::new();
    let mut secrets = vec![PASSWORD.to_owned(), "ann-oracle".to_owned()];

    // All servers have a password, and the last one a different one.
    let servers: Vec<_> = [PASSWORD, PASSWORD, "another"]
        .iter()
        .map(|password| Server::with(&["--requirepass", password]))
        .collect();
    let addresses = servers.iter().map(|s| format!("redis://:{PASSWORD}@{}", s.address()));
    let config = patient(addresses).label(b"web-1").new_nodes().restart_guard(RestartGuard::Off);
    let (received, config) = Heard::with(config);
    let client = client_of(config);
    let mut lock = client.acquire(patiently(b"job")).unwrap();
    let mut connection = servers[0].connect();
    connection.cmd(&format!("AUTH {PASSWORD}"));
    let Reply::Bulk(token) = connection.cmd("GET job") else { panic!("no token") };
    let token = String::from_utf8(token).unwrap();
    assert!(token.ends_with(":web-1"), "{token}");
    secrets.push(token[..32].to_owned());
    lock.extend(Duration::from_secs(10)).unwrap();
    let _ = refusal(client.acquire(long(b"job")));
    let _ = lock.release();
    eventually("the third is refused", || {
        let _ = client.inspect(b"job");
        received.of("node 3 ").first().is_some_and(|line| line.text.contains("WRONGPASS"))
    });
    all.extend(received.lines());

    // This server echoes its arguments in an error: the user's name, and a token.
    let echo = Server::with(&["--rename-command", "SET", "NOSET"]);
    let (received, config) =
        Heard::with(builder(std::slice::from_ref(&echo)).restart_guard(RestartGuard::Off));
    let client = client_of(config);
    let report = refusal(client.acquire(long(b"job")));
    assert!(report.to_string().contains("unknown command"), "{report}");
    drop(client);
    all.extend(received.lines());
    let (received, config) =
        Heard::with(patient([format!("redis://ann-oracle:{PASSWORD}@{}", echo.address())]));
    let _ = refusal(client_of(config).acquire(long(b"job")));
    all.extend(received.lines());

    assert!(all.len() > 8, "{all:?}");
    for shown in all.iter().flat_map(|line| [&line.text, &line.debug]) {
        for secret in &secrets {
            assert!(!shown.contains(secret), "{secret}: {shown}");
        }
        // No part of any token is logged either, whether the test knows that token or not.
        let digits = shown.split(|c: char| !c.is_ascii_hexdigit()).map(str::len).max();
        assert!(digits < Some(12), "{shown}");
    }
}

/// The caller gets the panic, and its locks keep working.
#[test]
fn a_panic_in_the_log_reaches_the_caller() {
    struct Fragile;
    impl Log for Fragile {
        fn note(&self, note: &Note<'_>) {
            assert!(!matches!(note, Note::Refused { .. }), "the log panics at refusals");
        }
    }
    let servers = servers(1);
    let client = client_of(builder(&servers).log(Arc::new(Fragile)));
    let lock = client.acquire(patiently(b"job")).unwrap();
    let refused = catch_unwind(AssertUnwindSafe(|| client.acquire(long(b"job")).is_err()));
    assert!(refused.is_err());
    assert!(lock.is_valid());
    assert!(lock.release().is_ok());
    assert!(client.acquire(patiently(b"job")).unwrap().release().is_ok());
}

#[test]
fn a_panic_in_the_log_on_an_engine_s_thread_is_counted() {
    struct Broken;
    impl Log for Broken {
        fn note(&self, note: &Note<'_>) {
            panic!("not ready for {note}");
        }
    }
    let servers = servers(1);
    let engine = engine_of(builder(&servers).log(Arc::new(Broken)));
    for _ in 0..3 {
        let lock = engine.acquire(patiently(b"job")).wait().unwrap();
        assert!(lock.release().wait().is_ok());
    }
    assert!(engine.panics() >= 3, "{}", engine.panics());
}

#[test]
fn a_node_that_cannot_notify_waiters_is_logged() {
    let server = vouched(Server::start());
    server.cmd("ACL SETUSER default -client|tracking");
    let servers = std::slice::from_ref(&server);
    let (received, config) = Heard::with(builder(servers));
    let mut driver = driver_of(config);
    let holder = client_of(builder(servers));
    let held = holder.acquire(patiently(b"job")).unwrap();
    let id = driver.acquire(patiently(b"job")).unwrap();
    let text = format!("node 1 {}: waiters are not told: NOPERM", server.address());
    process_until(&mut driver, "the note is logged", |driver| {
        while driver.poll_event().is_some() {}
        !received.of(&text).is_empty()
    });
    assert_eq!(received.of(&text)[0].level, Level::Warning);
    drop(held);
    outcome(&mut driver, id);
    assert_eq!(received.of(&text).len(), 1);
}

#[test]
fn a_config_with_a_log_can_be_printed() {
    let (_, config) = Heard::with(redbolt::Config::builder().node("127.0.0.1:1"));
    assert!(format!("{:?}", config.build().unwrap()).contains("Logger(..)"));
}

/// A sentinel reports the master, and then one whose name would clear the terminal of a reader of
/// the log.
#[test]
fn a_master_named_by_a_sentinel_cannot_clear_the_terminal() {
    let server = server();
    let news = "jobs 127.0.0.1 1 a\x1b[2J\u{9b}\u{202e}z 2";
    let place = format!(
        "*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{}",
        server.port().to_string().len(),
        server.port()
    );
    let reported =
        format!("*3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n${}\r\n{news}", news.len());
    let sentinel = Impostor::start(Act::Always(format!("{place}\r\n{reported}")));
    let address = format!("redis+sentinel://{}/jobs", sentinel.address());
    let (received, builder) = Heard::with(patient([address]));
    let client = client_of(builder);
    eventually("it names another", || {
        let report = client.warm_up(LIMIT / 100).to_string();
        assert!(!report.contains(['\x1b', '\u{9b}', '\u{202e}']), "{report:?}");
        report.contains("name another master: a\\u{1b}[2J")
    });
    for line in received.lines() {
        assert!(!line.text.contains(['\x1b', '\u{9b}', '\u{202e}']), "{line:?}");
    }
}
