//! The sizes, and their work. Each figure is the median of some rounds, which go through all sizes
//! there and back; only the nodes are restarted for each size.

use anyhow::Result;
use redbolt::proto::MAX_PIPELINE;
use redbolt_test_servers::{Server, servers};

use super::sweep::{Row, Sweep};
use crate::choice::Choice;
use crate::placement::Placement;
use crate::scale::at_once::{AtOnce, Cost};
use crate::scale::pairs::Pairs;
use crate::scale::waiters::{Tasks, Waiters};

pub(super) type Run = fn(Placement, &Choice) -> Result<Sweep>;

/// The sweeps, in the order of the tables.
pub(super) const ALL: [(&str, Run); 5] = [
    ("locks at once", at_once),
    ("nodes", nodes),
    ("waiters, driver", waiting_in_the_queue),
    ("waiters, engine", waiting_tasks),
    ("keys", keys),
];

fn at_once(placement: Placement, choice: &Choice) -> Result<Sweep> {
    let (servers, addresses) = start(placement, choice, few(choice))?;
    let sizes: &[usize] = match choice.quick {
        true => &[1, 10, 100, 1_000, 10_000],
        false => &[1, 10, 100, 1_000, 10_000, 100_000],
    };
    let mut at_once = AtOnce::connect(&addresses)?;
    let least = if choice.quick { 2_000 } else { 20_000 };
    let rows = rounds(sizes, choice, least, |size| at_once.take(size))?;
    let many = 2 * MAX_PIPELINE;
    let (granted, refused) = at_once.take_too_many(many)?;
    drop(servers);
    let about = format!(
        "All are requested in one write to each node, all are held, all are released. A link accepts \
         {MAX_PIPELINE} unanswered requests, so more locks are requested in portions, until all are held. Of {many} \
         requested at once {granted} were granted, and {refused} were refused: too many requests in flight."
    );
    let (name, size, per) = ("at-once", "locks at once", "lock");
    Ok(Sweep { name, size, per, is_many: true, about, rows })
}

fn nodes(placement: Placement, choice: &Choice) -> Result<Sweep> {
    let own: &[usize] = match choice.quick {
        true => &[1, 3, 5, 15],
        false => &[1, 3, 5, 7, 9, 11, 13, 15],
    };
    let mut rows = Vec::new();
    for n in choice.nodes_or(own) {
        let (servers, addresses) = start(placement, choice, n)?;
        let mut pairs = Pairs::connect(&addresses, NAME)?;
        pairs.take(times(choice) / 10)?;
        let row = rounds(&[n], choice, 0, |_| take(&mut pairs, choice))?;
        rows.extend(row);
        drop(servers);
    }
    rows.sort_by_key(|row| row.size);
    let about = "One lock after another by one driver; the time is the median.".to_owned();
    Ok(Sweep { name: "nodes", size: "nodes", per: "pair", is_many: false, about, rows })
}

fn keys(placement: Placement, choice: &Choice) -> Result<Sweep> {
    let (servers, addresses) = start(placement, choice, few(choice))?;
    let sizes: &[usize] = match choice.quick {
        true => &[1, 256, 4 << 10, 64 << 10],
        false => &[1, 16, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10],
    };
    let connect = |&bytes: &usize| Ok((bytes, Pairs::connect(&addresses, bytes)?));
    let mut all = sizes.iter().map(connect).collect::<Result<Vec<_>>>()?;
    let rows = rounds(sizes, choice, 0, |size| {
        let (_, pairs) =
            all.iter_mut().find(|(bytes, _)| *bytes == size).expect("each size has its own driver");
        take(pairs, choice)
    })?;
    drop(servers);
    let about = "As above. Each node gets the name twice, with the request and with the release."
        .to_owned();
    Ok(Sweep { name: "keys", size: "bytes of the name", per: "pair", is_many: false, about, rows })
}

