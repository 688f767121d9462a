//! Helpers that the tests share: clients for servers, queries to the servers themselves, and
//! bounded waits.

use std::borrow::Borrow;
#[cfg(feature = "tls")]
use std::cell::Cell;
use std::time::{Duration, Instant};

use redbolt::inspect::Inspection;
use redbolt::proto::restart_guard;
use redbolt::{
    AcquireError, Client, Config, ConfigBuilder, Driver, Event, ExtendError, LockGuard, LockId,
    LockRequest, LossCause, Profile, RefusalReport, Wait,
};
use redbolt_test_servers::{Reply, Server};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

#[cfg(feature = "tls")]
thread_local! {
    static OVER_TLS: Cell<bool> = const { Cell::new(false) };
}

/// Lets all servers that `test` starts on this thread, and all their clients, use TLS.
#[cfg(feature = "tls")]
pub(crate) fn over_tls(test: impl FnOnce()) {
    OVER_TLS.set(true);
    test();
}

fn is_over_tls() -> bool {
    #[cfg(feature = "tls")]
    return OVER_TLS.get();
    #[cfg(not(feature = "tls"))]
    false
}

/// Starts `n` servers as the nodes of a set that an operator has initialised.
pub(crate) fn servers(n: usize) -> Vec<Server> {
    let servers = new_servers(n);
    vouch_for(&servers, n);
    servers
}

/// Starts `n` servers that no operator has seen yet.
pub(crate) fn new_servers(n: usize) -> Vec<Server> {
    match is_over_tls() {
        true => redbolt_test_servers::servers_over_tls(n),
        false => redbolt_test_servers::servers(n),
    }
}

/// Returns a server's address as it is shown.
pub(crate) fn address(server: &Server) -> String {
    if server.has_tls() { server.tls_address() } else { server.address() }
}

/// Returns a server as the only node of a set that an operator has initialised.
pub(crate) fn server() -> Server {
    vouched(Server::start())
}

/// Marks a server that was started with arguments as the only node of an initialised set.
pub(crate) fn vouched(server: Server) -> Server {
    vouch_for(std::slice::from_ref(&server), 1);
    server
}

/// Marks these servers as initialised nodes of a set of `nodes`, with the default `max_ttl`: the
/// effect of an operator's `init`, which needs all nodes to be reachable. Afterwards resets the
/// servers' statistics.
pub(crate) fn vouch_for<S: Borrow<Server>>(servers: &[S], nodes: usize) {
    for server in servers.iter().map(S::borrow) {
        let guard = own_restart_guard(server, nodes);
        let set = server.cmd(&format!("SET redbolt:guard {guard} PX {}", restart_guard::BIG_MS));
        assert_eq!(set, Reply::Status("OK".into()));
        server.cmd("CONFIG RESETSTAT");
    }
}

/// Returns the value of the restart guard that a client of this number of nodes expects on this
/// server.
pub(crate) fn own_restart_guard(server: &Server, nodes: usize) -> String {
    let (run_id, replication_id) =
        (info(server, "server", "run_id"), info(server, "replication", "master_replid"));
    format!("{run_id}.{replication_id}:{}:{nodes}:0", LONG.as_millis())
}

/// Returns a field of a section of the server's `INFO`.
pub(crate) fn info(server: &Server, section: &str, field: &str) -> String {
    let Reply::Bulk(info) = server.cmd(&format!("INFO {section}")) else { panic!("no INFO") };
    let info = String::from_utf8(info).unwrap();
    let value = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.unwrap_or_default().to_owned()
}

/// Returns a builder with one node for each server. Timeouts are long, because a test machine is
/// busy.
pub(crate) fn builder(servers: &[Server]) -> ConfigBuilder {
    #[cfg(feature = "tls")]
    if servers.first().is_some_and(Server::has_tls) {
        // A handshake takes longer than any other exchange here.
        let builder =
            patient(servers.iter().map(Server::tls_address)).connect_timeout(5 * PATIENCE);
        return builder.tls_ca(servers[0].authority().ca());
    }
    patient(servers.iter().map(Server::address))
}

