//! Waiting: whose turn it is to ask, the pauses between two attempts, and what ends them early.
//!
//! The remaining TTL of the keys in the way is the truth, and every pause ends by a timer. What a node
//! tells (`push`) is a hint which ends a pause early. It says *changed*, not *free*: an extension by the
//! holder and the grant of another waiter are told as well. So it leads to one ask, to the node that told,
//! and the others are asked when that one has granted; and asks that came to nothing are damped, or two
//! waiters could wake each other for as long as the lock is held elsewhere.
//!
//! Among the locks of one core nobody has to be told anything: they stand in line, see `lines`.

use std::time::Duration;

use super::Core;
use crate::proto::claim::ClaimUser;
use crate::proto::config::WakeStrategy;
use crate::proto::event::RefusalReason;
use crate::proto::lock::Phase;
use crate::proto::mutants::mutant;
use crate::proto::names::{ClaimId, LockId, NodeId, NodeSet};
use crate::proto::node::Pending;
use crate::proto::time::{ClockReading, Timestamp};
use crate::proto::vote::Vote;

impl Core {
    /// Puts a lock that waits into the lines of its resources, and lets it ask if it is the first in all.
    pub(super) fn join_queues(&mut self, id: LockId, now: ClockReading) {
        let Some(lock) = self.locks.find_mut(id.0) else { return };
        lock.phase = Phase::Queued;
        let active = &mut *lock.active;
        active.position = self.queues.next_position();
        for key in active.keys.iter() {
            let key = self.queues.key(key);
            self.queues.join(key, active.position, id, now.boot);
            active.queues.push(key);
        }
        let deadline = lock.active.deadline;
        self.arm_lock(id, deadline);
        if self.is_first(id) {
            self.first_attempt(id, now);
        }
    }

    fn is_first(&self, id: LockId) -> bool {
        let first = |&key: &_| self.queues.front(key) == Some(id);
        let lock = self.locks.find(id.0);
        lock.is_some_and(|lock| lock.active.queues.iter().all(first) || mutant!(QueuesIgnored))
    }

    /// Leaves the lines behind a release.
    pub(super) fn leave_queues_released(&mut self, id: LockId, now: ClockReading) {
        let Some(lock) = self.locks.find(id.0) else { return };
        for &key in &lock.active.queues {
            self.queues.released(key, now.boot);
        }
        self.leave_queues(id, now);
    }

    /// Leaves the lines. Those who are first now ask when turns are taken.
    pub(super) fn leave_queues(&mut self, id: LockId, now: ClockReading) {
        let Some(lock) = self.locks.find_mut(id.0).filter(|lock| !lock.active.is_idle()) else {
            return;
        };
        let position = lock.active.position;
        for key in lock.active.queues.drain(..) {
            self.queues.leave(key, position, now.boot);
            // Whoever is next in several lines of many need not be looked at for each.
            let first = self.queues.front(key).filter(|first| self.scheduled.back() != Some(first));
            self.scheduled.extend(first);
        }
        let purge_at = self.queues.purge_at();
        self.arm(purge_at);
    }

    /// Lets those ask whose turn has come. One that is refused at once makes room for the next: they are
    /// taken one after the other, not one inside the other.
    pub(super) fn run_scheduled(&mut self, now: ClockReading) {
        if std::mem::replace(&mut self.runs_scheduled, true) {
            return;
        }
        while let Some(id) = self.scheduled.pop_front() {
            match self.locks.find(id.0).map(|lock| lock.phase) {
                Some(Phase::Queued) if self.is_first(id) => self.first_attempt(id, now),
                Some(Phase::Pausing) => self.pause_due(id, now),
                _ => {}
            }
        }
        self.runs_scheduled = false;
    }

    /// The first ask of a lock that waits.
    fn first_attempt(&mut self, id: LockId, now: ClockReading) {
        let Some(lock) = self.locks.find(id.0) else { return };
        if now.boot >= lock.active.deadline {
            return self.refuse(id, RefusalReason::OutOfTime, now);
        }
        let released =
            lock.active.queues.iter().filter_map(|&key| self.queues.yields_from(key, now.boot));
        let hand_off = self.round_trip * HAND_OFF_ROUND_TRIPS;
        match released.max().map(|released| released + hand_off + self.entropy.below(hand_off)) {
            Some(until) if until > now.boot && !mutant!(YieldSkipped) => {
                self.yield_to_others(id, until, now);
            }
            _ => self.attempt(id, None, now),
        }
    }

