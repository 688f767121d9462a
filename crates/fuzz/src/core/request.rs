//! Links, and the requests on them.

use redbolt::proto::{HandshakeStep, Timestamp};

/// The state of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Closed,
    Opening,
    Open,
}

/// A command, as far as its reply matters. A lock is named by its index in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Handshake(HandshakeStep),
    /// Reads the restart guard again.
    Look(HandshakeStep),
    /// Requests a lock, with the check behind it, if that is a separate command.
    Ask {
        lock: usize,
        attempt: usize,
        kind: Kind,
    },
    /// Reads whether the node is still the same master. The grant in front of it counts only then.
    History,
    /// Undoes a request by the server's native command.
    Delete {
        lock: usize,
        attempt: usize,
    },
    /// Requests one slot of a permit.
    Move {
        lock: usize,
        attempt: usize,
        slot: u16,
        /// The time from which a node that grants it need not keep the permit.
        ends: Timestamp,
    },
    /// Requests a second claim, for a lock that changes its mode.
    Change {
        lock: usize,
        claim: usize,
        proposed: Option<u64>,
    },
    /// Reads a fencing counter, for an observer.
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
    /// Removes a ticket from the queue.
    Leave {
        lock: usize,
        ticket: usize,
    },
    /// Makes the node report a change of what is read next.
    Caching,
    /// Reads what a lock in the queue waits for.
    Watched,
    /// Makes the node report changes on the push link, or none.
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
    /// In the queue, with the ticket of this number.
    InQueue {
        ticket: usize,
        of_permit: bool,
        /// The stamp that an honest node gives the ticket.
        stamp: u64,
        proposed: Option<u64>,
    },
}

impl Kind {
    /// Returns true if a slot is granted.
    pub(super) fn of_permit(self) -> bool {
        matches!(self, Self::Permit | Self::InQueue { of_permit: true, .. })
    }
}

/// Parses a number in a command's argument.
pub(super) fn integer(word: &[u8]) -> u64 {
    let text = std::str::from_utf8(word).expect("a number is ASCII");
    text.parse().expect("a number")
}
