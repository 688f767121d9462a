//! Acquire + release while the largest possible minority of nodes is dead, compared with the same
//! client on the same nodes a moment before.

use std::time::Duration;

use anyhow::{Result, ensure};
use redbolt_test_servers::Server;
use serde_json::{Value, json};

use crate::chart::{Bars, bars};
use crate::choice::Choice;
use crate::placement::Placement;
use crate::progress::Progress;
use crate::section::{Chart, Section, Target};
use crate::stalled::death::Death;
use crate::stalled::measure::{self, FIRST, Figures, Plan};
use crate::stalled::{ALL, Entry};
use crate::table::Table;

pub(super) fn run(choice: &Choice, progress: &Progress) -> Result<Section> {
    let own: &[usize] = if choice.quick { &[3] } else { &[3, 5] };
    let (mut nodes, placements) =
        (choice.nodes_or(own), choice.placements_or(&[Placement::OneCore]));
    nodes.retain(|&n| n > 2);
    ensure!(!nodes.is_empty(), "with fewer than 3 nodes, none may die");
    let (entries, plan) = (chosen(choice), plan(choice.quick));
    let deaths: &[Death] =
        if choice.quick { &[Death::Refused, Death::Blackholed] } else { &Death::ALL };
    let turns = placements.len() * nodes.len() * deaths.len() * plan.rounds * entries.len();
    progress.begin(turns as u64, "dead nodes");
    let mut section = Section {
        title: "A dead minority".to_owned(),
        text: INTRO.to_owned(),
        summary: INTRO.to_owned(),
        ..Section::default()
    };
    let mut runs = Vec::new();
    for placement in placements {
        for &n in &nodes {
            let place = |servers: &[Server]| placement.apply(&choice.cores, servers).map(drop);
            let placed = placement.apply(&choice.cores, &[])?;
            let mut run = Run {
                n,
                placement: placement.name(),
                placed,
                entries: &entries,
                deaths: Vec::new(),
            };
            for &death in deaths {
                progress.say(&format!("dead nodes: {}, N = {n}", death.name()));
                let figures = measure::run(&entries, death, n, plan, place, || progress.step())?;
                run.deaths.push((death, figures));
            }
            for (death, figures) in &run.deaths {
                let table = run.describe(*death, figures);
                section.text += &table;
                if *death == Death::Blackholed {
                    section.summary += &table;
                }
            }
            section.charts.push(run.chart()?);
            runs.push(run);
        }
    }
    section.targets = deaths.iter().map(|&death| target(death, &runs)).collect();
    section.text += NOTE;
    for entry in &entries {
        section.text += &format!("- *{}*: {}\n", entry.name, entry.about);
    }
    section.json = json!({ "runs": runs.iter().flat_map(Run::json).collect::<Vec<_>>() });
    Ok(section)
}

/// Returns the floor, and the selected contenders.
fn chosen(choice: &Choice) -> Vec<Entry> {
    let (floor, others) = ALL.split_at(1);
    floor.iter().chain(others.iter().filter(|entry| choice.wants(entry.name))).copied().collect()
}

fn plan(quick: bool) -> Plan {
    let (rounds, healthy, dead) = if quick { (1, 60, 120) } else { (3, 150, 400) };
    Plan { rounds, healthy: Duration::from_millis(healthy), dead: Duration::from_millis(dead) }
}

/// All contenders on `n` nodes, of which the largest minority dies in each way.
struct Run<'a> {
    n: usize,
    placement: &'static str,
    placed: String,
    entries: &'a [Entry],
    deaths: Vec<(Death, Vec<Figures>)>,
}

impl Run<'_> {
    fn dead(&self) -> usize {
        (self.n - 1) / 2
    }

    fn describe(&self, death: Death, figures: &[Figures]) -> String {
        let mut text = format!(
            "### {} of {} nodes {}\n\n{}; times in ms\n\n{}\n",
            self.dead(),
            self.n,
            death.name(),
            self.placed,
            self.table(figures)
        );
        for (entry, own) in self.entries.iter().zip(figures) {
            if let Some(failure) = &own.failure {
                text += &format!("*{}*: {failure}\n\n", entry.name);
            }
        }
        text
    }

    fn table(&self, figures: &[Figures]) -> Table {
        let mut table = Table::new(&HEADINGS);
        for (entry, own) in self.entries.iter().zip(figures) {
            let measured = !own.rounds.is_empty();
            let cell = |text: String| if measured { text } else { "-".to_owned() };
            table.row(vec![
                entry.name.to_owned(),
                cell(millis(own.healthy.value_at_quantile(0.5))),
                cell(millis(own.healthy.value_at_quantile(0.99))),
                cell(millis(own.dead.value_at_quantile(0.5))),
                cell(millis(own.dead.value_at_quantile(0.99))),
                cell(Difference::of(own).cell()),
                cell(millis(first(own))),
                format!("{} of {}", own.failed, own.dead.len()),
            ]);
        }
        table
    }

    /// Returns a chart with a dot for p99, and a line from p99 before the death to the longest pair
    /// right after it.
    fn chart(&self) -> Result<Chart> {
        let mut rows = Vec::new();
        for (death, figures) in &self.deaths {
            for (entry, own) in
                self.entries.iter().zip(figures).filter(|(_, own)| !own.rounds.is_empty())
            {
                let at = |nanos: u64| nanos as f64 / 1e6;
                let (healthy, dead) =
                    (own.healthy.value_at_quantile(0.99), own.dead.value_at_quantile(0.99));
                let line = (at(healthy.min(dead)), at(first(own).max(dead)));
                rows.push((format!("{}, {}", entry.name, death.name()), at(dead), line));
            }
        }
        let svg = bars(&Bars {
            title: format!("{} of {} nodes dead, {}", self.dead(), self.n, self.placement),
            x: format!("ms: p99, from p99 before the death to the longest of the first {FIRST}"),
            log_x: true,
            rows,
        })?;
        let caption = format!(
            "Acquire + release with {} of {} nodes dead, {}: p99, and the longest pair right after the death",
            self.dead(),
            self.n,
            self.placement
        );
        Ok(Chart { name: format!("dead-n{}-{}", self.n, self.placement), caption, svg })
    }

    fn json(&self) -> Vec<Value> {
        let of = |(entry, own): (&Entry, &Figures)| {
            let rounds = own.rounds.iter().map(|round| {
                json!({
                    "healthy_p99": round.healthy_p99,
                    "dead_p99": round.dead_p99,
                    "longest_of_first": round.first,
                })
            });
            let quantiles = |histogram: &hdrhistogram::Histogram<u64>| {
                let at = |quantile| histogram.value_at_quantile(quantile);
                json!({
                    "count": histogram.len(),
                    "p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "p99.9": at(0.999),
                    "max": histogram.max(),
                })
            };
            json!({
                "name": entry.name,
                "healthy": quantiles(&own.healthy),
                "dead": quantiles(&own.dead),
                "rounds": rounds.collect::<Vec<_>>(),
                "failed": own.failed,
                "failure": own.failure,
            })
        };
        let death = |(death, figures): &(Death, Vec<Figures>)| {
            json!({
                "nodes": self.n,
                "dead": self.dead(),
                "death": death.name(),
                "placement": self.placement,
                "placed": self.placed,
                "contenders": self.entries.iter().zip(figures).map(of).collect::<Vec<_>>(),
            })
        };
        self.deaths.iter().map(death).collect()
    }
}

