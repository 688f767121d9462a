//! A ticket: the place of a lock in the queue of waiters that each node keeps for a resource.
//!
//! A lock that was refused takes a ticket. Its asks carry the ticket from then on, until it is decided. Between two asks it
//! listens to one node, the lead, and to little there: the first in the queue listens to the resource, the second to the
//! resource and to the ticket before its own, and all others to the two tickets before their own.
//!
//! Invariant: a transition here changes the ticket and nothing else. What follows is its return value, see `turn`; which stamp
//! a ticket has, see `proto::fair_queue`.

mod turn;

use std::time::Duration;

use crate::proto::core::links::handshake::Mistyped;
use crate::proto::core::waiting::pause::{CAP_NOTIFIED, EXPIRY_JITTER};
use crate::proto::fair_queue::{MARKED_FOR, QueuePlace, QueueReply, StampAgreement};
use crate::proto::names::{ClaimId, NodeId, NodeSet, TicketName};
use crate::proto::{mutants::mutant, time::Timestamp};
use crate::resp::Token;

/// The ticket of one lock, and what is known of its place.
#[derive(Debug)]
pub(crate) struct Ticket {
    /// What the nodes may have of it.
    claim: ClaimId,
    name: TicketName,
    /// The claim of the ticket before it, at the same place with another grace, which goes when the nodes know this one.
    former: Option<ClaimId>,
    /// The nodes that have answered an ask with it.
    known_by: NodeSet,
    agreement: StampAgreement,
    grace: Duration,
    /// The grace that the present round trip needs.
    needed_grace: Duration,
    joined_at: Timestamp,
    /// What the nodes have told in the present attempt.
    places: Vec<(NodeId, QueuePlace)>,
    /// Where it stands at its lead, as far as it is known now.
    place: Option<QueuePlace>,
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
    /// Several have the resource at its lead, as last seen, so that a notification of the resource may be a ping.
    is_behind_many: bool,
    /// When its pause ends if whoever is before it takes the resource that was seen to be free.
    rests_until: Option<Timestamp>,
    /// When it last asked in vain because of a notification.
    woken_in_vain_at: Option<Timestamp>,
    /// How long it is silent before it makes sure that its lead does not hang, and when that is over.
    silence: Duration,
    silent_until: Timestamp,
    /// When it looks at the resource from behind the first two, and whether the look before found it free.
    read_at: Timestamp,
    was_free: bool,
    /// When it asks again if the holder has ended without a release.
    ask_behind_holder_at: Timestamp,
    /// When a ticket before it has expired that it has pinged, unless its owner has asked.
    pinged_until: Timestamp,
}

/// Tickets that leave the queue on the nodes: the one of a lock, behind the one that it has replaced.
pub(crate) type Tickets = [Option<ClaimId>; 2];

/// What a lock with a ticket reads at its lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TicketRead {
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

impl TicketRead {
    /// Passes an answer whose type this read can have.
    pub(crate) fn check(self, answer: Token<'_>) -> Result<Token<'_>, Mistyped> {
        let is_number = matches!(self, Self::Alive | Self::Life | Self::LifeOfMany);
        match answer {
            Token::Bulk(_) if is_number => Err(Mistyped),
            Token::Int(_) if !is_number => Err(Mistyped),
            Token::Bulk(_) | Token::Error(_) | Token::Int(_) => Ok(answer),
            _ => Err(Mistyped),
        }
    }
}

/// What follows for a lock from what was read for its ticket.
#[derive(Clone, Copy, Debug)]
enum Next {
    Wait,
    Pause(Timestamp),
    /// Look when this is due.
    LookAt(Timestamp),
    Read(TicketRead),
    /// Read what the lock waits for at its lead.
    ReadLead,
    /// The same, and how long the holder may have the resource.
    ReadLeadAndLife,
    /// As if the node had notified the lock.
    Wake,
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

impl Ticket {
    fn new(
        claim: ClaimId,
        name: TicketName,
        grace: Duration,
        quorum: usize,
        now: Timestamp,
    ) -> Self {
        Self {
            claim,
            name,
            former: None,
            known_by: NodeSet::EMPTY,
            agreement: StampAgreement::new(quorum),
            grace,
            needed_grace: grace,
            joined_at: now,
            places: Vec::new(),
            place: None,
            hurried: 0,
            seen_free: 0,
            slots_taken: u64::MAX,
            has_left: [None; 2],
            knows_many: false,
            is_behind_many: false,
            rests_until: None,
            woken_in_vain_at: None,
            silence: FIRST_SILENCE,
            silent_until: Timestamp::NEVER,
            read_at: Timestamp::NEVER,
            was_free: false,
            ask_behind_holder_at: Timestamp::NEVER,
            pinged_until: Timestamp::default(),
        }
    }

