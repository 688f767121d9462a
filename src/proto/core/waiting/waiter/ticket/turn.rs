//! The transitions of a lock with a ticket: its requests and reads until its turn comes.

use std::time::Duration;

use super::{
    GRACE_ROUND_TRIPS, LONGEST_GRACE, LONGEST_GRACE_NEAR, Next, Slots, Ticket, TicketRead, Tickets,
    grace_for,
};
use crate::proto::core::claims::{Claim, Claims};
use crate::proto::core::links::{Ability, Pending};
use crate::proto::core::waiting::pause::{AT_LEAST_NOTIFIED, CAP_NOTIFIED, EXPIRY_JITTER};
use crate::proto::core::{
    MAX_PIPELINE, effects::Decision, locks::Phase, waiting::waiter::WaitingLock,
};
use crate::proto::fair_queue::{
    CLOSED, InQueue, MARKED_FOR, QueuePlace, QueueReply, TICKET_PREFIX,
};
use crate::proto::names::{ClaimId, NodeId, NodeSet, TicketName};
use crate::proto::{
    classify::classify, config::WakeStrategy, lock_mode::LockMode, mutants::mutant, permits,
    script, time::Timestamp, vote::Cause,
};
use crate::resp::{Token, command};

/// The transitions that take, send and give up a ticket.
impl WaitingLock<'_> {
    /// Takes a ticket, which the lock's requests carry from now on, if the nodes may have queues.
    fn take_ticket(&mut self, took: Duration, claims: &mut Claims) {
        if self.ticket.is_some() || !self.may_take_ticket() {
            return;
        }
        let (grace, quorum) = (self.needed_grace(took), self.env.config().quorum());
        let (claim, name) = self.make_ticket(grace, claims);
        let ticket = Ticket::new(claim, name, grace, quorum, self.now());
        *self.ticket = Some(Box::new(ticket));
        self.env.metrics.joined_queue += 1;
    }

    fn make_ticket(&mut self, grace: Duration, claims: &mut Claims) -> (ClaimId, TicketName) {
        let (id, claim) = claims.occupy(Claim::new);
        let named = (grace.as_millis() as u64, &self.env.settings().label[..]);
        let random = self.env.entropy.bytes();
        claim.begin_ticket(self.id, self.keys, self.lock.mode(), named, random);
        (id, claim.ticket_name())
    }

    /// Returns whether the first attempt takes a ticket if other processes wait. If not, this core
    /// leaves turns to them from time to time.
    pub(crate) fn begins_with_ticket(&self) -> bool {
        // A client that is granted each time does not find out whether nodes have queues. Until
        // that is known, its core leaves turns.
        let is_contended = |&key: &_| self.queues.is_contended(key, self.now());
        let is_seen = || self.waiting.queues.iter().any(is_contended);
        let have_queues = || self.is_of_quorum(|ability| ability == Ability::Given);
        self.may_take_ticket() && (have_queues() || is_seen())
    }

    pub(crate) fn may_take_ticket(&self) -> bool {
        let is_of_ours = self.keys.len() == 1 && self.foreign.is_none();
        let is_wanted = is_of_ours && self.waiting.is_wanted() && !self.mode_change.is_companion();
        is_wanted && self.env.settings().wake == WakeStrategy::Queue && self.may_have_queues()
    }

    /// Returns whether a quorum of nodes may have a queue. Without one there is no order.
    fn may_have_queues(&self) -> bool {
        self.is_of_quorum(|ability| !matches!(ability, Ability::Refused(_)))
    }

    /// Returns whether `is` holds for the queues of a quorum of nodes.
    fn is_of_quorum(&self, is: fn(Ability) -> bool) -> bool {
        let count = self.nodes.iter().filter(|node| is(node.capabilities.queue())).count();
        count >= self.env.config().quorum()
    }

    /// Begins the first attempt of a lock that waits, with a ticket if other processes were seen to
    /// wait.
    pub(crate) fn first_attempt_with_ticket(&mut self, claims: &mut Claims) -> Decision {
        let (now, first) = (self.now(), self.waiting.queues.first().copied());
        let contended = first.filter(|&key| self.queues.is_contended(key, now));
        let Some(key) = contended else { return Decision::Ask(None) };
        // Without a measured round trip, the ticket has the longest grace of an owner near the
        // nodes.
        let is_unknown = self.env.round_trip.is_zero();
        let took = if is_unknown { LONGEST_GRACE_NEAR / GRACE_ROUND_TRIPS } else { Duration::ZERO };
        self.take_ticket(took, claims);
        let hand_off = (self.env.round_trip * HAND_OFF_ROUND_TRIPS).max(SHORTEST_HAND_OFF);
        let until = self.queues.released_at(key).map_or(now, |released| released + hand_off);
        if until <= now {
            return Decision::Ask(None);
        }
        // The first in the queue must be able to request before this lock does.
        self.lock.phase = Phase::Pausing;
        self.pause_until(until);
        Decision::Continue
    }

    /// Puts the ticket, if there is one, into the requests of an attempt that begins.
    pub(crate) fn ask_with_ticket(&mut self, claims: &mut Claims) {
        let Some(mut ticket) = self.ticket.take() else { return };
        // Places from an earlier attempt may be outdated.
        ticket.places.clear();
        let stamp = ticket.agreement.stamp_for_ask();
        // A request that follows a notification may be the turn, which a second ticket would delay.
        if ticket.needs_more_time() && !self.waiting.pause.is_woken() {
            // Both tickets stand at one place until the nodes have answered, so that no waiter
            // passes in between.
            ticket.grace = (ticket.needed_grace + ticket.needed_grace / 4).min(LONGEST_GRACE);
            let (claim, name) = self.make_ticket(ticket.grace, claims);
            ticket.former = Some(std::mem::replace(&mut ticket.claim, claim));
            (ticket.name, ticket.known_by) = (name, NodeSet::EMPTY);
        }
        let (proposal, grace_ms) = (self.env.now().wall.0 / 1000, ticket.grace.as_millis() as u64);
        if let Some(claim) = claims.find_mut(self.lock.claim()) {
            let in_queue = InQueue { ticket: ticket.name, stamp, proposal, grace_ms };
            claim.asks_in_queue(ticket.claim, in_queue);
        }
        *self.ticket = Some(ticket);
    }

    /// Records a node's reply to a request with the ticket. `late_round` is the round of the
    /// request if the reply came after the verdict.
    pub(crate) fn record_place(
        &mut self,
        node: NodeId,
        late_round: Option<u32>,
        reply: QueueReply,
    ) -> [Decision; 2] {
        let now = self.now();
        match (late_round, reply) {
            (None, _) => {
                let ticket = self.ticket.as_mut();
                if let Some(grace) = ticket.and_then(|ticket| ticket.record(node, reply, now)) {
                    self.waiting.pause.key_lives(node, Some(grace), now);
                }
                [Decision::Continue; 2]
            }
            (Some(round), QueueReply::Waits(place)) => self.learn_place(node, round, place),
            (Some(_), QueueReply::Granted { .. }) => [Decision::Continue; 2],
        }
    }

    /// Records a place that was reported after the verdict, which may lead to another lead.
    fn learn_place(&mut self, node: NodeId, round: u32, place: QueuePlace) -> [Decision; 2] {
        // This reply may be the one that shows where the holder is that prevents a quorum.
        let is_meant = self.lock.phase == Phase::Pausing && self.lock.round() == round;
        let Some(ticket) = self.ticket.as_mut().filter(|_| is_meant) else {
            return [Decision::Continue; 2];
        };
        ticket.known_by.insert(node);
        ticket.places.push((node, place));
        match self.lead() {
            Some(lead) if !self.leads().contains(lead.0) => {
                self.listen_to_lead(Some(lead));
                [Decision::Listen(lead.0.into()), Decision::ReadLead]
            }
            _ => [Decision::Continue; 2],
        }
    }

    /// Returns the node to listen to, by the places that the nodes have reported, and the place
    /// there.
    fn lead(&self) -> Option<(NodeId, QueuePlace)> {
        let (needed, took) = (self.waiting.pause.needed(), self.round.took(self.now()));
        self.ticket.as_ref()?.lead((self.leads(), self.env.suspected()), needed, took)
    }

    fn listen_to_lead(&mut self, lead: Option<(NodeId, QueuePlace)>) {
        let (node, place) = lead.unzip();
        if let Some(ticket) = self.ticket {
            self.queues.stop_listening(ticket.set_place(place));
        }
        self.waiting.pause.listen_to(node.map(NodeSet::from).unwrap_or_default());
    }

    /// Gives up the ticket of a lock that is decided. Returns the tickets that it had.
    #[must_use = "they are to leave the queue on the nodes"]
    pub(crate) fn give_up_ticket(&mut self) -> Tickets {
        let Some(mut ticket) = self.ticket.take() else { return [None; 2] };
        self.env.common.metrics.left_queue(ticket.joined_at, self.env.now.boot);
        self.queues.stop_listening(ticket.set_place(None));
        // The former one leaves first: as long as both exist, the newer one keeps the place.
        [ticket.former, Some(ticket.claim)]
    }
}

