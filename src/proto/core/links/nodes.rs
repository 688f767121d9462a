//! All nodes of a core, in the order of the configuration.
//!
//! Invariant: a method here compares nodes, and changes one by what it has found.

use std::ops::{Deref, DerefMut};

use super::command_link::Link;
use super::handshake::{Mistyped, Step};
use super::node::Node;
use crate::proto::config::Config;
use crate::proto::core::Env;
use crate::proto::core::claims::Claims;
use crate::proto::names::{NodeId, NodeSet};
use crate::proto::restart_guard::RunId;
use crate::resp::Token;

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

    /// Opens the push links of these nodes, or keeps them open, for a lock that waits or an observer.
    pub(in crate::proto::core) fn want_push(&mut self, nodes: NodeSet, env: &mut Env<'_>) {
        nodes.iter().for_each(|node| self[node.index()].want_push(env));
    }

    /// Takes the answer to a step of the handshake, or of a look, and applies what all steps have found if it is the last one. A
    /// node is refused as a voter if more speaks against it than what may change while the connection lasts.
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
                // Asks may still run out of a dead connection.
                let has_ghosts = claims.ghosts(id) > 0;
                self[id.index()].complete_handshake(&handshake, twin, has_ghosts, env)
            }
            Link::Quarantined { .. } => node.complete_read(&handshake),
            // A node whose time is over has been refused, and what it granted is being undone.
            _ => return Ok(()),
        };
        match refused {
            Some(cause) => self[id.index()].retire(cause, env),
            None => self.let_in(id, handshake, env),
        }
        Ok(())
    }

    /// Returns another node that turned out to be the same server process.
    fn twin(&mut self, node: NodeId, run_id: RunId) -> Option<NodeId> {
        let is_same =
            |other: &&mut Node| other.id() != node && other.server.run_id() == Some(run_id);
        let twin = self.iter_mut().find(is_same)?;
        if !twin.link.takes_reads() {
            // It may have moved to this address: if it is not there, this node is believed next time.
            twin.server.forget_process();
        }
        Some(twin.id())
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
