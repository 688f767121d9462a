//! The report of all parts as one document: for the terminal, and as files.
//!
//! `RESULTS.md` has the main tables. The full run is a self-contained page with all tables and
//! charts.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd, html};
use serde_json::{Map, Value, json};

use crate::machine::Machine;
use crate::section::{Chart, Section, Target};
use crate::table::Table;

/// The outcome of one run of the suite.
pub struct Report {
    /// The environment.
    pub machine: Machine,
    /// The command that the user typed.
    pub command: String,
    /// The names of the parts, and their sections.
    pub sections: Vec<(&'static str, Section)>,
}

impl Report {
    /// Returns the summary, in Markdown.
    #[must_use]
    pub fn markdown(&self) -> String {
        let made = format!(
            "Made by `{}`; see [README](README.md) for how. It also writes all tables and charts to \
             `{FULL_RUN}`, a page that needs no other file and is not committed.",
            self.command
        );
        self.document(&made, |section| match section.summary.trim() {
            "" => section.text.trim().to_owned(),
            summary => summary.to_owned(),
        })
    }

    /// Returns everything, as a page for a browser, with the charts in it.
    #[must_use]
    pub fn page(&self) -> String {
        let markdown = self.document(&format!("Made by `{}`.", self.command), with_its_charts);
        let charts = self.sections.iter().flat_map(|(_, section)| &section.charts);
        page(&markdown, &charts.collect::<Vec<_>>())
    }

    fn document(&self, made: &str, body: impl Fn(&Section) -> String) -> String {
        let mut out = format!("# Results\n\n{made}\n\n{}\n{PLACEMENT}\n", self.machine.list());
        let targets: Vec<&Target> =
            self.sections.iter().flat_map(|(_, section)| &section.targets).collect();
        if !targets.is_empty() {
            let _ = write!(out, "\n## Targets\n\n{}", table(&targets));
        }
        for (_, section) in &self.sections {
            let _ = write!(out, "\n## {}\n\n{}\n", section.title, body(section));
        }
        out
    }

    /// Returns everything for programs.
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

    /// Writes `RESULTS.md`, the full run and `results.json`. Other files stay.
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
        file("RESULTS.md", &self.markdown())?;
        file(FULL_RUN, &self.page())?;
        file("results.json", &format!("{:#}\n", self.json()))
    }
}

/// Creates the folders, so that it is known before the run that the report can be written.
///
/// # Errors
///
/// They cannot be created.
pub fn prepare(folder: &Path) -> Result<()> {
    let page = folder.join(FULL_RUN);
    let results = page.parent().unwrap_or(folder);
    fs::create_dir_all(results).with_context(|| results.display().to_string())
}

/// Returns the whole text of a part, with its charts at the places to which the part refers, or
/// below.
fn with_its_charts(section: &Section) -> String {
    let mut out = section.text.trim().to_owned();
    for link in section.charts.iter().map(Chart::link) {
        if !section.text.contains(&link) {
            let _ = write!(out, "\n\n{link}");
        }
    }
    out
}

/// Returns the Markdown as HTML, with each chart in the place of its picture.
fn page(markdown: &str, charts: &[&Chart]) -> String {
    let drawn = |event| match event {
        Event::Start(Tag::Image { dest_url, .. }) => {
            let chart = charts.iter().find(|chart| *chart.name == *dest_url);
            let (name, svg) = chart.map_or(("", ""), |chart| (&chart.name, &chart.svg));
            Event::InlineHtml(format!("<span class=\"chart\" id=\"{name}\">{svg}").into())
        }
        Event::End(TagEnd::Image) => Event::InlineHtml("</span>".into()),
        // The style sheet has the alignment once, instead of each cell.
        Event::Start(Tag::Table(_)) => Event::Start(Tag::Table(Vec::new())),
        other => other,
    };
    let mut out = HEAD.to_owned();
    html::push_html(&mut out, Parser::new_ext(markdown, Options::ENABLE_TABLES).map(drawn));
    out
}

/// Returns a section for a terminal, without pictures.
#[must_use]
pub fn plain(section: &Section) -> String {
    let mut out = format!("## {}\n\n", section.title);
    let mut empty = false;
    for line in section.text.trim().lines().filter(|line| !line.starts_with("![")) {
        // The gaps around the pictures are left out, too.
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

/// Returns a paragraph, wrapped. A table stays as it is.
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

/// The page of the full run.
const FULL_RUN: &str = "results/full-run.html";

const HEAD: &str = "<!doctype html>
<html lang=\"en\">
<meta charset=\"utf-8\">
<title>redbolt: results of a full benchmark run</title>
<style>
body { font-family: sans-serif; margin: 2em; }
table { border-collapse: collapse; }
td, th { border: 1px solid #ccc; padding: 0.1em 0.5em; }
td + td, th + th { text-align: right; }
.chart svg { display: block; max-width: 100%; height: auto; }
</style>
";

const LINE: usize = 100;

const PLACEMENT: &str = "\
The placement decides everything on a small machine: with `one-core` client and nodes share a \
core and only the work itself is visible, with `split` the client has a core and the nodes have \
the others, so that each wake-up crosses cores, and `unpinned` leaves it to the kernel. Ratios \
are computed within one placement, and within one round of contenders that take turns; figures of \
two placements, or of two runs, are not comparable.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::section::Chart;

    fn report() -> Report {
        let chart = |name: &str| Chart {
            name: name.to_owned(),
            caption: "how long".to_owned(),
            svg: format!("<svg>{name}</svg>"),
        };
        let target = Target {
            what: "pair".to_owned(),
            bound: 1.1,
            measured: Some(1.2),
            text: "1.200".to_owned(),
        };
        let section = Section {
            title: "Pair".to_owned(),
            text: "before\n\n![how long](pair-a)\n\n| x | p50 |\n| --- | --: |\n| a | 1 |\n"
                .to_owned(),
            summary: "in short".to_owned(),
            json: json!(7),
            charts: vec![chart("pair-a"), chart("pair-b")],
            targets: vec![target],
        };
        let machine = Machine::now(2);
        Report { machine, command: "bench pair".to_owned(), sections: vec![("pair", section)] }
    }

    #[test]
    fn the_page_draws_each_chart_once_where_its_part_wants_it() {
        let page = report().page();
        let at = |text: &str| {
            assert_eq!(page.matches(text).count(), 1, "{text}: {page}");
            page.find(text).unwrap()
        };
        assert!(at("before") < at("id=\"pair-a\"><svg>pair-a</svg>how long</span>"), "{page}");
        assert!(at("<svg>pair-a") < at("<td>a</td><td>1</td>"), "{page}");
        assert!(at("<td>a</td>") < at("<svg>pair-b"), "{page}");
        assert!(!page.contains("<img") && page.starts_with("<!doctype html>"), "{page}");
    }

    #[test]
    fn the_summary_is_short_and_leads_to_the_page() {
        let mut report = report();
        let text = report.markdown();
        assert!(text.contains("## Pair\n\nin short\n") && !text.contains("before"), "{text}");
        assert!(text.contains("results/full-run.html"), "{text}");
        report.sections[0].1.summary.clear();
        assert!(report.markdown().contains("before"), "a part without a summary is shown whole");
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
        assert!(text.starts_with("## Pair\n\nbefore\n\n| x | p50 |\n"), "{text}");
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
        assert!(read("results/full-run.html").contains("<svg>pair-b</svg>"));
        let value: Value = serde_json::from_str(&read("results.json")).unwrap();
        assert_eq!(value["parts"]["pair"], 7);
    }
}
