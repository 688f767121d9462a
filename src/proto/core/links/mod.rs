//! A node's command link: opening, the handshake, refusing the node as a voter, and losing the connection.
//!
//! What happens to one node is in `connection`, and what takes several nodes in `nodes`; what follows for others is queued as
//! effects. What one node's conversation consists of is in `node`, the steps of its link in `command_link`, and nodes that hang in
//! `suspect`.
//!
//! Not here: the restart guard, which lets a node vote, and push links, which have folders of their own.

pub(super) mod capability;
mod command_link;
mod connection;
mod error_text;
pub(super) mod handshake;
mod held_back;
pub(super) mod inbox;
mod node;
mod nodes;
mod pace;
pub(super) mod pipeline;
mod server;
mod suspect;

use std::time::Duration;

pub(super) use self::capability::Ability;
pub(super) use self::command_link::Link;
pub use self::handshake::Step;
pub(super) use self::handshake::{Handshake, Mistyped, is_same_master};
pub(super) use self::node::{Node, Nodes, Pending};
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

/// Why a node has not answered that was given enough time. It is not certain: the answer may be on its way.
pub(crate) const HANGS: &str = "no answer, it seems to hang";

/// A name is looked up and a connection made, anywhere on Earth, unless packets are lost.
pub(super) const FIRST_CONTACT: Duration = Duration::from_millis(250);
