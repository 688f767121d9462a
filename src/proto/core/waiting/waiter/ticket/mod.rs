//! A ticket: the place of a lock in the queue of waiters that each node keeps for a resource.
//!
//! A lock that was refused takes a ticket, which its requests carry until the lock is decided.
//! Between two requests the lock listens to one node, the lead. The first in the queue listens to
//! the resource, the second to the resource and the ticket before its own, all others to the two
//! tickets before their own.
//!
//! A transition here changes the ticket and nothing else, and returns what follows for the lock,
//! see `turn`. The stamp of a ticket is decided in `proto::fair_queue`.

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
    /// The claim of the ticket: what nodes may have of it.
    claim: ClaimId,
    name: TicketName,
    /// The claim of the ticket that this one replaced, at the same place with another grace. It
    /// leaves once enough nodes have this one.
    former: Option<ClaimId>,
    /// The nodes that have answered a request with this ticket.
    known_by: NodeSet,
    agreement: StampAgreement,
    grace: Duration,
    /// The grace that the current round trip needs.
    needed_grace: Duration,
    joined_at: Timestamp,
    /// The places that nodes have reported in the current attempt.
    places: Vec<(NodeId, QueuePlace)>,
    /// The place at the lead, as far as it is known now.
    place: Option<QueuePlace>,
    /// The number of requests in a row that followed at once, because no quorum had reported one
    /// stamp or a release had not reached all nodes.
    hurried: u32,
    /// The number of requests sent because the lead was read as free, since it was last read as
    /// held.
    seen_free: u32,
    /// The number of slots that the last read found taken.
    slots_taken: u64,
    /// The last and the last but one ticket before this one, if seen to leave. A node that names
    /// one of them again still has the ticket, but not the ticket's key.
    has_left: [Option<TicketName>; 2],
    /// Whether the lock has sent a request since it saw several holders.
    knows_many: bool,
    /// Whether the last read at the lead found several holders, so that a notification of the
    /// resource may be a ping.
    is_behind_many: bool,
    /// The end of the pause if a predecessor takes the resource that was read as free.
    rests_until: Option<Timestamp>,
    /// The end of the last attempt that followed a notification and won nothing.
    woken_in_vain_at: Option<Timestamp>,
    /// The time in a pause after which the lock checks that its lead does not hang, and when it
    /// ends.
    silence: Duration,
    silent_until: Timestamp,
    /// The time of the next read from behind the first two, and whether the last such read found
    /// the resource free.
    read_at: Timestamp,
    was_free: bool,
    /// The time of the next request, because the holder may have ended without a release.
    ask_behind_holder_at: Timestamp,
    /// The time at which a predecessor pinged by this lock expires, unless its owner has sent a
    /// request.
    pinged_until: Timestamp,
}

/// The tickets that leave the queue on the nodes: the replaced one, then the current one.
pub(crate) type Tickets = [Option<ClaimId>; 2];

/// A read by a lock with a ticket. All but `Alive` go to its lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TicketRead {
    /// The value of the resource, whose next change the node reports.
    Resource,
    /// The value of the resource, read from behind the first two. The node reports no change.
    FromBehind,
    /// The remaining TTL of the resource.
    Life,
    /// The remaining TTL of the resource if several holders each have a different end.
    LifeOfMany,
    /// The key of the ticket directly before.
    Last,
    /// The key of the ticket before that.
    LastButOne,
    /// The number of taken slots of a semaphore, and the end of the first.
    Slots,
    /// The remaining TTL of the resource, read at every node as a sign of life.
    Alive,
}

