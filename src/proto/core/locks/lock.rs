//! One lock's life, as the caller sees it. ARCHITECTURE.md has a drawing of it.
//!
//! Not here: what a node may hold for it, which is a claim, one for each attempt; and the transitions, which are with the
//! subjects.

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

/// What is known of a lock for as long as it is held. What is done about it now is its [`Active`].
#[derive(Debug)]
pub(crate) struct Lock {
    pub(crate) phase: Phase,
    /// In two bytes, for a program may hold very many locks.
    mode: PackedMode,
    /// The claim of the present attempt, or of the one that was granted.
    claim: ClaimId,
    /// Counts attempts and extensions, so that an answer is never credited to a later one.
    round: u32,
    ttl_ms: u64,
    pub(crate) lease: Lease,
    held_since: Timestamp,
    /// When it was granted or attached: for the metrics.
    granted_at: Timestamp,
}

/// What is under way for a lock.
#[derive(Debug)]
pub(crate) struct Active {
    /// When the present attempt, extension or release began, and how long it is waited for.
    pub(crate) round: Round,
    /// The votes of the present attempt, extension or release.
    pub(crate) votes: Votes,
    pub(crate) keys: Keys,
    pub(crate) attempt: Attempt,
    pub(crate) waiting: Waiting,
    pub(crate) fencing: Fencing,
    pub(crate) permit: Permit,
    pub(crate) hold: Hold,
    pub(crate) mode_change: ModeChange,
    /// Its ticket in the queue on the nodes, if it has one.
    pub(crate) ticket: Option<Box<Ticket>>,
    /// The kind of another library's lock that is asked for.
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

    /// Of a request for this mode and TTL.
    pub(super) fn begin(&mut self, mode: LockMode, ttl_ms: u64) {
        (self.mode, self.ttl_ms) = (mode.packed(), ttl_ms);
    }

    /// Beside whom it is wanted or held.
    #[inline]
    pub(crate) fn mode(&self) -> LockMode {
        self.mode.into()
    }

    /// Its holder counts as one of this mode from now on, whatever the nodes say.
    pub(crate) fn becomes(&mut self, mode: LockMode) {
        self.mode = mode.packed();
    }

    /// The claim of the present attempt, or of the one that was granted.
    #[inline]
    pub(crate) fn claim(&self) -> ClaimId {
        self.claim
    }

    /// Its present attempt is made for this claim.
    pub(crate) fn asks_for(&mut self, claim: ClaimId) {
        self.claim = claim;
    }

    /// The number of the present attempt, extension or release: an answer to an earlier one is never credited to it.
    #[inline]
    pub(crate) fn round(&self) -> u32 {
        self.round
    }

    /// Whether it is in this round, and its token is being written back.
    pub(crate) fn is_fencing(&self, round: u32) -> bool {
        self.phase == Phase::Fencing && self.round == round
    }

    /// It is held from now on, and counts as held since the round began that it was granted in.
    pub(crate) fn granted(&mut self, held_since: Timestamp, now: Timestamp) {
        self.phase = Phase::Held;
        self.held_since = held_since;
        self.granted_at = now;
    }

    /// Each has been held for as long as the other one was, and is extended by as much.
    pub(super) fn swap_times(&mut self, other: &mut Self) {
        std::mem::swap(&mut self.ttl_ms, &mut other.ttl_ms);
        std::mem::swap(&mut self.held_since, &mut other.held_since);
        std::mem::swap(&mut self.granted_at, &mut other.granted_at);
    }

    pub(crate) fn held_since(&self) -> Timestamp {
        self.held_since
    }

    /// When it was granted or attached: for the metrics.
    pub(crate) fn granted_at(&self) -> Timestamp {
        self.granted_at
    }

    pub(crate) fn ttl_ms(&self) -> u64 {
        self.ttl_ms
    }

    pub(crate) fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms)
    }

    /// An attempt, extension or release begins.
    pub(crate) fn begin_round(
        &mut self,
        active: &mut Active,
        phase: Phase,
        now: ClockReading,
        votes: Votes,
    ) {
        self.phase = phase;
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

    /// Makes used work that of a new lock. What belongs to a round is set when one begins.
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

    /// Makes used work that of a lock that was idle: nothing is under way, and all nodes have granted it.
    pub(super) fn rest_granted(&mut self, granted: Votes) {
        self.begin(&LockRequest::new(b""), ClockReading::default(), granted);
        self.keys.set([].into_iter());
        self.round = Round::new();
        self.hold.round_begins();
    }

    /// The kind of another library's lock that is asked for.
    pub(crate) fn foreign(&self) -> Option<&'static LockKind> {
        self.foreign
    }

    pub(crate) fn waits(&self) -> bool {
        self.waiting.is_wanted()
    }

    /// Whether nothing is left to be known about a lock that is held, or to be done for it.
    pub(crate) fn is_done(&self) -> bool {
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
