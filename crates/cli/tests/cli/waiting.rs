//! Waiting in the queue.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use redbolt_test_servers::{Mode, Proxy, Reply, Server};

use crate::harness::{
    Running, World, eventually, ignores_hangup, info, lives, run, shell_until, wakes,
};

#[test]
fn a_waiter_gets_the_released_lock() {
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
    let holder = world.start(&["lock", "--ttl", "6s", "job", "-c", "echo $$ > holder; sleep 60"]);
    world.process("holder");
    holder.signal(Signal::SIGKILL);
    world.run(&["lock", "job", "--", "true"]).expect(0);
}

#[test]
fn a_waiter_ends_on_a_signal_and_leaves_nothing() {
    let world = World::of(3);
    world.take("job");
    for (signal, status) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143), (Signal::SIGHUP, 129)] {
        let waiter = world.start(&["lock", "job", "--", "touch", "ran"]);
        // From outside, a waiter shows only by its connections.
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
    let mut command = redbolt_test_servers::program("nohup");
    command.args([
        env!("CARGO_BIN_EXE_redbolt"),
        "lock",
        "job",
        "-c",
        "trap > traps; echo ran > ran",
    ]);
    command.env("REDBOLT_NODES", world.addresses()).current_dir(world.path(""));
    let waiter = Running::start(command);
    eventually("the waiter asks", || clients(&world) > 1);
    assert!(ignores_hangup(waiter.pid()), "it waits on because the signal is ignored");
    waiter.signal(Signal::SIGHUP);
    world.delete("job");
    waiter.end().expect(0);
    assert_eq!(world.written("ran"), "ran");
}

#[test]
fn a_queued_waiter_outlives_a_short_outage() {
    let mut world = World::with_max_ttl(1, "2s");
    world.take("job");
    world.nodes[0].cmd("CONFIG RESETSTAT");
    let waiter = world.start(&["lock", "--ttl", "2s", "job", "-c", "echo ran > ran"]);
    eventually("the waiter was denied", || info(&world, "commandstats").contains("cmdstat_set:"));
    world.nodes[0].kill();
    let says = "waiting for nodes to come back";
    eventually("the outage is told", || waiter.said().contains(says));
    world.nodes[0].restart();
    assert_eq!(world.written("ran"), "ran");
    waiter.end().expect(0).expect_says("for the quarantine to end");
}

/// The outage is longer than any that an earlier version survived, and begins at once.
#[test]
fn a_wait_without_a_limit_outlasts_nodes_that_refuse_from_the_start() {
    let mut world = World::with_max_ttl(3, "2s");
    world.nodes.iter_mut().for_each(Server::kill);
    let waiter = world.start(&["lock", "--ttl", "2s", "job", "-c", "echo ran > ran"]);
    eventually("the message appears", || waiter.said().contains("connection refused"));
    let waits = waiter.inner();
    let before = wakes(waits);
    eventually("it has tried again and again", || wakes(waits) > before + 20);
    assert_eq!(waiter.said().matches("waiting for nodes to come back").count(), 1);
    // The waiter also waits for the end of their quarantines.
    world.nodes.iter_mut().for_each(Server::restart);
    assert_eq!(world.written("ran"), "ran");
    waiter.end().expect(0);
}

#[test]
fn a_wait_with_a_limit_ends_with_it_whatever_the_nodes_do() {
    let mut world = World::of(3);
    world.nodes.iter_mut().for_each(Server::kill);
    let ran = world.run(&["lock", "--wait", "4s", "job", "--", "true"]).expect(69);
    assert!(ran.took >= Duration::from_secs(4), "{ran:?}");
}

#[test]
fn a_holder_that_was_seen_is_waited_for_through_an_outage_of_any_length() {
    let mut world = World::with_max_ttl(1, "1s");
    world.take("job");
    let waiter = world.start(&["lock", "--ttl", "1s", "job", "-c", "echo ran > ran"]);
    eventually("the waiter asks", || clients(&world) > 1);
    world.nodes[0].kill();
    let since = Instant::now();
    eventually("the outage lasts for two TTLs", || since.elapsed() > Duration::from_secs(2));
    world.nodes[0].restart();
    assert_eq!(world.written("ran"), "ran");
    waiter.end().expect(0).expect_says("waiting for nodes to come back");
}

/// All nodes may be able to vote, and the report does not call them too few.
#[test]
fn a_wait_shorter_than_the_round_trip_is_reported() {
    let world = World::of(3);
    let far = world.far(Duration::from_millis(200));
    let words = ["lock", "--wait", "20ms", "job", "--", "true"];
    eventually("the wait ran out", || {
        let ran = world.run_through(&far, &words).expect(69);
        ran.stderr.contains("the time was over before enough nodes had voted")
    });
}

