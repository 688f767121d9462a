//! The extension of a lock: a quorum of nodes keeps the key for longer.
//!
//! Invariant: an extension never shortens a lease, never revives an expired lock, and counts only
//! nodes whose grant counted and whose key is there.

use std::time::Duration;

use super::Hold;
use crate::proto::core::effects::{ClaimEffect, LockEffect};
use crate::proto::core::links::{Nodes, Pending};
use crate::proto::core::locks::{Locks, Phase};
use crate::proto::core::{Core, LockAtWork, MAX_PIPELINE};
use crate::proto::event::{Refusal, RefusalReason};
use crate::proto::names::{LockId, NodeId};
use crate::proto::time::{ClockReading, ttl_ms};
use crate::proto::vote::{Cause, Vote, Votes};
use crate::proto::{answer::Count, config::Config, lease::Lease, mutants::mutant, sentinel_answer};

/// The number of extensions that fit into a TTL, so that a failed one leaves time for others.
const ROUNDS: u32 = 6;

impl Nodes {
    /// Returns how long an extension waits: it leaves time for others, unless a quorum of the nodes
    /// is so far away that none could succeed.
    fn extension_patience(&self, ttl: Duration, config: &Config) -> Duration {
        let (share, whole) = (ttl / ROUNDS, config.settings.response_timeout);
        let near = self.iter().filter(|node| node.pace.answers_within(share / 2)).count();
        if near >= config.quorum() { share.min(whole) } else { whole }
    }
}

