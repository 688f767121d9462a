//! The commands of a core's caller, each applied with all its effects.

use std::time::Duration;

use super::effects::Decision;
use super::locks::Phase;
use super::{Core, DetachedLock, MAX_LOCKS};
use crate::proto::event::RefusalReason;
use crate::proto::names::{LockId, NodeId, ObserverId};
use crate::proto::request::{LockRequest, RequestError, check_lock_name, check_ttl};
use crate::proto::time::{ClockReading, ttl_ms};
use crate::proto::vote::Cause;

impl Core {
    /// Requests a lock from all nodes. The outcome is [`Granted`] or [`Refused`].
    ///
    /// [`Granted`]: crate::proto::Event::Granted
    /// [`Refused`]: crate::proto::Event::Refused
    ///
    /// # Errors
    ///
    /// The request is not valid, or there are too many locks; nothing is sent.
    pub fn acquire(
        &mut self,
        request: &LockRequest<'_>,
        now: ClockReading,
    ) -> Result<LockId, RequestError> {
        request.check(&self.config)?;
        // A claim outlives its lock while an undo is owed, so both are limited.
        if self.locks.len().max(self.claims.len()) >= MAX_LOCKS {
            return Err(RequestError::TooManyLocks);
        }
        let now = self.clamp(now);
        let votes = self.ballot();
        let (id, _, active) = self.locks.begin(request, now, votes);
        self.common.metrics.acquisitions += 1;
        let decision = match active.waits() {
            true => self.with_waiter_and_claims(id, now, |it, claims| it.join_queues(claims)),
            false => Decision::Ask(None),
        };
        self.carry_out(id, decision, now);
        Ok(id)
    }

    /// Releases a lock like [`release`](Self::release), for a caller that may exit before the nodes
    /// answer: one command is sufficient for each node.
    pub fn release_and_leave(&mut self, id: LockId, now: ClockReading) {
        self.caller_leaves = true;
        self.release(id, now);
        self.caller_leaves = false;
    }

    /// Releases a lock, or cancels its acquisition. An unknown id is ignored.
    ///
    /// The outcome is [`Released`]; [`Refused`] with [`Cancelled`] if it was not granted yet;
    /// [`Lost`] if its validity ended before; none if its end was reported already. In every case
    /// each node that may keep a key for the lock is sent an undo.
    ///
    /// [`Released`]: crate::proto::Event::Released
    /// [`Refused`]: crate::proto::Event::Refused
    /// [`Cancelled`]: crate::proto::RefusalReason::Cancelled
    /// [`Lost`]: crate::proto::Event::Lost
    pub fn release(&mut self, id: LockId, now: ClockReading) {
        let now = self.clamp(now);
        // A lock whose validity has ended is reported as lost, not as released.
        self.lease_due(id, now);
        self.run(now);
        let mode_change = self.locks.mode_change(id);
        if mode_change.is_companion() {
            return;
        }
        if mode_change.companion().is_some() {
            self.drop_companion(id, now);
            self.run(now);
        }
        // The end of the lock was reported already.
        let Some(lock) = self.locks.find(id) else { return };
        let claim = lock.claim();
        match lock.phase {
            Phase::Asking | Phase::Fencing | Phase::Pausing | Phase::Queued => {
                self.carry_out(id, Decision::Refused(RefusalReason::Cancelled), now);
            }
            Phase::Extending | Phase::Held => self.begin_release(id, now),
            Phase::Lost(_) => {
                // Some nodes may still have the key of a lost lock.
                self.locks.free(id);
                self.abandon(claim, now);
                self.run_scheduled();
            }
            Phase::Releasing => {}
        }
        self.run(now);
    }

    /// Releases every lock, and cancels every acquisition.
    pub fn release_all(&mut self, now: ClockReading) {
        for at in 0..self.locks.capacity() {
            if let Some(id) = self.locks.at(at) {
                self.release(id, now);
            }
        }
    }

