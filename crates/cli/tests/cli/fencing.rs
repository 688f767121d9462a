//! `--fencing`: a token that a paused holder cannot get again.

use redbolt_test_servers::{Reply, Server};

use crate::harness::World;

fn token(world: &World) -> u64 {
    let ran = world.run(&["lock", "--fencing", "job", "-c", "echo $REDBOLT_FENCING_TOKEN"]);
    ran.expect(0).stdout.trim().parse().unwrap()
}

#[test]
fn each_holder_has_a_larger_token_than_the_one_before() {
    let world = World::of(3);
    let tokens: Vec<_> = (0..5).map(|_| token(&world)).collect();
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
}

/// A counter ahead of all clocks is respected, whichever nodes form the quorum.
#[test]
fn a_counter_that_is_ahead_is_followed() {
    let world = World::of(3);
    let first = token(&world);
    let ahead = first + 3_600_000_000;
    let put = world.nodes[1].cmd(&format!("SET redbolt:fence:job {ahead}"));
    assert_eq!(put, Reply::Status("OK".to_owned()));
    // A majority without this node has not seen its counter, and need not.
    world.nodes[0].pause();
    let tokens = [token(&world), token(&world)];
    world.nodes[0].resume();
    assert!(ahead < tokens[0] && tokens[0] < tokens[1], "{tokens:?} after {ahead}");
    world.nodes[1].pause();
    let last = token(&world);
    world.nodes[1].resume();
    assert!(
        tokens[1] < last,
        "{last} after {tokens:?}: the token was written back to the other nodes"
    );
}

#[test]
fn without_fencing_the_command_has_no_token() {
    let world = World::of(1);
    let show = ["job", "-c", "echo token=$REDBOLT_FENCING_TOKEN"];
    let mut command = world.redbolt(&[&["lock"], &show[..]].concat());
    command.env("REDBOLT_FENCING_TOKEN", "7");
    assert_eq!(crate::harness::run(command).expect(0).stdout, "token=\n");
    let program = env!("CARGO_BIN_EXE_redbolt");
    let words = [&["lock", "--fencing", "outer", "--", program, "lock"], &show[..]].concat();
    assert_eq!(world.run(&words).expect(0).stdout, "token=\n");
}

#[test]
fn fencing_reports_what_it_needs() {
    let world = World::of(1);
    for options in [&["--restart-guard", "off"][..], &["--max-ttl", "10s"]] {
        let words = [&["lock", "--fencing"], options, &["job", "--", "touch", "ran"]].concat();
        let ran = world.run(&words).expect(64).expect_says("needs the restart guard");
        ran.expect_says("max_ttl of at least 11s");
    }
    assert!(!world.path("ran").exists());
}

/// A counter is lost with its node's memory, but the clocks pass its value before the node votes
/// again.
#[test]
fn the_nodes_clocks_overtake_a_counter_that_was_lost() {
    let mut world = World::with_max_ttl(3, "11s");
    let before = token(&world);
    world.nodes.iter_mut().for_each(Server::restart);
    let after = token(&world);
    assert!(before < after, "{before} {after}");
}
