//! Profiles: whose locks a lock takes part in.
//!
//! A fleet that already locks has a format: what is at a key, what a release tells those who wait. A profile names one, and
//! chooses a kind of lock (`lock_kind`) that excludes, and is excluded by, those who use it. It is data: validity, quorum,
//! undo and waiting are those of every lock. Not here: the formats, see `format`.

use std::fmt;

use super::format::{Format, python, redisson, spring, symfony, timed};
use super::lock_kind::LockKind;
use super::mutants::mutant;
use super::request::LockMode;

/// Whose locks a lock takes part in. See [the manual](crate::manual::profiles) for the libraries of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Profile {
    /// Of redbolt, and of all who take a lock by `SET NX PX` and delete it where it has their own value.
    #[default]
    Plain,
    /// Of python-redis-lock, a library for Python, whose members sleep on a list.
    PythonRedisLock,
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
    /// Of Symfony's lock component in Redis, to be shared or not.
    Symfony,
}

impl Profile {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Plain,
        Self::PythonRedisLock,
        Self::RedisObjects,
        Self::Redisson,
        Self::RedissonRw,
        Self::Setnx,
        Self::Spring,
        Self::Symfony,
    ];

    /// Its format, unless that is redbolt's own.
    fn format(self) -> Option<&'static Format> {
        match self {
            Self::Plain => None,
            Self::PythonRedisLock => Some(&python::PYTHON_REDIS_LOCK),
            Self::RedisObjects => Some(&timed::REDIS_OBJECTS),
            Self::Redisson => Some(&redisson::REDISSON),
            Self::RedissonRw => Some(&redisson::read_write::REDISSON_RW),
            Self::Setnx => Some(&timed::SETNX),
            Self::Spring => Some(&spring::SPRING),
            Self::Symfony => Some(&symfony::SYMFONY),
        }
    }

    /// Its name on the command line and in records.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.format().map_or("plain", Format::name)
    }

    /// The profile of this name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.name() == name)
    }

    /// What a lock of this profile cannot be, if it was asked for that: its format has no room for it.
    pub(super) fn cannot(self, mode: LockMode, keys: usize, fenced: bool) -> Option<&'static str> {
        self.format()?.cannot(mode, keys, fenced)
    }

    /// Why who has a lock of this profile cannot change its mode.
    pub(super) fn cannot_change_mode(self) -> Option<&'static str> {
        match self.format()?.has_readers() {
            true => Some("change its mode: only redbolt's own format has room for both"),
            false => self.cannot(LockMode::Shared, 1, false),
        }
    }

    /// The same, if it was asked for under this name.
    pub(super) fn cannot_be(self, name: &[u8]) -> Option<&'static str> {
        self.format()?.cannot_be(name)
    }

    /// Whether its members tell who waits of releases.
    pub(super) fn has_channels(self) -> bool {
        self.format().is_some_and(Format::has_channels)
    }

    /// Whether they tell of every release, so that whoever hears them need not ask in between. A registry of Spring's may
    /// be one that tells nobody, and a writer of Redisson's that becomes a reader does not. Neither does a spin lock of Redisson's,
    /// whose format is that of the lock that does; nor one of ours whose user may not publish: who waits for them asks later.
    pub(super) fn tells_every_release(self) -> bool {
        self.format().is_some_and(Format::tells_every_release)
    }

    /// The channels on which they do so for a lock of this name. Where the key of a registry of Spring's ends is not to be
    /// seen, so that each of the first colons may be its end.
    pub(super) fn channels(self, name: &[u8]) -> Vec<Vec<u8>> {
        self.format().map_or_else(Vec::new, |format| format.channels(name))
    }

    /// The kind of lock that it is in this mode, with a fencing token or without; `None` if that is one of redbolt's own.
    pub(super) fn kind(self, mode: LockMode, fenced: bool) -> Option<&'static LockKind> {
        let mut mode = mode;
        if mutant!(WriterReads) && self == Self::RedissonRw {
            mode = LockMode::Shared;
        }
        self.format().map(|format| format.kind(mode, fenced))
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
    fn releases_are_told_where_the_library_itself_listens() {
        let of = |profile: Profile, name: &str| {
            let channels = profile.channels(name.as_bytes()).into_iter();
            let channels = channels.map(|channel| String::from_utf8(channel).unwrap());
            channels.collect::<Vec<_>>()
        };
        assert_eq!(of(Profile::Redisson, "job"), ["redisson_lock__channel:{job}"]);
        assert_eq!(of(Profile::Redisson, "{a}:job"), ["redisson_lock__channel:{a}:job"]);
        assert_eq!(of(Profile::RedissonRw, "job"), ["redisson_rwlock:{job}"]);
        assert_eq!(of(Profile::Spring, "shop:job"), ["shop-channel:shop:job"]);
        let either = ["shop-channel:shop:eu:job", "shop:eu-channel:shop:eu:job"];
        assert_eq!(of(Profile::Spring, "shop:eu:job"), either);
        assert_eq!(of(Profile::Spring, &format!("shop{}", ":".repeat(40))).len(), 16);
        for profile in Profile::ALL {
            assert_eq!(profile.has_channels(), !of(profile, "shop:job").is_empty(), "{profile}");
        }
    }

    #[test]
    fn what_a_format_has_no_room_for_is_refused() {
        let of = |profile: Profile, mode, keys| profile.cannot(mode, keys, false).is_some();
        assert!(!of(Profile::Plain, LockMode::Shared, 7));
        assert!(!of(Profile::Redisson, LockMode::Exclusive, 1));
        assert!(of(Profile::Redisson, LockMode::Exclusive, 2));
        assert!(of(Profile::Redisson, LockMode::Shared, 1));
        assert!(of(Profile::Redisson, LockMode::Permit { of: 3 }, 1));
        for rw in [Profile::RedissonRw, Profile::Symfony] {
            assert!(!of(rw, LockMode::Shared, 1) && !of(rw, LockMode::Exclusive, 1));
            assert!(of(rw, LockMode::Shared, 2) && of(rw, LockMode::Permit { of: 3 }, 1));
            assert!(rw.cannot(LockMode::Shared, 1, true).is_some());
            assert!(rw.cannot(LockMode::Exclusive, 1, true).is_some());
            assert!(rw.cannot_change_mode().is_some());
        }
        assert!(Profile::Plain.cannot_change_mode().is_none());
        let counts = |profile: Profile| profile.cannot(LockMode::Exclusive, 1, true).is_none();
        assert!(counts(Profile::Plain) && counts(Profile::Redisson) && !counts(Profile::Spring));
        for (name, is_refused) in [("job", true), (":job", true), ("shop:job", false)] {
            assert_eq!(Profile::Spring.cannot_be(name.as_bytes()).is_some(), is_refused, "{name}");
            assert_eq!(Profile::Plain.cannot_be(name.as_bytes()), None);
        }
        for (name, is_refused) in [("job", true), ("lock:", true), ("lock:job", false)] {
            let refused = Profile::PythonRedisLock.cannot_be(name.as_bytes()).is_some();
            assert_eq!(refused, is_refused, "{name}");
        }
    }
}
