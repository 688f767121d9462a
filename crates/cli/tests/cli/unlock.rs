//! `unlock`: an operator breaks a lock.

use std::fs;

use redbolt_proving::{Reply, Server};

use crate::harness::{World, eventually};

#[test]
fn without_force_it_shows_whose_lock_it_is_and_does_nothing() {
    let world = World::of(3);
    let holder = world.start(&["lock", "job", "-c", "echo $PPID > redbolt; exec sleep 600"]);
    world.process("redbolt");
    let ran = world.run(&["unlock", "job"]).expect(64).expect_says("--force");
    let label = format!(":{} #", holder.pid());
    assert_eq!(ran.stdout.matches(&label).count(), 4, "each node, and all: {ran:?}");
    assert_eq!(world.held_on("job"), 3);
    let free = world.run(&["unlock", "other"]).expect(64).stdout;
    assert!(free.ends_with("other: free\n"), "{free}");
}

#[test]
fn with_force_it_says_whose_lock_it_broke_and_the_holder_stops() {
    let world = World::of(3);
    let words = ["lock", "--ttl", "1s", "job", "-c", "echo $PPID > redbolt; exec sleep 600"];
    let holder = world.start(&words);
    world.process("redbolt");
    let shown = world.run(&["unlock", "job"]).stdout;
    let hash = shown.trim_end().rsplit('#').next().unwrap().to_owned();
    assert_eq!(hash.len(), 8, "{shown}");
    let Reply::Bulk(token) = world.nodes[0].cmd("GET job") else { panic!("no key") };

    let ran = world.run(&["unlock", "--force", "job"]).expect(0);
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

    let again = world.run(&["unlock", "--force", "job"]).expect(0).stdout;
    assert!(again.ends_with("job: nothing was there\n"), "{again}");
    assert_eq!(again.matches(": nothing was there\n").count(), 4, "{again}");
    world.run(&["lock", "-n", "job", "--", "true"]).expect(0);
}

#[test]
fn what_others_have_locked_is_broken_too_and_has_a_hash() {
    let world = World::of(3);
    world.take("job");
    let ran = world.run(&["unlock", "--force", "job"]).expect(0).stdout;
    assert_eq!(ran.matches("broke the lock of unlabelled #").count(), 4, "{ran}");
    assert_eq!(ran.matches(", without end\n").count(), 3, "{ran}");
    assert!(!ran.contains("somebody else"), "{ran}");
    assert_eq!(world.held_on("job"), 0);
}

/// The lock is broken all the same.
#[test]
fn a_report_that_nobody_reads_changes_no_status() {
    let world = World::of(3);
    world.take("job");
    for (words, status) in [(&["unlock", "job"][..], 64), (&["unlock", "--force", "job"], 0)] {
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
    let two = world.run(&["unlock", "--force", "job"]).expect(0).stdout;
    assert!(two.contains("connection refused") && two.ends_with("on 2 of 3 nodes\n"), "{two}");
    world.take_on(1, "job");
    world.nodes[2].pause();
    let ran = world.run(&["unlock", "--force", "job"]).expect(69);
    let ran = ran.expect_says("gone on 1 of 3 nodes only, 2 needed");
    assert!(ran.stdout.contains("broke what was there on 1 of 3 nodes"), "{ran:?}");
    world.nodes[2].resume();
}

#[test]
fn what_is_no_lock_is_left_alone() {
    let world = World::of(1);
    for key in ["redbolt:guard", "redbolt:fence:job"] {
        world.run(&["unlock", "--force", key]).expect(64);
    }
    assert_eq!(world.held_on("redbolt:guard"), 1);
    world.nodes[0].cmd("RPUSH list 1 2");
    let ran = world.run(&["unlock", "--force", "list"]).expect(69);
    assert!(ran.stdout.contains("the key holds other data"), "{ran:?}");
    assert_eq!(world.nodes[0].cmd("LLEN list"), Reply::Int(2));
}

#[test]
fn a_script_s_lock_is_broken_and_the_script_learns_of_it() {
    let world = World::of(3);
    world.run(&["acquire", "--token-file", "file", "job"]).expect(0);
    world.run(&["unlock", "--force", "job"]).expect(0);
    world.run(&["extend", "--token-file", "file"]).expect(70);
    world.run(&["release", "--token-file", "file"]).expect(70);
}

/// Nodes that nobody has set up get no guard from a look or a break.
#[test]
fn no_guard_is_written() {
    let world = World::fresh(1);
    world.take("job");
    world.run(&["unlock", "job"]).expect(64);
    world.run(&["unlock", "--force", "job"]).expect(0);
    eventually("it is gone", || world.held_on("job") == 0);
    assert_eq!(world.nodes.iter().map(Server::address).count(), 1);
    assert_eq!(world.held_on("redbolt:guard"), 0);
}
