//! Standing in line.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::harness::{World, eventually, info, lives};

#[test]
fn a_waiter_gets_the_lock_when_it_is_let_go() {
    let world = World::of(3);
    let holder = world.start(&["lock", "job", "-c", "echo $$ > holder; sleep 0.5"]);
    let first = world.process("holder");
    let waiter = world.start(&["lock", "job", "-c", "echo $$ > waiter"]);
    world.process("waiter");
    assert!(!lives(first), "the waiter ran while the holder did");
    holder.end().expect(0);
    waiter.end().expect(0);
    assert_eq!(world.held_on("job"), 0);
}

#[test]
fn a_waiter_gets_the_lock_of_a_holder_that_vanished() {
    let world = World::of(1);
    let holder =
        world.start(&["lock", "--ttl", "500ms", "job", "-c", "echo $$ > holder; sleep 60"]);
    world.process("holder");
    holder.signal(Signal::SIGKILL);
    world.run(&["lock", "job", "--", "true"]).expect(0);
}

#[test]
fn a_waiter_leaves_when_it_is_told_to_and_nothing_stays_behind() {
    let world = World::of(3);
    world.take("job");
    for (signal, status) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143), (Signal::SIGHUP, 129)] {
        let waiter = world.start(&["lock", "job", "--", "touch", "ran"]);
        // Its connections are what can be seen of a waiter from outside.
        eventually("the waiter asks", || clients(&world) > 1);
        waiter.signal(signal);
        waiter.end().expect(status);
        eventually("the waiter is gone", || clients(&world) == 1);
    }
    world.delete("job");
    assert!(!world.path("ran").exists());
    assert_eq!(world.held_on("job"), 0);
}

#[test]
fn with_nohup_a_waiter_waits_on() {
    let world = World::of(1);
    world.take("job");
    let mut command = redbolt_proving::program("nohup");
    command.args([
        env!("CARGO_BIN_EXE_redbolt"),
        "lock",
        "job",
        "-c",
        "trap > traps; echo ran > ran",
    ]);
    command.env("REDBOLT_NODES", world.addresses()).current_dir(world.path(""));
    let waiter = crate::harness::Running::start(command);
    eventually("the waiter asks", || clients(&world) > 1);
    waiter.signal(Signal::SIGHUP);
    std::thread::sleep(Duration::from_millis(50));
    world.delete("job");
    waiter.end().expect(0);
    assert_eq!(world.written("ran"), "ran");
}

#[test]
fn a_waiter_in_line_outlives_a_short_outage() {
    let mut world = World::with_max_ttl(1, "2s");
    world.take("job");
    world.nodes[0].cmd("CONFIG RESETSTAT");
    let waiter = world.start(&["lock", "--ttl", "1s", "job", "-c", "echo ran > ran"]);
    eventually("the waiter was denied", || info(&world, "commandstats").contains("cmdstat_set:"));
    world.nodes[0].kill();
    std::thread::sleep(Duration::from_millis(1500));
    world.nodes[0].restart();
    assert_eq!(world.written("ran"), "ran");
    let said = waiter.end().expect(0).expect_says("waiting for nodes to come back");
    said.expect_says("for the quarantine to end");
}

/// How many clients the first node has, the asking one included.
fn clients(world: &World) -> usize {
    let info = info(world, "clients");
    let count = info.lines().find_map(|line| line.strip_prefix("connected_clients:"));
    count.unwrap().trim().parse().unwrap()
}
