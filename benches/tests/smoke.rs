//! Each part runs with few contenders and returns its tables. The figures are hardly checked,
//! because a machine that runs tests is too busy to measure on.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use redbolt_benches::contender;
use redbolt_benches::waiting::{self, Kind};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// The output of a run: its tables, its figures, its page, and the names of its charts.
struct Results {
    text: String,
    markdown: String,
    page: String,
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
    let read = |name: &str| fs::read_to_string(home.path().join(name)).unwrap();
    let page = read("results/full-run.html");
    let drawn = page.split("<span class=\"chart\" id=\"").skip(1);
    let mut charts: Vec<_> = drawn
        .map(|chart| {
            let (name, drawing) = chart.split_once("\">").unwrap();
            assert!(drawing.starts_with("<svg"), "{chart}");
            name.to_owned()
        })
        .collect();
    charts.sort();
    Results {
        text: String::from_utf8(output.stdout).unwrap(),
        markdown: read("RESULTS.md"),
        page,
        json: serde_json::from_str(&read("results.json")).unwrap(),
        charts,
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
fn handoff_has_a_table_for_each_way_to_release() {
    let results = bench("handoff --placement unpinned --contender lead --contender redlock");
    for name in ["raw, quorum", "redbolt, lead", "redlock"] {
        let rows = results.rows(name);
        assert_eq!(rows.len(), 2, "{}", results.text);
        assert!(rows.iter().all(|row| row[2] != "0" && row[3] != "0.0"), "{}", results.text);
    }
    assert_eq!(results.runs("handoff"), 2);
    assert_eq!(results.charts, ["handoff-n3-unpinned"]);
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
fn waiting_has_a_row_for_each_strategy_and_compares_the_default_with_the_ring() {
    let results = bench("waiting --waiters 2 --section 2");
    let strategies = waiting::ALL.iter().filter(|entry| matches!(entry.kind, Kind::Strategy(_)));
    for entry in [waiting::RING].iter().chain(strategies) {
        let rows = results.rows(entry.name);
        assert_eq!(rows.len(), 1, "{}", results.text);
        assert!(rows[0][11] != "-" && rows[0][21] == "0", "{}", results.text);
    }
    let contenders = &results.json["parts"]["waiting"]["runs"][0]["contenders"];
    // The ring asks once per turn, unless a node lags behind.
    assert!(contenders[0]["asks_in_vain"].as_f64() < Some(0.5), "{contenders}");
    assert!(contenders[1]["packets"].as_f64() > Some(6.0), "{contenders}");
    let judged = format!("{} / {}", waiting::default_settings().name, waiting::RING.name);
    assert!(results.text.contains(&judged), "{}", results.text);
}

#[test]
fn hung_has_a_row_for_each_way_to_hang_and_finds_no_intruder() {
    let results = bench("hung");
    let rows = results.rows(waiting::default_settings().name);
    let hangs: Vec<_> = rows.iter().map(|row| row[3]).collect();
    assert_eq!(hangs, ["1 stopped", "1 paused"], "{}", results.text);
    assert!(rows.iter().all(|row| row[8] != "-" && row[10] == "0"), "{}", results.text);
    assert_eq!(results.runs("hung"), 2);
}

#[test]
fn inflight_has_a_row_for_each_client() {
    let results = bench("inflight --placement unpinned --contender driver --contender rustis");
    // There are all figures of two numbers of locks in flight, and one in the table of all numbers.
    for name in ["raw epoll", "redbolt driver", "rustis"] {
        let rows = results.rows(name);
        assert_eq!(rows.len(), 3, "{}", results.text);
        assert!(rows.iter().all(|row| !row.contains(&"-")), "{}", results.text);
    }
    assert_eq!(results.charts, ["inflight-cpu-n3-unpinned"]);
}

#[test]
fn kinds_has_a_row_for_each_number_of_readers_and_of_permits() {
    let results = bench("kinds --placement unpinned");
    let kinds = &results.json["parts"]["kinds"];
    let rows = |of: &str| kinds[of][0]["rows"].as_array().unwrap().clone();
    let (readers, permits) = (rows("readers"), rows("permits"));
    assert_eq!((readers.len(), permits.len()), (4, 3), "{kinds}");
    for row in readers {
        // Each node gets a request and an undo, however many locks are on the key.
        assert_eq!(row["shared"]["commands"], 6.0, "{row}");
    }
    for row in permits {
        assert!(row["granted"].as_u64() > Some(0), "{row}");
    }
    // These are readers and permits, and permits alone.
    assert_eq!((results.rows("100").len(), results.rows("2").len()), (2, 1), "{}", results.text);
}

#[test]
fn dead_has_a_table_for_each_way_to_die_and_redbolt_continues() {
    let results = bench("dead --placement unpinned --contender client");
    let rows = results.rows("redbolt client");
    assert_eq!(rows.len(), 2, "{}", results.text);
    assert!(rows.iter().all(|row| row[8].starts_with("0 of ")), "{}", results.text);
    assert_eq!(results.charts, ["dead-n3-unpinned"]);
}

#[test]
fn pair_prints_a_row_for_each_contender_and_writes_three_kinds_of_files() {
    let results = bench("pair --nodes 1 --placement unpinned");
    for entry in contender::ALL.iter().filter(|entry| !entry.name.contains("spin")) {
        // There is a row in the table of all cells, and one in that of the cell.
        let rows = results.rows(entry.name).len();
        assert!(rows >= 2 || entry.name.contains("busy"), "{}: {}", entry.name, results.text);
    }
    assert!(results.markdown.starts_with("# Results") && results.markdown.contains("| raw epoll "));
    let run = &results.json["parts"]["pair"]["runs"][0];
    assert!(run["nodes"] == 1 && run["native_release"].is_boolean(), "{}", results.json);
    assert_eq!(results.charts, ["pair-latency-unpinned", "pair-ratio-unpinned"]);
    assert!(results.page.contains("<td>raw epoll</td>"), "{}", results.page);
    assert!(results.page.len() > results.markdown.len() && !results.markdown.contains("!["));
}

/// This needs the feature: `cargo test -p redbolt-benches --features tls`.
#[test]
#[cfg(feature = "tls")]
fn tls_has_a_row_for_the_floor_and_for_redbolt_and_judges_it() {
    let results = bench("tls --nodes 1 --placement unpinned");
    for (name, _) in contender::over_tls::ALL {
        assert_eq!(results.rows(name).len(), 1, "{}", results.text);
    }
    assert!(results.text.contains("redbolt client, tls / raw rustls, epoll"), "{}", results.text);
}

#[test]
fn bad_options_are_refused_with_the_valid_ones() {
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
        ("--waiters 1", "1 is not in 2..=256"),
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
    let mut bench = redbolt_test_servers::program(env!("CARGO_BIN_EXE_bench"))
        .args(["pair", "--nodes", "3", "--placement", "unpinned", "--out"])
        .arg(folder.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = Pid::from_child(&bench);
    let nodes = wait_for(|| Some(nodes_of(pid)).filter(|nodes| nodes.len() == 3));
    // The signal goes to the program only: a terminal would signal all of its processes.
    kill_process(pid, Signal::INT).unwrap();
    assert!(!bench.wait().unwrap().success());
    wait_for(|| nodes.iter().all(|node| !is_node(node)).then_some(()));
}

/// Returns the process ids of the servers that it has started.
fn nodes_of(pid: Pid) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).unwrap();
    let children =
        tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok());
    let children: String = children.collect();
    children.split_whitespace().filter(|pid| is_node(pid)).map(str::to_owned).collect()
}

fn is_node(pid: &str) -> bool {
    // The file is empty for a zombie.
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
