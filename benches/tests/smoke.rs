//! Each part runs with few contenders and hands over its tables. What is in them is hardly looked at: a machine
//! that runs tests is not one to measure on.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::Command;

use serde_json::Value;

/// What a run has left: its tables, its figures, and the names of its charts.
struct Results {
    text: String,
    json: Value,
    charts: Vec<String>,
}

fn bench(arguments: &str) -> Results {
    let home = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(arguments.split_whitespace())
        .args(["--quick", "--out"])
        .arg(home.path())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let charts = std::fs::read_dir(home.path().join("charts")).unwrap();
    Results {
        text: String::from_utf8(output.stdout).unwrap(),
        json: serde_json::from_slice(&std::fs::read(home.path().join("results.json")).unwrap())
            .unwrap(),
        charts: charts.map(|chart| chart.unwrap().file_name().into_string().unwrap()).collect(),
    }
}

impl Results {
    /// The cells of the rows that begin with this name.
    fn rows(&self, name: &str) -> Vec<Vec<&str>> {
        let cells = |line| str::split(line, '|').map(str::trim).collect::<Vec<_>>();
        let rows = self.text.lines().map(cells);
        rows.filter(|cells: &Vec<&str>| cells.get(1) == Some(&name)).collect()
    }

    fn runs(&self, part: &str) -> usize {
        self.json["parts"][part]["runs"].as_array().map_or(0, Vec::len)
    }
}

#[test]
fn handoff_has_a_table_for_each_way_to_let_go() {
    let results = bench("handoff --placement unpinned --contender lead --contender redlock");
    for name in ["raw, quorum", "redbolt, lead", "redlock"] {
        let rows = results.rows(name);
        assert_eq!(rows.len(), 2, "{}", results.text);
        assert!(rows.iter().all(|row| row[2] != "0" && row[3] != "0.0"), "{}", results.text);
    }
    assert_eq!(results.runs("handoff"), 2);
    assert_eq!(results.charts, ["handoff-n3-unpinned.svg"]);
}

#[test]
fn crowd_has_a_row_for_each_waiter_and_finds_no_intruder() {
    let results = bench("crowd --contender lead");
    let rows = results.rows("redbolt, lead");
    assert_eq!(rows.len(), 1, "{}", results.text);
    assert_eq!(rows[0][13..=14], ["64 of 64", "0"], "{}", results.text);
    assert_eq!(results.runs("crowd"), 1);
}

#[test]
fn inflight_has_a_row_for_each_client() {
    let results = bench("inflight --placement unpinned --contender driver --contender rustis");
    // Of two numbers of locks in flight all figures, and in the table of all numbers one.
    for name in ["raw epoll", "redbolt driver", "rustis"] {
        let rows = results.rows(name);
        assert_eq!(rows.len(), 3, "{}", results.text);
        assert!(rows.iter().all(|row| !row.contains(&"-")), "{}", results.text);
    }
    assert_eq!(results.charts, ["inflight-cpu-n3-unpinned.svg"]);
}

#[test]
fn dead_has_a_table_for_each_way_to_die_and_redbolt_goes_on() {
    let results = bench("dead --placement unpinned --contender client");
    let rows = results.rows("redbolt client");
    assert_eq!(rows.len(), 2, "{}", results.text);
    assert!(rows.iter().all(|row| row[8].starts_with("0 of ")), "{}", results.text);
    assert_eq!(results.charts, ["dead-n3-unpinned.svg"]);
}
