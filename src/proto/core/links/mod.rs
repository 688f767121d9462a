//! The command link of each node: opening, handshake, retirement and loss.
//!
//! A node that could not undo a request gets none. The transitions of one node are in `connection`,
//! those of several in `nodes`; consequences for other objects are effects.

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

/// The progress of a connection attempt that takes longer than it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    /// A connection, but no answer.
    Unanswered,
    /// The lack of a connection.
    Unreached,
}

/// The text for a node that has not answered in time. The answer may still come.
pub(crate) const HANGS: &str = "no answer, it seems to hang";

/// The time for a name lookup and a connection anywhere on Earth, unless packets are lost.
pub(super) const FIRST_CONTACT: Duration = Duration::from_millis(250);