    /// This core has just let go of what others want too: they get until `until` to take it. Then the lock
    /// looks whether they have, if there is a node that will tell, and waits as they do.
    fn yield_to_others(&mut self, id: LockId, until: Timestamp, now: ClockReading) {
        let Some(lock) = self.locks.find_mut(id.0) else { return };
        let first = lock.active.queues.first();
        let leads = first.map_or_else(NodeSet::default, |&key| self.queues.leads(key));
        let leads = leads.without(self.suspected);
        let waited = first.map_or(Duration::ZERO, |&key| self.queues.waited(key));
        lock.phase = Phase::Pausing;
        lock.active.pause.until = until.min(lock.active.deadline);
        if leads.iter().all(|node| self.nodes[node.index()].push.notifies()) {
            lock.active.pause.leads = leads;
            lock.active.pause.notified = leads;
            lock.active.pause.needed = 1;
            lock.active.pause.is_woken = !leads.is_empty();
            lock.active.pause.is_late = lock.active.pause.is_woken;
            lock.active.pause.sit_out = (waited / 2).min(LONGEST_SIT_OUT);
            leads.iter().for_each(|node| self.want_push(node, now));
        }
        self.arm_lock(id, until);
    }

    /// A lock that waits in line has a deadline as well.
    pub(super) fn queue_due(&mut self, id: LockId, now: ClockReading) {
        match self.locks.find(id.0).map(|lock| lock.active.deadline) {
            Some(deadline) if now.boot >= deadline => {
                self.refuse(id, RefusalReason::OutOfTime, now)
            }
            Some(deadline) => self.arm_lock(id, deadline),
            None => {}
        }
    }

    /// What this core has just let go of is free for the first of those who wait here, when turns are taken:
    /// no node tells a connection of what it changed itself.
    pub(super) fn hand_on(&mut self, claim: ClaimId, now: ClockReading) {
        if self.queues.is_empty() {
            return;
        }
        let Some(claim) = self.claims.find(claim.0).filter(|claim| !claim.counted.is_empty())
        else {
            return;
        };
        for key in claim.keys.iter() {
            let Some(next) = self.queues.front(self.queues.key(key)) else { continue };
            let Some(lock) = self.locks.find_mut(next.0) else { continue };
            if claim.lock() != Some(next) && lock.phase == Phase::Pausing {
                lock.active.pause.is_woken = false;
                lock.active.pause.is_late = false;
                lock.active.pause.until =
                    lock.active.pause.until.min(lock.active.pause.muted_until.max(now.boot));
                self.scheduled.push_back(next);
            }
        }
    }

    /// Sets the time of the next attempt. After a split vote it comes soon, since nobody holds the
    /// resource then; where the nodes tell of changes it can be late; otherwise it is random under a cap
    /// that grows with each refusal, so that waiters spread out. Splits in a row end that, for a key left
    /// over on one node looks like a split for its whole TTL.
    pub(super) fn pause(&mut self, id: LockId, now: ClockReading) {
        self.look_for_leads(id, now);
        self.back_off_wakes(id, now);
        let (least, most) = self.config.settings.retry_backoff;
        let will_be_notified = self.will_be_notified(id);
        let Some(lock) = self.locks.find_mut(id.0) else { return };
        let led = lock.active.lead.take().is_some();
        let split =
            !led && !lock.active.votes.grants().is_empty() && lock.active.votes.is_contended();
        lock.active.pause.splits = if split { lock.active.pause.splits + 1 } else { 0 };
        lock.active.pause.needed = match led {
            true => 1,
            false => lock.active.votes.quorum().saturating_sub(lock.active.votes.grants().len()),
        };
        let (floor, bound) = if split && lock.active.pause.splits <= SPLITS {
            (Duration::ZERO, lock.active.round_took(now) * SPLIT_ROUND_TRIPS)
        } else if will_be_notified {
            (CAP_NOTIFIED * 3 / 4, CAP_NOTIFIED)
        } else {
            let cap = most.min(least * (1 << lock.active.pause.refusals.min(16)));
            lock.active.pause.refusals += 1;
            (least / 8, cap)
        };
        let (floor, bound) = match mutant!(PauseSkipped) {
            true => (Duration::ZERO, Duration::ZERO),
            false => (floor, bound),
        };
        lock.phase = Phase::Pausing;
        lock.active.pause.until =
            (now.boot + floor + self.entropy.below(bound.saturating_sub(floor)))
                .min(lock.active.deadline);
        if mutant!(PauseWithoutEnd) {
            lock.active.pause.until = Timestamp::NEVER;
        }
        let until = lock.active.pause.until;
        self.arm_lock(id, until);
        self.shorten_pause(id);
    }

