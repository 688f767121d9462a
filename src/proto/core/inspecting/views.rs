//! The views of a core.
//!
//! Invariant: each view completes once, and nothing changes a complete one.

use super::viewing::Question;
use super::{Force, View, Viewing};
use crate::proto::classify::classify;
use crate::proto::core::Env;
use crate::proto::core::links::{Mistyped, Node, Nodes};
use crate::proto::names::{NodeId, ViewId};
use crate::proto::slab::Slab;
use crate::proto::time::Timestamp;
use crate::proto::vote::Cause;
use crate::resp::Token;

/// The views of a core.
pub(in crate::proto::core) struct Views(Slab<ViewId, Viewing>);

impl Views {
    pub(in crate::proto::core) fn new() -> Self {
        Self(Slab::new())
    }

    /// Asks all nodes about a resource.
    pub(super) fn begin(
        &mut self,
        resource: &[u8],
        force: Option<Force>,
        nodes: &mut Nodes,
        env: &mut Env<'_>,
    ) -> ViewId {
        let until = env.now.boot + env.settings().connect_timeout;
        let (id, viewing) = self.0.occupy(Viewing::default);
        *viewing = Viewing::new(resource, force, nodes.all(), until);
        nodes.iter_mut().for_each(|node| viewing.ask(id, node, env));
        self.arm(id, until, env);
        self.settle(id, nodes, env);
        id
    }

    /// Takes a complete view out, once.
    pub(super) fn take(&mut self, id: ViewId) -> Option<View> {
        let viewing = self.0.find_mut(id).filter(|viewing| viewing.is_complete())?;
        let view = std::mem::take(&mut viewing.view);
        self.0.free(id);
        Some(view)
    }

    /// Sends what has waited for this node's link.
    pub(in crate::proto::core) fn send_queued(&mut self, node: &mut Node, env: &mut Env<'_>) {
        for id in self.queued_at(node.id()) {
            if let Some(viewing) = self.0.find_mut(id) {
                viewing.send(id, node, env);
            }
        }
    }

    /// Fails what has waited for this node's link.
    pub(in crate::proto::core) fn fail_queued(
        &mut self,
        node: NodeId,
        nodes: &Nodes,
        env: &mut Env<'_>,
    ) {
        let cause = nodes[node.index()].link.cause();
        for id in self.queued_at(node) {
            self.fail(id, node, cause, nodes, env);
        }
    }

    fn queued_at(&self, node: NodeId) -> Vec<ViewId> {
        let is_queued = |viewing: &Viewing| viewing.is_queued_at(node);
        self.0.ids().filter(|&id| self.0.find(id).is_some_and(is_queued)).collect()
    }

    /// Takes a node's answer. One for a view that is complete without it changes nothing.
    pub(in crate::proto::core) fn answered(
        &mut self,
        (id, question): (ViewId, Question),
        since: Timestamp,
        (node, token): (NodeId, Token<'_>),
        nodes: &mut Nodes,
        env: &mut Env<'_>,
    ) -> Result<(), Mistyped> {
        let answer = match (question, token) {
            (_, Token::Error(text)) => {
                let cause = classify(text).cause();
                (Err(cause), Err(cause))
            }
            (Question::ForceUnlock | Question::Ttl, Token::Int(number)) => {
                (Ok(&b""[..]), Ok(number))
            }
            (Question::Type, Token::Simple(text)) => (Ok(text), Ok(0)),
            (Question::ForceUnlock | Question::Ttl | Question::Type, _) => return Err(Mistyped),
            (_, Token::Bulk(text)) => (Ok(text), Ok(0)),
            _ => return Err(Mistyped),
        };
        let viewing = self.0.find_mut(id).filter(|viewing| viewing.awaits(node));
        if viewing
            .is_some_and(|it| it.take((id, question), since, &mut nodes[node.index()], answer, env))
        {
            self.settle(id, nodes, env);
        }
        Ok(())
    }

    /// Records that a node will not answer.
    pub(in crate::proto::core) fn fail(
        &mut self,
        id: ViewId,
        node: NodeId,
        cause: Cause,
        nodes: &Nodes,
        env: &mut Env<'_>,
    ) {
        let viewing = self.0.find_mut(id);
        if let Some(viewing) = viewing.filter(|viewing| viewing.awaits(node)) {
            viewing.fail(node, cause);
            self.settle(id, nodes, env);
        }
    }

    fn settle(&mut self, id: ViewId, nodes: &Nodes, env: &mut Env<'_>) {
        let viewing = self.0.find_mut(id).filter(|viewing| !viewing.is_complete());
        if let Some(until) = viewing.and_then(|viewing| viewing.settle(id, nodes, env)) {
            self.arm(id, until, env);
        }
    }

    fn arm(&mut self, id: ViewId, at: Timestamp, env: &mut Env<'_>) {
        self.0.arm(id, at);
        env.arm(at);
    }

    /// When something is due for any of them.
    pub(in crate::proto::core) fn due(&self) -> Timestamp {
        self.0.due()
    }

    /// Completes the views whose time is over.
    pub(in crate::proto::core) fn check_timers(&mut self, env: &mut Env<'_>) {
        let mut at = 0;
        while let Some(id) = self.0.next_due(&mut at, env.now.boot) {
            let viewing = self.0.find_mut(id).filter(|viewing| !viewing.is_complete());
            if let Some(until) = viewing.and_then(|viewing| viewing.check_timer(id, env)) {
                self.arm(id, until, env);
            }
        }
    }
}
