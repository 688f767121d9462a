//! What is known of one node's restart guard, on its present connection and before: whether it lets the node vote,
//! and what its TTL says of the node's clock.
//!
//! What a value and a TTL mean is decided in `proto::restart_guard`, which the models share. Apart from the folder's
//! `mod.rs`, which asks the nodes and counts their votes.

use std::time::Duration;

use crate::proto::answer::Answer;
use crate::proto::config::Settings;
use crate::proto::lease::Drift;
use crate::proto::names::ClaimId;
use crate::proto::restart_guard::{BIG_MS, Found, Setup, Standing};
use crate::proto::time::{ClockReading, Timestamp};
use crate::proto::vote::Cause;

/// What was last seen of a node's restart guard.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch {
    /// On this connection the value was read and is ours.
    is_ours: bool,
    /// What the value said before it was enrolled, or says.
    found: Option<Found>,
    /// When the quarantine should be over.
    free_at: Timestamp,
    /// It was enrolled just now, so that the next look should find it ours.
    is_enrolled: bool,
    /// Whether it votes is known in a round trip or two, and worth a wait.
    is_settling: bool,
    /// All other connections were dropped since the restart guard was moved to our limits.
    is_alone: bool,
    /// The value that is to be replaced, empty for none, once all nodes have been looked at.
    seen: Option<Vec<u8>>,
    /// When value and TTL were last asked for by themselves.
    guard_read: Moment,
    /// What its TTL said last.
    reading: Reading,
    /// When the node was last asked whether it was a replica meanwhile, and how many such questions have no answer yet.
    proof_asked: Moment,
    proofs_due: u32,
    /// When the last command was sent by whose answer the node was what it had been.
    proven: Moment,
    /// Grants that count once it is proven again.
    unproven: Vec<Unproven>,
    /// Its clock was set forward, so that locks which it granted may live until then.
    doubted_until: Timestamp,
}

/// A grant that counts if the node was no replica since it was last seen to be what it was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unproven {
    claim: ClaimId,
    answer: Answer,
    is_move: bool,
}

impl Unproven {
    pub(crate) fn of_ask(claim: ClaimId, answer: Answer) -> Self {
        Self { claim, answer, is_move: false }
    }

    /// Of a permit that was asked for in one slot.
    pub(crate) fn of_move(claim: ClaimId, answer: Answer) -> Self {
        Self { claim, answer, is_move: true }
    }

    pub(crate) fn claim(self) -> ClaimId {
        self.claim
    }

    pub(crate) fn answer(self) -> Answer {
        self.answer
    }

    pub(crate) fn is_move(self) -> bool {
        self.is_move
    }
}

/// A moment, by both of our clocks. Where the whole machine stops, one of them may stop with it.
#[derive(Clone, Copy, Debug, Default)]
struct Moment {
    at: Timestamp,
    /// How far the time of day is ahead of the other clock, in ns; modulo 2^64.
    wall_ahead: u64,
}

impl Moment {
    #[inline]
    fn of(now: ClockReading) -> Self {
        Self { at: now.boot, wall_ahead: now.wall.0.wrapping_sub(now.boot.0) }
    }

    /// The ns that have passed by either of our clocks.
    #[inline]
    fn passed(self, now: ClockReading) -> u64 {
        // A clock that stood still, or was set, makes the span longer, never shorter: a doubt costs
        // one question.
        let now = Self::of(now);
        let stood_still = now.wall_ahead.wrapping_sub(self.wall_ahead).cast_signed();
        now.at.0.saturating_sub(self.at.0).saturating_add(stood_still.unsigned_abs())
    }
}

/// When a restart guard ends at the earliest on our clock, and when it was asked for that; without one, long
/// ago.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    asked_at: Timestamp,
    ends: Timestamp,
}

impl Watch {
    /// Forgets the connection that has ended. What was found last still says why the node does not vote.
    pub(crate) fn forget_connection(&mut self) {
        // Behind another connection there may be another process, without the old one's memory.
        self.is_ours = false;
        self.seen = None;
        self.is_settling = false;
        self.is_enrolled = false;
        self.proofs_due = 0;
    }

    /// Starts a look at value and TTL: what is read then decides, not what was seen before.
    pub(crate) fn start_read(&mut self, now: ClockReading) {
        self.guard_read = Moment::of(now);
        self.seen = None;
    }

