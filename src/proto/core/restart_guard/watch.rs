//! The knowledge about one node's restart guard, on its present connection and before.
//!
//! It decides whether the guard lets the node vote, and what the guard's TTL shows of the node's
//! clock. It sends nothing.

use std::time::Duration;

use crate::proto::answer::Answer;
use crate::proto::config::Settings;
use crate::proto::lease::Drift;
use crate::proto::names::ClaimId;
use crate::proto::restart_guard::{BIG_MS, Found, Setup, Standing};
use crate::proto::time::{ClockReading, Timestamp};
use crate::proto::vote::Cause;

/// The last observations of a node's restart guard.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch {
    /// Whether the value was read on this connection and is ours.
    is_ours: bool,
    /// The last value that was not ours, or ours if there was none.
    found: Option<Found>,
    /// The expected end of the quarantine.
    free_at: Timestamp,
    /// Whether our value was just written, so that the next read should find it.
    is_enrolled: bool,
    /// Whether a round trip or two will show if the node votes, which is worth a wait.
    is_settling: bool,
    /// Whether all other connections were dropped since the guard was given our limits.
    is_alone: bool,
    /// The value to be replaced once all nodes have been read. Empty for a missing key.
    seen: Option<Vec<u8>>,
    /// The time of the last read of value and TTL by themselves.
    guard_read: Moment,
    /// The last reading of the TTL.
    reading: Reading,
    /// The time of the last request of the replication id, and the number of its pending answers.
    proof_asked: Moment,
    proofs_due: u32,
    /// The sending of the last command whose answer proves that the node has the same data.
    proven: Moment,
    /// Grants that count once the node is proven again.
    unproven: Vec<Unproven>,
    /// The end of the time without a vote after the clock was set forward: locks that the node
    /// granted may live until then.
    doubted_until: Timestamp,
}

/// A grant that counts if the node was not a replica since it was last proven.
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

    /// Creates the grant of a permit that was requested in one slot.
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

/// A moment on both of our clocks. If the whole machine stops, one of them may stop with it.
#[derive(Clone, Copy, Debug, Default)]
struct Moment {
    at: Timestamp,
    /// The time of day less the boot clock, in ns, modulo 2^64.
    wall_ahead: u64,
}

impl Moment {
    #[inline]
    fn of(now: ClockReading) -> Self {
        Self { at: now.boot, wall_ahead: now.wall.0.wrapping_sub(now.boot.0) }
    }

    /// Returns the ns that have passed, at least by either of the two clocks.
    #[inline]
    fn passed(self, now: ClockReading) -> u64 {
        // A clock that stood still or was set makes the span longer, never shorter: a doubt costs
        // one read.
        let now = Self::of(now);
        let stood_still = now.wall_ahead.wrapping_sub(self.wall_ahead).cast_signed();
        now.at.0.saturating_sub(self.at.0).saturating_add(stood_still.unsigned_abs())
    }
}

/// The earliest end of a restart guard on our clock, and when its TTL was requested. Long ago if
/// unknown.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    asked_at: Timestamp,
    ends: Timestamp,
}

impl Watch {
    /// Forgets the connection that has ended. The last value found still explains why the node does
    /// not vote.
    pub(crate) fn forget_connection(&mut self) {
        // Another connection may lead to another process, without the old one's memory.
        self.is_ours = false;
        self.seen = None;
        self.is_settling = false;
        self.is_enrolled = false;
        self.proofs_due = 0;
    }

    /// Starts a read of value and TTL. Its result decides, and not what was read before.
    pub(crate) fn start_read(&mut self, now: ClockReading) {
        self.guard_read = Moment::of(now);
        self.seen = None;
    }

    pub(super) fn asked_at(&self) -> Timestamp {
        self.guard_read.at
    }

    /// Records the value that was read. Returns whether ours was written just before.
    pub(super) fn record_value(&mut self, found: Found) -> bool {
        self.is_ours = found == Found::Ours;
        // The data may have changed between request and answer, so the proof dates from the
        // request.
        if self.is_ours {
            self.proven = self.guard_read;
        }
        self.seen = None;
        self.is_settling = false;
        // The value before enrolment explains more.
        if !self.is_ours || self.found.is_none() {
            self.found = Some(found);
        }
        // A foreign value was written by a client that is connected, so this client is not alone.
        self.is_alone &= self.is_ours;
        if !self.is_ours {
            self.reading = Reading::default();
        }
        std::mem::take(&mut self.is_enrolled)
    }