    /// Chooses whose word is waited for: the first node in order that denied, so that all who wait for
    /// one holder listen to the same one.
    fn look_for_leads(&mut self, id: LockId, now: ClockReading) {
        let (wake, quorum) = (self.config.settings.wake, self.config.quorum());
        let suspected = self.suspected;
        let Some(lock) = self.locks.find_mut(id.0) else { return };
        let denied = lock.active.votes.denies().without(suspected);
        if lock.active.lead.is_none() {
            let count = match wake {
                WakeStrategy::Lead | WakeStrategy::All => 1,
                WakeStrategy::Quorum => quorum,
                WakeStrategy::Timer => 0,
            };
            lock.active.pause.leads = NodeSet::default();
            denied.iter().take(count).for_each(|node| lock.active.pause.leads.insert(node));
        }
        if !denied.is_empty() {
            for &key in &lock.active.queues {
                self.queues.contended(key, lock.active.pause.leads, now.boot);
            }
        }
    }

    /// A verdict need not wait for all votes. Those that come later can still show whose word to wait for.
    pub(super) fn hear_late_denials(&mut self, id: LockId, claim: ClaimId) {
        let Some(round) = self.locks.find(id.0).map(|lock| lock.round) else { return };
        if let Some(claim) = self.claims.find_mut(claim.0) {
            claim.user = ClaimUser::Waiter(id, round);
        }
    }

    /// A node denied after the verdict. If it comes before the lead in the order, all who wait for this
    /// holder wait for its word, once it tells.
    pub(super) fn denied_late(&mut self, node: NodeId, claim: ClaimId, now: ClockReading) {
        let user = self.claims.find(claim.0).map(|claim| claim.user);
        let Some(ClaimUser::Waiter(id, round)) = user else { return };
        let Some(lock) = self.locks.find_mut(id.0) else { return };
        let is_alone = matches!(self.config.settings.wake, WakeStrategy::Lead | WakeStrategy::All);
        let is_earlier = lock.active.pause.leads.iter().next().is_some_and(|lead| node < lead);
        if lock.phase != Phase::Pausing || lock.round != round || !is_alone || !is_earlier {
            return;
        }
        lock.active.votes.cast(node, Vote::Deny);
        lock.active.pause.leads.insert(node);
        if self.nodes[node.index()].push.notifies() {
            lock.active.pause.leads = node.into();
        }
        for &key in &lock.active.queues {
            self.queues.contended(key, lock.active.pause.leads, now.boot);
        }
        if lock.active.keys.len() == 1 {
            self.ask_remaining(node, id, now);
        }
        self.want_push(node, now);
        self.wake(id, now);
    }

    /// Of two leads the first is enough, as soon as it tells.
    fn follow_the_first(&mut self, id: LockId) {
        let Some(lock) = self.locks.find_mut(id.0) else { return };
        if self.config.settings.wake != WakeStrategy::Quorum
            && let Some(first) = lock.active.pause.leads.iter().next()
            && self.nodes[first.index()].push.notifies()
        {
            lock.active.pause.leads = first.into();
        }
    }

