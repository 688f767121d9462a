//! A cell: a number of nodes, a number of waiters, and sections of one length. All contenders take
//! turns in it.

use std::fmt;
use std::time::Duration;

use anyhow::Result;
use redbolt_test_servers::Server;
use serde_json::{Value, json};

use super::figures::Figures;
use crate::crowd::{self, Contest, Outcome};
use crate::placement::Placement;
use crate::progress::Progress;
use crate::waiting::Entry;

/// The conditions that all compared contenders share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) placement: Placement,
    pub(super) nodes: usize,
    pub(super) waiters: usize,
    pub(super) section: Duration,
}

/// The extent of the measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    /// The number of rounds, each of two blocks for each contender: forward and back.
    pub(super) rounds: usize,
    /// The factor by which blocks are shorter than those of a full run.
    shorter: u32,
}

impl Extent {
    pub(super) fn of(quick: bool) -> Self {
        match quick {
            true => Self { rounds: 1, shorter: 3 },
            false => Self { rounds: 3, shorter: 1 },
        }
    }
}

impl Cell {
    /// Returns `true` if both are measured on the same nodes.
    pub(super) fn shares_nodes(self, other: Self) -> bool {
        (self.placement, self.nodes) == (other.placement, other.nodes)
    }

    /// Returns `true` if it has the conditions of the targets for two parties.
    pub(super) fn is_judged(self) -> bool {
        self.waiters == 2 && self.section == JUDGED
    }

    /// Returns the contest. Longer sections have fewer turns, so they get more time.
    fn contest(self, extent: Extent) -> Contest {
        let (waiters, section) = (self.waiters, self.section);
        let lap = section * waiters as u32;
        let lasts = (LEAST + section * SECTIONS).min(MOST).max(2 * lap);
        Contest {
            processes: waiters,
            section,
            // By then every process has had a turn, and has been refused.
            warm_up: WARM_UP.max(lap) / extent.shorter,
            lasts: lasts / extent.shorter,
        }
    }

    pub(super) fn measure(
        self,
        servers: &[Server],
        entries: &[Entry],
        extent: Extent,
        placed: &str,
        progress: &Progress,
    ) -> Result<Run> {
        let (home, contest) = (tempfile::tempdir()?, self.contest(extent));
        let mut figures: Vec<_> = entries.iter().map(|_| Figures::new(self.waiters)).collect();
        for _ in 0..extent.rounds {
            let there = 0..entries.len();
            for at in there.clone().chain(there.rev()) {
                if figures[at].failure.is_none() {
                    // A contender contends for the same lock again in each of its blocks.
                    let resource = format!("redbolt-turns-{at:02}-{:03}", self.waiters);
                    let file = home.path().join("shared");
                    let outcome = crowd::contest(servers, &entries[at], contest, &resource, &file);
                    figures[at].block(&outcome.unwrap_or_else(|error| Outcome::failed(&error)));
                }
                progress.step();
            }
            figures.iter_mut().for_each(Figures::end_round);
        }
        let rows = entries.iter().copied().zip(figures).collect();
        Ok(Run { cell: self, placed: placed.to_owned(), rows })
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (waiters, section) = (self.waiters, self.section.as_millis());
        write!(f, "N = {}, {waiters} waiters, sections of {section} ms", self.nodes)
    }
}

/// The figures of a cell. The first row is the ring.
pub(super) struct Run {
    pub(super) cell: Cell,
    /// The placement, described.
    pub(super) placed: String,
    pub(super) rows: Vec<(Entry, Figures)>,
}

impl Run {
    /// Returns the ring, with which the others are compared.
    pub(super) fn floor(&self) -> &Figures {
        &self.rows[0].1
    }

    pub(super) fn json(&self) -> Value {
        let row = |(entry, figures): &(Entry, Figures)| figures.json(entry.name);
        json!({
            "nodes": self.cell.nodes,
            "waiters": self.cell.waiters,
            "section": self.cell.section.as_nanos() as u64,
            "placement": self.cell.placement.name(),
            "placed": self.placed,
            "contenders": self.rows.iter().map(row).collect::<Vec<_>>(),
        })
    }
}

/// The section of the targets for two parties.
const JUDGED: Duration = Duration::from_millis(2);

const WARM_UP: Duration = Duration::from_millis(300);
/// The shortest block, which grows with the section up to a limit.
const LEAST: Duration = Duration::from_millis(600);
const SECTIONS: u32 = 300;
const MOST: Duration = Duration::from_millis(2_500);
