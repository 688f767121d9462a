//! The results as a page of the manual.

use crate::checks;
use crate::library::Library;

/// The results of one library on so many nodes.
#[derive(Debug)]
pub(crate) struct Row {
    name: String,
    outcomes: Vec<Result<String, String>>,
}

impl Row {
    pub(crate) fn new(
        library: &Library,
        nodes: usize,
        outcomes: Vec<Result<String, String>>,
    ) -> Self {
        let name = format!("{} {}, N = {nodes}", library.name, library.version);
        Self { name, outcomes }
    }

    pub(crate) fn not_run(library: &Library, reason: &str) -> Self {
        let name = format!("{} {}: not run, {reason}", library.name, library.version);
        Self { name, outcomes: Vec::new() }
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.outcomes.iter().any(Result::is_err)
    }
}

/// A section for each row.
pub(crate) fn page(rows: &[Row]) -> String {
    let mut page = HEAD.to_owned();
    for row in rows {
        page.push_str(&format!("\n## {}\n", row.name));
        if !row.outcomes.is_empty() {
            page.push_str("\n| check | outcome |\n|---|---|\n");
        }
        for ((name, _), outcome) in checks::ALL.iter().zip(&row.outcomes) {
            let outcome = match outcome {
                Ok(found) => found.clone(),
                Err(error) => format!("**FAILED**: {error}"),
            };
            page.push_str(&format!("| {name} | {outcome} |\n"));
        }
    }
    page
}

const HEAD: &str = "\
# Beside other libraries

Real processes of other lock libraries and redbolt on the same Redis nodes, made by `cargo xtask interop --write
docs/interop.md`. Each check has a control: the same with something left out, which has to fail.

*Exclusion*: both count in a register that nothing but the lock protects. *Wake-up*: from a release to the grant of a
waiter, the median and the 99th percentile; the control is a key that goes without a word. *Extension*: for longer than three
TTLs. *Readers*: of a read/write lock, on both sides. *Foreign release*: neither can release what the other one holds. *Crash*: a
holder is killed. Times are those of a shared machine with two cores.
";
