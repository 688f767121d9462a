//! Profiles: the library with whose locks a lock is compatible.
//!
//! A profile is redbolt's own format or points to the [`Format`] of another library. It is data:
//! validity, quorum, undo and waiting are those of every lock. Invariant: this file names no
//! format, so that a program links only those that it uses. The constants of profiles are in
//! `format::profiles`.

use std::fmt;

use super::format::Format;
use super::lock_kind::LockKind;
use super::lock_mode::LockMode;

/// The library with whose locks a lock is compatible. [The manual](crate::manual::profiles) lists
/// the libraries of each profile.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Profile(Option<&'static Format>);

impl Profile {
    /// The default: redbolt's own locks, and those of libraries that acquire with `SET NX PX` and
    /// delete the key if it has their value.
    pub const PLAIN: Self = Self(None);

    /// Returns the profile of a format.
    #[doc(hidden)]
    #[must_use]
    pub const fn of(format: &'static Format) -> Self {
        Self(Some(format))
    }

    pub(super) fn format(self) -> Option<&'static Format> {
        self.0
    }

    /// Returns the name for the command line and for records.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.format().map_or("plain", |format| format.name)
    }

    /// Returns why the format does not support such a lock; `None` if it does.
    pub(super) fn cannot(self, mode: LockMode, keys: usize, fenced: bool) -> Option<&'static str> {
        self.format()?.cannot(mode, keys, fenced)
    }

    /// Returns why locks of this profile cannot change their mode; `None` if they can.
    pub(super) fn cannot_change_mode(self) -> Option<&'static str> {
        match self.format()?.has_readers() {
            // A change of mode has two claims at once, for which other formats have no place.
            true => Some("change its mode: only redbolt's own format has room for both"),
            false => self.cannot(LockMode::Shared, 1, false),
        }
    }

    /// Returns why the format does not support a lock of this name; `None` if it does.
    pub(super) fn cannot_be(self, name: &[u8]) -> Option<&'static str> {
        (self.format()?.cannot_be)(name)
    }

    pub(super) fn has_channels(self) -> bool {
        self.format().is_some_and(|format| format.channels.is_some())
    }

    /// Returns whether the library publishes every release, so that a subscriber need not poll.
    pub(super) fn publishes_every_release(self) -> bool {
        self.format().is_some_and(|format| format.publishes_every_release)
    }

    /// Returns the channels on which releases of a lock of this name are published.
    pub(super) fn channels(self, name: &[u8]) -> Vec<Vec<u8>> {
        self.format().and_then(|format| format.channels).map_or_else(Vec::new, |of| of(name))
    }

    /// Returns the kind of a lock in this mode, with a fencing token or without; `None` for
    /// redbolt's own kinds.
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
    fn releases_are_published_on_the_channels_of_the_library() {
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
    fn a_format_refuses_what_it_does_not_support() {
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
