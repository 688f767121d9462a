//! `--shared`: commands that run beside each other, and never beside one that has the lock alone.

use std::fs;

use crate::harness::{World, eventually};

/// Starts a command that shares `data` until it is told to end, and waits until it runs.
fn share(world: &World, name: &str) -> crate::harness::Running {
    let line = format!("touch {name}; until [ -e end ]; do sleep 0.02; done");
    let running = world.start(&["lock", "--shared", "--fencing", "data", "-c", &line]);
    eventually("the command runs", || world.path(name).exists());
    running
}

#[test]
fn commands_that_share_run_together_and_keep_out_one_that_does_not() {
    let world = World::of(3);
    let (one, two) = (share(&world, "one"), share(&world, "two"));
    let status = world.run(&["status", "data"]).expect(0).stdout;
    assert!(status.contains("data: shared by ") && status.contains(" on 3 of 3 nodes"), "{status}");
    world.run(&["lock", "--try", "data", "--", "true"]).expect(75).expect_says("data is held by ");
    world.run(&["lock", "--try", "--shared", "data", "--", "true"]).expect(0);
    let alone = world.start(&["lock", "data", "--", "touch", "alone"]);
    fs::write(world.path("end"), "").unwrap();
    one.end().expect(0);
    two.end().expect(0);
    alone.end().expect(0);
    assert!(world.path("alone").exists());
    assert_eq!(world.held_on("data"), 0);
}

#[test]
fn status_as_json_names_those_who_share() {
    let world = World::of(3);
    let one = share(&world, "one");
    let json = world.run(&["status", "--json", "data"]).expect(0).stdout;
    let seen: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(seen["verdict"], "shared", "{json}");
    assert_eq!(seen["sharers"]["count"], 1, "{json}");
    assert!(seen["sharers"]["first"][0]["holder"].is_string(), "{json}");
    assert_eq!(seen["nodes"][0]["state"], "shared", "{json}");
    fs::write(world.path("end"), "").unwrap();
    one.end().expect(0);
}

#[test]
fn a_shared_lock_is_left_to_a_script_and_broken_by_an_operator() {
    let world = World::of(3);
    for file in ["one", "two"] {
        world.run(&["acquire", "--shared", "--token-file", file, "data"]).expect(0);
    }
    world.run(&["extend", "--token-file", "one", "--ttl", "20s"]).expect(0);
    world.run(&["release", "--token-file", "one"]).expect(0);
    assert_eq!(world.held_on("data"), 3, "the other one shares it still");
    world.run(&["unlock", "data"]).expect(64).expect_says("nothing was done");
    let broken = world.run(&["unlock", "--force", "data"]).expect(0).stdout;
    assert!(broken.contains("broke the lock that was shared by "), "{broken}");
    assert_eq!(world.held_on("data"), 0);
    world.run(&["extend", "--token-file", "two"]).expect(70);
}
