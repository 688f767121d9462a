//! The commands that change a mode, and the companion from its request to its end.

use std::time::Duration;

use super::ModeChange;
use crate::proto::core::effects::{Decision, LockEffect};
use crate::proto::core::locks::{Lock, Locks, Phase};
use crate::proto::core::{Core, LockAtWork, MAX_LOCKS, claims::Claim, holding::Hold};
use crate::proto::event::{Event, LossCause, Refusal, RefusalReason};
use crate::proto::request::{LockRequest, RequestError};
use crate::proto::{lock_mode::LockMode, mutants::mutant, names::LockId, time::ClockReading};

impl Core {
    pub(in crate::proto::core) fn begin_upgrade(
        &mut self,
        id: LockId,
        now: ClockReading,
    ) -> Result<(), RequestError> {
        let (lock, _) = self.held(id, now)?;
        let (mode, ttl, held) = (lock.mode(), lock.ttl(), now.boot.since(lock.held_since()));
        if mode != LockMode::Shared {
            return Err(RequestError::NotShared);
        }
        if self.locks.mode_change(id) != ModeChange::None {
            return Err(RequestError::ModeChangeUnderWay);
        }
        if self.locks.is_extended_by_caller(id) {
            return Err(RequestError::ExtensionUnderWay);
        }
        if self.locks.len().max(self.claims.len()) >= MAX_LOCKS {
            return Err(RequestError::TooManyLocks);
        }
        let max_hold = self.locks.longest_hold(id, &self.config).unwrap_or(Duration::MAX);
        // The second claim must not prolong the hold beyond what the first was allowed.
        let ttl = ttl.min(max_hold.saturating_sub(held));
        if ttl.is_zero() {
            return Err(RequestError::HeldTooLong { max_hold });
        }
        self.begin_companion(id, LockMode::Exclusive, ttl, now);
        Ok(())
    }

    /// Checks that a lock can be made a reader's.
    pub(in crate::proto::core) fn check_downgrade(
        &mut self,
        id: LockId,
        now: ClockReading,
    ) -> Result<(), RequestError> {
        let (lock, claim) = self.held(id, now)?;
        match claim.keys().len() {
            _ if lock.mode() != LockMode::Exclusive => Err(RequestError::NotExclusive),
            keys @ 2.. => Err(RequestError::SharedKeys { keys }),
            _ => Ok(()),
        }
    }

    pub(in crate::proto::core) fn begin_downgrade(
        &mut self,
        id: LockId,
        now: ClockReading,
    ) -> Result<(), RequestError> {
        let votes = self.ballot();
        let Some((lock, _)) = self.locks.activate(id, votes.granted()) else {
            return Err(RequestError::NotHeld);
        };
        // Before any node is asked: from the first grant on, others may share the resource.
        lock.becomes(LockMode::Shared);
        if mutant!(DowngradeBelievedLate) {
            lock.becomes(LockMode::Exclusive);
        }
        let claim = lock.claim();
        self.claims.find_mut(claim).into_iter().for_each(Claim::downgrade);
        self.locks.set_mode_change(id, ModeChange::Delayed);
        if !self.ask_to_share(id, now) {
            let refusal = Refusal::new(RefusalReason::NoQuorum, votes);
            self.common.events.push_back(Event::DowngradeDelayed(id, refusal));
        }
        if mutant!(DowngradeReleasesFirst) {
            self.undo(claim, now);
        }
        Ok(())
    }

    /// Returns a held lock that may change its mode, with its claim.
    fn held(&mut self, id: LockId, now: ClockReading) -> Result<(&Lock, &Claim), RequestError> {
        self.lease_due(id, now);
        let lock = self.locks.find(id).filter(|lock| lock.phase.is_held());
        let held = lock.and_then(|lock| Some((lock, self.claims.find(lock.claim())?)));
        let (lock, claim) = held.ok_or(RequestError::NotHeld)?;
        let profile = claim.kind().profile();
        match profile.cannot_change_mode() {
            Some(what) => Err(RequestError::ProfileCannot { profile, what }),
            None => Ok((lock, claim)),
        }
    }
}

