//! The cost of held locks. This is a separate program, because counting the heap's bytes needs
//! another allocator.

use std::alloc::System;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use redbolt_benches::scale::held::{Plan, climb};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Prints a line of JSON for each number of held locks. `cargo xtask bench scale` runs it.
#[derive(Parser)]
struct Options {
    /// `host:port` of a node; may be repeated
    #[arg(long, required = true)]
    node: Vec<String>,
    /// The number of held locks, in ascending order; may be repeated
    #[arg(long, required = true)]
    held: Vec<usize>,
    /// Request the locks with a wait
    #[arg(long)]
    waits: bool,
    /// Pairs of acquire and release in addition to the held locks
    #[arg(long, default_value_t = 10_000)]
    pairs: usize,
    /// The length of the idle period, in milliseconds
    #[arg(long, default_value_t = 3_000)]
    idle_ms: u64,
}

fn main() -> Result<()> {
    let Options { node, held, waits, pairs, idle_ms } = Options::parse();
    let plan = Plan { nodes: node, held, waits, pairs, idle: Duration::from_millis(idle_ms) };
    let heap = || {
        let stats = HEAP.stats();
        stats.bytes_allocated.saturating_sub(stats.bytes_deallocated) as u64
    };
    climb(&plan, heap)?.iter().for_each(|figures| println!("{}", figures.json()));
    Ok(())
}
