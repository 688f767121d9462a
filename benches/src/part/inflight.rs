//! Many locks in flight: the CPU time of each, and the locks per second.

use std::time::Duration;

use anyhow::Result;
use redbolt_test_servers::{Server, servers};
use serde_json::{Value, json};

use crate::chart::{Lines, lines};
use crate::choice::Choice;
use crate::contender::Node;
use crate::flight::measure::{self, Figures, Plan};
use crate::flight::{ALL, Entry, Task, chosen};
use crate::placement::Placement;
use crate::progress::Progress;
use crate::section::{Chart, Section, Target};
use crate::stats::{Ratio, median};
use crate::table::Table;

pub(super) fn run(choice: &Choice, progress: &Progress) -> Result<Section> {
    let entries = chosen(&choice.contenders);
    let nodes = choice.nodes_or(&[3]);
    let own: &[Placement] =
        if choice.quick { &[Placement::OneCore] } else { &[Placement::OneCore, Placement::Split] };
    let placements = choice.placements_or(own);
    let mut section = Section {
        title: "Many locks in flight".to_owned(),
        text: INTRO.to_owned(),
        summary: INTRO.to_owned(),
        ..Section::default()
    };
    let mut runs = Vec::new();
    for placement in placements {
        for &n in &nodes {
            let servers = servers(n);
            let placed = placement.apply(&choice.cores, &servers)?;
            let mut run = Run {
                n,
                placement: placement.name(),
                placed,
                entries: &entries,
                crowds: Vec::new(),
            };
            for crowd in CROWDS.iter().filter(|crowd| !choice.quick || crowd.quick) {
                let plan = crowd.plan(choice.quick);
                let what = format!("{} in flight, N = {n}, {}", crowd.locks, run.placement);
                progress.begin((plan.rounds * 2 * entries.len()) as u64, &what);
                let figures = run.fly(&servers, crowd.locks, plan, progress);
                run.crowds.push((crowd.locks, figures));
            }
            runs.push(run.json());
            run.report(&mut section)?;
        }
    }
    section.text += NOTE;
    for entry in entries {
        section.text += &format!("- *{}*: {}\n", entry.name, entry.about);
    }
    section.json = json!({ "runs": runs });
    Ok(section)
}

/// A number of locks in flight, and the length of its measurement.
struct Crowd {
    locks: usize,
    block: usize,
    seconds: u64,
    quick: bool,
}

impl Crowd {
    fn plan(&self, quick: bool) -> Plan {
        match quick {
            true => Plan { rounds: 2, block: self.block / 4, within: Duration::ZERO },
            false => {
                Plan { rounds: 20, block: self.block, within: Duration::from_secs(self.seconds) }
            }
        }
    }
}

/// All clients on the same nodes, with few and with many locks in flight.
struct Run<'a> {
    n: usize,
    placement: &'static str,
    placed: String,
    entries: &'a [Entry],
    crowds: Vec<(usize, Vec<Figures>)>,
}

