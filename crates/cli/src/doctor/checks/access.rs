//! Checks what the user may do on a node, and which other clients have access.

use redbolt::report::{NodeState, PushState};

use super::subject::Subject;
use crate::doctor::facts::Facts;
use crate::doctor::finding::Finding;
use crate::doctor::rights::{Denied, Need};

pub(super) fn commands(facts: &Facts) -> Finding {
    let Some(denied) = &facts.denied else {
        return Finding::skip(COMMANDS, "The node stopped answering before this was asked.");
    };
    let Some(first) = denied.iter().map(|denied| denied.need).min() else {
        return Finding::pass(COMMANDS, "The user may run scripts and all commands of locks.");
    };
    let why = format!("The user may not run {}.", names(denied));
    match first {
        Need::Locks => Finding::fail(
            COMMANDS,
            why,
            "Allow them with ACL SETUSER: without them the node grants no lock.",
        ),
        Need::Notifications => {
            Finding::warn(COMMANDS, why, "Allow them, or waiters ask in intervals.")
        }
        Need::Queue => Finding::warn(COMMANDS, why, "Allow them, or waiters do not queue here."),
        Need::Fencing | Need::Sharing => Finding::warn(
            COMMANDS,
            why,
            "Allow them if locks here are shared, fenced or permits; others do not need them.",
        ),
    }
}

fn names(denied: &[Denied]) -> String {
    denied.iter().map(|denied| denied.command).collect::<Vec<_>>().join(", ")
}

pub(super) fn notifications(subject: &Subject<'_>) -> Finding {
    match subject.status.push {
        PushState::Active => {
            Finding::pass(NOTIFICATIONS, "The node notifies waiters of a release.")
        }
        PushState::Unavailable(cause) => Finding::warn(
            NOTIFICATIONS,
            format!("The node does not notify waiters: {cause}."),
            "Allow CLIENT TRACKING, SUBSCRIBE and &__redis__:invalidate, on Redis 6 or later.",
        ),
        _ if subject.status.state == NodeState::Ready => {
            Finding::skip(NOTIFICATIONS, "The node did not answer in time.")
        }
        _ => Finding::skip(NOTIFICATIONS, "The node does not vote, so this was not asked."),
    }
}

pub(super) fn protection(subject: &Subject<'_>) -> Finding {
    let facts = subject.facts;
    if subject.has_login && facts.is_open_to_all != Some(true) {
        return Finding::pass(PROTECTION, "Clients must log in.");
    }
    let has_certificates = facts.setting("tls-auth-clients") == Some("yes");
    if facts.setting("port") == Some("0") && has_certificates {
        return Finding::pass(PROTECTION, "Clients must have a certificate.");
    }
    exposure(facts.setting("protected-mode"), facts.setting("bind"))
}

/// Checks which hosts reach a server that needs no password.
fn exposure(protected_mode: Option<&str>, bind: Option<&str>) -> Finding {
    let is_local = bind.map(|bind| bind.split_whitespace().all(is_loopback));
    let todo = "Give the default user of the server a password, or turn that user off.";
    match (protected_mode, is_local) {
        (_, Some(true)) => Finding::pass(PROTECTION, "The server listens for its own host only."),
        (Some("no"), _) => Finding::warn(
            PROTECTION,
            "Clients need no password, and protected mode is off: all who reach the port can take \
             and delete locks.",
            todo,
        ),
        (Some(_), _) => Finding::warn(
            PROTECTION,
            "Clients need no password, so protected mode refuses those on other hosts.",
            todo,
        ),
        (None, _) => Finding::skip(PROTECTION, "The user may not read protected-mode and bind."),
    }
}

/// Returns whether an address of `bind` belongs to the host's loopback. Servers may lack addresses
/// that begin with -.
fn is_loopback(address: &str) -> bool {
    let address = address.trim_start_matches('-');
    address == "::1" || address.starts_with("127.")
}

const COMMANDS: &str = "commands";
const NOTIFICATIONS: &str = "notifications";
const PROTECTION: &str = "protection";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Outcome;

    #[test]
    fn what_every_lock_needs_is_a_failure() {
        let of = |denied: &[(&'static str, Need)]| {
            let denied = denied.iter().map(|&(command, need)| Denied { command, need }).collect();
            commands(&Facts { denied: Some(denied), ..Facts::default() })
        };
        assert_eq!(of(&[]).outcome, Outcome::Pass);
        let two = of(&[("TIME", Need::Fencing), ("EVAL", Need::Locks)]);
        assert_eq!(
            (two.outcome, &two.why[..]),
            (Outcome::Fail, "The user may not run TIME, EVAL.")
        );
        assert_eq!(of(&[("CLIENT CACHING", Need::Queue)]).outcome, Outcome::Warn);
    }

    #[test]
    fn a_server_that_asks_for_no_password_is_for_its_own_host() {
        let of = |mode, bind| exposure(Some(mode), Some(bind)).outcome;
        assert_eq!(of("no", "127.0.0.1 -::1"), Outcome::Pass);
        assert_eq!(of("no", "* -::*"), Outcome::Warn);
        assert_eq!(of("yes", "127.0.0.1 10.0.0.1"), Outcome::Warn);
        assert_eq!(exposure(None, None).outcome, Outcome::Skip);
        assert!(exposure(Some("no"), None).why.contains("all who reach the port"));
    }

    #[test]
    fn addresses_of_the_host_itself_are_known() {
        assert!(["127.0.0.1", "-::1", "127.0.1.1"].into_iter().all(is_loopback));
        assert!(!["*", "-::*", "10.0.0.1", "::"].into_iter().any(is_loopback));
    }
}
