//! Checks the kind of server, and how often it wakes up.

use super::subject::no_info;
use crate::doctor::facts::Facts;
use crate::doctor::finding::Finding;

pub(super) fn version(facts: &Facts) -> Finding {
    let Some(info) = facts.info() else { return no_info(VERSION) };
    let (kind, version) = (info.kind(), info.version().unwrap_or("of an unknown version"));
    let why = format!("The server is {kind} {version}.");
    match info.major() {
        Some(..5) => Finding::fail(VERSION, why, "Update it to Redis 5 or later."),
        Some(5) => Finding::warn(
            VERSION,
            why,
            "Update it to Redis 6 or later: this version cannot notify waiters.",
        ),
        Some(_) if ["Redis", "Valkey"].contains(&kind) => Finding::pass(VERSION, why),
        _ => Finding::warn(
            VERSION,
            why,
            "Use Redis or Valkey in production: other servers are not tested for locks.",
        ),
    }
}

pub(super) fn role(facts: &Facts) -> Finding {
    let Some(info) = facts.info() else { return no_info(ROLE) };
    if info.number("cluster_enabled") == Some(1) {
        return Finding::fail(
            ROLE,
            "The server is in cluster mode, where keys move between servers.",
            "Name a server that is not in cluster mode.",
        );
    }
    let replicas = info.number("connected_slaves").unwrap_or_default();
    match info.get("role") {
        Some("master") if replicas == 0 => {
            Finding::pass(ROLE, "The node is a master without replicas.")
        }
        Some("master") => {
            let of = if replicas == 1 { "replica" } else { "replicas" };
            Finding::pass(ROLE, format!("The node is a master with {replicas} {of}."))
        }
        Some("slave") => Finding::fail(
            ROLE,
            "The node is a replica: it has only what its master sends it, and takes no writes.",
            "Name an independent master in its place.",
        ),
        _ => Finding::skip(ROLE, "The server does not report its role."),
    }
}

pub(super) fn timers(facts: &Facts) -> Finding {
    let Some(info) = facts.info() else { return no_info(TIMERS) };
    match info.number("hz") {
        Some(hz @ ..10) => Finding::warn(
            TIMERS,
            format!("The server looks for expired keys only {hz} times a second (hz)."),
            "Set hz 10 or more: waiters are notified late when a holder's lock expires.",
        ),
        Some(hz) => Finding::pass(
            TIMERS,
            format!("The server looks for expired keys {hz} times a second (hz)."),
        ),
        None => Finding::skip(TIMERS, "The server does not report hz."),
    }
}

const VERSION: &str = "version";
const ROLE: &str = "role";
const TIMERS: &str = "hz";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Outcome;
    use crate::doctor::info::Info;

    fn told(info: &str) -> Facts {
        Facts { info: Some(Ok(Info::parse(info))), ..Facts::default() }
    }

    #[test]
    fn old_and_unknown_servers_are_named() {
        let of = |text: &str| version(&told(text)).outcome;
        assert_eq!(of("redis_version:4.0.9\nos:Linux"), Outcome::Fail);
        assert_eq!(of("redis_version:5.0.14\nos:Linux"), Outcome::Warn);
        assert_eq!(of("redis_version:7.2.4\nvalkey_version:8.1.0\nos:Linux"), Outcome::Pass);
        assert_eq!(of("redis_version:7.4.0\ndragonfly_version:1.2\nos:Linux"), Outcome::Warn);
        assert_eq!(version(&Facts::default()).outcome, Outcome::Skip);
    }

    #[test]
    fn only_an_independent_master_is_a_node() {
        let of = |text: &str| role(&told(text));
        assert_eq!(of("role:master\nconnected_slaves:0").outcome, Outcome::Pass);
        assert!(of("role:master\nconnected_slaves:2").why.contains("2 replicas"));
        assert_eq!(of("role:slave").outcome, Outcome::Fail);
        assert_eq!(of("role:master\ncluster_enabled:1").outcome, Outcome::Fail);
    }

    #[test]
    fn few_wakes_of_the_server_are_a_warning() {
        assert_eq!(timers(&told("hz:1")).outcome, Outcome::Warn);
        assert_eq!(timers(&told("hz:10")).outcome, Outcome::Pass);
    }
}
