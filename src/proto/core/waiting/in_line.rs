//! Waiting in line: how one lock stands in the line of its resource on the nodes, and what it listens to until its turn
//! comes.
//!
//! Apart from the folder's `mod.rs`, whose waiters have no order between processes. A lock that was refused joins the line:
//! its asks carry a ticket from then on, until it is decided. Between two asks it listens to one node, the lead, and to
//! little there: whoever is first to the resource, the second to that and to the ticket before its own, and all others to
//! the two tickets before their own. Not here: what the nodes do, see `script::line`; which stamp a ticket has, see
//! `proto::line`.

use std::time::Duration;

use super::EXPIRY_JITTER;
use super::pause::{AT_LEAST_NOTIFIED, CAP_NOTIFIED};
use crate::proto::classify::classify;
use crate::proto::config::WakeStrategy;
use crate::proto::core::claims::Claim;
use crate::proto::core::effects::Decision;
use crate::proto::core::links::{Ability, Mistyped, Node, Pending};
use crate::proto::core::locks::{Active, Phase};
use crate::proto::core::{Core, MAX_PIPELINE};
use crate::proto::line::{
    Agreement, CLOSED, InLine, MARKED_FOR, Place, TICKET_PREFIX, TicketName, Told,
};
use crate::proto::mutants::mutant;
use crate::proto::names::{ClaimId, LockId, NodeId, NodeSet};
use crate::proto::permits;
use crate::proto::request::LockMode;
use crate::proto::script;
use crate::proto::time::{ClockReading, Timestamp};
use crate::proto::vote::Cause;
use crate::resp::{Token, command};

/// How one lock stands in line.
#[derive(Debug)]
pub(crate) struct Standing {
    ticket: ClaimId,
    /// The ticket before it, at the same place with another grace, which goes when the nodes know this one.
    former: Option<ClaimId>,
    agreement: Agreement,
    grace: Duration,
    /// The grace that the present round trip needs.
    needed_grace: Duration,
    joined_at: Timestamp,
    /// What the nodes have told in the present attempt.
    places: Vec<(NodeId, Place)>,
    /// Where it stands at its lead, as far as it is known now.
    place: Option<Place>,
    /// Asks that followed the one before at once: until a quorum says the same stamp, or until a release has reached all
    /// nodes.
    hurried: u32,
    /// Asks since the lead was last seen to be held, because it was seen to be free.
    seen_free: u32,
    /// How many slots of the semaphore were last seen to be taken.
    slots_taken: u64,
    /// Who was last seen to have left of the last before it, and of the last but one. A node that names it again has its ticket
    /// without the key.
    has_left: [Option<TicketName>; 2],
    /// It has asked since it saw that several have the resource.
    knows_many: bool,
    /// When its pause ends if whoever is before it takes the resource that was seen to be free.
    rests_until: Option<Timestamp>,
    /// When it last asked in vain because of a notification.
    woken_in_vain_at: Option<Timestamp>,
    /// How long it is silent before it makes sure that its lead does not hang, and when that is over.
    silence: Duration,
    silent_until: Timestamp,
    /// When it looks at the resource from behind the first two, and whether the look before found it free.
    look_at: Timestamp,
    was_free: bool,
    /// When it asks again if the holder has ended without a release.
    ask_behind_holder_at: Timestamp,
    /// When a ticket before it has expired that it has pinged, unless its owner has asked.
    pinged_until: Timestamp,
}

/// Tickets that leave the line: the one of a lock, behind the one that it has replaced.
pub(crate) type Tickets = [Option<ClaimId>; 2];

/// What a lock in line reads at its lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Looked {
    /// What lies at the resource.
    Resource,
    /// The same, from behind the first two: the node need not report changes.
    FromBehind,
    /// For how long it will.
    Life,
    /// The same where several have it, each until a time of its own.
    LifeOfMany,
    /// The ticket before its own.
    Last,
    /// The ticket before that.
    LastButOne,
    /// How many slots of a semaphore are taken, and which ends first.
    Slots,
    /// Nothing that matters: the node answers.
    Alive,
}

/// The slots of a semaphore that are taken, as a node tells.
#[derive(Clone, Copy, Debug)]
struct Slots {
    taken: u64,
    /// For how long the first of their holders to end still has its slot.
    first_ends_in: Option<Duration>,
}

impl Slots {
    /// Reads the answer of [`script::VIEW_PERMITS`] that names one holder at most. `None` of a hash that is no semaphore.
    fn read(text: &[u8]) -> Option<Self> {
        let mut lines = str::from_utf8(text).ok()?.split('\n');
        let (count, first) = (lines.next()?, lines.next());
        // There is no key: a hash without fields.
        if count == "hash" && first.is_none() {
            return Some(Self { taken: 0, first_ends_in: None });
        }
        let left = first.and_then(|line| line.split(' ').next()?.parse().ok());
        Some(Self { taken: count.parse().ok()?, first_ends_in: left.map(Duration::from_millis) })
    }
}

impl Standing {
    /// It stands there now. What it need not listen to any longer.
    fn stands_at(&mut self, place: Option<Place>) -> [Option<TicketName>; 2] {
        let before = std::mem::replace(&mut self.place, place);
        before.map_or([None; 2], |place| place.predecessors)
    }

    /// Whether nobody stands before it, as far as it knows.
    fn is_first(&self) -> bool {
        self.place.is_some_and(|place| place.before == 0)
    }

    /// Whether somebody holds the resource at its lead, as far as it knows.
    fn is_held(&self) -> bool {
        self.place.is_some_and(|place| place.left_ms != 0)
    }

    /// When those before it can no longer come, if they were called or pinged: it asks again then, and the nearest of all who do
    /// so asks first. Otherwise nobody might call the next one, since all between may be dead.
    fn others_may_come_until(&self, now: Timestamp) -> Option<Timestamp> {
        let place = self.place?;
        if mutant!(NextAsksAlone) && place.before != 1 {
            return None;
        }
        if place.left_ms == 0 && place.before > 0 {
            let nearer = AFTER_NEARER.saturating_mul(place.before - 1);
            return Some(now + (with_margin(place.grace_ms) + nearer).min(CAP_NOTIFIED));
        }
        (now < self.pinged_until).then_some(self.pinged_until)
    }