impl LockAtWork<'_> {
    /// Asks all nodes to keep the key for `ttl`, for the timer or for the caller.
    pub(super) fn begin_extension(&mut self, ttl: Duration, by_itself: bool) {
        let (now, config, of) = (self.env.now, self.env.config, self.nodes.len());
        let until = now.boot + self.nodes.extension_patience(ttl, config);
        // An answer after the end of the lease cannot save the lock.
        let until = until.min(self.lock.lease.ends());
        // At most MAX_NODES.
        let votes = Votes::new(of as u8, config.quorum);
        self.active.hold.backing.begin(self.claim.counted(), self.lock.lease, of);
        self.lock.begin_round(self.active, Phase::Extending, now, votes);
        let hold = &mut self.active.hold;
        // The new lease counts from before the first command is sent: no node can have set the TTL
        // earlier.
        hold.extension.ttl = ttl;
        hold.extension.lease = Lease::new(now, ttl, config.drift);
        hold.auto_extension.is_extending = by_itself;
        self.active.round.lasts_until(until);
        self.arm(until);
        // Requests that still wait for a link are too late for their lease.
        self.claim.unqueue_all();
        config.node_ids().for_each(|node| self.offer_extension(node));
        self.settle_extension();
    }

    fn offer_extension(&mut self, node_id: NodeId) {
        let node = &mut self.nodes[node_id.index()];
        let takes = node.link.takes_extensions();
        if takes && node.pipeline.len() < MAX_PIPELINE {
            return self.send_extension(node_id);
        }
        node.reopen(&mut self.env);
        let cause = if takes { Cause::Backlog } else { node.link.cause() };
        if node.link.may_return() && !takes {
            self.active.hold.extension.queued.insert(node_id);
        } else {
            self.active.votes.cast(node_id, Vote::Fail(cause));
        }
    }

    fn send_extension(&mut self, node: NodeId) {
        let (ttl, claim, round) =
            (self.active.hold.extension.ttl, self.lock.claim(), self.lock.round());
        // The key may live this long from when the command is sent, even without an answer.
        self.claim.lives_until(self.env.now.boot + ttl);
        let pending = |by_digest| Pending::Extend { claim, round, by_digest };
        self.send(node, self.claim.kind().extend, (ttl_ms(ttl), 0), pending);
    }

    /// Sends the extension again after its connection was lost: it never shortens a TTL, so it may
    /// run twice.
    pub(crate) fn offer_extension_again(&mut self, node: NodeId, round: u32) {
        if self.lock.phase == Phase::Extending && self.lock.round() == round {
            self.offer_extension(node);
            self.settle_extension();
        }
    }

    /// Sends the extension again to a node that forgot its script; also after a quorum has
    /// extended, because the key should live as long on this node.
    fn resend_extension(&mut self, node: NodeId, round: u32) {
        let votes = &self.active.votes;
        let succeeds =
            self.lock.phase == Phase::Extending || votes.grants().len() >= votes.quorum();
        if self.lock.phase.is_held() && self.lock.round() == round && succeeds {
            self.send_extension(node);
            self.settle_extension();
        }
    }

    pub(crate) fn take_extension(&mut self, node: NodeId, round: u32, answer: Count) {
        let mut vote = match answer {
            Count::NoScript => return self.resend_extension(node, round),
            Count::Of(0) => Vote::Deny,
            Count::Fail(cause) => Vote::Fail(cause),
            // The key is still there, but its undo is on the way.
            Count::Of(_) if self.claim.is_owed(node) => {
                Vote::Fail(self.nodes[node.index()].link.cause())
            }
            // A node that the restart guard kept from voting may have forgotten another holder, so
            // it cannot extend.
            Count::Of(_) if !self.claim.counted().contains(node) => Vote::Fail(Cause::NotCounted),
            Count::Of(_) => Vote::Grant,
        };
        if mutant!(ExtensionOfAnySlot) && vote == Vote::Fail(Cause::NotCounted) {
            vote = Vote::Grant;
        }
        // A master that was just promoted has a copy of the key, while the previous one may still
        // vote for others.
        if vote == Vote::Grant && !self.counts_extension(node) {
            vote = Vote::Fail(Cause::Quarantined);
        }
        self.extension_vote(node, round, vote);
    }

    /// Counts a node's answer to the extension of the present round, also after the verdict.
    pub(crate) fn extension_vote(&mut self, node: NodeId, round: u32, vote: Vote) {
        if mutant!(ReleaseOvertaken) && self.lock.phase == Phase::Releasing {
            return self.prolong(self.active.votes.quorum());
        }
        // An answer to an earlier round is about an earlier TTL.
        if self.lock.round() != round || !self.lock.phase.is_held() {
            return;
        }
        if mutant!(ExtensionOfOtherClaim) {
            let holder = self.active.mode_change.holder();
            if let Some(holder) = holder {
                return self.env.effects.of_lock(holder, LockEffect::ExtensionVote(node, vote));
            }
        }
        if vote == Vote::Grant {
            let hold = &mut self.active.hold;
            if mutant!(ExtendFromAnswer) {
                let (ttl, drift) = (hold.extension.ttl, self.env.config.drift);
                hold.extension.lease = Lease::new(self.env.now, ttl, drift);
            }
            hold.backing.keeps(node, hold.extension.lease, self.env.now);
        }
        self.active.votes.cast(node, vote);
        self.settle_extension();
    }

    /// Returns whether the answer of a node that extended a lock counts.
    ///
    /// A master that sentinels have just named has the keys of the previous one. For as long as an
    /// answer of the sentinels counts, the previous one still votes for clients to which most
    /// sentinels named it before most named the new one to us (`crates/models/src/promotion.rs`).
    /// So until the new master votes, an extension counts only if the previous one keeps the key
    /// for longer than that and therefore denies those clients.
    fn counts_extension(&self, node: NodeId) -> bool {
        if mutant!(PromotedCountsAtOnce) {
            return true;
        }
        let (link, config) = (&self.nodes[node.index()].link, self.env.config);
        let kept = || self.active.hold.backing.kept_after(node, link.connected_at());
        link.is_ready()
            || !config.node(node).has_sentinels
            || sentinel_answer::is_outlived(kept(), config.drift)
    }

    /// Ends the extension once a quorum has extended within the present validity, or none can. No
    /// failure is reported while missing answers could still show that the lock is lost.
    fn settle_extension(&mut self) {
        if self.lock.phase != Phase::Extending {
            return;
        }
        let votes = &self.active.votes;
        let (grants, missing, quorum) = (votes.grants(), votes.missing(), votes.quorum());
        let counted = self.claim.counted();
        if mutant!(ExtendWithOne) && !grants.is_empty() {
            return self.prolong(1);
        }
        if mutant!(ExtendAfterExpiry) && grants.len() >= quorum {
            return self.prolong(quorum);
        }
        if self.lock.lease.remaining(self.env.now).is_zero() {
            self.lose(self.active.hold.cause_of_end());
        } else if grants.len() >= quorum {
            self.prolong(quorum);
        // No pending answer can make a quorum, or show that too many keys are missing, which is a
        // loss.
        } else if grants.or(missing).len() < quorum && counted.without(missing).len() >= quorum {
            self.lock.phase = Phase::Held;
            let refusal = Refusal::new(RefusalReason::NoQuorum, *votes);
            self.arm(self.active.hold.loss_due(self.lock, self.env.now));
            self.not_extended(refusal);
            if mutant!(FailedExtendUndoes) {
                let undo =
                    |node| self.env.effects.of_claim(node, self.lock.claim(), ClaimEffect::Disown);
                self.claim.seen().iter().for_each(undo);
            }
        }
    }

    fn prolong(&mut self, quorum: usize) {
        let (lock, hold, now) = (&mut *self.lock, &mut self.active.hold, self.env.now);
        let before = lock.lease.remaining(now);
        // Each node counts with its longer lease, so an earlier extension by a slow node helps.
        lock.lease = match hold.backing.lease(quorum, now) {
            // The present lease counts too: a node's longer lease may have been replaced while the
            // wall clock made it look shorter.
            Some(lease) => lock.lease.longer(lease, now),
            None => hold.extension.lease,
        };
        debug_assert!(lock.lease.remaining(now) >= before, "an extension shortens nothing");
        lock.phase = Phase::Held;
        self.arm(self.active.hold.loss_due(self.lock, now));
        self.extended();
    }

    pub(super) fn extension_due(&mut self) {
        for node in self.active.votes.missing().iter() {
            self.active.votes.cast(node, Vote::Fail(Cause::NoAnswer));
            self.env.metrics.of(node).timeouts += 1;
        }
        self.settle_extension();
    }
}

