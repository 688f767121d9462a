//! The checks, which are functions from known facts to a [`Finding`]. They query nothing.

mod access;
mod clocks;
mod durability;
mod memory;
mod server;
mod set;
mod stalls;
mod subject;
mod voting;

use redbolt::report::NodeReport;

pub(super) use self::subject::Subject;
use super::finding::Finding;

/// Returns the findings of one node. A node that was not reached has only those that report this.
pub(super) fn of_node(subject: &Subject<'_>) -> Vec<Finding> {
    let mut findings = vec![voting::reachable(subject)];
    if !subject.facts.is_open || subject.facts.is_refused {
        return findings;
    }
    findings.extend([
        voting::votes(subject),
        server::version(subject.facts),
        server::role(subject.facts),
        durability::persistence(subject),
        durability::disk(subject.facts),
        memory::memory(subject.facts),
        memory::eviction(subject.facts),
        clocks::clock(subject.facts),
        access::commands(subject.facts),
        access::notifications(subject),
        access::protection(subject),
        stalls::leftovers(subject),
        stalls::slow_commands(subject.facts),
        stalls::events(subject.facts),
        server::timers(subject.facts),
    ]);
    if subject.has_sentinels() {
        findings.push(durability::replicas(subject));
    }
    findings
}

/// Returns the findings of the set.
pub(super) fn of_set(report: &NodeReport, subjects: &[Subject<'_>]) -> Vec<Finding> {
    vec![
        set::quorum(report, subjects),
        set::node_count(subjects.len()),
        set::one_server_twice(subjects),
        clocks::between_nodes(subjects),
    ]
}