    /// When value and TTL were last asked for by themselves.
    pub(super) fn asked_at(&self) -> Timestamp {
        self.guard_read.at
    }

    /// Records the value that was read. Returns whether it was enrolled just before.
    pub(super) fn record_value(&mut self, found: Found) -> bool {
        self.is_ours = found == Found::Ours;
        // Proven from when it was asked, not from when it answered: it may have changed in between.
        if self.is_ours {
            self.proven = self.guard_read;
        }
        self.seen = None;
        self.is_settling = false;
        // Once it was enrolled, what it was before says more.
        if !self.is_ours || self.found.is_none() {
            self.found = Some(found);
        }
        // A foreign value was written by a client that is connected, so we are not alone.
        self.is_alone &= self.is_ours;
        if !self.is_ours {
            self.reading = Reading::default();
        }
        std::mem::take(&mut self.is_enrolled)
    }

    /// Whether the value was read on this connection and is ours.
    #[inline]
    pub(crate) fn is_ours(&self) -> bool {
        self.is_ours
    }

    /// Marks the value as one that has to be read again before it is believed.
    pub(super) fn question(&mut self) {
        self.is_ours = false;
    }

    /// What the value said before it was enrolled, or says.
    pub(super) fn found(&self) -> Option<Found> {
        self.found
    }

    /// Records that the TTL read behind an ask does not let the node vote: what it says, and until when.
    pub(super) fn forbid_vote(&mut self, found: Option<Found>, free_at: Timestamp) {
        self.is_ours = false;
        self.found = found;
        self.free_at = free_at;
    }

    /// When the quarantine should be over.
    pub(super) fn free_at(&self) -> Timestamp {
        self.free_at
    }

    /// Sets when the quarantine should be over.
    pub(super) fn set_free_at(&mut self, at: Timestamp) {
        self.free_at = at;
    }

    /// Whether it is known soon if the node votes, so that this is worth a wait.
    pub(crate) fn is_settling(&self) -> bool {
        self.is_settling
    }

    /// Keeps this value, which is to be replaced once all nodes have been looked at.
    pub(super) fn hold_for_set_up(&mut self, seen: Vec<u8>, is_settling: bool) {
        self.seen = Some(seen);
        self.is_settling = is_settling;
    }

    pub(super) fn is_awaiting_set_up(&self) -> bool {
        self.seen.is_some()
    }

    /// The value that is replaced now.
    pub(super) fn take_seen(&mut self) -> Option<Vec<u8>> {
        self.seen.take()
    }

    /// Records that our value is being written; the node votes from `free_at` on, or at once.
    pub(super) fn start_enrolment(&mut self, free_at: Timestamp, at_once: bool) {
        // The answers that come before the next look say nothing about the new value.
        self.is_ours = false;
        self.is_settling = at_once;
        self.free_at = free_at;
    }

    /// Records that our value was written, so that the next look should find it.
    pub(super) fn mark_enrolled(&mut self) {
        self.is_enrolled = true;
    }

    /// Records that no other client is connected that has read the old value.
    pub(super) fn mark_alone(&mut self) {
        self.is_alone = true;
    }

    pub(super) fn is_alone(&self) -> bool {
        self.is_alone
    }
}

/// The node's clock.
impl Watch {
    /// Records the TTL, in ms, of a restart guard that is ours and was asked for it at `asked_at`. Returns whether it went
    /// down by more than the time that has passed here.
    #[inline]
    pub(crate) fn record_ttl(
        &mut self,
        asked_at: Timestamp,
        pttl: i64,
        drift: Drift,
        now: Timestamp,
    ) -> bool {
        // An operator may end a quarantine, and sets just the longest that is told apart here. Without a TTL
        // there is nothing to compare.
        let Ok(pttl) = u64::try_from(pttl) else { return false };
        let span = pttl.min(BIG_MS) * MS;
        let ends = |at: Timestamp| Timestamp(at.0.wrapping_add(span));
        let last = std::mem::replace(&mut self.reading, Reading { asked_at, ends: ends(asked_at) });
        // What whole milliseconds hide is no step, and needs no closer look.
        ends(now).0.wrapping_add(2 * MS) < last.ends.0
            && ends(now) + drift.of(now.since(last.asked_at)) < last.ends
    }

    /// Records that its clock was set forward, so that locks which it granted may live until then.
    pub(super) fn doubt_until(&mut self, until: Timestamp) {
        self.doubted_until = until;
    }

