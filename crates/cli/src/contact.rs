//! Connecting to the nodes, for a command that asks all of them once and leaves.
//!
//! All nodes shall hear of it, and not only those that are the first to make a quorum. But nobody waits for one
//! that hangs: once a quorum has told of itself, the others have as long again, and at least a moment.

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
        // Each look connects anew to nodes that refuse, so they get rarer.
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

/// As [`contact`], and finds out which nodes tell those who wait.
pub(crate) fn contact_push(client: &Client, within: Duration) -> NodeReport {
    let since = Instant::now();
    contact(client, within);
    // It opens a second connection, as far away as the first.
    client.warm_up_push(others_within(since.elapsed()).min(within))
}

/// A node whose restart guard was read, or that votes without one. What it says of itself may be that it is
/// no voter.
fn has_told(node: &NodeStatus) -> bool {
    node.state == NodeState::Ready
        || !matches!(node.restart_guard, RestartGuardState::Unknown | RestartGuardState::Off)
}

/// How long the others may take behind a quorum that has taken so long.
fn others_within(taken: Duration) -> Duration {
    taken.max(FIRST_CONTACT)
}

const SHORTEST: Duration = Duration::from_millis(5);

/// A name is looked up and a connection made, anywhere on Earth.
const FIRST_CONTACT: Duration = Duration::from_millis(250);
