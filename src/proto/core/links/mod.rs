//! A node's command link: opening, the handshake, refusing the node as a voter, and losing the connection.
//!
//! Apart from whoever asks something of a node, so that they need not know how it is reached. What one node's
//! conversation consists of is in `node`, the steps of its link in `command_link`, and nodes that hang in `suspect`.
//! Not here: the restart guard, which lets a node vote, and push links, which have folders of their own.

mod capability;
mod command_link;
mod handshake;
mod inbox;
mod node;
mod pace;
mod pipeline;
mod server;
mod suspect;
mod words;

use super::Core;
use crate::proto::event::LinkOp;
use crate::proto::mutants::mutant;
use crate::proto::names::{LinkId, NodeId};
use crate::proto::printable::printable;
use crate::proto::restart_guard::RunId;
use crate::proto::time::{ClockReading, Timestamp, saturating_nanos};
use crate::proto::vote::Cause;
use crate::resp::Token;

pub(super) use self::capability::{Ability, Version};
pub(super) use self::command_link::Link;
pub(super) use self::handshake::{Handshake, Mistyped, Step, is_same_master};
pub(super) use self::inbox::Inbox;
pub(super) use self::node::{Node, Pending};
pub(super) use self::pipeline::{Due, Pipeline};
pub use self::server::Replicas;
pub(super) use self::suspect::FIRST_CONTACT;
pub(crate) use self::suspect::{HANGS, Silence};

impl Core {
    /// Opens the links of all nodes that are down, ahead of their backoff.
    pub fn open_all(&mut self, now: ClockReading) {
        let now = self.clamp(now);
        for node in self.config.node_ids() {
            if self.node(node).link.is_down() {
                self.open(node, now);
            }
        }
    }

    /// Opens a command link that is down ahead of its backoff: whoever has the sockets knows that it leads elsewhere now.
    pub fn open_now(&mut self, link: LinkId, now: ClockReading) {
        let now = self.clamp(now);
        if !link.is_push() && self.node(link.node()).link.is_down() {
            self.open(link.node(), now);
        }
    }

    /// Keeps words about a cause that the driver knows more of. Characters that a terminal acts on are
    /// escaped: the words may quote the system, a certificate or a sentinel.
    pub fn explain(&mut self, link: LinkId, cause: Cause, words: String) {
        if link.is_push() {
            return;
        }
        self.node_mut(link.node()).explain(cause, printable(&words));
    }

    /// Whether an answer is due on this link, so that a read may bring it although no readiness was reported.
    #[must_use]
    #[inline]
    pub fn is_awaited(&self, link: LinkId) -> bool {
        !link.is_push() && self.node(link.node()).pipeline.oldest().is_some()
    }

    /// Whether this link takes requests soon: it is being opened, or is opened now, ahead of its
    /// backoff, because somebody has a use for it. What only an operator can mend is left to the
    /// backoff.
    pub(super) fn reopen(&mut self, id: NodeId, now: ClockReading) -> bool {
        let link = &self.node(id).link;
        if link.is_down() && link.may_open(now.boot) && !link.is_hopeless() {
            self.open(id, now);
        }
        self.node(id).will_take_asks()
    }

    pub(super) fn open(&mut self, id: NodeId, now: ClockReading) {
        if mutant!(ReconnectNever) && self.node(id).link.was_tried() {
            return;
        }
        let until = now.boot + self.config.settings.connect_timeout;
        self.node_mut(id).link.opening(now.boot, until);
        self.changed.insert(id);
        self.ops.push_back(LinkOp::Open(LinkId::command(id)));
        self.arm(until);
    }

    /// The socket is connected, and the handshake begins. Whether asks may follow it before it is answered.
    pub(super) fn link_connected(&mut self, id: NodeId, now: ClockReading) -> bool {
        let Link::Opening { until } = self.node(id).link.state() else { return false };
        self.metrics.of(id).connections += 1;
        let opened = Timestamp(
            until.0.saturating_sub(saturating_nanos(self.config.settings.connect_timeout)),
        );
        self.node_mut(id).pace.connected(opened, now.boot);
        // Behind an ask, an undo that is still owed would come too late; before it, a kill must be
        // known to be right.
        let fused = self.node(id).server.is_proven()
            && !self.claims.is_burdened(id)
            && !self.set_up.is_awaited(self.config.settings.setup);
        let settings = self.config.node(id);
        let node = &mut self.nodes[id.index()];
        node.hears(now.boot);
        node.handshake_begins(now);
        node.link.connected(until, fused, now);
        for step in Step::needed(settings, &self.config.settings) {
            node.pipeline.push(Pending::Handshake(step), now.boot, |out| {
                step.encode(out, settings, &self.config.settings);
            });
        }
        fused
    }

