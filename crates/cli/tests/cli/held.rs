//! `acquire`, `extend` and `release`: a script holds a lock over several commands.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::Signal;
use redbolt_test_servers::{Mode, Reply, Server};

use crate::harness::{Ran, Running, World, eventually, run, shell_until};

const FILE: &str = "file";

fn acquire(world: &World, options: &[&str]) -> Ran {
    // Three commands must fit into it, even on a busy machine.
    let ttl: &[&str] = if options.contains(&"--ttl") { &[] } else { &["--ttl", "25s"] };
    world.run(&[&["acquire", "--token-file", FILE], ttl, options, &["job"]].concat())
}

fn extend(world: &World, options: &[&str]) -> Ran {
    world.run(&[&["extend", "--token-file", FILE], options].concat())
}

fn release(world: &World) -> Ran {
    world.run(&["release", "--token-file", FILE])
}

fn pttl(node: &Server) -> i64 {
    match node.cmd("PTTL job") {
        Reply::Int(ms) => ms,
        other => panic!("{other:?}"),
    }
}

/// Returns the directory of the program.
fn bin() -> String {
    let folder = Path::new(env!("CARGO_BIN_EXE_redbolt")).parent().unwrap();
    folder.to_str().unwrap().to_owned()
}

/// Returns the script of the help, with the test's steps.
fn script(world: &World, dump: &str, upload: &str) -> Command {
    let help = world.run(&["acquire", "--help"]).expect(0).stdout;
    let (_, script) = help.split_once("Example:\n").unwrap();
    for (name, line) in [("dump.sh", dump), ("upload.sh", upload)] {
        fs::write(world.path(name), format!("#!/bin/sh\n{line}\n")).unwrap();
        fs::set_permissions(world.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::create_dir_all(world.path("tmp")).unwrap();
    let mut shell = world.command("sh");
    shell.args(["-c", script]).env("TMPDIR", world.path("tmp"));
    shell.env("PATH", format!("{}:{}", bin(), std::env::var("PATH").unwrap()));
    shell
}

#[track_caller]
fn assert_nothing_is_left(world: &World) {
    assert_eq!(world.held_on("nightly"), 0);
    assert_eq!(fs::read_dir(world.path("tmp")).unwrap().count(), 0);
}

#[test]
fn the_script_of_the_help_reports_the_end_of_the_lock() {
    let world = World::of(1);
    let delete = format!("redis-cli -p {} del nightly", world.nodes[0].port());
    for (dump, upload, status) in [
        ("exit 0", "exit 0", 0),
        (delete.as_str(), "touch uploaded", 70),
        ("exit 3", "touch uploaded", 3),
        ("exit 0", delete.as_str(), 70),
    ] {
        run(script(&world, dump, upload)).expect(status);
        assert!(!world.path("uploaded").exists());
        assert_nothing_is_left(&world);
    }
    world.take("nightly");
    let waits = Running::start(script(&world, "exit 0", "exit 0"));
    eventually("the waiter waits", || fs::read_dir(world.path("tmp")).unwrap().count() == 1);
    world.delete("nightly");
    waits.end().expect(0);
    assert_nothing_is_left(&world);
}

#[test]
fn the_script_of_the_help_releases_on_a_signal() {
    let world = World::of(1);
    for (signal, status) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130)] {
        let wait = format!("touch up; {}", shell_until("go"));
        let running = Running::start(script(&world, &wait, "touch uploaded"));
        eventually("the first step runs", || world.path("up").exists());
        running.signal(signal);
        fs::write(world.path("go"), "").unwrap();
        running.end().expect(status);
        assert!(!world.path("uploaded").exists());
        assert_nothing_is_left(&world);
        fs::remove_file(world.path("go")).unwrap();
        fs::remove_file(world.path("up")).unwrap();
    }
}

