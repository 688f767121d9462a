//! Every exit status of `redbolt lock`, and the environment of its command.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use nix::sys::signal::Signal;
use redbolt_test_servers::{Mode, Proxy, Reply, Server};

use crate::harness::{Ran, Running, World, eventually, redbolt, run};

#[test]
fn the_status_of_the_command_is_passed_on_and_the_lock_released() {
    let world = World::of(3);
    for status in [0, 1, 3, 64, 75, 255] {
        world.run(&["lock", "job", "--", "sh", "-c", &format!("exit {status}")]).expect(status);
        assert_eq!(world.held_on("job"), 0);
    }
    world.run(&["lock", "job", "-c", "exit 7"]).expect(7);
    world.run(&["lock", "job", "sh", "-c", "exit 8"]).expect(8);
}

#[test]
fn a_command_that_was_killed_is_128_and_the_signal() {
    let world = World::of(1);
    for (signal, status) in [("TERM", 143), ("KILL", 137), ("INT", 130), ("SEGV", 139)] {
        world.run(&["lock", "job", "-c", &format!("kill -{signal} $$")]).expect(status);
    }
    assert_eq!(world.held_on("job"), 0);
}

#[test]
fn too_few_open_files_are_reported_with_the_lock_and_the_limit() {
    let world = World::of(3);
    for words in
        ["lock job -- touch ran", "lead job -- touch ran", "acquire --token-file token job"]
    {
        let mut command = world.command("bash");
        command.args(["-c", &format!("ulimit -n 8; exec '{REDBOLT}' {words}")]);
        let ran = run(command).expect(71).expect_says("job: Too many open files");
        ran.expect_says("may have 8 files open: raise that with ulimit -n");
    }
    assert!(!world.path("ran").exists());
    assert_eq!(world.held_on("job"), 0);
}

#[test]
fn a_command_that_cannot_be_run_is_126_or_127_and_says_why() {
    let world = World::of(1);
    world.run(&["lock", "job", "--", "no-such-command"]).expect(127).expect_says("no-such-command");
    world.run(&["lock", "job", "--", "./no/such/path"]).expect(127);
    let plain = world.path("plain");
    fs::write(&plain, "text\n").unwrap();
    fs::set_permissions(&plain, fs::Permissions::from_mode(0o644)).unwrap();
    world.run(&["lock", "job", "--", "./plain"]).expect(126).expect_says("./plain");
    world.run(&["lock", "job", "--", "/"]).expect(126);
    assert_eq!(world.held_on("job"), 0);
}

const REDBOLT: &str = env!("CARGO_BIN_EXE_redbolt");

const OTHER_DATA: &str = "job is held by other data, a string of 13 bytes #";

#[test]
fn a_refusal_names_the_holder() {
    let mut world = World::of(3);
    let holder = world.start(&["lock", "job", "-c", "echo $PPID > redbolt; exec sleep 600"]);
    world.process("redbolt");
    let label = format!(":{}\n", holder.pid());
    for options in [&["--try"][..], &["--wait", "4s"]] {
        let words = [&["lock"], options, &["job", "--", "true"]].concat();
        let ran = world.run(&words).expect(75).expect_says("job is held by ");
        assert!(ran.stderr.ends_with(&label), "{ran:?}");
    }
    // No value has a majority of the visible nodes.
    world.nodes[0].kill();
    world.nodes[1].cmd("DEL job");
    world.take_on(1, "job");
    world.run(&["lock", "-n", "job", "--", "true"]).expect(75).expect_says("is held by another");
}

