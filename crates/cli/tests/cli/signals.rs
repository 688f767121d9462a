//! Signals to redbolt reach the command, and the caller's signal dispositions stay as they were.

use std::fs;
use std::process::Command;

use nix::sys::signal::Signal;
use redbolt_test_servers::on_a_real_clock;

use crate::harness::{
    GROUP_WINDOW, Running, World, blocks, children, eventually, lives, run, send, shell_until,
};

const REDBOLT: &str = env!("CARGO_BIN_EXE_redbolt");

/// Starts `redbolt` in a separate session: its process id is that of the group.
fn in_a_group(world: &World, words: &[&str]) -> Running {
    let mut command = world.command("setsid");
    command.arg(REDBOLT).args(words);
    Running::start(command)
}

/// Sends a signal by its number, which may have no name, as `kill` does.
fn kill(number: i32, to: &str) {
    let sent = Command::new("kill").args([&format!("-{number}"), "--", to]).status().unwrap();
    assert!(sent.success());
}

/// Every signal that can be blocked, except SIGCHLD. 32 and 33 belong to the C library.
fn all_signals() -> impl Iterator<Item = i32> {
    let is_apart = |number: &i32| ![9, 17, 19, 32, 33].contains(number);
    (1..=64).filter(is_apart)
}

/// A shell that ignores all signals that it may ignore, and runs until a file exists.
fn deaf() -> String {
    let numbers: Vec<_> = all_signals().map(|number| number.to_string()).collect();
    format!("trap '' {}; echo $$ > pid; {}", numbers.join(" "), shell_until("go"))
}

#[test]
fn no_signal_to_both_processes_ends_redbolt_while_its_command_runs() {
    let world = World::of(1);
    let line = deaf();
    let running = in_a_group(&world, &["lock", "--ttl", "6s", "job", "-c", &line]);
    let (pid, both) = (world.process("pid"), [running.pid(), running.inner()]);
    for number in all_signals() {
        kill(number, &format!("-{}", running.pid()));
        both.iter().for_each(|pid| kill(number, &pid.to_string()));
    }
    assert!(both.into_iter().chain([pid]).all(lives), "{}", running.said());
    assert_eq!(world.held_on("job"), 1);
    fs::write(world.path("go"), "").unwrap();
    running.end().expect(0);
}

#[test]
fn a_signal_to_either_process_is_passed_on_also_one_without_a_name() {
    let world = World::of(1);
    let numbers = [10, 12, 14, 18, 28, 37, 64];
    let traps = numbers.map(|number| format!("trap 'echo {number} >> got' {number};")).concat();
    let line = format!("{traps} echo $$ > pid; {}", shell_until("go"));
    let running = world.start(&["lock", "job", "-c", &line]);
    world.process("pid");
    let mut expected = String::new();
    for number in numbers {
        for to in [running.pid(), running.inner()] {
            kill(number, &to.to_string());
            expected += &format!("{number}\n");
            eventually(&format!("the command got {expected:?}"), || {
                fs::read_to_string(world.path("got")).is_ok_and(|got| got == expected)
            });
        }
    }
    fs::write(world.path("go"), "").unwrap();
    running.end().expect(0);
}

/// The command has received it from the sender. Then it gets another signal, from redbolt alone:
/// the first one would have come before.
#[test]
fn a_signal_to_the_whole_group_reaches_the_command_once() {
    let world = World::of(1);
    let line = format!(
        "trap 'echo term >> got' TERM; trap 'echo usr >> got; exit' USR1; echo $$ > pid; \
        {}",
        shell_until("never")
    );
    on_a_real_clock(GROUP_WINDOW, || {
        let running = in_a_group(&world, &["lock", "job", "-c", &line]);
        world.process("pid");
        kill(15, &format!("-{}", running.pid()));
        eventually("the command got the first", || world.path("got").exists());
        kill(10, &running.pid().to_string());
        running.end().expect(0);
        let got = fs::read_to_string(world.path("got")).unwrap();
        ["got", "pid"].iter().for_each(|file| fs::remove_file(world.path(file)).unwrap());
        assert_eq!(got, "term\nusr\n");
    });
}

/// It sends the signal to its child and then to the group, with SIGCONT behind each.
#[test]
fn a_timeout_reaches_the_command_once() {
    let world = World::of(1);
    let line = format!(
        "trap 'echo term >> got' TERM; trap 'exit 3' USR1; echo $$ > pid; \
        {}",
        shell_until("never")
    );
    on_a_real_clock(GROUP_WINDOW, || {
        let mut command = world.command("timeout");
        command.args(["1000", REDBOLT, "lock", "job", "-c", &line]);
        let running = Running::start(command);
        world.process("pid");
        running.signal(Signal::SIGTERM);
        eventually("the command got it", || world.path("got").exists());
        // It comes after all signals that are still passed on.
        kill(10, &children(running.pid())[0].to_string());
        running.end().expect(3);
        let got = fs::read_to_string(world.path("got")).unwrap();
        ["got", "pid"].iter().for_each(|file| fs::remove_file(world.path(file)).unwrap());
        assert_eq!(got, "term\n");
    });
}

