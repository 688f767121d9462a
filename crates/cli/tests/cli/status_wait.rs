//! `redbolt status --wait`: waits until nodes vote, and starts the quarantine of restarted nodes.

use std::fs;
use std::thread;

use redbolt_test_servers::Server;
use serde_json::Value;

use crate::harness::{World, eventually, redbolt, run};
use crate::manual;

fn voters(text: &str) -> usize {
    text.lines().filter(|line| line.split_whitespace().nth(1) == Some("votes")).count()
}

#[test]
fn a_restarted_node_votes_again_although_no_client_takes_a_lock() {
    let mut world = World::with_max_ttl(3, "3s");
    world.nodes[0].restart();
    let ran = world.run(&["status", "--wait", "all"]).expect(0);
    assert_eq!(voters(&ran.stdout), 3, "{ran:?}");
    assert!(ran.stderr.contains(": quarantined ") || ran.stderr.is_empty(), "{ran:?}");
    assert_eq!(voters(&world.told_by_all(&["status"], 0).stdout), 3);
}

#[test]
fn a_wait_for_a_quorum_does_not_wait_for_a_node_that_is_down() {
    let mut world = World::with_max_ttl(3, "600s");
    world.nodes[0].kill();
    let ran = world.run(&["status", "--wait", "quorum"]).expect(0);
    assert_eq!(voters(&ran.stdout), 2, "{ran:?}");
    let ran = world.run(&["status", "--wait", "all", "300ms"]).expect(69);
    let ran = ran.expect_says("2 of 3 nodes vote after 300 ms, 3 must");
    assert!(ran.stdout.contains("connection refused") && voters(&ran.stdout) == 2, "{ran:?}");
}

#[test]
fn a_wait_names_the_nodes_that_it_waits_for_once() {
    let mut world = World::with_max_ttl(3, "4s");
    world.nodes[1].kill();
    let waits = world.start(&["status", "--wait", "all", "--json"]);
    let node = format!("waiting for node 2 {}: ", world.nodes[1].address());
    eventually("the waiter names the node", || {
        waits.said().contains(&format!("{node}connection refused"))
    });
    world.nodes[1].restart();
    let ran = waits.end().expect(0);
    assert_eq!(ran.stderr.matches(&format!("{node}quarantined ")).count(), 1, "{ran:?}");
    assert_eq!(ran.stderr.lines().count(), 2, "{ran:?}");
    let json: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(json["voting"], 3);
}

#[test]
fn a_wait_that_only_an_operator_can_end_ends_with_69() {
    let world = World::of(1);
    world.nodes[0].cmd("CONFIG SET requirepass hunter2");
    let mut command = redbolt(&["status", "--wait", "quorum", "--connect-timeout", "500ms"]);
    command.env("REDBOLT_NODES", format!("redis://:hunter3@{}", world.nodes[0].address()));
    let ran = run(command).expect(69);
    assert!(!format!("{ran:?}").contains("hunter"), "{ran:?}");
}

#[test]
fn a_wait_for_nothing_that_can_be_waited_for_is_wrong_usage() {
    let world = World::of(1);
    for words in [
        &["status", "--wait"][..],
        &["status", "--wait", "most"],
        &["status", "--wait", "3s"],
        &["status", "--wait", "all", "quorum"],
        &["status", "--wait", "all", "3"],
        &["status", "--wait", "all", "3s", "job"],
        &["status", "job", "--wait", "all"],
    ] {
        world.run(words).expect(64);
    }
    world.run(&["status", "--wait", "all", "30s"]).expect(0);
}

/// Between the restarts all locks continue, because the other nodes vote.
#[test]
fn the_recipe_of_a_rolling_restart_restarts_each_node_while_all_others_vote() {
    let mut world = World::with_max_ttl(3, "3s");
    let recipe = manual::block("docs/use/operations.md", "sh", "systemctl restart");
    manual::provide_programs(&world);
    let ssh = "touch restart.$1; while [ -e restart.$1 ] && [ -d \"$PWD\" ]; do sleep 0.02; done";
    manual::executable(&world.path("bin/ssh"), ssh);
    let command = manual::shell_command(&world, "-u", &manual::at_home(&world, &recipe));
    let recipe = thread::spawn(move || run(command));
    let mut restarted = Vec::new();
    while !recipe.is_finished() {
        let asked = |node: &Server| world.path(&format!("restart.{}", node.address())).exists();
        let Some(at) = world.nodes.iter().position(asked) else {
            thread::yield_now();
            continue;
        };
        let before = world.told_by_all(&["status"], 0).stdout;
        assert_eq!(voters(&before), 3, "before restart {}: {before}", restarted.len() + 1);
        world.nodes[at].restart();
        world.run(&["lock", "--ttl", "3s", "--wait", "30s", "job", "true"]).expect(0);
        let address = world.nodes[at].address();
        fs::remove_file(world.path(&format!("restart.{address}"))).unwrap();
        restarted.push(at);
    }
    recipe.join().unwrap().expect(0);
    assert_eq!(restarted, [0, 1, 2]);
    assert_eq!(voters(&world.told_by_all(&["status"], 0).stdout), 3);
}
