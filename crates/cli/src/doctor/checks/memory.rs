//! Checks whether a node has room for locks, and whether it deletes them to make room.

use super::subject::no_info;
use crate::doctor::facts::Facts;
use crate::doctor::finding::Finding;
use crate::doctor::info::Info;

pub(super) fn memory(facts: &Facts) -> Finding {
    let Some(info) = facts.info() else { return no_info(MEMORY) };
    let used = info.number("used_memory").unwrap_or_default();
    match limit(info) {
        Some(limit) if used >= limit / 100 * 95 => Finding::fail(
            MEMORY,
            format!("The server uses {} of its maxmemory, {}.", size(used), size(limit)),
            "Free memory or raise maxmemory: a full server grants no lock.",
        ),
        Some(limit) if used >= limit / 100 * 80 => Finding::warn(
            MEMORY,
            format!("The server uses {} of its maxmemory, {}.", size(used), size(limit)),
            "Free memory or raise maxmemory before it is full: a full server grants no lock.",
        ),
        Some(limit) => Finding::pass(
            MEMORY,
            format!("The server uses {} of its maxmemory, {}.", size(used), size(limit)),
        ),
        None => of_host(info),
    }
}

/// Checks the host's memory: a server without a limit grows until none is left.
fn of_host(info: &Info) -> Finding {
    let resident = info.number("used_memory_rss").unwrap_or_default();
    match info.number("total_system_memory") {
        Some(all) if resident > all / 100 * 80 => Finding::warn(
            MEMORY,
            format!("The server uses {} of its host's {}.", size(resident), size(all)),
            "Free memory: the kernel kills a server that takes the last of it.",
        ),
        Some(all) => Finding::pass(
            MEMORY,
            format!(
                "The server uses {} of its host's {}, and has no limit.",
                size(resident),
                size(all)
            ),
        ),
        None => Finding::skip(MEMORY, "The server does not report its memory."),
    }
}

pub(super) fn eviction(facts: &Facts) -> Finding {
    let Some(info) = facts.info() else { return no_info(EVICTION) };
    let policy = info.get("maxmemory_policy").or_else(|| facts.setting("maxmemory-policy"));
    match policy {
        None => Finding::skip(EVICTION, "The server does not report maxmemory-policy."),
        Some("noeviction") => Finding::pass(EVICTION, "The server evicts no keys."),
        Some(policy) if limit(info).is_some() => Finding::fail(
            EVICTION,
            format!("The server deletes locks when it is full: maxmemory-policy is {policy}."),
            "Set maxmemory-policy noeviction.",
        ),
        Some(policy) => Finding::warn(
            EVICTION,
            format!("With a maxmemory the server would delete locks: the policy is {policy}."),
            "Set maxmemory-policy noeviction.",
        ),
    }
}

fn limit(info: &Info) -> Option<u64> {
    info.number("maxmemory").filter(|limit| *limit > 0)
}

fn size(bytes: u64) -> String {
    match bytes as f64 / f64::from(1 << 20) {
        mib @ ..1024.0 => format!("{mib:.1} MiB"),
        mib => format!("{:.1} GiB", mib / 1024.0),
    }
}

const MEMORY: &str = "memory";
const EVICTION: &str = "eviction";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Outcome;

    fn told(info: &str) -> Facts {
        Facts { info: Some(Ok(Info::parse(info))), ..Facts::default() }
    }

    #[test]
    fn little_room_is_a_warning_and_none_a_failure() {
        let of = |used| memory(&told(&format!("maxmemory:1000000\nused_memory:{used}"))).outcome;
        assert_eq!(of(500_000), Outcome::Pass);
        assert_eq!(of(800_000), Outcome::Warn);
        assert_eq!(of(999_000), Outcome::Fail);
        let of = |used| {
            let text = format!("maxmemory:0\nused_memory_rss:{used}\ntotal_system_memory:1000000");
            memory(&told(&text)).outcome
        };
        assert_eq!((of(100), of(900_000)), (Outcome::Pass, Outcome::Warn));
    }

    #[test]
    fn a_policy_that_evicts_is_a_failure_once_there_is_a_limit() {
        let of = |limit: u8, policy| {
            eviction(&told(&format!("maxmemory:{limit}\nmaxmemory_policy:{policy}"))).outcome
        };
        assert_eq!(of(1, "noeviction"), Outcome::Pass);
        assert_eq!(of(1, "volatile-ttl"), Outcome::Fail);
        assert_eq!(of(0, "allkeys-lru"), Outcome::Warn);
    }
}
