//! Redbolt's scripts as Rust functions. A test compares each with its Lua text on a real server.
//! The library calls scripts with well-formed arguments; for others the models reply with a
//! different error.

mod common;
mod exclusive;
mod fair_queue;
mod force_unlock;
mod mark;
mod mode_change;
mod permits;
mod python;
mod redisson;
mod redisson_rw;
mod shared;
mod spring;
mod symfony;
mod timed;

use std::sync::OnceLock;

use redbolt::proto::{
    restart_guard::BIG_MS,
    script::{
        ACQUIRE_FENCED, ACQUIRE_IN_QUEUE, ACQUIRE_MANY, ACQUIRE_PERMIT, ACQUIRE_PERMIT_IN_QUEUE,
        ACQUIRE_PYTHON, ACQUIRE_REDISSON, ACQUIRE_REDISSON_FENCED, ACQUIRE_REDISSON_READ,
        ACQUIRE_REDISSON_WRITE, ACQUIRE_SHARED, ACQUIRE_SHARED_FENCED, ACQUIRE_SYMFONY_READ,
        ACQUIRE_SYMFONY_WRITE, ACQUIRE_TIMED, DOWNGRADE, ENROL, EXTEND, EXTEND_DOWNGRADED,
        EXTEND_PERMIT, EXTEND_REDISSON, EXTEND_REDISSON_RW, EXTEND_SHARED, EXTEND_SYMFONY_WRITE,
        EXTEND_TIMED, FORCE_UNLOCK, FORCE_UNLOCK_PYTHON, FORCE_UNLOCK_REDISSON,
        FORCE_UNLOCK_REDISSON_RW, FORCE_UNLOCK_SPRING, FORCE_UNLOCK_SYMFONY, FORCE_UNLOCK_TIMED,
        LEAVE_QUEUE, UNDO, UNDO_DOWNGRADED, UNDO_PERMIT, UNDO_PYTHON, UNDO_REDISSON,
        UNDO_REDISSON_RW, UNDO_SHARED, UNDO_SPRING, UNDO_SYMFONY_WRITE, UNDO_TIMED, UPGRADE,
        UPGRADE_FENCED, VIEW_DIGEST, VIEW_PERMITS, VIEW_QUEUE, VIEW_SHARED, WRITE_BACK,
        WRITE_BACK_PERMIT, WRITE_BACK_REDISSON, WRITE_BACK_SHARED,
    },
};

use self::common::{BAD_ARGUMENTS, span};
use crate::{
    calls::{Answer, Calls, Stop},
    script::{Model, Script},
};

/// Returns the scripts of every new store.
pub(crate) fn shipped() -> &'static [Script] {
    // Computed once, because a simulator makes many stores and a digest takes microseconds.
    static SHIPPED: OnceLock<Vec<Script>> = OnceLock::new();
    SHIPPED.get_or_init(|| MODELS.map(|(text, run)| Script::new(text, run)).into())
}

const MODELS: [(&str, Model); 53] = [
    (ACQUIRE_FENCED.text, exclusive::acquire_fenced),
    (ACQUIRE_IN_QUEUE.text, fair_queue::acquire_in_queue),
    (ACQUIRE_MANY.text, exclusive::acquire_many),
    (ACQUIRE_PERMIT.text, permits::acquire_permit),
    (ACQUIRE_PERMIT_IN_QUEUE.text, fair_queue::acquire_permit_in_queue),
    (ACQUIRE_PYTHON.text, python::acquire_python),
    (ACQUIRE_REDISSON.text, redisson::acquire_redisson),
    (ACQUIRE_REDISSON_FENCED.text, redisson::acquire_redisson_fenced),
    (ACQUIRE_REDISSON_READ.text, redisson_rw::acquire_redisson_read),
    (ACQUIRE_REDISSON_WRITE.text, redisson_rw::acquire_redisson_write),
    (ACQUIRE_SHARED.text, shared::acquire_shared),
    (ACQUIRE_SHARED_FENCED.text, shared::acquire_shared_fenced),
    (ACQUIRE_SYMFONY_READ.text, symfony::acquire_symfony_read),
    (ACQUIRE_SYMFONY_WRITE.text, symfony::acquire_symfony_write),
    (ACQUIRE_TIMED.text, timed::acquire_timed),
    (DOWNGRADE.text, mode_change::downgrade),
    (EXTEND_DOWNGRADED.text, mode_change::extend_downgraded),
    (UNDO_DOWNGRADED.text, mode_change::undo_downgraded),
    (UPGRADE.text, mode_change::upgrade),
    (UPGRADE_FENCED.text, mode_change::upgrade_fenced),
    (FORCE_UNLOCK.text, force_unlock::force_unlock),
    (FORCE_UNLOCK_PYTHON.text, python::force_unlock_python),
    (FORCE_UNLOCK_REDISSON.text, redisson::force_unlock_redisson),
    (FORCE_UNLOCK_REDISSON_RW.text, redisson_rw::force_unlock_redisson_rw),
    (FORCE_UNLOCK_SPRING.text, spring::force_unlock_spring),
    (FORCE_UNLOCK_SYMFONY.text, symfony::force_unlock_symfony),
    (FORCE_UNLOCK_TIMED.text, timed::force_unlock_timed),
    (ENROL.text, enrol),
    (EXTEND.text, exclusive::extend),
    (EXTEND_PERMIT.text, permits::extend_permit),
    (EXTEND_REDISSON.text, redisson::extend_redisson),
    (EXTEND_REDISSON_RW.text, redisson_rw::extend_redisson_rw),
    (EXTEND_SHARED.text, shared::extend_shared),
    (EXTEND_SYMFONY_WRITE.text, symfony::extend_symfony_write),
    (EXTEND_TIMED.text, timed::extend_timed),
    (LEAVE_QUEUE.text, fair_queue::leave_queue),
    (UNDO.text, exclusive::undo),
    (UNDO_PERMIT.text, permits::undo_permit),
    (UNDO_PYTHON.text, python::undo_python),
    (UNDO_REDISSON.text, redisson::undo_redisson),
    (UNDO_REDISSON_RW.text, redisson_rw::undo_redisson_rw),
    (UNDO_SHARED.text, shared::undo_shared),
    (UNDO_SPRING.text, spring::undo_spring),
    (UNDO_SYMFONY_WRITE.text, symfony::undo_symfony_write),
    (UNDO_TIMED.text, timed::undo_timed),
    (VIEW_DIGEST.text, force_unlock::view_digest),
    (VIEW_QUEUE.text, fair_queue::view_queue),
    (VIEW_PERMITS.text, permits::view_permits),
    (VIEW_SHARED.text, shared::view_shared),
    (WRITE_BACK.text, exclusive::write_back),
    (WRITE_BACK_PERMIT.text, permits::write_back_permit),
    (WRITE_BACK_REDISSON.text, redisson::write_back_redisson),
    (WRITE_BACK_SHARED.text, shared::write_back_shared),
];