    /// When it looks at the resource although it stands behind two others. A release wakes the first two, who may both be dead. The
    /// interval grows with its place, so that all together look as often as a few.
    fn looks_from_behind_at(&self, now: Timestamp) -> Timestamp {
        if mutant!(NobodyLooksFromBehind) {
            return Timestamp::NEVER;
        }
        match self.place {
            Some(Place { before: before @ 2.., left_ms, .. }) if left_ms != 0 => {
                now + LOOK_FROM_BEHIND.saturating_mul(before)
            }
            _ => Timestamp::NEVER,
        }
    }

    /// When it asks again because the holder of the resource, which has so much time left, has ended, and those before it have had
    /// `leave` to come. A node reports a release but not the end of a marked holder, and the first in line, who waits for that, may
    /// be dead as well.
    fn asks_behind_holder_at(&self, now: Timestamp, left: Duration, leave: Duration) -> Timestamp {
        if mutant!(HolderEndsUnnoticed) {
            return Timestamp::NEVER;
        }
        match self.place {
            Some(Place { before: before @ 1.., .. }) => {
                // The first asks within the jitter after that, and the nearest to it before the others.
                let leave = EXPIRY_JITTER.1 + leave + LOOK_FROM_BEHIND.saturating_mul(before - 1);
                now + left + leave
            }
            _ => Timestamp::NEVER,
        }
    }

    /// A pause begins: sets when it looks, and when it asks although no node has notified it.
    fn schedule_looks(&mut self, now: Timestamp, leave: Duration) {
        self.silent_until = now + self.silence;
        (self.look_at, self.was_free) = (self.looks_from_behind_at(now), false);
        let left = self.place.map(|place| place.left_ms).filter(|&left| left > 0);
        let left = left.map(|left| Duration::from_millis(left.unsigned_abs()));
        let asks_at = left.map(|left| self.asks_behind_holder_at(now, left, leave));
        self.ask_behind_holder_at = asks_at.unwrap_or(Timestamp::NEVER);
    }

    /// Whether its owner needs more time to take its turn than the ticket says. A ticket keeps its grace, so it needs another one,
    /// which its door allows at the same place. A grace that is longer than needed stays: a shorter one would let others pass an
    /// owner that has not heard yet that a second node is free.
    fn needs_more_time(&self) -> bool {
        if mutant!(GraceIsFixed) {
            return false;
        }
        self.needed_grace > self.grace && self.former.is_none() && self.agreement.has_door()
    }

    /// Whether it has to ask again before it can wait: a quorum has told of its place, but not alike; or the lead has told
    /// of a release that others of the nodes had not heard of.
    fn hurries(&mut self, is_split: bool) -> bool {
        let has_no_door = self.agreement.has_heard() && !self.agreement.has_door();
        let hurries = has_no_door || is_split && self.is_first();
        self.hurried = if hurries { self.hurried + 1 } else { 0 };
        hurries && self.hurried <= HURRIES
    }

    /// One of the two before it stands there: that it leaves will be news.
    fn is_there(&mut self, what: Looked) {
        self.has_left[usize::from(what == Looked::LastButOne)] = None;
    }

    /// The node that it listens to: the first in order whose holder is in the way of a quorum until `needed` of the holders
    /// have ended. If there is none, the first that has answered.
    fn lead(&self, suspected: NodeSet, needed: usize) -> Option<(NodeId, Place)> {
        let can = || self.places.iter().filter(|(node, _)| !suspected.contains(*node));
        let have_ended = |at| can().filter(|(_, place)| place.ends_in_ms() <= at).count();
        let ends = can().map(|(_, place)| place.ends_in_ms());
        let quorum_ends = ends.filter(|&at| have_ended(at) >= needed).min().unwrap_or(0);
        // A node where a former holder is about to end will not report the release of the present one, who may have
        // a quorum without it. Half of the time is enough: what nodes tell of one holder differs by less than that.
        let is_in_the_way =
            |place: &Place| place.left_ms != 0 && place.ends_in_ms() >= quorum_ends / 2;
        can().min_by_key(|(node, place)| (!is_in_the_way(place), *node)).copied()
    }
}

impl Active {
    /// Whether the resource may have a line that the lock can stand in.
    fn may_stand_in_line(&self) -> bool {
        let is_of_ours = self.keys.len() == 1 && self.foreign().is_none();
        is_of_ours && self.waits() && !self.mode_change.is_companion()
    }

    /// Whether all who stand before it want permits as well: behind others a free slot is not for it.
    fn waits_for_slot(&self) -> bool {
        if mutant!(SlotsNotCounted) {
            return false;
        }
        let last = self.line.as_ref().and_then(|line| line.place?.predecessors[0]);
        self.permit.is_wanted() && last.is_none_or(TicketName::is_for_permit)
    }
}

/// Standing in line.
impl Core {
    /// The lock asks in line from now on.
    fn join_line(&mut self, id: LockId, took: Duration) {
        let grace = self.needed_grace(took);
        if !self.may_stand_in_line(id) {
            return;
        }
        let Some((lock, active)) = self.locks.at_work_mut(id) else { return };
        if active.line.is_some() {
            return;
        }
        let (ticket, claim) = self.claims.occupy();
        let named = (grace.as_millis() as u64, &self.config.settings.label[..]);
        claim.begin_ticket(id, &active.keys, lock.mode(), named, self.entropy.bytes());
        active.line = Some(Box::new(Standing {
            ticket,
            former: None,
            agreement: Agreement::new(self.config.quorum()),
            grace,
            needed_grace: grace,
            joined_at: self.boot,
            places: Vec::new(),
            place: None,
            hurried: 0,
            seen_free: 0,
            slots_taken: u64::MAX,
            has_left: [None; 2],
            knows_many: false,
            rests_until: None,
            woken_in_vain_at: None,
            silence: FIRST_SILENCE,
            silent_until: Timestamp::NEVER,
            look_at: Timestamp::NEVER,
            was_free: false,
            ask_behind_holder_at: Timestamp::NEVER,
            pinged_until: Timestamp::default(),
        }));
        self.metrics.lined_up += 1;
    }