impl TicketRead {
    /// Returns the answer if this read can have one of its type.
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

/// The consequence of a read for the lock.
#[derive(Clone, Copy, Debug)]
enum Next {
    Wait,
    Pause(Timestamp),
    /// A timer for this time.
    LookAt(Timestamp),
    Read(TicketRead),
    /// A read of what the lock waits for at its lead.
    ReadLead,
    /// A read of what the lock waits for at its lead, and of how long the holder may have the
    /// resource.
    ReadLeadAndLife,
    /// A wake-up, as after a notification of the node.
    Wake,
}

/// The taken slots of a semaphore, as a node reports them.
#[derive(Clone, Copy, Debug)]
struct Slots {
    taken: u64,
    /// The time until the first of their holders ends.
    first_ends_in: Option<Duration>,
}

impl Slots {
    /// Reads an answer of `script::VIEW_PERMITS` with at most one holder. Returns `None` for a
    /// hash that is not a semaphore.
    fn read(text: &[u8]) -> Option<Self> {
        let mut lines = str::from_utf8(text).ok()?.split('\n');
        let (count, first) = (lines.next()?, lines.next());
        // A missing key is answered as a hash without fields.
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

    /// Returns whether a quorum of nodes has recorded the place.
    pub(super) fn has_place(&self) -> bool {
        self.agreement.has_place()
    }

    /// Sets the place at the lead. Returns the tickets that the lock need no longer listen to.
    fn set_place(&mut self, place: Option<QueuePlace>) -> [Option<TicketName>; 2] {
        let before = std::mem::replace(&mut self.place, place);
        before.map_or([None; 2], |place| place.predecessors)
    }

    /// Returns whether no ticket is before this one, as far as is known.
    fn is_first(&self) -> bool {
        self.place.is_some_and(|place| place.before == 0)
    }

    /// Returns whether the resource is held at the lead, as far as is known.
    fn is_held(&self) -> bool {
        self.place.is_some_and(|place| place.left_ms != 0)
    }

    /// Returns when the lock requests again because tickets before it were called or pinged and can
    /// no longer come. `None` if none was.
    fn others_may_come_until(&self, now: Timestamp, is_notified: bool) -> Option<Timestamp> {
        let place = self.place?;
        // All owners in between may be dead, and then no other request calls the next one. The
        // nearest waiter requests first.
        let until = if place.left_ms == 0 && place.before > 0 {
            let nearer = AFTER_NEARER.saturating_mul(place.before - 1);
            now + (with_margin(place.grace_ms) + nearer).min(CAP_NOTIFIED)
        } else {
            Some(self.pinged_until).filter(|&until| now < until)?
        };
        // The others may come and go meanwhile, and then this lock is called. If no node notifies
        // it, it must request within its own grace, of which the request takes at most a quarter.
        Some(if is_notified { until } else { until.min(now + self.grace / 2) })
    }

    /// Returns when the lock reads the resource although at least two tickets are before it.
    fn reads_from_behind_at(&self, now: Timestamp) -> Timestamp {
        if mutant!(NobodyLooksFromBehind) {
            return Timestamp::NEVER;
        }
        // A release wakes the first two, whose owners may both be dead. That the first was called
        // is not a reason to skip the read: it may come and go, and then no ticket is called. The
        // interval grows with the place, so that all waiters together read as often as a few.
        let place = self.place.filter(|place| place.before >= 2);
        place.map_or(Timestamp::NEVER, |it| now + READ_FROM_BEHIND.saturating_mul(it.before))
    }

    /// Returns when the lock requests again because the holder, which has `left` to live, has ended
    /// and the tickets before this one have had `leave` to come.
    fn asks_behind_holder_at(&self, now: Timestamp, left: Duration, leave: Duration) -> Timestamp {
        if mutant!(HolderEndsUnnoticed) {
            return Timestamp::NEVER;
        }
        // A node reports a release, but not the end of a marked holder. The first in the queue
        // waits for that end, but its owner may be dead as well.
        let Some(before) = self.place.map(|place| place.before).filter(|&before| before > 0) else {
            return Timestamp::NEVER;
        };
        // The first requests within the jitter after that end, then the nearest, then the others.
        now + left + EXPIRY_JITTER.1 + leave + READ_FROM_BEHIND.saturating_mul(before - 1)
    }

    /// Sets, when a pause begins, the times of reads and requests that need no notification.
    fn schedule_reads(&mut self, now: Timestamp, leave: Duration) {
        self.silent_until = now + self.silence;
        (self.read_at, self.was_free) = (self.reads_from_behind_at(now), false);
        let left = self.place.map(|place| place.left_ms).filter(|&left| left > 0);
        let left = left.map(|left| Duration::from_millis(left.unsigned_abs()));
        let asks_at = left.map(|left| self.asks_behind_holder_at(now, left, leave));
        self.ask_behind_holder_at = asks_at.unwrap_or(Timestamp::NEVER);
    }

    /// Returns whether the owner needs a longer grace than its ticket has, and may replace the
    /// ticket.
    fn needs_more_time(&self) -> bool {
        if mutant!(GraceIsFixed) {
            return false;
        }
        // A ticket keeps its grace, so this takes another ticket, for which a quorum must have
        // recorded the place. A grace that is too long stays: with a shorter one others could pass
        // an owner that has not been notified yet that a second node is free.
        self.needed_grace > self.grace && self.former.is_none() && self.agreement.has_place()
    }

    /// Returns whether the lock must request again before it can wait. Either a quorum has reported
    /// stamps that differ, or the lock is first and a release had reached some nodes only.
    fn hurries(&mut self, is_split: bool) -> bool {
        let has_no_place = self.agreement.is_known() && !self.agreement.has_place();
        let hurries = has_no_place || is_split && self.is_first();
        self.hurried = if hurries { self.hurried + 1 } else { 0 };
        hurries && self.hurried <= HURRIES
    }

    /// Records that one of the two tickets before is there, so that its leaving will be news.
    fn see_present(&mut self, what: TicketRead) -> Next {
        self.has_left[usize::from(what == TicketRead::LastButOne)] = None;
        Next::Wait
    }

    /// Chooses the node to listen to: one whose holder ends when a quorum of nodes is free, which
    /// is after `needed` of the holders have ended, or else any that has answered. Of several it is
    /// the present lead, or the first. The answers came within `spread`.
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
        // At another node a former holder, or an attempt that has won this node only, may be in the
        // way. That node will not report the release of the present holder, which may have a quorum
        // without it.
        let spread = spread.as_millis() as u64 + 1;
        let is_of_quorum = |place: &QueuePlace| match quorum_ends {
            // The next holder takes the nodes that are free.
            0 => place.left_ms == 0,
            _ => place.left_ms != 0 && place.ends_in_ms().abs_diff(quorum_ends) <= spread,
        };
        let rank = |(node, place): &&(NodeId, QueuePlace)| {
            (!is_of_quorum(place), !present.contains(*node), *node)
        };
        can().min_by_key(rank).copied()
    }

