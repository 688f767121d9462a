//! One lock's life, as the caller sees it.
//!
//! ```text
//!          acquire                    quorum, validity left
//!   ──────▶ Asking ───────────────────────────────────────▶ Held ◀──── extended ───┐
//!             │  ▲                                           │ │                   │
//!     refused │  │ pause over                       release  │ └──── extend ─▶ Extending
//!             ▼  │                                           ▼                     │
//!           Pausing                                      Releasing      validity over, or gone
//!             │ out of time, or cancelled                    │                     ▼
//!             └──────▶ refused                               └──▶ released       Lost
//! ```
//!
//! A fenced lock can pass through Fencing between Asking and Held, while its token is written back. One
//! that waits is Queued first, for as long as others of the same core wait before it.
//!
//! Not here: what a node may hold for it, which is a [`Claim`](super::claim::Claim), one for each
//! attempt; and the transitions, which are in `core`.

use std::time::Duration;

use super::ask::{Ask, Keep, Wait};
use super::event::LossCause;
use super::fence::FencingToken;
use super::keys::Keys;
use super::lease::Lease;
use super::lines::Place;
use super::names::{ClaimId, NodeId, NodeSet};
use super::slab::Key;
use super::time::{Nanos, Now, ttl_ms};
use super::vote::Votes;

#[derive(Debug)]
pub(super) struct Lock {
    pub(super) phase: Phase,
    /// The claim of the present attempt, or of the one that was granted.
    pub(super) claim: ClaimId,
    /// Counts attempts and extensions, so that an answer is never credited to a later one.
    pub(super) round: u32,
    pub(super) since: Now,
    pub(super) round_until: Nanos,
    /// The votes of the present attempt, extension or release.
    pub(super) votes: Votes,
    /// The votes of the last attempt that came to a verdict.
    pub(super) decided: Option<Votes>,
    pub(super) lease: Lease,
    pub(super) held_since: Nanos,
    /// When the caller asked for it, and when it was granted or taken in: for the metrics.
    pub(super) asked_at: Nanos,
    pub(super) granted_at: Nanos,
    pub(super) extend_ttl: Duration,
    /// Nodes whose extension waits for their link.
    pub(super) extend_queued: NodeSet,
    pub(super) fence: Fence,
    pub(super) keeper: Keeper,
    pub(super) keys: Keys,
    pub(super) ttl: Duration,
    pub(super) wait: Wait,
    pub(super) deadline: Nanos,
    pub(super) pause: Pause,
    /// The node that is asked before all others; once it has granted there is none.
    pub(super) lead: Option<NodeId>,
    /// The lines that it stands in.
    pub(super) lines: Vec<Place>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
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
    pub(super) fn is_held(self) -> bool {
        matches!(self, Self::Extending | Self::Held)
    }
}

/// The fencing token of a lock, and the way to it.
#[derive(Debug, Default)]
pub(super) struct Fence {
    pub(super) is_wanted: bool,
    pub(super) token: Option<FencingToken>,
    /// What the nodes that granted the present attempt have counted.
    pub(super) counters: Vec<(NodeId, u64)>,
    /// The value that is written back.
    pub(super) target: u64,
    /// Nodes that have it, while they keep the lock for us.
    pub(super) confirmed: NodeSet,
    /// An attempt that failed by our clock alone was repeated.
    pub(super) was_set_right: bool,
}

/// What keeps a lock alive.
#[derive(Debug, Default)]
pub(super) struct Keeper {
    pub(super) keep: Option<Keep>,
    /// When the next extension is due; never, if the lock has been held for long enough.
    pub(super) at: Nanos,
    /// The extension that is under way is the keeper's.
    pub(super) is_extending: bool,
    /// The last extension failed, which has been told.
    pub(super) has_failed: bool,
}

