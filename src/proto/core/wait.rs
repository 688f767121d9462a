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
use crate::proto::claim::Party;
use crate::proto::config::Wake;
use crate::proto::event::Why;
use crate::proto::lock::Phase;
use crate::proto::mutants::mutant;
use crate::proto::names::{ClaimId, LockId, NodeId, NodeSet};
use crate::proto::node::Request;
use crate::proto::time::{Nanos, Now};
use crate::proto::vote::Vote;

impl Core {
    /// Puts a lock that waits into the lines of its resources, and lets it ask if it is the first in all.
    pub(super) fn line_up(&mut self, id: LockId, now: Now) {
        let Some(lock) = self.locks.find_mut(id.0) else { return };
        lock.phase = Phase::Queued;
        let work = &mut *lock.work;
        work.came = self.lines.arrive();
        for key in work.keys.iter() {
            let place = self.lines.place(key);
            self.lines.join(place, work.came, id, now.boot);
            work.lines.push(place);
        }
        let deadline = lock.work.deadline;
        self.arm_lock(id, deadline);
        if self.is_first(id) {
            self.begin_turn(id, now);
        }
    }

    fn is_first(&self, id: LockId) -> bool {
        let first = |&place: &_| self.lines.front(place) == Some(id);
        let lock = self.locks.find(id.0);
        lock.is_some_and(|lock| lock.work.lines.iter().all(first) || mutant!(LinesIgnored))
    }

    /// Leaves the lines behind a release.
    pub(super) fn step_out_released(&mut self, id: LockId, now: Now) {
        let Some(lock) = self.locks.find(id.0) else { return };
        for &place in &lock.work.lines {
            self.lines.released(place, now.boot);
        }
        self.step_out(id, now);
    }

    /// Leaves the lines. Those who are first now ask when turns are taken.
    pub(super) fn step_out(&mut self, id: LockId, now: Now) {
        let Some(lock) = self.locks.find_mut(id.0).filter(|lock| !lock.work.is_clear()) else {
            return;
        };
        let came = lock.work.came;
        for place in lock.work.lines.drain(..) {
            self.lines.leave(place, came, now.boot);
            // Whoever is next in several lines of many need not be looked at for each.
            let first = self.lines.front(place).filter(|first| self.turns.back() != Some(first));
            self.turns.extend(first);
        }
        let purge_at = self.lines.purge_at();
        self.arm(purge_at);
    }

    /// Lets those ask whose turn has come. One that is refused at once makes room for the next: they are
    /// taken one after the other, not one inside the other.
    pub(super) fn take_turns(&mut self, now: Now) {
        if std::mem::replace(&mut self.is_turning, true) {
            return;
        }
        while let Some(id) = self.turns.pop_front() {
            match self.locks.find(id.0).map(|lock| lock.phase) {
                Some(Phase::Queued) if self.is_first(id) => self.begin_turn(id, now),
                Some(Phase::Pausing) => self.pause_due(id, now),
                _ => {}
            }
        }
        self.is_turning = false;
    }

    /// The first ask of a lock that waits.
    fn begin_turn(&mut self, id: LockId, now: Now) {
        let Some(lock) = self.locks.find(id.0) else { return };
        if now.boot >= lock.work.deadline {
            return self.refuse(id, Why::OutOfTime, now);
        }
        let released =
            lock.work.lines.iter().filter_map(|&place| self.lines.owes_turn(place, now.boot));
        let hand_off = self.round_trip * HAND_OFF_ROUND_TRIPS;
        match released.max().map(|released| released + hand_off + self.entropy.below(hand_off)) {
            Some(until) if until > now.boot && !mutant!(TurnNotYielded) => {
                self.yield_turn(id, until, now);
            }
            _ => self.attempt(id, None, now),
        }
    }

    /// This core has just let go of what others want too: they get until `until` to take it. Then the lock
    /// looks whether they have, if there is a node that will tell, and waits as they do.
    fn yield_turn(&mut self, id: LockId, until: Nanos, now: Now) {
        let Some(lock) = self.locks.find_mut(id.0) else { return };
        let first = lock.work.lines.first();
        let leads = first.map_or_else(NodeSet::default, |&place| self.lines.leads(place));
        let leads = leads.without(self.suspected);
        let waited = first.map_or(Duration::ZERO, |&place| self.lines.waited(place));
        lock.phase = Phase::Pausing;
        lock.work.pause.until = until.min(lock.work.deadline);
        if leads.iter().all(|node| self.nodes[node.index()].push.tells()) {
            lock.work.pause.leads = leads;
            lock.work.pause.told = leads;
            lock.work.pause.needed = 1;
            lock.work.pause.is_roused = !leads.is_empty();
            lock.work.pause.is_late = lock.work.pause.is_roused;
            lock.work.pause.sit_out = (waited / 2).min(LONGEST_SIT_OUT);
            leads.iter().for_each(|node| self.want_push(node, now));
        }
        self.arm_lock(id, until);
    }

