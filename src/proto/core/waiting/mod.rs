//! Waiting: which lock of this core asks first, the pauses between two attempts, and what ends them early.
//!
//! Every pause ends by a timer, at the latest when the keys in the way have run out of TTL. A notification (`push`)
//! is a hint that ends a pause early. It says that a key has *changed*, not that it is *free*: nodes also report an
//! extension by the holder, and the grant of another waiter. So a notification leads to one ask, to the node that
//! sent it, and the other nodes are asked once that one has granted. After asks that win nothing, a lock ignores
//! notifications for a growing interval; otherwise two waiters could wake each other for as long as a third holds the
//! lock.
//!
//! The locks of one core need no notification of one another: they stand in a queue, see `wait_queue`. What follows for
//! one pause from a notification is in `pause`, and how a lock waits that stands in line on the nodes in `in_line`. Not here: the attempt itself, see `acquiring`.

mod in_line;
mod pause;
mod wait_queue;

use std::time::Duration;

use self::pause::Pause;
use self::wait_queue::QueuePosition;
use super::Core;
use super::effects::{Decision, Effect};
use super::push::Push;
use crate::proto::config::WakeStrategy;
use crate::proto::core::claims::Claim;
use crate::proto::core::links::{Node, Pending};
use crate::proto::core::locks::{Active, Lock, Phase};
use crate::proto::event::RefusalReason;
use crate::proto::lock_kind::LockKind;
use crate::proto::mutants::mutant;
use crate::proto::names::{ClaimId, LockId, NodeId, NodeSet};
use crate::proto::profile::Profile;
use crate::proto::request::Wait;
use crate::proto::time::{ClockReading, Timestamp};
use crate::proto::vote::Vote;

pub(super) use self::in_line::{Looked, Standing, Tickets};
pub(super) use self::wait_queue::{QueueKey, WaitQueues};

/// How one lock waits: for how long, in which queues, and its present pause.
#[derive(Debug)]
pub(super) struct Waiting {
    /// When the caller asked for it.
    asked_at: Timestamp,
    wait: Wait,
    deadline: Timestamp,
    pause: Pause,
    /// The queues that it stands in, and since when.
    queues: Vec<QueueKey>,
    position: QueuePosition,
    /// The nodes on which it hears its library's channels. None is left when its wait is over.
    listens: NodeSet,
    /// Those of them on which every release is told there, as the node has confirmed.
    hears: NodeSet,
}

impl Waiting {
    pub(super) const fn new() -> Self {
        Self {
            asked_at: Timestamp(0),
            wait: Wait::No,
            deadline: Timestamp::NEVER,
            pause: Pause::new(),
            queues: Vec::new(),
            position: QueuePosition::NONE,
            listens: NodeSet::EMPTY,
            hears: NodeSet::EMPTY,
        }
    }

    /// A lock is asked for now.
    pub(super) fn begin(&mut self, wait: Wait, now: Timestamp) {
        self.pause.begin();
        self.queues.clear();
        self.asked_at = now;
        (self.wait, self.deadline) = match wait {
            Wait::UpTo(Duration::ZERO) | Wait::No => (Wait::No, Timestamp::NEVER),
            Wait::UpTo(span) => (wait, now + span),
            Wait::Forever => (wait, Timestamp::NEVER),
        };
    }

    /// Whether it waits if its first attempt is refused.
    pub(super) fn is_wanted(&self) -> bool {
        self.wait != Wait::No
    }

    pub(super) fn asked_at(&self) -> Timestamp {
        self.asked_at
    }

    pub(super) fn deadline(&self) -> Timestamp {
        self.deadline
    }

    pub(super) fn is_queued(&self) -> bool {
        !self.queues.is_empty()
    }

    /// When its pause is over.
    pub(super) fn until(&self) -> Timestamp {
        self.pause.until()
    }

    /// The nodes whose notifications it waits for.
    pub(super) fn leads(&self) -> NodeSet {
        self.pause.leads()
    }

    /// Whether it hears its library's channels anywhere.
    pub(super) fn listens(&self) -> bool {
        !self.listens.is_empty()
    }

    /// It hears them on these nodes as well from now on. Whether that is new.
    pub(super) fn listen_at(&mut self, nodes: NodeSet) -> bool {
        let both = self.listens.or(nodes);
        std::mem::replace(&mut self.listens, both) != both
    }

