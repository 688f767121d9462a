//! One node's conversation: its link, what is under way on it, and what is known of the server.
//!
//! Not here: what the answers do to locks. That is in `core`, which owns both.

use std::time::Duration;

use crate::resp::Decoder;

use super::capability::Capabilities;
use super::config::NodeSettings;
use super::debt::Debt;
use super::handshake::{Handshake, Step};
use super::inbox::{Inbox, reply_limits};
use super::link::CommandLink;
use super::lock_kind::Command;
use super::names::{ClaimId, LockId, ViewId};
use super::pace::Pace;
use super::pipeline::Pipeline;
use super::push::{Push, Tracking};
use super::restart_guard::RunId;
use super::script::Loaded;
use super::time::Timestamp;
use super::vote::{Cause, Vote};
use super::watch::Watch;

/// A request, as far as its answer has to be understood. `by_digest`: it went as a script's
/// digest, so that the text can follow if the node says `NOSCRIPT`; to anything else that is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pending {
    /// `ask`: what was sent. `checked`: the restart guard is read by a command of its own, whose answer
    /// follows.
    Ask {
        claim: ClaimId,
        ask: Command,
        by_digest: bool,
        checked: bool,
    },
    /// The second half of an ask: the restart guard decides whether the vote counts.
    Check {
        claim: ClaimId,
        vote: Vote,
    },
    /// An operator's: what was seen under the key is to go.
    ForceUnlock(ViewId),
    /// All other connections of the node are to be dropped.
    DropOthers,
    /// The restart guard is to be given our value.
    Enrol,
    Extend {
        claim: ClaimId,
        round: u32,
        by_digest: bool,
    },
    Handshake(Step),
    Kill,
    /// The remaining TTL of the key that stood in the way of this attempt.
    Remaining {
        lock: LockId,
        round: u32,
    },
    /// Changes are to be told on the connection with this number, or no longer.
    Track {
        to: Option<u64>,
    },
    Undo {
        claim: ClaimId,
        by_digest: bool,
    },
    ViewTtl(ViewId),
    ViewType(ViewId),
    ViewValue(ViewId),
    /// The fencing counters are to be raised, where the lock is still ours.
    WriteBack {
        claim: ClaimId,
        round: u32,
        by_digest: bool,
    },
}

/// Which server process a connection led to, and the connection's name there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Identity {
    pub(super) run_id: RunId,
    pub(super) client_id: u64,
}

pub(super) struct Node {
    pub(super) link: CommandLink,
    pub(super) restart_guard: Watch,
    /// How far the server's clock was ahead of ours when it last refused a fencing token, in µs.
    pub(super) ahead_us: Option<i64>,
    pub(super) push: Push,
    pub(super) pipeline: Pipeline<Pending>,
    pub(super) inbox: Inbox,
    pub(super) decoder: Decoder,
    pub(super) handshake: Handshake,
    pub(super) capabilities: Capabilities,
    /// The scripts that this connection has sent.
    pub(super) loaded: Loaded,
    /// This connection is in the wrong database, leads to another node's server, or did not say in time where
    /// it leads: an undo of anything that was not asked for on it would find nothing, and be taken for a
    /// confirmation.
    pub(super) wrong_server: bool,
    /// AUTH and SELECT have succeeded here with these settings, or are not needed.
    pub(super) proven: bool,
    /// Of the last connection that was handshake_done.
    pub(super) run_id: Option<RunId>,
    /// Of the present connection, once it was handshake_done.
    pub(super) identity: Option<Identity>,
    /// Of the dead connection that all asks are in which may yet run here; `None` if there are
    /// several, or if it told no name.
    pub(super) ghost_connection: Option<Identity>,
    /// More about a cause, in words that are safe to show.
    pub(super) detail: Option<(Cause, String)>,
    /// When bytes last came.
    pub(super) heard: Timestamp,
    /// How long it takes to answer.
    pub(super) pace: Pace,
    /// Asks wait here until it has answered, for it is suspected.
    pub(super) held_back: Vec<ClaimId>,
    /// What it owes the confirmation of.
    pub(super) debt: Debt,
}

impl Node {
    pub(super) fn new(settings: &NodeSettings) -> Self {
        Self {
            link: CommandLink::new(),
            restart_guard: Watch::default(),
            ahead_us: None,
            push: Push::new(),
            pipeline: Pipeline::new(),
            inbox: Inbox::default(),
            decoder: Decoder::new(reply_limits()),
            handshake: Handshake::default(),
            capabilities: Capabilities::of_user(settings.credentials.is_some()),
            loaded: Loaded::default(),
            wrong_server: false,
            proven: !settings.must_be_proven(),
            run_id: None,
            identity: None,
            ghost_connection: None,
            detail: None,
            heard: Timestamp::default(),
            pace: Pace::default(),
            held_back: Vec::with_capacity(2 * FEW + 1),
            debt: Debt::new(),
        }
    }

    /// Forgets everything that belonged to the last connection.
    pub(super) fn reset_connection(&mut self) {
        self.inbox.clear();
        self.decoder = Decoder::new(reply_limits());
        self.handshake = Handshake::default();
        self.capabilities.reset();
        self.restart_guard.connection_lost();
        self.wrong_server = false;
        // Or one server that stood in for two nodes would be a quorum of clocks.
        self.ahead_us = None;
        self.loaded = Loaded::default();
        self.identity = None;
        self.debt.connection_lost();
        self.push.tracking = Tracking::Off;
    }

    /// Whether it is on its way to take asks.
    pub(super) fn will_take_asks(&self) -> bool {
        let settles = self.link.is_quarantined() && self.restart_guard.is_settling();
        settles || self.link.opens()
    }

    /// The server has answered the handshake as it should.
    pub(super) fn handshake_done(&mut self) {
        self.proven = true;
        self.detail = None;
    }

    /// When the silence of a node that owes an answer has lasted for too long.
    pub(super) fn dead_at(&self, dead_peer_timeout: Duration) -> Option<Timestamp> {
        let oldest = self.pipeline.oldest()?;
        Some(oldest.since.max(self.heard) + dead_peer_timeout)
    }
}

/// There is room for the asks that so many locks hold back at a node; a program with few allocates nothing when
/// one hangs.
pub(super) const FEW: usize = 8;
