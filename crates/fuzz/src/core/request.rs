//! Links, and the requests on them.

use redbolt::proto::{HandshakeStep, Timestamp};

/// The state of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Closed,
    Opening,
    Open,
}

/// A command, as far as its answer matters. A lock is named by its index in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Handshake(HandshakeStep),
    /// The restart guard is read again.
    Look(HandshakeStep),
    /// With its check behind it, if that is a separate command.
    Ask {
        lock: usize,
        attempt: usize,
        kind: Kind,
    },
    /// Whether the node is the master that it was. The grant in front of it counts only then.
    History,
    /// The undo by a command of the server's own.
    Delete {
        lock: usize,
        attempt: usize,
    },
    /// The ask for one slot of a permit.
    Move {
        lock: usize,
        attempt: usize,
        slot: u16,
        /// When a node that grants it need not keep the permit any more.
        ends: Timestamp,
    },
    /// The ask for a second claim, of a lock that changes its mode.
    Change {
        lock: usize,
        claim: usize,
        proposed: Option<u64>,
    },
    /// A fencing counter is read, by who observes.
    Counter,
    Enrol,
    Extend {
        lock: usize,
        round: usize,
    },
    Undo {
        lock: usize,
        attempt: usize,
    },
    Remaining,
    /// Takes a ticket out of the queue.
    Leave {
        lock: usize,
        ticket: usize,
    },
    /// What is read next is to be reported when it changes.
    Caching,
    /// What a lock in the queue waits for.
    Watched,
    /// The node is to report changes on the push link, or none.
    Track,
    Kill,
    KillOthers,
    ViewHolders,
    ViewQueue,
    ViewTtl,
    ViewType,
    ViewValue,
    WriteBack {
        lock: usize,
        attempt: usize,
        target: u64,
    },
}

/// The form of a lock request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Plain,
    Many,
    Fenced {
        proposed: u64,
    },
    Shared,
    Permit,
    /// With the ticket of this number.
    InQueue {
        ticket: usize,
        of_permit: bool,
        /// Where an honest node puts the ticket.
        stamp: u64,
        proposed: Option<u64>,
    },
}

impl Kind {
    /// Whether a slot is granted.
    pub(super) fn of_permit(self) -> bool {
        matches!(self, Self::Permit | Self::InQueue { of_permit: true, .. })
    }
}

/// A number in a command's argument.
pub(super) fn integer(word: &[u8]) -> u64 {
    let text = std::str::from_utf8(word).expect("a number is ASCII");
    text.parse().expect("a number")
}