    /// Whether a quorum of nodes has recorded its place.
    pub(super) fn has_place(&self) -> bool {
        self.agreement.has_place()
    }

    /// Sets the place at the lead. Returns the tickets that it need not listen to any longer.
    fn set_place(&mut self, place: Option<QueuePlace>) -> [Option<TicketName>; 2] {
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
    fn others_may_come_until(&self, now: Timestamp, is_notified: bool) -> Option<Timestamp> {
        let place = self.place?;
        let until = if place.left_ms == 0 && place.before > 0 {
            let nearer = AFTER_NEARER.saturating_mul(place.before - 1);
            now + (with_margin(place.grace_ms) + nearer).min(CAP_NOTIFIED)
        } else {
            Some(self.pinged_until).filter(|&until| now < until)?
        };
        // The others may come and go meanwhile, and then this lock is called. If no node notifies
        // it, it has to ask within its own grace, of which the request takes a quarter at most.
        Some(if is_notified { until } else { until.min(now + self.grace / 2) })
    }

    /// When it looks at the resource although it stands behind two others. A release wakes the first two, who may both be dead. That
    /// the first was called is no reason not to look: it may come and go, and nobody is called then. The interval grows with its
    /// place, so that all together look as often as a few.
    fn reads_from_behind_at(&self, now: Timestamp) -> Timestamp {
        if mutant!(NobodyLooksFromBehind) {
            return Timestamp::NEVER;
        }
        let place = self.place.filter(|place| place.before >= 2);
        place.map_or(Timestamp::NEVER, |it| now + READ_FROM_BEHIND.saturating_mul(it.before))
    }

    /// When it asks again because the holder of the resource, which has so much time left, has ended, and those before it have had
    /// `leave` to come. A node reports a release but not the end of a marked holder, and the first in the queue, who waits for that, may
    /// be dead as well.
    fn asks_behind_holder_at(&self, now: Timestamp, left: Duration, leave: Duration) -> Timestamp {
        if mutant!(HolderEndsUnnoticed) {
            return Timestamp::NEVER;
        }
        let Some(before) = self.place.map(|place| place.before).filter(|&before| before > 0) else {
            return Timestamp::NEVER;
        };
        // The first asks within the jitter after that, and the nearest to it before the others.
        now + left + EXPIRY_JITTER.1 + leave + READ_FROM_BEHIND.saturating_mul(before - 1)
    }

    /// A pause begins: sets when it looks, and when it asks although no node has notified it.
    fn schedule_reads(&mut self, now: Timestamp, leave: Duration) {
        self.silent_until = now + self.silence;
        (self.read_at, self.was_free) = (self.reads_from_behind_at(now), false);
        let left = self.place.map(|place| place.left_ms).filter(|&left| left > 0);
        let left = left.map(|left| Duration::from_millis(left.unsigned_abs()));
        let asks_at = left.map(|left| self.asks_behind_holder_at(now, left, leave));
        self.ask_behind_holder_at = asks_at.unwrap_or(Timestamp::NEVER);
    }

    /// Whether its owner needs more time to take its turn than the ticket says. A ticket keeps its grace, so it needs another one,
    /// which a place that a quorum knows allows. A grace that is longer than needed stays: a shorter one would let others pass an
    /// owner that has not heard yet that a second node is free.
    fn needs_more_time(&self) -> bool {
        if mutant!(GraceIsFixed) {
            return false;
        }
        self.needed_grace > self.grace && self.former.is_none() && self.agreement.has_place()
    }

    /// Whether it has to ask again before it can wait: a quorum has told of its place, but not alike; or the lead has told
    /// of a release that others of the nodes had not heard of.
    fn hurries(&mut self, is_split: bool) -> bool {
        let has_no_place = self.agreement.is_known() && !self.agreement.has_place();
        let hurries = has_no_place || is_split && self.is_first();
        self.hurried = if hurries { self.hurried + 1 } else { 0 };
        hurries && self.hurried <= HURRIES
    }

    /// One of the two before it stands there: that it leaves will be news.
    fn see_present(&mut self, what: TicketRead) -> Next {
        self.has_left[usize::from(what == TicketRead::LastButOne)] = None;
        Next::Wait
    }

    /// The node to listen to: one whose holder ends when a quorum of nodes is free, after `needed` of the holders have ended, or
    /// else any that has answered. Of several the present lead, or the first. The answers came within `spread`.
    fn lead(
        &self,
        (present, suspected): (NodeSet, NodeSet),
        needed: usize,
        spread: Duration,
    ) -> Option<(NodeId, QueuePlace)> {
        let can = || self.places.iter().filter(|(node, _)| !suspected.contains(*node));
        let have_ended = |at| can().filter(|(_, place)| place.ends_in_ms() <= at).count();
        let ends = can().map(|(_, place)| place.ends_in_ms());
        let quorum_ends = ends.filter(|&at| have_ended(at) >= needed).min().unwrap_or(0);
        // A node where another one is in the way, such as a former holder or an attempt that has won this node only, will not
        // report the release of the present holder, who may have a quorum without it.
        let spread = spread.as_millis() as u64 + 1;
        let is_blocking = |place: &QueuePlace| {
            place.left_ms != 0 && place.ends_in_ms().abs_diff(quorum_ends) <= spread
        };
        let rank = |(node, place): &&(NodeId, QueuePlace)| {
            (!is_blocking(place), !present.contains(*node), *node)
        };
        can().min_by_key(rank).copied()
    }

    /// Records what a node has answered to an ask with this ticket. Returns for how long nobody needs to ask there, if the
    /// resource is free and the first in the queue was called.
    fn record(&mut self, node: NodeId, reply: QueueReply, now: Timestamp) -> Option<Duration> {
        self.known_by.insert(node);
        let place = match reply {
            QueueReply::Granted { stamp, .. } => {
                self.agreement.record(node, stamp);
                return None;
            }
            QueueReply::Waits(place) => place,
        };
        self.agreement.record(node, place.stamp);
        self.places.push((node, place));
        if let Some(grace_ms) = place.pinged_ms() {
            let until = now + with_margin(grace_ms).min(CAP_NOTIFIED);
            self.pinged_until = self.pinged_until.max(until);
        }
        let grace = Duration::from_millis(place.grace_ms.into()).min(CAP_NOTIFIED);
        (place.left_ms == 0).then_some(grace)
    }

    /// Whether it is time to look from behind the first two. Sets the next time, at least `least` later.
    fn reads_now(&mut self, now: Timestamp, least: Duration) -> bool {
        let is_due = now >= self.read_at;
        if is_due {
            let next = self.reads_from_behind_at(now);
            self.read_at = if next == Timestamp::NEVER { next } else { next.max(now + least) };
        }
        is_due
    }

    /// Whether it has been silent for too long. The next silence is twice as long.
    fn breaks_silence(&mut self, now: Timestamp) -> bool {
        let is_over = now >= self.silent_until;
        if is_over {
            self.silence *= 2;
            self.silent_until = now + self.silence;
        }
        is_over
    }

    /// The resource is free, or is not, as seen from behind the first two. Seen to be free twice in a row, it has been left idle.
    fn see_from_behind(&mut self, is_free: bool, now: Timestamp, leave: Duration) -> Next {
        // Meanwhile it may have become one of the first two, who are notified.
        if self.place.is_none_or(|place| place.before < 2) {
            return Next::Wait;
        }
        match (std::mem::replace(&mut self.was_free, is_free), is_free) {
            // Free once may be a hand-over: the first needs some round trips to take its turn.
            (true, true) => Next::Pause(now),
            (false, true) => {
                self.read_at = self.read_at.min(now + leave);
                Next::LookAt(self.read_at)
            }
            (_, false) => Next::Wait,
        }
    }

    /// The resource is free at the lead, or is not. The first asks. The second leaves the first some time to take it, and asks
    /// then: the first may be dead, or may have been put behind it since.
    fn see_resource(
        &mut self,
        is_free: bool,
        paused_until: Timestamp,
        leave_until: Timestamp,
    ) -> Next {
        let Some(place) = &mut self.place else { return Next::Wait };
        if !is_free {
            (self.seen_free, place.left_ms) = (0, HELD);
            return self.rests_until.take().map_or(Next::Wait, Next::Pause);
        } else if place.before > 0 && place.left_ms == 0 {
            // Its ask has seen that too, and called the first.
        } else if place.before > 0 {
            place.left_ms = 0;
            let until = *self.rests_until.get_or_insert(paused_until);
            return Next::Pause(until.min(leave_until));
        // A lead that is wrong about the resource must not make this waiter ask without end.
        } else if self.seen_free < MOST_SEEN_FREE {
            self.seen_free += 1;
            return Next::Wake;
        }
        Next::Wait
    }

    /// Several have the resource at this node. A reader may be beside them as soon as nobody stands before it, and asks once: that
    /// it has become the first, or that they have come behind a writer, its ask has not known.
    fn joins_readers_once(&mut self, node: NodeId) -> bool {
        let was_second = |(of, place): &(NodeId, QueuePlace)| *of == node && place.before > 0;
        let has_become_first = self.places.iter().any(was_second);
        self.is_first() && (!std::mem::replace(&mut self.knows_many, true) || has_become_first)
    }

    /// Whether a slot of a semaphore is worth an ask although it was left to those before: another slot was free already.
    fn takes_another_slot(&mut self, taken: u64, is_free: bool) -> bool {
        let has_more = taken < std::mem::replace(&mut self.slots_taken, taken);
        let is_left = self.place.is_some_and(|place| place.before > 0 && place.left_ms == 0);
        is_free && is_left && has_more
    }

    /// One of several may have gone since the ask, and who is left may never release: the ask has told when the last of all ends. What
    /// is not marked lives as long as that said.
    fn is_news_of_many(&self, node: NodeId, life: i64) -> bool {
        let places = self.places.iter().filter(|(of, _)| *of == node);
        let left = places.map(|(_, place)| place.left_ms).max();
        let (marked, pause) = (MARKED_FOR.as_millis() as i64, CAP_NOTIFIED.as_millis() as i64);
        life > marked || left.is_some_and(|left| left > life + pause)
    }

    /// Whether the ticket that stood before this one has gone, or was put behind it.
    fn is_before(&self, what: TicketRead, answer: Token<'_>) -> bool {
        let Token::Bulk(stamp) = answer else { return false };
        let Some(stamp) = str::from_utf8(stamp).ok().and_then(|stamp| stamp.parse::<u64>().ok())
        else {
            return stamp.is_empty();
        };
        self.place.is_some_and(|place| {
            let [last, last_but_one] = place.predecessors;
            let other = if what == TicketRead::Last { last } else { last_but_one };
            (stamp, other) > (place.stamp, Some(self.name))
        })
    }

    /// The last before this ticket has left: this one is the first if nobody else stood before it, and asks otherwise.
    fn see_last_leave(&mut self, is_permit: bool, paused_until: Timestamp) -> Next {
        let Some(place) = self.place.as_mut().filter(|place| place.before > 0) else {
            return Next::Wait;
        };
        let [last, _] = place.predecessors;
        let is_named_again = std::mem::replace(&mut self.has_left[0], last) == last;
        let is_first = place.before == 1;
        // Of several slots only the ask tells which is free next.
        if is_first && (is_named_again || !is_permit) {
            place.before = 0;
        }
        match (is_named_again, is_first) {
            // The ask came before the other one's farewell, and has told for how long the holder is in the way.
            (true, true) => Next::Pause(paused_until),
            (true, false) => Next::Wait,
            (false, true) if !is_permit => Next::ReadLeadAndLife,
            (false, _) => Next::Wake,
        }
    }

    /// The last but one before this ticket has left, since its turn had come.
    fn see_last_but_one_leave(&mut self) -> Next {
        let Some(place) = self.place.as_mut().filter(|place| place.before > 1) else {
            return Next::Wait;
        };
        let [_, last_but_one] = place.predecessors;
        if std::mem::replace(&mut self.has_left[1], last_but_one) == last_but_one {
            return Next::Wait;
        }
        // Whoever was called when it asked may be that one, so that nobody is now.
        (place.before, place.left_ms) = (1, HELD);
        Next::ReadLead
    }
}

/// Within what time an owner takes its turn whose round trip this is. Close to a node that is some round trips and a margin for its
/// processor. Far away the notification, a look or two and the ask take up to three round trips.
fn grace_for(round_trip: Duration, is_notified: bool) -> Duration {
    let near = (round_trip * GRACE_ROUND_TRIPS).clamp(SHORTEST_GRACE, LONGEST_GRACE_NEAR);
    let near = if is_notified { near } else { LONGEST_GRACE_NEAR };
    if mutant!(GraceHasCap) {
        return near;
    }
    near.max(round_trip * GRACE_ROUND_TRIPS_FAR).min(LONGEST_GRACE)
}

/// How long a waiter counts a grace of which a node has told.
fn with_margin(grace_ms: u32) -> Duration {
    let grace = Duration::from_millis(grace_ms.into());
    grace + grace / CLOCKS_APART + TO_SPARE
}

/// A ticket's owner takes its turn within so many of its round trips, and within these times.
const GRACE_ROUND_TRIPS: u32 = 8;
const SHORTEST_GRACE: Duration = Duration::from_millis(20);
const LONGEST_GRACE_NEAR: Duration = Duration::from_millis(500);

/// And within so many where they are long, up to the time for which a ticket lives without an ask.
const GRACE_ROUND_TRIPS_FAR: u32 = 4;
const LONGEST_GRACE: Duration = Duration::from_secs(6);

/// A lock behind the first two looks at the resource after so long for each that stands before it.
const READ_FROM_BEHIND: Duration = Duration::from_millis(50);

/// Whoever finds the first called asks again so much later for each that stands between.
const AFTER_NEARER: Duration = Duration::from_millis(5);

/// Somebody has the resource, nobody knows for how long.
const HELD: i64 = -1;

/// Nodes count in whole ms, and the ask takes its time.
const TO_SPARE: Duration = Duration::from_millis(2);

/// Its own clock may be faster than the node's, each by a hundredth: an ask within the grace would be in vain.
const CLOCKS_APART: u32 = 50;

/// So many asks follow one another at once until a quorum says the same stamp.
const HURRIES: u32 = 3;

/// And so many until the lead's word that the resource is free is not believed any longer.
const MOST_SEEN_FREE: u32 = 8;

/// A lock in the queue is silent for so long at first.
const FIRST_SILENCE: Duration = Duration::from_millis(50);