    #[inline]
    pub(super) fn doubted_until(&self) -> Timestamp {
        self.doubted_until
    }

    #[inline]
    pub(super) fn is_doubted(&self, now: Timestamp) -> bool {
        self.doubted_until > now
    }

    /// Takes back a doubt, because our clock stood still: the next look compares with nothing that was seen before.
    pub(super) fn believe_clock(&mut self) {
        (self.reading, self.doubted_until) = (Reading::default(), Timestamp::default());
    }
}

/// Whether it is what it was.
impl Watch {
    /// Whether it is proven, or is about to be, by what was sent within so many ns.
    #[inline]
    pub(super) fn is_proven_within(&self, span_ns: u64, now: ClockReading) -> bool {
        let is_young = |moment: Moment| moment.passed(now) <= span_ns;
        is_young(self.proven) || is_young(self.proof_asked) || is_young(self.guard_read)
    }

    /// Records an answer to what was sent at `since`. Returns whether it was so fast that the node was not a replica
    /// meanwhile, if it takes `resync_ns` to be one and be promoted again.
    #[inline]
    pub(super) fn record_answer(
        &mut self,
        since: Timestamp,
        resync_ns: u64,
        now: ClockReading,
    ) -> bool {
        // To become a replica, load the master's data and be promoted takes at least `resync_ns`.
        // By both clocks, because a machine that slept has let that time pass unseen.
        let is_fast = self.proven.passed(now) <= resync_ns;
        if is_fast {
            self.proven.at = self.proven.at.max(since);
        }
        is_fast
    }

    /// Records that the node is asked whether it was a replica.
    pub(super) fn start_proof(&mut self, now: ClockReading) {
        self.proof_asked = Moment::of(now);
        self.proofs_due += 1;
    }

    /// Makes room for the grants of as many requests as there is room for: a grant is not to allocate, as a rule, also if it
    /// has to wait for a proof.
    #[inline]
    pub(super) fn reserve(&mut self, requests: usize) {
        let wanted = requests.min(MANY);
        if self.unproven.capacity() < wanted {
            self.unproven.reserve(wanted);
        }
    }

    /// Records that a question has not been sent after all.
    pub(super) fn cancel_proof(&mut self) {
        self.proofs_due -= 1;
    }

    pub(super) fn has_proofs_due(&self) -> bool {
        self.proofs_due > 0
    }

    /// Records the answer to a question, and returns the grants that waited for it. Which answer is the last one is
    /// counted, because two questions have one time if our clock stood still between them.
    pub(super) fn finish_proof(&mut self, is_same: bool) -> Vec<Unproven> {
        self.proofs_due = self.proofs_due.saturating_sub(1);
        // An earlier answer proves less than the last question asks for.
        if is_same && self.proofs_due == 0 {
            self.proven = self.proof_asked;
        }
        self.take_unproven()
    }

    /// Keeps a grant until the next proof.
    pub(super) fn hold_for_proof(&mut self, grant: Unproven) {
        self.unproven.push(grant);
    }

    pub(crate) fn unproven(&self) -> &[Unproven] {
        &self.unproven
    }

    pub(crate) fn take_unproven(&mut self) -> Vec<Unproven> {
        std::mem::take(&mut self.unproven)
    }

    /// The memory of those that were taken.
    pub(crate) fn give_back(&mut self, mut taken: Vec<Unproven>) {
        if self.unproven.is_empty() {
            taken.clear();
            self.unproven = taken;
        }
    }
}

impl Watch {
    /// Whether a vote stands by this, with the TTL that was read behind its ask.
    #[inline]
    pub(super) fn lets_vote(&self, standing: Standing, now: Timestamp) -> bool {
        self.is_ours && standing == Standing::Votes && !self.is_doubted(now)
    }

    /// Which limits a node was set up for, as opposed to ours.
    pub(crate) fn describe_limits(&self, ours: &Settings) -> String {
        let Some(Found::OtherLimits { max_ttl_ms, nodes }) = self.found else {
            return Cause::OtherLimits.to_string();
        };
        let max_ttl = Duration::from_millis(max_ttl_ms);
        format!(
            "set up for {nodes} nodes and a max_ttl of {max_ttl:?}, this client for {} and {:?}",
            ours.nodes.len(),
            ours.max_ttl
        )
    }

