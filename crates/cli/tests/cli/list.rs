//! `redbolt list`: the locks that are held, on real nodes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use redbolt_test_servers::Server;
use serde_json::Value;

use crate::harness::{World, eventually, info, run};

/// Returns the object of `--json`.
#[track_caller]
fn list(world: &World, options: &[&str]) -> Value {
    let ran = world.run(&[&["list", "--json"], options].concat()).expect(0);
    serde_json::from_str(&ran.stdout).unwrap()
}

/// Returns the list once it is like this: a node that is late is not waited for.
#[track_caller]
fn list_until(world: &World, is_whole: impl Fn(&Value) -> bool) -> Value {
    let mut seen = Value::Null;
    eventually("all nodes answer in time", || {
        seen = list(world, &[]);
        is_whole(&seen)
    });
    seen
}

#[track_caller]
fn lock<'a>(list: &'a Value, name: &str) -> &'a Value {
    let locks = list["locks"].as_array().unwrap();
    let lock = locks.iter().find(|lock| lock["key"] == name);
    lock.unwrap_or_else(|| panic!("no {name} in {list}"))
}

fn names(list: &Value) -> Vec<&str> {
    list["locks"].as_array().unwrap().iter().map(|lock| lock["key"].as_str().unwrap()).collect()
}

fn acquire(world: &World, file: &str, options: &[&str]) {
    let words = ["acquire", "--ttl", "29s", "--label", "web-1", "--token-file", file];
    world.run(&[&words, options].concat()).expect(0);
}

#[test]
fn each_kind_of_lock_is_listed_with_its_holder() {
    let world = World::of(3);
    assert_eq!(world.run(&["list"]).expect(0).stdout, "no lock is held\n");
    world.acquire_on_all("a", &["--ttl", "29s", "--label", "web-1", "--fencing"], "nightly");
    acquire(&world, "b", &["--shared", "data"]);
    acquire(&world, "c", &["--permits", "3", "mail"]);
    world.nodes[0].cmd("HSET redisson 3f1cd5f0-7a3c-4c5e-9d0b-0f2a5b8d6e11:42 2");
    world.nodes[0].cmd("SET text abc");
    world.nodes[0].cmd("RPUSH list 1");
    let names_of_locks = ["data", "mail", "nightly", "redisson"];
    let seen = list_until(&world, |seen| {
        names(seen) == names_of_locks && lock(seen, "nightly")["on_nodes"] == 3
    });
    assert_eq!((&seen["complete"], &seen["answered"]), (&Value::Bool(true), &3.into()));
    let nightly = lock(&seen, "nightly");
    assert_eq!((&nightly["kind"], &nightly["holder"]), (&"exclusive".into(), &"web-1".into()));
    assert_eq!(nightly["has_quorum"], true);
    assert!((1..=29_000).contains(&nightly["remaining_ms"].as_u64().unwrap()), "{nightly}");
    assert_eq!(
        (&lock(&seen, "data")["kind"], &lock(&seen, "data")["count"]),
        (&"shared".into(), &1.into())
    );
    assert_eq!(lock(&seen, "mail")["kind"], "permits");
    assert_eq!(lock(&seen, "redisson")["library"], "Redisson");
    let text = world.run(&["list"]).expect(0).stdout;
    let head = text.lines().next().unwrap();
    assert_eq!(head.split_whitespace().next(), Some("name"), "{text}");
    let row = text.lines().find(|line| line.starts_with("nightly ")).unwrap();
    assert!(row.contains("exclusive  web-1 ") && row.contains(" of 3"), "{row}");
    assert_eq!(text.lines().last(), Some("4 locks"));
    let status = world.run(&["status", "nightly"]).stdout;
    assert!(status.contains("held by web-1,"), "shown as by status: {status}");
}

#[test]
fn looking_at_locks_changes_nothing() {
    let world = World::of(1);
    acquire(&world, "token", &["job"]);
    let changes = || {
        let info = info(&world, "persistence");
        let line = info.lines().find(|line| line.starts_with("rdb_changes_since_last_save:"));
        line.unwrap().to_owned()
    };
    let before = changes();
    assert_eq!(names(&list(&world, &[])), ["job"]);
    assert_eq!(changes(), before);
}

