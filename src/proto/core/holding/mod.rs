//! While a lock is held: extension, release, and loss.
//!
//! Apart from `acquiring`, since from the grant on nothing may shorten what the holder was promised. Not here: the undo
//! that a release consists of, see `claims`.

mod auto_extend;
mod auto_extension;
mod backing;
mod extension;

use std::time::Duration;

use self::auto_extension::AutoExtension;
use self::backing::Backing;
use self::extension::Extension;
use super::Core;
use super::effects::LockEffect;
use crate::proto::config::Config;
use crate::proto::core::claims::Claim;
use crate::proto::core::links::{Nodes, Pending};
use crate::proto::core::locks::{Active, Lock, Phase};
use crate::proto::event::{Confirmed, Event, LossCause, Refusal, RefusalReason};
use crate::proto::lease::Lease;
use crate::proto::lock_kind::Count;
use crate::proto::mutants::mutant;
use crate::proto::names::{ClaimId, LockId, NodeId, NodeSet};
use crate::proto::request::AutoExtend;
use crate::proto::sentinel_word;
use crate::proto::time::{ClockReading, Timestamp, ttl_ms};
use crate::proto::vote::{Cause, Vote};

/// What is known of a lock while it is held: its extensions, and what its lease rests on.
#[derive(Debug)]
pub(super) struct Hold {
    extension: Extension,
    backing: Backing,
    auto_extension: AutoExtension,
}

impl Hold {
    pub(super) const fn new() -> Self {
        Self {
            extension: Extension::new(),
            backing: Backing::new(),
            auto_extension: AutoExtension::new(None),
        }
    }

    /// Of another lock.
    pub(super) fn begin(&mut self, auto_extend: Option<AutoExtend>) {
        self.backing.clear();
        self.auto_extension = AutoExtension::new(auto_extend);
    }

    /// An attempt, extension or release begins, and no extension waits for a link any more.
    pub(super) fn round_begins(&mut self) {
        self.extension.unqueue_all();
    }

    pub(super) fn is_auto_extended(&self) -> bool {
        self.auto_extension.is_on()
    }

    /// Whether the extension that is under way came by itself.
    pub(super) fn is_extended_by_itself(&self) -> bool {
        self.auto_extension.is_extending()
    }

    /// How it is auto-extended, if it is.
    pub(super) fn auto_extend(&self) -> Option<AutoExtend> {
        self.auto_extension.options()
    }

    /// The TTL of the extension that is under way, or was the last.
    pub(super) fn extension_ttl(&self) -> Duration {
        self.extension.ttl()
    }

    /// When it is extended by itself.
    pub(super) fn due(&self) -> Timestamp {
        self.auto_extension.at()
    }

    /// Whether all nodes that count keep the key for the lock's lease, as when it was granted.
    pub(super) fn is_as_granted(&self) -> bool {
        self.backing.is_as_granted()
    }

    /// These nodes keep the key for the lease, and others may not, of so many in the configuration.
    pub(super) fn rests_on(&mut self, nodes: NodeSet, lease: Lease, of: usize) {
        self.backing.begin(nodes, lease, of);
    }

    /// One more node keeps a permit, for this lease. Where nothing has to be remembered that is not less than the lock's.
    pub(super) fn is_healed(&mut self, node: NodeId, lease: Lease, now: ClockReading) {
        if !self.backing.is_as_granted() {
            self.backing.keeps(node, lease, now);
        }
    }

    /// Those of the nodes that keep the key at least for as long as the lease.
    pub(super) fn backed(&self, nodes: NodeSet, lease: &Lease) -> NodeSet {
        self.backing.of(nodes, lease)
    }

    /// The lease that a quorum of the nodes supports, if it is known of each of them.
    pub(super) fn supported(&mut self, quorum: usize, now: ClockReading) -> Option<Lease> {
        self.backing.lease(quorum, now)
    }

    /// How long before the end of its validity the loss of this lock is reported.
    fn notice(&self, lock: &Lock) -> Duration {
        self.auto_extension.notice(lock.ttl())
    }

    /// When the loss of this lock is reported if nothing is done. Counted from now, because the wall clock may have
    /// taken more of the lease than boot did.
    pub(super) fn loss_due(&self, lock: &Lock, now: ClockReading) -> Timestamp {
        now.boot + lock.lease.remaining(now).saturating_sub(self.notice(lock))
    }

