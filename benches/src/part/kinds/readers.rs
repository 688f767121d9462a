//! A growing number of readers share one key at once, compared with as many locks on separate keys.

use std::time::Duration;

use anyhow::Result;
use redbolt_test_servers::{Server, servers};
use serde_json::{Value, json};

use crate::choice::Choice;
use crate::counts::Counts;
use crate::kinds::readers::{Keys, Readers};
use crate::placement::Placement;
use crate::progress::Progress;
use crate::stats::{Ratio, median, micros};
use crate::table::Table;

/// All numbers of readers on the same nodes.
pub(super) struct Run {
    nodes: usize,
    placement: Placement,
    placed: String,
    rows: Vec<Row>,
}

/// The cost of one of many locks, with a value for each round, in nanoseconds.
#[derive(Default)]
struct Row {
    readers: usize,
    shared: Costs,
    own: Costs,
    /// The median pair of one more reader that joins the others.
    beside: Vec<u64>,
}

#[derive(Default)]
struct Costs {
    wall: Vec<u64>,
    cpu: Vec<u64>,
    node_cpu: Vec<u64>,
    commands: u64,
    locks: u64,
}

impl Run {
    pub(super) fn measure(
        nodes: usize,
        placement: Placement,
        choice: &Choice,
        progress: &Progress,
    ) -> Result<Self> {
        let servers = servers(nodes);
        let placed = placement.apply(&choice.cores, &servers)?;
        let addresses: Vec<_> = servers.iter().map(Server::address).collect();
        let (mut readers, mut counts) = (Readers::connect(&addresses)?, Counts::of(&servers));
        let row = |&readers: &usize| Row { readers, ..Row::default() };
        let mut rows: Vec<_> = SIZES.iter().map(row).collect();
        let least = if choice.quick { 500 } else { 2_000 };
        // Lists and buffers have grown before anything counts.
        Costs::default().add(&mut readers, &mut counts, SIZES[3], Keys::Shared, 1)?;
        for _ in 0..rounds(choice.quick) {
            for row in &mut rows {
                row.round(&mut readers, &mut counts, least)?;
            }
            progress.step();
        }
        Ok(Self { nodes, placement, placed, rows })
    }

    pub(super) fn text(&self) -> String {
        let mut table = Table::new(&HEADINGS);
        for row in &self.rows {
            let (shared, own) = (&row.shared, &row.own);
            table.row(vec![
                row.readers.to_string(),
                micros(median(&shared.wall)),
                Ratio::of(&shared.wall, &own.wall).cell(),
                micros(median(&shared.cpu)),
                micros(median(&shared.node_cpu)),
                Ratio::of(&shared.node_cpu, &own.node_cpu).cell(),
                format!("{:.2}", shared.per_lock()),
                micros(median(&row.beside)),
            ]);
        }
        format!("N = {}, {}: {}; times in µs\n\n{table}\n", self.nodes, self.placement, self.placed)
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "nodes": self.nodes,
            "placement": self.placement.name(),
            "placed": self.placed,
            "rows": self.rows.iter().map(Row::json).collect::<Vec<_>>(),
        })
    }
}

impl Row {
    /// Measures both kinds of keys in turns, forward and back.
    fn round(&mut self, readers: &mut Readers, counts: &mut Counts, least: usize) -> Result<()> {
        let times = (least / self.readers).max(1);
        for keys in [Keys::Shared, Keys::Own, Keys::Own, Keys::Shared] {
            let costs = if keys == Keys::Shared { &mut self.shared } else { &mut self.own };
            costs.add(readers, counts, self.readers, keys, times)?;
        }
        self.beside.push(median(&readers.beside(self.readers, least / 5)?));
        Ok(())
    }

    fn json(&self) -> Value {
        json!({
            "readers": self.readers,
            "shared": self.shared.json(),
            "own_keys": self.own.json(),
            "pair_beside": self.beside,
        })
    }
}

impl Costs {
    fn add(
        &mut self,
        readers: &mut Readers,
        counts: &mut Counts,
        size: usize,
        keys: Keys,
        times: usize,
    ) -> Result<()> {
        let (mut wall, mut cpu, before) = (0, 0, counts.usage()?);
        for _ in 0..times {
            let cost = readers.take(size, keys)?;
            wall += cost.wall;
            cpu += cost.cpu;
            self.commands += cost.commands;
        }
        let nodes = counts.usage()? - before;
        let locks = (times * size) as u64;
        self.wall.push(wall / locks);
        self.cpu.push(cpu / locks);
        self.node_cpu.push(nodes.cpu.checked_div(locks as u32).map_or(0, nanos));
        self.locks += locks;
        Ok(())
    }

    fn per_lock(&self) -> f64 {
        self.commands as f64 / self.locks.max(1) as f64
    }

    fn json(&self) -> Value {
        json!({
            "wall": self.wall, "cpu": self.cpu, "node_cpu": self.node_cpu,
            "commands": self.per_lock(),
        })
    }
}

fn nanos(span: Duration) -> u64 {
    span.as_nanos() as u64
}

pub(super) fn rounds(quick: bool) -> usize {
    if quick { 2 } else { 8 }
}

const SIZES: [usize; 4] = [1, 10, 100, 1_000];

const HEADINGS: [&str; 8] = [
    "readers at once",
    "time",
    "/ own keys, by round",
    "client CPU",
    "node CPU",
    "/ own keys, by round",
    "commands",
    "a pair beside them",
];

pub(super) const INTRO: &str = "\
One driver requests this many shared locks on one key at once, has them all, and releases them \
all. The same number of exclusive locks on keys of their own takes turns with them. Figures are \
those of one lock, acquired and released.
";

pub(super) const NOTE: &str = "\
- *node CPU*: of all nodes together. *commands*: asks and undos to single nodes per lock, by the \
client's count.
- *a pair beside them*: the median time of one more that joins and leaves while so many share the key.
";
