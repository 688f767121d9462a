//! What a call came to, in one number. Not here: the words, see `error`.

use redbolt::{LossCause, RefusalReason};

/// What a call came to. The numbers never change; later versions may add some.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It was done.
    Ok = 0,
    /// A pointer is null that must not be, a text is not UTF-8, or a number is none of those that are defined.
    InvalidArgument = 1,
    /// The configuration does not hold: an address that cannot be read, a value out of its range.
    Config = 2,
    /// The system has no file descriptors, threads or randomness left, or the limit of an engine is out of its range.
    Start = 3,
    /// The request cannot be carried out, whatever the nodes say. Nothing was sent.
    Request = 4,
    /// A quorum of the nodes voted, and somebody holds the resource.
    Contended = 5,
    /// Too many nodes do not vote. The error says of each why.
    NoQuorum = 6,
    /// The time that the caller gave is over. `redbolt_error_is_contended` says whether somebody held the resource.
    OutOfTime = 7,
    /// No validity was left before a quorum had granted: the TTL is too short for these nodes.
    Expired = 8,
    /// The caller cancelled it.
    Cancelled = 9,
    /// The lock is over. Stop what it protects.
    Lost = 10,
    /// As much is in flight as the engine's limit allows.
    Busy = 11,
    /// The engine was shut down.
    ShutDown = 12,
    /// The handle belongs to the process that this one was forked from.
    Forked = 13,
    /// A call on the same client or driver is under way: it is for one thread at a time, and its log callback must
    /// not use it.
    InUse = 14,
    /// The call waits, whoever it asks, and a callback of redbolt is running on this thread: other locks would wait as well.
    InCallback = 15,
    /// The nodes were not set up: one is not new, or was not reached.
    Setup = 16,
    /// The engine was shut down, and not every node has confirmed every release.
    Unreleased = 17,
    /// redbolt has a bug, and the call was stopped. The handle is not to be relied on any longer.
    Panicked = 18,
}

impl From<RefusalReason> for Status {
    fn from(reason: RefusalReason) -> Self {
        match reason {
            RefusalReason::Cancelled => Self::Cancelled,
            RefusalReason::Contended => Self::Contended,
            RefusalReason::Expired => Self::Expired,
            RefusalReason::OutOfTime => Self::OutOfTime,
            // `NoQuorum`, and what a later version may add: no lock was granted.
            _ => Self::NoQuorum,
        }
    }
}

/// How a lock was lost.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// It was not.
    None = 0,
    /// Its validity ended.
    Expired = 1,
    /// It belongs to the process that this one was forked from.
    Forked = 2,
    /// So many nodes no longer had its key that no quorum was left.
    Gone = 3,
    /// It was extended for as long as it may be held.
    HeldTooLong = 4,
    /// Its engine was shut down, or has failed.
    ShutDown = 5,
    /// No quorum extended it in time.
    Unextended = 6,
    /// In a way that this version of the header has no name for.
    Other = 7,
}

impl From<LossCause> for Loss {
    fn from(cause: LossCause) -> Self {
        match cause {
            LossCause::Expired => Self::Expired,
            LossCause::Forked => Self::Forked,
            LossCause::Gone => Self::Gone,
            LossCause::HeldTooLong => Self::HeldTooLong,
            LossCause::ShutDown => Self::ShutDown,
            LossCause::Unextended => Self::Unextended,
            _ => Self::Other,
        }
    }
}
