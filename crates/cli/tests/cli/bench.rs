//! `bench`: its output is consistent, and it leaves nothing behind.

use std::iter;
use std::time::Duration;

use nix::sys::signal::Signal;
use redbolt_test_servers::{Reply, Server};
use serde_json::Value;

use crate::harness::{Ran, World, eventually, redbolt, run};

const SHORT: [&str; 5] = ["bench", "--duration", "300ms", "--warm-up", "50ms"];

fn bench(world: &World, more: &[&str]) -> Ran {
    world.run(&[&SHORT, more].concat())
}

fn as_json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// Returns the keys of a node, sorted.
fn keys(node: &Server) -> Vec<String> {
    let Reply::Array(keys) = node.cmd("KEYS *") else { panic!("no keys") };
    let text = |key| match key {
        Reply::Bulk(bytes) => String::from_utf8(bytes).unwrap(),
        other => panic!("{other:?}"),
    };
    let mut keys: Vec<_> = keys.into_iter().map(text).collect();
    keys.sort_unstable();
    keys
}

#[track_caller]
fn expect_nothing_left(world: &World) {
    for node in &world.nodes {
        assert_eq!(keys(node), ["redbolt:guard"]);
    }
}

/// Waits for keys of the bench, so that a later check for none means something.
fn until_it_runs(world: &World) {
    eventually("locks are taken", || {
        keys(&world.nodes[0]).iter().any(|key| key.starts_with("redbolt:bench:"))
    });
}

/// Waits until locks have been taken and released many times.
fn until_pairs_are_done(world: &World) {
    let before = world.nodes[0].calls("set");
    eventually("locks are taken again and again", || world.nodes[0].calls("set") > before + 200);
}

#[test]
fn the_counts_of_its_json_agree() {
    let world = World::of(3);
    for (concurrency, busy_poll) in [("1", "0us"), ("16", "0us"), ("4", "100us")] {
        let words = ["--json", "--concurrency", concurrency, "--busy-poll", busy_poll];
        undisturbed(|| {
            let ran = bench(&world, &words).expect(0);
            let json = as_json(&ran);
            assert_eq!(json["concurrency"].to_string(), concurrency);
            check_sums(&json);
            let is_quiet = ran.stderr.is_empty() && is_smooth(&json, &world);
            if is_quiet {
                expect_nothing_left(&world);
            }
            is_quiet
        });
    }
}

/// On a busy machine a node may be late, which is reported. One run of several must be without such
/// a report.
#[track_caller]
fn undisturbed(run: impl FnMut() -> bool) {
    assert!(iter::repeat_with(run).take(5).any(|is_undisturbed| is_undisturbed));
}

fn check_sums(json: &Value) {
    assert_eq!((&json["quorum"], &json["interrupted_by"]), (&2.into(), &Value::Null));
    let pairs = number(&json["pairs"]);
    assert!(pairs > 0, "{json}");
    for part in ["acquire", "release", "pair"] {
        check_histogram(&json[part], pairs);
    }
    check_quorums(json, pairs);
    let seconds = number(&json["measured_ms"]) as f64 / 1000.0;
    let rate = json["pairs_per_second"].as_f64().unwrap();
    assert!((rate * seconds / pairs as f64 - 1.0).abs() < 0.1, "{rate} of {pairs} in {seconds}");
    assert!(json["client_cpu_us_per_pair"].as_f64().unwrap() > 0.0);
}

/// Returns whether every lock was granted, with an answer of every node.
fn is_smooth(json: &Value, world: &World) -> bool {
    let is_smooth = |(node, server): (&Value, &Server)| {
        assert_eq!(node["address"], server.address());
        let answers = number(&node["answers"]) > 0 && node["mean_us"].as_f64().unwrap() > 0.0;
        let fails = (&node["fails"], &node["link_failures"]) != (&empty(), &empty());
        node["state"] == "ready" && answers && !fails
    };
    let nodes = json["nodes"].as_array().unwrap();
    (&json["refusals"], &json["losses"]) == (&empty(), &empty())
        && nodes.iter().zip(&world.nodes).all(is_smooth)
}

fn empty() -> Value {
    Value::Object(serde_json::Map::new())
}

