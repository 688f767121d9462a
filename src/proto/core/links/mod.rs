//! A node's command link: opening, the handshake, refusing the node as a voter, and losing the connection.
//!
//! Apart from whoever asks something of a node, so that they need not know how it is reached. What happens to one node
//! alone is in `connection`; here is what follows for others. What one node's conversation consists of is in `node`, the
//! steps of its link in `command_link`, and nodes that hang in `suspect`.
//! Not here: the restart guard, which lets a node vote, and push links, which have folders of their own.

mod capability;
mod command_link;
mod connection;
mod handshake;
mod held_back;
mod inbox;
mod node;
mod nodes;
mod pace;
mod pipeline;
mod server;
mod suspect;
mod words;

use self::connection::Timer;
use super::Core;
use super::effects::NodeEffect;
use crate::proto::event::LinkOp;
use crate::proto::names::{LinkId, NodeId};
use crate::proto::printable::printable;
use crate::proto::time::ClockReading;
use crate::proto::vote::Cause;
use crate::resp::Token;

pub(super) use self::capability::Ability;
pub(super) use self::command_link::Link;
pub(super) use self::handshake::{Handshake, Mistyped, Step, is_same_master};
pub(super) use self::inbox::Inbox;
pub(super) use self::node::{Node, Pending};
pub(super) use self::nodes::Nodes;
pub(super) use self::pipeline::{Due, Pipeline};
pub use self::server::Replicas;
pub(super) use self::suspect::FIRST_CONTACT;
pub(crate) use self::suspect::{HANGS, Silence};

impl Core {
    /// Opens the links of all nodes that are down, ahead of their backoff.
    pub fn open_all(&mut self, now: ClockReading) {
        let now = self.clamp(now);
        for node in self.config.node_ids() {
            let (node, mut env) = self.node_in_env(node, now);
            node.open_if_down(&mut env);
        }
    }

    /// Opens a command link that is down ahead of its backoff: whoever has the sockets knows that it leads elsewhere now.
    pub fn open_now(&mut self, link: LinkId, now: ClockReading) {
        let now = self.clamp(now);
        if !link.is_push() {
            let (node, mut env) = self.node_in_env(link.node(), now);
            node.open_if_down(&mut env);
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

    /// Closes a link from our side.
    pub(super) fn close(&mut self, node: NodeId, cause: Cause, now: ClockReading) {
        self.ops.push_back(LinkOp::Close(LinkId::command(node)));
        self.sever(node, cause, now);
    }

    /// Ends a connection: everything in flight on it is answered by that.
    pub(super) fn sever(&mut self, id: NodeId, cause: Cause, now: ClockReading) {
        let (node, mut env) = self.node_in_env(id, now);
        let Some((pipeline, dead)) = node.sever(cause, &mut env) else { return };
        let ghosts = self.claims.ghosts(id);
        // A later handshake may kill this connection only if no ask can run out of another one.
        if ghosts == 0 {
            self.node_mut(id).server.set_ghosts_in(dead);
        }
        // Queued commands fail; commands in flight may be sent again on the next connection.
        self.effects.of_node(id, NodeEffect::FailQueued);
        for (pending, untouched) in pipeline.into_requests() {
            self.effects.of_node(id, NodeEffect::Unanswered(pending, untouched));
        }
        self.effects.of_node(id, NodeEffect::FailUnproven);
        self.effects.of_node(id, NodeEffect::Severed(ghosts));
    }

    /// Takes the answer to a step of the handshake. Returns what all steps have found out when they are complete and
    /// nothing speaks against the node but what may change while the connection lasts.
    pub(super) fn handshake_answered(
        &mut self,
        id: NodeId,
        step: Step,
        token: Token<'_>,
        now: ClockReading,
    ) -> Result<Option<Handshake>, Mistyped> {
        let (node, env) = self.node_in_env(id, now);
        let Some(handshake) = node.answer_step(step, token, &env)? else { return Ok(None) };
        let refused = match node.link.state() {
            Link::Handshake { .. } => self.complete_handshake(id, &handshake, now),
            Link::Quarantined { .. } => node.complete_look(&handshake),
            // A node whose time is over has been refused, and what it granted is being undone.
            _ => return Ok(None),
        };
        match refused {
            Some(cause) => {
                let (node, mut env) = self.node_in_env(id, now);
                node.retire(cause, &mut env);
                Ok(None)
            }
            None => Ok(Some(handshake)),
        }
    }

    /// Applies a complete handshake. Returns why the node does not vote, if it must not.
    fn complete_handshake(
        &mut self,
        id: NodeId,
        handshake: &Handshake,
        now: ClockReading,
    ) -> Option<Cause> {
        let twin = handshake.run_id().and_then(|run_id| self.nodes.twin(id, run_id));
        if let Some(twin) = twin.map(|twin| self.node_mut(twin))
            && !matches!(twin.link.state(), Link::Ready | Link::Quarantined { .. })
        {
            // It may have moved to this address: if it is not there, this node is believed next time.
            twin.server.forget_process();
        }
        let has_ghosts = self.claims.ghosts(id) > 0;
        let (node, env) = self.node_in_env(id, now);
        node.complete_handshake(handshake, twin, has_ghosts, &env)
    }

    /// Closes a link that is being left once nothing is due on it.
    pub(super) fn leave_if_idle(&mut self, id: NodeId, now: ClockReading) {
        let node = self.node(id);
        if node.link.is_leaving() && node.pipeline.len() == 0 {
            self.close(id, node.link.cause(), now);
        }
    }

    /// Does what the link's timer asks for. Returns whether the connection goes on.
    pub(super) fn link_due(&mut self, id: NodeId, now: ClockReading) -> bool {
        let (node, mut env) = self.node_in_env(id, now);
        match node.check_timer(&mut env) {
            Timer::Runs => return true,
            Timer::IsDown => {}
            Timer::Closes(cause) => self.close(id, cause, now),
        }
        false
    }

    /// Looks at how long a node that owes answers is silent: it may be dead. Returns whether the connection goes on.
    pub(super) fn silence_due(&mut self, id: NodeId, now: ClockReading) -> bool {
        let (node, mut env) = self.node_in_env(id, now);
        let is_dead = node.check_silence(&mut env);
        if is_dead {
            self.close(id, Cause::DeadPeer, now);
        }
        !is_dead
    }
}
