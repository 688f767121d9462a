//! Redbolt's scripts as Rust functions.
//!
//! A test compares each with its Lua text on a real server. The library calls scripts with well-formed arguments; for
//! others the models reply with an error of their own.

use std::{
    str::{self, FromStr},
    sync::OnceLock,
};

use redbolt::proto::{
    fence::{MAX_SKEW, MAX_TOKEN},
    restart_guard::BIG_MS,
    restart_guard::Standing,
    script::{ACQUIRE_FENCED, ACQUIRE_MANY, ENROL, EXTEND, FORCE_UNLOCK, UNDO, WRITE_BACK},
};

use crate::{
    keys::Keys,
    reply::{Reply, decimal},
    store::{Script, Taught},
};

/// The scripts of every new store.
pub(crate) fn shipped() -> &'static [Taught] {
    // Computed once: a simulator makes many stores, and a digest takes microseconds.
    static SHIPPED: OnceLock<Vec<Taught>> = OnceLock::new();
    SHIPPED.get_or_init(|| MODELS.map(|(text, run)| Taught::new(text, run)).into())
}

const MODELS: [(&str, Script); 7] = [
    (ACQUIRE_FENCED, acquire_fenced),
    (ACQUIRE_MANY, acquire_many),
    (FORCE_UNLOCK, force_unlock),
    (ENROL, enrol),
    (EXTEND, extend),
    (UNDO, undo),
    (WRITE_BACK, write_back),
];

/// Sets all resources if the restart guard lets the node vote and none of them exists.
fn acquire_many(keys: &mut Keys<'_>, names: &[&[u8]], argv: &[&[u8]], reply: &mut Reply<'_>) {
    let Some((token, ttl)) = token_and_ttl(argv) else { return reply.error(BAD_ARGUMENTS) };
    let Some((resources, rest)) = split(names, argv.get(2)) else {
        return reply.error(BAD_ARGUMENTS);
    };
    if may_grant(keys, resources, rest.first(), reply) {
        if !rehearse_undo(keys, names) {
            return reply.error(BAD_ARGUMENTS);
        }
        resources.iter().for_each(|name| keys.set_for(name, token, ttl));
        reply.status("OK");
    }
}

/// As above, and raises the resources' counters to the proposal or past the largest of them, and to an
/// even number.
fn acquire_fenced(keys: &mut Keys<'_>, names: &[&[u8]], argv: &[&[u8]], reply: &mut Reply<'_>) {
    let Some((token, ttl)) = token_and_ttl(argv) else { return reply.error(BAD_ARGUMENTS) };
    let (Some((resources, rest)), Some(proposal), Some(life)) =
        (split(names, argv.get(2)), number::<u64>(argv.get(3)), span(argv.get(4)))
    else {
        return reply.error(BAD_ARGUMENTS);
    };
    let Some((counters, restart_guard)) = rest.split_at_checked(resources.len()) else {
        return reply.error(BAD_ARGUMENTS);
    };
    if !may_grant(keys, resources, restart_guard.first(), reply) {
        return;
    }
    let now = keys.now().micros();
    if u128::from(proposal.abs_diff(now)) > MAX_SKEW.as_micros() {
        return reply.status_and("CLOCK", now.cast_signed());
    }
    let mut raised = proposal as f64;
    for name in counters {
        match counter(keys, name).filter(|&count| count < (MAX_TOKEN - 1) as f64) {
            // A counter that another program wrote may be a fraction.
            Some(count) if count >= raised => raised = count.floor() + 1.0,
            Some(_) => {}
            None => return reply.error(BAD_COUNTER),
        }
    }
    let raised = (raised as u64).next_multiple_of(2);
    let mut text = Vec::new();
    decimal(&mut text, raised);
    if !rehearse_undo(keys, names) {
        return reply.error(BAD_ARGUMENTS);
    }
    counters.iter().for_each(|name| keys.set_for(name, &text, life));
    resources.iter().for_each(|name| keys.set_for(name, token, ttl));
    reply.status_and("OK", raised.cast_signed());
}

