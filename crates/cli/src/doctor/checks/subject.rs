//! The input of the checks of one node.

use redbolt::config::RestartTrust;
use redbolt::proto::Settings;
use redbolt::report::NodeStatus;

use crate::doctor::facts::Facts;
use crate::doctor::finding::Finding;

/// The facts known of one node.
pub(in crate::doctor) struct Subject<'a> {
    pub(in crate::doctor) status: &'a NodeStatus,
    pub(in crate::doctor) facts: &'a Facts,
    pub(in crate::doctor) settings: &'a Settings,
    pub(in crate::doctor) has_login: bool,
    /// The locks without an end.
    pub(in crate::doctor) leftovers: &'a [Vec<u8>],
    /// The command that enrols the nodes.
    pub(in crate::doctor) init: &'a str,
    /// The command that deletes a lock, without its name.
    pub(in crate::doctor) unlock: &'a str,
}

impl Subject<'_> {
    /// Returns how far the restart guard of the node is trusted.
    pub(super) fn trust(&self) -> RestartTrust {
        self.settings.nodes[self.status.number - 1].restart_trust
    }

    pub(super) fn has_sentinels(&self) -> bool {
        self.settings.nodes[self.status.number - 1].has_sentinels
    }
}

/// Returns the finding of a check that needs `INFO`, if the user may not run it.
pub(super) fn no_info(check: &'static str) -> Finding {
    Finding::skip(check, "The user may not run INFO, so this is not known.")
}