fn check_histogram(of: &Value, count: u64) {
    assert_eq!(number(&of["count"]), count);
    let raw = of["histogram_ns"].as_array().unwrap();
    let raw: Vec<_> = raw.iter().map(|row| (number(&row[0]), number(&row[1]))).collect();
    assert_eq!(raw.iter().map(|(_, count)| count).sum::<u64>(), count);
    assert!(raw.is_sorted_by(|one, next| one.0 < next.0));
    let figures = ["min_ns", "p50_ns", "p90_ns", "p99_ns", "p99_9_ns", "max_ns"];
    let figures = figures.map(|name| number(&of[name]));
    assert!(figures[0] > 0 && figures.is_sorted(), "{figures:?}");
    assert_eq!(figures[5], raw[raw.len() - 1].0);
}

/// A quorum made each grant, and the report counts the grant for each of its nodes.
fn check_quorums(json: &Value, grants: u64) {
    let (mut all, mut of_nodes) = (0, [0; 3]);
    for set in json["quorums"].as_array().unwrap() {
        let (nodes, grants) = (set["nodes"].as_array().unwrap(), number(&set["grants"]));
        assert!(nodes.len() >= 2, "{set}");
        nodes.iter().for_each(|node| of_nodes[number(node) as usize - 1] += grants);
        all += grants;
    }
    assert_eq!(all, grants);
    for (node, grants) in json["nodes"].as_array().unwrap().iter().zip(of_nodes) {
        assert_eq!(number(&node["grants_in_time"]), grants);
    }
}

#[test]
fn the_report_for_people_fits_a_terminal() {
    let world = World::of(3);
    let mut told = String::new();
    undisturbed(|| {
        told = bench(&world, &["-c", "4"]).expect(0).stdout;
        told.contains("no refusals, no errors")
    });
    for words in
        ["4 locks at a time", "acquire", "release", "p99.9", "pairs per second", "client CPU"]
    {
        assert!(told.contains(words), "{words:?} is missing in:\n{told}");
    }
    assert!(told.contains("####"), "{told}");
    assert!(!told.contains('\x1b'), "colours are for terminals:\n{told}");
    for line in told.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    for node in &world.nodes {
        assert!(told.contains(&node.address()), "{told}");
    }
}

#[test]
fn a_node_that_is_down_is_named_with_its_reason() {
    let mut world = World::of(3);
    world.nodes[1].kill();
    let dead = world.nodes[1].address();
    let ran = bench(&world, &[]).expect(0);
    let line = format!("node 2 {dead}: connection refused");
    assert!(ran.stderr.contains(&format!("without {line}")), "{ran:?}");
    assert!(ran.stdout.contains(&format!("node 2 {dead}: ")), "{ran:?}");
    assert!(ran.stdout.contains("without a vote: connection refused"), "{ran:?}");
    let json = as_json(&bench(&world, &["--json"]).expect(0));
    let node = &json["nodes"][1];
    assert_eq!((&node["state"], &node["answers"]), (&"connection refused".into(), &0.into()));
    assert!(number(&node["fails"]["connection_refused"]) >= number(&json["pairs"]), "{node}");
    assert_eq!(number(&node["grants_in_time"]), 0);

    world.nodes[2].kill();
    let ran = bench(&world, &[]).expect(69).expect_says("too few nodes can vote, 2 needed");
    assert!(ran.stderr.contains(&line) && ran.stdout.is_empty(), "{ran:?}");
}

#[test]
fn nodes_that_stop_during_a_bench_cause_counted_refusals() {
    let mut world = World::of(1);
    let running = world.start(&["bench", "--duration", "8s", "--json", "--concurrency", "2"]);
    until_it_runs(&world);
    world.nodes[0].kill();
    let ran = running.end();
    // The run may have ended before the first pair.
    assert!(matches!(ran.status, Some(0 | 69)), "{ran:?}");
    let json = as_json(&ran);
    assert!(number(&json["refusals"]["no_quorum"]) > 0, "{json}");
    assert!(number(&json["nodes"][0]["fails"]["connection_refused"]) > 0, "{json}");
}

