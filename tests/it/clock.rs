//! Every API with clocks that a test controls: the machine suspends, its wall clock is set, or the
//! process is stopped at a bad moment. `tests/core/clock.rs` checks the consequences in the core.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use redbolt::proto::{ClockReading, Timestamp};
use redbolt::{
    AcquireError, ConfigBuilder, Engine, Event, LossCause, RefusalReason, Wait,
    log::{Log, Note},
};
use redbolt_test_servers::Server;

use crate::support::{
    LIMIT, builder, client_of, driver_of, eventually, held_by, held_on, long, outcome, patient,
    process_until, server, servers,
};

/// The time in ns by which the clocks are ahead of the machine's.
#[derive(Default)]
pub(crate) struct Ahead {
    boot: AtomicU64,
    wall: AtomicI64,
}

impl Ahead {
    fn bend(self: &Arc<Self>, builder: ConfigBuilder) -> ConfigBuilder {
        let ahead = Arc::clone(self);
        builder.bend_clock(move |now| ahead.of(now))
    }

    fn of(&self, now: ClockReading) -> ClockReading {
        let wall = now.wall.0.saturating_add_signed(self.wall.load(SeqCst));
        ClockReading { boot: Timestamp(now.boot.0 + self.boot.load(SeqCst)), wall: Timestamp(wall) }
    }

    /// Suspends the machine for an hour.
    pub(crate) fn sleep(&self) {
        self.boot.fetch_add(HOUR, SeqCst);
        self.step_forward();
    }

    /// Sets the wall clock an hour ahead.
    fn step_forward(&self) {
        self.wall.fetch_add(HOUR.cast_signed(), SeqCst);
    }
}

const HOUR: u64 = 3_600_000_000_000;

type Move = fn(&Ahead);

/// The clock changes that end every lease, each with a name for its lock.
const ENDS: [(&str, Move); 3] = [
    ("slept", Ahead::sleep),
    ("stopped", |ahead| _ = ahead.boot.fetch_add(HOUR, SeqCst)),
    ("set forward", Ahead::step_forward),
];

/// Returns a configuration for these servers with clocks that the test controls.
pub(crate) fn bent(servers: &[Server]) -> (ConfigBuilder, Arc<Ahead>) {
    let ahead = Arc::<Ahead>::default();
    (ahead.bend(builder(servers)), ahead)
}

fn engine_of(builder: ConfigBuilder) -> Engine {
    Engine::new(builder.build().unwrap()).unwrap()
}

#[test]
fn a_client_s_lock_expires_at_once_by_either_clock() {
    let servers = servers(3);
    for (what, end) in ENDS {
        let (builder, ahead) = bent(&servers);
        let client = client_of(builder);
        let lock = client.acquire(long(what.as_bytes()).wait(Wait::UpTo(LIMIT))).unwrap();
        assert!(lock.is_valid());
        end(&ahead);
        assert_eq!(lock.remaining(), Duration::ZERO, "{what}");
        assert_eq!(lock.release().map_err(|lost| lost.cause()), Err(LossCause::Expired), "{what}");
    }
    eventually("the undo reaches the nodes, whose clocks went on", || {
        held_on(&servers, "set forward") == 0
    });
}

#[test]
fn a_driver_s_lock_expires_at_once_by_either_clock() {
    let servers = servers(3);
    for (what, end) in ENDS {
        let (builder, ahead) = bent(&servers);
        let mut driver = driver_of(builder);
        let id = held_by(&mut driver, long(what.as_bytes()).wait(Wait::UpTo(LIMIT)));
        assert!(!driver.remaining(id).is_zero());
        end(&ahead);
        assert_eq!(driver.remaining(id), Duration::ZERO, "{what}");
        driver.release(id);
        assert_eq!(outcome(&mut driver, id), Event::Lost(id, LossCause::Expired), "{what}");
    }
    eventually("the undo reaches the nodes, whose clocks went on", || {
        held_on(&servers, "set forward") == 0
    });
}

#[test]
fn an_engine_s_lock_expires_at_once_by_either_clock() {
    let servers = servers(3);
    for (what, end) in ENDS {
        let (builder, ahead) = bent(&servers);
        let engine = engine_of(builder);
        let guard = engine.acquire(long(what.as_bytes()).wait(LIMIT)).wait().unwrap();
        assert!(guard.is_valid());
        end(&ahead);
        // This holds whether or not the engine's thread has noticed.
        assert_eq!(guard.remaining(), Duration::ZERO, "{what}");
        assert_eq!(
            guard.release().wait().map_err(|lost| lost.cause()),
            Err(LossCause::Expired),
            "{what}"
        );
    }
    eventually("the undo reaches the nodes, whose clocks went on", || {
        held_on(&servers, "set forward") == 0
    });
}