#[test]
fn held_by_another_is_75_or_what_was_asked_for() {
    let world = World::of(3);
    world.take("job");
    for (options, status) in [
        (&["--try"][..], 75),
        (&["-n"], 75),
        (&["--wait", "4s"], 75),
        (&["--wait", "0s"], 75),
        (&["-n", "-E", "3"], 3),
        (&["-n", "--conflict-exit-code", "0"], 0),
    ] {
        let words = [&["lock"], options, &["job", "--", "touch", "ran"]].concat();
        world.run(&words).expect(status).expect_says(OTHER_DATA);
        assert!(!world.path("ran").exists());
    }
    for node in &world.nodes {
        let value = node.cmd("GET job");
        assert_eq!(value, Reply::Bulk(b"somebody else".to_vec()), "the holder's key is untouched");
    }
}

#[test]
fn no_quorum_is_69_with_a_line_for_each_node() {
    let mut world = World::of(3);
    world.nodes[0].kill();
    world.nodes[2].pause();
    for options in [&["--try"][..], &["--wait", "300ms"]] {
        let words = [&["lock", "--ttl", "6s"], options, &["job", "--", "touch", "ran"]].concat();
        let ran = world.run(&words).expect(69).expect_says("connection refused");
        for (number, node) in world.nodes.iter().enumerate() {
            let line = format!("redbolt: node {} {}: ", number + 1, node.address());
            assert_eq!(ran.stderr.matches(&line).count(), 1, "{line:?} in {ran:?}");
        }
        assert!(!world.path("ran").exists());
    }
    world.nodes[2].resume();
    world.nodes[0].restart();
    world.run(&["lock", "--wait", "20s", "job", "--", "true"]).expect(0);
}

#[test]
fn a_minority_without_votes_is_warned_about_once_and_not_if_quiet() {
    let mut world = World::of(3);
    let lock = |world: &World, options: &[&str], line: &str| {
        world.run(&[&["lock", "--ttl", "6s"], options, &["job", "-c", line]].concat()).expect(0)
    };
    // The program warns of a node that does not run for a second.
    eventually("all vote", || lock(&world, &[], "sleep 0.5").stderr.is_empty());
    let address = world.nodes[1].address();
    world.nodes[1].kill();
    let said = lock(&world, &[], "sleep 2.5").stderr;
    let expected = format!(
        "redbolt: warning: 1 of 3 nodes does not vote; locks end if one more fails\n\
         redbolt: node 2 {address}: connection refused\n"
    );
    assert_eq!(said, expected, "one warning, though the lock is extended several times");
    assert_eq!(lock(&world, &["--quiet"], "sleep 0.5").stderr, "");
    world.run(&["acquire", "--token-file", "file", "other"]).expect(0).expect_says("1 of 3 nodes");
    world.run(&["acquire", "-q", "--token-file", "two", "another"]).expect(0);
    // A node that was restarted empty does not vote during its quarantine.
    world.nodes[1].restart();
    let said = lock(&world, &[], "sleep 4").stderr;
    assert_eq!(said.matches("does not vote").count(), 1, "{said}");
    assert!(said.contains("quarantined"), "{said}");
    // The node goes down while the command runs.
    let line = format!("kill -9 {}; sleep 1", world.nodes[1].pid());
    world.run(&["lock", "five", "-c", &line]).expect(0);
}

/// It ends before the node is known to hang, so it reports at once the nodes that have not
/// answered.
#[test]
fn acquire_warns_about_a_hanging_node() {
    let world = World::of(3);
    assert_eq!(world.acquire_on_all("one", &[], "job").stderr, "", "all vote");
    world.nodes[1].pause();
    let said = world.run(&["acquire", "--token-file", "two", "another"]).expect(0).stderr;
    assert!(said.contains("1 of 3 nodes does not vote"), "{said}");
    assert!(said.contains(&format!("node 2 {}: ", world.nodes[1].address())), "{said}");
    world.run(&["acquire", "-q", "--token-file", "three", "third"]).expect(0);
    world.nodes[1].resume();
}