    #[inline]
    pub(crate) fn is_ours(&self) -> bool {
        self.is_ours
    }

    /// Requires a new read of the value before the node votes.
    pub(super) fn question(&mut self) {
        self.is_ours = false;
    }

    pub(super) fn found(&self) -> Option<Found> {
        self.found
    }

    /// Records that the TTL read behind a request does not let the node vote until `free_at`.
    pub(super) fn forbid_vote(&mut self, found: Option<Found>, free_at: Timestamp) {
        self.is_ours = false;
        self.found = found;
        self.free_at = free_at;
    }

    pub(super) fn free_at(&self) -> Timestamp {
        self.free_at
    }

    pub(super) fn set_free_at(&mut self, at: Timestamp) {
        self.free_at = at;
    }

    pub(crate) fn is_settling(&self) -> bool {
        self.is_settling
    }

    /// Keeps the value to be replaced once all nodes have been read.
    pub(super) fn hold_for_set_up(&mut self, seen: Vec<u8>, is_settling: bool) {
        self.seen = Some(seen);
        self.is_settling = is_settling;
    }

    pub(super) fn is_awaiting_set_up(&self) -> bool {
        self.seen.is_some()
    }

    pub(super) fn take_seen(&mut self) -> Option<Vec<u8>> {
        self.seen.take()
    }

    /// Records that our value is being written. The node votes from `free_at` on.
    pub(super) fn start_enrolment(&mut self, free_at: Timestamp, at_once: bool) {
        // Answers before the next read do not show the new value.
        self.is_ours = false;
        self.is_settling = at_once;
        self.free_at = free_at;
    }

    pub(super) fn mark_enrolled(&mut self) {
        self.is_enrolled = true;
    }

    /// Records that no other connection has read the old value.
    pub(super) fn mark_alone(&mut self) {
        self.is_alone = true;
    }

    pub(super) fn is_alone(&self) -> bool {
        self.is_alone
    }
}

/// The observation of the node's clock.
impl Watch {
    /// Records the TTL in ms of our restart guard, requested at `asked_at`. Returns whether it fell
    /// by more than the time that has passed here.
    #[inline]
    pub(crate) fn record_ttl(
        &mut self,
        asked_at: Timestamp,
        pttl: i64,
        drift: Drift,
        now: Timestamp,
    ) -> bool {
        // An operator may end a quarantine, which sets the TTL to `BIG_MS`. A longer TTL counts as
        // that. Without a TTL there is nothing to compare.
        let Ok(pttl) = u64::try_from(pttl) else { return false };
        let span = pttl.min(BIG_MS) * MS;
        let ends = |at: Timestamp| Timestamp(at.0.wrapping_add(span));
        let last = std::mem::replace(&mut self.reading, Reading { asked_at, ends: ends(asked_at) });
        // A difference within the rounding to whole ms needs no exact calculation.
        ends(now).0.wrapping_add(2 * MS) < last.ends.0
            && ends(now) + drift.of(now.since(last.asked_at)) < last.ends
    }

    /// Records that the clock was set forward, so that locks granted by the node may live until
    /// `until`.
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

    /// Withdraws the doubt because our clock stood still. The next reading is not compared.
    pub(super) fn believe_clock(&mut self) {
        (self.reading, self.doubted_until) = (Reading::default(), Timestamp::default());
    }
}

/// The proof that the node has the same data as before.
impl Watch {
    /// Returns whether the node was proven within `span_ns`, or will be by a command sent within
    /// it.
    #[inline]
    pub(super) fn is_proven_within(&self, span_ns: u64, now: ClockReading) -> bool {
        let is_young = |moment: Moment| moment.passed(now) <= span_ns;
        is_young(self.proven) || is_young(self.proof_asked) || is_young(self.guard_read)
    }

