//! The command never outlives the lock.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use redbolt_test_servers::on_a_real_clock;

use crate::harness::{Running, World, eventually, lives, send, shell_until};

/// A command that writes its process id, and ignores SIGTERM.
fn stubborn() -> String {
    format!("trap 'echo term >> term' TERM; echo $$ > pid; {}", shell_until("never"))
}

/// A command with a child, and another that left the process group and the session.
const FAMILY: &str = "sleep 600 & echo $! > child; \
    setsid sh -c 'echo $$ > stranger; exec sleep 600' & \
    echo $$ > pid; wait";

#[test]
fn a_lock_that_is_gone_ends_the_command() {
    let world = World::of(3);
    let running =
        world.start(&["lock", "--ttl", "6s", "job", "-c", "echo $$ > pid; exec sleep 600"]);
    let pid = world.process("pid");
    world.delete("job");
    running.end().expect(70).expect_says("lost").expect_says("SIGTERM");
    assert!(!lives(pid));
}

#[test]
fn a_lock_that_was_taken_ends_the_command_and_stays_with_the_taker() {
    let world = World::of(3);
    let running =
        world.start(&["lock", "--ttl", "6s", "job", "-c", "echo $$ > pid; exec sleep 600"]);
    let pid = world.process("pid");
    world.take("job");
    running.end().expect(70).expect_says("lost");
    assert!(!lives(pid));
    assert_eq!(world.held_on("job"), 3);
}

#[test]
fn everything_that_the_command_started_ends_with_it() {
    let world = World::of(1);
    let running = world.start(&["lock", "--ttl", "6s", "job", "-c", FAMILY]);
    let pids = ["pid", "child", "stranger"].map(|file| world.process(file));
    world.delete("job");
    running.end().expect(70);
    for pid in pids {
        assert!(!lives(pid));
    }
}

#[test]
fn a_command_that_ignores_sigterm_is_killed_after_the_grace_period() {
    let world = World::of(1);
    let words = ["lock", "--ttl", "8s", "--kill-after", "2s", "job", "-c", &stubborn()];
    let running = world.start(&words);
    let pid = world.process("pid");
    let before = Instant::now();
    world.delete("job");
    assert_eq!(world.written("term"), "term");
    running.end().expect(70).expect_says("SIGKILL");
    assert!(!lives(pid));
    assert!(before.elapsed() >= Duration::from_secs(2), "killed before its time");
}

#[test]
fn without_a_majority_the_command_ends_before_the_lease() {
    let world = World::of(3);
    let words = ["lock", "--ttl", "12s", "--kill-after", "4s", "job", "-c", &stubborn()];
    let running = world.start(&words);
    let pid = world.process("pid");
    world.nodes[..2].iter().for_each(redbolt_test_servers::Server::pause);
    let ran = running.end().expect(70).expect_says("cannot be extended").expect_says("no answer");
    assert_eq!(world.written("term"), "term", "SIGTERM came first");
    assert!(ran.stderr.contains("SIGKILL"), "{ran:?}");
    assert!(!lives(pid));
    world.nodes[..2].iter().for_each(redbolt_test_servers::Server::resume);
    eventually("the keys of a command that was stopped are gone", || world.held_on("job") == 0);
}

#[test]
fn a_minority_that_fails_does_no_harm() {
    let mut world = World::of(3);
    let running = world.start(&["lock", "--ttl", "6s", "job", "-c", "echo > up; sleep 8; exit 4"]);
    eventually("the command runs", || world.path("up").exists());
    world.nodes[0].kill();
    running.end().expect(4);
}

#[test]
fn the_lock_is_kept_for_as_long_as_the_command_runs() {
    on_a_real_clock(TTL, || {
        let world = World::of(3);
        let line = format!("echo > up; {}", shell_until("go"));
        let running = world.start(&["lock", "--ttl", "3s", "job", "-c", &line]);
        eventually("the command runs", || world.path("up").exists());
        let until = Instant::now() + TTL * 4 / 3;
        while Instant::now() < until {
            assert!(world.held_on("job") >= 2);
            thread::sleep(Duration::from_millis(20));
        }
        fs::write(world.path("go"), "").unwrap();
        running.end().expect(0);
    });
}

