//! Lets many processes compete for one lock, on real nodes that it starts itself, and measures how long they
//! take beside the ideal: sections laid end to end, each with one hand-off of the raw floor.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand};
use redbolt_benches::contender::{Node, Task};
use redbolt_benches::crowd::{self, Outcome, Plan, worker::Order};
use redbolt_benches::machine::machine;
use redbolt_benches::placement::{Placement, usable_cores};
use redbolt_benches::stats::Ratio;
use redbolt_benches::table::Table;
use redbolt_benches::waiting::holder::ReleasedBy;
use redbolt_benches::waiting::{ALL, Entry, WokenBy, hand_off};
use redbolt_proving::{Server, servers};
use serde_json::{Value, json};

/// 2, 8 and 32 processes on one key, on 1, 3 and 5 nodes.
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Options {
    #[command(subcommand)]
    role: Option<Role>,
    /// How many nodes; may be repeated.
    #[arg(long, default_values_t = [1, 3, 5])]
    nodes: Vec<usize>,
    /// How many processes; may be repeated.
    #[arg(long, default_values_t = [2, 8, 32])]
    processes: Vec<usize>,
    /// How often each process takes the lock.
    #[arg(long, default_value_t = 20)]
    times: usize,
    /// How long it holds the lock, in milliseconds.
    #[arg(long, default_value_t = 5)]
    section: u64,
    /// Where processes and nodes run: one-core, split or unpinned.
    #[arg(long, default_value = "unpinned")]
    placement: Placement,
    /// Only contenders whose name contains this; may be repeated. redbolt's blocking
    /// client in all its ways if it is left out.
    #[arg(long)]
    contender: Vec<String>,
    /// Rounds, in each of which everybody has one crowd.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How many seconds a crowd may take.
    #[arg(long, default_value_t = 120)]
    limit: u64,
    /// 3 nodes, 8 processes, one round: less than 20 seconds in all.
    #[arg(long)]
    quick: bool,
    /// Prints JSON instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum Role {
    /// One process of a crowd; the program starts these itself.
    #[command(hide = true)]
    Worker(Order),
}

/// What is measured on one set of nodes with so many processes.
struct Group {
    nodes: usize,
    plan: Plan,
    /// One hand-off of the floor, at its median.
    hand_off: Duration,
    /// For each contender the outcome of each round.
    outcomes: Vec<Vec<Outcome>>,
}

fn main() -> Result<()> {
    let mut options = Options::parse();
    if let Some(Role::Worker(order)) = options.role {
        return order.carry_out();
    }
    if options.quick {
        (options.nodes, options.processes, options.rounds) = (vec![3], vec![8], 1);
        options.times = options.times.min(10);
    }
    let chosen: Vec<Entry> = ALL.into_iter().filter(|entry| options.chose(entry)).collect();
    ensure!(options.rounds > 0 && options.times > 0 && !chosen.is_empty(), "nothing to measure");
    let cores = usable_cores()?;
    let mut placed = String::new();
    let mut groups = Vec::new();
    for &n in &options.nodes {
        let servers = servers(n);
        placed = options.placement.apply(&cores, &servers)?;
        for &processes in &options.processes {
            groups.push(measure(&servers, &chosen, options.plan(processes), options.rounds)?);
        }
    }
    if options.json {
        let runs: Vec<Value> = groups.iter().flat_map(|group| group.to_json(&chosen)).collect();
        println!("{:#}", json!({ "machine": machine(), "placement": placed, "runs": runs }));
        return Ok(());
    }
    println!("{} times each, sections of {} ms; {placed}\n", options.times, options.section);
    println!("{}\n{}\n{}", table(&groups, &chosen), machine(), NOTE);
    for entry in chosen {
        println!("{}: {}", entry.name, entry.about);
    }
    Ok(())
}

impl Options {
    fn plan(&self, processes: usize) -> Plan {
        Plan {
            processes,
            times: self.times,
            section: Duration::from_millis(self.section),
            limit: Duration::from_secs(self.limit),
        }
    }

    fn chose(&self, entry: &Entry) -> bool {
        let named = |part: &String| entry.name.contains(part.as_str());
        match self.contender.is_empty() {
            true => entry.name.starts_with("redbolt, "),
            false => entry.woken_by != WokenBy::OwnMessage && self.contender.iter().any(named),
        }
    }
}

