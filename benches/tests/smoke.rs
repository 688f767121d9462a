//! Each program runs with tiny counts and prints its tables. What is in them is not looked at: a machine
//! that runs tests is not one to measure on.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use redbolt_benches::contender;
use rustix::process::{Pid, Signal, kill_process};
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

#[test]
fn pair_prints_a_row_for_each_contender_and_writes_three_kinds_of_files() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().display();
    let options = format!("pair --quick --nodes 1 --placement unpinned --out {out}");
    let text = run(env!("CARGO_BIN_EXE_bench"), &options);
    for entry in contender::ALL.iter().filter(|entry| !entry.name.contains("spin")) {
        // In the table of all cells, and in that of the cell.
        let rows = rows(&text, entry.name).len();
        assert!(rows >= 2 || entry.name.contains("busy"), "{}: {text}", entry.name);
    }
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let (results, chart) = (read("RESULTS.md"), "charts/pair-latency-unpinned.svg");
    assert!(results.contains(chart) && results.contains("| raw epoll "), "{results}");
    assert!(read(chart).contains("redbolt driver"));
    let value: Value = serde_json::from_str(&read("results.json")).unwrap();
    assert_eq!(value["parts"]["pair"]["runs"][0]["nodes"], 1, "{value}");
}

#[test]
fn bad_options_are_refused_at_the_door_with_what_is_possible() {
    let bench = |options: &str| {
        let mut bench = Command::new(env!("CARGO_BIN_EXE_bench"));
        let output = bench.args(options.split_whitespace()).output().unwrap();
        assert!(!output.status.success(), "{options}");
        String::from_utf8(output.stderr).unwrap()
    };
    for (options, told) in [
        ("--contender redbold", "redbolt driver; "),
        ("pears", "possible values: pair, "),
        ("--placement nowhere", "one of one-core, split, unpinned"),
        ("--nodes 0", "0 is not in 1..=15"),
        ("--out /dev/null/x", "/dev/null/x"),
    ] {
        let errors = bench(options);
        assert!(errors.contains(told), "{errors}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn an_interrupted_run_leaves_no_node_behind() {
    let folder = tempfile::tempdir().unwrap();
    let mut bench = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(["pair", "--nodes", "3", "--placement", "unpinned", "--out"])
        .arg(folder.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = Pid::from_child(&bench);
    let nodes = wait_for(|| Some(nodes_of(pid)).filter(|nodes| nodes.len() == 3));
    // To the program alone: a terminal would tell all of its processes.
    kill_process(pid, Signal::INT).unwrap();
    assert!(!bench.wait().unwrap().success());
    wait_for(|| nodes.iter().all(|node| !is_node(node)).then_some(()));
}

/// The process ids of the servers that it has started.
fn nodes_of(pid: Pid) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).unwrap();
    let children =
        tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok());
    let children: String = children.collect();
    children.split_whitespace().filter(|pid| is_node(pid)).map(str::to_owned).collect()
}

fn is_node(pid: &str) -> bool {
    // Empty for one that is dead and was not waited for.
    let name = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    name.contains("redis-server")
}

fn wait_for<T>(mut found: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < until, "it does not come");
        thread::sleep(Duration::from_millis(10));
    }
}
