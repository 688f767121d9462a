//! Processes that take turns on one lock: every strategy of the library compared with the raw ring.
//! `crate::crowd` runs the processes.

mod cell;
mod figures;
mod tables;
mod targets;

use std::time::Duration;

use anyhow::Result;
use redbolt_test_servers::{Server, servers};
use serde_json::json;

use self::cell::{Cell, Extent};
use crate::choice::Choice;
use crate::crowd;
use crate::placement::Placement;
use crate::progress::Progress;
use crate::section::Section;
use crate::waiting::{ALL, Entry, Kind, RING};

pub(super) fn run(choice: &Choice, progress: &Progress) -> Result<Section> {
    let entries = entries(choice);
    let extent = Extent::of(choice.quick);
    let cells = cells(choice);
    progress.begin((cells.len() * extent.rounds * 2 * entries.len()) as u64, "taking turns");
    let mut runs = Vec::new();
    for of_nodes in cells.chunk_by(|one, next| one.shares_nodes(*next)) {
        let servers = servers(of_nodes[0].nodes);
        let placed = of_nodes[0].placement.apply(&choice.cores, &servers)?;
        let addresses: Vec<_> = servers.iter().map(Server::address).collect();
        crowd::set_up(&addresses)?;
        for cell in of_nodes {
            progress.say(&format!("taking turns: {cell}"));
            runs.push(cell.measure(&servers, &entries, extent, &placed, progress)?);
        }
    }
    Ok(Section {
        title: "Taking turns".to_owned(),
        text: tables::text(&runs, &entries, extent),
        summary: tables::summary(&runs),
        json: json!({ "runs": runs.iter().map(cell::Run::json).collect::<Vec<_>>() }),
        targets: targets::targets(&runs),
        charts: Vec::new(),
    })
}

/// Returns the ring, and the selected contenders: without a selection, all strategies.
fn entries(choice: &Choice) -> Vec<Entry> {
    let wanted = |entry: &Entry| match choice.contenders.is_empty() {
        true => matches!(entry.kind, Kind::Strategy(_)),
        false => entry.competes() && choice.wants(entry.name),
    };
    [RING].into_iter().chain(ALL.iter().copied().filter(wanted)).collect()
}

/// Returns all cells, with those on the same nodes next to each other.
fn cells(choice: &Choice) -> Vec<Cell> {
    let (nodes, waiters, sections): (&[_], &[_], &[_]) = match choice.quick {
        true => (&[3], &[2, 8], &[Duration::from_millis(2)]),
        false => (&[1, 3, 5], &[2, 8, 32], &SECTIONS),
    };
    let mut cells = Vec::new();
    for placement in choice.placements_or(&[Placement::OneCore]) {
        for nodes in choice.nodes_or(nodes) {
            for waiters in choice.waiters_or(waiters) {
                let sections = choice.sections_or(sections).into_iter();
                cells.extend(sections.map(|section| Cell { placement, nodes, waiters, section }));
            }
        }
    }
    cells
}

const SECTIONS: [Duration; 3] =
    [Duration::ZERO, Duration::from_millis(2), Duration::from_millis(20)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_strategy_is_compared_with_the_ring() {
        let strategies = ALL.iter().filter(|entry| matches!(entry.kind, Kind::Strategy(_)));
        let names: Vec<_> = entries(&Choice::default()).iter().map(|entry| entry.name).collect();
        assert_eq!(names.len(), 1 + strategies.count());
        assert_eq!(names[0], RING.name);
        let choice = Choice { contenders: vec!["raw".to_owned()], ..Choice::default() };
        assert_eq!(entries(&choice).len(), 1);
    }

    #[test]
    fn the_matrix_has_a_cell_for_each_number_of_nodes_and_waiters_and_each_section() {
        assert_eq!(cells(&Choice::default()).len(), 27);
        let choice = Choice { waiters: vec![4], nodes: vec![5], ..Choice::default() };
        assert_eq!(cells(&choice).len(), 3);
        assert_eq!(cells(&Choice { quick: true, ..Choice::default() }).len(), 2);
    }
}
