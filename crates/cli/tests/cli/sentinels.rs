//! Nodes that are found through their sentinels.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use redbolt_test_servers::{Authority, Reply, Sentinels, Server};

use crate::harness::{Ran, World, eventually, run};

/// Sentinels that watch the first node as `jobs`.
fn sentinels(world: &World) -> (Sentinels, String) {
    let sentinels = Sentinels::watching(&[("jobs", &world.nodes[0])], Duration::from_secs(10));
    let places: Vec<_> = sentinels.all().iter().map(Server::address).collect();
    let address = format!("redis+sentinel://{}/jobs", places.join("+"));
    (sentinels, address)
}

fn with(world: &World, address: &str, words: &[&str]) -> Ran {
    let mut command = world.redbolt(words);
    command.env("REDBOLT_NODES", address);
    run(command)
}

#[test]
fn a_node_is_found_through_its_sentinels() {
    let world = World::of(1);
    let (_sentinels, address) = sentinels(&world);
    world.run(&["lock", "--node", &address, "job", "-c", "echo done"]).expect(0);
    let status = with(&world, &address, &["status"]).expect(0);
    assert!(status.stdout.contains(&address), "{status:?}");
    with(&world, &address, &["acquire", "job", "--ttl", "20s", "--token-file", "token"]).expect(0);
    world.run(&["lock", "--try", "job", "-c", "true"]).expect(75);
    with(&world, &address, &["release", "--token-file", "token"]).expect(0);
    let unknown = address.replace("/jobs", "/nobody");
    let unknown = with(&world, &unknown, &["status"]).expect(69);
    assert!(unknown.stdout.contains("it does not know that master"), "{unknown:?}");
    let broken = with(&world, "redis+sentinel://u:s3cret@h", &["status"]).expect(64);
    assert!(broken.stderr.contains("the name of the master is missing"), "{broken:?}");
    assert!(!broken.stderr.contains("s3cret"), "{broken:?}");
}