impl Core {
    pub(in crate::proto::core) fn begin_extension(
        &mut self,
        id: LockId,
        ttl: Duration,
        now: ClockReading,
    ) {
        self.locks.activate(id, self.ballot().granted());
        self.transition(id, now, |lock| lock.begin_extension(ttl, false));
    }

    pub(in crate::proto::core) fn send_queued_extensions(
        &mut self,
        node: NodeId,
        now: ClockReading,
    ) {
        for id in self.locks.take_queued_extensions(node) {
            self.transition(id, now, |lock| lock.send_extension(node));
        }
    }

    pub(in crate::proto::core) fn fail_queued_extensions(&mut self, node: NodeId) {
        let vote = Vote::Fail(self.node(node).link.cause());
        let waiting = self.locks.take_queued_extensions(node);
        let effect = LockEffect::ExtensionVote(node, vote);
        self.common.effects.of_locks(waiting.into_iter(), effect);
    }
}

impl Locks {
    pub(crate) fn longest_hold(&self, id: LockId, config: &Config) -> Option<Duration> {
        Hold::longest(self.active(id).map(|active| &active.hold), config)
    }

    fn take_queued_extensions(&mut self, node: NodeId) -> Vec<LockId> {
        let mut waiting: Vec<_> = self.ids().collect();
        waiting.retain(|&id| {
            // Also after a quorum has extended: the key should live as long on this node.
            self.at_work_mut(id).is_some_and(|(lock, active)| {
                lock.phase.is_held() && active.hold.extension.queued.take(node)
            })
        });
        waiting
    }
}
