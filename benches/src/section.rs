//! The result of a part: text, figures, charts, and the comparison with its targets. `report`
//! prints and writes it.

use serde_json::Value;

/// The outcome of a part.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// The heading.
    pub title: String,
    /// All tables and notes, in Markdown.
    pub text: String,
    /// The main tables; empty if there are no others.
    pub summary: String,
    /// All figures.
    pub json: Value,
    /// The charts, in the order in which they are shown, below the text.
    pub charts: Vec<Chart>,
    /// The targets that this part measures.
    pub targets: Vec<Target>,
}

/// A chart.
#[derive(Clone, Debug)]
pub struct Chart {
    /// A unique name, which begins with the part's name.
    pub name: String,
    /// The caption, in a line.
    pub caption: String,
    /// The SVG.
    pub svg: String,
}

impl Chart {
    /// Returns the link to it in the text, which the page of the full run replaces by the chart.
    #[must_use]
    pub fn link(&self) -> String {
        format!("![{}]({})", self.caption, self.name)
    }
}

/// Returns the contenders that failed, with their errors, for below a table.
pub fn failures<'a>(failed: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut out = String::new();
    for (name, error) in failed {
        let lead = if out.is_empty() { "\n" } else { "" };
        // The error must be one line, because it is a list item.
        let error = error.split_whitespace().collect::<Vec<_>>().join(" ");
        out += &format!("{lead}- **{name}** failed: {error}\n");
    }
    out
}

/// A bound that is aimed at, and the measured value.
#[derive(Clone, Debug)]
pub struct Target {
    /// The figure, the contender and the conditions: `pair p50, N = 3, one core, redbolt driver /
    /// raw epoll`.
    pub what: String,
    /// The largest value that reaches the target.
    pub bound: f64,
    /// The measured value; `None` if the measurement failed.
    pub measured: Option<f64>,
    /// The value with its unit and spread, or the reason why there is none.
    pub text: String,
}

impl Target {
    /// Returns the verdict in one word.
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
    fn a_failure_is_named_with_its_error_in_one_line() {
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
