//! Counts as text that people and git can compare: each scenario with its largest functions.

use std::{collections::BTreeMap, fmt};

/// The counts, with the compiler and the counter that produced them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) compiler: String,
    /// The compiler's target.
    pub(crate) target: String,
    pub(crate) counter: String,
    pub(crate) scenarios: BTreeMap<String, Scenario>,
}

/// The instructions of one repetition.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Scenario {
    pub(crate) total: u64,
    /// The costs by the function's path. A baseline leaves out small functions.
    pub(crate) functions: BTreeMap<String, Cost>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cost {
    pub(crate) own: u64,
    /// The count including its callees.
    pub(crate) all: u64,
}

impl Scenario {
    /// Returns the smallest own count with which a function is in a baseline.
    pub(crate) fn least(&self) -> u64 {
        (self.total / SMALL).max(1)
    }
}

impl Figures {
    /// Parses the output of [`Display`](fmt::Display), or of the counting program.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut figures = Self::default();
        let mut last = None;
        for (number, line) in text.lines().enumerate() {
            let fault = || format!("line {}: {line:?}", number + 1);
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if line.starts_with(' ') {
                let scenario: Option<&mut Scenario> =
                    last.as_ref().and_then(|name| figures.scenarios.get_mut(name));
                let (name, cost) = function(line).ok_or_else(fault)?;
                scenario.ok_or_else(fault)?.functions.insert(name, cost);
                continue;
            }
            let (name, rest) = line.split_once(' ').ok_or_else(fault)?;
            match name {
                "compiler" => figures.compiler = rest.to_owned(),
                "counter" => figures.counter = rest.to_owned(),
                "target" => figures.target = rest.to_owned(),
                name => {
                    let total = rest.trim().parse().map_err(|_| fault())?;
                    let scenario = Scenario { total, functions: BTreeMap::new() };
                    figures.scenarios.insert(name.to_owned(), scenario);
                    last = Some(name.to_owned());
                }
            }
        }
        Ok(figures)
    }
}

fn function(line: &str) -> Option<(String, Cost)> {
    let (own, rest) = line.trim_start().split_once(' ')?;
    let (all, name) = rest.trim_start().split_once(' ')?;
    let cost = Cost { own: own.parse().ok()?, all: all.parse().ok()? };
    Some((name.trim().to_owned(), cost))
}

/// Prints the text of a baseline.
impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEADER}")?;
        writeln!(f, "compiler {}", self.compiler)?;
        writeln!(f, "target {}", self.target)?;
        writeln!(f, "counter {}", self.counter)?;
        for (name, scenario) in &self.scenarios {
            writeln!(f, "\n{name} {}", scenario.total)?;
            let least = scenario.least();
            let large = scenario.functions.iter().filter(|(_, cost)| cost.own >= least);
            let mut sorted: Vec<_> = large.collect();
            // Functions of the same size stay in the order of their names.
            sorted.sort_by_key(|(_, cost)| std::cmp::Reverse(cost.own));
            for (name, Cost { own, all }) in sorted {
                writeln!(f, "  {own:>6} {all:>6} {name}")?;
            }
        }
        Ok(())
    }
}

/// The divisor of the total that gives the smallest count with a line in the baseline.
const SMALL: u64 = 200;

const HEADER: &str = "\
# Instructions of one repetition of each scenario in crates/counts, counted by callgrind.
# Below each: instructions of a function's own, those with everything that it calls, its path. What was
# inlined counts for the function it was written in. Functions with less than 0.5 % are left out.
# Written by `cargo xtask bench --counts --bless`, compared by `cargo xtask bench --counts`.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_parse_back() {
        let measured =
            "counter valgrind-3.19.0\ncore/pair-3 1000\n  9 9 small\n  70 900 b c\n  70 70 a\n";
        let mut figures = Figures::parse(measured).unwrap();
        figures.compiler = "rustc 1.95.0".to_owned();
        figures.target = "x86_64".to_owned();
        let text = figures.to_string();
        assert!(text.ends_with("\ncore/pair-3 1000\n      70     70 a\n      70    900 b c\n       9      9 small\n"), "{text}");
        assert_eq!(Figures::parse(&text), Ok(figures));
    }

    #[test]
    fn small_functions_have_no_line() {
        let figures = Figures::parse("core/pair-3 1000\n  4 4 small\n  5 5 large\n").unwrap();
        let text = figures.to_string();
        assert!(text.contains(" large\n") && !text.contains(" small\n"), "{text}");
    }

    #[test]
    fn a_line_that_is_wrong_is_named() {
        let faults = ["core/pair-3", "core/pair-3 many", "  1 1 alone", "core/pair-3 1\n  1 one"];
        for fault in faults {
            let said = Figures::parse(fault).unwrap_err();
            assert!(said.contains(fault.lines().last().unwrap()), "{said}");
        }
    }
}
