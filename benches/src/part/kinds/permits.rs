//! The cost of a permit at the fill of the design's table, on real nodes.

use std::time::Duration;

use anyhow::Result;
use redbolt_test_servers::{Server, servers};
use serde_json::{Value, json};

use crate::choice::Choice;
use crate::kinds::permits::{self, Load, Outcome};
use crate::placement::Placement;
use crate::progress::Progress;
use crate::section::Target;
use crate::table::Table;

/// A row of the design's table for three nodes, and the load that fills that many permits.
#[derive(Clone, Copy)]
pub(super) struct Row {
    load: Load,
    fill: f64,
    rounds: f64,
    commands: f64,
}

/// All rows on the same number of nodes.
pub(super) struct Run {
    nodes: usize,
    placement: Placement,
    placed: String,
    rows: Vec<(Row, Outcome)>,
}

impl Run {
    pub(super) fn measure(
        nodes: usize,
        placement: Placement,
        choice: &Choice,
        rows: &[Row],
        progress: &Progress,
    ) -> Result<Self> {
        let (mut placed, mut measured) = (String::new(), Vec::new());
        for &row in rows {
            let servers = servers(nodes);
            placed = placement.apply(&choice.cores, &servers)?;
            let addresses: Vec<_> = servers.iter().map(Server::address).collect();
            measured.push((row, permits::run(&addresses, row.load)?));
            progress.step();
        }
        Ok(Self { nodes, placement, placed, rows: measured })
    }

    pub(super) fn text(&self) -> String {
        let mut table = Table::new(&HEADINGS);
        for (row, outcome) in &self.rows {
            let design = |value: f64| match self.nodes == DESIGNED_FOR {
                true => format!("{value:.2}"),
                false => "-".to_owned(),
            };
            table.row(vec![
                row.load.permits.to_string(),
                outcome.granted.to_string(),
                percent(outcome.fill(row.load)),
                design(100.0 * row.fill),
                format!("{:.3}", outcome.rounds()),
                design(row.rounds),
                format!("{:.2}", outcome.per_permit(outcome.commands)),
                design(row.commands),
                format!("{:.3}", outcome.per_permit(outcome.healed)),
                format!("{:.2}", outcome.per_permit(outcome.refused)),
            ]);
        }
        format!("N = {}, {}: {}\n\n{table}\n", self.nodes, self.placement, self.placed)
    }

    /// Returns the targets, on as many nodes as the table is for: its figures, with the tolerance
    /// of the simulation.
    pub(super) fn targets(&self) -> Vec<Target> {
        let is_designed = self.nodes == DESIGNED_FOR;
        let rows = self.rows.iter().filter(|(_, outcome)| is_designed && outcome.granted > 0);
        rows.flat_map(|(row, outcome)| {
            let target = |what: &str, bound, measured: f64| Target {
                what: format!("{what} per permit, N = 3, {} permits", row.load.permits),
                bound,
                measured: Some(measured),
                text: format!("{measured:.3}, {} full", percent(outcome.fill(row.load))),
            };
            [
                target("round trips", row.rounds + 0.02, outcome.rounds()),
                target(
                    "commands",
                    (row.commands * 110.0).round() / 100.0,
                    outcome.per_permit(outcome.commands),
                ),
            ]
        })
        .collect()
    }

    pub(super) fn json(&self) -> Value {
        let row = |(row, outcome): &(Row, Outcome)| {
            json!({
                "permits": row.load.permits,
                "offered": row.load.offered,
                "held": row.load.held.as_nanos() as u64,
                "granted": outcome.granted,
                "refused": outcome.refused,
                "settled": outcome.settled,
                "healed": outcome.healed,
                "commands": outcome.commands,
                "fill": outcome.fill(row.load),
                "design": { "fill": row.fill, "rounds": row.rounds, "commands": row.commands },
            })
        };
        json!({
            "nodes": self.nodes,
            "placement": self.placement.name(),
            "placed": self.placed,
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
        })
    }
}

/// Returns the rows to measure. Few permits are held for a shorter time, so that enough of them are
/// granted.
pub(super) fn rows(quick: bool) -> Vec<Row> {
    let row = |&(permits, offered, fill, rounds, commands): &(u16, f64, f64, f64, f64)| {
        let (held, lasts) = match (quick, permits) {
            (true, _) => (100, 500),
            (false, ..=10) => (100, 10_000),
            (false, _) => (1_000, 6_000),
        };
        let (held, lasts) = (Duration::from_millis(held), Duration::from_millis(lasts));
        Row { load: Load { permits, offered, held, lasts }, fill, rounds, commands }
    };
    TABLE.iter().filter(|(permits, ..)| !quick || *permits <= 100).map(row).collect()
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// The permits, the tries offered, and the design's fill, round trips and commands.
const TABLE: [(u16, f64, f64, f64, f64); 5] = [
    (2, 1.75, 0.57, 1.00, 11.5),
    (10, 9.0, 0.75, 1.00, 9.3),
    (100, 90.0, 0.88, 1.00, 8.2),
    (1_000, 900.0, 0.90, 1.00, 8.0),
    (1_000, 1_040.0, 0.98, 1.02, 8.2),
];

const DESIGNED_FOR: usize = 3;

const HEADINGS: [&str; 10] = [
    "permits",
    "given",
    "full",
    "design, %",
    "round trips",
    "design",
    "commands",
    "design",
    "healed",
    "refused",
];

pub(super) const INTRO: &str = "\
Eight clients try for permits at random times, at a rate that keeps the semaphore as full as in the \
design's table; a try that is refused is lost. The table is for three nodes and was computed in \
virtual time, with one way of 50 to 250 µs. A permit is held for a second, of two and of ten \
permits for a tenth of that.
";

pub(super) const NOTE: &str = "\
*round trips*, *commands*, *healed* and *refused* are per permit that was given. *commands* are all \
asks and undos to single nodes, those of refused tries and of the release among them; *healed* are \
those asks among them that bring a permit to nodes which did not keep it.
";
