//! A waiter: a lock that pauses between attempts, and what ends its pauses.
//!
//! A transition here changes this lock and its queues, and sends reads to nodes. It never sends a
//! request for the lock: that is the returned decision.

pub(super) mod ticket;

use std::time::Duration;

use self::ticket::{Ticket, Tickets};
use super::{WaitQueues, Waiting};
use crate::proto::core::effects::{Decision, Effect};
use crate::proto::core::links::{Ability, Nodes, Pending};
use crate::proto::core::locks::{Active, Lock, Phase, Round};
use crate::proto::core::{
    Core, Env, MAX_PIPELINE, acquiring::Attempt, claims::Claims, mode_change::ModeChange,
    waiting::pause::EXPIRY_JITTER,
};
use crate::proto::names::{ClaimId, LockId, NodeId, NodeSet};
use crate::proto::time::{ClockReading, Timestamp};
use crate::proto::vote::{Cause, Vote, Votes};
use crate::proto::{
    config::WakeStrategy, event::RefusalReason, keys::Keys, lock_kind::LockKind, mutants::mutant,
    profile::Profile,
};
use crate::resp::command;

/// A waiter, with the parts of the core that its transitions use.
pub(crate) struct WaitingLock<'w> {
    id: LockId,
    lock: &'w mut Lock,
    keys: &'w Keys,
    votes: &'w mut Votes,
    attempt: &'w mut Attempt,
    round: &'w Round,
    waiting: &'w mut Waiting,
    ticket: &'w mut Option<Box<Ticket>>,
    mode_change: ModeChange,
    foreign: Option<&'static LockKind>,
    wants_permit: bool,
    nodes: &'w mut Nodes,
    queues: &'w mut WaitQueues,
    /// The earliest time at which something is due for the lock.
    due: Timestamp,
    env: Env<'w>,
}