    /// Asks all nodes to keep a held lock for `ttl` from now. The outcome is [`Extended`],
    /// [`NotExtended`] or [`Lost`].
    ///
    /// The validity afterwards is the larger of the old and the new one, as far as a quorum of
    /// nodes still keeps the key for it. A node that reports its key missing no longer counts.
    ///
    /// [`Extended`]: crate::proto::Event::Extended
    /// [`NotExtended`]: crate::proto::Event::NotExtended
    /// [`Lost`]: crate::proto::Event::Lost
    ///
    /// # Errors
    ///
    /// The lock is not held, an extension or a mode change is already in flight, the TTL is out of
    /// range, or the lock would be held for longer than allowed. The lock is unchanged.
    pub fn extend(
        &mut self,
        id: LockId,
        ttl: Duration,
        now: ClockReading,
    ) -> Result<(), RequestError> {
        let now = self.clamp(now);
        // An extension never revives a lock: one whose validity has ended is lost first.
        self.lease_due(id, now);
        self.run(now);
        let lock = self.locks.find(id).ok_or(RequestError::NotHeld)?;
        match lock.phase {
            _ if self.locks.is_extended_by_caller(id) => {
                return Err(RequestError::ExtensionUnderWay);
            }
            // This extension replaces an automatic one.
            Phase::Extending | Phase::Held => {}
            _ => return Err(RequestError::NotHeld),
        }
        check_ttl(&self.config, ttl)?;
        if let Some(max_hold) = self.locks.longest_hold(id, &self.config)
            && now.boot.since(lock.held_since()) + ttl > max_hold
        {
            return Err(RequestError::HeldTooLong { max_hold });
        }
        let change = self.locks.mode_change(id);
        if change.is_under_way() {
            return Err(RequestError::ModeChangeUnderWay);
        }
        let ttl = Duration::from_millis(ttl_ms(ttl));
        for lock in change.kept_reader().into_iter().chain([id]) {
            self.begin_extension(lock, ttl, now);
            self.run(now);
        }
        Ok(())
    }

    /// Tries once to upgrade a shared lock. Its shared claim is kept either way. The outcome is
    /// [`Upgraded`] or [`NotUpgraded`], or [`Lost`] of the lock itself.
    ///
    /// An upgraded lock is exclusive. Its validity counts from the first byte of this request, and
    /// it gets a new fencing token. An extension extends both claims; a release releases both.
    ///
    /// [`Upgraded`]: crate::proto::Event::Upgraded
    /// [`NotUpgraded`]: crate::proto::Event::NotUpgraded
    /// [`Lost`]: crate::proto::Event::Lost
    ///
    /// # Errors
    ///
    /// The lock is not held or not shared, or has been held for too long; an extension or a mode
    /// change is in flight; or there are too many locks.
    pub fn try_upgrade(&mut self, id: LockId, now: ClockReading) -> Result<(), RequestError> {
        let now = self.clamp(now);
        let begun = self.begin_upgrade(id, now);
        self.run(now);
        begun
    }

    /// Downgrades an exclusive lock to a shared one. The holder counts as a reader at once, no
    /// matter what the nodes reply, and keeps its validity and its fencing token. All nodes are
    /// asked to admit other readers. The outcome is [`Downgraded`] or [`DowngradeDelayed`].
    ///
    /// [`Downgraded`]: crate::proto::Event::Downgraded
    /// [`DowngradeDelayed`]: crate::proto::Event::DowngradeDelayed
    ///
    /// # Errors
    ///
    /// The lock is not held or not exclusive, or on several resources.
    pub fn downgrade(&mut self, id: LockId, now: ClockReading) -> Result<(), RequestError> {
        let now = self.clamp(now);
        let checked = self.check_downgrade(id, now);
        self.run(now);
        checked?;
        // The new claim lasts as long as this one; the claim kept by an upgraded lock may not.
        self.drop_companion(id, now);
        self.run(now);
        let begun = self.begin_downgrade(id, now);
        self.run(now);
        begun
    }