    /// Whether the lock stands in line where others wait. If not, its process leaves turns to others from time to time; and so it
    /// does until nodes are known to have lines: who only asks and is granted does not find that out.
    pub(super) fn goes_to_the_line(&self, id: LockId, now: ClockReading) -> bool {
        let has_line = |node: &&Node| node.capabilities.line() == Ability::Given;
        let have_lines = self.nodes.iter().filter(has_line).count() >= self.config.quorum();
        let is_contended = |&key: &_| self.queues.is_contended(key, now.boot);
        let is_seen = |active: &Active| active.waiting.queues.iter().any(is_contended);
        let active = self.locks.active(id).filter(|_| self.may_stand_in_line(id));
        active.is_some_and(|active| have_lines || is_seen(active))
    }

    fn may_stand_in_line(&self, id: LockId) -> bool {
        let is_wanted = self.config.settings.wake == WakeStrategy::Line && self.may_have_lines();
        is_wanted && self.locks.active(id).is_some_and(Active::may_stand_in_line)
    }

    /// Whether a quorum of nodes may have a line: there is no order where that is not so.
    fn may_have_lines(&self) -> bool {
        let can = |node: &&Node| !matches!(node.capabilities.line(), Ability::Refused(_));
        self.nodes.iter().filter(can).count() >= self.config.quorum()
    }

    /// The first ask of a lock that waits. Where others have been seen to wait, it stands in line from the beginning.
    pub(super) fn first_attempt_in_line(&mut self, id: LockId, now: ClockReading) -> Decision {
        let key = self.locks.active(id).and_then(|active| active.waiting.queues.first().copied());
        let Some(key) = key else { return Decision::Continue };
        if !self.queues.is_contended(key, now.boot) {
            return Decision::Ask(None);
        }
        let is_unknown = self.round_trip.is_zero();
        let took = if is_unknown { LONGEST_GRACE_NEAR / GRACE_ROUND_TRIPS } else { Duration::ZERO };
        self.join_line(id, took);
        let hand_off = (self.round_trip * HAND_OFF_ROUND_TRIPS).max(SHORTEST_HAND_OFF);
        let until = self.queues.released_at(key).map_or(now.boot, |released| released + hand_off);
        if until <= now.boot {
            return Decision::Ask(None);
        }
        // Who is first shall not find our ask before its own.
        if let Some((lock, _)) = self.locks.at_work_mut(id) {
            lock.phase = Phase::Pausing;
            self.pause_until(id, until);
        }
        Decision::Continue
    }

    /// An attempt begins: its asks carry the ticket, if the lock has one.
    pub(in crate::proto::core) fn ask_in_line(&mut self, id: LockId, now: ClockReading) {
        let Some((lock, active)) = self.locks.at_work_mut(id) else { return };
        let Some(line) = &mut active.line else { return };
        line.places.clear();
        let stamp = line.agreement.asks();
        // An ask that follows a notification may be the turn, which two tickets would delay.
        if line.needs_more_time() && !active.waiting.pause.is_woken() {
            // Both stand at the same place until the nodes have answered, so that nobody passes in between.
            line.grace = (line.needed_grace + line.needed_grace / 4).min(LONGEST_GRACE);
            let (ticket, claim) = self.claims.occupy();
            let named = (line.grace.as_millis() as u64, &self.config.settings.label[..]);
            claim.begin_ticket(id, &active.keys, lock.mode(), named, self.entropy.bytes());
            line.former = Some(std::mem::replace(&mut line.ticket, ticket));
        }
        let (ticket, grace_ms) = (line.ticket, line.grace.as_millis() as u64);
        let Some(name) = self.claims.find(ticket).map(Claim::ticket_name) else { return };
        if let Some(claim) = self.claims.find_mut(lock.claim()) {
            let proposal = now.wall.0 / 1000;
            claim.asks_in_line(ticket, InLine { ticket: name, stamp, proposal, grace_ms });
        }
    }

    /// A node has told where the ticket stands.
    pub(in crate::proto::core) fn place_told(
        &mut self,
        node: NodeId,
        claim: ClaimId,
        told: Told,
        now: ClockReading,
    ) {
        self.node_mut(node).capabilities.line_is(Ability::Given);
        let lock = self.claims.find(claim).and_then(Claim::lock);
        let Some(active) = lock.and_then(|lock| self.locks.active_mut(lock)) else { return };
        let Some(line) = &mut active.line else { return };
        match told {
            Told::Granted { stamp, .. } => line.agreement.hears(node, stamp),
            Told::Waits(place) => {
                line.agreement.hears(node, place.stamp);
                line.places.push((node, place));
                if let Some(grace_ms) = place.pinged_ms() {
                    let until = now.boot + with_margin(grace_ms).min(CAP_NOTIFIED);
                    line.pinged_until = line.pinged_until.max(until);
                }
                if place.left_ms == 0 {
                    // Nobody holds it there, and whoever is first has been called.
                    let grace = Duration::from_millis(place.grace_ms.into()).min(CAP_NOTIFIED);
                    active.waiting.pause.key_lives(node, Some(grace), now.boot);
                }
            }
        }
    }

    /// The lock is decided, one way or the other, and stands in line no longer. The tickets that it had.
    #[must_use = "they are to leave the line on the nodes"]
    pub(in crate::proto::core) fn leave_line(&mut self, id: LockId, now: ClockReading) -> Tickets {
        let line = self.locks.active_mut(id).and_then(|active| active.line.take());
        let Some(mut line) = line else { return [None; 2] };
        self.metrics.left_line(line.joined_at, now.boot);
        for name in line.stands_at(None).into_iter().flatten() {
            self.listeners.remove(&name);
        }
        [line.former, Some(line.ticket)]
    }
}

