//! Profiles: whose locks a lock takes part in.
//!
//! A fleet that already locks has a format: what is at a key, what a release tells those who wait. A profile names one, and
//! chooses a kind of lock (`lock_kind`) that excludes, and is excluded by, those who use it. It is data: validity, quorum,
//! undo and waiting are those of every lock. Not here: the formats, which are the scripts (`script`).

use std::fmt;

use super::lock_kind::{LockKind, REDISSON, REDISSON_FENCED};
use super::request::LockMode;

/// Whose locks a lock takes part in. See [the manual](crate::manual::profiles) for the libraries of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Profile {
    /// Of redbolt, and of all who take a lock by `SET NX PX` and delete it where it has their own value.
    #[default]
    Plain,
    /// Of Redisson: its `RLock`, and its `RFencedLock` if a fencing token is wanted.
    Redisson,
}

impl Profile {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Plain, Self::Redisson];

    /// Its name on the command line and in records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Redisson => "redisson",
        }
    }

    /// The profile of this name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.name() == name)
    }

    /// What a lock of this profile cannot be, if it was asked for that: its format has no room for it.
    pub(super) fn cannot(self, mode: LockMode, keys: usize) -> Option<&'static str> {
        match (self, mode) {
            (Self::Plain, _) => None,
            (_, LockMode::Shared) => Some("be shared: its format has no readers"),
            (_, LockMode::Permit { .. }) => Some("have permits: its format has none"),
            _ if keys > 1 => Some("be on several resources: its format has one key"),
            _ => None,
        }
    }

    /// The kind of lock that it is, with a fencing token or without; `None` if that is one of redbolt's own.
    pub(super) fn kind(self, fenced: bool) -> Option<&'static LockKind> {
        match (self, fenced) {
            (Self::Plain, _) => None,
            (Self::Redisson, false) => Some(&REDISSON),
            (Self::Redisson, true) => Some(&REDISSON_FENCED),
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_known_by_its_name() {
        for profile in Profile::ALL {
            assert_eq!(Profile::of_name(profile.name()), Some(profile));
        }
        assert_eq!(Profile::of_name("jedisson"), None);
    }

    #[test]
    fn what_a_format_has_no_room_for_is_refused() {
        let of = |profile: Profile, mode, keys| profile.cannot(mode, keys).is_some();
        assert!(!of(Profile::Plain, LockMode::Shared, 7));
        assert!(!of(Profile::Redisson, LockMode::Exclusive, 1));
        assert!(of(Profile::Redisson, LockMode::Exclusive, 2));
        assert!(of(Profile::Redisson, LockMode::Shared, 1));
        assert!(of(Profile::Redisson, LockMode::Permit { of: 3 }, 1));
    }
}
