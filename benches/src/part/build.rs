//! The cost of a client in the build. `crate::weight` has the programs, and builds them.

use std::time::Duration;

use anyhow::Result;
use redbolt_test_servers::servers;
use serde_json::{Value, json};

use crate::chart::{self, Bars};
use crate::choice::Choice;
use crate::progress::Progress;
use crate::section::{Chart, Section, Target, failures};
use crate::table::Table;
use crate::weight::{ALL, Package, Program, Weight};

pub(super) fn run(choice: &Choice, progress: &Progress) -> Result<Section> {
    let (ours, others) = ALL.split_at(OURS);
    // With `--quick` only the floor and redbolt are built, because some of the others take a
    // minute.
    let others = others.iter().filter(|program| !choice.quick && choice.wants(program.name));
    let programs: Vec<_> = ours.iter().chain(others).copied().collect();
    progress.begin(programs.len() as u64, "build");
    let servers = servers(NODES);
    let mut rows = Vec::new();
    for (at, program) in programs.into_iter().enumerate() {
        progress.say(&format!("build: {}", program.name));
        let builds = if at < OURS && !choice.quick { BUILDS } else { 1 };
        let outcome = Package::write(program).and_then(|package| package.weigh(builds, &servers));
        rows.push(Row { program, outcome: outcome.map_err(|error| format!("{error:#}")) });
        progress.step();
    }
    Ok(Section {
        title: "Build weight".to_owned(),
        text: text(&rows),
        json: rows.iter().map(Row::json).collect(),
        charts: charts(&rows)?,
        targets: targets(&rows),
        ..Section::default()
    })
}

struct Row {
    program: Program,
    outcome: Result<Weight, String>,
}

impl Row {
    fn json(&self) -> Value {
        match &self.outcome {
            Ok(weight) => json!({
                "name": self.program.name,
                "crates": weight.crates,
                "clean_seconds": weight.clean.iter().map(Duration::as_secs_f64).collect::<Vec<_>>(),
                "size": weight.size,
            }),
            Err(error) => json!({ "name": self.program.name, "error": error }),
        }
    }

    fn weight(&self) -> Option<(&'static str, &Weight)> {
        Some((self.program.name, self.outcome.as_ref().ok()?))
    }
}

fn text(rows: &[Row]) -> String {
    let mut table = Table::new(&["program", "crates", "clean build s", "stripped KiB"]);
    for (name, weight) in rows.iter().filter_map(Row::weight) {
        table.row(vec![
            name.to_owned(),
            weight.crates.to_string(),
            format!("{:.1}", seconds(weight).1),
            format!("{:.0}", weight.size as f64 / 1024.0),
        ]);
    }
    let failed =
        rows.iter().filter_map(|row| Some((row.program.name, row.outcome.as_ref().err()?)));
    let failed = failures(failed.map(|(name, error)| (name, error.as_str())));
    let about = |row: &Row| format!("- **{}**: {}\n", row.program.name, row.program.about);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "{table}{failed}\n{NOTE} On {cores} cores.\n\n{}",
        rows.iter().map(about).collect::<String>()
    )
}

fn charts(rows: &[Row]) -> Result<Vec<Chart>> {
    let bars = |name: &str, title: &str, x: &str, of: fn(&Weight) -> (f64, f64, f64)| {
        let row = |(name, weight): (&str, &Weight)| {
            let (low, middle, high) = of(weight);
            (name.to_owned(), middle, (low, high))
        };
        let rows = rows.iter().filter_map(Row::weight).map(row).collect();
        let (title, x) = (title.to_owned(), x.to_owned());
        let svg = chart::bars(&Bars { title: title.clone(), x, log_x: false, rows })?;
        anyhow::Ok(Chart { name: format!("build-{name}"), caption: title, svg })
    };
    if rows.iter().all(|row| row.outcome.is_err()) {
        return Ok(Vec::new());
    }
    let crates = |weight: &Weight| {
        let crates = weight.crates as f64;
        (crates, crates, crates)
    };
    let time = "seconds (median, and the fastest and slowest where it was built several times)";
    Ok(vec![
        bars("time", "A clean build of a one-lock program", time, seconds)?,
        bars("crates", "Crates of a one-lock program", "crates", crates)?,
    ])
}

fn targets(rows: &[Row]) -> Vec<Target> {
    let Some(row) = rows.iter().find(|row| row.program.name == JUDGED) else { return Vec::new() };
    let target = |what: &str, bound, of: &dyn Fn(&Weight) -> (f64, String)| {
        let (measured, text) = match &row.outcome {
            Ok(weight) => {
                let (measured, text) = of(weight);
                (Some(measured), text)
            }
            Err(error) => (None, error.clone()),
        };
        Target { what: format!("{what} of a one-lock program: {JUDGED}"), bound, measured, text }
    };
    vec![
        target("crates", CRATES, &|weight| (weight.crates as f64, weight.crates.to_string())),
        target("clean build", SECONDS, &|weight| {
            let (low, middle, high) = seconds(weight);
            (middle, format!("{middle:.1} s ({low:.1} to {high:.1})"))
        }),
    ]
}

/// Returns the fastest, the median and the slowest build.
fn seconds(weight: &Weight) -> (f64, f64, f64) {
    let mut all: Vec<_> = weight.clean.iter().map(Duration::as_secs_f64).collect();
    all.sort_by(f64::total_cmp);
    let at = |index: usize| all.get(index).copied().unwrap_or(f64::NAN);
    (at(0), at(all.len() / 2), at(all.len().saturating_sub(1)))
}

const NOTE: &str = "\
A program that acquires and releases one lock on three nodes, in a package of its own, with the \
versions of this workspace's `Cargo.lock`. Each has run once, on real nodes, before it counts. \
Crates are the packages that cargo compiles for it, including those of build scripts and macros, \
excluding the program itself. The build is `cargo build --release --offline` with an empty target \
folder and everything downloaded before; the size is that with `strip = true`. All other settings \
of the profile are the defaults.";

/// The number of programs that come first and are built several times: the floor and redbolt.
const OURS: usize = 2;
const BUILDS: usize = 3;
const JUDGED: &str = "redbolt";
const NODES: usize = 3;

/// The target for the number of crates.
const CRATES: f64 = 12.0;
const SECONDS: f64 = 6.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_build_is_judged_and_a_failure_voids_its_row_only() {
        let clean = [9, 5, 4].map(Duration::from_secs).to_vec();
        let weight = Weight { crates: 12, clean, size: 2_048 };
        let failed = Row { program: ALL[0], outcome: Err("it does not link".to_owned()) };
        let rows = [failed, Row { program: ALL[1], outcome: Ok(weight) }];
        let verdicts: Vec<_> = targets(&rows).iter().map(Target::verdict).collect();
        assert_eq!(verdicts, ["reached", "reached"]);
        let text = text(&rows);
        assert!(text.contains("| redbolt |     12 |           5.0 |            2 |"), "{text}");
        assert!(text.contains("- **raw mio** failed: it does not link"), "{text}");
    }
}
