//! A holder changes its mode: a reader that tries to become a writer, and a writer that becomes a reader.
//!
//! Nothing is converted. The holder makes a second claim beside the one that it has, under a lock that only the core
//! knows, its *companion*. On the nodes the second claim names the first, which is not in its way; apart from
//! that each is a claim as any other, with a token, a lease and extensions of its own. When the second is granted,
//! the two locks change places, so that the caller's is always the one in force.
//!
//! - A reader that has become a writer keeps its first claim as the companion's, extended with the other one.
//! - A writer that becomes a reader is one from its call on. Its first claim is let go of as a whole once a quorum has
//!   granted the second one, and never before: no node is counted for both.
//!
//! Not here: how a claim names another one, see `claims` and `lock_kind`; and asking, holding and letting go, which are as
//! for every lock.

use std::time::Duration;

use super::effects::{Decision, LockEffect};
use super::{Core, MAX_LOCKS};
use crate::proto::core::claims::Claim;
use crate::proto::core::locks::{Lock, Phase};
use crate::proto::event::{Event, LossCause, Refusal, RefusalReason};
use crate::proto::mutants::mutant;
use crate::proto::names::LockId;
use crate::proto::request::{LockMode, LockRequest, RequestError};
use crate::proto::time::ClockReading;

/// What a lock has to do with a change of its holder's mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModeChange(Part);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    None,
    /// It is the companion of this lock.
    Companion(LockId),
    /// It shares the resource, and its companion asks for it alone.
    Upgrading(LockId),
    /// It has the resource alone, and its companion shares it.
    Upgraded(LockId),
    /// It has the resource alone but counts as one who shares it, which its companion asks for.
    Downgrading(LockId),
    /// The same, but the ask was refused. The next one follows an extension.
    Delayed,
}

impl ModeChange {
    pub(crate) const NONE: Self = Self(Part::None);

    /// Whether the lock has nothing to do with any.
    pub(crate) fn is_none(self) -> bool {
        self == Self::NONE
    }

    /// Whether no caller knows the lock.
    pub(crate) fn is_companion(self) -> bool {
        matches!(self.0, Part::Companion(_))
    }

    /// Whether nodes have refused to let others share it, which an extension asks for again.
    pub(crate) fn is_delayed(self) -> bool {
        self.0 == Part::Delayed
    }

    /// Whether its companion asks to share: until that is decided, its own claim does not get longer.
    pub(crate) fn is_downgrading(self) -> bool {
        matches!(self.0, Part::Downgrading(_))
    }

    /// Whether its companion asks.
    pub(crate) fn is_under_way(self) -> bool {
        matches!(self.0, Part::Upgrading(_) | Part::Downgrading(_))
    }

    /// Its companion, which holds its own claim.
    pub(crate) fn kept_reader(self) -> Option<LockId> {
        match self.0 {
            Part::Upgraded(companion) => Some(companion),
            _ => None,
        }
    }

    /// Its companion, if it has one.
    pub(crate) fn companion(self) -> Option<LockId> {
        match self.0 {
            Part::Upgrading(it) | Part::Upgraded(it) | Part::Downgrading(it) => Some(it),
            Part::None | Part::Companion(_) | Part::Delayed => None,
        }
    }

    /// The lock that it is the companion of.
    pub(crate) fn holder(self) -> Option<LockId> {
        match self.0 {
            Part::Companion(of) => Some(of),
            _ => None,
        }
    }
}

/// Commands.
impl Core {
    pub(super) fn begin_upgrade(
        &mut self,
        id: LockId,
        now: ClockReading,
    ) -> Result<(), RequestError> {
        if self.mode_to_change(id, now)? != LockMode::Shared {
            return Err(RequestError::NotShared);
        }
        if !self.locks.mode_change(id).is_none() {
            return Err(RequestError::ModeChangeUnderWay);
        }
        if self.is_extended_by_caller(id) {
            return Err(RequestError::ExtensionUnderWay);
        }
        if self.locks.len().max(self.claims.len()) >= MAX_LOCKS {
            return Err(RequestError::TooManyLocks);
        }
        let ttl = self.locks.find(id).map_or(Duration::ZERO, Lock::ttl);
        let ttl = ttl.min(self.hold_left(id, now));
        if ttl.is_zero() {
            let max_hold = self.longest_hold(id).unwrap_or_default();
            return Err(RequestError::HeldTooLong { max_hold });
        }
        if let Some(companion) = self.new_companion(id, LockMode::Exclusive, ttl, now) {
            self.set_mode_change(id, Part::Upgrading(companion));
            self.common.effects.decided(companion, Decision::Ask(None));
        }
        Ok(())
    }

    /// Whether a lock can be made a reader's.
    pub(super) fn check_downgrade(
        &mut self,
        id: LockId,
        now: ClockReading,
    ) -> Result<(), RequestError> {
        if self.mode_to_change(id, now)? != LockMode::Exclusive {
            return Err(RequestError::NotExclusive);
        }
        let keys = self.locks.find(id).and_then(|lock| self.claims.find(lock.claim()));
        if let Some(keys) = keys.map(|claim| claim.keys().len()).filter(|&keys| keys > 1) {
            return Err(RequestError::SharedKeys { keys });
        }
        Ok(())
    }