/// Looking up the holder may take as long as the refusal took.
#[test]
fn a_refusal_names_the_holder_over_any_distance() {
    let world = World::of(3);
    world.take("job");
    let before = |server: &Server| {
        let proxy = Proxy::before(&server.address());
        proxy.set(Mode::Coalesce(Duration::from_millis(300)));
        proxy
    };
    let proxies: Vec<_> = world.nodes.iter().map(before).collect();
    let addresses: Vec<_> = proxies.iter().map(Proxy::address).collect();
    // A busy machine makes the round trip longer still; the lookup's timeout follows the round
    // trip.
    let mut command = redbolt(&["lock", "--try", "--response-timeout", "20s", "job", "--", "true"]);
    command.env("REDBOLT_NODES", addresses.join(","));
    run(command).expect(75).expect_says(OTHER_DATA);
}

/// One of several tries is undisturbed, even on a busy machine.
#[test]
fn a_refusal_does_not_wait_for_a_hanging_node() {
    let world = World::of(3);
    world.take("job");
    world.nodes[1].pause();
    let refused = || world.run(&["lock", "--try", "job", "--", "true"]).expect(75);
    let is_quick = |ran: Ran| ran.expect_says(OTHER_DATA).took < Duration::from_secs(2);
    assert!((0..5).any(|_| is_quick(refused())));
    world.nodes[1].resume();
}

#[test]
fn a_wrong_port_is_reported_soon_in_a_wait_without_limit() {
    let waiter = Running::start(redbolt(&["lock", "--node", "127.0.0.1:1", "job", "--", "true"]));
    eventually("the message appears", || waiter.said().contains("127.0.0.1:1: connection refused"));
    waiter.signal(Signal::SIGTERM);
    waiter.end().expect(143);
    let words = ["lock", "--try", "--node", "127.0.0.1:1", "job", "--", "true"];
    run(redbolt(&words)).expect(69).expect_says("127.0.0.1:1: connection refused");
}

#[test]
fn a_fault_for_an_operator_is_69_at_once_in_a_wait_without_limit() {
    let [primary, replica] = [Server::start(), Server::start()];
    replica.cmd(&format!("REPLICAOF 127.0.0.1 {}", primary.port()));
    let world = World::on(vec![replica]);
    world.run(&["lock", "job", "--", "true"]).expect(69).expect_says("a replica");
}

#[test]
fn a_wrong_password_is_69_and_is_not_shown() {
    let world = World::on(vec![Server::with(&["--requirepass", "right"])]);
    let address = |password: &str| format!("redis://:{password}@{}", world.nodes[0].address());
    let lock = |password: &str| {
        let mut command = redbolt(&["lock", "--new-nodes", "job", "--", "true"]);
        command.env("REDBOLT_NODES", address(password));
        run(command)
    };
    let ran = lock("hunter2").expect(69).expect_says("WRONGPASS");
    assert!(!ran.stderr.contains("hunter2"), "{ran:?}");
    lock("right").expect(0);
}

#[test]
fn the_command_knows_key_and_ttl_but_not_the_token() {
    let world = World::of(1);
    let line = format!("env > env; redis-cli -p {} get job > token", world.nodes[0].port());
    world.run(&["lock", "--ttl", "20s", "job", "-c", &line]).expect(0);
    let (env, token) = (world.written("env"), world.written("token"));
    assert!(env.lines().any(|line| line == "REDBOLT_KEY=job"), "{env}");
    assert!(env.lines().any(|line| line == "REDBOLT_TTL_MS=20000"), "{env}");
    let random = token.split(':').next().unwrap();
    assert_eq!(random.len(), 34, "{token}");
    assert!(!env.contains(random), "{env}");
}

#[test]
fn a_name_can_be_any_bytes() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let world = World::of(1);
    let name = OsStr::from_bytes(b"a b\xff\r\nc");
    let mut command = world.redbolt(&["lock"]);
    command.arg(name).args(["--", "redis-cli", "-p", &world.nodes[0].port().to_string(), "dbsize"]);
    assert_eq!(run(command).expect(0).stdout.trim(), "2", "the lock, and the restart guard");
    world.run(&["lock", "-n", "job", "--", "true"]).expect(0);
}

