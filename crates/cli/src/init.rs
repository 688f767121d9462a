//! `redbolt init`: declares nodes as new, or moves them to other limits.
//!
//! The library decides what is written, and when. This module prints a line for each node and
//! chooses the exit status.

use redbolt::proto::restart_guard::Found;
use redbolt::{
    Config, SetupError,
    report::{Cause, NodeReport, NodeState, NodeStatus, RestartGuardState},
};

use crate::args::InitArgs;
use crate::duration::show;
use crate::exit::{self, Failure};
use crate::nodes;
use crate::say::report as print_report;

/// Sets the nodes up.
pub(crate) fn run(args: &InitArgs) -> Result<u8, Failure> {
    let config = nodes::build(nodes::builder(&args.nodes)?, &args.nodes)?;
    let set_up = if args.change { redbolt::init_change } else { redbolt::init };
    let settings = config.settings();
    // Each node must be reached, and its restart guard written and read again.
    let within = settings.connect_timeout + 2 * settings.response_timeout;
    let report = set_up(&config, within).map_err(|error| failure(args, error))?;
    let text = format!("{}{}\n", lines(&report), done(&config, &report));
    print_report(&text)?;
    Ok(exit::SUCCESS)
}

fn done(config: &Config, report: &NodeReport) -> String {
    let of = match report.nodes.len() {
        1 => "1 node".to_owned(),
        nodes => format!("{nodes} nodes"),
    };
    let max_ttl = show(config.settings().max_ttl);
    let left = report.nodes.iter().filter_map(|node| match node.restart_guard {
        RestartGuardState::Quarantined { left, .. } => Some(left),
        _ => None,
    });
    match left.max() {
        None => format!("{of} set up for a max_ttl of {max_ttl}; locks can be taken"),
        Some(left) => {
            format!("{of} set up for a max_ttl of {max_ttl}; locks can be attached {}", show(left))
        }
    }
}

fn failure(args: &InitArgs, error: SetupError) -> Failure {
    match error {
        SetupError::Guarded(report) if report.nodes.iter().all(is_set_up) => {
            Failure::already_set_up(format_args!("{ALREADY_SET_UP}\n{}", lines(&report)))
        }
        SetupError::Guarded(report) => {
            let (lines, advice) = (lines(&report), advice(args, &report));
            Failure::usage(format_args!("not new: nothing was written\n{lines}{advice}"))
        }
        SetupError::Incomplete(report) => {
            let again = if args.change { CHANGE_AGAIN } else { INIT_AGAIN };
            let lines = lines(&report);
            Failure::no_quorum(format_args!("not every node has confirmed\n{lines}{again}"))
        }
        SetupError::Unready(report) => Failure::no_quorum(format_args!(
            "not every node can be set up: nothing was written\n{}",
            lines(&report)
        )),
        other => Failure::system(other),
    }
}

/// Returns advice about nodes that are not new.
fn advice(args: &InitArgs, report: &NodeReport) -> String {
    let any =
        |is: fn(RestartGuardState) -> bool| report.nodes.iter().any(|node| is(node.restart_guard));
    if any(|restart_guard| {
        matches!(restart_guard, RestartGuardState::Found(Found::OtherLimits { .. }))
    }) {
        let change = nodes::command("init --change", &args.nodes);
        return format!("to move nodes that are in use to other limits: {change}");
    }
    let words = if any(|restart_guard| restart_guard == RestartGuardState::Found(Found::Unreadable))
    {
        "that key is not redbolt's: delete it, or name another one with --restart-guard-key"
    } else if report.nodes.iter().any(is_unfit) {
        "nothing is left to be set up, but a node does not vote until what is said of it is mended"
    } else if any(|restart_guard| restart_guard == RestartGuardState::Votes) {
        "these nodes are in use, and nothing is left to do: one that does not vote yet will, at the \
         latest --max-ttl after the next lock"
    } else {
        "nothing is left to do: they vote when the quarantine is over"
    };
    words.to_owned()
}

/// Returns `true` if the node has the restart guard that `init` would write, and needs nothing else
/// before it votes.
fn is_set_up(node: &NodeStatus) -> bool {
    let has_guard = matches!(
        node.restart_guard,
        RestartGuardState::Votes | RestartGuardState::Quarantined { .. }
    );
    has_guard && !is_misconfigured(node)
}

/// Returns whether the node needs an operator before it can vote, for a reason other than its
/// restart guard.
fn is_unfit(node: &NodeStatus) -> bool {
    is_misconfigured(node) && node.restart_guard == RestartGuardState::Unknown
}

fn is_misconfigured(node: &NodeStatus) -> bool {
    matches!(node.state, NodeState::Down(cause) if cause.is_configuration())
}

fn lines(report: &NodeReport) -> String {
    report.nodes.iter().map(|node| line(node) + "\n").collect()
}

/// Describes a node's restart guard, or why it could not be read or written.
pub(crate) fn line(node: &NodeStatus) -> String {
    let about_restart_guard = match node.state {
        NodeState::Down(cause) => {
            matches!(cause, Cause::RestartGuardAltered | Cause::OtherLimits | Cause::Quarantined)
        }
        _ => true,
    };
    match node.restart_guard {
        RestartGuardState::Unknown => node.to_string(),
        restart_guard if about_restart_guard => {
            format!("node {} {}: {restart_guard}", node.number, node.address)
        }
        _ => node.to_string(),
    }
}

const ALREADY_SET_UP: &str = "already set up with these options: nothing was written, and nothing \
    is left to do";

const CHANGE_AGAIN: &str = "run it again until it succeeds: with only some of the nodes moved, old \
    and new users might both find a quorum";

const INIT_AGAIN: &str = "nothing is left to do: those that have not will get their restart guard from the \
    first lock, and vote --max-ttl later";
