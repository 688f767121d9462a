//! Fencing tokens: proposing a value, agreeing on one, and writing it back where nodes are behind.
//!
//! Apart from `acquiring`, whose attempt pauses here between its quorum and its grant. What counters amount to is
//! decided in `proto::fence`; here is which nodes are asked, and which are raised.

mod state;

use std::time::Duration;

use super::Core;
use crate::proto::core::links::{Node, Pending};
use crate::proto::core::locks::{Active, Phase};
use crate::proto::fence::{Agreement, FencingToken, MAX_TOKEN, clock_of_most};
use crate::proto::lock_kind::Count;
use crate::proto::mutants::mutant;
use crate::proto::names::{ClaimId, LockId, NodeId};
use crate::proto::time::ClockReading;
use crate::proto::vote::{Cause, Verdict, Vote};

pub(super) use self::state::Fencing;

impl Core {
    /// The fencing token of a lock that is held; `None` if it was not asked for.
    #[must_use]
    pub fn fencing_token(&self, id: LockId) -> Option<FencingToken> {
        let (lock, active) = self.locks.at_work(id)?;
        lock.phase.is_held().then_some(active.fencing.token()).flatten()
    }

    /// The value that an attempt proposes to all nodes: our wall clock in µs, as far as it was set right.
    pub(super) fn proposal(&self, now: ClockReading) -> u64 {
        let wall = i128::from(micros(now));
        // Between the two bounds.
        (wall + i128::from(self.ahead_us)).clamp(1, i128::from(MAX_TOKEN)) as u64
    }

    /// By how many µs the clocks of a quorum are ahead of ours, as far as an attempt has shown: where it was
    /// refused by its proposal they say it themselves, where it was granted they are like that.
    fn clocks_ahead(&self, active: &Active) -> Option<i64> {
        let mut told = [0; crate::proto::MAX_NODES];
        let mut count = 0;
        for node in self.config.node_ids() {
            let ahead = match active.votes.of(node) {
                Some(Vote::Grant) => Some(active.fencing.ahead_us()),
                Some(Vote::Fail(Cause::ClockSkew)) => self.node(node).server.clock_ahead_us(),
                _ => None,
            };
            if let Some(ahead) = ahead {
                told[count] = ahead;
                count += 1;
            }
        }
        if mutant!(FenceClockOfOne) {
            return clock_of_most(&mut told[..count], 1);
        }
        clock_of_most(&mut told[..count], active.votes.quorum())
    }

    /// Whether an attempt without a quorum has to hear more nodes until it is known what time it is for a
    /// quorum of them: a wild clock may have answered first.
    pub(super) fn awaits_clocks(&self, id: LockId) -> bool {
        self.locks.active(id).is_some_and(|active| {
            active.votes.has_failed_by(Cause::ClockSkew)
                && !active.votes.missing().is_empty()
                && self.clocks_ahead(active).is_none()
        })
    }

    /// Sets our clock right, if an attempt found no quorum because of it and the nodes have answered by how much.
    pub(super) fn set_clock_right(&mut self, id: LockId) -> bool {
        let Some(active) = self.locks.active(id) else { return false };
        if !active.votes.has_failed_by(Cause::ClockSkew) {
            return false;
        }
        let Some(ahead) = self.clocks_ahead(active) else { return false };
        let is_new = ahead != active.fencing.ahead_us();
        self.ahead_us = ahead;
        is_new
    }

    /// A node granted with this counter.
    pub(super) fn counter_told(&mut self, node_id: NodeId, claim_id: ClaimId, counter: u64) {
        let Some(id) = self.claims.find(claim_id).and_then(|claim| claim.lock()) else { return };
        let Some((lock, active)) = self.locks.at_work_mut(id) else { return };
        if matches!(lock.phase, Phase::Asking | Phase::Fencing) {
            active.fencing.counted(node_id, counter);
        }
    }

    /// A quorum has granted: whether its counters make a token. If not, the largest is written back.
    pub(super) fn agree(&mut self, id: LockId, now: ClockReading) -> bool {
        let Some(active) = self.locks.active_mut(id) else { return false };
        let (granted, quorum) = (active.votes.grants(), active.votes.quorum());
        let agreement = active.fencing.agreement(granted, quorum);
        if mutant!(FenceNotWrittenBack) {
            let (Agreement::Reached(largest) | Agreement::Behind(largest)) = agreement;
            active.fencing.reached(largest);
            return true;
        }
        match agreement {
            Agreement::Reached(token) => {
                active.fencing.reached(token);
                true
            }
            Agreement::Behind(target) => {
                active.fencing.write_back_begins(target);
                self.begin_write_back(id, now);
                false
            }
        }
    }

    fn begin_write_back(&mut self, id: LockId, now: ClockReading) {
        let patience = self.config.settings.response_timeout;
        let Some((lock, active)) = self.locks.at_work_mut(id) else { return };
        lock.phase = Phase::Fencing;
        let until = (now.boot + patience).min(lock.lease.ends()).min(active.waiting.deadline());
        active.round.asks(None);
        active.round.lasts_until(until);
        let granted = active.votes.grants();
        self.arm_lock(id, until);
        for node in granted.iter() {
            self.raise_counter(node, id, now);
        }
    }