#[test]
fn ctrl_c_ends_a_bench_with_a_partial_report() {
    let world = World::of(3);
    for (signal, status) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        let running =
            world.start(&["bench", "--duration", "1h", "--json", "-c", "8", "--warm-up", "0s"]);
        until_pairs_are_done(&world);
        running.signal(signal);
        let json = as_json(&running.end().expect(status));
        assert_eq!(json["interrupted_by"], signal.as_str());
        assert!(number(&json["pairs"]) > 0);
        expect_nothing_left(&world);
    }
}

#[test]
fn the_keys_of_a_killed_bench_expire() {
    let world = World::of(3);
    let running = world.start(&["bench", "--duration", "1h", "--ttl", "2s", "-c", "32"]);
    until_it_runs(&world);
    running.signal(Signal::SIGKILL);
    running.end();
    for node in &world.nodes {
        for key in keys(node).iter().filter(|key| *key != "redbolt:guard") {
            assert!(key.starts_with("redbolt:bench:"), "{key}");
            let Reply::Int(left) = node.run(&[b"PTTL", key.as_bytes()]) else { panic!("no TTL") };
            // The key may have expired in between.
            assert!((0..=2_000).contains(&left) || left == -2, "{left}");
        }
    }
    eventually("the processes end", || {
        world.nodes.iter().all(|node| keys(node) == ["redbolt:guard"])
    });
}

#[test]
fn a_bench_refuses_nodes_with_keys_without_yes() {
    let world = World::of(3);
    world.nodes[1].cmd("SET session:1 theirs");
    world.nodes[1].cmd("SET session:2 theirs");
    world.nodes[0].cmd("CONFIG RESETSTAT");
    let sign = format!("node 2 {}: 2 keys", world.nodes[1].address());
    let ran = bench(&world, &[]).expect(64).expect_says("redbolt bench --yes").expect_says(&sign);
    assert_eq!(ran.stdout, "");
    let stats = crate::harness::info(&world, "commandstats");
    assert!(!stats.contains("cmdstat_set:") && stats.contains("cmdstat_info:"), "{stats}");

    let ran = bench(&world, &["--yes"]).expect(0).expect_says("warning").expect_says(&sign);
    assert!(ran.stdout.contains("pairs per second"));
    assert_eq!(keys(&world.nodes[1]), ["redbolt:guard", "session:1", "session:2"]);
    assert_eq!(world.nodes[1].cmd("GET session:1"), Reply::Bulk(b"theirs".to_vec()));
}

#[test]
fn clients_and_replicas_are_signs_of_use_too() {
    let world = World::of(1);
    let clients = (world.nodes[0].connect(), world.nodes[0].connect());
    bench(&world, &[]).expect(64).expect_says("2 other clients");
    drop(clients.1);
    eventually("one client is gone", || {
        crate::harness::info(&world, "clients").contains("connected_clients:2\r\n")
    });
    bench(&world, &[]).expect(0);
    drop(clients.0);

    let replica = Server::start();
    replica.cmd(&format!("REPLICAOF 127.0.0.1 {}", world.nodes[0].port()));
    eventually("the node is a replica", || {
        crate::harness::info(&world, "replication").contains("connected_slaves:1")
    });
    bench(&world, &[]).expect(64).expect_says("1 replica");
}

#[test]
fn a_node_that_hides_its_state_counts_as_in_use() {
    let world = World::of(1);
    let allowed = "+auth +set +get +del +pttl +pexpire +eval +evalsha +client|setname +client|id";
    world.nodes[0].cmd(&format!("ACL SETUSER few on >p%40ss ~* -@all {allowed}"));
    let with = |more: &[&str]| {
        let words = [&SHORT[..], &["--restart-guard", "off"], more].concat();
        let mut command = redbolt(&words);
        command.env("REDBOLT_NODES", format!("redis://few:p%2540ss@{}", world.nodes[0].address()));
        command.env("REDBOLT_RESTART_TRUST", "marker-only");
        run(command)
    };
    with(&[]).expect(64).expect_says("does not tell").expect_says("NOPERM");
    with(&["--yes"]).expect(0).expect_says("NOPERM");
}