    /// Records a node's reply to a request with this ticket. If the resource is free and the first
    /// in the queue was called, returns for how long no request to this node is needed.
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

    /// Returns whether the read from behind the first two is due. Sets the next one, at least
    /// `least` later.
    fn reads_now(&mut self, now: Timestamp, least: Duration) -> bool {
        let is_due = now >= self.read_at;
        if is_due {
            let next = self.reads_from_behind_at(now);
            self.read_at = if next == Timestamp::NEVER { next } else { next.max(now + least) };
        }
        is_due
    }

    /// Returns whether the lock has been silent for too long. The next silence is twice as long.
    fn breaks_silence(&mut self, now: Timestamp) -> bool {
        let is_over = now >= self.silent_until;
        if is_over {
            self.silence *= 2;
            self.silent_until = now + self.silence;
        }
        is_over
    }

    /// Records whether the resource is free, as read from behind the first two. If it is free twice
    /// in a row, it has been left idle.
    fn see_from_behind(&mut self, is_free: bool, now: Timestamp, leave: Duration) -> Next {
        // Meanwhile the lock may have become one of the first two, which are notified.
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

    /// Records whether the resource is free at the lead. The first in the queue then requests it.
    /// The second leaves the first some time to take it and then requests it, because the owner of
    /// the first ticket may be dead, or its ticket may be behind by now.
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
            // The last request has seen that too, and called the first.
        } else if place.before > 0 {
            place.left_ms = 0;
            let until = *self.rests_until.get_or_insert(paused_until);
            return Next::Pause(until.min(leave_until));
        // A lead that is wrong about the resource must not make this waiter request without end.
        } else if self.seen_free < MOST_SEEN_FREE {
            self.seen_free += 1;
            return Next::Wake;
        }
        Next::Wait
    }

