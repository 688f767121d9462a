//! Shows the holder and the waiters of a lock, node by node. The verdict is the library's.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use redbolt::{
    Client, Config, Profile,
    inspect::{
        DataKind, Foreign, ForeignLock, Holder, Inspection, InspectionVerdict, KeyState,
        NodeInspection, Permits, Sharers,
    },
    report::{NodeReport, NodeStatus, RestartGuardState},
};
use serde_json::{Value, json};

use super::layout::{restart_guard_as_json, table, whole};
use crate::args::StatusArgs;
use crate::duration::show;
use crate::exit::{self, Failure};
use crate::foreign::{self, remaining};
use crate::name;
use crate::say::{json_line, print, report};
use crate::waiters;

/// Prints who holds the lock of this name. The exit status says whether there was a verdict.
pub(super) fn show_lock(client: &Client, args: &StatusArgs, key: &OsStr) -> Result<u8, Failure> {
    let config = client.config();
    let seen =
        client.inspect(key.as_bytes()).map_err(|error| Failure::request(name::show(key), error))?;
    // As the nodes were when they answered.
    let restart_guards = client.node_report();
    if args.json {
        print(&json_line(&as_json(key, config, &seen, &restart_guards)))?;
    } else {
        let key = name::show(key);
        report(&as_text(&key, config, &seen, &restart_guards, args.format.profile))?;
    }
    Ok(exit_status(&seen.verdict, args.exit_status, restart_guards.has_quorum()))
}

/// Returns the exit status of a verdict. If the state decides, it is the status of `redbolt lock
/// --try`.
fn exit_status(verdict: &InspectionVerdict, state_decides: bool, can_vote: bool) -> u8 {
    match verdict {
        InspectionVerdict::Undecided => exit::NO_QUORUM,
        _ if !state_decides => exit::SUCCESS,
        InspectionVerdict::Free if can_vote => exit::SUCCESS,
        InspectionVerdict::Free => exit::NO_QUORUM,
        _ => exit::CONFLICT,
    }
}

fn as_text(
    key: &str,
    config: &Config,
    seen: &Inspection,
    restart_guards: &NodeReport,
    expected: Option<Profile>,
) -> String {
    let free = if restart_guards.has_quorum() { "free" } else { "no key" };
    let rows = seen.nodes.iter().zip(&restart_guards.nodes);
    let rows = rows.map(|(node, status)| row(node, status, free));
    let mut text = table(&rows.collect::<Vec<_>>());
    let too_few = too_few(config, restart_guards);
    let waiters = waiters::as_text(seen.queue.as_ref(), &seen.nodes);
    match (too_few, &seen.verdict) {
        (Some(too_few), InspectionVerdict::Free) => {
            text += &format!("{waiters}{key}: not held as far as is known, but {too_few}\n");
        }
        (too_few, _) => {
            let too_few = too_few.map_or_else(String::new, |it| format!("{it}\n"));
            text += &format!("{too_few}{waiters}{key}: {}\n", verdict(config, seen, expected));
        }
    }
    text
}

/// Returns why no lock can be taken. Nodes that do not vote may also have forgotten the holder.
fn too_few(config: &Config, restart_guards: &NodeReport) -> Option<String> {
    (!restart_guards.has_quorum()).then(|| {
        let (quorum, nodes, ready) = (config.quorum(), config.node_count(), restart_guards.ready());
        format!("no lock can be taken now: {ready} of {nodes} nodes vote, {quorum} must")
    })
}

fn verdict(config: &Config, seen: &Inspection, expected: Option<Profile>) -> String {
    let (quorum, nodes) = (config.quorum(), config.node_count());
    match &seen.verdict {
        InspectionVerdict::Free => "free".to_owned(),
        InspectionVerdict::Held(holder) => {
            let held =
                count(seen, |state| matches!(state, KeyState::Held(h) if is_same(h, holder)));
            format!("held by {holder} on {held} of {nodes} nodes")
        }
        InspectionVerdict::Permits(permits) => {
            let there = count(seen, |state| matches!(state, KeyState::Permits(_)));
            let count = permits.count;
            format!("{count} permits held, {permits}, on {there} of {nodes} nodes")
        }
        InspectionVerdict::Shared(sharers) => {
            let there = count(seen, |state| matches!(state, KeyState::Shared(_)));
            format!("shared by {sharers} on {there} of {nodes} nodes")
        }
        InspectionVerdict::Foreign(data) => {
            let there = count(seen, |state| matches!(state, KeyState::Foreign(_)));
            let (left, whose) = (left(remaining(data)), foreign::whose(data, expected));
            format!("{data}, {left}, on {there} of {nodes} nodes{whose}")
        }
        _ => {
            let answered = count(seen, |_| true);
            format!("undecided, {answered} of {nodes} nodes answered, {quorum} must agree")
        }
    }
}

