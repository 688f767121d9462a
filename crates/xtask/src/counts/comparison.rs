//! The comparison with the baseline, and the functions that changed.

use std::{collections::BTreeSet, fmt};

use super::figures::{Figures, Scenario};

/// Two counts, compared by scenario.
pub(crate) struct Comparison {
    /// The reason why the figures are not comparable, if any.
    strange: Option<String>,
    rows: Vec<Row>,
}

struct Row {
    scenario: String,
    before: Option<u64>,
    after: Option<u64>,
    /// The functions of a significant change, the largest change first.
    functions: Vec<Change>,
}

struct Change {
    function: String,
    /// The count before; one of the two may be unknown, because a baseline leaves out small
    /// functions.
    before: Option<u64>,
    after: u64,
    /// The smallest possible change of the count.
    difference: i64,
}

impl Comparison {
    /// Compares the wanted scenarios.
    pub(crate) fn of(before: &Figures, after: &Figures, wanted: impl Fn(&str) -> bool) -> Self {
        let names: BTreeSet<_> = before.scenarios.keys().chain(after.scenarios.keys()).collect();
        let row = |name: &String| {
            let found = [before, after].map(|figures| figures.scenarios.get(name));
            let [before, after] = found.map(|found| found.map(|scenario| scenario.total));
            let mut row = Row { scenario: name.clone(), before, after, functions: Vec::new() };
            if let [Some(before), Some(after)] = found
                && (row.grew() || row.shrank())
            {
                row.functions = changes(before, after);
            }
            row
        };
        let rows = names.into_iter().filter(|name| wanted(name)).map(row).collect();
        Self { strange: strange(before, after), rows }
    }

    /// Returns the reason for a failure, if any.
    pub(crate) fn complaint(&self, strict: bool) -> Option<String> {
        if self.rows.is_empty() {
            return Some("counts: no scenario has such a name".to_owned());
        }
        if self.strange.is_some() {
            return strict.then(|| "counts: the compiler is not the baseline's".to_owned());
        }
        let named = |rows: Vec<&Row>| {
            let names: Vec<_> = rows.iter().map(|row| row.scenario.as_str()).collect();
            names.join(", ")
        };
        let those = |wanted: fn(&Row) -> bool| {
            let rows: Vec<_> = self.rows.iter().filter(|row| wanted(row)).collect();
            (!rows.is_empty()).then(|| named(rows))
        };
        if let Some(grown) = those(Row::grew) {
            return Some(format!("counts: grown by more than {PERCENT} %: {grown}. {IF_MEANT}"));
        }
        if let Some(gone) = those(|row| row.after.is_none()) {
            return Some(format!("counts: no longer counted: {gone}. {IF_MEANT}"));
        }
        let differs = those(|row| row.before != row.after)?;
        strict.then(|| format!("counts: different from the baseline: {differs}. {IF_MEANT}"))
    }
}

/// Returns the reason why the figures are not comparable, if any. An empty baseline has no compiler
/// to compare.
fn strange(before: &Figures, after: &Figures) -> Option<String> {
    let differs = |name: &str, before: &str, after: &str| {
        let is_other = !before.is_empty() && before != after;
        is_other.then(|| format!("the baseline's {name}: {before}\nthe {name} here: {after}"))
    };
    let compiler = differs("compiler", &before.compiler, &after.compiler);
    let target = differs("target", &before.target, &after.target);
    let both: Vec<_> = compiler.into_iter().chain(target).collect();
    (!both.is_empty()).then(|| both.join("\n"))
}

/// Returns the changes of the functions' own counts, which show where the change is.
fn changes(before: &Scenario, after: &Scenario) -> Vec<Change> {
    let names: BTreeSet<_> = before.functions.keys().chain(after.functions.keys()).collect();
    let change = |name: &String| {
        let [before_own, after_own] =
            [before, after].map(|scenario| scenario.functions.get(name).map(|cost| cost.own));
        // A function without a line was smaller than the threshold.
        let from = before_own.unwrap_or_else(|| before.least().min(after_own.unwrap_or_default()));
        let now = after_own.unwrap_or_default();
        let difference = now.cast_signed() - from.cast_signed();
        Change { function: name.clone(), before: before_own, after: now, difference }
    };
    let direction = if after.total > before.total { 1 } else { -1 };
    let whole = after.total.abs_diff(before.total).cast_signed();
    let mut changes: Vec<_> = names.into_iter().map(change).collect();
    changes.retain(|change| change.difference * direction * WORTH_NAMING > whole);
    changes.sort_by_key(|change| -change.difference * direction);
    changes.truncate(MOST_NAMED);
    changes
}

impl Row {
    fn grew(&self) -> bool {
        self.compare(|before, after| after * 100 > before * (100 + PERCENT))
    }

    fn shrank(&self) -> bool {
        self.compare(|before, after| after * 100 < before * (100 - PERCENT))
    }

    fn compare(&self, by: fn(u64, u64) -> bool) -> bool {
        matches!((self.before, self.after), (Some(before), Some(after)) if by(before, after))
    }

