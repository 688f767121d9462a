//! Profiles: with which library's locks a lock takes part.
//!
//! A profile is redbolt's own format or points to the [`Format`] of another library. It is data: validity, quorum, undo and
//! waiting are those of every lock. Invariant: a program links only the formats whose profiles it names, so this file names none.
//! Their constants are in `format::profiles`.

use std::fmt;

use super::format::Format;
use super::lock_kind::LockKind;
use super::lock_mode::LockMode;

/// With which library's locks a lock takes part. See [the manual](crate::manual::profiles) for the libraries of each.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Profile(Option<&'static Format>);

impl Profile {
    /// The default: redbolt's own locks, and those of libraries that take a lock by `SET NX PX` and delete it if it has their
    /// value.
    pub const PLAIN: Self = Self(None);

    /// The profile of a format.
    #[doc(hidden)]
    #[must_use]
    pub const fn of(format: &'static Format) -> Self {
        Self(Some(format))
    }

    /// Its format; `None` for redbolt's own.
    pub(super) fn format(self) -> Option<&'static Format> {
        self.0
    }

    /// Its name on the command line and in records.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.format().map_or("plain", |format| format.name)
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
        (self.format()?.cannot_be)(name)
    }

    /// Whether its members tell who waits of releases.
    pub(super) fn has_channels(self) -> bool {
        self.format().is_some_and(|format| format.channels.is_some())
    }

    /// Whether its members publish each release, so that a subscriber need not ask in between.
    pub(super) fn publishes_every_release(self) -> bool {
        self.format().is_some_and(|format| format.publishes_every_release)
    }

    /// The channels on which releases of a lock with this name are published.
    pub(super) fn channels(self, name: &[u8]) -> Vec<Vec<u8>> {
        self.format().and_then(|format| format.channels).map_or_else(Vec::new, |of| of(name))
    }

    /// The kind of lock that it is in this mode, with a fencing token or without; `None` if that is one of redbolt's own.
    pub(super) fn kind(self, mode: LockMode, fenced: bool) -> Option<&'static LockKind> {
        self.format().map(|format| format.kind(mode, fenced))
    }
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
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
    fn releases_are_published_where_the_library_itself_subscribes() {
        let of = |profile: Profile, name: &str| {
            let channels = profile.channels(name.as_bytes()).into_iter();
            let channels = channels.map(|channel| String::from_utf8(channel).unwrap());
            channels.collect::<Vec<_>>()
        };
        assert_eq!(of(Profile::REDISSON, "job"), ["redisson_lock__channel:{job}"]);
        assert_eq!(of(Profile::REDISSON, "{a}:job"), ["redisson_lock__channel:{a}:job"]);
        assert_eq!(of(Profile::REDISSON_RW, "job"), ["redisson_rwlock:{job}"]);
        assert_eq!(of(Profile::SPRING, "shop:job"), ["shop-channel:shop:job"]);
        let either = ["shop-channel:shop:eu:job", "shop:eu-channel:shop:eu:job"];
        assert_eq!(of(Profile::SPRING, "shop:eu:job"), either);
        assert_eq!(of(Profile::SPRING, &format!("shop{}", ":".repeat(40))).len(), 16);
        for profile in Profile::ALL {
            assert_eq!(profile.has_channels(), !of(profile, "shop:job").is_empty(), "{profile}");
        }
    }

    #[test]
    fn what_a_format_has_no_room_for_is_refused() {
        let of = |profile: Profile, mode, keys| profile.cannot(mode, keys, false).is_some();
        assert!(!of(Profile::PLAIN, LockMode::Shared, 7));
        assert!(!of(Profile::REDISSON, LockMode::Exclusive, 1));
        assert!(of(Profile::REDISSON, LockMode::Exclusive, 2));
        assert!(of(Profile::REDISSON, LockMode::Shared, 1));
        assert!(of(Profile::REDISSON, LockMode::Permit { of: 3 }, 1));
        for rw in [Profile::REDISSON_RW, Profile::SYMFONY] {
            assert!(!of(rw, LockMode::Shared, 1) && !of(rw, LockMode::Exclusive, 1));
            assert!(of(rw, LockMode::Shared, 2) && of(rw, LockMode::Permit { of: 3 }, 1));
            assert!(rw.cannot(LockMode::Shared, 1, true).is_some());
            assert!(rw.cannot(LockMode::Exclusive, 1, true).is_some());
            assert!(rw.cannot_change_mode().is_some());
        }
        assert!(Profile::PLAIN.cannot_change_mode().is_none());
        let counts = |profile: Profile| profile.cannot(LockMode::Exclusive, 1, true).is_none();
        assert!(counts(Profile::PLAIN) && counts(Profile::REDISSON) && !counts(Profile::SPRING));
        for (name, is_refused) in [("job", true), (":job", true), ("shop:job", false)] {
            assert_eq!(Profile::SPRING.cannot_be(name.as_bytes()).is_some(), is_refused, "{name}");
            assert_eq!(Profile::PLAIN.cannot_be(name.as_bytes()), None);
        }
        for (name, is_refused) in [("job", true), ("lock:", true), ("lock:job", false)] {
            let refused = Profile::PYTHON_REDIS_LOCK.cannot_be(name.as_bytes()).is_some();
            assert_eq!(refused, is_refused, "{name}");
        }
    }
}
