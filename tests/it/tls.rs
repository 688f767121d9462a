//! Locks over TLS: servers with every kind of certificate, and networks that break at every byte.
//!
//! The scenarios, which each API also runs over TLS, show that TLS changes nothing else.

use std::collections::HashSet;
use std::env;
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redbolt::log::{Log, Note};
use redbolt::{
    AutoExtend, Client, Config, ConfigBuilder, Event, LockRequest, RefusalReport, Wait, report,
};
use redbolt_test_servers::{Act, Authority, Identity, Impostor, Mode, Proxy, Reply, Server};

use crate::engine::engine_of;
use crate::support::{
    LIMIT, PATIENCE, client_of, driver_of, eventually, held_on, long, patient, patiently,
    process_until, refusal, servers, vouch_for, vouched,
};

/// Starts a server that votes for any client that may connect.
fn server(authority: &Arc<Authority>, identity: Identity, args: &[&str]) -> Server {
    vouched(Server::over_tls(authority, identity, args))
}

fn trusting(authority: &Authority, address: &str) -> ConfigBuilder {
    patient([address]).tls_ca(authority.ca())
}

fn is_granted(client: &Client) {
    let lock = client.acquire(patiently(b"job")).unwrap();
    assert!(lock.release().is_ok());
}

fn refused(client: &Client) -> RefusalReport {
    refusal(client.acquire(long(b"job")))
}

/// Returns the text of a refusal about the only node.
fn words(builder: ConfigBuilder) -> String {
    let report = refused(&client_of(builder));
    let text = report.to_string();
    let (_, words) = text.split_once("node 1 ").unwrap_or_else(|| panic!("{text}"));
    words.split_once(": ").unwrap().1.to_owned()
}

#[test]
fn every_version_and_form_of_address() {
    let authority = Arc::new(Authority::new());
    for version in ["TLSv1.2", "TLSv1.3"] {
        let server = server(&authority, authority.server(), &["--tls-protocols", version]);
        for host in ["rediss://127.0.0.1", "valkeys://localhost"] {
            let address = format!("{host}:{}", server.tls_port());
            is_granted(&client_of(trusting(&authority, &address)));
        }
    }
}

#[test]
fn a_password_and_a_database_work_over_tls() {
    let authority = Arc::new(Authority::new());
    let server = Server::over_tls(&authority, authority.server(), &["--requirepass", "s3cret"]);
    let address = format!("rediss://:s3cret@127.0.0.1:{}/3", server.tls_port());
    let client = client_of(trusting(&authority, &address).new_nodes());
    let lock = client.acquire(patiently(b"job")).unwrap();
    let mut connection = server.connect();
    connection.cmd("AUTH s3cret");
    connection.cmd("SELECT 3");
    assert_eq!(connection.cmd("EXISTS job"), Reply::Int(1));
    drop(lock);
}

#[test]
fn a_rejected_certificate_is_reported_with_the_reason() {
    let authority = Arc::new(Authority::new());
    let not_accepted = "the server's certificate is not accepted";
    let server = |identity| server(&authority, identity, &[]);

    let expired = server(authority.expired());
    let reported = words(trusting(&authority, &expired.tls_address()));
    assert!(reported.starts_with(&format!("{not_accepted} (it expired ")), "{reported}");
    assert!(reported.ends_with(" days ago)"), "{reported}");

    let early = server(authority.not_yet_valid());
    let reported = words(trusting(&authority, &early.tls_address()));
    assert!(reported.starts_with(&format!("{not_accepted} (it is not valid yet")), "{reported}");

    let elsewhere = server(authority.server_named("redis.example"));
    let reported = words(trusting(&authority, &elsewhere.tls_address()));
    let wrong = "it is for redis.example, not for 127.0.0.1";
    assert_eq!(reported, format!("{not_accepted} ({wrong})"));
    let named = trusting(&authority, &elsewhere.tls_address()).tls_server_name("redis.example");
    is_granted(&client_of(named));

    let good = server(authority.server());
    let unknown = format!("{not_accepted} (its issuer is not trusted: name the file with its CA)");
    let other = Authority::new();
    // Both have the same name, and only one the key.
    let reported = words(trusting(&other, &good.tls_address()));
    assert!(reported.contains("it is not signed by its issuer"), "{reported}");
    let stranger = Authority::named("somebody else");
    assert_eq!(words(trusting(&stranger, &good.tls_address())), unknown);
    let client = authority.client();
    let reported = words(patient([good.tls_address()]).tls_ca(client.certificate));
    assert_eq!(reported, unknown);
}

