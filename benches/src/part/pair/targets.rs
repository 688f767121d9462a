//! The targets of the pair, and how far redbolt is from them.

use super::cell::{Cell, Run, Sockets, p50s, p99s};
use super::counted::Counted;
use crate::contender::ALL;
use crate::placement::Placement;
use crate::rounds::Figures;
use crate::section::Target;
use crate::stats::Ratio;

pub(super) fn targets(runs: &[Run], counts: &[Counted]) -> Vec<Target> {
    let of_cell = |aim: &Aim| {
        let run = runs.iter().find(|run| run.cell == aim.cell && aim.native <= run.is_native)?;
        Some(aim.names.iter().filter_map(|name| aim.target(run, name)).collect::<Vec<_>>())
    };
    let pairs = AIMS.iter().filter_map(of_cell).flatten();
    pairs.chain(counts.iter().filter_map(allocations)).collect()
}

/// The largest ratio to the floor, or to another contender, that is aimed at.
struct Aim {
    cell: Cell,
    percentile: &'static str,
    of: fn(&Figures) -> &Vec<u64>,
    bound: f64,
    names: &'static [&'static str],
    /// The contender with which they are compared.
    base: &'static str,
    /// `true` if the target applies only to nodes that compare and delete by themselves.
    native: bool,
}

impl Aim {
    /// Returns the target; `None` for a contender that did not take part.
    fn target(&self, run: &Run, name: &str) -> Option<Target> {
        let outcome = run.outcomes.iter().find(|outcome| outcome.name == name)?;
        let native = if self.native { ", released natively" } else { "" };
        let what =
            format!("pair {}, {}: {name}{native} / {}", self.percentile, self.cell, self.base);
        let (measured, text) = match &outcome.figures {
            Ok(figures) => {
                let base = run.figures(self.base).map_or(&[][..], |base| (self.of)(base));
                let ratio = Ratio::of((self.of)(figures), base);
                (Some(ratio.median).filter(|ratio| ratio.is_finite()), ratio.cell())
            }
            Err(_) => (None, FAILED.to_owned()),
        };
        Some(Target { what, bound: self.bound, measured, text })
    }
}

fn allocations(counted: &Counted) -> Option<Target> {
    NO_ALLOCATIONS.contains(&counted.name).then(|| {
        let (measured, text) = match &counted.outcome {
            Ok(counts) => {
                let text = counts
                    .allocations
                    .map_or_else(|| "not counted".to_owned(), |count| count.to_string());
                (counts.allocations, text)
            }
            Err(_) => (None, FAILED.to_owned()),
        };
        let what = format!("allocations per pair, N = 3: {}", counted.name);
        Target { what, bound: 0.0, measured, text }
    })
}

const fn aim(nodes: usize, percentile: &'static str, of: fn(&Figures) -> &Vec<u64>) -> Aim {
    let cell = Cell { placement: Placement::OneCore, nodes, sockets: Sockets::Tcp };
    Aim { cell, percentile, of, bound: 1.10, names: &FRONTS, base: FLOOR, native: false }
}

/// Returns the target for a shared lock, compared with an exclusive one.
const fn shared(nodes: usize) -> Aim {
    Aim { bound: 1.35, names: &SHARED, base: FRONTS[0], ..aim(nodes, "p50", p50s) }
}

/// Returns the target for two libraries in C, each in a separate process.
const fn in_c(nodes: usize, bound: f64) -> Aim {
    Aim { bound, names: &IN_C, base: HIREDIS, ..aim(nodes, "p50", p50s) }
}

const FLOOR: &str = ALL[0].name;
const SHARED: [&str; 1] = ["redbolt client, shared"];
const FRONTS: [&str; 2] = ["redbolt client", "redbolt driver"];
const IN_C: [&str; 1] = ["redbolt in C"];
const HIREDIS: &str = "hiredis";
const BUSY: [&str; 2] = ["redbolt client, busy-poll", "redbolt driver, busy-poll"];
/// The table of the same cell has the reason.
const FAILED: &str = "failed";
const NO_ALLOCATIONS: [&str; 2] = FRONTS;

const AIMS: [Aim; 13] = [
    Aim { bound: 0.95, native: true, ..aim(3, "p50", p50s) },
    aim(3, "p50", p50s),
    aim(3, "p99", p99s),
    aim(1, "p50", p50s),
    aim(5, "p50", p50s),
    shared(1),
    shared(3),
    shared(5),
    in_c(1, 1.03),
    in_c(3, 1.0),
    in_c(5, 1.0),
    Aim {
        cell: Cell { placement: Placement::Split, nodes: 3, sockets: Sockets::Tcp },
        percentile: "p50",
        of: p50s,
        bound: 0.60,
        names: &BUSY,
        base: FLOOR,
        native: false,
    },
    Aim {
        cell: Cell { placement: Placement::OneCore, nodes: 3, sockets: Sockets::Unix },
        percentile: "p50",
        of: p50s,
        bound: 1.15,
        names: &FRONTS,
        base: FLOOR,
        native: false,
    },
];
