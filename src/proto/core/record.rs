//! A lock leaves this core for another process, or comes from one. The rules are in docs/protocol.md.
//!
//! *Handed out*, a lock is no longer this core's: it is forgotten, and nothing more is asked or undone. *Taken in*, it
//! is a lock as any other, held from then on. Not here: the record itself, see `proto::record`.

use super::Core;
use crate::proto::ask::InputError;
use crate::proto::claim::Claim;
use crate::proto::event::LossCause;
use crate::proto::lock::{Lock, Phase};
use crate::proto::names::{ClaimId, LockId, NodeId};
use crate::proto::node::Request;
use crate::proto::record::{LockRecord, NodeRecord, Part};
use crate::proto::time::{Now, ttl_ms};
use crate::proto::vote::Vote;

impl Core {
    /// Hands a held lock out: it leaves this core, which sends nothing about it any more, and lives on
    /// in the record until somebody takes it in. `None` if it is not held.
    ///
    /// There is no event. Nodes that have not answered yet will not count for it, and may not hear of
    /// an extension: wait while it [awaits answers](Self::awaits_answers) if you can.
    pub fn hand_out(&mut self, id: LockId, now: Now) -> Option<LockRecord> {
        let now = self.clamp(now);
        let lock = self.locks.find(id.0).filter(|lock| lock.phase.is_held())?;
        let claim_id = lock.claim;
        for node in self.config.node_ids() {
            self.withdraw(node, claim_id);
        }
        let lock = self.locks.find_mut(id.0)?;
        let quorum = usize::from(self.config.quorum);
        // The nodes that support it have to be a quorum on both clocks, see `Backing::lease`.
        lock.lease = lock.lease.and(lock.work.backing.lease(quorum, now).unwrap_or(lock.lease));
        let lock = self.locks.find(id.0)?;
        let claim = self.claims.find(claim_id.0)?;
        let backed = lock.work.backing.of(claim.counted, &lock.lease);
        let part = |node| match self.part(node, claim_id, claim) {
            Part::Counted if !backed.contains(node) => Part::Behind,
            part => part,
        };
        let parts = self.config.node_ids().map(part);
        let record = LockRecord {
            nodes: parts.map(|part| NodeRecord { name: String::new(), part }).collect(),
            quorum: self.config.quorum,
            keys: claim.keys.iter().map(<[u8]>::to_vec).collect(),
            ttl: lock.ttl(),
            lease: lock.lease,
            held_since: lock.held_since,
            keys_until: claim.forget_at,
            fencing_token: lock.work.fence.token,
            random: claim.random,
            label: claim.label(&self.config).to_vec(),
            boot: String::new(),
        };
        self.step_out(id, now);
        self.free_lock(id);
        self.free_claim(claim_id);
        self.metrics.handed_out += 1;
        self.take_turns(now);
        Some(record)
    }

    /// Whether a node has not answered to all that it was asked about this lock, or is about to be.
    #[must_use]
    pub fn awaits_answers(&self, id: LockId) -> bool {
        let Some(lock) = self.locks.find(id.0) else { return false };
        let of_it = |request: &Request| match *request {
            Request::Ask { claim, .. } | Request::Check { claim, .. } => claim == lock.claim,
            Request::Extend { claim, .. } | Request::WriteBack { claim, .. } => claim == lock.claim,
            _ => false,
        };
        let is_queued = self.claims.find(lock.claim.0).is_some_and(|c| !c.queued.is_empty());
        is_queued || self.nodes.iter().any(|node| node.pipeline.requests().any(of_it))
    }

    fn part(&self, node: NodeId, id: ClaimId, claim: &Claim) -> Part {
        let asks =
            |request: &Request| matches!(request, Request::Ask { claim, .. } if *claim == id);
        if claim.counted.contains(node) {
            Part::Counted
        } else if !claim.seen.contains(node) {
            Part::Untouched
        } else if claim.ghosts.contains(node) || self.node(node).pipeline.requests().any(asks) {
            Part::Open
        } else {
            Part::Asked
        }
    }

    /// Takes a lock in that was handed out, by this process or another one on the same machine. It is
    /// held from here on, with the lease that it had, and is to be released as any other. A record is to be
    /// taken in once: two who take it in are two holders of one lock.
    ///
    /// If its lease is over, or of an earlier boot of the machine, it is lost:
    /// [`Event::Lost`](super::super::Event::Lost) follows, and releasing it undoes what is left of it.
    ///
    /// # Errors
    ///
    /// This core has other nodes or limits, so that the lock cannot be one of its own.
    pub fn take_in(&mut self, record: &LockRecord, now: Now) -> Result<LockId, InputError> {
        let ask = record.ask();
        ask.check(&self.config)?;
        if !record.fits(&self.config) {
            return Err(InputError::OtherNodes);
        }
        if self.locks.len().max(self.claims.len()) >= super::MAX_LOCKS {
            return Err(InputError::TooManyLocks);
        }
        let now = self.clamp(now);
        let mut votes = self.ballot();
        let counted = record.with(&[Part::Counted]);
        counted.iter().for_each(|node| votes.cast(node, Vote::Grant));
        let (claim_key, _) = self.claims.occupy(Claim::new);
        let (key, lock) = self.locks.occupy(Lock::new);
        let id = LockId(key);
        lock.begin(&ask, now, &mut self.used_work);
        lock.begin_round(Phase::Held, now, votes);
        lock.claim = ClaimId(claim_key);
        lock.work.round_until = now.boot;
        lock.lease = record.lease;
        lock.held_since = record.held_since;
        lock.granted_at = now.boot;
        self.metrics.taken_in += 1;
        lock.work.fence.token = record.fencing_token;
        lock.work.fence.counters.clear();
        lock.work.pause.expiries.clear();
        let is_over = record.remaining(now).is_zero();
        let longest = now.boot + self.config.settings.max_ttl;
        let claim = self.claims.find_mut(claim_key).expect("it was made a moment ago");
        let fenced = record.fencing_token.is_some();
        claim.begin(id, &lock.work.keys, fenced, ttl_ms(record.ttl), record.random);
        claim.set_label(&record.label, &self.config);
        let behind = record.with(&[Part::Behind]);
        if !behind.is_empty() {
            lock.work.backing.begin(counted, record.lease, self.nodes.len());
        }
        claim.counted = counted.or(behind);
        claim.seen = record.with(&[Part::Counted, Part::Behind, Part::Asked, Part::Open]);
        claim.ghosts = record.with(&[Part::Open]);
        claim.lives_until(record.keys_until.min(longest));
        self.note_holding(id);
        if is_over {
            self.lose(id, LossCause::Expired, now);
        } else {
            self.lease_due(id, now);
        }
        Ok(id)
    }
}
