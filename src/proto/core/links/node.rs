//! One node's conversation: its link, what is under way on it, and what is known of the server.
//!
//! Not here: what the answers do to locks. That is in `core`, which owns both.

use std::time::Duration;

use super::capability::Capabilities;
use super::command_link::CommandLink;
use super::handshake::{Handshake, Step};
use super::inbox::{Inbox, reply_limits};
use super::pace::Pace;
use super::pipeline::Pipeline;
use crate::proto::config::NodeSettings;
use crate::proto::core::claims::Debt;
use crate::proto::core::push::Push;
use crate::proto::core::restart_guard::Watch;
use crate::proto::lock_kind::Command;
use crate::proto::names::{ClaimId, LockId, ViewId};
use crate::proto::restart_guard::RunId;
use crate::proto::script::Loaded;
use crate::proto::time::Timestamp;
use crate::proto::vote::{Cause, Vote};
use crate::resp::Decoder;

/// A request, as far as its answer has to be understood. `by_digest`: it went as a script's
/// digest, so that the text can follow if the node says `NOSCRIPT`; to anything else that is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pending {
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
pub(crate) struct Identity {
    pub(crate) run_id: RunId,
    pub(crate) client_id: u64,
}

pub(crate) struct Node {
    pub(crate) link: CommandLink,
    pub(crate) restart_guard: Watch,
    /// How far the server's clock was ahead of ours when it last refused a fencing token, in µs.
    pub(crate) ahead_us: Option<i64>,
    pub(crate) push: Push,
    pub(crate) pipeline: Pipeline<Pending>,
    pub(crate) inbox: Inbox,
    pub(crate) decoder: Decoder,
    pub(crate) handshake: Handshake,
    pub(crate) capabilities: Capabilities,
    /// The scripts that this connection has sent.
    pub(crate) loaded: Loaded,
    /// This connection is in the wrong database, leads to another node's server, or did not say in time where
    /// it leads: an undo of anything that was not asked for on it would find nothing, and be taken for a
    /// confirmation.
    pub(crate) wrong_server: bool,
    /// AUTH and SELECT have succeeded here with these settings, or are not needed.
    pub(crate) proven: bool,
    /// Of the last connection that was handshake_done.
    pub(crate) run_id: Option<RunId>,
    /// Of the present connection, once it was handshake_done.
    pub(crate) identity: Option<Identity>,
    /// Of the dead connection that all asks are in which may yet run here; `None` if there are
    /// several, or if it told no name.
    pub(crate) ghost_connection: Option<Identity>,
    /// More about a cause, in words that are safe to show.
    pub(crate) detail: Option<(Cause, String)>,
    /// When bytes last came.
    pub(crate) heard: Timestamp,
    /// How long it takes to answer.
    pub(crate) pace: Pace,
    /// Asks wait here until it has answered, for it is suspected.
    pub(crate) held_back: Vec<ClaimId>,
    /// What it owes the confirmation of.
    pub(crate) debt: Debt,
}

impl Node {
    pub(crate) fn new(settings: &NodeSettings) -> Self {
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
        self.push.command_link_lost();
    }

    /// Whether it is on its way to take asks.
    pub(super) fn will_take_asks(&self) -> bool {
        let settles = self.link.is_quarantined() && self.restart_guard.is_settling();
        settles || self.link.opens()
    }

    /// The server has answered the handshake as it should.
    pub(crate) fn handshake_done(&mut self) {
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
pub(crate) const FEW: usize = 8;
