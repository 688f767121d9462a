//! Combines all findings, and derives the result.

use super::finding::{Finding, Outcome};

/// The findings about one node, or about the set.
pub(super) struct Sheet {
    pub(super) title: String,
    pub(super) findings: Vec<Finding>,
}

/// All findings.
pub(super) struct Diagnosis {
    /// The findings about each node, in order.
    pub(super) sheets: Vec<Sheet>,
    pub(super) set: Sheet,
}

impl Diagnosis {
    fn outcomes(&self) -> impl Iterator<Item = Outcome> {
        let all = self.sheets.iter().chain([&self.set]).flat_map(|sheet| &sheet.findings);
        all.map(|finding| finding.outcome)
    }

    /// Returns how many checks had this outcome.
    pub(super) fn count(&self, wanted: Outcome) -> usize {
        self.outcomes().filter(|outcome| *outcome == wanted).count()
    }

    /// Returns the worst outcome. A check that was skipped counts as passed.
    pub(super) fn worst(&self) -> Outcome {
        let counted = self.outcomes().filter(|outcome| *outcome != Outcome::Skip);
        counted.max().unwrap_or(Outcome::Pass)
    }
}
