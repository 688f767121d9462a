//! Measures many locks in flight at a time, beside a raw pipelined floor and the drivers, on real nodes that
//! it starts itself.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use redbolt_benches::contender::Node;
use redbolt_benches::flight::measure::{self, Figures, Plan};
use redbolt_benches::flight::{Entry, Task, chosen};
use redbolt_benches::machine::machine;
use redbolt_benches::placement::{Placement, usable_cores};
use redbolt_benches::stats::{Ratio, median};
use redbolt_benches::table::Table;
use redbolt_proving::{Server, servers};
use serde_json::{Value, json};

/// Locks per second and client CPU per lock with many locks in flight.
#[derive(Parser)]
struct Options {
    /// How many nodes; may be repeated.
    #[arg(long, default_values_t = [3])]
    nodes: Vec<usize>,
    /// How many locks are in flight at a time, each on a key of its own.
    #[arg(long, default_value_t = 64)]
    in_flight: usize,
    /// Where client and nodes run: one-core, split or unpinned.
    #[arg(long, default_value = "split")]
    placement: Placement,
    /// Only contenders whose name contains this, and the floor; may be repeated.
    #[arg(long)]
    contender: Vec<String>,
    /// Rounds, each of two blocks for each contender.
    #[arg(long, default_value_t = 30)]
    rounds: usize,
    /// Locks in a block.
    #[arg(long, default_value_t = 6400)]
    block: usize,
    /// Fewer and shorter rounds: a few seconds in all.
    #[arg(long)]
    quick: bool,
    /// Prints JSON instead of tables.
    #[arg(long)]
    json: bool,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let plan = match options.quick {
        true => Plan { rounds: 5, block: 1_280, warm_up: 640 },
        false => Plan { rounds: options.rounds, block: options.block, warm_up: options.block },
    };
    ensure!(plan.rounds > 0 && plan.block > 0 && options.in_flight > 0, "nothing to measure");
    let cores = usable_cores()?;
    let entries = chosen(&options.contender);
    let mut runs = Vec::new();
    for &n in &options.nodes {
        let servers = servers(n);
        let about = options.placement.apply(&cores, &servers)?;
        let figures = fly(&servers, &entries, options.in_flight, plan)?;
        let about = format!("N = {n}, {} in flight; {about}", options.in_flight);
        match options.json {
            true => runs.push(to_json(&about, &entries, &figures)),
            false => println!("{about}\n\n{}", table(&entries, &figures)),
        }
    }
    if options.json {
        let about = json!({ "machine": machine(), "plan": format!("{plan:?}"), "runs": runs });
        println!("{about:#}");
    } else {
        println!("{}\n{}", machine(), NOTE);
        for entry in entries {
            println!("{}: {}", entry.name, entry.about);
        }
    }
    Ok(())
}

fn fly(
    servers: &[Server],
    entries: &[Entry],
    in_flight: usize,
    plan: Plan,
) -> Result<Vec<Figures>> {
    let nodes: Vec<_> = servers.iter().map(|server| Node::Tcp(server.address())).collect();
    let mut flights = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        let resource = |lock| format!("redbolt-bench-{at:02}-{lock:04}");
        let resources = (0..in_flight).map(resource).collect();
        let task = Task { nodes: nodes.clone(), resources, ttl: TTL };
        flights.push((entry.name, (entry.start)(&task).context(entry.name)?));
    }
    measure::run(&mut flights, plan)
}

fn table(entries: &[Entry], figures: &[Figures]) -> Table {
    let mut table = Table::new(&HEADINGS);
    for (entry, own) in entries.iter().zip(figures) {
        table.row(vec![
            entry.name.to_owned(),
            format!("{:.0}", 1e9 / median(&own.wall).max(1) as f64),
            Ratio::of(&figures[0].wall, &own.wall).cell(),
            format!("{:.2}", median(&own.cpu) as f64 / 1e3),
            Ratio::of(&own.cpu, &figures[0].cpu).cell(),
        ]);
    }
    table
}

fn to_json(about: &str, entries: &[Entry], figures: &[Figures]) -> Value {
    let of = |(entry, figures): (&Entry, &Figures)| json!({ "name": entry.name, "wall_per_lock": figures.wall, "cpu_per_lock": figures.cpu });
    let contenders: Vec<_> = entries.iter().zip(figures).map(of).collect();
    json!({ "run": about, "contenders": contenders })
}

const HEADINGS: [&str; 5] =
    ["client", "locks/s", "locks/s / floor, by round", "CPU µs/lock", "CPU / floor, by round"];

const NOTE: &str = "\nA lock is acquired on a majority and released on a majority. CPU is that of the client's process, \
all its threads; the nodes are other processes.";

const TTL: Duration = Duration::from_secs(10);