/// Returns the names in the directory.
fn files(world: &World) -> Vec<String> {
    let entries = fs::read_dir(world.path("")).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_script_holds_a_lock_over_several_commands() {
    let world = World::of(3);
    let taken = world.acquire_on_all(FILE, &["--ttl", "15s"], "job");
    assert_eq!((taken.stdout.as_str(), taken.stderr.as_str()), ("", ""));
    assert_eq!(world.held_on("job"), 3);
    let mode = fs::metadata(world.path(FILE)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    world.run(&["lock", "--try", "job", "--", "true"]).expect(75);
    eventually("all nodes have the extension", || {
        assert_eq!(extend(&world, &["--ttl", "30s"]).expect(0).stderr, "");
        world.nodes.iter().all(|node| pttl(node) > 15_000)
    });
    assert_eq!(files(&world), [FILE], "no temporary file is left");
    assert_eq!(release(&world).expect(0).stderr, "");
    assert_eq!(world.held_on("job"), 0);
    assert!(files(&world).is_empty());
    release(&world).expect(64).expect_says("no such file");
}

#[test]
fn the_label_names_the_script_and_the_token_stays_secret() {
    let world = World::of(1);
    let mut said = acquire(&world, &[]).expect(0);
    let status = world.run(&["status", "job"]).expect(0).stdout;
    let label = format!(":{} on 1 of 1 nodes", std::process::id());
    assert!(status.trim_end().ends_with(&label), "{status} of {label}");
    let Reply::Bulk(token) = world.nodes[0].cmd("GET job") else { panic!("no key") };
    let secret = String::from_utf8(token[..32].to_vec()).unwrap();
    assert!(fs::read_to_string(world.path(FILE)).unwrap().contains(&secret));
    let text = fs::read_to_string(world.path(FILE)).unwrap();
    for broken in
        [&text[..text.len() - 5], &text[..80], &text.replace("token ", "token 0"), "diary\n"]
    {
        fs::write(world.path(FILE), broken).unwrap();
        said.stderr += &release(&world).expect(64).stderr;
        said.stderr += &acquire(&world, &["-n"]).expect(64).stderr;
        assert_eq!(
            fs::read_to_string(world.path(FILE)).unwrap(),
            broken,
            "the broken file is not overwritten"
        );
    }
    assert!(said.stderr.contains("cut off") && said.stderr.contains("no lock record"), "{said:?}");
    assert!(!said.stderr.contains(&secret[..8]), "{said:?}");
    fs::write(world.path(FILE), text).unwrap();
    release(&world).expect(0);
}

#[test]
fn a_file_that_others_can_read_is_refused() {
    let world = World::of(1);
    acquire(&world, &[]).expect(0);
    for mode in [0o644, 0o620, 0o601, 0o660] {
        fs::set_permissions(world.path(FILE), fs::Permissions::from_mode(mode)).unwrap();
        let reason = format!("its mode is {mode:04o}");
        extend(&world, &[]).expect(64).expect_says(&reason);
        release(&world).expect(64).expect_says("chmod 600");
        acquire(&world, &[]).expect(64).expect_says(&reason);
        assert_eq!(world.held_on("job"), 1);
    }
    fs::set_permissions(world.path(FILE), fs::Permissions::from_mode(0o400)).unwrap();
    extend(&world, &[]).expect(0);
    fs::set_permissions(world.path(FILE), fs::Permissions::from_mode(0o600)).unwrap();
    release(&world).expect(0);
}

#[test]
fn the_file_of_a_living_lock_is_not_overwritten_and_that_of_a_dead_one_is() {
    let world = World::of(3);
    acquire(&world, &["--ttl", "20s"]).expect(0);
    let other = ["acquire", "--ttl", "25s", "--token-file", FILE, "other"];
    world.run(&other).expect(64).expect_says("a lock that lives for");
    assert_eq!(world.held_on("other"), 0);
    release(&world).expect(0);
    acquire(&world, &["--ttl", "4s"]).expect(0);
    eventually("the key has expired", || world.held_on("job") == 0);
    world.run(&other).expect(0);
    release(&world).expect(0);
    assert_eq!(world.held_on("other"), 0);
    fs::create_dir(world.path(FILE)).unwrap();
    acquire(&world, &[]).expect(64).expect_says("not a regular file");
}

#[test]
fn an_empty_file_is_as_good_as_none_and_any_other_is_not() {
    let world = World::of(3);
    let line =
        "f=$(mktemp ./XXXXXX) && mv $f file && redbolt acquire --ttl 25s --token-file file job";
    let path = format!("{}:{}", bin(), std::env::var("PATH").unwrap());
    let mut shell = world.command("sh");
    shell.args(["-c", line]).env("PATH", path);
    run(shell).expect(0);
    assert!(world.held_on("job") >= 2);
    release(&world).expect(0);
    fs::write(world.path(FILE), "").unwrap();
    fs::set_permissions(world.path(FILE), fs::Permissions::from_mode(0o644)).unwrap();
    acquire(&world, &[]).expect(64).expect_says("does not exist yet");
    fs::set_permissions(world.path(FILE), fs::Permissions::from_mode(0o600)).unwrap();
    release(&world).expect(64).expect_says("it is empty");
    fs::write(world.path(FILE), "my diary").unwrap();
    acquire(&world, &[]).expect(64).expect_says("does not exist yet");
    assert_eq!(fs::read_to_string(world.path(FILE)).unwrap(), "my diary");
    assert_eq!(world.held_on("job"), 0);
}

#[test]
fn nothing_is_read_through_a_link_or_from_a_pipe() {
    let world = World::of(1);
    acquire(&world, &[]).expect(0);
    symlink(world.path(FILE), world.path("link")).unwrap();
    let through = ["release", "--token-file", "link"];
    world.run(&through).expect(64).expect_says("a symbolic link");
    nix::unistd::mkfifo(&world.path("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    world.run(&["release", "--token-file", "pipe"]).expect(64).expect_says("not a regular file");
    assert_eq!(world.held_on("job"), 1);
    release(&world).expect(0);
}

/// The second of two commands on one file waits for the first.
#[test]
fn an_extension_after_a_release_says_lost() {
    let world = World::of(3);
    acquire(&world, &["--ttl", "25s"]).expect(0);
    let file = fs::File::open(world.path(FILE)).unwrap();
    let first = Flock::lock(file, FlockArg::LockExclusive).unwrap();
    let second = world.start(&["extend", "--token-file", FILE]);
    let opened = || {
        let files = fs::read_dir(format!("/proc/{}/fd", second.pid())).into_iter().flatten();
        files.flatten().any(|fd| fs::read_link(fd.path()).is_ok_and(|to| to.ends_with(FILE)))
    };
    eventually("the waiter waits", opened);
    fs::remove_file(world.path(FILE)).unwrap();
    drop(first);
    second.end().expect(70).expect_says("it has been released");
    assert!(files(&world).is_empty());
}

/// A limit of no bytes simulates a full disk.
#[test]
fn a_release_needs_no_room_on_the_disk() {
    let world = World::of(3);
    acquire(&world, &["--ttl", "25s"]).expect(0);
    let mut shell = world.command("sh");
    let line = "ulimit -f 0; exec \"$0\" release --token-file file";
    shell.args(["-c", line, env!("CARGO_BIN_EXE_redbolt")]);
    run(shell).expect(0);
    assert_eq!(world.held_on("job"), 0);
    assert!(files(&world).is_empty());
}

/// The file notes an extension that only a minority has received, so that the release undoes it.
#[test]
fn an_extension_without_a_quorum_is_known_to_the_release() {
    let world = World::with_max_ttl(3, "10m");
    let ttl = Duration::from_secs(5);
    world.acquire_on_all(FILE, &["--ttl", "5s"], "job");
    let since = Instant::now();
    world.nodes[..2].iter().for_each(Server::pause);
    // This must end before the lock does.
    extend(&world, &["--ttl", "10m", "--response-timeout", "1s"]).expect(69);
    assert!(pttl(&world.nodes[2]) > 60_000);
    eventually("the lock has expired", || since.elapsed() > ttl);
    world.nodes[..2].iter().for_each(Server::resume);
    release(&world).expect(70);
    eventually("the key of the minority is gone too", || world.held_on("job") == 0);
}

/// The second of two commands that write the same file releases its lock.
#[test]
fn a_file_that_appears_during_the_wait_is_not_overwritten() {
    let world = World::of(3);
    world.take("job");
    let waiter = world.start(&["acquire", "--token-file", FILE, "job"]);
    eventually("the waiter waits", || !files(&world).is_empty());
    fs::write(world.path(FILE), "somebody's").unwrap();
    world.delete("job");
    waiter.end().expect(64).expect_says("the lock is released");
    assert_eq!(fs::read_to_string(world.path(FILE)).unwrap(), "somebody's");
    assert_eq!(world.held_on("job"), 0);
    assert_eq!(files(&world), [FILE]);
}

#[test]
fn no_lock_is_taken_if_the_file_cannot_be_written() {
    let world = World::of(1);
    let words = ["acquire", "--token-file", "no/such/folder/file", "job"];
    world.run(&words).expect(71).expect_says("no/such/folder/file: ");
    world.run(&["acquire", "--token-file", "/", "job"]).expect(64);
    assert_eq!(world.held_on("job"), 0);
}

#[test]
fn a_lock_that_was_deleted_is_lost() {
    let world = World::of(3);
    acquire(&world, &[]).expect(0);
    world.delete("job");
    extend(&world, &[]).expect(70).expect_says("the lock is lost: its key is gone");
    assert_eq!(files(&world), [FILE], "a failed extension keeps the file");
    release(&world).expect(70).expect_says("the lock is lost");
    assert!(files(&world).is_empty());
}

#[test]
fn a_lock_that_was_taken_is_lost_and_stays_with_the_taker() {
    let world = World::of(3);
    acquire(&world, &[]).expect(0);
    world.take("job");
    extend(&world, &[]).expect(70);
    release(&world).expect(70);
    for node in &world.nodes {
        assert_eq!(node.cmd("GET job"), Reply::Bulk(b"somebody else".to_vec()));
    }
}

/// The loss is noticed at any distance from the nodes.
#[test]
fn a_lock_that_was_lost_is_lost_over_any_distance() {
    for distance in [5, 80].map(Duration::from_millis) {
        let world = World::of(3);
        let far = world.far(distance);
        let run =
            |words: &[&str]| world.run_through(&far, &[words, &["--token-file", FILE]].concat());
        let lose: [fn(&World, &str); 2] = [World::delete, World::take];
        for lose in lose {
            run(&["acquire", "--ttl", "25s", "job"]).expect(0);
            lose(&world, "job");
            run(&["extend"]).expect(70).expect_says("the lock is lost");
            run(&["release"]).expect(70).expect_says("the lock is lost");
            assert!(files(&world).is_empty());
            world.delete("job");
        }
        run(&["acquire", "--ttl", "25s", "job"]).expect(0);
        run(&["extend"]).expect(0);
        run(&["release"]).expect(0);
        eventually("the last node hears of it too", || world.held_on("job") == 0);
    }
}

/// A round trip takes longer than a sixth of the TTL, and so longer than the inspection of the
/// lock.
#[test]
fn a_release_that_does_not_learn_whether_the_lock_was_held_does_not_say_so() {
    let world = World::of(3);
    let nodes = world.far(Duration::ZERO);
    let run = |words: &[&str]| {
        let options = ["--token-file", FILE, "--response-timeout", "9s"];
        world.run_through(&nodes, &[words, &options].concat())
    };
    run(&["acquire", "--ttl", "15s", "job"]).expect(0);
    nodes.iter().for_each(|node| node.set(Mode::Coalesce(Duration::from_millis(1500))));
    let ran = run(&["release"]).expect(69).expect_says("not known whether it was held");
    assert_eq!(ran.stderr.matches("job").count(), 1, "the lock is named once: {}", ran.stderr);
    eventually("the last node hears of it too", || world.held_on("job") == 0);
    assert!(files(&world).is_empty());
}

/// A command that has locked the file may need a while, because too few of its nodes answer.
#[test]
fn a_release_waits_for_an_extension_that_takes_its_time() {
    let world = World::of(3);
    acquire(&world, &["--ttl", "25s"]).expect(0);
    let file = fs::File::open(world.path(FILE)).unwrap();
    let slow = Flock::lock(file, FlockArg::LockExclusive).unwrap();
    let release = world.start(&["release", "--token-file", FILE, "--response-timeout", "500ms"]);
    let since = Instant::now();
    eventually("three timeouts have passed", || since.elapsed() > Duration::from_millis(1_500));
    drop(slow);
    release.end().expect(0);
}

/// An extension that finds too few keys leaves the others, because they protect work that
/// continues.
#[test]
fn an_extension_that_fails_deletes_nothing() {
    let world = World::with_max_ttl(3, "10m");
    world.acquire_on_all(FILE, &["--ttl", "10m"], "job");
    world.nodes[..2].iter().for_each(|node| drop(node.cmd("DEL job")));
    extend(&world, &[]).expect(70);
    assert_eq!(world.held_on("job"), 1);
    release(&world).expect(70);
    eventually("what is left goes with the release", || world.held_on("job") == 0);
}

#[test]
fn a_lock_whose_time_is_over_is_lost() {
    let world = World::of(3);
    acquire(&world, &["--ttl", "4s"]).expect(0);
    eventually("the key has expired", || world.held_on("job") == 0);
    extend(&world, &[]).expect(70).expect_says("its validity ended");
    release(&world).expect(70).expect_says("its validity ended");
    assert!(files(&world).is_empty());
}

#[test]
fn without_a_quorum_the_file_stays_and_can_be_tried_again() {
    let world = World::of(3);
    acquire(&world, &["--ttl", "25s"]).expect(0);
    world.nodes[..2].iter().for_each(Server::pause);
    // Both must end before the lock does.
    let soon = ["--response-timeout", "3s"];
    extend(&world, &soon).expect(69).expect_says("not extended, and held for");
    let release_soon = [&["release", "--token-file", FILE], &soon[..]].concat();
    let ran = world.run(&release_soon).expect(69).expect_says("to try again");
    for node in &world.nodes {
        assert_eq!(ran.stderr.matches(&node.address()).count(), 1, "{ran:?}");
    }
    assert_eq!(files(&world), [FILE]);
    world.nodes[..2].iter().for_each(Server::resume);
    extend(&world, &[]).expect(70).expect_says("it has been released");
    release(&world).expect(0);
    assert!(files(&world).is_empty());
    assert_eq!(world.held_on("job"), 0);
}

#[test]
fn a_minority_that_is_down_does_no_harm() {
    let mut world = World::of(3);
    acquire(&world, &["--ttl", "20s"]).expect(0);
    world.nodes[1].kill();
    extend(&world, &[]).expect(0);
    extend(&world, &[]).expect(0);
    release(&world).expect(0);
}

/// No command waits for this node, though a connection to it could take ten minutes.
#[test]
fn no_command_waits_for_a_hanging_node() {
    let world = World::with_max_ttl(3, "20m");
    world.nodes[1].pause();
    let ran = |words: &[&str]| run(in_ten_minutes(&world, words));
    ran(&["acquire", "--token-file", FILE, "--ttl", "10m", "job"]).expect(0);
    ran(&["extend", "--token-file", FILE]).expect(0);
    ran(&["status"]).expect(0);
    ran(&["status", "job"]).expect(0);
    ran(&["unlock", "job"]).expect(64);
    ran(&["release", "--token-file", FILE]).expect(0);
    ran(&["acquire", "--token-file", FILE, "--ttl", "10m", "job"]).expect(0);
    ran(&["unlock", "--force", "job"]).expect(0);
    world.nodes[1].resume();
}

fn in_ten_minutes(world: &World, words: &[&str]) -> Command {
    let mut command = world.redbolt(words);
    command.env("REDBOLT_CONNECT_TIMEOUT", "10m");
    command
}

#[test]
fn other_nodes_are_refused_and_named() {
    let world = World::of(3);
    acquire(&world, &[]).expect(0);
    let mut addresses: Vec<_> = world.nodes.iter().map(Server::address).collect();
    addresses.reverse();
    for verb in ["extend", "release"] {
        let mut command = world.redbolt(&[verb, "--token-file", FILE]);
        command.env("REDBOLT_NODES", addresses.join(","));
        let ran = run(command).expect(64).expect_says("another order");
        assert!(ran.stderr.contains(&world.nodes[0].address()), "{ran:?}");
    }
    assert!(world.held_on("job") >= 2);
    release(&world).expect(0);
}

#[test]
fn a_refused_lock_leaves_no_file() {
    let mut world = World::of(3);
    world.take("job");
    acquire(&world, &["--try"]).expect(75).expect_says("job is held by other data");
    acquire(&world, &["--wait", "4s", "-E", "3"]).expect(3);
    let waiter = world.start(&["acquire", "--token-file", FILE, "job"]);
    eventually("the waiter waits", || !files(&world).is_empty());
    waiter.signal(Signal::SIGTERM);
    waiter.end().expect(143);
    world.delete("job");
    world.nodes[..2].iter_mut().for_each(Server::kill);
    acquire(&world, &["-n"]).expect(69).expect_says("connection refused");
    assert!(files(&world).is_empty());
}

#[test]
fn a_waiter_gets_the_lock_that_is_released() {
    let world = World::of(3);
    acquire(&world, &["--ttl", "25s"]).expect(0);
    let waiter = world.start(&["acquire", "--ttl", "25s", "--token-file", "second", "job"]);
    eventually("the waiter waits", || files(&world).len() == 2);
    release(&world).expect(0);
    waiter.end().expect(0);
    assert_eq!(files(&world), ["second"]);
    world.run(&["release", "--token-file", "second"]).expect(0);
}

#[test]
fn a_fencing_token_is_printed() {
    let world = World::of(3);
    let mut last = 0;
    for _ in 0..3 {
        let token = acquire(&world, &["--fencing"]).expect(0).stdout;
        let token: u64 = token.trim().parse().unwrap();
        assert!(token > last, "{token} after {last}");
        last = token;
        assert_eq!(extend(&world, &[]).expect(0).stdout, "");
        release(&world).expect(0);
    }
}

/// If the token cannot be printed, the lock is released.
#[test]
fn a_lock_is_released_if_its_fencing_token_cannot_be_printed() {
    let world = World::of(1);
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = world.redbolt(&["acquire", "--token-file", FILE, "--fencing", "job"]);
    let ran = command.stdout(full).output().unwrap();
    assert_eq!(ran.status.code(), Some(71), "{ran:?}");
    assert_eq!(world.held_on("job"), 0);
    assert!(files(&world).is_empty());
}

#[test]
fn a_name_can_be_any_bytes() {
    let world = World::of(1);
    let mut command = world.redbolt(&["acquire", "--ttl", "25s", "--token-file", FILE]);
    command.arg(OsStr::from_bytes(b"a b\xff%\r\nc"));
    run(command).expect(0);
    assert_eq!(world.nodes[0].cmd("DBSIZE"), Reply::Int(2), "the lock, and the restart guard");
    extend(&world, &[]).expect(0);
    release(&world).expect(0);
    assert_eq!(world.nodes[0].cmd("DBSIZE"), Reply::Int(1));
}

#[test]
fn a_ttl_over_the_limit_is_refused() {
    let world = World::of(1);
    acquire(&world, &["--ttl", "31s"]).expect(64).expect_says("maximum");
    acquire(&world, &[]).expect(0);
    extend(&world, &["--ttl", "31s"]).expect(64).expect_says("maximum");
    assert_eq!(world.held_on("job"), 1);
    release(&world).expect(0);
}

/// Neither command writes a restart guard; only commands that request locks do.
#[test]
fn extending_and_releasing_need_no_restart_guard() {
    let world = World::of(3);
    acquire(&world, &[]).expect(0);
    world.nodes.iter().for_each(|node| drop(node.cmd("DEL redbolt:guard")));
    extend(&world, &[]).expect(0);
    release(&world).expect(0);
    assert_eq!(world.held_on("job"), 0);
    assert_eq!(world.held_on("redbolt:guard"), 0);
}