#[test]
fn status_names_a_master_that_would_vote_on_without_its_replicas() {
    let world = World::of(1);
    let (_sentinels, address) = sentinels(&world);
    // A first replica changes the replication id, so that the node has to wait before it votes.
    let status = || with(&world, &address, &["status"]).stdout;
    let alone = status();
    assert!(alone.contains("node 1 has no replica: sentinels have none to promote"), "{alone}");
    let (master, replica) = (&world.nodes[0], Server::start());
    replica.cmd(&format!("REPLICAOF 127.0.0.1 {}", master.port()));
    eventually("a replica is connected", || says(master, "connected_slaves:1"));
    let unaware = status();
    assert!(unaware.contains("min-replicas-to-write 1 prevents that"), "{unaware}");
    master.cmd("CONFIG SET min-replicas-to-write 1");
    eventually("the replica is in time", || says(master, "min_slaves_good_slaves:1"));
    let careful = status();
    assert!(!careful.contains("replicas"), "{careful}");
    let told = with(&world, &address, &["status", "--json"]).stdout;
    assert!(told.contains(r#""replicas":{"connected":1,"in_time":1}"#), "{told}");
}

fn says(node: &Server, words: &str) -> bool {
    match node.cmd("INFO replication") {
        Reply::Bulk(info) => String::from_utf8_lossy(&info).contains(words),
        _ => false,
    }
}

#[test]
fn the_doctor_asks_the_master_and_wants_replicas_in_time() {
    let world = World::of(1);
    let (_sentinels, address) = sentinels(&world);
    let (master, replica) = (&world.nodes[0], Server::start());
    let told = || with(&world, &address, &["doctor"]).stdout;
    let alone = told();
    assert!(alone.contains("The master has no replica"), "{alone}");
    replica.cmd(&format!("REPLICAOF 127.0.0.1 {}", master.port()));
    eventually("a replica is connected", || says(master, "connected_slaves:1"));
    let unaware = told();
    assert!(unaware.contains("-> Set min-replicas-to-write 1."), "{unaware}");
    master.cmd("CONFIG SET min-replicas-to-write 1");
    let careful = told();
    assert!(careful.contains("only with 1 of 1 replicas"), "{careful}");
}

#[test]
fn bench_asks_the_master_whether_it_is_in_use() {
    let world = World::of(1);
    let (_sentinels, address) = sentinels(&world);
    world.nodes[0].cmd("SET of-somebody-else 1");
    let bench = ["bench", "--duration", "200ms", "--warm-up", "50ms"];
    let refused = with(&world, &address, &bench).expect(64);
    assert!(refused.stderr.contains(": 1 key, "), "{refused:?}");
    assert!(!refused.stderr.contains("does not tell"), "{refused:?}");
    with(&world, &address, &[&bench[..], &["--yes"]].concat()).expect(0);
}

#[test]
fn the_sentinels_are_spoken_with_over_tls_of_their_own() {
    let theirs = Arc::new(Authority::named("the sentinels' CA"));
    let world = World::of(1);
    let wants_us = ["--tls-auth-clients", "yes"];
    let sentinel =
        Server::sentinel_over_tls(&theirs, theirs.server_named("sentinel.example"), &wants_us);
    let order = format!("SENTINEL MONITOR jobs 127.0.0.1 {} 1", world.nodes[0].port());
    assert_eq!(sentinel.cmd(&order), Reply::Status("OK".into()));
    let address = format!("redis+sentinel://127.0.0.1:{}/jobs", sentinel.tls_port());
    let ours = theirs.client();
    let [ca, certificate, key] =
        [theirs.ca(), ours.certificate, ours.key].map(|path| path.display().to_string());
    let options = [
        ("--sentinel-tls", "on"),
        ("--sentinel-tls-ca", &ca),
        ("--sentinel-tls-cert", &certificate),
        ("--sentinel-tls-key", &key),
        ("--sentinel-tls-server-name", "sentinel.example"),
    ];
    let words: Vec<_> = options.iter().flat_map(|&(option, value)| [option, value]).collect();
    let lock = ["lock", "--wait", "5s"];
    with(&world, &address, &[&lock[..], &words, &["job", "-c", "true"]].concat()).expect(0);
    let mut command = world.redbolt(&["lock", "--wait", "5s", "job", "-c", "true"]);
    command.env("REDBOLT_NODES", &address);
    for (option, value) in options {
        let variable = option.trim_start_matches('-').replace('-', "_").to_uppercase();
        command.env(format!("REDBOLT_{variable}"), value);
    }
    run(command).expect(0);
    let status = with(&world, &address, &[&["status"], &words[..8]].concat()).expect(69);
    let said = status.stdout + &status.stderr;
    assert!(said.contains("it is for sentinel.example, not for 127.0.0.1"), "{said}");
    with(&world, &address, &[&["status"], &words[2..]].concat())
        .expect(64)
        .expect_says("none is spoken with over it");
    let mut wrong = world.redbolt(&["status"]);
    wrong.env("REDBOLT_NODES", &address).env("REDBOLT_SENTINEL_TLS", "perhaps");
    run(wrong).expect(64).expect_says("REDBOLT_SENTINEL_TLS in the environment");
}

#[test]
fn the_sentinels_have_a_user_and_a_password_of_their_own() {
    let world = World::of(1);
    let (sentinels, address) = sentinels(&world);
    for sentinel in sentinels.all() {
        sentinel.cmd("ACL SETUSER ann on >s3cret +@all &*");
        sentinel.cmd("ACL SETUSER default resetpass >other");
    }
    let file = world.path("password");
    fs::write(&file, "s3cret\n").unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    let as_ann = ["--sentinel-user", "ann", "--sentinel-password-file", "password"];
    let lock = |options: &[&str]| {
        let words = [&["lock", "--wait", "5s"], options, &["job", "-c", "true"]].concat();
        with(&world, &address, &words)
    };
    lock(&as_ann).expect(64).expect_says("chmod 600");
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    lock(&as_ann).expect(0);
    lock(&as_ann[..2]).expect(64).expect_says("--sentinel-password-file");
    let status = with(&world, &address, &["status"]).expect(69);
    assert!((status.stdout + &status.stderr).contains("NOAUTH"));
    let mut wrong = world.redbolt(&["status"]);
    wrong.env("REDBOLT_NODES", &address).env("REDBOLT_SENTINEL_PASSWORD_FILE", "password");
    let wrong = run(wrong).expect(69);
    let said = wrong.stdout + &wrong.stderr;
    assert!(said.contains("WRONGPASS") && !said.contains("s3cret"), "{said}");
    let mut right = world.redbolt(&["lock", "job", "-c", "true"]);
    right.env("REDBOLT_NODES", &address).env("REDBOLT_SENTINEL_USER", "ann");
    right.env("REDBOLT_SENTINEL_PASSWORD_FILE", "password");
    run(right).expect(0);
}