impl Core {
    /// Applies a transition to a waiter. Returns the default for a lock that is idle or has ended.
    pub(in crate::proto::core) fn with_waiter<R: Default>(
        &mut self,
        id: LockId,
        now: ClockReading,
        transition: impl FnOnce(&mut WaitingLock<'_>) -> R,
    ) -> R {
        self.with_waiter_and_claims(id, now, |waiter, _| transition(waiter))
    }

    /// Applies a transition that may take a ticket, which is a claim.
    pub(in crate::proto::core) fn with_waiter_and_claims<R: Default>(
        &mut self,
        id: LockId,
        now: ClockReading,
        transition: impl FnOnce(&mut WaitingLock<'_>, &mut Claims) -> R,
    ) -> R {
        let (nodes, queues, env) = (&mut self.nodes, &mut self.queues, env!(self, now));
        let Some((lock, active)) = self.locks.at_work_mut(id) else { return R::default() };
        let (foreign, wants_permit) = (active.foreign(), active.permit.is_wanted());
        let Active { keys, votes, attempt, round, waiting, ticket, mode_change, .. } = active;
        let mode_change = *mode_change;
        let mut waiter = WaitingLock {
            id,
            lock,
            keys,
            votes,
            attempt,
            round,
            waiting,
            ticket,
            mode_change,
            foreign,
            wants_permit,
            nodes,
            queues,
            due: Timestamp::NEVER,
            env,
        };
        let result = transition(&mut waiter, &mut self.claims);
        let due = waiter.due;
        self.locks.arm(id, due);
        result
    }

    /// Runs the scheduled locks after this transition.
    #[inline]
    pub(in crate::proto::core) fn run_scheduled(&mut self) {
        if self.queues.has_scheduled() {
            self.common.effects.push(Effect::RunScheduled);
        }
    }

    /// Schedules the first lock that waits here for what this core has just released.
    pub(in crate::proto::core) fn hand_on(&mut self, claim: ClaimId, now: ClockReading) {
        if self.queues.is_empty() {
            return;
        }
        let Some(claim) = self.claims.find(claim).filter(|claim| !claim.counted().is_empty())
        else {
            return;
        };
        // No notification will come: a node does not report to a connection what that connection
        // changed.
        for key in claim.keys().iter() {
            let Some(next) = self.queues.front(self.queues.key(key)) else { continue };
            let Some((lock, active)) = self.locks.at_work_mut(next) else { continue };
            if claim.lock() != Some(next) && lock.phase == Phase::Pausing {
                active.waiting.pause.handed_on(now.boot);
                self.queues.schedule(next);
            }
        }
    }

    /// Lets the first waiter of this core read the key behind a command that was sent for a claim.
    #[inline(never)]
    pub(in crate::proto::core) fn read_behind(
        &mut self,
        claim: ClaimId,
        node: NodeId,
        now: ClockReading,
    ) {
        // The node does not report to this connection what the command changes, and at such a
        // change it forgets that the connection tracks the key.
        let Some(claim) = self.claims.find(claim) else { return };
        // Locks on several resources are exclusive: their changes are handed on when they are
        // released.
        if claim.keys().len() > 1 {
            return;
        }
        let first = self.queues.front(self.queues.key(claim.keys().first()));
        if let Some(waiter) = first.filter(|_| claim.lock() != first) {
            self.with_waiter(waiter, now, |it| it.read_behind(node));
        }
    }

    /// Returns whether a quorum of nodes has recorded the place of this lock in the queue, so that
    /// no later waiter gets the resource before it.
    #[must_use]
    pub fn has_place(&self, id: LockId) -> bool {
        let ticket = self.locks.active(id).and_then(|active| active.ticket.as_ref());
        ticket.is_some_and(|ticket| ticket.has_place())
    }

    /// Returns why waiters cannot queue on a node, if a request has found out. Requests to
    /// this node then carry no ticket and are in no order.
    #[must_use]
    pub fn no_queue(&self, node: NodeId) -> Option<Cause> {
        match self.nodes[node.index()].capabilities.queue() {
            Ability::Refused(cause) => Some(cause),
            Ability::Given | Ability::Unknown => None,
        }
    }
}

/// The transitions in the queues of this core.
impl WaitingLock<'_> {
    /// Joins the queues of its resources, and starts an attempt if the lock is first in all of
    /// them.
    pub(crate) fn join_queues(&mut self, claims: &mut Claims) -> Decision {
        self.lock.phase = Phase::Queued;
        let (now, waiting) = (self.now(), &mut self.waiting);
        waiting.position = self.queues.next_position();
        for key in self.keys.iter() {
            let key = self.queues.key(key);
            self.queues.join(key, waiting.position, self.id, now);
            waiting.queues.push(key);
        }
        let deadline = waiting.deadline;
        self.arm(deadline);
        match self.is_next() {
            true => self.first_attempt(claims),
            false => Decision::Continue,
        }
    }

    fn is_next(&self) -> bool {
        let queues = &self.waiting.queues;
        queues.iter().all(|&key| self.queues.front(key) == Some(self.id))
    }

    /// Leaves the queues after a release.
    pub(crate) fn leave_queues_released(&mut self) {
        let now = self.now();
        self.waiting.queues.iter().for_each(|&key| self.queues.released(key, now));
        self.leave_queues();
    }

    /// Leaves the queues, and schedules the locks that are first now.
    pub(crate) fn leave_queues(&mut self) {
        let (now, waiting) = (self.now(), &mut self.waiting);
        for key in waiting.queues.drain(..) {
            self.queues.leave(key, waiting.position, now);
        }
        self.env.arm(self.queues.purge_at());
    }

    /// Starts an attempt if the lock is first in its queues now, or its pause has ended.
    pub(crate) fn scheduled_due(&mut self, claims: &mut Claims) -> Decision {
        match self.lock.phase {
            Phase::Queued if self.is_next() => self.first_attempt(claims),
            Phase::Pausing => self.pause_due(),
            _ => Decision::Continue,
        }
    }

    fn first_attempt(&mut self, claims: &mut Claims) -> Decision {
        let now = self.now();
        if now >= self.waiting.deadline {
            return Decision::Refused(RefusalReason::OutOfTime);
        }
        if self.begins_with_ticket() {
            return self.first_attempt_with_ticket(claims);
        }
        // Waiters in other processes are notified later than this core, which would otherwise
        // always win.
        let queues = &self.waiting.queues;
        let released = queues.iter().filter_map(|&key| self.queues.yields_from(key, now)).max();
        let hand_off = self.env.round_trip * HAND_OFF_ROUND_TRIPS;
        match released.map(|released| released + hand_off + self.env.random_below(hand_off)) {
            Some(until) if until > now => self.yield_to_others(until),
            _ => Decision::Ask(None),
        }
    }

    /// Pauses until `until`, so that other processes can take what this core has just released. If
    /// the leads will notify, the lock then reads whether the resource is taken, and waits as
    /// others do.
    fn yield_to_others(&mut self, until: Timestamp) -> Decision {
        self.lock.phase = Phase::Pausing;
        let first = self.waiting.queues.first();
        let (leads, waited) = first.map(|&key| self.queues.last_wait(key)).unwrap_or_default();
        let leads = leads.without(self.env.suspected());
        let profile = self.foreign.map(LockKind::profile);
        let is_notified = profile.is_some_and(Profile::publishes_every_release);
        let will_be_notified = leads.iter().all(|node| {
            let push = &self.nodes[node.index()].push;
            push.notifies() || is_notified && push.takes_channels()
        });
        let waiting = &mut self.waiting;
        waiting.pause.lasts_until(until.min(waiting.deadline));
        self.arm(until);
        if !will_be_notified {
            return Decision::Continue;
        }
        self.waiting.pause.leaves_turn(leads, (waited / 2).min(LONGEST_SIT_OUT));
        Decision::Listen(leads)
    }

    /// Refuses a lock in a queue if its deadline has passed.
    pub(crate) fn queue_due(&mut self) -> Decision {
        let deadline = self.waiting.deadline;
        if self.now() >= deadline {
            return Decision::Refused(RefusalReason::OutOfTime);
        }
        self.arm(deadline);
        Decision::Continue
    }

    /// Records how long the lock, which is granted now, has waited.
    pub(crate) fn record_wait(&mut self) {
        let waited = self.now().since(self.waiting.asked_at);
        self.waiting.queues.iter().for_each(|&key| self.queues.granted(key, waited));
        // Outside the queue on the nodes, a denial shows that another process wants the resource.
        // It may have won only this node in the turn that was left to it.
        if !self.votes.denies().is_empty() && !self.may_take_ticket() {
            self.choose_leads();
        }
    }

    /// Records that another process has the resources, and that the leads will report a change.
    pub(super) fn record_contention(&mut self) {
        let (now, leads) = (self.now(), self.leads());
        self.waiting.queues.iter().for_each(|&key| self.queues.contended(key, leads, now));
    }
}

/// The transitions of the pause between two attempts.
impl WaitingLock<'_> {
    pub(super) fn now(&self) -> Timestamp {
        self.env.now().boot
    }

