//! `--profile` and `--prefix`: locks in the formats of other libraries, on the command line.

use std::fs;

use redbolt_test_servers::Reply;

use crate::harness::{World, eventually, shell_until};

#[test]
fn a_command_runs_under_a_lock_of_another_format() {
    let world = World::of(3);
    let line = format!("touch on; {}", shell_until("end"));
    let running = world.start(&["lock", "--profile", "redisson", "data", "-c", &line]);
    eventually("the command runs", || world.path("on").exists());
    world.run(&["lock", "--try", "data", "--", "true"]).expect(75).expect_says("data is held by ");
    world.run(&["lock", "--try", "--profile", "redisson", "data", "--", "true"]).expect(75);
    world.until_on_all("data");
    let seen = world.told_by_all(&["status", "data"], 0).stdout;
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

/// A profile whose names have the registry's key in front.
#[test]
fn a_command_runs_under_a_lock_of_a_spring_registry() {
    runs_with_prefix_only(&World::of(1), "spring", "shop:");
}

/// A profile whose keys begin with `lock:`.
#[test]
fn a_command_runs_under_a_lock_of_python_redis_lock() {
    let world = World::of(1);
    runs_with_prefix_only(&world, "python-redis-lock", "lock:");
    world.nodes[0].cmd("SET lock:data MDEyMzQ1Njc4OWFiY2RlZmdo PX 600000");
    let seen = world.run(&["status", "--prefix", "lock:", "data"]).expect(0).stdout;
    assert!(seen.contains("(as of python-redis-lock)"), "{seen}");
    assert!(seen.contains("use --profile python-redis-lock"), "{seen}");
}

fn runs_with_prefix_only(world: &World, profile: &str, prefix: &str) {
    let tries = ["lock", "--try", "--profile", profile];
    let line = "echo $REDBOLT_KEY";
    let told = world.run(&[&tries[..], &["--prefix", prefix, "data", "-c", line]].concat());
    let name = format!("{prefix}data");
    assert_eq!(told.expect(0).stdout, format!("{name}\n"));
    assert_eq!(world.held_on(&name), 0);
    let refused = world.run(&[&tries[..], &["data", "--", "true"]].concat());
    refused.expect(64).expect_says(&format!("the profile {profile} cannot have this name"));
}

#[test]
fn readers_run_beside_each_other_and_beside_no_writer_of_redisson_s_format() {
    let world = World::of(3);
    let line = format!("touch on; {}", shell_until("end"));
    let rw = ["--profile", "redisson-rw"];
    let reads = [&["lock"], &rw[..], &["--shared", "data", "-c", &line]].concat();
    let running = world.start(&reads);
    eventually("the command runs", || world.path("on").exists());
    let tries = |rest: &[&'static str]| world.run(&[&["lock", "--try"], &rw[..], rest].concat());
    tries(&["--shared", "data", "--", "true"]).expect(0);
    tries(&["data", "--", "true"]).expect(75);
    let seen = world.told_by_all(&["status", "data"], 0).stdout;
    assert!(seen.contains("data: shared by "), "{seen}");
    fs::write(world.path("end"), "").unwrap();
    running.end().expect(0);
    tries(&["data", "--", "true"]).expect(0);
    assert_eq!(world.held_on("data"), 0);
}

#[test]
fn a_command_runs_under_a_lock_of_symfony_s_format() {
    let world = World::of(3);
    let line = format!("touch on; {}", shell_until("end"));
    let symfony = ["--profile", "symfony"];
    let running =
        world.start(&[&["lock"], &symfony[..], &["--shared", "data", "-c", &line]].concat());
    eventually("the command runs", || world.path("on").exists());
    let tries =
        |rest: &[&'static str]| world.run(&[&["lock", "--try"], &symfony[..], rest].concat());
    tries(&["--shared", "data", "--", "true"]).expect(0);
    tries(&["data", "--", "true"]).expect(75);
    let seen = world.told_by_all(&["status", "data"], 0).stdout;
    assert!(seen.contains("data: shared by "), "{seen}");
    fs::write(world.path("end"), "").unwrap();
    running.end().expect(0);
    tries(&["data", "--", "true"]).expect(0);
    assert_eq!(world.held_on("data"), 0);
}

/// A member's lock has no TTL, and has expired.
#[test]
fn a_command_takes_over_a_lock_whose_time_is_over() {
    let world = World::of(1);
    world.nodes[0].cmd("SET data 1100000000");
    let seen = world.run(&["status", "data"]).expect(0).stdout;
    let told = "data: held by SETNX or redis-objects until second 1100000000, 0 us left, on 1 of 1";
    assert!(seen.contains(told) && seen.contains("use --profile redis-objects or setnx"), "{seen}");
    world.nodes[0].cmd("HSET other mode read 1f0c2d3e-0011-2233-4455-66778899aabb:42 1");
    let seen = world.run(&["status", "other"]).expect(0).stdout;
    assert!(seen.contains("held by 1 reader of Redisson"), "{seen}");
    assert!(seen.contains("use --profile redisson-rw"), "{seen}");
    world.run(&["lock", "--try", "data", "--", "true"]).expect(75);
    world.run(&["lock", "--try", "--profile", "setnx", "data", "--", "true"]).expect(0);
    assert_eq!(world.held_on("data"), 0);
    let acquire = ["acquire", "--profile", "redis-objects", "--ttl", "20s", "--token-file", "held"];
    world.run(&[&acquire[..], &["data"]].concat()).expect(0);
    let seen = world.run(&["status", "data"]).expect(0).stdout;
    assert!(seen.contains("data: held by "), "{seen}");
    world.run(&["release", "--token-file", "held"]).expect(0);
}

const UNLOCK_REDISSON: &str = "it may be: redbolt unlock --force --profile redisson data\n";

/// Data in another form is named, and not changed.
#[test]
fn status_and_unlock_go_by_the_profile_that_they_are_given() {
    let world = World::of(1);
    world.nodes[0].cmd("HSET data 1f0c2d3e-0011-2233-4455-66778899aabb:42 2");
    let status = |profile| world.run(&["status", "--profile", profile, "data"]).expect(0).stdout;
    let held = "data: held by Redisson 1f0c…:42, 2 holds, without end, on 1 of 1 nodes";
    assert!(status("redisson").ends_with(&format!("{held}\n")), "{}", status("redisson"));
    let other = format!("{held}; no lock of the profile spring, use --profile redisson\n");
    assert!(status("spring").ends_with(&other), "{}", status("spring"));
    world.run(&["unlock", "data"]).expect(64).expect_says(UNLOCK_REDISSON);
    let unlock = |profile| world.run(&["unlock", "--force", "--profile", profile, "data"]);
    unlock("spring").expect(64).expect_says(UNLOCK_REDISSON);
    assert_eq!(world.held_on("data"), 1);
    unlock("redisson").expect(0);
    assert_eq!(world.held_on("data"), 0);
    world.nodes[0].cmd("ZADD data 99999999999999 bm90IGEgc2VjcmV0IGF0IGFsbCwgb25seSAzMiBieXQ=");
    let json = world.run(&["status", "--json", "data"]).expect(0).stdout;
    for part in ["\"profile\":\"symfony\"", "\"library\":\"Symfony\"", "\"mode\":\"read\""] {
        assert!(json.contains(part), "{part}: {json}");
    }
}

/// ShedLock keeps its lock for a while after the work.
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

/// A member of the recipe writes its time before it sees that it has lost. No waiter must wait for
/// that time.
#[test]
fn a_release_of_a_lock_that_a_losing_member_overwrote_leaves_nothing() {
    let world = World::of(1);
    let (node, token_file) = (&world.nodes[0], ["--token-file", "held"]);
    for profile in ["setnx", "redis-objects"] {
        let acquire =
            [&["acquire", "--profile", profile, "--ttl", "25s"], &token_file[..], &["job"]];
        world.run(&acquire.concat()).expect(0);
        node.cmd("GETSET job 4100000000");
        world.run(&[&["release"], &token_file[..]].concat()).expect(0);
        eventually("nothing is left", || world.held_on("job") == 0);
        // An extension must write the member's own value.
        world.run(&acquire.concat()).expect(0);
        node.cmd("GETSET job 4100000000");
        world.run(&[&["extend"], &token_file[..]].concat()).expect(70);
        assert_eq!(node.cmd("GET job"), Reply::Bulk(b"4100000000".to_vec()));
        world.delete("job");
        world.run(&[&["release"], &token_file[..]].concat()).expect(70);
    }
}