impl Run<'_> {
    fn fly(
        &self,
        servers: &[Server],
        locks: usize,
        plan: Plan,
        progress: &Progress,
    ) -> Vec<Figures> {
        let nodes: Vec<_> = servers.iter().map(|server| Node::Tcp(server.address())).collect();
        let task = |at| {
            // New resources for each crowd: a client that ends may leave undos unsent on the
            // slowest node.
            let resource = |lock| format!("redbolt-bench-{at:02}-{locks:04}-{lock:04}");
            Task { nodes: nodes.clone(), resources: (0..locks).map(resource).collect(), ttl: TTL }
        };
        measure::run(self.entries, task, plan, || progress.step())
    }

    fn report(&self, section: &mut Section) -> Result<()> {
        let heading = format!("### N = {}, {}\n\n{}\n\n", self.n, self.placement, self.placed);
        section.text += &heading;
        for (locks, figures) in &self.crowds {
            if SHOWN.contains(locks) {
                section.text += &format!("{locks} in flight:\n\n{}\n", self.table(figures));
                self.targets(*locks, figures, &mut section.targets);
            }
        }
        let curve = format!("Client CPU per lock in µs:\n\n{}\n", self.curve());
        section.text += &curve;
        section.summary += &(heading + &curve);
        section.text += &self.failures();
        section.charts.push(self.chart()?);
        Ok(())
    }

    fn table(&self, figures: &[Figures]) -> Table {
        let mut table = Table::new(&HEADINGS);
        for (entry, own) in self.entries.iter().zip(figures) {
            table.row(vec![
                entry.name.to_owned(),
                or_dash(&own.wall, |wall| format!("{:.0}", 1e9 / median(wall).max(1) as f64)),
                or_dash(&own.wall, |wall| Ratio::of(&figures[0].wall, wall).cell()),
                or_dash(&own.cpu, |cpu| micros(median(cpu))),
                or_dash(&own.cpu, |cpu| Ratio::of(cpu, &figures[0].cpu).cell()),
                own.cpu.len().to_string(),
            ]);
        }
        table
    }

    /// Returns a table with a row for each client and a column for each number of locks in flight.
    fn curve(&self) -> Table {
        let numbers: Vec<_> = self.crowds.iter().map(|(locks, _)| locks.to_string()).collect();
        let headings: Vec<_> =
            ["in flight"].into_iter().chain(numbers.iter().map(String::as_str)).collect();
        let mut table = Table::new(&headings);
        for (at, entry) in self.entries.iter().enumerate() {
            let cell = |(_, figures): &(usize, Vec<Figures>)| {
                or_dash(&figures[at].cpu, |cpu| micros(median(cpu)))
            };
            let cells = self.crowds.iter().map(cell);
            table.row([entry.name.to_owned()].into_iter().chain(cells).collect());
        }
        table
    }

    fn chart(&self) -> Result<Chart> {
        let points = |at: usize| {
            let measured = self.crowds.iter().filter(|(_, figures)| !figures[at].cpu.is_empty());
            let point = |(locks, figures): &(usize, Vec<Figures>)| {
                (*locks as f64, median(&figures[at].cpu) as f64 / 1e3)
            };
            measured.map(point).collect()
        };
        let series =
            self.entries.iter().enumerate().map(|(at, entry)| (entry.name.to_owned(), points(at)));
        let svg = lines(&Lines {
            title: format!("Client CPU per lock, N = {}, {}", self.n, self.placement),
            x: "locks in flight".to_owned(),
            y: "µs".to_owned(),
            log_x: true,
            log_y: true,
            series: series.collect(),
        })?;
        let name = format!("inflight-cpu-n{}-{}", self.n, self.placement);
        let caption = format!(
            "What a lock costs the client's processor against how many are in flight, N = {}, {}",
            self.n, self.placement
        );
        Ok(Chart { name, caption, svg })
    }

    /// Adds the target: 64 in flight on three nodes, in any placement.
    fn targets(&self, locks: usize, figures: &[Figures], targets: &mut Vec<Target>) {
        if self.n != 3 || locks != 64 {
            return;
        }
        for (name, bound) in [("redbolt driver", 1.3), ("redbolt engine", 3.0)] {
            let Some(at) = self.entries.iter().position(|entry| entry.name == name) else {
                continue;
            };
            let (own, floor) = (&figures[at], &figures[0]);
            let ratio = Ratio::of(&own.cpu, &floor.cpu);
            let measured = (!own.cpu.is_empty() && !floor.cpu.is_empty()).then_some(ratio.median);
            let text = measured.map_or_else(
                || own.failure.clone().unwrap_or_else(|| "the floor failed".to_owned()),
                |_| format!("{}, {} µs", ratio.cell(), micros(median(&own.cpu))),
            );
            let what = format!(
                "client CPU per lock, 64 in flight, N = 3, {}, {name} / {}",
                self.placement, ALL[0].name
            );
            targets.push(Target { what, bound, measured, text });
        }
    }

    fn failures(&self) -> String {
        let of = |(locks, figures): &(usize, Vec<Figures>)| {
            let failed = self.entries.iter().zip(figures).filter_map(|(entry, figures)| {
                let failure = figures.failure.as_ref()?;
                Some(format!("*{}* failed with {locks} in flight: {failure}\n\n", entry.name))
            });
            failed.collect::<String>()
        };
        self.crowds.iter().map(of).collect()
    }

    fn json(&self) -> Value {
        let of = |(entry, figures): (&Entry, &Figures)| {
            json!({
                "name": entry.name,
                "wall_per_lock": figures.wall,
                "cpu_per_lock": figures.cpu,
                "failure": figures.failure,
            })
        };
        let crowd = |(locks, figures): &(usize, Vec<Figures>)| {
            let contenders: Vec<_> = self.entries.iter().zip(figures).map(of).collect();
            json!({ "in_flight": locks, "contenders": contenders })
        };
        json!({
            "nodes": self.n,
            "placement": self.placement,
            "placed": self.placed,
            "crowds": self.crowds.iter().map(crowd).collect::<Vec<_>>(),
        })
    }
}

fn or_dash(values: &[u64], cell: impl Fn(&[u64]) -> String) -> String {
    if values.is_empty() { "-".to_owned() } else { cell(values) }
}

fn micros(nanos: u64) -> String {
    format!("{:.2}", nanos as f64 / 1e3)
}

/// The crowds. Blocks are long, so that the locks left in flight at their ends weigh little.
const CROWDS: [Crowd; 5] = [
    Crowd { locks: 1, block: 256, seconds: 6, quick: true },
    Crowd { locks: 8, block: 512, seconds: 6, quick: false },
    Crowd { locks: 64, block: 1_280, seconds: 14, quick: true },
    Crowd { locks: 256, block: 2_560, seconds: 6, quick: false },
    Crowd { locks: 1_000, block: 6_000, seconds: 10, quick: true },
];

/// The numbers of locks whose figures are all shown.
const SHOWN: [usize; 2] = [64, 1_000];

const HEADINGS: [&str; 6] = [
    "client",
    "locks/s",
    "locks/s / floor, by round",
    "CPU µs/lock",
    "CPU / floor, by round",
    "rounds",
];

const INTRO: &str = "\
The client's CPU time per lock, and the locks per second, with this many locks in flight on keys \
of their own, over one connection to each node. Each lock is acquired on a majority and released \
on a majority, and then the next begins. CPU is that of the client's process with all its \
threads; the nodes are other processes. It depends on how many replies a wake-up finds, and so on \
the speed of the nodes: compare only figures of one placement and one number of locks in flight. \
Ratios are computed within a round; the tables show the median of the rounds, and their first and \
ninth decile.

";

const NOTE: &str = "\
The floor writes, reads and counts what no client can leave out: SET with the restart guard's \
PTTL behind it, the script that releases, and one write per node and loop iteration. The plain \
drivers send the same commands for each lock, with a fixed token, and show the least cost of a \
lock client on top of them.

";

const TTL: Duration = Duration::from_secs(10);
