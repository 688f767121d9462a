//! The hand-off: from the start of a release until the waiter holds the lock, compared with plain
//! pub/sub.

use std::time::Duration;

use anyhow::Result;
use redbolt_test_servers::servers;
use serde_json::{Value, json};

use crate::chart::{Bars, bars};
use crate::choice::Choice;
use crate::placement::Placement;
use crate::progress::Progress;
use crate::section::{Chart, Section, Target};
use crate::stats::{Ratio, micros};
use crate::table::Table;
use crate::waiting::hand_off::{self, Figures, Plan};
use crate::waiting::holder::ReleasedBy;
use crate::waiting::{Entry, chosen, default_settings};

pub(super) fn run(choice: &Choice, progress: &Progress) -> Result<Section> {
    let all = chosen(&choice.contenders);
    let own: &[usize] = if choice.quick { &[3] } else { &[1, 3, 5] };
    let (nodes, placements) = (choice.nodes_or(own), choice.placements_or(&[Placement::OneCore]));
    let mut section = Section {
        title: "The hand-off".to_owned(),
        text: INTRO.to_owned(),
        summary: INTRO.to_owned(),
        ..Section::default()
    };
    let mut runs = Vec::new();
    for placement in placements {
        for &n in &nodes {
            let servers = servers(n);
            let placed = placement.apply(&choice.cores, &servers)?;
            for (by, plan) in ways(choice.quick, n == 3 || nodes.len() == 1) {
                let entries = waiting_for(by, &all);
                let what = format!("hand-offs, N = {n}, released by {}", by.name());
                progress.begin((plan.rounds * 2 * entries.len()) as u64, &what);
                let figures = hand_off::run(&servers, &entries, by, plan, || progress.step())?;
                let (placement, placed) = (placement.name(), placed.clone());
                let run = Run { n, by, placement, placed, entries, figures };
                run.report(&mut section)?;
                runs.push(run.json());
            }
        }
    }
    section.text += NOTE;
    for entry in all {
        section.text += &format!("- *{}*: {}\n", entry.name, entry.about);
    }
    section.json = json!({ "runs": runs });
    Ok(section)
}

/// Returns the ways to release, and the extent of each measurement. Releases by others are measured
/// on three nodes: the number of nodes affects them as it affects the first way.
fn ways(quick: bool, all: bool) -> Vec<(ReleasedBy, Plan)> {
    let plan = |rounds, block, seconds| Plan {
        rounds,
        block,
        slow_block: 1,
        within: Duration::from_secs(seconds),
    };
    let few = plan(2, 2, 10);
    match (quick, all) {
        (true, _) => vec![(ReleasedBy::Own, plan(2, 4, 5)), (ReleasedBy::RedisCli, plan(1, 2, 5))],
        (false, false) => vec![(ReleasedBy::Own, plan(10, 5, 35))],
        (false, true) => vec![
            (ReleasedBy::Own, plan(10, 5, 35)),
            (ReleasedBy::Del, few),
            (ReleasedBy::RedisCli, few),
            (ReleasedBy::Nobody, few),
        ],
    }
}

/// Returns the contenders for one way. The floor can wait only for releases by its own kind. It is
/// measured together with the releases by others for comparison, and not with keys that expire.
fn waiting_for(by: ReleasedBy, entries: &[Entry]) -> Vec<Entry> {
    let waits = |(at, entry): &(usize, &Entry)| match by {
        ReleasedBy::Own => true,
        ReleasedBy::Del | ReleasedBy::RedisCli => *at == 0 || entry.competes(),
        ReleasedBy::Nobody => entry.competes(),
    };
    entries.iter().enumerate().filter(waits).map(|(_, &entry)| entry).collect()
}

/// All waiters for one way to release, on the same nodes.
struct Run {
    n: usize,
    by: ReleasedBy,
    placement: &'static str,
    placed: String,
    entries: Vec<Entry>,
    figures: Vec<Figures>,
}

impl Run {
    fn report(&self, section: &mut Section) -> Result<()> {
        let table = format!(
            "### N = {}, {}\n\n{}; times in µs\n\n{}\n",
            self.n,
            describe(self.by),
            self.placed,
            self.table()
        );
        section.text += &table;
        for (entry, figures) in self.entries.iter().zip(&self.figures) {
            if let Some(failure) = &figures.failure {
                section.text += &format!("*{}* failed: {failure}\n\n", entry.name);
            }
        }
        if self.by == ReleasedBy::Own {
            section.summary += &table;
            self.target(&mut section.targets);
            section.charts.extend(self.chart()?);
        }
        Ok(())
    }