    /// Schedules work for the lock at `at`.
    pub(super) fn arm(&mut self, at: Timestamp) {
        self.due = self.due.min(at);
        self.env.arm(at);
    }

    pub(super) fn leads(&self) -> NodeSet {
        self.waiting.pause.leads()
    }

    /// Returns whether the lock pauses and waits for notifications of this node.
    pub(super) fn listens_to(&self, node: NodeId) -> bool {
        self.lock.phase == Phase::Pausing && self.leads().contains(node)
    }

    /// Records that the node has confirmed a subscription to a channel of the lock's library.
    pub(crate) fn confirm_channel(&mut self, node: NodeId) {
        if self.foreign.is_some_and(|kind| kind.profile().publishes_every_release()) {
            self.waiting.confirm_at(node.into());
        }
    }

    /// Records that this node publishes nothing to the lock until it confirms a subscription again.
    pub(crate) fn lose_channels_at(&mut self, node: NodeId) {
        self.waiting.confirmed.remove(node);
    }

    /// Records that the lock is subscribed to nothing on this node.
    pub(crate) fn unsubscribe_at(&mut self, node: NodeId) {
        self.waiting.subscribed.remove(node);
        self.waiting.confirmed.remove(node);
    }

    /// Waits for notifications of the leads, and subscribes to the channels on which the lock's
    /// library publishes releases.
    pub(crate) fn listen(&mut self, leads: NodeSet) {
        let profile = self.foreign.map(LockKind::profile).filter(|it| it.has_channels());
        if let Some(profile) = profile {
            let (now, key) = (self.now(), self.keys.first());
            let of = self.queues.key(key);
            for lead in leads.iter() {
                let push = &mut self.nodes[lead.index()].push;
                if push.takes_subscriptions(now) && self.waiting.subscribe_at(lead.into()) {
                    let names = profile.channels(key);
                    names.iter().for_each(|name| push.subscribe(name, of, self.id, now));
                }
            }
        }
        self.nodes.want_push(leads, &mut self.env);
    }