    /// Why this lock with so much of its validity left is lost, if it is.
    fn lost_with(&self, lock: &Lock, remaining: Duration) -> Option<LossCause> {
        if remaining > self.notice(lock) {
            None
        } else if lock.phase == Phase::Held && self.auto_extension.has_stopped() {
            Some(LossCause::HeldTooLong)
        } else if remaining.is_zero() {
            Some(self.cause_of_end())
        } else {
            Some(LossCause::Unextended)
        }
    }

    /// Why a lock is lost whose validity is over.
    fn cause_of_end(&self) -> LossCause {
        if self.auto_extension.is_failing() { LossCause::Unextended } else { LossCause::Expired }
    }
}

/// An extension that fails must not take the time of those that follow: so many would fit into a TTL.
const ROUNDS: u32 = 6;

impl Nodes {
    /// Returns for how long an extension is waited for. One that fails leaves time for others, unless a quorum of the
    /// nodes is so far away that none could succeed.
    fn extension_patience(&self, ttl: Duration, config: &Config) -> Duration {
        let (share, whole) = (ttl / ROUNDS, config.settings.response_timeout);
        let near = self.iter().filter(|node| node.pace.answers_within(share / 2)).count();
        if near >= config.quorum() { share.min(whole) } else { whole }
    }
}

impl Core {
    pub(super) fn begin_extension(&mut self, id: LockId, ttl: Duration, now: ClockReading) {
        let votes = self.ballot();
        let until = now.boot + self.nodes.extension_patience(ttl, &self.config);
        let Some((lock, active)) = self.locks.activate(id, votes.granted()) else { return };
        if let Some(claim) = self.claims.find(lock.claim()) {
            active.hold.backing.begin(claim.counted(), lock.lease, self.nodes.len());
        }
        lock.begin_round(active, Phase::Extending, now, votes);
        active.hold.extension.begins(ttl, Lease::new(now, ttl, self.config.drift));
        active.hold.auto_extension.extension_begins(false);
        let (claim, until) = (lock.claim(), until.min(lock.lease.ends()));
        active.round.lasts_until(until);
        self.arm_lock(id, until);
        // Asks that still wait for a link have missed the lease that they were for.
        if let Some(claim) = self.claims.find_mut(claim) {
            claim.unqueue_all();
        }
        for node in self.config.node_ids() {
            self.offer_extension(node, claim, id, now);
        }
    }

    /// Extends on one node, now or as soon as its link is back.
    fn offer_extension(&mut self, node: NodeId, claim: ClaimId, id: LockId, now: ClockReading) {
        let takes = self.node(node).link.takes_extensions();
        if takes && self.node(node).pipeline.len() < super::MAX_PIPELINE {
            return self.send_extension(node, claim, id, now);
        }
        let (reopened, mut env) = self.node_in_env(node, now);
        reopened.reopen(&mut env);
        let link = &reopened.link;
        let cause = if takes { Cause::Backlog } else { link.cause() };
        let may_return = link.may_return() && !takes;
        let Some(active) = self.locks.active_mut(id) else { return };
        if may_return {
            active.hold.extension.queue(node);
        } else {
            active.votes.cast(node, Vote::Fail(cause));
        }
    }

    /// Sends the extensions that waited for this node's link.
    pub(super) fn send_queued_extensions(&mut self, node: NodeId, now: ClockReading) {
        for (id, claim) in self.take_queued_extensions(node) {
            self.send_extension(node, claim, id, now);
        }
    }

    /// Fails the extensions that wait for a link which will not open.
    pub(super) fn fail_queued_extensions(&mut self, node: NodeId) {
        for (lock, _) in self.take_queued_extensions(node) {
            self.effects.of_lock(lock, LockEffect::FailQueuedExtension(node));
        }
    }

    pub(super) fn fail_queued_extension(&mut self, node: NodeId, id: LockId, now: ClockReading) {
        let cause = self.node(node).link.cause();
        if let Some(active) = self.locks.active_mut(id) {
            active.votes.cast(node, Vote::Fail(cause));
        }
        self.settle_extension(id, now);
    }

    /// The connection was lost with the extension in it. It never shortens anything, so it may run
    /// twice: it waits for the next connection.
    pub(super) fn extension_unanswered(
        &mut self,
        node: NodeId,
        claim: ClaimId,
        round: u32,
        now: ClockReading,
    ) {
        let Some(id) = self.extending(claim, round) else { return };
        self.offer_extension(node, claim, id, now);
        self.settle_extension(id, now);
    }