    fn table(&self) -> Table {
        let mut table = Table::new(&HEADINGS);
        for (entry, own) in self.entries.iter().zip(&self.figures) {
            let measured = !own.hand_off.is_empty();
            let cell = |text: String| if measured { text } else { "-".to_owned() };
            let at = |quantile| cell(micros(own.hand_off.value_at_quantile(quantile)));
            table.row(vec![
                entry.name.to_owned(),
                own.hand_off.len().to_string(),
                at(0.5),
                at(0.9),
                at(0.99),
                cell(micros(own.hand_off.max())),
                self.ratio(own).map_or_else(|| "-".to_owned(), |ratio| ratio.cell()),
                cell(format!("{:.2}", own.failed_asks)),
            ]);
        }
        table
    }

    /// Returns the ratio to the floor, if there is one.
    fn ratio(&self, own: &Figures) -> Option<Ratio> {
        let floor = &self.figures[0].medians;
        let comparable =
            self.by != ReleasedBy::Nobody && !floor.is_empty() && !own.medians.is_empty();
        comparable.then(|| Ratio::of(&own.medians, floor))
    }

    /// Adds the target of the default settings, on three nodes.
    fn target(&self, targets: &mut Vec<Target>) {
        let name = default_settings().name;
        let own = self.entries.iter().position(|entry| entry.name == name);
        let (3, Some(at)) = (self.n, own) else { return };
        let own = &self.figures[at];
        let ratio = self.ratio(own);
        let text = match &ratio {
            Some(ratio) => {
                format!("{}, {} µs", ratio.cell(), micros(own.hand_off.value_at_quantile(0.5)))
            }
            None => own.failure.clone().unwrap_or_else(|| "the floor failed".to_owned()),
        };
        let what =
            format!("hand-off p50, N = 3, {}, {name} / {}", self.placement, self.entries[0].name);
        targets.push(Target { what, bound: 1.5, measured: ratio.map(|ratio| ratio.median), text });
    }

    fn chart(&self) -> Result<Option<Chart>> {
        let row = |(entry, own): (&Entry, &Figures)| {
            let ratio = self.ratio(own)?;
            Some((entry.name.to_owned(), ratio.median, (ratio.low, ratio.high)))
        };
        let rows: Vec<_> = self.entries.iter().zip(&self.figures).filter_map(row).collect();
        if rows.is_empty() {
            return Ok(None);
        }
        let svg = bars(&Bars {
            title: format!("Hand-off, N = {}, {}", self.n, self.placement),
            x: "median, in multiples of the floor; whiskers: tenth to ninth tenth of the rounds"
                .to_owned(),
            log_x: true,
            rows,
        })?;
        let caption = format!(
            "From the start of a release to the waiter holding, against the pub/sub floor, N = {}, {}",
            self.n, self.placement
        );
        let name = format!("handoff-n{}-{}", self.n, self.placement);
        Ok(Some(Chart { name, caption, svg }))
    }

    fn json(&self) -> Value {
        let of = |(entry, figures): (&Entry, &Figures)| {
            let at = |quantile| figures.hand_off.value_at_quantile(quantile);
            json!({
                "name": entry.name,
                "count": figures.hand_off.len(),
                "p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "max": figures.hand_off.max(),
                "failed_asks": figures.failed_asks,
                "medians": figures.medians,
                "failure": figures.failure,
            })
        };
        json!({
            "nodes": self.n,
            "released_by": self.by.name(),
            "placement": self.placement,
            "placed": self.placed,
            "contenders": self.entries.iter().zip(&self.figures).map(of).collect::<Vec<_>>(),
        })
    }
}

fn describe(by: ReleasedBy) -> &'static str {
    match by {
        ReleasedBy::Own => "released by the holder, of the waiter's kind",
        ReleasedBy::Del => "released by DEL from another program (the floor releases itself)",
        ReleasedBy::RedisCli => "released by DEL from redis-cli (the floor releases itself)",
        ReleasedBy::Nobody => "released by nobody: the time after the keys expired",
    }
}

const HEADINGS: [&str; 8] =
    ["waiter", "hand-offs", "p50", "p90", "p99", "max", "p50 / floor, by round", "failed asks"];

const INTRO: &str = "\
The time from the start of a release until a waiter holds the lock. Holder and waiter are two \
threads with their own connections. The waiter has been refused and has subscribed 10 to 30 ms \
before the release, evenly distributed; one that retries at intervals has waited for 20 to 220 \
ms, so that the release falls at any point of an interval. All hold the lock alike: TTL 10 s, a \
key of their own of the same length, TCP_NODELAY. Ratios are computed within a round; the tables \
show the median of the rounds, and their first and ninth decile.

";

const NOTE: &str = "\
*failed asks*: asks per node and hand-off that the waiter made beyond the one that was granted, by \
its own count; of clients that do not count them the nodes count the SETs. A waiter's first \
request, which finds the lock held, is one of them; so 1 is the minimum.

";
