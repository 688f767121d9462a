//! The outcome of a call as one number, with the text that depends on the number alone. `error` has
//! the text of a single failure.

use std::ffi::{CStr, c_char};

use redbolt::{LossCause, RefusalReason};

/// The outcome of a call. The numbers never change; later versions may add some.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The call has succeeded.
    Ok = 0,
    /// A required pointer is null, a text is not UTF-8, or a number is not one of those that are
    /// defined.
    InvalidArgument = 1,
    /// The configuration is not valid: an address cannot be parsed, or a value is out of its range.
    Config = 2,
    /// The system has run out of file descriptors, threads or randomness.
    Start = 3,
    /// The request cannot be carried out, independently of the nodes. Nothing was sent.
    Request = 4,
    /// A quorum of the nodes has voted, and another client holds the resource.
    Contended = 5,
    /// Too few nodes vote. The error has the reason of each node.
    NoQuorum = 6,
    /// The wait has timed out. `redbolt_error_is_contended` returns true if another client held the
    /// resource.
    OutOfTime = 7,
    /// No validity was left before a quorum had granted: the TTL is too short for these nodes.
    Expired = 8,
    /// The caller has cancelled the acquisition.
    Cancelled = 9,
    /// The lock is lost. Stop the work that it protects.
    Lost = 10,
    /// The engine has as many calls in flight as its limit allows.
    Busy = 11,
    /// The engine was shut down.
    ShutDown = 12,
    /// The handle belongs to the process that this one was forked from.
    Forked = 13,
    /// Another call on the same client or driver is in progress: it is for one thread at a time,
    /// and its log callback must not use it.
    InUse = 14,
    /// The call would block, and a callback of redbolt is running on this thread: other locks would
    /// be delayed.
    InCallback = 15,
    /// The nodes were not set up: one is not new, or was not reached.
    Setup = 16,
    /// The engine was shut down, and not every node has confirmed every release.
    Unreleased = 17,
    /// redbolt has a bug, and the call was stopped. Do not rely on the handle any longer.
    Panicked = 18,
}

/// Returns the meaning of a status, in a line of UTF-8 that lives as long as the library: for calls
/// that have no `error`. If there is one, `redbolt_error_message` has more.
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

    /// Returns the meaning of a number, which may not be a status.
    pub fn words(status: i32) -> &'static CStr {
        let known = Self::ALL.into_iter().find(|known| *known as i32 == status);
        known.map_or(c"a status that this version of redbolt does not know", Self::message)
    }

    pub(crate) fn message(self) -> &'static CStr {
        match self {
            Self::Ok => c"success",
            Self::InvalidArgument => {
                c"invalid argument: a pointer is null, a text is not UTF-8, or a name or number is not defined"
            }
            Self::Config => c"the configuration is not valid",
            Self::Start => c"the system has run out of file descriptors, threads or randomness",
            Self::Request => c"the request cannot be carried out",
            Self::Contended => c"another client holds the resource",
            Self::NoQuorum => c"too few nodes vote",
            Self::OutOfTime => c"the wait has timed out",
            Self::Expired => c"the TTL expired before a quorum had granted",
            Self::Cancelled => c"the acquisition was cancelled",
            Self::Lost => c"the lock is lost",
            Self::Busy => c"the engine has as many calls in flight as its limit allows",
            Self::ShutDown => c"the engine was shut down",
            Self::Forked => c"the handle belongs to the process before the fork",
            Self::InUse => c"another call on this client or driver is in progress: it is for one thread at a time",
            Self::InCallback => {
                c"this call would block, and a callback of redbolt is running on this thread"
            }
            Self::Setup => c"the nodes were not set up: one is not new, or was not reached",
            Self::Unreleased => {
                c"the engine was shut down, and not every node has confirmed every release"
            }
            Self::Panicked => c"redbolt panicked, which is a bug: see standard error",
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
            // This is `NoQuorum`, and reasons that a later version may add: no lock was granted.
            _ => Self::NoQuorum,
        }
    }
}

/// The cause of a loss.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The lock was not lost.
    None = 0,
    /// Its validity ended.
    Expired = 1,
    /// The lock belongs to the process that this one was forked from.
    Forked = 2,
    /// Too many nodes no longer had its key, so that no quorum was left.
    Gone = 3,
    /// The lock was held for as long as it may be.
    HeldTooLong = 4,
    /// Its engine was shut down, or has failed.
    ShutDown = 5,
    /// No quorum extended it in time.
    Unextended = 6,
    /// A cause that this version of the header has no name for.
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