    /// Records an answer to a command sent at `since`. Returns whether it was so fast that the node
    /// cannot have been a replica meanwhile.
    #[inline]
    pub(super) fn record_answer(
        &mut self,
        since: Timestamp,
        resync_ns: u64,
        now: ClockReading,
    ) -> bool {
        // To become a replica, load the master's data and be promoted takes at least `resync_ns`.
        // Both clocks count, because a machine that slept has let that time pass unseen.
        let is_fast = self.proven.passed(now) <= resync_ns;
        if is_fast {
            self.proven.at = self.proven.at.max(since);
        }
        is_fast
    }

    pub(super) fn start_proof(&mut self, now: ClockReading) {
        self.proof_asked = Moment::of(now);
        self.proofs_due += 1;
    }

    /// Reserves memory for the grants of `requests`, so that a grant that waits for a proof rarely
    /// allocates.
    #[inline]
    pub(super) fn reserve(&mut self, requests: usize) {
        let wanted = requests.min(MANY);
        if self.unproven.capacity() < wanted {
            self.unproven.reserve(wanted);
        }
    }

    /// Records that a read of the replication id was not sent after all.
    pub(super) fn cancel_proof(&mut self) {
        self.proofs_due -= 1;
    }

    pub(super) fn has_proofs_due(&self) -> bool {
        self.proofs_due > 0
    }

    /// Records an answer with the replication id, and returns the grants that waited for it.
    pub(super) fn finish_proof(&mut self, is_same: bool) -> Vec<Unproven> {
        self.proofs_due = self.proofs_due.saturating_sub(1);
        // An earlier answer proves less than the last request asks for. Answers are counted,
        // because two requests have the same time if our clock stood still between them.
        if is_same && self.proofs_due == 0 {
            self.proven = self.proof_asked;
        }
        self.take_unproven()
    }

    pub(super) fn hold_for_proof(&mut self, grant: Unproven) {
        self.unproven.push(grant);
    }

    pub(crate) fn unproven(&self) -> &[Unproven] {
        &self.unproven
    }

    pub(crate) fn take_unproven(&mut self) -> Vec<Unproven> {
        std::mem::take(&mut self.unproven)
    }

    /// Takes back the memory of the grants that were taken.
    pub(crate) fn give_back(&mut self, mut taken: Vec<Unproven>) {
        if self.unproven.is_empty() {
            taken.clear();
            self.unproven = taken;
        }
    }
}

impl Watch {
    /// Returns whether a vote counts, given the TTL that was read behind its request.
    #[inline]
    pub(super) fn lets_vote(&self, standing: Standing, now: Timestamp) -> bool {
        self.is_ours && standing == Standing::Votes && !self.is_doubted(now)
    }

    /// Describes the limits that a node was set up for, as opposed to ours.
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

    /// Describes why the node does not vote.
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
        // A read-only client starts no quarantine. It sees one that is in progress.
        if setup == Setup::ReadOnly && left <= 0.0 {
            return reason.to_owned();
        }
        if self.is_awaiting_set_up() {
            return format!("{reason}; another node is not new, or not reached");
        }
        format!("{left} s, {reason}")
    }
}

/// The number of grants that rarely wait for one proof.
const MANY: usize = 128;

const MS: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp(ms * MS)
    }

    #[test]
    fn the_value_before_enrolment_is_remembered() {
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
    fn a_ttl_that_falls_faster_than_time_shows_a_clock_that_was_set() {
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
    fn after_a_question_only_a_new_read_counts() {
        let mut watch = Watch::default();
        watch.record_value(Found::Ours);
        watch.mark_alone();
        watch.question();
        assert!(!watch.is_ours() && watch.is_alone());
        watch.record_value(Found::Missing);
        assert!(!watch.is_alone(), "others may have read it since");
    }

    #[test]
    fn the_last_value_is_reported_until_the_guard_is_first_ours() {
        let mut watch = Watch::default();
        watch.record_value(Found::Ours);
        assert_eq!(watch.found(), Some(Found::Ours));
        watch.record_value(Found::OtherRun);
        assert_eq!(watch.found(), Some(Found::OtherRun));
    }

    /// The machine was stopped together with its boot clock, which the time of day shows.
    #[test]
    fn an_answer_from_before_a_stop_proves_nothing_after_it() {
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
    fn a_doubt_ends_at_its_time() {
        let mut watch = Watch::default();
        watch.doubt_until(at(10));
        assert!(watch.is_doubted(at(9)) && !watch.is_doubted(at(10)));
    }
}