    /// It hears them nowhere from now on. Where it did, and where every release was told.
    pub(super) fn stop_listening(&mut self) -> (NodeSet, NodeSet) {
        (std::mem::take(&mut self.listens), std::mem::take(&mut self.hears))
    }

    /// Every release is told to it on these nodes from now on.
    pub(super) fn hear_at(&mut self, nodes: NodeSet) {
        self.hears = self.hears.or(nodes);
    }

    /// Whether it looks at the key before it asks, so that it will see by itself what it could be told.
    pub(super) fn will_look(&self) -> bool {
        self.pause.is_late()
    }

    /// Nothing can be told to it on this node any more, until it begins to hear channels anew.
    pub(super) fn listen_no_more_at(&mut self, node: NodeId) {
        self.listens.remove(node);
        self.hears.remove(node);
    }

    /// Nothing is told to it on this node any more.
    pub(super) fn hear_no_more_at(&mut self, node: NodeId) {
        self.hears.remove(node);
    }

    /// Where it stands in the queue of its only resource.
    pub(super) fn place(&self) -> Option<(QueueKey, QueuePosition)> {
        Some((*self.queues.first()?, self.position))
    }

    /// When so many of the keys in its way have run out of TTL, if it is known.
    pub(super) fn way_free_at(&mut self, needed: usize) -> Option<Timestamp> {
        self.pause.way_free_at(needed)
    }
}

impl Core {
    /// Puts a lock that waits into the queues of its resources, and lets it ask if it is the first in all of them.
    pub(super) fn join_queues(&mut self, id: LockId, now: ClockReading) -> Decision {
        let Some((lock, active)) = self.locks.at_work_mut(id) else { return Decision::Continue };
        lock.phase = Phase::Queued;
        active.waiting.position = self.queues.next_position();
        for key in active.keys.iter() {
            let key = self.queues.key(key);
            self.queues.join(key, active.waiting.position, id, now.boot);
            active.waiting.queues.push(key);
        }
        let deadline = active.waiting.deadline;
        self.arm_lock(id, deadline);
        match self.is_first(id) {
            true => self.first_attempt(id, now),
            false => Decision::Continue,
        }
    }

    fn is_first(&self, id: LockId) -> bool {
        let first = |&key: &_| self.queues.front(key) == Some(id);
        self.locks.active(id).is_some_and(|active| active.waiting.queues.iter().all(first))
    }

    /// Leaves the queues after a release.
    pub(super) fn leave_queues_released(&mut self, id: LockId, now: ClockReading) {
        let Some(active) = self.locks.active(id) else { return };
        for &key in &active.waiting.queues {
            self.queues.released(key, now.boot);
        }
        self.leave_queues(id, now);
    }

    /// Leaves the queues. The locks that are first now are scheduled to ask.
    pub(super) fn leave_queues(&mut self, id: LockId, now: ClockReading) {
        let Some(active) = self.locks.active_mut(id) else { return };
        let position = active.waiting.position;
        for key in active.waiting.queues.drain(..) {
            self.queues.leave(key, position, now.boot);
            // A lock that is next in several queues is scheduled once.
            let first = self.queues.front(key).filter(|first| self.scheduled.back() != Some(first));
            self.scheduled.extend(first);
        }
        let purge_at = self.queues.purge_at();
        self.arm(purge_at);
    }

    /// The locks that are scheduled ask, once this transition is over.
    #[inline]
    pub(super) fn run_scheduled(&mut self) {
        if !self.scheduled.is_empty() {
            self.effects.push(Effect::RunScheduled);
        }
    }

    /// A lock that may be the first in its queues now asks, if it is.
    pub(super) fn scheduled_due(&mut self, id: LockId, now: ClockReading) -> Decision {
        match self.locks.find(id).map(|lock| lock.phase) {
            Some(Phase::Queued) if self.is_first(id) => self.first_attempt(id, now),
            Some(Phase::Pausing) => self.pause_due(id, now),
            _ => Decision::Continue,
        }
    }