fn row(node: &NodeInspection, status: &NodeStatus, free: &str) -> [String; COLUMNS] {
    let state = match &node.state {
        Ok(KeyState::Free) => free.to_owned(),
        Ok(KeyState::Held(holder)) => format!("held by {holder}, {}", left(holder.remaining)),
        Ok(KeyState::Permits(permits)) => {
            format!("permits of {permits}, {}", left(permits.remaining))
        }
        Ok(KeyState::Shared(sharers)) => {
            format!("shared by {sharers}, {}", left(sharers.remaining))
        }
        Ok(KeyState::Foreign(data)) => format!("{data}, {}", left(remaining(data))),
        Ok(_) => "held".to_owned(),
        Err(_) => match reason(node) {
            words if words.starts_with("no answer") => words,
            words => format!("no answer: {words}"),
        },
    };
    let restart_guard = restart_guard_in_words(status);
    let round_trip = node.round_trip.map(show).unwrap_or_default();
    [node.address.to_string(), state, waiters::of_node(node), restart_guard, round_trip]
}

fn left(remaining: Option<Duration>) -> String {
    remaining.map_or_else(|| "without end".to_owned(), |left| format!("{} left", show(left)))
}

/// Describes the restart guard, or returns nothing if it was not read: the reason is reported
/// already.
fn restart_guard_in_words(node: &NodeStatus) -> String {
    match node.restart_guard {
        RestartGuardState::Unknown | RestartGuardState::Off => String::new(),
        restart_guard => restart_guard.to_string(),
    }
}

fn as_json(key: &OsStr, config: &Config, seen: &Inspection, restart_guards: &NodeReport) -> Value {
    let nodes = seen.nodes.iter().zip(&restart_guards.nodes);
    let free = if restart_guards.has_quorum() { "free" } else { "no_key" };
    let (verdict, holder, sharers, data) = match &seen.verdict {
        InspectionVerdict::Free => (free, None, None, None),
        InspectionVerdict::Held(holder) => ("held", Some(holder), None, None),
        InspectionVerdict::Permits(_) => ("permits", None, None, None),
        InspectionVerdict::Shared(sharers) => ("shared", None, Some(sharers), None),
        InspectionVerdict::Foreign(data) => ("foreign", None, None, Some(data)),
        _ => ("undecided", None, None, None),
    };
    json!({
        "key": name::text(key),
        "key_hex": name::hex(key),
        "verdict": verdict,
        "holder": holder.map(|holder| &holder.label),
        "hash": holder.map(hash),
        "sharers": sharers.map(sharers_as_json),
        "permits": match &seen.verdict {
            InspectionVerdict::Permits(permits) => Some(permits_as_json(permits)),
            _ => None,
        },
        "data": data.map(data_as_json),
        "remaining_ms": seen.remaining().map(|left| whole(left.as_millis())),
        "queue": waiters::as_json(seen.queue.as_ref()),
        "quorum": config.quorum(),
        "voting": restart_guards.ready(),
        "reason": too_few(config, restart_guards),
        "nodes": nodes.map(|(node, status)| node_as_json(node, status, free)).collect::<Vec<_>>(),
    })
}

