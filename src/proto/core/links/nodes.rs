//! All nodes of a core, in the order of the configuration.
//!
//! Invariant: a method here compares nodes and changes none of them.

use std::ops::{Deref, DerefMut};

use super::node::Node;
use crate::proto::config::Config;
use crate::proto::names::{NodeId, NodeSet};
use crate::proto::restart_guard::RunId;

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

    /// Returns another node that turned out to be the same server process.
    pub(super) fn twin(&self, node: NodeId, run_id: RunId) -> Option<NodeId> {
        let is_same = |other: &&Node| other.id() != node && other.server.run_id() == Some(run_id);
        self.iter().find(is_same).map(Node::id)
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
