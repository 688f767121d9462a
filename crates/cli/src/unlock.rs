//! `redbolt unlock`: an operator breaks a lock, or sees whose it would be.
//!
//! What is deleted, and what never is, the library knows. Here its report becomes a line for each node
//! and an exit status.

use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use redbolt::{Client, Holder, InspectionVerdict, KeyState, NodeInspection};

use crate::args::UnlockArgs;
use crate::duration::show;
use crate::exit::{self, Failure};
use crate::name;
use crate::nodes;
use crate::say::{print as print_out, say};

/// Breaks the lock if that was meant.
pub(crate) fn run(args: &UnlockArgs) -> Result<u8, Failure> {
    let builder = nodes::builder(&args.nodes)?.answer_within(ANSWER_WITHIN).only_look();
    let client = Client::new(builder.build().map_err(Failure::usage)?)?;
    let key = name::show(&args.key);
    if !args.force {
        let seen = client.inspect(args.key.as_bytes()).map_err(Failure::usage)?;
        let verdict = match &seen.verdict {
            InspectionVerdict::Free => "free".to_owned(),
            InspectionVerdict::Held(holder) => format!("held by {}", in_full(holder)),
            _ => "undecided".to_owned(),
        };
        print(&seen.nodes, "held by", "free", &format!("{key}: {verdict}"));
        return Err(Failure::usage(ONLY_SHOWN));
    }
    let report = client.break_lock(args.key.as_bytes()).map_err(Failure::usage)?;
    let (broken, nodes) = (report.broken(), report.nodes.len());
    let what = match &report.was {
        InspectionVerdict::Held(holder) => {
            format!("broke the lock of {} on {broken} of {nodes} nodes", in_full(holder))
        }
        _ if broken > 0 => format!("broke what was there on {broken} of {nodes} nodes"),
        InspectionVerdict::Free => "nothing was there".to_owned(),
        _ => "too few nodes answered".to_owned(),
    };
    print(&report.nodes, "broke the lock of", "nothing was there", &format!("{key}: {what}"));
    if report.is_confirmed() {
        return Ok(exit::SUCCESS);
    }
    let gone = report.nodes.iter().filter(|node| node.state.is_ok()).count();
    let quorum = client.config().quorum();
    Err(Failure::no_quorum(format_args!(
        "the key is gone on {gone} of {nodes} nodes only, {quorum} needed"
    )))
}

/// One line for each node, and one for all of them. What was done is done, also if nobody reads of it.
fn print(nodes: &[NodeInspection], held: &str, free: &str, last: &str) {
    let line = |node: &NodeInspection| match &node.state {
        Ok(KeyState::Held(holder)) => {
            let left = match holder.remaining {
                Some(left) => format!("{} left", show(left)),
                None => "without end".to_owned(),
            };
            format!("node {} {}: {held} {}, {left}\n", node.number, node.address, in_full(holder))
        }
        Ok(KeyState::Free) => format!("node {} {}: {free}\n", node.number, node.address),
        Err(_) => format!("{node}\n"),
    };
    let lines: String = nodes.iter().map(line).collect();
    if let Err(error) = print_out(&format!("{lines}{last}\n")) {
        say(format_args!("warning: standard output: {error}"));
    }
}

/// With its hash also where it has a label: two processes can have the same one.
fn in_full(holder: &Holder) -> String {
    match &holder.label {
        Some(label) => format!("{label} #{:08x}", holder.fingerprint),
        None => holder.to_string(),
    }
}

const ONLY_SHOWN: &str = "nothing was done: to break this lock, whoever holds it, add --force\n\
    its holder goes on until it looks: make sure that it is gone";

/// An operator has the time that a slow node needs.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
