//! `--shared`: readers run at the same time, and never together with a writer.

use std::fs;
use std::time::Duration;

use redbolt::{Client, Config, LockRequest, Wait};
use serde_json::Value;

use crate::harness::{World, eventually, shell_until};

/// Starts a command that shares `data` until it is told to end, and waits until it runs.
fn share(world: &World, name: &str) -> crate::harness::Running {
    let line = format!("touch {name}; {}", shell_until("end"));
    let running = world.start(&["lock", "--shared", "--fencing", "data", "-c", &line]);
    eventually("the command runs", || world.path(name).exists());
    running
}

#[test]
fn commands_that_share_run_together_and_keep_out_one_that_does_not() {
    let world = World::of(3);
    let (one, two) = (share(&world, "one"), share(&world, "two"));
    world.until_on_all("data");
    let status = world.told_by_all(&["status", "data"], 0).stdout;
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
    world.until_on_all("data");
    let json = world.told_by_all(&["status", "--json", "data"], 0).stdout;
    let seen: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(seen["verdict"], "shared", "{json}");
    assert_eq!(seen["sharers"]["count"], 1, "{json}");
    assert!(seen["sharers"]["first"][0]["holder"].is_string(), "{json}");
    assert_eq!(seen["nodes"][0]["state"], "shared", "{json}");
    fs::write(world.path("end"), "").unwrap();
    one.end().expect(0);
}

/// A writer that was a reader still has its share, and is shown as the writer.
#[test]
fn status_as_json_shows_a_reader_that_has_become_a_writer() {
    let world = World::of(3);
    let addresses = world.addresses();
    let builder = Config::builder().label("rebuilds");
    let client = Client::new(builder.nodes(addresses.split(',')).build().unwrap()).unwrap();
    let request = || LockRequest::new("data").ttl(Duration::from_secs(20));
    let mut lock =
        client.acquire(request().shared().wait(Wait::UpTo(Duration::from_secs(15)))).unwrap();
    let seen = || -> Value {
        let json = world.told_by_all(&["status", "--json", "data"], 0).stdout;
        serde_json::from_str(&json).unwrap()
    };
    let is_everywhere = |state: &str| {
        let seen = seen();
        seen["nodes"].as_array().unwrap().iter().all(|node| node["state"] == state)
    };
    eventually("all nodes know it", || is_everywhere("shared"));
    eventually("it writes", || lock.try_upgrade() == Ok(true));
    eventually("all nodes know that", || is_everywhere("held"));
    let now = seen();
    assert_eq!((&now["verdict"], &now["holder"]), (&"held".into(), &"rebuilds".into()), "{now}");
    assert!(now["sharers"].is_null() && now["nodes"][0]["holder"] == "rebuilds", "{now}");
    world.run(&["lock", "--try", "--shared", "data", "--", "true"]).expect(75);

    lock.downgrade().unwrap();
    eventually("it reads", || seen()["verdict"] == "shared");
    world.run(&["lock", "--try", "--shared", "data", "--", "true"]).expect(0);
    assert!(lock.release().is_ok());
}

#[test]
fn a_shared_lock_is_left_to_a_script_and_broken_by_an_operator() {
    let world = World::of(3);
    for file in ["one", "two"] {
        world.acquire_on_all(file, &["--shared", "--ttl", "25s"], "data");
    }
    world.run(&["extend", "--token-file", "one", "--ttl", "20s"]).expect(0);
    world.run(&["release", "--token-file", "one"]).expect(0);
    assert_eq!(world.held_on("data"), 3, "the other one shares it still");
    world.run(&["unlock", "data"]).expect(64).expect_says("nothing was done");
    let force = ["unlock", "--force", "data"];
    let broken = world.run(&force).expect(0).stdout;
    assert!(broken.contains("broke the lock that was shared by "), "{broken}");
    world.told_by_all(&force, 0);
    assert_eq!(world.held_on("data"), 0);
    world.run(&["extend", "--token-file", "two"]).expect(70);
}
