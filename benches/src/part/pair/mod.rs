//! The pair of acquire and release, compared with a raw floor.
//!
//! A client that returns at the majority leaves the replies of the slower nodes to its next call,
//! so only the pair is comparable. `rounds` lets the contenders take turns.

mod cell;
mod counted;
mod pictures;
mod tables;
mod targets;

use std::time::Duration;

use anyhow::{Context, Result};
use redbolt_test_servers::{Reply, Server, servers};
use serde_json::json;

use self::cell::{Cell, Run, cells};
use crate::choice::Choice;
use crate::contender::{ALL, Entry, Task};
use crate::progress::Progress;
use crate::rounds::{self, Plan};
use crate::section::Section;

pub(super) fn run(choice: &Choice, progress: &Progress) -> Result<Section> {
    let (plan, cells) = (plan(choice.quick), cells(choice));
    let entries: Vec<Entry> = entries(choice);
    let counted = counted::wanted(&entries, choice.quick);
    progress.begin((cells.len() * plan.rounds + counted.len()) as u64, "pair");
    let mut runs = Vec::new();
    for cell in cells {
        progress.say(&format!("pair: {cell}"));
        runs.push(
            measure(cell, &entries, choice, plan, progress).with_context(|| cell.to_string())?,
        );
    }
    let counts = counted::count(&counted, progress);
    let charts = pictures::charts(&runs)?;
    Ok(Section {
        title: "Acquire and release".to_owned(),
        text: tables::text(&runs, &entries, &counts, plan, &charts),
        summary: tables::summary(&runs, &entries, &counts, plan),
        json: json!({
            "plan": format!("{plan:?}"),
            "runs": runs.iter().map(Run::json).collect::<Vec<_>>(),
            "counts": counts.iter().map(counted::Counted::json).collect::<Vec<_>>(),
        }),
        targets: targets::targets(&runs, &counts),
        charts,
    })
}

fn plan(quick: bool) -> Plan {
    let (rounds, block, block_time) = match quick {
        true => (6, 200, Duration::from_millis(12)),
        false => (24, 500, Duration::from_millis(40)),
    };
    Plan { rounds, block, block_time, warm_up: 1 }
}

fn measure(
    cell: Cell,
    entries: &[Entry],
    choice: &Choice,
    plan: Plan,
    progress: &Progress,
) -> Result<Run> {
    let servers = servers(cell.nodes);
    let about = cell.placement.apply(&choice.cores, &servers)?;
    let nodes: Vec<_> = servers.iter().map(|server| cell.sockets.node(server)).collect();
    let start = |(at, entry): (usize, &Entry)| {
        let resource = format!("redbolt-bench-{at:02}");
        let task = Task { nodes: nodes.clone(), resource, ttl: TTL };
        (entry.name, (entry.start)(&task))
    };
    let fitting = entries.iter().filter(|entry| cell.suits(entry.name));
    let contenders = fitting.enumerate().map(start).collect();
    let outcomes = rounds::run(contenders, plan, || progress.step())?;
    let is_native = servers.iter().all(is_native);
    Ok(Run { cell, about, is_native, outcomes })
}

/// Returns `true` if the server compares and deletes by itself, so that redbolt sends no script for
/// a release; the floors do.
fn is_native(server: &Server) -> bool {
    let own = ["DELIFEQ redbolt-bench-none -", "DELEX redbolt-bench-none IFEQ -"];
    own.iter().any(|command| server.cmd(command) == Reply::Int(0))
}

/// Returns the floors, and the selected contenders.
fn entries(choice: &Choice) -> Vec<Entry> {
    let (floor, others) = ALL.split_at(1);
    floor.iter().chain(others.iter().filter(|entry| choice.wants(entry.name))).copied().collect()
}

/// A TTL longer than any pair takes, so that no contender has to extend.
const TTL: Duration = Duration::from_secs(10);
