//! Parts shared by both reports: columns, and restart guards and numbers in JSON.

use redbolt::proto::restart_guard::Found;
use redbolt::report::RestartGuardState;
use serde_json::{Value, json};

/// Formats columns as wide as they need to be, without empty ones.
pub(crate) fn table<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> String {
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

/// Returns the state of a restart guard, or `None` if it was not read.
pub(crate) fn restart_guard_as_json(restart_guard: RestartGuardState) -> Option<Value> {
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

pub(super) fn whole(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