    fn take_queued_extensions(&mut self, node: NodeId) -> Vec<(LockId, ClaimId)> {
        let mut waiting = Vec::new();
        for at in 0..self.locks.capacity() {
            let Some(id) = self.locks.at(at) else { continue };
            let Some((lock, active)) = self.locks.at_work_mut(id) else { continue };
            // Also where a quorum has extended meanwhile: the key there is to live as long.
            if lock.phase.is_held() && active.hold.extension.unqueue(node) {
                waiting.push((id, lock.claim()));
            }
        }
        waiting
    }

    fn send_extension(
        &mut self,
        node_id: NodeId,
        claim_id: ClaimId,
        id: LockId,
        now: ClockReading,
    ) {
        let Some(claim) = self.claims.find_mut(claim_id) else { return };
        let Some((lock, active)) = self.locks.at_work(id) else { return };
        let ttl = active.hold.extension.ttl();
        claim.lives_until(now.boot + ttl);
        let (extend, round) = (claim.kind().extend, lock.round());
        let pending = |by_digest| Pending::Extend { claim: claim_id, round, by_digest };
        self.send(node_id, claim_id, extend, (ttl_ms(ttl), 0), now, pending);
    }

    /// Sends an extension once more, after the node forgot its script: also where a quorum has extended
    /// meanwhile, since the key there is to live as long.
    fn resend_extension(&mut self, node: NodeId, claim: ClaimId, round: u32, now: ClockReading) {
        let Some(id) = self.claims.find(claim).and_then(Claim::lock) else { return };
        let Some((lock, active)) = self.locks.at_work(id) else { return };
        let votes = &active.votes;
        let succeeds = lock.phase == Phase::Extending || votes.grants().len() >= votes.quorum();
        if lock.phase.is_held() && lock.round() == round && succeeds {
            self.send_extension(node, claim, id, now);
            self.settle_extension(id, now);
        }
    }

    /// One node's answer to an extension, or why it has none. That a key is gone is news whatever round it
    /// was asked in; that it was extended is known only of the present one, also behind the verdict.
    pub(super) fn extension_vote(
        &mut self,
        node: NodeId,
        claim: ClaimId,
        round: u32,
        vote: Vote,
        now: ClockReading,
    ) {
        let Some(id) = self.claims.find(claim).and_then(Claim::lock) else { return };
        if vote == Vote::Deny {
            self.key_gone(node, claim, now);
        }
        let vote = match vote {
            Vote::Grant if !self.counts_extension(node, id) => Vote::Fail(Cause::Quarantined),
            vote => vote,
        };
        let Some((lock, active)) = self.locks.at_work_mut(id) else { return };
        if mutant!(ReleaseOvertaken) && lock.phase == Phase::Releasing {
            let quorum = active.votes.quorum();
            return self.prolong(id, quorum, now);
        }
        if lock.round() != round || !lock.phase.is_held() {
            return;
        }
        if mutant!(ExtensionOfOtherClaim) && active.mode_change.is_companion() {
            let holder = active.mode_change.holder().and_then(|id| self.locks.find(id));
            let Some((claim, round)) = holder.map(|it| (it.claim(), it.round())) else { return };
            return self.extension_vote(node, claim, round, vote, now);
        }
        if vote == Vote::Grant {
            if mutant!(ExtendFromAnswer) {
                let ttl = active.hold.extension.ttl();
                active.hold.extension.begins(ttl, Lease::new(now, ttl, self.config.drift));
            }
            active.hold.backing.keeps(node, active.hold.extension.lease(), now);
        }
        active.votes.cast(node, vote);
        self.settle_extension(id, now);
    }

    /// Whether the answer of a node that extended a lock counts.
    ///
    /// A master that sentinels have just named has the keys of the one before it. That one votes on for
    /// clients to whom most sentinels named it before most named the new one to us, for a word's time
    /// (`crates/models/src/promotion.rs`). Until the new master votes, an extension counts only if the old
    /// master keeps the key for longer than that, so that it denies them.
    fn counts_extension(&self, node: NodeId, id: LockId) -> bool {
        if mutant!(PromotedCountsAtOnce) {
            return true;
        }
        let link = &self.node(node).link;
        if link.is_ready() || !self.config.node(node).has_sentinels {
            return true;
        }
        let active = self.locks.active(id);
        let kept = active.map(|active| active.hold.backing.kept_after(node, link.connected_at()));
        kept.is_some_and(|kept| sentinel_word::is_outlived(kept, self.config.drift))
    }