#[test]
fn a_signal_to_the_group_is_passed_on_to_a_command_in_another_group() {
    let world = World::of(1);
    let line =
        format!("trap 'echo term > got; exit 3' TERM; echo $$ > pid; {}", shell_until("never"));
    let running = in_a_group(&world, &["lock", "job", "--", "setsid", "sh", "-c", &line]);
    world.process("pid");
    kill(15, &format!("-{}", running.pid()));
    running.end().expect(3);
}

#[test]
fn a_waiter_lives_through_a_signal_that_is_meant_for_the_command() {
    let world = World::of(1);
    world.take("job");
    let running = in_a_group(&world, &["lock", "job", "--", "true"]);
    let inner = running.inner();
    for number in [10, 12, 13, 25, 28, 40] {
        kill(number, &format!("-{}", running.pid()));
    }
    world.delete("job");
    running.end().expect(0);
    assert!(!lives(inner));
}

/// The program is started as under `env`, `timeout` or `sudo`.
#[test]
fn redbolt_dies_of_the_signal_that_has_killed_its_command() {
    let world = World::of(1);
    for number in [1, 2, 3, 6, 9, 10, 11, 15, 40] {
        let ran = world.run(&["lock", "job", "-c", &format!("kill -{number} $$")]);
        assert_eq!(ran.signal, Some(number), "{ran:?}");
        assert!(!ran.expect(128 + number).stderr.contains("redbolt"));
        assert_eq!(world.held_on("job"), 0);
    }
    let ran = world.run(&["lock", "job", "-c", "exit 130"]).expect(130);
    assert_eq!(ran.signal, None, "{ran:?}");
}

#[test]
fn a_waiter_that_is_interrupted_dies_of_the_signal() {
    let world = World::of(1);
    world.take("job");
    let lock = ["lock", "job", "--", "true"];
    let acquire = ["acquire", "--token-file", "token", "job"];
    for words in [&lock[..], &acquire] {
        let running = world.start(words);
        eventually("it blocks signals", || blocks(running.pid(), Signal::SIGINT));
        running.signal(Signal::SIGINT);
        let ran = running.end();
        assert_eq!(ran.signal, Some(2), "{ran:?}");
    }
}

#[test]
fn a_leader_that_ignores_an_interrupt_campaigns_again_after_it() {
    let world = World::of(1);
    let line = format!("echo $$ > pid; echo x >> terms; {}", shell_until("go"));
    let mut command = world.command("env");
    command.args(["--ignore-signal=INT,QUIT", REDBOLT, "lead", "--ttl", "6s", "boss", "-c", &line]);
    let running = Running::start(command);
    world.process("pid");
    [Signal::SIGINT, Signal::SIGQUIT].into_iter().for_each(|signal| running.signal(signal));
    send(running.inner(), Signal::SIGKILL);
    eventually("it leads again", || {
        fs::read_to_string(world.path("terms")).is_ok_and(|terms| terms.lines().count() == 2)
    });
    fs::write(world.path("go"), "").unwrap();
    running.end().expect(0);
}

/// The first warning goes to a log that has reached the size limit of the processes.
#[test]
fn a_warning_to_a_full_log_does_not_end_redbolt() {
    let mut world = World::of(3);
    let line = format!("trap '' TERM; echo $$ > /dev/stdout; {}; exit 4", shell_until("go"));
    fs::write(world.path("log"), [b'x'; 4096]).unwrap();
    let script =
        format!("ulimit -f 4; exec '{REDBOLT}' lock --ttl 3s job -c \"$0\" 2>> log | cat > pid");
    let mut command = world.command("bash");
    command.args(["-c", &format!("set -o pipefail; {script}"), &line]);
    let running = Running::start(command);
    let pid = world.process("pid");
    world.nodes[0].kill();
    world.until_extended(1, "job");
    assert!(lives(pid));
    fs::write(world.path("go"), "").unwrap();
    running.end().expect(4);
}

#[test]
fn acquire_releases_the_lock_if_no_file_may_be_written() {
    let world = World::of(1);
    let mut command = world.command("bash");
    let script = format!("ulimit -f 0; '{REDBOLT}' acquire --token-file token job");
    command.args(["-c", &script]);
    run(command).expect(71).expect_says("token");
    assert_eq!(world.held_on("job"), 0);
    assert_eq!(fs::read_dir(world.path("")).unwrap().count(), 0, "a draft is left");
}

#[test]
fn extend_and_release_report_a_file_that_may_not_be_written() {
    let world = World::of(1);
    world.run(&["acquire", "--ttl", "20s", "--token-file", "token", "job"]).expect(0);
    let limited = |words: &str| {
        let mut command = world.command("bash");
        command.args(["-c", &format!("ulimit -f 0; '{REDBOLT}' {words} --token-file token")]);
        run(command)
    };
    limited("extend").expect(71).expect_says("token");
    limited("release").expect(0);
    assert_eq!(world.held_on("job"), 0);
}

