//! The restart guard on each link: read with the handshake, checked behind each ask, and written where
//! it is missing.
//!
//! What a value and a TTL mean is decided in `proto::restart_guard`. Here is what follows: a node votes only on
//! a link on which the value was read and is ours, and each of its grants only if the TTL that was read
//! behind it says so. Everything else puts the link into quarantine, where it is looked at until the
//! node may vote. A quarantine is the node's, kept in its key and counted by its clock; what is
//! remembered here is only when to look again. What one node does by itself is in `admission`, and what
//! takes all nodes in `set_up`.

mod admission;
mod history;
mod set_up;
mod watch;

use std::fmt;
use std::time::Duration;

use crate::proto::{restart_guard::Found, vote::Cause};

pub(super) use self::watch::{Unproven, Watch};

/// What happens to a node that is kept out behind what it is sent without a vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FollowUp {
    None,
    /// There is a better reason why the node does not vote.
    Blame(Cause),
    /// All other connections are dropped.
    DropOthers,
    /// Value and TTL are read again.
    Look,
}

/// What is known of a node's restart guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RestartGuardState {
    /// It was read, and does not let the node vote; nothing was written.
    Found(Found),
    /// This client does not guard its nodes.
    Off,
    /// The node does not vote yet.
    Quarantined {
        /// For so long.
        left: Duration,
        /// What was found before the node was enrolled.
        found: Found,
    },
    /// It was not read.
    Unknown,
    /// It lets the node vote.
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
