//! The wire formats of other libraries.
//!
//! A format is what is at a key while a lock is held, and what a release publishes. Each has a folder with its scripts, its
//! kinds of lock, its names and its channels, and is one [`Format`], which a profile chooses. Validity, quorum, undo and
//! waiting are those of every lock.

pub(super) mod python;
pub(super) mod redisson;
pub(super) mod spring;
pub(super) mod symfony;
pub(super) mod timed;

use super::lock_kind::LockKind;
use super::request::LockMode;
use super::script::Script;

/// The scripts of all formats.
pub(super) static SCRIPTS: [&[&Script]; 6] = [
    python::SCRIPTS,
    redisson::SCRIPTS,
    redisson::read_write::SCRIPTS,
    spring::SCRIPTS,
    symfony::SCRIPTS,
    timed::SCRIPTS,
];

/// Whether a key of this name is one that a library keeps with its locks.
pub(super) fn is_beside(name: &[u8]) -> bool {
    python::is_beside(name) || redisson::is_beside(name)
}

/// Names the channels on which releases of a lock are published.
type ChannelsOf = fn(&[u8]) -> Vec<Vec<u8>>;

/// The wire format of another library. A lock of it is on one resource.
pub(super) struct Format {
    name: &'static str,
    exclusive: &'static LockKind,
    /// If the format has readers.
    shared: Option<&'static LockKind>,
    /// For an exclusive lock with a fencing token, if the format has a counter.
    fenced: Option<&'static LockKind>,
    cannot_be: fn(&[u8]) -> Option<&'static str>,
    channels: Option<ChannelsOf>,
    tells_every_release: bool,
}

impl Format {
    /// A format without a name, with this kind of lock and nothing more.
    const fn of(exclusive: &'static LockKind) -> Self {
        Self {
            name: "",
            exclusive,
            shared: None,
            fenced: None,
            cannot_be: |_| None,
            channels: None,
            tells_every_release: false,
        }
    }

    /// Its name on the command line and in records.
    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// Whether it has readers.
    pub(super) fn has_readers(&self) -> bool {
        self.shared.is_some()
    }

    /// What a lock of it cannot be, if it was asked for that: the format has no room for it.
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

    /// Why a lock of it cannot have this name, if it cannot.
    pub(super) fn cannot_be(&self, name: &[u8]) -> Option<&'static str> {
        (self.cannot_be)(name)
    }

    /// Whether releases are published on channels.
    pub(super) fn has_channels(&self) -> bool {
        self.channels.is_some()
    }

    /// Whether each release is published, so that a subscriber need not ask in between.
    pub(super) fn tells_every_release(&self) -> bool {
        self.tells_every_release
    }

    /// The channels on which releases of the lock with this name are published.
    pub(super) fn channels(&self, name: &[u8]) -> Vec<Vec<u8>> {
        self.channels.map_or_else(Vec::new, |of| of(name))
    }

    /// The kind of a lock of it.
    pub(super) fn kind(&self, mode: LockMode, fenced: bool) -> &'static LockKind {
        let other = match mode {
            LockMode::Shared => self.shared,
            _ if fenced => self.fenced,
            _ => None,
        };
        other.unwrap_or(self.exclusive)
    }
}
