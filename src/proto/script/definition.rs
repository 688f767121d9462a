//! What the client has to know of a script to call it.

use std::fmt;
use std::ptr;

/// A script. Each one is a static, and is equal to itself alone.
#[non_exhaustive]
pub struct Script {
    /// Its name in Lua files, and in tests.
    pub name: &'static str,
    /// What `EVAL` sends.
    pub text: &'static str,
    /// The SHA-1 of the text, by which `EVALSHA` calls it.
    pub digest: &'static str,
    /// Different for each script, and below 64.
    pub number: u8,
    /// What it is for.
    pub role: Role,
    /// The prefixes of the keys in KEYS behind the resources, such as a semaphore's and the fencing counters.
    pub keys: &'static [&'static [u8]],
    /// The prefixes behind those, if a counter is proposed.
    pub fenced_keys: &'static [&'static [u8]],
    /// Names the key behind the resource, if that is not a prefix and the resource.
    pub key_beside: Option<KeyOf>,
    /// What ARGV has behind the token.
    pub arguments: &'static [Argument],
    /// What ARGV has behind that, if a counter is proposed.
    pub fenced_arguments: &'static [Argument],
    /// Whether ARGV ends with the holder's other claim.
    pub names_other_claim: bool,
}

/// Names a key of a resource.
pub type KeyOf = fn(&[u8]) -> Vec<u8>;

/// What a script is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Role {
    /// Asks for a lock. It reads the restart guard, the last of its KEYS.
    Ask(Grant),
    /// Writes the restart guard.
    Enrol,
    /// Extends a lock.
    Extend,
    /// Removes the holders that an operator has seen.
    ForceUnlock,
    /// Removes a ticket from the queue.
    LeaveQueue,
    /// Undoes an ask.
    Undo,
    /// Reads, for an inspection.
    View,
    /// Raises fencing counters.
    WriteBack,
}

/// What the reply to an ask has if the lock is granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Grant {
    /// `OK` alone.
    Ok,
    /// A counter of another library, from 1 on.
    Counter,
    /// The counter of an exclusive holder, which is even.
    ExclusiveCounter,
    /// The counter of readers, which is odd.
    SharedCounter,
    /// The slot of a permit, and its counter if one was proposed.
    Slot,
    /// The stamp of the ticket, and the counter if one was proposed.
    InQueue,
    /// The stamp of the ticket, and what a permit has.
    SlotInQueue,
}

/// A number in ARGV.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Argument {
    /// The counter that is proposed or written.
    Counter,
    /// For how many ms counters live.
    CounterTtl,
    /// The slot that is looked at first; for a move the one to move to.
    FirstSlot,
    /// For how many ms a ticket's owner can be silent once it is called.
    Grace,
    /// How many resources there are.
    Keys,
    /// The least counter that stays as it is for a reader.
    LeastKept,
    /// How many nodes the client asks.
    Nodes,
    /// How many permits the semaphore has.
    Permits,
    /// The stamp of a ticket that has no place yet.
    Proposal,
    /// The slot that the permit has.
    Slot,
    /// The stamp of a ticket, 0 if it has no place yet.
    Stamp,
    /// From one slot to the next; 0 for a move.
    Step,
    /// For how many ms the lock is asked.
    Ttl,
}

impl Script {
    /// A script without keys but the resources and without arguments but the token.
    #[must_use]
    pub const fn with_text(name: &'static str, text: &'static [u8]) -> Self {
        let Ok(text) = std::str::from_utf8(text) else { panic!("Lua files are UTF-8") };
        Self {
            name,
            text,
            digest: "",
            number: u8::MAX,
            role: Role::View,
            keys: &[],
            fenced_keys: &[],
            key_beside: None,
            arguments: &[],
            fenced_arguments: &[],
            names_other_claim: false,
        }
    }

    /// Whether it reads the restart guard's key, the last of its KEYS.
    pub(in crate::proto) fn checks_restart_guard(&self) -> bool {
        matches!(self.role, Role::Ask(_))
    }

    /// Whether it asks in the queue.
    pub(in crate::proto) fn asks_in_queue(&self) -> bool {
        matches!(self.role, Role::Ask(Grant::InQueue | Grant::SlotInQueue))
    }

    /// Whether it is about a ticket in the queue.
    pub(in crate::proto) fn is_in_queue(&self) -> bool {
        self.asks_in_queue() || self.role == Role::LeaveQueue
    }
}

impl PartialEq for Script {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self, other)
    }
}

impl Eq for Script {}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Which scripts a connection has sent by their text, so that the node knows them by digest.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::proto) struct Loaded(u64);

impl Loaded {
    /// Whether it is new.
    pub(in crate::proto) fn insert(&mut self, script: &Script) -> bool {
        let before = self.0;
        self.0 |= 1 << script.number;
        self.0 != before
    }

    /// The text was not sent after all.
    pub(in crate::proto) fn forget(&mut self, script: &Script) {
        self.0 &= !(1 << script.number);
    }

    /// The node answered `NOSCRIPT`: it has forgotten all of them.
    pub(in crate::proto) fn forget_all(&mut self) {
        self.0 = 0;
    }
}