    /// A lock that waits in line has a deadline as well.
    pub(super) fn queue_due(&mut self, id: LockId, now: Now) {
        match self.locks.find(id.0).map(|lock| lock.work.deadline) {
            Some(deadline) if now.boot >= deadline => self.refuse(id, Why::OutOfTime, now),
            Some(deadline) => self.arm_lock(id, deadline),
            None => {}
        }
    }

    /// What this core has just let go of is free for the first of those who wait here, when turns are taken:
    /// no node tells a connection of what it changed itself.
    pub(super) fn hand_on(&mut self, claim: ClaimId, now: Now) {
        if self.lines.is_empty() {
            return;
        }
        let Some(claim) = self.claims.find(claim.0).filter(|claim| !claim.counted.is_empty())
        else {
            return;
        };
        for key in claim.keys.iter() {
            let Some(next) = self.lines.front(self.lines.place(key)) else { continue };
            let Some(lock) = self.locks.find_mut(next.0) else { continue };
            if claim.lock() != Some(next) && lock.phase == Phase::Pausing {
                lock.work.pause.is_roused = false;
                lock.work.pause.is_late = false;
                lock.work.pause.until =
                    lock.work.pause.until.min(lock.work.pause.deaf_until.max(now.boot));
                self.turns.push_back(next);
            }
        }
    }

    /// Sets the time of the next attempt. After a split vote it comes soon, since nobody holds the
    /// resource then; where the nodes tell of changes it can be late; otherwise it is random under a cap
    /// that grows with each refusal, so that waiters spread out. Splits in a row end that, for a key left
    /// over on one node looks like a split for its whole TTL.
    pub(super) fn pause(&mut self, id: LockId, now: Now) {
        self.look_for_leads(id, now);
        self.damp(id, now);
        let (least, most) = self.config.settings.pause;
        let is_told = self.is_told(id);
        let Some(lock) = self.locks.find_mut(id.0) else { return };
        let led = lock.work.lead.take().is_some();
        let split = !led && !lock.work.votes.grants().is_empty() && lock.work.votes.is_contended();
        lock.work.pause.splits = if split { lock.work.pause.splits + 1 } else { 0 };
        lock.work.pause.needed = match led {
            true => 1,
            false => lock.work.votes.quorum().saturating_sub(lock.work.votes.grants().len()),
        };
        let (floor, bound) = if split && lock.work.pause.splits <= SPLITS {
            (Duration::ZERO, lock.work.round_took(now) * SPLIT_ROUND_TRIPS)
        } else if is_told {
            (CAP_TOLD * 3 / 4, CAP_TOLD)
        } else {
            let cap = most.min(least * (1 << lock.work.pause.refusals.min(16)));
            lock.work.pause.refusals += 1;
            (least / 8, cap)
        };
        let (floor, bound) = match mutant!(PauseSkipped) {
            true => (Duration::ZERO, Duration::ZERO),
            false => (floor, bound),
        };
        lock.phase = Phase::Pausing;
        lock.work.pause.until =
            (now.boot + floor + self.entropy.below(bound.saturating_sub(floor)))
                .min(lock.work.deadline);
        if mutant!(PauseWithoutEnd) {
            lock.work.pause.until = Nanos::NEVER;
        }
        let until = lock.work.pause.until;
        self.arm_lock(id, until);
        self.shorten_pause(id);
    }

    /// Chooses whose word is waited for: the first node in order that denied, so that all who wait for
    /// one holder listen to the same one.
    fn look_for_leads(&mut self, id: LockId, now: Now) {
        let (wake, quorum) = (self.config.settings.wake, self.config.quorum());
        let suspected = self.suspected;
        let Some(lock) = self.locks.find_mut(id.0) else { return };
        let denied = lock.work.votes.denies().without(suspected);
        if lock.work.lead.is_none() {
            let count = match wake {
                Wake::Lead | Wake::All => 1,
                Wake::Quorum => quorum,
                Wake::Timer => 0,
            };
            lock.work.pause.leads = NodeSet::default();
            denied.iter().take(count).for_each(|node| lock.work.pause.leads.insert(node));
        }
        if !denied.is_empty() {
            for &place in &lock.work.lines {
                self.lines.contended(place, lock.work.pause.leads, now.boot);
            }
        }
    }

