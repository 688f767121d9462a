//! Measures the pair of acquire and release beside a raw floor, on real nodes that it starts itself.

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use redbolt_benches::contender::{ALL, Entry, Node, Task};
use redbolt_benches::machine::machine;
use redbolt_benches::placement::{Placement, usable_cores};
use redbolt_benches::report::Report;
use redbolt_benches::rounds::{self, Plan};
use redbolt_proving::{Server, servers};
use serde_json::json;

/// Acquire + release on 1, 3 and 5 nodes, contenders interleaved in rounds.
#[derive(Parser)]
struct Options {
    /// How many nodes; may be repeated.
    #[arg(long, default_values_t = [1, 3, 5])]
    nodes: Vec<usize>,
    /// Where client and nodes run: one-core, split or unpinned.
    #[arg(long, default_value = "one-core")]
    placement: Placement,
    /// Unix sockets instead of TCP.
    #[arg(long)]
    unix: bool,
    /// Only contenders whose name contains this, and the floor; may be repeated.
    #[arg(long)]
    contender: Vec<String>,
    /// Rounds, each of two blocks for each contender.
    #[arg(long, default_value_t = 40)]
    rounds: usize,
    /// Pairs in a block.
    #[arg(long, default_value_t = 500)]
    block: usize,
    /// Fewer and shorter rounds: a few seconds in all.
    #[arg(long)]
    quick: bool,
    /// Prints JSON instead of a table.
    #[arg(long)]
    json: bool,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let plan = match options.quick {
        true => Plan { rounds: 10, block: 200, warm_up: 200 },
        false => Plan { rounds: options.rounds, block: options.block, warm_up: 1_000 },
    };
    ensure!(plan.rounds > 0 && plan.block > 0, "there is nothing to measure");
    let cores = usable_cores()?;
    let mut runs = Vec::new();
    for &n in &options.nodes {
        let servers = servers(n);
        let about = options.placement.apply(&cores, &servers)?;
        let report = measure(&servers, &options, plan)?;
        if options.json {
            runs.push(json!({ "placement": about, "run": report.json() }));
        } else {
            println!("{about}\n{}", report.table());
        }
    }
    if options.json {
        let about = json!({ "machine": machine(), "plan": format!("{plan:?}"), "runs": runs });
        println!("{about:#}");
    } else {
        println!("{}", machine());
        for entry in entries(&options) {
            println!("{}: {}", entry.name, entry.about);
        }
    }
    Ok(())
}

fn measure(servers: &[Server], options: &Options, plan: Plan) -> Result<Report> {
    let node = |server: &Server| match options.unix {
        true => Node::Unix(server.socket().display().to_string()),
        false => Node::Tcp(server.address()),
    };
    let nodes: Vec<_> = servers.iter().map(node).collect();
    let mut contenders = Vec::new();
    for (at, entry) in entries(options).into_iter().enumerate() {
        let resource = format!("redbolt-bench-{at:02}");
        let task = Task { nodes: nodes.clone(), resource, ttl: TTL };
        contenders.push((entry.name, (entry.start)(&task).context(entry.name)?));
    }
    let terminal = std::io::stderr().is_terminal();
    let figures = rounds::run(&mut contenders, plan, |round| {
        if terminal {
            eprint!("\rround {round} of {} ", plan.rounds);
        }
    })?;
    if terminal {
        eprint!("\r{:30}\r", "");
    }
    let figures = contenders.iter().map(|(name, _)| *name).zip(figures).collect();
    let sockets = if options.unix { "Unix sockets" } else { "TCP" };
    Ok(Report { nodes: servers.len(), sockets, figures })
}

/// The floor, and whoever was chosen.
fn entries(options: &Options) -> Vec<Entry> {
    let chosen = |entry: &Entry| {
        options.contender.is_empty()
            || options.contender.iter().any(|part| entry.name.contains(part))
    };
    let (floor, others) = ALL.split_at(1);
    floor.iter().chain(others.iter().filter(|entry| chosen(entry))).copied().collect()
}

/// Longer than any pair takes: no contender is hurried by it.
const TTL: Duration = Duration::from_secs(10);