/// Raises the counters to at least the given value, if all resources are ours.
fn write_back(keys: &mut Keys<'_>, names: &[&[u8]], argv: &[&[u8]], reply: &mut Reply<'_>) {
    let (Some(token), Some((resources, rest)), Some(least), Some(life)) =
        (argv.first(), split(names, argv.get(1)), number::<u64>(argv.get(2)), span(argv.get(3)))
    else {
        return reply.error(BAD_ARGUMENTS);
    };
    let Some(counters) = rest.get(..resources.len()) else { return reply.error(BAD_ARGUMENTS) };
    if resources.iter().any(|name| keys.value(name) != Some(token)) {
        return reply.int(0);
    }
    for name in counters {
        match counter(keys, name).filter(|&count| count <= MAX_TOKEN as f64) {
            Some(count) if count < least as f64 => keys.set_for(name, argv[2], life),
            Some(_) => {}
            None => return reply.error(BAD_COUNTER),
        }
    }
    reply.int(1);
}

/// Gives the restart guard a new value if it still has the one that was read. Never shortens a quarantine.
fn enrol(keys: &mut Keys<'_>, names: &[&[u8]], argv: &[&[u8]], reply: &mut Reply<'_>) {
    let (&[restart_guard], &[seen, value, _], Some(ttl)) = (names, argv, span(argv.get(2))) else {
        return reply.error(BAD_ARGUMENTS);
    };
    let found = keys.value(restart_guard).unwrap_or_default();
    if found == seen {
        let longer = if ttl > BIG_MS.cast_signed() { keys.pttl(restart_guard) } else { 0 };
        keys.set_for(restart_guard, value, ttl.max(longer));
        return reply.int(1);
    }
    reply.int(i64::from(found == value));
}

/// Extends all keys to at least the TTL, if all are ours. Never shortens one.
fn extend(keys: &mut Keys<'_>, names: &[&[u8]], argv: &[&[u8]], reply: &mut Reply<'_>) {
    let Some((token, ttl)) = token_and_ttl(argv) else { return reply.error(BAD_ARGUMENTS) };
    if names.iter().any(|name| keys.value(name) != Some(token)) {
        return reply.int(0);
    }
    for name in names {
        if keys.pttl(name) < ttl {
            keys.expire_in(name, ttl);
        }
    }
    reply.int(1);
}

/// Deletes the keys that are ours, and counts them.
fn undo(keys: &mut Keys<'_>, names: &[&[u8]], argv: &[&[u8]], reply: &mut Reply<'_>) {
    let token = argv.first().copied();
    let is_ours = |keys: &mut Keys<'_>, name| token.is_some() && keys.value(name) == token;
    let deleted = names.iter().filter(|name| is_ours(keys, name) && keys.delete(name)).count();
    reply.int(deleted as i64);
}

/// Deletes a key if it is what was read. All values here are strings.
fn force_unlock(keys: &mut Keys<'_>, names: &[&[u8]], argv: &[&[u8]], reply: &mut Reply<'_>) {
    let (&[name], &[kind, last, seen]) = (names, argv) else { return reply.error(BAD_ARGUMENTS) };
    let Some(last) = number::<usize>(Some(&last)) else { return reply.error(BAD_ARGUMENTS) };
    let same = kind == b"string"
        && keys
            .value(name)
            .is_some_and(|value| value[..value.len().min(last.saturating_add(1))] == *seen);
    reply.int(i64::from(same && keys.delete(name)));
}

/// Whether the restart guard, if one is given, lets the node vote and no resource is taken. If not, this is
/// the reply: the restart guard's PTTL, or the longest TTL in the way, −1 for a resource without one.
fn may_grant(
    keys: &mut Keys<'_>,
    resources: &[&[u8]],
    restart_guard: Option<&&[u8]>,
    reply: &mut Reply<'_>,
) -> bool {
    if let Some(restart_guard) = restart_guard {
        let left = keys.pttl(restart_guard);
        if Standing::of(left) != Standing::Votes {
            reply.status_and("GUARD", left);
            return false;
        }
    }
    let mut longest = -2;
    for name in resources {
        match keys.pttl(name) {
            -1 => {
                reply.int(-1);
                return false;
            }
            left => longest = longest.max(left),
        }
    }
    if longest >= 0 {
        reply.int(longest);
    }
    longest < 0
}

/// Nothing is there to be looked at or deleted: this only finds out whether that is allowed. Without a key there
/// is none to find it out with.
fn rehearse_undo(keys: &mut Keys<'_>, names: &[&[u8]]) -> bool {
    let Some(name) = names.first() else { return false };
    keys.value(name);
    keys.delete(name);
    true
}

