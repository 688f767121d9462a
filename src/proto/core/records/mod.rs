//! Locks that leave this core for another process, or come from one.
//!
//! A *detached* lock is forgotten by this core: it sends no more requests and no undo for it. An
//! *attached* lock is held from then on like any other. The rules are in
//! docs/how-it-works/protocol.md.

pub(super) mod detached;
mod form;

use self::detached::{DetachedLock, DetachedNode, Part};
use self::form::{Form, SecondClaim};
use super::Core;
use crate::proto::core::links::{Node, Pending};
use crate::proto::core::{claims::Claim, locks::Phase, mode_change::ModeChange};
use crate::proto::names::{ClaimId, LockId};
use crate::proto::time::{ClockReading, ttl_ms};
use crate::proto::{event::LossCause, profile::Profile, request::RequestError, vote::Vote};

impl Core {
    /// Ends the requests of a lock, and reduces its lease to what a quorum of nodes supports.
    pub(super) fn prepare_record(&mut self, id: LockId, now: ClockReading) {
        let Some(claim) = self.locks.find(id).map(|lock| lock.claim()) else { return };
        for node in self.nodes.all().iter() {
            self.at_claim(claim, now, |claim| claim.withdraw(node));
        }
        if let Some((lock, active)) = self.locks.at_work_mut(id) {
            let quorum = usize::from(self.config.quorum);
            // The nodes that support it must be a quorum on both clocks, see `Backing::lease`.
            lock.lease = lock.lease.and(active.hold.supported(quorum, now).unwrap_or(lock.lease));
        }
    }

    /// Returns the record with which another process can continue a lock.
    pub(super) fn record(&self, id: LockId) -> Option<DetachedLock> {
        let lock = self.locks.find(id)?;
        let claim = self.claims.find(lock.claim())?;
        // An idle lock has the support of all nodes that count.
        let active = self.locks.active(id);
        let counted = claim.counted();
        let backed = active.map_or(counted, |active| active.hold.backed(counted, &lock.lease));
        let part = |node| match Part::of(node, lock.claim(), claim) {
            // A node that missed the last extension does not keep the key for the whole lease.
            Part::Counted if !backed.contains(node.id()) => Part::Behind,
            part => part,
        };
        let named = |part| DetachedNode { name: String::new(), part };
        Some(DetachedLock {
            nodes: self.nodes.iter().map(part).map(named).collect(),
            quorum: self.config.quorum,
            keys: claim.keys().iter().map(<[u8]>::to_vec).collect(),
            mode: lock.mode(),
            slot: claim.slot(),
            form: Form::of(claim, || self.record(active?.mode_change.kept_reader()?)),
            ttl: lock.ttl(),
            lease: lock.lease,
            held_since: lock.held_since(),
            keys_until: claim.forget_at(),
            fencing_token: active.and_then(|active| active.fencing.token()),
            random: claim.random(),
            label: claim.label(&self.config).to_vec(),
            boot: String::new(),
        })
    }

    /// Returns whether a node has not answered all requests of this lock, or will be sent another
    /// one.
    #[must_use]
    pub fn awaits_answers(&self, id: LockId) -> bool {
        let locks = self.locks.mode_change(id).companion().into_iter().chain([id]);
        let mut claims = locks.filter_map(|id| Some(self.locks.find(id)?.claim()));
        claims.any(|id| {
            self.claims.find(id).is_some_and(Claim::has_queued)
                || self.nodes.iter().any(|node| node.owes_answer_about(id))
        })
    }

    /// Attaches a detached lock.
    pub(super) fn begin_attached(
        &mut self,
        detached: &DetachedLock,
        now: ClockReading,
    ) -> Result<LockId, RequestError> {
        detached.request().check(&self.config)?;
        if !detached.fits(&self.config) {
            return Err(RequestError::OtherNodes);
        }
        if self.locks.len().max(self.claims.len()) >= super::MAX_LOCKS {
            return Err(RequestError::TooManyLocks);
        }
        self.common.metrics.attached += 1;
        let id = self.hold_again(detached, now);
        if let Some(active) = self.locks.active(id) {
            self.holdings.granted(id, active.keys.iter().map(|key| self.queues.key(key)));
        }
        if let Form::Upgraded(Some(reader)) = &detached.form {
            let companion = self.hold_again(&reader.beside(detached), now);
            self.locks.pair(id, companion);
            self.lease_due(companion, now);
        }
        if detached.remaining(now).is_zero() {
            self.transition(id, now, |lock| lock.lose(LossCause::Expired));
        } else {
            // The writer's claim may still keep other readers out.
            if detached.form == Form::Downgraded {
                self.locks.set_mode_change(id, ModeChange::Delayed);
                self.ask_to_share(id, now);
            }
            self.lease_due(id, now);
        }
        Ok(id)
    }

