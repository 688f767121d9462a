//! The restart guard of each node: whether the node remembers every lock that it granted.
//!
//! A node votes only on a connection on which the guard's value was read and is ours. Each of its
//! grants counts only if the guard's TTL, read behind the request, agrees. Any other node is
//! quarantined and read again until it may vote. The quarantine itself is in the node's key,
//! counted by the node's clock; this client remembers only when to read next.
//!
//! The meaning of a value and a TTL is in `proto::restart_guard`.

mod admission;
mod history;
mod set_up;
mod watch;

use std::fmt;
use std::time::Duration;

use crate::proto::{restart_guard::Found, vote::Cause};

pub(super) use self::watch::{Unproven, Watch};

/// A step that follows what a node without a vote is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FollowUp {
    None,
    /// A report of this cause, which explains more than the quarantine.
    Blame(Cause),
    /// A command that drops all other connections of the node.
    DropOthers,
    /// A new read of value and TTL.
    Look,
}

/// The state of a node's restart guard, as this client knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RestartGuardState {
    /// The guard was read and does not let the node vote. Nothing was written.
    Found(Found),
    /// This client does not use restart guards.
    Off,
    /// The node does not vote yet.
    Quarantined {
        /// The time left until it votes.
        left: Duration,
        /// The guard that was read before the node was enrolled.
        found: Found,
    },
    /// The guard was not read.
    Unknown,
    /// The guard lets the node vote.
    Votes,
}

impl fmt::Display for RestartGuardState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found(found) => found.fmt(f),
            Self::Off => f.write_str("not guarded"),
            Self::Quarantined { left, .. } => {
                write!(f, "quarantined {} s", left.as_secs_f64().ceil())
            }
            Self::Unknown => f.write_str("not read"),
            Self::Votes => f.write_str("remembers every lock"),
        }
    }
}
