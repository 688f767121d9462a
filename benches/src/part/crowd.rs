//! Many processes that compete for one lock, compared with the ideal: sections laid end to end,
//! each with one hand-off of the raw floor.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use redbolt_test_servers::{Server, servers};
use serde_json::{Value, json};

use crate::choice::Choice;
use crate::contender::Asked;
use crate::counts::Counts;
use crate::crowd::{self, Outcome, Plan};
use crate::placement::Placement;
use crate::progress::Progress;
use crate::section::Section;
use crate::stats::Ratio;
use crate::table::Table;
use crate::waiting::holder::ReleasedBy;
use crate::waiting::{ALL, Entry, default_settings, hand_off};

pub(super) fn run(choice: &Choice, progress: &Progress) -> Result<Section> {
    let entries = chosen(choice);
    let own: &[usize] = if choice.quick { &[3] } else { &[3, 5] };
    let (nodes, placements) = (choice.nodes_or(own), choice.placements_or(&[Placement::Unpinned]));
    let sizes: &[usize] = if choice.quick { &[8] } else { &[8, 32] };
    let rounds = if choice.quick { 1 } else { 3 };
    let crowds = placements.len() * nodes.len() * sizes.len() * rounds * entries.len();
    progress.begin(crowds as u64, "crowds");
    let (mut text, mut runs) = (INTRO.to_owned(), Vec::new());
    for placement in placements {
        let (mut table, mut failures, mut placed) =
            (Table::new(&HEADINGS), String::new(), String::new());
        for &n in &nodes {
            let servers = servers(n);
            placed = placement.apply(&choice.cores, &servers)?;
            let hand_off = floor(&servers)?;
            for &processes in sizes {
                let plan = plan(processes, choice.quick);
                let mut group = Group { nodes: n, plan, hand_off, outcomes: Vec::new() };
                group.measure(&servers, &entries, rounds, progress)?;
                for (entry, outcomes) in entries.iter().zip(&group.outcomes) {
                    table.row(group.cells(entry, outcomes));
                    failures += &group.failure(entry, outcomes);
                }
                runs.extend(group.json(placement, &entries));
            }
        }
        text += &format!("### {}\n\n{placed}\n\n{table}\n{failures}", placement.name());
    }
    text += NOTE;
    for entry in entries {
        text += &format!("- *{}*: {}\n", entry.name, entry.about);
    }
    let title = "A crowd".to_owned();
    Ok(Section { title, text, json: json!({ "runs": runs }), ..Section::default() })
}

/// Returns the selected contenders that can wait for other processes.
fn chosen(choice: &Choice) -> Vec<Entry> {
    let wanted = |entry: &Entry| match choice.contenders.is_empty() {
        true => entry.name == default_settings().name || OTHERS.contains(&entry.name),
        false => choice.wants(entry.name),
    };
    let waits = |entry: &Entry| entry.competes() && wanted(entry);
    ALL.iter().copied().filter(waits).collect()
}

/// Returns the plan, with the same number of sections for small and large crowds.
fn plan(processes: usize, quick: bool) -> Plan {
    Plan {
        processes,
        times: if quick { 64 } else { 160 } / processes,
        section: Duration::from_millis(5),
        limit: Duration::from_secs(if quick { 5 } else { 12 }),
    }
}

/// Returns the median hand-off of the floor.
fn floor(servers: &[Server]) -> Result<Duration> {
    let plan =
        hand_off::Plan { rounds: 3, block: 8, slow_block: 1, within: Duration::from_secs(3) };
    let floor = hand_off::run(servers, &ALL[..1], ReleasedBy::Own, plan, || ())?;
    anyhow::ensure!(
        !floor[0].hand_off.is_empty(),
        "{}",
        floor[0].failure.as_deref().unwrap_or("no floor")
    );
    Ok(Duration::from_nanos(floor[0].hand_off.value_at_quantile(0.5)))
}