    /// Returns whether a reader requests the resource, which several clients hold at this node. It
    /// may share with them as soon as no ticket is before its own, and requests once.
    fn joins_readers_once(&mut self, node: NodeId) -> bool {
        // The last request did not know that the lock has become first, or that readers have
        // followed a writer.
        let was_second = |(of, place): &(NodeId, QueuePlace)| *of == node && place.before > 0;
        let has_become_first = self.places.iter().any(was_second);
        self.is_first() && (!std::mem::replace(&mut self.knows_many, true) || has_become_first)
    }

    /// Returns whether a free slot is worth a request although tickets are before this one: an
    /// earlier free slot was left to them already.
    fn takes_another_slot(&mut self, taken: u64, is_free: bool) -> bool {
        let has_more = taken < std::mem::replace(&mut self.slots_taken, taken);
        let is_left = self.place.is_some_and(|place| place.before > 0 && place.left_ms == 0);
        is_free && is_left && has_more
    }

    /// Returns whether the remaining life of a resource with several holders is news after the last
    /// reply, which had the end of the last holder.
    fn is_news_of_many(&self, node: NodeId, life: i64) -> bool {
        // That holder may have left since, and the remaining ones may never release. A key that is
        // not marked lives for as long as the reply said.
        let places = self.places.iter().filter(|(of, _)| *of == node);
        let left = places.map(|(_, place)| place.left_ms).max();
        let (marked, pause) = (MARKED_FOR.as_millis() as i64, CAP_NOTIFIED.as_millis() as i64);
        life > marked || left.is_some_and(|left| left > life + pause)
    }

    /// Returns whether a ticket that was before this one has gone, or was put behind it.
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

    /// Records that the ticket directly before has left. If it was the only one, this one is first.
    /// Otherwise the lock requests again.
    fn see_last_leave(&mut self, is_permit: bool, paused_until: Timestamp) -> Next {
        let Some(place) = self.place.as_mut().filter(|place| place.before > 0) else {
            return Next::Wait;
        };
        let [last, _] = place.predecessors;
        let is_named_again = std::mem::replace(&mut self.has_left[0], last) == last;
        let is_first = place.before == 1;
        // With several slots, only a request finds out which is free next.
        if is_first && (is_named_again || !is_permit) {
            place.before = 0;
        }
        match (is_named_again, is_first) {
            // The request came before the other one left. Its reply had the holder's time.
            (true, true) => Next::Pause(paused_until),
            (true, false) => Next::Wait,
            (false, true) if !is_permit => Next::ReadLeadAndLife,
            (false, _) => Next::Wake,
        }
    }

    /// Records that the last but one ticket has left, because its turn had come.
    fn see_last_but_one_leave(&mut self) -> Next {
        let Some(place) = self.place.as_mut().filter(|place| place.before > 1) else {
            return Next::Wait;
        };
        let [_, last_but_one] = place.predecessors;
        if std::mem::replace(&mut self.has_left[1], last_but_one) == last_but_one {
            return Next::Wait;
        }
        // The ticket called at the last request may be the one that left, so that none is called.
        (place.before, place.left_ms) = (1, HELD);
        Next::ReadLead
    }
}

