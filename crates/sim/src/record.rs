//! The record of simulated schedules: one line of `RECORD.md` per class and run.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::report::Totals;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/RECORD.md");

/// The result of one run, without its date and commit.
pub(crate) struct Run<'r> {
    /// The class, or `planted bugs`.
    pub(crate) class: &'r str,
    pub(crate) first_seed: u64,
    pub(crate) totals: &'r Totals,
    pub(crate) remark: &'r str,
}

impl Run<'_> {
    /// Appends the run to the record. Returns true on success; otherwise it prints the error.
    pub(crate) fn append(&self, commit: &str) -> bool {
        let days =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |it| it.as_secs() / 86_400);
        let line = self.line(&date(days), commit);
        let file = OpenOptions::new().append(true).open(PATH);
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        written.map_err(|error| println!("FAILED: {PATH}: {error}")).is_ok()
    }

    fn line(&self, date: &str, commit: &str) -> String {
        let Self { class, first_seed, totals, remark } = self;
        let Totals { schedules, violations, hash, .. } = totals;
        let hours = totals.nanos as f64 / 3.6e12;
        format!(
            "| {date} | {commit} | {class} | {first_seed} | {schedules} | {hours:.1} | {violations} | {hash:016x} | {remark} |\n"
        )
    }
}

/// Returns the commit that is checked out, with a `+` if anything except the record differs from
/// it. Empty outside of a repository.
pub(crate) fn commit() -> String {
    let git = |words: &[&str]| {
        let git = Command::new("git").args(words).current_dir(env!("CARGO_MANIFEST_DIR")).output();
        git.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
            .unwrap_or_default()
    };
    let changed = git(&["status", "--porcelain", "--", ":/", ":(exclude)RECORD.md"]);
    let mark = if changed.is_empty() { "" } else { "+" };
    git(&["rev-parse", "--short=8", "HEAD"]) + mark
}

/// Returns the sums of the recorded schedules, by class.
///
/// # Errors
///
/// Fails if the record cannot be read.
pub(crate) fn sum() -> io::Result<String> {
    fs::read_to_string(PATH).map(|text| sum_of(&text))
}

fn sum_of(text: &str) -> String {
    let mut sums = BTreeMap::<&str, (u64, u64, f64, u64)>::new();
    for line in text.lines() {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let &[_, date, _, class, _, schedules, hours, violations, ..] = &cells[..] else {
            continue;
        };
        if !date.starts_with("20") {
            continue;
        }
        let sum = sums.entry(class).or_default();
        sum.0 += 1;
        sum.1 += schedules.parse::<u64>().unwrap_or(0);
        sum.2 += hours.parse::<f64>().unwrap_or(0.0);
        sum.3 += violations.parse::<u64>().unwrap_or(0);
    }
    let row = |(class, (runs, schedules, hours, violations)): (&str, (u64, u64, f64, u64))| {
        format!("{class:22}{runs:6}{schedules:14}{hours:16.1}{violations:12}\n")
    };
    let head = ["class", "runs", "schedules", "virtual hours", "violations"];
    let [class, runs, schedules, hours, violations] = head;
    let head = format!("{class:22}{runs:>6}{schedules:>14}{hours:>16}{violations:>12}\n");
    sums.into_iter().map(row).fold(head, |text, row| text + &row)
}

/// Returns the civil date of a day since 1970-01-01.
fn date(days: u64) -> String {
    let z = days + 719_468;
    let (era, day) = (z / 146_097, z % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let date = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    format!("{year}-{month:02}-{date:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorded_run_is_part_of_the_sum() {
        let totals = Totals { schedules: 256, nanos: 7_200_000_000_000, ..Totals::default() };
        let run = Run { class: "safe", first_seed: 9, totals: &totals, remark: "" };
        let line = run.line("2026-11-28", "0123abcd");
        assert_eq!(
            line,
            "| 2026-11-28 | 0123abcd | safe | 9 | 256 | 2.0 | 0 | 0000000000000000 |  |\n"
        );
        let sum = sum_of(&["| date | commit | class |\n|---|---|\n", &line, &line].concat());
        let words: Vec<_> = sum.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(words, ["safe", "2", "512", "4.0", "0"]);
    }

    #[test]
    fn a_day_has_its_date() {
        assert_eq!(["2026-11-28", "2028-02-29"], [20_785, 21_243].map(date)[..]);
    }
}
