//! The lock in use: processes that would lose updates without it.

use std::fs;
use std::time::Duration;

use crate::harness::World;

const PROCESSES: usize = 8;
const ROUNDS: usize = 50;
const LIMIT: Duration = Duration::from_secs(600);

#[test]
fn eight_shells_count_to_four_hundred() {
    let world = World::of(3);
    fs::write(world.path("c"), "0\n").unwrap();
    let loops: Vec<_> = (0..PROCESSES)
        .map(|_| {
            let mut shell = redbolt_test_servers::program("sh");
            let count = "n=$(cat c); sleep 0.001; echo $((n+1)) > c";
            let program = env!("CARGO_BIN_EXE_redbolt");
            let script = format!(
                "for i in $(seq {ROUNDS}); do '{program}' lock job -- sh -c '{count}' || exit 1; done"
            );
            shell.args(["-c", &script]);
            shell.env("REDBOLT_NODES", world.addresses()).current_dir(world.path(""));
            crate::harness::Running::start(shell)
        })
        .collect();
    for each in loops {
        each.end_within(LIMIT).expect(0);
    }
    assert_eq!(world.written("c"), (PROCESSES * ROUNDS).to_string());
}
