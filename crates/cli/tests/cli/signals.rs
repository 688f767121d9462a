//! Signals to redbolt reach the command, and the caller's signal dispositions stay as they were.

use nix::sys::signal::Signal;

use crate::harness::World;

#[test]
fn signals_are_passed_on_once_and_the_command_decides() {
    let world = World::of(1);
    let line = "trap 'echo int >> got' INT; trap 'echo term >> got' TERM; \
        trap 'echo hup >> got; exit 9' HUP; echo $$ > pid; while :; do sleep 0.02; done";
    let running = world.start(&["lock", "job", "-c", line]);
    world.process("pid");
    let got = |expected: &str| {
        crate::harness::eventually(&format!("the command got {expected:?}"), || {
            std::fs::read_to_string(world.path("got")).is_ok_and(|got| got == expected)
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
    let ran = crate::harness::run(command).expect(0);
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
        crate::harness::run(command).expect(0).stdout
    };
    let direct = mask(&[]);
    assert_eq!(mask(&[env!("CARGO_BIN_EXE_redbolt"), "lock", "job", "--"]), direct);
}

#[test]
fn a_shell_that_signals_its_own_group_gets_the_signal_once() {
    let world = World::of(1);
    let line = "trap 'echo term >> got' TERM; kill -TERM 0; sleep 0.2; cat got";
    let mut command = redbolt_test_servers::program("setsid");
    let program = env!("CARGO_BIN_EXE_redbolt");
    command.args(["--wait", program, "lock", "job", "-c", line]);
    command.env("REDBOLT_NODES", world.addresses()).current_dir(world.path(""));
    let ran = crate::harness::run(command).expect(0);
    assert_eq!(ran.stdout, "term\n");
}

#[test]
fn an_ignored_sigchld_is_refused_because_it_hides_the_status() {
    let world = World::of(1);
    let mut command = redbolt_test_servers::program("env");
    let program = env!("CARGO_BIN_EXE_redbolt");
    command.args(["--ignore-signal=CHLD", program, "lock", "job", "--", "true"]);
    command.env("REDBOLT_NODES", world.addresses());
    crate::harness::run(command).expect(71).expect_says("SIGCHLD");
}
