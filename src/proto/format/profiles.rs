//! The profiles of all formats, by their names.

use super::{python, redisson, spring, symfony, timed};
use crate::proto::profile::Profile;

impl Profile {
    /// Locks of python-redis-lock, a library for Python whose waiters sleep on a list.
    pub const PYTHON_REDIS_LOCK: Self = Self::of(&python::PYTHON_REDIS_LOCK);
    /// Locks of redis-objects, a library for Ruby, in any version of it.
    pub const REDIS_OBJECTS: Self = Self::of(&timed::REDIS_OBJECTS);
    /// Locks of Redisson: its `RLock`, and its `RFencedLock` if a fencing token is wanted.
    pub const REDISSON: Self = Self::of(&redisson::REDISSON);
    /// Locks of Redisson's `RReadWriteLock`, shared or exclusive.
    pub const REDISSON_RW: Self = Self::of(&redisson::read_write::REDISSON_RW);
    /// Locks taken by `SETNX` with the second at which they end, which others take over then.
    pub const SETNX: Self = Self::of(&timed::SETNX);
    /// Locks of Spring Integration's Redis lock registry, which is notified of releases on its channel.
    pub const SPRING: Self = Self::of(&spring::SPRING);
    /// Locks of Symfony's lock component in Redis, shared or exclusive.
    pub const SYMFONY: Self = Self::of(&symfony::SYMFONY);

    /// All of them. A program that uses this, or [`of_name`](Self::of_name), links all formats.
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

    /// The profile of this name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.name() == name)
    }
}
