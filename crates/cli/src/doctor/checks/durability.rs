//! Checks what a node keeps over a restart or a failover, and whether the configured trust suits
//! that.

use redbolt::config::{RestartGuard, RestartTrust};

use super::subject::{Subject, no_info};
use crate::doctor::facts::Facts;
use crate::doctor::finding::Finding;
use crate::doctor::info::Info;
use crate::duration::show;

/// The data that a restarted node still has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeps {
    /// The node has every write: appendonly, with appendfsync always.
    Everything,
    /// The node has all writes up to an earlier moment.
    Stale,
    /// The node has no keys.
    Nothing,
    /// The server does not report it.
    Unknown,
}

pub(super) fn persistence(subject: &Subject<'_>) -> Finding {
    let keeps = keeps(subject.facts);
    match subject.settings.restart_guard {
        RestartGuard::Off => without_guard(keeps),
        _ => match subject.trust() {
            RestartTrust::Durable => durable(keeps),
            RestartTrust::MarkerOnly => marker_only(keeps),
            _ => {
                let max_ttl = show(subject.settings.max_ttl);
                let why = format!(
                    "The restart guard holds: after a restart the node does not vote for {max_ttl}, \
                     whatever it kept."
                );
                Finding::pass(PERSISTENCE, why)
            }
        },
    }
}

fn without_guard(keeps: Keeps) -> Finding {
    match keeps {
        Keeps::Everything => Finding::pass(
            PERSISTENCE,
            "The server syncs every write to its disk, and there is no restart guard.",
        ),
        Keeps::Stale | Keeps::Nothing => Finding::fail(
            PERSISTENCE,
            "The server forgets locks in a restart, and no restart guard notices it.",
            "Leave out --restart-guard off, or set appendonly yes and appendfsync always.",
        ),
        Keeps::Unknown => unknown("Leave out --restart-guard off, or allow CONFIG GET."),
    }
}

fn durable(keeps: Keeps) -> Finding {
    match keeps {
        Keeps::Everything => Finding::pass(
            PERSISTENCE,
            "The server syncs every write to its disk, as --restart-trust durable demands.",
        ),
        Keeps::Stale | Keeps::Nothing => Finding::fail(
            PERSISTENCE,
            "The server may forget locks in a restart, and --restart-trust durable denies it.",
            "Set appendonly yes and appendfsync always, or leave out --restart-trust durable.",
        ),
        Keeps::Unknown => unknown("Make sure that appendfsync is always, or allow CONFIG GET."),
    }
}

fn marker_only(keeps: Keeps) -> Finding {
    match keeps {
        Keeps::Everything => {
            Finding::pass(PERSISTENCE, "The server syncs every write to its disk.")
        }
        Keeps::Nothing => Finding::pass(
            PERSISTENCE,
            "The server keeps nothing, so a restart removes its restart guard too.",
        ),
        Keeps::Stale => Finding::fail(
            PERSISTENCE,
            "A restart with old data goes unnoticed: it brings back an old restart guard.",
            "Allow the user INFO and leave out --restart-trust marker-only.",
        ),
        Keeps::Unknown => unknown("Turn appendonly and save off, or allow the user INFO."),
    }
}

fn unknown(todo: &str) -> Finding {
    Finding::warn(PERSISTENCE, "The user may not read what the server keeps.", todo)
}

fn keeps(facts: &Facts) -> Keeps {
    let aof_of_info = facts.info().and_then(|info| info.number("aof_enabled")).map(|on| on == 1);
    let aof = facts.setting("appendonly").map(|word| word == "yes").or(aof_of_info);
    match (aof, facts.setting("appendfsync"), facts.setting("save")) {
        (Some(true), Some("always"), _) => Keeps::Everything,
        (Some(true), Some(_), _) => Keeps::Stale,
        (Some(false), _, Some("")) => Keeps::Nothing,
        (Some(false), _, Some(_)) => Keeps::Stale,
        _ => Keeps::Unknown,
    }
}

