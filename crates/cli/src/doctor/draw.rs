//! Formats the findings as text: aligned, and on a terminal in colours and folded to its width.

use std::io;

use terminal_size::terminal_size_of;

use super::diagnosis::{Diagnosis, Sheet};
use super::finding::{Finding, Outcome};
use crate::colour;
use crate::say::printable;

/// The style of the text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) colour: bool,
    /// The width to which longer lines are folded.
    pub(super) width: Option<usize>,
}

impl Look {
    /// Returns the style for standard output.
    pub(super) fn of_stdout() -> Self {
        let width = terminal_size_of(io::stdout()).map(|(width, _)| width.0.into());
        Self { colour: colour::is_wanted(), width }
    }
}

/// Formats all findings, and the number of each outcome.
pub(super) fn as_text(diagnosis: &Diagnosis, look: Look) -> String {
    let all = diagnosis.sheets.iter().chain([&diagnosis.set]);
    let names = all.clone().flat_map(|sheet| &sheet.findings).map(|finding| finding.check.len());
    let widest = names.max().unwrap_or_default();
    let mut text: String = all.map(|sheet| sheet_as_text(sheet, widest, look)).collect();
    text += &summary(diagnosis);
    text
}

fn sheet_as_text(sheet: &Sheet, widest: usize, look: Look) -> String {
    let lines = sheet.findings.iter().map(|finding| lines(finding, widest, look));
    format!("{}\n{}\n", printable(&sheet.title), lines.collect::<String>())
}

fn lines(finding: &Finding, widest: usize, look: Look) -> String {
    let word = finding.outcome.word();
    let word = match look.colour {
        true => format!("{}{word}{PLAIN}", code(finding.outcome)),
        false => word.to_owned(),
    };
    let indent = " ".repeat(BEFORE_WORDS + widest);
    let why = folded(&printable(&finding.why), &indent, look.width);
    let mut text = format!("  {word}  {:widest$}  {why}\n", finding.check);
    if let Some(todo) = &finding.todo {
        text += &format!(
            "{indent}-> {}\n",
            folded(&printable(todo), &format!("{indent}   "), look.width)
        );
    }
    text
}

/// Breaks the line between words, and indents what follows.
fn folded(text: &str, indent: &str, width: Option<usize>) -> String {
    let room = width.map_or(usize::MAX, |width| width.saturating_sub(indent.len()).max(NARROWEST));
    let (mut lines, mut line) = (Vec::new(), String::new());
    for word in text.split(' ') {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > room {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line += word;
    }
    lines.push(line);
    lines.join(&format!("\n{indent}"))
}

fn summary(diagnosis: &Diagnosis) -> String {
    let count = |outcome| diagnosis.count(outcome);
    let counted = |count, one: &str, many: &str| match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {many}"),
    };
    let skipped = match count(Outcome::Skip) {
        0 => String::new(),
        skipped => format!(", {skipped} not checked"),
    };
    format!(
        "{}, {}, {} passed{skipped}\n",
        counted(count(Outcome::Fail), "failure", "failures"),
        counted(count(Outcome::Warn), "warning", "warnings"),
        count(Outcome::Pass)
    )
}

fn code(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Pass => "\x1b[32m",
        Outcome::Skip => "\x1b[2m",
        Outcome::Warn => "\x1b[33m",
        Outcome::Fail => "\x1b[31m",
    }
}

const PLAIN: &str = "\x1b[0m";

/// The width of the outcome, the check's name and the blanks around them.
const BEFORE_WORDS: usize = 10;

/// The smallest width to which text is folded.
const NARROWEST: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    fn diagnosis() -> Diagnosis {
        let node = vec![
            Finding::pass("role", "The node is a master."),
            Finding::warn("memory", "The server uses 9 of 10 MiB of its memory.", "Free memory."),
        ];
        let set = vec![Finding::fail("quorum", "1 of 3 nodes vote.", "Start them.")];
        Diagnosis {
            sheets: vec![Sheet { title: "node 1 a\x1b[2J:6379".to_owned(), findings: node }],
            set: Sheet { title: "all nodes".to_owned(), findings: set },
        }
    }

    #[test]
    fn columns_are_aligned_and_plain() {
        let text = as_text(&diagnosis(), Look { colour: false, width: None });
        let expected = "\
node 1 a\\u{1b}[2J:6379
  pass  role    The node is a master.
  warn  memory  The server uses 9 of 10 MiB of its memory.
                -> Free memory.

all nodes
  fail  quorum  1 of 3 nodes vote.
                -> Start them.

1 failure, 1 warning, 1 passed
";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_terminal_gets_colours_and_lines_that_fit() {
        let text = as_text(&diagnosis(), Look { colour: true, width: Some(44) });
        assert!(text.contains("\x1b[31mfail\x1b[0m  quorum"), "{text}");
        let plain = text.replace("\x1b[33m", "").replace("\x1b[0m", "");
        assert!(
            plain.contains("memory  The server uses 9 of 10 MiB\n                of its"),
            "{plain}"
        );
    }
}
