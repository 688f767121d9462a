//! Acquire + release over TLS, compared with a raw loop of rustls over epoll.
//!
//! The cost of TLS itself is not measured, because both sides have it. The contenders are in
//! `contender::over_tls`.

use std::time::Duration;

use anyhow::Result;
use redbolt_test_servers::servers_over_tls;
use serde_json::{Value, json};

use crate::choice::Choice;
use crate::contender::over_tls::{ALL, Secured};
use crate::placement::Placement;
use crate::progress::Progress;
use crate::rounds::{self, Figures, Outcome, Plan};
use crate::section::{Section, Target, failures};
use crate::stats::Ratio;
use crate::table::Table;

pub(super) fn run(choice: &Choice, progress: &Progress) -> Result<Section> {
    let (nodes, plan) = (choice.nodes_or(&[1, 3]), plan(choice.quick));
    let placements = choice.placements_or(&[Placement::OneCore]);
    progress.begin((placements.len() * nodes.len() * plan.rounds) as u64, "TLS");
    let mut section =
        Section { title: "Acquire and release over TLS".to_owned(), ..Section::default() };
    let mut runs = Vec::new();
    for placement in placements {
        for &n in &nodes {
            let servers = servers_over_tls(n);
            let placed = placement.apply(&choice.cores, &servers)?;
            let secured = Secured::of(&servers);
            let start = |(at, (name, start)): (usize, &(&'static str, _))| {
                let start: crate::contender::over_tls::Start = *start;
                let resource = format!("redbolt-bench-{at:02}");
                (*name, start(&Secured::task(&servers, &resource, TTL), &secured))
            };
            let contenders = ALL.iter().enumerate().map(start).collect();
            let outcomes = rounds::run(contenders, plan, || progress.step())?;
            let cell = format!("N = {n}, {}", placement.name());
            section.text += &format!("### {cell}\n\n{placed}\n\n{}\n", table(&outcomes));
            let failed = outcomes.iter().filter_map(|outcome| {
                outcome.figures.as_ref().err().map(|error| (outcome.name, error.as_str()))
            });
            section.text += &failures(failed);
            section.targets.push(target(&cell, &outcomes));
            runs.push(json!({ "cell": cell, "contenders": as_json(&outcomes) }));
        }
    }
    section.summary.clone_from(&section.text);
    section.json = json!({ "plan": format!("{plan:?}"), "runs": runs });
    Ok(section)
}

fn plan(quick: bool) -> Plan {
    let (rounds, block, block_time) = match quick {
        true => (6, 200, Duration::from_millis(20)),
        false => (24, 500, Duration::from_millis(60)),
    };
    Plan { rounds, block, block_time, warm_up: 1 }
}

fn figures(outcomes: &[Outcome], at: usize) -> Option<&Figures> {
    outcomes.get(at)?.figures.as_ref().ok()
}

fn ratio(outcomes: &[Outcome], own: &Figures) -> Ratio {
    let floor = figures(outcomes, 0).map_or(&[][..], |floor| &floor.p50s);
    Ratio::of(&own.p50s, floor)
}

fn table(outcomes: &[Outcome]) -> Table {
    let mut table = Table::new(&["", "p50 µs", "p99 µs", "to the floor", "p10 to p90"]);
    for (at, outcome) in outcomes.iter().enumerate() {
        let Some(own) = figures(outcomes, at) else { continue };
        let micros = |quantile| format!("{:.1}", own.pair.value_at_quantile(quantile) as f64 / 1e3);
        let Ratio { median, low, high } = ratio(outcomes, own);
        table.row(vec![
            outcome.name.to_owned(),
            micros(0.5),
            micros(0.99),
            format!("{median:.2}"),
            format!("{low:.2} to {high:.2}"),
        ]);
    }
    table
}

fn target(cell: &str, outcomes: &[Outcome]) -> Target {
    let what = format!("pair p50 over TLS, {cell}, {} / {}", ALL[1].0, ALL[0].0);
    match figures(outcomes, 1) {
        Some(own) => {
            let Ratio { median, low, high } = ratio(outcomes, own);
            let text = format!("{median:.2} ({low:.2} to {high:.2})");
            Target { what, bound: BOUND, measured: Some(median), text }
        }
        None => Target { what, bound: BOUND, measured: None, text: "it failed".to_owned() },
    }
}

fn as_json(outcomes: &[Outcome]) -> Vec<Value> {
    let contender = |outcome: &Outcome| match &outcome.figures {
        Ok(own) => {
            json!({ "name": outcome.name, "p50s": own.p50s, "p99s": own.p99s, "cpu": own.cpu })
        }
        Err(error) => json!({ "name": outcome.name, "error": error }),
    };
    outcomes.iter().map(contender).collect()
}

/// A TTL longer than any pair takes, so that no contender has to extend.
const TTL: Duration = Duration::from_secs(10);
const BOUND: f64 = 1.10;