    pub(super) fn begin_downgrade(
        &mut self,
        id: LockId,
        now: ClockReading,
    ) -> Result<(), RequestError> {
        let votes = self.ballot();
        let Some((lock, _)) = self.locks.activate(id, votes.granted()) else {
            return Err(RequestError::NotHeld);
        };
        lock.becomes(LockMode::Shared);
        if mutant!(DowngradeBelievedLate) {
            lock.becomes(LockMode::Exclusive);
        }
        let claim = lock.claim();
        if let Some(claim) = self.claims.find_mut(claim) {
            claim.downgrade();
        }
        if !self.is_held_downgraded(id, now) {
            let refusal = Refusal::new(RefusalReason::NoQuorum, votes);
            self.common.events.push_back(Event::DowngradeDelayed(id, refusal));
        }
        if mutant!(DowngradeReleasesFirst) {
            self.undo(claim, now);
        }
        Ok(())
    }

    /// The mode of a lock that is held.
    fn mode_to_change(&mut self, id: LockId, now: ClockReading) -> Result<LockMode, RequestError> {
        self.lease_due(id, now);
        let lock = self.locks.find(id).filter(|lock| lock.phase.is_held());
        let lock = lock.ok_or(RequestError::NotHeld)?;
        let claim = self.claims.find(lock.claim());
        let profile = claim.map(|claim| claim.kind().profile()).unwrap_or_default();
        match profile.cannot_change_mode() {
            Some(what) => Err(RequestError::ProfileCannot { profile, what }),
            None => Ok(lock.mode()),
        }
    }
}

/// The companion, from its ask to its end.
impl Core {
    /// Makes a lock that asks for the same resource on behalf of this one.
    fn new_companion(
        &mut self,
        id: LockId,
        mode: LockMode,
        ttl: Duration,
        now: ClockReading,
    ) -> Option<LockId> {
        let votes = self.ballot();
        let (lock, active) = self.locks.activate(id, votes.granted())?;
        let claim = self.claims.find(lock.claim())?;
        let mut request = LockRequest::new(claim.keys().first()).ttl(ttl);
        request.auto_extend = active.hold.auto_extend();
        // Whoever shares after a writer keeps that one's token.
        request.fenced = mode == LockMode::Exclusive
            && (active.fencing.is_wanted() || active.fencing.token().is_some());
        request.mode = mode;
        let (companion, _, active) = self.locks.begin(&request, now, votes);
        active.mode_change = ModeChange(Part::Companion(id));
        Some(companion)
    }

    /// Asks all nodes to let a lock share its resource that was exclusive. Whether there was room for that.
    pub(super) fn ask_to_share(&mut self, id: LockId, now: ClockReading) -> bool {
        let is_full = self.locks.len().max(self.claims.len()) >= MAX_LOCKS;
        if !self.locks.mode_change(id).is_delayed() || is_full {
            return !is_full;
        }
        let mut ttl = self.ttl_to_share(id, now);
        if mutant!(DowngradeShortens) {
            ttl = ttl * 3 / 4;
        }
        if let Some(companion) = self.new_companion(id, LockMode::Shared, ttl, now) {
            self.set_mode_change(id, Part::Downgrading(companion));
            self.common.effects.decided(companion, Decision::Ask(None));
        }
        true
    }

    /// For how long a lock may still be held.
    fn hold_left(&self, id: LockId, now: ClockReading) -> Duration {
        let Some(lock) = self.locks.find(id) else { return Duration::ZERO };
        let held = now.boot.since(lock.held_since());
        self.longest_hold(id).map_or(Duration::MAX, |most| most.saturating_sub(held))
    }

    /// For how long a lock is to share its resource: for what is left of it, or its validity would get shorter, and otherwise
    /// no longer than it may be held.
    fn ttl_to_share(&self, id: LockId, now: ClockReading) -> Duration {
        let Some((lock, active)) = self.locks.at_work(id) else { return Duration::ZERO };
        let until = self.claims.find(lock.claim()).map_or(now.boot, Claim::forget_at);
        let asked = match (lock.phase, active.hold.is_auto_extended()) {
            (Phase::Extending, _) => active.hold.extension_ttl(),
            (_, true) => lock.ttl(),
            (_, false) => Duration::ZERO,
        };
        let (left, most) = (until.since(now.boot), self.hold_left(id, now));
        // A node that got the last extension late keeps its key for longer than that was asked for. A TTL may have been longer
        // than the longest hold from the beginning.
        let ttl = if lock.lease.remaining(now) > most { left } else { left.max(asked).min(most) };
        let ttl = Duration::from_millis(ttl.as_nanos().div_ceil(1_000_000) as u64);
        ttl.min(self.config.settings.max_ttl)
    }

