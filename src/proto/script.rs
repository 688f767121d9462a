//! The Lua scripts that run on a node.
//!
//! Compare-and-set needs a script on every server that has no command for it. Each script takes its resources as KEYS
//! and everything else as ARGV, so its text never varies. The texts are public because an operator may have to allow
//! them, and a model of a node must know them. Not here: when each is sent, see `lock_kind`.

use self::lua::{Library, Section, assemble, sections};

const EXCLUSIVE: &[Section] = sections!("script/exclusive.lua");
const PERMITS: &[Section] = sections!("script/permits.lua");
const RESTART_GUARD: &[Section] = sections!("script/restart_guard.lua");
const SHARED: &[Section] = sections!("script/shared.lua");
const LIBRARY: Library<'_> = &[EXCLUSIVE, SHARED, PERMITS, RESTART_GUARD];

/// Acquires one resource or several, all or nothing.
pub const ACQUIRE_MANY: &str = assemble!(LIBRARY, "acquire_many");

/// Acquires one resource or several with a fencing token.
pub const ACQUIRE_FENCED: &str = assemble!(LIBRARY, "acquire_fenced");

/// Acquires a resource as one of its readers.
pub const ACQUIRE_SHARED: &str = assemble!(LIBRARY, "acquire_shared");

/// Acquires a resource as one of its readers, with a fencing token.
pub const ACQUIRE_SHARED_FENCED: &str = assemble!(LIBRARY, "acquire_shared_fenced");

/// Extends a reader.
pub const EXTEND_SHARED: &str = assemble!(LIBRARY, "extend_shared");

/// Removes a reader.
pub const UNDO_SHARED: &str = assemble!(LIBRARY, "undo_shared");

/// Raises the fencing counter of a resource for one of its readers.
pub const WRITE_BACK_SHARED: &str = assemble!(LIBRARY, "write_back_shared");

/// Acquires a permit, or moves it to another slot.
pub const ACQUIRE_PERMIT: &str = assemble!(LIBRARY, "acquire_permit");

/// Extends a permit.
pub const EXTEND_PERMIT: &str = assemble!(LIBRARY, "extend_permit");

/// Removes a permit.
pub const UNDO_PERMIT: &str = assemble!(LIBRARY, "undo_permit");

/// Raises the fencing counter of a permit's slot.
pub const WRITE_BACK_PERMIT: &str = assemble!(LIBRARY, "write_back_permit");

/// Makes a reader the writer of a resource.
pub const UPGRADE: &str = assemble!(LIBRARY, "upgrade");

/// Makes a reader the writer of a resource, with a fencing token.
pub const UPGRADE_FENCED: &str = assemble!(LIBRARY, "upgrade_fenced");

/// Makes the writer of a resource one of its readers.
pub const DOWNGRADE: &str = assemble!(LIBRARY, "downgrade");

/// Extends the claim of a writer that has become a reader.
pub const EXTEND_DOWNGRADED: &str = assemble!(LIBRARY, "extend_downgraded");

/// Removes the claim of a writer that has become a reader.
pub const UNDO_DOWNGRADED: &str = assemble!(LIBRARY, "undo_downgraded");

/// Raises fencing counters for the holder of their resources.
pub const WRITE_BACK: &str = assemble!(LIBRARY, "write_back");

/// Writes the restart guard.
pub const ENROL: &str = assemble!(LIBRARY, "enrol");

/// Extends the holder of one resource or several.
pub const EXTEND: &str = assemble!(LIBRARY, "extend");

/// Removes the holder of one resource or several.
pub const UNDO: &str = assemble!(LIBRARY, "undo");

/// Lists the readers of a resource.
pub const VIEW_SHARED: &str = assemble!(LIBRARY, "view_shared");

/// Lists the holders of a semaphore.
pub const VIEW_PERMITS: &str = assemble!(LIBRARY, "view_permits");

/// How many colons of a name are taken for the end of a registry's key, as in `tell_spring` of spring.lua.
pub(super) const SPRING_COLONS: usize = 16;

mod force_unlock;
mod line;
mod lua;
pub(super) mod python;
pub(super) mod redisson;
mod redisson_rw;
mod spring;
pub(super) mod symfony;
pub(super) mod timed;

