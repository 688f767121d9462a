//! `redbolt doctor`: each bad setting is found, and the exit status is that of the worst finding.

use std::process::Command;

use redbolt_test_servers::{Reply, Server};
use serde_json::Value;

use crate::harness::{World, eventually, run};

/// The report of the doctor.
struct Told {
    json: Value,
}

impl Told {
    /// Runs the doctor, whose exit status must be that of its result.
    #[track_caller]
    fn by(world: &World, options: &[&str]) -> Self {
        Self::of(world.redbolt(&[&["doctor", "--json"], options].concat()))
    }

    /// Runs the doctor like [`by`](Self::by), with these nodes.
    #[track_caller]
    fn at(world: &World, nodes: &str) -> Self {
        let mut command = world.redbolt(&["doctor", "--json"]);
        command.env("REDBOLT_NODES", nodes);
        Self::of(command)
    }

    #[track_caller]
    fn of(command: Command) -> Self {
        let ran = run(command);
        for secret in SECRETS {
            assert!(!ran.stdout.contains(secret) && !ran.stderr.contains(secret), "{ran:?}");
        }
        let json: Value = serde_json::from_str(&ran.stdout).unwrap();
        let status = match json["result"].as_str().unwrap() {
            "pass" => 0,
            "warn" => 1,
            "fail" => 2,
            other => panic!("{other}"),
        };
        ran.expect(status);
        Self { json }
    }

    /// Returns the check of this name, of a node.
    fn node(&self, at: usize, name: &str) -> Found {
        Found::of(&self.json["nodes"][at]["checks"], name)
    }

    /// Returns the check of this name, of the set.
    fn set(&self, name: &str) -> Found {
        Found::of(&self.json["checks"], name)
    }

    /// Returns the names of the checks that warn or fail, except for those that depend on a busy
    /// machine.
    fn bad(&self) -> Vec<String> {
        let nodes = self.json["nodes"].as_array().unwrap().iter();
        let checks = nodes.map(|node| &node["checks"]).chain([&self.json["checks"]]);
        let checks = checks.flat_map(|checks| checks.as_array().unwrap());
        let bad = checks.filter(|check| ["warn", "fail"].contains(&text(&check["result"])));
        let names = bad.map(|check| text(&check["check"]).to_owned());
        names.filter(|name| !OF_THE_MACHINE.contains(&name.as_str())).collect()
    }
}

#[derive(Debug)]
struct Found {
    result: String,
    why: String,
}

impl Found {
    #[track_caller]
    fn of(checks: &Value, name: &str) -> Self {
        let checks = checks.as_array().unwrap();
        let check = checks.iter().find(|check| check["check"] == name);
        let check = check.unwrap_or_else(|| panic!("no check {name} in {checks:?}"));
        let is_bad = ["warn", "fail"].contains(&text(&check["result"]));
        assert_eq!(is_bad, check["todo"].is_string(), "{check}");
        Self { result: text(&check["result"]).to_owned(), why: text(&check["why"]).to_owned() }
    }