    /// Why the node does not vote.
    pub(crate) fn describe(&self, setup: Setup, now: Timestamp) -> String {
        let left = self.free_at.since(now).as_secs_f64().ceil();
        let reason = match self.found {
            Some(Found::Ours) | None if self.is_doubted(now) => "its clock was set forward",
            Some(Found::Missing) => "it has no restart guard: it is new, or has lost its memory",
            Some(Found::OtherRun) => "restarted: its run id changed",
            Some(Found::OtherHistory) => {
                "its replication id changed: it was a replica, or got its first one"
            }
            Some(Found::OtherDatabase) => "its database was swapped",
            _ => "others saw it new, restarted or emptied",
        };
        // A client that only looks begins no quarantine. It sees one that goes on.
        if setup == Setup::ReadOnly && left <= 0.0 {
            return reason.to_owned();
        }
        if self.is_awaiting_set_up() {
            return format!("{reason}; another node is not new, or not reached");
        }
        format!("{left} s, {reason}")
    }
}

/// More grants than these hardly ever wait for one proof.
const MANY: usize = 128;

/// A millisecond.
const MS: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp(ms * MS)
    }

    #[test]
    fn what_it_was_before_it_was_enrolled_is_remembered() {
        let mut watch = Watch::default();
        assert!(!watch.record_value(Found::OtherRun));
        watch.start_enrolment(at(30_000), false);
        watch.mark_enrolled();
        assert!(watch.record_value(Found::Ours), "it was enrolled");
        assert!(watch.is_ours() && !watch.record_value(Found::Ours), "once");
        assert_eq!(watch.found(), Some(Found::OtherRun));
        watch.forget_connection();
        assert!(!watch.is_ours() && watch.found() == Some(Found::OtherRun));
        assert_eq!(watch.describe(Setup::Enrol, at(27_500)), "3 s, restarted: its run id changed");
    }

    #[test]
    fn a_ttl_that_falls_faster_than_time_is_a_clock_that_was_set() {
        let drift = Drift { parts_per_million: 10_000 };
        let mut watch = Watch::default();
        let mut read = |ms: u64, pttl| watch.record_ttl(at(ms), pttl, drift, at(ms));
        assert!(!read(100_000, 1_000_000), "nothing to compare with");
        assert!(!read(101_000, 999_000));
        assert!(!read(102_000, 997_995), "within the drift of clocks, and a rounding");
        assert!(read(103_000, 900_000));
        assert!(!read(104_000, -1), "no TTL");
        assert!(!read(105_000, 898_000), "it goes on from where it was set to");
        assert!(!read(106_000, 896_988), "all of the drift of a second, and a rounding");
        assert!(read(107_000, 895_975), "and a millisecond more");
    }

    #[test]
    fn only_a_new_value_is_believed_after_a_question() {
        let mut watch = Watch::default();
        watch.record_value(Found::Ours);
        watch.mark_alone();
        watch.question();
        assert!(!watch.is_ours() && watch.is_alone());
        watch.record_value(Found::Missing);
        assert!(!watch.is_alone(), "others may have read it since");
    }

    #[test]
    fn what_was_found_last_is_reported_until_it_is_ours_for_the_first_time() {
        let mut watch = Watch::default();
        watch.record_value(Found::Ours);
        assert_eq!(watch.found(), Some(Found::Ours));
        watch.record_value(Found::OtherRun);
        assert_eq!(watch.found(), Some(Found::OtherRun));
    }

    /// The machine was stopped together with its clock, which the time of day tells.
    #[test]
    fn an_answer_of_before_a_stop_proves_nothing_of_after_it() {
        let reading = |boot, wall| ClockReading { boot: at(boot), wall: at(wall) };
        let mut watch = Watch::default();
        watch.start_proof(reading(100, 100));
        watch.start_proof(reading(100, 170));
        watch.finish_proof(true);
        assert!(!watch.record_answer(at(100), 2 * MS, reading(101, 171)));
        watch.finish_proof(true);
        assert!(watch.record_answer(at(100), 2 * MS, reading(101, 171)));
    }

    #[test]
    fn a_doubt_is_over_at_its_end() {
        let mut watch = Watch::default();
        watch.doubt_until(at(10));
        assert!(watch.is_doubted(at(9)) && !watch.is_doubted(at(10)));
    }
}
