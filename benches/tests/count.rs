//! The counting program: what must be zero is zero, and known costs are found.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::Command;

use serde_json::Value;

fn count(contender: &str, nodes: &str) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_count"))
        .args(["--contender", contender, "--nodes", nodes, "--pairs", "100"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_pair_of_redbolts_client_allocates_nothing_like_the_floor() {
    for contender in ["raw epoll", "redbolt client", "redbolt driver"] {
        // A single node, so that none can lag behind.
        let counts = count(contender, "1");
        assert_eq!(counts["allocations"], 0.0, "{counts:#}");
        assert_eq!(counts["bytes"], 0.0, "{counts:#}");
    }
}

#[test]
fn known_allocations_are_counted() {
    let counts = count("rslock", "1");
    assert!(counts["allocations"].as_f64() > Some(1.0), "{counts:#}");
    assert!(counts["bytes"].as_f64() > Some(100.0), "{counts:#}");
}

#[test]
fn each_request_of_the_floor_is_a_system_call() {
    let counts = count("raw epoll", "3");
    let Some(calls) = counts["syscalls"].as_f64() else {
        assert!(counts["why_no_syscalls"].is_string(), "{counts:#}");
        return;
    };
    assert_eq!(counts["syscalls_by_name"]["sendto"], 6.0, "{counts:#}");
    // At most a wait and a read for each reply.
    assert!((8.0..=18.0).contains(&calls), "{counts:#}");
}