    /// Returns whether this node will notify the lock of a release, itself or by a channel of the
    /// lock's library.
    fn is_notified_by(&self, node: NodeId) -> bool {
        self.waiting.confirmed.contains(node) || self.nodes[node.index()].push.notifies()
    }

    /// Returns whether PTTL of the lock's key is the time for which the lock is kept out. For other
    /// locks the reply to the request has that time.
    fn is_read_by_pttl(&self) -> bool {
        let by_ask = self.foreign.is_some_and(|kind| kind.is_read_by_ask);
        self.keys.len() == 1 && !self.wants_permit && !by_ask
    }

    /// Returns whether all leads denied and will send notifications.
    pub(super) fn will_be_notified(&self) -> bool {
        let (leads, denied) = (self.leads(), self.votes.denies());
        let mut all = leads.iter();
        !leads.is_empty() && all.all(|lead| denied.contains(lead) && self.is_notified_by(lead))
    }

    /// Pauses the lock for a random time, so that waiters spread out. Returns the tickets that must
    /// leave the queue on the nodes.
    pub(crate) fn pause(&mut self, claims: &mut Claims) -> Tickets {
        let tickets = self.pause_with_ticket(claims);
        if self.ticket.is_some() {
            return tickets;
        }
        self.choose_leads();
        self.back_off_wakes();
        let (now, will_be_notified) = (self.now(), self.will_be_notified());
        let led = self.attempt.was_led();
        let votes = &*self.votes;
        let is_split = !led && !votes.grants().is_empty() && votes.is_contended();
        let needed = match led {
            true => 1,
            false => votes.quorum().saturating_sub(votes.grants().len()),
        };
        self.waiting.pause.refused(is_split, needed);
        let (took, backoff) = (self.round.took(now), self.env.settings().retry_backoff);
        let span = self.waiting.pause.span(took, will_be_notified, backoff);
        self.lock.phase = Phase::Pausing;
        let mut until = (now + self.draw(span)).min(self.waiting.deadline);
        if mutant!(PauseWithoutEnd) {
            until = Timestamp::NEVER;
        }
        self.waiting.pause.lasts_until(until);
        self.arm(until);
        self.shorten_pause();
        tickets
    }

    /// Chooses the leads, whose notifications end the pause.
    fn choose_leads(&mut self) {
        let denied = self.votes.denies().without(self.env.suspected());
        if !self.attempt.is_led() {
            // The first node in the fixed order that denied: all waiters for one holder listen to
            // one node.
            let first = denied.iter().next();
            let lead = first.filter(|_| self.env.settings().wake != WakeStrategy::Timer);
            self.waiting.pause.listen_to(lead.map(NodeSet::from).unwrap_or_default());
        }
        if !denied.is_empty() {
            self.record_contention();
        }
    }

