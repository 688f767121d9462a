//! One lock as the caller sees it. ARCHITECTURE.md has a drawing of its phases.
//!
//! The keys that nodes may hold for a lock are a claim, one for each attempt. The transitions are
//! with their subjects.

use std::time::Duration;

use super::round::Round;
use crate::proto::core::acquiring::Attempt;
use crate::proto::core::fencing::Fencing;
use crate::proto::core::holding::Hold;
use crate::proto::core::mode_change::ModeChange;
use crate::proto::core::permits::Permit;
use crate::proto::core::waiting::{Ticket, Waiting};
use crate::proto::event::LossCause;
use crate::proto::keys::Keys;
use crate::proto::lease::Lease;
use crate::proto::lock_kind::LockKind;
use crate::proto::lock_mode::{LockMode, PackedMode};
use crate::proto::names::ClaimId;
use crate::proto::request::LockRequest;
use crate::proto::slab::Key;
use crate::proto::time::{ClockReading, Timestamp};
use crate::proto::vote::Votes;

/// The part of a lock that exists for as long as it is held. Its current work is [`Active`].
#[derive(Debug)]
pub(crate) struct Lock {
    pub(crate) phase: Phase,
    /// The mode in two bytes, because a program may hold very many locks.
    mode: PackedMode,
    /// The claim of the current attempt, or of the one that was granted.
    claim: ClaimId,
    /// The number of attempts, extensions and releases so far, so that an answer is never credited
    /// to a later one.
    round: u32,
    ttl_ms: u64,
    pub(crate) lease: Lease,
    held_since: Timestamp,
    /// The time at which it was granted or attached, for the metrics.
    granted_at: Timestamp,
}

/// The current work of a lock.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) round: Round,
    pub(crate) votes: Votes,
    pub(crate) keys: Keys,
    pub(crate) attempt: Attempt,
    pub(crate) waiting: Waiting,
    pub(crate) fencing: Fencing,
    pub(crate) permit: Permit,
    pub(crate) hold: Hold,
    pub(crate) mode_change: ModeChange,
    pub(crate) ticket: Option<Box<Ticket>>,
    /// The kind of another library's lock that was requested.
    foreign: Option<&'static LockKind>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Asking,
    Extending,
    Fencing,
    Held,
    Lost(LossCause),
    Pausing,
    Queued,
    Releasing,
}

impl Phase {
    pub(crate) fn is_held(self) -> bool {
        matches!(self, Self::Extending | Self::Held)
    }
}

impl Lock {
    pub(super) fn new() -> Self {
        Self {
            phase: Phase::Queued,
            mode: LockMode::Exclusive.packed(),
            claim: ClaimId(Key::NONE),
            round: 0,
            ttl_ms: 0,
            lease: Lease::default(),
            held_since: Timestamp::default(),
            granted_at: Timestamp::default(),
        }
    }

    pub(super) fn begin(&mut self, mode: LockMode, ttl_ms: u64) {
        (self.mode, self.ttl_ms) = (mode.packed(), ttl_ms);
    }

    /// Returns the sharing mode.
    #[inline]
    pub(crate) fn mode(&self) -> LockMode {
        self.mode.into()
    }

    /// Changes the mode of its holder from now on, no matter which mode nodes have.
    pub(crate) fn becomes(&mut self, mode: LockMode) {
        self.mode = mode.packed();
    }

    #[inline]
    pub(crate) fn claim(&self) -> ClaimId {
        self.claim
    }

    pub(crate) fn asks_for(&mut self, claim: ClaimId) {
        self.claim = claim;
    }

    /// Returns the number of the current attempt, extension or release, to recognise answers to
    /// earlier ones.
    #[inline]
    pub(crate) fn round(&self) -> u32 {
        self.round
    }

    /// Returns whether its token is being written back in this round.
    pub(crate) fn is_fencing(&self, round: u32) -> bool {
        self.phase == Phase::Fencing && self.round == round
    }

    /// Marks the lock as held since the round in which it was granted began.
    pub(crate) fn granted(&mut self, held_since: Timestamp, now: Timestamp) {
        self.phase = Phase::Held;
        self.held_since = held_since;
        self.granted_at = now;
    }

    /// Exchanges the TTLs and the times of holding.
    pub(super) fn swap_times(&mut self, other: &mut Self) {
        std::mem::swap(&mut self.ttl_ms, &mut other.ttl_ms);
        std::mem::swap(&mut self.held_since, &mut other.held_since);
        std::mem::swap(&mut self.granted_at, &mut other.granted_at);
    }

    pub(crate) fn held_since(&self) -> Timestamp {
        self.held_since
    }

    pub(crate) fn granted_at(&self) -> Timestamp {
        self.granted_at
    }

    pub(crate) fn ttl_ms(&self) -> u64 {
        self.ttl_ms
    }

    pub(crate) fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms)
    }

    /// Starts an attempt, extension or release.
    pub(crate) fn begin_round(
        &mut self,
        active: &mut Active,
        phase: Phase,
        now: ClockReading,
        votes: Votes,
    ) {
        self.phase = phase;
        // A late answer to an earlier round must not count in this one.
        self.round = self.round.wrapping_add(1);
        active.round.begins(now);
        active.votes = votes;
        active.hold.round_begins();
    }
}

impl Active {
    fn new() -> Self {
        Self {
            round: Round::new(),
            votes: Votes::new(1, 1),
            keys: Keys::new(),
            attempt: Attempt::new(),
            waiting: Waiting::new(),
            fencing: Fencing::new(),
            permit: Permit::new(),
            hold: Hold::new(),
            mode_change: ModeChange::None,
            ticket: None,
            foreign: None,
        }
    }

    /// Makes a used state that of a new lock. The parts that belong to a round are set when one
    /// begins.
    pub(super) fn begin(&mut self, request: &LockRequest<'_>, now: ClockReading, votes: Votes) {
        self.keys.set(request.resources());
        self.attempt = Attempt::new();
        self.waiting.begin(request.wait, now.boot);
        self.fencing.begin(request.fenced);
        self.permit.begin(request.mode);
        self.hold.begin(request.auto_extend);
        self.mode_change = ModeChange::None;
        self.ticket = None;
        self.foreign = request.wanted_profile().kind(request.mode, request.fenced);
        self.votes = votes;
    }

    /// Makes a used state that of an idle lock: no work, and granted by all nodes.
    pub(super) fn rest_granted(&mut self, granted: Votes) {
        self.begin(&LockRequest::new(b""), ClockReading::default(), granted);
        self.keys.set([].into_iter());
        self.round = Round::new();
        self.hold.round_begins();
    }

    pub(crate) fn foreign(&self) -> Option<&'static LockKind> {
        self.foreign
    }

    pub(crate) fn waits(&self) -> bool {
        self.waiting.is_wanted()
    }

    /// Returns whether a held lock has no work and nothing that its active state must remember.
    pub(crate) fn is_done(&self) -> bool {
        // Only then do idle locks need no votes: `activate` assumes that all nodes have granted.
        self.votes.grants().len() == self.votes.node_count()
            && !self.waiting.is_queued()
            && !self.hold.is_auto_extended()
            && !self.fencing.is_wanted()
            && self.fencing.token().is_none()
            && self.mode_change == ModeChange::None
    }
}

impl Default for Active {
    fn default() -> Self {
        Self::new()
    }
}