/// Checks the disk. A server that failed to write to it refuses writes, or forgets more than it
/// promises.
pub(super) fn disk(facts: &Facts) -> Finding {
    let Some(info) = facts.info() else { return no_info(DISK) };
    let fields = ["rdb_last_bgsave_status", "aof_last_write_status", "aof_last_bgrewrite_status"];
    let is_bad = |name: &&str| info.get(name).is_some_and(|status| status != "ok");
    match fields.iter().find(|name| is_bad(name)) {
        Some(name) => Finding::fail(
            DISK,
            format!("The server could not write to its disk ({name})."),
            "Make room on its disk: until then it may refuse locks (MISCONF).",
        ),
        None if info.number("loading") == Some(1) => Finding::fail(
            DISK,
            "The server is still reading its data.",
            "Wait until it has started.",
        ),
        None => Finding::pass(DISK, "The server's last writes to its disk succeeded."),
    }
}

/// Checks the replicas of a master behind sentinels.
pub(super) fn replicas(subject: &Subject<'_>) -> Finding {
    let Some(info) = subject.facts.info() else { return no_info(REPLICAS) };
    replicas_of(info, subject.facts.setting("min-replicas-to-write"))
}

fn replicas_of(info: &Info, required: Option<&str>) -> Finding {
    let connected = info.number("connected_slaves").unwrap_or_default();
    match (connected, required) {
        (0, _) => Finding::warn(
            REPLICAS,
            "The master has no replica, so the sentinels have none to promote.",
            "Add a replica.",
        ),
        (_, Some("0")) => Finding::warn(
            REPLICAS,
            "The master takes writes also when it is cut off from its replicas.",
            format!("Set min-replicas-to-write {connected}."),
        ),
        (_, Some(required)) => Finding::pass(
            REPLICAS,
            format!("The master takes writes only with {required} of {connected} replicas."),
        ),
        (_, None) => Finding::skip(REPLICAS, "The user may not read min-replicas-to-write."),
    }
}

const PERSISTENCE: &str = "persistence";
const DISK: &str = "disk";
const REPLICAS: &str = "replicas";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Outcome;

    fn set(settings: &[(&'static str, &str)]) -> Facts {
        let settings = settings.iter().map(|&(name, value)| (name, value.to_owned())).collect();
        Facts { settings, ..Facts::default() }
    }

    #[test]
    fn what_a_restart_leaves_follows_from_the_settings() {
        let aof = |sync| set(&[("appendonly", "yes"), ("appendfsync", sync), ("save", "")]);
        assert_eq!(keeps(&aof("always")), Keeps::Everything);
        assert_eq!(keeps(&aof("everysec")), Keeps::Stale);
        let rdb = |save| set(&[("appendonly", "no"), ("appendfsync", "everysec"), ("save", save)]);
        assert_eq!((keeps(&rdb("")), keeps(&rdb("3600 1"))), (Keeps::Nothing, Keeps::Stale));
        assert_eq!(keeps(&Facts::default()), Keeps::Unknown);
    }

    #[test]
    fn each_trust_demands_something_else() {
        let all = [Keeps::Everything, Keeps::Stale, Keeps::Nothing, Keeps::Unknown];
        let of = |check: fn(Keeps) -> Finding| all.map(|keeps| check(keeps).outcome);
        use Outcome::{Fail, Pass, Warn};
        assert_eq!(of(without_guard), [Pass, Fail, Fail, Warn]);
        assert_eq!(of(durable), [Pass, Fail, Fail, Warn]);
        assert_eq!(of(marker_only), [Pass, Fail, Pass, Warn]);
    }

    #[test]
    fn a_master_behind_sentinels_needs_its_replicas() {
        let of = |connected: u8, required| {
            let info = Info::parse(&format!("connected_slaves:{connected}"));
            replicas_of(&info, required).outcome
        };
        assert_eq!(of(0, Some("0")), Outcome::Warn);
        assert_eq!(of(2, Some("0")), Outcome::Warn);
        assert_eq!(of(2, Some("1")), Outcome::Pass);
        assert_eq!(of(2, None), Outcome::Skip);
    }

    #[test]
    fn a_full_disk_is_a_failure() {
        let of = |text: &str| {
            let info = Some(Ok(Info::parse(text)));
            disk(&Facts { info, ..Facts::default() }).outcome
        };
        assert_eq!(of("rdb_last_bgsave_status:ok\naof_last_write_status:ok"), Outcome::Pass);
        assert_eq!(of("rdb_last_bgsave_status:err"), Outcome::Fail);
        assert_eq!(of("loading:1"), Outcome::Fail);
    }
}
