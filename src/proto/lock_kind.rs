//! A kind of lock, as data: which commands ask for it, extend it and undo it.
//!
//! Another kind (read/write, a foreign format) is another value of [`LockKind`], not more code in the core. How a command is
//! encoded is in `arguments`, and what a node's answer to it means in `answer`.

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
    /// Raises fencing counters, where they are used.
    pub(super) write_back: Command,
    /// What a token of it begins with.
    pub(super) mark: &'static [u8],
    /// Whether only its ask can say for how long what is in its way lives, and not the TTL of the key.
    pub(super) is_read_by_ask: bool,
    /// Whose locks it is one of.
    profile: Profile,
}

impl LockKind {
    /// A kind of another library's locks, with its commands: to ask, to extend and to undo.
    #[must_use]
    pub const fn foreign(profile: Profile, [ask, extend, undo]: [Command; 3]) -> Self {
        Self { ask, extend, undo, profile, ..PLAIN }
    }

    /// The same whose tokens begin with a mark.
    #[must_use]
    pub const fn marked(self, mark: &'static [u8]) -> Self {
        Self { mark, ..self }
    }

    /// The same of which only an ask can say for how long what is in its way lives.
    pub(super) const fn told_by_ask(self) -> Self {
        Self { is_read_by_ask: true, ..self }
    }

    /// The same whose counters another script raises.
    pub(super) const fn written_back_by(self, script: &'static Script) -> Self {
        Self { write_back: Command::Run(script), ..self }
    }

    /// Whose locks it is one of.
    pub(super) fn profile(&self) -> Profile {
        self.profile
    }
}

/// One resource: `SET NX PX`, and the restart guard's `PTTL` behind it.
pub(super) const PLAIN: LockKind = LockKind {
    ask: Command::SetIfAbsent,
    extend: Command::Run(&script::EXTEND),
    undo: Command::Run(&script::UNDO),
    write_back: Command::Run(&script::WRITE_BACK),
    mark: b"",
    is_read_by_ask: false,
    profile: Profile::PLAIN,
};

/// Several resources, all or nothing.
pub(super) const MANY: LockKind = LockKind { ask: Command::Run(&script::ACQUIRE_MANY), ..PLAIN };

/// One resource or several, with a fencing token.
pub(super) const FENCED: LockKind =
    LockKind { ask: Command::Run(&script::ACQUIRE_FENCED), ..PLAIN };

/// One resource, beside others who share it.
pub(super) const SHARED: LockKind = LockKind {
    ask: Command::Run(&script::ACQUIRE_SHARED),
    extend: Command::Run(&script::EXTEND_SHARED),
    undo: Command::Run(&script::UNDO_SHARED),
    write_back: Command::Run(&script::WRITE_BACK_SHARED),
    ..PLAIN
};

/// The same with a fencing token.
pub(super) const SHARED_FENCED: LockKind =
    LockKind { ask: Command::Run(&script::ACQUIRE_SHARED_FENCED), ..SHARED };

/// One of a semaphore's permits.
pub(super) const PERMIT: LockKind = LockKind {
    ask: Command::Run(&script::ACQUIRE_PERMIT),
    extend: Command::Run(&script::EXTEND_PERMIT),
    undo: Command::Run(&script::UNDO_PERMIT),
    write_back: Command::Run(&script::WRITE_BACK_PERMIT),
    ..PLAIN
};

/// One resource alone, beside the holder's own claim as a reader: it is among those who share, with a mark.
pub(super) const UPGRADE: LockKind =
    LockKind { ask: Command::Run(&script::UPGRADE), mark: b"w:", ..SHARED };

/// The same with a fencing token.
pub(super) const UPGRADE_FENCED: LockKind =
    LockKind { ask: Command::Run(&script::UPGRADE_FENCED), ..UPGRADE };

/// One resource, beside others who share it, and beside the holder's own claim as a writer.
pub(super) const DOWNGRADE: LockKind = LockKind { ask: Command::Run(&script::DOWNGRADE), ..SHARED };

/// That claim, from then on. Where its holder was asked to share, it is among those who share.
pub(super) const DOWNGRADED: LockKind = LockKind {
    extend: Command::Run(&script::EXTEND_DOWNGRADED),
    undo: Command::Run(&script::UNDO_DOWNGRADED),
    ..PLAIN
};

/// A waiter's ticket in the queue of a resource that it wants alone. The asks of its lock ask for it, and it ends by itself.
pub(super) const TICKET: LockKind = LockKind {
    ask: Command::Run(&fair_queue::ACQUIRE_IN_QUEUE),
    undo: Command::Run(&fair_queue::LEAVE_QUEUE),
    mark: b"x",
    ..PLAIN
};

/// The same of a resource that it would share.
pub(super) const TICKET_SHARED: LockKind = LockKind { mark: b"s", ..TICKET };

/// The same of one that wants a permit of it.
pub(super) const TICKET_PERMIT: LockKind =
    LockKind { ask: Command::Run(&fair_queue::ACQUIRE_PERMIT_IN_QUEUE), mark: b"p", ..TICKET };

/// A command about keys that carry a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// The undo of a lock on one resource, by the server's own command.
    Delete(CompareAndDelete),
    /// The ask for a permit, for one slot and no other.
    Move,
    /// A script.
    Run(&'static Script),
    /// The ask for one resource, by `SET NX PX`.
    SetIfAbsent,
}

/// A command that deletes one key if it holds what it should, which some servers have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompareAndDelete {
    /// `DELEX key IFEQ value`, since Redis 8.4.
    DelEx,
    /// `DELIFEQ key value`, since Valkey 9.0.
    DelIfEq,
}

impl Command {
    /// Whether the command is sent as a script's digest. The first time on a connection its text is sent.
    #[inline]
    pub(super) fn goes_by_digest(self, loaded: &mut Loaded) -> bool {
        self.script().is_some_and(|script| !loaded.insert(script))
    }

    /// The script that runs, if it is one.
    #[inline]
    pub(super) fn script(self) -> Option<&'static Script> {
        match self {
            Self::Run(script) => Some(script),
            Self::Move => Some(&script::ACQUIRE_PERMIT),
            Self::Delete(_) | Self::SetIfAbsent => None,
        }
    }

    /// The same ask as a script, for a node that may refuse to run the undo, which is a script too. If the node forbids
    /// scripts or their commands, this ask leaves nothing behind.
    pub(super) fn as_script(self) -> Self {
        if self == Self::SetIfAbsent { Self::Run(&script::ACQUIRE_MANY) } else { self }
    }

    /// Whether it asks in the queue.
    pub(super) fn asks_in_queue(self) -> bool {
        matches!(self, Self::Run(script) if script.asks_in_queue())
    }

    /// Whether it asks for a permit, whichever slot that has.
    pub(super) fn is_for_permit(self) -> bool {
        matches!(self, Self::Run(script)
            if matches!(script.role, Role::Ask(Grant::Slot | Grant::SlotInQueue)))
    }

    /// Whether a second command reads the restart guard, so that a second answer follows.
    pub(super) fn is_checked_behind(self) -> bool {
        self == Self::SetIfAbsent
    }
}