#[test]
fn signals_are_passed_on_once_and_the_command_decides() {
    let world = World::of(1);
    let line = format!(
        "trap 'echo int >> got' INT; trap 'echo term >> got' TERM; \
        trap 'echo hup >> got; exit 9' HUP; echo $$ > pid; {}",
        shell_until("never")
    );
    let running = world.start(&["lock", "job", "-c", &line]);
    world.process("pid");
    let got = |expected: &str| {
        eventually(&format!("the command got {expected:?}"), || {
            fs::read_to_string(world.path("got")).is_ok_and(|got| got == expected)
        });
    };
    running.signal(Signal::SIGINT);
    got("int\n");
    running.signal(Signal::SIGTERM);
    got("int\nterm\n");
    running.signal(Signal::SIGHUP);
    running.end().expect(9);
    got("int\nterm\nhup\n");
    assert_eq!(world.held_on("job"), 0);
}

#[test]
fn the_status_shows_a_signal_that_was_passed_on() {
    let world = World::of(1);
    for (signal, status) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143), (Signal::SIGHUP, 129)] {
        let file = format!("pid-{status}");
        let running =
            world.start(&["lock", "job", "-c", &format!("echo $$ > {file}; exec sleep 600")]);
        world.process(&file);
        running.signal(signal);
        running.end().expect(status);
        assert_eq!(world.held_on("job"), 0);
    }
}

#[test]
fn the_command_inherits_blocked_and_ignored_signals() {
    let world = World::of(1);
    let masks = "grep -E '^Sig(Blk|Ign)' /proc/self/status";
    let direct = redbolt_test_servers::program("sh").args(["-c", masks]).output().unwrap();
    let under = world.run(&["lock", "job", "-c", masks]).expect(0);
    assert_eq!(under.stdout, String::from_utf8(direct.stdout).unwrap());

    let mut command = redbolt_test_servers::program("sh");
    let program = env!("CARGO_BIN_EXE_redbolt");
    command.args(["-c", &format!("trap '' HUP INT; '{program}' lock job -- {masks}")]);
    command.env("REDBOLT_NODES", world.addresses());
    let ran = run(command).expect(0);
    let ignored = ran.stdout.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    assert_eq!(u64::from_str_radix(ignored.trim(), 16).unwrap() & 0b11, 0b11, "{ran:?}");
}

#[test]
fn signals_that_the_caller_blocks_stay_blocked_in_the_command() {
    let world = World::of(1);
    let mask = |words: &[&str]| {
        let mut command = world.command("env");
        command.arg("--block-signal=HUP,INT,QUIT,TERM,CHLD,TTOU").args(words);
        command.args(["grep", "^SigBlk", "/proc/self/status"]);
        run(command).expect(0).stdout
    };
    let direct = mask(&[]);
    assert_eq!(mask(&[env!("CARGO_BIN_EXE_redbolt"), "lock", "job", "--"]), direct);
}

#[test]
fn the_command_finds_masks_dispositions_and_limits_as_the_caller_left_them() {
    let world = World::of(1);
    let found = "grep -E '^Sig(Blk|Ign)' /proc/self/status; ulimit -a; umask";
    let setups = [
        ("true", ""),
        ("trap '' PIPE", ""),
        ("trap '' HUP PIPE USR1 40", ""),
        ("trap '' HUP USR1 40", ""),
        ("ulimit -c 0 -n 64 -f 100", ""),
        ("true", "env --block-signal"),
        ("true", "env --block-signal=USR1,37"),
    ];
    for (setup, under) in setups {
        let found_by = |words: &str| {
            let mut command = world.command("bash");
            let line = format!("{setup}; exec {under} {words} bash -c \"$0\"");
            command.args(["-c", &line, found]);
            run(command).expect(0).stdout
        };
        let lock = format!("'{REDBOLT}' lock job --");
        assert_eq!(found_by(&lock), found_by(""), "{setup} {under}");
    }
}

#[test]
fn a_shell_that_signals_its_own_group_gets_the_signal_once() {
    let world = World::of(1);
    let line = "trap 'echo term >> got' TERM; kill -TERM 0; sleep 0.2; cat got";
    let mut command = redbolt_test_servers::program("setsid");
    let program = env!("CARGO_BIN_EXE_redbolt");
    command.args(["--wait", program, "lock", "job", "-c", line]);
    command.env("REDBOLT_NODES", world.addresses()).current_dir(world.path(""));
    let ran = run(command).expect(0);
    assert_eq!(ran.stdout, "term\n");
}

#[test]
fn an_ignored_sigchld_is_refused_because_it_hides_the_status() {
    let world = World::of(1);
    let mut command = redbolt_test_servers::program("env");
    let program = env!("CARGO_BIN_EXE_redbolt");
    command.args(["--ignore-signal=CHLD", program, "lock", "job", "--", "true"]);
    command.env("REDBOLT_NODES", world.addresses());
    run(command).expect(71).expect_says("SIGCHLD");
}