    /// Returns the remark that follows the figures.
    fn remark(&self) -> String {
        let (Some(before), Some(after)) = (self.before, self.after) else {
            return if self.before.is_none() { "new".to_owned() } else { "gone".to_owned() };
        };
        let difference = after.cast_signed() - before.cast_signed();
        let percent = difference as f64 * 100.0 / before.max(1) as f64;
        match difference {
            0 => String::new(),
            _ if self.grew() => format!("{percent:+.1} % GREW"),
            _ if self.shrank() => format!("{percent:+.1} % less"),
            _ => format!("{percent:+.1} %"),
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<28} {:>9} {:>9}", "instructions", "baseline", "now")?;
        for row in &self.rows {
            let shown =
                |count: Option<u64>| count.map_or_else(|| "-".to_owned(), |it| it.to_string());
            let (before, after) = (shown(row.before), shown(row.after));
            let line = format!("{:<28} {before:>9} {after:>9} {}", row.scenario, row.remark());
            writeln!(f, "{}", line.trim_end())?;
            for change in &row.functions {
                writeln!(f, "{change}")?;
            }
        }
        if self.rows.iter().any(Row::shrank) && !self.rows.iter().any(Row::grew) {
            writeln!(f, "\nLess than the baseline by more than {PERCENT} %: {BETTER}")?;
        }
        if let Some(strange) = &self.strange {
            writeln!(f, "\nTHESE FIGURES ARE NOT COMPARABLE, the compilers differ:\n{strange}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let before = self.before.map_or_else(|| "little".to_owned(), |own| own.to_string());
        let Self { function, after, difference, .. } = self;
        write!(f, "  {difference:>+7} {before:>9} -> {after:<9} {function}")
    }
}

/// The change in per cent that is tolerated: counts are exact, but a change anywhere can change the
/// machine code elsewhere.
const PERCENT: u64 = 3;
const MOST_NAMED: usize = 6;
/// The divisor of the total change that gives the smallest change for which a function is named.
const WORTH_NAMING: i64 = 20;
const IF_MEANT: &str =
    "If that is meant, cargo xtask bench --counts --bless and commit the baseline";
const BETTER: &str = "keep it with cargo xtask bench --counts --bless";

#[cfg(test)]
mod tests {
    use super::*;

    const BASELINE: &str = "compiler rustc 1.95.0
target x86_64
core/pair-1 1000
  600 1000 acquire
  400 400 encode
core/pair-3 3000
  1800 3000 acquire
  1200 1200 encode
";

    fn compared(after: &str) -> Comparison {
        let [before, after] = [BASELINE, after].map(|text| Figures::parse(text).unwrap());
        Comparison::of(&before, &after, |_| true)
    }

    #[test]
    fn equal_counts_do_not_fail() {
        let same = compared(BASELINE);
        assert_eq!(same.complaint(true), None);
        assert!(!same.to_string().contains('%'), "{same}");
    }

    #[test]
    fn growth_is_a_failure_and_the_function_is_named() {
        let grown = compared(&BASELINE.replace("3000", "3200").replace("1200 1200", "1399 1399"));
        let complaint = grown.complaint(false).unwrap();
        assert!(complaint.contains("grown by more than 3 %: core/pair-3."), "{complaint}");
        let text = grown.to_string();
        assert!(
            text.contains("core/pair-3                       3000      3200 +6.7 % GREW\n"),
            "{text}"
        );
        assert!(text.contains("+199      1200 -> 1399      encode\n"), "{text}");
        assert!(!text.contains("acquire"), "{text}");
    }

    #[test]
    fn a_function_that_was_too_small_for_a_line_is_named() {
        let after = BASELINE
            .replace("3000\n", "3100\n")
            .replace("core/pair-3 3100\n", "core/pair-3 3100\n  90 90 hash\n");
        let text = compared(&after).to_string();
        // At most 15 of the 3000 instructions were its own before.
        assert!(text.contains("+75    little -> 90        hash\n"), "{text}");
    }

    #[test]
    fn three_per_cent_are_not_more_than_three() {
        let at = |total: &str| compared(&BASELINE.replace("pair-1 1000", total)).complaint(false);
        assert_eq!(at("pair-1 1030"), None);
        assert!(at("pair-1 1031").is_some());
    }

    #[test]
    fn an_improvement_is_reported_and_does_not_fail() {
        let better =
            compared(&BASELINE.replace("pair-1 1000", "pair-1 900").replace("600 1000", "500 900"));
        assert_eq!(better.complaint(false), None);
        let text = better.to_string();
        assert!(text.contains("-10.0 % less\n") && text.contains("--bless"), "{text}");
        assert!(text.contains("-100       600 -> 500       acquire\n"), "{text}");
        assert!(better.complaint(true).is_some());
    }

    #[test]
    fn another_compiler_is_reported_and_fails_only_with_strict() {
        let after = BASELINE.replace("1.95.0", "1.96.0").replace("1000", "2000");
        let other = compared(&after);
        let text = other.to_string();
        assert!(text.contains("ARE NOT COMPARABLE"), "{text}");
        assert!(
            text.contains("the baseline's compiler: rustc 1.95.0\nthe compiler here: rustc 1.96.0")
        );
        assert_eq!(other.complaint(false), None);
        assert!(other.complaint(true).unwrap().contains("compiler"));
        let target = compared(&BASELINE.replace("x86_64", "aarch64"));
        assert!(target.to_string().contains("the target here: aarch64"));
    }

    #[test]
    fn a_missing_scenario_fails_and_a_new_one_does_not() {
        let gone = compared(BASELINE.split("core/pair-3").next().unwrap());
        assert!(gone.complaint(false).unwrap().contains("no longer counted: core/pair-3."));
        let new = compared(&format!("{BASELINE}core/pair-5 5000\n"));
        assert_eq!(new.complaint(false), None);
        assert!(new.to_string().contains("core/pair-5                          -      5000 new\n"));
    }

    #[test]
    fn only_wanted_scenarios_are_compared() {
        let [before, after] = [BASELINE, ""].map(|text| Figures::parse(text).unwrap());
        let none = Comparison::of(&before, &after, |name| name.starts_with("codec/"));
        assert!(none.complaint(false).unwrap().contains("no scenario has such a name"));
    }
}