    /// Closes a link from our side.
    pub(super) fn close(&mut self, id: NodeId, cause: Cause, now: ClockReading) {
        self.ops.push_back(LinkOp::Close(LinkId::command(id)));
        self.sever(id, cause, now);
    }

    /// The connection is over: everything under way on it is answered by that.
    pub(super) fn sever(&mut self, id: NodeId, cause: Cause, now: ClockReading) {
        let cap = self.node(id).link.backoff(self.config.settings.reconnect_backoff);
        let retry_at = now.boot + cap / 2 + self.entropy.below(cap / 2);
        let node = &mut self.nodes[id.index()];
        // A server that turns us away says why before it closes.
        let cause = node.handshake().refused().unwrap_or(cause);
        if !node.link.lost(cause, retry_at) {
            return;
        }
        let cause = node.link.cause();
        self.metrics.of(id).link_failed(cause);
        let closed = matches!(cause, Cause::ConnectionClosed | Cause::ConnectionReset);
        let first = Step::needed(self.config.node(id), &self.config.settings).next();
        let oldest = node.pipeline.oldest().map(|due| due.pending);
        let is_first = first.is_some_and(|first| oldest == Some(Pending::Handshake(first)));
        // Whoever has the sockets may know better.
        if closed && is_first && node.words(cause).is_none() {
            node.explain(cause, UNANSWERED.to_owned());
        }
        let pipeline = std::mem::replace(&mut node.pipeline, Pipeline::new());
        let dead = node.reset_connection();
        self.changed.insert(id);
        self.arm(retry_at);
        let ghosts = self.claims.ghosts(id);
        self.connection_lost(id, pipeline, now);
        if ghosts == 0 {
            self.node_mut(id).server.has_ghosts_in(dead);
        } else if self.claims.ghosts(id) > ghosts {
            self.node_mut(id).server.has_ghosts_in(None);
        }
        self.link_down(id, now);
    }

    /// A step of the handshake was answered. What all of them have found out is returned when they are complete and
    /// nothing speaks against the node but what may change while the connection lasts.
    pub(super) fn handshake_answered(
        &mut self,
        id: NodeId,
        step: Step,
        token: Token<'_>,
        now: ClockReading,
    ) -> Result<Option<Handshake>, Mistyped> {
        self.handshake_step(id, step, token)?;
        if step != Step::last(&self.config.settings) {
            return Ok(None);
        }
        let handshake = std::mem::take(self.node_mut(id).handshake());
        let refused = match self.node(id).link.state() {
            Link::Handshake { .. } => self.handshake_done(id, &handshake, now),
            // A node that did not vote has been looked at again.
            Link::Quarantined { .. } => {
                if let Some(replication_id) = handshake.replication_id() {
                    self.node_mut(id).server.told_replication_id(Some(replication_id));
                }
                handshake.refused()
            }
            // One whose time is over has been refused, and what it granted is being undone.
            _ => return Ok(None),
        };
        match refused {
            Some(cause) => {
                self.retire(id, cause, now);
                Ok(None)
            }
            None => Ok(Some(handshake)),
        }
    }