    /// The first ask of a lock that waits.
    fn first_attempt(&mut self, id: LockId, now: ClockReading) -> Decision {
        let Some(active) = self.locks.active(id) else { return Decision::Continue };
        if now.boot >= active.waiting.deadline {
            return Decision::Refused(RefusalReason::OutOfTime);
        }
        if self.goes_to_the_line(id, now) {
            return self.first_attempt_in_line(id, now);
        }
        let released =
            active.waiting.queues.iter().filter_map(|&key| self.queues.yields_from(key, now.boot));
        let hand_off = self.round_trip * HAND_OFF_ROUND_TRIPS;
        match released.max().map(|released| released + hand_off + self.entropy.below(hand_off)) {
            Some(until) if until > now.boot => self.yield_to_others(id, until),
            _ => Decision::Ask(None),
        }
    }

    /// This core has just released what other processes want too: they have until `until` to take it. Then the lock
    /// reads whether they have, if a node will send a notification, and waits as they do.
    fn yield_to_others(&mut self, id: LockId, until: Timestamp) -> Decision {
        let Some((lock, active)) = self.locks.at_work_mut(id) else { return Decision::Continue };
        let first = active.waiting.queues.first();
        let leads = first.map_or_else(NodeSet::default, |&key| self.queues.leads(key));
        let leads = leads.without(self.suspected);
        let waited = first.map_or(Duration::ZERO, |&key| self.queues.waited(key));
        lock.phase = Phase::Pausing;
        active.waiting.pause.lasts_until(until.min(active.waiting.deadline));
        let profile = active.foreign().map(LockKind::profile);
        let is_told = profile.is_some_and(Profile::tells_every_release);
        let will_tell = |push: &Push| push.notifies() || is_told && push.takes_channels();
        let will_be_told = leads.iter().all(|node| will_tell(&self.nodes[node.index()].push));
        if will_be_told {
            active.waiting.pause.leaves_turn(leads, (waited / 2).min(LONGEST_SIT_OUT));
        }
        self.arm_lock(id, until);
        if will_be_told { Decision::Listen(leads) } else { Decision::Continue }
    }

    /// A lock that waits in a queue has a deadline as well.
    pub(super) fn queue_due(&mut self, id: LockId, now: ClockReading) -> Decision {
        match self.locks.active(id).map(|active| active.waiting.deadline) {
            Some(deadline) if now.boot >= deadline => {
                return Decision::Refused(RefusalReason::OutOfTime);
            }
            Some(deadline) => self.arm_lock(id, deadline),
            None => {}
        }
        Decision::Continue
    }

    /// What this core has just released is free for the first lock that waits here, which is scheduled: no node notifies
    /// a connection of what that connection changed itself.
    pub(super) fn hand_on(&mut self, claim: ClaimId, now: ClockReading) {
        if self.queues.is_empty() {
            return;
        }
        let Some(claim) = self.claims.find(claim).filter(|claim| !claim.counted().is_empty())
        else {
            return;
        };
        for key in claim.keys().iter() {
            let Some(next) = self.queues.front(self.queues.key(key)) else { continue };
            let Some((lock, active)) = self.locks.at_work_mut(next) else { continue };
            if claim.lock() != Some(next) && lock.phase == Phase::Pausing {
                active.waiting.pause.handed_on(now.boot);
                self.scheduled.push_back(next);
            }
        }
    }

    /// A command about a claim has gone to a node. What this connection changes the node reports to nobody here, yet it
    /// forgets who wanted to know of the key: whoever waits for it reads it once more.
    #[inline(never)]
    pub(super) fn look_behind(&mut self, claim: ClaimId, node: NodeId, now: ClockReading) {
        let Some(claim) = self.claims.find(claim) else { return };
        // Of several keys each has one holder: what we have changed is handed on when we release it.
        if claim.keys().len() > 1 {
            return;
        }
        let first = self.queues.front(self.queues.key(claim.keys().first()));
        let Some(waiter) = first.filter(|_| claim.lock() != first) else { return };
        let Some((lock, active)) = self.locks.at_work(waiter) else { return };
        let is_about_to_ask = active.waiting.until() <= now.boot;
        let listens = lock.phase == Phase::Pausing && active.waiting.leads().contains(node);
        if listens && !is_about_to_ask {
            match active.line.is_some() {
                true => self.look_in_line(waiter, now),
                false => self.ask_remaining(node, waiter, now),
            }
        }
    }

