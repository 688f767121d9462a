//! The part `scale` runs with small sizes and judges each table. The figures are not checked,
//! because a machine that runs tests is too busy to measure on.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::Command;

use serde_json::Value;

#[test]
fn scale_has_a_table_and_a_slope_for_each_size_that_grows() {
    let home = tempfile::tempdir().unwrap();
    let mut bench = Command::new(env!("CARGO_BIN_EXE_bench"));
    bench.args(["scale", "--quick", "--placement", "unpinned", "--out"]).arg(home.path());
    let output = bench.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let results = std::fs::read_to_string(home.path().join("results.json")).unwrap();
    let results: Value = serde_json::from_str(&results).unwrap();
    let run = &results["parts"]["scale"]["runs"][0];
    assert_eq!(run["held"]["rows"].as_array().map(Vec::len), Some(4), "{run}");
    let sweeps = run["sweeps"].as_array().unwrap();
    assert_eq!(sweeps.len(), 5, "{run}");
    for sweep in sweeps {
        assert!(sweep["slope"].is_number(), "{sweep}");
    }
    let page = std::fs::read_to_string(home.path().join("results/full-run.html")).unwrap();
    assert_eq!(page.matches("<svg").count(), 7);
}