/// Returns the figure of the worst API of redbolt, over all numbers of nodes and placements.
fn target(death: Death, runs: &[Run<'_>]) -> Target {
    let what = format!(
        "p99 of a pair with f nodes {}, less p99 on healthy nodes, in ms: the worst of redbolt's APIs",
        death.name()
    );
    let mut worst: Option<(f64, String)> = None;
    for run in runs {
        let of_this_death = run.deaths.iter().filter(|(of, _)| *of == death);
        let fronts = of_this_death.flat_map(|(_, figures)| run.entries.iter().zip(figures));
        for (entry, own) in fronts.filter(|(entry, _)| entry.name.starts_with("redbolt")) {
            let difference = match own.rounds.is_empty() {
                true => f64::INFINITY,
                false => Difference::of(own).median,
            };
            if worst.as_ref().is_none_or(|(most, _)| difference > *most) {
                let text = match &own.failure {
                    Some(failure) => failure.clone(),
                    None => Difference::of(own).cell(),
                };
                let who = format!("{text}: {}, N = {}, {}", entry.name, run.n, run.placement);
                worst = Some((difference, who));
            }
        }
    }
    let (measured, text) = match worst {
        Some((worst, text)) => (Some(worst), text),
        None => (None, "redbolt was not chosen".to_owned()),
    };
    Target { what, bound: 2.0, measured, text }
}

/// The increase of p99 by the death, computed within each round, in ms.
struct Difference {
    median: f64,
    least: f64,
    most: f64,
}

impl Difference {
    fn of(figures: &Figures) -> Self {
        let more = figures
            .rounds
            .iter()
            .map(|round| (round.dead_p99 as f64 - round.healthy_p99 as f64) / 1e6);
        let mut more: Vec<f64> = more.collect();
        more.sort_by(f64::total_cmp);
        let at = |index: usize| more.get(index).copied().unwrap_or(f64::NAN);
        // For an even number of rounds, the worse of the two middle ones counts.
        Self { median: at(more.len() / 2), least: at(0), most: at(more.len().saturating_sub(1)) }
    }

    fn cell(&self) -> String {
        format!("{:+.3} ({:+.3} to {:+.3})", self.median, self.least, self.most)
    }
}

/// Returns the longest pair right after the death, in any round.
fn first(figures: &Figures) -> u64 {
    figures.rounds.iter().map(|round| round.first).max().unwrap_or(0)
}

fn millis(nanos: u64) -> String {
    format!("{:.3}", nanos as f64 / 1e6)
}

const HEADINGS: [&str; 8] = [
    "client",
    "p50, alive",
    "p99, alive",
    "p50, f dead",
    "p99, f dead",
    "p99 more, by round",
    "longest of first 50",
    "failed",
];

const INTRO: &str = "\
One client acquires and releases one lock without a pause, on its own nodes, while the largest \
minority of them dies: 1 of 3, 2 of 5. Each client is compared with itself before the death. \
Nodes die in three ways: *refused* is a killed process, so connections end and new ones are \
refused; *stopped* is a process stopped with SIGSTOP, so the kernel accepts bytes and connections \
and no answer comes; *blackholed* is a stopped process whose accept queue is full, so that a SYN \
gets no answer either. The difference is computed within a session; the tables show the median, \
the smallest and the largest.

";

const NOTE: &str = "\
- *longest of first 50*: of the pairs that ended after the death, including the one in progress, \
in the worst session.
- *failed*: pairs after the death that did not get the lock or could not release it; their times \
count as well. A client that takes more than a second for a pair has no further session, and a \
pair is aborted after 2 s, because some clients wait for ever. redlock 2.0 has no timeout and \
cannot be aborted, so it is not here.
";
