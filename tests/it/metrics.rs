//! Metrics from real servers, and the text that a scraper gets.

use std::time::Duration;

use redbolt::config::WakeStrategy;
use redbolt::{
    Client, Config, Event, LossCause, RefusalReason,
    metrics::{MetricsReport, NodeMetrics},
    report::Cause,
};
use redbolt_test_servers::Server;

use crate::engine::engine_of;
use crate::exposition::{Scrape, read};
use crate::support::{
    LIMIT, PATIENCE, builder, calls, client, client_of, driver_of, eventually, held_by, held_on,
    long, once_in, outcome, patiently, process_until, refusal, server, servers, vouch_for,
    warm_client,
};

/// Returns the text of a report, parsed.
fn scrape(report: &MetricsReport) -> Scrape {
    let text = report.to_prometheus();
    assert_eq!(text, report.to_string());
    read(&text).unwrap_or_else(|fault| panic!("{fault}\n{text}"))
}

fn value(scrape: &Scrape, name: &str, labels: &[(&str, &str)]) -> f64 {
    let ends = ["_bucket", "_sum", "_count"];
    let family = ends.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
    let family = scrape.get(family).unwrap_or_else(|| panic!("no {family}"));
    let value = family.value(name, labels);
    value.unwrap_or_else(|| panic!("no {name} {labels:?} in {family:?}"))
}

/// Returns a value of one node.
fn of_node(scrape: &Scrape, servers: &[Server], node: usize, name: &str) -> f64 {
    let (number, address) = ((node + 1).to_string(), servers[node].address());
    value(scrape, name, &[("node", &number), ("address", &address)])
}

/// The number of commands that the test itself adds to a server's count by reading it.
const OWN_LOOK: u64 = 1;

/// Inspects all nodes, and returns `true` if each answered in time. Earlier requests are answered
/// by then.
fn settle(client: &Client) -> bool {
    let inspection = client.inspect(b"job").unwrap();
    inspection.nodes.iter().all(|node| node.round_trip.is_some())
}

#[test]
fn locks_of_a_client() {
    assert!(once_in(5, locks_of_a_client_are_counted), "a node was late in each try");
}

/// Returns `false` if a node was late, as on a stalled machine, because it then skipped some
/// requests.
fn locks_of_a_client_are_counted() -> bool {
    let servers = servers(3);
    let client = client(&servers);
    assert_eq!(client.warm_up(LIMIT).ready(), 3);
    let infos_before: Vec<_> = servers.iter().map(|server| calls(server, "info")).collect();
    for _ in 0..5 {
        let mut lock = client.acquire(patiently(b"job")).unwrap();
        lock.extend(Duration::from_secs(20)).unwrap();
        let _ = lock.release();
        if !settle(&client) {
            return false;
        }
    }
    let held = client.acquire(patiently(b"job")).unwrap();
    let reason = refusal(client.acquire(long(b"job"))).reason();
    // A node that answered late is then asked for a proof, which the second inspection waits for.
    let is_settled = settle(&client) && settle(&client);

    let report = client.metrics();
    let metrics = &report.metrics;
    if !is_settled || metrics.nodes.iter().any(|node| node.timeouts + node.suspicions > 0) {
        return false;
    }
    assert_eq!((metrics.acquisitions, metrics.attempts, metrics.grants), (7, 7, 6));
    assert_eq!((metrics.refusals.of(reason), metrics.refusals.total()), (1, 1));
    assert_eq!((metrics.releases, metrics.extended, metrics.hold.count()), (5, 5, 5));
    for (number, address, node) in report.node_metrics() {
        assert_eq!(address.to_string(), servers[number - 1].address());
        assert_eq!((node.asks, node.grants, node.denies), (7, 6, 1), "node {number}");
        assert_eq!((node.connections, node.reconnects(), node.timeouts), (1, 0, 0));
        assert_eq!(node.undos_confirmed, 6, "node {number}");
        // A request sent after a pause is followed by a read that proves that the node has not
        // changed.
        let infos = calls(&servers[number - 1], "info") - infos_before[number - 1];
        let proofs = infos - OWN_LOOK;
        // These are requests, extensions, undos, and the four commands of seven inspections.
        assert_eq!(node.round_trip.count(), 7 + 5 + 6 + 4 * 7 + proofs, "node {number}");
        assert!(node.round_trip.quantile(0.5) <= node.round_trip.quantile(0.99));
        assert!(node.round_trip.sum() < LIMIT && !node.round_trip.sum().is_zero());
    }

    let scrape = scrape(&report);
    assert_eq!(value(&scrape, "redbolt_grants_total", &[]), 6.0);
    assert_eq!(value(&scrape, "redbolt_refusals_total", &[("reason", "contended")]), 1.0);
    assert_eq!(value(&scrape, "redbolt_refusals_total", &[("reason", "no_quorum")]), 0.0);
    assert_eq!(value(&scrape, "redbolt_wait_seconds_count", &[("outcome", "granted")]), 6.0);
    assert_eq!(value(&scrape, "redbolt_hold_seconds_bucket", &[("le", "+Inf")]), 5.0);
    assert_eq!(value(&scrape, "redbolt_hold_seconds_bucket", &[("le", "100")]), 5.0);
    assert_eq!(
        value(&scrape, "redbolt_extensions_total", &[("by", "caller"), ("outcome", "extended")]),
        5.0
    );
    for node in 0..3 {
        assert_eq!(of_node(&scrape, &servers, node, "redbolt_node_asks_total"), 7.0);
        assert_eq!(of_node(&scrape, &servers, node, "redbolt_node_ready"), 1.0);
        let sum = of_node(&scrape, &servers, node, "redbolt_node_round_trip_seconds_sum");
        let exact = metrics.nodes[node].round_trip.sum().as_secs_f64();
        assert!((sum - exact).abs() < 1e-9, "{sum} {exact}");
    }
    assert!(held.is_valid());
    true
}

