//! A warning about nodes that cannot vote while the lock is held without them.
//!
//! An operator with three nodes, of which one may fail, wants to know when one has. The warning comes once, on
//! standard error. A node that may be back in a moment is left out: its server closed a connection, or answers
//! slowly.

use std::time::Duration;

use redbolt::report::{Cause, NodeReport, NodeState, NodeStatus};

/// What is left to be said.
#[derive(Debug)]
pub(super) struct Minority {
    is_told: bool,
    /// Since when a node is absent that may be back in a moment.
    gone_since: Option<Duration>,
}

impl Minority {
    /// Nothing has been said; with `quiet` nothing will be.
    pub(super) fn new(quiet: bool) -> Self {
        Self { is_told: quiet, gone_since: None }
    }

    /// What to say at `now`, if these nodes are worth it.
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

    /// Whether nothing is left to be said.
    pub(super) fn is_told(&self) -> bool {
        self.is_told
    }

    /// The warning before redbolt exits. A node that does not answer now is absent.
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

/// It may be back in a moment.
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