/// The transitions of the pause before the turn.
impl WaitingLock<'_> {
    /// Pauses the lock after a refused attempt, if it has a ticket or takes one. Returns the
    /// tickets that leave the queue.
    pub(crate) fn pause_with_ticket(&mut self, claims: &mut Claims) -> Tickets {
        let mut tickets = if self.may_have_queues() { [None; 2] } else { self.give_up_ticket() };
        if mutant!(LeavesWhenRefused) {
            tickets = self.give_up_ticket();
        }
        let now = self.now();
        let (is_new, took) = (self.ticket.is_none(), self.round.took(now));
        self.take_ticket(took, claims);
        let former = self.take_former_ticket();
        tickets[0] = tickets[0].or(former);
        let (needed_grace, leave) = (self.needed_grace(took), self.time_to_take_turn());
        let Some(ticket) = self.ticket else { return tickets };
        self.lock.phase = Phase::Pausing;
        (ticket.needed_grace, ticket.rests_until) = (needed_grace, None);
        // A new ticket must reach the nodes before it can be called, and before others see it.
        let has_to_ask = is_new || former.is_some() || ticket.needs_more_time();
        self.attempt.was_led();
        let (votes, pause) = (&self.votes, &mut self.waiting.pause);
        let was_woken = pause.take_woken();
        let is_split = (was_woken || ticket.hurried > 0) && !votes.grants().is_empty();
        if was_woken && !is_split {
            ticket.woken_in_vain_at = Some(now);
        }
        let needed = votes.quorum().saturating_sub(votes.grants().len());
        pause.refused(false, needed);
        self.listen_to_lead(self.lead());
        let Some(ticket) = self.ticket else { return tickets };
        let hurries = has_to_ask || ticket.hurries(is_split);
        ticket.schedule_reads(now, leave);
        let until = if hurries { now } else { self.choose_pause() };
        self.pause_until(until);
        if hurries {
            self.queues.schedule(self.id);
        }
        tickets
    }

    /// Takes the replaced ticket once enough nodes have the new one. Until then the replaced one
    /// may be the only ticket that stands before later waiters.
    fn take_former_ticket(&mut self) -> Option<ClaimId> {
        let ticket = self.ticket.as_mut()?;
        // If a quorum of nodes may be without the new ticket, other waiters could pass there.
        let is_known = ticket.known_by.len() + self.votes.quorum() > self.votes.node_count();
        ticket.former.take_if(|_| is_known)
    }

    /// Returns the grace that the owner needs if its last request took `took`.
    fn needed_grace(&self, took: Duration) -> Duration {
        let is_notified = self.nodes.iter().any(|node| node.push.notifies());
        grace_for(self.env.round_trip.max(took), is_notified)
    }

    /// Returns the time left to the first in the queue to take a free resource.
    fn time_to_take_turn(&self) -> Duration {
        (self.env.round_trip * LEFT_ROUND_TRIPS).max(SHORTEST_LEFT)
    }

    /// Chooses when the lock requests again if no notification brings its turn.
    fn choose_pause(&mut self) -> Timestamp {
        let (now, will_be_notified) = (self.now(), self.will_be_notified());
        self.record_contention();
        let ticket = self.ticket.as_ref();
        if let Some(until) = ticket.and_then(|it| it.others_may_come_until(now, will_be_notified)) {
            return until;
        }
        let (took, backoff) = (self.round.took(now), self.env.settings().retry_backoff);
        let span = match will_be_notified {
            true => (AT_LEAST_NOTIFIED, CAP_NOTIFIED),
            false => self.waiting.pause.span(took, false, backoff),
        };
        // A ticket does not live long without a request.
        now + self.draw(span).min(CAP_NOTIFIED)
    }

    /// Makes the pause long, because the lead notifies from now on.
    pub(crate) fn lengthen_pause_with_ticket(&mut self) {
        let now = self.now();
        let ticket = self.ticket.as_ref();
        let may_be_long = ticket.is_some_and(|it| it.is_held() && it.pinged_until <= now);
        if self.lock.phase == Phase::Pausing && may_be_long {
            let waiting = &mut self.waiting;
            let until = waiting.pause.lengthen(now, waiting.deadline);
            self.pause_until(until);
        }
    }

    fn pause_until(&mut self, until: Timestamp) {
        let (ticket, waiting) = (self.ticket.as_ref(), &mut self.waiting);
        let is_first = ticket.is_some_and(|ticket| ticket.is_first());
        let behind_holder = ticket.filter(|_| !is_first).map(|ticket| ticket.ask_behind_holder_at);
        let reads_at = ticket.map(|ticket| ticket.silent_until.min(ticket.read_at));
        let until = behind_holder.into_iter().fold(until, Ord::min).min(waiting.deadline);
        waiting.pause.lasts_until(until);
        self.arm(reads_at.into_iter().fold(until, Ord::min));
        if is_first {
            self.shorten_pause();
        }
    }

    /// Reads from behind the first two, and checks that the lead does not hang, if that is due.
    pub(crate) fn check_lead(&mut self) {
        let (now, lead) = (self.now(), self.leads().iter().next());
        let Some(ticket) = self.ticket else { return };
        let looks = ticket.reads_now(now, self.env.round_trip * 2);
        let read_at = ticket.read_at;
        self.arm(read_at);
        let Some(lead) = lead else { return };
        if looks && self.nodes[lead.index()].push.notifies() {
            self.ask(lead, TicketRead::FromBehind);
        }
        let Some(ticket) = self.ticket else { return };
        // A lead that hangs reports nothing, and is not detected while nothing is asked. So a
        // silent lock asks all nodes for a sign of life, each time after twice as long: a lead that
        // hangs at most doubles a wait.
        let is_over = ticket.breaks_silence(now);
        let silent_until = ticket.silent_until;
        self.arm(silent_until);
        if is_over {
            self.env.config().node_ids().for_each(|node| self.ask(node, TicketRead::Alive));
            // The others have answered by then.
            self.env.arm(now + self.nodes.allowance(lead) * 2);
        }
    }
}

