//! `redbolt unlock`: deletes a lock, or shows whose it is.
//!
//! The library decides what is deleted. This module prints a line for each node and chooses the
//! exit status.

use std::os::unix::ffi::OsStrExt;

use redbolt::inspect::UnlockScope;
use redbolt::{
    Client, Profile,
    inspect::{
        FairQueue, Fate, ForceUnlockReport, Holder, InspectionVerdict, KeyState, NodeInspection,
    },
};

use crate::args::UnlockArgs;
use crate::duration::show;
use crate::exit::{self, Failure};
use crate::foreign;
use crate::name;
use crate::nodes;
use crate::say::{report as print_report, say};
use crate::waiters;

/// Deletes the lock if `--force` is given.
pub(crate) fn run(args: &UnlockArgs) -> Result<u8, Failure> {
    let builder = nodes::builder(&args.nodes)?.read_only();
    let client = Client::new(nodes::build(builder, &args.nodes)?)?;
    if !args.force {
        return only_show(&client, args);
    }
    let key = args.key.as_bytes();
    let report = match args.format.profile {
        _ if args.foreign => client.force_unlock(key, UnlockScope::Anything),
        Some(profile) => client.force_unlock(key, UnlockScope::LocksOf(profile)),
        None => client.force_unlock(key, UnlockScope::Locks),
    };
    let report = report.map_err(|error| Failure::request(name::show(&args.key), error))?;
    let became = format!("{}: {}", name::show(&args.key), what_became(&report));
    print(&report.nodes, report.queue.as_ref(), &became);
    let (gone, nodes, quorum) = (report.gone(), report.nodes.len(), client.config().quorum());
    if report.is_confirmed() {
        if report.was == InspectionVerdict::Free && report.broken() == 0 {
            say_free(args);
        }
        Ok(exit::SUCCESS)
    } else if gone + report.kept() >= quorum {
        let how = match &report.was {
            InspectionVerdict::Foreign(data) => how_to_delete(args, foreign::profiles(data)),
            _ => how_to_delete(args, Vec::new()),
        };
        Err(Failure::usage(format_args!("{IS_FOREIGN}\n{how}")))
    } else {
        Err(Failure::no_quorum(format_args!(
            "{}: the key is gone on {gone} of {nodes} nodes only, {quorum} needed",
            name::show(&args.key)
        )))
    }
}

/// Shows whose lock it is. A free lock is a success: it needs no `--force`.
fn only_show(client: &Client, args: &UnlockArgs) -> Result<u8, Failure> {
    let seen = client.inspect(args.key.as_bytes());
    let seen = seen.map_err(|error| Failure::request(name::show(&args.key), error))?;
    let options = args.format.profile.map(of_profile).unwrap_or_default();
    let mut advice = format!("{ONLY_SHOWN}: {}\n{GOES_ON}", command(args, &options));
    let verdict = match &seen.verdict {
        InspectionVerdict::Free => "free".to_owned(),
        InspectionVerdict::Held(holder) => format!("held by {}", in_full(holder)),
        InspectionVerdict::Permits(permits) => format!("permits of {permits}"),
        InspectionVerdict::Shared(sharers) => format!("shared by {sharers}"),
        InspectionVerdict::Foreign(data) => {
            let how = how_to_delete(args, foreign::profiles(data));
            advice = format!("nothing was done: {IS_FOREIGN}\n{how}");
            data.to_string()
        }
        _ => "undecided".to_owned(),
    };
    let shown = format!("{}: {verdict}", name::show(&args.key));
    print(&seen.nodes, seen.queue.as_ref(), &shown);
    match seen.verdict {
        InspectionVerdict::Free => {
            say_free(args);
            Ok(exit::SUCCESS)
        }
        InspectionVerdict::Undecided => Err(Failure::no_quorum(advice)),
        _ => Err(Failure::usage(advice)),
    }
}

/// Reports on standard error that there was no lock to delete. The status of a repeated command is
/// 0, so only this line shows a misspelled name.
fn say_free(args: &UnlockArgs) {
    say(format_args!(
        "{}: no client holds a lock of this name; nothing was deleted",
        name::show(&args.key)
    ));
}