#[test]
fn locks_of_a_driver() {
    let servers = servers(3);
    let mut driver = driver_of(builder(&servers));
    let id = held_by(&mut driver, patiently(b"job"));
    driver.release(id);
    assert!(matches!(outcome(&mut driver, id), Event::Released(..)));
    let short = Duration::from_secs(2);
    let id = held_by(&mut driver, patiently(b"job").ttl(short));
    assert_eq!(outcome(&mut driver, id), Event::Lost(id, LossCause::Expired));
    let metrics = driver.metrics().metrics;
    assert_eq!((metrics.grants, metrics.releases), (2, 1));
    assert_eq!((metrics.losses.of(LossCause::Expired), metrics.losses.total()), (1, 1));
    assert!(metrics.hold.sum() <= LIMIT);
    let scrape = scrape(&driver.metrics());
    assert_eq!(value(&scrape, "redbolt_losses_total", &[("cause", "expired")]), 1.0);
    assert_eq!(value(&scrape, "redbolt_losses_total", &[("cause", "gone")]), 0.0);
}

#[test]
fn a_server_that_is_killed_and_comes_back() {
    let mut servers = servers(3);
    let mut driver = driver_of(builder(&servers));
    process_until(&mut driver, "all nodes are ready", |driver| driver.node_report().ready() == 3);
    servers[2].kill();
    process_until(&mut driver, "the node is missing", |driver| driver.node_report().ready() == 2);
    let id = held_by(&mut driver, long(b"job"));
    driver.release(id);
    assert!(matches!(outcome(&mut driver, id), Event::Released(..)));
    let text = scrape(&driver.metrics());
    assert_eq!(of_node(&text, &servers, 2, "redbolt_node_ready"), 0.0);
    let refused = |driver: &redbolt::Driver| {
        driver.metrics().metrics.nodes[2].link_failures.of(Cause::ConnectionRefused)
    };
    process_until(&mut driver, "reconnecting is tried again", |driver| refused(driver) > 0);
    servers[2].restart();
    vouch_for(&servers[2..], 3);
    process_until(&mut driver, "the node is back", |driver| driver.node_report().ready() == 3);

    let report = driver.metrics();
    let reconnects: Vec<u64> = report.metrics.nodes.iter().map(NodeMetrics::reconnects).collect();
    assert!(reconnects[..2] == [0, 0] && reconnects[2] > 0, "{reconnects:?}");
    let scrape = scrape(&report);
    assert_eq!(of_node(&scrape, &servers, 2, "redbolt_node_ready"), 1.0);
    let reconnected = of_node(&scrape, &servers, 2, "redbolt_node_reconnects_total");
    assert_eq!(reconnected, reconnects[2] as f64);
    let address = servers[2].address();
    let labels = [("node", "3"), ("address", &address[..]), ("cause", "connection_refused")];
    assert!(value(&scrape, "redbolt_node_link_failures_total", &labels) > 0.0);
}

#[test]
fn a_server_that_is_stopped() {
    let server = server();
    let servers = std::slice::from_ref(&server);
    let within = Duration::from_millis(100);
    let client = client_of(builder(servers).response_timeout(within));
    assert_eq!(client.warm_up(PATIENCE).ready(), 1);
    server.pause();
    assert_eq!(refusal(client.acquire(long(b"job"))).reason(), RefusalReason::NoQuorum);
    let node = &client.metrics().metrics.nodes[0];
    assert_eq!((node.timeouts, node.fails.of(Cause::NoAnswer), node.late_replies), (1, 1, 0));
    server.resume();
    eventually("the node answers late", || {
        let _ = client.inspect(b"job");
        client.metrics().metrics.nodes[0].late_replies > 0
    });
    assert_eq!(
        client.metrics().metrics.nodes[0].grants,
        1,
        "a grant that came too late is counted"
    );
}

/// The holder's release causes a notification, and the waiter asks the node that sent it before the
/// others.
#[test]
fn a_notified_waiter_is_counted() {
    assert!(once_in(5, a_waiter_is_granted_by_its_lead), "the lead did not grant in any try");
}