    /// Sets the time of the next attempt, at random, so that waiters spread out. The tickets that leave the line.
    pub(super) fn pause(&mut self, id: LockId, now: ClockReading) -> Tickets {
        let (is_in_line, tickets) = self.pause_in_line(id, now);
        if is_in_line {
            return tickets;
        }
        self.look_for_leads(id, now);
        self.back_off_wakes(id, now);
        let will_be_notified = self.will_be_notified(id);
        let Some((lock, active)) = self.locks.at_work_mut(id) else { return tickets };
        let led = active.attempt.was_led();
        let votes = &active.votes;
        let is_split = !led && !votes.grants().is_empty() && votes.is_contended();
        let needed = match led {
            true => 1,
            false => votes.quorum().saturating_sub(votes.grants().len()),
        };
        let took = active.round.took(now.boot);
        active.waiting.pause.refused(is_split, needed);
        let (floor, bound) =
            active.waiting.pause.span(took, will_be_notified, self.config.settings.retry_backoff);
        lock.phase = Phase::Pausing;
        let until = now.boot + floor + self.entropy.below(bound.saturating_sub(floor));
        let mut until = until.min(active.waiting.deadline);
        if mutant!(PauseWithoutEnd) {
            until = Timestamp::NEVER;
        }
        active.waiting.pause.lasts_until(until);
        self.arm_lock(id, until);
        self.shorten_pause(id);
        tickets
    }

    /// Chooses the leads, whose notifications are waited for: the first node in order that denied, so that all who wait
    /// for one holder wait for the same node.
    fn look_for_leads(&mut self, id: LockId, now: ClockReading) {
        let wake = self.config.settings.wake;
        let suspected = self.suspected;
        let Some(active) = self.locks.active_mut(id) else { return };
        let denied = active.votes.denies().without(suspected);
        if !active.attempt.is_led() {
            let count = match wake {
                WakeStrategy::Lead | WakeStrategy::Line => 1,
                WakeStrategy::Timer => 0,
            };
            let mut leads = NodeSet::default();
            denied.iter().take(count).for_each(|node| leads.insert(node));
            active.waiting.pause.listen_to(leads);
        }
        if !denied.is_empty() {
            for &key in &active.waiting.queues {
                self.queues.contended(key, active.waiting.pause.leads(), now.boot);
            }
        }
    }

    /// A verdict need not wait for all votes. A denial that comes later can still change the lead.
    pub(super) fn hear_late_denials(&mut self, id: LockId, claim: ClaimId) {
        let Some(round) = self.locks.find(id).map(|lock| lock.round()) else { return };
        if let Some(claim) = self.claims.find_mut(claim) {
            claim.is_heard_by(id, round);
        }
    }

    /// A node denied after the verdict. If it comes before the lead in the order, it is the lead of all who wait for this
    /// holder, once it sends notifications. The lock that listens to it from now on.
    pub(super) fn denied_late(
        &mut self,
        node: NodeId,
        claim: ClaimId,
        now: ClockReading,
    ) -> Option<LockId> {
        let (id, round) = self.claims.find(claim).and_then(Claim::waiter)?;
        let (lock, active) = self.locks.at_work_mut(id)?;
        let is_alone = self.config.settings.wake != WakeStrategy::Timer;
        let mut leads = active.waiting.pause.leads();
        let is_earlier = leads.iter().next().is_some_and(|lead| node < lead);
        let is_meant = lock.phase == Phase::Pausing && lock.round() == round;
        if !is_meant || !is_alone || !is_earlier || active.line.is_some() {
            return None;
        }
        active.votes.cast(node, Vote::Deny);
        leads.insert(node);
        if will_tell(&self.nodes, active.waiting.hears, node) {
            leads = node.into();
        }
        active.waiting.pause.listen_to(leads);
        for &key in &active.waiting.queues {
            self.queues.contended(key, active.waiting.pause.leads(), now.boot);
        }
        if active.is_told_by_pttl() {
            self.ask_remaining(node, id, now);
        }
        Some(id)
    }

    /// Of two leads the first is enough, as soon as it sends notifications.
    fn follow_the_first(&mut self, id: LockId) {
        let Some(active) = self.locks.active_mut(id) else { return };
        if let Some(first) = active.waiting.pause.leads().iter().next()
            && will_tell(&self.nodes, active.waiting.hears, first)
        {
            active.waiting.pause.listen_to(first.into());
        }
    }

