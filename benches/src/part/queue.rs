//! The cost of dead waiters for those behind them, and the waits of a far waiter next to near ones.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use redbolt_test_servers::{Server, servers};
use serde_json::{Value, json};

use crate::choice::Choice;
use crate::crowd;
use crate::crowd::queue::{Waits, behind_dead, far_among_near};
use crate::progress::Progress;
use crate::section::Section;
use crate::table::Table;

pub(super) fn run(choice: &Choice, progress: &Progress) -> Result<Section> {
    let home = tempfile::tempdir()?;
    let file = home.path().join("shared");
    let rounds = if choice.quick { 1 } else { 5 };
    let lasts = Duration::from_secs(if choice.quick { 3 } else { 20 });
    let sizes = choice.nodes_or(&[3]);
    let turns = sizes.len() * (rounds * DEAD.len() + ROUND_TRIPS.len());
    progress.begin(turns as u64, "queue");
    let (mut text, mut runs) = (INTRO.to_owned(), Vec::new());
    for n in sizes {
        let servers = servers(n);
        crowd::set_up(&servers.iter().map(Server::address).collect::<Vec<_>>())?;
        let dead = dead_waiters(&servers, rounds, &file, progress)?;
        let far = far_waiters(&servers, lasts, &file, progress)?;
        text += &format!("### {n} nodes\n\n{}\n{}\n", dead_table(&dead), far_table(&far));
        runs.push(json!({ "nodes": n, "dead": dead_json(&dead), "far": far_json(&far) }));
    }
    let title = "Dead and far waiters".to_owned();
    Ok(Section { title, text, json: json!({ "runs": runs }), ..Section::default() })
}

/// Returns the times from release to grant behind each number of dead waiters, sorted.
fn dead_waiters(
    servers: &[Server],
    rounds: usize,
    file: &Path,
    progress: &Progress,
) -> Result<Vec<(usize, Vec<u64>)>> {
    let mut all = DEAD.map(|dead| (dead, Vec::new()));
    for round in 0..rounds {
        for (dead, times) in &mut all {
            progress.say(&format!("queue: behind {dead} dead waiters"));
            let resource = format!("redbolt-bench-{dead}-dead-{round}");
            let time = behind_dead(servers, *dead, &resource, file);
            times.push(time.with_context(|| format!("behind {dead} dead waiters"))?);
            progress.step();
        }
    }
    all.iter_mut().for_each(|(_, times)| times.sort_unstable());
    Ok(all.to_vec())
}

fn far_waiters(
    servers: &[Server],
    lasts: Duration,
    file: &Path,
    progress: &Progress,
) -> Result<Vec<(Duration, Waits)>> {
    let mut all = Vec::new();
    for round_trip in ROUND_TRIPS.map(Duration::from_micros) {
        progress.say(&format!("queue: {round_trip:?} away"));
        let resource = format!("redbolt-bench-far-{}", round_trip.as_micros());
        let waits = far_among_near(servers, round_trip / 2, lasts, &resource, file);
        all.push((round_trip, waits.with_context(|| format!("{round_trip:?} away"))?));
        progress.step();
    }
    Ok(all)
}

fn dead_table(all: &[(usize, Vec<u64>)]) -> Table {
    let mut table = Table::new(&["dead waiters in front", "median, s", "longest, s"]);
    for (dead, times) in all {
        table.row(vec![dead.to_string(), seconds(times, 0.5), seconds(times, 1.0)]);
    }
    table
}

fn far_table(all: &[(Duration, Waits)]) -> Table {
    let mut table = Table::new(&[
        "round trip of the far one, ms",
        "its grants",
        "its wait p50, s",
        "longest, s",
        "grants of the near ones",
        "their wait p50, s",
        "longest, s",
    ]);
    for (round_trip, Waits { far, near }) in all {
        let mut row = vec![format!("{}", round_trip.as_secs_f64() * 1e3)];
        for waits in [far, near] {
            row.extend([waits.len().to_string(), seconds(waits, 0.5), seconds(waits, 1.0)]);
        }
        table.row(row);
    }
    table
}

fn dead_json(all: &[(usize, Vec<u64>)]) -> Vec<Value> {
    all.iter().map(|(dead, times)| json!({ "dead": dead, "times": times })).collect()
}

fn far_json(all: &[(Duration, Waits)]) -> Vec<Value> {
    let one = |(round_trip, waits): &(Duration, Waits)| {
        let round_trip = round_trip.as_nanos() as u64;
        json!({ "round_trip": round_trip, "far": waits.far, "near": waits.near })
    };
    all.iter().map(one).collect()
}

/// Returns the quantile of sorted nanoseconds.
fn seconds(sorted: &[u64], part: f64) -> String {
    let last = sorted.len().saturating_sub(1);
    let at = (last as f64 * part).round() as usize;
    sorted.get(at).map_or_else(|| "-".to_owned(), |&time| format!("{:.3}", time as f64 / 1e9))
}

const DEAD: [usize; 6] = [0, 1, 2, 3, 5, 10];

/// The round trips in µs.
const ROUND_TRIPS: [u64; 5] = [500, 50_000, 150_000, 300_000, 600_000];

const INTRO: &str = "\
*Dead waiters*: processes wait for a lock that is held, SIGKILL ends all but the last one, and the \
lock is released. The time is from the start of the release to the grant of the last one.

*A far waiter*: three processes want the same lock again and again and hold it for 20 ms each. The \
bytes of one of them take half a round trip in each direction, in proxies in front of the nodes.

";
