//! One node's conversation: its link, what is under way on it, and what is known of the server.
//!
//! Not here: what the answers do to locks, see `answer` and the subjects.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use super::capability::Capabilities;
use super::command_link::{CommandLink, Link};
use super::handshake::{Handshake, Step};
use super::held_back::HeldBack;
use super::inbox::{Inbox, reply_limits};
use super::pace::Pace;
use super::pipeline::Pipeline;
use super::server::{Connection, Server};
use crate::proto::config::{Config, NodeSettings};
use crate::proto::core::{
    claims::Debt, inspecting::Question, observing::Read, push::Push, restart_guard::Watch,
    waiting::TicketRead,
};
use crate::proto::names::{ClaimId, LockId, NodeId, NodeSet, ObserverId, ViewId};
use crate::proto::script::definition::{Loaded, Script};
use crate::proto::time::{ClockReading, Timestamp};
use crate::proto::vote::{Cause, Vote};
use crate::proto::{event::NodeState, lock_kind::Command};
use crate::resp::{Decoder, Token, Violation, command};

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
    /// The node is to report the next change of what is read next.
    Caching,
    /// A server's own command is to delete the key of this claim. `followed`: the script is behind it already.
    Delete {
        claim: ClaimId,
        followed: bool,
    },
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
    /// Whether the node was a replica meanwhile.
    History,
    Kill,
    /// A lock with a ticket reads what it listens to.
    TicketRead {
        lock: LockId,
        round: u32,
        what: TicketRead,
    },
    /// One of the reads by which an observer sees who leads.
    Observe(ObserverId, Read),
    /// A permit is asked for in one slot, by an ask that may raise its counter.
    Move {
        claim: ClaimId,
        counter: u64,
        by_digest: bool,
    },
    /// The remaining TTL of the key that stood in the way of this attempt.
    Remaining {
        lock: LockId,
        round: u32,
    },
    /// Changes are to be reported on the connection with this client id, or no longer.
    Track {
        to: Option<u64>,
    },
    Undo {
        claim: ClaimId,
        by_digest: bool,
    },
    View(ViewId, Question),
    /// The fencing counters are to be raised, where the lock is still ours.
    WriteBack {
        claim: ClaimId,
        round: u32,
        by_digest: bool,
    },
}

/// One node, as a core knows it.
pub(crate) struct Node {
    id: NodeId,
    pub(crate) link: CommandLink,
    pub(crate) server: Server,
    pub(crate) restart_guard: Watch,
    pub(crate) push: Push,
    pub(crate) pipeline: Pipeline<Pending>,
    /// Elsewhere while it is read.
    inbox: Option<Box<Inbox>>,
    decoder: Decoder,
    handshake: Handshake,
    pub(crate) capabilities: Capabilities,
    /// The scripts that this connection has sent.
    loaded: Loaded,
    /// More about a cause, in words that are safe to show.
    detail: Option<(Cause, String)>,
    /// When bytes last came.
    received_at: Timestamp,
    /// How long it takes to answer.
    pub(crate) pace: Pace,
    /// Claims whose asks wait until it has answered, for it is suspected.
    held_back: HeldBack,
    /// What it owes the confirmation of.
    pub(crate) debt: Debt,
}

impl Node {
    pub(crate) fn new(id: NodeId, settings: &NodeSettings) -> Self {
        Self {
            id,
            link: CommandLink::new(),
            server: Server::new(!settings.must_be_proven()),
            restart_guard: Watch::default(),
            push: Push::new(),
            pipeline: Pipeline::new(),
            inbox: None,
            decoder: Decoder::new(reply_limits()),
            handshake: Handshake::default(),
            capabilities: Capabilities::of_user(settings.credentials.is_some()),
            loaded: Loaded::default(),
            detail: None,
            received_at: Timestamp::default(),
            pace: Pace::default(),
            held_back: HeldBack::new(),
            debt: Debt::new(),
        }
    }

    /// The node's place in the configuration.
    #[inline]
    pub(crate) fn id(&self) -> NodeId {
        self.id
    }

    /// Whether the node can vote now.
    pub(crate) fn state(&self, is_suspected: bool) -> NodeState {
        let link = &self.link;
        match link.state() {
            // A node that hangs has an open connection, so its link alone would say that it is
            // ready.
            _ if is_suspected && (link.takes_asks() || link.opens()) => NodeState::Suspected,
            Link::Ready => NodeState::Ready,
            Link::Down { .. } | Link::Leaving { .. } if link.was_tried() => {
                NodeState::Down(link.cause())
            }
            Link::Quarantined { .. } if !self.restart_guard.is_settling() => {
                NodeState::Down(link.cause())
            }
            _ => NodeState::Connecting,
        }
    }

    /// The node is to report the next change of what is read next, as it does without a word unless it is told by choice.
    pub(crate) fn track_next(&mut self, now: Timestamp) {
        if self.push.tracks_by_choice() {
            self.pipeline.push(Pending::Caching, now, |out| {
                let _ = command(out, 3).arg(b"CLIENT").arg(b"CACHING").arg(b"YES");
            });
        }
    }