    /// Records that a node denied after the verdict of this round. Returns whether the lock waits
    /// for notifications of this node from now on. It does if the node comes before the lead in the
    /// order, because it is then the lead of all other waiters for this holder.
    pub(crate) fn denied_late(&mut self, node: NodeId, round: u32) -> bool {
        let mut leads = self.leads();
        let is_alone = self.env.settings().wake != WakeStrategy::Timer;
        let is_earlier = leads.iter().next().is_some_and(|lead| node < lead);
        // A later round has chosen the lead by newer votes.
        let is_meant = self.lock.phase == Phase::Pausing && self.lock.round() == round;
        if !is_meant || !is_alone || !is_earlier || self.ticket.is_some() {
            return false;
        }
        self.votes.cast(node, Vote::Deny);
        leads.insert(node);
        // Both are leads until the earlier one can notify.
        if self.is_notified_by(node) {
            leads = node.into();
        }
        self.waiting.pause.listen_to(leads);
        self.record_contention();
        if self.is_read_by_pttl() {
            self.ask_remaining(node);
        }
        true
    }

    /// Ignores notifications for a while after an attempt that followed one and won nothing, so
    /// that not all waiters send requests at each change.
    fn back_off_wakes(&mut self) {
        let (now, waiting) = (self.now(), &mut self.waiting);
        let waited = now.since(waiting.asked_at);
        // If the lead granted and others did not, nodes report that grant and its undo to other
        // waiters. They could wake each other for as long as a third client holds the lock, so the
        // interval may be long. If the lead denied, nothing has changed and no waiter is notified.
        let most = match self.attempt.is_led() {
            true if waited < OLD => MUTED_AFTER_DENIAL.0,
            true => MUTED_AFTER_DENIAL.1,
            false => MUTED_AFTER_SPLIT,
        };
        if let Some(backoff) = waiting.pause.was_woken_in_vain(self.round.since(), most) {
            let half = backoff / 2;
            waiting.pause.mute_until(now + half + self.env.random_below(half));
        }
    }

    /// Listens once a pause has begun and the undo is sent, and acts on notifications that came
    /// meanwhile. Also asks the nodes in `denied` how long the key in the way will live.
    pub(crate) fn settle_in(&mut self, denied: NodeSet) -> [Decision; 2] {
        if self.lock.phase != Phase::Pausing {
            return [Decision::Continue; 2];
        }
        let listen = Decision::Listen(self.leads());
        if self.ticket.is_some() {
            return [listen, Decision::ReadLead];
        }
        // Behind the undo, so that an attempt that is granted never pays for this read. It also
        // makes the node report the next change of the key.
        if self.is_read_by_pttl() {
            denied.iter().for_each(|node| self.ask_remaining(node));
        }
        [listen, Decision::Wake]
    }

    /// Asks a node how long the key in the way will live.
    fn ask_remaining(&mut self, to: NodeId) {
        let (now, node) = (self.now(), &mut self.nodes[to.index()]);
        // A full pipeline has no room for a read that the timer can replace.
        if !node.link.takes_asks() || node.pipeline.len() >= MAX_PIPELINE {
            return;
        }
        node.track_next(now);
        let pending = Pending::Remaining { lock: self.id, round: self.lock.round() };
        node.pipeline.push(pending, now, |out| {
            let _ = command(out, 2).arg(b"PTTL").arg(self.keys.first());
        });
        self.env.arm(now + self.env.settings().dead_peer_timeout);
    }

