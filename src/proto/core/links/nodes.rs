//! All nodes of a core, in the order of the configuration.
//!
//! A method here compares nodes, and changes one by the result.

use super::command_link::Link;
use super::handshake::{Mistyped, Step};
use super::node::{Node, Nodes};
use crate::proto::core::{Env, claims::Claims};
use crate::proto::names::{NodeId, NodeSet};
use crate::proto::restart_guard::RunId;
use crate::resp::Token;

impl Nodes {
    /// Opens the push links of these nodes, or keeps them open, for a waiter or an observer.
    pub(in crate::proto::core) fn want_push(&mut self, nodes: NodeSet, env: &mut Env<'_>) {
        nodes.iter().for_each(|node| self[node.index()].want_push(env));
    }

    /// Takes the answer to a step of a handshake, or of a later read, and applies the whole if it
    /// was the last step. Retires a node that must not vote, unless the reason may change on this
    /// connection.
    pub(in crate::proto::core) fn answer(
        &mut self,
        id: NodeId,
        (step, token): (Step, Token<'_>),
        claims: &Claims,
        env: &mut Env<'_>,
    ) -> Result<(), Mistyped> {
        let node = &mut self[id.index()];
        let Some(handshake) = node.answer_step(step, token, env)? else { return Ok(()) };
        let refused = match node.link.state() {
            Link::Handshake { .. } => {
                let twin = handshake.run_id().and_then(|run_id| self.twin(id, run_id));
                // Requests may still run out of a dead connection.
                let has_ghosts = claims.ghosts(id) > 0;
                self[id.index()].complete_handshake(&handshake, twin, has_ghosts, env)
            }
            Link::Quarantined { .. } => node.complete_read(&handshake),
            // After a timeout the node has been retired, and its grants are being undone.
            _ => return Ok(()),
        };
        match refused {
            Some(cause) => self[id.index()].retire(cause, env),
            None => self.let_in(id, handshake, env),
        }
        Ok(())
    }

    /// Returns another node that is the same server process.
    fn twin(&mut self, node: NodeId, run_id: RunId) -> Option<NodeId> {
        let is_same =
            |other: &&mut Node| other.id() != node && other.server.run_id() == Some(run_id);
        let twin = self.iter_mut().find(is_same)?;
        if !twin.link.takes_reads() {
            // It may have moved to this address. If it is not there, this node is accepted next
            // time.
            twin.server.forget_process();
        }
        Some(twin.id())
    }
}