    /// A node no longer has the key of a lock: what was counted on it ends. The lease of one that is held is
    /// what the others support, or the lock is lost.
    pub(super) fn key_gone(&mut self, node: NodeId, claim: ClaimId, now: ClockReading) {
        let Some(id) = self.claims.find(claim).and_then(Claim::lock) else { return };
        let quorum = usize::from(self.config.quorum);
        let Some(lock) = self.locks.find(id) else { return };
        let Some(claim) = self.claims.find_mut(lock.claim()) else { return };
        if lock.phase == Phase::Fencing {
            // It is not granted yet, and its lease will not rest on this node.
            return claim.gone(node);
        }
        let before = lock.lease.remaining(now);
        let is_relied_on = lock.phase.is_held() && claim.counted().contains(node);
        if !is_relied_on || before.is_zero() {
            return;
        }
        claim.gone(node);
        let (counted, granted) = (claim.counted(), self.ballot().granted());
        let Some((lock, active)) = self.locks.activate(id, granted) else { return };
        active.hold.backing.begin(counted, lock.lease, self.nodes.len());
        active.hold.backing.gone(node);
        let is_known = !active.mode_change.is_companion();
        let supported = active.hold.backing.lease(quorum, now).unwrap_or_default();
        lock.lease = lock.lease.and(supported);
        let left = lock.lease.remaining(now);
        if left.is_zero() {
            return self.lose(id, LossCause::Gone, now);
        }
        let due = active.hold.loss_due(lock, now);
        self.arm_lock(id, due);
        if left < before {
            self.events.extend(is_known.then_some(Event::Shortened(id)));
            self.auto_extend_soon(id, now);
        }
    }

    /// The lock whose extension is still under way.
    fn extending(&self, claim: ClaimId, round: u32) -> Option<LockId> {
        let id = self.claims.find(claim)?.lock()?;
        let lock = self.locks.find(id)?;
        (lock.phase == Phase::Extending && lock.round() == round).then_some(id)
    }

    /// A quorum extends, while the present validity lasts. Where so many keys are gone that no quorum is left, the lock was
    /// lost at once; as long as the missing answers can still show that, no failure is reported.
    pub(super) fn settle_extension(&mut self, id: LockId, now: ClockReading) {
        let Some((lock, active)) = self.locks.at_work_mut(id) else { return };
        if lock.phase != Phase::Extending {
            return;
        }
        let quorum = active.votes.quorum();
        let (grants, missing) = (active.votes.grants(), active.votes.missing());
        let counted = self.claims.find(lock.claim()).map_or(grants, Claim::counted);
        if mutant!(ExtendWithOne) && !grants.is_empty() {
            return self.prolong(id, 1, now);
        }
        if mutant!(ExtendAfterExpiry) && grants.len() >= quorum {
            return self.prolong(id, quorum, now);
        }
        if lock.lease.remaining(now).is_zero() {
            let cause = active.hold.cause_of_end();
            self.lose(id, cause, now);
        } else if grants.len() >= quorum {
            self.prolong(id, quorum, now);
        } else if grants.or(missing).len() < quorum && counted.without(missing).len() >= quorum {
            lock.phase = Phase::Held;
            let refusal =
                Refusal { reason: RefusalReason::NoQuorum, votes: active.votes, remaining: None };
            let due = active.hold.loss_due(lock, now);
            self.arm_lock(id, due);
            self.not_extended(id, refusal, now);
            if mutant!(FailedExtendUndoes) {
                let claim = self.locks.find(id).map(|lock| lock.claim());
                claim.into_iter().for_each(|claim| self.undo(claim, now));
            }
        }
    }

    /// A quorum has extended.
    fn prolong(&mut self, id: LockId, quorum: usize, now: ClockReading) {
        let Some((lock, active)) = self.locks.at_work_mut(id) else { return };
        let before = lock.lease.remaining(now);
        lock.lease = match active.hold.backing.lease(quorum, now) {
            // What a node has said before counts as well, also where the wall clock made less of it for a while.
            Some(lease) => lock.lease.longer(lease, now),
            None => active.hold.extension.lease(),
        };
        debug_assert!(lock.lease.remaining(now) >= before, "an extension shortens nothing");
        lock.phase = Phase::Held;
        let due = active.hold.loss_due(lock, now);
        self.arm_lock(id, due);
        self.extended(id, now);
    }