    /// Records a node's answer to this read, if it belongs to the current round: the remaining life
    /// of the key in ms, -2 if it does not exist, -1 if it has no TTL.
    pub(crate) fn record_remaining(&mut self, node: NodeId, round: u32, ms: i64) -> Decision {
        match self.lock.round() == round {
            true => self.record_life(node, ms),
            false => Decision::Continue,
        }
    }

    /// Records the remaining life of the key in the way from a read or from the reply to a request,
    /// in ms; -1 and -2 as in the answer of `PTTL`.
    pub(crate) fn record_life(&mut self, node: NodeId, ms: i64) -> Decision {
        if ms == -1 || !matches!(self.lock.phase, Phase::Asking | Phase::Pausing) {
            return Decision::Continue;
        }
        let (now, leads) = (self.now(), self.leads());
        let (is_pausing, is_lead) = (self.lock.phase == Phase::Pausing, leads.contains(node));
        let notifies = is_lead && leads.iter().all(|lead| self.is_notified_by(lead));
        let left = u64::try_from(ms).ok().map(Duration::from_millis);
        // The key has gone between the refusal and this read, so no notification will come.
        if left.is_none() && is_lead {
            return self.wake_by(node);
        }
        let is_read_by_ask = !self.is_read_by_pttl();
        let pause = &mut self.waiting.pause;
        // A notification comes on another connection, so it may be about a change after this read.
        let rests = is_pausing && !pause.follows_split() && pause.is_quiet();
        // The key of a semaphore outlives its first permit to end. Only the denial has that time.
        let left = pause.known(node, now).filter(|_| is_pausing && is_read_by_ask).or(left);
        pause.key_lives(node, left, now);
        if left.is_some() && rests {
            match notifies {
                true => self.rest(),
                false => {
                    // The pause may have been chosen when a node still notified the lock.
                    let most = now + self.draw(self.env.settings().retry_backoff);
                    self.waiting.pause.goes_on(most);
                }
            }
        }
        if !is_pausing {
            return Decision::Continue;
        }
        self.shorten_pause();
        self.pause_due()
    }

    /// Makes the pause long, because the key in the way is still there and a node will report its
    /// next change. After a turn left to others, notifications are ignored for a while.
    fn rest(&mut self) {
        let (now, waiting) = (self.now(), &mut self.waiting);
        waiting.pause.lengthen(now, waiting.deadline);
        let sit_out = waiting.pause.take_sit_out();
        waiting.pause.sits_out_until(now + self.env.random_below(sit_out));
        self.record_contention();
    }

    /// Ends the pause when the keys in the way have expired.
    pub(super) fn shorten_pause(&mut self) {
        let until = self.waiting.pause.shorten(self.env.now().boot);
        until.into_iter().for_each(|until| self.arm(until));
    }

    /// Makes the pause long, because nodes notify from now on.
    fn lengthen_pause(&mut self) {
        if self.ticket.is_some() {
            return self.lengthen_pause_with_ticket();
        }
        // If there are two leads, the first is enough once it notifies.
        if let Some(first) = self.leads().iter().next()
            && self.is_notified_by(first)
        {
            self.waiting.pause.listen_to(first.into());
        }
        let follows_split = self.waiting.pause.follows_split();
        if self.will_be_notified() && self.lock.phase == Phase::Pausing && !follows_split {
            let (now, waiting) = (self.now(), &mut self.waiting);
            let until = waiting.pause.lengthen(now, waiting.deadline);
            self.arm(until);
            self.shorten_pause();
        }
    }

    /// Reads what the lock waits for when a node begins to notify, because it may have changed
    /// before.
    pub(crate) fn read_again(&mut self, node: NodeId) -> Decision {
        self.lengthen_pause();
        // For several keys, only the script finds out whether they are in the way.
        if self.ticket.is_none() && self.keys.len() != 1 {
            return self.wake_by(node);
        }
        self.read(node);
        Decision::Continue
    }

    /// Reads what the lock waits for, which makes the node report its next change.
    fn read(&mut self, node: NodeId) {
        match self.ticket.is_some() {
            true => self.read_lead(),
            false => self.ask_remaining(node),
        }
    }