pub use self::force_unlock::{FORCE_UNLOCK, VIEW_DIGEST};
pub use self::line::{ACQUIRE_IN_LINE, ACQUIRE_PERMIT_IN_LINE, LEAVE_LINE, VIEW_LINE};
pub use self::python::{ACQUIRE_PYTHON, UNDO_PYTHON};
pub use self::redisson::{
    ACQUIRE_REDISSON, ACQUIRE_REDISSON_FENCED, EXTEND_REDISSON, UNDO_REDISSON, WRITE_BACK_REDISSON,
};
pub use self::redisson_rw::{
    ACQUIRE_REDISSON_READ, ACQUIRE_REDISSON_WRITE, EXTEND_REDISSON_RW, UNDO_REDISSON_RW,
};
pub use self::spring::UNDO_SPRING;
pub use self::symfony::{
    ACQUIRE_SYMFONY_READ, ACQUIRE_SYMFONY_WRITE, EXTEND_SYMFONY_WRITE, UNDO_SYMFONY_WRITE,
};
pub use self::timed::{ACQUIRE_TIMED, EXTEND_TIMED, UNDO_TIMED, token_behind_time};

use super::{fence, permits};

/// A script about a lock's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Script {
    AcquireFenced,
    AcquireInLine,
    AcquireMany,
    AcquirePermit,
    AcquirePermitInLine,
    AcquirePython,
    AcquireRedisson,
    AcquireRedissonFenced,
    AcquireRedissonRead,
    AcquireRedissonWrite,
    AcquireShared,
    AcquireSharedFenced,
    AcquireSymfonyRead,
    AcquireSymfonyWrite,
    AcquireTimed,
    Downgrade,
    Extend,
    ExtendDowngraded,
    ExtendPermit,
    ExtendRedisson,
    ExtendRedissonRw,
    ExtendShared,
    ExtendSymfonyWrite,
    ExtendTimed,
    LeaveLine,
    Undo,
    UndoDowngraded,
    UndoPermit,
    UndoPython,
    UndoRedisson,
    UndoRedissonRw,
    UndoShared,
    UndoSpring,
    UndoSymfonyWrite,
    UndoTimed,
    Upgrade,
    UpgradeFenced,
    WriteBack,
    WriteBackPermit,
    WriteBackRedisson,
    WriteBackShared,
}