    /// A lock that is held has a companion, which shares its resource.
    pub(super) fn is_held_with(&mut self, id: LockId, companion: LockId) {
        self.set_mode_change(id, Part::Upgraded(companion));
        self.set_mode_change(companion, Part::Companion(id));
    }

    /// A lock is held by a writer's claim, and its holder is a reader. Whether nodes could be asked to let others share it.
    pub(super) fn is_held_downgraded(&mut self, id: LockId, now: ClockReading) -> bool {
        self.set_mode_change(id, Part::Delayed);
        self.ask_to_share(id, now)
    }

    /// Completes a mode change: the companion is granted. Its lock may have been lost since.
    pub(super) fn companion_granted(&mut self, companion: LockId, now: ClockReading) {
        let Some(id) = self.locks.mode_change(companion).holder() else { return };
        match self.locks.mode_change(id).0 {
            Part::Upgrading(_) => {
                if mutant!(UpgradeOnOldLease) {
                    let before = self.locks.find(id).map(|lock| lock.lease);
                    let own = self.locks.find_mut(companion).map(|lock| &mut lock.lease);
                    before.zip(own).iter_mut().for_each(|(it, own)| **own = own.longer(*it, now));
                }
                self.change_places(id, companion, now);
                self.set_mode_change(id, Part::Upgraded(companion));
                self.common.metrics.upgrades += 1;
                self.common.events.push_back(Event::Upgraded(id));
            }
            Part::Downgrading(_) => {
                let token = self.fencing_token(id);
                // What was asked for at that time is covered by the new claim.
                let was_extending = self.is_extended_by_caller(id);
                self.change_places(id, companion, now);
                if let Some(active) = self.locks.active_mut(id) {
                    active.fencing.attached(token);
                }
                self.drop_companion(id, now);
                self.common.effects.of_lock(id, LockEffect::Downgraded(was_extending));
                return self.common.effects.of_lock(id, LockEffect::AdmitNext);
            }
            _ => return,
        }
        self.transition(id, now, |lock| lock.auto_extend_from_now());
        self.common.effects.of_lock(id, LockEffect::AdmitNext);
    }

    /// Others may share the lock from now on.
    pub(super) fn downgraded(&mut self, id: LockId, was_extending: bool, now: ClockReading) {
        if was_extending {
            self.common.metrics.extended += 1;
            self.common.events.push_back(Event::Extended(id));
        }
        self.common.metrics.downgrades += 1;
        self.common.events.push_back(Event::Downgraded(id));
        self.transition(id, now, |lock| lock.auto_extend_from_now());
    }

    /// The companion was refused. What its nodes may keep for it is being undone.
    pub(super) fn companion_refused(&mut self, companion: LockId, refusal: Refusal) {
        let Some(id) = self.locks.mode_change(companion).holder() else { return };
        self.locks.free(companion);
        match self.locks.mode_change(id).0 {
            Part::Upgrading(_) => {
                self.set_mode_change(id, Part::None);
                self.common.metrics.upgrades_refused += 1;
                self.common.events.push_back(Event::NotUpgraded(id, refusal));
            }
            Part::Downgrading(_) => {
                self.set_mode_change(id, Part::Delayed);
                self.common.metrics.downgrades_delayed += 1;
                self.common.events.push_back(Event::DowngradeDelayed(id, refusal));
            }
            _ => {}
        }
    }

    /// Lets go of a lock's companion, or takes its ask back.
    pub(super) fn drop_companion(&mut self, id: LockId, now: ClockReading) {
        let Some(companion) = self.locks.mode_change(id).companion() else { return };
        self.set_mode_change(id, Part::None);
        let Some(lock) = self.locks.find(companion) else { return };
        let claim = lock.claim();
        self.locks.free(companion);
        self.abandon(claim, now);
        self.run_scheduled();
    }

    /// A lock is lost, and so is its companion. What that has keeps others out for a little longer, as what the lock has does.
    pub(super) fn lost_with_companion(&mut self, id: LockId, cause: LossCause, now: ClockReading) {
        let Some(companion) = self.locks.mode_change(id).kept_reader() else {
            return self.drop_companion(id, now);
        };
        let Some(lock) = self.locks.find_mut(companion) else { return };
        lock.phase = Phase::Lost(cause);
        // A node that is reached later must not get a key of a lock that is lost.
        if let Some(claim) = self.claims.find_mut(lock.claim()) {
            claim.unqueue_all();
        }
        self.lost_due(companion, now);
    }

    /// The caller's lock and its companion change places, each with its claim.
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

    /// Whether an extension is under way that its caller waits for.
    fn is_extended_by_caller(&self, id: LockId) -> bool {
        let extends = |lock: &Lock| lock.phase == Phase::Extending;
        let active = self.locks.at_work(id).filter(|(lock, _)| extends(lock)).map(|(_, it)| it);
        active.is_some_and(|active| !active.hold.is_extended_by_itself())
    }

    fn set_mode_change(&mut self, id: LockId, part: Part) {
        if let Some(active) = self.locks.active_mut(id) {
            active.mode_change = ModeChange(part);
        }
    }
}
