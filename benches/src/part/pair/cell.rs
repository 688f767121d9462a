//! A cell: one placement, one number of nodes, one kind of sockets. No ratio compares two cells.

use std::fmt;

use hdrhistogram::Histogram;
use redbolt_test_servers::Server;
use serde_json::{Value, json};

use crate::choice::Choice;
use crate::contender::{Node, floor};
use crate::placement::Placement;
use crate::rounds::{Figures, Outcome};
use crate::stats::{Ratio, median};

/// The conditions that all compared contenders share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) placement: Placement,
    pub(super) nodes: usize,
    pub(super) sockets: Sockets,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sockets {
    Tcp,
    Unix,
}

/// Returns the selected cells. Unix sockets are measured with three nodes.
pub(super) fn cells(choice: &Choice) -> Vec<Cell> {
    let nodes = choice.nodes_or(&[1, 3, 5]);
    let mut cells = Vec::new();
    for placement in choice.placements_or(&placements(choice)) {
        // With `--quick`, further placements are measured only if a target needs them.
        let briefly = choice.quick && choice.placements.is_empty() && !cells.is_empty();
        let wanted = |n: &usize| !briefly || *n == MIDDLE;
        let tcp = |nodes| Cell { placement, nodes, sockets: Sockets::Tcp };
        cells.extend(nodes.iter().copied().filter(wanted).map(tcp));
        if nodes.contains(&MIDDLE) && !briefly {
            cells.push(Cell { placement, nodes: MIDDLE, sockets: Sockets::Unix });
        }
    }
    cells
}

/// Returns the placements for which the machine has enough cores.
fn placements(choice: &Choice) -> Vec<Placement> {
    let all = Placement::ALL.into_iter().map(|(_, placement)| placement);
    let possible = |placement: &Placement| match placement {
        Placement::OneCore => true,
        Placement::Split => choice.cores.len() > 1,
        Placement::Unpinned => choice.cores.len() > 1 && !choice.quick,
    };
    all.filter(possible).collect()
}

impl Cell {
    /// Returns `true` if the contender can run in this cell: one that spins needs a core to itself.
    pub(super) fn suits(self, name: &str) -> bool {
        let spins = SPINNING.iter().any(|part| name.contains(part));
        !spins || self.placement == Placement::Split
    }

    /// Returns the name of the cell without its placement, which the heading shows.
    pub(super) fn short(self) -> String {
        format!("N = {}, {}", self.nodes, self.sockets)
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.placement, self.short())
    }
}

impl Sockets {
    pub(super) fn node(self, server: &Server) -> Node {
        match self {
            Self::Tcp => Node::Tcp(server.address()),
            Self::Unix => Node::Unix(server.socket().display().to_string()),
        }
    }
}

impl fmt::Display for Sockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Unix => "Unix sockets",
        })
    }
}

/// The figures of a cell.
pub(super) struct Run {
    pub(super) cell: Cell,
    /// The placement, described.
    pub(super) about: String,
    /// `true` if the nodes have a command for compare-and-delete.
    pub(super) is_native: bool,
    pub(super) outcomes: Vec<Outcome>,
}

impl Run {
    pub(super) fn figures(&self, name: &str) -> Option<&Figures> {
        let outcome = self.outcomes.iter().find(|outcome| outcome.name == name)?;
        outcome.figures.as_ref().ok()
    }

    /// Returns the figures of all contenders that did not fail.
    pub(super) fn measured(&self) -> impl Iterator<Item = (&'static str, &Figures)> {
        let figures = |outcome: &'_ Outcome| outcome.name;
        self.outcomes.iter().filter_map(move |outcome| {
            outcome.figures.as_ref().ok().map(|measured| (figures(outcome), measured))
        })
    }

    /// Returns the ratio of a contender to the floor, round by round.
    pub(super) fn ratio(&self, own: &Figures, of: fn(&Figures) -> &Vec<u64>) -> Ratio {
        let floor = self.figures(floor()).map_or(&[][..], |floor| of(floor));
        Ratio::of(of(own), floor)
    }