/// Each script with its text, and the SHA-1 of that, in the order of their numbers.
static SCRIPTS: [(Script, &str, &str); 41] = [
    (Script::AcquireFenced, ACQUIRE_FENCED, "86f9f41e394bd24c8f64789c50a4680d023d088d"),
    (Script::AcquireInLine, ACQUIRE_IN_LINE, "bfccad8c3ce46120d353934e3f565fdcb77bcd1f"),
    (Script::AcquireMany, ACQUIRE_MANY, "b275dfea5a3537917d4db4ed14faff83848fcf19"),
    (Script::AcquirePermit, ACQUIRE_PERMIT, "3e6636714000a40ba7a5c1328892d126ccf6535e"),
    (
        Script::AcquirePermitInLine,
        ACQUIRE_PERMIT_IN_LINE,
        "7b1797c2a9e5bab3c6d26b7116b9c3bb103a1b24",
    ),
    (Script::AcquirePython, ACQUIRE_PYTHON, "64773acc9dc28631e9988b5d6d28e93721b40c92"),
    (Script::AcquireRedisson, ACQUIRE_REDISSON, "e6ff21e274a73d069dbfd6c1515f0a404420d188"),
    (
        Script::AcquireRedissonFenced,
        ACQUIRE_REDISSON_FENCED,
        "8bb847045a428bf667d7055164b2a4fb319e42fb",
    ),
    (
        Script::AcquireRedissonRead,
        ACQUIRE_REDISSON_READ,
        "9058d83f8fdd2dae20223f5077177ea560574864",
    ),
    (
        Script::AcquireRedissonWrite,
        ACQUIRE_REDISSON_WRITE,
        "b5fc7e00d78fd9990faab9a4a59ed8f9f003be8b",
    ),
    (Script::AcquireShared, ACQUIRE_SHARED, "d60c442090780729a37b71bcda63e44924b6fb6f"),
    (
        Script::AcquireSharedFenced,
        ACQUIRE_SHARED_FENCED,
        "561d2d6eb5b80176f8a323453037adb7cc97a741",
    ),
    (Script::AcquireSymfonyRead, ACQUIRE_SYMFONY_READ, "a792f7ed0fdbda8a6053e6035dd95b93d5481112"),
    (
        Script::AcquireSymfonyWrite,
        ACQUIRE_SYMFONY_WRITE,
        "ff458bb66b69acd4fdbc8ba45db4ebc9a2661f32",
    ),
    (Script::AcquireTimed, ACQUIRE_TIMED, "17c11a5f66044f67b0d5b8b9509234bbf1a18301"),
    (Script::Downgrade, DOWNGRADE, "59f3730bdfac2c830ec13e79ec84449e2982396e"),
    (Script::Extend, EXTEND, "07792a2d562f8e8b85444344f856ed0cab1c9863"),
    (Script::ExtendDowngraded, EXTEND_DOWNGRADED, "b2530b8577fce58830c6acbc555ed2507ca038f1"),
    (Script::ExtendPermit, EXTEND_PERMIT, "5c5490f0b43a290d715bb170a0d507e3e287e9e2"),
    (Script::ExtendRedisson, EXTEND_REDISSON, "d5143b9d0e8dbcb95a6ee6edd33fc91b098a225b"),
    (Script::ExtendRedissonRw, EXTEND_REDISSON_RW, "281436ad395971538b1e536bd3db5f6e6312de20"),
    (Script::ExtendShared, EXTEND_SHARED, "30ce6f8e4fbb05993754507331a2fb5d418e7970"),
    (Script::ExtendSymfonyWrite, EXTEND_SYMFONY_WRITE, "3a1488cc8d6e538109c8221030eb4a91159e85f9"),
    (Script::ExtendTimed, EXTEND_TIMED, "9dfbeb363fc9632ca469b24f714d8ad20dba9433"),
    (Script::LeaveLine, LEAVE_LINE, "33968331c10496bd749b9a73a3a36d0d057ab1a5"),
    (Script::Undo, UNDO, "16f873ccd6eb3ca706327d802bd0b80f1d2eca80"),
    (Script::UndoDowngraded, UNDO_DOWNGRADED, "6b99e81048cd256a3fdfdc6e58a65b461de86605"),
    (Script::UndoPermit, UNDO_PERMIT, "9781763056553befc0d7e533306cd8e8089e7e6c"),
    (Script::UndoPython, UNDO_PYTHON, "ad3e2f8f759c6e5ca2df41b9998770991f78d4b1"),
    (Script::UndoRedisson, UNDO_REDISSON, "17cd1274828fed4c8a2a8683c4ec462479594d2d"),
    (Script::UndoRedissonRw, UNDO_REDISSON_RW, "f4c5772dfe7e873f952d82a216125dceff4fccd7"),
    (Script::UndoShared, UNDO_SHARED, "a63c6cebc539d91009a2f928753037f0d4583f89"),
    (Script::UndoSpring, UNDO_SPRING, "1d42caa99544707bb380afc8b080bbd19fc75b51"),
    (Script::UndoSymfonyWrite, UNDO_SYMFONY_WRITE, "2fa62c34eef4e23863327c1997b1ef99dda1232b"),
    (Script::UndoTimed, UNDO_TIMED, "0f54cbea4f74a5747ea0d5bad59131ab8aefc8bd"),
    (Script::Upgrade, UPGRADE, "d0fbdde662a7e5d180afa48b28587a0594b4efdb"),
    (Script::UpgradeFenced, UPGRADE_FENCED, "55e2de54f71d6755cea32c49c97c8c76a3ec1e24"),
    (Script::WriteBack, WRITE_BACK, "435b59118f749cc9a46164cdc6f76cb01f53ee50"),
    (Script::WriteBackPermit, WRITE_BACK_PERMIT, "15e9935c8bdfdfdefe485a839cfd1a1d4c921df6"),
    (Script::WriteBackRedisson, WRITE_BACK_REDISSON, "46406c9d7a02adabd1770d3df9de6d02ea175f08"),
    (Script::WriteBackShared, WRITE_BACK_SHARED, "ff8639589bd3476990681ad618349d59d8ae1e49"),
];

