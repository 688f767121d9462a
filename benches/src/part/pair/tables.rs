//! The text of the pair: one table of ratios for each placement, then one table for each cell with
//! all figures.

use std::fmt::Write;

use super::cell::{Cell, Run, cpu, p50s, p99s, per_pair, per_second};
use super::counted::Counted;
use crate::contender::Entry;
use crate::placement::Placement;
use crate::rounds::{Figures, Plan};
use crate::section::{Chart, failures};
use crate::stats::{median, micros};
use crate::table::Table;

pub(super) fn text(
    runs: &[Run],
    entries: &[Entry],
    counts: &[Counted],
    plan: Plan,
    charts: &[Chart],
) -> String {
    let mut out = introduction(plan);
    for (placement, here) in placements(runs) {
        out += &placed(placement, &here, entries);
        for chart in charts.iter().filter(|chart| chart.name.ends_with(&placement.to_string())) {
            let _ = write!(out, "\n{}\n", chart.link());
        }
        for run in here {
            let _ = write!(out, "\n#### {}\n\n{}", run.cell, details(run));
            out += &failures(run.outcomes.iter().filter_map(|outcome| {
                outcome.figures.as_ref().err().map(|error| (outcome.name, error.as_str()))
            }));
        }
    }
    if !counts.is_empty() {
        let _ = write!(out, "\n### {COUNTED}\n\n{}", counted(counts));
        out += &failures(counts.iter().filter_map(|counted| {
            counted.outcome.as_ref().err().map(|error| (counted.name, error.as_str()))
        }));
    }
    out += "\n### What they do\n\n";
    entries.iter().for_each(|entry| {
        let _ = writeln!(out, "- *{}*: {}", entry.name, entry.about);
    });
    out
}

/// Returns the ratios of all placements, with allocations and system calls.
pub(super) fn summary(runs: &[Run], entries: &[Entry], counts: &[Counted], plan: Plan) -> String {
    let mut out = introduction(plan);
    for (placement, here) in placements(runs) {
        out += &placed(placement, &here, entries);
    }
    if !counts.is_empty() {
        let _ = write!(out, "\n### {COUNTED}\n\n{}", counted(counts));
    }
    out
}

/// Returns the ratios of a placement.
fn placed(placement: Placement, here: &[&Run], entries: &[Entry]) -> String {
    let about = here.first().map_or("", |run| &run.about);
    format!("\n### {placement}: {about}\n\n{RATIOS}\n{}", ratios(here, entries))
}

fn introduction(plan: Plan) -> String {
    format!(
        "One client acquires and releases a lock, again and again, without competition. The *pair* is from the \
         start of the acquire to the end of the release. All have the same TTL (10 s), a key of the same \
         length, and TCP_NODELAY where it can be set. Contenders take turns: {} rounds forward and back, in \
         blocks of {} pairs or {} ms, whichever ends first.\n",
        plan.rounds,
        plan.block,
        plan.block_time.as_millis()
    )
}

fn placements(runs: &[Run]) -> Vec<(Placement, Vec<&Run>)> {
    let mut all: Vec<Placement> = runs.iter().map(|run| run.cell.placement).collect();
    all.dedup();
    let here = |placement| runs.iter().filter(|run| run.cell.placement == placement).collect();
    all.into_iter().map(|placement| (placement, here(placement))).collect()
}

/// Returns the ratios of all contenders in all cells of a placement.
fn ratios(runs: &[&Run], entries: &[Entry]) -> Table {
    let cells: Vec<String> = runs.iter().map(|run| Cell::short(run.cell)).collect();
    let mut headings = vec!["pair p50 / floor"];
    headings.extend(cells.iter().map(String::as_str));
    let mut table = Table::new(&headings);
    for entry in entries {
        let ratio = |run: &&Run| match run.figures(entry.name) {
            Some(own) => run.ratio(own, p50s).cell(),
            None => NOTHING.to_owned(),
        };
        if runs[0].outcomes.iter().any(|outcome| outcome.name == entry.name) {
            let mut cells = vec![entry.name.to_owned()];
            cells.extend(runs.iter().map(ratio));
            table.row(cells);
        }
    }
    table
}

fn details(run: &Run) -> Table {
    let mut table = Table::new(&HEADINGS);
    for outcome in &run.outcomes {
        let mut cells = vec![outcome.name.to_owned()];
        match &outcome.figures {
            Ok(figures) => cells.extend(numbers(run, figures)),
            Err(_) => cells.resize(HEADINGS.len(), NOTHING.to_owned()),
        }
        table.row(cells);
    }
    table
}

fn numbers(run: &Run, figures: &Figures) -> [String; 13] {
    let pair_at = |quantile| micros(figures.pair.value_at_quantile(quantile));
    [
        pair_at(0.5),
        run.ratio(figures, p50s).cell(),
        pair_at(0.9),
        pair_at(0.99),
        run.ratio(figures, p99s).cell(),
        pair_at(0.999),
        micros(figures.pair.max()),
        micros(figures.acquire.value_at_quantile(0.5)),
        micros(figures.release.value_at_quantile(0.5)),
        format!("{:.0}", per_second(figures)),
        micros(median(&figures.cpu)),
        format!("{:.2}", run.ratio(figures, cpu).median),
        format!("{:.2}", per_pair(figures.switches, figures)),
    ]
}

fn counted(counts: &[Counted]) -> Table {
    let mut table = Table::new(&["for each pair", "allocations", "system calls"]);
    let cell = |count: Option<f64>| {
        count.map_or_else(|| NOTHING.to_owned(), |count| format!("{count:.2}"))
    };
    for counted in counts {
        let (allocations, syscalls) = match &counted.outcome {
            Ok(counts) => (counts.allocations, counts.syscalls),
            Err(_) => (None, None),
        };
        table.row(vec![counted.name.to_owned(), cell(allocations), cell(syscalls)]);
    }
    table
}

const NOTHING: &str = "-";

const HEADINGS: [&str; 14] = [
    "pair, µs",
    "p50",
    "/ floor (rounds)",
    "p90",
    "p99",
    "/ floor (rounds)",
    "p99.9",
    "max",
    "acquire p50",
    "release p50",
    "pairs/s",
    "CPU",
    "/ floor",
    "switches",
];

const RATIOS: &str = "\
A ratio is computed within each round: the table shows the median of the rounds, and in brackets \
their first and ninth decile.\n";

const COUNTED: &str = "Allocations and system calls, N = 3, TCP";
