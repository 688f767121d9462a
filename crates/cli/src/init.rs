//! `redbolt init`: an operator says that nodes are new, or moves them to other limits.
//!
//! What is written, and when nothing is, the library knows. Here its outcome becomes words and an
//! exit status, and every node gets a line.

use redbolt::proto::guard::Found;
use redbolt::{Cause, Config, NodeGuard, NodeReport, NodeState, NodeStatus, SetupError};

use crate::args::InitArgs;
use crate::duration::show;
use crate::exit::{self, Failure};
use crate::nodes;
use crate::say::print;

/// Sets the nodes up.
pub(crate) fn run(args: &InitArgs) -> Result<u8, Failure> {
    let config = nodes::build(nodes::builder(&args.nodes)?, &args.nodes)?;
    let set_up = if args.change { redbolt::init_change } else { redbolt::init };
    let settings = config.settings();
    // Each node is to be reached, and its guard to be written and read again.
    let within = settings.connect_within + 2 * settings.answer_within;
    let report = set_up(&config, within).map_err(|error| failure(args, error))?;
    let text = format!("{}{}\n", lines(&report), done(&config, &report));
    print(&text)?;
    Ok(exit::SUCCESS)
}

fn done(config: &Config, report: &NodeReport) -> String {
    let of = match report.nodes.len() {
        1 => "1 node".to_owned(),
        nodes => format!("{nodes} nodes"),
    };
    let max_ttl = show(config.settings().max_ttl);
    let left = report.nodes.iter().filter_map(|node| match node.guard {
        NodeGuard::Quarantined { left, .. } => Some(left),
        _ => None,
    });
    match left.max() {
        None => format!("{of} set up for a max_ttl of {max_ttl}; locks can be taken"),
        Some(left) => {
            format!("{of} set up for a max_ttl of {max_ttl}; locks can be taken in {}", show(left))
        }
    }
}

fn failure(args: &InitArgs, error: SetupError) -> Failure {
    match error {
        SetupError::Guarded(report) => {
            let (lines, advice) = (lines(&report), advice(&report));
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

/// What to do about nodes that are not new.
fn advice(report: &NodeReport) -> &'static str {
    let any = |is: fn(NodeGuard) -> bool| report.nodes.iter().any(|node| is(node.guard));
    if any(|guard| matches!(guard, NodeGuard::Found(Found::OtherLimits { .. }))) {
        "to move nodes that are in use to other limits: redbolt init --change"
    } else if any(|guard| guard == NodeGuard::Found(Found::Unreadable)) {
        "that key is not redbolt's: delete it, or name another one with --guard-key"
    } else if report.nodes.iter().any(is_unfit) {
        "nothing is left to be set up, but a node does not vote until what is said of it is mended"
    } else if any(|guard| guard == NodeGuard::Votes) {
        "these nodes are in use, and nothing is left to do: one that does not vote yet will, at the \
         latest --max-ttl after the next lock"
    } else {
        "nothing is left to do: they vote when the quarantine is over"
    }
}

/// Whether only an operator can make a voter of it, and its guard has nothing to do with that.
fn is_unfit(node: &NodeStatus) -> bool {
    let is_configuration = matches!(node.state, NodeState::Down(cause) if cause.is_configuration());
    is_configuration && node.guard == NodeGuard::Unknown
}

fn lines(report: &NodeReport) -> String {
    report.nodes.iter().map(|node| line(node) + "\n").collect()
}

/// A node's guard, or what kept it from being read or written.
pub(crate) fn line(node: &NodeStatus) -> String {
    let about_guard = match node.state {
        NodeState::Down(cause) => {
            matches!(cause, Cause::GuardAltered | Cause::OtherLimits | Cause::Quarantined)
        }
        _ => true,
    };
    match node.guard {
        NodeGuard::Unknown => node.to_string(),
        guard if about_guard => format!("node {} {}: {guard}", node.number, node.address),
        _ => node.to_string(),
    }
}

const CHANGE_AGAIN: &str = "run it again until it succeeds: with only some of the nodes moved, old \
    and new users might both find a quorum";

const INIT_AGAIN: &str = "nothing is left to do: those that have not will get their guard from the \
    first lock, and vote --max-ttl later";