#[test]
fn a_lock_without_a_quorum_is_marked() {
    let world = World::of(3);
    world.acquire_on_all("token", &["--ttl", "29s"], "job");
    world.nodes[0].cmd("DEL job");
    let two = list_until(&world, |seen| lock(seen, "job")["on_nodes"] == 2);
    assert_eq!(lock(&two, "job")["has_quorum"], true);
    world.nodes[1].cmd("DEL job");
    list_until(&world, |seen| lock(seen, "job")["has_quorum"] == false);
    let marked = || world.run(&["list"]).expect(0).stdout.contains("1 of 3  no quorum\n");
    eventually("the lock is marked", marked);
}

#[test]
fn waiters_are_counted() {
    let world = World::of(3);
    world.acquire_on_all("token", &["--ttl", "29s"], "job");
    let waiter = world.start(&["lock", "job", "--", "true"]);
    eventually("the waiter is in the queue", || lock(&list(&world, &[]), "job")["waiters"] == 1);
    drop(waiter);
}

#[test]
fn a_prefix_and_a_limit_bound_the_list() {
    let world = World::of(1);
    for name in ["a:1", "a:2", "a[3]", "b:1"] {
        acquire(&world, name, &[name]);
    }
    assert_eq!(names(&list(&world, &["--prefix", "a:"])), ["a:1", "a:2"]);
    assert_eq!(names(&list(&world, &["--prefix", "a["])), ["a[3]"]);
    let cut = list(&world, &["--limit", "2"]);
    assert_eq!((names(&cut), &cut["complete"]), (vec!["a:1", "a:2"], &false.into()));
    let text = world.run(&["list", "--limit", "2"]).expect(0).stdout;
    assert!(text.ends_with("2 locks, and perhaps more: stopped at --limit 2\n"), "{text}");
    assert_eq!(list(&world, &["--limit", "4"])["complete"], true);
    world.run(&["list", "--limit", "0"]).expect(64);
}

#[test]
fn a_large_database_is_walked_through_to_a_bound() {
    let world = World::of(1);
    let fill = b"for i = 1, 101000 do redis.call('SET', 'k' .. i, 'abc') end";
    world.nodes[0].run(&[b"EVAL", fill, b"0"]);
    acquire(&world, "token", &["z:job"]);
    let seen = list(&world, &["--prefix", "z:"]);
    assert_eq!(seen["complete"], false, "{seen}");
    let text = world.run(&["list", "--prefix", "z:"]).expect(0).stdout;
    assert!(text.ends_with("stopped before the end of a large database, see --prefix\n"), "{text}");
}

#[test]
fn nodes_that_were_not_looked_at_are_named() {
    let mut world = World::of(3);
    world.acquire_on_all("token", &["--ttl", "29s"], "job");
    world.nodes[0].kill();
    let two = world.run(&["list"]).expect(0).expect_says("not looked at: Connection refused");
    assert!(two.stdout.contains("2 of 3"), "{two:?}");
    let forbidden = Server::start();
    forbidden.cmd("ACL SETUSER default -scan");
    let forbidden = World::on(vec![forbidden]);
    forbidden.run(&["list"]).expect(69).expect_says("no permissions to run the 'scan' command");
    let locked = World::on(vec![Server::with(&["--requirepass", "s3cret"])]);
    let mut wrong = locked.redbolt(&["list"]);
    wrong.env("REDBOLT_NODES", format!("redis://:hunter2@{}", locked.nodes[0].address()));
    let wrong = run(wrong).expect(69).expect_says("(WRONGPASS)");
    assert!(!wrong.stderr.contains("hunter2") && !wrong.stdout.contains("hunter2"), "{wrong:?}");
}

#[test]
fn a_name_of_any_bytes_stays_on_its_line() {
    let world = World::of(1);
    let mut command = world.redbolt(&["acquire", "--ttl", "29s", "--token-file", "token"]);
    command.arg(OsStr::from_bytes(b"a\nb\x1b[2J\xff"));
    run(command).expect(0);
    let text = world.run(&["list"]).expect(0).stdout;
    assert!(text.contains("a\\nb\\u{1b}[2J\\xff  exclusive"), "{text}");
    let seen = list(&world, &[]);
    assert_eq!(seen["locks"][0]["key_hex"], "610a621b5b324aff");
}