    /// After an attempt that followed a notification and won nothing, the lock ignores notifications for an interval
    /// that grows each time, so that of many waiters not all ask at each change. The interval may be long only where the
    /// lead granted and the others did not: nodes report such an attempt to other waiters, and they could wake each
    /// other for as long as a third holds the lock. Where the lead denied, nothing changed, and nobody is notified.
    fn back_off_wakes(&mut self, id: LockId, now: ClockReading) {
        let Some(active) = self.locks.active_mut(id) else { return };
        let waited = now.boot.since(active.waiting.asked_at);
        let most = match active.attempt.is_led() {
            true if waited < OLD => MUTED_AFTER_DENIAL.0,
            true => MUTED_AFTER_DENIAL.1,
            false => MUTED_AFTER_SPLIT,
        };
        let since = active.round.since();
        let Some(backoff) = active.waiting.pause.was_woken_in_vain(since, most) else { return };
        let half = backoff / 2;
        active.waiting.pause.mute_until(now.boot + half + self.entropy.below(half));
    }

    /// Remembers how long a lock had to wait that was granted now.
    pub(super) fn note_wait(&mut self, id: LockId, now: ClockReading) {
        let Some(active) = self.locks.active(id) else { return };
        let waited = now.boot.since(active.waiting.asked_at);
        active.waiting.queues.iter().for_each(|&key| self.queues.granted(key, waited));
    }

    /// Whether all leads denied, and will send notifications.
    fn will_be_notified(&self, id: LockId) -> bool {
        let Some(active) = self.locks.active(id) else { return false };
        let (leads, denied) = (active.waiting.pause.leads(), active.votes.denies());
        let hears = active.waiting.hears;
        let will_notify = |node| denied.contains(node) && will_tell(&self.nodes, hears, node);
        !leads.is_empty() && leads.iter().all(will_notify)
    }

    /// A pause has begun and the undo is on its way: asks the nodes that denied this attempt how long the key in the way
    /// will live, which also makes them report its next change. It follows the undo, so that an attempt that is granted
    /// never pays for it. Then it listens, and acts on notifications that have come meanwhile, or reads behind that.
    pub(super) fn settle_in(
        &mut self,
        id: LockId,
        denied: NodeSet,
        now: ClockReading,
    ) -> [Decision; 2] {
        let pauses = |(lock, _): &(&Lock, &Active)| lock.phase == Phase::Pausing;
        let Some((_, active)) = self.locks.at_work(id).filter(pauses) else {
            return [Decision::Continue; 2];
        };
        let listen = Decision::Listen(active.waiting.pause.leads());
        if active.line.is_some() {
            return [listen, Decision::Look];
        }
        if active.is_told_by_pttl() {
            for node in denied.iter() {
                self.ask_remaining(node, id, now);
            }
        }
        [listen, Decision::Wake]
    }

    /// Asks a node for how long the key in the way will live.
    pub(super) fn ask_remaining(&mut self, node: NodeId, id: LockId, now: ClockReading) {
        let Some((lock, active)) = self.locks.at_work(id) else { return };
        let node = &mut self.nodes[node.index()];
        // A full pipeline has no room for what the timer can do without.
        if !node.link.takes_asks() || node.pipeline.len() >= super::MAX_PIPELINE {
            return;
        }
        node.track_next(now.boot);
        let pending = Pending::Remaining { lock: id, round: lock.round() };
        node.pipeline.push(pending, now.boot, |out| {
            let _ = crate::resp::command(out, 2).arg(b"PTTL").arg(active.keys.first());
        });
        self.arm(now.boot + self.config.settings.dead_peer_timeout);
    }