impl Core {
    /// Creates a lock that requests the same resource on behalf of this one.
    fn begin_companion(&mut self, id: LockId, mode: LockMode, ttl: Duration, now: ClockReading) {
        let votes = self.ballot();
        let Some((lock, active)) = self.locks.activate(id, votes.granted()) else { return };
        let Some(claim) = self.claims.find(lock.claim()) else { return };
        let mut request = LockRequest::new(claim.keys().first()).ttl(ttl);
        request.auto_extend = active.hold.auto_extend();
        // Readers that follow a writer keep its token.
        request.fenced = mode == LockMode::Exclusive
            && (active.fencing.is_wanted() || active.fencing.token().is_some());
        request.mode = mode;
        let (companion, _, active) = self.locks.begin(&request, now, votes);
        active.mode_change = ModeChange::Companion(id);
        let change = match mode {
            LockMode::Exclusive => ModeChange::Upgrading(companion),
            _ => ModeChange::Downgrading(companion),
        };
        self.locks.set_mode_change(id, change);
        self.common.effects.decided(companion, Decision::Ask(None));
    }

    /// Asks all nodes to let an exclusive lock share its resource. Returns whether there was room
    /// for a companion.
    pub(in crate::proto::core) fn ask_to_share(&mut self, id: LockId, now: ClockReading) -> bool {
        let is_full = self.locks.len().max(self.claims.len()) >= MAX_LOCKS;
        if self.locks.mode_change(id) != ModeChange::Delayed || is_full {
            return !is_full;
        }
        let mut ttl = self.transition(id, now, |lock| lock.ttl_to_share()).unwrap_or_default();
        if mutant!(DowngradeShortens) {
            ttl = ttl * 3 / 4;
        }
        self.begin_companion(id, LockMode::Shared, ttl, now);
        true
    }

    /// Completes a mode change whose companion is granted. The caller's lock may have been lost
    /// since.
    pub(in crate::proto::core) fn companion_granted(
        &mut self,
        companion: LockId,
        now: ClockReading,
    ) {
        let Some(id) = self.locks.mode_change(companion).holder() else { return };
        match self.locks.mode_change(id) {
            ModeChange::Upgrading(_) => {
                if mutant!(UpgradeOnOldLease) {
                    let before = self.locks.find(id).map(|lock| lock.lease);
                    let own = self.locks.find_mut(companion).map(|lock| &mut lock.lease);
                    before.zip(own).iter_mut().for_each(|(it, own)| **own = own.longer(*it, now));
                }
                // The lease in force is the writer's: the reader's says nothing about the quorum
                // that excludes others.
                self.change_places(id, companion, now);
                self.locks.set_mode_change(id, ModeChange::Upgraded(companion));
                self.common.metrics.upgrades += 1;
                self.common.events.push_back(Event::Upgraded(id));
                self.transition(id, now, |lock| lock.auto_extend_from_now());
            }
            ModeChange::Downgrading(_) => {
                let token = self.fencing_token(id);
                // An extension that the caller has requested is covered by the new claim.
                let was_extending = self.locks.is_extended_by_caller(id);
                self.change_places(id, companion, now);
                if let Some(active) = self.locks.active_mut(id) {
                    active.fencing.attached(token);
                }
                // Only now: if the writer's claim had gone before, another writer could have come
                // in between.
                self.drop_companion(id, now);
                self.common.effects.of_lock(id, LockEffect::Downgraded(was_extending));
            }
            _ => return,
        }
        self.common.effects.of_lock(id, LockEffect::AdmitNext);
    }

    /// Ends a mode change whose companion was refused. The undo of its claim has begun.
    pub(in crate::proto::core) fn companion_refused(
        &mut self,
        companion: LockId,
        refusal: Refusal,
    ) {
        let Some(id) = self.locks.mode_change(companion).holder() else { return };
        self.locks.free(companion);
        match self.locks.mode_change(id) {
            ModeChange::Upgrading(_) => {
                self.locks.set_mode_change(id, ModeChange::None);
                self.common.metrics.upgrades_refused += 1;
                self.common.events.push_back(Event::NotUpgraded(id, refusal));
            }
            ModeChange::Downgrading(_) => {
                self.locks.set_mode_change(id, ModeChange::Delayed);
                self.common.metrics.downgrades_delayed += 1;
                self.common.events.push_back(Event::DowngradeDelayed(id, refusal));
            }
            _ => {}
        }
    }

