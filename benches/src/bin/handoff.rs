//! Measures a hand-off, from the start of a release to the waiter holding, beside a raw floor, on real
//! nodes that it starts itself.

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Parser;
use redbolt_benches::machine::machine;
use redbolt_benches::placement::{Placement, usable_cores};
use redbolt_benches::stats::{Ratio, micros};
use redbolt_benches::table::Table;
use redbolt_benches::waiting::hand_off::{self, Figures, Plan};
use redbolt_benches::waiting::holder::ReleasedBy;
use redbolt_benches::waiting::{Entry, WokenBy, chosen};
use redbolt_proving::servers;
use serde_json::{Value, json};

/// Hand-offs on 1, 3 and 5 nodes: released by the waiter's kind, by other programs, by nobody.
#[derive(Parser)]
struct Options {
    /// How many nodes; may be repeated.
    #[arg(long, default_values_t = [1, 3, 5])]
    nodes: Vec<usize>,
    /// Where client and nodes run: one-core, split or unpinned.
    #[arg(long, default_value = "one-core")]
    placement: Placement,
    /// Only contenders whose name contains this, and the floor; may be repeated.
    #[arg(long)]
    contender: Vec<String>,
    /// Who lets go: own, del, redis-cli or nobody; may be repeated. All if it is left out.
    #[arg(long)]
    released_by: Vec<ReleasedBy>,
    /// Rounds, each of two blocks for each contender.
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// Hand-offs in a block.
    #[arg(long, default_value_t = 10)]
    block: usize,
    /// Hand-offs in a block of a contender that waits by timer.
    #[arg(long, default_value_t = 2)]
    slow_block: usize,
    /// 3 nodes, few hand-offs, no releases by del: less than 20 seconds in all.
    #[arg(long)]
    quick: bool,
    /// Prints JSON instead of tables.
    #[arg(long)]
    json: bool,
}

fn main() -> Result<()> {
    let mut options = Options::parse();
    if options.quick {
        options.nodes = vec![3];
        if options.released_by.is_empty() {
            options.released_by = vec![ReleasedBy::Own, ReleasedBy::RedisCli, ReleasedBy::Nobody];
        }
        (options.rounds, options.block, options.slow_block) = (1, 4, 1);
    }
    let plan =
        Plan { rounds: options.rounds, block: options.block, slow_block: options.slow_block };
    ensure!(
        plan.rounds > 0 && plan.block > 0 && plan.slow_block > 0,
        "there is nothing to measure"
    );
    if options.released_by.is_empty() {
        options.released_by = ReleasedBy::ALL.map(|(_, by)| by).to_vec();
    }
    let cores = usable_cores()?;
    let entries = chosen(&options.contender);
    let mut runs = Vec::new();
    for &n in &options.nodes {
        let servers = servers(n);
        let about = options.placement.apply(&cores, &servers)?;
        for &by in &options.released_by {
            let entries = waiting_for(by, &entries);
            let figures = hand_off::run(&servers, &entries, by, plan, TTL)?;
            match options.json {
                true => runs.push(to_json(n, by, &about, &entries, &figures)),
                false => println!("{}", in_words(n, by, &about, &entries, &figures)),
            }
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

/// The floor waits only for its own kind: it stands beside the releases of others for comparison, and has
/// nothing to say of a key that expires.
fn waiting_for(by: ReleasedBy, entries: &[Entry]) -> Vec<Entry> {
    let waits = |(at, entry): &(usize, &Entry)| match by {
        ReleasedBy::Own => true,
        ReleasedBy::Del | ReleasedBy::RedisCli => *at == 0 || entry.woken_by != WokenBy::OwnMessage,
        ReleasedBy::Nobody => entry.woken_by != WokenBy::OwnMessage,
    };
    entries.iter().enumerate().filter(waits).map(|(_, &entry)| entry).collect()
}

fn in_words(
    n: usize,
    by: ReleasedBy,
    about: &str,
    entries: &[Entry],
    figures: &[Figures],
) -> String {
    let counted = match by {
        ReleasedBy::Own => "released by the holder, of the waiter's kind",
        ReleasedBy::Del => "released by DEL from another program (the floor releases itself)",
        ReleasedBy::RedisCli => "released by DEL from redis-cli (the floor releases itself)",
        ReleasedBy::Nobody => "released by nobody: the time after the keys expired",
    };
    let mut table = Table::new(&HEADINGS);
    for (entry, figures_of) in entries.iter().zip(figures) {
        let at = |quantile| micros(figures_of.hand_off.value_at_quantile(quantile));
        table.row(vec![
            entry.name.to_owned(),
            figures_of.hand_off.len().to_string(),
            at(0.5),
            at(0.9),
            at(0.99),
            micros(figures_of.hand_off.max()),
            match by {
                ReleasedBy::Nobody => "-".to_owned(),
                _ => Ratio::of(&figures_of.medians, &figures[0].medians).cell(),
            },
            format!("{:.2}", figures_of.failed_asks),
        ]);
    }
    format!("N = {n}, {counted}; times in µs; {about}\n\n{table}")
}

fn to_json(n: usize, by: ReleasedBy, about: &str, entries: &[Entry], figures: &[Figures]) -> Value {
    let of = |(entry, figures): (&Entry, &Figures)| {
        let at = |quantile| figures.hand_off.value_at_quantile(quantile);
        json!({
            "name": entry.name,
            "count": figures.hand_off.len(),
            "p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "max": figures.hand_off.max(),
            "failed_asks": figures.failed_asks,
            "medians": figures.medians,
        })
    };
    json!({
        "nodes": n,
        "released_by": by.name(),
        "placement": about,
        "contenders": entries.iter().zip(figures).map(of).collect::<Vec<_>>(),
    })
}

const HEADINGS: [&str; 8] =
    ["waiter", "hand-offs", "p50", "p90", "p99", "max", "p50 / floor, by round", "failed asks"];

const NOTE: &str = "\nHolder and waiter are two threads with connections of their own. The waiter has waited for 10 to \
50 ms when the release begins, one that asks at intervals for 20 to 220 ms. failed asks: SETs for each \
node and hand-off, by the nodes' count, beyond the two that were granted; the first ask of a waiter, \
which finds the lock held, is one of them.";

/// Longer than any wait: nobody is woken by it, but where the keys are to expire.
const TTL: Duration = Duration::from_secs(10);