#[test]
fn a_password_and_a_database_are_those_of_the_address() {
    let world = World::fresh(1);
    world.nodes[0].cmd("ACL SETUSER me on >s3cret ~* +@all");
    let address = |password| format!("redis://me:{password}@{}/3", world.nodes[0].address());
    let with = |password, words: &[&str]| {
        let mut command = redbolt(words);
        command.env("REDBOLT_NODES", address(password));
        run(command)
    };
    with("s3cret", &["init"]).expect(0);
    with("s3cret", &SHORT).expect(0);
    let ran = with("hunter2", &SHORT).expect(69).expect_says("WRONGPASS");
    assert!(!ran.stderr.contains("hunter2"), "{ran:?}");
    let mut connection = world.nodes[0].connect();
    connection.cmd("SELECT 3");
    connection.cmd("SET theirs 1");
    drop(connection);
    with("s3cret", &SHORT).expect(64).expect_says(": 1 key");
}

#[test]
fn a_bench_writes_no_restart_guard() {
    let world = World::fresh(3);
    bench(&world, &[]).expect(69).expect_says("never held a lock: redbolt init");
    for node in &world.nodes {
        assert!(keys(node).is_empty());
    }
    bench(&world, &["--restart-guard", "off"]).expect(0);
    for node in &world.nodes {
        assert!(keys(node).is_empty());
    }
}

#[test]
fn a_ttl_shorter_than_the_answers_take_is_reported() {
    let world = World::of(1);
    let proxy = redbolt_test_servers::Proxy::before(&world.nodes[0].address());
    proxy.set(redbolt_test_servers::Mode::Coalesce(Duration::from_millis(30)));
    // Answers that are held back this long come too late for the TTL.
    let words = ["--yes", "--ttl", "20ms", "--node", &proxy.address()];
    let ran = run(redbolt(&[&SHORT[..], &words].concat()));
    assert!(ran.stdout.contains("try a longer --ttl"), "{ran:?}");
    // Bytes at the end of a delay pass quickly, so there may be a pair or two.
    let is_empty = ran.stdout.contains("nothing was measured");
    assert_eq!(ran.status, Some(if is_empty { 69 } else { 0 }), "{ran:?}");
    assert_eq!(ran.stderr.contains("nothing was measured"), is_empty, "{ran:?}");
}

#[test]
fn an_invalid_bench_is_64() {
    let world = World::of(1);
    for (words, says) in [
        (["--duration", "0s"], "from 10ms to 1h"),
        (["--duration", "2h"], "from 10ms to 1h"),
        (["--duration", "10"], "needs a unit"),
        (["--concurrency", "0"], "1..=4096"),
        (["--concurrency", "4097"], "1..=4096"),
        (["--key-size", "35"], "36..=65536"),
        (["--busy-poll", "201us"], "busy_poll"),
        (["--ttl", "31s"], "maximum"),
        (["--ttl", "2ms"], "drift"),
    ] {
        let ran = world.run(&[&["bench"], &words[..]].concat());
        ran.expect(64).expect_says(says);
    }
    let help = world.run(&["bench", "--help"]).expect(0).stdout;
    for words in ["redbolt:bench:", "--yes", "64", "69", "71", "128"] {
        assert!(help.contains(words), "{words:?} is missing in:\n{help}");
    }
}

#[test]
fn the_longest_key_and_the_most_locks_are_possible() {
    let world = World::of(1);
    bench(&world, &["--key-size", "65536"]).expect(0);
    // On a busy machine this many answers take more than a second.
    let patient = ["-c", "4096", "--json", "--response-timeout", "20s"];
    let mut ran = bench(&world, &patient);
    let mut lasts = 1;
    // On a busy machine the first lock may be released after the measured time.
    while ran.status == Some(69) && ran.stderr.contains("nothing was measured") && lasts <= 16 {
        let duration = format!("{lasts}s");
        let longer = [&patient[..], &["--duration", &duration]].concat();
        ran = world.run(&[&["bench"][..], &longer].concat());
        lasts *= 2;
    }
    let json = as_json(&ran.expect(0));
    assert_eq!(json["nodes"][0]["fails"]["backlog"], Value::Null, "{}", json["nodes"]);
    expect_nothing_left(&world);
}
