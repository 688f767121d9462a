//! `--permits`: limits how many commands run at once, each with its own number.

use std::collections::BTreeSet;
use std::fs;

use crate::harness::{Running, World, eventually, shell_until};

/// Starts a command that holds one of `mail`'s permits until it is asked to end, and waits until it
/// runs.
fn hold(world: &World, permits: &str, name: &str) -> Running {
    let holds = shell_until("end");
    let line = format!("echo $REDBOLT_SLOT > {name}.new; mv {name}.new {name}; {holds}");
    let running = world.start(&["lock", "--permits", permits, "mail", "-c", &line]);
    eventually("the command runs", || world.path(name).exists());
    running
}

#[test]
fn at_most_so_many_commands_run_at_once_and_each_knows_its_number() {
    let world = World::of(3);
    let running = ["one", "two", "three"].map(|name| hold(&world, "3", name));
    let slots = ["one", "two", "three"].map(|name| fs::read_to_string(world.path(name)).unwrap());
    let slots: BTreeSet<&str> = slots.iter().map(|slot| slot.trim()).collect();
    assert!(slots.into_iter().eq(["0", "1", "2"]), "each has another");
    world.run(&["lock", "--try", "--permits", "3", "mail", "--", "true"]).expect(75);
    world
        .run(&["lock", "--try", "mail", "--", "true"])
        .expect(75)
        .expect_says("mail is held by 0: ");
    world.run(&["lock", "--try", "--shared", "mail", "--", "true"]).expect(75);
    let waits = world.start(&["lock", "--permits", "3", "mail", "--", "touch", "fourth"]);
    fs::write(world.path("end"), "").unwrap();
    for running in running {
        running.end().expect(0);
    }
    waits.end().expect(0);
    assert!(world.path("fourth").exists());
    assert_eq!(world.held_on("mail"), 0);
}

#[test]
fn a_command_without_a_permit_inherits_no_number() {
    let world = World::of(1);
    let told = world.run(&["lock", "mail", "-c", "echo \"[$REDBOLT_SLOT]\""]).expect(0).stdout;
    assert_eq!(told, "[]\n");
}

#[test]
fn status_tells_who_has_which_permit_and_unlock_breaks_them() {
    let world = World::of(3);
    let options = ["--permits", "4", "--fencing", "--ttl", "25s"];
    let told = world.acquire_on_all("one", &options, "mail").stdout;
    let (slot, token) = told.trim_end().split_once('\n').expect("two lines");
    assert!(slot.parse::<u16>().unwrap() < 4 && token.parse::<u64>().unwrap() > 0, "{told}");
    let status = world.told_by_all(&["status", "mail"], 0).stdout;
    assert!(status.contains(&format!("mail: 1 permits held, {slot}: ")), "{status}");
    let json = world.told_by_all(&["status", "--json", "mail"], 0).stdout;
    let seen: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&seen["verdict"], &seen["permits"]["count"]), (&"permits".into(), &1.into()));
    assert_eq!(seen["permits"]["first"][0]["slot"].to_string(), slot, "{json}");
    assert_eq!(seen["nodes"][0]["state"], "permits", "{json}");
    world.run(&["extend", "--token-file", "one", "--ttl", "20s"]).expect(0);
    world.run(&["unlock", "mail"]).expect(64).expect_says("nothing was done");
    let broken = world.run(&["unlock", "--force", "mail"]).expect(0).stdout;
    assert!(broken.contains("mail: broke the permits of "), "{broken}");
    world.run(&["extend", "--token-file", "one"]).expect(70);
    world.run(&["lock", "--try", "mail", "--", "true"]).expect(0);
}

#[test]
fn a_number_of_permits_that_cannot_be_is_refused() {
    let world = World::of(1);
    for wrong in ["0", "1025", "many"] {
        world.run(&["lock", "--permits", wrong, "mail", "--", "true"]).expect(64);
    }
    world.run(&["lock", "--permits", "2", "--shared", "mail", "--", "true"]).expect(64);
}