/// The reads of a lock with a ticket.
impl WaitingLock<'_> {
    /// Returns whether this lock and all before it wait for permits. Behind any other ticket, a
    /// free slot is not for this lock.
    fn waits_for_slot(&self) -> bool {
        if mutant!(SlotsNotCounted) {
            return false;
        }
        let last = self.ticket.as_ref().and_then(|it| it.place?.predecessors[0]);
        self.wants_permit && last.is_none_or(TicketName::is_for_permit)
    }

    /// Reads at the lead what the lock waits for, which makes the node report its next change.
    pub(crate) fn read_lead(&mut self) {
        let (now, is_pausing) = (self.now(), self.lock.phase == Phase::Pausing);
        let place = self.ticket.as_ref().and_then(|ticket| ticket.place);
        let lead = self.leads().iter().next().filter(|_| is_pausing);
        let Some((place, lead)) = place.zip(lead) else { return };
        let node = &mut self.nodes[lead.index()];
        let has_room = node.pipeline.len() + 6 < MAX_PIPELINE;
        if !node.link.takes_asks() || !node.push.notifies() || !has_room {
            return;
        }
        let [last, last_but_one] = place.predecessors;
        let resource =
            (place.before <= 1).then(|| (TicketRead::Resource, &b""[..], self.keys.first()));
        let last = last.as_ref().filter(|_| place.before >= 1);
        let last_but_one = last_but_one.as_ref().filter(|_| place.before >= 2);
        let tickets = [(TicketRead::Last, last), (TicketRead::LastButOne, last_but_one)];
        let tickets = tickets
            .into_iter()
            .filter_map(|(what, name)| Some((what, TICKET_PREFIX, &name?.0[..])));
        for (what, prefix, key) in resource.into_iter().chain(tickets) {
            node.track_next(now);
            let pending = Pending::TicketRead { lock: self.id, round: self.lock.round(), what };
            node.pipeline.push(pending, now, |out| {
                let look = command(out, 4).arg(b"GETRANGE").prefixed(prefix, key);
                let _ = look.int(0).int(LONGEST_READ);
            });
        }
        for name in last.into_iter().chain(last_but_one) {
            self.queues.listen(*name, self.id);
        }
        self.env.arm(now + self.env.settings().dead_peer_timeout);
    }

    /// Sends a read of which the node need not report changes: the remaining TTL of the resource,
    /// the taken slots of a semaphore, or the value of the resource.
    fn ask(&mut self, to: NodeId, what: TicketRead) {
        let (now, key) = (self.now(), self.keys.first());
        let node = &mut self.nodes[to.index()];
        let is_open = node.link.takes_asks() && !self.env.suspected().contains(to);
        if !is_open || node.pipeline.len() >= MAX_PIPELINE {
            return;
        }
        let pending = Pending::TicketRead { lock: self.id, round: self.lock.round(), what };
        node.pipeline.push(pending, now, |out| match what {
            TicketRead::FromBehind => {
                let look = command(out, 4).arg(b"GETRANGE").arg(key);
                let _ = look.int(0).int(LONGEST_READ);
            }
            TicketRead::Slots => {
                let look =
                    command(out, 6).arg(b"EVAL").arg(script::VIEW_PERMITS.text.as_bytes()).int(2);
                let _ = look.arg(key).prefixed(permits::ENDS_PREFIX, key).int(1);
            }
            _ => drop(command(out, 2).arg(b"PTTL").arg(key)),
        });
    }

    /// Records a node's answer to a read of this round.
    pub(crate) fn record_read(
        &mut self,
        node: NodeId,
        round: u32,
        what: TicketRead,
        answer: Token<'_>,
    ) -> Decision {
        let is_expected = what == TicketRead::Alive || self.listens_to(node);
        // A read of an earlier round shows a place that this attempt may have changed.
        if self.lock.round() != round || !is_expected {
            return Decision::Continue;
        }
        match self.next_after(node, what, answer) {
            Next::Wait => {}
            Next::Pause(until) => self.pause_until(until),
            Next::LookAt(at) => self.arm(at),
            Next::Read(what) => self.ask(node, what),
            Next::ReadLead => self.read_lead(),
            Next::ReadLeadAndLife => {
                self.read_lead();
                self.ask(node, TicketRead::Life);
            }
            Next::Wake => return self.wake_by(node),
        }
        Decision::Continue
    }

    fn next_after(&mut self, node: NodeId, what: TicketRead, answer: Token<'_>) -> Next {
        let (now, leave) = (self.now(), self.time_to_take_turn());
        let (paused_until, leave_until) = (self.waiting.pause.until(), now + leave);
        let number = if let Token::Int(number) = answer { Some(number) } else { None };
        let is_free = matches!(answer, Token::Bulk(value) if value.is_empty() || value == CLOSED);
        let (has_many, waits_for_slot) = (is_of_another_type(answer), self.waits_for_slot());
        let Some(ticket) = self.ticket else { return Next::Wait };
        match what {
            TicketRead::Resource | TicketRead::FromBehind if has_many && waits_for_slot => {
                Next::Read(TicketRead::Slots)
            }
            TicketRead::FromBehind => ticket.see_from_behind(is_free, now, leave),
            TicketRead::Resource if has_many => {
                ticket.is_behind_many = true;
                if self.lock.mode() == LockMode::Shared && ticket.joins_readers_once(node) {
                    return Next::Wake;
                }
                let next = ticket.see_resource(false, paused_until, leave_until);
                self.ask(node, TicketRead::LifeOfMany);
                next
            }
            // One client holds it there, or none.
            TicketRead::Resource => {
                (ticket.knows_many, ticket.is_behind_many) = (false, false);
                ticket.see_resource(is_free, paused_until, leave_until)
            }
            TicketRead::Slots => self.see_slots(answer, leave_until),
            TicketRead::Life => self.see_life(number),
            TicketRead::LifeOfMany => {
                let life = number.filter(|&life| ticket.is_news_of_many(node, life));
                self.see_life(life)
            }
            TicketRead::Alive => self.see_sign_of_life(node, number),
            TicketRead::Last | TicketRead::LastButOne if !ticket.is_before(what, answer) => {
                ticket.see_present(what)
            }
            TicketRead::Last => ticket.see_last_leave(self.wants_permit, paused_until),
            TicketRead::LastButOne => ticket.see_last_but_one_leave(),
        }
    }

    /// Records the slots of the semaphore at the lead, or that the resource is not a semaphore.
    fn see_slots(&mut self, answer: Token<'_>, leave_until: Timestamp) -> Next {
        let slots = if let Token::Bulk(text) = answer { Slots::read(text) } else { None };
        let taken = slots.map_or(u64::MAX, |slots| slots.taken);
        let is_free = taken < permits_of(self.lock.mode());
        let Some(ticket) = self.ticket else { return Next::Wait };
        // One free slot was left to the tickets before. Another one is worth a request.
        if ticket.takes_another_slot(taken, is_free) {
            return Next::Wake;
        }
        // The key lives as long as the last of its holders, so only this answer has the end of the
        // first.
        if let Some(left) = slots.and_then(|slots| slots.first_ends_in).filter(|_| !is_free) {
            self.expect_end(left);
        }
        let paused_until = self.waiting.pause.until();
        let ticket = self.ticket.as_mut();
        ticket.map_or(Next::Wait, |it| it.see_resource(is_free, paused_until, leave_until))
    }

    /// Ends the pause when the holder may have ended, by the remaining TTL of the resource.
    fn see_life(&mut self, life: Option<i64>) -> Next {
        let Some(life) = life.and_then(|ms| u64::try_from(ms).ok()) else { return Next::Wait };
        // A marked key outlives its holder. Another key does not belong to the queue: for it this
        // is early, and the reply to the request has its time.
        let left = Duration::from_millis(life).saturating_sub(MARKED_FOR);
        let ends_at = self.now() + left + self.draw(EXPIRY_JITTER);
        Next::Pause(self.waiting.pause.until().min(ends_at))
    }

    /// Records a sign of life of a node, and the remaining life of the key there.
    fn see_sign_of_life(&mut self, node: NodeId, life: Option<i64>) -> Next {
        let life = life.filter(|&life| life != WITHOUT_END && self.lock.phase == Phase::Pausing);
        let Some(life) = life else { return Next::Wait };
        let life = Duration::from_millis(life.max(0).unsigned_abs());
        let is_first = self.ticket.as_ref().is_some_and(|ticket| ticket.is_first());
        let (is_marked, left) = (life > MARKED_FOR, life.saturating_sub(MARKED_FOR));
        if !is_first {
            return match self.listens_to(node) {
                true if is_marked && self.waits_for_slot() => Next::Read(TicketRead::Slots),
                // The holder may be another one than the last reply has reported.
                true => {
                    self.expect_end(left);
                    Next::Wait
                }
                false => Next::Wait,
            };
        }
        let (now, pause) = (self.now(), &mut self.waiting.pause);
        // The node's reply to the request may have come too late to count, or was about a holder
        // that has released since. A key that lives for as long as the reply said is not marked.
        let known = pause.known(node, now);
        if known.map_or(is_marked, |known| known.abs_diff(life) > CAP_NOTIFIED) {
            let left = known.map_or(left, |known| known.min(left));
            pause.key_lives(node, Some(left), now);
            self.shorten_pause();
        }
        Next::Wait
    }

    /// Records that the holder at the lead has `left` to live.
    fn expect_end(&mut self, left: Duration) {
        let (now, leave) = (self.now(), self.time_to_take_turn());
        if let Some(ticket) = self.ticket {
            ticket.ask_behind_holder_at = ticket.asks_behind_holder_at(now, left, leave);
        }
        self.pause_until(self.waiting.pause.until());
    }

    /// Records that a node has reported a change of a ticket before this lock's.
    pub(crate) fn ticket_notified(&mut self, node: NodeId) {
        if self.listens_to(node) {
            self.read_lead();
        }
    }

    /// Records that a node has reported a change of the resource. A lock without a ticket wakes,
    /// and so does the first in the queue, unless that won nothing a moment ago, as when a holder
    /// extends. The others read.
    pub(crate) fn notified(&mut self, node: NodeId) -> Decision {
        let now = self.now();
        let Some(ticket) = self.ticket else { return self.wake_by(node) };
        let was_in_vain = ticket.woken_in_vain_at.is_some_and(|at| now < at + RESTED);
        // A read does not show a reader whether the holders that share are in its way.
        let is_answered_by_read = self.lock.mode() != LockMode::Shared;
        let is_turn = ticket.is_first() && !(was_in_vain && is_answered_by_read);
        // A ping may arrive before the news that this lock is first, and the ticket expires unless
        // the lock requests. A waiter that has requested more recently than this is not pinged.
        if is_turn || ticket.is_behind_many && self.round.since() + RESTED <= now {
            return self.wake_by(node);
        }
        self.ticket_notified(node);
        Decision::Continue
    }
}