/// The crowds of one size on one set of nodes.
struct Group {
    nodes: usize,
    plan: Plan,
    hand_off: Duration,
    /// The outcome of each round, for each contender.
    outcomes: Vec<Vec<Outcome>>,
}

impl Group {
    /// Measures a group. Contenders take turns in rounds. One whose whole crowd failed is out.
    fn measure(
        &mut self,
        servers: &[Server],
        entries: &[Entry],
        rounds: usize,
        progress: &Progress,
    ) -> Result<()> {
        let nodes: Vec<_> = servers.iter().map(Server::address).collect();
        crowd::set_up(&nodes)?;
        let home = tempfile::tempdir()?;
        self.outcomes = vec![Vec::new(); entries.len()];
        for _ in 0..rounds {
            for (entry, outcomes) in entries.iter().zip(&mut self.outcomes) {
                let what = format!("{} × {}, N = {}", self.plan.processes, entry.name, self.nodes);
                progress.say(&what);
                if outcomes.iter().all(|outcome| outcome.failures.is_empty()) {
                    let outcome = run_one(servers, entry, self.plan, &home.path().join("shared"));
                    outcomes.push(outcome.unwrap_or_else(|error| Outcome::failed(&error)));
                }
                progress.step();
            }
        }
        Ok(())
    }

    fn ideal(&self) -> Duration {
        (self.plan.section + self.hand_off) * self.wanted()
    }

    fn wanted(&self) -> u32 {
        (self.plan.processes * self.plan.times) as u32
    }

    fn cells(&self, entry: &Entry, outcomes: &[Outcome]) -> Vec<String> {
        let totals: Vec<u64> = outcomes.iter().map(|outcome| outcome.total).collect();
        let ideal = vec![self.ideal().as_nanos() as u64; totals.len()];
        let all = |of: fn(&Outcome) -> &Vec<u64>| {
            let mut all: Vec<u64> = outcomes.iter().flat_map(of).copied().collect();
            all.sort_unstable();
            all
        };
        let (waits, finished) = (all(|outcome| &outcome.waits), all(|outcome| &outcome.finished));
        let grants: usize = outcomes.iter().map(Outcome::grants).sum();
        let per_grant = |of: fn(Asked) -> u64| {
            let asked: Option<u64> =
                outcomes.iter().map(|outcome| outcome.spent.asked.map(of)).sum();
            asked.map_or_else(
                || "-".to_owned(),
                |sum| format!("{:.2}", sum as f64 / grants.max(1) as f64),
            )
        };
        let intruders: u64 = outcomes.iter().map(Outcome::intruders).sum();
        vec![
            entry.name.to_owned(),
            self.nodes.to_string(),
            self.plan.processes.to_string(),
            format!("{:.0}", self.hand_off.as_nanos() as f64 / 1e3),
            format!("{:.2}", self.ideal().as_secs_f64()),
            // A crowd that did not finish has no total.
            match outcomes.iter().all(|outcome| outcome.failures.is_empty()) {
                true => Ratio::of(&totals, &ideal).cell(),
                false => "-".to_owned(),
            },
            per_grant(|asked| asked.rounds),
            per_grant(|asked| asked.to_nodes),
            millis(&waits, 0.5),
            millis(&waits, 0.99),
            millis(&waits, 1.0),
            [0.0, 0.5, 1.0].map(|part| seconds(&finished, part)).join(" / "),
            format!("{grants} of {}", self.wanted() as usize * outcomes.len()),
            intruders.to_string(),
        ]
    }

    fn failure(&self, entry: &Entry, outcomes: &[Outcome]) -> String {
        let first = outcomes.iter().flat_map(|outcome| &outcome.failures).next();
        first.map_or_else(String::new, |failure| {
            format!(
                "*{}*, N = {}, {} processes: {failure}\n\n",
                entry.name, self.nodes, self.plan.processes
            )
        })
    }