    /// An ask that came of what a node told, in vain, makes the lock deaf for a while, longer each time:
    /// so that of many waiters not all ask at each change. It may be long only where the lead granted and
    /// the others did not. Such an ask is told to other waiters in its turn, and they could wake each other
    /// for as long as the lock is held elsewhere; where the lead denied, nobody else hears of it.
    fn back_off_wakes(&mut self, id: LockId, now: ClockReading) {
        let Some(lock) = self.locks.find_mut(id.0) else { return };
        if !std::mem::take(&mut lock.active.pause.is_woken) {
            return;
        }
        let has_rested = lock.active.since.boot > lock.active.pause.muted_until + RESTED;
        lock.active.pause.is_late = false;
        let waited = now.boot.since(lock.active.asked_at);
        let most = match lock.active.lead {
            Some(_) if waited < OLD => MUTED_AFTER_DENIAL.0,
            Some(_) => MUTED_AFTER_DENIAL.1,
            None => MUTED_AFTER_SPLIT,
        };
        lock.active.pause.wake_backoff = match has_rested {
            true => MUTED_AT_FIRST,
            false => (lock.active.pause.wake_backoff * 2).min(most).max(MUTED_AT_FIRST),
        };
        let half = match mutant!(WakesNotBackedOff) {
            true => Duration::from_nanos(1),
            false => lock.active.pause.wake_backoff / 2,
        };
        lock.active.pause.muted_until = now.boot + half + self.entropy.below(half);
    }

    /// Remembers how long a lock had to wait that was granted now.
    pub(super) fn note_wait(&mut self, id: LockId, now: ClockReading) {
        let Some(lock) = self.locks.find(id.0) else { return };
        let waited = now.boot.since(lock.active.asked_at);
        lock.active.queues.iter().for_each(|&key| self.queues.granted(key, waited));
    }

    /// Whether the nodes whose word is waited for denied, and will tell.
    fn will_be_notified(&self, id: LockId) -> bool {
        let Some(lock) = self.locks.find(id.0) else { return false };
        let (leads, denied) = (lock.active.pause.leads, lock.active.votes.denies());
        let will_notify = |node| denied.contains(node) && self.node(node).push.notifies();
        !leads.is_empty() && leads.iter().all(will_notify)
    }

    /// A pause has begun and the undo is on its way: asks the nodes that denied this attempt how long the
    /// key in the way will live, which also makes them tell when it changes, and acts on what was told
    /// meanwhile. Behind the undo, so that an attempt that is granted never pays for it.
    pub(super) fn settle_in(&mut self, id: LockId, denied: NodeSet, now: ClockReading) {
        let Some(lock) = self.locks.find(id.0).filter(|lock| lock.phase == Phase::Pausing) else {
            return;
        };
        let leads = lock.active.pause.leads;
        // A script has told, and has read all keys.
        if lock.active.keys.len() == 1 {
            for node in denied.iter() {
                self.ask_remaining(node, id, now);
            }
        }
        for node in leads.iter() {
            self.want_push(node, now);
        }
        self.wake(id, now);
    }

    /// Asks a node for how long the key in the way will live.
    pub(super) fn ask_remaining(&mut self, node: NodeId, id: LockId, now: ClockReading) {
        let Some(lock) = self.locks.find(id.0) else { return };
        let node = &mut self.nodes[node.index()];
        // A full pipeline has no room for what the timer can do without.
        if !node.link.takes_asks() || node.pipeline.len() >= super::MAX_PIPELINE {
            return;
        }
        let pending = Pending::Remaining { lock: id, round: lock.round };
        node.pipeline.push(pending, now.boot, |out| {
            let _ = crate::resp::command(out, 2).arg(b"PTTL").arg(lock.active.keys.first());
        });
        self.arm(now.boot + self.config.settings.dead_peer_timeout);
    }