/// Waiting for the turn.
impl Core {
    /// Whether whoever begins to wait from now on does not get the lock before this one, which stands in line: a quorum of
    /// nodes knows its place.
    #[must_use]
    pub fn has_door(&self, id: LockId) -> bool {
        let line = self.locks.line(id);
        line.is_some_and(|line| line.agreement.has_door())
    }

    /// Why those who wait cannot stand in line on a node, if an ask has found that out. They ask it as they would without a
    /// line, and in no order.
    #[must_use]
    pub fn no_line(&self, node: NodeId) -> Option<Cause> {
        match self.node(node).capabilities.line() {
            Ability::Refused(cause) => Some(cause),
            Ability::Given | Ability::Unknown => None,
        }
    }

    /// An attempt was refused. Whether what follows is of the line, and the tickets that leave it.
    pub(super) fn pause_in_line(&mut self, id: LockId, now: ClockReading) -> (bool, Tickets) {
        let mut tickets = if self.may_have_lines() { [None; 2] } else { self.leave_line(id, now) };
        if mutant!(LeavesWhenRefused) {
            tickets = self.leave_line(id, now);
        }
        let Some(active) = self.locks.active(id) else { return (false, tickets) };
        let (is_new, took) = (active.line.is_none(), active.round.took(now.boot));
        self.join_line(id, took);
        let former = self.leave_former_place(id);
        let has_another = former.is_some();
        tickets[0] = tickets[0].or(former);
        let (suspected, needed_grace) = (self.suspected, self.needed_grace(took));
        let leave = self.time_to_take_turn();
        let Some((lock, active)) = self.locks.at_work_mut(id) else { return (false, tickets) };
        let Some(line) = &mut active.line else { return (false, tickets) };
        lock.phase = Phase::Pausing;
        (line.needed_grace, line.rests_until) = (needed_grace, None);
        let has_to_ask = is_new || has_another || line.needs_more_time();
        active.attempt.was_led();
        let was_woken = active.waiting.pause.take_woken();
        let is_split = (was_woken || line.hurried > 0) && !active.votes.grants().is_empty();
        if was_woken && !is_split {
            line.woken_in_vain_at = Some(now.boot);
        }
        let needed = active.votes.quorum().saturating_sub(active.votes.grants().len());
        let lead = line.lead(suspected, needed);
        for name in line.stands_at(lead.map(|(_, place)| place)).into_iter().flatten() {
            self.listeners.remove(&name);
        }
        active.waiting.pause.listen_to(lead.map(|(node, _)| node.into()).unwrap_or_default());
        let hurries = has_to_ask || line.hurries(is_split);
        active.waiting.pause.refused(false, needed);
        line.schedule_looks(now.boot, leave);
        let until = if hurries { now.boot } else { self.pause_for_turn(id, now) };
        self.pause_until(id, until);
        if hurries {
            self.scheduled.push_back(id);
        }
        (true, tickets)
    }

    /// The nodes know the new ticket, and the one before it goes, if there is one: it may be the only one before the new one.
    fn leave_former_place(&mut self, id: LockId) -> Option<ClaimId> {
        let active = self.locks.active_mut(id)?;
        let votes = &active.votes;
        let answered = votes.grants().or(votes.denies()).len();
        // As long as a quorum of nodes may be without the new ticket, others could pass there.
        if answered + votes.quorum() <= votes.node_count() {
            return None;
        }
        active.line.as_mut()?.former.take()
    }

    /// The grace that an owner needs now, whose last ask took so long.
    fn needed_grace(&self, took: Duration) -> Duration {
        let is_notified = self.nodes.iter().any(|node| node.push.notifies());
        grace_for(self.round_trip.max(took), is_notified)
    }

    /// The time that the first in line is left to take a resource that is free.
    fn time_to_take_turn(&self) -> Duration {
        (self.round_trip * LEFT_ROUND_TRIPS).max(SHORTEST_LEFT)
    }

    /// When a lock that stands in line asks again, if nobody tells it that its turn has come.
    fn pause_for_turn(&mut self, id: LockId, now: ClockReading) -> Timestamp {
        let will_be_notified = self.will_be_notified(id);
        let backoff = self.config.settings.retry_backoff;
        let Some(active) = self.locks.active_mut(id) else { return Timestamp::NEVER };
        let leads = active.waiting.pause.leads();
        for &key in &active.waiting.queues {
            self.queues.contended(key, leads, now.boot);
        }
        let line = active.line.as_ref();
        if let Some(until) = line.and_then(|line| line.others_may_come_until(now.boot)) {
            return until;
        }
        let took = active.round.took(now.boot);
        let (floor, bound) = match will_be_notified {
            true => (AT_LEAST_NOTIFIED, CAP_NOTIFIED),
            false => active.waiting.pause.span(took, false, backoff),
        };
        let until = now.boot + floor + self.entropy.below(bound.saturating_sub(floor));
        // A ticket does not live long without an ask.
        until.min(now.boot + CAP_NOTIFIED)
    }

    /// The lead sends notifications from now on, so that the pause can be long.
    pub(super) fn lengthen_pause_in_line(&mut self, id: LockId, now: ClockReading) {
        let Some((lock, active)) = self.locks.at_work_mut(id) else { return };
        let line = active.line.as_ref();
        let may_be_long = line.is_some_and(|line| line.is_held() && line.pinged_until <= now.boot);
        if lock.phase == Phase::Pausing && may_be_long {
            active.waiting.pause.waits_for_word(now.boot, active.waiting.deadline);
            let until = active.waiting.pause.until();
            self.pause_until(id, until);
        }
    }

