//! A kind of lock as data: the commands that request, extend and undo it.
//!
//! Invariant: a new kind is another value of [`LockKind`], and no more code in the core. Commands
//! are encoded in `arguments`, and replies read in `answer`.

use super::profile::Profile;
use super::script::definition::{Grant, Loaded, Role, Script};
use super::script::{fair_queue, own as script};

/// The commands of a kind of lock.
#[derive(Debug)]
#[non_exhaustive]
pub struct LockKind {
    pub(super) ask: Command,
    pub(super) extend: Command,
    pub(super) undo: Command,
    /// The command that raises fencing counters, if the lock has a fencing token.
    pub(super) write_back: Command,
    /// The beginning of each token.
    pub(super) mark: &'static [u8],
    /// Whether only a request reports the remaining time of a lock in the way, because the TTL of
    /// the key is not that time.
    pub(super) is_read_by_ask: bool,
    /// The library with whose locks this kind is compatible.
    profile: Profile,
}

impl LockKind {
    /// Returns a kind of another library's locks, with its commands to request, extend and undo.
    #[must_use]
    pub const fn foreign(profile: Profile, [ask, extend, undo]: [Command; 3]) -> Self {
        Self { ask, extend, undo, profile, ..PLAIN }
    }

    /// Returns the same kind with tokens that begin with `mark`.
    #[must_use]
    pub const fn marked(self, mark: &'static [u8]) -> Self {
        Self { mark, ..self }
    }

    /// Returns the same kind, of which only a request reports the remaining time of a lock in the
    /// way.
    pub(super) const fn told_by_ask(self) -> Self {
        Self { is_read_by_ask: true, ..self }
    }

    /// Returns the same kind with another script that raises fencing counters.
    pub(super) const fn written_back_by(self, script: &'static Script) -> Self {
        Self { write_back: Command::Run(script), ..self }
    }

    pub(super) fn profile(&self) -> Profile {
        self.profile
    }
}

/// An exclusive lock on one resource: `SET NX PX`, followed by the restart guard's `PTTL`.
pub(super) const PLAIN: LockKind = LockKind {
    ask: Command::SetIfAbsent,
    extend: Command::Run(&script::EXTEND),
    undo: Command::Run(&script::UNDO),
    write_back: Command::Run(&script::WRITE_BACK),
    mark: b"",
    is_read_by_ask: false,
    profile: Profile::PLAIN,
};

/// An exclusive lock on several resources, all or nothing.
pub(super) const MANY: LockKind = LockKind { ask: Command::Run(&script::ACQUIRE_MANY), ..PLAIN };

/// An exclusive lock on one or several resources, with a fencing token.
pub(super) const FENCED: LockKind =
    LockKind { ask: Command::Run(&script::ACQUIRE_FENCED), ..PLAIN };

/// A shared lock on one resource.
pub(super) const SHARED: LockKind = LockKind {
    ask: Command::Run(&script::ACQUIRE_SHARED),
    extend: Command::Run(&script::EXTEND_SHARED),
    undo: Command::Run(&script::UNDO_SHARED),
    write_back: Command::Run(&script::WRITE_BACK_SHARED),
    ..PLAIN
};

pub(super) const SHARED_FENCED: LockKind =
    LockKind { ask: Command::Run(&script::ACQUIRE_SHARED_FENCED), ..SHARED };

pub(super) const PERMIT: LockKind = LockKind {
    ask: Command::Run(&script::ACQUIRE_PERMIT),
    extend: Command::Run(&script::EXTEND_PERMIT),
    undo: Command::Run(&script::UNDO_PERMIT),
    write_back: Command::Run(&script::WRITE_BACK_PERMIT),
    ..PLAIN
};

/// The writer's claim of a reader that upgrades. It is a member of the set of readers, with a mark,
/// next to the reader's own claim.
pub(super) const UPGRADE: LockKind =
    LockKind { ask: Command::Run(&script::UPGRADE), mark: b"w:", ..SHARED };

pub(super) const UPGRADE_FENCED: LockKind =
    LockKind { ask: Command::Run(&script::UPGRADE_FENCED), ..UPGRADE };

/// The reader's claim of a writer that downgrades, next to the writer's own claim.
pub(super) const DOWNGRADE: LockKind = LockKind { ask: Command::Run(&script::DOWNGRADE), ..SHARED };

/// The writer's claim once its holder has called for a downgrade. On the nodes that were asked for
/// it, it is a member of the set of readers.
pub(super) const DOWNGRADED: LockKind = LockKind {
    extend: Command::Run(&script::EXTEND_DOWNGRADED),
    undo: Command::Run(&script::UNDO_DOWNGRADED),
    ..PLAIN
};

/// The ticket of a waiter for an exclusive lock. The requests of its lock create it and keep it
/// alive, and it expires by itself.
pub(super) const TICKET: LockKind = LockKind {
    ask: Command::Run(&fair_queue::ACQUIRE_IN_QUEUE),
    undo: Command::Run(&fair_queue::LEAVE_QUEUE),
    mark: b"x",
    ..PLAIN
};

pub(super) const TICKET_SHARED: LockKind = LockKind { mark: b"s", ..TICKET };

pub(super) const TICKET_PERMIT: LockKind =
    LockKind { ask: Command::Run(&fair_queue::ACQUIRE_PERMIT_IN_QUEUE), mark: b"p", ..TICKET };

/// A command on keys that have a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// Undoes a lock on one resource by the server's own command.
    Delete(CompareAndDelete),
    /// Requests a permit in one given slot.
    Move,
    /// Runs a script.
    Run(&'static Script),
    /// Requests one resource by `SET NX PX`.
    SetIfAbsent,
}

/// A server command that deletes a key if it has the expected value. Not all servers have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompareAndDelete {
    /// `DELEX key IFEQ value`, since Redis 8.4.
    DelEx,
    /// `DELIFEQ key value`, since Valkey 9.0.
    DelIfEq,
}

impl Command {
    /// Returns whether the command is sent by the digest of its script. The first time on a
    /// connection it is sent with the script's text.
    #[inline]
    pub(super) fn goes_by_digest(self, loaded: &mut Loaded) -> bool {
        // EVAL also loads the script on the node, so its digest is enough afterwards.
        self.script().is_some_and(|script| !loaded.insert(script))
    }

    #[inline]
    pub(super) fn script(self) -> Option<&'static Script> {
        match self {
            Self::Run(script) => Some(script),
            Self::Move => Some(&script::ACQUIRE_PERMIT),
            Self::Delete(_) | Self::SetIfAbsent => None,
        }
    }

    /// Returns the same request as a script, for a node that may refuse to run the undo, which is a
    /// script too. If the node forbids scripts or their commands, such a request leaves no key.
    pub(super) fn as_script(self) -> Self {
        // A script that cannot run grants nothing, while a SET could stay without an undo.
        if self == Self::SetIfAbsent { Self::Run(&script::ACQUIRE_MANY) } else { self }
    }

    pub(super) fn asks_in_queue(self) -> bool {
        matches!(self, Self::Run(script) if script.asks_in_queue())
    }

    /// Returns whether the command requests a permit in any slot.
    pub(super) fn is_for_permit(self) -> bool {
        matches!(self, Self::Run(script)
            if matches!(script.role, Role::Ask(Grant::Slot | Grant::SlotInQueue)))
    }

    /// Returns whether a second command reads the restart guard, so that a second reply follows.
    pub(super) fn is_checked_behind(self) -> bool {
        // Scripts read the restart guard themselves.
        self == Self::SetIfAbsent
    }
}
