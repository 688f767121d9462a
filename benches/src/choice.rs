//! The selection of the command line, as the parts use it.

use std::time::Duration;

use crate::placement::Placement;

/// The measurements, contenders and placements to use.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// `true` for fewer and shorter rounds: all parts together take about two minutes.
    pub quick: bool,
    /// The numbers of nodes; the part's own if empty.
    pub nodes: Vec<usize>,
    /// The placements of client and nodes; the part's own if empty.
    pub placements: Vec<Placement>,
    /// Parts of the contenders' names; all contenders if empty.
    pub contenders: Vec<String>,
    /// The numbers of processes that wait for one lock; the part's own if empty.
    pub waiters: Vec<usize>,
    /// The times for which a process holds the lock; the part's own if empty.
    pub sections: Vec<Duration>,
    /// The usable cores, read before any affinity was set.
    pub cores: Vec<usize>,
}

impl Choice {
    /// Returns `true` if the contender of this name is selected.
    #[must_use]
    pub fn wants(&self, name: &str) -> bool {
        self.contenders.is_empty() || self.contenders.iter().any(|part| name.contains(part))
    }

    /// Returns the selected numbers of nodes, or else the part's own.
    #[must_use]
    pub fn nodes_or(&self, own: &[usize]) -> Vec<usize> {
        or(&self.nodes, own)
    }

    /// Returns the selected placements, or else the part's own.
    #[must_use]
    pub fn placements_or(&self, own: &[Placement]) -> Vec<Placement> {
        or(&self.placements, own)
    }

    /// Returns the selected numbers of waiting processes, or else the part's own.
    #[must_use]
    pub fn waiters_or(&self, own: &[usize]) -> Vec<usize> {
        or(&self.waiters, own)
    }

    /// Returns the selected lengths of a section, or else the part's own.
    #[must_use]
    pub fn sections_or(&self, own: &[Duration]) -> Vec<Duration> {
        or(&self.sections, own)
    }
}

fn or<T: Clone>(chosen: &[T], own: &[T]) -> Vec<T> {
    if chosen.is_empty() { own.to_vec() } else { chosen.to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_chosen_is_the_parts_own() {
        let choice = Choice::default();
        assert!(choice.wants("raw epoll"));
        assert_eq!(choice.nodes_or(&[1, 3]), [1, 3]);
        assert_eq!(choice.placements_or(&[Placement::Split]), [Placement::Split]);
    }

    #[test]
    fn a_selection_replaces_the_parts_own() {
        let choice = Choice {
            nodes: vec![5],
            placements: vec![Placement::OneCore],
            contenders: vec!["redis".to_owned(), "rslock".to_owned()],
            ..Choice::default()
        };
        assert!(choice.wants("redis sync") && choice.wants("rslock"));
        assert!(!choice.wants("raw epoll"));
        assert_eq!(choice.nodes_or(&[1, 3]), [5]);
        assert_eq!(choice.placements_or(&[Placement::Split]), [Placement::OneCore]);
    }
}