#[test]
fn a_wall_clock_set_back_prolongs_no_lease() {
    let servers = servers(3);
    let (builder, ahead) = bent(&servers);
    let (client, mut driver) = (client_of(builder.clone()), driver_of(builder.clone()));
    let engine = engine_of(builder);
    let lock = client.acquire(long(b"a").wait(Wait::UpTo(LIMIT))).unwrap();
    let id = held_by(&mut driver, long(b"b").wait(Wait::UpTo(LIMIT)));
    let guard = engine.acquire(long(b"c").wait(LIMIT)).wait().unwrap();
    let before = [lock.remaining(), driver.remaining(id), guard.remaining()];
    ahead.wall.fetch_sub(HOUR.cast_signed(), SeqCst);
    for (after, before) in
        [lock.remaining(), driver.remaining(id), guard.remaining()].into_iter().zip(before)
    {
        assert!(!after.is_zero() && after <= before, "{after:?} after {before:?}");
    }
}

/// The host sleeps until a driver's deadline, and a suspend passes that deadline.
#[test]
fn deadlines_that_pass_in_a_suspend_are_due_at_once() {
    let server = server();
    let (builder, ahead) = bent(std::slice::from_ref(&server));
    let mut driver = driver_of(builder);
    let id = held_by(&mut driver, long(b"job").wait(Wait::UpTo(LIMIT)));
    ahead.sleep();
    assert_eq!(driver.timeout(), Some(Duration::ZERO));
    driver.process();
    let mut reported = std::iter::from_fn(|| driver.poll_event());
    assert!(reported.any(|event| event == Event::Lost(id, LossCause::Expired)));
}

/// A log that ends every lease at the moment of its grant, before the caller can check it.
struct StepsWhenGranted(Arc<Ahead>);

impl Log for StepsWhenGranted {
    fn note(&self, note: &Note<'_>) {
        if matches!(note, Note::Granted { .. }) {
            self.0.step_forward();
        }
    }
}

fn is_too_late<T: std::fmt::Debug>(outcome: Result<T, AcquireError>) {
    match outcome {
        Err(AcquireError::Refused(report)) => {
            assert_eq!(report.reason(), RefusalReason::Expired, "{report}")
        }
        other => panic!("the lock should have expired: {other:?}"),
    }
}

/// The process is stopped after the deciding answer.
#[test]
fn a_lock_that_expires_before_its_caller_gets_it_is_refused() {
    let servers = servers(3);
    let (builder, ahead) = bent(&servers);
    let builder = builder.log(Arc::new(StepsWhenGranted(ahead)));
    let client = client_of(builder.clone());
    is_too_late(client.acquire(long(b"job").wait(Wait::UpTo(LIMIT))));
    for outcome in client.acquire_all([long(b"a"), long(b"b")]) {
        is_too_late(outcome);
    }
    let engine = engine_of(builder);
    is_too_late(engine.acquire(long(b"other").wait(LIMIT)).wait());
    drop((client, engine));
    eventually("no key is left", || {
        ["job", "a", "b", "other"].iter().all(|key| held_on(&servers, key) == 0)
    });
}

/// The time before an answer is read counts against the lease. Here, more than the TTL passes after
/// one reading of the clock, and the answer arrives during it: whichever reading that is, the lock
/// has expired.
#[test]
fn an_answer_is_timed_after_it_was_read() {
    let server = server();
    let relay = Relay::before(&server);
    const PASSED: u64 = 2_500_000_000;
    for chosen in 1..=12 {
        let readings = Arc::new(AtomicUsize::new(usize::MAX / 2));
        let (counted, held) = (Arc::clone(&readings), Arc::clone(&relay.held));
        let bend = move |now: ClockReading| {
            let reading = counted.fetch_add(1, SeqCst);
            if reading == chosen {
                held.release();
            }
            let passed = if (chosen + 1..usize::MAX / 2).contains(&reading) { PASSED } else { 0 };
            ClockReading {
                boot: Timestamp(now.boot.0 + passed),
                wall: Timestamp(now.wall.0 + passed),
            }
        };
        let busy = Duration::from_micros(200);
        let mut driver = driver_of(patient([relay.address()]).busy_poll(busy).bend_clock(bend));
        process_until(&mut driver, "the node is ready", |driver| driver.node_report().ready() == 1);
        relay.held.hold();
        let key = [b"job ", &[b'a' + chosen as u8][..]].concat();
        let id = driver.acquire(long(&key).ttl(Duration::from_secs(1))).unwrap();
        // A proof that the node was not a replica meanwhile may follow.
        eventually("the grant and its answer are in flight", || relay.held.answers() >= 2);
        readings.store(1, SeqCst);
        let mut reported = None;
        process_until(&mut driver, "an outcome", |driver| {
            while let Some(event) = driver.poll_event() {
                reported =
                    reported.or_else(|| Some(event).filter(|e| !matches!(e, Event::Node(..))));
            }
            driver.process_busy();
            reported.is_some()
        });
        assert!(
            matches!(reported, Some(Event::Refused(of, _)) if of == id),
            "{chosen}: {reported:?}"
        );
    }
}