/// The system's certificates come from an environment variable, so this needs a separate process.
#[test]
fn the_system_s_certificates_are_trusted_if_no_file_is_given() {
    let authority = Arc::new(Authority::new());
    let server = server(&authority, authority.server(), &[]);
    let reported = |trusted: &Authority| {
        let outcome = Command::new(env::current_exe().unwrap())
            .args(["--exact", "--ignored", "--nocapture", "tls::system_process"])
            .env(NODE, server.tls_address())
            .env("SSL_CERT_FILE", trusted.ca())
            .env_remove("SSL_CERT_DIR")
            .output()
            .unwrap();
        let replied = format!("{outcome:?}");
        assert!(outcome.status.success() && replied.contains("1 passed"), "{replied}");
        replied
    };
    assert!(reported(&authority).contains("it was granted"));
    let other = reported(&Authority::named("somebody else"));
    assert!(other.contains("its issuer is not trusted"), "{other}");
}

#[test]
#[ignore = "one of the processes of the_system_s_certificates_are_trusted_if_no_file_is_given"]
fn system_process() {
    let Ok(address) = env::var(NODE) else { return };
    match client_of(patient([address])).acquire(long(b"job")) {
        Ok(_) => println!("it was granted"),
        Err(error) => println!("{error}"),
    }
}

const NODE: &str = "REDBOLT_TEST_NODE_OF_SYSTEM";

#[test]
fn only_a_switch_called_danger_accepts_any_certificate() {
    let authority = Arc::new(Authority::new());
    let server = server(&authority, authority.expired(), &[]);
    let other = Authority::named("somebody else");
    let reported = words(trusting(&other, &server.tls_address()));
    assert!(reported.contains("not accepted"), "{reported}");
    is_granted(&client_of(patient([server.tls_address()]).danger_accept_any_certificate()));
}

#[test]
fn a_server_that_requires_a_client_certificate_gets_it_or_is_named() {
    let authority = Arc::new(Authority::new());
    let ours = authority.client();
    let stranger = Authority::named("somebody else");
    let theirs = stranger.client();
    for version in ["TLSv1.2", "TLSv1.3"] {
        let args = ["--tls-protocols", version, "--tls-auth-clients", "yes"];
        let server = server(&authority, authority.server(), &args);
        let address = server.tls_address();
        let reported = words(trusting(&authority, &address));
        assert!(reported.starts_with("the server refuses TLS with us ("), "{reported}");
        assert!(reported.contains("it wants a client certificate"), "{version}: {reported}");

        let known = trusting(&authority, &address).tls_cert(&ours.certificate).tls_key(&ours.key);
        is_granted(&client_of(known));

        let unknown =
            trusting(&authority, &address).tls_cert(&theirs.certificate).tls_key(&theirs.key);
        let reported = words(unknown);
        assert!(
            reported.contains("does not trust the issuer of our client certificate"),
            "{reported}"
        );
    }
}

#[test]
fn a_tls_port_and_a_plain_port_mixed_up_are_named() {
    let authority = Arc::new(Authority::new());
    let server = server(&authority, authority.server(), &[]);
    // A Redis server waits for the end of what looks like a line.
    let reported = words(trusting(&authority, &format!("rediss://{}", server.address())));
    assert_eq!(reported, format!("no connection in {PATIENCE:?} ({NOT_ANSWERED})"));
    let reported = words(patient([format!("127.0.0.1:{}", server.tls_port())]));
    let closed = reported.starts_with("connection ") && reported.ends_with("TLS only does that)");
    assert!(closed || reported == "the port expects TLS (rediss://)", "{reported}");

    for act in [Act::Http, Act::Garbage, Act::Denied] {
        let impostor = Impostor::start(act.clone());
        let reported = words(trusting(&authority, &format!("rediss://{}", impostor.address())));
        assert_eq!(reported, "the port does not speak TLS (redis:// is without)", "{act:?}");
    }
    let impostor = Impostor::start(Act::Close);
    let reported = words(trusting(&authority, &format!("rediss://{}", impostor.address())));
    assert!(reported.starts_with("connection "), "{reported}");
    let impostor = Impostor::start(Act::Tls);
    let reported = words(trusting(&authority, &format!("rediss://{}", impostor.address())));
    assert!(reported.contains("no version of TLS in common"), "{reported}");
}

const NOT_ANSWERED: &str = "connected, but TLS is not answered; a port without TLS does that";

#[test]
fn a_handshake_that_does_not_end_is_given_up() {
    let authority = Authority::new();
    let impostor = Impostor::start(Act::Silent);
    let address = format!("rediss://{}", impostor.address());
    let builder = trusting(&authority, &address).connect_timeout(Duration::from_millis(300));
    let reported = words(builder);
    assert_eq!(reported, format!("no connection in 300ms ({NOT_ANSWERED})"));
}