/// Returns how many permits the semaphore has of which a lock takes one, or 0 for another mode.
fn permits_of(mode: LockMode) -> u64 {
    if let LockMode::Permit { of } = mode { of.into() } else { 0 }
}

fn is_of_another_type(answer: Token<'_>) -> bool {
    matches!(answer, Token::Error(text) if classify(text).cause() == Cause::WrongType)
}

/// The last byte read of a value, which is enough to tell a closed key and a stamp from all else.
const LONGEST_READ: u64 = 19;

/// The round trips in which the first in the queue usually takes the resource, and the shortest
/// time left for that.
const LEFT_ROUND_TRIPS: u32 = 4;
const SHORTEST_LEFT: Duration = Duration::from_millis(1);

/// The answer of `PTTL` for a key without a TTL.
const WITHOUT_END: i64 = -1;

/// The round trips left to the first in the queue after a release, and the shortest time: its
/// process must be woken, by processors that may be busy with other requests.
const HAND_OFF_ROUND_TRIPS: u32 = 2;
const SHORTEST_HAND_OFF: Duration = Duration::from_millis(1);

/// The time for which a wake-up that won nothing counts: requests further apart are not caused by
/// one holder that extends. It is less than the time after which a waiter is pinged.
const RESTED: Duration = Duration::from_millis(450);