fn measure(servers: &[Server], chosen: &[Entry], plan: Plan, rounds: usize) -> Result<Group> {
    let floor_plan = hand_off::Plan { rounds: 3, block: 10, slow_block: 1 };
    let floor = hand_off::run(servers, &ALL[..1], ReleasedBy::Own, floor_plan, TTL)?;
    let hand_off = Duration::from_nanos(floor[0].hand_off.value_at_quantile(0.5));
    set_up(servers, chosen)?;
    let home = tempfile::tempdir()?;
    let mut outcomes = vec![Vec::new(); chosen.len()];
    for _ in 0..rounds {
        for (entry, outcomes) in chosen.iter().zip(&mut outcomes) {
            let file = home.path().join("shared");
            outcomes.push(crowd::run(servers, entry, plan, &file).context(entry.name)?);
        }
    }
    Ok(Group { nodes: servers.len(), plan, hand_off, outcomes })
}

/// One client before all others: the guards of new nodes are to be written once, not by all at a time.
fn set_up(servers: &[Server], chosen: &[Entry]) -> Result<()> {
    let nodes = servers.iter().map(|server| Node::Tcp(server.address())).collect();
    let task = Task { nodes, resource: "redbolt-bench-first".to_owned(), ttl: TTL };
    let mut first = (chosen[0].start)(&task)?;
    first.acquire()?;
    first.release()
}

fn table(groups: &[Group], chosen: &[Entry]) -> Table {
    let mut table = Table::new(&HEADINGS);
    for group in groups {
        for (entry, outcomes) in chosen.iter().zip(&group.outcomes) {
            table.row(group.cells(entry, outcomes));
        }
    }
    table
}

impl Group {
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
        let mean = |of: fn(&Outcome) -> f64| {
            let sum: f64 = outcomes.iter().map(of).sum();
            format!("{:.2}", sum / outcomes.len() as f64)
        };
        let grants: usize = outcomes.iter().map(Outcome::grants).sum();
        let intruders: u64 =
            outcomes.iter().map(|outcome| outcome.trespasses + outcome.overwritten).sum();
        vec![
            entry.name.to_owned(),
            self.nodes.to_string(),
            self.plan.processes.to_string(),
            format!("{:.0}", self.hand_off.as_nanos() as f64 / 1e3),
            format!("{:.2}", self.ideal().as_secs_f64()),
            Ratio::of(&totals, &ideal).cell(),
            mean(Outcome::full_asks),
            mean(Outcome::lead_asks),
            millis(&waits, 0.5),
            millis(&waits, 0.99),
            millis(&waits, 1.0),
            [0.0, 0.5, 1.0].map(|part| seconds(&finished, part)).join(" / "),
            format!("{grants} of {}", self.wanted() as usize * outcomes.len()),
            intruders.to_string(),
            outcomes
                .iter()
                .flat_map(|outcome| &outcome.failures)
                .next()
                .cloned()
                .unwrap_or_default(),
        ]
    }

    fn to_json(&self, chosen: &[Entry]) -> Vec<Value> {
        let of = |(entry, outcomes): (&Entry, &Vec<Outcome>)| {
            let round = |outcome: &Outcome| {
                json!({
                    "total": outcome.total,
                    "grants": outcome.grants(),
                    "full_asks": outcome.full_asks(),
                    "lead_asks": outcome.lead_asks(),
                    "waits": outcome.waits,
                    "finished": outcome.finished,
                    "sets": outcome.sets,
                    "trespasses": outcome.trespasses,
                    "overwritten": outcome.overwritten,
                    "failures": outcome.failures,
                })
            };
            json!({
                "name": entry.name,
                "nodes": self.nodes,
                "plan": format!("{:?}", self.plan),
                "hand_off": self.hand_off.as_nanos() as u64,
                "ideal": self.ideal().as_nanos() as u64,
                "rounds": outcomes.iter().map(round).collect::<Vec<_>>(),
            })
        };
        chosen.iter().zip(&self.outcomes).map(of).collect()
    }
}

/// Of sorted nanoseconds, where so large a part of them is not larger.
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

const HEADINGS: [&str; 15] = [
    "waiter",
    "N",
    "processes",
    "floor, µs",
    "ideal, s",
    "total / ideal, by round",
    "full asks",
    "lead asks",
    "wait p50, ms",
    "p99",
    "max",
    "finished first / median / last, s",
    "grants",
    "intruders",
    "failure",
];

const NOTE: &str = "\nideal: all sections laid end to end, each with one hand-off of the raw floor (waking at a quorum), measured \
with two threads on the same nodes just before. A section is a sleep. asks are for each grant, by the \
nodes' count of SETs: full asks by the node that ran the fewest, lead asks by what the others ran \
beyond that; with one node they cannot be told apart. intruders: sections that found another process \
inside, or whose work was overwritten; one is too many.";

/// Longer than any wait for a section: nobody gets the lock by its end.
const TTL: Duration = Duration::from_secs(10);
