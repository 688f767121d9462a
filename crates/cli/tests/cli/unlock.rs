//! `unlock`: an operator force-unlocks a resource.

use std::path::Path;
use std::{env, fs};

use redbolt_test_servers::{Reply, Server};

use crate::harness::{World, eventually, run, told_by_all};

#[test]
fn unlock_without_force_shows_the_holder_and_does_nothing() {
    let world = World::of(3);
    let holder = world.start(&["lock", "job", "-c", "echo $PPID > redbolt; exec sleep 600"]);
    world.process("redbolt");
    world.until_on_all("job");
    let ran = world.told_by_all(&["unlock", "job"], 64).expect_says("--force");
    let label = format!(":{} #", holder.pid());
    assert_eq!(ran.stdout.matches(&label).count(), 4, "each node, and all: {ran:?}");
    assert_eq!(world.held_on("job"), 3);
    let free = world.run(&["unlock", "other"]).expect(0).stdout;
    assert!(free.ends_with("other: free\n"), "{free}");
}

/// A script can repeat it, and a misspelled name is reported.
#[test]
fn unlock_of_a_free_lock_is_a_success_that_says_so() {
    let mut world = World::of(3);
    let note = "job: no client holds a lock of this name; nothing was deleted\n";
    for words in [&["unlock", "job"][..], &["unlock", "--force", "job"]] {
        let free = world.run(words).expect(0);
        assert_eq!(free.stderr, format!("redbolt: {note}"), "{free:?}");
    }
    world.run(&["acquire", "--ttl", "25s", "--token-file", "file", "job"]).expect(0);
    let broken = world.run(&["unlock", "--force", "job"]).expect(0);
    assert!(!broken.stderr.contains("nothing was deleted"), "{broken:?}");
    world.run(&["unlock", "--force", "job"]).expect(0).expect_says(note);
    world.nodes[0].kill();
    world.nodes[1].kill();
    let few = world.run(&["unlock", "job"]).expect(69).expect_says("nothing was done");
    assert!(few.stdout.ends_with("job: undecided\n"), "{few:?}");
}

/// A shell may run it as it is shown.
#[test]
fn the_hint_of_unlock_is_the_whole_command() {
    let world = World::of(1);
    let program = Path::new(env!("CARGO_BIN_EXE_redbolt")).parent().unwrap();
    let path = format!("{}:{}", program.display(), env::var("PATH").unwrap());
    for (key, shell) in [("it's a \u{fc}ber $job", "sh"), ("-job", "sh"), ("two\nlines\\", "bash")]
    {
        let dead = (&["--node", "[::1]:1"][..], 69);
        for (options, status) in [(&["--response-timeout", "2500ms"][..], 64), dead] {
            let words = ["acquire", "--ttl", "25s", "--token-file", "held", "--", key];
            world.run(&words).expect(0);
            let words = [&["unlock"], options, &["--", key]].concat();
            let shown = world.run(&words).expect(status).stderr;
            let hint = shown.lines().find_map(|line| line.split_once(": redbolt ")).unwrap().1;
            let hint = format!("redbolt {hint}").replace("'[::1]:1'", &world.addresses());
            for word in options.iter().filter(|word| word.starts_with("--")) {
                assert!(hint.contains(word), "{word} is missing: {shown}");
            }
            let mut pasted = world.command(shell);
            pasted.args(["-c", &hint]).env("PATH", &path);
            run(pasted).expect(0);
            assert_eq!(world.held_on(key), 0, "{hint}");
            world.run(&["release", "--token-file", "held"]).expect(70);
        }
    }
    let hint = "redbolt unlock --force --node ... job";
    let secret = ["unlock", "--node", "redis://ann:hunter2@127.0.0.1:1", "job"];
    let ran = world.run(&secret).expect(69).expect_says(hint);
    assert!(!ran.stderr.contains("hunter2"), "{ran:?}");
}

#[test]
fn unlock_with_force_names_the_holder_who_then_stops() {
    let world = World::of(3);
    let words = ["lock", "--ttl", "6s", "job", "-c", "echo $PPID > redbolt; exec sleep 600"];
    let mut before = None;
    let ran = told_by_all(|| {
        let _ = fs::remove_file(world.path("redbolt"));
        let holder = world.start(&words);
        world.process("redbolt");
        world.until_on_all("job");
        let shown = world.run(&["unlock", "job"]).stdout;
        let hash = shown.trim_end().rsplit('#').next().unwrap().to_owned();
        assert_eq!(hash.len(), 8, "{shown}");
        let Reply::Bulk(token) = world.nodes[0].cmd("GET job") else { panic!("no key") };
        before = Some((holder, hash, token));
        world.run(&["unlock", "--force", "job"]).expect(0)
    });
    let (holder, hash, token) = before.unwrap();
    let whose = format!(":{} #{hash}", holder.pid());
    for (number, node) in world.nodes.iter().enumerate() {
        let start = format!("node {} {}: broke the lock of ", number + 1, node.address());
        let line = ran.stdout.lines().find(|line| line.starts_with(&start)).unwrap();
        assert!(line.contains(&whose) && line.ends_with(" left"), "{line}");
    }
    let last = ran.stdout.lines().last().unwrap();
    assert!(last.starts_with("job: broke the lock of ") && last.ends_with(" on 3 of 3 nodes"));
    assert!(!ran.stdout.contains(std::str::from_utf8(&token[..8]).unwrap()));
    assert_eq!(world.held_on("job"), 0);
    holder.end().expect(70).expect_says("the lock is lost");

    let again = world.told_by_all(&["unlock", "--force", "job"], 0).stdout;
    assert!(again.ends_with("job: nothing was there\n"), "{again}");
    assert_eq!(again.matches(": nothing was there\n").count(), 4, "{again}");
    world.run(&["lock", "-n", "job", "--", "true"]).expect(0);
}

