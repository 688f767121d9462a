//! Checks for delays of locks: stalls of the server, and keys that never expire.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::subject::Subject;
use crate::doctor::facts::{Asked, Facts};
use crate::doctor::finding::Finding;
use crate::doctor::stalls::Stall;
use crate::duration::show;
use crate::name;

pub(super) fn leftovers(subject: &Subject<'_>) -> Finding {
    let scanned = match &subject.facts.endless {
        Some(Ok(scanned)) => scanned,
        Some(Err(_)) => return Finding::skip(LEFTOVERS, "The user may not run SCAN."),
        None => return Finding::skip(LEFTOVERS, UNASKED),
    };
    let shown = |name: &Vec<u8>| format!("\"{}\"", name::show(OsStr::from_bytes(name)));
    let names: Vec<_> = subject.leftovers.iter().take(SHOWN).map(shown).collect();
    let more = match subject.leftovers.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    match (&names[..], scanned.is_complete) {
        ([], true) => Finding::pass(LEFTOVERS, "Every lock has a TTL."),
        ([], false) => Finding::pass(
            LEFTOVERS,
            "Every lock that was looked at has a TTL; the database is too large for all of it.",
        ),
        (names, _) => Finding::warn(
            LEFTOVERS,
            format!("These locks never expire: {}{more}.", names.join(", ")),
            format!("If its holder has ended, delete each: `{} NAME`.", subject.unlock),
        ),
    }
}

pub(super) fn slow_commands(facts: &Facts) -> Finding {
    let todo = "Run no such command on a node of locks; SLOWLOG GET names the client.";
    judge(SLOW_COMMANDS, &facts.slow_commands, "command", todo)
}

pub(super) fn events(facts: &Facts) -> Finding {
    if facts.setting("latency-monitor-threshold") == Some("0") {
        let why = "The latency monitor is off (latency-monitor-threshold 0).";
        return Finding::skip(EVENTS, why);
    }
    let todo = "Find the cause with LATENCY DOCTOR: disk, fork or memory of the server.";
    judge(EVENTS, &facts.events, "event", todo)
}

/// Warns of stalls of the last day that are long enough to delay locks.
fn judge(
    check: &'static str,
    stalls: &Asked<Vec<Stall>>,
    what: &str,
    todo: &'static str,
) -> Finding {
    let stalls = match stalls {
        Some(Ok(stalls)) => stalls,
        Some(Err(_)) => return Finding::skip(check, "The user may not read it."),
        None => return Finding::skip(check, UNASKED),
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let since = now.saturating_sub(RECENT).as_secs();
    let long = stalls.iter().filter(|stall| stall.at >= since && stall.took >= LONG);
    let Some(longest) = long.clone().max_by_key(|stall| stall.took) else {
        let why = format!("No {what} of the last day took {} or longer.", show(LONG));
        return Finding::pass(check, why);
    };
    let why = format!(
        "In the last day {} took {} or longer, the longest {} ({}).",
        counted(long.count(), what),
        show(LONG),
        show(longest.took),
        longest.what
    );
    Finding::warn(check, why, todo)
}

fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

const UNASKED: &str = "The node stopped answering before this was asked.";
const LEFTOVERS: &str = "leftovers";
const SLOW_COMMANDS: &str = "slow_commands";
const EVENTS: &str = "latency";

/// The number of names that are shown.
const SHOWN: usize = 3;

const RECENT: Duration = Duration::from_secs(24 * 60 * 60);

/// The shortest stall that matters. The server answers no client meanwhile, and a lock needs
/// several answers.
const LONG: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Outcome;

    #[test]
    fn long_stalls_of_the_last_day_are_a_warning() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let stall = |at, ms| {
            let took = Duration::from_millis(ms);
            Stall { what: "KEYS".to_owned(), at, took }
        };
        let of = |stalls: Vec<Stall>| {
            slow_commands(&Facts { slow_commands: Some(Ok(stalls)), ..Facts::default() })
        };
        assert_eq!(of(vec![stall(now, 99), stall(now - 90_000, 5000)]).outcome, Outcome::Pass);
        let found = of(vec![stall(now, 120), stall(now - 100, 1200)]);
        assert_eq!(found.outcome, Outcome::Warn);
        assert!(found.why.contains("2 commands") && found.why.contains("1.2 s (KEYS)"));
    }
}