    /// Forgets everything that belonged to the last connection, and returns that, if its client id was known.
    pub(super) fn reset_connection(&mut self) -> Option<Connection> {
        if let Some(inbox) = &mut self.inbox {
            inbox.clear();
        }
        self.decoder = Decoder::new(reply_limits());
        self.handshake = Handshake::default();
        // Another process may answer next: with other rights, another memory and no scripts.
        self.capabilities.reset();
        self.restart_guard.forget_connection();
        self.loaded = Loaded::default();
        self.debt.end_pause();
        self.push.command_link_lost();
        self.server.forget_connection()
    }

    /// Starts the handshake, or a part of it again.
    pub(crate) fn start_handshake(&mut self, now: ClockReading) {
        self.handshake = Handshake::default();
        self.restart_guard.start_read(now);
    }

    /// What the handshake has found out so far.
    pub(super) fn handshake(&mut self) -> &mut Handshake {
        &mut self.handshake
    }

    /// Keeps words about a cause, which are safe to show.
    pub(crate) fn explain(&mut self, cause: Cause, words: String) {
        self.detail = Some((cause, words));
    }

    /// More about this cause, if it is known.
    pub(crate) fn words(&self, cause: Cause) -> Option<&str> {
        let (of, words) = self.detail.as_ref()?;
        (*of == cause).then_some(words)
    }

    /// Records that bytes have come, or are to come from now on.
    pub(crate) fn record_bytes(&mut self, now: Timestamp) {
        self.received_at = now;
    }

    /// When bytes last came.
    pub(super) fn received_at(&self) -> Timestamp {
        self.received_at
    }

    /// Where the next bytes are to be read to.
    #[inline]
    pub(crate) fn space(&mut self) -> &mut [u8] {
        self.inbox.get_or_insert_default().space()
    }

    /// The inbox, so that tokens can borrow it while answers change everything else. It has to be given back.
    #[inline]
    pub(crate) fn take_inbox(&mut self) -> Box<Inbox> {
        self.inbox.take().unwrap_or_default()
    }

    #[inline]
    pub(crate) fn give_back(&mut self, inbox: Box<Inbox>) {
        self.inbox = Some(inbox);
    }

    /// The next token of these bytes, and how many of them it takes.
    #[inline]
    pub(crate) fn decode<'b>(
        &mut self,
        bytes: &'b [u8],
    ) -> Result<Option<(Token<'b>, usize)>, Violation> {
        self.decoder.next(bytes)
    }

    /// Whether these bytes are an alert of TLS, as the first that a server sends.
    pub(crate) fn is_tls_alert(&self, unread: &[u8]) -> bool {
        matches!(self.link.state(), Link::Handshake { .. }) && unread.first() == Some(&TLS_ALERT)
    }

    /// Whether the command goes by its digest, or else by its text, which the node knows from then on.
    #[inline]
    pub(crate) fn goes_by_digest(&mut self, command: Command) -> bool {
        // Known means sent on this connection: commands run in order, so the text is loaded before
        // the digest runs.
        let is_known = command.goes_by_digest(&mut self.loaded);
        is_known && self.capabilities.go_by_digest()
    }

    /// The text of this script was not sent after all.
    pub(crate) fn forget_script(&mut self, script: &Script) {
        self.loaded.forget(script);
    }

    /// The node knows no script by its digest any more.
    pub(crate) fn forget_scripts(&mut self) {
        self.loaded.forget_all();
    }

    /// The claims whose asks wait until the node has answered.
    pub(crate) fn held_back(&mut self) -> &mut HeldBack {
        &mut self.held_back
    }

    /// Whether it is on its way to take asks.
    pub(super) fn will_take_asks(&self) -> bool {
        let settles = self.link.is_quarantined() && self.restart_guard.is_settling();
        settles || self.link.opens()
    }

    /// Records that the server has answered the handshake as it should.
    pub(crate) fn finish_handshake(&mut self) {
        self.server.set_proven(true);
        self.detail = None;
    }

    /// When the silence of a node that owes an answer has lasted for too long.
    pub(super) fn dead_at(&self, dead_peer_timeout: Duration) -> Option<Timestamp> {
        let oldest = self.pipeline.oldest()?;
        // A node that sends bytes is alive, however long its answer to a large pipeline takes.
        Some(oldest.since.max(self.received_at) + dead_peer_timeout)
    }
}

/// The type of an alert's record. No reply begins with it.
const TLS_ALERT: u8 = 0x15;

/// The nodes of a core. A [`NodeId`] is a place among them.
pub(crate) struct Nodes(Vec<Node>);

impl Nodes {
    pub(crate) fn new(config: &Config) -> Self {
        Self(config.node_ids().map(|node| Node::new(node, config.node(node))).collect())
    }

    /// Returns the set of all nodes.
    pub(crate) fn all(&self) -> NodeSet {
        NodeSet::first(self.len())
    }
}

impl Deref for Nodes {
    type Target = [Node];

    #[inline]
    fn deref(&self) -> &[Node] {
        &self.0
    }
}

impl DerefMut for Nodes {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Node] {
        &mut self.0
    }
}
