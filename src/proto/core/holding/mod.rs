//! While a lock is held: extension, release, and loss.
//!
//! Apart from `acquiring`, since from the grant on nothing may shorten what the holder was promised. Not here: the undo
//! that a release consists of, see `claims`.

mod auto_extend;
mod backing;

use std::time::Duration;

use self::backing::Backing;
use super::effects::{ClaimEffect, LockEffect};
use super::{Core, Env, LockAtWork};
use crate::proto::answer::Count;
use crate::proto::config::Config;
use crate::proto::core::claims::Claim;
use crate::proto::core::links::{Nodes, Pending};
use crate::proto::core::locks::{Lock, Locks, Phase};
use crate::proto::event::{Confirmed, Event, LossCause, Refusal, RefusalReason};
use crate::proto::lease::Lease;
use crate::proto::mutants::mutant;
use crate::proto::names::{ClaimId, LockId, NodeId, NodeSet};
use crate::proto::request::AutoExtend;
use crate::proto::sentinel_answer;
use crate::proto::time::{ClockReading, Timestamp, ttl_ms};
use crate::proto::vote::{Cause, Vote, Votes};

/// What is known of a lock while it is held: its extensions, and what its lease rests on.
#[derive(Debug)]
pub(super) struct Hold {
    extension: Extension,
    backing: Backing,
    auto_extension: AutoExtension,
}

/// The extension that is in flight, or was the last.
#[derive(Debug)]
struct Extension {
    ttl: Duration,
    /// How long a node that extends keeps the key.
    lease: Lease,
    /// The nodes whose link it waits for.
    queued: NodeSet,
}

/// The timer of a lock that is extended automatically; without options it is off.
#[derive(Debug)]
struct AutoExtension {
    options: Option<AutoExtend>,
    /// When the next extension is due; never if the lock has been held for long enough.
    at: Timestamp,
    /// The extension in flight was started by the timer.
    is_extending: bool,
    /// The last extension failed, which was reported.
    has_failed: bool,
}

