//! The selection of the command line, as the parts use it. Not here: parsing the command line.

use std::time::Duration;

use crate::placement::Placement;

/// What is measured, of which contenders, and in which placement.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// Fewer and shorter rounds: all parts together take about two minutes.
    pub quick: bool,
    /// The numbers of nodes. Empty: the part's own.
    pub nodes: Vec<usize>,
    /// The placements of client and nodes. Empty: the part's own.
    pub placements: Vec<Placement>,
    /// Parts of the contenders' names. Empty: all contenders.
    pub contenders: Vec<String>,
    /// How many processes wait for one lock. Empty: the part's own.
    pub waiters: Vec<usize>,
    /// How long a process holds the lock for which others wait. Empty: the part's own.
    pub sections: Vec<Duration>,
    /// The usable cores, read before any affinity was set.
    pub cores: Vec<usize>,
}

impl Choice {
    /// Whether the contender of this name is selected.
    #[must_use]
    pub fn wants(&self, name: &str) -> bool {
        self.contenders.is_empty() || self.contenders.iter().any(|part| name.contains(part))
    }

    /// The selected numbers of nodes, or else the part's own.
    #[must_use]
    pub fn nodes_or(&self, own: &[usize]) -> Vec<usize> {
        or(&self.nodes, own)
    }

    /// The selected placements, or else the part's own.
    #[must_use]
    pub fn placements_or(&self, own: &[Placement]) -> Vec<Placement> {
        or(&self.placements, own)
    }

    /// The selected numbers of waiting processes, or else the part's own.
    #[must_use]
    pub fn waiters_or(&self, own: &[usize]) -> Vec<usize> {
        or(&self.waiters, own)
    }

    /// The selected lengths of a section, or else the part's own.
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