    fn pause_until(&mut self, id: LockId, until: Timestamp) {
        let Some(active) = self.locks.active_mut(id) else { return };
        let line = active.line.as_ref();
        let is_first = line.is_some_and(|line| line.is_first());
        let behind_holder = line.filter(|_| !is_first).map(|line| line.ask_behind_holder_at);
        let looks_at = line.map(|line| line.silent_until.min(line.look_at));
        let until = behind_holder.into_iter().fold(until, Ord::min).min(active.waiting.deadline);
        active.waiting.pause.lasts_until(until);
        self.arm_lock(id, looks_at.into_iter().fold(until, Ord::min));
        if is_first {
            self.shorten_pause(id);
        }
    }

    /// Reads at the lead what the lock waits for, which makes the node report its next change.
    pub(in crate::proto::core) fn look_in_line(&mut self, id: LockId, now: ClockReading) {
        let Some((lock, active)) = self.locks.at_work(id) else { return };
        let Some((line, lead)) = active.line.as_ref().zip(active.waiting.leads().iter().next())
        else {
            return;
        };
        let Some(place) = line.place.filter(|_| lock.phase == Phase::Pausing) else { return };
        let node = &mut self.nodes[lead.index()];
        let has_room = node.pipeline.len() + 6 < MAX_PIPELINE;
        if !node.link.takes_asks() || !node.push.notifies() || !has_room {
            return;
        }
        let [last, last_but_one] = place.predecessors;
        let resource =
            (place.before <= 1).then(|| (Looked::Resource, &b""[..], active.keys.first()));
        let last = last.as_ref().filter(|_| place.before >= 1);
        let last_but_one = last_but_one.as_ref().filter(|_| place.before >= 2);
        let tickets = [(Looked::Last, last), (Looked::LastButOne, last_but_one)];
        let tickets = tickets
            .into_iter()
            .filter_map(|(what, name)| Some((what, TICKET_PREFIX, &name?.0[..])));
        for (what, prefix, key) in resource.into_iter().chain(tickets) {
            node.track_next(now.boot);
            let pending = Pending::Look { lock: id, round: lock.round(), what };
            node.pipeline.push(pending, now.boot, |out| {
                let look = command(out, 4).arg(b"GETRANGE").prefixed(prefix, key);
                let _ = look.int(0).int(LONGEST_READ);
            });
        }
        for name in last.into_iter().chain(last_but_one) {
            self.listeners.insert(*name, id);
        }
        self.arm(now.boot + self.config.settings.dead_peer_timeout);
    }

    /// Looks at the resource from behind the first two, if that is due.
    fn look_from_behind(&mut self, id: LockId, now: ClockReading) {
        let least = self.round_trip * 2;
        let Some(active) = self.locks.active_mut(id) else { return };
        let Some(line) = &mut active.line else { return };
        let lead = active.waiting.pause.leads().iter().next();
        let is_due = now.boot >= line.look_at;
        if is_due {
            let next = line.looks_from_behind_at(now.boot);
            line.look_at = if next == Timestamp::NEVER { next } else { next.max(now.boot + least) };
        }
        let look_at = line.look_at;
        self.arm_lock(id, look_at);
        if let Some(lead) = lead.filter(|lead| is_due && self.node(*lead).push.notifies()) {
            self.ask_node(id, lead, Looked::FromBehind, now);
        }
    }

    /// The resource is free, or is not, as seen from behind the first two. Seen to be free twice in a row, it has been left idle.
    fn seen_from_behind(&mut self, id: LockId, is_free: bool, now: ClockReading) {
        let leave = self.time_to_take_turn();
        let Some(line) = self.locks.line_mut(id) else { return };
        if line.place.is_none_or(|place| place.before < 2) {
            return;
        }
        let was_free = std::mem::replace(&mut line.was_free, is_free);
        match (was_free, is_free) {
            (true, true) => self.pause_until(id, now.boot),
            (false, true) => {
                line.look_at = line.look_at.min(now.boot + leave);
                let look_at = line.look_at;
                self.arm_lock(id, look_at);
            }
            (_, false) => {}
        }
    }

    /// A lead that hangs reports nothing, and nobody knows that who asks nothing. So a lock that has been silent asks all
    /// nodes for a sign of life, each time after twice as long: a hanging lead makes its wait as long again at the most.
    /// The lead, if they were asked now.
    pub(super) fn break_silence(&mut self, id: LockId, now: ClockReading) -> Option<NodeId> {
        self.look_from_behind(id, now);
        let active = self.locks.active_mut(id)?;
        let line = active.line.as_mut()?;
        let lead = active.waiting.pause.leads().iter().next()?;
        let is_over = now.boot >= line.silent_until;
        if is_over {
            line.silence *= 2;
            line.silent_until = now.boot + line.silence;
        }
        let silent_until = line.silent_until;
        self.arm_lock(id, silent_until);
        if !is_over {
            return None;
        }
        for node in self.config.node_ids() {
            self.ask_node(id, node, Looked::Alive, now);
        }
        Some(lead)
    }

    /// The lead has told what a lock in line has read there.
    pub(in crate::proto::core) fn looked_in_line(
        &mut self,
        node: NodeId,
        (id, round, what): (LockId, u32, Looked),
        token: Token<'_>,
        now: ClockReading,
    ) -> Result<Decision, Mistyped> {
        let (is_gone, number, slots) = self.read_look(id, what, token)?;
        let has_many = is_of_another_type(token);
        let is_this_round = self.locks.find(id).is_some_and(|lock| lock.round() == round);
        if !is_this_round || (what != Looked::Alive && !self.listens_to(id, node)) {
            return Ok(Decision::Continue);
        }
        let waits_for_slot = self.locks.active(id).is_some_and(Active::waits_for_slot);
        match what {
            Looked::Resource | Looked::FromBehind if has_many && waits_for_slot => {
                self.ask_node(id, node, Looked::Slots, now);
            }
            Looked::FromBehind => self.seen_from_behind(id, is_gone, now),
            Looked::Resource if has_many => return Ok(self.many_seen(id, node, now)),
            // Nobody has it there, or one alone.
            Looked::Resource => {
                self.locks.line_mut(id).into_iter().for_each(|line| line.knows_many = false);
                return Ok(self.resource_seen(id, node, is_gone, now));
            }
            Looked::Slots => return Ok(self.slots_seen(id, node, slots, now)),
            Looked::Life => self.life_seen(id, number, now),
            Looked::LifeOfMany => self.life_of_many_seen(id, node, number, now),
            Looked::Alive => self.sign_of_life(id, node, number, now),
            Looked::Last | Looked::LastButOne if !is_gone => {
                self.locks.line_mut(id).into_iter().for_each(|line| line.is_there(what));
            }
            Looked::Last => return Ok(self.last_has_left(id, node, now)),
            Looked::LastButOne => self.is_second(id, now),
        }
        Ok(Decision::Continue)
    }