    /// Creates a lock and its claim from a record.
    fn hold_again(&mut self, detached: &DetachedLock, now: ClockReading) -> LockId {
        let mut votes = self.ballot();
        let counted = detached.with(&[Part::Counted]);
        counted.iter().for_each(|node| votes.cast(node, Vote::Grant));
        let (claim_id, claim) = self.claims.occupy(Claim::new);
        let (id, lock, active) = self.locks.begin(&detached.request(), now, votes);
        lock.begin_round(active, Phase::Held, now, votes);
        lock.asks_for(claim_id);
        active.round.lasts_until(now.boot);
        lock.lease = detached.lease;
        lock.granted(detached.held_since, now.boot);
        active.fencing.attached(detached.fencing_token);
        // An attached lock sends no requests that grant, and so it proposes no counter.
        let fenced = detached.fencing_token.map(|_| 0);
        claim.begin(id, &active.keys, lock.mode(), fenced, ttl_ms(detached.ttl), detached.random);
        active.foreign().into_iter().for_each(|kind| claim.set_kind(kind));
        match detached.form {
            Form::Asked | Form::Foreign(_) => {}
            Form::Upgraded(_) => claim.upgrade(),
            Form::Downgraded => claim.downgrade(),
        }
        claim.set_label(&detached.label, &self.config);
        detached.slot.into_iter().for_each(|slot| claim.takes_slot(slot));
        let behind = detached.with(&[Part::Behind]);
        if !behind.is_empty() {
            active.hold.rests_on(counted, detached.lease, self.nodes.len());
        }
        let seen = detached.with(&[Part::Counted, Part::Behind, Part::Asked, Part::Open]);
        claim.attached(counted.or(behind), seen, detached.with(&[Part::Open]));
        // After a restart of the machine the record's end of the keys means nothing.
        claim.lives_until(detached.keys_until.min(now.boot + self.config.settings.max_ttl));
        id
    }
}

impl Node {
    fn owes_answer_about(&self, of: ClaimId) -> bool {
        let of_it = |pending: &Pending| match *pending {
            Pending::Ask { claim, .. }
            | Pending::Check { claim, .. }
            | Pending::Extend { claim, .. }
            | Pending::Move { claim, .. }
            | Pending::WriteBack { claim, .. } => claim == of,
            _ => false,
        };
        let mut unproven = self.restart_guard.unproven().iter();
        self.pipeline.pending().any(of_it) || unproven.any(|grant| grant.claim() == of)
    }
}

impl Form {
    fn of(claim: &Claim, kept_reader: impl FnOnce() -> Option<DetachedLock>) -> Self {
        let profile = claim.kind().profile();
        if profile != Profile::PLAIN {
            Self::Foreign(profile)
        } else if claim.is_downgraded() {
            Self::Downgraded
        } else if claim.is_upgraded() {
            Self::Upgraded(kept_reader().map(|reader| Box::new(SecondClaim::of(&reader))))
        } else {
            Self::Asked
        }
    }
}

impl Part {
    fn of(node: &Node, id: ClaimId, claim: &Claim) -> Self {
        let asks = |pending: &Pending| matches!(*pending, Pending::Ask { claim, .. } | Pending::Move { claim, .. } if claim == id);
        if claim.counted().contains(node.id()) {
            Self::Counted
        } else if !claim.seen().contains(node.id()) {
            Self::Untouched
        } else if claim.has_ghost(node.id()) || node.pipeline.pending().any(asks) {
            Self::Open
        } else {
            Self::Asked
        }
    }
}
