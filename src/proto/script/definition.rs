//! The properties of a script that the client needs to call it.

use std::fmt;
use std::ptr;

/// A script. Each script is a static and equal only to itself.
#[non_exhaustive]
pub struct Script {
    /// The name in Lua files and in tests.
    pub name: &'static str,
    /// The text that `EVAL` sends.
    pub text: &'static str,
    /// The SHA-1 of the text, by which `EVALSHA` calls the script.
    pub digest: &'static str,
    /// The number of the script, unique and below 64.
    pub number: u8,
    /// The purpose of the script.
    pub role: Role,
    /// The prefixes of the keys that follow the resources in KEYS, such as those of a semaphore and
    /// of fencing counters.
    pub keys: &'static [&'static [u8]],
    /// The prefixes of the keys that follow these if a counter is proposed.
    pub fenced_keys: &'static [&'static [u8]],
    /// Returns the name of the key that follows the resource, if it is not a prefix and the
    /// resource.
    pub key_beside: Option<KeyOf>,
    /// The arguments that follow the token in ARGV.
    pub arguments: &'static [Argument],
    /// The arguments that follow these if a counter is proposed.
    pub fenced_arguments: &'static [Argument],
    /// Whether the last argument in ARGV is the beginning of the holder's other claim.
    pub names_other_claim: bool,
}

/// Returns the name of a key that belongs to a resource.
pub type KeyOf = fn(&[u8]) -> Vec<u8>;

/// The purpose of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Role {
    /// Requests a lock. The script reads the restart guard, the last of its KEYS.
    Ask(Grant),
    /// Writes the restart guard.
    Enrol,
    /// Extends a lock.
    Extend,
    /// Removes holders that an operator has seen.
    ForceUnlock,
    /// Removes a ticket from the queue.
    LeaveQueue,
    /// Undoes a request.
    Undo,
    /// Reads for an inspection.
    View,
    /// Raises fencing counters.
    WriteBack,
}

/// The content of the reply to a request that is granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Grant {
    /// Only `OK`.
    Ok,
    /// The counter of another library, 1 or more.
    Counter,
    /// The counter of an exclusive holder, which is even.
    ExclusiveCounter,
    /// The counter of readers, which is odd.
    SharedCounter,
    /// The slot of a permit, and its counter if one was proposed.
    Slot,
    /// The stamp of the ticket, and the counter if one was proposed.
    InQueue,
    /// The stamp of the ticket, and the content for a permit.
    SlotInQueue,
}

/// A number in ARGV.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Argument {
    /// The counter that is proposed or written.
    Counter,
    /// The TTL of counters in ms.
    CounterTtl,
    /// The slot that is tried first. For a move: the slot to move to.
    FirstSlot,
    /// The time in ms that a ticket's owner may be silent after the ticket is called.
    Grace,
    /// The number of resources.
    Keys,
    /// The smallest counter that a reader keeps as it is.
    LeastKept,
    /// The number of nodes that the client asks.
    Nodes,
    /// The number of permits of the semaphore.
    Permits,
    /// The stamp for a ticket that has no place yet.
    Proposal,
    /// The slot of the permit.
    Slot,
    /// The stamp of a ticket, or 0 if it has no place yet.
    Stamp,
    /// The distance from one slot to the next, or 0 for a move.
    Step,
    /// The TTL of the lock in ms.
    Ttl,
}

impl Script {
    /// Returns a script with this text, whose only keys are the resources and whose only argument
    /// is the token.
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

    /// Returns whether the script reads the restart guard's key, the last of its KEYS.
    pub(in crate::proto) fn checks_restart_guard(&self) -> bool {
        matches!(self.role, Role::Ask(_))
    }

    pub(in crate::proto) fn asks_in_queue(&self) -> bool {
        matches!(self.role, Role::Ask(Grant::InQueue | Grant::SlotInQueue))
    }

    /// Returns whether the script is about a ticket in the queue.
    pub(in crate::proto) fn is_in_queue(&self) -> bool {
        self.asks_in_queue() || self.role == Role::LeaveQueue
    }
}

impl PartialEq for Script {
    fn eq(&self, other: &Self) -> bool {
        // Scripts are statics, so the address identifies one faster than its text.
        ptr::eq(self, other)
    }
}

impl Eq for Script {}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The scripts that a connection has sent as text, so that the node can run them by digest.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::proto) struct Loaded(u64);

impl Loaded {
    pub(in crate::proto) fn insert(&mut self, script: &Script) -> bool {
        let before = self.0;
        self.0 |= 1 << script.number;
        self.0 != before
    }

    /// Removes a script whose text was not sent after all.
    pub(in crate::proto) fn forget(&mut self, script: &Script) {
        // The node does not have the script, and a call by digest would fail.
        self.0 &= !(1 << script.number);
    }

    /// Removes all scripts after a reply of `NOSCRIPT`: the node has lost its cache.
    pub(in crate::proto) fn forget_all(&mut self) {
        self.0 = 0;
    }
}