    /// A node told for how long the key in the way will live: -2 it is gone, -1 for ever.
    pub(super) fn way_blocked(
        &mut self,
        node: NodeId,
        id: LockId,
        round: u32,
        ms: i64,
        now: ClockReading,
    ) {
        let Some(lock) = self.locks.find_mut(id.0).filter(|lock| lock.round == round) else {
            return;
        };
        if ms == -1 || !matches!(lock.phase, Phase::Asking | Phase::Pausing) {
            return;
        }
        let leads = lock.active.pause.leads;
        let notifies = leads.contains(node)
            && leads.iter().all(|lead| self.nodes[lead.index()].push.notifies());
        // What has been told comes by another connection, and may be later than this answer.
        let is_quiet =
            lock.active.pause.notified.and(leads).is_empty() && !lock.active.pause.is_woken;
        let rests = lock.phase == Phase::Pausing && lock.active.pause.splits == 0 && is_quiet;
        if ms >= 0 && notifies && rests {
            // It will tell of the next change. Whoever has had its turn lets some others have theirs.
            lock.active.pause.until = (now.boot + CAP_NOTIFIED * 3 / 4).min(lock.active.deadline);
            let sit_out = std::mem::take(&mut lock.active.pause.sit_out);
            lock.active.pause.muted_until =
                lock.active.pause.muted_until.max(now.boot + self.entropy.below(sit_out));
            for &key in &lock.active.queues {
                self.queues.contended(key, lock.active.pause.leads, now.boot);
            }
        }
        let free_at = match u64::try_from(ms) {
            Ok(ms) => now.boot + Duration::from_millis(ms) + lock.active.pause.jitter,
            Err(_) if lock.active.pause.leads.contains(node) => {
                return self.changed_at(id, node, now);
            }
            // Gone already: only as late as it takes two waiters not to ask in step for ever.
            Err(_) => now.boot + lock.active.pause.jitter / 8,
        };
        lock.active.pause.expires(node, free_at);
        if lock.phase == Phase::Pausing {
            self.shorten_pause(id);
            self.pause_due(id, now);
        }
    }

    /// The pause need not outlast the keys that stand in the way. One that keeps the parties of a split
    /// vote apart is random, and stays so.
    fn shorten_pause(&mut self, id: LockId) {
        let Some(lock) = self.locks.find_mut(id.0) else { return };
        if (1..=SPLITS).contains(&lock.active.pause.splits) {
            return;
        }
        let needed = lock.active.pause.needed;
        if let Some(free_at) = lock.active.pause.way_free_at(needed) {
            lock.active.pause.until = lock.active.pause.until.min(free_at);
            let until = lock.active.pause.until;
            self.arm_lock(id, until);
        }
    }

    /// The nodes will tell from now on, so that the pause can be long.
    pub(super) fn lengthen_pause(&mut self, id: LockId, now: ClockReading) {
        self.follow_the_first(id);
        if !self.will_be_notified(id) {
            return;
        }
        let Some(lock) = self.locks.find_mut(id.0) else { return };
        if lock.phase == Phase::Pausing && lock.active.pause.splits == 0 {
            lock.active.pause.until = (now.boot + CAP_NOTIFIED * 3 / 4).min(lock.active.deadline);
            let until = lock.active.pause.until;
            self.arm_lock(id, until);
            self.shorten_pause(id);
        }
    }

    /// A node has told that a key in the way of this lock has changed, or cannot tell any longer.
    pub(super) fn changed_at(&mut self, id: LockId, node: NodeId, now: ClockReading) {
        let Some(lock) = self.locks.find_mut(id.0) else { return };
        // Whose word counts can be known later than it has come.
        lock.active.pause.notified.insert(node);
        self.wake(id, now);
    }

    /// Ends a pause by what has been told, as soon as that may be.
    fn wake(&mut self, id: LockId, now: ClockReading) {
        let Some(lock) = self.locks.find_mut(id.0) else { return };
        let enough = match self.config.settings.wake {
            WakeStrategy::Quorum => lock.active.pause.leads.len().max(1),
            _ => 1,
        };
        let notified = lock.active.pause.notified.and(lock.active.pause.leads);
        if lock.phase != Phase::Pausing || notified.len() < enough || mutant!(WakeIgnored) {
            return;
        }
        self.metrics.wakes += u64::from(!lock.active.pause.is_woken);
        lock.active.pause.is_woken = true;
        lock.active.pause.is_late = now.boot < lock.active.pause.muted_until;
        lock.active.pause.until =
            lock.active.pause.until.min(lock.active.pause.muted_until.max(now.boot));
        self.pause_due(id, now);
    }

