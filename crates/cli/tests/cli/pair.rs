//! `redbolt lock` is two processes. If one of them dies, the other ends the command before the lock
//! ends.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use redbolt_test_servers::{Mode, Proxy, Reply, Server, on_a_real_clock};

use crate::harness::{Running, World, eventually, info, lives, run, send, shell_until, wakes};

/// A job with a child, and one that left the process group and the session. It ignores SIGTERM.
const STUBBORN: &str = "trap '' TERM; sleep 600 & echo $! > child; \
    setsid sh -c 'echo $$ > stranger; exec sleep 600' & \
    echo $$ > pid; wait";

/// Like a user's script whose work is done by other processes.
const JOB: &str = "sleep 600 & echo $! > child; setsid sh -c 'echo $$ > stranger; exec sleep 600' & \
    echo $$ > pid; wait";

const FAMILY: [&str; 3] = ["pid", "child", "stranger"];

/// The next holder's command: it prints the processes of the previous job that still exist.
const WITNESS: &str = "for pid in $(cat pid child stranger); do \
    grep -s '^State:\t[^ZX]' /proc/$pid/status && echo $pid; done; true";

fn lock(world: &World, ttl: &str, line: &str) -> Running {
    let running = world.start(&["lock", "--ttl", ttl, "job", "-c", line]);
    FAMILY.iter().for_each(|file| assert!(lives(world.process(file))));
    running
}

/// Runs the next holder, and returns which processes of the previous one it meets.
#[track_caller]
fn survivors(world: &World) -> String {
    world.run(&["lock", "--ttl", "6s", "job", "-c", WITNESS]).expect(0).stdout
}

/// Runs the next holder, and checks that it is alone.
#[track_caller]
fn next_holder_is_alone(world: &World) {
    assert_eq!(survivors(world), "", "processes of the previous holder still run");
}

/// Runs a scenario that returns the survivors. The outer process kills `MARGIN` before the end of
/// the lease.
fn next_holder_is_alone_after(scenario: impl Fn() -> String) {
    const MARGIN: Duration = Duration::from_millis(250);
    on_a_real_clock(MARGIN, || {
        assert_eq!(scenario(), "", "processes of the previous holder still run");
    });
}

#[test]
fn a_killed_redbolt_is_followed_by_its_whole_family_before_the_next_holder_comes() {
    for line in [JOB, STUBBORN] {
        let world = World::of(3);
        let running = lock(&world, "6s", line);
        running.signal(Signal::SIGKILL);
        next_holder_is_alone(&world);
        assert!(running.end().stderr.contains("outer process was killed"));
    }
}

/// Standard error is a pipe that is not read, as with `redbolt lock … 2>&1 | less` before
/// scrolling.
#[test]
fn unread_messages_do_not_save_the_command_of_a_killed_inner_process() {
    kill_unheard(Running::inner, Some(70));
}

#[test]
fn unread_messages_do_not_save_the_command_of_a_killed_redbolt() {
    kill_unheard(Running::pid, Some(137));
}

#[track_caller]
fn kill_unheard(victim: fn(&Running) -> i32, status: Option<i32>) {
    for line in [JOB, STUBBORN] {
        let world = World::of(3);
        let command = world.redbolt(&["lock", "--ttl", "6s", "job", "-c", line]);
        let running = Running::start_unheard(command);
        FAMILY.iter().for_each(|file| assert!(lives(world.process(file))));
        send(victim(&running), Signal::SIGKILL);
        next_holder_is_alone(&world);
        assert_eq!(running.end().status, status);
    }
}

#[test]
fn an_unread_warning_does_not_cost_the_lock() {
    on_a_real_clock(TTL, || {
        let mut world = World::of(3);
        let line = format!("echo $$ > pid; {}; exit 4", shell_until("go"));
        let command = world.redbolt(&["lock", "--ttl", "3s", "job", "-c", &line]);
        let running = Running::start_unheard(command);
        let pid = world.process("pid");
        world.nodes[2].kill();
        let until = Instant::now() + TTL * 4 / 3;
        while Instant::now() < until {
            assert!(lives(pid), "an unread message has ended the command");
            thread::sleep(Duration::from_millis(20));
        }
        std::fs::write(world.path("go"), "").unwrap();
        running.end().expect(4);
    });
}

/// Two nodes extended the lease, and then one of them loses the key: what remains is the lease of
/// the third, which has not received the extension.
#[test]
fn a_lease_that_got_shorter_ends_the_command_of_a_stopped_inner_process_sooner() {
    next_holder_is_alone_after(|| survivors_of_a_lease_that_got_shorter(&World::of(3)));
}

