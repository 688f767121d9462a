//! What all parts found, as one document: for the terminal, and as files. Not here: what a part says.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use crate::machine::Machine;
use crate::section::{FOLDER, Section, Target};
use crate::table::Table;

/// The outcome of one run of the suite.
pub struct Report {
    /// What it ran on.
    pub machine: Machine,
    /// What was typed.
    pub command: String,
    /// The names of the parts, and what they handed over.
    pub sections: Vec<(&'static str, Section)>,
}

impl Report {
    /// Everything in Markdown, with the charts beside it.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut out = format!(
            "# Results\n\nMade by `{}`; see [README](README.md) for how.\n\n{}\n{PLACEMENT}\n",
            self.command,
            self.machine.list()
        );
        let targets: Vec<&Target> =
            self.sections.iter().flat_map(|(_, section)| &section.targets).collect();
        if !targets.is_empty() {
            let _ = write!(out, "\n## Targets\n\n{}", table(&targets));
        }
        for (_, section) in &self.sections {
            let _ = write!(out, "\n## {}\n\n{}\n", section.title, section.text.trim());
            for chart in &section.charts {
                // A part may have put it where it belongs.
                let link = chart.link();
                if !section.text.contains(&link) {
                    let _ = write!(out, "\n{link}\n");
                }
            }
        }
        out
    }

    /// Everything for programs.
    #[must_use]
    pub fn json(&self) -> Value {
        let target = |target: &Target| {
            json!({
                "what": target.what,
                "at_most": target.bound,
                "measured": target.measured,
                "text": target.text,
                "verdict": target.verdict(),
            })
        };
        let targets = self.sections.iter().flat_map(|(_, section)| &section.targets);
        let parts =
            self.sections.iter().map(|(name, section)| ((*name).to_owned(), section.json.clone()));
        json!({
            "machine": self.machine.json(),
            "command": self.command,
            "targets": targets.map(target).collect::<Vec<_>>(),
            "parts": parts.collect::<Map<_, _>>(),
        })
    }

    /// Writes `RESULTS.md`, `results.json` and the charts. Other files stay.
    ///
    /// # Errors
    ///
    /// The folder cannot be written to.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let file = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::write(&path, text).with_context(|| path.display().to_string())
        };
        prepare(folder)?;
        for chart in self.sections.iter().flat_map(|(_, section)| &section.charts) {
            file(&format!("{FOLDER}/{}.svg", chart.name), &chart.svg)?;
        }
        file("RESULTS.md", &self.markdown())?;
        file("results.json", &format!("{:#}\n", self.json()))
    }
}

/// Makes the folders, so that it is known beforehand that the report can be written.
///
/// # Errors
///
/// They cannot be made.
pub fn prepare(folder: &Path) -> Result<()> {
    let charts = folder.join(FOLDER);
    fs::create_dir_all(&charts).with_context(|| charts.display().to_string())
}

/// A section for a terminal, which shows no pictures.
#[must_use]
pub fn plain(section: &Section) -> String {
    let mut out = format!("## {}\n\n", section.title);
    let mut empty = false;
    for line in section.text.trim().lines().filter(|line| !line.starts_with("![")) {
        // Nor the gaps around them.
        if !(line.is_empty() && empty) {
            out += &wrapped(line);
        }
        empty = line.is_empty();
    }
    if !section.targets.is_empty() {
        let _ = write!(out, "\n{}", table(&section.targets.iter().collect::<Vec<_>>()));
    }
    out
}

/// A paragraph in lines that can be read. A table stays as it is.
fn wrapped(line: &str) -> String {
    let (mut out, mut width) = (String::new(), 0);
    if line.starts_with('|') {
        return format!("{line}\n");
    }
    for word in line.split(' ') {
        let len = word.chars().count();
        if width > 0 {
            let fits = width + len < LINE;
            out += if fits { " " } else { "\n" };
            width = if fits { width + 1 } else { 0 };
        }
        out += word;
        width += len;
    }
    out + "\n"
}

fn table(targets: &[&Target]) -> Table {
    let mut table = Table::new(&["what", "target", "measured", "verdict"]);
    for target in targets {
        let verdict = match target.verdict() {
            missed @ "missed" => format!("**{missed}**"),
            verdict => verdict.to_owned(),
        };
        let bound = format!("≤ {}", target.bound);
        table.row(vec![target.what.clone(), bound, target.text.clone(), verdict]);
    }
    table
}

const LINE: usize = 100;

const PLACEMENT: &str = "Placement decides everything on a small machine: with `one-core` client and nodes share a core and \
only the work itself is seen, with `split` the client has a core and the nodes have the others, so that each wake-up \
crosses cores, and `unpinned` leaves it to the kernel. Ratios are made within one placement, and within one round of \
contenders that take turns; figures of two placements, or of two runs, are not to be compared.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::section::Chart;

    fn report() -> Report {
        let chart = |name: &str| Chart {
            name: name.to_owned(),
            caption: "how long".to_owned(),
            svg: "<svg/>".to_owned(),
        };
        let target = Target {
            what: "pair".to_owned(),
            bound: 1.1,
            measured: Some(1.2),
            text: "1.200".to_owned(),
        };
        let section = Section {
            title: "Pair".to_owned(),
            text: "before\n\n![how long](charts/pair-a.svg)\n\nafter".to_owned(),
            json: json!(7),
            charts: vec![chart("pair-a"), chart("pair-b")],
            targets: vec![target],
        };
        let machine = Machine::now(2);
        Report { machine, command: "bench pair".to_owned(), sections: vec![("pair", section)] }
    }

    #[test]
    fn each_chart_is_shown_once_where_its_part_wants_it() {
        let text = report().markdown();
        for name in ["charts/pair-a.svg", "charts/pair-b.svg"] {
            assert_eq!(text.matches(name).count(), 1, "{text}");
        }
        assert!(text.find("pair-a").unwrap() < text.find("after").unwrap(), "{text}");
        assert!(text.find("pair-b").unwrap() > text.find("after").unwrap(), "{text}");
    }

    #[test]
    fn a_target_has_its_verdict() {
        let report = report();
        assert!(report.markdown().contains("| pair |  ≤ 1.1 |    1.200 | **missed** |"));
        assert_eq!(report.json()["targets"][0]["verdict"], "missed");
    }

    #[test]
    fn a_terminal_shows_no_pictures() {
        let text = plain(&report().sections[0].1);
        assert!(text.starts_with("## Pair\n\nbefore\n\nafter\n"), "{text}");
        assert!(text.contains("missed"), "{text}");
    }

    #[test]
    fn paragraphs_are_wrapped_and_tables_are_not() {
        assert_eq!(wrapped("a b"), "a b\n");
        assert_eq!(wrapped(""), "\n");
        let text = "word ".repeat(40);
        assert!(wrapped(text.trim()).lines().all(|line| (..=LINE).contains(&line.len())));
        assert_eq!(wrapped(text.trim()).split_whitespace().count(), 40);
        let row = format!("| {text} |");
        assert_eq!(wrapped(&row), format!("{row}\n"));
    }

    #[test]
    fn three_kinds_of_files_are_written() {
        let folder = tempfile::tempdir().unwrap();
        report().write(folder.path()).unwrap();
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        assert!(read("RESULTS.md").starts_with("# Results"));
        assert_eq!(read("charts/pair-b.svg"), "<svg/>");
        let value: Value = serde_json::from_str(&read("results.json")).unwrap();
        assert_eq!(value["parts"]["pair"], 7);
    }
}
