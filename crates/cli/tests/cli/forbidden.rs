//! Nodes that forbid commands which locks need: every subcommand says so at once, and none leaves a
//! key there.

use redbolt_test_servers::{Reply, Server};

use crate::harness::{World, eventually};

/// Returns one node whose scripts are renamed away, and good nodes before it.
fn world(good: usize) -> World {
    let mut nodes = redbolt_test_servers::servers(good);
    nodes.push(Server::with(&["--rename-command", "EVAL", ""]));
    World::on(nodes)
}

const SAYS: &str = "scripts are forbidden (ERR unknown command 'EVAL')";

#[test]
fn a_refused_try_leaves_no_key_where_scripts_are_forbidden() {
    let world = world(0);
    for _ in 0..3 {
        let ran = world.run(&["lock", "--try", "job", "--", "true"]).expect(69).expect_says(SAYS);
        assert!(!ran.stderr.contains("quarantined") && !ran.stderr.contains("redbolt init"));
        assert_eq!(world.nodes[0].cmd("DBSIZE"), Reply::Int(0));
    }
}

#[test]
fn init_and_status_name_a_node_whose_scripts_are_forbidden() {
    let world = world(2);
    let ran = world.run(&["init"]).expect(69).expect_says(SAYS);
    ran.expect_says("nothing was written");
    // A node that answers late is not waited for.
    eventually("status names it", || world.run(&["status", "job"]).stdout.contains(SAYS));
    for node in &world.nodes {
        assert_eq!(node.cmd("DBSIZE"), Reply::Int(0), "neither enrolled nor quarantined");
    }
}

#[test]
fn in_a_set_of_three_a_lock_leaves_no_key_on_such_a_node() {
    let mut world = World::of(3);
    world.nodes[2].cmd("ACL SETUSER default -eval -evalsha");
    for _ in 0..3 {
        world.run(&["lock", "job", "--", "true"]).expect(0);
        assert_eq!(world.held_on("job"), 0);
    }
    let ran = world.run(&["init"]).expect(64).expect_says("scripts are forbidden");
    assert!(!ran.stderr.contains("at the latest"), "waiting does not help: {}", ran.stderr);
    world.nodes[0].kill();
    let ran = world.run(&["lock", "--try", "job", "--", "true"]).expect(69);
    ran.expect_says("scripts are forbidden");
}
