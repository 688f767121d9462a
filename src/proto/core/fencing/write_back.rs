//! The clock of proposals, the agreement on a token, and the write-back.

use std::time::Duration;

use crate::proto::core::effects::{Decision, LockEffect};
use crate::proto::core::links::{Node, Pending};
use crate::proto::core::{Core, LockAtWork, locks::Phase};
use crate::proto::fence::{Agreement, FencingToken, MAX_TOKEN, clock_of_most};
use crate::proto::names::{LockId, MAX_NODES, NodeId};
use crate::proto::vote::{Cause, Verdict, Vote};
use crate::proto::{answer::Count, mutants::mutant, time::ClockReading};

impl Core {
    /// Returns the fencing token of a held lock; `None` if it was requested without one, or is not
    /// held.
    #[must_use]
    pub fn fencing_token(&self, id: LockId) -> Option<FencingToken> {
        let (lock, active) = self.locks.at_work(id)?;
        lock.phase.is_held().then_some(active.fencing.token()).flatten()
    }

    /// Returns the proposal of an attempt: our wall clock in µs, as corrected by the nodes.
    pub(in crate::proto::core) fn proposal(&self, now: ClockReading) -> u64 {
        let wall = i128::from(micros(now));
        // The cast is exact after the clamp.
        (wall + i128::from(self.common.ahead_us)).clamp(1, i128::from(MAX_TOKEN)) as u64
    }
}

/// The clock of proposals.
impl LockAtWork<'_> {
    /// Returns by how many µs the clocks of a quorum are ahead of our clock, if this attempt shows
    /// it. A node that rejected the proposal has reported its clock; one that granted stands for
    /// the clock that was proposed.
    fn clocks_ahead(&self) -> Option<i64> {
        let votes = &self.active.votes;
        let mut clocks = [0; MAX_NODES];
        let mut count = 0;
        for node in self.nodes.iter() {
            let ahead = match votes.of(node.id()) {
                Some(Vote::Grant) => Some(self.active.fencing.ahead_us()),
                Some(Vote::Fail(Cause::ClockSkew)) => node.server.clock_ahead_us(),
                _ => None,
            };
            if let Some(ahead) = ahead {
                clocks[count] = ahead;
                count += 1;
            }
        }
        if mutant!(FenceClockOfOne) {
            return clock_of_most(&mut clocks[..count], 1);
        }
        clock_of_most(&mut clocks[..count], votes.quorum())
    }

    /// Returns whether an attempt without a quorum waits for more nodes until a quorum of clocks is
    /// known. A node with a wildly wrong clock may have answered first.
    pub(crate) fn awaits_clocks(&self) -> bool {
        self.active.votes.has_failed_by(Cause::ClockSkew)
            && !self.active.votes.missing().is_empty()
            && self.clocks_ahead().is_none()
    }

    /// Corrects our clock if an attempt failed because of it and a quorum's clocks are known.
    /// Returns whether that changes the proposal.
    pub(crate) fn set_clock_right(&mut self) -> bool {
        if !self.active.votes.has_failed_by(Cause::ClockSkew) {
            return false;
        }
        let Some(ahead) = self.clocks_ahead() else { return false };
        self.env.ahead_us = ahead;
        ahead != self.active.fencing.ahead_us()
    }
}