/// Returns the time within which an owner with this round trip takes its turn.
fn grace_for(round_trip: Duration, is_notified: bool) -> Duration {
    let near = (round_trip * GRACE_ROUND_TRIPS).clamp(SHORTEST_GRACE, LONGEST_GRACE_NEAR);
    let near = if is_notified { near } else { LONGEST_GRACE_NEAR };
    if mutant!(GraceHasCap) {
        return near;
    }
    // Close to a node a turn takes some round trips and a margin for the processor. Far away the
    // notification, a read or two and the request take up to three round trips.
    near.max(round_trip * GRACE_ROUND_TRIPS_FAR).min(LONGEST_GRACE)
}

/// Returns a grace that a node has reported, with a margin, as a waiter counts it.
fn with_margin(grace_ms: u32) -> Duration {
    let grace = Duration::from_millis(grace_ms.into());
    grace + grace / CLOCKS_APART + TO_SPARE
}

/// The grace of an owner near the nodes, in its round trips, and the bounds of that grace.
const GRACE_ROUND_TRIPS: u32 = 8;
const SHORTEST_GRACE: Duration = Duration::from_millis(20);
const LONGEST_GRACE_NEAR: Duration = Duration::from_millis(500);

/// The grace in round trips if these are long, up to the life of a ticket without a request.
const GRACE_ROUND_TRIPS_FAR: u32 = 4;
const LONGEST_GRACE: Duration = Duration::from_secs(6);

/// The interval of the reads from behind the first two, for each ticket before.
const READ_FROM_BEHIND: Duration = Duration::from_millis(50);

/// The delay of a request after the called ticket's grace, for each ticket in between.
const AFTER_NEARER: Duration = Duration::from_millis(5);

/// The `left_ms` of a resource that is held for an unknown time.
const HELD: i64 = -1;

/// The margin of a grace: nodes count in whole ms, and the request takes time.
const TO_SPARE: Duration = Duration::from_millis(2);

/// The part of a grace by which two clocks may differ, each by a hundredth. A request within the
/// grace would win nothing.
const CLOCKS_APART: u32 = 50;

/// The number of requests that follow one another at once while no quorum reports one stamp.
const HURRIES: u32 = 3;

/// The number of requests after which the lead's report of a free resource is ignored.
const MOST_SEEN_FREE: u32 = 8;

/// The first silence of a lock in the queue.
const FIRST_SILENCE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::slab::Slab;

    /// Returns the node that a waiter without a lead listens to after these replies of nodes 0, 1
    /// and so on, if two of the holders have to end.
    fn lead_after(replies: &[&str]) -> NodeId {
        let (claim, _) = Slab::<ClaimId, ()>::new().occupy(|| ());
        let name = TicketName::of(format!("x{}", "ab".repeat(16)).as_bytes());
        let grace = Duration::from_millis(20);
        let mut ticket = Ticket::new(claim, name, grace, 2, Timestamp(0));
        for (node, reply) in replies.iter().enumerate() {
            let reply = QueueReply::read(Token::Simple(reply.as_bytes()), false).unwrap();
            ticket.record(NodeId(node as u8), reply, Timestamp(0));
        }
        let (none, spread) = (NodeSet::EMPTY, Duration::from_millis(5));
        ticket.lead((none, none), 2, spread).unwrap().0
    }

    #[test]
    fn the_lead_is_a_node_of_the_present_or_the_next_holder() {
        let [held, soon_free, free] = ["WAIT 20000 7 0 - -", "WAIT 4 7 0 - -", "WAIT 0 7 0 - -"];
        assert_eq!(lead_after(&[held, held, held]), NodeId(0));
        assert_eq!(lead_after(&["WAIT 19000 7 0 - -", held, held]), NodeId(1));
        assert_eq!(lead_after(&["WAIT 21000 7 0 - -", held, held]), NodeId(1));
        assert_eq!(lead_after(&["WAIT 20003 7 0 - -", held, held]), NodeId(0));
        // The next holder takes the nodes that are free now.
        assert_eq!(lead_after(&[soon_free, free, free]), NodeId(1));
    }
}
