//! Attempts to acquire a lock, from a request to a grant or a refusal.
//!
//! Invariant: a node that denies has voted; a node that fails has not.

mod asking;
mod attempt;
mod voting;

use crate::proto::names::{NodeId, NodeSet};
use crate::proto::vote::Votes;

/// The present attempt of a lock, and the result of the last one.
#[derive(Debug)]
pub(super) struct Attempt {
    /// The votes of the last attempt that reached a verdict.
    decided: Option<Votes>,
    /// The node that is asked first, until the others are asked too.
    lead: Option<NodeId>,
    /// The suspected nodes at which an earlier attempt had a request open when this one began.
    open: NodeSet,
}

impl Attempt {
    pub(super) const fn new() -> Self {
        Self { decided: None, lead: None, open: NodeSet::EMPTY }
    }

    pub(super) fn decided(&self) -> Option<Votes> {
        self.decided
    }

    pub(super) fn is_led(&self) -> bool {
        self.lead.is_some()
    }

    /// Ends the attempt. Returns whether one node was asked before the others.
    pub(super) fn was_led(&mut self) -> bool {
        self.lead.take().is_some()
    }
}
