//! Checks whether a node answers, and whether it votes.

use std::time::Duration;

use redbolt::proto::restart_guard::Found;
use redbolt::report::{Cause, NodeState, NodeStatus, RestartGuardState};

use super::subject::Subject;
use crate::doctor::facts::Facts;
use crate::doctor::finding::Finding;
use crate::duration::show;
use crate::status;

pub(super) fn reachable(subject: &Subject<'_>) -> Finding {
    let (facts, status) = (subject.facts, subject.status);
    let words = || match status.state {
        NodeState::Down(_) => status::reason(status),
        _ => facts.failure.clone().unwrap_or_default(),
    };
    if facts.is_refused {
        return Finding::fail(LOGIN, format!("The node refuses us: {}.", words()), advice(status));
    }
    if !facts.is_open {
        let why = format!("The node cannot be reached: {}.", words());
        return Finding::fail(REACHABLE, why, advice(status));
    }
    if let Some(failure) = &facts.failure {
        let why = format!("The node stopped answering: {failure}.");
        return Finding::fail(REACHABLE, why, "Find out what blocks or ends the server.");
    }
    round_trip(facts, subject.settings.response_timeout)
}

fn round_trip(facts: &Facts, response_timeout: Duration) -> Finding {
    let [shortest, half, most] = [0.0, 0.5, 0.99].map(|share| facts.round_trip(share));
    let why = format!(
        "The node answers: min {}, p50 {}, p99 {} of {} round trips.",
        show(shortest),
        show(half),
        show(most),
        facts.round_trips.len()
    );
    // A lock takes up to three round trips, and one late answer must not end it.
    if most <= response_timeout / 4 {
        return Finding::pass(REACHABLE, why);
    }
    let todo = format!(
        "Find the delay in the network or the server, or raise --response-timeout ({}).",
        show(response_timeout)
    );
    Finding::warn(REACHABLE, why, todo)
}

pub(super) fn votes(subject: &Subject<'_>) -> Finding {
    let status = subject.status;
    match (status.state, status.restart_guard) {
        (NodeState::Ready, RestartGuardState::Off) => {
            Finding::pass(VOTES, "The node votes; its restart guard is not read.")
        }
        (NodeState::Ready, guard) => Finding::pass(VOTES, format!("The node votes; it {guard}.")),
        (_, RestartGuardState::Quarantined { left, .. }) => Finding::warn(
            VOTES,
            format!("The node may have forgotten locks: it is quarantined for {}.", show(left)),
            "Wait until the quarantine ends; `redbolt status --wait all` does.",
        ),
        (_, RestartGuardState::Found(found)) => unguarded(found, subject.init),
        _ => Finding::fail(
            VOTES,
            format!("The node does not vote: {}.", status::reason(status)),
            advice(status),
        ),
    }
}

/// Returns the finding for a restart guard that does not let the node vote.
fn unguarded(found: Found, init: &str) -> Finding {
    let why = format!("The node does not vote yet: {found}.");
    match found {
        Found::OtherLimits { .. } => {
            Finding::fail(VOTES, why, "Give all users of the nodes the same nodes and --max-ttl.")
        }
        Found::Missing => Finding::warn(
            VOTES,
            why,
            format!("If all nodes are new: `{init}`; if not, `redbolt status --wait all`."),
        ),
        found if found.calls_for_enrolment() => {
            let todo = "Run `redbolt status --wait all`: it begins the quarantine and waits.";
            Finding::warn(VOTES, why, todo)
        }
        _ => Finding::fail(
            VOTES,
            why,
            "Delete that key if it is not redbolt's, or name another with --restart-guard-key.",
        ),
    }
}

/// Returns advice for an operator about a node that does not vote.
fn advice(status: &NodeStatus) -> &'static str {
    let NodeState::Down(cause) = status.state else {
        return "Find out what blocks the server or the network.";
    };
    match cause {
        Cause::ConnectionRefused => "Start the server, or correct the node's address.",
        Cause::NameLookup => "Correct the host's name, or its entry in DNS.",
        Cause::PasswordMissing => "Give the password in the node's address or --password-file.",
        Cause::WrongPassword => "Correct the user or the password in the node's address.",
        Cause::NoPasswordSet => "Give the server a password, or leave it out of the address.",
        Cause::ProtectedMode => "Give the server a password, or bind it to a private address.",
        Cause::TlsPort => "Write rediss:// in the node's address.",
        Cause::PlainPort => "Write redis:// in the node's address, or give the server TLS.",
        Cause::Certificate | Cause::TlsRefused | Cause::Tls => "Correct the certificates.",
        Cause::NoSuchDatabase => "Correct the number of the database in the node's address.",
        Cause::Replica => "Name a master in its place.",
        Cause::ClusterMode => "Name a server that is not in cluster mode.",
        Cause::SameServer => "Name each server once.",
        Cause::Evicting => "Set maxmemory-policy noeviction.",
        Cause::TooOld => "Update the server to Redis 5 or later.",
        Cause::OutOfMemory => "Free memory or raise maxmemory.",
        Cause::DiskTrouble => "Make room on the server's disk, or turn its snapshots off.",
        Cause::NoReplicas => "Bring the replicas back.",
        Cause::MaxClients => "Raise maxclients, or close connections that are not used.",
        Cause::NoPermission | Cause::UnknownCommand | Cause::ScriptsForbidden => {
            "Allow the user the commands that locks need."
        }
        _ => "Find out what blocks the server or the network.",
    }
}

const LOGIN: &str = "login";
const REACHABLE: &str = "reachable";
const VOTES: &str = "votes";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Outcome;

    #[test]
    fn slow_answers_are_a_warning() {
        let round_trips = (1..=200).map(Duration::from_millis).collect();
        let facts = Facts { round_trips, ..Facts::default() };
        let found = round_trip(&facts, Duration::from_secs(1));
        assert_eq!(found.outcome, Outcome::Pass);
        assert!(found.why.contains("min 1.00 ms, p50 100 ms, p99 198 ms of 200"), "{}", found.why);
        assert_eq!(round_trip(&facts, Duration::from_millis(700)).outcome, Outcome::Warn);
    }

    #[test]
    fn limits_of_others_need_an_operator_and_a_restart_does_not() {
        let limits = Found::OtherLimits { max_ttl_ms: 5000, nodes: 5 };
        for (found, outcome) in [
            (limits, Outcome::Fail),
            (Found::Unreadable, Outcome::Fail),
            (Found::OtherRun, Outcome::Warn),
            (Found::Missing, Outcome::Warn),
        ] {
            assert_eq!(unguarded(found, "redbolt init").outcome, outcome, "{found:?}");
        }
    }
}
