//! Checks for faults of the set, even if each node is sound.

use std::collections::BTreeMap;

use redbolt::report::NodeReport;

use super::subject::Subject;
use crate::doctor::finding::Finding;

pub(super) fn quorum(report: &NodeReport, subjects: &[Subject<'_>]) -> Finding {
    let (ready, nodes, quorum) = (report.ready(), report.nodes.len(), report.quorum());
    let why = format!("{ready} of {nodes} nodes vote, and {quorum} must.");
    if ready == nodes {
        return Finding::pass(QUORUM, why);
    }
    if ready >= quorum {
        return Finding::warn(QUORUM, why, "Bring the others back before one more fails.");
    }
    let todo = match subjects.first() {
        Some(first) if report.is_new() => {
            format!("If these nodes are new and never held a lock: `{}`.", first.init)
        }
        _ => "Correct what is listed for the nodes: no lock can be taken now.".to_owned(),
    };
    Finding::fail(QUORUM, why, todo)
}

pub(super) fn node_count(nodes: usize) -> Finding {
    let failures = (nodes - 1) / 2;
    let why = match failures {
        0 => format!("Locks stop when one of {nodes} nodes fails."),
        1 => format!("Of {nodes} nodes 1 may fail."),
        _ => format!("Of {nodes} nodes {failures} may fail."),
    };
    match nodes {
        1 => Finding::pass(NODE_COUNT, "Locks stop when the only node fails."),
        _ if nodes % 2 == 1 => Finding::pass(NODE_COUNT, why),
        _ => Finding::warn(
            NODE_COUNT,
            why,
            format!(
                "Use {} or {} nodes: an even number bears no more failures than one less.",
                nodes - 1,
                nodes + 1
            ),
        ),
    }
}

pub(super) fn one_server_twice(subjects: &[Subject<'_>]) -> Finding {
    let mut runs: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for subject in subjects {
        if let Some(run) = subject.facts.info().and_then(|info| info.get("run_id")) {
            runs.entry(run).or_default().push(subject.status.number);
        }
    }
    if runs.is_empty() {
        return Finding::skip(SAME_SERVER, "No node tells which server it is.");
    }
    match runs.into_values().find(|numbers| numbers.len() > 1) {
        None => Finding::pass(SAME_SERVER, "Each node is a server of its own."),
        Some(numbers) => {
            let numbers: Vec<_> = numbers.iter().map(usize::to_string).collect();
            Finding::fail(
                SAME_SERVER,
                format!("Nodes {} are one server, which would vote twice.", numbers.join(" and ")),
                "Name each server once.",
            )
        }
    }
}

const QUORUM: &str = "quorum";
const NODE_COUNT: &str = "node_count";
const SAME_SERVER: &str = "same_server";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Outcome;

    #[test]
    fn an_even_number_of_nodes_is_a_warning() {
        let outcomes = [1, 2, 3, 4, 5].map(|nodes| node_count(nodes).outcome);
        use Outcome::{Pass, Warn};
        assert_eq!(outcomes, [Pass, Warn, Pass, Warn, Pass]);
        assert_eq!(node_count(4).why, "Of 4 nodes 1 may fail.");
        assert!(node_count(2).why.contains("Locks stop when one of 2"));
    }
}