    /// A node has answered for how long the key in the way will live: -2 it is gone, -1 for ever.
    pub(super) fn way_blocked(
        &mut self,
        node: NodeId,
        id: LockId,
        round: u32,
        ms: i64,
        now: ClockReading,
    ) -> Decision {
        let Some((lock, active)) = self.locks.at_work_mut(id) else { return Decision::Continue };
        let is_asking = matches!(lock.phase, Phase::Asking | Phase::Pausing);
        let tells = active.is_told_by_pttl();
        if ms == -1 || !is_asking || lock.round() != round {
            return Decision::Continue;
        }
        let (hears, pause) = (active.waiting.hears, &mut active.waiting.pause);
        let (is_pausing, leads) = (lock.phase == Phase::Pausing, pause.leads());
        let notifies =
            leads.contains(node) && leads.iter().all(|lead| will_tell(&self.nodes, hears, lead));
        // A notification comes on another connection, and may be later than this answer.
        let rests = is_pausing && !pause.follows_split() && pause.is_quiet();
        let left = u64::try_from(ms).ok().map(Duration::from_millis);
        if left.is_none() && leads.contains(node) {
            return self.changed_at(id, node, now);
        }
        // The key of a semaphore outlives the first permit that ends, of which only the denial tells.
        let left = if is_pausing && !tells { pause.known(node, now.boot).or(left) } else { left };
        pause.key_lives(node, left, now.boot);
        if left.is_some() && rests {
            match notifies {
                true => self.rest(id, now),
                false => pause.goes_on(),
            }
        }
        if !is_pausing {
            return Decision::Continue;
        }
        self.shorten_pause(id);
        self.pause_due(id, now)
    }

    /// The key in the way is still there, and a node will report its next change. A process that has had the lock lets
    /// others have it first.
    fn rest(&mut self, id: LockId, now: ClockReading) {
        let Some(active) = self.locks.active_mut(id) else { return };
        active.waiting.pause.waits_for_word(now.boot, active.waiting.deadline);
        let sit_out = active.waiting.pause.take_sit_out();
        active.waiting.pause.sits_out_until(now.boot + self.entropy.below(sit_out));
        for &key in &active.waiting.queues {
            self.queues.contended(key, active.waiting.pause.leads(), now.boot);
        }
    }

    /// The pause need not outlast the keys that stand in the way.
    fn shorten_pause(&mut self, id: LockId) {
        let now = self.boot;
        let Some(active) = self.locks.active_mut(id) else { return };
        if let Some(until) = active.waiting.pause.shorten(now) {
            self.arm_lock(id, until);
        }
    }

    /// The nodes send notifications from now on, so that the pause can be long.
    pub(super) fn lengthen_pause(&mut self, id: LockId, now: ClockReading) {
        if self.locks.active(id).is_some_and(|active| active.line.is_some()) {
            return self.lengthen_pause_in_line(id, now);
        }
        self.follow_the_first(id);
        if !self.will_be_notified(id) {
            return;
        }
        let Some((lock, active)) = self.locks.at_work_mut(id) else { return };
        if lock.phase == Phase::Pausing && !active.waiting.pause.follows_split() {
            active.waiting.pause.waits_for_word(now.boot, active.waiting.deadline);
            let until = active.waiting.pause.until();
            self.arm_lock(id, until);
            self.shorten_pause(id);
        }
    }

    /// What is waited for may have changed before the node began to report that.
    pub(super) fn look_at_way(&mut self, id: LockId, node: NodeId, now: ClockReading) -> Decision {
        self.lengthen_pause(id, now);
        match self.locks.active(id) {
            Some(active) if active.line.is_some() => self.look_in_line(id, now),
            Some(active) if active.keys.len() == 1 => self.ask_remaining(node, id, now),
            // Of several keys only the script can say whether they stand in the way.
            _ => return self.changed_at(id, node, now),
        }
        Decision::Continue
    }

    /// A node reports that a resource has changed which this lock waits for.
    pub(super) fn way_changed(&mut self, id: LockId, node: NodeId, now: ClockReading) -> Decision {
        match self.locks.active(id).is_some_and(|active| active.line.is_some()) {
            true => self.way_changed_in_line(id, node, now),
            false => self.changed_at(id, node, now),
        }
    }

    /// A node has reported that a key in the way of this lock has changed, or cannot report any longer.
    pub(super) fn changed_at(&mut self, id: LockId, node: NodeId, now: ClockReading) -> Decision {
        let Some(active) = self.locks.active_mut(id) else { return Decision::Continue };
        active.waiting.pause.notified(node);
        self.wake(id, now)
    }

