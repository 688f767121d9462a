//! Formats the findings as JSON, with the figures behind them.

use serde_json::{Value, json};

use super::diagnosis::{Diagnosis, Sheet};
use super::facts::Facts;
use super::finding::{Finding, Outcome};
use crate::status::restart_guard_as_json;
use redbolt::report::{NodeReport, NodeState, NodeStatus};

/// Returns one object. The diagnosis was made from `report` and `facts`.
pub(super) fn as_json(diagnosis: &Diagnosis, report: &NodeReport, facts: &[Facts]) -> Value {
    let nodes = report.nodes.iter().zip(facts).zip(&diagnosis.sheets);
    json!({
        "result": diagnosis.worst().word(),
        "passed": diagnosis.count(Outcome::Pass),
        "skipped": diagnosis.count(Outcome::Skip),
        "warnings": diagnosis.count(Outcome::Warn),
        "failures": diagnosis.count(Outcome::Fail),
        "quorum": report.quorum(),
        "voting": report.ready(),
        "checks": findings(&diagnosis.set),
        "nodes": nodes.map(|((status, facts), sheet)| node(status, facts, sheet)).collect::<Vec<_>>(),
    })
}

fn node(status: &NodeStatus, facts: &Facts, sheet: &Sheet) -> Value {
    let info = facts.info();
    let micros = |share| u64::try_from(facts.round_trip(share).as_micros()).unwrap_or(u64::MAX);
    let round_trips = (!facts.round_trips.is_empty()).then(|| {
        json!({
            "count": facts.round_trips.len(),
            "min_us": micros(0.0),
            "p50_us": micros(0.5),
            "p99_us": micros(0.99),
        })
    });
    json!({
        "address": status.address.to_string(),
        "votes": status.state == NodeState::Ready,
        "server": info.map(|info| info.kind()),
        "version": info.and_then(|info| info.version()),
        "run_id": info.and_then(|info| info.get("run_id")),
        "role": info.and_then(|info| info.get("role")),
        "used_memory_bytes": info.and_then(|info| info.number("used_memory")),
        "max_memory_bytes": info.and_then(|info| info.number("maxmemory")),
        "round_trips": round_trips,
        "clock": facts.clock.map(|clock| json!({
            "ahead_us": clock.ahead_us,
            "error_us": clock.error_us,
        })),
        "restart_guard": restart_guard_as_json(status.restart_guard),
        "checks": findings(sheet),
    })
}

fn findings(sheet: &Sheet) -> Vec<Value> {
    let one = |finding: &Finding| {
        json!({
            "check": finding.check,
            "result": finding.outcome.word(),
            "why": finding.why,
            "todo": finding.todo,
        })
    };
    sheet.findings.iter().map(one).collect()
}
