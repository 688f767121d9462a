//! From a request to a grant or a refusal: attempts, and their verdicts.
//!
//! Apart from `waiting`, which decides when a lock may ask: here is one attempt at a time. Not here: what counts as a
//! grant or a denial, see `proto::vote`; what a node may hold for an attempt that failed, see `claims`.

mod asking;
mod attempt;
mod voting;

use crate::proto::names::{NodeId, NodeSet};
use crate::proto::vote::Votes;

/// One lock's present attempt, and what the last one came to.
#[derive(Debug)]
pub(super) struct Attempt {
    /// The votes of the last attempt that came to a verdict.
    decided: Option<Votes>,
    /// The node that is asked before all others; once it has granted there is none.
    lead: Option<NodeId>,
    /// The nodes at which an earlier attempt left an ask open, of those that were suspected then.
    open: NodeSet,
}

impl Attempt {
    /// Of a lock that was not asked for yet.
    pub(super) const fn new() -> Self {
        Self { decided: None, lead: None, open: NodeSet::EMPTY }
    }

    /// The votes of the last attempt that came to a verdict.
    pub(super) fn decided(&self) -> Option<Votes> {
        self.decided
    }

    /// Whether one node is asked before all others.
    pub(super) fn is_led(&self) -> bool {
        self.lead.is_some()
    }

    /// It is over. Whether one node was asked before all others.
    pub(super) fn was_led(&mut self) -> bool {
        self.lead.take().is_some()
    }
}
