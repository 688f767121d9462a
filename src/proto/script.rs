//! The Lua scripts that run on nodes, and the properties that the client needs to call them.
//!
//! Compare-and-set needs a script on every server that has no command for it. Invariant: the text
//! of a script never varies, so that a node caches it by digest. Its resources are KEYS, and
//! everything else is in ARGV.
//!
//! This file names all scripts, and so all formats. Kinds of locks and formats import a script from
//! the file that defines it, so that a program links only the formats that it uses.

use super::profile::Profile;

pub(super) mod definition;
pub(super) mod fair_queue;
pub(super) mod force_unlock;
pub(super) mod lua;
pub(super) mod own;

pub use self::definition::{Argument, Grant, KeyOf, Role, Script};
pub use self::fair_queue::{ACQUIRE_IN_QUEUE, ACQUIRE_PERMIT_IN_QUEUE, LEAVE_QUEUE, VIEW_QUEUE};
pub use self::force_unlock::{FORCE_UNLOCK, VIEW_DIGEST};
pub use self::own::{
    ACQUIRE_FENCED, ACQUIRE_MANY, ACQUIRE_PERMIT, ACQUIRE_SHARED, ACQUIRE_SHARED_FENCED, DOWNGRADE,
    ENROL, EXTEND, EXTEND_DOWNGRADED, EXTEND_PERMIT, EXTEND_SHARED, UNDO, UNDO_DOWNGRADED,
    UNDO_PERMIT, UNDO_SHARED, UPGRADE, UPGRADE_FENCED, VIEW_PERMITS, VIEW_SHARED, WRITE_BACK,
    WRITE_BACK_PERMIT, WRITE_BACK_SHARED,
};
pub use super::format::{
    python::*, redisson::read_write::*, redisson::*, spring::*, symfony::*, timed::*,
};

/// Returns all scripts of the library.
pub fn all() -> impl Iterator<Item = &'static Script> {
    let formats = Profile::ALL.into_iter().filter_map(Profile::format);
    let formats = formats.map(|format| format.scripts);
    own().chain(formats.flatten().copied())
}

/// Returns the scripts for redbolt's own format.
pub fn own() -> impl Iterator<Item = &'static Script> {
    [own::SCRIPTS, fair_queue::SCRIPTS, force_unlock::SCRIPTS].into_iter().flatten().copied()
}

#[cfg(test)]
mod tests {
    use sha1_smol::Sha1;

    use super::*;
    use crate::proto::{fence, restart_guard};

    /// A number in a Lua text cannot be a constant of the Rust code.
    #[test]
    fn numbers_in_scripts_match_the_constants() {
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
