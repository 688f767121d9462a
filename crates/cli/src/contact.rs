//! Connects to the nodes for a command that asks all of them once and exits.
//!
//! Such a command needs every node, not only the first quorum, but must not wait for a node that
//! hangs. So once a quorum has answered, the others get as long again, but at least 250 ms.

use std::time::{Duration, Instant};

use redbolt::{
    Client,
    report::{NodeReport, NodeState, NodeStatus, RestartGuardState},
};

/// Connects, for at most `within`.
pub(crate) fn contact(client: &Client, within: Duration) -> NodeReport {
    let since = Instant::now();
    let mut until = within;
    loop {
        let passed = since.elapsed();
        // Each attempt connects again to nodes that refuse, so the pauses grow.
        let pause = (passed / 4).max(SHORTEST).min(until.saturating_sub(passed));
        let report = client.warm_up(pause);
        let passed = since.elapsed();
        let is_settled = report.nodes.iter().all(|node| node.state != NodeState::Connecting);
        if is_settled || passed >= until {
            return report;
        }
        if report.nodes.iter().filter(|node| has_told(node)).count() >= report.quorum() {
            until = until.min(passed + others_within(passed));
        }
    }
}

/// Finds out which nodes notify waiters. They have been asked before, which took at most
/// `round_trip`. A node that has not answered is not waited for again.
pub(crate) fn contact_push(client: &Client, round_trip: Duration) -> NodeReport {
    let before = client.node_report();
    if before.ready() == 0 {
        return before;
    }
    // It opens a second connection.
    let mut report = client.warm_up_push(others_within(round_trip.saturating_mul(4)));
    // A node that failed is reconnecting. The earlier failure is more informative.
    for (node, before) in report.nodes.iter_mut().zip(before.nodes) {
        if node.state == NodeState::Connecting {
            *node = before;
        }
    }
    report
}

/// Returns whether a node has answered: its restart guard was read, or it votes without one.
fn has_told(node: &NodeStatus) -> bool {
    node.state == NodeState::Ready
        || !matches!(node.restart_guard, RestartGuardState::Unknown | RestartGuardState::Off)
}

/// Returns how long the others may take once a quorum has answered after `taken`.
fn others_within(taken: Duration) -> Duration {
    taken.max(FIRST_CONTACT)
}

const SHORTEST: Duration = Duration::from_millis(5);

/// The least time for the others: enough to look up a name and connect, anywhere on Earth.
const FIRST_CONTACT: Duration = Duration::from_millis(250);