    /// Whether what was looked at is free or has gone, or the number or the slots that were asked for.
    fn read_look(
        &self,
        id: LockId,
        what: Looked,
        token: Token<'_>,
    ) -> Result<(bool, Option<i64>, Option<Slots>), Mistyped> {
        Ok(match (what, token) {
            // Whoever shares the resource has it, or has one of its permits.
            (_, Token::Error(_)) => (false, None, None),
            (Looked::Resource | Looked::FromBehind, Token::Bulk(value)) => {
                (value.is_empty() || value == CLOSED, None, None)
            }
            (Looked::Last | Looked::LastButOne, Token::Bulk(stamp)) => {
                (self.is_behind(id, what, stamp), None, None)
            }
            (Looked::Slots, Token::Bulk(text)) => (false, None, Slots::read(text)),
            (Looked::Alive | Looked::Life | Looked::LifeOfMany, Token::Int(number)) => {
                (false, Some(number), None)
            }
            _ => return Err(Mistyped),
        })
    }

    /// Whether the ticket that stood before this lock's has gone, or was put behind it.
    fn is_behind(&self, id: LockId, what: Looked, stamp: &[u8]) -> bool {
        let Some(stamp) = str::from_utf8(stamp).ok().and_then(|stamp| stamp.parse::<u64>().ok())
        else {
            return stamp.is_empty();
        };
        let line = self.locks.line(id);
        let Some((line, place)) = line.and_then(|line| Some((line, line.place?))) else {
            return false;
        };
        let [last, last_but_one] = place.predecessors;
        let other = if what == Looked::Last { last } else { last_but_one };
        let own = self.claims.find(line.ticket).map(Claim::ticket_name);
        (stamp, other) > (place.stamp, own)
    }

    /// The resource is free at the lead, or is not. Whoever is first asks. Whoever is second leaves the first some time to
    /// take it, and asks then: the first may be dead, or may have been put behind it since it has heard.
    fn resource_seen(
        &mut self,
        id: LockId,
        node: NodeId,
        is_free: bool,
        now: ClockReading,
    ) -> Decision {
        let Some(active) = self.locks.active_mut(id) else { return Decision::Continue };
        let Some(line) = &mut active.line else { return Decision::Continue };
        let Some(place) = &mut line.place else { return Decision::Continue };
        if !is_free {
            (line.seen_free, place.left_ms) = (0, HELD);
            let until = line.rests_until.take();
            until.into_iter().for_each(|until| self.pause_until(id, until));
        } else if place.before > 0 && place.left_ms == 0 {
            // Its ask has seen that too, and called the first.
        } else if place.before > 0 {
            place.left_ms = 0;
            let paused_until = active.waiting.pause.until();
            let until = line.rests_until.unwrap_or(paused_until);
            line.rests_until = Some(until);
            let leave = self.time_to_take_turn();
            self.pause_until(id, until.min(now.boot + leave));
        } else if line.seen_free < MOST_SEEN_FREE {
            line.seen_free += 1;
            return self.changed_at(id, node, now);
        }
        Decision::Continue
    }

    /// A semaphore has these slots at the lead, or is none. Where one of its slots was free already, and was left to who stands
    /// before, it is worth an ask that another one is free.
    fn slots_seen(
        &mut self,
        id: LockId,
        node: NodeId,
        slots: Option<Slots>,
        now: ClockReading,
    ) -> Decision {
        let leave = self.time_to_take_turn();
        let of = self.locks.find(id).map_or(0, |lock| permits_of(lock.mode()));
        let Some(active) = self.locks.active_mut(id) else { return Decision::Continue };
        let Some(line) = &mut active.line else { return Decision::Continue };
        let taken = slots.map_or(u64::MAX, |slots| slots.taken);
        let is_free = taken < of;
        let has_more = taken < std::mem::replace(&mut line.slots_taken, taken);
        let is_left = line.place.is_some_and(|place| place.before > 0 && place.left_ms == 0);
        if is_free && is_left && has_more {
            return self.changed_at(id, node, now);
        }
        // The key lives for as long as the last of its holders, so this alone tells when the first of them ends.
        if let Some(left) = slots.and_then(|slots| slots.first_ends_in).filter(|_| !is_free) {
            line.ask_behind_holder_at = line.asks_behind_holder_at(now.boot, left, leave);
            let until = active.waiting.pause.until();
            self.pause_until(id, until);
        }
        self.resource_seen(id, node, is_free, now)
    }

    /// Asks something of a node, of which it need not report changes: for how long the holder may have the resource that came
    /// before this lock, and of whom it has not heard; which slots of a semaphore are taken; or what lies at the resource.
    fn ask_node(&mut self, id: LockId, to: NodeId, what: Looked, now: ClockReading) {
        let Some((lock, active)) = self.locks.at_work(id) else { return };
        let node = &mut self.nodes[to.index()];
        let is_open = node.link.takes_asks() && !self.suspected.contains(to);
        if !is_open || node.pipeline.len() >= MAX_PIPELINE {
            return;
        }
        let key = active.keys.first();
        let pending = Pending::Look { lock: id, round: lock.round(), what };
        node.pipeline.push(pending, now.boot, |out| match what {
            Looked::FromBehind => {
                let look = command(out, 4).arg(b"GETRANGE").arg(key);
                let _ = look.int(0).int(LONGEST_READ);
            }
            Looked::Slots => {
                let look =
                    command(out, 6).arg(b"EVAL").arg(script::VIEW_PERMITS.text.as_bytes()).int(2);
                let _ = look.arg(key).prefixed(permits::ENDS_PREFIX, key).int(1);
            }
            _ => drop(command(out, 2).arg(b"PTTL").arg(key)),
        });
    }