/// Returns a builder for these addresses, with timeouts as long as those of [`builder`].
pub(crate) fn patient<A: AsRef<str>>(addresses: impl IntoIterator<Item = A>) -> ConfigBuilder {
    with_nodes(
        Config::builder()
            .formats(&Profile::ALL)
            .response_timeout(PATIENCE)
            .connect_timeout(PATIENCE)
            .dead_peer_timeout(DEAD),
        addresses,
    )
}

/// Returns a builder for these addresses with the default settings.
pub(crate) fn default<A: AsRef<str>>(addresses: impl IntoIterator<Item = A>) -> ConfigBuilder {
    with_nodes(Config::builder().formats(&Profile::ALL), addresses)
}

fn with_nodes<A: AsRef<str>>(
    builder: ConfigBuilder,
    addresses: impl IntoIterator<Item = A>,
) -> ConfigBuilder {
    addresses.into_iter().fold(builder, |builder, address| builder.node(address.as_ref()))
}

pub(crate) fn client(servers: &[Server]) -> Client {
    client_of(builder(servers))
}

pub(crate) fn client_of(builder: ConfigBuilder) -> Client {
    Client::new(builder.build().unwrap()).unwrap()
}

pub(crate) fn driver_of(builder: ConfigBuilder) -> Driver {
    Driver::new(builder.build().unwrap()).unwrap()
}

/// Returns a client whose connections are all open, so that every node receives its first request.
/// A request that still waits for a connection when the call returns may never be sent.
pub(crate) fn warm_client(builder: ConfigBuilder) -> Client {
    let client = client_of(builder);
    let report = client.warm_up(LIMIT);
    assert_eq!(report.ready(), client.config().node_count(), "{report}");
    client
}

/// Returns the cause of a loss, if the extension failed because the lock was lost.
pub(crate) fn loss(error: &ExtendError) -> Option<LossCause> {
    match error {
        ExtendError::Lost(lost) => Some(lost.cause()),
        _ => None,
    }
}

/// Returns a request whose key outlasts every test unless it is removed.
pub(crate) fn long(resource: &[u8]) -> LockRequest<'_> {
    LockRequest::new(resource).ttl(LONG)
}

/// Does the same as [`long`], retrying for up to [`LIMIT`].
pub(crate) fn patiently(resource: &[u8]) -> LockRequest<'_> {
    long(resource).wait(Wait::UpTo(LIMIT))
}

/// Returns the refusal of an acquisition that must not succeed.
pub(crate) fn refusal(outcome: Result<LockGuard<'_>, AcquireError>) -> RefusalReport {
    match outcome {
        Err(AcquireError::Refused(report)) => report,
        other => panic!("must be refused: {other:?}"),
    }
}

/// Returns `true` if the server has a key of this name in database 0.
pub(crate) fn exists(server: &Server, key: &str) -> bool {
    server.cmd(&format!("EXISTS {key}")) == Reply::Int(1)
}

/// Returns the number of servers that have a key of this name.
pub(crate) fn held_on(servers: &[Server], key: &str) -> usize {
    servers.iter().filter(|server| exists(server, key)).count()
}

/// Returns the key's remaining TTL on the server, in ms.
pub(crate) fn pttl(server: &Server, key: &str) -> i64 {
    match server.cmd(&format!("PTTL {key}")) {
        Reply::Int(ms) => ms,
        other => panic!("{other:?}"),
    }
}

/// Returns how often the server has executed a command.
pub(crate) fn calls(server: &Server, command: &str) -> u64 {
    calls_by(server.cmd("INFO commandstats"), command)
}

/// Returns how often a command was executed successfully, from `INFO commandstats`.
pub(crate) fn calls_by(stats: Reply, command: &str) -> u64 {
    let Reply::Bulk(stats) = stats else { panic!("{stats:?}") };
    let start = format!("cmdstat_{command}:calls=");
    let stats = String::from_utf8(stats).unwrap();
    let Some(line) = stats.lines().find_map(|line| line.strip_prefix(&start)) else { return 0 };
    let number = |text: &str| text.split(',').next().unwrap().parse::<u64>().unwrap();
    let failed = line.split_once(",failed_calls=").map_or(0, |(_, failed)| number(failed));
    number(line) - failed
}