/// The time between two attempts.
#[derive(Debug, Default)]
pub(super) struct Pause {
    pub(super) until: Nanos,
    /// Refusals so far, which the cap grows with.
    pub(super) refusals: u32,
    /// Refusals in a row that won a grant.
    pub(super) splits: u32,
    pub(super) jitter: Duration,
    /// When the keys that stand in the way are over, as far as it is known.
    pub(super) expiries: Vec<(NodeId, Nanos)>,
    /// How many of these keys have to go before a quorum is possible.
    pub(super) needed: usize,
    /// The nodes whose word ends it.
    pub(super) leads: NodeSet,
    /// Those that have told of a change since the last attempt began.
    pub(super) told: NodeSet,
    /// It ends, or the attempt after it began, by what a node has told.
    pub(super) is_roused: bool,
    /// For how long at the most it does not listen once others have taken the turn that was left to them.
    pub(super) sit_out: Duration,
    /// It was told when the lock did not listen.
    pub(super) is_late: bool,
    /// How long what a node tells is not acted upon, after asks that came of it in vain.
    pub(super) damping: Duration,
    /// Until when.
    pub(super) deaf_until: Nanos,
}

impl Lock {
    pub(super) fn new(votes: Votes) -> Self {
        Self {
            phase: Phase::Queued,
            claim: ClaimId(Key::NONE),
            round: 0,
            since: Now::default(),
            round_until: Nanos::NEVER,
            votes,
            decided: None,
            lease: Lease::default(),
            held_since: Nanos::default(),
            asked_at: Nanos::default(),
            granted_at: Nanos::default(),
            extend_ttl: Duration::ZERO,
            extend_queued: NodeSet::default(),
            fence: Fence::default(),
            keeper: Keeper::default(),
            keys: Keys::default(),
            ttl: Duration::ZERO,
            wait: Wait::Try,
            deadline: Nanos::NEVER,
            pause: Pause::default(),
            lead: None,
            lines: Vec::new(),
        }
    }

    /// Makes a used slot a new lock.
    pub(super) fn begin(&mut self, ask: &Ask<'_>, now: Now) {
        self.keys.set(ask.keys());
        self.asked_at = now.boot;
        self.ttl = Duration::from_millis(ttl_ms(ask.ttl));
        (self.wait, self.deadline) = match ask.wait {
            Wait::For(Duration::ZERO) | Wait::Try => (Wait::Try, Nanos::NEVER),
            Wait::For(span) => (ask.wait, now.boot + span),
            Wait::Forever => (ask.wait, Nanos::NEVER),
        };
        self.decided = None;
        self.fence.is_wanted = ask.fenced;
        self.fence.was_set_right = false;
        self.fence.token = None;
        self.keeper = Keeper { keep: ask.keep, at: Nanos::NEVER, ..Keeper::default() };
        self.lead = None;
        self.pause.begin();
    }

    pub(super) fn begin_round(&mut self, phase: Phase, now: Now, votes: Votes) {
        self.phase = phase;
        self.round = self.round.wrapping_add(1);
        self.since = now;
        self.votes = votes;
        self.extend_queued = NodeSet::default();
    }

    pub(super) fn waits(&self) -> bool {
        self.wait != Wait::Try
    }
}

impl Pause {
    /// Of a new acquisition.
    fn begin(&mut self) {
        let mut expiries = std::mem::take(&mut self.expiries);
        expiries.clear();
        *self = Self { expiries, ..Self::default() };
    }

    /// A node has told for how long the key in the way will live.
    pub(super) fn expires(&mut self, node: NodeId, at: Nanos) {
        self.expiries.retain(|&(of, _)| of != node);
        self.expiries.push((node, at));
    }

    /// When the `needed`-th of the keys that stand in the way is over, if that is known.
    pub(super) fn way_free_at(&mut self, needed: usize) -> Option<Nanos> {
        self.expiries.sort_unstable_by_key(|&(_, at)| at);
        self.expiries.get(needed.checked_sub(1)?).map(|&(_, at)| at)
    }
}