impl Script {
    pub(super) fn text(self) -> &'static str {
        SCRIPTS[self as usize].1
    }

    /// The SHA-1 of its text, by which `EVALSHA` calls it.
    pub(super) fn digest(self) -> &'static str {
        SCRIPTS[self as usize].2
    }

    /// With what the keys begin that stand behind the resources in its KEYS: those of a semaphore, the lease of a lock whose
    /// value is a time, and the fencing counters that it reads or raises. One that gives a permit does so where a counter is proposed.
    pub(super) fn prefixes_behind(self, proposes: bool) -> &'static [&'static [u8]] {
        match self {
            Self::AcquireFenced
            | Self::AcquireSharedFenced
            | Self::UpgradeFenced
            | Self::WriteBack
            | Self::WriteBackShared => &[fence::COUNTER_PREFIX],
            Self::AcquireInLine if proposes => &[fence::COUNTER_PREFIX],
            Self::AcquirePermit | Self::AcquirePermitInLine if proposes => {
                &[permits::ENDS_PREFIX, permits::COUNTERS_PREFIX]
            }
            Self::AcquireTimed | Self::ExtendTimed | Self::UndoTimed => &[timed::LEASE_PREFIX],
            Self::WriteBackPermit => &[permits::ENDS_PREFIX, permits::COUNTERS_PREFIX],
            Self::AcquirePermit
            | Self::AcquirePermitInLine
            | Self::ExtendPermit
            | Self::UndoPermit => &[permits::ENDS_PREFIX],
            _ => &[],
        }
    }

    /// The key that stands behind the resource in its KEYS, where its name is not the resource's behind a prefix.
    pub(super) fn key_beside(self, resource: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::AcquirePython | Self::UndoPython => Some(python::signal(resource)),
            Self::AcquireRedissonFenced | Self::WriteBackRedisson => {
                Some(redisson::beside(redisson::COUNTER, resource))
            }
            _ => None,
        }
    }

    /// Whether it reads the guard's key, the last of its KEYS.
    pub(super) fn checks_restart_guard(self) -> bool {
        matches!(
            self,
            Self::AcquireFenced
                | Self::AcquireInLine
                | Self::AcquireMany
                | Self::AcquirePermit
                | Self::AcquirePermitInLine
                | Self::AcquirePython
                | Self::AcquireRedisson
                | Self::AcquireRedissonFenced
                | Self::AcquireRedissonRead
                | Self::AcquireRedissonWrite
                | Self::AcquireShared
                | Self::AcquireSharedFenced
                | Self::AcquireSymfonyRead
                | Self::AcquireSymfonyWrite
                | Self::AcquireTimed
                | Self::Downgrade
                | Self::Upgrade
                | Self::UpgradeFenced
        )
    }

    /// Whether it asks in line.
    pub(super) fn asks_in_line(self) -> bool {
        matches!(self, Self::AcquireInLine | Self::AcquirePermitInLine)
    }

    /// Whether it is about a ticket in line.
    pub(super) fn is_in_line(self) -> bool {
        self.asks_in_line() || self == Self::LeaveLine
    }

    /// Whether a grant by it says no more than `OK`.
    pub(super) fn says_only_ok(self) -> bool {
        matches!(
            self,
            Self::AcquireMany
                | Self::AcquirePython
                | Self::AcquireRedisson
                | Self::AcquireRedissonRead
                | Self::AcquireRedissonWrite
                | Self::AcquireShared
                | Self::AcquireSymfonyRead
                | Self::AcquireSymfonyWrite
                | Self::AcquireTimed
                | Self::Downgrade
                | Self::Upgrade
        )
    }

    /// Whether it names the holder's other claim.
    pub(super) fn names_other_claim(self) -> bool {
        matches!(self, Self::Downgrade | Self::Upgrade | Self::UpgradeFenced)
    }
}

/// Which scripts a connection has sent by their text, so that the node knows them by digest.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Loaded(u64);

impl Loaded {
    /// Whether it is new.
    pub(super) fn insert(&mut self, script: Script) -> bool {
        let before = self.0;
        self.0 |= 1 << script as u8;
        self.0 != before
    }

    /// The text was not sent after all.
    pub(super) fn forget(&mut self, script: Script) {
        self.0 &= !(1 << script as u8);
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

    /// A number in a Lua text cannot be a constant of ours.
    #[test]
    fn the_texts_know_the_bound_of_the_restart_guard() {
        let bound = format!("t > {} ", crate::proto::restart_guard::BIG_MS);
        assert!(ACQUIRE_MANY.contains(&bound) && ACQUIRE_FENCED.contains(&bound));
        assert!(ENROL.contains(&format!("px > {} ", crate::proto::restart_guard::BIG_MS)));
        let far = format!("> {} ", fence::MAX_SKEW.as_micros());
        assert!(ACQUIRE_FENCED.contains(&far));
        assert!(ACQUIRE_FENCED.contains(&format!("v < {})", fence::MAX_TOKEN - 1)));
        assert!(WRITE_BACK.contains(&format!("v <= {})", fence::MAX_TOKEN)));
    }

    #[test]
    fn each_script_has_its_own_digest() {
        for (at, (script, text, _)) in SCRIPTS.into_iter().enumerate() {
            assert_eq!((script as usize, script.text()), (at, text));
            let digest = Sha1::from(text).digest().to_string();
            assert_eq!(script.digest(), digest, "{script:?}");
        }
    }
}