    /// A verdict need not wait for all votes. Those that come later can still show whose word to wait for.
    pub(super) fn hear_late_denials(&mut self, id: LockId, claim: ClaimId) {
        let Some(round) = self.locks.find(id.0).map(|lock| lock.round) else { return };
        if let Some(claim) = self.claims.find_mut(claim.0) {
            claim.party = Party::Waiter(id, round);
        }
    }

    /// A node denied after the verdict. If it comes before the lead in the order, all who wait for this
    /// holder wait for its word, once it tells.
    pub(super) fn denied_late(&mut self, node: NodeId, claim: ClaimId, now: Now) {
        let party = self.claims.find(claim.0).map(|claim| claim.party);
        let Some(Party::Waiter(id, round)) = party else { return };
        let Some(lock) = self.locks.find_mut(id.0) else { return };
        let is_alone = matches!(self.config.settings.wake, Wake::Lead | Wake::All);
        let is_earlier = lock.work.pause.leads.iter().next().is_some_and(|lead| node < lead);
        if lock.phase != Phase::Pausing || lock.round != round || !is_alone || !is_earlier {
            return;
        }
        lock.work.votes.cast(node, Vote::Deny);
        lock.work.pause.leads.insert(node);
        if self.nodes[node.index()].push.tells() {
            lock.work.pause.leads = node.into();
        }
        for &place in &lock.work.lines {
            self.lines.contended(place, lock.work.pause.leads, now.boot);
        }
        if lock.work.keys.len() == 1 {
            self.ask_remaining(node, id, now);
        }
        self.want_push(node, now);
        self.rouse(id, now);
    }

    /// Of two leads the first is enough, as soon as it tells.
    fn follow_the_first(&mut self, id: LockId) {
        let Some(lock) = self.locks.find_mut(id.0) else { return };
        if self.config.settings.wake != Wake::Quorum
            && let Some(first) = lock.work.pause.leads.iter().next()
            && self.nodes[first.index()].push.tells()
        {
            lock.work.pause.leads = first.into();
        }
    }

    /// An ask that came of what a node told, in vain, makes the lock deaf for a while, longer each time:
    /// so that of many waiters not all ask at each change. It may be long only where the lead granted and
    /// the others did not. Such an ask is told to other waiters in its turn, and they could wake each other
    /// for as long as the lock is held elsewhere; where the lead denied, nobody else hears of it.
    fn damp(&mut self, id: LockId, now: Now) {
        let Some(lock) = self.locks.find_mut(id.0) else { return };
        if !std::mem::take(&mut lock.work.pause.is_roused) {
            return;
        }
        let has_rested = lock.work.since.boot > lock.work.pause.deaf_until + RESTED;
        lock.work.pause.is_late = false;
        let waited = now.boot.since(lock.work.asked_at);
        let most = match lock.work.lead {
            Some(_) if waited < OLD => DEAF_AFTER_DENIAL.0,
            Some(_) => DEAF_AFTER_DENIAL.1,
            None => DEAF_AFTER_SPLIT,
        };
        lock.work.pause.damping = match has_rested {
            true => DEAF_AT_FIRST,
            false => (lock.work.pause.damping * 2).min(most).max(DEAF_AT_FIRST),
        };
        let half = match mutant!(WakesUndamped) {
            true => Duration::from_nanos(1),
            false => lock.work.pause.damping / 2,
        };
        lock.work.pause.deaf_until = now.boot + half + self.entropy.below(half);
    }

    /// Remembers how long a lock had to wait that was granted now.
    pub(super) fn note_wait(&mut self, id: LockId, now: Now) {
        let Some(lock) = self.locks.find(id.0) else { return };
        let waited = now.boot.since(lock.work.asked_at);
        lock.work.lines.iter().for_each(|&place| self.lines.granted(place, waited));
    }

    /// Whether the nodes whose word is waited for denied, and will tell.
    fn is_told(&self, id: LockId) -> bool {
        let Some(lock) = self.locks.find(id.0) else { return false };
        let (leads, denied) = (lock.work.pause.leads, lock.work.votes.denies());
        let will_tell = |node| denied.contains(node) && self.node(node).push.tells();
        !leads.is_empty() && leads.iter().all(will_tell)
    }

