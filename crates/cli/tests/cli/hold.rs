//! `redbolt hold`: a lock for the life of a script.

use std::fs;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use redbolt_test_servers::on_a_real_clock;

use crate::harness::{Running, World, children, eventually, lives, run, send, shell_until};

/// A script that calls redbolt as `"$0"`.
fn script(world: &World, text: &str) -> Command {
    let mut command = world.command("sh");
    command.args(["-c", text, env!("CARGO_BIN_EXE_redbolt")]);
    command
}

#[track_caller]
fn until_free(world: &World, key: &str) {
    eventually("the lock is released", || world.held_on(key) == 0);
}

#[test]
fn a_script_has_the_lock_until_it_ends() {
    let world = World::of(3);
    let text = "\"$0\" hold job || exit; \"$0\" lock --try job -- true; echo $?";
    let ran = run(script(&world, text)).expect(0);
    assert_eq!(ran.stdout, "75\n");
    ran.expect_says("job is held by ");
    until_free(&world, "job");
}

#[test]
fn the_lock_is_extended_while_the_script_runs() {
    on_a_real_clock(Duration::from_secs(3), || {
        let world = World::of(1);
        let text = format!("\"$0\" hold --ttl 3s job || exit; echo > held; {}", shell_until("go"));
        let running = Running::start(script(&world, &text));
        world.written("held");
        world.until_extended(0, "job");
        let label = world.run(&["status", "job"]).expect(0).stdout;
        assert!(label.contains(&format!(":{} on 1 of 1", running.pid())), "the script's: {label}");
        fs::write(world.path("go"), "").unwrap();
        running.end().expect(0);
        until_free(&world, "job");
    });
}

#[test]
fn a_shell_evaluates_its_output() {
    let world = World::of(3);
    let text = "eval \"$(\"$0\" hold --sh --fencing --prefix 'a b:' \"it's\")\"
        kill -0 \"$REDBOLT_HOLD_PID\" && sh -c 'echo \"$REDBOLT_KEY $REDBOLT_FENCING_TOKEN\"'";
    let ran = run(script(&world, text)).expect(0);
    let (name, token) = ran.stdout.trim_end().rsplit_once(' ').unwrap();
    assert_eq!(name, "a b:it's");
    assert!(token.parse::<u64>().is_ok_and(|token| token > 0), "{ran:?}");
    until_free(&world, "a b:it's");
    let plain = run(script(&world, "\"$0\" hold --fencing --permits 2 job")).expect(0);
    let numbers: Vec<u64> = plain.stdout.lines().map(|line| line.parse().unwrap()).collect();
    assert!(numbers.len() == 2 && numbers[0] < 2, "the permit and the token: {plain:?}");
}

#[test]
fn a_shell_does_not_go_on_without_the_lock() {
    let mut world = World::of(3);
    world.acquire_on_all("token", &["--ttl", "29s"], "job");
    let evaluated = |options: &str| {
        let text = format!("eval \"$(\"$0\" hold {options})\"; echo went on");
        let ran = run(script(&world, &text));
        assert_eq!(ran.stdout, "", "{ran:?}");
        ran
    };
    evaluated("--sh --try job").expect(75).expect_says("job is held by ");
    evaluated("--sh -E 9 --try job").expect(9);
    evaluated("--nonsense --sh job").expect(64);
    evaluated("--sh --kill-after 9s job").expect(64).expect_says("--kill-after");
    evaluated("--sh --ttl 99s other").expect(64).expect_says("maximum");
    evaluated("--sh --pid 2147483647 other").expect(64).expect_says("there is no such process");
    let help = run(script(&world, "\"$0\" hold --sh --help")).expect(0).stdout;
    assert!(help.contains("Exit status") && !help.ends_with("exit 0\n"), "{help}");
    world.nodes[0].kill();
    world.nodes[1].kill();
    let text = "eval \"$(\"$0\" hold --sh --try other)\"; echo went on";
    let ran = run(script(&world, text)).expect(69).expect_says("too few nodes can vote");
    assert_eq!(ran.stdout, "");
}

/// A shell starts a subshell for a list of commands in `$(…)`, and some also for one command with a
/// redirection.
#[test]
fn a_subshell_that_ends_at_once_is_no_holder() {
    let world = World::of(1);
    for text in [
        "eval \"$(\"$0\" hold --sh job || echo no)\"; echo went on",
        "token=$(\"$0\" hold --fencing job || exit) || exit; echo went on",
    ] {
        let ran = run(script(&world, text)).expect(64).expect_says("give --pid $$");
        assert_eq!(ran.stdout, "");
        until_free(&world, "job");
    }
    let named =
        "eval \"$(\"$0\" hold --sh --pid $$ job || echo no)\"; \"$0\" lock -n job true; echo $?";
    assert_eq!(run(script(&world, named)).expect(0).stdout, "75\n");
    until_free(&world, "job");
    let long = "(\"$0\" hold --fencing job > token || exit; \"$0\" lock -n job true; echo $?)";
    assert_eq!(run(script(&world, long)).expect(0).stdout, "75\n");
    until_free(&world, "job");
}

