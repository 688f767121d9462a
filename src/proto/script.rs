//! The Lua scripts that run on a node, and what the client has to know to call one.
//!
//! Compare-and-set needs a script on every server that has no command for it. A script takes its resources as KEYS and
//! everything else as ARGV, so its text never varies. Each is one [`Script`]; all properties of it are there, and what it does
//! is in a `.lua` file. Those of other libraries' formats are in `format`.

use std::fmt;
use std::ptr;

use self::lua::{Section, sections};
use super::profile::Profile;

mod fair_queue;
mod force_unlock;
pub(super) mod lua;
mod own;

pub use self::fair_queue::{ACQUIRE_IN_QUEUE, ACQUIRE_PERMIT_IN_QUEUE, LEAVE_QUEUE, VIEW_QUEUE};
pub use self::force_unlock::{FORCE_UNLOCK, VIEW_DIGEST};
pub use self::own::{
    ACQUIRE_FENCED, ACQUIRE_MANY, ACQUIRE_PERMIT, ACQUIRE_SHARED, ACQUIRE_SHARED_FENCED, DOWNGRADE,
    ENROL, EXTEND, EXTEND_DOWNGRADED, EXTEND_PERMIT, EXTEND_SHARED, UNDO, UNDO_DOWNGRADED,
    UNDO_PERMIT, UNDO_SHARED, UPGRADE, UPGRADE_FENCED, VIEW_PERMITS, VIEW_SHARED, WRITE_BACK,
    WRITE_BACK_PERMIT, WRITE_BACK_SHARED,
};
pub use super::format::scripts::*;

pub(super) const EXCLUSIVE: &[Section] = sections!("script/exclusive.lua");
pub(super) const FORCE_UNLOCK_LUA: &[Section] = sections!("script/force_unlock.lua");
pub(super) const PERMITS: &[Section] = sections!("script/permits.lua");
pub(super) const RESTART_GUARD: &[Section] = sections!("script/restart_guard.lua");
pub(super) const SHARED: &[Section] = sections!("script/shared.lua");

/// All scripts of the library.
pub fn all() -> impl Iterator<Item = &'static Script> {
    let formats = Profile::ALL.into_iter().filter_map(Profile::format);
    let formats = formats.map(|format| format.scripts);
    own().chain(formats.flatten().copied())
}

/// The scripts of redbolt's own format.
pub fn own() -> impl Iterator<Item = &'static Script> {
    [own::SCRIPTS, fair_queue::SCRIPTS, force_unlock::SCRIPTS].into_iter().flatten().copied()
}

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
    pub(super) fn checks_restart_guard(&self) -> bool {
        matches!(self.role, Role::Ask(_))
    }

    /// Whether it asks in the queue.
    pub(super) fn asks_in_queue(&self) -> bool {
        matches!(self.role, Role::Ask(Grant::InQueue | Grant::SlotInQueue))
    }

    /// Whether it is about a ticket in the queue.
    pub(super) fn is_in_queue(&self) -> bool {
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
pub(super) struct Loaded(u64);

impl Loaded {
    /// Whether it is new.
    pub(super) fn insert(&mut self, script: &Script) -> bool {
        let before = self.0;
        self.0 |= 1 << script.number;
        self.0 != before
    }

    /// The text was not sent after all.
    pub(super) fn forget(&mut self, script: &Script) {
        self.0 &= !(1 << script.number);
    }

    /// The node answered `NOSCRIPT`: it has forgotten all of them.
    pub(super) fn forget_all(&mut self) {
        self.0 = 0;
    }
}

#[cfg(test)]
mod tests {
    use sha1_smol::Sha1;

    use super::*;
    use crate::proto::{fence, restart_guard};

    /// A number in a Lua text cannot be a constant of ours.
    #[test]
    fn the_texts_know_the_bound_of_the_restart_guard() {
        let bound = format!("t > {} ", restart_guard::BIG_MS);
        assert!(ACQUIRE_MANY.text.contains(&bound) && ACQUIRE_FENCED.text.contains(&bound));
        assert!(ENROL.text.contains(&format!("px > {} ", restart_guard::BIG_MS)));
        let far = format!("> {} ", fence::MAX_SKEW.as_micros());
        assert!(ACQUIRE_FENCED.text.contains(&far));
        assert!(ACQUIRE_FENCED.text.contains(&format!("v < {})", fence::MAX_TOKEN - 1)));
        assert!(WRITE_BACK.text.contains(&format!("v <= {})", fence::MAX_TOKEN)));
    }

    #[test]
    fn each_script_has_its_own_digest() {
        let of = |script: &Script| Sha1::from(script.text).digest().to_string();
        let wrong = all().filter(|script| script.digest != of(script));
        assert_eq!(wrong.map(|script| (script.name, of(script))).collect::<Vec<_>>(), []);
        assert!(all().count() > 40);
    }

    #[test]
    fn each_script_has_its_own_number_and_name() {
        let mut numbers = 0_u64;
        for script in all() {
            let same = all().filter(|other| other.name == script.name);
            assert!(same.eq([script]), "{script:?}");
            assert!(numbers.checked_shr(script.number.into()).is_some_and(|bit| bit & 1 == 0));
            numbers |= 1 << script.number;
        }
    }
}