fn survivors_of_a_lease_that_got_shorter(world: &World) -> String {
    let far = Proxy::before(&world.nodes[2].address());
    let addresses = [world.nodes[0].address(), world.nodes[1].address(), far.address()];
    let words = ["lock", "--ttl", "12s", "--kill-after", "0s", "job", "-c", JOB];
    let mut command = world.redbolt(&words);
    command.env("REDBOLT_NODES", addresses.join(","));
    let running = Running::start(command);
    FAMILY.iter().for_each(|file| assert!(lives(world.process(file))));
    assert_eq!(world.held_on("job"), 3);
    // The inner process ends the command itself if all of this takes too long on a busy machine.
    let inner = running.inner();
    far.set(Mode::Stall);
    eventually("the lock is extended", || {
        pttl(&world.nodes[0]) > 10_000 && pttl(&world.nodes[2]) < 9_000
    });
    world.nodes[0].cmd("DEL job");
    world.nodes[0].cmd("CONFIG RESETSTAT");
    eventually("an extension finds no key, and the next one follows", || extensions(world) >= 2);
    send(inner, Signal::SIGSTOP);
    let survivors = survivors(world);
    running.end().expect(70);
    survivors
}

/// Returns how many commands the first node has received.
fn extensions(world: &World) -> u32 {
    let stats = info(world, "commandstats");
    let calls = |name: &str| {
        let mut of_name = stats.lines().filter_map(|line| line.strip_prefix(name));
        of_name.next()?.split(',').next()?.parse::<u32>().ok()
    };
    ["cmdstat_eval:calls=", "cmdstat_evalsha:calls="].into_iter().filter_map(calls).sum()
}

fn pttl(node: &Server) -> i64 {
    match node.cmd("PTTL job") {
        Reply::Int(ms) => ms,
        other => panic!("{other:?}"),
    }
}

/// Only a release explains the freed lock, because the TTL is much longer.
#[test]
fn a_killed_redbolt_releases_the_lock() {
    let world = World::with_max_ttl(3, "1h");
    let words = ["lock", "--ttl", "1h", "job", "-c", "echo $$ > pid; exec sleep 600"];
    let running = world.start(&words);
    world.process("pid");
    running.signal(Signal::SIGKILL);
    world.run(&["lock", "job", "--", "true"]).expect(0);
}

#[test]
fn a_killed_inner_process_is_followed_by_its_whole_family_before_the_next_holder_comes() {
    for line in [JOB, STUBBORN] {
        let world = World::of(3);
        let running = lock(&world, "6s", line);
        send(running.inner(), Signal::SIGKILL);
        next_holder_is_alone(&world);
        let ran = running.end().expect(70);
        let ran = ran.expect_says("redbolt: job: redbolt's inner process was killed by signal 9");
        assert_eq!(ran.stderr.contains("SIGKILL\n"), line == STUBBORN, "{ran:?}");
    }
}

#[test]
fn a_stopped_inner_process_does_not_keep_the_command_alive() {
    for line in [JOB, STUBBORN] {
        next_holder_is_alone_after(|| {
            let world = World::of(3);
            let running = lock(&world, "6s", line);
            let inner = running.inner();
            send(inner, Signal::SIGSTOP);
            let survivors = survivors(&world);
            running.end().expect(70).expect_says("did not run").expect_says("SIGKILL");
            assert!(!lives(inner));
            survivors
        });
    }
}

#[test]
fn a_stopped_redbolt_keeps_its_lock_and_its_command() {
    on_a_real_clock(TTL, || {
        let world = World::of(3);
        let line = format!("echo $$ > pid; {}; exit 4", shell_until("go"));
        let running = world.start(&["lock", "--ttl", "3s", "job", "-c", &line]);
        let pid = world.process("pid");
        running.signal(Signal::SIGSTOP);
        let until = Instant::now() + TTL * 4 / 3;
        while Instant::now() < until {
            assert!(world.held_on("job") >= 2 && lives(pid));
            thread::sleep(Duration::from_millis(20));
        }
        let slept = wakes(running.pid());
        running.signal(Signal::SIGCONT);
        eventually("it has gone on to run", || wakes(running.pid()) > slept);
        assert!(lives(pid), "a late check of the lease does not end it");
        std::fs::write(world.path("go"), "").unwrap();
        running.end().expect(4);
    });
}

/// Then only the kernel's parent-death signal is left, as documented in the help.
#[test]
fn when_both_are_killed_at_once_the_command_itself_gets_sigterm() {
    let world = World::of(1);
    let line =
        format!("trap 'echo term > term; exit' TERM; echo $$ > pid; {}", shell_until("never"));
    let running = world.start(&["lock", "--ttl", "6s", "job", "-c", &line]);
    let pid = world.process("pid");
    let both = [running.inner(), running.pid()];
    both.iter().for_each(|&pid| send(pid, Signal::SIGKILL));
    assert_eq!(world.written("term"), "term");
    eventually("the command has ended", || !lives(pid));
    eventually("the key dies with its TTL", || world.held_on("job") == 0);
}

#[test]
fn a_killed_waiter_leaves_the_queue() {
    let world = World::of(3);
    world.take("job");
    let waiter = world.start(&["lock", "job", "--", "touch", "ran"]);
    let inner = waiter.inner();
    waiter.signal(Signal::SIGKILL);
    eventually("the waiter is gone", || !lives(inner));
    world.delete("job");
    assert!(!world.path("ran").exists());
    assert_eq!(world.held_on("job"), 0);
}

