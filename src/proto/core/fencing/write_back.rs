//! From a proposal to a token: the clock that proposals are made of, agreement, and the write-back.

use std::time::Duration;

use crate::proto::core::effects::{Decision, LockEffect};
use crate::proto::core::links::{Node, Pending};
use crate::proto::core::{Core, LockAtWork, locks::Phase};
use crate::proto::fence::{Agreement, FencingToken, MAX_TOKEN, clock_of_most};
use crate::proto::names::{LockId, MAX_NODES, NodeId};
use crate::proto::vote::{Cause, Verdict, Vote};
use crate::proto::{answer::Count, mutants::mutant, time::ClockReading};

impl Core {
    /// The fencing token of a lock that is held; `None` if it was not asked for.
    #[must_use]
    pub fn fencing_token(&self, id: LockId) -> Option<FencingToken> {
        let (lock, active) = self.locks.at_work(id)?;
        lock.phase.is_held().then_some(active.fencing.token()).flatten()
    }

    /// The value that an attempt proposes to all nodes: our wall clock in µs, as far as it was set right.
    pub(in crate::proto::core) fn proposal(&self, now: ClockReading) -> u64 {
        let wall = i128::from(micros(now));
        // Between the two bounds.
        (wall + i128::from(self.common.ahead_us)).clamp(1, i128::from(MAX_TOKEN)) as u64
    }
}

/// The clock that a proposal is made of.
impl LockAtWork<'_> {
    /// By how many µs the clocks of a quorum are ahead of ours, as far as an attempt has shown: where it was
    /// refused by its proposal they say it themselves, where it was granted they are like that.
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

    /// Whether an attempt without a quorum has to hear more nodes until it is known what time it is for a
    /// quorum of them: a wild clock may have answered first.
    pub(crate) fn awaits_clocks(&self) -> bool {
        self.active.votes.has_failed_by(Cause::ClockSkew)
            && !self.active.votes.missing().is_empty()
            && self.clocks_ahead().is_none()
    }

    /// Sets our clock right, if an attempt found no quorum because of it and the nodes have answered by how much.
    pub(crate) fn set_clock_right(&mut self) -> bool {
        if !self.active.votes.has_failed_by(Cause::ClockSkew) {
            return false;
        }
        let Some(ahead) = self.clocks_ahead() else { return false };
        self.env.ahead_us = ahead;
        ahead != self.active.fencing.ahead_us()
    }
}

/// From counters to a token.
impl LockAtWork<'_> {
    /// A quorum has granted: whether its counters make a token. If not, the largest is written back.
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

    /// A node granted with this counter.
    pub(crate) fn take_counter(&mut self, node: NodeId, counter: u64) {
        if matches!(self.lock.phase, Phase::Asking | Phase::Fencing) {
            self.active.fencing.counted(node, counter);
        }
    }

    /// Confirms the token on a node that granted: its counter is there already, or is raised. One that
    /// is past it may have granted to another holder of the same token in between, and confirms
    /// nothing.
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
        // The connection on which it granted has gone.
        if !link.takes_extensions() {
            return self.active.votes.cast(node, Vote::Fail(link.cause()));
        }
        let (claim, round) = (self.lock.claim(), self.lock.round());
        let (write_back, target) = (self.claim.kind().write_back, self.active.fencing.target());
        let pending = |by_digest| Pending::WriteBack { claim, round, by_digest };
        self.send(node, write_back, (0, target), pending);
    }

    /// Takes a node's answer to the write-back of this round, and decides.
    pub(crate) fn take_write_back(&mut self, node: NodeId, round: u32, answer: Count) -> Decision {
        let (link, votes) = (&self.nodes[node.index()].link, &mut self.active.votes);
        // One that is being left has failed already.
        if link.is_leaving() || !self.lock.is_fencing(round) {
            return Decision::Continue;
        }
        let is_gone = answer == Count::Of(0);
        // The master before it grants to clients whose sentinels have not named the new one yet, and its
        // counter is as low as before.
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

    /// The write-back of this round will not be answered.
    pub(crate) fn fail_write_back(&mut self, node: NodeId, round: u32, cause: Cause) {
        if self.lock.is_fencing(round) {
            self.active.votes.cast(node, Vote::Fail(cause));
            self.env.effects.of_lock(self.id, LockEffect::Recount);
        }
    }

    /// The token is the lock's once a quorum has it, each while it kept the lock for us. `None` as long as nodes that
    /// granted have to confirm it.
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
    /// Records that the node refused a proposal which is too far from its clock.
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