#[test]
fn standard_output_is_left_also_if_it_is_standard_error() {
    let world = World::of(1);
    let text = "out=$(\"$0\" hold job 2>&1) || exit; echo \"back: $out\"";
    assert_eq!(run(script(&world, text)).expect(0).stdout, "back: \n");
    until_free(&world, "job");
}

#[test]
fn a_script_that_is_killed_frees_the_lock() {
    let world = World::of(3);
    let running = Running::start(script(&world, "\"$0\" hold job || exit; echo > held; sleep 600"));
    world.written("held");
    world.until_on_all("job");
    let sleeping = children(running.pid());
    running.signal(Signal::SIGKILL);
    until_free(&world, "job");
    sleeping.into_iter().for_each(|pid| send(pid, Signal::SIGKILL));
}

#[test]
fn another_process_can_be_named() {
    let world = World::of(1);
    let other = Running::start({
        let mut sleep = Command::new("sleep");
        sleep.arg("600");
        sleep
    });
    let pid = other.pid().to_string();
    // Its keeper has the standard error of the program, so the program's end is not waited for
    // here.
    let text = format!("\"$0\" hold --pid {pid} job 2> said");
    run(script(&world, &text)).expect(0);
    assert_eq!(world.held_on("job"), 1);
    drop(other);
    until_free(&world, "job");
}

#[test]
fn a_signal_to_the_background_process_releases_the_lock() {
    let world = World::of(3);
    let text = format!(
        "eval \"$(\"$0\" hold --sh job)\"; kill \"$REDBOLT_HOLD_PID\"; echo > sent; {}",
        shell_until("go")
    );
    let running = Running::start(script(&world, &text));
    world.written("sent");
    until_free(&world, "job");
    fs::write(world.path("go"), "").unwrap();
    running.end().expect(0);
}

#[test]
fn a_lost_lock_ends_the_script_and_what_it_started() {
    on_a_real_clock(Duration::from_secs(3), || {
        let world = World::of(3);
        let text = "\"$0\" hold --ttl 3s job || exit
            sh -c 'echo $$ > child; exec sleep 600' &
            echo > held; wait; echo went on";
        let running = Running::start(script(&world, text));
        world.written("held");
        let child = world.process("child");
        world.take("job");
        let ran = running.end();
        assert_eq!(ran.signal, Some(Signal::SIGTERM as i32), "{ran:?}");
        ran.expect_says("job: the lock is lost: ").expect_says("stopping its process: SIGTERM");
        eventually("the child has ended", || !lives(child));
    });
}

#[test]
fn a_script_that_ignores_sigterm_is_killed_before_the_lock_ends() {
    on_a_real_clock(Duration::from_secs(6), || {
        let world = World::of(3);
        let text = format!(
            "trap 'echo > asked' TERM; \"$0\" hold --ttl 6s job || exit; echo > held; {}",
            shell_until("never")
        );
        let running = Running::start(script(&world, &text));
        world.written("held");
        for node in &world.nodes {
            node.pause();
        }
        let ran = running.end();
        for node in &world.nodes {
            node.resume();
        }
        assert_eq!(ran.signal, Some(Signal::SIGKILL as i32), "{ran:?}");
        assert!(world.path("asked").exists(), "SIGTERM came first");
        ran.expect_says("its process goes on: SIGKILL");
    });
}

#[test]
fn with_warn_the_script_goes_on() {
    on_a_real_clock(Duration::from_secs(3), || {
        let world = World::of(3);
        let text = format!(
            "\"$0\" hold --ttl 3s --on-loss warn job || exit; echo > held; {}; echo went on",
            shell_until("go")
        );
        let running = Running::start(script(&world, &text));
        world.written("held");
        world.take("job");
        eventually("the loss is reported", || running.said().contains("goes on without it"));
        fs::write(world.path("go"), "").unwrap();
        assert_eq!(running.end().expect(0).stdout, "went on\n");
    });
}

#[test]
fn a_wait_that_ends_leaves_nothing_behind() {
    let world = World::of(3);
    world.acquire_on_all("token", &["--ttl", "29s"], "job");
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGKILL] {
        let waiting = world.start(&["hold", "job"]);
        eventually("it waits", || waiting.said().contains("job"));
        let keeper = waiting.inner();
        waiting.signal(signal);
        let ran = waiting.end();
        assert_eq!(ran.signal, Some(signal as i32), "{ran:?}");
        eventually("the background process has ended", || !lives(keeper));
    }
    world.run(&["release", "--token-file", "token"]).expect(0);
    assert_eq!(world.held_on("job"), 0);
}