/// The agreement and the write-back.
impl LockAtWork<'_> {
    /// Takes the token if the quorum's counters agree; otherwise writes the largest back. Returns
    /// whether they agree.
    pub(crate) fn agree(&mut self) -> bool {
        let (granted, quorum) = (self.active.votes.grants(), self.active.votes.quorum());
        let fencing = &mut self.active.fencing;
        let agreement = fencing.agreement(granted, quorum);
        if mutant!(FenceNotWrittenBack) {
            let (Agreement::Reached(largest) | Agreement::Behind(largest)) = agreement;
            fencing.reached(largest);
            return true;
        }
        match agreement {
            Agreement::Reached(token) => fencing.reached(token),
            Agreement::Behind(target) => {
                fencing.write_back_begins(target);
                self.lock.phase = Phase::Fencing;
                self.ask_for(self.env.config.settings.response_timeout, None);
                granted.iter().for_each(|node| self.raise_counter(node));
            }
        }
        matches!(agreement, Agreement::Reached(_))
    }

    pub(crate) fn take_counter(&mut self, node: NodeId, counter: u64) {
        if matches!(self.lock.phase, Phase::Asking | Phase::Fencing) {
            self.active.fencing.counted(node, counter);
        }
    }

    /// Confirms the token on a node that granted, or raises its counter. A node whose counter is
    /// past the token confirms nothing: it may have granted to another holder of the same token in
    /// between.
    pub(crate) fn raise_counter(&mut self, node: NodeId) {
        let target = self.active.fencing.target();
        match self.active.fencing.counter_of(node) {
            counter if counter < target => self.send_write_back(node),
            counter if counter > target => {
                self.active.votes.cast(node, Vote::Fail(Cause::NotCounted));
            }
            _ => self.active.fencing.confirmed(node),
        }
    }

    fn send_write_back(&mut self, node: NodeId) {
        let link = &self.nodes[node.index()].link;
        // The connection on which the node granted was lost.
        if !link.takes_extensions() {
            return self.active.votes.cast(node, Vote::Fail(link.cause()));
        }
        let (claim, round) = (self.lock.claim(), self.lock.round());
        let (write_back, target) = (self.claim.kind().write_back, self.active.fencing.target());
        let pending = |by_digest| Pending::WriteBack { claim, round, by_digest };
        self.send(node, write_back, (0, target), pending);
    }

    pub(crate) fn take_write_back(&mut self, node: NodeId, round: u32, answer: Count) -> Decision {
        let (link, votes) = (&self.nodes[node.index()].link, &mut self.active.votes);
        // A node that is excluded for the rest of its connection has failed already.
        if link.is_leaving() || !self.lock.is_fencing(round) {
            return Decision::Continue;
        }
        // The lock is not ours there any more: with this node counted, two holders could get one
        // token.
        let is_gone = answer == Count::Of(0);
        // The previous master still grants to clients whose sentinels have not named the new one
        // yet, and its counter is as low as before.
        let is_promoted = self.env.config.node(node).has_sentinels && !link.is_ready();
        match answer {
            Count::NoScript => self.send_write_back(node),
            Count::Of(_) if is_gone => votes.cast(node, Vote::Deny),
            Count::Of(_) if is_promoted => votes.cast(node, Vote::Fail(Cause::Quarantined)),
            Count::Of(_) => self.active.fencing.confirmed(node),
            Count::Fail(cause) => votes.cast(node, Vote::Fail(cause)),
        }
        self.decide()
    }

    pub(crate) fn fail_write_back(&mut self, node: NodeId, round: u32, cause: Cause) {
        if self.lock.is_fencing(round) {
            self.active.votes.cast(node, Vote::Fail(cause));
            self.env.effects.of_lock(self.id, LockEffect::Recount);
        }
    }

    /// Returns the verdict on the token: a quorum must have it and keep the lock for us. `None` as
    /// long as nodes that granted have to confirm it.
    pub(crate) fn write_back_verdict(&mut self) -> Option<Verdict> {
        if self.lock.phase != Phase::Fencing {
            return None;
        }
        let (fencing, votes) = (&mut self.active.fencing, &mut self.active.votes);
        let grants = votes.grants();
        if mutant!(FenceWithOne) && !fencing.confirmed_by(grants).is_empty() {
            grants.iter().for_each(|node| fencing.confirmed(node));
        }
        if fencing.confirmed_by(grants).len() >= votes.quorum() {
            fencing.reached(fencing.target());
            return Some(Verdict::Granted);
        }
        votes.suspect(self.env.suspected);
        Some(votes.verdict()).filter(|verdict| *verdict != Verdict::Granted)
    }
}

impl Node {
    /// Records that the node rejected a proposal which is too far from its clock.
    pub(crate) fn record_clock(&mut self, server_us: u64, proposed: u64, now: ClockReading) {
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