/// Each answer takes 600 ms, which needs no option.
#[test]
fn nodes_that_are_far_away_grant_extend_and_release() {
    let world = World::of(3);
    let proxies: Vec<_> = world.nodes.iter().map(|node| Proxy::before(&node.address())).collect();
    proxies.iter().for_each(|proxy| proxy.set(Mode::Coalesce(Duration::from_millis(300))));
    let far: Vec<_> = proxies.iter().map(Proxy::address).collect();
    let far = |words: &[&str]| {
        let mut command = world.redbolt(words);
        command.env("REDBOLT_NODES", far.join(",")).env_remove("REDBOLT_RESPONSE_TIMEOUT");
        command
    };
    let line = "sleep 7";
    run(far(&["lock", "--ttl", "15s", "job", "-c", line])).expect(0);
    eventually("the last node hears of it too", || world.held_on("job") == 0);
    let mut impatient = far(&["lock", "--try", "job", "--", "true"]);
    impatient.env("REDBOLT_CONNECT_TIMEOUT", "200ms");
    run(impatient).expect(69).expect_says("200ms");
}

/// A log gets one line for each holder, and not for each look.
#[test]
fn without_a_terminal_a_waiter_names_each_holder_once() {
    let world = World::of(3);
    let hold = |label: &'static str| {
        let words = ["acquire", "--ttl", "30s", "--token-file", label, "--label", label, "job"];
        world.run(&words).expect(0)
    };
    hold("first");
    let waiter = world.start(&["lock", "job", "--", "true"]);
    let quiet = world.start(&["lock", "-q", "job", "--", "true"]);
    let line = |label: &str| format!(" s, held by {label} for ");
    eventually("the first holder is named", || waiter.said().contains(&line("first")));
    assert!(waiter.said().contains("redbolt: job: waiting "), "{}", waiter.said());
    let waits = waiter.inner();
    let before = wakes(waits);
    eventually("it has looked again", || wakes(waits) > before + 10);
    // The key changes hands where it is, so that no waiter is faster.
    let (from, to) = (value(&world, "first"), "second");
    for node in &world.nodes {
        let text = String::from_utf8(from.clone()).unwrap().replace("first", to);
        node.run(&[b"SET", b"job", text.as_bytes(), b"PX", b"20000"]);
    }
    eventually("the second holder is named", || waiter.said().contains(&line(to)));
    assert_eq!(waiter.said().matches("waiting ").count(), 2, "{}", waiter.said());
    world.delete("job");
    waiter.end().expect(0);
    assert_eq!(quiet.end().expect(0).stderr, "");
}

#[test]
fn verbose_notes_go_to_standard_error() {
    let world = World::of(1);
    let ran = world.run(&["lock", "-v", "job", "--", "echo", "out"]).expect(0);
    assert_eq!(ran.stdout, "out\n");
    let node = format!("redbolt: node 1 {}: ", world.nodes[0].address());
    ran.expect_says(&node)
        .expect_says("redbolt: lock granted: job\n")
        .expect_says("redbolt: lock released: job, ");
    assert_eq!(world.run(&["lock", "job", "--", "true"]).expect(0).stderr, "");
    world.run(&["status", "--verbose", "job"]).expect(0).expect_says(&node);
    world.run(&["lock", "-v", "-q", "job", "--", "true"]).expect(64);
}

/// Returns the value of a key on the first node.
fn value(world: &World, label: &str) -> Vec<u8> {
    match world.nodes[0].cmd("GET job") {
        Reply::Bulk(value) => {
            let text = String::from_utf8_lossy(&value).into_owned();
            assert!(text.contains(label), "the label is in the value: {text:?}");
            value
        }
        other => panic!("no key: {other:?}"),
    }
}

/// Returns how many clients the first node has, including the one that asks.
fn clients(world: &World) -> usize {
    let info = info(world, "clients");
    let count = info.lines().find_map(|line| line.strip_prefix("connected_clients:"));
    count.unwrap().trim().parse().unwrap()
}

/// The report of the nodes does not wait for them.
#[test]
fn a_wait_with_a_limit_is_not_prolonged_by_its_report() {
    let world = World::of(3);
    world.nodes[1].pause();
    world.nodes[2].pause();
    for options in [&["--wait", "100ms"][..], &["-q", "--wait", "100ms"], &["--wait", "1200ms"]] {
        let words = [&["lock"], options, &["job", "--", "true"]].concat();
        let ran = world.run(&words).expect(69);
        let line = format!("node 2 {}: ", world.nodes[1].address());
        assert!(ran.stderr.contains(&line), "{ran:?}");
        assert!(ran.took < Duration::from_secs(2), "{ran:?}");
    }
    world.nodes[1].resume();
    world.nodes[2].resume();
}

/// The server drops a release whose connection ends before the pause does.
#[test]
fn a_release_waits_for_servers_that_are_paused() {
    let world = World::of(1);
    let command = format!("touch begun; {}", shell_until("go"));
    let mut lock = world.redbolt(&["lock", "--ttl", "20s", "job", "-c", &command]);
    lock.env("REDBOLT_RESPONSE_TIMEOUT", "300ms");
    let lock = Running::start(lock);
    eventually("the command runs", || world.path("begun").exists());
    world.nodes[0].cmd("CLIENT PAUSE 3000 WRITE");
    std::fs::write(world.path("go"), "").unwrap();
    let ran = lock.end().expect(0).expect_says("for the nodes to confirm the release");
    assert!(!ran.stderr.contains("too few"), "{ran:?}");
    assert_eq!(world.held_on("job"), 0);
}
