//! What a part hands over: text, figures, charts, and how it compares with what was aimed at.
//! Not here: where it is printed and written to, see `report`.

use serde_json::Value;

/// The outcome of a part.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// The heading.
    pub title: String,
    /// All tables and notes, in Markdown.
    pub text: String,
    /// Those of them that answer most questions. Empty if that is all of them.
    pub summary: String,
    /// The same figures and more of them.
    pub json: Value,
    /// In the order in which they are shown, below the text.
    pub charts: Vec<Chart>,
    /// What was aimed at, as far as this part measured it.
    pub targets: Vec<Target>,
}

/// A drawing.
#[derive(Clone, Debug)]
pub struct Chart {
    /// What tells it from others. It begins with the part's name.
    pub name: String,
    /// What it shows, in a line.
    pub caption: String,
    /// The drawing itself.
    pub svg: String,
}

impl Chart {
    /// As a picture in the text. The page of the full run has the drawing there.
    #[must_use]
    pub fn link(&self) -> String {
        format!("![{}]({})", self.caption, self.name)
    }
}

/// Who failed and why, for below a table.
pub fn failures<'a>(failed: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut out = String::new();
    for (name, error) in failed {
        let lead = if out.is_empty() { "\n" } else { "" };
        // In one line, as a list wants it.
        let error = error.split_whitespace().collect::<Vec<_>>().join(" ");
        out += &format!("{lead}- **{name}** failed: {error}\n");
    }
    out
}

/// A bound that is aimed at, and what was measured.
#[derive(Clone, Debug)]
pub struct Target {
    /// What is measured, of whom, and where: `pair p50, N = 3, one core, redbolt driver / raw epoll`.
    pub what: String,
    /// The largest value that reaches the target.
    pub bound: f64,
    /// What was measured; nothing where that failed.
    pub measured: Option<f64>,
    /// The same with its unit and spread, or why there is nothing.
    pub text: String,
}

impl Target {
    /// In a word.
    #[must_use]
    pub fn verdict(&self) -> &'static str {
        match self.measured {
            Some(measured) if measured <= self.bound => "reached",
            Some(_) => "missed",
            None => "not measured",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(measured: Option<f64>) -> Target {
        Target { what: String::new(), bound: 1.1, measured, text: String::new() }
    }

    #[test]
    fn who_failed_is_named_with_the_error_in_one_line() {
        assert_eq!(failures([].into_iter()), "");
        let text = failures([("fred", "warming up:\n  refused"), ("rslock", "late")].into_iter());
        assert_eq!(text, "\n- **fred** failed: warming up: refused\n- **rslock** failed: late\n");
    }

    #[test]
    fn the_bound_itself_reaches_the_target() {
        assert_eq!(target(Some(1.1)).verdict(), "reached");
        assert_eq!(target(Some(1.101)).verdict(), "missed");
        assert_eq!(target(Some(f64::NAN)).verdict(), "missed");
        assert_eq!(target(None).verdict(), "not measured");
    }
}
