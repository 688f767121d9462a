//! What the command line chose, as the parts ask for it. Not here: parsing the command line.

use crate::placement::Placement;

/// What is measured, of whom, and where.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// Fewer and shorter rounds: all parts together take less than two minutes.
    pub quick: bool,
    /// How many nodes. Empty: what the part takes by itself.
    pub nodes: Vec<usize>,
    /// Where client and nodes run. Empty: what the part takes by itself.
    pub placements: Vec<Placement>,
    /// Parts of the names of contenders. Empty: all.
    pub contenders: Vec<String>,
    /// The cores that may be used, asked for before anything was placed.
    pub cores: Vec<usize>,
}

impl Choice {
    /// Whether this contender was chosen, by its name.
    #[must_use]
    pub fn wants(&self, name: &str) -> bool {
        self.contenders.is_empty() || self.contenders.iter().any(|part| name.contains(part))
    }

    /// How many nodes were chosen, or else the part's own.
    #[must_use]
    pub fn nodes_or(&self, own: &[usize]) -> Vec<usize> {
        or(&self.nodes, own)
    }

    /// The placements that were chosen, or else the part's own.
    #[must_use]
    pub fn placements_or(&self, own: &[Placement]) -> Vec<Placement> {
        or(&self.placements, own)
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
    fn what_is_chosen_replaces_the_parts_own() {
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