    /// Reads again what the lock waits for, behind a command of this connection, unless the pause
    /// ends now.
    pub(super) fn read_behind(&mut self, node: NodeId) {
        if self.listens_to(node) && self.waiting.until() > self.now() {
            self.read(node);
        }
    }

    /// Records that a node has reported a change of a key in the way, or can no longer report one.
    pub(crate) fn wake_by(&mut self, node: NodeId) -> Decision {
        self.waiting.pause.notified(node);
        self.wake()
    }

    /// Ends the pause if a lead has notified, but not while the lock ignores notifications.
    pub(crate) fn wake(&mut self) -> Decision {
        let (now, pause) = (self.now(), &mut self.waiting.pause);
        if self.lock.phase != Phase::Pausing || pause.reported().is_empty() {
            return Decision::Continue;
        }
        // A notification during that time ends the pause later, so none is lost.
        self.env.metrics.wakes += u64::from(pause.wake(now));
        self.pause_due()
    }

    pub(crate) fn pause_due(&mut self) -> Decision {
        let (now, waiting) = (self.now(), &self.waiting);
        let until = waiting.pause.until();
        if now >= waiting.deadline {
            return Decision::Refused(RefusalReason::OutOfTime);
        } else if now < until {
            self.arm(until);
            self.check_lead();
            return Decision::Continue;
        }
        match self.lead_to_ask() {
            Some(lead) if waiting.pause.is_late() && self.is_read_by_pttl() => {
                self.read_first(lead);
                Decision::Continue
            }
            lead => Decision::Ask(lead),
        }
    }

    /// Reads the key at the lead instead of requesting the lock, and waits for the answer.
    fn read_first(&mut self, lead: NodeId) {
        // The notification came while the lock ignored them, so it is old. If the key still exists,
        // a request would win nothing. The read also makes the node report the next change.
        let patience = self.env.settings().response_timeout.min(self.nodes.allowance(lead));
        let until = (self.now() + patience).min(self.waiting.deadline);
        self.waiting.pause.reads_until(until);
        self.arm(until);
        self.ask_remaining(lead);
    }

    /// Returns the node to be asked before the others, if its notification ended the pause.
    fn lead_to_ask(&self) -> Option<NodeId> {
        let pause = &self.waiting.pause;
        let leads = self.ticket.is_none() && pause.is_woken();
        let lead =
            pause.reported().without(self.env.suspected()).iter().next().filter(|_| leads)?;
        self.nodes[lead.index()].link.takes_asks().then_some(lead)
    }

    /// Prepares the pause and the ticket for an attempt that begins.
    pub(crate) fn begin_attempt(&mut self, claims: &mut Claims) {
        let jitter = self.draw(EXPIRY_JITTER);
        self.waiting.pause.attempt_begins(jitter);
        self.ask_with_ticket(claims);
    }

    pub(super) fn draw(&mut self, (least, most): (Duration, Duration)) -> Duration {
        least + self.env.random_below(most.saturating_sub(least))
    }
}

/// The longest interval for which notifications are ignored after a lead denied: first for a new
/// waiter, then for one that has waited for `OLD`.
const MUTED_AFTER_DENIAL: (Duration, Duration) =
    (Duration::from_millis(16), Duration::from_millis(4));
const OLD: Duration = Duration::from_millis(250);

/// The longest interval for which notifications are ignored if the lead granted and others did not.
const MUTED_AFTER_SPLIT: Duration = Duration::from_millis(50);

/// The longest time for which a core ignores notifications after a turn left to others. It is also
/// at most half of the core's last wait.
const LONGEST_SIT_OUT: Duration = Duration::from_millis(100);

/// The round trips left to another process, which is notified, asks the lead and then the others,
/// with a margin.
const HAND_OFF_ROUND_TRIPS: u32 = 3;
