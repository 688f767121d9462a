//! What a call came to, in one number, with the words that go with the number alone. Not here: the words of one failure, see
//! `error`.

use std::ffi::{CStr, c_char};

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
    /// The system has no file descriptors, threads or randomness left.
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

/// What a status means, in a line of UTF-8 that lives as long as the library: for calls that have no `error`. Where there is one,
/// `redbolt_error_message` says more.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_status_message(status: i32) -> *const c_char {
    Status::words(status).as_ptr()
}

impl Status {
    const ALL: [Self; 19] = [
        Self::Ok,
        Self::InvalidArgument,
        Self::Config,
        Self::Start,
        Self::Request,
        Self::Contended,
        Self::NoQuorum,
        Self::OutOfTime,
        Self::Expired,
        Self::Cancelled,
        Self::Lost,
        Self::Busy,
        Self::ShutDown,
        Self::Forked,
        Self::InUse,
        Self::InCallback,
        Self::Setup,
        Self::Unreleased,
        Self::Panicked,
    ];

    /// What a number means that may be no status.
    pub fn words(status: i32) -> &'static CStr {
        let known = Self::ALL.into_iter().find(|known| *known as i32 == status);
        known.map_or(c"a status that this version of redbolt does not know", Self::message)
    }

    pub(crate) fn message(self) -> &'static CStr {
        match self {
            Self::Ok => c"it was done",
            Self::InvalidArgument => {
                c"invalid argument: a pointer is null, a text is not UTF-8, or a name or number is not defined"
            }
            Self::Config => c"the configuration does not hold",
            Self::Start => c"the system has no file descriptors, threads or randomness left",
            Self::Request => c"the request cannot be carried out, whatever the nodes say",
            Self::Contended => c"somebody else holds the resource",
            Self::NoQuorum => c"too few nodes vote",
            Self::OutOfTime => c"the time to wait is over",
            Self::Expired => c"the TTL was over before a quorum had granted",
            Self::Cancelled => c"it was cancelled",
            Self::Lost => c"the lock is lost",
            Self::Busy => c"as much is in flight as the engine's limit allows",
            Self::ShutDown => c"the engine was shut down",
            Self::Forked => c"the handle belongs to the process before the fork",
            Self::InUse => c"a call on this client or driver is under way: it is for one thread at a time",
            Self::InCallback => {
                c"this call waits, and a callback of redbolt is running on this thread"
            }
            Self::Setup => c"the nodes were not set up: one is not new, or was not reached",
            Self::Unreleased => {
                c"the engine was shut down, and not every node has confirmed every release"
            }
            Self::Panicked => c"redbolt panicked, which is a bug of it: see standard error",
        }
    }
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