    /// What is marked outlives its holder. What is not is another's, and the ask tells for how long that is.
    fn life_seen(&mut self, id: LockId, life: Option<i64>, now: ClockReading) {
        let Some(life) = life.and_then(|ms| u64::try_from(ms).ok()) else { return };
        let left = Duration::from_millis(life).saturating_sub(MARKED_FOR);
        let (least, most) = EXPIRY_JITTER;
        let jitter = least + self.entropy.below(most - least);
        let Some(active) = self.locks.active(id) else { return };
        let until = active.waiting.pause.until().min(now.boot + left + jitter);
        self.pause_until(id, until);
    }

    /// Several have the resource at the lead. A reader may be beside them as soon as nobody stands before it, and asks once: that
    /// it has become the first, or that they have come behind a writer, its ask has not known.
    fn many_seen(&mut self, id: LockId, node: NodeId, now: ClockReading) -> Decision {
        let shares = self.locks.find(id).is_some_and(|lock| lock.mode() == LockMode::Shared);
        let line = self.locks.line_mut(id);
        let is_news = line.is_some_and(|line| {
            let was_second = |(of, place): &(NodeId, Place)| *of == node && place.before > 0;
            let has_become_first = line.places.iter().any(was_second);
            shares
                && line.is_first()
                && (!std::mem::replace(&mut line.knows_many, true) || has_become_first)
        });
        if is_news {
            return self.changed_at(id, node, now);
        }
        let decision = self.resource_seen(id, node, false, now);
        self.ask_node(id, node, Looked::LifeOfMany, now);
        decision
    }

    /// One of several may have gone since the ask, and who is left may never release: the ask has told when the last of all ends. What
    /// is not marked lives as long as that said.
    fn life_of_many_seen(
        &mut self,
        id: LockId,
        node: NodeId,
        life: Option<i64>,
        now: ClockReading,
    ) {
        let line = self.locks.line(id);
        let places = line.into_iter().flat_map(|line| &line.places);
        let told = places.filter(|(of, _)| *of == node).map(|(_, place)| place.left_ms).max();
        let (marked, pause) = (MARKED_FOR.as_millis() as i64, CAP_NOTIFIED.as_millis() as i64);
        let is_news = |&life: &i64| life > marked || told.is_some_and(|told| told > life + pause);
        self.life_seen(id, life.filter(is_news), now);
    }

    /// A node is alive, and tells for how long its key is: its answer to the ask may have come too late to count, or was of a holder
    /// who has released since. A key that lives for as long as the answer said is not marked, and another's.
    fn sign_of_life(&mut self, id: LockId, node: NodeId, life: Option<i64>, now: ClockReading) {
        let Some(life) = life.filter(|&life| life != WITHOUT_END) else { return };
        let life = Duration::from_millis(life.max(0).unsigned_abs());
        let Some((lock, active)) = self.locks.at_work_mut(id) else { return };
        if lock.phase != Phase::Pausing {
            return;
        }
        if active.line.as_ref().is_none_or(|line| !line.is_first()) {
            let (is_held, wants_slot) = (life > MARKED_FOR, active.waits_for_slot());
            return match is_held && wants_slot && self.listens_to(id, node) {
                true => self.ask_node(id, node, Looked::Slots, now),
                false => self.life_seen_from_behind(id, node, life, now),
            };
        }
        let known = active.waiting.pause.known(node, now.boot);
        let is_news = match known {
            Some(known) => known.abs_diff(life) > CAP_NOTIFIED,
            None => life > MARKED_FOR,
        };
        if is_news {
            let left = life.saturating_sub(MARKED_FOR);
            let left = known.map_or(left, |known| known.min(left));
            active.waiting.pause.key_lives(node, Some(left), now.boot);
            self.shorten_pause(id);
        }
    }

    /// The key at its lead lives for so long. Its holder may be another one than the last ask has reported.
    fn life_seen_from_behind(
        &mut self,
        id: LockId,
        node: NodeId,
        life: Duration,
        now: ClockReading,
    ) {
        let leave = self.time_to_take_turn();
        if !self.listens_to(id, node) {
            return;
        }
        let Some(active) = self.locks.active_mut(id) else { return };
        let Some(line) = &mut active.line else { return };
        let left = life.saturating_sub(MARKED_FOR);
        line.ask_behind_holder_at = line.asks_behind_holder_at(now.boot, left, leave);
        let until = active.waiting.pause.until();
        self.pause_until(id, until);
    }

    /// Whoever stood before this lock has left: it is the first if nobody else did, and asks where it stands otherwise.
    fn last_has_left(&mut self, id: LockId, node: NodeId, now: ClockReading) -> Decision {
        let Some(active) = self.locks.active_mut(id) else { return Decision::Continue };
        let is_permit = active.permit.is_wanted();
        let Some(line) = &mut active.line else { return Decision::Continue };
        let Some(place) = line.place.as_mut().filter(|place| place.before > 0) else {
            return Decision::Continue;
        };
        let [last, _] = place.predecessors;
        let is_named_again = std::mem::replace(&mut line.has_left[0], last) == last;
        let is_first = place.before == 1;
        // Of several slots only the ask tells which is free next.
        if is_first && (is_named_again || !is_permit) {
            place.before = 0;
        }
        match (is_named_again, is_first) {
            // The ask came before the other one's farewell, and has told for how long the holder is in the way.
            (true, true) => {
                let until = active.waiting.pause.until();
                self.pause_until(id, until);
            }
            (true, false) => {}
            (false, true) if !is_permit => {
                self.look_in_line(id, now);
                self.ask_node(id, node, Looked::Life, now);
            }
            (false, _) => return self.changed_at(id, node, now),
        }
        Decision::Continue
    }