    /// A pause has begun and the undo is on its way: asks the nodes that denied this attempt how long the
    /// key in the way will live, which also makes them tell when it changes, and acts on what was told
    /// meanwhile. Behind the undo, so that an attempt that is granted never pays for it.
    pub(super) fn settle_in(&mut self, id: LockId, denied: NodeSet, now: Now) {
        let Some(lock) = self.locks.find(id.0).filter(|lock| lock.phase == Phase::Pausing) else {
            return;
        };
        let leads = lock.work.pause.leads;
        // A script has told, and has read all keys.
        if lock.work.keys.len() == 1 {
            for node in denied.iter() {
                self.ask_remaining(node, id, now);
            }
        }
        for node in leads.iter() {
            self.want_push(node, now);
        }
        self.rouse(id, now);
    }

    /// Asks a node for how long the key in the way will live.
    pub(super) fn ask_remaining(&mut self, node: NodeId, id: LockId, now: Now) {
        let Some(lock) = self.locks.find(id.0) else { return };
        let node = &mut self.nodes[node.index()];
        // A full pipeline has no room for what the timer can do without.
        if !node.link.takes_asks() || node.pipeline.len() >= super::MAX_PIPELINE {
            return;
        }
        let request = Request::Remaining { lock: id, round: lock.round };
        node.pipeline.push(request, now.boot, |out| {
            let _ = crate::resp::command(out, 2).arg(b"PTTL").arg(lock.work.keys.first());
        });
        self.arm(now.boot + self.config.settings.dead_after);
    }

    /// A node told for how long the key in the way will live: -2 it is gone, -1 for ever.
    pub(super) fn way_blocked(&mut self, node: NodeId, id: LockId, round: u32, ms: i64, now: Now) {
        let Some(lock) = self.locks.find_mut(id.0).filter(|lock| lock.round == round) else {
            return;
        };
        if ms == -1 || !matches!(lock.phase, Phase::Asking | Phase::Pausing) {
            return;
        }
        let leads = lock.work.pause.leads;
        let tells =
            leads.contains(node) && leads.iter().all(|lead| self.nodes[lead.index()].push.tells());
        // What has been told comes by another connection, and may be later than this answer.
        let is_quiet = lock.work.pause.told.and(leads).is_empty() && !lock.work.pause.is_roused;
        let rests = lock.phase == Phase::Pausing && lock.work.pause.splits == 0 && is_quiet;
        if ms >= 0 && tells && rests {
            // It will tell of the next change. Whoever has had its turn lets some others have theirs.
            lock.work.pause.until = (now.boot + CAP_TOLD * 3 / 4).min(lock.work.deadline);
            let sit_out = std::mem::take(&mut lock.work.pause.sit_out);
            lock.work.pause.deaf_until =
                lock.work.pause.deaf_until.max(now.boot + self.entropy.below(sit_out));
            for &place in &lock.work.lines {
                self.lines.contended(place, lock.work.pause.leads, now.boot);
            }
        }
        let free_at = match u64::try_from(ms) {
            Ok(ms) => now.boot + Duration::from_millis(ms) + lock.work.pause.jitter,
            Err(_) if lock.work.pause.leads.contains(node) => {
                return self.changed_at(id, node, now);
            }
            // Gone already: only as late as it takes two waiters not to ask in step for ever.
            Err(_) => now.boot + lock.work.pause.jitter / 8,
        };
        lock.work.pause.expires(node, free_at);
        if lock.phase == Phase::Pausing {
            self.shorten_pause(id);
            self.pause_due(id, now);
        }
    }

    /// The pause need not outlast the keys that stand in the way. One that keeps the parties of a split
    /// vote apart is random, and stays so.
    fn shorten_pause(&mut self, id: LockId) {
        let Some(lock) = self.locks.find_mut(id.0) else { return };
        if (1..=SPLITS).contains(&lock.work.pause.splits) {
            return;
        }
        let needed = lock.work.pause.needed;
        if let Some(free_at) = lock.work.pause.way_free_at(needed) {
            lock.work.pause.until = lock.work.pause.until.min(free_at);
            let until = lock.work.pause.until;
            self.arm_lock(id, until);
        }
    }

    /// The nodes will tell from now on, so that the pause can be long.
    pub(super) fn lengthen_pause(&mut self, id: LockId, now: Now) {
        self.follow_the_first(id);
        if !self.is_told(id) {
            return;
        }
        let Some(lock) = self.locks.find_mut(id.0) else { return };
        if lock.phase == Phase::Pausing && lock.work.pause.splits == 0 {
            lock.work.pause.until = (now.boot + CAP_TOLD * 3 / 4).min(lock.work.deadline);
            let until = lock.work.pause.until;
            self.arm_lock(id, until);
            self.shorten_pause(id);
        }
    }