/// The kernel has taken half of the last request, and no later write follows it.
#[cfg(target_os = "linux")]
#[test]
fn bytes_that_the_kernel_does_not_take_are_sent_later() {
    let authority = Arc::new(Authority::new());
    let server = server(&authority, authority.server(), &[]);
    let proxy = Proxy::narrow_before(&format!("127.0.0.1:{}", server.tls_port()));
    let builder = trusting(&authority, &format!("rediss://{}", proxy.address()));
    let mut driver = driver_of(builder.response_timeout(4 * LIMIT).dead_peer_timeout(8 * LIMIT));
    process_until(&mut driver, "the node votes", |driver| driver.node_report().ready() == 1);
    proxy.set(Mode::Stall);
    let port = proxy.address().rsplit(':').next().unwrap().parse().unwrap();
    let (mut asked, mut queued) = (0, 0);
    let last = loop {
        let name = format!("{asked:0LARGE$}");
        let id = driver.acquire(long(name.as_bytes())).unwrap();
        asked += 1;
        let before = std::mem::replace(&mut queued, in_the_kernel(port));
        if queued < before + LARGE {
            break id;
        }
        assert!(asked < 1_000, "the kernel takes it all");
    };
    proxy.set(Mode::Pass);
    process_until(&mut driver, "the last one is granted", |driver| {
        std::iter::from_fn(|| driver.poll_event()).any(|event| event == Event::Granted(last))
    });
}

#[cfg(target_os = "linux")]
const LARGE: usize = 60_000;

/// Returns the number of bytes in the queues of connections to this port, sent or not, once that
/// has settled.
#[cfg(target_os = "linux")]
fn in_the_kernel(port: u16) -> usize {
    let port = format!(":{port:04X}");
    let count = || {
        let table = fs::read_to_string("/proc/self/net/tcp").unwrap();
        // The table has all connections of the machine.
        let ours = table.lines().filter(|line| line.contains(&port));
        let queues = ours.map(|line| {
            let cells: Vec<_> = line.split_whitespace().collect();
            let (sent, received) = cells[4].split_once(':').unwrap();
            let bytes = |hex| usize::from_str_radix(hex, 16).unwrap();
            match (cells[2].ends_with(&port), cells[1].ends_with(&port)) {
                (true, _) => bytes(sent),
                // A listener's queue counts connections, not bytes.
                (_, true) if cells[3] != "0A" => bytes(received),
                _ => 0,
            }
        });
        queues.sum::<usize>()
    };
    let mut last = count();
    eventually("the queues have settled", || {
        std::thread::sleep(Duration::from_millis(2));
        last == std::mem::replace(&mut last, count())
    });
    last
}

/// Each answer is a separate record, and together they exceed one read.
#[test]
fn many_records_that_came_at_once_are_all_read() {
    let authority = Arc::new(Authority::new());
    let server = server(&authority, authority.server(), &[]);
    let builder = trusting(&authority, &server.tls_address());
    let mut driver = driver_of(builder.response_timeout(LIMIT).dead_peer_timeout(2 * LIMIT));
    process_until(&mut driver, "the node votes", |driver| driver.node_report().ready() == 1);
    let mut connection = server.connect();
    let mut open = HashSet::new();
    for at in 0..300 {
        let name = format!("job {at}");
        open.insert(driver.acquire(long(name.as_bytes())).unwrap());
        eventually("the node has answered", || {
            connection.run(&[b"EXISTS", name.as_bytes()]) == Reply::Int(1)
        });
    }
    process_until(&mut driver, "all are granted", |driver| {
        while let Some(event) = driver.poll_event() {
            if let Event::Granted(id) = event {
                open.remove(&id);
            }
        }
        open.is_empty()
    });
}

/// Each byte is once the last one, in each direction. Nothing hangs, nothing is granted, and the
/// next connection works.
#[test]
fn a_handshake_is_cut_at_every_byte() {
    let authority = Arc::new(Authority::new());
    let server = server(&authority, authority.server(), &[]);
    let proxy = Proxy::before(&format!("127.0.0.1:{}", server.tls_port()));
    let address = format!("rediss://{}", proxy.address());
    let quick = Duration::from_millis(1);
    let builder = trusting(&authority, &address).reconnect_backoff(quick, 5 * quick);
    let is_cut = |mode: Mode| {
        proxy.set(mode);
        let client = client_of(builder.clone());
        let report = refused(&client);
        let vote = report.node_votes()[0].vote;
        let is_end = |cause| {
            matches!(cause, report::Cause::ConnectionClosed | report::Cause::ConnectionReset)
        };
        assert!(
            matches!(vote, Some(report::Vote::Fail(cause)) if is_end(cause)),
            "{mode:?}: {report}"
        );
        client
    };
    for cut in 0..FLIGHT {
        let client = is_cut(Mode::CutAfter(cut));
        if cut % 64 == 0 {
            proxy.set(Mode::Pass);
            is_granted(&client);
        }
    }
    for cut in 0..FIRST_WORDS {
        let client = is_cut(Mode::CutSentAfter(cut));
        if cut % 64 == 0 {
            proxy.set(Mode::Pass);
            is_granted(&client);
        }
    }
}