    /// Whoever stood last but one before this lock has left, since its turn had come.
    fn is_second(&mut self, id: LockId, now: ClockReading) {
        let Some(line) = self.locks.line_mut(id) else { return };
        let Some(place) = line.place.as_mut().filter(|place| place.before > 1) else { return };
        let [_, last_but_one] = place.predecessors;
        if std::mem::replace(&mut line.has_left[1], last_but_one) != last_but_one {
            // Whoever was called when it asked may be that one, so that nobody is now.
            (place.before, place.left_ms) = (1, HELD);
            self.look_in_line(id, now);
        }
    }

    /// A node reports that a ticket has changed: it may have gone.
    pub(in crate::proto::core) fn ticket_changed(
        &mut self,
        node: NodeId,
        name: &[u8],
        now: ClockReading,
    ) {
        let listener = self.listeners.get(&TicketName::of(name)).copied();
        if let Some(id) = listener.filter(|&id| self.listens_to(id, node)) {
            self.look_in_line(id, now);
        }
    }

    /// A node reports that the resource of a lock in line has changed. Whoever is first asks at once, unless that was in
    /// vain a moment ago, as when a holder extends. The others look.
    pub(super) fn way_changed_in_line(
        &mut self,
        id: LockId,
        node: NodeId,
        now: ClockReading,
    ) -> Decision {
        let Some((lock, active)) = self.locks.at_work(id) else { return Decision::Continue };
        let Some(line) = &active.line else { return Decision::Continue };
        let was_in_vain = line.woken_in_vain_at.is_some_and(|at| now.boot < at + RESTED);
        // A look does not tell a reader whether those who share are in its way.
        let is_told_by_look = lock.mode() != LockMode::Shared;
        if line.is_first() && !(was_in_vain && is_told_by_look) {
            return self.changed_at(id, node, now);
        } else if self.listens_to(id, node) {
            self.look_in_line(id, now);
        }
        Decision::Continue
    }

    /// Whether the lock pauses and listens to this node.
    fn listens_to(&self, id: LockId, node: NodeId) -> bool {
        self.locks.at_work(id).is_some_and(|(lock, active)| {
            lock.phase == Phase::Pausing && active.waiting.leads().contains(node)
        })
    }
}

/// Within what time an owner takes its turn whose round trip this is. Close to a node that is some round trips and a margin for its
/// processor. Far away the notification, a look or two and the ask take up to three round trips.
fn grace_for(round_trip: Duration, is_notified: bool) -> Duration {
    if mutant!(GraceHasCap) {
        let near = (round_trip * GRACE_ROUND_TRIPS).clamp(SHORTEST_GRACE, LONGEST_GRACE_NEAR);
        return if is_notified { near } else { LONGEST_GRACE_NEAR };
    }
    let near = (round_trip * GRACE_ROUND_TRIPS).clamp(SHORTEST_GRACE, LONGEST_GRACE_NEAR);
    let near = if is_notified { near } else { LONGEST_GRACE_NEAR };
    near.max(round_trip * GRACE_ROUND_TRIPS_FAR).min(LONGEST_GRACE)
}

/// How long a waiter counts a grace of which a node has told.
fn with_margin(grace_ms: u32) -> Duration {
    let grace = Duration::from_millis(grace_ms.into());
    grace + grace / CLOCKS_APART + TO_SPARE
}

/// How many permits the semaphore has of which a lock wants one.
fn permits_of(mode: LockMode) -> u64 {
    match mode {
        LockMode::Permit { of } => of.into(),
        _ => 0,
    }
}

fn is_of_another_type(token: Token<'_>) -> bool {
    matches!(token, Token::Error(text) if classify(text).cause() == Cause::WrongType)
}

/// The last byte that is read of what a lock in line looks at, which tells a closed key and a stamp from all else.
const LONGEST_READ: u64 = 19;

/// A ticket's owner takes its turn within so many of its round trips, and within these times.
const GRACE_ROUND_TRIPS: u32 = 8;
const SHORTEST_GRACE: Duration = Duration::from_millis(20);
const LONGEST_GRACE_NEAR: Duration = Duration::from_millis(500);

/// And within so many where they are long, up to the time for which a ticket lives without an ask.
const GRACE_ROUND_TRIPS_FAR: u32 = 4;
const LONGEST_GRACE: Duration = Duration::from_secs(6);

/// Whoever is first takes the resource in so many round trips, as a rule.
const LEFT_ROUND_TRIPS: u32 = 4;
const SHORTEST_LEFT: Duration = Duration::from_millis(1);

/// A lock behind the first two looks at the resource after so long for each that stands before it.
const LOOK_FROM_BEHIND: Duration = Duration::from_millis(50);

/// Whoever finds the first called asks again so much later for each that stands between.
const AFTER_NEARER: Duration = Duration::from_millis(5);

/// Somebody has the resource, nobody knows for how long.
const HELD: i64 = -1;

/// What `PTTL` answers of a key without a TTL.
const WITHOUT_END: i64 = -1;

/// Whoever is first in line is notified of a release, and asks. It has to be woken for that, by processors that may be busy
/// with whoever asks at the same time.
const HAND_OFF_ROUND_TRIPS: u32 = 2;
const SHORTEST_HAND_OFF: Duration = Duration::from_millis(1);

/// Nodes count in whole ms, and the ask takes its time.
const TO_SPARE: Duration = Duration::from_millis(2);

/// Its own clock may be faster than the node's, each by a hundredth: an ask within the grace would be in vain.
const CLOCKS_APART: u32 = 50;

/// So many asks follow one another at once until a quorum says the same stamp.
const HURRIES: u32 = 3;

/// And so many until the lead's word that the resource is free is not believed any longer.
const MOST_SEEN_FREE: u32 = 8;

/// A lock in line is silent for so long at first.
const FIRST_SILENCE: Duration = Duration::from_millis(50);

/// Vain asks that are further apart are not of one holder that extends. Less than the time after which a waiter is pinged.
const RESTED: Duration = Duration::from_millis(450);
