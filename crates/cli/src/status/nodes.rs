//! Shows the state of the nodes: which vote, which notify waiters, and how long an answer takes.
//!
//! The round trip is measured by reading the restart guard's key, which every user of locks may
//! read.

use std::iter;
use std::time::Duration;

use redbolt::{
    Client,
    config::Address,
    report::{NodeReport, NodeState, NodeStatus, PushState, RestartGuardState},
};
use serde_json::{Value, json};

use super::layout::{restart_guard_as_json, table, whole};
use crate::args::StatusArgs;
use crate::contact::contact_push;
use crate::duration::show;
use crate::exit::{self, Failure};
use crate::nodes;
use crate::say::{json_line, print, report as print_report};

/// Prints the nodes. The exit status says whether enough of them vote.
pub(super) fn show_nodes(client: &Client, args: &StatusArgs) -> Result<u8, Failure> {
    let (report, round_trips) = look(client)?;
    tell(args, &report, &round_trips)?;
    Ok(if report.has_quorum() { exit::SUCCESS } else { exit::NO_QUORUM })
}

/// Finds out how long each node takes to answer, which nodes vote, and which notify waiters.
pub(crate) fn look(client: &Client) -> Result<(NodeReport, Vec<Option<Duration>>), Failure> {
    let settings = client.config().settings().clone();
    // It connects to each node once, so a node that hangs is waited for once.
    let seen = client.inspect(&settings.restart_guard_key).map_err(Failure::usage)?;
    let round_trips: Vec<_> = seen.nodes.iter().map(|node| node.round_trip).collect();
    let slowest = round_trips.iter().flatten().max().copied();
    Ok((contact_push(client, slowest.unwrap_or_default()), round_trips))
}

/// Prints the results for the nodes. Round trips may be missing at the end.
pub(super) fn tell(
    args: &StatusArgs,
    report: &NodeReport,
    round_trips: &[Option<Duration>],
) -> Result<(), Failure> {
    let round_trips = round_trips.iter().copied().chain(iter::repeat(None));
    let rows: Vec<_> = report.nodes.iter().zip(round_trips).collect();
    if args.json {
        print(&json_line(&as_json(report, &rows)))?;
    } else {
        print_report(&(as_text(report, &rows) + &hint(report, args)))?;
    }
    Ok(())
}

/// A node, and how long its answer took.
type Row<'a> = (&'a NodeStatus, Option<Duration>);

fn as_text(report: &NodeReport, rows: &[Row<'_>]) -> String {
    let row = |&(node, round_trip): &Row<'_>| {
        let round_trip = round_trip.map(show).unwrap_or_default();
        [node.address.to_string(), state_in_words(node), push_in_words(node.push), round_trip]
    };
    let table = table(&rows.iter().map(row).collect::<Vec<_>>());
    let (ready, nodes, quorum) = (report.ready(), report.nodes.len(), report.quorum());
    let what = match report.has_quorum() {
        true => "locks can be taken",
        false => "no lock can be taken now",
    };
    let cut_off: String = report.nodes.iter().filter_map(votes_if_cut_off).collect();
    format!("{table}{what}: {ready} of {nodes} nodes vote, {quorum} must\n{cut_off}")
}

/// Describes a master that may be replaced, and that would not notice by itself that it is cut off.
fn votes_if_cut_off(node: &NodeStatus) -> Option<String> {
    let replicas = node.replicas.filter(|_| matches!(node.address, Address::Sentinels(_)))?;
    let number = node.number;
    match (replicas.connected, replicas.in_time) {
        (0, _) => Some(format!("node {number} has no replica: sentinels have none to promote\n")),
        (connected, None) => Some(format!(
            "node {number} takes writes without its replicas, also when it is cut off from them: \
             min-replicas-to-write {connected} prevents that, see redbolt's manual on sentinels\n"
        )),
        _ => None,
    }
}

fn state_in_words(node: &NodeStatus) -> String {
    match node.state {
        NodeState::Ready => "votes".to_owned(),
        _ => format!("no voter: {}", reason(node)),
    }
}

/// Returns why a node does not vote. An altered restart guard is more informative than a
/// quarantine.
pub(crate) fn reason(node: &NodeStatus) -> String {
    match node.restart_guard {
        RestartGuardState::Found(found) => found.to_string(),
        _ => {
            let words = node.to_string();
            let address = format!("node {} {}: ", node.number, node.address);
            words.strip_prefix(&address).unwrap_or(&words).to_owned()
        }
    }
}

fn push_in_words(push: PushState) -> String {
    match push {
        PushState::Active => "tells waiters".to_owned(),
        PushState::Unavailable(cause) => format!("waiters are not told: {cause}"),
        _ => String::new(),
    }
}

fn hint(report: &NodeReport, args: &StatusArgs) -> String {
    match report.is_new() {
        true => format!("{NEW}{}\n", nodes::init_command(&args.nodes)),
        false => String::new(),
    }
}

fn as_json(report: &NodeReport, rows: &[Row<'_>]) -> Value {
    let nodes = rows.iter().map(|(node, round_trip)| {
        let is_ready = node.state == NodeState::Ready;
        let (push, push_reason) = match node.push {
            PushState::Active => (Some(true), None),
            PushState::Unavailable(cause) => (Some(false), Some(cause.to_string())),
            _ => (None, None),
        };
        json!({
            "address": node.address.to_string(),
            "votes": is_ready,
            "reason": (!is_ready).then(|| reason(node)),
            "restart_guard": restart_guard_as_json(node.restart_guard),
            "notifies_waiters": push,
            "push_reason": push_reason,
            "replicas": node.replicas.map(|replicas| json!({
                "connected": replicas.connected,
                "in_time": replicas.in_time,
            })),
            "round_trip_us": round_trip.map(|span| whole(span.as_micros())),
        })
    });
    json!({
        "quorum": report.quorum(),
        "voting": report.ready(),
        "new": report.is_new(),
        "nodes": nodes.collect::<Vec<_>>(),
    })
}

const NEW: &str = "if these nodes are new and never held a lock: ";
