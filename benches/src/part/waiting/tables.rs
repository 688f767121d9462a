//! The text of the contests: a table for each cell, and one of the default settings in all cells.

use super::cell::{Extent, Run};
use super::figures::Figures;
use crate::crowd::turns::PLACE_KNOWN;
use crate::section::failures;
use crate::stats::micros;
use crate::table::Table;
use crate::waiting::{Entry, default_settings};

pub(super) fn text(runs: &[Run], entries: &[Entry], extent: Extent) -> String {
    let mut out = introduction(extent);
    for run in runs {
        out += &format!("### {}\n\n{}; times in µs\n\n{}\n", run.cell, run.placed, table(run));
        let failed = run.rows.iter().filter_map(|(entry, figures)| {
            figures.failure.as_deref().map(|failure| (entry.name, failure))
        });
        out += &failures(failed);
    }
    out += NOTE;
    for entry in entries {
        out += &format!("- *{}*: {}\n", entry.name, entry.about);
    }
    out
}

/// Returns the table of the default settings in all cells.
pub(super) fn summary(runs: &[Run]) -> String {
    let name = default_settings().name;
    let mut table = Table::new(&SUMMARY);
    for run in runs {
        let Some((_, own)) = run.rows.iter().find(|(entry, _)| entry.name == name) else {
            continue;
        };
        let section = run.cell.section.as_millis().to_string();
        let mut cells = vec![run.cell.nodes.to_string(), run.cell.waiters.to_string(), section];
        cells.extend(own.ratios(run.floor()).map(|ratio| ratio.cell()));
        cells.extend([
            or_dash(own.in_vain()),
            percent(own.idle()),
            percent(own.passed()),
            own.most_passes().to_string(),
        ]);
        table.row(cells);
    }
    format!("{WHAT}*{name}*, divided by the ring:\n\n{table}\n")
}

fn introduction(extent: Extent) -> String {
    format!(
        "{WHAT}Contenders take turns: {} rounds, forward and back, each time with new processes. These contend \
         for the lock for a while before anything counts.\n\n",
        extent.rounds
    )
}

fn table(run: &Run) -> Table {
    let mut table = Table::new(&HEADINGS);
    for (entry, own) in &run.rows {
        let mut cells = vec![entry.name.to_owned()];
        match own.is_measured() {
            true => cells.extend(numbers(own, run.floor())),
            false => cells.resize(HEADINGS.len(), "-".to_owned()),
        }
        table.row(cells);
    }
    table
}

fn numbers(own: &Figures, floor: &Figures) -> [String; 20] {
    let [p50, p90, p99] = own.ratios(floor).map(|ratio| ratio.cell());
    let (fewest, most) = own.of_one();
    [
        own.hand_offs.len().to_string(),
        micros(own.hand_off(0.5)),
        p50,
        micros(own.hand_off(0.9)),
        p90,
        micros(own.hand_off(0.99)),
        p99,
        micros(own.hand_off(1.0)),
        or_dash(own.in_vain()),
        or_dash(own.asked(|asked| asked.to_nodes)),
        or_dash(own.asked(|asked| asked.notified)),
        format!("{:.1}", own.packets()),
        percent(own.idle()),
        percent(own.kept()),
        percent(own.passed()),
        own.most_passes().to_string(),
        format!("{:.1}", own.longest()),
        format!("{fewest} / {most}"),
        format!("{} / {}", micros(own.node_cpu()), micros(own.client_cpu())),
        own.intruders.to_string(),
    ]
}

fn or_dash(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"))
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

const HEADINGS: [&str; 21] = [
    "waiter",
    "hand-offs",
    "p50",
    "/ ring",
    "p90",
    "/ ring",
    "p99",
    "/ ring",
    "max",
    "in vain",
    "to nodes",
    "notified",
    "packets",
    "idle",
    "kept",
    "passed",
    "most",
    "longest / mean",
    "turns of one",
    "CPU nodes / clients",
    "intruders",
];

const SUMMARY: [&str; 10] =
    ["N", "waiters", "ms", "hand-off p50", "p90", "p99", "in vain", "idle", "passed", "most"];

const WHAT: &str = "\
Processes want one lock, each with its own client, and want it again as soon as they have released \
it. The floor is a ring of raw clients: everybody knows who comes next and publishes its release to \
that one alone, so nobody asks in vain and the order is fixed. Ratios are computed within a round; \
the tables show the median of the rounds, and their first and ninth decile. ";

/// The note with the length of [`PLACE_KNOWN`].
const NOTE: &str = "\
- *hand-offs*: from the begin of a release until another process that waited already holds the lock.
- *in vain*: rounds of asks per grant beyond the one that was granted, whether to all nodes or to \
one. *to nodes*: asks to single nodes per grant. *notified*: notifications per grant, to all clients \
together. All three are the clients' own counts.
- *packets*: how often the nodes read from a connection and wrote to one, per grant, by their own \
count. What comes or leaves together is one.
- *idle*: the share of time in which nobody held the lock although somebody waited. With sections \
of 0 ms there is hardly anything else.
- *kept*: grants to the process that had just released. *passed*: waits during which another process \
got the lock that had begun to wait more than 2 ms later; waits that begin closer together have no \
order. *most*: how many such turns one wait had to bear. *longest / mean*: of the waits of a block, \
in the worst block. *turns of one*: the fewest and the most turns of one process in a block.
- *CPU*: of all nodes and of all clients, per grant.
- *intruders*: processes that met in a section; one is too many.
";

const _: () = assert!(PLACE_KNOWN.as_millis() == 2, "the note says so");