/// Gives the restart guard a new value if it still has the one that was read. Never shortens a
/// quarantine.
fn enrol(calls: &mut Calls<'_>, names: &[&[u8]], argv: &[&[u8]]) -> Result<Answer, Stop> {
    let (&[restart_guard], &[seen, value, _]) = (names, argv) else { return Err(BAD_ARGUMENTS) };
    let ttl = span(argv.get(2))?;
    let found = calls.get(restart_guard)?.unwrap_or_default();
    if found == seen {
        let longer = if ttl > BIG_MS.cast_signed() { calls.pttl(restart_guard)? } else { 0 };
        calls.set_for(restart_guard, value, ttl.max(longer))?;
        return Ok(Answer::Int(1));
    }
    Ok(Answer::Int(i64::from(found == value)))
}

#[cfg(test)]
mod tests {
    use super::{exclusive::*, *};
    use crate::{
        clock::ClockReading,
        denial::Denials,
        keys::{Entries, Keys},
    };

    #[test]
    fn each_script_of_the_library_has_a_model() {
        let has_model = |text: &str| shipped().iter().any(|known| known.text == text);
        let missing = redbolt::proto::script::all().filter(|script| !has_model(script.text));
        assert_eq!(missing.map(|script| script.name).collect::<Vec<_>>(), [""; 0]);
    }

    /// Runs a script at the instant `NOW`, on keys with these TTLs in ms.
    fn run(script: Model, set: &[(&str, i64)], names: &[&str], argv: &[&str]) -> Answer {
        let mut entries = Entries::new();
        let mut keys = Keys::new(&mut entries, ClockReading::from_micros(NOW));
        set.iter().for_each(|(name, ttl)| keys.set_for(name.as_bytes(), b"7", *ttl));
        let names: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
        let argv: Vec<&[u8]> = argv.iter().map(|arg| arg.as_bytes()).collect();
        match script(&mut Calls::new(keys, &Denials::default()), &names, &argv) {
            Ok(answer) | Err(Stop::Answered(answer)) => answer,
            Err(raised) => panic!("{raised:?}"),
        }
    }

    /// Checks the limit to the microsecond, which no test of a real server can do.
    #[test]
    fn a_proposal_may_be_off_by_five_seconds_and_no_more() {
        let propose = |proposal: u64| {
            let argv = ["token", "1000", "1", &proposal.to_string(), "1000"];
            run(acquire_fenced, &[("c", 1)], &["r", "c"], &argv)
        };
        for fine in [NOW - 5_000_000, NOW, NOW + 5_000_000] {
            assert_eq!(propose(fine), Answer::StatusAnd("OK", fine.cast_signed()));
        }
        assert_eq!(
            propose(NOW + 1),
            Answer::StatusAnd("OK", (NOW + 2).cast_signed()),
            "an even number"
        );
        for off in [NOW - 5_000_001, NOW + 5_000_001, 0, u64::MAX] {
            assert_eq!(propose(off), Answer::StatusAnd("CLOCK", NOW.cast_signed()));
        }
    }

    #[test]
    fn a_restart_guard_allows_votes_from_the_end_of_its_quarantine_to_its_expiry() {
        let big = BIG_MS.cast_signed();
        let ask =
            |left| run(acquire_many, &[("guard", left)], &["r", "guard"], &["token", "1000", "1"]);
        assert_eq!(ask(0), Answer::Status("OK"));
        assert_eq!(ask(big), Answer::Status("OK"));
        assert_eq!(ask(big + 1), Answer::StatusAnd("GUARD", big + 1));
        assert_eq!(ask(-1), Answer::StatusAnd("GUARD", -2), "it is over");
    }

    #[test]
    fn wrong_arguments_are_an_error_and_touch_nothing() {
        for (script, argv) in [
            (acquire_many as Model, &["token", "1000", "3"][..]),
            (acquire_many, &["token", "1000"]),
            (acquire_many, &["token", "0", "1"]),
            (acquire_fenced, &["token", "1000", "2", "1", "1000"]),
            (acquire_fenced, &["token", "1000", "1", "-1", "1000"]),
            (acquire_fenced, &["token", "1000", "1", "1"]),
            (write_back, &["token", "2", "1", "1000"]),
            (write_back, &["token", "1", "x", "1000"]),
            (enrol, &["", "value", "1000"]),
        ] {
            let reply = run(script, &[], &["a", "b"], argv);
            assert_eq!(Stop::Answered(reply), BAD_ARGUMENTS, "{argv:?}");
        }
    }

    const NOW: u64 = 1_767_225_600_000_000;
}
