//! Each program runs with tiny counts and prints its tables. What is in them is not looked at: a machine
//! that runs tests is not one to measure on.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::Command;

use serde_json::Value;

fn run(program: &str, arguments: &str) -> String {
    let output = Command::new(program).args(arguments.split_whitespace()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// The cells of the rows that begin with this name.
fn rows<'t>(table: &'t str, name: &str) -> Vec<Vec<&'t str>> {
    let cells = |line: &'t str| line.split('|').map(str::trim).collect::<Vec<_>>();
    table.lines().map(cells).filter(|cells| cells.get(1) == Some(&name)).collect()
}

#[test]
fn handoff_prints_a_table_for_each_way_to_let_go() {
    let counts = "--rounds 1 --block 2 --slow-block 1 --nodes 3 --placement unpinned";
    let text = run(env!("CARGO_BIN_EXE_handoff"), counts);
    // Not on a key that expires, of which nobody would tell it.
    assert_eq!(rows(&text, "raw, quorum").len(), 3, "{text}");
    assert_eq!(rows(&text, "raw, first").len(), 1, "{text}");
    for name in ["redbolt, lead", "redbolt, quorum", "redbolt engine", "rslock", "redlock"] {
        let rows = rows(&text, name);
        assert_eq!(rows.len(), 4, "{text}");
        assert!(rows.iter().all(|row| row[2] != "0" && row[3] != "0.0"), "{text}");
    }
}

#[test]
fn crowd_prints_a_row_for_each_group_and_finds_no_intruder() {
    let counts =
        "--contender lead --nodes 1 --nodes 3 --processes 3 --times 3 --section 1 --rounds 1";
    let text = run(env!("CARGO_BIN_EXE_crowd"), counts);
    let rows = rows(&text, "redbolt, lead");
    assert_eq!(rows.len(), 2, "{text}");
    assert!(rows.iter().all(|row| row[13..=15] == ["9 of 9", "0", ""]), "{text}");
}

#[test]
fn inflight_prints_a_row_for_each_client() {
    let counts = "--rounds 1 --block 100 --in-flight 8 --placement unpinned";
    let text = run(env!("CARGO_BIN_EXE_inflight"), counts);
    let clients = [
        "raw epoll",
        "raw, fresh tokens",
        "redbolt driver",
        "redbolt engine",
        "redbolt futures",
        "redis",
        "fred",
        "rslock",
    ];
    for name in clients {
        assert_eq!(rows(&text, name).len(), 1, "{text}");
    }
}

#[test]
fn json_can_be_read() {
    let quick = "--json --contender redbolt --rounds 1 --placement unpinned";
    for (program, counts) in [
        (env!("CARGO_BIN_EXE_handoff"), "--nodes 1 --block 1 --released-by own"),
        (env!("CARGO_BIN_EXE_crowd"), "--nodes 1 --processes 2 --times 1"),
        (env!("CARGO_BIN_EXE_inflight"), "--block 10"),
    ] {
        let value: Value =
            serde_json::from_str(&run(program, &format!("{quick} {counts}"))).unwrap();
        assert!(value["runs"].as_array().is_some_and(|runs| !runs.is_empty()), "{value}");
    }
}