/// Summarizes what was done.
fn what_became(report: &ForceUnlockReport) -> String {
    let (broken, kept, nodes) = (report.broken(), report.kept(), report.nodes.len());
    match &report.was {
        InspectionVerdict::Held(holder) if broken > 0 => {
            format!("broke the lock of {} on {broken} of {nodes} nodes", in_full(holder))
        }
        InspectionVerdict::Held(holder) => {
            format!("the lock of {} was gone before it could be broken", in_full(holder))
        }
        InspectionVerdict::Permits(permits) if broken > 0 => {
            format!("broke the permits of {permits} on {broken} of {nodes} nodes")
        }
        InspectionVerdict::Shared(sharers) if broken > 0 => {
            format!("broke the lock that was shared by {sharers} on {broken} of {nodes} nodes")
        }
        InspectionVerdict::Foreign(data) if broken > 0 => {
            format!("deleted {data}, on {broken} of {nodes} nodes")
        }
        _ if broken > 0 => format!("deleted what was there on {broken} of {nodes} nodes"),
        InspectionVerdict::Foreign(data) => {
            format!("{data}, left alone on {kept} of {nodes} nodes")
        }
        InspectionVerdict::Free => "nothing was there".to_owned(),
        _ if kept > 0 => format!("other data, left alone on {kept} of {nodes} nodes"),
        _ => "too few nodes answered".to_owned(),
    }
}

/// Prints a line for each node, the waiters, and a summary. An error is ignored, because the
/// deletion is already done.
fn print(nodes: &[NodeInspection], waiting: Option<&FairQueue>, last: &str) {
    let lines: String = nodes.iter().map(|node| line(node) + "\n").collect();
    let waiting = waiters::as_text(waiting, nodes);
    if let Err(error) = print_report(&format!("{lines}{waiting}{last}\n")) {
        say(format_args!("warning: standard output: {error}"));
    }
}

/// Describes a node, with the remaining time of a key that was deleted or would be.
fn line(node: &NodeInspection) -> String {
    let Ok(state) = &node.state else { return node.to_string() };
    let what = match (state, node.fate) {
        (KeyState::Held(holder), None) => format!("held by {}", in_full(holder)),
        (KeyState::Permits(permits), None) => format!("permits of {permits}"),
        (KeyState::Shared(sharers), None) => format!("shared by {sharers}"),
        (KeyState::Foreign(data), None) => data.to_string(),
        (KeyState::Held(holder), Some(Fate::Deleted)) => {
            format!("broke the lock of {}", in_full(holder))
        }
        (KeyState::Permits(permits), Some(Fate::Deleted)) => {
            format!("broke the permits of {permits}")
        }
        (KeyState::Shared(sharers), Some(Fate::Deleted)) => {
            format!("broke the lock that is shared by {sharers}")
        }
        (KeyState::Foreign(data), Some(Fate::Deleted)) => format!("deleted {data}"),
        _ => return node.to_string(),
    };
    let left = match state.remaining() {
        Some(left) => format!("{} left", show(left)),
        None => "without end".to_owned(),
    };
    let waiting = match waiters::of_node(node) {
        told if told.is_empty() => told,
        told => format!(", {told}"),
    };
    format!("node {} {}: {what}, {left}{waiting}", node.number, node.address)
}

/// Describes a holder with its hash even if it has a label: two processes can have the same label.
fn in_full(holder: &Holder) -> String {
    match &holder.label {
        Some(label) => format!("{label} #{:08x}", holder.fingerprint),
        None => holder.to_string(),
    }
}

const ONLY_SHOWN: &str = "nothing was done; to break this lock, whoever holds it";

const GOES_ON: &str = "its holder goes on until it looks: make sure that it is gone";

const IS_FOREIGN: &str = "this is no lock of redbolt, but some other program's data";

/// Returns the command for data that may be a lock of these profiles.
fn how_to_delete(args: &UnlockArgs, profiles: Vec<Profile>) -> String {
    let Some(&first) = profiles.first() else {
        return format!("to delete it all the same: {}", command(args, " --foreign"));
    };
    let names = foreign::names(&profiles);
    let command = command(args, &of_profile(first));
    format!("to break the lock of {names} that it may be: {command}")
}

fn of_profile(profile: Profile) -> String {
    format!(" --profile {profile}")
}

/// Returns the command that deletes the key, to be copied.
fn command(args: &UnlockArgs, options: &str) -> String {
    let command = nodes::command(&format!("unlock --force{options}"), &args.nodes);
    format!("{command} {}", name::last_word(&args.key))
}