    /// Detaches a held lock: this core sends nothing more about it, and the record can be attached
    /// elsewhere. Returns `None` if the lock is not held. There is no event.
    ///
    /// A node that has not answered yet does not count for the record and may miss an extension, so
    /// wait while the lock [awaits answers](Self::awaits_answers) if you can.
    pub fn detach(&mut self, id: LockId, now: ClockReading) -> Option<DetachedLock> {
        let now = self.clamp(now);
        self.locks.find(id).filter(|lock| lock.phase.is_held())?;
        if self.locks.mode_change(id).is_under_way() {
            self.drop_companion(id, now);
            self.run(now);
        }
        let companion = self.locks.mode_change(id).kept_reader();
        for id in companion.into_iter().chain([id]) {
            self.prepare_record(id, now);
        }
        let detached = self.record(id)?;
        self.with_waiter(id, now, |it| it.leave_queues());
        for id in companion.into_iter().chain([id]) {
            let claim = self.locks.find(id)?.claim();
            self.locks.free(id);
            // Nothing is undone: the keys protect the same holder in another process.
            self.free_claim(claim);
        }
        self.common.metrics.detached += 1;
        self.run_scheduled();
        self.run(now);
        Some(detached)
    }

    /// Attaches a lock that was detached by this process or another one on the same machine. It
    /// keeps its lease and is released like any other. Attach a record only once: two cores that
    /// attach it are two holders of one lock.
    ///
    /// If its lease has expired, or dates from an earlier boot of the machine, the lock is lost:
    /// [`Lost`](crate::proto::Event::Lost) follows, and releasing the lock undoes what is left of
    /// it.
    ///
    /// # Errors
    ///
    /// The record was made with other nodes or limits.
    pub fn attach(
        &mut self,
        detached: &DetachedLock,
        now: ClockReading,
    ) -> Result<LockId, RequestError> {
        let now = self.clamp(now);
        let attached = self.begin_attached(detached, now);
        self.run(now);
        attached
    }

    /// Observes the leader by the lock on `resource`. [`Observed`] reports when it is known, and
    /// then each change until [`unobserve`](Self::unobserve). Nothing is written to any node.
    ///
    /// The result is a hint, see [the manual](crate::manual::leader).
    ///
    /// [`Observed`]: crate::proto::Event::Observed
    ///
    /// # Errors
    ///
    /// The name of the resource is empty, too long, that of the restart guard's key, or of a
    /// fencing counter.
    pub fn observe(
        &mut self,
        resource: &[u8],
        now: ClockReading,
    ) -> Result<ObserverId, RequestError> {
        check_lock_name(&self.config, resource)?;
        let now = self.clamp(now);
        let id = self.observers.begin(resource, &mut self.nodes, &mut env!(self, now));
        self.run(now);
        Ok(id)
    }

    /// Opens the push links of all nodes that vote, to find out whether they send notifications.
    /// The outcome is in [`push_state`](Self::push_state).
    pub fn try_push(&mut self, now: ClockReading) {
        let now = self.clamp(now);
        for node in self.config.node_ids() {
            if self.node(node).link.is_ready() {
                self.nodes[node.index()].want_push(&mut env!(self, now));
                self.run(now);
            }
        }
    }

    /// Returns details of why this node failed with `cause`, safe to show.
    #[must_use]
    pub fn detail(&self, node: NodeId, cause: Cause) -> Option<String> {
        let (node, settings) = (self.node(node), &self.config.settings);
        match cause {
            Cause::Quarantined => Some(node.restart_guard.describe(settings.setup, self.boot)),
            Cause::OtherLimits => Some(node.restart_guard.describe_limits(settings)),
            _ => node.words(cause).map(str::to_owned),
        }
    }
}
