//! The pair of acquire and release, beside a raw floor.

use std::time::Duration;

use anyhow::{Context, Result};
use redbolt_proving::{Server, servers};
use serde_json::{Value, json};

use crate::choice::Choice;
use crate::contender::{ALL, Entry, Node, Task};
use crate::placement::Placement;
use crate::progress::Progress;
use crate::report::Report;
use crate::rounds::{self, Plan};
use crate::section::Section;

pub(super) fn run(choice: &Choice, progress: &Progress) -> Result<Section> {
    let plan = match choice.quick {
        true => Plan { rounds: 10, block: 200, warm_up: 200 },
        false => Plan { rounds: 40, block: 500, warm_up: 1_000 },
    };
    let entries = entries(choice);
    let (nodes, placements) =
        (choice.nodes_or(&[1, 3, 5]), choice.placements_or(&[Placement::OneCore]));
    let cells = nodes.len() * placements.len();
    progress.begin((cells * plan.rounds) as u64, "pair");
    let (mut text, mut runs) = (String::new(), Vec::<Value>::new());
    for placement in placements {
        for &n in &nodes {
            let servers = servers(n);
            let about = placement.apply(&choice.cores, &servers)?;
            let report = measure(&servers, &entries, plan, progress)?;
            text += &format!("{about}\n\n{}\n", report.table());
            runs.push(json!({ "placement": about, "run": report.json() }));
        }
    }
    for entry in entries {
        text += &format!("- {}: {}\n", entry.name, entry.about);
    }
    let title = "Acquire and release".to_owned();
    Ok(Section { title, text, json: json!({ "runs": runs }), ..Section::default() })
}

fn measure(
    servers: &[Server],
    entries: &[Entry],
    plan: Plan,
    progress: &Progress,
) -> Result<Report> {
    let nodes: Vec<_> = servers.iter().map(|server| Node::Tcp(server.address())).collect();
    let mut contenders = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        let resource = format!("redbolt-bench-{at:02}");
        let task = Task { nodes: nodes.clone(), resource, ttl: TTL };
        contenders.push((entry.name, (entry.start)(&task).context(entry.name)?));
    }
    let figures = rounds::run(&mut contenders, plan, |_| progress.step())?;
    let figures = contenders.iter().map(|(name, _)| *name).zip(figures).collect();
    Ok(Report { nodes: servers.len(), sockets: "TCP", figures })
}

/// The floor, and whoever was chosen.
fn entries(choice: &Choice) -> Vec<Entry> {
    let (floor, others) = ALL.split_at(1);
    floor.iter().chain(others.iter().filter(|entry| choice.wants(entry.name))).copied().collect()
}

/// Longer than any pair takes: no contender is hurried by it.
const TTL: Duration = Duration::from_secs(10);