/// Returns the number of changes that the server has made to its data since its start.
pub(crate) fn changes(server: &Server) -> u64 {
    let Reply::Bulk(info) = server.cmd("INFO persistence") else { panic!("no INFO") };
    let info = String::from_utf8(info).unwrap();
    let count = info.lines().find_map(|line| line.strip_prefix("rdb_changes_since_last_save:"));
    count.unwrap().trim().parse().unwrap()
}

/// Runs all cases in parallel, because such tests mostly wait for time to pass.
pub(crate) fn side_by_side<T: Send>(cases: impl IntoIterator<Item = T>, test: impl Fn(T) + Sync) {
    let test = &test;
    std::thread::scope(|scope| {
        cases.into_iter().for_each(|case| drop(scope.spawn(move || test(case))));
    });
}

/// Returns `true` if one of a few tries succeeds: a stalled machine fails single tries, a bug all
/// of them.
pub(crate) fn once_in(tries: usize, is_so: impl FnMut() -> bool) -> bool {
    std::iter::repeat_with(is_so).take(tries).any(|is_so| is_so)
}

/// Inspects a resource until all nodes have answered: a single inspection waits only briefly for
/// nodes after the quorum.
pub(crate) fn looks(client: &Client, resource: &[u8]) -> Inspection {
    let mut seen = client.inspect(resource).unwrap();
    eventually("all nodes have answered", || {
        seen = client.inspect(resource).unwrap();
        seen.nodes.iter().all(|node| node.state.is_ok())
    });
    seen
}

/// Waits until the condition holds, and panics after [`LIMIT`].
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < until, "not within {LIMIT:?}: {what}");
        std::thread::sleep(Duration::from_millis(3));
    }
}

/// Drives a driver through its file descriptor, as a host would, until the condition holds.
pub(crate) fn process_until(
    driver: &mut Driver,
    what: &str,
    mut holds: impl FnMut(&mut Driver) -> bool,
) {
    let until = Instant::now() + LIMIT;
    while !holds(driver) {
        assert!(Instant::now() < until, "not within {LIMIT:?}: {what}");
        wait_readable(driver);
        driver.process();
    }
}

/// Sleeps until the driver has work, or for a moment.
fn wait_readable(driver: &Driver) {
    let moment = Duration::from_millis(3);
    let span = driver.timeout().map_or(moment, |deadline| deadline.min(moment));
    let span = Timespec { tv_sec: 0, tv_nsec: span.as_nanos() as _ };
    poll(&mut [PollFd::new(driver, PollFlags::IN)], Some(&span)).unwrap();
}

/// Drives a driver until this lock has an outcome.
pub(crate) fn outcome(driver: &mut Driver, id: LockId) -> Event {
    let mut found = None;
    process_until(driver, "the lock's outcome", |driver| {
        while let Some(event) = driver.poll_event() {
            match event {
                Event::Granted(of) | Event::Extended(of) if of == id => found = Some(event),
                Event::Refused(of, _) | Event::NotExtended(of, _) if of == id => {
                    found = Some(event);
                }
                Event::Upgraded(of) | Event::Downgraded(of) if of == id => found = Some(event),
                Event::NotUpgraded(of, _) | Event::DowngradeDelayed(of, _) if of == id => {
                    found = Some(event);
                }
                Event::Released(of, _) if of == id => found = Some(event),
                Event::Lost(of, _) if of == id => found = Some(event),
                _ => {}
            }
        }
        found.is_some()
    });
    found.unwrap()
}

/// Drives a driver until a new lock is held.
pub(crate) fn held_by(driver: &mut Driver, request: LockRequest<'_>) -> LockId {
    let id = driver.acquire(request).unwrap();
    assert_eq!(outcome(driver, id), Event::Granted(id));
    id
}

/// A timeout far longer than any answer takes; only tests of timeouts wait for it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(6);

/// The silence that ends a connection; longer than any timeout of an answer.
const DEAD: Duration = Duration::from_secs(10);

/// The longest that a test waits for anything, well below [`LONG`].
pub(crate) const LIMIT: Duration = Duration::from_secs(15);

/// The longest TTL that the default configuration permits.
pub(crate) const LONG: Duration = Duration::from_secs(30);
