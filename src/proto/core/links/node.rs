//! One node: its link, the requests in flight on it, and what is known of the server.

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

/// A request, as far as its answer must be understood. `by_digest`: it was sent as a script's
/// digest, so the text can follow after `NOSCRIPT`; any other request that gets that answer has
/// failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pending {
    /// A request of a claim. `ask`: the command. `checked`: a read of the restart guard follows as
    /// another command.
    Ask {
        claim: ClaimId,
        ask: Command,
        by_digest: bool,
        checked: bool,
    },
    /// The read of the restart guard behind a request, which decides whether the vote counts.
    Check {
        claim: ClaimId,
        vote: Vote,
    },
    /// A command to report the next change of the key that is read next.
    Caching,
    /// The deletion of a claim's key by the server's own command. `followed`: the script is behind
    /// it already.
    Delete {
        claim: ClaimId,
        followed: bool,
    },
    /// A command to drop all other connections of the node.
    DropOthers,
    /// The write of our restart guard.
    Enrol,
    Extend {
        claim: ClaimId,
        round: u32,
        by_digest: bool,
    },
    Handshake(Step),
    /// A read of the replication id, which shows whether the node was a replica meanwhile.
    History,
    Kill,
    /// A read by a lock with a ticket.
    TicketRead {
        lock: LockId,
        round: u32,
        what: TicketRead,
    },
    /// A read by which an observer finds the leader.
    Observe(ObserverId, Read),
    /// A request for a permit in one slot, which may raise the permit's counter.
    Move {
        claim: ClaimId,
        counter: u64,
        by_digest: bool,
    },
    /// A read of the remaining TTL of the key in the way of this attempt.
    Remaining {
        lock: LockId,
        round: u32,
    },
    /// A command to report changes on the connection with this client id, or to stop.
    Track {
        to: Option<u64>,
    },
    Undo {
        claim: ClaimId,
        by_digest: bool,
    },
    View(ViewId, Question),
    /// A command to raise the fencing counters, if the lock is still ours.
    WriteBack {
        claim: ClaimId,
        round: u32,
        by_digest: bool,
    },
}

/// A node as seen by a core.
pub(crate) struct Node {
    id: NodeId,
    pub(crate) link: CommandLink,
    pub(crate) server: Server,
    pub(crate) restart_guard: Watch,
    pub(crate) push: Push,
    pub(crate) pipeline: Pipeline<Pending>,
    /// The receive buffer, which is taken out while it is read.
    inbox: Option<Box<Inbox>>,
    decoder: Decoder,
    handshake: Handshake,
    pub(crate) capabilities: Capabilities,
    /// The scripts that were sent on this connection.
    loaded: Loaded,
    /// A text that explains a cause and is safe to show.
    detail: Option<(Cause, String)>,
    /// The time at which bytes last arrived.
    received_at: Timestamp,
    /// The usual round trip.
    pub(crate) pace: Pace,
    /// The claims whose requests wait until this node, which is suspected, has answered.
    held_back: HeldBack,
    /// The undos that it has not confirmed.
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

    #[inline]
    pub(crate) fn id(&self) -> NodeId {
        self.id
    }

