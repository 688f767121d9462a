//! The profiles of all formats, and their names.

use super::{python, redisson, spring, symfony, timed};
use crate::proto::profile::Profile;

impl Profile {
    /// The locks of python-redis-lock, a Python library whose waiters block on a list.
    pub const PYTHON_REDIS_LOCK: Self = Self::of(&python::PYTHON_REDIS_LOCK);
    /// The locks of redis-objects, a Ruby library, in any of its versions.
    pub const REDIS_OBJECTS: Self = Self::of(&timed::REDIS_OBJECTS);
    /// The locks of Redisson: its `RLock`, or its `RFencedLock` if a fencing token is requested.
    pub const REDISSON: Self = Self::of(&redisson::REDISSON);
    /// The locks of Redisson's `RReadWriteLock`, shared or exclusive.
    pub const REDISSON_RW: Self = Self::of(&redisson::read_write::REDISSON_RW);
    /// The locks of the `SETNX` recipe: the value is the second since 1970 from which others may
    /// take the lock over.
    pub const SETNX: Self = Self::of(&timed::SETNX);
    /// The locks of Spring Integration's Redis lock registry. Releases are published on its
    /// channel.
    pub const SPRING: Self = Self::of(&spring::SPRING);
    /// The locks of Symfony's lock component in Redis, shared or exclusive.
    pub const SYMFONY: Self = Self::of(&symfony::SYMFONY);

    /// All profiles. A program that uses this, or [`of_name`](Self::of_name), links all formats.
    pub const ALL: [Self; 8] = [
        Self::PLAIN,
        Self::PYTHON_REDIS_LOCK,
        Self::REDIS_OBJECTS,
        Self::REDISSON,
        Self::REDISSON_RW,
        Self::SETNX,
        Self::SPRING,
        Self::SYMFONY,
    ];

    /// Returns the profile of this name, or `None` if there is none.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.name() == name)
    }
}