/// A Unix socket in front of a server, which forwards everything except held answers.
struct Relay {
    held: Arc<Held>,
    path: PathBuf,
}

/// The held answers to the client that connected last.
#[derive(Default)]
struct Held(Mutex<Answers>);

#[derive(Default)]
struct Answers {
    is_holding: bool,
    bytes: Vec<u8>,
    client: Option<UnixStream>,
}

impl Held {
    fn hold(&self) {
        self.0.lock().unwrap().is_holding = true;
    }

    /// Returns the number of lines that are held.
    fn answers(&self) -> usize {
        self.0.lock().unwrap().bytes.iter().filter(|&&byte| byte == b'\n').count()
    }

    fn release(&self) {
        let mut answers = self.0.lock().unwrap();
        answers.is_holding = false;
        let bytes = std::mem::take(&mut answers.bytes);
        answers.client.as_mut().unwrap().write_all(&bytes).unwrap();
    }

    fn pass(&self, bytes: &[u8]) {
        let mut answers = self.0.lock().unwrap();
        if answers.is_holding {
            answers.bytes.extend_from_slice(bytes);
        } else if let Some(client) = &mut answers.client {
            // The client may have disconnected.
            let _ = client.write_all(bytes);
        }
    }
}

impl Relay {
    fn before(server: &Server) -> Self {
        let relay =
            Self { held: Arc::default(), path: server.socket().with_file_name("relay.sock") };
        let listener = UnixListener::bind(&relay.path).unwrap();
        let (held, target) = (Arc::clone(&relay.held), server.address());
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), TcpStream::connect(&target).unwrap());
                held.0.lock().unwrap().client = Some(client.try_clone().unwrap());
                relay_both(client, server, &held);
            }
        });
        relay
    }

    fn address(&self) -> String {
        format!("unix://{}", self.path.display())
    }
}

fn relay_both(mut client: UnixStream, mut server: TcpStream, held: &Arc<Held>) {
    let (mut down, held) = (server.try_clone().unwrap(), Arc::clone(held));
    thread::spawn(move || {
        let mut space = [0; 4096];
        while let Ok(bytes @ 1..) = down.read(&mut space) {
            held.pass(&space[..bytes]);
        }
    });
    thread::spawn(move || {
        let _ = std::io::copy(&mut client, &mut server);
        let _ = server.shutdown(std::net::Shutdown::Both);
    });
}

/// `CLOCK_MONOTONIC` stops while the machine sleeps. A time namespace can offset the boot clock
/// alone, as if the machine had slept longer.
#[cfg(target_os = "linux")]
#[test]
fn the_boot_clock_counts_the_machine_s_sleep() {
    let ran = Command::new("unshare")
        .args(["--map-root-user", "--time", "--boottime", "1000000"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", "clock::boot_clock_of_a_machine_that_slept"])
        .env(AWAKE, redbolt::net::now().boot.0.to_string())
        .output()
        .expect("util-linux has unshare");
    let replied =
        [ran.stdout, ran.stderr].map(|replied| String::from_utf8_lossy(&replied).into_owned());
    assert!(ran.status.success(), "{}\n{}", replied[0], replied[1]);
    assert!(replied[0].contains("1 passed"), "{}", replied[0]);
}

#[cfg(target_os = "linux")]
#[test]
#[ignore = "the process of the_boot_clock_counts_the_machine_s_sleep"]
fn boot_clock_of_a_machine_that_slept() {
    let Ok(awake) = std::env::var(AWAKE) else { return };
    let slept = redbolt::net::now().boot.0 - awake.parse::<u64>().unwrap();
    assert!(slept >= 1_000_000_000_000_000, "{slept} ns");
}

/// The boot clock outside the namespace.
#[cfg(target_os = "linux")]
const AWAKE: &str = "REDBOLT_TEST_AWAKE_NS";