    /// Returns the state of the node for reports.
    pub(crate) fn state(&self, is_suspected: bool) -> NodeState {
        let link = &self.link;
        match link.state() {
            // A node that hangs has an open connection, so by its link alone it would be ready.
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

    /// Makes the node report the next change of the key that is read next. A node that does not
    /// track by choice reports it in any case.
    pub(crate) fn track_next(&mut self, now: Timestamp) {
        if self.push.tracks_by_choice() {
            self.pipeline.push(Pending::Caching, now, |out| {
                let _ = command(out, 3).arg(b"CLIENT").arg(b"CACHING").arg(b"YES");
            });
        }
    }

    /// Forgets everything about the last connection. Returns it if its client id was known.
    pub(super) fn reset_connection(&mut self) -> Option<Connection> {
        if let Some(inbox) = &mut self.inbox {
            inbox.clear();
        }
        self.decoder = Decoder::new(reply_limits());
        self.handshake = Handshake::default();
        // Another process may answer next, with other rights, another memory and no scripts.
        self.capabilities.reset();
        self.restart_guard.forget_connection();
        self.loaded = Loaded::default();
        self.debt.end_pause();
        self.push.command_link_lost();
        self.server.forget_connection()
    }

    /// Starts the handshake, or a later read.
    pub(crate) fn start_handshake(&mut self, now: ClockReading) {
        self.handshake = Handshake::default();
        self.restart_guard.start_read(now);
    }

    pub(super) fn handshake(&mut self) -> &mut Handshake {
        &mut self.handshake
    }

    pub(crate) fn explain(&mut self, cause: Cause, words: String) {
        self.detail = Some((cause, words));
    }

    /// Returns the text that explains this cause, if there is one.
    pub(crate) fn words(&self, cause: Cause) -> Option<&str> {
        let (of, words) = self.detail.as_ref()?;
        (*of == cause).then_some(words)
    }

    /// Records that bytes have arrived, or are expected from now on.
    pub(crate) fn record_bytes(&mut self, now: Timestamp) {
        self.received_at = now;
    }

    pub(super) fn received_at(&self) -> Timestamp {
        self.received_at
    }

    #[inline]
    pub(crate) fn space(&mut self) -> &mut [u8] {
        self.inbox.get_or_insert_default().space()
    }

    /// Takes the inbox, so that tokens can borrow it while answers change everything else. It must
    /// be given back.
    #[inline]
    pub(crate) fn take_inbox(&mut self) -> Box<Inbox> {
        self.inbox.take().unwrap_or_default()
    }

    #[inline]
    pub(crate) fn give_back(&mut self, inbox: Box<Inbox>) {
        self.inbox = Some(inbox);
    }

    /// Returns the next token of these bytes, and how many of them it takes.
    #[inline]
    pub(crate) fn decode<'b>(
        &mut self,
        bytes: &'b [u8],
    ) -> Result<Option<(Token<'b>, usize)>, Violation> {
        self.decoder.next(bytes)
    }

    /// Returns whether the first bytes of the server are a TLS alert.
    pub(crate) fn is_tls_alert(&self, unread: &[u8]) -> bool {
        matches!(self.link.state(), Link::Handshake { .. }) && unread.first() == Some(&TLS_ALERT)
    }

    /// Returns whether the command is sent by its digest. If not, its text counts as sent.
    #[inline]
    pub(crate) fn goes_by_digest(&mut self, command: Command) -> bool {
        // Commands run in order, so a text that was sent on this connection is loaded before the
        // digest runs.
        let is_known = command.goes_by_digest(&mut self.loaded);
        is_known && self.capabilities.go_by_digest()
    }

    /// Forgets a script whose text was not sent after all.
    pub(crate) fn forget_script(&mut self, script: &Script) {
        self.loaded.forget(script);
    }

    /// Forgets all scripts, because the node has lost them.
    pub(crate) fn forget_scripts(&mut self) {
        self.loaded.forget_all();
    }

    pub(crate) fn held_back(&mut self) -> &mut HeldBack {
        &mut self.held_back
    }

    /// Returns whether the node is likely to take requests soon.
    pub(super) fn will_take_asks(&self) -> bool {
        let settles = self.link.is_quarantined() && self.restart_guard.is_settling();
        settles || self.link.opens()
    }

    /// Records that the server has answered the handshake as it should.
    pub(crate) fn finish_handshake(&mut self) {
        self.server.set_proven(true);
        self.detail = None;
    }

    /// Returns when a silent node that owes an answer counts as dead.
    pub(super) fn dead_at(&self, dead_peer_timeout: Duration) -> Option<Timestamp> {
        let oldest = self.pipeline.oldest()?;
        // A node that sends bytes is alive, however long its answer to a large pipeline takes.
        Some(oldest.since.max(self.received_at) + dead_peer_timeout)
    }
}

/// The type of a TLS alert's record. No reply begins with it.
const TLS_ALERT: u8 = 0x15;

/// The nodes of a core. A [`NodeId`] is an index into them.
pub(crate) struct Nodes(Vec<Node>);

impl Nodes {
    pub(crate) fn new(config: &Config) -> Self {
        Self(config.node_ids().map(|node| Node::new(node, config.node(node))).collect())
    }

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
