//! For how long an attempt waits for the rest of the nodes once a quorum has voted.
//!
//! A node that takes longer than usual is suspected, and not waited for. Suspicion is no failure and no vote. Not here:
//! how long a node usually takes, see `links::suspect`.

use std::time::Duration;

use crate::proto::core::LockAtWork;
use crate::proto::core::effects::Decision;
use crate::proto::names::{NodeId, NodeSet};
use crate::proto::time::Timestamp;

impl LockAtWork<'_> {
    /// A vote has decided nothing. If a quorum has voted, the others are given their allowance.
    #[inline]
    pub(super) fn limit_wait(&mut self) {
        if self.active.votes.has_quorum() {
            self.wait_for_the_rest();
        }
    }

    /// Waits for more votes, but not for long once a quorum has answered.
    #[inline]
    pub(super) fn keep_waiting(&mut self) -> Decision {
        self.limit_wait();
        Decision::Continue
    }

    #[cold]
    fn wait_for_the_rest(&mut self) {
        let since = self.active.round.quorum_answered(self.env.now.boot);
        let awaited = self.active.votes.awaited().without(self.env.suspected);
        let until = awaited.iter().map(|node| since + self.nodes.allowance(node)).min();
        let until = until.unwrap_or(Timestamp::NEVER);
        self.active.round.wait_for_rest(until);
        self.arm(until);
    }

    /// The nodes are asked from now on, which may take so long, or a lead that is to answer first.
    pub(in crate::proto::core) fn ask_for(
        &mut self,
        patience: Duration,
        lead_until: Option<Timestamp>,
    ) {
        let (ends, deadline) = (self.lock.lease.ends(), self.active.waiting.deadline());
        self.active.round.asks(lead_until);
        self.active.round.lasts_until((self.env.now.boot + patience).min(ends).min(deadline));
        self.arm(self.active.round.due());
    }

    /// A round goes on. Those who have not answered within their allowance are suspected, and a lead that
    /// takes longer than usual is not the only one to be asked.
    pub(super) fn round_drags(&mut self) -> Decision {
        let active = &mut *self.active;
        let until = active.round.rest_until();
        if self.env.now.boot < until {
            self.arm(until);
            return Decision::Continue;
        }
        if let Some(lead) = active.attempt.lead.take() {
            // The others are asked before it has voted, under the same token, and with the validity counted from its ask.
            return Decision::AskMore(self.nodes.all().without(lead.into()));
        }
        let (since, awaited) = (active.round.quorum_at(), active.votes.awaited());
        // Those who have more time are waited for anew, unless only a write-back is.
        active.round.wait_for_rest(Timestamp::NEVER);
        let mut late = NodeSet::default();
        let is_late = |node: &NodeId| self.env.now.boot >= since + self.nodes.allowance(*node);
        awaited.iter().filter(is_late).for_each(|node| late.insert(node));
        Decision::Suspect(late)
    }
}
