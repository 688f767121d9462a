//! The wire formats of other libraries.
//!
//! A format defines the data at a key while a lock is held, and what a release publishes. Each
//! format has a folder and is one [`Format`], to which a profile points. Invariant: only a format's
//! folder, `profiles` and the table of scripts name its library, so that a program links only the
//! formats that it uses.

pub(super) mod plain;
mod profiles;
pub(super) mod python;
pub(super) mod redisson;
pub(super) mod spring;
pub(super) mod symfony;
pub(super) mod timed;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ptr;

pub use super::key_state::{DataKind, Foreign, ForeignLock, KeyState, holder_of};
pub use super::lock_kind::{Command, LockKind};
use super::lock_mode::LockMode;
use super::mutants::mutant;
use super::profile::Profile;
use super::script::definition::Script;
use super::script::force_unlock::FORCE_UNLOCK;

/// Returns whether one of these formats, or that of `own`, keeps a key of this name with its locks.
pub(super) fn keeps(formats: &[Profile], own: Profile, key: &[u8]) -> bool {
    let formats = formats.iter().chain([&own]).filter_map(|profile| profile.format());
    formats.into_iter().any(|format| (format.keeps)(key))
}

/// Returns the first of these formats that recognises the data at a key, and the state of the key.
pub(super) fn recognise(
    formats: impl IntoIterator<Item = Profile>,
    key: &[u8],
    data: &Data<'_>,
) -> Option<(&'static Format, KeyState)> {
    let mut formats = formats.into_iter().filter_map(Profile::format);
    // A string may have the form of several formats, so the order of the caller decides.
    formats.find_map(|format| Some((format, (format.recognise)(key, data)?)))
}

/// Returns the names of the profiles that have keys of this type. Names, so that no format is
/// linked.
pub(crate) fn names_for(kind: &DataKind) -> &'static [&'static str] {
    match kind {
        DataKind::Hash => &["redisson", "redisson-rw"],
        DataKind::SortedSet => &["symfony"],
        DataKind::String { .. } => &["python-redis-lock", "redis-objects", "setnx", "spring"],
        _ => &[],
    }
}

/// The data at a key, as a node has reported it.
#[derive(Debug)]
#[non_exhaustive]
pub enum Data<'a> {
    /// The beginning of a string, without the mark of redbolt's queue.
    String(&'a [u8]),
    /// The values and names of all fields of a hash.
    Hash(&'a [(&'a str, &'a str)]),
    /// A sorted set.
    SortedSet {
        /// The number of members with a score later than the node's clock.
        count: usize,
        /// Up to 2,048 of these members, each preceded by the ms until its score.
        members: &'a [(&'a str, &'a str)],
    },
}

/// Names the channels on which releases of a lock are published.
type ChannelsOf = fn(&[u8]) -> Vec<Vec<u8>>;

/// The wire format of another library. Each of its locks is on one resource.
#[non_exhaustive]
pub struct Format {
    /// The name on the command line and in records.
    pub name: &'static str,
    /// The scripts of this format alone.
    pub scripts: &'static [&'static Script],
    /// The kind of an exclusive lock.
    pub exclusive: &'static LockKind,
    /// The kind of a shared lock, if the format has readers.
    pub shared: Option<&'static LockKind>,
    /// The kind of an exclusive lock with a fencing token, if the format has a counter.
    pub fenced: Option<&'static LockKind>,
    /// Returns why a lock cannot have this name, or `None` if it can.
    pub cannot_be: fn(&[u8]) -> Option<&'static str>,
    /// Returns whether a key of this name is kept with locks, so that it cannot be a lock.
    pub keeps: fn(&[u8]) -> bool,
    /// Returns the channels on which releases of the lock with this name are published.
    pub channels: Option<ChannelsOf>,
    /// Whether every release is published, so that a subscriber need not poll.
    pub publishes_every_release: bool,
    /// Returns the state of a key with this name and data, if the data has this format.
    pub recognise: fn(&[u8], &Data<'_>) -> Option<KeyState>,
    /// The member or field of a lock that is not a holder.
    pub mark: &'static str,
    /// The script that removes holders which an operator has seen. KEYS is the lock. ARGV is the
    /// type of the key, followed by the string, the members or the fields that were seen. The reply
    /// is the number of those that were removed.
    pub force_unlock: &'static Script,
}

impl Format {
    /// Returns a format with this name and kind of lock, and no other features.
    #[must_use]
    pub const fn new(name: &'static str, exclusive: &'static LockKind) -> Self {
        Self {
            name,
            scripts: &[],
            exclusive,
            shared: None,
            fenced: None,
            cannot_be: |_| None,
            keeps: |_| false,
            channels: None,
            publishes_every_release: false,
            recognise: |_, _| None,
            mark: "",
            force_unlock: &FORCE_UNLOCK,
        }
    }

    pub(super) fn is_holder(&self, name: &str) -> bool {
        name != self.mark
    }

    pub(super) fn has_readers(&self) -> bool {
        self.shared.is_some()
    }

    /// Returns why the format does not support such a lock, or `None` if it does.
    pub(super) fn cannot(&self, mode: LockMode, keys: usize, fenced: bool) -> Option<&'static str> {
        match mode {
            LockMode::Shared if !self.has_readers() => Some("be shared: its format has no readers"),
            LockMode::Shared if !fenced && keys == 1 => None,
            LockMode::Permit { .. } => Some("have permits: its format has none"),
            _ if keys > 1 => Some("be on several resources: its format has one key"),
            _ if fenced && self.fenced.is_none() => {
                Some("have a fencing token: others of its format count nothing")
            }
            _ => None,
        }
    }

    pub(super) fn kind(&self, mode: LockMode, fenced: bool) -> &'static LockKind {
        let mut mode = mode;
        // Only a format that has readers and notifies waiters.
        if mutant!(WriterReads) && self.has_readers() && self.channels.is_some() {
            mode = LockMode::Shared;
        }
        // A format without such a kind was refused by `cannot` before.
        let other = match mode {
            LockMode::Shared => self.shared,
            _ if fenced => self.fenced,
            _ => None,
        };
        other.unwrap_or(self.exclusive)
    }
}

/// Compares addresses: each format is a static and equal only to itself.
impl PartialEq for Format {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self, other)
    }
}

impl Eq for Format {}

impl Hash for Format {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_profile_is_named_for_one_type_of_key() {
        let string = Foreign::string(b"", None, None).kind;
        let kinds = [DataKind::Hash, DataKind::SortedSet, string];
        let mut names = kinds.iter().flat_map(names_for).copied().collect::<Vec<_>>();
        names.sort_unstable();
        let profiles = Profile::ALL.into_iter().filter(|profile| profile.format().is_some());
        assert_eq!(names, profiles.map(Profile::name).collect::<Vec<_>>());
    }
}