    /// Takes the answer to one step, and keeps the words of a refusal.
    fn handshake_step(&mut self, id: NodeId, step: Step, token: Token<'_>) -> Result<(), Mistyped> {
        let node = &mut self.nodes[id.index()];
        let settings = self.config.node(id);
        let told = node.handshake().answer(step, token, settings, &self.config.settings)?;
        let refused = node.handshake().refused();
        match token {
            // The words of the server belong to the cause that stands.
            Token::Error(text) if told.is_some() && told == refused && step != Step::Auth => {
                self.note_of(id, refused, text);
            }
            _ if refused == Some(Cause::TooOld) => {
                if let Some(version) = node.handshake().capabilities().version() {
                    let words = format!("{version}, {} is needed", Version::OLDEST);
                    node.explain(Cause::TooOld, words);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The handshake is complete: why the node is no voter, if it is none.
    fn handshake_done(
        &mut self,
        id: NodeId,
        handshake: &Handshake,
        now: ClockReading,
    ) -> Option<Cause> {
        let twin = self.twin(id, handshake);
        self.node_mut(id).capabilities.learn(handshake.capabilities());
        self.node_mut(id).server.wrong(handshake.is_wrong_server() || twin.is_some());
        self.node_mut(id).server.told_replication_id(handshake.replication_id());
        self.node_mut(id).server.told_replicas(handshake.replicas());
        if let Some(twin) = twin {
            // It may have moved to this address: if it is not there, this node is believed next time.
            let handshake_done =
                matches!(self.node(twin).link.state(), Link::Ready | Link::Quarantined { .. });
            if !handshake_done {
                self.node_mut(twin).server.forget_process();
            }
            let words = format!("it is node {}", twin.index() + 1);
            self.node_mut(id).explain(Cause::SameServer, words);
        } else if let Some(run_id) = handshake.run_id() {
            self.lay_old_connection(id, run_id, now);
            let node = self.node_mut(id);
            if node.server.told(run_id, handshake.client_id()) {
                node.capabilities.push_is(Ability::Unknown);
                node.push.forget_failures(now.boot);
            }
        }
        let refused = handshake.refused().or_else(|| twin.map(|_| Cause::SameServer));
        if let Some(cause) = refused.filter(|cause| cause.is_configuration()) {
            let must_be_proven = self.config.node(id).must_be_proven();
            let is_proven = !must_be_proven && cause != Cause::SameServer;
            self.node_mut(id).server.proven(is_proven);
        }
        refused
    }

    /// Another node that turned out to be the same server process.
    fn twin(&self, id: NodeId, handshake: &Handshake) -> Option<NodeId> {
        let run_id = handshake.run_id()?;
        let is_there = |other: NodeId| self.node(other).server.run_id() == Some(run_id);
        self.config.node_ids().find(|&other| other != id && is_there(other))
    }

    /// Bytes in a dead connection may run after an undo on this one. Where the server is certainly
    /// the same process, it is told to drop that connection first; ids of another process would be
    /// those of strangers.
    fn lay_old_connection(&mut self, id: NodeId, run_id: RunId, now: ClockReading) {
        let has_ghosts = self.claims.ghosts(id) > 0;
        let node = &mut self.nodes[id.index()];
        if let Some(dead) = node.server.ghosts_in(run_id).filter(|_| has_ghosts) {
            node.pipeline.push(Pending::Kill, now.boot, |out| {
                let kill = crate::resp::command(out, 4).arg(b"CLIENT").arg(b"KILL").arg(b"ID");
                let _ = kill.int(dead);
            });
        }
    }

    /// The node votes from now on.
    pub(super) fn ready(&mut self, id: NodeId) {
        let node = self.node_mut(id);
        node.link.ready();
        node.handshake_done();
        self.changed.insert(id);
    }

    /// The node is no voter. What it may have granted on this connection is undone, what it owes is
    /// sent once more, and then the link is closed.
    pub(super) fn retire(&mut self, id: NodeId, cause: Cause, now: ClockReading) {
        let until = now.boot + self.config.settings.response_timeout;
        let node = self.node_mut(id);
        node.link.leaving(cause, until);
        let due: Vec<_> = node.pipeline.pending().copied().collect();
        self.changed.insert(id);
        self.arm(until);
        self.node_retired(id, cause, &due, now);
        self.leave_if_idle(id, now);
    }

    /// Closes a link that is being left once nothing is due on it.
    pub(super) fn leave_if_idle(&mut self, id: NodeId, now: ClockReading) {
        let node = self.node(id);
        if node.link.is_leaving() && node.pipeline.len() == 0 {
            self.close(id, node.link.cause(), now);
        }
    }

    /// The time of what the link waits for may be over. Whether the connection goes on.
    pub(super) fn link_due(&mut self, id: NodeId, now: ClockReading) -> bool {
        let state = self.node(id).link.state();
        match state {
            Link::Down { retry_at } if now.boot >= retry_at => self.open(id, now),
            Link::Down { retry_at } => self.arm(retry_at),
            Link::Opening { until } if now.boot >= until => {
                self.close(id, Cause::ConnectTimeout, now);
            }
            Link::Handshake { until, .. } if now.boot >= until => self.handshake_late(id, now),
            Link::Leaving { until } if now.boot >= until => self.close(id, Cause::NoAnswer, now),
            Link::Opening { until } | Link::Handshake { until, .. } | Link::Leaving { until } => {
                self.arm(until);
                return true;
            }
            Link::Quarantined { .. } | Link::Ready => return true,
        }
        false
    }

    /// What was asked behind the handshake may run yet, so its undo follows it.
    fn handshake_late(&mut self, id: NodeId, now: ClockReading) {
        let span = self.config.settings.connect_timeout;
        let words = format!("{HANGS}: connected, but no reply to the handshake in {span:?}");
        self.node_mut(id).explain(Cause::NoAnswer, words);
        self.metrics.of(id).timeouts += 1;
        // Nobody knows where it leads.
        self.node_mut(id).server.wrong(true);
        self.retire(id, Cause::NoAnswer, now);
    }

    /// A node that owes answers is silent: it may seem to hang, or be dead. Whether the connection goes on.
    pub(super) fn silence_due(&mut self, id: NodeId, now: ClockReading) -> bool {
        self.suspect_if_silent(id, now);
        match self.node(id).dead_at(self.config.settings.dead_peer_timeout) {
            Some(dead_at) if now.boot >= dead_at => {
                self.close(id, Cause::DeadPeer, now);
                return false;
            }
            Some(dead_at) => self.arm(dead_at),
            None => {}
        }
        true
    }
}

/// Why a server may end a connection, in words.
const UNANSWERED: &str = "before it answered anything; a port for TLS only does that";