fn waiting_in_the_queue(placement: Placement, choice: &Choice) -> Result<Sweep> {
    let (servers, addresses) = start(placement, choice, few(choice))?;
    let mut queue = Waiters::connect(&addresses)?;
    let rows = rounds(waiters(choice), choice, hand_overs(choice), |size| queue.wait(size))?;
    drop(servers);
    let about = "All wait for one resource, in one driver; each releases it at once.".to_owned();
    let (name, size, per) = ("queue", "waiters in a driver", "hand-over");
    Ok(Sweep { name, size, per, is_many: true, about, rows })
}

fn waiting_tasks(placement: Placement, choice: &Choice) -> Result<Sweep> {
    let (servers, addresses) = start(placement, choice, few(choice))?;
    let mut tasks = Tasks::connect(&addresses)?;
    let rows = rounds(waiters(choice), choice, hand_overs(choice), |size| tasks.wait(size))?;
    drop(servers);
    let about = "The same with tasks on one engine, on tokio's current_thread.".to_owned();
    let (name, size, per) = ("tasks", "waiting tasks", "hand-over");
    Ok(Sweep { name, size, per, is_many: true, about, rows })
}

/// Starts nodes with their affinity set, and returns their addresses.
fn start(placement: Placement, choice: &Choice, n: usize) -> Result<(Vec<Server>, Vec<String>)> {
    let servers = servers(n);
    placement.apply(&choice.cores, &servers)?;
    let addresses = servers.iter().map(Server::address).collect();
    Ok((servers, addresses))
}

/// Goes through the sizes there and back. Small work is repeated until there are `least` units of
/// it.
fn rounds(
    sizes: &[usize],
    choice: &Choice,
    least: usize,
    mut work: impl FnMut(usize) -> Result<Cost>,
) -> Result<Vec<Row>> {
    let rounds = if choice.quick { 1 } else { 3 };
    let mut costs: Vec<_> = sizes.iter().map(|&size| (size, Vec::new(), Vec::new())).collect();
    for round in 0..2 * rounds {
        let there = 0..costs.len();
        let order: Vec<_> = if round % 2 == 0 { there.collect() } else { there.rev().collect() };
        for at in order {
            let (size, cpu, wall) = &mut costs[at];
            let times = (least / (2 * rounds) / *size).max(1);
            let mut sum = (0.0, 0.0);
            for _ in 0..times {
                let cost = work(*size)?;
                sum = (sum.0 + cost.cpu as f64, sum.1 + cost.wall as f64);
            }
            cpu.push(sum.0 / times as f64);
            wall.push(sum.1 / times as f64);
        }
    }
    let row = |(size, cpu, wall)| Row { size, cpu: middle(cpu), wall: middle(wall) };
    Ok(costs.into_iter().map(row).collect())
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let (low, high) = ((values.len() - 1) / 2, values.len() / 2);
    f64::midpoint(values[low], values[high])
}

fn take(pairs: &mut Pairs, choice: &Choice) -> Result<Cost> {
    let cost = pairs.take(times(choice))?;
    Ok(Cost { cpu: cost.cpu, wall: cost.p50 })
}

fn times(choice: &Choice) -> usize {
    if choice.quick { 150 } else { 1_000 }
}

fn waiters(choice: &Choice) -> &'static [usize] {
    if choice.quick { &[1, 10, 100] } else { &[1, 10, 100, 1_000] }
}

fn hand_overs(choice: &Choice) -> usize {
    if choice.quick { 400 } else { 6_000 }
}

/// Returns the number of nodes for tables in which something else grows.
pub(super) fn few(choice: &Choice) -> usize {
    choice.nodes_or(&[3])[0]
}

/// The length of a resource's name in bytes for tables in which something else grows.
const NAME: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_work_is_repeated_and_the_middle_of_the_rounds_counts() {
        let (mut calls, choice) = (Vec::new(), Choice { quick: true, ..Choice::default() });
        let rows = rounds(&[1, 100], &choice, 8, |size| {
            calls.push(size);
            Ok(Cost { cpu: size as u64 * calls.len() as u64, wall: 7 })
        });
        assert_eq!(calls, [1, 1, 1, 1, 100, 100, 1, 1, 1, 1]);
        let rows = rows.unwrap();
        assert_eq!((rows[0].cpu, rows[1].cpu, rows[1].wall), (5.5, 550.0, 7.0));
    }
}