    /// What was told while the lock was deaf is old: the key is looked at, which also makes its next change
    /// be told. So whoever was deaf asks when the lock is let go of, and not in the middle of somebody's turn.
    fn look_first(&mut self, id: LockId, lead: NodeId, now: ClockReading) {
        let patience = self.config.settings.response_timeout.min(self.allowance(lead));
        let Some(lock) = self.locks.find_mut(id.0) else { return };
        lock.active.pause.is_late = false;
        lock.active.pause.is_woken = false;
        lock.active.pause.notified = NodeSet::default();
        lock.active.pause.until = (now.boot + patience).min(lock.active.deadline);
        let until = lock.active.pause.until;
        self.arm_lock(id, until);
        self.ask_remaining(lead, id, now);
    }

    pub(super) fn pause_due(&mut self, id: LockId, now: ClockReading) {
        let Some(lock) = self.locks.find(id.0) else { return };
        if now.boot >= lock.active.deadline {
            self.refuse(id, RefusalReason::OutOfTime, now);
        } else if now.boot < lock.active.pause.until {
            let until = lock.active.pause.until;
            self.arm_lock(id, until);
        } else {
            match self.lead_to_ask(id) {
                Some(lead) if lock.active.pause.is_late && lock.active.keys.len() == 1 => {
                    self.look_first(id, lead, now);
                }
                lead => self.attempt(id, lead, now),
            }
        }
    }

    /// The node that is asked before the others, if what it told ended the pause.
    fn lead_to_ask(&self, id: LockId) -> Option<NodeId> {
        let lock = self.locks.find(id.0)?;
        let leads = self.config.settings.wake == WakeStrategy::Lead && lock.active.pause.is_woken;
        let notified =
            lock.active.pause.notified.and(lock.active.pause.leads).without(self.suspected);
        let lead = notified.iter().next().filter(|_| leads)?;
        self.node(lead).link.takes_asks().then_some(lead)
    }

    /// An attempt begins.
    pub(super) fn end_pause(&mut self, id: LockId) {
        let Some(lock) = self.locks.find_mut(id.0) else { return };
        lock.active.pause.expiries.clear();
        lock.active.pause.notified = NodeSet::default();
        let (least, most) = EXPIRY_JITTER;
        lock.active.pause.jitter = least + self.entropy.below(most - least);
    }

    /// How long a round of asks takes, roughly.
    pub(super) fn note_round_trip(&mut self, took: Duration) {
        self.round_trip = match self.round_trip {
            Duration::ZERO => took,
            before => (before * 7 + took) / 8,
        };
    }
}

/// So many split votes in a row are answered without a pause.
const SPLITS: u32 = 4;

/// A pause after a split vote is shorter than this many round trips.
const SPLIT_ROUND_TRIPS: u32 = 4;

/// Waiters do not meet an expiry all at the same moment, and a key lives to the end of its last
/// millisecond.
const EXPIRY_JITTER: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(5));

/// The longest pause where nodes tell of changes: what a lost message costs at the most.
const CAP_NOTIFIED: Duration = Duration::from_secs(2);

/// Vain asks that are further apart are not of a crowd.
const RESTED: Duration = Duration::from_millis(500);

/// How long a lock is deaf after the first ask in vain.
const MUTED_AT_FIRST: Duration = Duration::from_millis(1);

/// How long at the most, where the lead denied, and for those who have waited for `OLD`.
const MUTED_AFTER_DENIAL: (Duration, Duration) =
    (Duration::from_millis(16), Duration::from_millis(4));
const OLD: Duration = Duration::from_millis(250);

/// How long at the most, where the lead granted and others did not.
const MUTED_AFTER_SPLIT: Duration = Duration::from_millis(50);

/// Whoever has had its turn sits out for up to half of what it had to wait, but not for longer.
const LONGEST_SIT_OUT: Duration = Duration::from_millis(100);

/// A waiter elsewhere is told, asks the lead, and then the others: with something to spare.
const HAND_OFF_ROUND_TRIPS: u32 = 3;
