//! Held locks without work. They are in a separate process, whose allocator counts.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use redbolt_test_servers::{Server, servers};
use serde_json::{Value, json};

use super::sweeps::few;
use crate::chart::{self, Lines};
use crate::choice::Choice;
use crate::placement::Placement;
use crate::scale::growth::{Expected, Growth};
use crate::scale::held::Figures;
use crate::section::{Chart, Target};
use crate::table::Table;

/// The cost of held locks, by their number.
pub(super) struct Resting {
    rows: Vec<Figures>,
    /// The figures for the number of the last row, requested with a wait.
    waiting: Figures,
}

impl Resting {
    pub(super) fn measure(placement: Placement, choice: &Choice) -> Result<Self> {
        let (held, pairs, idle): (&[usize], _, _) = match choice.quick {
            true => (&[0, 1, 100, 10_000], 500, 200),
            false => (&[0, 1, 10, 100, 1_000, 10_000, 100_000], 10_000, 2_000),
        };
        let rows = climb(placement, choice, held, false, pairs, Duration::from_millis(idle))?;
        let most = &held[held.len() - 1..];
        let waiting = climb(placement, choice, most, true, 10, Duration::from_millis(1))?;
        let waiting = waiting.into_iter().next_back().context("nothing was measured")?;
        Ok(Self { rows, waiting })
    }

    pub(super) fn growths(&self) -> [Growth; 2] {
        let points = |least: u64, of: fn(&Figures) -> u64| {
            let rows = self.rows.iter().filter(|row| row.held >= least);
            rows.map(|row| (row.held as f64, of(row) as f64)).collect()
        };
        [
            // Below this number, whole pages count, and the memory that a core needs for itself.
            Growth {
                what: "heap against held locks".to_owned(),
                expected: Expected::Linear,
                points: points(100, |row| row.heap),
            },
            Growth {
                what: "CPU of another lock's pair against held locks".to_owned(),
                expected: Expected::Constant,
                points: points(1, |row| row.pair_cpu),
            },
        ]
    }

    pub(super) fn text(&self) -> String {
        let mut table = Table::new(&HEADINGS);
        for row in &self.rows {
            let micros = |nanos: u64| format!("{:.1}", nanos as f64 / 1e3);
            table.row(vec![
                row.held.to_string(),
                each(row.heap, row.held),
                each(row.resident, row.held),
                micros(row.pair_cpu),
                micros(row.pair_p50),
                micros(row.pair_p99),
                format!("{:.2}", row.idle_cpu as f64 / 1e6),
            ]);
        }
        let [memory, pair] = self.growths();
        format!(
            "{table}\n{memory}; {pair}. {NOTE} Requested with a wait, and so with queues: {} B of heap each.\n\n",
            each(self.waiting.heap, self.waiting.held),
        )
    }

    pub(super) fn charts(&self, placement: Placement) -> Result<[Chart; 2]> {
        let line = |name: &str, of: fn(&Figures) -> f64| {
            let rows = self.rows.iter().filter(|row| row.held >= 100);
            (name.to_owned(), rows.map(|row| (row.held as f64, of(row))).collect())
        };
        let lines = |name: &str, title: String, y: &str, log_y, series| {
            let (x, y) = ("locks held".to_owned(), y.to_owned());
            let svg =
                chart::lines(&Lines { title: title.clone(), x, y, log_x: true, log_y, series })?;
            anyhow::Ok(Chart { name: format!("scale-{name}-{placement}"), caption: title, svg })
        };
        let memory = vec![
            line("heap", |row| per(row.heap, row.held)),
            line("resident", |row| per(row.resident, row.held)),
        ];
        let pair = vec![
            line("CPU", |row| row.pair_cpu as f64 / 1e3),
            line("p50", |row| row.pair_p50 as f64 / 1e3),
            line("p99", |row| row.pair_p99 as f64 / 1e3),
        ];
        Ok([
            lines("memory", format!("Memory per held lock, {placement}"), "bytes", false, memory)?,
            lines("held", format!("A pair beside held locks, {placement}"), "µs", true, pair)?,
        ])
    }

    pub(super) fn target(&self) -> Target {
        let Some(row) = self.rows.last() else { return target(None, "nothing".to_owned()) };
        let bytes = per(row.heap, row.held);
        target(Some(bytes), format!("{bytes:.0} B with {} held", row.held))
    }

    pub(super) fn json(&self) -> Value {
        let [memory, pair] = self.growths();
        json!({
            "rows": self.rows.iter().map(Figures::json).collect::<Vec<_>>(),
            "with_a_wait": self.waiting.json(),
            "heap_slope": memory.slope(),
            "pair_slope": pair.slope(),
        })
    }
}

pub(super) fn target(measured: Option<f64>, text: String) -> Target {
    let what = format!("bytes of heap per idle held lock, key of {KEY} bytes");
    Target { what, bound: BYTES + KEY as f64, measured, text }
}

/// Runs the counting program.
fn climb(
    placement: Placement,
    choice: &Choice,
    held: &[usize],
    waits: bool,
    pairs: usize,
    idle: Duration,
) -> Result<Vec<Figures>> {
    let program = std::env::current_exe()?.with_file_name(PROGRAM);
    ensure!(program.is_file(), "there is no {}; `cargo xtask bench` builds it", program.display());
    let servers = servers(few(choice));
    placement.apply(&choice.cores, &servers)?;
    let nodes = servers.iter().map(Server::address).flat_map(|node| ["--node".to_owned(), node]);
    let held = held.iter().flat_map(|held| ["--held".to_owned(), held.to_string()]);
    let mut command = Command::new(program);
    command.args(nodes.chain(held)).args(waits.then_some("--waits"));
    command.args(["--pairs", &pairs.to_string(), "--idle-ms", &idle.as_millis().to_string()]);
    let output = command.output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout)?.lines().map(Figures::read).collect()
}

fn per(bytes: u64, held: u64) -> f64 {
    bytes as f64 / held.max(1) as f64
}

fn each(bytes: u64, held: u64) -> String {
    bytes.checked_div(held).map_or_else(String::new, |bytes| bytes.to_string())
}

const HEADINGS: [&str; 7] = [
    "held",
    "heap B/lock",
    "resident B/lock",
    "pair CPU µs",
    "pair p50 µs",
    "p99 µs",
    "idle CPU ms/s",
];

const NOTE: &str = "\
One driver with default settings holds the locks, with a TTL of 10 minutes and names of 16 bytes; \
nothing is done with them. The heap's bytes are those requested, including the reserve of \
collections; resident is the kernel's count. The pairs are of another lock, while these are held; \
idle is the host's loop without work.";

/// The counting program, in the folder of the bench program.
const PROGRAM: &str = "held";

/// The largest number of bytes of a held lock, without its name.
const BYTES: f64 = 256.0;
const KEY: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_row_is_the_one_that_is_judged() {
        let row = |held, heap| Figures { held, heap, ..Figures::default() };
        let rows = vec![row(0, 0), row(1, 9_000), row(1_000, 200_000)];
        let resting = Resting { rows, waiting: row(1_000, 300_000) };
        assert_eq!(resting.target().measured, Some(200.0));
        assert_eq!(resting.target().verdict(), "reached");
        assert!(resting.text().contains("300 B of heap each"), "{}", resting.text());
    }

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let row = Figures { held: 7, heap: 1 << 40, idle_cpu: 3, ..Figures::default() };
        assert_eq!(Figures::read(&row.json().to_string()).unwrap(), row);
        assert!(Figures::read("{}").is_err());
    }
}