    /// Confirms the token on a node that granted: its counter is there already, or is raised. One that
    /// is past it may have granted to another holder of the same token in between, and confirms
    /// nothing.
    pub(super) fn raise_counter(&mut self, node: NodeId, id: LockId, now: ClockReading) {
        let Some(active) = self.locks.active_mut(id) else { return };
        let target = active.fencing.target();
        match active.fencing.counter_of(node) {
            counter if counter < target => self.send_write_back(node, id, now),
            counter if counter > target => {
                active.votes.cast(node, Vote::Fail(Cause::NotCounted));
            }
            _ => active.fencing.confirmed(node),
        }
    }

    fn send_write_back(&mut self, node_id: NodeId, id: LockId, now: ClockReading) {
        let Some((lock, active)) = self.locks.at_work_mut(id) else { return };
        let node = &self.nodes[node_id.index()];
        // The connection on which it granted has gone.
        if !node.link.takes_extensions() {
            return active.votes.cast(node_id, Vote::Fail(node.link.cause()));
        }
        let (claim, round, target) = (lock.claim(), lock.round(), active.fencing.target());
        let Some(write_back) = self.claims.find(claim).map(|claim| claim.kind().write_back) else {
            return;
        };
        let pending = |by_digest| Pending::WriteBack { claim, round, by_digest };
        self.send(node_id, claim, write_back, (0, target), now, pending);
    }

    /// A node's answer to a write-back. The lock that there is something to decide about, if there is.
    pub(super) fn write_back_answered(
        &mut self,
        node: NodeId,
        claim: ClaimId,
        round: u32,
        answer: Count,
        now: ClockReading,
    ) -> Option<LockId> {
        let id = self.fencing(claim, round)?;
        let is_gone = answer == Count::Of(0);
        // One that is being left has failed already.
        if self.node(node).link.is_leaving() {
            return None;
        }
        // The master before it grants to clients whose sentinels have not named the new one yet, and its
        // counter is as low as before.
        let is_promoted = self.config.node(node).has_sentinels && !self.node(node).link.is_ready();
        let active = self.locks.active_mut(id)?;
        match answer {
            Count::NoScript => self.send_write_back(node, id, now),
            Count::Of(_) if is_gone => active.votes.cast(node, Vote::Deny),
            Count::Of(_) if is_promoted => {
                active.votes.cast(node, Vote::Fail(Cause::Quarantined));
            }
            Count::Of(_) => active.fencing.confirmed(node),
            Count::Fail(cause) => active.votes.cast(node, Vote::Fail(cause)),
        }
        Some(id)
    }

    /// The write-back will not be answered. The lock that there is something to decide about, if there is.
    pub(super) fn write_back_failed(
        &mut self,
        node: NodeId,
        claim: ClaimId,
        round: u32,
        cause: Cause,
    ) -> Option<LockId> {
        let id = self.fencing(claim, round)?;
        self.locks.active_mut(id)?.votes.cast(node, Vote::Fail(cause));
        Some(id)
    }

    /// The token is the lock's once a quorum has it, each while it kept the lock for us. `None` as long as nodes that
    /// granted have to confirm it.
    pub(super) fn write_back_verdict(&mut self, id: LockId) -> Option<Verdict> {
        let (lock, active) = self.locks.at_work_mut(id)?;
        if lock.phase != Phase::Fencing {
            return None;
        }
        let grants = active.votes.grants();
        if mutant!(FenceWithOne) && !active.fencing.confirmed_by(grants).is_empty() {
            grants.iter().for_each(|node| active.fencing.confirmed(node));
        }
        if active.fencing.confirmed_by(grants).len() >= active.votes.quorum() {
            active.fencing.reached(active.fencing.target());
            return Some(Verdict::Granted);
        }
        active.votes.suspect(self.suspected);
        Some(active.votes.verdict()).filter(|verdict| *verdict != Verdict::Granted)
    }

    /// The lock whose write-back this still is.
    fn fencing(&self, claim: ClaimId, round: u32) -> Option<LockId> {
        let id = self.claims.find(claim)?.lock()?;
        let lock = self.locks.find(id)?;
        (lock.phase == Phase::Fencing && lock.round() == round).then_some(id)
    }
}

impl Node {
    /// Records that the node refused a proposal which is too far from its clock.
    pub(super) fn record_clock(&mut self, server_us: u64, proposed: u64, now: ClockReading) {
        let apart = server_us.abs_diff(proposed);
        let side = if server_us > proposed { "ahead of" } else { "behind" };
        let words =
            format!("{:.1?} {side} the proposed fencing token", Duration::from_micros(apart));
        let ahead = i128::from(server_us) - i128::from(micros(now));
        self.explain(Cause::ClockSkew, words);
        self.server.set_clock_ahead(i64::try_from(ahead).ok());
    }
}

fn micros(now: ClockReading) -> u64 {
    now.wall.0 / 1_000
}
