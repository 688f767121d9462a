//! A holder changes its mode: a reader that tries to become a writer, and a writer that becomes a reader.
//!
//! Nothing is converted. The holder makes a second claim beside the one that it has, under a lock that only the core
//! knows, its *companion*. On the nodes the second claim names the first, which is not in its way; apart from
//! that each is a claim as any other, with a token, a lease and extensions of its own. When the second is granted,
//! the two locks change places, so that the caller's is always the one in force.
//!
//! - A reader that has become a writer keeps its first claim as the companion's, extended with the other one.
//! - A writer that becomes a reader is one from its call on. Its first claim is let go of as a whole once a quorum has
//!   granted the second one, and never before: no node is counted for both.
//!
//! Not here: how a claim names another one, see `claims` and `lock_kind`; and asking, holding and letting go, which are as
//! for every lock.

mod companion;

use crate::proto::names::LockId;

/// What a lock has to do with a change of its holder's mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModeChange {
    None,
    /// It is the companion of this lock.
    Companion(LockId),
    /// It shares the resource, and its companion asks for it alone.
    Upgrading(LockId),
    /// It has the resource alone, and its companion shares it.
    Upgraded(LockId),
    /// It has the resource alone but counts as one who shares it, which its companion asks for.
    Downgrading(LockId),
    /// The same, but the ask was refused. The next one follows an extension.
    Delayed,
}

impl ModeChange {
    /// Whether no caller knows the lock.
    pub(crate) fn is_companion(self) -> bool {
        matches!(self, Self::Companion(_))
    }

    /// Whether its companion asks to share: until that is decided, its own claim does not get longer.
    pub(crate) fn is_downgrading(self) -> bool {
        matches!(self, Self::Downgrading(_))
    }

    /// Whether its companion asks.
    pub(crate) fn is_under_way(self) -> bool {
        matches!(self, Self::Upgrading(_) | Self::Downgrading(_))
    }

    /// Its companion, which holds its own claim.
    pub(crate) fn kept_reader(self) -> Option<LockId> {
        match self {
            Self::Upgraded(companion) => Some(companion),
            _ => None,
        }
    }

    /// Its companion, if it has one.
    pub(crate) fn companion(self) -> Option<LockId> {
        match self {
            Self::Upgrading(it) | Self::Upgraded(it) | Self::Downgrading(it) => Some(it),
            Self::None | Self::Companion(_) | Self::Delayed => None,
        }
    }

    /// The lock that it is the companion of.
    pub(crate) fn holder(self) -> Option<LockId> {
        match self {
            Self::Companion(of) => Some(of),
            _ => None,
        }
    }
}