    pub(super) fn json(&self) -> Value {
        let contender = |outcome: &Outcome| match &outcome.figures {
            Ok(figures) => self.figures_json(outcome.name, figures),
            Err(error) => json!({ "name": outcome.name, "error": error }),
        };
        json!({
            "placement": self.cell.placement.to_string(),
            "placed": self.about,
            "native_release": self.is_native,
            "nodes": self.cell.nodes,
            "sockets": self.cell.sockets.to_string(),
            "contenders": self.outcomes.iter().map(contender).collect::<Vec<_>>(),
        })
    }

    fn figures_json(&self, name: &str, figures: &Figures) -> Value {
        let ratio = |of| {
            let Ratio { median, low, high } = self.ratio(figures, of);
            json!({ "median": median, "p10": low, "p90": high })
        };
        json!({
            "name": name,
            "pair": quantiles(&figures.pair),
            "acquire": quantiles(&figures.acquire),
            "release": quantiles(&figures.release),
            "pairs_per_second": per_second(figures),
            "cpu_per_pair": median(&figures.cpu),
            "switches_per_pair": per_pair(figures.switches, figures),
            "p50_to_floor": ratio(p50s),
            "p99_to_floor": ratio(p99s),
            "cpu_to_floor": ratio(cpu),
            "rounds": { "p50": figures.p50s, "p99": figures.p99s, "cpu": figures.cpu },
        })
    }
}

pub(super) fn p50s(figures: &Figures) -> &Vec<u64> {
    &figures.p50s
}

pub(super) fn p99s(figures: &Figures) -> &Vec<u64> {
    &figures.p99s
}

pub(super) fn cpu(figures: &Figures) -> &Vec<u64> {
    &figures.cpu
}

/// Returns the pairs per second, one after another.
pub(super) fn per_second(figures: &Figures) -> f64 {
    figures.pair.len() as f64 / figures.total.as_secs_f64()
}

pub(super) fn per_pair(of_all: u64, figures: &Figures) -> f64 {
    of_all as f64 / figures.pair.len() as f64
}

fn quantiles(histogram: &Histogram<u64>) -> Value {
    let at = |quantile| histogram.value_at_quantile(quantile);
    json!({
        "count": histogram.len(),
        "p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "p99.9": at(0.999),
        "max": histogram.max(),
    })
}

/// The most common number of nodes.
pub(super) const MIDDLE: usize = 3;

/// Parts of the names of spinning contenders.
const SPINNING: [&str; 2] = ["spin", "busy"];

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(choice: &Choice) -> String {
        cells(choice).iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn each_placement_has_its_nodes_and_unix_sockets_for_three() {
        let choice = Choice { cores: vec![0, 1], ..Choice::default() };
        assert_eq!(cells(&choice).len(), 12);
        let choice = Choice { cores: vec![0], ..Choice::default() };
        let cells = "one-core, N = 1, TCP; one-core, N = 3, TCP; one-core, N = 5, TCP; \
                     one-core, N = 3, Unix sockets";
        assert_eq!(chosen(&choice), cells);
    }

    #[test]
    fn with_quick_there_is_one_cell_of_another_placement() {
        let choice = Choice { quick: true, cores: vec![0, 1], ..Choice::default() };
        assert!(
            chosen(&choice).ends_with("Unix sockets; split, N = 3, TCP"),
            "{}",
            chosen(&choice)
        );
    }

    #[test]
    fn a_selection_is_measured_with_quick_too() {
        let placements = vec![Placement::Unpinned, Placement::Split];
        let choice = Choice { quick: true, nodes: vec![1], placements, ..Choice::default() };
        assert_eq!(chosen(&choice), "unpinned, N = 1, TCP; split, N = 1, TCP");
    }
}