    /// Releases a lock's companion, or cancels its request.
    pub(in crate::proto::core) fn drop_companion(&mut self, id: LockId, now: ClockReading) {
        let Some(companion) = self.locks.mode_change(id).companion() else { return };
        self.locks.set_mode_change(id, ModeChange::None);
        let Some(lock) = self.locks.find(companion) else { return };
        let claim = lock.claim();
        // Its requests may be in flight, and a late grant must find its undo behind it.
        self.locks.free(companion);
        self.abandon(claim, now);
        self.run_scheduled();
    }

    /// Loses a lock together with its companion. The keys of both keep others out a little longer.
    pub(in crate::proto::core) fn lost_with_companion(
        &mut self,
        id: LockId,
        cause: LossCause,
        now: ClockReading,
    ) {
        let Some(companion) = self.locks.mode_change(id).kept_reader() else {
            return self.drop_companion(id, now);
        };
        let Some(lock) = self.locks.find_mut(companion) else { return };
        lock.phase = Phase::Lost(cause);
        // A node that is reached later must not get a key of a lock that is lost.
        self.claims.find_mut(lock.claim()).into_iter().for_each(Claim::unqueue_all);
        self.lost_due(companion, now);
    }

    /// Exchanges the caller's lock and its companion, each with its claim.
    fn change_places(&mut self, id: LockId, companion: LockId, now: ClockReading) {
        self.locks.exchange(id, companion);
        for lock in [id, companion] {
            let claim = self.locks.find(lock).map(|lock| lock.claim());
            if let Some(claim) = claim.and_then(|claim| self.claims.find_mut(claim)) {
                claim.passes_to(lock);
            }
            self.arm_lock(lock, now.boot);
        }
    }
}

impl LockAtWork<'_> {
    /// Returns the TTL for which the lock requests to share. It covers the rest of the validity,
    /// and is otherwise no longer than the lock may be held.
    fn ttl_to_share(&self) -> Duration {
        let (lock, hold, now) = (&self.lock, &self.active.hold, self.env.now);
        let asked = match (lock.phase, hold.is_auto_extended()) {
            (Phase::Extending, _) => hold.extension_ttl(),
            (_, true) => lock.ttl(),
            (_, false) => Duration::ZERO,
        };
        let longest = Hold::longest(Some(hold), self.env.config).unwrap_or(Duration::MAX);
        let most = longest.saturating_sub(now.boot.since(lock.held_since()));
        let left = self.claim.forget_at().since(now.boot);
        // A node that got the last extension late keeps its key for longer than was asked, so
        // `left` is limited too. The validity is longer than `most` only if the TTL always was.
        let ttl = if lock.lease.remaining(now) > most { left } else { left.max(asked).min(most) };
        let ttl = Duration::from_millis(ttl.as_nanos().div_ceil(1_000_000) as u64);
        ttl.min(self.env.settings().max_ttl)
    }

    /// Reports that others may share the resource from now on.
    pub(crate) fn downgraded(&mut self, was_extending: bool) {
        if was_extending {
            self.env.metrics.extended += 1;
            self.env.report(Event::Extended(self.id));
        }
        self.env.metrics.downgrades += 1;
        self.env.report(Event::Downgraded(self.id));
        self.auto_extend_from_now();
    }
}

impl Locks {
    /// Pairs a held lock with a companion that shares its resource.
    pub(crate) fn pair(&mut self, id: LockId, companion: LockId) {
        self.set_mode_change(id, ModeChange::Upgraded(companion));
        self.set_mode_change(companion, ModeChange::Companion(id));
    }

    pub(crate) fn set_mode_change(&mut self, id: LockId, mode_change: ModeChange) {
        if let Some(active) = self.active_mut(id) {
            active.mode_change = mode_change;
        }
    }

    /// Returns whether an extension is in flight for which the caller waits.
    pub(crate) fn is_extended_by_caller(&self, id: LockId) -> bool {
        self.at_work(id).is_some_and(|(lock, active)| {
            lock.phase == Phase::Extending && !active.hold.is_extended_by_itself()
        })
    }
}