/// Regression: `redbolt unlock --force session:42` deleted a user's session.
#[test]
fn an_application_s_data_is_deleted_only_with_foreign() {
    let world = World::of(3);
    let session: &[&[u8]] = &[b"SET", b"session:42", b"{\"user\":1}"];
    let cart: &[&[u8]] = &[b"HSET", b"cart", b"7", b"1"];
    for (write, key, data) in [
        (session, "session:42", "other data, a string of 10 bytes #"),
        (cart, "cart", "other data, a hash"),
    ] {
        let write = || world.nodes.iter().for_each(|node| drop(node.run(write)));
        write();
        let shown = world.told_by_all(&["unlock", key], 64).expect_says("--force --foreign");
        assert_eq!(shown.stdout.matches(data).count(), 4, "each node, and all: {shown:?}");
        let kept = world.told_by_all(&["unlock", "--force", key], 64).expect_says("--foreign");
        let left_alone = ": left alone, it is no lock of redbolt\n";
        assert_eq!(kept.stdout.matches(left_alone).count(), 3, "{kept:?}");
        assert!(kept.stdout.ends_with(", left alone on 3 of 3 nodes\n"), "{kept:?}");
        assert_eq!(world.held_on(key), 3);
        world.run(&["unlock", "--foreign", key]).expect(64);
        let delete = || {
            write();
            world.run(&["unlock", "--force", "--foreign", key]).expect(0)
        };
        let gone = told_by_all(delete).stdout;
        assert_eq!(gone.matches(&format!("deleted {data}")).count(), 4, "{gone}");
        assert_eq!(gone.matches(", without end\n").count(), 3, "{gone}");
        assert!(!gone.contains("user"), "{gone}");
        assert_eq!(world.held_on(key), 0);
    }
}

#[test]
fn other_data_on_some_nodes_is_left_alone() {
    let world = World::of(3);
    let ran = told_by_all(|| {
        world.delete("job");
        let _ = fs::remove_file(world.path("redbolt"));
        let holder = world.start(&["lock", "job", "-c", "echo $PPID > redbolt; exec sleep 600"]);
        world.process("redbolt");
        world.until_on_all("job");
        world.take_on(2, "job");
        let ran = world.run(&["unlock", "--force", "job"]).expect(0);
        drop(holder);
        ran
    });
    let ran = ran.stdout;
    assert!(ran.contains(": other data, a string of 13 bytes #"), "{ran}");
    assert!(ran.ends_with(" on 2 of 3 nodes\n"), "{ran}");
    assert_eq!(world.nodes[2].cmd("GET job"), Reply::Bulk(b"somebody else".to_vec()));
}

/// The lock is deleted nevertheless.
#[test]
fn a_report_that_nobody_reads_changes_no_status() {
    let world = World::of(3);
    world.take("job");
    let force = ["unlock", "--force", "--foreign", "job"];
    for (words, status) in [(&["unlock", "job"][..], 64), (&force, 0)] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let ran = world.redbolt(words).stdout(full).output().unwrap();
        assert_eq!(ran.status.code(), Some(status), "{ran:?}");
    }
    assert_eq!(world.held_on("job"), 0);
}

#[test]
fn too_few_nodes_are_69_each_with_its_reason() {
    let mut world = World::of(3);
    world.take("job");
    world.nodes[0].kill();
    let force = ["unlock", "--force", "--foreign", "job"];
    let two = world.run(&force).expect(0).stdout;
    assert!(two.contains("connection refused") && two.ends_with("on 2 of 3 nodes\n"), "{two}");
    world.take_on(1, "job");
    world.nodes[2].pause();
    let ran = world.run(&force).expect(69);
    let ran = ran.expect_says("gone on 1 of 3 nodes only, 2 needed");
    assert!(ran.stdout.contains("deleted what was there on 1 of 3 nodes"), "{ran:?}");
    world.nodes[2].resume();
}

#[test]
fn restart_guards_and_counters_are_never_deleted() {
    let world = World::of(1);
    for key in ["redbolt:guard", "redbolt:fence:job"] {
        world.run(&["unlock", "--force", key]).expect(64);
        world.run(&["unlock", "--force", "--foreign", key]).expect(64);
    }
    assert_eq!(world.held_on("redbolt:guard"), 1);
}

#[test]
fn a_script_s_lock_is_force_unlocked_and_the_script_learns_of_it() {
    let world = World::of(3);
    world.run(&["acquire", "--ttl", "25s", "--token-file", "file", "job"]).expect(0);
    world.run(&["unlock", "--force", "job"]).expect(0);
    world.run(&["extend", "--token-file", "file"]).expect(70);
    world.run(&["release", "--token-file", "file"]).expect(70);
}

/// `status` and `unlock` write no restart guard on new nodes.
#[test]
fn no_restart_guard_is_written() {
    let world = World::fresh(1);
    world.take("job");
    world.run(&["unlock", "job"]).expect(64);
    world.run(&["unlock", "--force", "--foreign", "job"]).expect(0);
    eventually("the key is gone", || world.held_on("job") == 0);
    assert_eq!(world.nodes.iter().map(Server::address).count(), 1);
    assert_eq!(world.held_on("redbolt:guard"), 0);
}