#[test]
fn without_extending_the_command_has_one_ttl() {
    let world = World::of(1);
    // Four seconds are left when redbolt stops the command, so that it is in time even on a busy
    // machine.
    let options = ["--ttl", "12s", "--kill-after", "4s", "--no-extend"];
    let command = ["job", "-c", "echo $$ > pid; exec sleep 600"];
    let running = world.start(&[&["lock"], &options[..], &command[..]].concat());
    let pid = world.process("pid");
    running.end().expect(70).expect_says("--no-extend");
    assert!(!lives(pid));
    world.run(&["lock", "--no-extend", "job", "--", "true"]).expect(0);
}

/// `sleep` dies while redbolt looks for it, which must not be missed. Each run is another chance.
#[test]
fn a_command_that_dies_of_sigterm_is_not_waited_for_until_sigkill() {
    let world = World::of(1);
    for round in 0..3 {
        let runs: Vec<_> = (0..8)
            .map(|run| {
                let key = format!("job-{round}-{run}");
                let grace = format!("{}ms", 3500 + 20 * run);
                let options = ["--no-extend", "--ttl", "12s", "--kill-after", &grace];
                let words = [&["lock"], &options[..], &[&key, "--", "sleep", "600"]].concat();
                world.start(&words)
            })
            .collect();
        for run in runs {
            let ran = run.end().expect(70).expect_says("SIGTERM");
            assert!(!ran.stderr.contains("the command goes on"), "{ran:?}");
        }
    }
}

#[test]
fn a_redbolt_stopped_past_the_lease_kills_at_once() {
    let world = World::of(1);
    let running = world.start(&["lock", "--ttl", "6s", "job", "-c", &stubborn()]);
    let pid = world.process("pid");
    let both = [running.pid(), running.inner()];
    both.iter().for_each(|&pid| send(pid, Signal::SIGSTOP));
    eventually("the key dies with its TTL", || world.held_on("job") == 0);
    both.iter().for_each(|&pid| send(pid, Signal::SIGCONT));
    running.end().expect(70).expect_says("ran out").expect_says("SIGKILL");
    assert!(!lives(pid));
    assert!(!world.path("term").exists(), "there was no time for SIGTERM");
}

#[test]
fn a_killed_redbolt_ends_its_command_and_releases() {
    let world = World::of(3);
    let words = [
        "lock",
        "--ttl",
        "6s",
        "job",
        "-c",
        &format!("trap 'echo term > term; exit' TERM; echo $$ > pid; {}", shell_until("never")),
    ];
    let running = world.start(&words);
    let pid = world.process("pid");
    running.signal(Signal::SIGKILL);
    assert_eq!(world.written("term"), "term");
    eventually("the command has ended", || !lives(pid));
    eventually("the key is gone", || world.held_on("job") == 0);
}

#[test]
fn earlier_children_of_the_shell_are_left_alone() {
    let world = World::of(1);
    let mut command = redbolt_test_servers::program("sh");
    let program = env!("CARGO_BIN_EXE_redbolt");
    let line = "echo $$ > pid; exec sleep 600";
    let script =
        format!("sleep 600 & echo $! > before; exec '{program}' lock --ttl 6s job -c '{line}'");
    command.args(["-c", &script]);
    command.env("REDBOLT_NODES", world.addresses()).current_dir(world.path(""));
    let running = Running::start(command);
    let (before, pid) = (world.process("before"), world.process("pid"));
    world.delete("job");
    eventually("redbolt and its command end", || !lives(running.pid()) && !lives(pid));
    assert!(lives(before));
    kill(Pid::from_raw(before), Signal::SIGKILL).unwrap();
    running.end().expect(70);
}

/// The TTL of a lock that has to outlive it: `3s`.
const TTL: Duration = Duration::from_secs(3);