/// A length shorter than what a server, or a client, has sent by the end of the handshake.
const FLIGHT: usize = 650;
const FIRST_WORDS: usize = 250;

#[test]
fn records_come_in_pieces_and_together() {
    let authority = Arc::new(Authority::new());
    let server = server(&authority, authority.server(), &[]);
    let proxy = Proxy::before(&format!("127.0.0.1:{}", server.tls_port()));
    for mode in [Mode::Bytes, Mode::Coalesce(Duration::from_millis(5))] {
        proxy.set(mode);
        let client = client_of(trusting(&authority, &format!("rediss://{}", proxy.address())));
        let names: Vec<_> = (0..100).map(|at| format!("{mode:?} {at}")).collect();
        let requests = names.iter().map(|name| patiently(name.as_bytes()));
        let refusals: Vec<_> =
            client.acquire_all(requests).into_iter().filter_map(Result::err).collect();
        assert!(refusals.is_empty(), "{mode:?}: {refusals:?}");
    }
}

#[test]
fn a_server_that_dies_and_comes_back_is_a_voter_again() {
    let authority = Arc::new(Authority::new());
    let mut server = server(&authority, authority.server(), &[]);
    let client = client_of(trusting(&authority, &server.tls_address()));
    is_granted(&client);
    server.kill();
    refused(&client);
    eventually("nobody listens", || refused(&client).to_string().contains("connection refused"));
    // The server has also lost its session tickets.
    server.restart();
    vouch_for(std::slice::from_ref(&server), 1);
    is_granted(&client);
}

/// The server does not send its certificate again, so it sends less.
#[test]
fn a_reconnect_resumes_the_session() {
    let authority = Arc::new(Authority::new());
    let mut server = server(&authority, authority.server(), &[]);
    let proxy = Proxy::before(&format!("127.0.0.1:{}", server.tls_port()));
    let quick = Duration::from_millis(1);
    let builder = trusting(&authority, &format!("rediss://{}", proxy.address()));
    let client = client_of(builder.reconnect_backoff(quick, 5 * quick));
    is_granted(&client);
    let again = |proxy: &Proxy| {
        proxy.set(Mode::Refuse);
        eventually("the link is gone", || client.acquire(long(b"job")).is_err());
        proxy.set(Mode::Pass);
        let before = proxy.passed();
        is_granted(&client);
        proxy.passed() - before
    };
    let resumed = again(&proxy);
    server.restart();
    vouch_for(std::slice::from_ref(&server), 1);
    let full = again(&proxy);
    assert!(resumed + 300 < full, "{resumed} bytes resumed, {full} in full");
}

#[test]
fn certificates_are_read_again_before_each_connection() {
    let authority = Arc::new(Authority::new());
    let server = server(&authority, authority.server(), &["--tls-auth-clients", "yes"]);
    let stranger = Authority::named("somebody else");
    let [ca, certificate, key] =
        ["now-ca", "now-certificate", "now-key"].map(|name| stranger.ca().with_file_name(name));
    let put = |authority: &Authority, identity: &Identity| {
        fs::copy(authority.ca(), &ca).unwrap();
        fs::copy(&identity.certificate, &certificate).unwrap();
        fs::copy(&identity.key, &key).unwrap();
    };
    put(&stranger, &stranger.client());
    let quick = Duration::from_millis(1);
    let builder = patient([server.tls_address()]).tls_ca(&ca).tls_cert(&certificate).tls_key(&key);
    let client = client_of(builder.reconnect_backoff(quick, 20 * quick));
    let reported = refused(&client).to_string();
    assert!(reported.contains("its issuer is not trusted"), "{reported}");

    put(&authority, &stranger.client());
    eventually("the new CA is believed, and our certificate is not", || {
        refused(&client).to_string().contains("does not trust the issuer of our client")
    });
    put(&authority, &authority.client());
    eventually("our new certificate is believed", || client.acquire(long(b"job")).is_ok());

    fs::remove_file(&key).unwrap();
    is_granted(&client);
    server.cmd("CLIENT KILL TYPE normal");
    let reported = format!("{}: No such file", key.display());
    eventually("the file is missed", || match client.acquire(long(b"job")) {
        Ok(_) => false,
        Err(error) => error.to_string().contains(&reported),
    });
    put(&authority, &authority.client());
    eventually("it is there again", || client.acquire(long(b"job")).is_ok());
}