    /// A lock that is held: is its validity over, or the time of its extension?
    pub(super) fn lease_due(&mut self, id: LockId, now: ClockReading) {
        let Some((lock, active)) = self.locks.at_work(id) else {
            return self.idle_lease_due(id, now);
        };
        if !lock.phase.is_held() {
            return;
        }
        let remaining = lock.lease.remaining(now);
        if let Some(cause) = active.hold.lost_with(lock, remaining) {
            return self.lose(id, cause, now);
        }
        let (due, phase, until) =
            (active.hold.loss_due(lock, now), lock.phase, active.round.until());
        self.arm_lock(id, due);
        match phase {
            Phase::Extending if now.boot >= until => self.extension_due(id, now),
            _ if now.boot < until => self.arm_lock(id, until),
            _ => self.round_over(id),
        }
    }

    /// Nothing is under way for an idle lock, and nothing extends it.
    fn idle_lease_due(&mut self, id: LockId, now: ClockReading) {
        let Some(lock) = self.locks.find(id).filter(|lock| lock.phase.is_held()) else { return };
        match lock.lease.remaining(now) {
            Duration::ZERO => self.lose(id, LossCause::Expired, now),
            remaining => self.arm_lock(id, now.boot + remaining),
        }
    }

    /// The time of a held lock's round is over. Asks that still wait for a link are withdrawn, so that none is
    /// sent long after; and a lock about which nothing is left to be known takes less memory.
    fn round_over(&mut self, id: LockId) {
        let Some((lock, active)) = self.locks.at_work(id) else { return };
        let Some(claim) = self.claims.find_mut(lock.claim()) else { return };
        claim.unqueue_all();
        let backed = active.hold.backing.of(claim.counted(), &lock.lease);
        if lock.phase == Phase::Held && active.is_done() && backed == claim.counted() {
            self.locks.put_away(id);
        }
    }

    fn extension_due(&mut self, id: LockId, now: ClockReading) {
        let Some(active) = self.locks.active_mut(id) else { return };
        for node in active.votes.missing().iter() {
            active.votes.cast(node, Vote::Fail(Cause::NoAnswer));
            self.metrics.of(node).timeouts += 1;
        }
        self.settle_extension(id, now);
    }

    /// Nothing is sent: what the nodes still keep protects whatever the holder is doing.
    pub(super) fn lose(&mut self, id: LockId, cause: LossCause, now: ClockReading) {
        if self.locks.mode_change(id).is_companion() {
            return self.effects.of_lock(id, LockEffect::CompanionExpired);
        }
        let Some(lock) = self.locks.find_mut(id) else { return };
        lock.phase = Phase::Lost(cause);
        self.metrics.lost(cause, lock.granted_at(), now.boot);
        let claim = lock.claim();
        let is_auto_extended = |active: &Active| active.hold.is_auto_extended();
        let is_auto_extended = self.locks.active(id).is_some_and(is_auto_extended);
        self.metrics.auto_extend_losses += u64::from(is_auto_extended);
        if let Some(claim) = self.claims.find_mut(claim) {
            claim.unqueue_all();
        }
        self.events.push_back(Event::Lost(id, cause));
        self.effects.of_lock(id, LockEffect::Lost(cause));
    }

    /// A holder that never lets go of a lost lock is forgotten together with its keys.
    pub(super) fn lost_due(&mut self, id: LockId, now: ClockReading) {
        let Some(lock) = self.locks.find(id) else { return };
        let claim = lock.claim();
        match self.claims.find(claim).map(Claim::forget_at) {
            Some(forget_at) if now.boot < forget_at => self.arm_lock(id, forget_at),
            Some(_) => {
                self.free_claim(claim);
                self.locks.free(id);
            }
            None => self.locks.free(id),
        }
    }

    pub(super) fn begin_release(&mut self, id: LockId, now: ClockReading) {
        let votes = self.ballot();
        let until = now.boot + self.config.settings.response_timeout;
        let Some((lock, active)) = self.locks.activate(id, votes.granted()) else { return };
        lock.begin_round(active, Phase::Releasing, now, votes);
        self.metrics.released(lock.granted_at(), now.boot);
        active.round.lasts_until(until);
        let (claim, queued) = (lock.claim(), active.waiting.is_queued());
        self.arm_lock(id, until);
        self.undo(claim, now);
        let owed = self.claims.find(claim).map_or_else(NodeSet::default, Claim::owed);
        for node in owed.iter() {
            if !self.node(node).link.takes_undos() {
                let (node, mut env) = self.node_in_env(node, now);
                node.reopen(&mut env);
            }
        }
        if queued {
            self.leave_queues_released(id, now);
        }
        self.settle_release(id, now);
        self.run_scheduled();
    }

