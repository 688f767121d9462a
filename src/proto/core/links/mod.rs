//! A node's command link: opening, the handshake, refusing the node as a voter, and losing the connection.
//!
//! Here are the calls of the driver. What happens to one node is in `connection`, and what takes several nodes in `nodes`; what
//! follows for others is queued as effects. What one node's conversation consists of is in `node`, the steps of its link in
//! `command_link`, and nodes that hang in `suspect`.
//! Not here: the restart guard, which lets a node vote, and push links, which have folders of their own.

mod capability;
mod command_link;
mod connection;
mod error_text;
mod handshake;
mod held_back;
mod inbox;
mod node;
mod nodes;
mod pace;
mod pipeline;
mod server;
mod suspect;

use std::time::Duration;

use super::Core;
use crate::proto::names::LinkId;
use crate::proto::printable::printable;
use crate::proto::time::ClockReading;
use crate::proto::vote::Cause;

pub(super) use self::capability::Ability;
pub(super) use self::command_link::Link;
pub use self::handshake::Step;
pub(super) use self::handshake::{Handshake, Mistyped, is_same_master};
pub(super) use self::inbox::Inbox;
pub(super) use self::node::{Node, Pending};
pub(super) use self::nodes::Nodes;
pub(super) use self::pipeline::{Due, Pipeline};
pub use self::server::Replicas;

/// What is missing of a node that is being connected to for longer than that should take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    /// There is a connection, and no answer.
    Unanswered,
    /// There is no connection.
    Unreached,
}

impl Core {
    /// Opens the links of all nodes that are down, ahead of their backoff.
    pub fn open_all(&mut self, now: ClockReading) {
        let now = self.clamp(now);
        self.nodes.iter_mut().for_each(|node| node.open_if_down(&mut env!(self, now)));
    }

    /// Opens a command link that is down ahead of its backoff: whoever has the sockets knows that it leads elsewhere now.
    pub fn open_now(&mut self, link: LinkId, now: ClockReading) {
        let now = self.clamp(now);
        if !link.is_push() {
            self.nodes[link.node().index()].open_if_down(&mut env!(self, now));
        }
    }

    /// Keeps words about a cause that the driver knows more of. Characters that a terminal acts on are
    /// escaped: the words may quote the system, a certificate or a sentinel.
    pub fn explain(&mut self, link: LinkId, cause: Cause, words: String) {
        if !link.is_push() {
            self.node_mut(link.node()).explain(cause, printable(&words));
        }
    }

    /// Whether an answer is due on this link, so that a read may bring it although no readiness was reported.
    #[must_use]
    #[inline]
    pub fn is_awaited(&self, link: LinkId) -> bool {
        !link.is_push() && self.node(link.node()).pipeline.oldest().is_some()
    }
}

/// Why a node has not answered that was given enough time. It is not certain: the answer may be on its way.
pub(crate) const HANGS: &str = "no answer, it seems to hang";

/// A name is looked up and a connection made, anywhere on Earth, unless packets are lost.
pub(super) const FIRST_CONTACT: Duration = Duration::from_millis(250);