    /// A node has told that a key in the way of this lock has changed, or cannot tell any longer.
    pub(super) fn changed_at(&mut self, id: LockId, node: NodeId, now: Now) {
        let Some(lock) = self.locks.find_mut(id.0) else { return };
        // Whose word counts can be known later than it has come.
        lock.work.pause.told.insert(node);
        self.rouse(id, now);
    }

    /// Ends a pause by what has been told, as soon as that may be.
    fn rouse(&mut self, id: LockId, now: Now) {
        let Some(lock) = self.locks.find_mut(id.0) else { return };
        let enough = match self.config.settings.wake {
            Wake::Quorum => lock.work.pause.leads.len().max(1),
            _ => 1,
        };
        let told = lock.work.pause.told.and(lock.work.pause.leads);
        if lock.phase != Phase::Pausing || told.len() < enough || mutant!(WakeIgnored) {
            return;
        }
        self.metrics.wakes += u64::from(!lock.work.pause.is_roused);
        lock.work.pause.is_roused = true;
        lock.work.pause.is_late = now.boot < lock.work.pause.deaf_until;
        lock.work.pause.until = lock.work.pause.until.min(lock.work.pause.deaf_until.max(now.boot));
        self.pause_due(id, now);
    }

    /// What was told while the lock was deaf is old: the key is looked at, which also makes its next change
    /// be told. So whoever was deaf asks when the lock is let go of, and not in the middle of somebody's turn.
    fn look_first(&mut self, id: LockId, lead: NodeId, now: Now) {
        let patience = self.config.settings.answer_within.min(self.allowance(lead));
        let Some(lock) = self.locks.find_mut(id.0) else { return };
        lock.work.pause.is_late = false;
        lock.work.pause.is_roused = false;
        lock.work.pause.told = NodeSet::default();
        lock.work.pause.until = (now.boot + patience).min(lock.work.deadline);
        let until = lock.work.pause.until;
        self.arm_lock(id, until);
        self.ask_remaining(lead, id, now);
    }

    pub(super) fn pause_due(&mut self, id: LockId, now: Now) {
        let Some(lock) = self.locks.find(id.0) else { return };
        if now.boot >= lock.work.deadline {
            self.refuse(id, Why::OutOfTime, now);
        } else if now.boot < lock.work.pause.until {
            let until = lock.work.pause.until;
            self.arm_lock(id, until);
        } else {
            match self.lead_to_ask(id) {
                Some(lead) if lock.work.pause.is_late && lock.work.keys.len() == 1 => {
                    self.look_first(id, lead, now);
                }
                lead => self.attempt(id, lead, now),
            }
        }
    }

    /// The node that is asked before the others, if what it told ended the pause.
    fn lead_to_ask(&self, id: LockId) -> Option<NodeId> {
        let lock = self.locks.find(id.0)?;
        let leads = self.config.settings.wake == Wake::Lead && lock.work.pause.is_roused;
        let told = lock.work.pause.told.and(lock.work.pause.leads).without(self.suspected);
        let lead = told.iter().next().filter(|_| leads)?;
        self.node(lead).link.takes_asks().then_some(lead)
    }

    /// An attempt begins.
    pub(super) fn end_pause(&mut self, id: LockId) {
        let Some(lock) = self.locks.find_mut(id.0) else { return };
        lock.work.pause.expiries.clear();
        lock.work.pause.told = NodeSet::default();
        let (least, most) = EXPIRY_JITTER;
        lock.work.pause.jitter = least + self.entropy.below(most - least);
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
const CAP_TOLD: Duration = Duration::from_secs(2);

/// Vain asks that are further apart are not of a crowd.
const RESTED: Duration = Duration::from_millis(500);

/// How long a lock is deaf after the first ask in vain.
const DEAF_AT_FIRST: Duration = Duration::from_millis(1);

/// How long at the most, where the lead denied, and for those who have waited for `OLD`.
const DEAF_AFTER_DENIAL: (Duration, Duration) =
    (Duration::from_millis(16), Duration::from_millis(4));
const OLD: Duration = Duration::from_millis(250);

/// How long at the most, where the lead granted and others did not.
const DEAF_AFTER_SPLIT: Duration = Duration::from_millis(50);

/// Whoever has had its turn sits out for up to half of what it had to wait, but not for longer.
const LONGEST_SIT_OUT: Duration = Duration::from_millis(100);

/// A waiter elsewhere is told, asks the lead, and then the others: with something to spare.
const HAND_OFF_ROUND_TRIPS: u32 = 3;