    /// One node's answer to the undo of a lock that is being released.
    pub(super) fn release_vote(&mut self, node: NodeId, id: LockId, vote: Vote, now: ClockReading) {
        let Some((lock, active)) = self.locks.at_work_mut(id) else { return };
        if lock.phase == Phase::Releasing {
            active.votes.cast(node, vote);
            self.settle_release(id, now);
        }
    }

    /// A release is over when a quorum confirmed it, when nobody is left to answer but nodes that seem to
    /// hang, or when its time is. What is not confirmed stays owed.
    fn settle_release(&mut self, id: LockId, now: ClockReading) {
        let Some((lock, active)) = self.locks.at_work(id) else { return };
        let Some(claim) = self.claims.find(lock.claim()) else { return };
        let confirmed = active.votes.grants().len();
        let awaited =
            |node: NodeId| claim.undoing().contains(node) || self.node(node).link.may_return();
        let over = confirmed >= active.votes.quorum()
            || !claim.owed().without(self.suspected).iter().any(awaited)
            || active.round.is_over(now.boot);
        if over {
            let claim = lock.claim();
            // At most MAX_NODES.
            let of = active.votes.node_count() as u32;
            self.metrics.unconfirmed += u64::from(confirmed < active.votes.quorum());
            self.locks.free(id);
            self.part_from_lock(claim, now);
            let confirmed = Confirmed { nodes: confirmed as u32, of };
            self.events.push_back(Event::Released(id, confirmed));
        }
    }

    /// A link is gone that releases may have waited for.
    pub(super) fn settle_releases(&mut self, now: ClockReading) {
        for at in 0..self.locks.capacity() {
            if let Some(id) = self.locks.at(at)
                && self.locks.find(id).is_some_and(|lock| lock.phase == Phase::Releasing)
            {
                self.settle_release(id, now);
            }
        }
    }

    pub(super) fn release_due(&mut self, id: LockId, now: ClockReading) {
        match self.locks.active(id).map(|active| active.round.until()) {
            Some(until) if now.boot < until => self.arm_lock(id, until),
            _ => self.settle_release(id, now),
        }
    }

    pub(super) fn extension_answered(
        &mut self,
        id: NodeId,
        claim: ClaimId,
        round: u32,
        answer: Count,
        now: ClockReading,
    ) {
        // Those that were under way when the node was refused have failed already. What it has lost is news
        // all the same, also where it may be another node's server that says so.
        if self.node(id).link.is_leaving() {
            if answer == Count::Of(0) {
                self.key_gone(id, claim, now);
            }
            return;
        }
        let mut vote = match answer {
            Count::NoScript => return self.resend_extension(id, claim, round, now),
            Count::Of(0) => Vote::Deny,
            Count::Fail(cause) => Vote::Fail(cause),
            // The key is still there, but it was given up and its undo is on the way.
            Count::Of(_) if self.claims.is_owed(claim, id) => {
                Vote::Fail(self.node(id).link.cause())
            }
            Count::Of(_) if !self.claims.is_counted(claim, id) => Vote::Fail(Cause::NotCounted),
            Count::Of(_) => Vote::Grant,
        };
        if mutant!(ExtensionOfAnySlot) && vote == Vote::Fail(Cause::NotCounted) {
            vote = Vote::Grant;
        }
        self.extension_vote(id, claim, round, vote, now);
    }

    /// Releases that waited for this node only: their undos are under way there, unless its link is not open.
    pub(super) fn releases_go_on_without(&mut self, id: NodeId, now: ClockReading) {
        if !self.node(id).link.takes_undos() {
            return self.settle_releases(now);
        }
        for at in 0..self.node(id).pipeline.len() {
            if let Some(&(Pending::Delete { claim, .. } | Pending::Undo { claim, .. })) =
                self.node(id).pipeline.at(at)
                && let Some(lock) = self.claims.find(claim).and_then(Claim::lock)
                && self.locks.find(lock).is_some_and(|lock| lock.phase == Phase::Releasing)
            {
                self.settle_release(lock, now);
            }
        }
    }
}