#[test]
fn a_release_that_nobody_confirms_is_a_warning_only() {
    let world = World::of(3);
    let pids: Vec<_> = world.nodes.iter().map(|node| node.pid().to_string()).collect();
    let line = format!("kill -STOP {}; exit 5", pids[..2].join(" "));
    // Even with -q, because the lock may stay taken.
    world.run(&["lock", "-q", "job", "-c", &line]).expect(5).expect_says("warning");
    world.nodes.iter().for_each(Server::resume);
}

#[test]
fn a_stopped_minority_still_gets_the_release() {
    // The test does not wait as long as the TTL.
    let world = World::with_max_ttl(3, "90s");
    let line = format!("kill -STOP {}", world.nodes[0].pid());
    let words = ["lock", "--ttl", "90s", "job", "-c", &line];
    let ran = world.run(&words).expect(0);
    assert_eq!(ran.stderr, "");
    world.nodes[0].resume();
    eventually("the stopped node has heard of it too", || world.held_on("job") == 0);
}

#[test]
fn a_refusal_names_the_lock_and_says_that_the_command_was_not_run() {
    let mut world = World::of(1);
    world.nodes[0].kill();
    for options in [&["--try"][..], &["--wait", "100ms"], &["-q", "--try"]] {
        let words = [&["lock"], options, &["nightly job", "--", "touch", "ran"]].concat();
        let says =
            "redbolt: nightly job: too few nodes can vote, 1 needed; the command was not run\n";
        assert_eq!(world.run(&words).expect(69).stderr.matches(says).count(), 1);
    }
    let words = ["acquire", "--try", "--token-file", "held", "nightly job"];
    let ran = world.run(&words).expect(69).expect_says("redbolt: nightly job: too few nodes");
    assert!(!ran.stderr.contains("was not run"), "{ran:?}");
}

#[test]
fn a_loss_and_an_unconfirmed_release_name_the_lock() {
    let mut world = World::of(1);
    let acquire = |world: &World| world.acquire_on_all("held", &["--ttl", "20s"], "job");
    acquire(&world);
    world.delete("job");
    world.run(&["extend", "--token-file", "held"]).expect(70).expect_says("job: the lock is lost");
    fs::remove_file(world.path("held")).unwrap();
    acquire(&world);
    world.nodes[0].kill();
    let says = "job: the release is 0 of 1 confirmed, 1 needed";
    let ran = world.run(&["release", "--token-file", "held"]).expect(69).expect_says(says);
    let hint = "to try again: redbolt release --token-file held\n";
    assert!(ran.stderr.contains(hint) && ran.stderr.contains("the lock ends in "), "{ran:?}");
}

#[test]
fn a_lock_that_is_lost_under_its_command_is_named() {
    let world = World::of(1);
    let command = "touch begun; exec sleep 600";
    let lock = world.start(&["lock", "--ttl", "6s", "job", "-c", command]);
    eventually("the command runs", || world.path("begun").exists());
    world.delete("job");
    lock.end().expect(70).expect_says("redbolt: job: the lock is lost");
}

/// Runs in a separate mount namespace, for which this machine may lack the permission.
#[test]
fn a_missing_proc_is_named() {
    let world = World::of(1);
    let program = env!("CARGO_BIN_EXE_redbolt");
    let mut shell = world.command("unshare");
    shell.args(["--mount", "sh", "-c"]);
    shell.arg(format!("umount -l /proc || exit 99; exec {program} lock job -- touch ran"));
    let ran = run(shell);
    if ran.stderr.contains("unshare") || ran.status == Some(99) {
        eprintln!("this machine cannot unmount /proc: nothing to test");
        return;
    }
    ran.expect(71).expect_says("/proc is not mounted").expect_says("the command was not run");
    assert!(!world.path("ran").exists());
}
