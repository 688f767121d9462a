//! What held locks weigh. A program of its own, for counting the heap's bytes takes an allocator that counts.

use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use redbolt_benches::scale::held::{Plan, climb};
use redbolt_proving::servers;

/// Prints a line of JSON for each number of held locks.
#[derive(Parser)]
struct Options {
    /// `host:port` of a node; may be repeated. Without any it starts three.
    #[arg(long)]
    node: Vec<String>,
    /// How many locks are held, from few to many; may be repeated.
    #[arg(long, default_values_t = [1_000, 10_000, 100_000])]
    held: Vec<usize>,
    /// Pairs of acquire and release while they are.
    #[arg(long, default_value_t = 10_000)]
    pairs: usize,
    /// For how many milliseconds nothing is done.
    #[arg(long, default_value_t = 3_000)]
    idle_ms: u64,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let servers = if options.node.is_empty() { servers(3) } else { Vec::new() };
    let started = servers.iter().map(redbolt_proving::Server::address);
    let nodes = options.node.into_iter().chain(started).collect();
    let idle = Duration::from_millis(options.idle_ms);
    let plan = Plan { nodes, held: options.held, pairs: options.pairs, idle };
    let weigh = |work: &mut dyn FnMut()| allocation_counter::measure(work).bytes_current;
    for figures in climb(&plan, weigh)? {
        println!("{}", serde_json::to_string(&figures)?);
    }
    Ok(())
}