/// A counter as `tonumber` reads it: a C string with blanks around a number, no hexadecimal here.
fn counter(keys: &mut Keys<'_>, name: &[u8]) -> Option<f64> {
    let Some(value) = keys.value(name) else { return Some(0.0) };
    let text = value.split(|&byte| byte == 0).next()?;
    str::from_utf8(text).ok()?.trim_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r']).parse().ok()
}

type Names<'a, 'n> = &'a [&'n [u8]];

/// The resources, of which there are so many, and the keys behind them.
fn split<'a, 'n>(
    names: &'a [&'n [u8]],
    count: Option<&&[u8]>,
) -> Option<(Names<'a, 'n>, Names<'a, 'n>)> {
    names.split_at_checked(number(count)?)
}

fn token_and_ttl<'a>(argv: &[&'a [u8]]) -> Option<(&'a [u8], i64)> {
    let [token, ttl, ..] = argv else { return None };
    span(Some(ttl)).map(|ttl| (*token, ttl))
}

/// Milliseconds for which a key can be set.
fn span(arg: Option<&&[u8]>) -> Option<i64> {
    number(arg).filter(|&ms| ms > 0)
}

fn number<T: FromStr>(arg: Option<&&[u8]>) -> Option<T> {
    str::from_utf8(arg?).ok()?.parse().ok()
}

const BAD_ARGUMENTS: &[u8] = b"ERR this embedded node runs a lock script only with its arguments";
const BAD_COUNTER: &[u8] = b"ERR the fencing counter cannot be raised";

#[cfg(test)]
mod tests {
    use redbolt::proto::restart_guard::BIG_MS;

    use super::*;
    use crate::{keys::Entries, store::ClockReading};

    /// Runs a script at the instant `NOW`, on keys that are set for so many ms.
    fn run(script: Script, set: &[(&str, i64)], names: &[&str], argv: &[&str]) -> String {
        let mut entries = Entries::new();
        let mut keys = Keys::new(&mut entries, ClockReading::from_micros(NOW));
        set.iter().for_each(|(name, ttl)| keys.set_for(name.as_bytes(), b"7", *ttl));
        let names: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
        let argv: Vec<&[u8]> = argv.iter().map(|arg| arg.as_bytes()).collect();
        let mut out = Vec::new();
        script(&mut keys, &names, &argv, &mut Reply::new(&mut out));
        String::from_utf8(out).unwrap()
    }

    /// To the microsecond, which no test of a real server can be.
    #[test]
    fn a_proposal_may_be_off_by_five_seconds_and_no_more() {
        let propose = |proposal: u64| {
            let argv = ["token", "1000", "1", &proposal.to_string(), "1000"];
            run(acquire_fenced, &[("c", 1)], &["r", "c"], &argv)
        };
        for fine in [NOW - 5_000_000, NOW, NOW + 5_000_000] {
            assert_eq!(propose(fine), format!("+OK {fine}\r\n"));
        }
        assert_eq!(propose(NOW + 1), format!("+OK {}\r\n", NOW + 2), "an even number");
        for off in [NOW - 5_000_001, NOW + 5_000_001, 0, u64::MAX] {
            assert_eq!(propose(off), format!("+CLOCK {NOW}\r\n"));
        }
    }

    #[test]
    fn a_restart_guard_lets_vote_from_its_last_millisecond_to_the_end_of_the_quarantine() {
        let big = BIG_MS.cast_signed();
        let ask =
            |left| run(acquire_many, &[("guard", left)], &["r", "guard"], &["token", "1000", "1"]);
        assert_eq!(ask(0), "+OK\r\n");
        assert_eq!(ask(big), "+OK\r\n");
        assert_eq!(ask(big + 1), format!("+GUARD {}\r\n", big + 1));
        assert_eq!(ask(-1), "+GUARD -2\r\n", "it is over");
    }

    #[test]
    fn wrong_arguments_are_an_error_and_touch_nothing() {
        for (script, argv) in [
            (acquire_many as Script, &["token", "1000", "3"][..]),
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
            assert!(reply.starts_with("-ERR this embedded node"), "{argv:?}: {reply}");
        }
    }

    const NOW: u64 = 1_767_225_600_000_000;
}