/// Opening a pipe without a writer blocks without end, like opening a file on a dead file server.
#[test]
fn a_hanging_file_system_stops_no_extension() {
    let servers = redbolt_test_servers::servers_over_tls(3);
    vouch_for(&servers, 3);
    let pem = fs::read(servers[0].authority().ca()).unwrap();
    let ca = servers[0].authority().ca().with_file_name("ca-of-a-file-server");
    fs::write(&ca, &pem).unwrap();
    let received = Arc::new(Extensions::default());
    let builder = patient(servers.iter().map(Server::tls_address)).tls_ca(&ca);
    let quick = Duration::from_millis(1);
    let builder = builder.reconnect_backoff(quick, 20 * quick);
    let engine = engine_of(builder.log(Arc::clone(&received) as _));
    let request = LockRequest::new("job").ttl(Duration::from_secs(3)).wait(Wait::UpTo(LIMIT));
    let guard = engine.acquire(request.auto_extend(AutoExtend::until_released())).wait().unwrap();
    eventually("all nodes have it", || held_on(&servers, "job") == 3);
    fs::remove_file(&ca).unwrap();
    assert!(Command::new("mkfifo").arg(&ca).status().unwrap().success());
    servers[0].cmd("CLIENT KILL TYPE normal");
    let before = received.count.load(Ordering::Relaxed);
    eventually("it is extended on", || received.count.load(Ordering::Relaxed) >= before + 3);
    assert!(guard.is_valid());
    // The pipe can be opened for writing only while it is being read.
    let options = || fs::OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&ca);
    let mut writer = None;
    eventually("it is being read", || {
        writer = options().ok();
        writer.is_some()
    });
    writer.take().unwrap().write_all(&pem).unwrap();
    eventually("the node is back", || received.reconnects.load(Ordering::Relaxed) > 0);
    assert!(guard.release().wait().is_ok());
}

#[derive(Default)]
struct Extensions {
    count: AtomicUsize,
    reconnects: AtomicUsize,
}

impl Log for Extensions {
    fn note(&self, note: &Note<'_>) {
        match note {
            Note::Extended { .. } => self.count.fetch_add(1, Ordering::Relaxed),
            Note::NodeReady { reconnects: 1.., .. } => {
                self.reconnects.fetch_add(1, Ordering::Relaxed)
            }
            _ => 0,
        };
    }
}

#[test]
fn nodes_notify_over_tls() {
    let servers = {
        let mut all = Vec::new();
        crate::support::over_tls(|| all = servers(3));
        all
    };
    let client = client_of(crate::support::builder(&servers));
    let report = client.warm_up_push(LIMIT);
    let active = |node: &report::NodeStatus| node.push == report::PushState::Active;
    assert!(report.nodes.iter().any(active), "{report}");
}

/// The peer is silent, and its kernel has not closed the connection.
#[test]
fn a_half_open_connection_is_given_up() {
    let authority = Arc::new(Authority::new());
    let server = server(&authority, authority.server(), &[]);
    let proxy = Proxy::before(&format!("127.0.0.1:{}", server.tls_port()));
    let client = client_of(trusting(&authority, &format!("rediss://{}", proxy.address())));
    is_granted(&client);
    proxy.set(Mode::Stall);
    let reported = refused(&client).to_string();
    assert!(reported.contains("no answer in "), "{reported}");
    eventually("the connection is given up", || {
        let reported = refused(&client).to_string();
        reported.contains("silent for ") || reported.contains("no connection in ")
    });
    proxy.set(Mode::Pass);
    is_granted(&client);
}

#[test]
fn no_secret_is_shown() {
    let authority = Authority::new();
    let client = authority.client();
    let builder = Config::builder().node("rediss://ann:s3cret@127.0.0.1");
    let builder = builder.tls_ca(authority.ca()).tls_cert(&client.certificate).tls_key(&client.key);
    let shown = format!("{builder:?} {:?}", builder.clone().build().unwrap());
    let key = fs::read_to_string(&client.key).unwrap();
    assert!(shown.contains("key.pem"), "{shown}");
    assert!(!shown.contains("s3cret") && key.lines().all(|line| !shown.contains(line)), "{shown}");
}