    /// Ends a pause because of notifications, as soon as the lock does not ignore them.
    pub(super) fn wake(&mut self, id: LockId, now: ClockReading) -> Decision {
        let Some((lock, active)) = self.locks.at_work_mut(id) else { return Decision::Continue };
        let is_enough = !active.waiting.pause.heard().is_empty();
        if lock.phase != Phase::Pausing || !is_enough {
            return Decision::Continue;
        }
        self.metrics.wakes += u64::from(active.waiting.pause.wake(now.boot));
        self.pause_due(id, now)
    }

    /// A notification that came while the lock ignored them is old: the key is read, which also makes the node report its
    /// next change. So the lock asks when the holder releases it, and not while somebody holds it.
    fn look_first(&mut self, id: LockId, lead: NodeId, now: ClockReading) {
        let patience = self.config.settings.response_timeout.min(self.nodes.allowance(lead));
        let Some(active) = self.locks.active_mut(id) else { return };
        let until = (now.boot + patience).min(active.waiting.deadline);
        active.waiting.pause.looks_until(until);
        self.arm_lock(id, until);
        self.ask_remaining(lead, id, now);
    }

    pub(super) fn pause_due(&mut self, id: LockId, now: ClockReading) -> Decision {
        let Some(active) = self.locks.active(id) else { return Decision::Continue };
        if now.boot >= active.waiting.deadline {
            return Decision::Refused(RefusalReason::OutOfTime);
        } else if now.boot < active.waiting.pause.until() {
            let until = active.waiting.pause.until();
            self.arm_lock(id, until);
            if let Some(lead) = self.break_silence(id, now) {
                // The others have answered then.
                let until = now.boot + self.nodes.allowance(lead) * 2;
                self.arm(until);
            }
        } else {
            match self.lead_to_ask(id) {
                Some(lead) if active.waiting.pause.is_late() && active.is_told_by_pttl() => {
                    self.look_first(id, lead, now);
                }
                lead => return Decision::Ask(lead),
            }
        }
        Decision::Continue
    }

    /// The node that is asked before the others, if its notification ended the pause.
    fn lead_to_ask(&self, id: LockId) -> Option<NodeId> {
        let active = self.locks.active(id)?;
        let leads = active.line.is_none() && active.waiting.pause.is_woken();
        let notified = active.waiting.pause.heard().without(self.suspected);
        let lead = notified.iter().next().filter(|_| leads)?;
        self.node(lead).link.takes_asks().then_some(lead)
    }

    /// An attempt begins.
    pub(super) fn end_pause(&mut self, id: LockId) {
        let Some(active) = self.locks.active_mut(id) else { return };
        let (least, most) = EXPIRY_JITTER;
        active.waiting.pause.attempt_begins(least + self.entropy.below(most - least));
    }
}

/// Waiters do not meet an expiry all at the same moment, and a key lives to the end of its last
/// millisecond.
const EXPIRY_JITTER: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(5));

/// How long at the most, where the lead denied, and for those who have waited for `OLD`.
const MUTED_AFTER_DENIAL: (Duration, Duration) =
    (Duration::from_millis(16), Duration::from_millis(4));
const OLD: Duration = Duration::from_millis(250);

/// How long at the most, where the lead granted and others did not.
const MUTED_AFTER_SPLIT: Duration = Duration::from_millis(50);

/// A process that has had the lock ignores notifications for up to half of what it had to wait, but not for longer.
const LONGEST_SIT_OUT: Duration = Duration::from_millis(100);

/// A waiter elsewhere is notified, asks the lead, and then the others: with something to spare.
const HAND_OFF_ROUND_TRIPS: u32 = 3;

/// Whether this node tells a lock of a release, by a notification or where it `hears` its library.
fn will_tell(nodes: &[Node], hears: NodeSet, node: NodeId) -> bool {
    hears.contains(node) || nodes[node.index()].push.notifies()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_has_waited_leaves_nothing_to_the_next() {
        let mut waiting = Waiting::new();
        waiting.begin(Wait::UpTo(Duration::from_secs(1)), Timestamp(5));
        waiting.pause.refused(true, 1);
        assert!(waiting.is_wanted());
        waiting.begin(Wait::No, Timestamp(9));
        assert!(!waiting.is_wanted() && !waiting.pause.follows_split());
        assert_eq!(waiting.deadline, Timestamp::NEVER);
    }
}
