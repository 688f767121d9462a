//! Profiles: whose locks a lock takes part in.
//!
//! A fleet that already locks has a format: what is at a key, what a release tells those who wait. A profile names one, and
//! chooses a kind of lock (`lock_kind`) that excludes, and is excluded by, those who use it. It is data: validity, quorum,
//! undo and waiting are those of every lock. Not here: the formats, which are the scripts (`script`).

use std::fmt;

use super::lock_kind::{
    LockKind, REDIS_OBJECTS, REDISSON, REDISSON_FENCED, REDISSON_READ, REDISSON_WRITE, SETNX,
    SPRING,
};
use super::mutants::mutant;
use super::request::LockMode;

/// Whose locks a lock takes part in. See [the manual](crate::manual::profiles) for the libraries of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Profile {
    /// Of redbolt, and of all who take a lock by `SET NX PX` and delete it where it has their own value.
    #[default]
    Plain,
    /// Of redis-objects, a library for Ruby, in any version of it.
    RedisObjects,
    /// Of Redisson: its `RLock`, and its `RFencedLock` if a fencing token is wanted.
    Redisson,
    /// Of Redisson's `RReadWriteLock`, to be shared or not.
    RedissonRw,
    /// Of whoever locks by `SETNX` with the second at which the lock is over, and takes over what is.
    Setnx,
    /// Of Spring Integration's Redis lock registry, which is told of releases on its channel.
    Spring,
}

impl Profile {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Plain,
        Self::RedisObjects,
        Self::Redisson,
        Self::RedissonRw,
        Self::Setnx,
        Self::Spring,
    ];

    /// Its name on the command line and in records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::RedisObjects => "redis-objects",
            Self::Redisson => "redisson",
            Self::RedissonRw => "redisson-rw",
            Self::Setnx => "setnx",
            Self::Spring => "spring",
        }
    }

    /// The profile of this name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.name() == name)
    }

    /// What a lock of this profile cannot be, if it was asked for that: its format has no room for it.
    pub(super) fn cannot(self, mode: LockMode, keys: usize, fenced: bool) -> Option<&'static str> {
        match (self, mode) {
            (Self::Plain, _) => None,
            (Self::RedissonRw, LockMode::Shared) if !fenced && keys == 1 => None,
            (_, LockMode::Shared) if self != Self::RedissonRw => {
                Some("be shared: its format has no readers")
            }
            (_, LockMode::Permit { .. }) => Some("have permits: its format has none"),
            _ if keys > 1 => Some("be on several resources: its format has one key"),
            _ if fenced && self != Self::Redisson => {
                Some("have a fencing token: others of its format count nothing")
            }
            _ => None,
        }
    }

    /// Why who has a lock of this profile cannot change its mode.
    pub(super) fn cannot_change_mode(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::RedissonRw => {
                Some("change its mode: only redbolt's own format has room for both")
            }
            _ => self.cannot(LockMode::Shared, 1, false),
        }
    }

    /// The same, if it was asked for under this name.
    pub(super) fn cannot_be(self, name: &[u8]) -> Option<&'static str> {
        let colon = || name.iter().position(|&byte| byte == b':');
        let is_in_registry = || colon().is_some_and(|at| at > 0);
        (self == Self::Spring && !is_in_registry())
            .then_some("have this name: it has to be the registry's key, a colon and the lock's")
    }

    /// The kind of lock that it is in this mode, with a fencing token or without; `None` if that is one of redbolt's own.
    pub(super) fn kind(self, mode: LockMode, fenced: bool) -> Option<&'static LockKind> {
        if mutant!(WriterReads) && self == Self::RedissonRw {
            return Some(&REDISSON_READ);
        }
        match (self, fenced) {
            (Self::Plain, _) => None,
            (Self::RedisObjects, _) => Some(&REDIS_OBJECTS),
            (Self::Redisson, false) => Some(&REDISSON),
            (Self::Redisson, true) => Some(&REDISSON_FENCED),
            (Self::RedissonRw, _) if mode == LockMode::Shared => Some(&REDISSON_READ),
            (Self::RedissonRw, _) => Some(&REDISSON_WRITE),
            (Self::Setnx, _) => Some(&SETNX),
            (Self::Spring, _) => Some(&SPRING),
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
        let of = |profile: Profile, mode, keys| profile.cannot(mode, keys, false).is_some();
        assert!(!of(Profile::Plain, LockMode::Shared, 7));
        assert!(!of(Profile::Redisson, LockMode::Exclusive, 1));
        assert!(of(Profile::Redisson, LockMode::Exclusive, 2));
        assert!(of(Profile::Redisson, LockMode::Shared, 1));
        assert!(of(Profile::Redisson, LockMode::Permit { of: 3 }, 1));
        let rw = Profile::RedissonRw;
        assert!(!of(rw, LockMode::Shared, 1) && !of(rw, LockMode::Exclusive, 1));
        assert!(of(rw, LockMode::Shared, 2) && of(rw, LockMode::Permit { of: 3 }, 1));
        assert!(rw.cannot(LockMode::Shared, 1, true).is_some());
        assert!(rw.cannot_change_mode().is_some() && Profile::Plain.cannot_change_mode().is_none());
        let counts = |profile: Profile| profile.cannot(LockMode::Exclusive, 1, true).is_none();
        assert!(counts(Profile::Plain) && counts(Profile::Redisson) && !counts(Profile::Spring));
        for (name, is_refused) in [("job", true), (":job", true), ("shop:job", false)] {
            assert_eq!(Profile::Spring.cannot_be(name.as_bytes()).is_some(), is_refused, "{name}");
            assert_eq!(Profile::Plain.cannot_be(name.as_bytes()), None);
        }
    }
}
