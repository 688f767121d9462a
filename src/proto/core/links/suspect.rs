//! Suspicion: a node that hangs is not waited for. The rules are in docs/protocol.md.
//!
//! Suspicion is no failure and no vote: [`Votes::verdict`] takes it into account once a quorum has voted. Not here:
//! what a suspected node is not asked for, which is with who asks.
//!
//! [`Votes::verdict`]: crate::proto::Votes::verdict

use std::time::Duration;

use super::node::Pending;
use crate::proto::core::Core;
use crate::proto::core::claims::Claim;
use crate::proto::core::locks::Phase;
use crate::proto::mutants::mutant;
use crate::proto::names::{LockId, NodeId, NodeSet};
use crate::proto::time::{ClockReading, Timestamp};

impl Core {
    /// Nobody has read the sockets for a while, so that answers which are read now say nothing of how long
    /// the nodes took. Call it before reading them.
    pub fn resume(&mut self, now: Timestamp) {
        self.nodes.iter_mut().for_each(|node| node.pace.unheard(now));
    }

    /// Whether this node seems to hang.
    pub(crate) fn is_suspected(&self, node: NodeId) -> bool {
        self.suspected.contains(node)
    }

    /// For how long a node may be silent when a quorum has answered. One of which nothing is known, not even
    /// how long it takes to connect, is given the time of a first contact.
    pub(crate) fn allowance(&self, node: NodeId) -> Duration {
        match self.node(node).pace.round_trip() {
            Some(known) => (known * ROUND_TRIPS).max(LEAST),
            None => (self.farthest() * ROUND_TRIPS).max(FIRST_CONTACT),
        }
    }

    fn farthest(&self) -> Duration {
        let known = self.nodes.iter().filter_map(|node| node.pace.round_trip());
        known.max().unwrap_or_default()
    }

    /// A vote has decided nothing. If a quorum has voted, the others are given their allowance.
    #[inline]
    pub(crate) fn limit_wait(&mut self, id: LockId, now: ClockReading) {
        if self.locks.active(id).is_some_and(|active| active.votes.has_quorum()) {
            self.wait_for_the_rest(id, now);
        }
    }

    #[cold]
    fn wait_for_the_rest(&mut self, id: LockId, now: ClockReading) {
        let Some(active) = self.locks.active_mut(id) else { return };
        let since = active.round.quorum_answered(now.boot);
        let awaited = active.votes.awaited().without(self.suspected);
        let until = awaited.iter().map(|node| since + self.allowance(node)).min();
        let until = until.unwrap_or(Timestamp::NEVER);
        if let Some(active) = self.locks.active_mut(id) {
            active.round.waits_for_rest(until);
            self.arm_lock(id, until);
        }
    }

    /// A round goes on. Those who have not answered within their allowance are suspected, and a lead that
    /// takes longer than usual is not the only one to be asked.
    pub(crate) fn round_drags(&mut self, id: LockId, now: ClockReading) {
        let Some(active) = self.locks.active_mut(id) else { return };
        let until = active.round.rest_until();
        if now.boot < until {
            return self.arm_lock(id, until);
        }
        if active.lead.is_some() {
            return self.ask_the_others(id, now);
        }
        let (since, awaited) = (active.round.quorum_at(), active.votes.awaited());
        // Those who have more time are waited for anew, unless only a write-back is.
        active.round.waits_for_rest(Timestamp::NEVER);
        for node in awaited.iter() {
            if now.boot >= since + self.allowance(node) {
                self.suspect(node, now);
            }
        }
        self.decide(id, now);
    }

    /// Notices in passing that a node has been silent for so long that a quorum must have answered whatever
    /// it was asked, if one has.
    pub(super) fn suspect_if_silent(&mut self, id: NodeId, now: ClockReading) {
        let node = self.node(id);
        let Some(oldest) = node.pipeline.oldest() else { return };
        let silent_since = oldest.since.max(node.heard);
        if self.is_suspected(id)
            || !node.link.takes_asks()
            || now.boot < silent_since + self.farthest() + self.allowance(id)
        {
            return;
        }
        let heard = self.nodes.iter().filter(|node| node.heard > silent_since).count();
        if heard >= self.config.quorum() {
            self.suspect(id, now);
        }
    }

    fn suspect(&mut self, id: NodeId, now: ClockReading) {
        if self.is_suspected(id) {
            return;
        }
        self.suspected.insert(id);
        self.metrics.of(id).suspicions += 1;
        self.changed.insert(id);
        // It may not tell those who wait for its word.
        if self.node(id).push.is_wanted() {
            self.reports_lost(id, now);
        }
        self.releases_go_on_without(id, now);
    }

    /// Releases that waited for this node only: their undos are under way there, unless its link is not open.
    fn releases_go_on_without(&mut self, id: NodeId, now: ClockReading) {
        if !self.node(id).link.takes_undos() {
            return self.settle_releases(now);
        }
        for at in 0..self.node(id).pipeline.len() {
            if let Some(&Pending::Undo { claim, .. }) = self.node(id).pipeline.at(at)
                && let Some(lock) = self.claims.find(claim).and_then(Claim::lock)
                && self.locks.find(lock).is_some_and(|lock| lock.phase == Phase::Releasing)
            {
                self.settle_release(lock, now);
            }
        }
    }

    /// A node that was suspected has answered: what was held back is asked now.
    #[cold]
    pub(crate) fn answers_again(&mut self, id: NodeId, now: ClockReading) {
        self.suspected.remove(id);
        self.changed.insert(id);
        let held_back = std::mem::take(&mut self.node_mut(id).held_back);
        if !self.node(id).link.takes_asks() {
            return;
        }
        for &claim in &held_back {
            if self.claims.find(claim).is_some_and(|claim| claim.is_queued(id)) {
                self.send_ask(id, claim, now);
            }
        }
        // Its memory is used again.
        let mut empty = held_back;
        empty.clear();
        self.node_mut(id).held_back = empty;
    }

    /// The suspected nodes at which an ask of this lock is open from an earlier attempt.
    pub(crate) fn open_asks(&self, id: LockId) -> NodeSet {
        if mutant!(SuspectAskedAgain) {
            return NodeSet::default();
        }
        if self.suspected.is_empty() {
            return NodeSet::default();
        }
        let Some((lock, active)) = self.locks.at_work(id) else { return NodeSet::default() };
        let last = self.claims.find(lock.claim);
        let last = last.map_or_else(NodeSet::default, Claim::undoing);
        active.open.or(last).and(self.suspected)
    }
}

/// A node may take so many times as long as it usually does, and at least so long.
const ROUND_TRIPS: u32 = 4;
const LEAST: Duration = Duration::from_millis(5);

/// A name is looked up and a connection made, anywhere on Earth, unless packets are lost.
pub(crate) const FIRST_CONTACT: Duration = Duration::from_millis(250);