fn node_as_json(node: &NodeInspection, status: &NodeStatus, free: &str) -> Value {
    let (state, holder, sharers, data) = match &node.state {
        Ok(KeyState::Free) => (free, None, None, None),
        Ok(KeyState::Held(holder)) => ("held", Some(holder), None, None),
        Ok(KeyState::Permits(_)) => ("permits", None, None, None),
        Ok(KeyState::Shared(sharers)) => ("shared", None, Some(sharers), None),
        Ok(KeyState::Foreign(data)) => ("foreign", None, None, Some(data)),
        Ok(_) => ("held", None, None, None),
        Err(_) => ("no_answer", None, None, None),
    };
    let remaining = node.state.as_ref().ok().and_then(KeyState::remaining);
    json!({
        "address": node.address.to_string(),
        "state": state,
        "holder": holder.map(|holder| &holder.label),
        "hash": holder.map(hash),
        "sharers": sharers.map(sharers_as_json),
        "permits": match &node.state {
            Ok(KeyState::Permits(permits)) => Some(permits_as_json(permits)),
            _ => None,
        },
        "data": data.map(data_as_json),
        "remaining_ms": remaining.map(|left| whole(left.as_millis())),
        "queue": waiters::as_json(node.queue.as_ref().ok()),
        "queue_reason": node.no_queue(),
        "round_trip_us": node.round_trip.map(|span| whole(span.as_micros())),
        "reason": node.state.is_err().then(|| reason(node)),
        "restart_guard": restart_guard_as_json(status.restart_guard),
    })
}

fn sharers_as_json(sharers: &Sharers) -> Value {
    let one = |holder: &Holder| {
        json!({
            "holder": &holder.label,
            "hash": hash(holder),
            "remaining_ms": holder.remaining.map(|left| whole(left.as_millis())),
        })
    };
    json!({
        "count": sharers.count,
        "first": sharers.holders.iter().map(one).collect::<Vec<_>>(),
    })
}

fn permits_as_json(permits: &Permits) -> Value {
    let one = |(slot, holder): &(u16, Holder)| {
        json!({
            "slot": slot,
            "holder": &holder.label,
            "hash": hash(holder),
            "remaining_ms": holder.remaining.map(|left| whole(left.as_millis())),
        })
    };
    json!({
        "count": permits.count,
        "first": permits.holders.iter().map(one).collect::<Vec<_>>(),
    })
}

/// Returns the hash that distinguishes holders with the same label or none.
fn hash(holder: &Holder) -> String {
    format!("{:08x}", holder.fingerprint)
}

fn data_as_json(data: &Foreign) -> Value {
    let mut told = kind_as_json(&data.kind);
    told["profile"] = data.profiles.first().map(|profile| profile.name()).into();
    told
}

fn kind_as_json(kind: &DataKind) -> Value {
    match kind {
        DataKind::String { bytes, fingerprint, library, owner } => {
            let hash = format!("{fingerprint:08x}");
            json!({ "type": "string", "bytes": bytes, "hash": hash, "library": library, "holder": owner })
        }
        DataKind::Lock(lock) => lock_as_json(lock),
        DataKind::Hash => json!({ "type": "hash" }),
        DataKind::List => json!({ "type": "list" }),
        DataKind::Set => json!({ "type": "set" }),
        DataKind::SortedSet => json!({ "type": "zset" }),
        DataKind::Stream => json!({ "type": "stream" }),
        DataKind::Module(name) => json!({ "type": name }),
        _ => json!({ "type": null }),
    }
}

fn lock_as_json(lock: &ForeignLock) -> Value {
    let mut told = json!({ "type": lock.key_type });
    if let Some(library) = lock.library {
        told["library"] = library.into();
    }
    if let Some(is_write) = lock.is_write {
        told["mode"] = if is_write { "write" } else { "read" }.into();
    }
    if let Some(holders) = lock.holders {
        told["holders"] = holders.into();
    }
    if let Some(holds) = lock.holds {
        told["holder"] = lock.owner.as_deref().into();
        told["holds"] = holds.into();
    }
    if let Some(ends) = lock.ends {
        told["ends_unix_s"] = ends.as_secs().into();
    }
    told
}

/// Returns the library's reason why a node did not answer, without its address.
fn reason(node: &NodeInspection) -> String {
    let words = node.to_string();
    let address = format!("node {} {}: ", node.number, node.address);
    words.strip_prefix(&address).unwrap_or(&words).to_owned()
}

/// Returns whether two nodes hold the key for the same token.
fn is_same(one: &Holder, other: &Holder) -> bool {
    one.fingerprint == other.fingerprint
}

fn count(seen: &Inspection, wanted: impl Fn(&KeyState) -> bool) -> usize {
    seen.nodes.iter().filter(|node| node.state.as_ref().is_ok_and(&wanted)).count()
}

const COLUMNS: usize = 5;
