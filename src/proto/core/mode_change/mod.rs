//! A change of a holder's mode: a reader becomes a writer, or a writer becomes a reader.
//!
//! Nothing is converted. The holder makes a second claim, under a lock that callers do not see, its
//! *companion*. On the nodes the second claim names the first, which is therefore not in its way.
//! Otherwise each is an ordinary claim, with its token, lease and extensions. When the second is
//! granted, the two locks exchange their claims, so that the caller's lock has the one in force.
//!
//! - A reader that has become a writer keeps its first claim as the companion's, and both are
//!   extended.
//! - A writer that becomes a reader is one as soon as it asks. Its first claim is released as a
//!   whole once a quorum has granted the second, and never before: no node counts for both.

mod companion;

use crate::proto::names::LockId;

/// The part of a lock in a change of its holder's mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModeChange {
    None,
    /// The companion of this lock.
    Companion(LockId),
    /// A reader whose companion requests the resource exclusively.
    Upgrading(LockId),
    /// A writer whose companion shares the resource.
    Upgraded(LockId),
    /// A writer that counts as a reader, and whose companion requests to share.
    Downgrading(LockId),
    /// A writer that counts as a reader, after a refused request to share. The next one follows an
    /// extension.
    Delayed,
}

impl ModeChange {
    /// Returns whether callers do not see the lock.
    pub(crate) fn is_companion(self) -> bool {
        matches!(self, Self::Companion(_))
    }

    /// Returns whether its companion requests to share. Until that is decided, its own claim is not
    /// extended.
    pub(crate) fn is_downgrading(self) -> bool {
        matches!(self, Self::Downgrading(_))
    }

    /// Returns whether its companion has a pending request.
    pub(crate) fn is_under_way(self) -> bool {
        matches!(self, Self::Upgrading(_) | Self::Downgrading(_))
    }

    /// Returns the companion that keeps the reader's claim.
    pub(crate) fn kept_reader(self) -> Option<LockId> {
        match self {
            Self::Upgraded(companion) => Some(companion),
            _ => None,
        }
    }

    pub(crate) fn companion(self) -> Option<LockId> {
        match self {
            Self::Upgrading(it) | Self::Upgraded(it) | Self::Downgrading(it) => Some(it),
            Self::None | Self::Companion(_) | Self::Delayed => None,
        }
    }

    /// Returns the lock that it is the companion of.
    pub(crate) fn holder(self) -> Option<LockId> {
        match self {
            Self::Companion(of) => Some(of),
            _ => None,
        }
    }
}