/// Returns `false` if the lead was more than 5 ms late, so that the others were asked as well.
fn a_waiter_is_granted_by_its_lead() -> bool {
    let servers = servers(3);
    let holder = warm_client(builder(&servers));
    let mut waiter = driver_of(builder(&servers).wake(WakeStrategy::Lead));
    process_until(&mut waiter, "all nodes are ready", |driver| driver.node_report().ready() == 3);
    let held = holder.acquire(patiently(b"job")).unwrap();
    // A grant that arrives after the waiter's first look would wake it before the release does.
    eventually("all nodes have granted", || held_on(&servers, "job") == 3);
    let id = waiter.acquire(patiently(b"job")).unwrap();
    let reports = |driver: &mut redbolt::Driver| {
        driver
            .node_report()
            .nodes
            .iter()
            .any(|node| node.push == redbolt::report::PushState::Active)
    };
    process_until(&mut waiter, "the lead can notify", reports);
    // The waiter now reads the key again so that the server tracks it. This inspection is sent
    // later, so its answer shows that the read is done.
    let view = waiter.inspect(b"other").unwrap();
    process_until(&mut waiter, "the inspection is done", |driver| {
        driver.take_inspection(view).is_some()
    });
    let before = waiter.metrics().metrics;
    assert_eq!((before.lead_asks, before.lead_grants, before.wakes), (0, 0, 0));
    let _ = held.release();
    assert_eq!(outcome(&mut waiter, id), Event::Granted(id));
    let metrics = waiter.metrics().metrics;
    assert_eq!((metrics.acquisitions, metrics.grants), (1, 1));
    if metrics.lead_grants != 1 {
        return false;
    }
    assert!(metrics.lead_asks >= 1 && metrics.lead_asks <= metrics.wakes, "{metrics:?}");
    assert!(metrics.attempts > metrics.lead_asks, "{metrics:?}");
    // This is usually the first node, or another if the first was late to deny.
    let reported = metrics.nodes.iter().position(|node| node.pushes > 0).unwrap();
    assert!(
        metrics.nodes.iter().all(|node| node.connections == 1),
        "push links are not counted as connections"
    );
    let scrape = scrape(&waiter.metrics());
    assert_eq!(value(&scrape, "redbolt_lead_grants_total", &[]), 1.0);
    assert_eq!(value(&scrape, "redbolt_wakes_total", &[]), metrics.wakes as f64);
    assert!(of_node(&scrape, &servers, reported, "redbolt_node_pushes_total") >= 1.0);
    true
}

#[test]
fn a_flushed_lead_is_one_notification() {
    let servers = servers(1);
    let holder = client(&servers);
    let mut waiter = driver_of(builder(&servers));
    let held = holder.acquire(patiently(b"job")).unwrap();
    let id = waiter.acquire(patiently(b"job")).unwrap();
    process_until(&mut waiter, "the node notifies", |driver| {
        driver.node_report().nodes[0].push == redbolt::report::PushState::Active
    });
    assert_eq!(waiter.metrics().metrics.nodes[0].pushes, 0);
    servers[0].cmd("FLUSHALL");
    process_until(&mut waiter, "the notification is counted", |driver| {
        driver.metrics().metrics.nodes[0].pushes > 0
    });
    assert_eq!(waiter.metrics().metrics.nodes[0].pushes, 1);
    waiter.release(id);
    assert!(matches!(outcome(&mut waiter, id), Event::Refused(..)));
    drop(held);
}

#[test]
fn locks_of_an_engine() {
    let servers = servers(3);
    let engine = engine_of(builder(&servers));
    let lock = engine.acquire(patiently(b"job")).wait().unwrap();
    assert!(lock.release().wait().is_ok());
    let report = engine.metrics().wait().unwrap();
    assert_eq!((report.metrics.grants, report.metrics.releases), (1, 1));
    assert_eq!(value(&scrape(&report), "redbolt_grants_total", &[]), 1.0);
}

/// An address is shown as the user wrote it, quotes included, without the password.
#[test]
fn labels_are_escaped_and_show_no_password() {
    let config = Config::builder()
        .node("unix:///nowhere/a%22b%5Cc%0Ad")
        .node("redis://ann:s3same@127.0.0.1:1")
        .build()
        .unwrap();
    let report = Client::new(config).unwrap().metrics();
    let shown = format!("{} {report:?}", report.to_prometheus());
    assert!(!shown.contains("s3same") && !shown.contains("ann"), "{shown}");
    let scrape = scrape(&report);
    let awkward = [("node", "1"), ("address", "unix:///nowhere/a\"b\\c%0ad")];
    assert_eq!(value(&scrape, "redbolt_node_asks_total", &awkward), 0.0);
    let plain = [("node", "2"), ("address", "127.0.0.1:1")];
    assert_eq!(value(&scrape, "redbolt_node_asks_total", &plain), 0.0);
}