impl Hold {
    pub(super) const fn new() -> Self {
        Self {
            extension: Extension {
                ttl: Duration::ZERO,
                lease: Lease::NONE,
                queued: NodeSet::EMPTY,
            },
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
        self.extension.queued = NodeSet::EMPTY;
    }

    pub(super) fn is_auto_extended(&self) -> bool {
        self.auto_extension.options.is_some()
    }

    /// Whether the extension that is under way came by itself.
    pub(super) fn is_extended_by_itself(&self) -> bool {
        self.auto_extension.is_extending
    }

    /// How it is auto-extended, if it is.
    pub(super) fn auto_extend(&self) -> Option<AutoExtend> {
        self.auto_extension.options
    }

    /// The TTL of the extension that is under way, or was the last.
    pub(super) fn extension_ttl(&self) -> Duration {
        self.extension.ttl
    }

    /// When it is extended by itself.
    pub(super) fn due(&self) -> Timestamp {
        self.auto_extension.at
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
    pub(super) fn heal(&mut self, node: NodeId, lease: Lease, now: ClockReading) {
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

    /// How long a lock may be held, by its ask and by the configuration.
    pub(super) fn longest(hold: Option<&Self>, config: &Config) -> Option<Duration> {
        let own = hold.and_then(|hold| hold.auto_extension.options?.max_hold);
        own.into_iter().chain(config.settings.max_hold).min()
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
        if self.auto_extension.has_failed { LossCause::Unextended } else { LossCause::Expired }
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

/// Extension.
impl LockAtWork<'_> {
    /// Asks all nodes to keep the key for `ttl`. The flag: the extension comes by itself.
    fn begin_extension(&mut self, ttl: Duration, by_itself: bool) {
        let (now, config, of) = (self.env.now, self.env.config, self.nodes.len());
        let until = now.boot + self.nodes.extension_patience(ttl, config);
        // An answer that comes behind the end of the lease cannot save the lock any more.
        let until = until.min(self.lock.lease.ends());
        // At most MAX_NODES.
        let votes = Votes::new(of as u8, config.quorum);
        self.active.hold.backing.begin(self.claim.counted(), self.lock.lease, of);
        self.lock.begin_round(self.active, Phase::Extending, now, votes);
        let hold = &mut self.active.hold;
        // The new lease counts from before the first command leaves: no node can have set the TTL
        // earlier.
        hold.extension.ttl = ttl;
        hold.extension.lease = Lease::new(now, ttl, config.drift);
        hold.auto_extension.is_extending = by_itself;
        self.active.round.lasts_until(until);
        self.arm(until);
        // Asks that still wait for a link have missed the lease that they were for.
        self.claim.unqueue_all();
        config.node_ids().for_each(|node| self.offer_extension(node));
        self.settle_extension();
    }

    /// Extends on one node, now or as soon as its link is back.
    fn offer_extension(&mut self, node_id: NodeId) {
        let node = &mut self.nodes[node_id.index()];
        let takes = node.link.takes_extensions();
        if takes && node.pipeline.len() < super::MAX_PIPELINE {
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
        // The key may live that long from the moment the command leaves, whether its answer arrives
        // or not.
        self.claim.lives_until(self.env.now.boot + ttl);
        let pending = |by_digest| Pending::Extend { claim, round, by_digest };
        self.send(node, self.claim.kind().extend, (ttl_ms(ttl), 0), pending);
    }

    /// The connection was lost with the extension of this round in it. It never shortens anything, so it may run
    /// twice: it waits for the next connection.
    pub(super) fn offer_extension_again(&mut self, node: NodeId, round: u32) {
        if self.lock.phase == Phase::Extending && self.lock.round() == round {
            self.offer_extension(node);
            self.settle_extension();
        }
    }

    /// Sends an extension once more, after the node forgot its script: also where a quorum has extended
    /// meanwhile, since the key there is to live as long.
    fn resend_extension(&mut self, node: NodeId, round: u32) {
        let votes = &self.active.votes;
        let succeeds =
            self.lock.phase == Phase::Extending || votes.grants().len() >= votes.quorum();
        if self.lock.phase.is_held() && self.lock.round() == round && succeeds {
            self.send_extension(node);
            self.settle_extension();
        }
    }

    fn take_extension(&mut self, node: NodeId, round: u32, answer: Count) {
        let mut vote = match answer {
            Count::NoScript => return self.resend_extension(node, round),
            Count::Of(0) => Vote::Deny,
            Count::Fail(cause) => Vote::Fail(cause),
            // The key is still there, but it was given up and its undo is on the way.
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
        // A master that was just promoted holds a copy of the key, while the old one may still vote
        // for others.
        if vote == Vote::Grant && !self.counts_extension(node) {
            vote = Vote::Fail(Cause::Quarantined);
        }
        self.extension_vote(node, round, vote);
    }

    /// One node's answer to an extension, or why it has none. That it was extended is known only of the present round, also
    /// behind the verdict.
    pub(super) fn extension_vote(&mut self, node: NodeId, round: u32, vote: Vote) {
        if mutant!(ReleaseOvertaken) && self.lock.phase == Phase::Releasing {
            return self.prolong(self.active.votes.quorum());
        }
        // An answer of an earlier round is about an earlier TTL.
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

    /// Whether the answer of a node that extended a lock counts.
    ///
    /// A master that sentinels have just named has the keys of the one before it. That one votes on for
    /// clients to whom most sentinels named it before most named the new one to us, for a word's time
    /// (`crates/models/src/promotion.rs`). Until the new master votes, an extension counts only if the old
    /// master keeps the key for longer than that, so that it denies them.
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

    /// A quorum extends, while the present validity lasts. Where so many keys are gone that no quorum is left, the lock was
    /// lost at once; as long as the missing answers can still show that, no failure is reported.
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
        // A failure is reported once no answer to come can make a quorum, unless so many keys are
        // gone that it is a loss.
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

    /// A quorum has extended.
    fn prolong(&mut self, quorum: usize) {
        let (lock, hold, now) = (&mut *self.lock, &mut self.active.hold, self.env.now);
        let before = lock.lease.remaining(now);
        // Each node counts with the later of its two leases, so a slow node's extension from before
        // helps this one.
        lock.lease = match hold.backing.lease(quorum, now) {
            // What a node has said before counts as well, also where the wall clock made less of it for a while.
            Some(lease) => lock.lease.longer(lease, now),
            None => hold.extension.lease,
        };
        debug_assert!(lock.lease.remaining(now) >= before, "an extension shortens nothing");
        lock.phase = Phase::Held;
        self.arm(self.active.hold.loss_due(self.lock, now));
        self.extended();
    }

    fn extension_due(&mut self) {
        for node in self.active.votes.missing().iter() {
            self.active.votes.cast(node, Vote::Fail(Cause::NoAnswer));
            self.env.metrics.of(node).timeouts += 1;
        }
        self.settle_extension();
    }
}

/// Loss.
impl LockAtWork<'_> {
    /// A node no longer has the key of a lock that is held: its lease is what the others support, or the lock is lost.
    fn lose_key(&mut self, node: NodeId) {
        let (quorum, now) = (self.env.config.quorum(), self.env.now);
        let (lock, backing) = (&mut *self.lock, &mut self.active.hold.backing);
        // It must not extend again: what it would extend is no longer there, or another holder's.
        self.claim.gone(node);
        backing.begin(self.claim.counted(), lock.lease, self.nodes.len());
        backing.gone(node);
        let before = lock.lease.remaining(now);
        // A quorum of the other nodes may still keep the key, for a part of the lease at least.
        lock.lease = lock.lease.and(backing.lease(quorum, now).unwrap_or_default());
        let left = lock.lease.remaining(now);
        if left.is_zero() {
            return self.lose(LossCause::Gone);
        }
        self.arm(self.active.hold.loss_due(self.lock, now));
        if left < before {
            let is_known = !self.active.mode_change.is_companion();
            self.env.events.extend(is_known.then_some(Event::Shortened(self.id)));
            self.auto_extend_soon();
        }
    }

    /// A lock that is held: is its validity over, or the time of its extension? Returns whether it becomes idle.
    fn lease_due(&mut self) -> bool {
        if !self.lock.phase.is_held() {
            return false;
        }
        let remaining = self.lock.lease.remaining(self.env.now);
        if let Some(cause) = self.active.hold.lost_with(self.lock, remaining) {
            self.lose(cause);
            return false;
        }
        self.arm(self.active.hold.loss_due(self.lock, self.env.now));
        let is_over = self.active.round.is_over(self.env.now.boot);
        match self.lock.phase {
            Phase::Extending if is_over => self.extension_due(),
            _ if !is_over => self.arm(self.active.round.until()),
            _ => return self.round_over(),
        }
        false
    }

    /// The time of a held lock's round is over. Asks that still wait for a link are withdrawn, so that none is
    /// sent long after. Returns whether nothing is left to be known about the lock, so that it takes less memory.
    fn round_over(&mut self) -> bool {
        self.claim.unqueue_all();
        let counted = self.claim.counted();
        let backed = self.active.hold.backing.of(counted, &self.lock.lease);
        self.lock.phase == Phase::Held && self.active.is_done() && backed == counted
    }

    /// Nothing is sent: what the nodes still keep protects whatever the holder is doing.
    pub(super) fn lose(&mut self, cause: LossCause) {
        if self.active.mode_change.is_companion() {
            return self.env.effects.of_lock(self.id, LockEffect::CompanionExpired);
        }
        // From here on no answer brings the lock back: its phase is not one that counts votes.
        self.lock.phase = Phase::Lost(cause);
        self.env.common.metrics.lost(cause, self.lock.granted_at(), self.env.now.boot);
        self.env.metrics.auto_extend_losses += u64::from(self.active.hold.is_auto_extended());
        self.claim.unqueue_all();
        self.env.report(Event::Lost(self.id, cause));
        self.env.effects.of_lock(self.id, LockEffect::Lost(cause));
    }
}

/// Release.
impl LockAtWork<'_> {
    /// One node's answer to the undo of a lock that is being released.
    #[inline]
    pub(super) fn take_release_vote(
        &mut self,
        node: NodeId,
        vote: Vote,
    ) -> Option<(ClaimId, Confirmed)> {
        if self.lock.phase == Phase::Releasing {
            self.active.votes.cast(node, vote);
        }
        self.release_result()
    }

    pub(super) fn release_due(&mut self) -> Option<(ClaimId, Confirmed)> {
        if self.active.round.is_over(self.env.now.boot) {
            return self.release_result();
        }
        self.arm(self.active.round.until());
        None
    }

    /// A release is over when a quorum confirmed it, when nobody is left to answer but nodes that seem to
    /// hang, or when its time is. What is not confirmed stays owed.
    #[inline]
    fn release_result(&mut self) -> Option<(ClaimId, Confirmed)> {
        let (claim, votes) = (&self.claim, &self.active.votes);
        let confirmed = votes.grants().len();
        let awaited = |node: NodeId| {
            claim.undoing().contains(node) || self.nodes[node.index()].link.may_return()
        };
        // Past a quorum of deleted keys others can get the lock. The rest stays owed and is undone
        // behind the result.
        let over = confirmed >= votes.quorum()
            || !claim.owed().without(self.env.suspected).iter().any(awaited)
            || self.active.round.is_over(self.env.now.boot);
        if !over || self.lock.phase != Phase::Releasing {
            return None;
        }
        self.env.metrics.unconfirmed += u64::from(confirmed < votes.quorum());
        // At most MAX_NODES.
        let confirmed = Confirmed { nodes: confirmed as u32, of: votes.node_count() as u32 };
        Some((self.lock.claim(), confirmed))
    }
}

impl Core {
    /// Extends a lock that is held, at work or idle.
    pub(super) fn begin_extension(&mut self, id: LockId, ttl: Duration, now: ClockReading) {
        self.locks.activate(id, self.ballot().granted());
        self.transition(id, now, |lock| lock.begin_extension(ttl, false));
    }

    /// Sends the extensions that waited for this node's link.
    pub(super) fn send_queued_extensions(&mut self, node: NodeId, now: ClockReading) {
        for id in self.locks.take_queued_extensions(node) {
            self.transition(id, now, |lock| lock.send_extension(node));
        }
    }

    /// Fails the extensions that wait for a link which will not open.
    pub(super) fn fail_queued_extensions(&mut self, node: NodeId) {
        let vote = Vote::Fail(self.node(node).link.cause());
        let waiting = self.locks.take_queued_extensions(node);
        let effect = LockEffect::ExtensionVote(node, vote);
        self.common.effects.of_locks(waiting.into_iter(), effect);
    }

    pub(super) fn extension_answered(
        &mut self,
        node: NodeId,
        claim: ClaimId,
        round: u32,
        answer: Count,
        now: ClockReading,
    ) {
        // That a key is gone is news whatever round it was asked in, and also where it may be another node's server that says so.
        if answer == Count::Of(0) {
            self.key_gone(node, claim, now);
        }
        // Those that were under way when the node was refused have failed already.
        if !self.node(node).link.is_leaving() {
            self.transition(claim, now, |lock| lock.take_extension(node, round, answer));
        }
    }

    /// A node no longer has the key of a lock: what was counted on it ends.
    pub(super) fn key_gone(&mut self, node: NodeId, claim: ClaimId, now: ClockReading) {
        let Some(claim) = self.claims.find_mut(claim) else { return };
        let Some((id, lock)) = claim.lock().and_then(|id| Some((id, self.locks.find(id)?))) else {
            return;
        };
        let is_relied_on = lock.phase.is_held() && claim.counted().contains(node);
        if lock.phase == Phase::Fencing {
            // It is not granted yet, and its lease will not rest on this node.
            claim.gone(node);
        } else if is_relied_on && !lock.lease.remaining(now).is_zero() {
            self.locks.activate(id, self.ballot().granted());
            self.transition(id, now, |lock| lock.lose_key(node));
        }
    }

    /// A lock that is held: is its validity over, or the time of its extension?
    pub(super) fn lease_due(&mut self, id: LockId, now: ClockReading) {
        match self.transition(id, now, |lock| lock.lease_due()) {
            Some(true) => self.locks.put_away(id),
            Some(false) => {}
            None => self.locks.idle_lease_due(id, &mut env!(self, now)),
        }
    }

    /// A holder that never lets go of a lost lock is forgotten together with its keys.
    pub(super) fn lost_due(&mut self, id: LockId, now: ClockReading) {
        let Some(lock) = self.locks.find(id) else { return };
        let claim = lock.claim();
        let forget_at = self.claims.find(claim).map_or(now.boot, Claim::forget_at);
        // Until then some node may still have the key, and a release by its holder can free it
        // early.
        if now.boot < forget_at {
            return self.arm_lock(id, forget_at);
        }
        self.free_claim(claim);
        self.locks.free(id);
    }

    pub(super) fn begin_release(&mut self, id: LockId, now: ClockReading) {
        let votes = self.ballot();
        let until = now.boot + self.config.settings.response_timeout;
        let Some((lock, active)) = self.locks.activate(id, votes.granted()) else { return };
        lock.begin_round(active, Phase::Releasing, now, votes);
        self.common.metrics.released(lock.granted_at(), now.boot);
        active.round.lasts_until(until);
        let (claim, queued) = (lock.claim(), active.waiting.is_queued());
        self.arm_lock(id, until);
        for node in self.undo(claim, now).iter() {
            let (node, mut env) = self.node_in_env(node, now);
            if !node.link.takes_undos() {
                node.reopen(&mut env);
            }
        }
        if queued {
            self.with_waiter(id, now, |it| it.leave_queues_released());
        }
        self.release_by(id, now, |lock| lock.release_result());
        self.run_scheduled();
    }

    /// Takes a step of a release, which may be over then.
    #[inline]
    pub(super) fn release_by(
        &mut self,
        id: LockId,
        now: ClockReading,
        step: impl FnOnce(&mut LockAtWork<'_>) -> Option<(ClaimId, Confirmed)>,
    ) {
        if let Some((claim, confirmed)) = self.transition(id, now, step).flatten() {
            self.locks.free(id);
            self.part_from_lock(claim, now);
            self.common.events.push_back(Event::Released(id, confirmed));
        }
    }

    /// A link is gone that releases may have waited for.
    pub(super) fn settle_releases(&mut self, now: ClockReading) {
        for at in 0..self.locks.capacity() {
            if let Some(id) = self.locks.at(at) {
                self.release_by(id, now, |lock| lock.release_result());
            }
        }
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
            {
                self.release_by(lock, now, |lock| lock.release_result());
            }
        }
    }
}

impl Locks {
    pub(super) fn longest_hold(&self, id: LockId, config: &Config) -> Option<Duration> {
        Hold::longest(self.active(id).map(|active| &active.hold), config)
    }

    /// Nothing is under way for an idle lock, and nothing extends it.
    fn idle_lease_due(&mut self, id: LockId, env: &mut Env<'_>) {
        let (now, cause) = (env.now, LossCause::Expired);
        if let Some(lock) = self.find_mut(id).filter(|lock| lock.phase.is_held()) {
            let remaining = lock.lease.remaining(now);
            if !remaining.is_zero() {
                self.arm(id, now.boot + remaining);
                return env.arm(now.boot + remaining);
            }
            lock.phase = Phase::Lost(cause);
            env.metrics.lost(cause, lock.granted_at(), now.boot);
            env.report(Event::Lost(id, cause));
            env.effects.of_lock(id, LockEffect::Lost(cause));
        }
    }

    fn take_queued_extensions(&mut self, node: NodeId) -> Vec<LockId> {
        let mut waiting: Vec<_> = self.ids().collect();
        waiting.retain(|&id| {
            // Also where a quorum has extended meanwhile: the key there is to live as long.
            self.at_work_mut(id).is_some_and(|(lock, active)| {
                lock.phase.is_held() && active.hold.extension.queued.take(node)
            })
        });
        waiting
    }
}
