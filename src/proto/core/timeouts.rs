//! Timeouts: what each node, lock, claim, view and observer does when its timer ends.

use super::Core;
use super::locks::Phase;
use crate::proto::names::{LockId, NodeId};
use crate::proto::time::{ClockReading, Timestamp};

impl Core {
    /// Does what is due at `now`. Read the sockets first.
    pub fn timeout(&mut self, now: ClockReading) {
        let now = self.clamp(now);
        if now.boot < self.common.next_timeout {
            return;
        }
        self.common.next_timeout = Timestamp::NEVER;
        // Before locks leave their queues, which arms the next purge.
        self.queues.purge(now.boot);
        self.common.begin_auto_extend(now.boot);
        for node in self.config.node_ids() {
            self.node_due(node, now);
            let is_watched = || self.locks.watchers(node).next().is_some();
            self.nodes[node.index()].check_push_timer(is_watched, &mut env!(self, now));
            self.run(now);
        }
        let by = if self.must_see_all(now) { Timestamp::NEVER } else { now.boot };
        let mut at = 0;
        while let Some(id) = self.locks.next_due(&mut at, by) {
            self.lock_due(id, now);
        }
        let mut at = 0;
        while let Some(id) = self.claims.next_due(&mut at, now.boot) {
            self.claim_due(id, now);
        }
        self.views.check_timers(&mut env!(self, now));
        self.observers.check_timers(&mut self.nodes, &mut env!(self, now));
        self.run(now);
        self.common.is_auto_extending = false;
        let subjects = [self.locks.due(), self.claims.due(), self.views.due()];
        let next = subjects.into_iter().chain([self.queues.purge_at(), self.observers.due()]);
        next.for_each(|at| self.arm(at));
        self.check();
    }

    /// Returns whether locks may be due without a timer: when locks are extended together, or when
    /// the wall clock has run ahead of the boot clock, which shortens every lease.
    fn must_see_all(&mut self, now: ClockReading) -> bool {
        let ahead = now.wall.0.wrapping_sub(now.boot.0);
        let grown = ahead.wrapping_sub(self.wall_ahead) as i64;
        let has_jumped = grown >= JUMP;
        if has_jumped || grown < 0 {
            self.wall_ahead = ahead;
        }
        has_jumped || self.common.is_auto_extending
    }

    /// Handles the timers of a node.
    fn node_due(&mut self, id: NodeId, now: ClockReading) {
        let goes_on = self.nodes[id.index()].check_timer(&mut env!(self, now));
        self.run(now);
        if !goes_on {
            return;
        }
        self.nodes.candidate(id, &mut env!(self, now)).check_quarantine();
        self.run(now);
        if self.nodes.is_overdue(id, self.config.quorum(), now.boot) {
            self.nodes.suspect(id.into(), &mut env!(self, now));
            self.run(now);
        }
        let goes_on = self.nodes[id.index()].check_silence(&mut env!(self, now));
        self.run(now);
        if goes_on && self.node(id).debt.again_at() != Timestamp::NEVER {
            self.owed_due(id, now);
        }
    }

    fn lock_due(&mut self, id: LockId, now: ClockReading) {
        // A lock that ended in this timeout has nothing due.
        let Some(lock) = self.locks.find(id) else { return };
        let decision = match lock.phase {
            Phase::Asking | Phase::Fencing => {
                self.transition(id, now, |lock| lock.attempt_due()).unwrap_or_default()
            }
            Phase::Pausing => self.with_waiter(id, now, |it| it.pause_due()),
            Phase::Queued => self.with_waiter(id, now, |it| it.queue_due()),
            Phase::Extending | Phase::Held => return self.held_due(id, now),
            Phase::Releasing => return self.release_by(id, now, |lock| lock.release_due()),
            Phase::Lost(_) => return self.lost_due(id, now),
        };
        self.carry_out(id, decision, now);
    }

    fn held_due(&mut self, id: LockId, now: ClockReading) {
        // The lease first: a lock whose validity has ended is lost, not extended.
        self.lease_due(id, now);
        self.run(now);
        self.transition(id, now, |lock| lock.heal_due());
        self.run(now);
        self.transition(id, now, |lock| lock.auto_extend_due());
        self.run(now);
    }
}

/// The growth of the wall clock's lead, in ns, at which all leases are checked.
const JUMP: i64 = 1_000_000;
