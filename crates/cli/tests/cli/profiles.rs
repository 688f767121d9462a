//! `--profile` and `--prefix`: locks in the formats of other libraries, on the command line.

use std::fs;

use crate::harness::{World, eventually};

#[test]
fn a_command_runs_under_a_lock_of_another_format() {
    let world = World::of(3);
    let line = "touch on; until [ -e end ]; do sleep 0.02; done";
    let running = world.start(&["lock", "--profile", "redisson", "data", "-c", line]);
    eventually("the command runs", || world.path("on").exists());
    world.run(&["lock", "--try", "data", "--", "true"]).expect(75).expect_says("data is held by ");
    world.run(&["lock", "--try", "--profile", "redisson", "data", "--", "true"]).expect(75);
    let seen = world.run(&["status", "data"]).expect(0).stdout;
    assert!(seen.contains("data: held by ") && seen.contains(" on 3 of 3 nodes"), "{seen}");
    fs::write(world.path("end"), "").unwrap();
    running.end().expect(0);
    assert_eq!(world.held_on("data"), 0);
    let refused = world.run(&["lock", "--profile", "redisson", "--shared", "data", "--", "true"]);
    refused.expect(64).expect_says("the profile redisson cannot be shared");
}

#[test]
fn a_lock_of_another_format_is_kept_over_several_commands() {
    let world = World::of(3);
    let token_file = ["--token-file", "held"];
    let acquire = ["acquire", "--profile", "redisson", "--ttl", "20s"];
    world.run(&[&acquire[..], &token_file, &["data"]].concat()).expect(0);
    assert!(fs::read_to_string(world.path("held")).unwrap().contains("\nkind redisson\n"));
    world.run(&[&["extend"][..], &token_file].concat()).expect(0);
    world.run(&[&["release"][..], &token_file].concat()).expect(0);
    eventually("nothing is left", || world.held_on("data") == 0);
}

/// As ShedLock does, which keeps its lock for a while behind the work.
#[test]
fn a_prefix_stands_before_the_name_in_all_commands() {
    let world = World::of(1);
    let prefix = ["--prefix", "job-lock:default:"];
    let with = |command: &[&'static str], rest: &[&'static str]| {
        world.run(&[command, &prefix, rest].concat())
    };
    let told = with(&["lock", "--try", "--at-least", "20s"], &["data", "-c", "echo $REDBOLT_KEY"]);
    assert_eq!(told.expect(0).stdout, "job-lock:default:data\n");
    assert_eq!((world.held_on("data"), world.held_on("job-lock:default:data")), (0, 1));
    with(&["lock", "--try"], &["data", "--", "true"]).expect(75);
    let seen = with(&["status"], &["data"]).expect(0).stdout;
    assert!(seen.contains("job-lock:default:data: held by "), "{seen}");
    with(&["unlock", "--force"], &["data"]).expect(0);
    assert_eq!(world.held_on("job-lock:default:data"), 0);
}