#[test]
fn a_waiter_reports_a_killed_inner_process() {
    let world = World::of(1);
    world.take("job");
    let waiter = world.start(&["lock", "job", "--", "touch", "ran"]);
    send(waiter.inner(), Signal::SIGKILL);
    let reported = "redbolt: job: redbolt's inner process was killed by signal 9";
    waiter.end().expect(137).expect_says(reported);
}

#[test]
fn a_signal_to_the_inner_process_reaches_the_command_too() {
    let world = World::of(1);
    let line =
        format!("trap 'echo hup > got; exit 9' HUP; echo $$ > pid; {}", shell_until("never"));
    let running = world.start(&["lock", "job", "-c", &line]);
    world.process("pid");
    send(running.inner(), Signal::SIGHUP);
    running.end().expect(9);
    assert_eq!(world.written("got"), "hup");
}

/// The command receives the signal once directly and once from redbolt, not once from each of its
/// processes.
#[test]
fn a_signal_to_the_whole_group_is_passed_on_once() {
    let world = World::of(1);
    let line = format!("trap 'echo term >> got' TERM; echo $$ > pid; {}", shell_until("go"));
    let mut command = Command::new("setsid");
    command.args([env!("CARGO_BIN_EXE_redbolt"), "lock", "job", "-c", &line]);
    command.env("REDBOLT_NODES", world.addresses()).current_dir(world.path(""));
    let running = Running::start(command);
    world.process("pid");
    killpg(Pid::from_raw(running.pid()), Signal::SIGTERM).unwrap();
    world.written("got");
    // redbolt has passed on all signals when it ends.
    std::fs::write(world.path("go"), "").unwrap();
    running.end().expect(0);
    let got = std::fs::read_to_string(world.path("got")).unwrap();
    assert!(got.lines().count() <= 2, "{got:?}");
}

#[test]
fn children_that_were_there_before_outlive_a_killed_inner_process() {
    let world = World::of(1);
    let program = env!("CARGO_BIN_EXE_redbolt");
    let line = "echo $$ > pid; exec sleep 600";
    let script = format!("sleep 600 & echo $! > before; exec '{program}' lock job -c '{line}'");
    let mut command = world.command("sh");
    command.args(["-c", &script]);
    let running = Running::start(command);
    let (before, pid) = (world.process("before"), world.process("pid"));
    send(running.inner(), Signal::SIGKILL);
    eventually("redbolt and its command end", || !lives(running.pid()) && !lives(pid));
    assert!(lives(before));
    send(before, Signal::SIGKILL);
    running.end().expect(70);
}

#[test]
fn with_at_least_a_killed_redbolt_leaves_the_lock_to_its_ttl() {
    let world = World::of(3);
    let words =
        ["lock", "--ttl", "15s", "--at-least", "25s", "job", "-c", "echo $$ > pid; exec sleep 600"];
    let running = world.start(&words);
    let (pid, inner) = (world.process("pid"), running.inner());
    running.signal(Signal::SIGKILL);
    eventually("both end", || !lives(pid) && !lives(inner));
    assert_eq!(world.held_on("job"), 3);
    eventually("the key dies with its TTL", || world.held_on("job") == 0);
}

#[test]
fn the_command_inherits_only_the_caller_s_descriptors_and_environment() {
    let world = World::of(1);
    let line = "for fd in /proc/$$/fd/*; do echo ${fd##*/}; done; \
        tr '\\0' '\\n' < /proc/$$/environ | sed 's/=.*//' | sort";
    let mut direct = world.command("sh");
    direct.args(["-c", line]).envs([("REDBOLT_KEY", ""), ("REDBOLT_TTL_MS", "")]);
    let direct = run(direct).expect(0);
    let mut under = world.command(env!("CARGO_BIN_EXE_redbolt"));
    under.args(["lock", "job", "--", "sh", "-c", line]);
    assert_eq!(run(under).expect(0).stdout, direct.stdout);
}

/// These signals have no name, and some system tools do not know them.
#[test]
fn a_real_time_signal_is_passed_on_in_the_status() {
    let world = World::of(1);
    world.run(&["lock", "job", "-c", "kill -40 $$"]).expect(128 + 40);
    assert_eq!(world.held_on("job"), 0);
}

/// A test cannot set the machine's clock. It checks that both processes have a timer on the wall
/// clock (clock 0) which the kernel cancels when the clock is set (flags 1 and 2): then they check
/// the lease.
#[test]
fn both_processes_wake_when_the_wall_clock_is_set() {
    let world = World::of(1);
    let running = world.start(&["lock", "job", "-c", "echo $$ > pid; exec sleep 600"]);
    world.process("pid");
    for pid in [running.pid(), running.inner()] {
        let timers = std::fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap().flatten();
        let texts = timers.filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
        let is_armed =
            |text: &String| text.contains("clockid: 0\n") && text.contains("settime flags: 03\n");
        assert!(texts.filter(is_armed).count() == 1, "process {pid} sleeps through a step");
    }
}

/// The TTL of a lock that has to outlive it: `3s`.
const TTL: Duration = Duration::from_secs(3);