    #[track_caller]
    fn expect(&self, result: &str, words: &str) {
        assert!(self.result == result && self.why.contains(words), "{result} {words:?}: {self:?}");
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The passwords of these tests.
const SECRETS: [&str; 2] = ["hunter2", "s3cret"];

const OF_THE_MACHINE: [&str; 3] = ["reachable", "slow_commands", "latency"];

#[test]
fn good_nodes_have_no_finding_and_stay_as_they_are() {
    let world = World::of(3);
    world.run(&["acquire", "--ttl", "25s", "--token-file", "token", "job"]).expect(0);
    let changes = || -> Vec<String> {
        world.nodes.iter().map(|node| field(node, "rdb_changes_since_last_save")).collect()
    };
    let before = changes();
    eventually("all nodes answer in time", || {
        let told = Told::by(&world, &[]);
        told.bad().is_empty() && told.json["voting"] == 3
    });
    assert_eq!(changes(), before, "the doctor has written something");
    let told = Told::by(&world, &[]);
    told.node(0, "reachable").expect("pass", "of 200 round trips");
    told.node(0, "version").expect("pass", "The server is ");
    told.node(0, "commands").expect("pass", "all commands");
    let words = world.run(&["doctor"]).stdout;
    assert!(words.contains(&format!("node 1 {}\n", world.nodes[0].address())), "{words}");
    assert!(words.contains("  pass  version  "), "{words}");
    assert!(words.lines().last().unwrap().ends_with("not checked"), "{words}");
    assert!(!words.contains('\x1b'), "a pipe gets no colours");
}

fn field(node: &Server, name: &str) -> String {
    let Reply::Bulk(info) = node.cmd("INFO") else { panic!("no INFO") };
    let info = String::from_utf8(info).unwrap();
    let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.unwrap_or_default().to_owned()
}

#[test]
fn a_node_that_is_down_or_hangs_is_a_failure() {
    let mut world = World::of(3);
    world.nodes[1].kill();
    let told = Told::by(&world, &[]);
    told.node(1, "reachable").expect("fail", "connection refused");
    told.set("quorum").expect("warn", "2 of 3 nodes vote");
    assert_eq!(told.json["nodes"][1]["checks"].as_array().unwrap().len(), 1);
    world.nodes[1].restart();
    world.nodes[0].pause();
    let told = Told::by(&world, &["--response-timeout", "300ms"]);
    told.node(0, "reachable").expect("fail", "");
    world.nodes[0].resume();
}

#[test]
fn a_wrong_or_missing_password_is_named_and_not_shown() {
    let world = World::on(vec![Server::with(&["--requirepass", "s3cret"])]);
    let address = world.nodes[0].address();
    let wrong = Told::at(&world, &format!("redis://:hunter2@{address}"));
    wrong.node(0, "login").expect("fail", "WRONGPASS");
    wrong.set("quorum").expect("fail", "0 of 1 nodes vote");
    let unknown = Told::at(&world, &format!("redis://ann:hunter2@{address}"));
    unknown.node(0, "login").expect("fail", "WRONGPASS");
    Told::at(&world, &address).node(0, "login").expect("fail", "NOAUTH");
    let right = Told::at(&world, &format!("redis://:s3cret@{address}"));
    right.node(0, "protection").expect("pass", "Clients must log in.");
    right.node(0, "votes").expect("warn", "it is new, or has lost its memory");
}

#[test]
fn one_server_under_two_addresses_is_a_failure() {
    let world = World::of(2);
    let socket = format!("unix://{}", world.nodes[0].socket().display());
    let nodes = format!("{},{socket}", world.addresses());
    Told::at(&world, &nodes).set("same_server").expect("fail", "Nodes 1 and 3 are one server");
    Told::by(&world, &[]).set("same_server").expect("pass", "");
}

#[test]
fn an_even_number_of_nodes_is_a_warning() {
    let world = World::of(2);
    let told = Told::by(&world, &[]);
    told.set("node_count").expect("warn", "Locks stop when one of 2 nodes fails");
    eventually("nothing else is found", || Told::by(&world, &[]).bad() == ["node_count"]);
}

#[test]
fn memory_that_is_full_or_made_by_eviction_is_found() {
    let world = World::of(1);
    let node = &world.nodes[0];
    node.cmd("CONFIG SET maxmemory-policy allkeys-lru");
    Told::by(&world, &[]).node(0, "eviction").expect("warn", "allkeys-lru");
    node.cmd("CONFIG SET maxmemory 100mb");
    let told = Told::by(&world, &[]);
    told.node(0, "eviction").expect("fail", "allkeys-lru");
    told.node(0, "votes").expect("fail", "evict");
    node.cmd("CONFIG SET maxmemory-policy noeviction");
    let told = Told::by(&world, &[]);
    told.node(0, "eviction").expect("pass", "");
    told.node(0, "memory").expect("pass", "of its maxmemory, 100.0 MiB");
    node.cmd("CONFIG SET maxmemory 1mb");
    Told::by(&world, &[]).node(0, "memory").expect("fail", "1.0 MiB");
}

#[test]
fn what_a_restart_forgets_must_be_guarded() {
    let world = World::of(1);
    let persistence = |options: &[&str]| Told::by(&world, options).node(0, "persistence");
    let (off, durable) = (&["--restart-guard", "off"], &["--restart-trust", "durable"]);
    persistence(&[]).expect("pass", "does not vote for 30.0 s");
    persistence(off).expect("fail", "no restart guard notices");
    persistence(durable).expect("fail", "may forget locks");
    persistence(&["--restart-trust", "marker-only"]).expect("pass", "keeps nothing");
    world.nodes[0].cmd("CONFIG SET appendonly yes");
    persistence(&["--restart-trust", "marker-only"]).expect("fail", "old restart guard");
    world.nodes[0].cmd("CONFIG SET appendfsync always");
    persistence(off).expect("pass", "");
    persistence(durable).expect("pass", "");
}

#[test]
fn a_replica_is_no_node() {
    let world = World::of(2);
    let master = world.nodes[1].port();
    world.nodes[0].cmd(&format!("REPLICAOF 127.0.0.1 {master}"));
    let told = Told::by(&world, &[]);
    told.node(0, "role").expect("fail", "The node is a replica");
    told.node(0, "votes").expect("fail", "replica");
    eventually("the master has it", || {
        Told::by(&world, &[]).node(1, "role").why.contains("master with 1 replica")
    });
}

#[test]
fn commands_that_the_user_may_not_run_are_named() {
    let world = World::of(1);
    let node = &world.nodes[0];
    let login = format!("redis://ann:hunter2@{}", node.address());
    let told = |rules: &str| {
        node.cmd(&format!("ACL SETUSER ann reset on >hunter2 ~* &* +@all {rules}"));
        Told::at(&world, &login)
    };
    told("").node(0, "commands").expect("pass", "");
    // The default user needs no password.
    told("").node(0, "protection").expect("pass", "listens for its own host only");
    told("-eval -evalsha").node(0, "commands").expect("fail", "not run EVAL, EVALSHA.");
    told("-client|tracking").node(0, "commands").expect("warn", "not run CLIENT TRACKING.");
    let told = told("-time -info -config -slowlog -scan resetchannels");
    told.node(0, "commands").expect("warn", "TIME");
    for check in ["version", "role", "memory", "clock", "slow_commands", "leftovers"] {
        told.node(0, check).expect("skip", "may not");
    }
}

/// The commands of the manual, without those that only an administrator has.
#[test]
fn a_user_with_the_rules_of_the_manual_passes() {
    let world = World::of(1);
    let page = include_str!("../../../../docs/use/operations.md");
    let (_, rules) = page.split_once("ACL SETUSER worker").unwrap();
    let (rules, _) = rules.split_once("\ndone").unwrap();
    let rules = rules.replace(['\'', '\\', '\n'], " ").replace(">secret", ">hunter2");
    let words: Vec<_> = rules.split_whitespace().map(str::as_bytes).collect();
    let words = [&[&b"ACL"[..], b"SETUSER", b"worker"], &words[..]].concat();
    assert_eq!(world.nodes[0].run(&words), Reply::Status("OK".to_owned()));
    let login = format!("redis://worker:hunter2@{}", world.nodes[0].address());
    eventually("nothing is found", || Told::at(&world, &login).bad().is_empty());
}

#[test]
fn a_lock_without_an_end_is_named() {
    let world = World::of(2);
    world.acquire_on_all("token", &["--ttl", "25s"], "job");
    Told::by(&world, &[]).node(0, "leftovers").expect("pass", "");
    world.nodes[1].cmd("PERSIST job");
    let told = Told::by(&world, &[]);
    told.node(0, "leftovers").expect("pass", "");
    told.node(1, "leftovers").expect("warn", "never expire: \"job\".");
    // This is data of a program, unless it is below the prefix of locks.
    world.nodes[0].cmd("SET jobs:*a abc");
    world.nodes[0].cmd("SET jobs:b abc");
    Told::by(&world, &[]).node(0, "leftovers").expect("pass", "");
    let prefix = Told::by(&world, &["--prefix", "jobs:*"]);
    prefix.node(0, "leftovers").expect("warn", "never expire: \"jobs:*a\".");
    prefix.node(1, "leftovers").expect("pass", "");
}

#[test]
fn a_node_that_lost_its_data_is_quarantined_with_an_end() {
    let world = World::of(3);
    world.nodes[2].cmd("FLUSHALL");
    let told = Told::by(&world, &[]);
    told.node(2, "votes").expect("warn", "it is new, or has lost its memory");
    world.run(&["lock", "job", "--", "true"]).expect(0);
    eventually("the quarantine has begun", || {
        let told = Told::by(&world, &[]);
        let left = told.json["nodes"][2]["restart_guard"]["left_ms"].as_u64();
        left.is_some_and(|left| left <= 30_000)
            && told.node(2, "votes").why.contains("it is quarantined for ")
    });
    let limits = Told::by(&world, &["--max-ttl", "10s"]);
    limits.node(0, "votes").expect("fail", "set up for 3 nodes and a max_ttl of 30s");
}

#[test]
fn new_nodes_get_the_command_that_enrols_them() {
    let world = World::fresh(3);
    let words = world.run(&["doctor"]).expect(2).stdout;
    assert!(words.contains("-> If these nodes are new and never held a lock: `redbolt init`."));
    world.init();
    assert_eq!(Told::by(&world, &[]).json["voting"], 3);
}

#[test]
fn a_slow_command_is_named_without_its_arguments() {
    let world = World::of(1);
    let node = &world.nodes[0];
    node.cmd("CONFIG SET latency-monitor-threshold 1");
    let script = b"for i = 1, tonumber(ARGV[1]) do end return ARGV[2]";
    let mut rounds: u64 = 5_000_000;
    eventually("a command was slow", || {
        node.run(&[b"EVAL", script, b"0", rounds.to_string().as_bytes(), b"hunter2"]);
        rounds *= 2;
        Told::by(&world, &[]).node(0, "slow_commands").why.contains("(EVAL)")
    });
    let told = Told::by(&world, &[]);
    told.node(0, "slow_commands").expect("warn", "(EVAL)");
    told.node(0, "latency").expect("warn", "(command)");
}

#[test]
fn few_wakes_of_a_server_are_a_warning() {
    let world = World::of(1);
    world.nodes[0].cmd("CONFIG SET hz 1");
    Told::by(&world, &[]).node(0, "hz").expect("warn", "only 1 times a second");
}

#[test]
fn wrong_usage_is_64() {
    let world = World::of(1);
    world.run(&["doctor", "job"]).expect(64);
    let mut command = world.redbolt(&["doctor"]);
    command.env_remove("REDBOLT_NODES");
    run(command).expect(64).expect_says("no nodes given");
}
