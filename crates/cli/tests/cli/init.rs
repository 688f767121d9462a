//! `redbolt init`: new nodes, and nodes that change to other limits.

use redbolt_test_servers::Reply;

use crate::harness::World;

fn guards(world: &World) -> Vec<Reply> {
    world.nodes.iter().map(|node| node.cmd("GET redbolt:guard")).collect()
}

#[test]
fn new_nodes_vote_at_once() {
    let world = World::fresh(3);
    let said = world.run(&["init"]).expect(0).stdout;
    assert_eq!(said.matches("remembers every lock").count(), 3, "{said}");
    let last = said.lines().last();
    assert_eq!(last, Some("3 nodes set up for a max_ttl of 30.0 s; locks can be taken"));
    let ran = world.run(&["lock", "--try", "job", "--", "true"]).expect(0);
    assert_eq!(ran.stderr, "");
}

#[test]
fn init_works_only_once() {
    let world = World::of(3);
    let before = guards(&world);
    let again = world.run(&["init"]).expect(73).expect_says("already set up");
    again.expect_says("remembers every lock").expect_says("nothing was written");
    assert_eq!(guards(&world), before);
    // A node that was flushed since is not new either, though it looks new.
    world.nodes[0].cmd("FLUSHALL");
    world.run(&["init"]).expect(64).expect_says("not new");
    assert_eq!(guards(&world)[0], Reply::Nil);
    assert_eq!(guards(&world)[1..], before[1..]);
}

/// A script that repeats `init` must be able to tell a mistake from a set that is ready.
#[test]
fn init_with_other_options_is_not_already_set_up() {
    let world = World::of(3);
    let before = guards(&world);
    world.run(&["init", "--max-ttl", "12s"]).expect(64).expect_says("init --change --max-ttl 12s");
    let two = world.addresses().rsplit_once(',').unwrap().0.to_owned();
    let mut fewer = world.redbolt(&["init"]);
    fewer.env("REDBOLT_NODES", two);
    crate::harness::run(fewer).expect(64).expect_says("set up for 3 nodes");
    assert_eq!(guards(&world), before);
}

#[test]
fn all_nodes_must_answer_or_nothing_is_written() {
    let mut world = World::fresh(3);
    world.nodes[2].kill();
    let ran = world.run(&["init"]).expect(69).expect_says("nothing was written");
    let dead = format!("node 3 {}: connection refused", world.nodes[2].address());
    ran.expect_says(&dead);
    world.nodes[2].restart();
    assert_eq!(guards(&world), [Reply::Nil, Reply::Nil, Reply::Nil]);
    world.init();
}

#[test]
fn init_leaves_a_foreign_key_alone() {
    let world = World::fresh(1);
    world.nodes[0].cmd("SET redbolt:guard precious");
    world.run(&["init"]).expect(64).expect_says("--restart-guard-key");
    world.run(&["lock", "-n", "job", "--", "true"]).expect(69).expect_says("guard was altered");
    assert_eq!(guards(&world), [Reply::Bulk(b"precious".to_vec())]);
    world.run(&["init", "--restart-guard-key", "ours"]).expect(0);
    world.run(&["lock", "-n", "--restart-guard-key", "ours", "job", "--", "true"]).expect(0);
}

#[test]
fn a_set_moves_to_another_max_ttl() {
    let world = World::with_max_ttl(3, "6s");
    world.run(&["lock", "--ttl", "6s", "-n", "job", "--", "true"]).expect(0);
    let said = world.run(&["init", "--change", "--max-ttl", "12s"]).expect(0).stdout;
    assert_eq!(said.matches("quarantined ").count(), 3, "{said}");
    assert!(said.contains("max_ttl of 12.0 s; locks can be attached "), "{said}");
    // A client with the old limits gets no votes, and the reason.
    let old = world.run(&["lock", "--ttl", "6s", "job", "--", "touch", "ran"]).expect(69);
    let limits = "set up for 3 nodes and a max_ttl of 12s, this client for 3 and 6s";
    assert_eq!(old.stderr.matches(limits).count(), 3, "{old:?}");
    old.expect_says("the same --max-ttl");
    assert!(!world.path("ran").exists());
    let new = ["lock", "--max-ttl", "12s", "--ttl", "6s", "job", "--", "true"];
    let new = world.run(&new).expect(0).expect_says("for the quarantine to end");
    assert!(!new.stderr.contains("redbolt init"), "these nodes are not new: {new:?}");
    // Repeating it is harmless.
    let again = world.run(&["init", "--change", "--max-ttl", "12s"]).expect(0).stdout;
    assert_eq!(again.matches("remembers every lock").count(), 3, "{again}");
}

#[test]
fn a_change_leaves_everything_as_it_is_unless_all_nodes_answer() {
    let mut world = World::of(3);
    let before = guards(&world);
    world.nodes[0].kill();
    let ran = world.run(&["init", "--change", "--max-ttl", "20s"]).expect(69);
    ran.expect_says("nothing was written");
    world.nodes[0].restart();
    assert_eq!(guards(&world)[1..], before[1..]);
}

/// Other clients have read the old limits on their connections.
#[test]
fn a_change_that_may_not_close_connections_says_what_is_missing() {
    let world = World::with_max_ttl(1, "1s");
    world.nodes[0].cmd("ACL SETUSER limited on >pw ~* +@all -client|kill");
    let change = |who: &str| {
        let mut command = world.redbolt(&["init", "--change", "--max-ttl", "2s"]);
        command.env("REDBOLT_NODES", format!("redis://{who}{}", world.nodes[0].address()));
        crate::harness::run(command)
    };
    let refused = change("limited:pw@").expect(69).expect_says("NOPERM");
    refused.expect_says("run it again until it succeeds");
    change("").expect(0);
}

#[test]
fn a_password_is_not_repeated_in_the_hint() {
    let server = redbolt_test_servers::Server::with(&["--requirepass", "hunter2"]);
    let address = format!("redis://:hunter2@{}/1", server.address());
    let words = ["lock", "-n", "--node", &address, "--max-ttl", "20s", "job", "--", "true"];
    let ran = crate::harness::run(crate::harness::redbolt(&words)).expect(69);
    assert!(!ran.stderr.contains("hunter2"), "{ran:?}");
    assert!(ran.stderr.trim_end().ends_with("redbolt init --node ... --max-ttl 20s"), "{ran:?}");
}