    fn json(&self, placement: Placement, entries: &[Entry]) -> Vec<Value> {
        let round = |outcome: &Outcome| {
            json!({
                "total": outcome.total,
                "grants": outcome.grants(),
                "asks": outcome.spent.asked.map(|asked| asked.rounds),
                "asks_to_nodes": outcome.spent.asked.map(|asked| asked.to_nodes),
                "waits": outcome.waits,
                "finished": outcome.finished,
                "trespasses": outcome.trespasses,
                "overwritten": outcome.overwritten,
                "failures": outcome.failures,
            })
        };
        let of = |(entry, outcomes): (&Entry, &Vec<Outcome>)| {
            json!({
                "name": entry.name,
                "nodes": self.nodes,
                "placement": placement.name(),
                "processes": self.plan.processes,
                "times": self.plan.times,
                "section": self.plan.section.as_nanos() as u64,
                "hand_off": self.hand_off.as_nanos() as u64,
                "ideal": self.ideal().as_nanos() as u64,
                "rounds": outcomes.iter().map(round).collect::<Vec<_>>(),
            })
        };
        entries.iter().zip(&self.outcomes).map(of).collect()
    }
}

/// Runs a crowd of clients. For clients that do not count their requests, the nodes count the
/// `SET`s.
fn run_one(servers: &[Server], entry: &Entry, plan: Plan, file: &Path) -> Result<Outcome> {
    let (mut counts, mut before) = (Counts::of(servers), Vec::new());
    // An aborted crowd may have left the lock held.
    servers.iter().for_each(|server| drop(server.run(&[b"DEL", crowd::RESOURCE.as_bytes()])));
    let mut begin = || {
        before = counts.sets()?;
        Ok(())
    };
    let nodes: Vec<_> = servers.iter().map(Server::address).collect();
    let mut outcome = crowd::run(&nodes, entry, plan, file, &mut begin)?;
    let after = counts.sets()?;
    if outcome.spent.asked.is_none() {
        let sets: Vec<_> = after.iter().zip(before).map(|(after, before)| after - before).collect();
        let (rounds, to_nodes) = (sets.iter().min().copied().unwrap_or(0), sets.iter().sum());
        outcome.spent.asked = Some(Asked { rounds, to_nodes, ..Asked::default() });
    }
    Ok(outcome)
}

/// Returns the quantile of sorted nanoseconds.
fn part_of(sorted: &[u64], part: f64) -> u64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * part).ceil() as usize).copied().unwrap_or(0)
}

fn millis(sorted: &[u64], part: f64) -> String {
    format!("{:.1}", part_of(sorted, part) as f64 / 1e6)
}

fn seconds(sorted: &[u64], part: f64) -> String {
    format!("{:.2}", part_of(sorted, part) as f64 / 1e9)
}

/// The contenders without a selection, in addition to redbolt with default settings.
const OTHERS: [&str; 2] = ["rslock", "redlock"];

const HEADINGS: [&str; 14] = [
    "waiter",
    "N",
    "processes",
    "floor, µs",
    "ideal, s",
    "total / ideal, by round",
    "asks",
    "to nodes",
    "wait p50, ms",
    "p99",
    "max",
    "finished first / median / last, s",
    "grants",
    "intruders",
];

const INTRO: &str = "\
The program starts this many processes of itself, each with its own client. All want one lock, \
and request it again as soon as they have released it. Their total time is compared with the \
ideal: all sections, 5 ms of sleep each, laid end to end, each with one hand-off of the raw \
floor, which two threads measure on the same nodes just before. Waking up is part of the cost.

";

const NOTE: &str = "\
- *asks* are rounds of asks per grant, whether to all nodes or to one, *to nodes* asks to single \
nodes, both by the client's own count. Of clients that do not count them the nodes count the SETs, \
the fewest of one node as rounds.
- *wait*: of all acquisitions, including the first of each process. *finished*: when the first \
process, the median one and the last were done. A wide spread means that some were served before \
others, not that the crowd took longer.
- *intruders*: inside the section each process locks a file without waiting and increments a \
number in it. A locked file, or a number that is too small at the end, shows an intruder; one is \
too many.
";
