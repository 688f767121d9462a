//! `redbolt status`: who holds a lock ([`lock`]), or the state of the nodes ([`mod@nodes`]).
//!
//! It takes no lock and writes nothing to the nodes, not even a restart guard, unless it waits for them ([`wait`]). This file has
//! what both reports share.

mod lock;
mod nodes;
mod wait;

use redbolt::proto::restart_guard::Found;
use redbolt::{Client, report::RestartGuardState};
use serde_json::{Value, json};

use crate::args::StatusArgs;
use crate::exit::Failure;

/// Prints the status. The exit status says whether it is a good one.
pub(crate) fn run(args: &StatusArgs) -> Result<u8, Failure> {
    let wait = wait::Wanted::of(&args.wait)?;
    let builder = crate::nodes::builder(&args.nodes)?;
    let builder = if wait.is_none() { builder.read_only() } else { builder };
    let builder = builder.restart_guard(args.restart_guard.into());
    let client = Client::new(crate::nodes::build(builder, &args.nodes)?)?;
    match (&args.key, wait) {
        (Some(key), _) => lock::show_lock(&client, args, key),
        (None, Some(wanted)) => wait::run(&client, args, &wanted),
        (None, None) => nodes::show_nodes(&client, args),
    }
}

/// Columns as wide as they need to be, without those that are empty.
fn table<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; COLUMNS] = std::array::from_fn(|column| width(column).unwrap_or(0));
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(widths).filter(|&(_, width)| width > 0);
        let line: String = cells.map(|(cell, width)| format!("{cell:<width$}  ")).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn restart_guard_as_json(restart_guard: RestartGuardState) -> Option<Value> {
    let (state, left) = match restart_guard {
        RestartGuardState::Votes => ("votes", None),
        RestartGuardState::Quarantined { left, .. } => ("quarantined", Some(left)),
        RestartGuardState::Found(Found::Missing) => ("missing", None),
        RestartGuardState::Found(Found::OtherLimits { .. }) => ("other_limits", None),
        RestartGuardState::Found(Found::OtherRun) => ("other_run", None),
        RestartGuardState::Found(Found::OtherHistory) => ("other_history", None),
        RestartGuardState::Found(Found::OtherDatabase) => ("other_database", None),
        RestartGuardState::Found(_) => ("unreadable", None),
        _ => return None,
    };
    Some(json!({ "state": state, "left_ms": left.map(|left| whole(left.as_millis())) }))
}

fn whole(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
