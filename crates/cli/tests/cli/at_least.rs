//! `lock --at-least`: a job that is started on many hosts runs on only one of them.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use redbolt_test_servers::{Reply, Server};

use crate::harness::{World, eventually, lives};

/// Returns the number of nodes on which the key lives for longer than this. A node that is late for
/// the grant never gets it.
fn kept_for(world: &World, ms: i64) -> usize {
    world.nodes.iter().filter(|node| pttl(node) > ms).count()
}

fn pttl(node: &Server) -> i64 {
    match node.cmd("PTTL job") {
        Reply::Int(ms) => ms,
        other => panic!("{other:?}"),
    }
}

#[test]
fn at_least_keeps_the_lock_taken_after_a_short_job() {
    let world = World::of(3);
    let job = |file| {
        let line = format!("echo ran > {file}; exit 3");
        world.run(&["lock", "--try", "--ttl", "6s", "--at-least", "25s", "job", "-c", &line])
    };
    let first = job("first").expect(3);
    assert_eq!(first.stderr, "");
    assert!(first.took < Duration::from_secs(20), "redbolt ends at once: {first:?}");
    job("second").expect(75);
    assert!(world.path("first").exists() && !world.path("second").exists());
    assert!(kept_for(&world, 6_000) >= 2, "the nodes keep it for longer than a TTL");
}

#[test]
fn the_lock_is_free_when_at_least_is_over() {
    let world = World::of(3);
    let words = ["lock", "--ttl", "4s", "--at-least", "8s", "job", "--", "true"];
    world.run(&words).expect(0);
    assert!(kept_for(&world, 0) >= 2);
    eventually("the key expires", || world.held_on("job") == 0);
}

#[test]
fn a_command_that_cannot_be_run_keeps_nothing() {
    let world = World::of(3);
    for (command, status) in [("no-such-command", 127), ("/", 126)] {
        let words = ["lock", "--at-least", "25s", "job", "--", command];
        world.run(&words).expect(status);
        assert_eq!(world.held_on("job"), 0);
    }
}

/// The command ran, whatever its status suggests.
#[test]
fn a_command_that_ends_with_127_keeps_the_lock() {
    let world = World::of(3);
    let words = ["lock", "--at-least", "25s", "job", "-c", "echo > ran; no-such-command"];
    world.run(&words).expect(127);
    assert!(world.path("ran").exists());
    assert!(kept_for(&world, 0) >= 2);
}

#[test]
fn a_job_longer_than_at_least_releases_at_once() {
    let world = World::of(3);
    let words = ["lock", "--ttl", "25s", "--at-least", "100ms", "job", "--", "sleep", "0.2"];
    world.run(&words).expect(0);
    assert_eq!(world.held_on("job"), 0);
}

/// No TTL covers that time, so redbolt itself keeps the lock for the first part of it.
#[test]
fn redbolt_itself_waits_where_no_ttl_is_long_enough() {
    let world = World::with_max_ttl(3, "6s");
    let words = ["lock", "--ttl", "5s", "--at-least", "15s", "job", "-c", "echo $$ > pid; exit 4"];
    let running = world.start(&words);
    let pid = world.process("pid");
    eventually("the command has ended", || !lives(pid));
    world.run(&["lock", "-n", "--ttl", "5s", "job", "--", "true"]).expect(75);
    let ran = running.end().expect(4).expect_says("keeping the lock for");
    assert!(ran.took >= Duration::from_millis(8_900), "{ran:?}");
    world.run(&["lock", "-n", "--ttl", "5s", "job", "--", "true"]).expect(75);
    eventually("the key expires", || world.held_on("job") == 0);
}

#[test]
fn quiet_hides_the_note_of_at_least() {
    let world = World::with_max_ttl(3, "6s");
    let words = ["lock", "-q", "--ttl", "6s", "--at-least", "8s", "job", "--", "true"];
    assert_eq!(world.run(&words).expect(0).stderr, "");
}

#[test]
fn a_signal_during_at_least_leaves_the_lock_to_its_ttl() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let world = World::with_max_ttl(3, "9s");
        let words =
            ["lock", "--ttl", "6s", "--at-least", "60s", "job", "-c", "echo $$ > pid; exit 4"];
        let running = world.start(&words);
        let pid = world.process("pid");
        eventually("the command has ended", || !lives(pid));
        running.signal(signal);
        running.end().expect(4);
        assert!(kept_for(&world, 0) >= 2);
        eventually("the key expires", || world.held_on("job") == 0);
    }
}

#[test]
fn an_interrupted_command_keeps_the_lock_for_at_least() {
    let world = World::of(3);
    let words =
        ["lock", "--ttl", "6s", "--at-least", "25s", "job", "-c", "echo $$ > pid; exec sleep 600"];
    let running = world.start(&words);
    world.process("pid");
    running.signal(Signal::SIGTERM);
    running.end().expect(143);
    world.run(&["lock", "-n", "job", "--", "true"]).expect(75);
}

/// The help says so: while the command runs, only redbolt keeps the lock.
#[test]
fn a_killed_redbolt_keeps_the_lock_for_a_ttl_only() {
    let world = World::of(3);
    let words =
        ["lock", "--ttl", "6s", "--at-least", "25s", "job", "-c", "echo $$ > pid; exec sleep 600"];
    let running = world.start(&words);
    let pid = world.process("pid");
    running.signal(Signal::SIGKILL);
    let killed = Instant::now();
    eventually("the key dies with its TTL", || world.held_on("job") == 0 && !lives(pid));
    assert!(killed.elapsed() < Duration::from_secs(20), "the lock is kept for --at-least");
}

#[test]
fn a_lock_that_is_lost_is_not_extended() {
    let world = World::of(3);
    let words =
        ["lock", "--ttl", "6s", "--at-least", "25s", "job", "-c", "echo > up; exec sleep 600"];
    let running = world.start(&words);
    eventually("the command runs", || world.path("up").exists());
    world.delete("job");
    running.end().expect(70);
    assert_eq!(world.held_on("job"), 0);
}

/// The quorum was lost while the command ran: its status is passed on, with a warning.
#[test]
fn an_at_least_that_cannot_be_kept_is_a_warning() {
    let world = World::of(3);
    let pids: Vec<_> = world.nodes.iter().map(|node| node.pid().to_string()).collect();
    let line = format!("kill -STOP {}; exit 5", pids[..2].join(" "));
    let words = ["lock", "--ttl", "6s", "--at-least", "25s", "job", "-c", &line];
    world.run(&words).expect(5).expect_says("before --at-least is over");
    world.nodes.iter().for_each(Server::resume);
}

#[test]
fn without_extending_there_is_no_at_least() {
    let world = World::of(1);
    let words = ["lock", "--no-extend", "--at-least", "5s", "job", "--", "touch", "ran"];
    world.run(&words).expect(64);
    assert!(!world.path("ran").exists());
}
