//! The abilities of a node, as far as its link has found out.
//!
//! Locks need commands that an ACL can forbid and a configuration can rename, and some are
//! optional. The handshake finds out without a write. A server checks that a command exists, that
//! the user may run it and that it takes writes, before it reads the arguments (but not before it
//! counts them). So the handshake sends a script without keys, a `SET` whose options exclude each
//! other, and a `DEL` without keys.

use std::fmt;

use crate::proto::classify::{ServerError, classify};
use crate::proto::lock_kind::CompareAndDelete;
use crate::proto::vote::Cause;

/// The abilities of a node on one link.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Capabilities {
    /// The right to `EVAL`. Extension and undo are scripts, so a node without it gets no requests.
    scripts: Ability,
    /// The right to `EVALSHA`, for scripts that were sent before.
    digests: Ability,
    /// Whether the node takes writes now, as opposed to `NOREPLICAS` and the like.
    writes: Ability,
    /// The commands in the undo scripts. Only an undo, or a script that rehearses one, shows this,
    /// so it outlives connections. A user without a password has it until the node refuses.
    undo: Ability,
    /// The keys and commands of the queue of waiters. A node that refuses them is used without it.
    queue: Ability,
    /// The server's own compare-and-delete, if it has one that this user may run.
    compare_and_delete: Option<CompareAndDelete>,
    version: Option<Version>,
}

impl Capabilities {
    /// Creates the abilities of a node before the first connection.
    pub(super) fn of_user(has_password: bool) -> Self {
        let undo = if has_password { Ability::Unknown } else { Ability::Given };
        Self { undo, ..Self::default() }
    }

    /// Replaces everything that a handshake can find out by what one has found.
    pub(super) fn learn(&mut self, found: Self) {
        *self = Self { undo: self.undo, ..found };
    }

    /// Forgets what the last connection has shown.
    pub(super) fn reset(&mut self) {
        self.learn(Self::default());
    }

    pub(super) fn set_scripts(&mut self, ability: Ability) {
        self.scripts = ability;
    }

    pub(super) fn set_digests(&mut self, ability: Ability) {
        self.digests = ability;
    }

    /// Returns whether a script that was sent before goes by its digest.
    #[inline]
    pub(super) fn go_by_digest(&self) -> bool {
        self.digests.is_given()
    }

    pub(crate) fn writes(&self) -> Ability {
        self.writes
    }

    pub(crate) fn set_writes(&mut self, ability: Ability) {
        self.writes = ability;
    }

    pub(crate) fn set_undo(&mut self, ability: Ability) {
        self.undo = ability;
    }

    pub(crate) fn queue(&self) -> Ability {
        self.queue
    }

    pub(crate) fn set_queue(&mut self, ability: Ability) {
        self.queue = ability;
    }

    #[inline]
    pub(crate) fn compare_and_delete(&self) -> Option<CompareAndDelete> {
        self.compare_and_delete
    }

    pub(crate) fn set_compare_and_delete(&mut self, command: Option<CompareAndDelete>) {
        self.compare_and_delete = command;
    }

    pub(super) fn version(&self) -> Option<Version> {
        self.version
    }

    pub(super) fn set_version(&mut self, version: Option<Version>) {
        self.version = version;
    }

    /// Returns whether an undo is known to work on the node.
    #[inline]
    pub(crate) fn can_undo(&self) -> bool {
        // A grant that cannot be undone keeps all others out for its whole TTL.
        self.scripts.is_given() && self.undo.is_given()
    }
}

/// The ability of a node to do one thing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ability {
    /// The ability was not tried, or the answer is pending.
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

/// Returns what an error shows about a command whose arguments have no effect.
pub(super) fn tried(text: &[u8]) -> Ability {
    match classify(text) {
        // The error is in the arguments, and all checks before them have passed.
        ServerError::Cause(Cause::ServerError) | ServerError::NoScript => Ability::Given,
        // Locks may use other keys than the one in this command.
        ServerError::Cause(Cause::NoPermission) if is_about_keys(text) => Ability::Given,
        ServerError::Cause(cause) => Ability::Refused(cause),
    }
}

/// Matches `no permissions to access one of the keys used as arguments` and `No permissions to
/// access a key`.
fn is_about_keys(text: &[u8]) -> bool {
    memchr::memmem::find(text, b" access ").is_some()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version([u16; 3]);

impl Version {
    /// The first version that has all commands of a lock.
    pub(crate) const OLDEST: Self = Self([5, 0, 0]);

    /// Reads `7.0.15`. Missing numbers are zero.
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

    /// The texts are those of Redis 5.0, 6.2, 7.0.15 and 7.2. Valkey and Redis 8 have those of 7.2.
    #[test]
    fn errors_that_come_before_the_arguments_are_refusals() {
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
