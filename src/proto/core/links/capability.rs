//! What a node can and may do, as far as its link has found out.
//!
//! Locks need commands that an ACL can forbid and a configuration can rename, and some are optional. The
//! handshake finds out without writing anything. A server checks that a command exists, that the user may run
//! it, and that it takes writes, before it looks at the arguments; so it is given arguments that come to
//! nothing: a script without keys, a `SET` whose options exclude each other, a `DEL` of no key. Not here: what
//! is sent, see `handshake`, and what follows from it, see the folder's `mod.rs`.

use std::fmt;

use crate::proto::classify::{ServerError, classify};
use crate::proto::lock_kind::CompareAndDelete;
use crate::proto::vote::Cause;

/// What a node can and may do for us. One value for each link.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Capabilities {
    /// `EVAL`. Extension and undo are scripts: without them nothing is asked of the node.
    scripts: Ability,
    /// `EVALSHA`: a script that was sent once goes by its digest.
    digests: Ability,
    /// It takes writes now, as opposed to `NOREPLICAS` and the like.
    writes: Ability,
    /// What the scripts do to undo: known by an undo, or by a script that has rehearsed one, and by nothing
    /// that a handshake could ask. So it outlives connections. A user without a password is taken for one who
    /// may do it, until the node says otherwise.
    undo: Ability,
    /// The keys and commands of the queue of waiters. A node that refuses them is asked without it.
    queue: Ability,
    /// The server's own command for what the undo of most locks does, if it has one and lets us run it.
    compare_and_delete: Option<CompareAndDelete>,
    /// The server's version, if it is known.
    version: Option<Version>,
}

impl Capabilities {
    /// Of a node that nobody has connected to yet.
    pub(super) fn of_user(has_password: bool) -> Self {
        let undo = if has_password { Ability::Unknown } else { Ability::Given };
        Self { undo, ..Self::default() }
    }

    /// What a handshake has found out takes the place of what it can find out.
    pub(super) fn learn(&mut self, found: Self) {
        *self = Self { undo: self.undo, ..found };
    }

    /// Forgets what was found out on the last connection.
    pub(super) fn reset(&mut self) {
        self.learn(Self::default());
    }

    pub(super) fn set_scripts(&mut self, ability: Ability) {
        self.scripts = ability;
    }

    pub(super) fn set_digests(&mut self, ability: Ability) {
        self.digests = ability;
    }

    /// Whether a script that was sent once goes by its digest.
    #[inline]
    pub(super) fn go_by_digest(&self) -> bool {
        self.digests.is_given()
    }

    /// Whether it takes writes now.
    pub(crate) fn writes(&self) -> Ability {
        self.writes
    }

    pub(crate) fn set_writes(&mut self, ability: Ability) {
        self.writes = ability;
    }

    pub(crate) fn set_undo(&mut self, ability: Ability) {
        self.undo = ability;
    }

    /// Returns whether waiters can queue there.
    pub(crate) fn queue(&self) -> Ability {
        self.queue
    }

    pub(crate) fn set_queue(&mut self, ability: Ability) {
        self.queue = ability;
    }

    /// The server's own command for what the undo of most locks does.
    #[inline]
    pub(crate) fn compare_and_delete(&self) -> Option<CompareAndDelete> {
        self.compare_and_delete
    }

    /// What is to be used as such, if anything.
    pub(crate) fn set_compare_and_delete(&mut self, command: Option<CompareAndDelete>) {
        self.compare_and_delete = command;
    }

    /// The server's version, if it is known.
    pub(super) fn version(&self) -> Option<Version> {
        self.version
    }

    pub(super) fn set_version(&mut self, version: Option<Version>) {
        self.version = version;
    }

    /// Whether what the node grants is known to be undone there when it is to be.
    #[inline]
    pub(crate) fn can_undo(&self) -> bool {
        // A grant that cannot be undone keeps all others out for its whole TTL.
        self.scripts.is_given() && self.undo.is_given()
    }
}

/// Whether a node can and may do one thing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ability {
    /// It was not tried, or the answer is not there yet.
    #[default]
    Unknown,
    Given,
    Refused(Cause),
}

impl Ability {
    fn is_given(self) -> bool {
        self == Self::Given
    }
}

/// What an error to a command says that was called in vain.
pub(super) fn tried(text: &[u8]) -> Ability {
    match classify(text) {
        // It lies in the arguments: all that comes before them is well.
        ServerError::Cause(Cause::ServerError) | ServerError::NoScript => Ability::Given,
        // The keys of locks may be others than the one that was named.
        ServerError::Cause(Cause::NoPermission) if is_about_keys(text) => Ability::Given,
        ServerError::Cause(cause) => Ability::Refused(cause),
    }
}

/// `no permissions to access one of the keys used as arguments`, `No permissions to access a key`.
fn is_about_keys(text: &[u8]) -> bool {
    memchr::memmem::find(text, b" access ").is_some()
}

/// A server's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version([u16; 3]);

impl Version {
    /// The first that has all commands of a lock.
    pub(crate) const OLDEST: Self = Self([5, 0, 0]);

    /// Reads `7.0.15`; numbers that are missing are zero.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let mut numbers = [0; 3];
        for (number, part) in numbers.iter_mut().zip(std::str::from_utf8(text).ok()?.split('.')) {
            let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
            *number = part[..digits].parse().ok()?;
        }
        Some(Self(numbers))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.0;
        write!(f, "{major}.{minor}.{patch}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words are those of Redis 5.0, 6.2, 7.0.15 and 7.2, which Valkey and Redis 8 share with the last.
    #[test]
    fn what_is_refused_before_the_arguments_are_read() {
        let forbidden = [
            "ERR unknown command `SET`, with args beginning with: `redbolt:guard`, ``, `NX`, `XX`, ",
            "ERR unknown command 'SET', with args beginning with: 'redbolt:guard' '' 'NX' 'XX' ",
            "NOPERM this user has no permissions to run the 'set' command or its subcommand",
            "NOPERM this user has no permissions to run the 'set' command",
            "NOPERM User locks has no permissions to run the 'set' command",
            "NOREPLICAS Not enough good replicas to write.",
            "OOM command not allowed when used memory > 'maxmemory'.",
        ];
        for text in forbidden {
            assert!(matches!(tried(text.as_bytes()), Ability::Refused(_)), "{text}");
        }
        let allowed = [
            "ERR syntax error",
            "ERR wrong number of arguments for 'del' command",
            "NOSCRIPT No matching script. Please use EVAL.",
            "NOPERM this user has no permissions to access one of the keys used as arguments",
            "NOPERM No permissions to access a key",
            "NOPERM User locks has no permissions to access the 'redbolt:guard' key",
        ];
        for text in allowed {
            assert_eq!(tried(text.as_bytes()), Ability::Given, "{text}");
        }
    }

    #[test]
    fn versions_are_in_order() {
        let version = |text: &str| Version::parse(text.as_bytes());
        assert!(version("4.0.14").unwrap() < Version::OLDEST);
        assert!(version("5.0.0").unwrap() >= Version::OLDEST);
        assert!(version("10").unwrap() > version("9.9.9").unwrap());
        assert_eq!(version("7.4.0-rc1").unwrap().to_string(), "7.4.0");
        assert_eq!((version(""), version("unstable")), (None, None));
    }
}
