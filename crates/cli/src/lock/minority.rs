//! Warns of nodes that cannot vote while the lock is held without them.
//!
//! An operator with three nodes, of which one may fail, needs to learn when one has failed. The
//! warning is written once, to standard error. It leaves out nodes that may soon be back, because
//! their server closed a connection or answers slowly.

use std::time::Duration;

use redbolt::report::{Cause, NodeReport, NodeState, NodeStatus};

/// The state of the warning.
#[derive(Debug)]
pub(super) struct Minority {
    is_told: bool,
    /// The time since which a node is absent that may soon be back.
    gone_since: Option<Duration>,
}

impl Minority {
    /// Creates the state before the warning. With `quiet` there is no warning.
    pub(super) fn new(quiet: bool) -> Self {
        Self { is_told: quiet, gone_since: None }
    }

    /// Returns a warning if these nodes need one at `now`.
    pub(super) fn look(
        &mut self,
        report: impl FnOnce() -> NodeReport,
        now: Duration,
    ) -> Option<String> {
        if self.is_told {
            return None;
        }
        let report = report();
        if !report.has_quorum() {
            return None;
        }
        let absent: Vec<_> = report.nodes.iter().filter(|node| is_absent(node)).collect();
        if absent.is_empty() || !absent.iter().all(|node| is_blink(node)) {
            self.gone_since = None;
        } else if now < *self.gone_since.get_or_insert(now) + BLINK {
            return None;
        }
        self.told(&report, &absent)
    }

    /// Returns whether no warning is left to give.
    pub(super) fn is_told(&self) -> bool {
        self.is_told
    }

    /// Returns the warning before redbolt exits. A node that does not answer now counts as absent.
    pub(super) fn last_look(&mut self, report: impl FnOnce() -> NodeReport) -> Option<String> {
        if self.is_told {
            return None;
        }
        let report = report();
        let absent: Vec<_> = report.nodes.iter().filter(|node| is_absent(node)).collect();
        self.told(&report, &absent)
    }

    fn told(&mut self, report: &NodeReport, absent: &[&NodeStatus]) -> Option<String> {
        if absent.is_empty() || !report.has_quorum() {
            return None;
        }
        self.is_told = true;
        Some(in_words(report, absent))
    }
}

fn is_absent(node: &NodeStatus) -> bool {
    matches!(node.state, NodeState::Down(_)) || node.seems_to_hang()
}

/// Returns whether the node may soon be back.
fn is_blink(node: &NodeStatus) -> bool {
    match node.state {
        NodeState::Down(cause) => {
            matches!(cause, Cause::ConnectionClosed | Cause::ConnectionReset)
        }
        _ => node.seems_to_hang(),
    }
}

fn in_words(report: &NodeReport, absent: &[&NodeStatus]) -> String {
    let nodes = report.nodes.len();
    let vote = if absent.len() == 1 { "does not vote" } else { "do not vote" };
    let head = format!("warning: {} of {nodes} nodes {vote}", absent.len());
    let spare = match report.ready() - report.quorum() {
        0 => "locks end if one more fails".to_owned(),
        spare => format!("{spare} more may fail"),
    };
    absent.iter().fold(format!("{head}; {spare}"), |text, node| format!("{text}\n{node}"))
}

/// A connection that is reopened within this time is not worth a warning.
const BLINK: Duration = Duration::from_secs(1);
